// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The way of a block through the tiles of queries that meet its tile of keys, which the kernels of
/// attention's gradients for sm_80 and later share whatever they multiply with.
///
/// A tile of keys and values stays in shared memory, dk and dv in registers, while queries and the
/// gradients of their outputs stream by. What comes of a tile of queries for dq is added up in the
/// workspace; tiles of keys take turns at it.
#pragma once

#include "common/ring.cuh"
#include "common/uniform.cuh"
#include "params.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/turns.cuh"
#include "sequences/row_copier.cuh"
#include "sequences/score_math_f64.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Config>
struct BackwardWalk {
  using T = typename Config::Element;
  using Number = NumberOf<T>;
  using Copier = RowCopier<Config>;
  static constexpr int tile_q = Config::tile_q, tile_kv = Config::tile_kv;

  Sm80BackwardParams const& p;
  std::uint32_t const shared;
  KeyTileHead* const heads;  ///< three, of which the next is found while one is worked on

  __device__ __forceinline__ static unsigned fresh_lane() {
    return static_cast<unsigned>(fresh_thread()) % 32;
  }
  __device__ __forceinline__ static int fresh_warp() { return fresh_thread() / 32; }

  /// Finds the next query head from number `n` of the group on that sees some of the keys. One
  /// thread.
  __device__ __forceinline__ void find_head(int n, KeyTile const& keys, KeyTileHead& to) const {
    KeyTileHead t;
    static_cast<KeyTile&>(t) = keys;
    t.first = t.end = 0;
    for (; n < p.group_of_heads && t.first >= t.end; ++n)
      meet_head<tile_q, tile_kv>(p, t.head_kv * p.group_of_heads + n, t);
    if (t.first >= t.end) t.head = -1;
    to = t;
  }

  __device__ __forceinline__ void copy_keys() const {
    abi::AttentionArgs const& g = p.args.forward;
    KeyTileHead const& t = heads[0];
    std::int64_t const b = g.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const row = std::int64_t{t.begin_kv} + t.key0;
    int const left = t.len_kv - t.key0;
    Copier const copier;
    copier.template copy<tile_kv>(shared + Config::k_at,
                                  static_cast<T const*>(g.k) + b * g.k_stride[0] +
                                      t.head_kv * g.k_stride[1] + row * g.k_stride[2],
                                  g.k_stride[2], g.k_stride[3], static_cast<int>(g.head_dim), left,
                                  p.wide_k);
    copier.template copy<tile_kv>(shared + Config::v_at,
                                  static_cast<T const*>(g.v) + b * g.v_stride[0] +
                                      t.head_kv * g.v_stride[1] + row * g.v_stride[2],
                                  g.v_stride[2], g.v_stride[3], static_cast<int>(g.head_dim_v),
                                  left, p.wide_v);
  }
  /// Copies tile m of queries, and what each query brings to all its pairs, to a stage.
  __device__ __forceinline__ void copy_queries(KeyTileHead const& t, int m, int stage) const {
    abi::AttentionArgs const& g = p.args.forward;
    std::int64_t const b = g.cu_seqlens_q.data != nullptr ? 0 : t.batch;
    std::int64_t const row = std::int64_t{t.begin_q} + m * tile_q;
    Copier const copier;
    copier.template copy<tile_q>(
        shared + Config::q_at + stage_of<Config::q_stages>(stage) * Config::q_bytes,
        static_cast<T const*>(g.q) + b * g.q_stride[0] + t.head * g.q_stride[1] +
            row * g.q_stride[2],
        g.q_stride[2], g.q_stride[3], static_cast<int>(g.head_dim), t.len_q - m * tile_q, p.wide_q);
    int const thread = fresh_thread();
    if (thread < Config::row_sum_bytes / 16)
      copy_async_whole(
          shared + Config::rows_at + (Config::row_stages == 1 ? 0 : stage) * Config::row_sum_bytes +
              thread * 16,
          numbers_of<T>(p.rows) + static_cast<std::int64_t>(t.tile0 + m) * (2 * tile_q) +
              thread * (16 / static_cast<int>(sizeof(Number))));
  }
  /// The same for gradients of outputs.
  __device__ __forceinline__ void copy_douts(KeyTileHead const& t, int m, int stage) const {
    abi::AttentionBackwardArgs const& a = p.args;
    std::int64_t const b = a.forward.cu_seqlens_q.data != nullptr ? 0 : t.batch;
    std::int64_t const row = std::int64_t{t.begin_q} + m * tile_q;
    Copier const copier;
    copier.template copy<tile_q>(
        shared + Config::dout_at + stage_of<Config::dout_stages>(stage) * Config::q_bytes,
        static_cast<T const*>(a.dout) + b * a.dout_stride[0] + t.head * a.dout_stride[1] +
            row * a.dout_stride[2],
        a.dout_stride[2], a.dout_stride[3], static_cast<int>(a.forward.head_dim_v),
        t.len_q - m * tile_q, p.wide_dout);
  }

  __device__ __forceinline__ unsigned* turns_at(int tile) const {
    return p.turns + std::int64_t{2} * tile;
  }

  /// A tile of queries of one of `heads`.
  struct Step {
    int n, m;
  };
  /// The next head is not next_in_ring<3>(n), with which kernels of float64 spill more.
  __device__ __forceinline__ Step step_behind(int n, int m) const {
    if (m + 1 < heads[n].end) return {n, m + 1};
    int const next = n == 2 ? 0 : n + 1;
    return {next, heads[next].first};
  }

  /// Works through the tile of keys. `kernel`: the part of a kernel that multiplies, a
  /// BackwardWalk itself; its `Gradients` are dk and dv.
  template <class Kernel>
  __device__ __forceinline__ void run(Kernel const& kernel) const {
    typename Kernel::Gradients gradients = {};
    if (heads[0].head >= 0) {
      int n = 0, m = heads[0].first;
      int stage = 0;    // of two; rings of one have both in one place
      int before = -1;  // number of the tile of queries before
      copy_keys();
      copy_queries(heads[0], m, 0);
      copy_douts(heads[0], m, 0);
      copy_async_commit();
#pragma unroll 1
      for (;;) {
        KeyTileHead const& t = heads[n];
        if (m == t.first && fresh_thread() == 0)
          find_head(t.head - t.head_kv * p.group_of_heads + 1, t, heads[n == 2 ? 0 : n + 1]);
        copy_async_wait<0>();
        __syncthreads();
        // All are done with the tile before.
        if (before >= 0 && fresh_thread() == 32) pass_turn(turns_at(before));
        // Found once more where it is needed again: registers are scarce.
        if (Step const next = step_behind(n, m); heads[next.n].head >= 0) {
          if constexpr (Config::q_stages == 2) copy_queries(heads[next.n], next.m, stage ^ 1);
          if constexpr (Config::dout_stages == 2) copy_douts(heads[next.n], next.m, stage ^ 1);
        }
        copy_async_commit();
        std::uint32_t const q_tile =
            shared + Config::q_at + stage_of<Config::q_stages>(stage) * Config::q_bytes;
        std::uint32_t const dout_tile =
            shared + Config::dout_at + stage_of<Config::dout_stages>(stage) * Config::q_bytes;
        std::uint32_t const rows = shared + Config::rows_at +
                                   (Config::row_stages == 1 ? 0 : stage) * Config::row_sum_bytes;
        kernel.multiply_pairs(gradients, t, m, q_tile, dout_tile, rows);
        int const turn = turn_of<tile_q, tile_kv>(p, t, m);
        if (turn > 0 && fresh_thread() == 0 && p.tickets[1] == 0)
          wait_for_turn(turns_at(t.tile0 + m), p.ordered ? turn : 1);
        __syncthreads();
        if constexpr (Config::pairs_shared) {
          kernel.add_shared(gradients, q_tile, dout_tile);
          if constexpr (Config::q_stages == 1 || Config::dout_stages == 1) __syncthreads();
        }
        if (Step const next = step_behind(n, m); heads[next.n].head >= 0) {
          if constexpr (Config::q_stages == 1) copy_queries(heads[next.n], next.m, stage ^ 1);
          if constexpr (Config::dout_stages == 1) copy_douts(heads[next.n], next.m, stage ^ 1);
        }
        copy_async_commit();
        before = t.tile0 + m;
        kernel.add_dq(numbers_of<T>(p.dq_sums) + before * std::int64_t{tile_q * Config::d},
                      turn == 0);
        Step const next = step_behind(n, m);
        if (heads[next.n].head < 0) break;
        n = next.n, m = next.m, stage ^= 1;
      }
      __syncthreads();
      if (fresh_thread() == 32) pass_turn(turns_at(before));
    }
    kernel.store(heads[0], gradients);
  }
};

/// `Block`: a BackwardWalk and what it multiplies with.
template <class Block>
__global__ void __launch_bounds__(Block::Shape::threads, Block::Shape::blocks)
    attention_backward_sm80(__grid_constant__ Sm80BackwardParams const p) {
  using Config = typename Block::Shape;
  extern __shared__ unsigned char raw_shared[];
  __shared__ KeyTileHead heads[3];
  // Banks follow from the address.
  std::uint32_t const shared = (shared_address(raw_shared) + 127u) & ~127u;
  Block const block{{p, shared, heads}};
  allow_launch_behind();
  wait_for_launch_before();
  if (threadIdx.x < 32) {
    // Tiles are taken in the order in which blocks begin: who waits for a turn waits for a block
    // that runs.
    unsigned ticket = 0;
    if (threadIdx.x == 0) ticket = atomicAdd(p.tickets, 1u);
    KeyTile keys;
    bool const exists = locate_keys<Config::tile_kv>(p, static_cast<int>(uniform(ticket)), keys);
    if (!exists) keys.key0 = -1;
    if (threadIdx.x == 0) {
      if (exists)
        block.find_head(0, keys, heads[0]);
      else
        heads[0].key0 = -1;
    }
  }
  __syncthreads();
  if (heads[0].key0 >= 0) block.run(block);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
