// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which rows a tile of a product takes, where groups or counts of rows are known to the device
/// alone.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/abi/gemm.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Matrices of a tile, its first row, and the end of the rows it may take.
struct GemmPlace {
  std::int64_t batch_a, batch_b, batch_c, row, end;
};

/// Row tiles that hold any partition of the rows into groups: group g has the slots from
/// offset(g)/tile + g on, since a group of s rows that begins at row r needs at most
/// (r + s)/tile − r/tile + 1 of them.
inline std::int64_t gemm_group_slots(abi::GemmArgs const& g, int tile_m) {
  return g.m / tile_m + g.groups;
}

/// Offset of a group, inside the allocation whatever the device holds.
KOKKOS_INLINE_FUNCTION std::int64_t gemm_group_offset(abi::GemmArgs const& g, std::int64_t group) {
  std::int64_t const at = group * g.offsets_stride;
  std::int64_t const value = g.type_offsets == DType::int64
                                 ? static_cast<std::int64_t const*>(g.offsets)[at]
                                 : std::int64_t{static_cast<std::int32_t const*>(g.offsets)[at]};
  return value < 0 ? 0 : (value > g.m ? g.m : value);
}

/// The place of row tile `slot`; no rows (end ≤ row) where there is nothing to do.
KOKKOS_INLINE_FUNCTION GemmPlace gemm_place(abi::GemmArgs const& g, std::int64_t batch,
                                            std::int64_t slot, int tile_m) {
  if (g.offsets != nullptr) {
    // The last group whose first slot is not behind this one.
    std::int64_t low = 0, high = g.groups;
    while (high - low > 1) {
      std::int64_t const middle = low + (high - low) / 2;
      if (gemm_group_offset(g, middle) / tile_m + middle <= slot)
        low = middle;
      else
        high = middle;
    }
    std::int64_t const begin = gemm_group_offset(g, low);
    std::int64_t const tile = slot - (begin / tile_m + low);
    // Slots before the first group's have no rows, nor have groups of descending offsets.
    if (tile < 0 || g.groups == 0) return {0, 0, 0, 0, 0};
    return {0, low, 0, begin + tile * tile_m, gemm_group_offset(g, low + 1)};
  }
  std::int64_t end = g.m;
  if (g.counts != nullptr) {
    std::int64_t const count = g.counts[batch * g.counts_stride];
    end = count < end ? count : end;
  }
  return {batch, batch, batch, slot * tile_m, end};
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
