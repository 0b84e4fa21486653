// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of `adamw_step`: one element, as the formula is written, nothing shared with
/// the kernels.
#pragma once

#include <attikos/config.hpp>
#include <cmath>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

struct AdamWSettings {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  std::int64_t step;
  double gradient_scale;
};

/// A weight and its moments; after a step also what the weight was changed by, and divided by.
struct AdamWElement {
  double weight, exp_avg, exp_avg_sq;
  double quotient = 0, divisor = 0;
};

inline double bias_correction(double beta, std::int64_t step) {
  return static_cast<double>(1 - std::pow(static_cast<long double>(beta), step));
}

inline AdamWElement adamw(AdamWElement e, double gradient, AdamWSettings const& s) {
  double const g = s.gradient_scale * gradient;
  e.exp_avg = s.beta1 * e.exp_avg + (1 - s.beta1) * g;
  e.exp_avg_sq = s.beta2 * e.exp_avg_sq + (1 - s.beta2) * g * g;
  e.divisor = std::sqrt(e.exp_avg_sq / bias_correction(s.beta2, s.step)) + s.epsilon;
  e.quotient = e.exp_avg / bias_correction(s.beta1, s.step) / e.divisor;
  e.weight -= s.learning_rate * s.weight_decay * e.weight;
  e.weight -= s.learning_rate * e.quotient;
  return e;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
