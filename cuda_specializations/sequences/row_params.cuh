// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What kernels for few rows of queries are told, decode's and those for short sequences, and which
/// rows and keys are whose.
#pragma once

#include <attikos/abi/decode.hpp>
#include <cstdint>

#include "lengths.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Keys of each part but the last of `keys` that are cut into at most `splits`: whole steps of a
/// block, so that all of its warps have as many.
template <class Int>
__host__ __device__ constexpr Int part_length(Int keys, Int splits) {
  constexpr Int grain = 64, least = 128;
  Int const share = (keys + splits - 1) / splits;
  Int const part = (share + grain - 1) / grain * grain;
  return part < least ? least : part;
}

/// Most parts of one sequence.
constexpr int most_decode_splits = 512;

struct DecodeParams {
  abi::AttentionArgs args;
  float* partial_out;   ///< [splits, states, state_width], null where there is one split
  float* partial_lse;   ///< [states, splits], base 2 (float64: e)
  std::int64_t states;  ///< rows of out in all
  int state_width;      ///< head_dim_v, rounded up to 4
  int splits;
  int table_share;  ///< entries of a page table that each part of a sequence fetches ahead; 0: none
  int tiles;        ///< of the rows that share a key head; slots for them where q is packed
  int group;        ///< query heads to a key head
  int keys_ahead;   ///< first keys of a part that come to L2 before the launch ahead has ended
  int blocks_ahead;        ///< blocks that bring them: no more than run at once
  bool early;              ///< the launch behind may take up its place as soon as all blocks run
  int window_left, reach;  ///< query i sees keys [i + off - window_left, i + off + reach); -1: open
  float scale;             ///< of scores
  bool terms;              ///< scores are more than scale·q·k
  bool vectors;            ///< rows of out can be written 4 elements at a time
};

namespace {

/// Rows of one sequence that share a key head: its query heads one after another, each with all its
/// queries. Positions count within the sequence.
struct DecodeTile {
  int batch;   ///< -1: positions that belong to no sequence
  int head;    ///< first query head of the group
  int row0;    ///< first of the rows
  int rows;    ///< 0: nothing to do
  int length;  ///< queries of a head
  int begin_q, begin_kv;
  int len_q, len_kv;
  int offset;  ///< query i stands where key i + offset stands
  int reach, window_left;

  __device__ __forceinline__ int head_of(int r) const { return head + (row0 + r) / length; }
  __device__ __forceinline__ int query_of(int r) const { return (row0 + r) % length; }
  /// Query i sees keys [seen_from(i), seen_end(i)).
  __device__ __forceinline__ int seen_end(int i) const {
    return i >= len_q ? 0 : max(0, min(i + offset + reach, len_kv));
  }
  __device__ __forceinline__ int seen_from(int i) const { return max(0, i + offset - window_left); }
};

/// The same over float8 elements, with what those stand for.
struct ScaledDecodeTile : DecodeTile {
  float scale;        ///< of products of queries and keys, the softmax's scale included
  float value_scale;  ///< of values
};

__device__ __forceinline__ float product_scale(DecodeParams const& p, DecodeTile const&) {
  return p.scale;
}
__device__ __forceinline__ float product_scale(DecodeParams const&, ScaledDecodeTile const& t) {
  return t.scale;
}
__device__ __forceinline__ float value_scale(DecodeTile const&) { return 1; }
__device__ __forceinline__ float value_scale(ScaledDecodeTile const& t) { return t.value_scale; }

/// Works out which keys the rows see from how many of them and of keys there are.
__device__ __forceinline__ void place_window(DecodeParams const& p, DecodeTile& t) {
  t.offset = p.args.causal_alignment == CausalAlignment::bottom_right ? t.len_kv - t.len_q : 0;
  int const everything = t.len_q + t.len_kv + 1;
  t.reach = p.reach < 0 || p.reach > everything ? everything : p.reach;
  t.window_left = p.window_left < 0 || p.window_left > everything ? everything : p.window_left;
}

/// Works out tile `slot`, of `tile_m` rows, of key head `h_kv`, of sequence `b` unless queries are
/// packed: then segment e has the slots from group·begin/tile_m + e on, of which it needs no more
/// than there are up to the next one's.
__device__ __forceinline__ DecodeTile locate_rows(DecodeParams const& p, int b, int h_kv, int slot,
                                                  int tile_m) {
  abi::AttentionArgs const& g = p.args;
  DecodeTile t{};
  t.batch = b, t.head = h_kv * p.group;
  t.row0 = slot * tile_m;
  t.length = static_cast<int>(g.seqlen_q);
  if (g.cu_seqlens_q.data != nullptr) {
    auto const slot_of = [&](int e) {
      return static_cast<int>(std::int64_t{packed_boundary(g, e)} * p.group / tile_m) + e;
    };
    int low = 0, high = static_cast<int>(g.batch) + 2;
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (slot_of(middle) <= slot ? low : high) = middle;
    }
    t.begin_q = packed_boundary(g, low);
    t.length = max(0, packed_boundary(g, low + 1) - t.begin_q);
    t.row0 = (slot - slot_of(low)) * tile_m;
    t.batch = low >= 1 && low <= g.batch ? low - 1 : -1;
  }
  t.rows = max(0, min(tile_m, p.group * t.length - t.row0));
  if (t.batch < 0 || t.rows == 0) return t;
  int const seqlen_kv = static_cast<int>(g.seqlen_kv);
  b = t.batch;
  t.len_q = t.length;
  t.len_kv = seqlen_kv;
  if (g.lengths_q != nullptr)  // one for all heads of a sequence
    t.len_q = clamped(g.lengths_q[b * g.lengths_q_stride[0]], 0, t.len_q);
  cut_keys(g, b, h_kv, seqlen_kv, t.begin_kv, t.len_kv);
  place_window(p, t);
  return t;
}

/// Keys that a block works on.
struct DecodeKeys {
  int begin, end;
};

/// Part `split` of the keys that some row of a tile sees. Parts depend on the sequence and the
/// number of splits alone; those that would be short are left to others.
__device__ __forceinline__ DecodeKeys part_of_keys(DecodeTile const& t, int splits, int split) {
  if (t.rows == 0) return {0, 0};
  bool const one_head = t.head_of(0) == t.head_of(t.rows - 1);
  int const low = one_head ? t.query_of(0) : 0;
  int const high = min(one_head ? t.query_of(t.rows - 1) : t.length - 1, t.len_q - 1);
  if (low > high) return {0, 0};
  int const from = t.seen_from(low), end = t.seen_end(high);
  if (end <= from) return {0, 0};
  int const part = part_length(end - from, splits);
  std::int64_t const begin = from + std::int64_t{split} * part;
  if (begin >= end) return {0, 0};
  return {static_cast<int>(begin), static_cast<int>(min(begin + part, std::int64_t{end}))};
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
