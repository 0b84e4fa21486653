// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a gated_mlp call may ask for besides its tensors.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/extras.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of gated_mlp() and gated_mlp_backward(). All are run-time values.
struct GatedMlpOptions {
  Activation activation = Activation::silu;  ///< of the gate: silu, gelu (erf) or gelu_tanh
  char const* kernel = "";                   ///< "" chooses; a name demands it and never falls back
};

/// Both projections of the input. See projections().
template <TensorLike G, TensorLike U>
struct Projections {
  G gate;
  U up;
};

/// gate = x·Wgᵀ and up = x·Wuᵀ, of out's extents and one element type: gated_mlp() stores them,
/// rounded to that type, and gated_mlp_backward() reads them in place of computing them again.
template <TensorLike G, TensorLike U>
Projections<G, U> projections(G const& gate, U const& up) {
  return {gate, up};
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
