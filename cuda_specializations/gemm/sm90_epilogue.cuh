// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What happens to a sum between the accumulator and C: act(scale·(alpha·sum + beta·C) + bias) +
/// residual, with factors of rows and columns before it and a division after it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <attikos/abi/gemm.hpp>
#include <attikos/epilogue/activation.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A vector or matrix that the epilogue reads; null data means none. Strides count elements.
struct Sm90Addend {
  void const* data;
  DType type;
  std::int64_t batch_stride, stride_m, stride_n;
};

struct Sm90Epilogue {
  float alpha, beta, scale;
  bool along_m;  ///< C's smaller stride is along M
  Activation activation;
  /// C where it is stored element by element or read for beta.
  void* c;
  DType type_c;
  std::int64_t c_batch, c_m, c_n;
  Sm90Addend bias, residual;
  /// Factors of rows, of columns, of everything; null: 1.
  float const* row_factors;
  float const* column_factors;
  float const* factor;
  std::int64_t row_factors_batch, row_factors_stride, column_factors_batch, column_factors_stride;
};

namespace {

__device__ __forceinline__ float load_as_float(void const* data, DType type, std::int64_t at) {
  switch (type) {
    case DType::float16:
      return __half2float(static_cast<__half const*>(data)[at]);
    case DType::bfloat16:
      return __bfloat162float(static_cast<__nv_bfloat16 const*>(data)[at]);
    case DType::int32:
      return static_cast<float>(static_cast<int const*>(data)[at]);
    default:
      return static_cast<float const*>(data)[at];
  }
}

__device__ __forceinline__ void store_from_float(void* data, DType type, std::int64_t at,
                                                 float value) {
  switch (type) {
    case DType::float16:
      static_cast<__half*>(data)[at] = __float2half_rn(value);
      break;
    case DType::bfloat16:
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
      break;
    default:
      static_cast<float*>(data)[at] = value;
  }
}

/// Two 16-bit elements in one word.
__device__ __forceinline__ std::uint32_t pack(DType type, float x, float y) {
  if (type == DType::float16) {
    __half2 const h = __floats2half2_rn(x, y);
    return *reinterpret_cast<std::uint32_t const*>(&h);
  }
  __nv_bfloat162 const h = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<std::uint32_t const*>(&h);
}

/// Four values from `at` on, `stride` elements apart, with one load where they lie together.
__device__ __forceinline__ void load_four(void const* data, DType type, std::int64_t at,
                                          std::int64_t stride, float (&v)[4]) {
  int const bytes = type == DType::float32 || type == DType::int32 ? 4 : 2;
  auto const* const first = static_cast<unsigned char const*>(data) + at * bytes;
  bool const together =
      stride == 1 && (reinterpret_cast<std::uintptr_t>(first) & (4 * bytes - 1)) == 0;
  if (stride == 0) {
    v[0] = v[1] = v[2] = v[3] = load_as_float(data, type, at);
  } else if (together && type == DType::float32) {
    float4 const w = *reinterpret_cast<float4 const*>(first);
    v[0] = w.x, v[1] = w.y, v[2] = w.z, v[3] = w.w;
  } else if (together && bytes == 2) {
    uint2 const w = *reinterpret_cast<uint2 const*>(first);
    if (type == DType::float16) {
      float2 const x = __half22float2(*reinterpret_cast<__half2 const*>(&w.x)),
                   y = __half22float2(*reinterpret_cast<__half2 const*>(&w.y));
      v[0] = x.x, v[1] = x.y, v[2] = y.x, v[3] = y.y;
    } else {
      v[0] = __uint_as_float(w.x << 16), v[1] = __uint_as_float(w.x & 0xFFFF0000);
      v[2] = __uint_as_float(w.y << 16), v[3] = __uint_as_float(w.y & 0xFFFF0000);
    }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = load_as_float(data, type, at + j * stride);
  }
}

/// Any activation, as one piece of code: inlined for every sum it would be a hundred.
__device__ __noinline__ float activate_called(Activation activation, float x) {
  return apply_activation(activation, x);
}

/// Everything but rounding to C's type, for the element (z, m, n), which must exist.
__device__ __forceinline__ float finish(Sm90Epilogue const& e, float sum, std::int64_t z,
                                        std::int64_t m, std::int64_t n) {
  float v = sum;
  if (e.row_factors != nullptr)
    v *= e.row_factors[z * e.row_factors_batch + m * e.row_factors_stride];
  if (e.column_factors != nullptr)
    v *= e.column_factors[z * e.column_factors_batch + n * e.column_factors_stride];
  v *= e.alpha;
  if (e.beta != 0)
    v += e.beta * load_as_float(e.c, e.type_c, z * e.c_batch + m * e.c_m + n * e.c_n);
  v *= e.factor != nullptr ? e.scale * *e.factor : e.scale;
  if (e.bias.data != nullptr)
    v += load_as_float(e.bias.data, e.bias.type, m * e.bias.stride_m + n * e.bias.stride_n);
  v = apply_activation(e.activation, v);
  if (e.residual.data != nullptr)
    v += load_as_float(
        e.residual.data, e.residual.type,
        z * e.residual.batch_stride + m * e.residual.stride_m + n * e.residual.stride_n);
  return v;
}

/// finish() for four elements along C's unit stride, from (z, m, n) on, all of which must exist.
__device__ __forceinline__ void finish_four(Sm90Epilogue const& e, float (&v)[4], std::int64_t z,
                                            std::int64_t m, std::int64_t n, bool along_m) {
  float w[4];
  auto const step = [&](std::int64_t stride_m, std::int64_t stride_n) {
    return along_m ? stride_m : stride_n;
  };
  auto const multiply = [&] {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] *= w[j];
  };
  auto const add = [&](float factor) {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] += factor * w[j];
  };
  if (e.row_factors != nullptr) {
    load_four(e.row_factors, DType::float32, z * e.row_factors_batch + m * e.row_factors_stride,
              step(e.row_factors_stride, 0), w);
    multiply();
  }
  if (e.column_factors != nullptr) {
    load_four(e.column_factors, DType::float32,
              z * e.column_factors_batch + n * e.column_factors_stride,
              step(0, e.column_factors_stride), w);
    multiply();
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) v[j] *= e.alpha;
  if (e.beta != 0) {
    load_four(e.c, e.type_c, z * e.c_batch + m * e.c_m + n * e.c_n, step(e.c_m, e.c_n), w);
    add(e.beta);
  }
  float const scale = e.factor != nullptr ? e.scale * *e.factor : e.scale;
#pragma unroll
  for (int j = 0; j < 4; ++j) v[j] *= scale;
  if (e.bias.data != nullptr) {
    load_four(e.bias.data, e.bias.type, m * e.bias.stride_m + n * e.bias.stride_n,
              step(e.bias.stride_m, e.bias.stride_n), w);
    add(1);
  }
  if (e.activation != Activation::none) {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = activate_called(e.activation, v[j]);
  }
  if (e.residual.data != nullptr) {
    load_four(e.residual.data, e.residual.type,
              z * e.residual.batch_stride + m * e.residual.stride_m + n * e.residual.stride_n,
              step(e.residual.stride_m, e.residual.stride_n), w);
    add(1);
  }
}

/// Rounds and stores what finish_four() gives. C's unit stride is along M or N, its address and its
/// other strides are multiples of four elements.
__device__ __forceinline__ void store_four(Sm90Epilogue const& e, std::int64_t to,
                                           float const (&v)[4]) {
  if (e.type_c == DType::float32) {
    *reinterpret_cast<float4*>(static_cast<float*>(e.c) + to) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    *reinterpret_cast<uint2*>(static_cast<__half*>(e.c) + to) =
        make_uint2(pack(e.type_c, v[0], v[1]), pack(e.type_c, v[2], v[3]));
  }
}

/// The same for sums of int8 products: int32 C is exact, anything else goes through float32.
__device__ __forceinline__ void store_integer(Sm90Epilogue const& e, int sum, std::int64_t z,
                                              std::int64_t m, std::int64_t n, std::int64_t to) {
  if (e.type_c == DType::int32)
    static_cast<int*>(e.c)[to] = e.beta != 0 ? sum + static_cast<int const*>(e.c)[to] : sum;
  else
    store_from_float(e.c, e.type_c, to, finish(e, static_cast<float>(sum), z, m, n));
}

template <class Acc>
using FourOf = std::conditional_t<std::is_same_v<Acc, int>, int4, float4>;

/// Finishes and stores four sums along C's unit stride from (z, m, n) on, of which the first
/// `exist` do. Not inlined: there are dozens of kernels.
template <class Acc>
__device__ __noinline__ void finish_and_store(Sm90Epilogue const& e, FourOf<Acc> four,
                                              std::int64_t z, std::int64_t m, std::int64_t n,
                                              int exist, bool along_m) {
  std::int64_t const to = z * e.c_batch + m * e.c_m + n * e.c_n;
  Acc const sums[4] = {four.x, four.y, four.z, four.w};
  if constexpr (std::is_same_v<Acc, int>) {
    if (e.type_c == DType::int32) {
      int* const c = static_cast<int*>(e.c) + to;
      if (e.beta == 0 && exist >= 4) {
        *reinterpret_cast<int4*>(c) = four;
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (j < exist) c[j] = e.beta != 0 ? c[j] + sums[j] : sums[j];
      }
      return;
    }
  }
  if (exist >= 4) {
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = static_cast<float>(sums[j]);
    finish_four(e, v, z, m, n, along_m);
    store_four(e, to, v);
  } else {
#pragma unroll
    for (int j = 0; j < 3; ++j)
      if (j < exist)
        store_from_float(
            e.c, e.type_c, to + j,
            finish(e, static_cast<float>(sums[j]), z, along_m ? m + j : m, along_m ? n : n + j));
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
