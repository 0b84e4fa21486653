// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernel of attention's gradients of 16-bit elements for sm_80 and later, by mma.sync.
#pragma once

#include <attikos/ptx/ldmatrix.hpp>

#include "attention_backward/shared/store.cuh"
#include "attention_backward/shared/sums.cuh"
#include "pairs.cuh"
#include "ptx/shared_memory.cuh"
#include "sequences/mma_tiles.cuh"
#include "walk.cuh"

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
struct Sm80BackwardBlock : BackwardWalk<Config> {
  using Walk = BackwardWalk<Config>;
  using Shape = Config;
  using SumsOfDq = SumsOfFragments;
  using T = typename Config::Element;
  using Walk::fresh_lane, Walk::fresh_warp, Walk::p, Walk::shared, Walk::tile_kv, Walk::tile_q;
  static constexpr int D = Config::d;
  static constexpr int pitch = Config::pitch, row_tiles = Config::row_tiles;
  static constexpr int blocks = Config::chunk_q / 8;  ///< of eight queries that a warp weighs
  static constexpr int own_d = D / Config::shares;    ///< features of dk and dv that a warp has
  /// Parts of dq: two warps along the queries.
  static constexpr int dq_row_tiles = tile_q / 32, dq_columns = D / (Config::warps / 2);

  using Layout = MmaPairs<row_tiles, blocks>;
  using Scores = float[row_tiles][blocks][4];
  using Sums = float[row_tiles][own_d / 2];
  struct Gradients {
    Sums dk, dv;
  };
  using Pairs = std::uint32_t[row_tiles][2 * blocks];

  /// Offset of chunk `chunk` of eight queries of key `key` in a tile of pairs, keys along rows.
  __device__ __forceinline__ static std::uint32_t pairs_at(unsigned key, unsigned chunk) {
    constexpr unsigned keys = 64 / tile_q;  // of a line of 128 bytes
    unsigned const line = key / keys, in_line = key % keys * (tile_q / 8) + chunk;
    return line * 128 + (in_line ^ (line % 8)) * 16;
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
  __device__ __forceinline__ static void add_queries(Sums& d,
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
  __device__ __forceinline__ static void add_chunk(Sums& d, Pairs const& pairs,
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
  __device__ __forceinline__ static void add_tile(Sums& d, std::uint32_t pairs, int keys,
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
        has_hidden_pairs<Config>(t, m) ? hidden_pairs<Layout>(t, key, query) : 0;
    std::uint32_t const at = rows + (first + lane % 4 * 2) * 4;
    if constexpr (Config::terms)
      weigh_pairs_of_terms<Layout>(p, t, key, query, at, tile_q, hidden, s, dp);
    else
      weigh_pairs<Layout>(p, at, tile_q, hidden, s, dp);
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

  /// Pairs of a tile of queries, and what they add to dk and dv as far as it stays in a warp.
  __device__ __forceinline__ void multiply_pairs(Gradients& to, KeyTileHead const& t, int m,
                                                 std::uint32_t q_tile, std::uint32_t dout_tile,
                                                 std::uint32_t rows) const {
#pragma unroll 1
    for (int chunk = 0; chunk < Config::chunks; ++chunk) {
      int const warp = fresh_warp(), keys = Config::own_keys(warp);
      int const first = (Config::own_share(warp) + chunk) * Config::chunk_q;
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
        add_chunk(to.dv, weights, dout_tile + over);
        add_chunk(to.dk, gradients, q_tile + over);
      } else {
        store_pairs(shared + Config::weights_at, weights, keys, first);
      }
    }
  }
  /// What pairs of all warps that share keys add to dk and dv.
  __device__ __forceinline__ void add_shared(Gradients& to, std::uint32_t q_tile,
                                             std::uint32_t dout_tile) const {
    int const warp = fresh_warp(), keys = Config::own_keys(warp);
    std::uint32_t const over =
        chunk_at(rows_first<pitch>(fresh_lane()), Config::own_share(warp) * own_d * 2);
    add_tile(to.dv, shared + Config::weights_at, keys, dout_tile + over);
    add_tile(to.dk, shared + Config::gradients_at, keys, q_tile + over);
  }

  __device__ __forceinline__ void store(KeyTile const& t, Gradients const& gradients) const {
    abi::AttentionBackwardArgs const& a = p.args;
    int const warp = fresh_warp(), column = Config::own_share(warp) * own_d;
    int const row = Config::own_keys(warp) + static_cast<int>(fresh_lane()) / 4;
    int const existing = t.rows_kv - t.key0;
    std::int64_t const b = a.forward.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const position = std::int64_t{t.begin_kv} + t.key0;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      store_gradients<T, own_d>(static_cast<T*>(a.dv) + b * a.dv_stride[0] +
                                    t.head_kv * a.dv_stride[1] + position * a.dv_stride[2] +
                                    column * a.dv_stride[3],
                                a.dv_stride, static_cast<int>(a.forward.head_dim_v) - column,
                                p.vectors_dv, gradients.dv[m], 1.0f, row + 16 * m, existing);
      store_gradients<T, own_d>(static_cast<T*>(a.dk) + b * a.dk_stride[0] +
                                    t.head_kv * a.dk_stride[1] + position * a.dk_stride[2] +
                                    column * a.dk_stride[3],
                                a.dk_stride, static_cast<int>(a.forward.head_dim) - column,
                                p.vectors_dk, gradients.dk[m], p.scale, row + 16 * m, existing);
    }
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
