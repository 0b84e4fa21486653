// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Predicates of pairs, their tiles worked out by plain loops, and the dense masks that come to the
// same.
#pragma once

#include <attikos/attention/block_mask.hpp>
#include <utility>
#include <vector>

#include "../support/tensors.hpp"

namespace attikos::test {

/// Queries and keys of a tile.
using TileSize = std::pair<std::int64_t, std::int64_t>;

/// Which pairs a predicate shows. `mosaic` has empty, full and partial rectangles that differ from
/// batch to batch and head to head; the others are the same for all.
enum class Pattern { all, nothing, documents, band, mosaic };
inline constexpr std::array all_patterns{Pattern::all, Pattern::nothing, Pattern::documents,
                                         Pattern::band, Pattern::mosaic};

/// A predicate, as a user writes it.
struct TestPredicate {
  Pattern pattern;
  KOKKOS_INLINE_FUNCTION bool operator()(std::int64_t b, std::int64_t h, std::int64_t i,
                                         std::int64_t j) const {
    std::int64_t const piece = (i / 13 * 5 + j / 11 * 3 + b * 2 + h) % 4;
    switch (pattern) {
      case Pattern::all:
        return true;
      case Pattern::nothing:
        return false;
      case Pattern::documents:
        return i / 23 == j / 23;
      case Pattern::band:
        return i - j < 9 && j - i < 4;
      case Pattern::mosaic:
        return piece == 0 || (piece == 1 && (i * 7 + j * 3) % 5 < 2);
    }
    return false;
  }
};

/// Shows all keys but those of [begin, end).
struct SomeKeys {
  std::int64_t begin, end;
  KOKKOS_INLINE_FUNCTION bool operator()(std::int64_t, std::int64_t, std::int64_t,
                                         std::int64_t j) const {
    return j < begin || j >= end;
  }
};

/// The kind of a tile by the definition.
template <class Predicate>
BlockKind block_kind(Predicate const& predicate, BlockMaskShape const& s, std::int64_t b,
                     std::int64_t h, std::int64_t ti, std::int64_t tj) {
  bool none = true, every = true;
  for (std::int64_t i = ti * s.block_q; i < std::min(s.seqlen_q, (ti + 1) * s.block_q); ++i)
    for (std::int64_t j = tj * s.block_kv; j < std::min(s.seqlen_kv, (tj + 1) * s.block_kv); ++j) {
      bool const seen = predicate(b, h, i, j);
      none = none && !seen;
      every = every && seen;
    }
  return none ? BlockKind::empty : every ? BlockKind::full : BlockKind::partial;
}

/// Tiles [batch, heads, tiles_q, tiles_kv] for a shape, extents named by `broadcast` (bit 0 batch,
/// bit 1 heads) being 1.
template <class Exec>
Tensor<std::int8_t, 4, Exec> block_tiles(std::int64_t batch, std::int64_t heads,
                                         BlockMaskShape const& s, unsigned broadcast = 0,
                                         Layout layout = Layout::padded) {
  return Tensor<std::int8_t, 4, Exec>(
      {(broadcast & 1u) != 0 ? 1 : batch, (broadcast & 2u) != 0 ? 1 : heads, s.tiles_q(),
       s.tiles_kv()},
      layout);
}

/// `dense` becomes 1 where it was not 0 and the predicate is true.
template <class Dense, class Predicate>
void keep_seen(Dense& dense, Predicate const& predicate) {
  dense.for_each([&](auto const& i) {
    if (!predicate(i[0], i[1], i[2], i[3])) dense.at(i) = 0;
  });
  dense.upload();
}

}  // namespace attikos::test
