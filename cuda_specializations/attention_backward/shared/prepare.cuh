// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// First launch of attention's gradients: what every query brings to all its pairs.
#pragma once

#include "ptx/dependent_launch.cuh"
#include "sequences/score_math_f64.cuh"
#include "tiles.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A tile of queries of one sequence and head.
struct QueryTile {
  int batch;  ///< -1: a slot that no packed sequence needs
  int head;
  int row0;     ///< first query
  int begin_q;  ///< position of the sequence's first query
  int rows_q;   ///< positions of the sequence
  int len_q;
};

namespace {

/// Tile of queries number `tile`. All lanes of a warp together.
template <int TileQ>
__device__ __forceinline__ QueryTile locate_queries(AttentionBackwardParams const& p, int tile) {
  abi::AttentionArgs const& g = p.args.forward;
  int const group = tile / p.tiles_q, slot = tile % p.tiles_q;
  int const heads = static_cast<int>(g.heads_q), total = static_cast<int>(g.seqlen_q);
  QueryTile t{group / heads, group % heads, slot * TileQ, 0, 0, 0};
  if (g.cu_seqlens_q.data != nullptr) {
    t.head = group;
    t.batch = find_sequence(g.cu_seqlens_q, static_cast<int>(g.batch), total, TileQ, slot);
  }
  SequenceSpan const queries = sequence_span(g.cu_seqlens_q, t.batch, total);
  t.begin_q = queries.begin, t.rows_q = t.len_q = queries.length;
  if (g.cu_seqlens_q.data != nullptr) {
    t.row0 = (slot - packed_tile(t.begin_q, t.batch, TileQ)) * TileQ;
    if (t.row0 < 0 || t.row0 >= t.rows_q) t.batch = -1;
  }
  if (g.lengths_q != nullptr && t.batch >= 0)
    t.len_q = clamped(g.lengths_q[t.batch * g.lengths_q_stride[0] + t.head * g.lengths_q_stride[1]],
                      0, t.len_q);
  return t;
}

/// The elements of 16 bytes, times those of another 16, added up.
template <class T>
__device__ __forceinline__ NumberOf<T> dot_of_chunks(uint4 const& x, uint4 const& y) {
  T const* const a = reinterpret_cast<T const*>(&x);
  T const* const b = reinterpret_cast<T const*>(&y);
  NumberOf<T> sum = 0;
#pragma unroll
  for (int i = 0; i < 16 / static_cast<int>(sizeof(T)); ++i)
    sum = fma(number_of(a[i]), number_of(b[i]), sum);
  return sum;
}

/// The part of a row's sum of dout·out that one of the `Lanes` lanes that share it adds up.
template <class T, int Lanes>
__device__ __forceinline__ NumberOf<T> part_of_row_sum(AttentionBackwardParams const& p,
                                                       T const* dout, T const* out, int lane) {
  using Number = NumberOf<T>;
  constexpr int elements = 16 / static_cast<int>(sizeof(T));  // of a chunk
  int const width = static_cast<int>(p.args.forward.head_dim_v);
  Number sum = 0;
  if (p.vectors_dout && p.vectors_out) {
#pragma unroll 2
    for (int c = lane * elements; c < width; c += Lanes * elements)
      sum += dot_of_chunks<T>(*reinterpret_cast<uint4 const*>(dout + c),
                              *reinterpret_cast<uint4 const*>(out + c));
  } else {
    // In the order of the copies of 16 bytes: strides do not change the bits.
#pragma unroll 1
    for (int c = lane * elements; c < width; c += Lanes * elements) {
      Number part = 0;
#pragma unroll 1
      for (int i = 0; i < elements && c + i < width; ++i)
        part = fma(number_of(dout[(c + i) * p.args.dout_stride[3]]),
                   number_of(out[(c + i) * p.args.forward.out_stride[3]]), part);
      sum += part;
    }
  }
  return sum;
}

/// Whether the search for the sequence of a tile of keys can miss one, because boundaries go back
/// by more than a tile. All threads of a block together.
template <int TileKv>
__device__ __forceinline__ bool loses_tiles(abi::AttentionArgs const& g) {
  if (g.cu_seqlens_kv.data == nullptr) return false;
  int const total = static_cast<int>(g.seqlen_kv);
  bool back = false;
  for (int b = static_cast<int>(threadIdx.x); b < g.batch; b += static_cast<int>(blockDim.x))
    back = back || packed_tile(packed_begin(g.cu_seqlens_kv, b + 1, total), b + 1, TileKv) <
                       packed_tile(packed_begin(g.cu_seqlens_kv, b, total), b, TileKv);
  return __syncthreads_or(back) != 0;
}

/// Queries of a block of the first launch.
template <int TileQ>
constexpr int prepared_rows = TileQ < 32 ? TileQ : 32;

/// How many blocks the first launch has for `tiles` tiles of queries.
template <int TileQ>
constexpr std::int64_t blocks_that_prepare(std::int64_t tiles) {
  return tiles * (TileQ / prepared_rows<TileQ>);
}

/// A block of 128 threads takes some queries of a tile, eight lanes a row and two rows of each, so
/// that all of its loads are under way at once. Also sets the counters to 0. Where tiles of keys
/// are lost nobody may wait for their turn: what comes of such boundaries is not said, but it ends.
template <class T, int TileQ, int TileKv>
__global__ void __launch_bounds__(128)
    attention_backward_prepare(__grid_constant__ AttentionBackwardParams const p) {
  using Number = NumberOf<T>;
  constexpr int lanes = 8, at_once = 128 / lanes, of_block = prepared_rows<TileQ>;
  constexpr int blocks = TileQ / of_block, own_rows = of_block / at_once;
  static_assert(TileQ % of_block == 0 && of_block % at_once == 0);
  allow_launch_behind();
  wait_for_launch_before();
  abi::AttentionArgs const& g = p.args.forward;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % lanes;
  int const tile = static_cast<int>(blockIdx.x) / blocks;
  int const first = static_cast<int>(blockIdx.x) % blocks * of_block + thread / lanes;
  if (static_cast<int>(blockIdx.x) % blocks == 0 && thread < 2)
    p.turns[2 * static_cast<std::int64_t>(tile) + thread] = 0;
  if (blockIdx.x == 0) {
    bool const lost = loses_tiles<TileKv>(g);
    if (thread == 2) p.tickets[0] = p.tickets[2] = 0, p.tickets[1] = lost ? 1 : 0;
  }
  QueryTile const t = locate_queries<TileQ>(p, tile);
  Number* const rows = numbers_of<T>(p.rows) + static_cast<std::int64_t>(tile) * (2 * TileQ);
  std::int64_t const b = g.cu_seqlens_q.data != nullptr ? 0 : t.batch;
  T const* const dout = static_cast<T const*>(p.args.dout) + b * p.args.dout_stride[0] +
                        t.head * p.args.dout_stride[1];
  T const* const out =
      static_cast<T const*>(g.out) + b * g.out_stride[0] + t.head * g.out_stride[1];
  Number const* const lse =
      static_cast<Number const*>(g.lse) + b * g.lse_stride[0] + t.head * g.lse_stride[1];
  Number const nothing = minus_infinity();
  Number of_row[own_rows], sum[own_rows];
#pragma unroll
  for (int i = 0; i < own_rows; ++i) {
    int const r = first + i * at_once;
    bool const live = t.batch >= 0 && t.row0 + r < t.len_q;
    std::int64_t const at = std::int64_t{t.begin_q} + t.row0 + r;
    of_row[i] = live ? lse[at * g.lse_stride[2]] : nothing;
    sum[i] = live ? part_of_row_sum<T, lanes>(p, dout + at * p.args.dout_stride[2],
                                              out + at * g.out_stride[2], lane)
                  : Number{0};
  }
#pragma unroll
  for (int i = 0; i < own_rows; ++i) {
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart /= 2)
      sum[i] += __shfl_xor_sync(0xffffffff, sum[i], apart);
    if (lane != 0) continue;
    // A row that sees nothing has weights of 0, which 2^-inf is.
    bool const sees = of_row[i] != nothing;
    int const r = first + i * at_once;
    rows[r] = sees ? -of_row[i] * log2_e_of<Number> / p.lse_unit : nothing;
    rows[TileQ + r] = sees ? -sum[i] : Number{0};
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
