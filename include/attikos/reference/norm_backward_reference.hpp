// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracles of the gradients of `rms_norm`, `layer_norm` and `l2_normalize`: one row,
/// plain loops, nothing shared with the kernels. Beside the gradients stand the quantities that
/// error bounds are made of.
#pragma once

#include <attikos/config.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

struct NormGradientRow {
  std::vector<double> dx;
  std::vector<double> normalized;  ///< h: what the weight multiplies
  double factor = 0;               ///< f: 1/rms, 1/sigma or 1/norm
  double mean_gradient = 0;        ///< mean of weight g (layer_norm)
  double mean_gradient_size = 0;   ///< mean of |weight g|
  double mean_product = 0;         ///< mean of weight g h
  double mean_product_size = 0;    ///< mean of |weight g h|
};

/// What the projections of weight g have in common once h and f are known; `centered` also takes
/// the mean out. dx = f (weight g - mean - h mean_product).
inline void finish_norm_gradient(NormGradientRow& row, std::vector<double> const& weight,
                                 std::vector<double> const& g, bool centered) {
  double const count = static_cast<double>(g.size());
  for (std::size_t c = 0; c < g.size(); ++c) {
    double const term = weight[c] * g[c];
    row.mean_gradient += centered ? term / count : 0;
    row.mean_gradient_size += std::abs(term) / count;
    row.mean_product += term * row.normalized[c] / count;
    row.mean_product_size += std::abs(term * row.normalized[c]) / count;
  }
  for (std::size_t c = 0; c < g.size(); ++c) {
    row.dx.push_back(row.factor *
                     (weight[c] * g[c] - row.mean_gradient - row.normalized[c] * row.mean_product));
  }
}

/// Gradient of sum(g rms_norm(x)); that of the weight is g normalized.
inline NormGradientRow rms_norm_gradient_row(std::vector<double> const& x,
                                             std::vector<double> const& weight,
                                             std::vector<double> const& g, double eps) {
  NormGradientRow row;
  double mean_square = 0;
  for (double value : x) mean_square += value * value / static_cast<double>(x.size());
  row.factor = 1 / std::sqrt(mean_square + eps);
  for (double value : x) row.normalized.push_back(value * row.factor);
  finish_norm_gradient(row, weight, g, false);
  return row;
}

/// Gradient of sum(g layer_norm(x)); that of the weight is g normalized, that of the bias g.
inline NormGradientRow layer_norm_gradient_row(std::vector<double> const& x,
                                               std::vector<double> const& weight,
                                               std::vector<double> const& g, double eps) {
  NormGradientRow row;
  double const count = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (double value : x) mean += value / count;
  for (double value : x) variance += (value - mean) * (value - mean) / count;
  row.factor = 1 / std::sqrt(variance + eps);
  for (double value : x) row.normalized.push_back((value - mean) * row.factor);
  finish_norm_gradient(row, weight, g, true);
  return row;
}

/// Gradient of sum(g l2_normalize(x)). Its mean_product is the mean of g h, so that the sum is
/// size times that.
inline NormGradientRow l2_normalize_gradient_row(std::vector<double> const& x,
                                                 std::vector<double> const& g, double eps) {
  NormGradientRow row;
  double sum = 0;
  for (double value : x) sum += value * value;
  double const norm = std::sqrt(sum);
  bool const scaled = norm < eps || norm == 0;
  row.factor = scaled ? (eps == 0 ? 0 : 1 / eps) : 1 / norm;
  double const count = static_cast<double>(x.size());
  for (std::size_t c = 0; c < x.size(); ++c) {
    row.normalized.push_back(scaled ? 0 : x[c] / norm);
    row.mean_product += g[c] * row.normalized[c] / count;
    row.mean_product_size += std::abs(g[c] * row.normalized[c]) / count;
  }
  for (std::size_t c = 0; c < x.size(); ++c) {
    row.dx.push_back(row.factor * (g[c] - row.normalized[c] * row.mean_product * count));
  }
  return row;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
