// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Asynchronous copies of a thread from global to shared memory (cp.async, sm_80).
///
/// Source: PTX ISA 9.0, "Data Movement and Conversion Instructions: Asynchronous copy".
#pragma once

#include <attikos/config.hpp>
#include <attikos/ptx/dawdle.hpp>
#include <cstdint>

#if defined(__CUDACC__)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Copies the first `bytes` of `Size` bytes to the shared address `to` and zeros for the rest. Both
/// addresses are multiples of `Size`, which is 4, 8 or 16; `from` is not followed where `bytes` is
/// 0. 16 bytes pass L1 by.
template <int Size>
__device__ __forceinline__ void copy_async(std::uint32_t to, void const* from, int bytes) {
  static_assert(Size == 4 || Size == 8 || Size == 16);
  if constexpr (Size == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "n"(Size), "r"(bytes)
                 : "memory");
}

/// Copies 4 bytes, all of them.
__device__ __forceinline__ void copy_async_four(std::uint32_t to, void const* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}

/// Copies 16 bytes, all of them.
__device__ __forceinline__ void copy_async_whole(std::uint32_t to, void const* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}

/// Copies 16 bytes, or zeros where not `present`: `from` is not followed then.
__device__ __forceinline__ void copy_async_present(std::uint32_t to, void const* from,
                                                   bool present) {
  asm volatile(
      "{\n"
      ".reg .pred absent;\n"
      "setp.eq.u32 absent, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, absent;\n"
      "}" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(static_cast<std::uint32_t>(present))
      : "memory");
}

/// Closes the group of this thread's copies since the last one.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `Pending` of this thread's latest groups are under way.
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
  ATTIKOS_DAWDLE();
}

/// Arrives at an mbarrier of this block when all of this thread's copies so far have landed; one of
/// the arrivals that the barrier was made for.
__device__ __forceinline__ void copy_async_arrive(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier)))
               : "memory");
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
