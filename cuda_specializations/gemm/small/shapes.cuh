// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that gemm/sm80_small_* come in. Kernels' symbols carry their names.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace small_gemm_shapes {

/// Tiles of sums for each lane of a warp, or of a team of two, which has rows r, r + lanes_m, ...
/// of its warp's part of C and columns 4 c ... 4 c + 3, 4 (c + lanes_n) ... `Team`: warps of a
/// product. `Depth`: at most, of k in a stage. `Blocks`: of four warps that the registers of a
/// multiprocessor have to serve.
template <int TileM, int TileN, int Team, int Depth, int Stages, int Blocks>
struct FloatShape {
  using T = float;
  static constexpr int tile_m = TileM, tile_n = TileN, team = Team, depth = Depth;
  static constexpr int stages = Stages, blocks = Blocks;
};

// From <H200 700 W, CUDA 13.0, 10 000 products of 8³ ... 64³>: more warps beat larger tiles, but
// for 48³, which would leave half of a team's lanes idle.

// clang-format off
//                              tile  team depth stages blocks
struct Lane4x4    : FloatShape<4,  4, 1, 16, 2, 6> {};
struct Lane4x8    : FloatShape<4,  8, 1, 16, 2, 5> {};
struct Lane8x8    : FloatShape<8,  8, 1, 16, 2, 3> {};
struct Lane8x12   : FloatShape<8, 12, 1, 16, 3, 2> {};
struct Lane8x8Pair: FloatShape<8,  8, 2, 32, 2, 3> {};
// clang-format on

/// `Rows` × `Columns` sums of a warp by mma.sync; the others as above, of k in every stage.
template <int Rows, int Columns, int Team, int Depth, int Stages, int Blocks>
struct DoubleShape {
  using T = double;
  static constexpr int rows = Rows, columns = Columns, team = Team, depth = Depth;
  static constexpr int stages = Stages, blocks = Blocks;
};

// clang-format off
//                              sums  team depth stages blocks
struct M8N8Double  : DoubleShape< 8,  8, 1,  8, 4, 8> {};
struct M16N16Double: DoubleShape<16, 16, 1, 16, 2, 6> {};
struct M32N32Double: DoubleShape<32, 32, 1, 16, 2, 3> {};
struct M64N64Double: DoubleShape<32, 64, 2, 16, 3, 2> {};
// clang-format on

}  // namespace small_gemm_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
