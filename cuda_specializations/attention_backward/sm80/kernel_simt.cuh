// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernel of attention's gradients in IEEE float32 on the CUDA cores, for sm_80 and later.
///
/// All tiles lie in shared memory once, as rows. Products along rows take four numbers of each of a
/// thread's rows at a time, sums of outer products four columns of a row; either way 16 bytes are
/// loaded for every 16 to 21 fused multiply-adds. Chunk c of row r stands in place c ^ (r / 4 % 8),
/// so that neither threads with four rows each nor those with four columns meet in a bank. Lane (m,
/// n) of 4 × 8 has bits of m and n alternate in its number: then neighbouring lanes read the same
/// 16 bytes, and a load of 32 lanes takes two passes, not four.
#pragma once

#include "attention_backward/shared/sums.cuh"
#include "pairs.cuh"
#include "sequences/mma_tiles.cuh"
#include "sequences/outer_product.cuh"
#include "walk.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A kernel in one of sm80_backward_shapes for CUDA cores.
template <class Shape>
struct SimtBackwardConfig {
  using Element = float;
  using Scores = typename Shape::Scores;
  using Gradients = typename Shape::Gradients;
  using Dq = typename Shape::Dq;
  static constexpr int d = Shape::d, tile_q = Shape::tile_q, tile_kv = Shape::tile_kv;
  static constexpr int pair_tiles = Shape::pair_tiles, blocks = Shape::blocks;
  static constexpr int warps = Shape::warps, threads = 32 * warps;
  static constexpr int q_stages = 1, dout_stages = 1, row_stages = 1;
  static constexpr bool terms = Shape::terms, pairs_shared = true;
  static_assert(tile_kv * tile_q == threads * Scores::rows * Scores::columns);
  static_assert(tile_kv * d == threads * Gradients::rows * Gradients::columns);
  static_assert(tile_kv % (8 * Scores::rows) == 0 && tile_kv % (4 * Gradients::rows) == 0);

  // Of rows of q, dout, k and v; see RowCopier.
  static constexpr int row_bytes = d * 4, pitch = row_bytes;
  static constexpr bool turned = true, asynchronous = true;
  static constexpr __host__ __device__ int swizzle(int r) { return r >> 2 & 7; }

  static constexpr int q_bytes = tile_q * pitch, kv_bytes = tile_kv * pitch;
  static constexpr int pair_pitch = tile_kv * 4, pair_bytes = tile_q * pair_pitch;
  static constexpr int row_sum_bytes = 2 * tile_q * 4;
  static constexpr int k_at = 0, v_at = k_at + kv_bytes, q_at = v_at + kv_bytes;
  static constexpr int dout_at = q_at + q_bytes, gradients_at = dout_at + q_bytes;
  static constexpr int weights_at = gradients_at + (pair_tiles - 1) * pair_bytes;
  static constexpr int rows_at = weights_at + pair_bytes;
  static constexpr int shared_bytes = rows_at + row_sum_bytes + 128;
};

namespace {

/// Sums of dq as rows.
struct SumsOfRows {
  template <class T, int D, int TileQ>
  __device__ __forceinline__ static void stage(T* rows, int pitch, float const* sums, float scale) {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) * 4; i < TileQ * D; i += 1024) {
      float4 const x = __ldcs(reinterpret_cast<float4 const*>(sums + i));
      *reinterpret_cast<float4*>(rows + i / D * pitch + i % D) =
          make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale);
    }
  }
};

__device__ __forceinline__ float component(float4 const& x, int e) {
  return e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w;
}

template <class Config>
struct SimtBackwardBlock : BackwardWalk<Config> {
  using Walk = BackwardWalk<Config>;
  using Shape = Config;
  using SumsOfDq = SumsOfRows;
  using Walk::fresh_lane, Walk::fresh_warp, Walk::p, Walk::shared, Walk::tile_kv, Walk::tile_q;
  using OfScores = typename Config::Scores;
  using OfGradients = typename Config::Gradients;
  using OfDq = typename Config::Dq;
  static constexpr int D = Config::d, pitch = Config::pitch, pair_pitch = Config::pair_pitch;

  /// A thread begins with key 4 n and query m times its queries.
  struct Layout {
    static constexpr int keys = OfScores::rows / 2, queries = OfScores::columns / 2, key_step = 1;
    static constexpr __host__ __device__ int key(int i) { return i / 2 * 32 + i % 2 * 2; }
    static constexpr __host__ __device__ int query(int b) { return 2 * b; }
  };
  using Scores = float[Layout::keys][Layout::queries][4];
  using Sums = float[OfGradients::rows][OfGradients::columns];
  struct Gradients {
    Sums dk, dv;
  };

  __device__ __forceinline__ static int lane_m(unsigned lane) {
    return (lane & 1) | (lane >> 1 & 2);
  }
  __device__ __forceinline__ static int lane_n(unsigned lane) {
    return (lane >> 1 & 1) | (lane >> 2 & 6);
  }

  /// A warp's first key and query among scores.
  static constexpr int score_keys = tile_kv / (8 * OfScores::rows);  ///< warps along them
  __device__ __forceinline__ static int score_key(int warp) {
    return warp % score_keys * (8 * OfScores::rows);
  }
  __device__ __forceinline__ static int score_query(int warp) {
    return warp / score_keys * (4 * OfScores::columns);
  }
  /// A warp's first key and feature of dk and dv.
  static constexpr int gradient_keys = tile_kv / (4 * OfGradients::rows);
  __device__ __forceinline__ static int gradient_key(int warp) {
    return warp % gradient_keys * (4 * OfGradients::rows);
  }
  __device__ __forceinline__ static int gradient_feature(int warp) {
    return warp / gradient_keys * (8 * OfGradients::columns);
  }

  /// keys × queries, over the features. `keys`, `queries`: tiles.
  __device__ __forceinline__ static void multiply_features(Scores& s, std::uint32_t keys,
                                                           std::uint32_t queries) {
    constexpr int count = OfScores::columns;
    unsigned const lane = fresh_lane();
    int const warp = fresh_warp(), n = lane_n(lane);
    int const row = score_query(warp) + lane_m(lane) * count;
    keys += (score_key(warp) + 4 * n) * pitch + n * 16;
    queries += row * pitch + Config::swizzle(row) * 16;
#pragma unroll
    for (int i = 0; i < Layout::keys; ++i)
#pragma unroll
      for (int b = 0; b < Layout::queries; ++b)
#pragma unroll
        for (int r = 0; r < 4; ++r) s[i][b][r] = 0;
#pragma unroll 2
    for (int c = 0; c < D / 4; ++c) {
      float4 y[count];
#pragma unroll
      for (int j = 0; j < count; ++j) y[j] = load_shared(chunk_at(queries, c * 16) + j * pitch);
      std::uint32_t const from = chunk_at(keys, c * 16);
#pragma unroll
      for (int h = 0; h < OfScores::rows / 4; ++h) {
        float4 x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = load_shared(from + (32 * h + i) * pitch);
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int jj = 0; jj < count; ++jj) {
              int const j = i % 2 == 0 ? jj : count - 1 - jj;
              float& sum = s[2 * h + i / 2][j / 2][j % 2 + 2 * (i % 2)];
              sum = fmaf(component(x[i], e), component(y[j], e), sum);
            }
      }
    }
  }

  /// Pairs to shared memory, rows of queries.
  __device__ __forceinline__ static void store_pairs(std::uint32_t to, Scores const& s) {
    unsigned const lane = fresh_lane();
    int const warp = fresh_warp(), n = lane_n(lane);
    int const row = score_query(warp) + lane_m(lane) * OfScores::columns;
    to += row * pair_pitch + score_key(warp) * 4 + ((n ^ Config::swizzle(row)) * 16);
#pragma unroll
    for (int j = 0; j < OfScores::columns; ++j)
#pragma unroll
      for (int h = 0; h < OfScores::rows / 4; ++h)
        store_shared(to + j * pair_pitch + h * 128,
                     make_float4(s[2 * h][j / 2][j % 2], s[2 * h][j / 2][j % 2 + 2],
                                 s[2 * h + 1][j / 2][j % 2], s[2 * h + 1][j / 2][j % 2 + 2]));
  }

  /// keys × features, over the queries: sums of outer products.
  __device__ __forceinline__ static void add_queries(Sums& d, std::uint32_t pairs,
                                                     std::uint32_t queries) {
    constexpr int rows = OfGradients::rows, columns = OfGradients::columns;
    unsigned const lane = fresh_lane();
    int const warp = fresh_warp();
    pairs += gradient_key(warp) * 4 + lane_m(lane) * 16;
    queries += gradient_feature(warp) * 4 + lane_n(lane) * 16;
#pragma unroll 2
    for (int row = 0; row < tile_q; row += 4) {
      std::uint32_t const left = (pairs ^ (Config::swizzle(row) * 16)) + row * pair_pitch;
      std::uint32_t const right = (queries ^ (Config::swizzle(row) * 16)) + row * pitch;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float x[rows];
#pragma unroll
        for (int h = 0; h < rows / 4; ++h) {
          float4 const four = load_shared((left ^ (h * 64)) + e * pair_pitch);
#pragma unroll
          for (int i = 0; i < 4; ++i) x[4 * h + i] = component(four, i);
        }
#pragma unroll
        for (int f = 0; f < columns; f += 4)
          add_outer(d, x, load_shared(right + e * pitch + f * 32), f);
      }
    }
  }

  /// Pairs of a tile of queries. Where there is room for one tile of them, also what weights add to
  /// dv.
  __device__ __forceinline__ void multiply_pairs(Gradients& to, KeyTileHead const& t, int m,
                                                 std::uint32_t q_tile, std::uint32_t dout_tile,
                                                 std::uint32_t rows) const {
    Scores s, dp;
    multiply_features(dp, shared + Config::v_at, dout_tile);
    multiply_features(s, shared + Config::k_at, q_tile);
    {
      int const lane = static_cast<int>(fresh_lane()), warp = fresh_warp();
      int const first = score_query(warp) + lane_m(lane) * OfScores::columns;
      int const key = t.key0 + score_key(warp) + 4 * lane_n(lane), query = m * tile_q + first;
      std::uint32_t const hidden =
          has_hidden_pairs<Config>(t, m) ? hidden_pairs<Layout>(t, key, query) : 0;
      if constexpr (Config::terms)
        weigh_pairs_of_terms<Layout>(p, t, key, query, rows + first * 4, tile_q, hidden, s, dp);
      else
        weigh_pairs<Layout>(p, rows + first * 4, tile_q, hidden, s, dp);
    }
    store_pairs(shared + Config::weights_at, s);
    if constexpr (Config::pair_tiles == 1) {
      __syncthreads();
      add_queries(to.dv, shared + Config::weights_at, dout_tile);
      __syncthreads();
    }
    store_pairs(shared + Config::gradients_at, dp);
  }
  __device__ __forceinline__ void add_shared(Gradients& to, std::uint32_t q_tile,
                                             std::uint32_t dout_tile) const {
    if constexpr (Config::pair_tiles == 2)
      add_queries(to.dv, shared + Config::weights_at, dout_tile);
    add_queries(to.dk, shared + Config::gradients_at, q_tile);
  }

  /// queries × features, over the keys: the warp's part of dq, to the workspace.
  __device__ __forceinline__ void add_dq(float* sums, bool first) const {
    constexpr int rows = OfDq::rows, columns = OfDq::columns;
    constexpr int along_queries = tile_q / (4 * rows);
    constexpr int parts = along_queries * (D / (8 * columns)) / Config::warps;
    static_assert(parts >= 1 && parts * Config::warps * 32 * rows * columns == tile_q * D);
    int const warp = fresh_warp();
    unsigned const lane = fresh_lane();
    int const m = lane_m(lane), n = lane_n(lane);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      int const unit = part * Config::warps + warp;
      int const row = unit % along_queries * (4 * rows) + 4 * m;
      int const column = unit / along_queries * (8 * columns);
      std::uint32_t const left =
          shared + Config::gradients_at + row * pair_pitch + Config::swizzle(row) * 16;
      std::uint32_t const right = shared + Config::k_at + column * 4 + n * 16;
      float dq[rows][columns] = {};
#pragma unroll 2
      for (int c = 0; c < tile_kv / 4; ++c) {
        float4 x[rows];
#pragma unroll
        for (int i = 0; i < rows; ++i)
          x[i] = load_shared((chunk_at(left, c * 16) ^ (i / 4 * 64)) +
                             (i / 4 * 16 + i % 4) * pair_pitch);
        std::uint32_t const from = (right ^ (c % 8 * 16)) + 4 * c * pitch;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float z[rows];
#pragma unroll
          for (int i = 0; i < rows; ++i) z[i] = component(x[i], e);
#pragma unroll
          for (int f = 0; f < columns; f += 4)
            add_outer(dq, z, load_shared(from + e * pitch + f * 32), f);
        }
      }
#pragma unroll
      for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int f = 0; f < columns; f += 4) {
          float* const to = sums + (row + i / 4 * 16 + i % 4) * D + column + 4 * n + f * 8;
          float4 const x = make_float4(dq[i][f], dq[i][f + 1], dq[i][f + 2], dq[i][f + 3]);
          if (first)
            *reinterpret_cast<float4*>(to) = x;
          else
            add_four(to, x);
        }
    }
  }

  /// Stores a thread's keys, the first of which is `row`, as far as `existing` ones exist.
  __device__ __forceinline__ static void store_rows(float* to, std::int64_t const (&stride)[4],
                                                    int width, bool vectors, Sums const& sums,
                                                    float factor, int row, int column,
                                                    int existing) {
#pragma unroll
    for (int i = 0; i < OfGradients::rows; ++i) {
      int const r = row + i / 4 * 16 + i % 4;
      if (r >= existing) continue;
#pragma unroll
      for (int f = 0; f < OfGradients::columns; f += 4) {
        int const c = column + f * 8;
        if (vectors) {
          if (c < width)
            *reinterpret_cast<float4*>(to + r * stride[2] + c) =
                make_float4(sums[i][f] * factor, sums[i][f + 1] * factor, sums[i][f + 2] * factor,
                            sums[i][f + 3] * factor);
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (c + e < width) to[r * stride[2] + (c + e) * stride[3]] = sums[i][f + e] * factor;
        }
      }
    }
  }
  __device__ __forceinline__ void store(KeyTile const& t, Gradients const& gradients) const {
    abi::AttentionBackwardArgs const& a = p.args;
    abi::AttentionArgs const& g = a.forward;
    int const warp = fresh_warp();
    int const row = gradient_key(warp) + 4 * lane_m(fresh_lane());
    int const column = gradient_feature(warp) + 4 * lane_n(fresh_lane());
    int const existing = t.rows_kv - t.key0;
    std::int64_t const b = g.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const position = std::int64_t{t.begin_kv} + t.key0;
    store_rows(static_cast<float*>(a.dv) + b * a.dv_stride[0] + t.head_kv * a.dv_stride[1] +
                   position * a.dv_stride[2],
               a.dv_stride, static_cast<int>(g.head_dim_v), p.vectors_dv, gradients.dv, 1.0f, row,
               column, existing);
    store_rows(static_cast<float*>(a.dk) + b * a.dk_stride[0] + t.head_kv * a.dk_stride[1] +
                   position * a.dk_stride[2],
               a.dk_stride, static_cast<int>(g.head_dim), p.vectors_dk, gradients.dk, p.scale, row,
               column, existing);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
