// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What happens to a sum between the accumulator and C: act(scale·(alpha·sum + beta·C) + bias) +
/// residual, with factors of rows and columns before it and, where C has 8 bits, a division after
/// it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <attikos/abi/gemm.hpp>
#include <type_traits>

#include "common/activation.cuh"
#include "common/elements.cuh"
#include "ptx/convert.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A vector or matrix that the epilogue reads; null data means none. Strides count elements.
struct EpilogueAddend {
  void const* data;
  DType type;
  std::int64_t batch_stride, stride_m, stride_n;
};

/// Where the argument of act goes; null data means nowhere. Strides count elements.
struct PreActivation {
  void* data;
  DType type;
  std::int64_t batch_stride, stride_m, stride_n;
};

struct Epilogue {
  float alpha, beta, scale;
  bool along_m;  ///< C's smaller stride is along M
  /// Whether there is more to do than alpha; whether there are only factors of all elements of a
  /// matrix; whether there are only those and factors of its rows and columns.
  bool more_than_alpha, only_factors, only_row_column_factors;
  bool only_added;                 ///< beside alpha there is C or a residual to add, no more
  bool only_alpha;                 ///< alpha is all there is to do, and C's elements have no 8 bits
  bool rows_ahead, columns_ahead;  ///< their factors are fetched before a tile's sums are there
  Activation activation;
  /// C where it is stored element by element or read for beta.
  void* c;
  DType type_c;
  std::int64_t c_batch, c_m, c_n;
  EpilogueAddend bias, residual;
  PreActivation pre_activation;
  /// Factors of rows, of columns, of everything; null: 1.
  float const* row_factors;
  float const* column_factors;
  float const* factor;
  float const* out;  ///< what a C of 8 bits is divided by; null: 1
  std::int64_t row_factors_batch, row_factors_stride, column_factors_batch, column_factors_stride;
};

namespace {

constexpr __host__ __device__ bool has_8_bits(DType type) {
  return type == DType::int8 || type == DType::float8_e4m3 || type == DType::float8_e5m2;
}

__device__ __forceinline__ float load_as_float(void const* data, DType type, std::int64_t at) {
  switch (type) {
    case DType::float16:
      return widen(static_cast<__half const*>(data)[at]);
    case DType::bfloat16:
      return widen(static_cast<__nv_bfloat16 const*>(data)[at]);
    case DType::int32:
      return static_cast<float>(static_cast<int const*>(data)[at]);
    default:
      return static_cast<float const*>(data)[at];
  }
}

/// Four int8 elements in one word, saturated; NaN becomes 0.
__device__ __forceinline__ std::uint32_t round_to_int8(float4 v) {
  auto const rounded = [](float x) {
    float const there = x == x ? x : 0;
    // 1.5·2^23 has the spacing 1: adding it rounds.
    return __float_as_uint(fminf(fmaxf(there, -128.0f), 127.0f) + 0x1.8p23f);
  };
  std::uint32_t const low = __byte_perm(rounded(v.x), rounded(v.y), 0x0040);
  return __byte_perm(low, __byte_perm(rounded(v.z), rounded(v.w), 0x0040), 0x5410);
}

/// Of four 8-bit elements in one word, which rounding has saturated, makes those that `infinite`
/// has a bit for what infinities are: NaN in float8_e4m3, infinity in float8_e5m2, -127 in int8,
/// each of which follows the code of the largest number, or of -128.
__device__ __noinline__ std::uint32_t show_infinities(DType type, std::uint32_t word,
                                                      unsigned infinite) {
  std::uint32_t const end = type == DType::int8 ? 0x80 : type == DType::float8_e4m3 ? 0x7e : 0x7b;
  std::uint32_t const looked_at = type == DType::int8 ? 0xff : 0x7f;
  for (int i = 0; i < 4; ++i)
    if ((infinite >> i & 1) != 0 && (word >> 8 * i & looked_at) == end) word += 1u << 8 * i;
  return word;
}

/// Which of some numbers are infinite before they are divided and rounded to 8 bits. Afterwards a
/// finite one whose quotient was too large looks the same. Costs an instruction for each where none
/// is.
class Infinities {
 public:
  template <int Size>
  __device__ __forceinline__ explicit Infinities(float const (&v)[Size]) {
    static_assert(Size <= 32);
    float largest = 0;
#pragma unroll
    for (int r = 0; r < Size; ++r) largest = fmaxf(largest, fabsf(v[r]));
    if (largest > 0x1.fffffep127f) {
#pragma unroll
      for (int r = 0; r < Size; ++r)
        bits_ |= static_cast<unsigned>(fabsf(v[r]) > 0x1.fffffep127f) << r;
    }
  }
  __device__ __forceinline__ bool any() const { return bits_ != 0; }
  /// A word of four of them from number `first` on, rounded.
  __device__ __forceinline__ std::uint32_t show(DType type, std::uint32_t word, int first) const {
    return show_infinities(type, word, bits_ >> first);
  }

 private:
  unsigned bits_ = 0;
};

/// Four 8-bit elements in one word, divided before. One piece of code for all, since sm_80 rounds
/// to float8 by many instructions.
__device__ __noinline__ std::uint32_t quantize_four(DType type, float divisor, float4 v) {
  float const undivided[4] = {v.x, v.y, v.z, v.w};
  Infinities const infinities(undivided);
  v = {v.x / divisor, v.y / divisor, v.z / divisor, v.w / divisor};
  std::uint32_t const word = type == DType::int8          ? round_to_int8(v)
                             : type == DType::float8_e4m3 ? round_to_float8<__NV_E4M3>(v)
                                                          : round_to_float8<__NV_E5M2>(v);
  return infinities.any() ? infinities.show(type, word, 0) : word;
}

/// What elements of an 8-bit C are divided by.
__device__ __forceinline__ float divisor_of(Epilogue const& e) {
  return e.out != nullptr ? *e.out : 1;
}

/// Not inlined: few calls divide.
__device__ __noinline__ float4 divide_four(float4 v, float divisor) {
  return {v.x / divisor, v.y / divisor, v.z / divisor, v.w / divisor};
}

/// Divides many numbers by one. Where its reciprocal is far from the ends of float, a product with
/// it is corrected, which rounds as a division does at a fraction of its instructions.
class ManyQuotients {
 public:
  __device__ __forceinline__ explicit ManyQuotients(float divisor)
      : divisor_(divisor),
        reciprocal_(fabsf(divisor) > 0x1p-100f && fabsf(divisor) < 0x1p100f ? 1 / divisor : 0) {}
  template <int Size>
  __device__ __forceinline__ void apply(float (&v)[Size]) const {
    if (reciprocal_ != 0) {
#pragma unroll
      for (int r = 0; r < Size; ++r) {
        float const quotient = v[r] * reciprocal_;
        float const corrected = fmaf(fmaf(-quotient, divisor_, v[r]), reciprocal_, quotient);
        v[r] = fabsf(quotient) < 0x1p100f ? corrected : quotient;  // infinities have no remainder
      }
    } else {
#pragma unroll
      for (int r = 0; r < Size; r += 4) {
        float4 const q = divide_four({v[r], v[r + 1], v[r + 2], v[r + 3]}, divisor_);
        v[r] = q.x, v[r + 1] = q.y, v[r + 2] = q.z, v[r + 3] = q.w;
      }
    }
  }

 private:
  float divisor_, reciprocal_;
};

/// Rounds and stores one element of C.
__device__ __forceinline__ void store_one(Epilogue const& e, std::int64_t to, float value) {
  switch (e.type_c) {
    case DType::float16:
      static_cast<__half*>(e.c)[to] = __float2half_rn(value);
      break;
    case DType::bfloat16:
      static_cast<__nv_bfloat16*>(e.c)[to] = __float2bfloat16_rn(value);
      break;
    case DType::float32:
      static_cast<float*>(e.c)[to] = value;
      break;
    default:
      static_cast<std::uint8_t*>(e.c)[to] =
          static_cast<std::uint8_t>(quantize_four(e.type_c, divisor_of(e), {value, 0, 0, 0}));
  }
}

/// Stores the first `exist` of `Count` sums, `step` elements of C apart from number `to` on, of an
/// epilogue with `only_alpha`. `sum_at(i)`: the sums. What is the same for all is not looked at for
/// each, and no store waits for another's sum.
template <int Count, class SumAt>
__device__ __forceinline__ void store_times_alpha(Epilogue const& e, std::int64_t to,
                                                  std::int64_t step, int exist, SumAt sum_at) {
  auto const all = [&](auto* c, auto convert) {
    c += to;
#pragma unroll 8
    for (int i = 0; i < Count; ++i) {
      if (i < exist) *c = convert(sum_at(i));
      c += step;
    }
  };
  float const alpha = e.alpha;
  switch (e.type_c) {
    case DType::float16:
      return all(static_cast<__half*>(e.c),
                 [&](auto sum) { return __float2half_rn(alpha * static_cast<float>(sum)); });
    case DType::bfloat16:
      return all(static_cast<__nv_bfloat16*>(e.c),
                 [&](auto sum) { return __float2bfloat16_rn(alpha * static_cast<float>(sum)); });
    case DType::float32:
      return all(static_cast<float*>(e.c),
                 [&](auto sum) { return alpha * static_cast<float>(sum); });
    default:
      return all(static_cast<int*>(e.c), [](auto sum) { return static_cast<int>(sum); });
  }
}

/// Any activation, as one function: inlined for every sum there would be a hundred copies.
__device__ __noinline__ float4 activate_four(Activation activation, float4 x) {
  return {fast_activation(activation, x.x), fast_activation(activation, x.y),
          fast_activation(activation, x.z), fast_activation(activation, x.w)};
}
__device__ __noinline__ float activate_called(Activation activation, float x) {
  return fast_activation(activation, x);
}

/// The factors of an epilogue that has nothing else, each one for all elements of a matrix.
struct EpilogueFactors {
  float first, second;  ///< of A; of B and alpha and scales

  __device__ __forceinline__ EpilogueFactors(Epilogue const& e, int z) : first(1), second(e.alpha) {
    if (!e.more_than_alpha) return;
    if (e.row_factors != nullptr) first = e.row_factors[z * e.row_factors_batch];
    if (e.column_factors != nullptr) second *= e.column_factors[z * e.column_factors_batch];
    second *= e.factor != nullptr ? e.scale * *e.factor : e.scale;
  }
  template <class Acc>
  __device__ __forceinline__ float apply(Acc sum) const {
    return static_cast<float>(sum) * first * second;
  }
};

/// The argument of act for the element (z, m, n), which must exist.
__device__ __forceinline__ float argument_of(Epilogue const& e, float sum, std::int64_t z,
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
  return v;
}

/// Rounds and stores it. One piece of code for all, as calls that want it are seldom, and apart
/// from what finishes C, which is slower with a call in between.
__device__ __noinline__ void keep_argument(Epilogue const& e, float sum, std::int64_t z,
                                           std::int64_t m, std::int64_t n) {
  PreActivation const& to = e.pre_activation;
  std::int64_t const at = z * to.batch_stride + m * to.stride_m + n * to.stride_n;
  float const v = argument_of(e, sum, z, m, n);
  if (to.type == DType::float32)
    static_cast<float*>(to.data)[at] = v;
  else
    static_cast<std::uint16_t*>(to.data)[at] = static_cast<std::uint16_t>(pack_pair(to.type, v, v));
}

/// The same for the first `exist` of eight sums along M or N.
__device__ __forceinline__ void keep_eight(Epilogue const& e, float (&v)[8], bool along_m,
                                           int exist, std::int64_t z, int m, int n) {
  PreActivation const& to = e.pre_activation;
  std::int64_t const step = along_m ? to.stride_m : to.stride_n;
  std::int64_t const first = z * to.batch_stride + m * to.stride_m + n * to.stride_n;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    int const past = min(j, exist - 1);  // what does not exist is not stored
    v[j] = argument_of(e, v[j], z, along_m ? m + past : m, along_m ? n : n + past);
  }
  if (to.type == DType::float32) {
    float* const x = static_cast<float*>(to.data) + first;
    if (step == 1 && exist == 8 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
      reinterpret_cast<float4*>(x)[0] = make_float4(v[0], v[1], v[2], v[3]);
      reinterpret_cast<float4*>(x)[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (j < exist) x[j * step] = v[j];
    }
  } else {
    std::uint16_t* const x = static_cast<std::uint16_t*>(to.data) + first;
    std::uint32_t w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = pack_pair(to.type, v[2 * j], v[2 * j + 1]);
    if (step == 1 && exist == 8 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
      *reinterpret_cast<uint4*>(x) = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (j < exist) x[j * step] = static_cast<std::uint16_t>(w[j / 2] >> j % 2 * 16);
    }
  }
}

/// Everything but rounding to C's type, for the element (z, m, n), which must exist.
__device__ __forceinline__ float finish(Epilogue const& e, float sum, std::int64_t z,
                                        std::int64_t m, std::int64_t n) {
  float v = argument_of(e, sum, z, m, n);
  if (e.activation != Activation::none) v = activate_called(e.activation, v);
  if (e.residual.data != nullptr)
    v += load_as_float(
        e.residual.data, e.residual.type,
        z * e.residual.batch_stride + m * e.residual.stride_m + n * e.residual.stride_n);
  return v;
}

/// Rounds and stores four elements side by side. C's unit stride is along M or N, its address and
/// its other strides are multiples of four elements.
__device__ __forceinline__ void store_four(Epilogue const& e, std::int64_t to,
                                           float const (&v)[4]) {
  if (e.type_c == DType::float32) {
    *reinterpret_cast<float4*>(static_cast<float*>(e.c) + to) = make_float4(v[0], v[1], v[2], v[3]);
  } else if (has_8_bits(e.type_c)) {
    *reinterpret_cast<std::uint32_t*>(static_cast<std::uint8_t*>(e.c) + to) =
        quantize_four(e.type_c, divisor_of(e), {v[0], v[1], v[2], v[3]});
  } else {
    *reinterpret_cast<uint2*>(static_cast<__half*>(e.c) + to) =
        make_uint2(pack_pair(e.type_c, v[0], v[1]), pack_pair(e.type_c, v[2], v[3]));
  }
}

template <class Acc>
using FourOf = std::conditional_t<std::is_same_v<Acc, int>, int4, float4>;

/// Where groups of four along C's unit stride lie: all at `inner` along it, each at its own place
/// along the other dimension.
template <int Count>
struct FoursAt {
  bool along_m;
  int z, inner, outer[Count];
};

/// What an addend has at such places, as it comes from memory: loads of all groups are under way
/// before the first is used.
template <int Count>
class FoursOfAddend {
 public:
  __device__ __forceinline__ void load(EpilogueAddend const& a, FoursAt<Count> const& at) {
    type_ = a.type;
    std::int64_t const inner = at.along_m ? a.stride_m : a.stride_n,
                       outer = at.along_m ? a.stride_n : a.stride_m;
    int const bytes = a.type == DType::float32 ? 4 : 2;
    std::int64_t const first = at.z * a.batch_stride + at.inner * inner;
    auto const* const data = static_cast<unsigned char const*>(a.data);
    whole_ = inner == 1 && (Count == 1 || outer % 4 == 0) &&
             (reinterpret_cast<std::uintptr_t>(data + (first + at.outer[0] * outer) * bytes) &
              (4 * bytes - 1)) == 0;
    if (!whole_) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        std::int64_t const to = first + at.outer[i] * outer;
        raw_[i].x = __float_as_uint(load_as_float(data, type_, to));
        raw_[i].y = __float_as_uint(load_as_float(data, type_, to + inner));
        raw_[i].z = __float_as_uint(load_as_float(data, type_, to + 2 * inner));
        raw_[i].w = __float_as_uint(load_as_float(data, type_, to + 3 * inner));
      }
    } else if (bytes == 4) {
#pragma unroll
      for (int i = 0; i < Count; ++i)
        raw_[i] = *reinterpret_cast<uint4 const*>(data + (first + at.outer[i] * outer) * 4);
    } else {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        uint2 const two = *reinterpret_cast<uint2 const*>(data + (first + at.outer[i] * outer) * 2);
        raw_[i].x = two.x, raw_[i].y = two.y;
      }
    }
  }

  /// Adds `factor` times group `i` to `v`.
  __device__ __forceinline__ void add(int i, float factor, float (&v)[4]) const {
    uint4 w = raw_[i];
    if (whole_ && type_ != DType::float32) {
      float2 const x = widen_pair(type_, w.x), y = widen_pair(type_, w.y);
      w = {__float_as_uint(x.x), __float_as_uint(x.y), __float_as_uint(y.x), __float_as_uint(y.y)};
    }
    v[0] += factor * __uint_as_float(w.x), v[1] += factor * __uint_as_float(w.y);
    v[2] += factor * __uint_as_float(w.z), v[3] += factor * __uint_as_float(w.w);
  }

 private:
  DType type_;
  bool whole_;
  uint4 raw_[Count];
};

/// finish() for groups of four elements, all of which must exist. There is no residual beside beta.
template <int Count>
__device__ __forceinline__ void finish_fours(Epilogue const& e, FoursAt<Count> const& at,
                                             float (&v)[Count][4]) {
  bool const along_m = at.along_m;
  float const* const inner_factors = along_m ? e.row_factors : e.column_factors;
  float const* const outer_factors = along_m ? e.column_factors : e.row_factors;
  std::int64_t const inner_stride = along_m ? e.row_factors_stride : e.column_factors_stride,
                     inner_batch = along_m ? e.row_factors_batch : e.column_factors_batch,
                     outer_stride = along_m ? e.column_factors_stride : e.row_factors_stride,
                     outer_batch = along_m ? e.column_factors_batch : e.row_factors_batch;
  FoursOfAddend<Count> addend;  // C or the residual
  if (e.beta != 0)
    addend.load({e.c, e.type_c, e.c_batch, e.c_m, e.c_n}, at);
  else if (e.residual.data != nullptr)
    addend.load(e.residual, at);
  // A bias has one dimension, so that either its numbers along C's unit stride are the same or
  // those of the groups are.
  std::int64_t const inner_bias = along_m ? e.bias.stride_m : e.bias.stride_n,
                     outer_bias = along_m ? e.bias.stride_n : e.bias.stride_m;
  float inner_factor[4], outer_factor[Count], bias[Count < 4 ? 4 : Count];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    inner_factor[j] = inner_factors == nullptr
                          ? 1
                          : inner_factors[at.z * inner_batch + (at.inner + j) * inner_stride];
#pragma unroll
  for (int i = 0; i < Count; ++i)
    outer_factor[i] = outer_factors == nullptr
                          ? 1
                          : outer_factors[at.z * outer_batch + at.outer[i] * outer_stride];
  if (e.bias.data != nullptr && inner_bias != 0) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      bias[j] = load_as_float(e.bias.data, e.bias.type, (at.inner + j) * inner_bias);
  } else if (e.bias.data != nullptr) {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      bias[i] = load_as_float(e.bias.data, e.bias.type, at.outer[i] * outer_bias);
  }
  float const scale = e.factor != nullptr ? e.scale * *e.factor : e.scale;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[i][j] = v[i][j] * inner_factor[j] * outer_factor[i] * e.alpha;
    if (e.beta != 0) addend.add(i, e.beta, v[i]);
#pragma unroll
    for (int j = 0; j < 4; ++j) v[i][j] *= scale;
    if (e.bias.data != nullptr) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[i][j] += inner_bias != 0 ? bias[j] : bias[i];
    }
    if (e.activation != Activation::none) {
      float4 const a = activate_four(e.activation, {v[i][0], v[i][1], v[i][2], v[i][3]});
      v[i][0] = a.x, v[i][1] = a.y, v[i][2] = a.z, v[i][3] = a.w;
    }
    if (e.residual.data != nullptr) addend.add(i, 1, v[i]);
  }
}

/// Finishes and stores groups of four sums, of which the first `lines` groups are in C.
template <class Acc, int Count>
__device__ __forceinline__ void finish_and_store(Epilogue const& e, FoursAt<Count> at,
                                                 FourOf<Acc> const (&sums)[Count], int lines) {
  std::int64_t const outer_stride = at.along_m ? e.c_n : e.c_m;
  std::int64_t const first = at.z * e.c_batch + at.inner * (at.along_m ? e.c_m : e.c_n);
  if constexpr (std::is_same_v<Acc, int>) {
    if (e.type_c == DType::int32) {
#pragma unroll
      for (int i = 0; i < Count; ++i)
        if (i < lines)
          *reinterpret_cast<int4*>(static_cast<int*>(e.c) + first + at.outer[i] * outer_stride) =
              sums[i];
      return;
    }
  }
  float v[Count][4];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    v[i][0] = static_cast<float>(sums[i].x), v[i][1] = static_cast<float>(sums[i].y);
    v[i][2] = static_cast<float>(sums[i].z), v[i][3] = static_cast<float>(sums[i].w);
    if (i >= lines) at.outer[i] = at.outer[0];  // read, but not stored
  }
  finish_fours(e, at, v);
#pragma unroll
  for (int i = 0; i < Count; ++i)
    if (i < lines) store_four(e, first + at.outer[i] * outer_stride, v[i]);
}

/// Finishes and stores one sum.
template <class Acc>
__device__ __forceinline__ void finish_element(Epilogue const& e, Acc sum, std::int64_t z,
                                               std::int64_t m, std::int64_t n) {
  std::int64_t const to = z * e.c_batch + m * e.c_m + n * e.c_n;
  if constexpr (std::is_same_v<Acc, int>) {
    if (e.type_c == DType::int32) {  // exact
      static_cast<int*>(e.c)[to] = e.beta != 0 ? sum + static_cast<int const*>(e.c)[to] : sum;
      return;
    }
  }
  store_one(e, to, finish(e, static_cast<float>(sum), z, m, n));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
