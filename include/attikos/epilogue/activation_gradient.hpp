// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Derivatives of the pointwise activations, one code for Kokkos kernels and CUDA kernels.
///
/// All are written in terms of e^(-|.|), so that neither tail cancels or overflows, and clamp their
/// argument where the derivative is 0 or 1 in either type, so that infinities have the limit's
/// value. NaN stays NaN.
#pragma once

#include <attikos/epilogue/activation.hpp>
#include <cmath>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
ATTIKOS_HD inline T clamp_magnitude(T x, T limit) {
  return x > limit ? limit : (x < -limit ? -limit : x);
}

/// σ(t) + factor·σ(t)·(1 − σ(t)), the derivative of x·σ(t(x)) with factor = x·t'(x).
template <class T>
ATTIKOS_HD inline T sigmoid_gradient(T t, T factor) {
  using std::exp;
  T const e = exp(t < T(0) ? t : -t);
  T const larger = T(1) / (T(1) + e);
  T const smaller = e * larger;
  return (t < T(0) ? smaller : larger) + factor * (smaller * larger);
}

}  // namespace detail

/// 0 below 0, else 1; NaN gives 1.
template <class T>
ATTIKOS_HD inline T relu_gradient(T x) {
  return x <= T(0) ? T(0) : T(1);
}

/// d(x·σ(x))/dx = σ(x) + x·σ(x)·(1 − σ(x)).
template <class T>
ATTIKOS_HD inline T silu_gradient(T x) {
  T const c = detail::clamp_magnitude(x, T(800));
  return detail::sigmoid_gradient(c, c);
}

/// d(x·Φ(x))/dx = Φ(x) + x·φ(x) with the normal density φ.
template <class T>
ATTIKOS_HD inline T gelu_gradient(T x) {
  using std::erfc;
  using std::exp;
  T const c = detail::clamp_magnitude(x, T(40));
  return T(0.5) * erfc(-c * T(0.70710678118654752440)) +
         c * T(0.39894228040143267794) * exp(T(-0.5) * c * c);
}

/// The derivative of gelu_tanh: that of x·σ(t) with t = 2·√(2/π)·(x + 0.044715·x³).
template <class T>
ATTIKOS_HD inline T gelu_tanh_gradient(T x) {
  T const c = detail::clamp_magnitude(x, T(40));
  T const slope = T(1.59576912160573071176);  // 2·√(2/π)
  T const cubic = T(0.044715) * c * c;
  return detail::sigmoid_gradient(slope * c * (T(1) + cubic), slope * c * (T(1) + T(3) * cubic));
}

/// Derivative of the named activation. Computed in `T`, which is float or double.
template <class T>
ATTIKOS_HD inline T apply_activation_gradient(Activation activation, T x) {
  switch (activation) {
    case Activation::relu:
      return relu_gradient(x);
    case Activation::gelu:
      return gelu_gradient(x);
    case Activation::gelu_tanh:
      return gelu_tanh_gradient(x);
    case Activation::silu:
      return silu_gradient(x);
    case Activation::none:
      break;
  }
  return T(1);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
