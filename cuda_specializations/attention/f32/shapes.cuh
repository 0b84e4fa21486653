// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of attention/sm80_simt_f32 and attention/sm80_mma_tf32x3 come in.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace f32_attention_shapes {

/// Head dimensions up to `D`, blocks of `Keys` keys, `Warps` warps, `Stages` places of the ring,
/// `Blocks` blocks to a multiprocessor.
template <int D, int Keys, int Warps, int Stages, int Blocks>
struct Shape {
  static constexpr int d = D, keys = Keys, warps = Warps, stages = Stages, blocks = Blocks;
};

// Figures: TFLOP/s from <H200 700 W, CUDA 13.0, 16384 tokens, heads × head_dim 2048, length 4096>,
// of float32 beside 51 to 52 of gemm/sm90_simt_f32 at 4096³, of three TF32 products beside 33.7
// (head_dim 64) and 45.0 (128) of PyTorch's memory-efficient kernel.

// clang-format off
//                        d keys warps stages blocks
struct D64Simt    : Shape< 64, 32, 4, 2, 3> {}; // 44.3; with 64 keys and two blocks, 41.6
struct D128Simt   : Shape<128, 32, 4, 2, 2> {}; // 42.2; with 64, too few registers, 39.8
struct D256Simt   : Shape<256, 32, 4, 2, 2> {};
struct D64Tf32x3  : Shape< 64, 64, 4, 4, 3> {}; // 59.2; weights kept split, 58.1 (1)
struct D128Tf32x3 : Shape<128, 64, 4, 4, 2> {}; // 60.5; with eight warps, 56.7
struct D256Tf32x3 : Shape<256, 64, 4, 3, 2> {};
// (1) By two blocks; with eight warps, 49.4.
// clang-format on

}  // namespace f32_attention_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
