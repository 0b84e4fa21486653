// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of attention/sm80_short_* and attention/sm90_short_* come in, by the
/// head dimensions that they are for. Kernels' symbols carry the shapes' names, and so does
/// ptxas_allowances.txt. Teams, and with them blocks, are as large as a call's sequences want them.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
// Figures: µs from <H200 700 W, CUDA 13.0, bfloat16, 32768 tokens of 8 heads>, of sequences of
// these lengths; attention/sm90_wgmma_bf16 has, at 64, 264, 139, 77, 38 and 56.

// clang-format off
namespace sm80_short_shapes {

/// Head dimensions up to `D`. A warp has the scores of `Step` keys at once.
template <int D, int Step>
struct Shape {
  static constexpr int d = D, step = Step;
};
//                      d step     16   32   64  128
struct D32  : Shape< 32, 64> {};
struct D64  : Shape< 64, 32> {}; // 38   37   45   64
struct D128 : Shape<128, 32> {};

}  // namespace sm80_short_shapes

namespace sm90_short_shapes {

/// Head dimensions up to `D`. A block has at most `Warpgroups` warpgroups of 64 queries, of
/// `Registers` registers a thread.
template <int D, int Warpgroups, int Registers>
struct Shape {
  static constexpr int d = D, warpgroups = Warpgroups, registers = Registers;
};
//                      d groups registers  16   32   64  128  256
struct D32  : Shape< 32, 4, 112> {};
struct D64  : Shape< 64, 4, 112> {}; //    108   53   36   38   52
struct D128 : Shape<128, 2, 208> {}; //              71   73

}  // namespace sm90_short_shapes
// clang-format on
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
