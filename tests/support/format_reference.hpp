// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small floating-point formats once more, written differently: values by ldexp, rounding by
// searching a table of all values in double. Shares nothing with attikos/core/dtypes.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace attikos::test {

struct FormatReference {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  ///< else the largest exponent holds numbers, and all ones are NaN (OCP E4M3)

  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }

  double value(std::uint32_t code) const {
    std::uint32_t const magnitude = code & (sign_bit() - 1);
    double const sign = (code & sign_bit()) != 0 ? -1.0 : 1.0;
    auto const exponent = static_cast<int>(magnitude >> mantissa_bits);
    auto const mantissa = static_cast<int>(magnitude & ((1u << mantissa_bits) - 1));
    int const bias = (1 << (exponent_bits - 1)) - 1;
    if (has_infinity && exponent == (1 << exponent_bits) - 1) {
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
    }
    if (!has_infinity && magnitude == sign_bit() - 1)
      return std::numeric_limits<double>::quiet_NaN();
    int const scale = std::max(exponent, 1) - bias - mantissa_bits;
    return sign * std::ldexp(mantissa + (exponent > 0 ? 1 << mantissa_bits : 0), scale);
  }

  /// All finite values that are not negative, in order: the index is the code.
  std::vector<double> finite() const {
    std::vector<double> values;
    for (std::uint32_t code = 0; code < sign_bit() && std::isfinite(value(code)); ++code) {
      values.push_back(value(code));
    }
    return values;
  }

  /// To nearest, ties to the even code. `values` is finite().
  double round(double x, std::vector<double> const& values) const {
    if (std::isnan(x) || x == 0) return x;
    double const magnitude = std::abs(x);
    // The value that would follow the largest one decides what overflows.
    double const last = values.back();
    double const next = last + (last - values[values.size() - 2]);
    auto const above = std::lower_bound(values.begin(), values.end(), magnitude);
    double result = 0;
    if (above == values.end()) {
      bool const last_is_even = (values.size() - 1) % 2 == 0;
      bool const overflow = magnitude - last > next - magnitude ||
                            (magnitude - last == next - magnitude && !last_is_even);
      result = !overflow ? last
                         : (has_infinity ? std::numeric_limits<double>::infinity()
                                         : std::numeric_limits<double>::quiet_NaN());
    } else if (*above == magnitude) {
      result = magnitude;
    } else {
      auto const index = static_cast<std::size_t>(above - values.begin());
      double const below = values[index - 1];
      // Differences of a double and its neighbors in the format are exact, or decide clearly.
      double const down = magnitude - below;
      double const up = *above - magnitude;
      result = down < up || (down == up && (index - 1) % 2 == 0) ? below : *above;
    }
    return std::copysign(result, x);
  }
};

}  // namespace attikos::test
