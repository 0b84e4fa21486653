// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Arithmetic of scores and weights that attention kernels share.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <attikos/ptx/math.hpp>
#include <cstdint>

#include "common/elements.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float load_float(void const* from, DType type, std::int64_t at) {
  if (type == DType::float16) return widen(static_cast<__half const*>(from)[at]);
  if (type == DType::bfloat16) return widen(static_cast<__nv_bfloat16 const*>(from)[at]);
  if (type == DType::float64) return static_cast<float>(static_cast<double const*>(from)[at]);
  return static_cast<float const*>(from)[at];
}

/// Stores `value` in an element of a floating-point type.
__device__ __forceinline__ void store_float(void* to, DType type, std::int64_t at, float value) {
  if (type == DType::float16)
    static_cast<__half*>(to)[at] = __float2half_rn(value);
  else if (type == DType::bfloat16)
    static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(value);
  else if (type == DType::float64)
    static_cast<double*>(to)[at] = value;
  else
    static_cast<float*>(to)[at] = value;
}

/// tanh of small arguments, to a few units in the last place: an odd polynomial for |x| < 0.625.
__device__ __forceinline__ float tanh_near(float x) {
  float const z = x * x;
  float p = fmaf(z, -0.0057054488f, 0.020639492f);
  p = fmaf(p, z, -0.053739835f);
  p = fmaf(p, z, 0.13331443f);
  p = fmaf(p, z, -0.33333281f);
  return fmaf(x * z, p, x);
}
__device__ __forceinline__ float tanh_any(float x) {
  float const e = power_of_2(2 * log2_e * fminf(fabsf(x), 10.0f));
  float const far = copysignf(1.0f - __fdividef(2.0f, e + 1.0f), x);
  return fabsf(x) >= 0.625f ? far : tanh_near(x);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
