// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of attention_backward/sm90_wgmma_* come in, and which call takes
/// which. params.cuh says what follows from a shape. Kernels' symbols carry the shapes' names, and
/// so does ptxas_allowances.txt.
#pragma once

#include <algorithm>

#include "sequences/call.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm90_backward_shapes {

/// Head dimensions up to `D`, of v up to `DV`, tiles of `Queries` queries. `Terms`: scores have a
/// softcap or ALiBi.
template <int D, int Queries, bool Terms = false, int DV = D>
struct Shape {
  static constexpr int d = D, d_v = DV, tile_q = Queries;
  static constexpr bool terms = Terms;
};

// Figures: TFLOP/s from <H100, CUDA 13.0, bfloat16, 16384 tokens, heads × head_dim 2048>, in full
// attention of sequences of these lengths, sums in any order; cuDNN's in parentheses.

// clang-format off
//                           d  queries            512        2048       8192
struct D32      : Shape<  32, 128>       {}; // 175 (132)  252 (210)  286 (237)
struct D64      : Shape<  64, 128>       {}; // 261 (176)  411 (347)  502 (425); 64 queries: 399
struct D64Terms : Shape<  64,  64, true> {}; //                       291 with a softcap
struct D96      : Shape<  96,  64>       {}; // 264 (196)  411 (358)  469 (417)
struct D128     : Shape< 128,  64>       {}; // 288 (202)  491 (404)  580 (498)
struct D128Terms: Shape< 128,  64, true> {}; //                       422 with a softcap
struct D192V128 : Shape< 192,  64, false, 128> {}; //      309 (243)
struct D192     : Shape< 192,  64>       {}; //            342 (300)
struct D256     : Shape< 256,  64>       {}; // 263 (215)  362 (339)  at 16384: 393 (366)
struct D256Terms: Shape< 256,  64, true> {};
// clang-format on

}  // namespace sm90_backward_shapes
namespace {

/// f(shape) of the shape that a call takes.
template <class F>
auto with_sm90_backward_shape(abi::AttentionArgs const& g, F const& f) {
  using namespace sm90_backward_shapes;
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  if (d > 128) {
    if (has_score_terms(g)) return f(D256Terms());
    return d > 192 ? f(D256()) : g.head_dim_v > 128 ? f(D192()) : f(D192V128());
  }
  if (has_score_terms(g)) return d <= 64 ? f(D64Terms()) : f(D128Terms());
  return d <= 32 ? f(D32()) : d <= 64 ? f(D64()) : d <= 96 ? f(D96()) : f(D128());
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
