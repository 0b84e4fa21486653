// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Values that are equal in all lanes of a warp and known to the compiler as such, which then keeps
/// them in uniform registers and branches on them without masks.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Lane 0's value, in all lanes.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }
__device__ __forceinline__ std::uint32_t uniform(std::uint32_t x) {
  return __shfl_sync(0xffffffff, x, 0);
}

/// Number of the thread's warp, and of its warpgroup, in its block.
__device__ __forceinline__ int warp_of_block() {
  return uniform(static_cast<int>(threadIdx.x) / 32);
}
__device__ __forceinline__ int warpgroup_of_block() {
  return uniform(static_cast<int>(threadIdx.x) / 128);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
