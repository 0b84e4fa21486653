// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What attention kernels from sm_75 on do alike, whatever they multiply: which tile is a block's,
/// its queries, the ring of keys and values, and rows that see nothing.
#pragma once

#include "common/ring.cuh"
#include "load.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Finds this block's tile; false if there is nothing to do in it. The tile is in shared memory,
/// since registers are scarce.
template <class Config>
__device__ __forceinline__ bool take_tile(MmaAttentionParams const& p, typename Config::Tile& t) {
  if (threadIdx.x == 0) {
    int z, slot;
    tile_of_index(p, static_cast<int>(blockIdx.x), z, slot);
    if (locate_tile<Config>(p, z, slot, t)) {
      t.template find_keys<typename Config::Source>(p);
      if constexpr (sizeof(typename Config::Element) == 2) add_results(p, t);
      if constexpr (Config::scaled) t.find_scale(p, p.terms);
    } else {
      t.rows = 0;
    }
  }
  __syncthreads();
  return t.rows != 0;
}

/// Queries of a tile none of which sees a key: 0 and -inf. `Sum`: of the log-sum-exp.
template <class Config, class Sum>
__device__ __forceinline__ void store_zeros(AttentionParams const& p, AttentionTile const& t) {
  using T = typename Config::Element;
  abi::AttentionArgs const& g = p.args;
  std::int64_t const b = g.cu_seqlens_q.data != nullptr ? 0 : t.batch;
  int const rows = min(t.rows - t.row0, Config::tile_m), dv = static_cast<int>(g.head_dim_v);
  T* const out = static_cast<T*>(g.out) + b * g.out_stride[0] + t.head * g.out_stride[1];
  for (int at = static_cast<int>(threadIdx.x); at < rows * dv; at += Config::threads)
    out[(std::int64_t{t.begin_q} + t.row0 + at / dv) * g.out_stride[2] +
        at % dv * g.out_stride[3]] = static_cast<T>(0.0f);
  if (g.lse == nullptr) return;
  Sum* const lse = static_cast<Sum*>(g.lse) + b * g.lse_stride[0] + t.head * g.lse_stride[1];
  for (int r = static_cast<int>(threadIdx.x); r < rows; r += Config::threads)
    lse[(std::int64_t{t.begin_q} + t.row0 + r) * g.lse_stride[2]] =
        -static_cast<Sum>(__builtin_huge_val());
}

/// Starts the copies of a tile's queries to shared memory and closes their group.
template <class Config>
__device__ __forceinline__ void load_queries(MmaAttentionParams const& p, AttentionTile const& t,
                                             std::uint32_t to) {
  using T = typename Config::Source;
  abi::AttentionArgs const& g = p.args;
  std::int64_t const b = g.cu_seqlens_q.data != nullptr ? 0 : t.batch;
  T const* const q = static_cast<T const*>(g.q) + b * g.q_stride[0] + t.head * g.q_stride[1] +
                     (std::int64_t{t.begin_q} + t.row0) * g.q_stride[2];
  RowCopier<typename Config::Copied>().template copy<Config::tile_m>(
      to, q, g.q_stride[2], g.q_stride[3], static_cast<int>(g.head_dim), t.len_q - t.row0,
      p.wide_q);
  if constexpr (Config::Copied::asynchronous) copy_async_commit();
}

/// First query of a thread.
template <class Config>
__device__ __forceinline__ int own_row(AttentionTile const& t, int thread) {
  return t.row0 + thread / 32 * Config::row_tiles * 16 + thread % 32 / 4;
}

/// Whether one of a warp's queries sees a key of block n: always, except near a mask's edge.
template <class Config>
__device__ __forceinline__ bool sees_block(AttentionTile const& t, int n) {
  if (n >= t.whole_from && n < t.whole_end) return true;
  int const first = t.row0 + fresh_thread() / 32 * Config::row_tiles * 16;
  int const last = min(first + Config::row_tiles * 16, t.len_q) - 1;
  int const from = t.seen_from(first), end = first > last ? 0 : t.seen_end(last);
  return uniform((n + 1) * Config::tile_n > from && n * Config::tile_n < end) != 0;
}

/// The ring through which blocks of keys and of values pass in turn, from the last block to the
/// first. A barrier before each step hands the place of the step before on to the copies of what
/// comes `stages` - 1 steps later.
template <class Config>
struct KeyRing {
  static constexpr int ahead = Config::stages - 1;  ///< steps between a copy's start and its use

  KeyLoader<Config> loader;
  std::uint32_t const ring;
  int read = 0;  ///< place that is read next; the one before it is free

  __device__ __forceinline__ KeyRing(MmaAttentionParams const& p, MmaAttentionTile const& t,
                                     std::uint32_t at)
      : loader(p, t), ring(at) {
#pragma unroll
    for (int step = 0; step < ahead; ++step) {
      std::uint32_t const to = ring + step * Config::slot_bytes;
      if (step % 2 == 0)
        loader.template issue<false>(t.end - 1 - step / 2, to);
      else
        loader.template issue<true>(t.end - 1 - step / 2, to);
      copy_async_commit();
    }
  }

  /// Waits for the keys of block n.
  __device__ __forceinline__ std::uint32_t wait_for_keys() {
    copy_async_wait<ahead - 1>();
    __syncthreads();
    return ring + read * Config::slot_bytes;
  }

  /// Waits for values. Tells, if asked to `look`, whether one of them is infinite or NaN.
  __device__ __forceinline__ std::uint32_t wait_for_values(bool look, bool& no_numbers) {
    copy_async_wait<ahead - 1>();
    std::uint32_t const here = ring + read * Config::slot_bytes;
    no_numbers = false;
    if (look)
      no_numbers = __syncthreads_or(loader.no_numbers(here)) != 0;
    else
      __syncthreads();
    return here;
  }

  /// Fills the free place while products with the keys, or values, of block n are under way.
  template <bool AtValues>
  __device__ __forceinline__ void fill(int n) {
    constexpr int after = AtValues ? ahead + 1 : ahead;  // steps behind the keys of block n
    loader.template issue<after % 2 != 0>(
        n - after / 2, ring + previous_in_ring<Config::stages>(read) * Config::slot_bytes);
    copy_async_commit();
    read = next_in_ring<Config::stages>(read);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
