// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the error of attention is made of, for norms; see error_norms.hpp and tolerance.hpp.
#pragma once

#include <algorithm>
#include <attikos/core/dispatch/dispatch.hpp>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "tolerance.hpp"

namespace attikos::test {

/// AttentionBound for the kernels of hosts, whose order and functions are known. With y = out_c:
///   weights    An error common to all weights is divided out of y again. With |ε_j| <= e_j it is
///              off by |Σ_j p_j ε_j (v_j - y) / (1 + Σ_j p_j ε_j)| <= Σ_j p_j e_j |v_j - y| / (1 -
///              E), E = Σ_j p_j e_j.
///   e_j        expm1 of: the score (growth(d) + 4) u M_j, as there; the exponent is rounded, u
///   times
///              itself, -log(p_j / p_max), and by the maxima before the last it is reached in steps
///              that add up to as much once more; exp, 4 u (2 ulp, as test_elementary.cpp has it),
///              and a factor for normalizing before the product, 2 u.
///   rescaling  Keys come in order, so the maximum rises R times at most, R the number of keys
///   whose
///              weight exceeds all before: each time a weight gets a factor, 4 u for its
///              exponential and u for the product: growth(R - 1) 5 u. Kernels that keep all scores
///              have none.
///   sums       Of values, one after the other: no sum so far exceeds D = the largest sum over a
///   run
///              of keys: growth(n) u D. Of weights, in at least 4 lanes: growth(n / 4 + 8) u |y|.
///              Quotient and product, 3 u |y|.
///   sink       One weight more in the sum of weights, whose exponent and that of the others are
///              rounded: expm1(u (2 (|sink| + M) + 6)).
///   lse        E; the sum of weights as above; log, 4 u log n; the sum with the maximum, u |lse|.
///
/// On bfloat16's dot-product instructions (`rounded_weights`; attention_dot.hpp):
///   weights    are rounded to bfloat16 for their product with values, as AttentionBound has it:
///              u_T sum_j p_j |v_j| and n max|v| half its smallest number. Their sum is that of
///              the weights before.
///   e_j        The exponent is a difference, rounded, times a rounded factor: 2 u times itself
///              where it was u.
///   sums       Two products at a time, even and odd ones apart: the size of a sum so far is known
///              no better than sum_j p_j |v_j|.
///   subnormal  numbers count as 0: products below the smallest normal float, and numbers of T
///              below its smallest normal one, which is as small: for each key max|v| of it, which
///              the weights that may be lost have anyway, and as much again, and 1 of it for the
///              value.
template <class T>
class HostAttentionBound {
 public:
  using Acc = Accumulator<T>;
  HostAttentionBound(reference::AttentionRow const& row, std::int64_t head_dim,
                     bool rounded_weights = false)
      : row_(row), rounded_weights_(rounded_weights) {
    double largest = 0, seen = 0, rises = 0;
    for (double p : row.probability) {
      if (p > seen) seen = p, rises += 1;
      largest = std::max(largest, p);
    }
    for (std::size_t j = 0; j < row.probability.size(); ++j) {
      double const p = row.probability[j];
      double const exponent = p > 0 ? std::log(largest / p) : 0;
      error_.push_back(std::expm1(
          u * ((growth(static_cast<double>(head_dim)) + 4) * row.score_magnitude[j] +
               (rounded_weights ? 4 : 2) * exponent + 6 + 5 * growth(std::max(rises - 1, 0.0)))));
      if (p > 0) mean_error_ += p * error_.back();
    }
    n_ = static_cast<double>(row.probability.size());
    sum_error_ = growth(n_ / 4 + 8) * u;
    if (std::isfinite(row.sink)) {
      double magnitude = 0;
      for (double m : row.score_magnitude)
        if (std::isfinite(m)) magnitude = std::max(magnitude, m);
      sum_error_ += std::expm1(u * (2 * (std::abs(row.sink) + magnitude) + 6));
    }
  }

  template <class Column>
  double out(std::size_t c, Column const& v) const {
    double const y = row_.out[c];
    double error = 0, sum = 0, size = 0, low = 0, high = 0, largest = 0;
    for (std::size_t j = 0; j < error_.size(); ++j) {
      double const p = row_.probability[j];
      double const value = v(static_cast<std::int64_t>(j));
      largest = std::max(largest, std::abs(value));
      if (p == 0) continue;
      error += p * error_[j] * std::abs(value - y);
      sum += p * value;
      size += p * std::abs(value);
      low = std::min(low, sum), high = std::max(high, sum);
    }
    error = mean_error_ < 1 ? error / (1 - mean_error_) : std::numeric_limits<double>::infinity();
    double const sums = rounded_weights_ ? size : high - low;
    error += growth(n_) * u * sums + (sum_error_ + 3 * u) * std::abs(y) +
             n_ * precision<Acc>().smallest_normal * largest;
    if (rounded_weights_)
      error += precision<T>().roundoff * size + n_ / 2 * precision<T>().smallest * largest +
               n_ * precision<Acc>().smallest_normal * (largest + 1);
    return oracle_factor<Acc>() * error + rounding<T>(std::abs(y) + error);
  }

  double lse() const {
    double const error = mean_error_ + sum_error_ + 4 * u * std::log(n_ + 1) +
                         u * (std::isfinite(row_.lse) ? std::abs(row_.lse) : 0);
    return oracle_factor<Acc>() * error + rounding<Acc>(row_.lse);
  }

 private:
  static constexpr double u = precision<Acc>().roundoff;

  reference::AttentionRow const& row_;
  bool rounded_weights_;
  std::vector<double> error_;
  double mean_error_ = 0, sum_error_ = 0, n_ = 0;
};

/// Whether the kernel that a call goes to rounds weights to the type before their product with
/// values: compiled ones, and portable ones on a device's matrix instructions or on those of a host
/// that are chosen at run time.
template <class Exec>
bool rounds_weights(Explanation const& call) {
  bool const compiled = !is_host_space<Exec> && call.kernel.rfind("portable", 0) != 0;
  return compiled || !call.instructions.empty();
}

/// The parts of AttentionBound<T>::out(c, v), of which `unrounded` is the bound of kernels that
/// keep weights as they are.
///
/// Weights that are rounded to T are off by a relative δ_j each, |δ_j| <= u_T: Σ_j p_j δ_j v_jc has
/// the variance u_T²/3 Σ_j p_j² v_jc². It is shared: the same δ_j go into all features of a row.
/// They are independent unless the weights lie so close together that they are rounded the same
/// way. A mean of them scales all of a row, u_T |out_c|; it is averaged out where weights spread
/// over many spacings, here from 64 u_T on (the mean of the rounding errors of numbers that spread
/// over more than one spacing decays exponentially; Widrow, Kollar, Quantization Noise, 2008, ch.
/// 5).
template <class T, class Column>
ErrorParts attention_parts(reference::AttentionRow const& row, AttentionBound<T> const& unrounded,
                           std::size_t c, Column const& v, bool rounded_weights) {
  double const u = precision<T>().roundoff;
  ErrorParts parts = stored_parts(row.out[c], unrounded.out(c, v), u, precision<T>().smallest);
  if (!rounded_weights) return parts;
  double most = 0, least = std::numeric_limits<double>::infinity(), largest_v = 0;
  for (std::size_t j = 0; j < row.probability.size(); ++j) {
    double const p = row.probability[j];
    if (p == 0) continue;
    double const value = v(static_cast<std::int64_t>(j));
    parts.shared += u * u / 3 * p * p * value * value;
    most = std::max(most, p), least = std::min(least, p);
    largest_v = std::max(largest_v, std::abs(value));
  }
  auto const n = static_cast<double>(row.probability.size());
  parts.steady += n / 2 * precision<T>().smallest * largest_v;
  if (most < (1 + 64 * u) * least) parts.steady += u * std::abs(row.out[c]);
  return parts;
}

}  // namespace attikos::test
