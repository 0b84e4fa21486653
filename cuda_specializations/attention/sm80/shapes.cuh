// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of attention/sm80_mma_* come in. Kernels' symbols carry the shapes'
/// names, and so does ptxas_allowances.txt.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm80_attention_shapes {

/// Head dimensions up to `D`; `Warps` warps with `RowTiles` times 16 queries each, blocks of `Keys`
/// keys, `Stages` places for blocks of keys and of values, which take turns, at least `Blocks`
/// blocks on a multiprocessor. `QueriesKept`: queries stay in registers.
template <int D, int RowTiles, int Warps, int Keys, int Stages, int Blocks, bool QueriesKept>
struct Shape {
  static constexpr int d = D, row_tiles = RowTiles, warps = Warps, keys = Keys, stages = Stages;
  static constexpr int blocks = Blocks;
  static constexpr bool queries_kept = QueriesKept, plain = false;
};
/// The same where scores are scale·q·k; keys and values are no pages, have rows of `D` elements,
/// which can be copied 16 bytes at a time, and their strides fit in 32 bits.
template <class Of>
struct Plain : Of {
  static constexpr bool plain = true;
};

constexpr bool kept = true, reread = false;  ///< queries

// Figures: TFLOP/s from <H200 700 W, CUDA 13.0, 16384 tokens, heads × head_dim 2048, length 4096>.

// clang-format off
// 16 bits, figures of bfloat16, plain:
//                    d row tiles warps keys stages blocks queries
struct D64       : Shape< 64, 2, 4,  64, 3, 2, kept>   {}; // 321; of 96, 128, 32 keys 315, 285, 279
struct D128      : Shape<128, 2, 4,  64, 3, 2, reread> {}; // 388; of 32 keys 336
struct D256      : Shape<256, 1, 8,  64, 3, 1, reread> {}; // 286: all that sm_80 has room for
struct D256Wide  : Shape<256, 1, 8, 128, 2, 1, reread> {}; // 307; of 96 keys 304; causal 269, 262
struct D256Small : Shape<256, 1, 4,  32, 3, 1, reread> {}; // 244, where a block has 99 KiB
// float8_e4m3, whose next blocks of keys and values are under way as bytes:
struct D64Bytes      : Shape< 64, 2, 4, 64, 2, 2, kept>   {}; // 286, not plain 264; float16 321
struct D128Bytes     : Shape<128, 2, 4, 64, 2, 2, reread> {}; // 352, not plain 339; float16 393
struct D256Bytes     : Shape<256, 1, 8, 64, 2, 1, reread> {}; // 258; float16 310
struct D256SmallBytes: Shape<256, 1, 4, 32, 2, 2, reread> {}; // 223, where a block has 99 KiB
// float64, of 8192 tokens:
struct D64Double      : Shape< 64, 1, 4, 32, 3, 2, kept>   {};
struct D128Double     : Shape<128, 1, 4, 16, 3, 2, reread> {}; // 40.5
struct D128DoubleWide : Shape<128, 1, 8, 32, 3, 1, reread> {}; // 43.7: reads queries half as often
// clang-format on

}  // namespace sm80_attention_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
