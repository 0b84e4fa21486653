// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of attention/sm75_wmma_f16 come in: what the 64 KiB of shared memory
/// of sm_75 have room for, not tuned. Kernels' symbols carry the shapes' names.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm75_attention_shapes {

/// Head dimensions up to `D`, blocks of `Keys` keys, at least `Blocks` blocks on a multiprocessor.
template <int D, int Keys, int Blocks>
struct Shape {
  static constexpr int d = D, keys = Keys, blocks = Blocks;
};

// Figures: TFLOP/s from <H200 700 W, CUDA 13.0, 16384 tokens, heads × head_dim 2048, length 4096>,
// those of attention/sm80_mma_f16 in parentheses.

// clang-format off
//                    d keys blocks
struct D64  : Shape< 64, 64, 3> {}; // 154 (280)
struct D128 : Shape<128, 32, 3> {}; // 161 (318)
struct D256 : Shape<256, 16, 2> {}; // 129 (275)
// clang-format on

}  // namespace sm75_attention_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
