// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tiles whose K the blocks of a cluster share out: products with too few tiles for the device, and
/// a long K. They sum their parts through distributed shared memory, always in the same order, so
/// that there is no workspace. In code for sm_90 alone: other cards have no clusters, or run code
/// that was not compiled for them.
#pragma once

#include "epilogue.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared_memory.cuh"
#include "scheduler.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Whether this device code can share out K.
template <class Config>
inline constexpr bool shares_k =
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    Config::most_splits > 1;
#else
    false;
#endif

/// A block's part of a tile's K: one of `splits`.
struct Sm80Share {
  unsigned tile;
  int part, splits;
};

template <class Config>
__device__ __forceinline__ Sm80Share share_of(Sm80Params const& p, unsigned block) {
  if constexpr (shares_k<Config>) {
    if (p.splits > 1) {
      unsigned const splits = static_cast<unsigned>(p.splits);
      return {block / splits, static_cast<int>(block % splits), p.splits};
    }
  }
  return {block, 0, 1};
}

/// Moves a tile's operands on to this block's part of K, and returns its extent.
template <class Config>
__device__ __forceinline__ int cut_to_share(Sm80Params const& p, Sm80Share const& share,
                                            Sm80Place& at) {
  if constexpr (shares_k<Config>) {
    if (share.splits > 1) {
      int const stages = (p.k + Config::tile_k - 1) / Config::tile_k;
      int const begin = share.part * stages / share.splits * Config::tile_k;
      int const end = (share.part + 1) * stages / share.splits * Config::tile_k;
      at.a += begin * (Config::mn_a ? p.a.stride : std::int64_t{Config::size});
      at.b += begin * (Config::mn_b ? p.b.stride : std::int64_t{Config::size});
      return min(end, p.k) - begin;
    }
  }
  return p.k;
}

/// As many sums as fill 16 bytes, and back.
__device__ __forceinline__ float4 pack(float const* v) { return {v[0], v[1], v[2], v[3]}; }
__device__ __forceinline__ float4 pack(int const* v) {
  return {__int_as_float(v[0]), __int_as_float(v[1]), __int_as_float(v[2]), __int_as_float(v[3])};
}
__device__ __forceinline__ float4 pack(double const* v) {
  return {__int_as_float(__double2loint(v[0])), __int_as_float(__double2hiint(v[0])),
          __int_as_float(__double2loint(v[1])), __int_as_float(__double2hiint(v[1]))};
}
__device__ __forceinline__ void unpack(float4 const& from, float* v) {
  v[0] = from.x, v[1] = from.y, v[2] = from.z, v[3] = from.w;
}
__device__ __forceinline__ void unpack(float4 const& from, int* v) {
  v[0] = __float_as_int(from.x), v[1] = __float_as_int(from.y);
  v[2] = __float_as_int(from.z), v[3] = __float_as_int(from.w);
}
__device__ __forceinline__ void unpack(float4 const& from, double* v) {
  v[0] = __hiloint2double(__float_as_int(from.y), __float_as_int(from.x));
  v[1] = __hiloint2double(__float_as_int(from.w), __float_as_int(from.z));
}

/// Sums the parts of a thread's sums over the cluster, from the first block to the last, and
/// leaves the result to the first one. Returns whether this block goes on. All warps of the block
/// are done with the stages; those that have left it do not count.
template <class Config, class Sums>
__device__ __forceinline__ bool sum_parts(Sums& sums, unsigned char* shared,
                                          Sm80Share const& share) {
  if constexpr (shares_k<Config>) {
    if (share.splits == 1) return true;
    using Acc = typename Config::Acc;
    using S = Staging<Config>;
    constexpr int chunks = static_cast<int>(sizeof(Sums)) / 16, width = 16 / sizeof(Acc);
    // Where the warp's results are staged later, so that warps need not wait for one another.
    constexpr int warp_bytes = S::rows * S::stride * static_cast<int>(sizeof(Acc));
    static_assert(512 * chunks <= warp_bytes && warp_bytes % 16 == 0);
    Acc* const all = reinterpret_cast<Acc*>(&sums);
    int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    std::uint32_t const own = shared_address(shared) + warp * warp_bytes + lane * 16;
#pragma unroll
    for (int c = 0; c < chunks; ++c) store_shared(own + c * 512, pack(all + c * width));
    cluster_sync();
#pragma unroll 1
    for (int c = share.part; c < chunks; c += share.splits) {
      Acc total[width], next[width];
      float4 parts[Config::most_splits];
#pragma unroll
      for (int from = 0; from < Config::most_splits; ++from)
        if (from < share.splits) parts[from] = load_cluster_four(own + c * 512, from);
      unpack(parts[0], total);
#pragma unroll
      for (int from = 1; from < Config::most_splits; ++from) {
        if (from >= share.splits) break;
        unpack(parts[from], next);
#pragma unroll
        for (int i = 0; i < width; ++i) total[i] += next[i];
      }
      store_cluster_four(own + c * 512, 0, pack(total));
    }
    cluster_sync();
    if (share.part != 0) return false;
#pragma unroll
    for (int c = 0; c < chunks; ++c) unpack(load_shared(own + c * 512), all + c * width);
    __syncwarp();
  }
  return true;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
