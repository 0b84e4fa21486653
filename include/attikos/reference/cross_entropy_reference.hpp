// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracles of `cross_entropy` and its gradient: one row, plain loops, nothing shared
/// with the kernels.
#pragma once

#include <algorithm>
#include <attikos/config.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// log sum exp(x); -inf of a row of -inf.
inline double log_sum_exp_row(std::vector<double> const& x) {
  double const infinity = std::numeric_limits<double>::infinity();
  double largest = -infinity;
  for (double value : x) largest = std::max(largest, value);
  if (largest == -infinity) return -infinity;
  double sum = 0;
  for (double value : x) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

/// What a row's target has at class c.
inline double cross_entropy_target(std::size_t classes, std::int64_t label, double smoothing,
                                   std::size_t c) {
  double const everywhere = smoothing / static_cast<double>(classes);
  return static_cast<std::int64_t>(c) == label ? 1 - smoothing + everywhere : everywhere;
}

/// -sum t log softmax(x) over the classes that have a share of the target.
inline double cross_entropy_row(std::vector<double> const& x, std::int64_t label, double smoothing,
                                std::int64_t ignore_index) {
  if (label == ignore_index) return 0;
  if (label < 0 || label >= static_cast<std::int64_t>(x.size()))
    return std::numeric_limits<double>::quiet_NaN();
  double const lse = log_sum_exp_row(x);
  double loss = 0;
  for (std::size_t c = 0; c < x.size(); ++c) {
    double const t = cross_entropy_target(x.size(), label, smoothing, c);
    if (t == 0) continue;
    if (std::isinf(x[c]) && x[c] < 0) return std::numeric_limits<double>::infinity();
    loss += t * (lse - x[c]);
  }
  return loss;
}

/// Gradient of g cross_entropy(x), from lse = log sum exp(x); 0 for a row of -inf.
inline std::vector<double> cross_entropy_gradient_row(std::vector<double> const& x, double lse,
                                                      std::int64_t label, double g,
                                                      double smoothing, std::int64_t ignore_index) {
  std::vector<double> dx(x.size(), 0.0);
  if (label == ignore_index || (std::isinf(lse) && lse < 0)) return dx;
  bool const known = label >= 0 && label < static_cast<std::int64_t>(x.size());
  for (std::size_t c = 0; c < x.size(); ++c)
    dx[c] = known ? g * (std::exp(x[c] - lse) - cross_entropy_target(x.size(), label, smoothing, c))
                  : std::numeric_limits<double>::quiet_NaN();
  return dx;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
