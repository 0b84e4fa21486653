// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of attention_backward/sm80_* come in. params.cuh and kernel_simt.cuh
/// say what follows from a shape. Kernels' symbols carry the shapes' names, and so does
/// ptxas_allowances.txt.
#pragma once

#include <attikos/config.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm80_backward_shapes {

/// Of kernels by mma.sync, for head dimensions up to `D`. A block keeps a tile of keys and goes
/// through tiles of `Queries` queries. `KeyWarps` warps have 16 times `RowTiles` keys each.
/// `Shares` warps share the same keys: each works out the scores of as many of the queries, and has
/// as many of the features of dk and dv; what others have worked out comes to it through shared
/// memory. Where there is one share alone, weights and gradients of scores stay in registers, and
/// the queries of a tile are taken `Chunk` at a time. `QStages` and `DoutStages`: places for tiles
/// of q and of dout; at least `Blocks` blocks on a multiprocessor.
template <int D, int KeyWarps, int RowTiles, int Shares, int Queries, int Chunk, int QStages,
          int DoutStages, int Blocks>
struct Shape {
  static constexpr int d = D, tile_q = Queries, tile_kv = 16 * KeyWarps * RowTiles;
  static constexpr int key_warps = KeyWarps, row_tiles = RowTiles, shares = Shares;
  static constexpr int chunk_q = Chunk, q_stages = QStages, dout_stages = DoutStages;
  static constexpr int blocks = Blocks;
  static constexpr bool terms = false;
};

/// Rows × columns that a thread has: of scores keys × queries, of dk and dv keys × features, of dq
/// queries × features.
template <int Rows, int Columns>
struct Tile {
  static constexpr int rows = Rows, columns = Columns;
};

/// Of the kernel on CUDA cores, for head dimensions up to `D`. A block keeps `Keys` keys and goes
/// through tiles of `Queries` queries. `PairTiles`: 2 where there is room for weights and gradients
/// of scores at a time, else 1.
template <int D, int Keys, int Queries, int Warps, class OfScores, class OfGradients, class OfDq,
          int PairTiles, int Blocks>
struct SimtShape {
  using Scores = OfScores;
  using Gradients = OfGradients;
  using Dq = OfDq;
  static constexpr int d = D, tile_q = Queries, tile_kv = Keys, warps = Warps;
  static constexpr int pair_tiles = PairTiles, blocks = Blocks;
  static constexpr bool terms = false;
};

/// The same where scores are more than scale·q·k.
template <class Of>
struct Terms : Of {
  static constexpr bool terms = true;
};

// Figures: TFLOP/s from <H100, 4 sequences of 2048, of float64 2, heads × head_dim 2048>, in full
// and causal attention, and what else was measured there. "Small": for cards whose blocks cannot
// have as much shared memory; (1) there with terms alone, which plain calls take as well.

// clang-format off
// 16 bits:
//                            d key warps row tiles shares queries chunk q dout stages blocks
struct D64        : Shape<   64, 4, 2, 1, 64, 32, 2, 1, 2> {};
struct D128       : Shape<  128, 8, 1, 1, 64, 64, 2, 2, 1> {};
struct D128Chunks : Shape<  128, 8, 1, 1, 64, 32, 2, 2, 1> {}; // with terms, which take registers
struct D256       : Shape<  256, 4, 1, 2, 64, 32, 1, 1, 1> {};
struct D128Small  : Shape<  128, 8, 1, 1, 32, 32, 2, 1, 1> {};
struct D256Small  : Shape<  256, 2, 1, 2, 32, 16, 2, 1, 1> {};
// float64:
struct D64Double       : Shape<  64, 4, 1, 1, 32, 16, 1, 1, 2> {}; // 37, 33; matmuls 18, 7
struct D128Double      : Shape< 128, 4, 1, 2, 32, 16, 1, 1, 1> {}; // 37, 31; matmuls 29, 12
struct D64DoubleSmall  : Shape<  64, 4, 1, 1, 16, 16, 1, 1, 1> {}; // (1)
struct D128DoubleSmall : Shape< 128, 2, 1, 2, 32, 16, 1, 1, 1> {}; // (1)
// float32 in three products of tf32:
struct D64Tf32x3      : Shape<  64, 4, 2, 1, 32, 16, 2, 2, 2> {}; // 54, 47; memory-efficient 32, 30
struct D128Tf32x3     : Shape< 128, 8, 1, 1, 32, 32, 2, 2, 1> {}; // 54, 46; memory-efficient 34, 30
struct D64Tf32x3Small : Shape<  64, 4, 2, 1, 32, 16, 1, 1, 1> {}; // (1)
// IEEE float32, beside 49 of a matmul:
//                                d keys queries warps scores   dk and dv    dq  pair tiles blocks
struct D64Simt       : SimtShape< 64,  64, 64, 4, Tile<8, 4>, Tile<8, 4>, Tile<4, 8>, 2, 2> {}; // 36, 35
struct D128Simt      : SimtShape<128, 128, 64, 8, Tile<8, 4>, Tile<8, 8>, Tile<4, 8>, 1, 1> {}; // 39, 35
struct D256Simt      : SimtShape<256,  32, 32, 4, Tile<4, 2>, Tile<8, 8>, Tile<4, 8>, 1, 1> {}; // (1)
struct D128SimtSmall : SimtShape<128,  32, 32, 4, Tile<4, 2>, Tile<8, 4>, Tile<4, 8>, 1, 2> {}; // (1)
// clang-format on

/// A shape with terms or without.
template <bool WithTerms, class Of, class OfTerms = Of>
using Either = std::conditional_t<WithTerms, Terms<OfTerms>, Of>;

}  // namespace sm80_backward_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
