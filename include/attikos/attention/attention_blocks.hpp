// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A block mask as attention's kernels read it: which pairs it hides, and which part of a kernel's
/// own tile it leaves, whose size need not be the mask's.
#pragma once

#include <attikos/attention/attention_head.hpp>
#include <attikos/attention/block_mask.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The tiles of one sequence and head.
struct MaskBlocks {
  std::int8_t const* data;
  std::int64_t const (&stride)[4];
  std::int64_t const (&size)[2];
  std::int64_t tiles[2];

  template <class Head>
  KOKKOS_INLINE_FUNCTION MaskBlocks(abi::AttentionArgs const& g, Head const& head)
      : data(g.block_mask + head.batch * g.block_mask_stride[0] +
             head.head * g.block_mask_stride[1]),
        stride(g.block_mask_stride),
        size(g.block_size),
        tiles{whole(g, 0, head.len_q), whole(g, 1, head.len_kv)} {}

  /// How many tiles tell of all their pairs: in a packed sequence longer than what the mask covers
  /// not the last one, if that is cut off.
  static KOKKOS_INLINE_FUNCTION std::int64_t whole(abi::AttentionArgs const& g, int dimension,
                                                   std::int64_t length) {
    std::int64_t const covered = g.block_mask_extent[dimension];
    std::int64_t const count = g.block_mask_tiles[dimension];
    std::int64_t const block = g.block_size[dimension];
    return length > covered && covered - (count - 1) * block < block ? count - 1 : count;
  }

  /// The tile that a position lies in along a dimension: 0 queries, 1 keys.
  KOKKOS_INLINE_FUNCTION std::int64_t tile(int dimension, std::int64_t position) const {
    // Division of 64-bit numbers takes several times as long, on devices above all.
    if (((position | size[dimension]) >> 32) == 0)
      return static_cast<std::uint32_t>(position) / static_cast<std::uint32_t>(size[dimension]);
    return position / size[dimension];
  }
  KOKKOS_INLINE_FUNCTION BlockKind kind(std::int64_t query_tile, std::int64_t key_tile) const {
    if (query_tile >= tiles[0] || key_tile >= tiles[1]) return BlockKind::partial;
    std::int8_t const value = data[query_tile * stride[2] + key_tile * stride[3]];
    if (value == static_cast<std::int8_t>(BlockKind::empty)) return BlockKind::empty;
    return value == static_cast<std::int8_t>(BlockKind::full) ? BlockKind::full
                                                              : BlockKind::partial;
  }
};

/// Whether the block mask lets a query see a key.
template <class Functors, class Head>
KOKKOS_INLINE_FUNCTION bool sees_in_blocks(abi::AttentionArgs const& g, Functors const& functors,
                                           Head const& head, std::int64_t i, std::int64_t j) {
  if constexpr (Functors::has_block_mask) {
    MaskBlocks const blocks(g, head);
    BlockKind const kind = blocks.kind(blocks.tile(0, i), blocks.tile(1, j));
    return kind == BlockKind::full ||
           (kind == BlockKind::partial && functors.predicate(head.batch, head.head, i, j));
  }
  (void)g, (void)functors, (void)head, (void)i, (void)j;
  return true;
}

/// Columns [begin, end).
struct ColumnRange {
  std::int64_t begin, end;
};

/// The first of columns [begin, end) whose tile is not empty for one of rows [row0, row0 + rows),
/// of which there is at least one; where there is none, a number not below `end`.
template <bool ByKey, class Head>
KOKKOS_INLINE_FUNCTION std::int64_t first_seen(abi::AttentionArgs const& g, Head const& head,
                                               std::int64_t row0, int rows, std::int64_t begin,
                                               std::int64_t end) {
  constexpr int along = ByKey ? 0 : 1;
  MaskBlocks const blocks(g, head);
  std::int64_t const first_row = blocks.tile(1 - along, row0),
                     last_row = blocks.tile(1 - along, row0 + rows - 1);
  std::int64_t const first = blocks.tile(along, begin), last = blocks.tile(along, end - 1);
  // Eight at a time, so that loads need not wait for one another.
  for (std::int64_t some = first; some <= last; some += 8) {
    unsigned seen = 0;
    for (int i = 0; i < 8; ++i) {
      std::int64_t const column = some + i;
      if (column > last) continue;
      for (std::int64_t row = first_row; row <= last_row; ++row)
        if (blocks.kind(ByKey ? column : row, ByKey ? row : column) != BlockKind::empty)
          seen |= 1u << i;
    }
    if (seen == 0) continue;
    std::int64_t column = some;
    for (; (seen & 1) == 0; seen >>= 1) ++column;
    return column == first ? begin : column * blocks.size[along];
  }
  return end;
}

/// What empty tiles of the mask leave of columns [begin, end) for rows [row0, row0 + rows): all
/// from the first tile that is not empty for one of the rows to the last. `ByKey`: rows are keys
/// and columns queries. Every thread of a team gets the same.
template <bool ByKey, class Functors, class Head>
KOKKOS_INLINE_FUNCTION ColumnRange seen_columns(abi::AttentionArgs const& g, Head const& head,
                                                std::int64_t row0, int rows, std::int64_t begin,
                                                std::int64_t end) {
  if constexpr (Functors::has_block_mask) {
    if (rows <= 0 || begin >= end) return {begin, begin};
    constexpr int along = ByKey ? 0 : 1;
    MaskBlocks const blocks(g, head);
    std::int64_t const first_row = blocks.tile(1 - along, row0),
                       last_row = blocks.tile(1 - along, row0 + rows - 1);
    auto const is_seen = [&](std::int64_t column) {
      for (std::int64_t row = first_row; row <= last_row; ++row)
        if (blocks.kind(ByKey ? column : row, ByKey ? row : column) != BlockKind::empty)
          return true;
      return false;
    };
    std::int64_t first = blocks.tile(along, begin), last = blocks.tile(along, end - 1);
    while (first <= last && !is_seen(first)) ++first;
    if (first > last) return {begin, begin};
    while (!is_seen(last)) --last;
    std::int64_t const low = first * blocks.size[along];
    // Compared so that a tile of any size may end past the largest number.
    std::int64_t const high = end - last * blocks.size[along] > blocks.size[along]
                                  ? (last + 1) * blocks.size[along]
                                  : end;
    return {low > begin ? low : begin, high};
  }
  (void)g, (void)head, (void)row0, (void)rows;
  return {begin, end};
}

namespace host {

/// Calls `run(begin, end, ask)` for the parts of columns [begin, end) of a row that lie in one tile
/// each and are not empty, `hide(begin, end)` for the others. `ask`: the predicate has to be.
template <bool ByKey, class Functors, class Head, class Run, class Hide>
inline void for_each_block(abi::AttentionArgs const& g, Head const& head, std::int64_t row,
                           std::int64_t begin, std::int64_t end, Run const& run, Hide const& hide) {
  if constexpr (Functors::has_block_mask) {
    constexpr int along = ByKey ? 0 : 1;
    MaskBlocks const blocks(g, head);
    std::int64_t const row_tile = blocks.tile(1 - along, row);
    while (begin < end) {
      std::int64_t const tile = blocks.tile(along, begin);
      std::int64_t const left = blocks.size[along] - (begin - tile * blocks.size[along]);
      std::int64_t const to = end - begin < left ? end : begin + left;
      BlockKind const kind = ByKey ? blocks.kind(tile, row_tile) : blocks.kind(row_tile, tile);
      if (kind == BlockKind::empty)
        hide(begin, to);
      else
        run(begin, to, kind == BlockKind::partial);
      begin = to;
    }
  } else {
    if (begin < end) run(begin, end, false);
    (void)g, (void)head, (void)row, (void)hide;
  }
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
