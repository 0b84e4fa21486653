// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of gemm/sm80_* and gemm/sm89_mma_f8 come in. Kernels' symbols carry
/// the shapes' names, and so does ptxas_allowances.txt.
#pragma once

#include "gemm/shared/layouts.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm80_gemm_shapes {

/// The tile of a block and that of a warp, rows and columns; stages of 128 bytes of K, and blocks
/// that a multiprocessor has registers for. `Slack`: how far the matrix unit falls short of its
/// rate, in hundredths, as the choice between a larger and a smaller shape sees it. `Splits`: as
/// many blocks of a cluster at most share out K of a tile.
template <int TileM, int TileN, int WarpM, int WarpN, int Stages, int Blocks, int Slack,
          int Splits = 1>
struct Shape {
  static constexpr int tile_m = TileM, tile_n = TileN, warp_m = WarpM, warp_n = WarpN;
  static constexpr int stages = Stages, blocks = Blocks;
  static constexpr double slack = Slack / 100.0;
  static constexpr int most_splits = Splits;
  static constexpr bool zero_points = false;
};
/// The same of int8 factors that have zero points.
template <class Of>
struct ZeroPoints : Of {
  static constexpr bool zero_points = true;
  static constexpr int most_splits = 1;  // what zero points add is of all of K
};

// Figures: TFLOP/s from <H200, CUDA 13.0>.

// clang-format off
//                           tile      warp   stages blocks slack splits
struct M128N128       : Shape<128, 128, 64, 64, 3, 2, 100> {}; // (1)
struct M64N64         : Shape< 64,  64, 32, 32, 4, 3, 125, 8> {};
struct M128N64        : Shape<128,  64, 64, 32, 4, 2, 100> {}; // of three TF32 products
struct M128N64Float8  : Shape<128,  64, 32, 32, 4, 1, 100> {}; // (2)
struct M128N128Double : Shape<128, 128, 64, 32, 3, 1, 100> {};
struct M64N64Double   : Shape< 64,  64, 32, 32, 4, 3, 105, 8> {};
struct M64N64Simt     : Shape< 64,  64, 32, 32, 3, 4, 125, 8> {}; // (1)
// (1) Of sm80_simt_f32, 128 × 128 and 64 × 64: 1024³ 19.5, 28.8; 1536³ 25.0, 29.7; 2048³ 45.1,
//     34.6; 3072³ 40.5, 35.5; 4096³ 45 to 47 whatever the layouts and alignments, where cuBLAS has
//     49 to 52.
// (2) Eight warps of 32 × 32: the second set of accumulators and four kinds of products in one loop
//     take too many registers beside larger ones.
// clang-format on

}  // namespace sm80_gemm_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
