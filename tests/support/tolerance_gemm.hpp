// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of products of 8-bit elements with scales, per element; see tolerance.hpp for the
// notation and for the epilogue.
#pragma once

#include "tolerance_quantize.hpp"

namespace attikos::test {

/// gemm with scales, before it is stored. P = |scale alpha| sum |s_a a| |s_b b|.
///   sum      products of two float8 (or float8 and 16-bit) numbers are exact in float, int8 sums
///            are exact altogether; blocks of at most 128 products are summed, scaled by two
///            products and added up: (growth(min(k, 128)) + growth(k / 128 + 1) + 2) u P where the
///            scales change along k, (growth(k) + 2) u P where they do not. The sum of both covers
///            either. An int8 sum is rounded once when it becomes a float, which growth(k) holds
///            for k >= 1.
///   epilogue as gemm_bound(): six roundings, one more for a factor from the device.
template <class Acc>
double scaled_gemm_error(std::int64_t k, reference::GemmElement const& e,
                         reference::GemmTerms const& t) {
  double const u = precision<Acc>().roundoff;
  double const product = std::abs(t.scale * t.alpha) * e.magnitude;
  double const terms =
      product + (t.beta != 0 ? std::abs(t.scale * t.beta * t.c) : 0.0) + std::abs(t.bias);
  double const length = static_cast<double>(k);
  double error = (growth(length) + growth(length / 128 + 1) + 2) * u * product + 7 * u * terms;
  if (t.activation != reference::identity)
    error = 1.13 * error + (2 * math_ulps + 8) * u * std::abs(e.pre_activation);
  if (t.residual != 0) error += u * (std::abs(e.value) + error);
  return oracle_factor<Acc>() * (error + length * precision<Acc>().smallest);
}

/// The same stored to C: one rounding, or the quotient by the scale of the output and half the
/// spacing of its format. In units of what C holds.
template <class Acc, class Out>
double stored_gemm_bound(double value, double error, double scale_out = 1) {
  if constexpr (requires { QuantizedFormat<Out>::limit; }) {
    double const quotient = std::abs(value) / scale_out;
    double const before = error / scale_out + precision<Acc>().roundoff * quotient;
    // The quotient may be rounded from the next binade, where the spacing doubles.
    return before + half_spacing<Out>(std::min(quotient + before, QuantizedFormat<Out>::limit));
  } else {
    return error + rounding<Out>(std::abs(value) + error);
  }
}

}  // namespace attikos::test
