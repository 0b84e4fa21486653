// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the kernels for groups of rows are told, and how their blocks find their tiles.
#pragma once

#include <cuda.h>

#include <attikos/abi/gemm.hpp>

#include "gemm/shared/epilogue.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Factors that are constant along K; strides from matrix to matrix, and along rows or columns.
struct GroupedFactors {
  float const* data;
  std::int64_t batch, stride;
};

struct GroupedParams {
  CUtensorMap weights, rows;
  void const* offsets;  ///< of groups + 1 first rows; null: counts
  bool wide;            ///< offsets have 64 bits
  std::int64_t offsets_stride;
  std::int32_t const* counts;
  std::int64_t counts_stride;
  int groups, m, n;
  int tiles_n, k_blocks;
  int weights_step;  ///< 0 where all groups have the same weights
  int rows_step;     ///< 1 where each group has a matrix of rows
  /// Factors of the rows and, group by group, of the columns of C; no data: 1.
  GroupedFactors row_factors, column_factors;
  /// Those that change along K: of rows, and of 128 columns at a time; no data: 1.
  abi::ScaleGrid block_rows, block_columns;
  bool whole;  ///< rows of C are stored 16 bytes at a time, alpha is all there is to do
  Epilogue epilogue;
};

namespace {

/// Where a tile lies: its group, its first row of the group's matrix and how many it has, its first
/// column.
struct GroupedTile {
  int group, row, rows, n;
};

/// A walk along the tiles in ascending order. Every tile is one of a block and its neighbour, side
/// by side. Sm90Tiles cannot number them: how many rows a group has, the device alone knows, and a
/// block goes on from where it is rather than look for each tile among all groups.
template <class Config>
struct GroupWalk {
  GroupedParams const& p;
  int group = -1, begin = 0, end = 0;  ///< the current group and its rows
  int first = 0, bands = 0;            ///< its first tile, its tiles along rows

  __device__ __forceinline__ int offset(int g) const {
    std::int64_t const at = g * p.offsets_stride;
    std::int64_t const value = p.wide
                                   ? static_cast<std::int64_t const*>(p.offsets)[at]
                                   : std::int64_t{static_cast<std::int32_t const*>(p.offsets)[at]};
    return static_cast<int>(value < 0 ? 0 : value > p.m ? p.m : value);
  }
  __device__ __forceinline__ void bounds(int g, int& from, int& to) const {
    if (p.offsets != nullptr) {
      from = offset(g), to = offset(g + 1);
    } else {
      from = 0, to = p.counts == nullptr ? p.m : min(p.m, p.counts[g * p.counts_stride]);
    }
  }
  /// Rows of each of a group's tiles but the last: as few tiles as hold them, of nearly one height,
  /// so that they keep step while they read the same weights.
  __device__ __forceinline__ static int height_of(int rows) {
    int const least = (rows + Config::most_rows - 1) / Config::most_rows;
    int const equal = (rows + least - 1) / least;
    return (equal + Config::row_step - 1) / Config::row_step * Config::row_step;
  }
  __device__ __forceinline__ static int bands_of(int rows) {
    if (rows <= 0) return 0;
    int const height = height_of(rows);
    return (rows + height - 1) / height;
  }
  /// All tiles of C; every lane of a warp gets it.
  __device__ __forceinline__ int count() const {
    int tiles = 0;
    for (int g = static_cast<int>(threadIdx.x) % 32; g < p.groups; g += 32) {
      int from, to;
      bounds(g, from, to);
      tiles += bands_of(to - from);
    }
    return __reduce_add_sync(0xffffffff, static_cast<unsigned>(tiles)) * p.tiles_n;
  }
  /// Goes to a tile not before the current one, which must exist: the place of the first of the two
  /// blocks'.
  __device__ __forceinline__ GroupedTile go(int tile) {
    while (group < 0 || tile >= first + bands * p.tiles_n) {
      first += bands * p.tiles_n;
      ++group;
      bounds(group, begin, end);
      bands = bands_of(end - begin);
    }
    // Tiles that share weights, or rows, follow one another.
    constexpr int together = 2048 / Config::most_rows;
    int const local = tile - first, set = local / (together * p.tiles_n);
    int const across = min(bands - set * together, together);
    int const in_set = local - set * together * p.tiles_n;
    int const column = in_set / across;
    // Rotated from column to column: a last tile of fewer rows shall not always fall to one
    // cluster.
    int const band = set * together + (in_set + column) % across;
    int const height = height_of(end - begin), row = begin + band * height;
    return {group, row, min(height, end - row), column * Config::cluster * Config::tile_n};
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
