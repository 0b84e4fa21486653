// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// residual(): the wrapper of a tensor that is added to a result, which several operations take.
#pragma once

#include <attikos/core/concepts.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// A tensor that is added to a result. See residual().
template <TensorLike T>
struct Residual {
  T view;
};

/// gemm() adds a matrix of C's shape after the activation; rms_norm_backward() and
/// layer_norm_backward() add a tensor of dx's shape to dx, the gradient that goes past the norm.
/// Any floating-point element type. It may be the result's own storage only if it is exactly the
/// result.
template <TensorLike T>
Residual<T> residual(T const& view) {
  return {view};
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
