// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where the sums of dq lie that tiles of keys add to: those of up to 64 queries of a tile by
/// blocks of 16 queries and 8 features, the queries one after the other, then the features. Of a
/// block a lane has the four sums that mma.sync and wgmma give it.
#pragma once

#include <attikos/config.hpp>
#include <type_traits>

#include "common/elements.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Additions of four floats at once are there from sm_90 on. Else lanes' neighbours in memory are
/// other lanes' sums.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <class Number>
constexpr bool sums_by_four = std::is_same_v<std::remove_const_t<Number>, float>;
#else
template <class Number>
constexpr bool sums_by_four = false;
#endif

/// Lane's first sum of queries 16 `rows` on and features 8 `columns` on.
template <int D, int TileQ, class Number>
__device__ __forceinline__ Number* place_of_sums(Number* tile, int rows, int columns, int lane) {
  constexpr int together = TileQ < 64 ? TileQ / 16 : 4;
  int const block = (rows / together * (D / 8) + columns) * together + rows % together;
  return tile + block * 128 + lane * (sums_by_four<Number> ? 4 : 1);
}

template <class Number>
__device__ __forceinline__ void load_sums(Number (&x)[4], Number const* from) {
  if constexpr (sums_by_four<Number>) {
    float4 const y = __ldcs(reinterpret_cast<float4 const*>(from));
    x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
  } else {
#pragma unroll
    for (int r = 0; r < 4; ++r) x[r] = __ldcs(from + 32 * r);
  }
}

template <class Number>
__device__ __forceinline__ void store_sums(Number* to, Number const (&x)[4]) {
  if constexpr (sums_by_four<Number>) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
#pragma unroll
    for (int r = 0; r < 4; ++r) to[32 * r] = x[r];
  }
}

/// Four floats side by side, each added in one step that no other addition comes between.
__device__ __forceinline__ void add_four(float* to, float4 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4*>(to), x);
#else
  atomicAdd(to, x.x), atomicAdd(to + 1, x.y), atomicAdd(to + 2, x.z), atomicAdd(to + 3, x.w);
#endif
}

/// Adds to what is there, each sum in one step that no other addition comes between.
template <class Number>
__device__ __forceinline__ void add_sums(Number* to, Number const (&x)[4]) {
  if constexpr (sums_by_four<Number>) {
    add_four(to, make_float4(x[0], x[1], x[2], x[3]));
  } else {
#pragma unroll
    for (int r = 0; r < 4; ++r) atomicAdd(to + 32 * r, x[r]);
  }
}

/// From the sums of a tile of queries, as products of 16-bit elements leave them, to rows of dq in
/// shared memory. 256 threads.
struct SumsOfFragments {
  template <class T, int D, int TileQ>
  __device__ __forceinline__ static void stage(T* rows, int pitch, float const* sums, float scale) {
    int const thread = static_cast<int>(threadIdx.x), lane = thread % 32;
#pragma unroll
    for (int block = thread / 32; block < TileQ * D / 128; block += 8) {
      int const row_tile = block % (TileQ / 16), columns = block / (TileQ / 16);
      float x[4];
      load_sums(x, place_of_sums<D, TileQ>(sums, row_tile, columns, lane));
      std::uint32_t* const to = reinterpret_cast<std::uint32_t*>(
          rows + (row_tile * 16 + lane / 4) * pitch + columns * 8 + lane % 4 * 2);
      to[0] = pack_pair<T>(x[0] * scale, x[1] * scale);
      to[8 * pitch / 2] = pack_pair<T>(x[2] * scale, x[3] * scale);
    }
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
