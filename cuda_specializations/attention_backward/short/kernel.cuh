// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention's gradients of many short sequences: a block has all queries and keys of a sequence in
/// shared memory at once, so that one launch does what takes three where sequences are long.
///
/// Each warp has some keys, whose dk and dv stay in its registers. Queries are taken 64 at a time:
/// their weights and the gradients of their scores are worked out keys by queries and added to dk
/// and dv from registers; the latter also go through shared memory to the product with all keys
/// that dq is, which is whole then. No sum is shared by blocks: bits do not depend on what runs
/// when.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma", "ldmatrix", "cp.async".
#pragma once

#include "attention_backward/shared/prepare.cuh"
#include "attention_backward/sm80/kernel.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Config>
struct ShortBackwardBlock : Sm80BackwardBlock<Config> {
  using Block = Sm80BackwardBlock<Config>;
  using T = typename Config::Element;
  using Copier = RowCopier<Config>;
  using Block::heads, Block::p, Block::shared, Block::fresh_lane, Block::fresh_warp;
  static constexpr int tile_q = Config::tile_q, tile_kv = Config::tile_kv, D = Config::d;
  static constexpr int most_tiles = Config::q_stages;      ///< of queries
  static constexpr int own_keys = 16 * Config::row_tiles;  ///< of a warp

  /// What a query head of the block's sequence has to do with its keys. One thread.
  __device__ __forceinline__ void find_head(int number) const {
    abi::AttentionArgs const& g = p.args.forward;
    int const heads_kv = static_cast<int>(g.heads_kv), group = fresh_block() / p.parts;
    KeyTileHead t{};
    t.batch = group / heads_kv, t.head_kv = group % heads_kv;
    t.rows_kv = static_cast<int>(g.seqlen_kv);
    int const part = t.head_kv * p.parts + fresh_block() % p.parts;
    meet_head<tile_q, tile_kv>(p, part * p.group_of_heads + number, t);
    heads[0] = t;
  }

  /// Starts the copies of tile m of queries and of the gradients of their outputs.
  __device__ __forceinline__ void copy_tile(int m) const {
    abi::AttentionBackwardArgs const& a = p.args;
    abi::AttentionArgs const& g = a.forward;
    KeyTileHead const& t = heads[0];
    Copier const copier;
    int const row = m * tile_q, left = t.len_q - row;
    copier.template copy<tile_q>(shared + Config::q_at + m * Config::q_bytes,
                                 static_cast<T const*>(g.q) + t.batch * g.q_stride[0] +
                                     t.head * g.q_stride[1] + row * g.q_stride[2],
                                 g.q_stride[2], g.q_stride[3], static_cast<int>(g.head_dim), left,
                                 p.wide_q);
    copier.template copy<tile_q>(shared + Config::dout_at + m * Config::q_bytes,
                                 static_cast<T const*>(a.dout) + t.batch * a.dout_stride[0] +
                                     t.head * a.dout_stride[1] + row * a.dout_stride[2],
                                 a.dout_stride[2], a.dout_stride[3], static_cast<int>(g.head_dim_v),
                                 left, p.wide_dout);
  }
  /// Waits for them; as many groups of copies follow as there may be tiles behind.
  __device__ __forceinline__ static void wait_for_tile(int m) {
    static_assert(most_tiles <= 4);
    int const behind = most_tiles - 1 - m;
    if (most_tiles > 3 && behind == 3)
      copy_async_wait<3>();
    else if (most_tiles > 2 && behind == 2)
      copy_async_wait<2>();
    else if (most_tiles > 1 && behind == 1)
      copy_async_wait<1>();
    else
      copy_async_wait<0>();
  }

  /// What every query brings to all its pairs, to shared memory; eight lanes share a row.
  __device__ __forceinline__ void prepare_rows() const {
    abi::AttentionArgs const& g = p.args.forward;
    KeyTileHead const& t = heads[0];
    int const thread = fresh_thread();
    T const* const dout = static_cast<T const*>(p.args.dout) + t.batch * p.args.dout_stride[0] +
                          t.head * p.args.dout_stride[1];
    T const* const out =
        static_cast<T const*>(g.out) + t.batch * g.out_stride[0] + t.head * g.out_stride[1];
    float const* const lse =
        static_cast<float const*>(g.lse) + t.batch * g.lse_stride[0] + t.head * g.lse_stride[1];
#pragma unroll 2
    for (int r = thread / 8; r < p.tiles_q * tile_q; r += Config::threads / 8) {
      bool const live = r < t.len_q;
      float sum = live ? part_of_row_sum<T, 8>(p, dout + r * p.args.dout_stride[2],
                                               out + r * g.out_stride[2], thread % 8)
                       : 0.0f;
      float const of_row = live ? lse[r * g.lse_stride[2]] : minus_infinity();
#pragma unroll
      for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffff, sum, apart);
      if (thread % 8 != 0) continue;
      // A row that sees nothing has weights of 0, which 2^-inf is.
      bool const sees = of_row != minus_infinity();
      std::uint32_t const at =
          shared + Config::rows_at + r / tile_q * Config::row_sum_bytes + r % tile_q * 4;
      store_shared(at, sees ? -of_row * log2_e : minus_infinity());
      store_shared(at + tile_q * 4, sees ? -sum : 0.0f);
    }
  }

  /// Keys that some query of tile m sees: the first ones of the first warp that has some, and where
  /// they end. Found anew where they are needed: registers are scarce.
  __device__ __forceinline__ int first_key(int m) const {
    return max(0, m * tile_q + heads[0].offset - heads[0].window_left) / own_keys * own_keys;
  }
  __device__ __forceinline__ int end_of_keys(int m) const {
    KeyTileHead const& t = heads[0];
    return m < t.first || m >= t.end ? 0 : t.seen_end(min((m + 1) * tile_q, t.len_q) - 1);
  }

  /// dq of tile m: queries × features over the keys.
  __device__ __forceinline__ void store_dq(int m) const {
    // Two or four warps along the queries.
    constexpr int along = Config::warps < 16 ? 2 : 4, row_tiles = tile_q / 16 / along;
    constexpr int own = D / (Config::warps / along), columns = own < 32 ? own : 32;  // at once
    constexpr int pitch = Config::pitch;
    abi::AttentionBackwardArgs const& a = p.args;
    KeyTileHead const& t = heads[0];
    int const warp = fresh_warp(), row_tile = warp % along * row_tiles;
    unsigned const lane = fresh_lane();
    std::uint32_t const pairs =
        shared + Config::gradients_at + Block::pairs_at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    int const rows = static_cast<int>(a.forward.seqlen_q) - m * tile_q;
    T* const dq = static_cast<T*>(a.dq) + t.batch * a.dq_stride[0] + t.head * a.dq_stride[1] +
                  m * tile_q * a.dq_stride[2];
#pragma unroll 1
    for (int part = 0; part < own; part += columns) {
      float sums[row_tiles][columns / 2] = {};
      int const column = warp / along * own + part;
      std::uint32_t const keys =
          chunk_at(shared + Config::k_at + rows_first<pitch>(lane), column * 2);
#pragma unroll 2
      for (int k = first_key(m), end = end_of_keys(m); k < end; k += 16) {
        std::uint32_t x[row_tiles][4];
#pragma unroll
        for (int r = 0; r < row_tiles; ++r)
          load_matrices<true>(x[r], k * tile_q * 2 + (pairs ^ ((row_tile + r) * 32)));
#pragma unroll
        for (int f = 0; f < columns / 16; ++f) {
          std::uint32_t y[4];
          load_matrices<true>(y, k * pitch + chunk_at(keys, f * 32));
#pragma unroll
          for (int r = 0; r < row_tiles; ++r) {
            multiply_16<T>(reinterpret_cast<float(&)[4]>(sums[r][8 * f]), x[r], y[0], y[1]);
            multiply_16<T>(reinterpret_cast<float(&)[4]>(sums[r][8 * f + 4]), x[r], y[2], y[3]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < row_tiles; ++r)
        store_gradients<T, columns>(dq + column * a.dq_stride[3], a.dq_stride,
                                    static_cast<int>(a.forward.head_dim) - column, p.vectors_dq,
                                    sums[r], p.scale,
                                    (row_tile + r) * 16 + static_cast<int>(lane) / 4, rows);
    }
  }

  __device__ __forceinline__ void run() const {
    KeyTileHead const& t = heads[0];
    typename Block::Gradients gradients = {};
#pragma unroll 1
    for (int number = 0; number < p.group_of_heads; ++number) {
      if (number > 0) __syncthreads();  // all are done with the head before
      if (fresh_thread() == 0) find_head(number);
      __syncthreads();
      if (number == 0) this->copy_keys();
#pragma unroll 1
      for (int m = 0; m < most_tiles; ++m) {
        if (m < p.tiles_q) copy_tile(m);
        copy_async_commit();
      }
      prepare_rows();
#pragma unroll 1
      for (int m = 0; m < p.tiles_q; ++m) {
        wait_for_tile(m);
        __syncthreads();  // the tile is there, and all are done with the gradients of that before
        if (int const keys = Config::own_keys(fresh_warp());
            keys >= first_key(m) && keys < end_of_keys(m))
          this->multiply_pairs(gradients, t, m, shared + Config::q_at + m * Config::q_bytes,
                               shared + Config::dout_at + m * Config::q_bytes,
                               shared + Config::rows_at + m * Config::row_sum_bytes);
        __syncthreads();
        store_dq(m);
      }
    }
    if (p.parts > 1)
      store_part(t, gradients);
    else
      this->store(t, gradients);
  }

  /// What the block's part of the query heads adds to dk and dv, to the workspace.
  __device__ __forceinline__ void store_part(KeyTileHead const& t,
                                             typename Block::Gradients const& gradients) const {
    static_assert(Config::row_tiles == 1);
    std::int64_t const at = row_of_sums(p, t) * D;
    int const row = Config::own_keys(fresh_warp()) + static_cast<int>(fresh_lane()) / 4;
    store_sums<D, D>(p.dv_sums + at, gradients.dv[0], 1.0f, row, t.rows_kv);
    store_sums<D, D>(p.dk_sums + at, gradients.dk[0], p.scale, row, t.rows_kv);
  }
};

/// A block takes the queries of a pair of batch and key head, or a part of their heads.
template <class Block>
__global__ void __launch_bounds__(Block::Shape::threads, Block::Shape::blocks)
    attention_backward_short(__grid_constant__ Sm80BackwardParams const p) {
  extern __shared__ unsigned char raw_shared[];
  __shared__ KeyTileHead heads[1];
  // Banks follow from the address.
  std::uint32_t const shared = (shared_address(raw_shared) + 127u) & ~127u;
  allow_launch_behind();
  wait_for_launch_before();
  Block const block{{{p, shared, heads}}};
  block.run();
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
