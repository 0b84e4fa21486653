// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernel of attention's gradients of float64, and of float32 in products of tf32, for sm_80
/// and later, by mma.sync.
///
/// Which numbers of a sum a lane has is free, likewise which columns, and chosen so that fragments
/// are whole chunks of 16 bytes, E elements: of a row, where the sum goes along it; else of rows
/// 2 q + l of eight, where element e of chunk g is column g of product e of E side by side. So the
/// sums of lane q are those of columns 2 E q ... 2 E q + 2 E - 1 of 8 E, a line of 128 bytes.
#pragma once

#include "attention_backward/shared/sums.cuh"
#include "pairs.cuh"
#include "ptx/registers.cuh"
#include "sequences/mma_tiles.cuh"
#include "walk.cuh"
#include "wide_products.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// See MmaBackwardTiles.
template <class T, class Shape>
struct WideBackwardConfig : MmaBackwardTiles<T, Shape, Shape::q_stages> {
  static_assert(Shape::chunk_q % 16 == 0);
  static_assert(WideBackwardConfig::pair_pitch % 128 == 0);
};

namespace {

/// How the kernel's sums of dq lie; see place_of_sums. Query 2 M g + 2 m + h of 16 M is row g + 8 h
/// of number m of M row tiles, M = E / 2.
struct SumsOfWide {
  template <class T, int D, int TileQ>
  __device__ __forceinline__ static void stage(T* rows, int pitch, T const* sums, T scale) {
    constexpr int E = 16 / static_cast<int>(sizeof(T)), M = E / 2;
    int const thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4;
#pragma unroll
    for (int block = thread / 32; block < TileQ * D / 128; block += 8) {
      int const row_tile = block % (TileQ / 16), columns = block / (TileQ / 16);
      T x[4];
      load_sums(x, place_of_sums<D, TileQ>(sums, row_tile, columns, lane));
      int const row = row_tile / M * (16 * M) + 2 * M * g + 2 * (row_tile % M);
      int const column = columns / E * (8 * E) + 2 * E * (lane % 4) + columns % E;
#pragma unroll
      for (int r = 0; r < 4; ++r) rows[(row + r / 2) * pitch + column + r % 2 * E] = x[r] * scale;
    }
  }
};

template <class Config>
struct WideBackwardBlock : BackwardWalk<Config> {
  using Walk = BackwardWalk<Config>;
  using Shape = Config;
  using SumsOfDq = SumsOfWide;
  using T = typename Config::Element;
  using Walk::fresh_lane, Walk::fresh_warp, Walk::p, Walk::shared, Walk::tile_kv, Walk::tile_q;
  static constexpr int D = Config::d, pitch = Config::pitch, row_tiles = Config::row_tiles;
  static constexpr int pair_pitch = Config::pair_pitch, bytes = sizeof(T);
  static constexpr int E = 16 / bytes;                ///< elements of a chunk
  static constexpr int blocks = Config::chunk_q / 8;  ///< of eight queries that a warp weighs
  static constexpr int own_d = D / Config::shares;    ///< features of dk and dv that a warp has
  static constexpr int lines = own_d / (8 * E);
  /// Of dq a warp has 16 queries and as many lines of features.
  static constexpr int dq_row_tiles = tile_q / 16;
  static constexpr int dq_lines = dq_row_tiles * (D / (8 * E)) / Config::warps;
  static_assert(Config::warps % dq_row_tiles == 0 && dq_lines >= 1);

  using Layout = MmaPairs<row_tiles, blocks>;
  using Scores = T[row_tiles][blocks][4];
  using Sums = T[row_tiles][lines][E][4];
  struct Gradients {
    Sums dk, dv;
  };

  /// Offset of a lane's chunk q of row g.
  __device__ __forceinline__ static std::uint32_t along_rows(unsigned lane) {
    return lane / 4 * pitch + ((lane % 4) ^ row_swizzle<T>(lane / 4)) * 16;
  }
  /// Offset of a lane's chunk g of row 2 q in rows `apart` from each other; that of row 2 q + 1 is
  /// next_row().
  __device__ __forceinline__ static std::uint32_t across_rows(unsigned lane, unsigned apart) {
    unsigned const row = lane % 4 * 2;
    return row * apart + ((lane / 4) ^ row_swizzle<T>(row)) * 16;
  }
  __device__ __forceinline__ static std::uint32_t next_row(std::uint32_t at, int apart) {
    return (at ^ 64u) + apart;
  }
  /// Offset of a lane's pairs of row g and queries 2 q, 2 q + 1.
  __device__ __forceinline__ static std::uint32_t pairs_at(unsigned lane) {
    return lane / 4 * pair_pitch + ((lane % 4 * 2 * bytes) ^ (row_swizzle<T>(lane / 4) * 16));
  }

  __device__ __forceinline__ static void load_chunk(T (&x)[E], std::uint32_t at) {
    if constexpr (E == 4) {
      float4 const y = load_shared_four(at);
      x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    } else {
      load_shared_numbers(x, at);
    }
  }
  /// keys × queries, over the features: of as many as a lane's chunk of a row stands for, numbers
  /// (q, l) are its elements 2 u + l. `keys`, `queries`: a lane's chunks.
  __device__ __forceinline__ static void multiply_features(Scores& s, std::uint32_t keys,
                                                           std::uint32_t queries) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int r = 0; r < 4; ++r) s[m][b][r] = 0;
#pragma unroll 2
    for (int step = 0; step < D / (4 * E); ++step) {
      T x[row_tiles][2][E], y[blocks][E];
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        load_chunk(y[b], chunk_at(queries, step * 64) + 8 * b * pitch);
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          load_chunk(x[m][h], chunk_at(keys, step * 64) + (16 * m + 8 * h) * pitch);
#pragma unroll
      for (int u = 0; u < E / 2; ++u) {
        WideRight<T> right[blocks];
#pragma unroll
        for (int b = 0; b < blocks; ++b)
#pragma unroll
          for (int l = 0; l < 2; ++l) right[b].set(0, l, y[b][2 * u + l]);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          WideLeft<T> left;
#pragma unroll
          for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int l = 0; l < 2; ++l) left.set(h, l, x[m][h][2 * u + l]);
          add_products(s[m], left, right);
        }
      }
    }
  }

  /// E columns side by side, over 8 rows, of which numbers (q, l) are 2 q + l. `at`: a lane's
  /// chunks of rows 2 q and 2 q + 1.
  __device__ __forceinline__ static void load_columns(WideRight<T> (&y)[E], std::uint32_t at_0,
                                                      std::uint32_t at_1) {
#pragma unroll
    for (int l = 0; l < 2; ++l) {
      T x[E];
      load_chunk(x, l == 0 ? at_0 : at_1);
#pragma unroll
      for (int e = 0; e < E; ++e) y[e].set(0, l, x[e]);
    }
  }

  /// keys × features, over 8 · `Steps` queries. `left(m, k)`: pairs of a row tile and 8 queries;
  /// `queries`: a lane's chunk of the first.
  template <int Steps, class Left>
  __device__ __forceinline__ static void add_queries(Sums& d, std::uint32_t queries,
                                                     Left const& left) {
    std::uint32_t const next = next_row(queries, pitch);
    if constexpr (std::is_same_v<T, double>) {
#pragma unroll
      for (int k = 0; k < Steps; ++k) {
        WideLeft<T> a[row_tiles];
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) a[m] = left(m, k);
#pragma unroll
        for (int f = 0; f < lines; ++f) {
          WideRight<T> y[E];
          load_columns(y, queries + 8 * k * pitch + f * 128, next + 8 * k * pitch + f * 128);
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) add_products(d[m][f], a[m], y);
        }
      }
    } else {
      // Matrix units truncate what they add, so that sums of float32 are taken by a few products
      // and then rounded.
#pragma unroll
      for (int f = 0; f < lines; ++f) {
        T part[row_tiles][E][4] = {};
#pragma unroll
        for (int k = 0; k < Steps; ++k) {
          WideRight<T> y[E];
          load_columns(y, queries + 8 * k * pitch + f * 128, next + 8 * k * pitch + f * 128);
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) add_products(part[m], left(m, k), y);
        }
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
#pragma unroll
          for (int e = 0; e < E; ++e)
#pragma unroll
            for (int r = 0; r < 4; ++r) d[m][f][e][r] += part[m][e][r];
      }
    }
  }
  /// From pairs in registers: number (q, l) is query 2 q + l of 8.
  __device__ __forceinline__ static void add_chunk(Sums& d, Scores const& pairs,
                                                   std::uint32_t queries) {
    add_queries<blocks>(d, queries, [&](int m, int k) {
      WideLeft<T> a;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        T x = pairs[m][k][r];
        if constexpr (E == 4) make_opaque(x);  // else the compiler would keep what it has split
        a.set(r / 2, r % 2, x);
      }
      return a;
    });
  }
  /// From pairs in shared memory. `pairs`: a lane's first.
  __device__ __forceinline__ static void add_tile(Sums& d, std::uint32_t pairs,
                                                  std::uint32_t queries) {
    add_queries<tile_q / 8>(d, queries, [&](int m, int k) {
      WideLeft<T> a;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        T x[2];
        load_shared_numbers(x, chunk_at(pairs, 8 * k * bytes) + (16 * m + 8 * h) * pair_pitch);
        a.set(h, 0, x[0]), a.set(h, 1, x[1]);
      }
      return a;
    });
  }

  /// Pairs to shared memory, rows of keys; `to`: a lane's place of the warp's first.
  __device__ __forceinline__ static void store_pairs(std::uint32_t to, Scores const& pairs,
                                                     int query) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          store_shared_numbers(
              chunk_at(to, (query + 8 * b) * bytes) + (16 * m + 8 * i) * pair_pitch,
              pairs[m][b][2 * i], pairs[m][b][2 * i + 1]);
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
        std::uint32_t const lane = along_rows(fresh_lane());
        std::uint32_t const own_rows = shared + keys * pitch + lane;
        std::uint32_t const queries = first * pitch + lane;
        multiply_features(s, Config::k_at + own_rows, q_tile + queries);
        multiply_features(dp, Config::v_at + own_rows, dout_tile + queries);
      }
      {
        int const lane = static_cast<int>(fresh_lane());
        int const key = t.key0 + keys + lane / 4, query = m * tile_q + first + lane % 4 * 2;
        std::uint32_t const hidden =
            has_hidden_pairs<Config>(t, m) ? hidden_pairs<Layout>(t, key, query) : 0;
        std::uint32_t const at = rows + (first + lane % 4 * 2) * bytes;
        if constexpr (Config::terms)
          weigh_pairs_of_terms<Layout>(p, t, key, query, at, tile_q, hidden, s, dp);
        else
          weigh_pairs<Layout>(p, at, tile_q, hidden, s, dp);
      }
      std::uint32_t const place = shared + keys * pair_pitch + pairs_at(fresh_lane());
      store_pairs(Config::gradients_at + place, dp, first);
      if constexpr (Config::shares == 1) {
        std::uint32_t const over = first * pitch + across_rows(fresh_lane(), pitch);
        add_chunk(to.dv, s, dout_tile + over);
        add_chunk(to.dk, dp, q_tile + over);
      } else {
        store_pairs(Config::weights_at + place, s, first);
      }
    }
  }
  /// What pairs of all warps that share keys add to dk and dv.
  __device__ __forceinline__ void add_shared(Gradients& to, std::uint32_t q_tile,
                                             std::uint32_t dout_tile) const {
    int const warp = fresh_warp();
    std::uint32_t const place =
        shared + Config::own_keys(warp) * pair_pitch + pairs_at(fresh_lane());
    std::uint32_t const over =
        Config::own_share(warp) * own_d * bytes + across_rows(fresh_lane(), pitch);
    add_tile(to.dv, Config::weights_at + place, dout_tile + over);
    add_tile(to.dk, Config::gradients_at + place, q_tile + over);
  }

  /// queries × features, over the keys: the warp's part of dq, to the workspace.
  __device__ __forceinline__ void add_dq(T* sums, bool first) const {
    int const warp = fresh_warp(), row_tile = warp % dq_row_tiles;
    int const line = warp / dq_row_tiles * dq_lines;
    unsigned const lane = fresh_lane();
    constexpr int M = E / 2;  // row tiles of a line of queries
    std::uint32_t const pairs = shared + Config::gradients_at + row_tile / M * 128 +
                                across_rows(lane, pair_pitch) + row_tile % M * 8;
    std::uint32_t const next_pairs = next_row(pairs, pair_pitch);
    std::uint32_t const keys = shared + Config::k_at + line * 128 + across_rows(lane, pitch);
    std::uint32_t const next_keys = next_row(keys, pitch);
    T dq[dq_lines][E][4] = {};
#pragma unroll 4
    for (int k = 0; k < tile_kv / 8; ++k) {
      WideLeft<T> a;
#pragma unroll
      for (int l = 0; l < 2; ++l) {
        T x[2];
        load_shared_numbers(x, (l == 0 ? pairs : next_pairs) + 8 * k * pair_pitch);
        a.set(0, l, x[0]), a.set(1, l, x[1]);
      }
#pragma unroll
      for (int f = 0; f < dq_lines; ++f) {
        WideRight<T> y[E];
        load_columns(y, keys + 8 * k * pitch + f * 128, next_keys + 8 * k * pitch + f * 128);
        add_products(dq[f], a, y);
      }
    }
#pragma unroll
    for (int f = 0; f < dq_lines; ++f)
#pragma unroll
      for (int e = 0; e < E; ++e) {
        T* const to =
            place_of_sums<D, tile_q>(sums, row_tile, (line + f) * E + e, static_cast<int>(lane));
        if (first)
          store_sums(to, dq[f][e]);
        else
          add_sums(to, dq[f][e]);
      }
  }

  /// Stores rows of sums times `factor`: `row` and `row` + 8 of each row tile, as far as `existing`
  /// rows exist. `column`: the lane's first of a line.
  __device__ __forceinline__ static void store_rows(T* to, std::int64_t const (&stride)[4],
                                                    int width, bool vectors, Sums const& sums,
                                                    T factor, int row, int column, int existing) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int const r = row + 16 * m + 8 * i;
        if (r >= existing) continue;
#pragma unroll
        for (int f = 0; f < lines; ++f)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            int const c = column + f * 8 * E + j * E;
            T x[E];
#pragma unroll
            for (int e = 0; e < E; ++e) x[e] = sums[m][f][e][j + 2 * i] * factor;
            if (vectors) {
              if (c < width)
                *reinterpret_cast<uint4*>(to + r * stride[2] + c) =
                    *reinterpret_cast<uint4 const*>(x);
            } else {
#pragma unroll
              for (int e = 0; e < E; ++e)
                if (c + e < width) to[r * stride[2] + (c + e) * stride[3]] = x[e];
            }
          }
      }
  }
  __device__ __forceinline__ void store(KeyTile const& t, Gradients const& gradients) const {
    abi::AttentionBackwardArgs const& a = p.args;
    abi::AttentionArgs const& g = a.forward;
    int const warp = fresh_warp(), lane = static_cast<int>(fresh_lane());
    int const row = Config::own_keys(warp) + lane / 4,
              column = Config::own_share(warp) * own_d + lane % 4 * 2 * E;
    int const existing = t.rows_kv - t.key0;
    std::int64_t const b = g.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const position = std::int64_t{t.begin_kv} + t.key0;
    store_rows(static_cast<T*>(a.dv) + b * a.dv_stride[0] + t.head_kv * a.dv_stride[1] +
                   position * a.dv_stride[2],
               a.dv_stride, static_cast<int>(g.head_dim_v), p.vectors_dv, gradients.dv, T{1}, row,
               column, existing);
    store_rows(static_cast<T*>(a.dk) + b * a.dk_stride[0] + t.head_kv * a.dk_stride[1] +
                   position * a.dk_stride[2],
               a.dk_stride, static_cast<int>(g.head_dim), p.vectors_dk, gradients.dk,
               scale_of<T>(p), row, column, existing);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
