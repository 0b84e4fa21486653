// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Lane-wise twins of the activations' derivatives for host kernels.
#pragma once

#include <attikos/core/rows/row.hpp>
#include <attikos/epilogue/activation_gradient.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host {

template <class Acc>
inline Vec<Acc> clamp_magnitude(Vec<Acc> x, Acc limit) {
  constexpr int W = lanes<Acc>;
  x = x > limit ? broadcast<Acc, W>(limit) : x;
  return x < -limit ? broadcast<Acc, W>(-limit) : x;
}

/// Twin of detail::sigmoid_gradient().
template <class Acc>
inline Vec<Acc> sigmoid_gradient(Vec<Acc> t, Vec<Acc> factor) {
  constexpr int W = lanes<Acc>;
  Vec<Acc> const e = exp<Acc, W>(t < Acc(0) ? t : -t);
  Vec<Acc> const larger = Acc(1) / (Acc(1) + e);
  Vec<Acc> const smaller = e * larger;
  return (t < Acc(0) ? smaller : larger) + factor * (smaller * larger);
}

/// Twin of gelu_gradient().
template <class Acc>
inline Vec<Acc> gelu_gradient_vector(Vec<Acc> x) {
  constexpr int W = lanes<Acc>;
  if constexpr (std::is_same_v<Acc, float>) {
    // Φ from the tail Φ(-|x|), which stays accurate; the density is 0 in float beyond 15.
    Vec<Acc> const c = clamp_magnitude<Acc>(x, 15.0f);
    Vec<Acc> const z = (c < 0.0f ? -c : c) * 0.70710678118654752440f;
    Vec<Acc> const density = exp<Acc, W>(-z * z);
    Vec<Acc> const tail = 0.5f * density * scaled_erfc(1.0f / (1.0f + 0.3f * z));
    return (c < 0.0f ? tail : 1.0f - tail) + c * 0.39894228040143267794f * density;
  } else {
    Acc lane[W];
    store<Acc, W>(lane, x);
    for (int l = 0; l < W; ++l) lane[l] = gelu_gradient(lane[l]);
    return load<Acc, W>(lane);
  }
}

/// Lane-wise twin of apply_activation_gradient().
template <class Acc>
inline Vec<Acc> activation_gradient(Activation activation, Vec<Acc> x) {
  constexpr int W = lanes<Acc>;
  switch (activation) {
    case Activation::relu:
      return x <= Acc(0) ? Vec<Acc>{} : broadcast<Acc, W>(Acc(1));
    case Activation::silu: {
      Vec<Acc> const c = clamp_magnitude<Acc>(x, Acc(800));
      return sigmoid_gradient<Acc>(c, c);
    }
    case Activation::gelu_tanh: {
      Vec<Acc> const c = clamp_magnitude<Acc>(x, Acc(40));
      Vec<Acc> const line = Acc(1.59576912160573071176) * c;
      Vec<Acc> const cubic = Acc(0.044715) * c * c;
      return sigmoid_gradient<Acc>(line * (Acc(1) + cubic), line * (Acc(1) + Acc(3) * cubic));
    }
    case Activation::gelu:
      return gelu_gradient_vector<Acc>(x);
    case Activation::none:
      break;
  }
  return broadcast<Acc, W>(Acc(1));
}

}  // namespace detail::host
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
