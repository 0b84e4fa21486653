// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of quantization, per element. With the factor s and u = 2^-24, float's roundoff:
//   scale       amax/limit is one float division; amax itself is exact, but for doubles rounded to
//               float: 2 u relative.
//   quotient    x/s, rounded to float (or double): u |x/s| at most.
//   code        the nearest of the format to the rounded quotient: half its spacing there. Past the
//               end of the range the nearest code is the end, and |x/s| exceeds it by no more than
//               the 3 u that scale and quotient are off by.
//   Scaled back: s (half the spacing + 3 u |x/s|).
//   dequantize  one product in float, one rounding to the type.
#pragma once

#include <attikos/reference/quantize_reference.hpp>

#include "tolerance.hpp"

namespace attikos::test {

template <class Q>
struct QuantizedFormat;
template <>
struct QuantizedFormat<float8_e4m3> {
  static constexpr char const* name = "float8_e4m3";
  static constexpr double limit = 448;
  static constexpr int mantissa_bits = 3, smallest_exponent = -6;
};
template <>
struct QuantizedFormat<float8_e5m2> {
  static constexpr char const* name = "float8_e5m2";
  static constexpr double limit = 57344;
  static constexpr int mantissa_bits = 2, smallest_exponent = -14;
};
template <>
struct QuantizedFormat<std::int8_t> {
  static constexpr char const* name = "int8";
  static constexpr double limit = 127;
};

/// The oracle's rounding to a format.
template <class Q>
double nearest(double x) {
  if constexpr (std::is_same_v<Q, std::int8_t>) {
    return reference::nearest_int8(x);
  } else {
    return reference::nearest_float8(x, QuantizedFormat<Q>::mantissa_bits);
  }
}

/// Half the distance of neighboring numbers of the format at x.
template <class Q>
double half_spacing(double x) {
  if constexpr (std::is_same_v<Q, std::int8_t>) {
    return 0.5;
  } else {
    using F = QuantizedFormat<Q>;
    int exponent = F::smallest_exponent;
    if (x != 0) exponent = std::max(exponent, std::ilogb(x));
    return std::exp2(exponent - F::mantissa_bits - 1);
  }
}

/// The parts of `bound`, half a spacing at x and more, in units of the format.
template <class Q>
ErrorParts quantized_parts(double x, double bound) {
  double const own =
      std::min(half_spacing<Q>(std::min(std::abs(x), QuantizedFormat<Q>::limit)), bound);
  return {bound - own, own * own / 3, 0};
}

inline double scale_bound(double scale) { return 2 * precision<float>().roundoff * scale; }

template <class Q>
double quantized_bound(double x, double scale) {
  double const quotient = x / scale;
  // The rounded quotient may lie in the next binade, where the spacing doubles.
  double const error = 3 * precision<float>().roundoff * std::abs(quotient);
  return scale * (half_spacing<Q>(std::abs(quotient) + error) + error);
}

template <class T>
double dequantized_bound(double value) {
  double const error = rounding<Accumulator<T>>(value);
  return error + rounding<T>(std::abs(value) + error);
}

}  // namespace attikos::test
