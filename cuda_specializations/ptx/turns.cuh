// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Counters in global memory by which blocks take turns at what they add to (sm_70).
///
/// Source: PTX ISA 9.0, "ld.acquire", "red.release".
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How many have passed a turn on so far. What they wrote before is then seen by this thread, and
/// by those that it meets at a barrier afterwards.
__device__ __forceinline__ unsigned load_turn(unsigned const* counter) {
  unsigned passed;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(passed)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return passed;
}

/// Waits until at least `turn` others have passed a turn on, of which `passed` have as far as is
/// known.
__device__ __forceinline__ void wait_for_turn(unsigned const* counter, int turn,
                                              unsigned passed = 0) {
  while (passed < static_cast<unsigned>(turn)) passed = load_turn(counter);
}

/// Passes the turn on: with it go this thread's writes, and those of threads that it has met at a
/// barrier.
__device__ __forceinline__ void pass_turn(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(counter))
               : "memory");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
