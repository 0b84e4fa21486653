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

/// The same for sums of int8 products: int32 C is exact, anything else goes through float32.
__device__ __forceinline__ void store_integer(Sm90Epilogue const& e, int sum, std::int64_t z,
                                              std::int64_t m, std::int64_t n, std::int64_t to) {
  if (e.type_c == DType::int32)
    static_cast<int*>(e.c)[to] = e.beta != 0 ? sum + static_cast<int const*>(e.c)[to] : sum;
  else
    store_from_float(e.c, e.type_c, to, finish(e, static_cast<float>(sum), z, m, n));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
