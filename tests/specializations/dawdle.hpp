// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Delays that nobody can foresee, which bring races to light. With this file ahead of a kernel's
/// source (nvcc -include) and ATTIKOS_DAWDLE() standing for dawdle(), they are at every wait and
/// every arrival of its rings.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

__host__ __device__ inline std::uint32_t mix(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/// Sleeps for up to 2 µs, three quarters of the times not at all. Has no branch, at which the
/// compiler would have the products of a warpgroup wait for each other.
__device__ __forceinline__ void dawdle(std::uint32_t seed) {
  std::uint32_t const bits = mix(seed);
  std::uint32_t const now_and_then = 0u - static_cast<std::uint32_t>((bits & 3) == 0);
  asm volatile("nanosleep.u32 %0;" ::"r"((bits >> 22) & now_and_then) : "memory");
}

/// The same, as the clock and the warp will have it.
__device__ __forceinline__ void dawdle() {
  std::uint32_t clock, warp;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
  dawdle(clock + warp * 0x9E3779B9u);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
