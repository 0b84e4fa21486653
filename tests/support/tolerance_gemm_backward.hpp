// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of gemm_backward, per element; see tolerance.hpp for the notation.
//   slope  act'(x), at most 1.13 in magnitude, is a sum of two terms of at most 1.2, each a product
//          of elementary functions (math_ulps u each, two of them at most) and up to eight
//          roundings. Errors of their arguments, a few u relative, meet |t d/dt| < 1.2 for the
//          logistic function and the Gauss function alike: (2 math_ulps + 16) u in all.
//   dx     dout times the slope, rounded to T.
//   product  a sum of n terms whose one factor is off by e: growth(n) u sum|dx||b| + sum e |b|,
//   four
//          roundings for the factors, one for storing.
//   bias   sums in a tree, growth(n) u, one rounding for storing.
#pragma once

#include "tolerance.hpp"

namespace attikos::test {

template <class T>
double pre_activation_gradient_bound(double dout, double dx, bool activated) {
  if (!activated) return 0;
  double const u = precision<Accumulator<T>>().roundoff;
  double const error = oracle_factor<Accumulator<T>>() * (2 * math_ulps + 17) * u * std::abs(dout);
  return error + rounding<T>(std::abs(dx) + error);
}

/// \param magnitude sum of |dx| |b|, \param inherited sum of the error of dx times |b|
template <class Acc, class Out>
double gradient_sum_bound(double terms, double value, double magnitude, double inherited) {
  double const u = precision<Acc>().roundoff;
  double const error = oracle_factor<Acc>() * ((growth(terms) + 4) * u * (magnitude + inherited) +
                                               terms * precision<Acc>().smallest) +
                       inherited;
  return error + rounding<Out>(std::abs(value) + error);
}

}  // namespace attikos::test
