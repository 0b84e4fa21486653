// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How decoding is cut up: rows of a sequence that share a key head in tiles, keys in splits, whose
/// results are partial states.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/fragments/scores.hpp>
#include <attikos/attention/online_softmax.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// How a decode problem is cut up: tile extents, where scratch lies, keys of one split (a multiple
/// of the key tile) and number of splits.
struct DecodePlan {
  int tile_q, tile_kv, scratch_level;
  std::int64_t chunk, splits;
};

/// Writes unnormalized results of one split as partial states, out/sum and log-sum-exp; row i of
/// the tile goes to row `to(i)` of them, whose rows of out are `pitch` apart.
template <class Team, class Acc, class To>
KOKKOS_INLINE_FUNCTION void store_partial_rows(Team const& team, Acc value_scale, Acc* out,
                                               std::int64_t pitch, Acc* lse, int rows, int cols,
                                               SoftmaxState<Acc> const& state, To const& to) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
    Acc const sum = state.sum[i];
    bool const empty = sum == Acc(0);
    Acc const factor = empty ? Acc(0) : value_scale / sum;
    Acc const* const from = state.out + i * state.ldo;
    std::int64_t const row = to(i);
    Acc* const out_row = out + row * pitch;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols),
                         [&](int j) { out_row[j] = empty ? Acc(0) : from[j] * factor; });
    Kokkos::single(Kokkos::PerThread(team), [&] {
      lse[row] = empty ? negative_infinity<Acc>() : state.maximum[i] + Kokkos::log(sum);
    });
  });
}

/// A tile of the rows of one sequence that share a key head: its query heads one after another,
/// each with all its queries. Row r of the tile is query (row0 + r) mod len of head (row0 + r) div
/// len.
struct DecodeRows {
  QueryRows sequence;
  std::int64_t row0;
  int rows;  ///< 0: nothing to do

  KOKKOS_INLINE_FUNCTION std::int64_t head(int r) const { return (row0 + r) / sequence.rows; }
  KOKKOS_INLINE_FUNCTION std::int64_t query(int r) const { return (row0 + r) % sequence.rows; }
  KOKKOS_INLINE_FUNCTION GroupRow row(int r) const { return {query(r), head(r)}; }
};

/// The rows of slot `slot` of sequence `b`, or of all sequences where q is packed, in tiles of
/// `tile`: then segment e has the slots from group·begin/tile + e on, as query_tiles() counts them.
KOKKOS_INLINE_FUNCTION DecodeRows locate_decode_rows(abi::AttentionArgs const& g, std::int64_t b,
                                                     std::int64_t slot, int tile) {
  std::int64_t const group = g.heads_q / g.heads_kv;
  DecodeRows at{{b, 0, g.seqlen_q}, slot * tile, 0};
  if (g.cu_seqlens_q.data != nullptr) {
    PackedSequences const s = packed_queries(g);
    std::int64_t low = 0, high = s.batch + 2;
    while (high - low > 1) {
      std::int64_t const middle = low + (high - low) / 2;
      (packed_boundary(s, middle) * group / tile + middle <= slot ? low : high) = middle;
    }
    at.sequence = packed_rows(s, low);
    at.row0 = (slot - (at.sequence.begin * group / tile + low)) * tile;
  }
  std::int64_t const left = group * at.sequence.rows - at.row0;
  at.rows = static_cast<int>(clamp_index(left, 0, tile));
  return at;
}
/// Slots for tiles of rows, as packed_tiles() counts those of queries.
inline std::int64_t decode_row_tiles(abi::AttentionArgs const& g, std::int64_t tile) {
  std::int64_t const rows = g.heads_q / g.heads_kv * g.seqlen_q;
  return g.cu_seqlens_q.data == nullptr ? (rows + tile - 1) / tile : rows / tile + g.batch + 2;
}

/// Rows of a sequence that share a key head, at least one. Packed sequences are taken for equally
/// long.
inline std::int64_t decode_rows_of_sequence(abi::AttentionArgs const& g) {
  std::int64_t const sequences = std::max<std::int64_t>(g.batch, 1);
  std::int64_t const queries =
      g.cu_seqlens_q.data == nullptr ? g.seqlen_q : (g.seqlen_q + sequences - 1) / sequences;
  return g.heads_kv == 0 ? 1 : std::max<std::int64_t>(g.heads_q / g.heads_kv * queries, 1);
}

/// First extent of the partial states behind the splits.
KOKKOS_INLINE_FUNCTION std::int64_t decode_batch(abi::AttentionArgs const& g) {
  return g.cu_seqlens_q.data == nullptr ? g.batch : 1;
}

/// The row of the partial states that row r of the rows `at` of a split is. Those are [splits,
/// batch, heads_q, seqlen_q], with a batch of 1 where q is packed.
struct PartialRows {
  std::int64_t first, queries;
  DecodeRows const& at;

  KOKKOS_INLINE_FUNCTION PartialRows(abi::AttentionArgs const& g, DecodeRows const& rows,
                                     std::int64_t split, std::int64_t sequence,
                                     std::int64_t first_head)
      : first(((split * decode_batch(g) + sequence) * g.heads_q + first_head) * g.seqlen_q +
              rows.sequence.begin),
        queries(g.seqlen_q),
        at(rows) {}
  KOKKOS_INLINE_FUNCTION std::int64_t operator()(int r) const {
    return first + at.head(r) * queries + at.query(r);
  }
  /// Of rows that see no key. What an empty state's output holds is never looked at.
  template <class Team, class Acc>
  KOKKOS_INLINE_FUNCTION void leave_empty(Team const& team, Acc* lse) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, at.rows),
                         [&](int r) { lse[(*this)(r)] = negative_infinity<Acc>(); });
  }
};

/// The first and the last query of a tile, and the last that sees keys.
struct DecodeQueries {
  std::int64_t low, high, highest;

  /// By query and head of the first row and of the last, of `queries` each.
  KOKKOS_INLINE_FUNCTION DecodeQueries(GroupRow const& first, GroupRow const& last,
                                       std::int64_t queries, std::int64_t len_q) {
    bool const one_head = first.head == last.head;
    low = one_head ? first.query : 0;
    high = one_head ? last.query : queries - 1;
    highest = high < len_q ? high : len_q - 1;  // those past len_q see nothing
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
