// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracles of `log_softmax` and of the gradients of `softmax` and `log_softmax`: one
/// row, plain loops, nothing shared with the kernels.
#pragma once

#include <algorithm>
#include <attikos/config.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// scale x - log sum exp(scale x); a row of -inf stays so.
inline std::vector<double> log_softmax_row(std::vector<double> const& x, double scale) {
  double const infinity = std::numeric_limits<double>::infinity();
  double largest = -infinity;
  for (double value : x) largest = std::max(largest, scale * value);
  std::vector<double> out(x.size(), -infinity);
  if (largest == -infinity) return out;
  double sum = 0;
  for (double value : x) sum += std::exp(scale * value - largest);
  for (std::size_t j = 0; j < x.size(); ++j) out[j] = scale * x[j] - largest - std::log(sum);
  return out;
}

/// Gradient of sum(g softmax(scale x)), from p = softmax(scale x).
inline std::vector<double> softmax_gradient_row(std::vector<double> const& p,
                                                std::vector<double> const& g, double scale) {
  double sum = 0;
  for (std::size_t j = 0; j < p.size(); ++j) sum += p[j] * g[j];
  std::vector<double> dx;
  for (std::size_t j = 0; j < p.size(); ++j) dx.push_back(scale * p[j] * (g[j] - sum));
  return dx;
}

/// Gradient of sum(g log_softmax(scale x)), from y = log_softmax(scale x); 0 for a row of -inf.
inline std::vector<double> log_softmax_gradient_row(std::vector<double> const& y,
                                                    std::vector<double> const& g, double scale) {
  double const infinity = std::numeric_limits<double>::infinity();
  double sum = 0;
  bool any = false;
  for (double value : g) sum += value;
  for (double value : y) any = any || value != -infinity;
  std::vector<double> dx(y.size(), 0.0);
  for (std::size_t j = 0; any && j < y.size(); ++j) dx[j] = scale * (g[j] - std::exp(y[j]) * sum);
  return dx;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
