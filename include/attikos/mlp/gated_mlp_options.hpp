// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a gated_mlp call may ask for besides its tensors.
#pragma once

#include <attikos/abi/gemm.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of gated_mlp() and gated_mlp_backward(). All are run-time values.
struct GatedMlpOptions {
  Activation activation = Activation::silu;  ///< of the gate: silu, gelu (erf) or gelu_tanh
  char const* kernel = "";                   ///< "" chooses; a name demands it and never falls back
};

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
