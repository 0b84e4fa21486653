// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where the sums of dq lie that tiles of keys add to: those of up to 64 queries of a tile by
/// blocks of 16 queries and 8 features, the queries one after the other, then the features. Of a
/// block a lane has the four sums that mma.sync and wgmma give it.
#pragma once

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Additions of four floats at once are there from sm_90 on. Before, lanes' neighbours in memory
/// are other lanes' sums.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool sums_by_four = true;
#else
constexpr bool sums_by_four = false;
#endif

/// Lane's first sum of queries 16 `rows` on and features 8 `columns` on.
template <int D, int TileQ>
__device__ __forceinline__ float* place_of_sums(float* tile, int rows, int columns, int lane) {
  constexpr int together = TileQ < 64 ? TileQ / 16 : 4;
  int const block = (rows / together * (D / 8) + columns) * together + rows % together;
  return tile + block * 128 + lane * (sums_by_four ? 4 : 1);
}

__device__ __forceinline__ float4 load_sums(float const* from) {
  if constexpr (sums_by_four) return __ldcs(reinterpret_cast<float4 const*>(from));
  return make_float4(__ldcs(from), __ldcs(from + 32), __ldcs(from + 64), __ldcs(from + 96));
}

__device__ __forceinline__ void store_sums(float* to, float const (&x)[4]) {
  if constexpr (sums_by_four) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
#pragma unroll
    for (int r = 0; r < 4; ++r) to[32 * r] = x[r];
  }
}

/// Adds to what is there, each sum in one step that no other addition comes between.
__device__ __forceinline__ void add_sums(float* to, float const (&x)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4*>(to), make_float4(x[0], x[1], x[2], x[3]));
#else
#pragma unroll
  for (int r = 0; r < 4; ++r) atomicAdd(to + 32 * r, x[r]);
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
