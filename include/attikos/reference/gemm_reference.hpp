// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of `gemm`: one element at a time, plain loops, nothing shared with the
/// kernels.
#pragma once

#include <attikos/config.hpp>
#include <cmath>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

inline double identity(double x) { return x; }
inline double relu(double x) { return x < 0 ? 0 : x; }  // NaN stays NaN
// erfc keeps the left tail accurate, where 1 + erf(x) would cancel.
inline double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
inline double gelu_tanh(double x) {
  double const pi = std::acos(-1.0);
  // (1 + tanh(t)) / 2 = 1 / (1 + exp(-2 t)), again for the sake of the left tail.
  double const t = std::sqrt(2 / pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * t));
}
inline double silu(double x) { return x / (1 + std::exp(-x)); }

/// What one element of D = act(scale (alpha op(A) op(B) + beta C) + bias) + residual adds to the
/// product.
struct GemmTerms {
  double alpha = 1;
  double beta = 0;
  double c = 0;  ///< not read when beta is 0
  double scale = 1;
  double bias = 0;
  double residual = 0;
  double (*activation)(double) = identity;
};

/// One element of D with what an error bound needs to know about it.
struct GemmElement {
  double value;           ///< D
  double magnitude;       ///< sum of |a| |b|
  double pre_activation;  ///< the argument of act
};

/// \param a row of op(A): `a(l)` for l in [0, k)
/// \param b column of op(B): `b(l)` for l in [0, k)
template <class Row, class Column>
GemmElement gemm_element(std::int64_t k, Row const& a, Column const& b, GemmTerms const& t) {
  double sum = 0;
  double magnitude = 0;
  for (std::int64_t l = 0; l < k; ++l) {
    sum += a(l) * b(l);
    magnitude += std::abs(a(l) * b(l));
  }
  double x = t.alpha * sum;
  if (t.beta != 0) x += t.beta * t.c;
  x = t.scale * x + t.bias;
  return {t.activation(x) + t.residual, magnitude, x};
}

/// The int8 product: exact, wrapping modulo 2^32.
template <class Row, class Column>
std::int32_t gemm_element_int8(std::int64_t k, Row const& a, Column const& b, std::int32_t c) {
  std::int64_t sum = c;
  for (std::int64_t l = 0; l < k; ++l) sum += std::int64_t{a(l)} * std::int64_t{b(l)};
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::uint64_t>(sum)));
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
