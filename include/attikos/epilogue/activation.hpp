// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Pointwise activations, one code for Kokkos kernels and CUDA kernels.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <cmath>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Name of an activation as messages spell it.
constexpr char const* activation_name(Activation activation) noexcept {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  return "unknown";
}

/// max(x, 0); NaN stays NaN.
template <class T>
ATTIKOS_HD inline T relu(T x) {
  return x < T(0) ? T(0) : x;
}

/// The polynomial of scaled_erfc(). It is an expression for numbers and, in core/rows/row.hpp, for
/// vectors of them: a function for both would be one for devices, which have no such vectors.
// clang-format off
#define ATTIKOS_SCALED_ERFC(t)       \
  (((((((((t * -0.12702195f          \
         + 0.471345783f) * t         \
         - 0.477127242f) * t         \
         + 0.498185842f) * t         \
         - 0.0508707704f) * t        \
         + 0.189795396f) * t         \
         + 0.157695301f) * t         \
         + 0.16853932f) * t          \
         + 0.169474579f) * t         \
         - 1.62756174e-05f)
// clang-format on

/// e^{z²}·erfc(z) for z ≥ 0 and t = 1/(1 + 0.3·z), in float: fitted by weighted least squares over
/// 0 ≤ z ≤ 9.5 to a relative error of 1.9e-8.
ATTIKOS_HD inline float scaled_erfc(float t) { return ATTIKOS_SCALED_ERFC(t); }

/// x·Φ(x) = x/2·erfc(-x/√2), the exact form of Hendrycks and Gimpel, arXiv:1606.08415.
template <class T>
ATTIKOS_HD inline T gelu(T x) {
  using std::erfc;
  if (x < T(-40)) return T(0);  // below the smallest number of either type; −∞ would give −∞·0
  return T(0.5) * x * erfc(-x * T(0.70710678118654752440));
}

/// The tanh form of gelu, x/2·(1 + tanh u) = x·σ(2u) with u = √(2/π)·(x + 0.044715·x³), same
/// source.
template <class T>
ATTIKOS_HD inline T gelu_tanh(T x) {
  using std::exp;
  T const u = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return x / (T(1) + exp(T(-2) * u));
}

/// x·σ(x) = x/(1 + e⁻ˣ), Elfwing et al., arXiv:1702.03118.
template <class T>
ATTIKOS_HD inline T silu(T x) {
  using std::exp;
  return x / (T(1) + exp(-x));
}

/// Applies the named activation. Computed in `T`, which is float or double.
template <class T>
ATTIKOS_HD inline T apply_activation(Activation activation, T x) {
  switch (activation) {
    case Activation::relu:
      return relu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::silu:
      return silu(x);
    case Activation::none:
      break;
  }
  return x;
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
