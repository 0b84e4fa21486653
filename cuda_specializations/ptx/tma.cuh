// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Copies of boxes between global and shared memory and additions of boxes by the copy engine
/// (TMA), and stores of 8 × 8 matrices.
///
/// A box lies in shared memory in lines of 128 bytes from a multiple of 1024 on; of line y, 16-byte
/// chunk c is found at chunk c ^ (y % 8).
///
/// Source: PTX ISA 9.0, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "Swizzling modes",
/// "stmatrix".
#pragma once

#include <cuda.h>

#include "mbarrier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How long L2 should keep what a copy reads: the encodings of createpolicy for whole accesses.
enum class Keep : std::uint64_t {
  normal = 0x1000000000000000,
  briefly = 0x12F0000000000000,
  long_term = 0x14F0000000000000
};

/// Fetches a description ahead of the first copy by it; one thread.
__device__ __forceinline__ void prefetch_tensor_map(CUtensorMap const* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Loads the box at (x, y, z), x along the unit stride and a multiple of 16 bytes: with another the
/// launch fails. One thread; `barrier` counts the bytes. What lies outside the tensor becomes zero
/// and counts too.
__device__ __forceinline__ void tma_load(void* to, CUtensorMap const* map, std::uint64_t* barrier,
                                         Keep keep, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z),
      "l"(static_cast<std::uint64_t>(keep))
      : "memory");
}

/// The same into the same place of every block of the cluster whose bit is set in `blocks`; each
/// one's own barrier counts the bytes.
__device__ __forceinline__ void tma_load_multicast(void* to, CUtensorMap const* map,
                                                   std::uint64_t* barrier, std::uint16_t blocks,
                                                   Keep keep, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(
          shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(blocks),
      "l"(static_cast<std::uint64_t>(keep))
      : "memory");
}

/// Stores a box, x a multiple of 16 bytes and no coordinate below zero: else the launch fails. What
/// lies behind the tensor's end is not written, but for the rest of a line's last 16 bytes. One
/// thread, after a fence_proxy_async and a barrier of those that wrote the box.
__device__ __forceinline__ void tma_store(CUtensorMap const* map, void const* from, int x, int y,
                                          int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
          map),
      "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/// Adds a box to what lies in its place, each element in one step that no other addition comes
/// between, in no fixed order; otherwise as tma_store.
__device__ __forceinline__ void tma_reduce_add(CUtensorMap const* map, void const* from, int x,
                                               int y, int z) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/// Closes the group of this thread's stores and additions since the last one.
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `Pending` of this thread's latest groups still read shared memory.
template <int Pending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

/// Stores four 8 × 8 matrices of 16-bit elements, sm_90; lane l gives the address of row l % 8 of
/// matrix l / 8 and holds elements 2 · (l % 4) and the next of row l / 4 of each.
__device__ __forceinline__ void store_matrices(std::uint32_t address, std::uint32_t r0,
                                               std::uint32_t r1, std::uint32_t r2,
                                               std::uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

/// The same of the transposed matrices: lane l holds elements l / 4 of rows 2 · (l % 4) and the
/// next.
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t address, std::uint32_t r0,
                                                          std::uint32_t r1, std::uint32_t r2,
                                                          std::uint32_t r3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
      : "memory");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
