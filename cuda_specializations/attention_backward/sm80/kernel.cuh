// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernel of attention's gradients for sm_80 and later, by mma.sync and cp.async.
///
/// A tile of keys and values stays in shared memory, dk and dv in registers, while queries and the
/// gradients of their outputs stream by. What comes of a tile of queries for dq is added up in
/// float32 in the workspace; tiles of keys take turns at it.
#pragma once

#include "attention_backward/shared/store.cuh"
#include "attention_backward/shared/sums.cuh"
#include "pairs.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/turns.cuh"
#include "sequences/mma_tiles.cuh"
#include "sequences/row_copier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// What a lane gives load_matrices of a tile of 16-bit rows `pitch` bytes apart: of 16 rows and 16
/// columns, rows first, and columns first; see sm80_attention_kernel.
template <int Pitch>
__device__ __forceinline__ std::uint32_t rows_first(unsigned lane) {
  return lane % 16 * Pitch + ((lane / 16) ^ (lane % 8)) * 16;
}
template <int Pitch>
__device__ __forceinline__ std::uint32_t columns_first(unsigned lane) {
  return (lane / 16 * 8 + lane % 8) * Pitch + ((lane / 8 % 2) ^ (lane % 8)) * 16;
}

template <class Config>
struct Sm80BackwardBlock {
  using T = typename Config::Element;
  using Copier = RowCopier<Config>;
  static constexpr int D = Config::d, tile_q = Config::tile_q, tile_kv = Config::tile_kv;
  static constexpr int pitch = Config::pitch, row_tiles = Config::row_tiles;
  static constexpr int blocks = Config::chunk_q / 8;  ///< of eight queries that a warp weighs
  static constexpr int own_d = D / Config::shares;    ///< features of dk and dv that a warp has
  /// Parts of dq: two warps along the queries.
  static constexpr int dq_row_tiles = tile_q / 32, dq_columns = D / (Config::warps / 2);

  using Scores = float[row_tiles][blocks][4];
  using Gradients = float[row_tiles][own_d / 2];
  using Pairs = std::uint32_t[row_tiles][2 * blocks];

  Sm80BackwardParams const& p;
  std::uint32_t const shared;
  KeyTileHead* const heads;  ///< three, of which the next is found while one is worked on

  __device__ __forceinline__ static unsigned fresh_lane() {
    return static_cast<unsigned>(fresh_thread()) % 32;
  }
  __device__ __forceinline__ static int fresh_warp() { return fresh_thread() / 32; }
  /// First key of a warp, first of the tile's queries that it weighs, number of its share.
  __device__ __forceinline__ static int own_keys(int warp) {
    return warp % Config::key_warps * row_tiles * 16;
  }
  __device__ __forceinline__ static int own_share(int warp) {
    return Config::shares == 1 ? 0 : warp / Config::key_warps;
  }

  /// Offset of chunk `chunk` of eight queries of key `key` in a tile of pairs, keys along rows.
  __device__ __forceinline__ static std::uint32_t pairs_at(unsigned key, unsigned chunk) {
    constexpr unsigned keys = 64 / tile_q;  // of a line of 128 bytes
    unsigned const line = key / keys, in_line = key % keys * (tile_q / 8) + chunk;
    return line * 128 + (in_line ^ (line % 8)) * 16;
  }

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
    copier.template copy<tile_q>(shared + Config::q_at + stage % Config::q_stages * Config::q_bytes,
                                 static_cast<T const*>(g.q) + b * g.q_stride[0] +
                                     t.head * g.q_stride[1] + row * g.q_stride[2],
                                 g.q_stride[2], g.q_stride[3], static_cast<int>(g.head_dim),
                                 t.len_q - m * tile_q, p.wide_q);
    int const thread = fresh_thread();
    if (thread < tile_q / 2)
      copy_async_whole(shared + Config::rows_at + stage * Config::row_sum_bytes + thread * 16,
                       p.rows + static_cast<std::int64_t>(t.tile0 + m) * (2 * tile_q) + thread * 4);
  }
  /// The same for gradients of outputs.
  __device__ __forceinline__ void copy_douts(KeyTileHead const& t, int m, int stage) const {
    abi::AttentionBackwardArgs const& a = p.args;
    std::int64_t const b = a.forward.cu_seqlens_q.data != nullptr ? 0 : t.batch;
    std::int64_t const row = std::int64_t{t.begin_q} + m * tile_q;
    Copier const copier;
    copier.template copy<tile_q>(
        shared + Config::dout_at + stage % Config::dout_stages * Config::q_bytes,
        static_cast<T const*>(a.dout) + b * a.dout_stride[0] + t.head * a.dout_stride[1] +
            row * a.dout_stride[2],
        a.dout_stride[2], a.dout_stride[3], static_cast<int>(a.forward.head_dim_v),
        t.len_q - m * tile_q, p.wide_dout);
  }

  /// keys × queries, over the features. `keys`, `queries`: a lane's, see rows_first, columns_first.
  __device__ __forceinline__ static void multiply_features(Scores& s, std::uint32_t keys,
                                                           std::uint32_t queries) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int r = 0; r < 4; ++r) s[m][b][r] = 0;
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      std::uint32_t a[row_tiles][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
        load_matrices(a[m], m * 16 * pitch + chunk_at(keys, step * 32));
#pragma unroll
      for (int b = 0; b < blocks; b += 2) {
        std::uint32_t x[4];
        load_matrices(x, 8 * b * pitch + chunk_at(queries, step * 32));
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          multiply_16<T>(s[m][b], a[m], x[0], x[1]);
          multiply_16<T>(s[m][b + 1], a[m], x[2], x[3]);
        }
      }
    }
  }

  /// 16 keys of each row tile × features, over 16 queries; `queries`: a lane's, rows first.
  __device__ __forceinline__ static void add_queries(Gradients& d,
                                                     std::uint32_t const (&a)[row_tiles][4],
                                                     std::uint32_t queries) {
#pragma unroll
    for (int f = 0; f < own_d / 16; ++f) {
      std::uint32_t x[4];
      load_matrices<true>(x, chunk_at(queries, f * 32));
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        multiply_16<T>(reinterpret_cast<float(&)[4]>(d[m][8 * f]), a[m], x[0], x[1]);
        multiply_16<T>(reinterpret_cast<float(&)[4]>(d[m][8 * f + 4]), a[m], x[2], x[3]);
      }
    }
  }
  /// keys × features, over the queries of a chunk, from pairs in registers.
  __device__ __forceinline__ static void add_chunk(Gradients& d, Pairs const& pairs,
                                                   std::uint32_t queries) {
#pragma unroll
    for (int k = 0; k < blocks / 2; ++k) {
      std::uint32_t a[row_tiles][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
#pragma unroll
        for (int r = 0; r < 4; ++r) a[m][r] = pairs[m][4 * k + r];
      add_queries(d, a, queries + k * 16 * pitch);
    }
  }
  /// keys × features, over all queries of the tile, from pairs in shared memory.
  __device__ __forceinline__ static void add_tile(Gradients& d, std::uint32_t pairs, int keys,
                                                  std::uint32_t queries) {
    unsigned const lane = fresh_lane();
    std::uint32_t const rows = pairs + pairs_at(keys + lane % 16, lane / 16);
#pragma unroll
    for (int k = 0; k < tile_q / 16; ++k) {
      std::uint32_t a[row_tiles][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
        load_matrices(a[m], m * 16 * tile_q * 2 + chunk_at(rows, k * 32));
      add_queries(d, a, queries + k * 16 * pitch);
    }
  }

  /// Pairs to shared memory; `query`: first of the tile's that the warp has.
  __device__ __forceinline__ static void store_pairs(std::uint32_t to, Pairs const& pairs, int keys,
                                                     int query) {
    unsigned const lane = fresh_lane();
    std::uint32_t at[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      at[i] = to + pairs_at(keys + lane / 4 + 8 * i, query / 8) + lane % 4 * 4;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          store_shared_4(m * 16 * tile_q * 2 + (at[i] ^ (b * 16)), pairs[m][2 * b + i]);
  }

  /// queries × features, over the keys: the warp's part of dq, to the workspace.
  __device__ __forceinline__ void add_dq(float* sums, bool first) const {
    constexpr int columns = dq_columns < 32 ? dq_columns : 32;  // at once
    int const warp = fresh_warp(), row_tile = warp % 2 * dq_row_tiles;
    unsigned const lane = fresh_lane();
    std::uint32_t const pairs =
        shared + Config::gradients_at + pairs_at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll 1
    for (int part = 0; part < dq_columns; part += columns) {
      float dq[dq_row_tiles][columns / 8][4] = {};
      int const column = warp / 2 * dq_columns + part;
      std::uint32_t const keys =
          chunk_at(shared + Config::k_at + rows_first<pitch>(lane), column * 2);
#pragma unroll
      for (int k = 0; k < tile_kv / 16; ++k) {
        std::uint32_t a[dq_row_tiles][4];
#pragma unroll
        for (int m = 0; m < dq_row_tiles; ++m)
          load_matrices<true>(a[m], k * 16 * tile_q * 2 + (pairs ^ ((row_tile + m) * 32)));
#pragma unroll
        for (int f = 0; f < columns / 16; ++f) {
          std::uint32_t x[4];
          load_matrices<true>(x, k * 16 * pitch + chunk_at(keys, f * 32));
#pragma unroll
          for (int m = 0; m < dq_row_tiles; ++m) {
            multiply_16<T>(dq[m][2 * f], a[m], x[0], x[1]);
            multiply_16<T>(dq[m][2 * f + 1], a[m], x[2], x[3]);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < dq_row_tiles; ++m) {
        float* const to = place_of_sums<D, tile_q>(sums, row_tile + m, column / 8, lane);
        constexpr int step = tile_q / 16 * 128;
        if (first) {
#pragma unroll
          for (int c = 0; c < columns / 8; ++c) store_sums(to + c * step, dq[m][c]);
        } else {
#pragma unroll
          for (int c = 0; c < columns / 8; ++c) add_sums(to + c * step, dq[m][c]);
        }
      }
    }
  }

  /// Scores of a chunk, from query `first` of the tile on, become weights and their gradients.
  __device__ __forceinline__ void weigh(KeyTileHead const& t, int m, int first, int keys,
                                        std::uint32_t rows, Scores& s, Scores& dp) const {
    int const lane = static_cast<int>(fresh_lane());
    int const key = t.key0 + keys + lane / 4, query = m * tile_q + first + lane % 4 * 2;
    std::uint32_t const hidden =
        has_hidden_pairs<Config>(t, m) ? hidden_pairs<row_tiles, blocks>(t, key, query) : 0;
    std::uint32_t const at = rows + (first + lane % 4 * 2) * 4;
    if constexpr (Config::terms)
      weigh_pairs_of_terms<row_tiles, blocks>(p, t, key, query, at, tile_q, hidden, s, dp);
    else
      weigh_pairs<row_tiles, blocks>(p, at, tile_q, hidden, s, dp);
  }
  __device__ __forceinline__ static void pack(Pairs& to, Scores const& from) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          to[m][2 * b + i] = pack_pair<T>(from[m][b][2 * i], from[m][b][2 * i + 1]);
  }

  __device__ __forceinline__ unsigned* turns_at(int tile) const {
    return p.turns + std::int64_t{2} * tile;
  }

  /// A tile of queries of one of `heads`.
  struct Step {
    int n, m;
  };
  __device__ __forceinline__ Step step_behind(int n, int m) const {
    if (m + 1 < heads[n].end) return {n, m + 1};
    int const next = n == 2 ? 0 : n + 1;
    return {next, heads[next].first};
  }

  __device__ __forceinline__ void run() const {
    Gradients dk = {}, dv = {};
    if (heads[0].head >= 0) {
      int n = 0, m = heads[0].first, stage = 0;
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
            shared + Config::q_at + stage % Config::q_stages * Config::q_bytes;
        std::uint32_t const dout_tile =
            shared + Config::dout_at + stage % Config::dout_stages * Config::q_bytes;
        std::uint32_t const rows = shared + Config::rows_at + stage * Config::row_sum_bytes;
#pragma unroll 1
        for (int chunk = 0; chunk < Config::chunks; ++chunk) {
          int const warp = fresh_warp(), keys = own_keys(warp);
          int const first = (own_share(warp) + chunk) * Config::chunk_q;
          Scores s, dp;
          {
            unsigned const lane = fresh_lane();
            std::uint32_t const own_rows = shared + keys * pitch + rows_first<pitch>(lane);
            std::uint32_t const queries = first * pitch + columns_first<pitch>(lane);
            multiply_features(s, Config::k_at + own_rows, q_tile + queries);
            multiply_features(dp, Config::v_at + own_rows, dout_tile + queries);
          }
          weigh(t, m, first, keys, rows, s, dp);
          Pairs weights, gradients;
          pack(weights, s);
          pack(gradients, dp);
          store_pairs(shared + Config::gradients_at, gradients, keys, first);
          if constexpr (Config::shares == 1) {
            std::uint32_t const over = first * pitch + rows_first<pitch>(fresh_lane());
            add_chunk(dv, weights, dout_tile + over);
            add_chunk(dk, gradients, q_tile + over);
          } else {
            store_pairs(shared + Config::weights_at, weights, keys, first);
          }
        }
        int const turn = turn_of<tile_q, tile_kv>(p, t, m);
        if (turn > 0 && fresh_thread() == 0 && p.tickets[1] == 0)
          wait_for_turn(turns_at(t.tile0 + m), p.ordered ? turn : 1);
        __syncthreads();
        if constexpr (Config::shares > 1) {
          int const warp = fresh_warp(), keys = own_keys(warp);
          std::uint32_t const over =
              chunk_at(rows_first<pitch>(fresh_lane()), own_share(warp) * own_d * 2);
          add_tile(dv, shared + Config::weights_at, keys, dout_tile + over);
          add_tile(dk, shared + Config::gradients_at, keys, q_tile + over);
          if constexpr (Config::q_stages == 1 || Config::dout_stages == 1) __syncthreads();
        }
        if (Step const next = step_behind(n, m); heads[next.n].head >= 0) {
          if constexpr (Config::q_stages == 1) copy_queries(heads[next.n], next.m, stage ^ 1);
          if constexpr (Config::dout_stages == 1) copy_douts(heads[next.n], next.m, stage ^ 1);
        }
        copy_async_commit();
        before = t.tile0 + m;
        add_dq(p.dq_sums + before * std::int64_t{tile_q * D}, turn == 0);
        Step const next = step_behind(n, m);
        if (heads[next.n].head < 0) break;
        n = next.n, m = next.m, stage ^= 1;
      }
      __syncthreads();
      if (fresh_thread() == 32) pass_turn(turns_at(before));
    }
    store(heads[0], dk, dv);
  }

  __device__ __forceinline__ void store(KeyTile const& t, Gradients const& dk,
                                        Gradients const& dv) const {
    abi::AttentionBackwardArgs const& a = p.args;
    int const warp = fresh_warp(), column = own_share(warp) * own_d;
    int const row = own_keys(warp) + static_cast<int>(fresh_lane()) / 4;
    int const existing = t.rows_kv - t.key0;
    std::int64_t const b = a.forward.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const position = std::int64_t{t.begin_kv} + t.key0;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      store_gradients<T, own_d>(static_cast<T*>(a.dv) + b * a.dv_stride[0] +
                                    t.head_kv * a.dv_stride[1] + position * a.dv_stride[2] +
                                    column * a.dv_stride[3],
                                a.dv_stride, static_cast<int>(a.forward.head_dim_v) - column,
                                p.vectors_dv, dv[m], 1.0f, row + 16 * m, existing);
      store_gradients<T, own_d>(static_cast<T*>(a.dk) + b * a.dk_stride[0] +
                                    t.head_kv * a.dk_stride[1] + position * a.dk_stride[2] +
                                    column * a.dk_stride[3],
                                a.dk_stride, static_cast<int>(a.forward.head_dim) - column,
                                p.vectors_dk, dk[m], p.scale, row + 16 * m, existing);
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    attention_backward_sm80(__grid_constant__ Sm80BackwardParams const p) {
  extern __shared__ unsigned char raw_shared[];
  __shared__ KeyTileHead heads[3];
  // Banks follow from the address.
  std::uint32_t const shared = (shared_address(raw_shared) + 127u) & ~127u;
  Sm80BackwardBlock<Config> const block{p, shared, heads};
  wait_for_launch_before();
  if (threadIdx.x < 32) {
    // Tiles are taken in the order in which blocks begin: who waits for a turn waits for a block
    // that runs.
    unsigned ticket = 0;
    if (threadIdx.x == 0) ticket = atomicAdd(p.tickets, 1u);
    KeyTile keys;
    bool const exists =
        locate_keys<Config::tile_kv>(p, static_cast<int>(__shfl_sync(0xffffffff, ticket, 0)), keys);
    if (!exists) keys.key0 = -1;
    if (threadIdx.x == 0) {
      if (exists)
        block.find_head(0, keys, heads[0]);
      else
        heads[0].key0 = -1;
    }
  }
  __syncthreads();
  if (heads[0].key0 >= 0) block.run();
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
