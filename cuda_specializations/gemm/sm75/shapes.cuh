// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of gemm/sm75_wmma_f16 come in. Kernels' symbols carry the shapes'
/// names.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm75_gemm_shapes {

/// The tile of a block and that of a warp, rows and columns, and blocks that a multiprocessor has
/// registers for; K is worked on `TileK` at a time.
template <int TileM, int TileN, int TileK, int WarpM, int WarpN, int Blocks>
struct Shape {
  static constexpr int tile_m = TileM, tile_n = TileN, tile_k = TileK;
  static constexpr int warp_m = WarpM, warp_n = WarpN, blocks = Blocks;
};

// Not tuned: there was no card of sm_75 to measure on, and newer ones have other kernels. Figure:
// TFLOP/s from <H100 80GB HBM3, CUDA 13.0, 2048³, A and B along K>.

// clang-format off
//                tile      k  warp   blocks
struct M128N128 : Shape<128, 128, 32, 64, 32, 2> {}; // 201 (1)
struct M64N64   : Shape< 64,  64, 32, 32, 32, 4> {};
// (1) One block on sm_75, whose multiprocessors have 64 KiB of shared memory.
// clang-format on

}  // namespace sm75_gemm_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
