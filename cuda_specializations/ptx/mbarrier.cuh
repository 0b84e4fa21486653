// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Barriers in shared memory that count arrivals and bytes (mbarrier), named barriers, and the
/// fences that belong to them.
///
/// Source: PTX ISA 9.0, "Parallel Synchronization and Communication Instructions": "mbarrier",
/// "barrier", "membar/fence".
#pragma once

#include <attikos/config.hpp>
#include <attikos/ptx/dawdle.hpp>
#include <cstdint>

#include "shared_memory.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// A phase completes when `arrivals` threads have arrived and all bytes announced have landed, at
/// most 2^20 - 1 of either; the next one begins with the same count.
__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

/// Shows initialized barriers to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives and announces bytes that copies will bring.
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint64_t* barrier,
                                                       std::uint32_t bytes) {
  ATTIKOS_DAWDLE();
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Arrives: who waits for the phase sees what this thread wrote before.
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  ATTIKOS_DAWDLE();
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// Arrives at the same barrier of block `rank` of the cluster.
__device__ __forceinline__ void mbarrier_arrive_cluster(std::uint64_t* barrier,
                                                        std::uint32_t rank) {
  ATTIKOS_DAWDLE();
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

/// Waits until the phase of this parity is over. A new barrier counts as past its phase of
/// parity 1.
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
  ATTIKOS_DAWDLE();
}

/// Waits for `threads` threads of the block, a multiple of 32, at barrier `id` of 1 ... 15 (0 is
/// __syncthreads). What they wrote before is then visible.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  ATTIKOS_DAWDLE();
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
  ATTIKOS_DAWDLE();
}

/// Counts this thread at a named barrier without waiting there.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  ATTIKOS_DAWDLE();
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Orders this thread's ordinary accesses to shared memory before later ones by wgmma or the copy
/// engine.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
