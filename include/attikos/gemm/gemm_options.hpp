// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a gemm call may ask for besides its matrices.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <attikos/core/bias.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/extras.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of gemm(). All are run-time values.
struct GemmOptions {
  double alpha = 1;                          ///< factor of op(A)·op(B)
  double beta = 0;                           ///< factor of what C holds; 0 never reads C
  bool trans_a = false;                      ///< op(A) = Aᵀ
  bool trans_b = false;                      ///< op(B) = Bᵀ
  Activation activation = Activation::none;  ///< pointwise function before the residual is added
  double scale = 1;                          ///< factor of the whole product, before the bias
  BiasAlong bias_along = BiasAlong::n;  ///< the bias has one entry per column (n) or per row (m)
  char const* kernel = "";              ///< "" chooses; a name demands it and never falls back
};

/// Adds a matrix of C's shape after the activation. It may be C's own storage only if it is exactly
/// C.
template <TensorLike T>
struct Residual {
  T view;
};
template <TensorLike T>
Residual<T> residual(T const& view) {
  return {view};
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
