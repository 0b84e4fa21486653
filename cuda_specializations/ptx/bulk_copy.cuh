// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Copies and additions of contiguous bytes between global and shared memory by the copy engine,
/// and turns at what such additions write.
///
/// Addresses and sizes are multiples of 16 bytes.
///
/// Source: PTX ISA 9.0, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.wait_group",
/// "fence.proxy".
#pragma once

#include "tma.cuh"
#include "turns.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Loads contiguous bytes; `barrier` counts them. One thread.
__device__ __forceinline__ void bulk_load(void* to, void const* from, std::uint32_t bytes,
                                          std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

/// Stores contiguous bytes. One thread, after a fence_proxy_async and a barrier of those that wrote
/// them; it ends with tma_store_commit and a wait.
__device__ __forceinline__ void bulk_store(void* to, void const* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

/// Adds contiguous floats to what lies in their place, each in one step that no other addition
/// comes between. Otherwise as bulk_store.
__device__ __forceinline__ void bulk_add(float* to, float const* from, std::uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

/// Waits until what at most `Pending` of this thread's latest groups have not written is all that
/// is missing in global memory.
template <int Pending>
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

/// wait_for_turn() for what the copy engine does: what it wrote for others before they passed their
/// turns on is then seen by what it does for this thread.
__device__ __forceinline__ void wait_for_bulk_turn(unsigned const* counter, int turn,
                                                   unsigned passed = 0) {
  wait_for_turn(counter, turn, passed);
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Passes the turn on, after a tma_store_wait<0>.
__device__ __forceinline__ void pass_bulk_turn(unsigned* counter) {
  asm volatile("fence.proxy.async.global;" ::: "memory");
  pass_turn(counter);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
