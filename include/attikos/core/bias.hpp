// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// bias(): the wrapper of an added tensor, which several operations take.
#pragma once

#include <attikos/core/concepts.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// A tensor that is added. See bias().
template <TensorLike T>
struct Bias {
  T view;
};

/// gemm() adds a rank-1 tensor of n (or m) elements along one dimension of the result, before the
/// activation. attention() adds a tensor that broadcasts to [batch, heads_q, seqlen_q, seqlen_kv]
/// to the scores. Any floating-point element type.
template <TensorLike T>
Bias<T> bias(T const& view) {
  return {view};
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
