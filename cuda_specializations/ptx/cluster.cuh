// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Clusters of blocks, the dependence of a launch on the one before it, and registers that move
/// between warpgroups.
///
/// Source: PTX ISA 9.0, "barrier.cluster", "mapa", "griddepcontrol", "setmaxnreg", "elect.sync".
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

#include "global_memory.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Number of this block within its cluster (%cluster_ctarank).
__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Waits for all threads of the cluster; what they wrote to shared memory before is then visible.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

/// Reads what lies at this block's shared address `p` in block `rank` of the cluster.
__device__ __forceinline__ int load_cluster(int const* p, std::uint32_t rank) {
  int value;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.b32 %0, [remote];\n"
      "}"
      : "=r"(value)
      : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(p))), "r"(rank)
      : "memory");
  return value;
}

/// The same word as a float.
__device__ __forceinline__ float load_cluster(float const* p, std::uint32_t rank) {
  return __int_as_float(load_cluster(reinterpret_cast<int const*>(p), rank));
}

/// Reads the 16 bytes at this block's shared address in block `rank` of the cluster.
__device__ __forceinline__ float4 load_cluster_four(std::uint32_t address, std::uint32_t rank) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

/// Writes the 16 bytes at this block's shared address in block `rank` of the cluster.
__device__ __forceinline__ void store_cluster_four(std::uint32_t address, std::uint32_t rank,
                                                   float4 v) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.v4.f32 [remote], {%2, %3, %4, %5};\n"
      "}" ::"r"(address),
      "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}

/// Waits until the launch before this one in the stream is over and its results are visible.
/// Returns at once in an ordinary launch.
__device__ __forceinline__ void wait_for_previous_launch() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Lets a launch that was made dependent on this one take up its place on the device. Nothing
/// becomes visible by it.
__device__ __forceinline__ void allow_next_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Gives all registers but `Count` of each thread back; all warps of a warpgroup, before another
/// one asks for them. Only in a kernel that says how many blocks a multiprocessor takes
/// (`__launch_bounds__(threads, 1)`), which fixes the count to begin with.
template <int Count>
__device__ __forceinline__ void decrease_registers() {
  static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

/// Waits until registers are free and goes up to `Count` of each thread; all warps of a warpgroup.
/// The sum over the block may not exceed what it began with.
template <int Count>
__device__ __forceinline__ void increase_registers() {
  static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

/// True in one lane of a whole warp, known to the compiler as such.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t chosen;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(chosen));
  return chosen != 0;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
