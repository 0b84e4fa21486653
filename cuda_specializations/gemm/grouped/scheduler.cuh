// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the kernels for groups of rows are told, the shapes that they come in, and how their blocks
/// find their tiles.
#pragma once

#include <cuda.h>

#include <attikos/abi/gemm.hpp>
#include <type_traits>

#include "common/limits.cuh"
#include "gemm/shared/epilogue.cuh"

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

/// How products are summed: by the tensor cores alone; theirs of one stage, the stages by float32
/// additions (see gemm/sm90/mainloop_promoted.cuh); the same with factors of every stage.
enum class GroupedSums : std::uint8_t { plain, promoted, scaled };

/// `Weights_`, `Rows_`: element types of B and A. `MnWeights`: the unit stride of B is along N.
///
/// From <H200 700 W, CUDA 13.0, 8 and 64 ragged groups, N × K 14336 × 4096 and 4096 × 7168>: a
/// stage of 256 columns by 128 rows takes 512 + 5 · rows cycles, one of 128 by 256 takes 256 + 3 ·
/// rows, since each line of weights goes through shared memory once a tile; bfloat16 0.94 of one
/// product instead of 0.88.
template <class Weights_, class Rows_, bool MnWeights, GroupedSums Sums>
struct GroupedConfig {
  using Weights = Weights_;
  using Rows = Rows_;
  using Acc = std::conditional_t<std::is_same_v<Weights, std::int8_t>, int, float>;
  static constexpr bool mn = MnWeights;
  static constexpr GroupedSums sums = Sums;
  static constexpr bool scaled = Sums == GroupedSums::scaled;
  static constexpr bool has_factors = sizeof(Weights) == 1;  ///< of rows, of columns
  static constexpr int tile_n = 128;                         ///< columns of C, 64 for a warpgroup
  /// Of a tile; two sets of parts beside the sums leave no registers for more with factors.
  static constexpr int most_rows = scaled ? 128 : 256;
  static constexpr int row_step = Sums == GroupedSums::plain ? 16 : 32;  ///< of tiles' heights
  static constexpr int cluster = 2;
  static constexpr int box_rows = 32;
  static constexpr int stages = scaled ? 5 : 4, threads = 384;
  static constexpr int tile_k = 128 / static_cast<int>(sizeof(Weights));
  static constexpr int weights_bytes = tile_n * 128, rows_bytes = most_rows * 128;
  static constexpr int stage_bytes = weights_bytes + rows_bytes;
  static constexpr int panel_rows = 64, panel_bytes = panel_rows * 128;  ///< 64 16-bit elements
  static constexpr int row_factor_bytes =
      has_factors ? 4 * most_rows : 0;  ///< rows' factors of a tile
  static constexpr int store_bytes = 2 * panel_bytes + row_factor_bytes;  ///< of a warpgroup
  /// A stage's factors: of rows, and of all columns.
  static constexpr int factor_bytes = scaled ? 4 * most_rows + 16 : 0;
  static constexpr int shared_bytes =
      stages * (stage_bytes + factor_bytes) + 2 * store_bytes + 32 * stages;
  static_assert(shared_bytes <= sm90_shared_bytes);
};

namespace {

/// Where a tile lies: its group, its first row of the group's matrix and how many it has, its first
/// column.
struct GroupedTile {
  int group, row, rows, n;
};

/// A walk along the tiles in ascending order. Every tile is one of a block and its neighbour, side
/// by side.
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
