// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that gemm/sm90_grouped_* come in. Kernels' symbols carry their names.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/limits.cuh"
#include "gemm/shared/layouts.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm90_grouped_shapes {

/// How products are summed: by the tensor cores alone; theirs of one stage, the stages by float32
/// additions (see gemm/sm90/mainloop_promoted.cuh); the same with factors of every stage.
enum class Sums : std::uint8_t { plain, promoted, scaled };

/// Tiles of 128 columns of C and up to `Rows` rows, of heights that are multiples of `Step`.
template <int Rows, int Step, int Stages, Sums Of>
struct Shape {
  static constexpr int most_rows = Rows, row_step = Step, stages = Stages;
  static constexpr Sums sums = Of;
};

// clang-format off
//                             rows step stages
struct Rows256        : Shape<256, 16, 4, Sums::plain>    {}; // (1)
struct Rows256Promoted: Shape<256, 32, 4, Sums::promoted> {};
struct Rows128Scaled  : Shape<128, 32, 5, Sums::scaled>   {}; // (2)
// (1) From <H200 700 W, CUDA 13.0, 8 and 64 ragged groups, N × K 14336 × 4096 and 4096 × 7168>: a
//     stage of 256 columns by 128 rows takes 512 + 5 · rows cycles, one of 128 by 256 takes 256 +
//     3 · rows, since each line of weights goes through shared memory once a tile; bfloat16 0.94 of
//     one product instead of 0.88.
// (2) Two sets of parts beside the sums leave no registers for more with factors.
// clang-format on

}  // namespace sm90_grouped_shapes

/// A kernel for matrices of `Weights_`, B, and rows of `Rows_`, A, whose unit stride is along K.
template <class Weights_, class Rows_, class Layout, class Shape>
struct GroupedConfig {
  using Weights = Weights_;
  using Rows = Rows_;
  using Acc = std::conditional_t<std::is_same_v<Weights, std::int8_t>, int, float>;
  static constexpr bool mn = Layout::mn_b;
  static constexpr bool plain = Shape::sums == sm90_grouped_shapes::Sums::plain;
  static constexpr bool scaled = Shape::sums == sm90_grouped_shapes::Sums::scaled;
  static constexpr bool has_factors = sizeof(Weights) == 1;  ///< of rows, of columns
  static constexpr int tile_n = 128;                         ///< columns of C, 64 for a warpgroup
  static constexpr int most_rows = Shape::most_rows, row_step = Shape::row_step;
  static constexpr int cluster = 2;
  static constexpr int box_rows = 32;
  static constexpr int stages = Shape::stages, threads = 384;
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
  static_assert(!Layout::mn_a && shared_bytes <= sm90_shared_bytes);
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
