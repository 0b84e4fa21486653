// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracles of `layer_norm` and `rms_norm`: one row, plain loops, nothing shared with
/// the kernels.
#pragma once

#include <attikos/config.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

struct LayerNormRow {
  std::vector<double> out;
  double mean = 0;
  double variance = 0;   ///< of the population: divided by hidden
  double magnitude = 0;  ///< mean of |x|
};

/// out = (x - mean) / sqrt(variance + eps) * weight + bias
inline LayerNormRow layer_norm_row(std::vector<double> const& x, std::vector<double> const& weight,
                                   std::vector<double> const& bias, double eps) {
  LayerNormRow row;
  double const count = static_cast<double>(x.size());
  for (double value : x) row.mean += value / count;
  for (double value : x) row.variance += (value - row.mean) * (value - row.mean) / count;
  for (double value : x) row.magnitude += std::abs(value) / count;
  for (std::size_t c = 0; c < x.size(); ++c) {
    row.out.push_back((x[c] - row.mean) / std::sqrt(row.variance + eps) * weight[c] + bias[c]);
  }
  return row;
}

/// out = x / sqrt(mean of x^2 + eps) * weight
inline std::vector<double> rms_norm_row(std::vector<double> const& x,
                                        std::vector<double> const& weight, double eps) {
  double mean_square = 0;
  for (double value : x) mean_square += value * value / static_cast<double>(x.size());
  std::vector<double> out;
  for (std::size_t c = 0; c < x.size(); ++c) {
    out.push_back(x[c] / std::sqrt(mean_square + eps) * weight[c]);
  }
  return out;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
