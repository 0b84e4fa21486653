// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of quantization: a search through all codes of a format, nothing shared with
/// the kernels.
#pragma once

#include <attikos/config.hpp>
#include <cmath>
#include <limits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// Value of an 8-bit floating-point code from the definition of the format.
/// \param mantissa_bits 3 for e4m3 (no infinity, one NaN), 2 for e5m2 (as IEEE)
inline double float8_value(int code, int mantissa_bits) {
  int const exponent_bits = 7 - mantissa_bits;
  int const bias = (1 << (exponent_bits - 1)) - 1;
  int const fraction = code & ((1 << mantissa_bits) - 1);
  int const exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  double const sign = (code & 0x80) != 0 ? -1 : 1;
  bool const top = exponent == (1 << exponent_bits) - 1;
  if (mantissa_bits == 3 && top && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  if (mantissa_bits == 2 && top)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  double const one = std::ldexp(1.0, mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction / one, 1 - bias)
                       : sign * std::ldexp(1 + fraction / one, exponent - bias);
}

/// The finite value nearest to a finite x: the search knows nothing of exponents. Of two equally
/// near ones the even code wins. Infinities stay where the format has them, else they are NaN, as
/// NaN is.
inline double nearest_float8(double x, int mantissa_bits) {
  if (std::isnan(x)) return x;
  if (std::isinf(x)) return mantissa_bits == 2 ? x : std::numeric_limits<double>::quiet_NaN();
  double best = 0, distance = std::numeric_limits<double>::infinity();
  double const limit = mantissa_bits == 3 ? 448 : 57344;
  double const clamped = x > limit ? limit : (x < -limit ? -limit : x);
  for (int code = 0; code < 256; ++code) {
    double const value = float8_value(code, mantissa_bits);
    if (!std::isfinite(value)) continue;
    double const d = std::abs(value - clamped);
    if (d < distance || (d == distance && code % 2 == 0)) {
      best = value;
      distance = d;
    }
  }
  return best;
}

/// The int8 nearest to x, ties to even, ends saturating; ±127 for infinities, 0 for NaN.
inline double nearest_int8(double x) {
  if (std::isnan(x)) return 0;
  if (std::isinf(x)) return x > 0 ? 127 : -127;
  double best = 0, distance = std::numeric_limits<double>::infinity();
  double const clamped = x > 127 ? 127 : (x < -128 ? -128 : x);
  for (int value = -128; value <= 127; ++value) {
    double const d = std::abs(value - clamped);
    if (d < distance || (d == distance && value % 2 == 0)) {
      best = value;
      distance = d;
    }
  }
  return best;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
