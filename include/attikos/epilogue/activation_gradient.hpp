// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Derivatives of the pointwise activations, one code for Kokkos kernels and CUDA kernels.
///
/// All are written in terms of e^(-|.|), so that neither tail cancels or overflows, and clamp their
/// argument where the derivative is 0 or 1 in either type, so that infinities have the limit's
/// value. NaN stays NaN.
#pragma once

#include <attikos/epilogue/activation.hpp>
#include <attikos/ptx/math.hpp>
#include <cmath>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
ATTIKOS_HD inline T clamp_magnitude(T x, T limit) {
  return x > limit ? limit : (x < -limit ? -limit : x);
}

/// σ(|t|) and σ(−|t|). A device's own instructions are |t| + 4 roundings of e^(−|t|) off.
template <class T>
struct Sigmoids {
  T larger, smaller;

  ATTIKOS_HD explicit Sigmoids(T t) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>) {
      float const e = cuda::power_of_2(-1.4426950408889634f * (t < 0 ? -t : t));
      larger = cuda::reciprocal(1 + e);
      smaller = e * larger;
      return;
    }
#endif
    using std::exp;
    T const e = exp(t < T(0) ? t : -t);
    larger = T(1) / (T(1) + e);
    smaller = e * larger;
  }
  /// σ(t)
  ATTIKOS_HD T at(T t) const { return t < T(0) ? smaller : larger; }
};

/// σ(t) + factor·σ(t)·(1 − σ(t)), the derivative of x·σ(t(x)) with factor = x·t'(x).
template <class T>
ATTIKOS_HD inline T sigmoid_gradient(T t, T factor) {
  Sigmoids<T> const s(t);
  return s.at(t) + factor * (s.larger * s.smaller);
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

namespace detail {

/// The normal distribution Φ(x) and its density φ(x). On a device in float from the tail Φ(−|x|),
/// which stays accurate; the density is 0 there beyond 15.
template <class T>
struct NormalDistribution {
  T cdf, density;

  ATTIKOS_HD explicit NormalDistribution(T x) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>) {
      float const c = clamp_magnitude(x, 15.0f);
      float const z = (c < 0 ? -c : c) * 0.70710678118654752440f;
      float const e = cuda::power_of_2(-1.4426950408889634f * z * z);
      float const tail = 0.5f * e * scaled_erfc(cuda::reciprocal(1 + 0.3f * z));
      cdf = c < 0 ? tail : 1 - tail;
      density = 0.39894228040143267794f * e;
      return;
    }
#endif
    using std::erfc;
    using std::exp;
    T const c = clamp_magnitude(x, T(40));
    cdf = T(0.5) * erfc(-c * T(0.70710678118654752440));
    density = T(0.39894228040143267794) * exp(T(-0.5) * c * c);
  }
};

}  // namespace detail

/// d(x·Φ(x))/dx = Φ(x) + x·φ(x) with the normal density φ.
template <class T>
ATTIKOS_HD inline T gelu_gradient(T x) {
  detail::NormalDistribution<T> const n(x);
  return n.cdf + detail::clamp_magnitude(x, T(40)) * n.density;
}

namespace detail {

/// gelu_tanh(x) is x·σ(t) with t = 2·√(2/π)·(x + 0.044715·x³): t, and x·t'(x).
template <class T>
struct GeluTanhArgument {
  T t, factor;
  ATTIKOS_HD explicit GeluTanhArgument(T x) {
    T const c = clamp_magnitude(x, T(40));
    T const slope = T(1.59576912160573071176);  // 2·√(2/π)
    T const cubic = T(0.044715) * c * c;
    t = slope * c * (T(1) + cubic);
    factor = slope * c * (T(1) + T(3) * cubic);
  }
};

}  // namespace detail

/// The derivative of gelu_tanh.
template <class T>
ATTIKOS_HD inline T gelu_tanh_gradient(T x) {
  detail::GeluTanhArgument<T> const a(x);
  return detail::sigmoid_gradient(a.t, a.factor);
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

namespace detail {

/// act(x) and act'(x).
template <class T>
struct ActivationAndGradient {
  T value, gradient;
};

/// Both at a time, which share what they are made of.
template <Activation A, class T>
ATTIKOS_HD inline ActivationAndGradient<T> activation_and_gradient(T x) {
  if constexpr (A == Activation::silu || A == Activation::gelu_tanh) {
    T t, factor;
    if constexpr (A == Activation::silu) {
      t = factor = clamp_magnitude(x, T(800));
    } else {
      GeluTanhArgument<T> const a(x);
      t = a.t, factor = a.factor;
    }
    Sigmoids<T> const s(t);
    return {x * s.at(t), s.at(t) + factor * (s.larger * s.smaller)};
  } else if constexpr (A == Activation::gelu) {
    NormalDistribution<T> const n(x);
    // Below the smallest number of either type; −∞ would give −∞·0.
    return {x < T(-40) ? T(0) : x * n.cdf, n.cdf + clamp_magnitude(x, T(40)) * n.density};
  } else {
    return {apply_activation(A, x), apply_activation_gradient(A, x)};
  }
}

/// Calls f with the activation as a constant.
template <class F>
ATTIKOS_HD inline void visit_activation(Activation activation, F const& f) {
  switch (activation) {
    case Activation::relu:
      return f(std::integral_constant<Activation, Activation::relu>{});
    case Activation::gelu:
      return f(std::integral_constant<Activation, Activation::gelu>{});
    case Activation::gelu_tanh:
      return f(std::integral_constant<Activation, Activation::gelu_tanh>{});
    case Activation::silu:
      return f(std::integral_constant<Activation, Activation::silu>{});
    case Activation::none:
      return f(std::integral_constant<Activation, Activation::none>{});
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
