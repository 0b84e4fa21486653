// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which tiles of queries a tile of keys meets, and in which order a tile of queries is added to.
#pragma once

#include "params.cuh"
#include "sequences/lengths.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A tile of keys of one sequence and key head. Positions count within the sequence.
struct KeyTile {
  int batch, head_kv;
  int key0;      ///< first key
  int begin_kv;  ///< position of the sequence's first key
  int rows_kv;   ///< positions of the sequence, which all have gradients
};

/// A tile of keys with one query head that shares them, and the tiles of queries to go through.
struct alignas(16) KeyTileHead : KeyTile {
  int head;
  int begin_q, len_q, len_kv;
  int offset;  ///< query i stands where key i + offset stands
  int reach, window_left;
  int first, end;                  ///< tiles of queries some of which see some of the keys
  int masked_before, masked_from;  ///< tiles of queries some of whose pairs do not exist
  int partial;         ///< the tile with queries past the length that are there; -1: none
  int tile0;           ///< number of the sequence's first tile of queries
  bool starts, stops;  ///< it is the first head of the tile of keys, the last

  __device__ __forceinline__ int seen_end(int i) const {
    return max(0, min(i + offset + reach, len_kv));
  }
};

namespace {

/// Offsets of sequence b among packed positions, cut off at `total`.
__device__ __forceinline__ int packed_begin(abi::Offsets const& offsets, std::int64_t b,
                                            int total) {
  return clamped(offsets[b], 0, total);
}

/// First tile of sequence b among those of a head of packed sequences. There is room for one begun
/// tile a sequence.
__device__ __forceinline__ int packed_tile(int begin, int b, int rows) { return begin / rows + b; }

/// The last of `count` packed sequences that begins at or before tile `slot`, whose size is `rows`.
/// All lanes of a warp together.
__device__ __forceinline__ int find_sequence(abi::Offsets const& offsets, int count, int total,
                                             int rows, int slot) {
  int low = 0, size = count;
  while (size > 1) {
    int const step = (size + 31) / 32, b = low + static_cast<int>(threadIdx.x % 32) * step;
    bool const before =
        b < low + size && packed_tile(packed_begin(offsets, b, total), b, rows) <= slot;
    int const passed = max(1, __popc(__ballot_sync(0xffffffff, before)));
    int const next = low + (passed - 1) * step;
    size = min(step, low + size - next);
    low = next;
  }
  return low;
}

/// Tile of keys number `work`; false if there is none. All lanes of a warp together. `part`: what
/// part of the query heads that share the key head it is for, if these are divided.
template <int TileKv>
__device__ __forceinline__ bool locate_keys(AttentionBackwardParams const& p, int work, KeyTile& t,
                                            int* part = nullptr) {
  abi::AttentionArgs const& g = p.args.forward;
  // A set of pairs of batch and head, in it a tile of each in turn.
  int const set = p.interleaved * p.tiles_kv, first = work / set * p.interleaved, in = work % set;
  int const width = min(p.interleaved, p.groups - first);
  int group = first + in % width;
  if (part != nullptr) {
    *part = group % p.parts;
    group /= p.parts;
  }
  int const slot = p.from_last ? p.tiles_kv - 1 - in / width : in / width;
  int const heads_kv = static_cast<int>(g.heads_kv), total = static_cast<int>(g.seqlen_kv);
  t.batch = group / heads_kv;
  t.head_kv = group % heads_kv;
  t.key0 = slot * TileKv;
  if (g.cu_seqlens_kv.data != nullptr) {
    t.head_kv = group;
    t.batch = find_sequence(g.cu_seqlens_kv, static_cast<int>(g.batch), total, TileKv, slot);
  }
  SequenceSpan const keys = sequence_span(g.cu_seqlens_kv, t.batch, total);
  t.begin_kv = keys.begin, t.rows_kv = keys.length;
  if (g.cu_seqlens_kv.data != nullptr)
    t.key0 = (slot - packed_tile(t.begin_kv, t.batch, TileKv)) * TileKv;
  return t.key0 >= 0 && t.key0 < t.rows_kv;
}

/// What query head `head` of the sequence has to do with the tile's keys.
template <int TileQ, int TileKv>
__device__ __forceinline__ void meet_head(AttentionBackwardParams const& p, int head,
                                          KeyTileHead& t) {
  abi::AttentionArgs const& g = p.args.forward;
  int const b = t.batch, total_q = static_cast<int>(g.seqlen_q);
  t.head = head;
  SequenceSpan const queries = sequence_span(g.cu_seqlens_q, b, total_q);
  t.begin_q = queries.begin, t.len_q = queries.length;
  t.tile0 = g.cu_seqlens_q.data != nullptr ? head * p.tiles_q + packed_tile(t.begin_q, b, TileQ)
                                           : (b * static_cast<int>(g.heads_q) + head) * p.tiles_q;
  if (g.lengths_q != nullptr)
    t.len_q =
        clamped(g.lengths_q[b * g.lengths_q_stride[0] + head * g.lengths_q_stride[1]], 0, t.len_q);
  t.len_kv = t.rows_kv;
  if (g.lengths_kv != nullptr)
    t.len_kv = clamped(
        g.lengths_kv[b * g.lengths_kv_stride[0] + t.head_kv * g.lengths_kv_stride[1]], 0, t.len_kv);
  t.offset = g.causal_alignment == CausalAlignment::bottom_right ? t.len_kv - t.len_q : 0;
  int const everything = t.len_q + t.len_kv + 1;
  t.reach = p.reach < 0 || p.reach > everything ? everything : p.reach;
  t.window_left = p.window_left < 0 || p.window_left > everything ? everything : p.window_left;
  int const key_end = min(t.key0 + TileKv, t.len_kv);
  int const row = max(0, t.key0 - t.offset - t.reach + 1);
  int const row_end = min(t.len_q, key_end + t.window_left - t.offset);
  bool const none = t.key0 >= key_end || row >= row_end;
  // A tile is whole if its first query sees the last key, and its last query the first one.
  int const whole_row = max(0, t.key0 + TileKv - t.offset - t.reach);
  int const whole_end = min(t.len_q, t.key0 + t.window_left - t.offset + 1);
  t.masked_before = t.key0 + TileKv > t.len_kv ? 0x7fffffff : (whole_row + TileQ - 1) / TileQ;
  t.masked_from = whole_end >= t.len_q ? 0x7fffffff : max(whole_end, 0) / TileQ;
  // Behind all positions that a tensor has copies bring zeros.
  bool const all = g.cu_seqlens_q.data == nullptr && g.lengths_q == nullptr;
  t.partial = all || t.len_q % TileQ == 0 ? -1 : t.len_q / TileQ;
  t.first = none ? 0 : row / TileQ;
  t.end = none ? 0 : (row_end + TileQ - 1) / TileQ;
}

/// How many tiles of keys are added to tile m of queries before this one.
template <int TileQ, int TileKv>
__device__ __forceinline__ int turn_of(AttentionBackwardParams const& p, KeyTileHead const& t,
                                       int m) {
  if (p.from_last) {
    int const last = min((m + 1) * TileQ, t.len_q) - 1;
    return (t.seen_end(last) - 1) / TileKv - t.key0 / TileKv;
  }
  return t.key0 / TileKv - max(0, m * TileQ + t.offset - t.window_left) / TileKv;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
