// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tiles whose K the blocks of a cluster share out: they sum their parts through distributed shared
/// memory.
#pragma once

#include "params.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/wgmma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr int parts_barrier = 3;

/// Sums columns `part` · stored_n and on of the tile over the cluster's blocks, in the same order
/// everywhere. `stages`: where both warpgroups' stages were; they lie there until the blocks of the
/// cluster meet again. All threads but the consumers' arrive once for the cluster, too.
template <class Config>
__device__ __forceinline__ void sum_parts(float const (&acc)[Config::waves][Config::tile_n / 2],
                                          float (&sums)[Config::waves][Config::stored_n / 2],
                                          std::uint32_t stages, int part) {
  constexpr int fours = Config::tile_n / 8, own = Config::stored_n / 8;
  constexpr int step = 16 * 128 * Config::consumers;  // the same sums of all threads
  std::uint32_t const at = stages + (threadIdx.x - 128) * 16;
  named_barrier_sync(parts_barrier, 128 * Config::consumers);  // no product reads the stages now
#pragma unroll
  for (int wave = 0; wave < Config::waves; ++wave)
#pragma unroll
    for (int f = 0; f < fours; ++f) {
      float const* const v = acc[wave] + 4 * f;
      store_shared(at + (wave * fours + f) * step, make_float4(v[0], v[1], v[2], v[3]));
    }
  cluster_sync();
  if (part * own >= fours) return;
#pragma unroll
  for (int wave = 0; wave < Config::waves; ++wave) {
#pragma unroll
    for (int f = 0; f < own; ++f) {
      float* const sum = sums[wave] + 4 * f;
#pragma unroll
      for (int from = 0; from < Config::splits; ++from) {
        float4 const v = load_cluster_four(at + (wave * fours + part * own + f) * step, from);
        sum[0] = from == 0 ? v.x : sum[0] + v.x;
        sum[1] = from == 0 ? v.y : sum[1] + v.y;
        sum[2] = from == 0 ? v.z : sum[2] + v.z;
        sum[3] = from == 0 ? v.w : sum[3] + v.w;
      }
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
