// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes of the kernel of attention's gradients for many short sequences.
#pragma once

#include "attention_backward/sm80/params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A block has 16 keys times `row_tiles` for each of its warps, and room for as many queries: all
/// of a sequence. `blocks`: on a multiprocessor.
namespace short_backward_shapes {

template <int Keys, int RowTiles, int Blocks>
struct Shape {
  static constexpr int keys = Keys, row_tiles = RowTiles, blocks = Blocks;
};

// Figures: microseconds on <H100, CUDA 13.0, bfloat16, 8 heads, head_dim 64, full attention>, the
// best of PyTorch's in parentheses.

// clang-format off
//                  keys row tiles blocks
struct S64  : Shape< 64, 1, 4> {}; // 512 × 64 positions 143 (185); of two row tiles 164
struct S128 : Shape<128, 1, 2> {}; // 256 × 128 187 (230); of two row tiles 199
// clang-format on

}  // namespace short_backward_shapes

/// Queries are taken 64 at a time. Head dimensions up to 64.
template <class T, class Shape>
struct ShortBackwardConfig
    : MmaBackwardTiles<T, 64, Shape::keys / Shape::row_tiles / 16, Shape::row_tiles, 1, 64, 32,
                       Shape::keys / 64, Shape::keys / 64, Shape::keys / 64, Shape::blocks, false> {
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
