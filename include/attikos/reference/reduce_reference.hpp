// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracles of `softmax`, `mean_pool` and `l2_normalize`: one row, plain loops, nothing
/// shared with the kernels.
#pragma once

#include <algorithm>
#include <attikos/config.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// exp(scale x) / sum exp(scale x); a row of -inf gives 0.
inline std::vector<double> softmax_row(std::vector<double> const& x, double scale) {
  double const infinity = std::numeric_limits<double>::infinity();
  double largest = -infinity;
  for (double value : x) largest = std::max(largest, scale * value);
  std::vector<double> out(x.size(), 0.0);
  if (largest == -infinity) return out;
  double sum = 0;
  for (double value : x) sum += std::exp(scale * value - largest);
  for (std::size_t j = 0; j < x.size(); ++j) out[j] = std::exp(scale * x[j] - largest) / sum;
  return out;
}

/// The mean of the given values; of none, 0.
inline double mean(std::vector<double> const& x) {
  double sum = 0;
  for (double value : x) sum += value;
  return x.empty() ? 0 : sum / static_cast<double>(x.size());
}

/// x / max(||x||_2, eps)
inline std::vector<double> l2_normalize_row(std::vector<double> const& x, double eps) {
  double sum = 0;
  for (double value : x) sum += value * value;
  std::vector<double> out;
  for (double value : x) out.push_back(value / std::max(std::sqrt(sum), eps));
  return out;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
