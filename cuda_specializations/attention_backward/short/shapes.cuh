// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes of the kernel of attention's gradients for many short sequences.
#pragma once

#include "attention_backward/sm80/params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Head dimensions up to `D`. A block has 16 keys for each of its warps, and room for as many
/// queries: all of a sequence. `blocks`: on a multiprocessor.
namespace short_backward_shapes {

template <int Keys, int D, int Blocks>
struct Shape {
  static constexpr int keys = Keys, d = D, blocks = Blocks;
};

// Figures: microseconds on <H200, CUDA 13.0, bfloat16, full attention>; of the kernels for long
// sequences and of cuDNN in parentheses.

// clang-format off
//                      keys    d  blocks
struct S64D64   : Shape<  64,  64, 4> {}; // 2048 heads of 64 positions 66 (233, 115)
struct S128D64  : Shape< 128,  64, 2> {}; // 1024 heads of 128 87 (98, 96)
struct S256D64  : Shape< 256,  64, 1> {}; // 192 heads of 160 44 (53, 36)
struct S64D128  : Shape<  64, 128, 2> {}; // 512 heads of 64 35 (71, 52)
struct S128D128 : Shape< 128, 128, 1> {}; // 64 heads of 128 19 (20, 19)
// clang-format on

}  // namespace short_backward_shapes

/// Queries are taken 64 at a time.
template <class T, class Shape>
struct ShortBackwardConfig
    : MmaBackwardTiles<
          T,
          sm80_backward_shapes::Shape<Shape::d, Shape::keys / 16, 1, 1, 64, 32, Shape::keys / 64,
                                      Shape::keys / 64, Shape::blocks>,
          Shape::keys / 64> {};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
