// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Approximate functions that are one instruction each.
///
/// Source: PTX ISA 9.0, "Floating Point Instructions: ex2", "rcp".
#pragma once

#include <attikos/config.hpp>

#if defined(__CUDACC__)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// 2^x to a relative error of 2^-22. Subnormal numbers count as 0 and results that would be one
/// become 0; 2^-inf = 0, NaN stays NaN.
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1/x to a relative error of 2^-23; 1/inf = 0. Subnormal numbers count as 0.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
