// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of rotary embeddings, of the gradients of norms, and of log_softmax and its kin. The
// notation is that of tolerance.hpp: u of the accumulator, growth(n) for a sum of n terms.
#pragma once

#include <algorithm>
#include <attikos/reference/norm_backward_reference.hpp>
#include <attikos/reference/rope_reference.hpp>
#include <attikos/reference/softmax_reference.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tolerance.hpp"

namespace attikos::test {

/// rope: two products and a sum: 2 u of |x cos| + |y sin|, to first order; 3 u covers the rest. Of
/// features that are copied, only storing rounds.
template <class T, class Out = T>
double rope_bound(double magnitude, double value) {
  using Acc = Accumulator<T, Out>;
  double const error = 3 * precision<Acc>().roundoff * magnitude;
  return oracle_factor<Acc>() * error + rounding<Out>(std::abs(value) + error);
}

/// Relative error of the factor 1/sqrt(mean of squares + eps) and its like: the sum of squares
/// growth(n) u, its root half of that, six more roundings.
template <class Acc>
double factor_error(std::size_t n) {
  return (growth(static_cast<double>(n)) / 2 + 6) * precision<Acc>().roundoff;
}

/// rms_norm_rope: each normalized feature has the relative error of the factor and two products
/// (within its six roundings); the rotation of magnitudes adds 3 u.
template <class T>
double rms_norm_rope_bound(std::size_t n, double magnitude, double value) {
  using Acc = Accumulator<T>;
  double const error = (factor_error<Acc>(n) + 3 * precision<Acc>().roundoff) * magnitude;
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
}

/// A gradient dx with an error, to which a residual may be added, as it is stored: one rounding of
/// the sum more.
template <class T>
double stored_gradient_bound(double error, double dx, std::optional<double> residual) {
  using Acc = Accumulator<T>;
  double const sum = std::abs(dx + residual.value_or(0));
  if (residual) error += precision<Acc>().roundoff * (sum + error);
  return oracle_factor<Acc>() * error + rounding<T>(sum + error);
}

/// dx = f (w g - h c), h = x f, c = mean(w g h): gradients of rms_norm (weight w) and of
/// l2_normalize (w = 1, the sum for the mean). G >= |g| is what g is made of: |g| itself, or the
/// magnitudes of its rotation, whose rounding adds 3 u G. With e the relative error of f and
/// P = mean |w| G |h|:
///   c      (growth(n) + 8) u + e of P: the sum, the rotation, two products, the factor f, the
///          quotient, one rounding of h in the oracle's place;
///   dx     f (|w| G (e + 7 u) + |h| (|c| (2 e + 5 u) + error of c)): f twice, the products, the
///          difference.
template <class T>
class ScaledGradientBound {
 public:
  using Acc = Accumulator<T>;
  ScaledGradientBound(reference::NormGradientRow const& row, std::vector<double> const& weight,
                      std::vector<double> const& sizes, double terms_per_mean)
      : row_(row), weight_(weight), sizes_(sizes), per_mean_(terms_per_mean) {
    double const u = precision<Acc>().roundoff;
    double const n = static_cast<double>(sizes.size());
    double products = 0;
    for (std::size_t c = 0; c < sizes.size(); ++c) {
      products += std::abs(weight[c] * row.normalized[c]) * sizes[c] / n * per_mean_;
    }
    e_ = factor_error<Acc>(sizes.size());
    mean_error_ = ((growth(n) + 8) * u + e_) * products;
  }

  /// `residual`: what is added to dx, if anything.
  double dx(std::size_t c, std::optional<double> residual = {}) const {
    double const u = precision<Acc>().roundoff;
    double const mean = std::abs(row_.mean_product) * per_mean_;
    double const error =
        row_.factor * (std::abs(weight_[c]) * sizes_[c] * (e_ + 7 * u) +
                       std::abs(row_.normalized[c]) * (mean * (2 * e_ + 5 * u) + mean_error_)) +
        precision<Acc>().smallest_normal;
    return stored_gradient_bound<T>(error, row_.dx[c], residual);
  }

  /// What one row adds to the error of dweight: the rotation 3 u, h with e + u, the product.
  double weight_term(std::size_t c) const {
    return sizes_[c] * std::abs(row_.normalized[c]) * (e_ + 5 * precision<Acc>().roundoff);
  }

 private:
  reference::NormGradientRow const& row_;
  std::vector<double> weight_;
  std::vector<double> sizes_;
  double per_mean_;
  double e_ = 0;
  double mean_error_ = 0;
};

/// A gradient that sums `rows` terms: growth(rows) u sum|terms| beside what the terms bring along.
template <class T, class Out = T>
double row_sum_bound(double rows, double terms_error, double magnitude, double value) {
  using Acc = Accumulator<T>;
  double const error = terms_error + growth(rows) * precision<Acc>().roundoff * magnitude;
  return oracle_factor<Acc>() * error + rounding<Out>(std::abs(value) + error);
}

/// layer_norm's gradient. From layer_norm_bound: the mean has the error m, the factor f the
/// relative error t = r/2 (1 + r) + 2 u. Then, with a = w g:
///   h        f m + |h| (t + 3 u) (and their product);
///   mean a   (growth(n) + 3) u mean|a|;
///   mean a h (growth(n) + 5) u mean|a h| + mean of |a| times the error of h;
///   dx       f (u-sized parts of |a| + |mean a| + |h mean(a h)|, the errors of both means, h's
///            error times mean(a h)) and t of the whole.
template <class T>
class LayerNormGradientBound {
 public:
  using Acc = Accumulator<T>;
  LayerNormGradientBound(reference::NormGradientRow const& row,
                         reference::LayerNormRow const& forward, std::vector<double> const& weight,
                         std::vector<double> const& g, double eps)
      : row_(row), weight_(weight), g_(g) {
    double const u = precision<Acc>().roundoff;
    double const n = static_cast<double>(g.size());
    double const mean_error = (growth(n) + 1) * u * forward.magnitude;
    double const spread = forward.variance + eps;
    double const centered =
        std::sqrt(forward.variance) * std::sqrt(forward.variance + forward.mean * forward.mean);
    double const r = ((growth(n) + 4) * u * centered + mean_error * mean_error) / spread;
    t_ = r / 2 * (1 + r) + 2 * u;
    for (std::size_t c = 0; c < g.size(); ++c) {
      double const h = std::abs(row.normalized[c]);
      h_error_.push_back((row.factor * mean_error) * (1 + t_) + h * (t_ + 3 * u));
      product_error_ += std::abs(weight[c] * g[c]) * h_error_[c] / n;
    }
    product_error_ += (growth(n) + 5) * u * (row.mean_product_size + product_error_);
    gradient_error_ = (growth(n) + 3) * u * row.mean_gradient_size;
  }

  double dx(std::size_t c, std::optional<double> residual = {}) const {
    double const u = precision<Acc>().roundoff;
    double const h = std::abs(row_.normalized[c]);
    double const size = std::abs(weight_[c] * g_[c]) + std::abs(row_.mean_gradient) +
                        h * std::abs(row_.mean_product);
    double const inner = 4 * u * size + gradient_error_ + (h + h_error_[c]) * product_error_ +
                         h_error_[c] * std::abs(row_.mean_product);
    double const error = row_.factor * (inner * (1 + t_) + size * (t_ + 2 * u));
    return stored_gradient_bound<T>(error, row_.dx[c], residual);
  }

  double weight_term(std::size_t c) const {
    return std::abs(g_[c]) *
           (h_error_[c] + 2 * precision<Acc>().roundoff * std::abs(row_.normalized[c]));
  }

 private:
  reference::NormGradientRow const& row_;
  std::vector<double> weight_;
  std::vector<double> g_;
  std::vector<double> h_error_;
  double t_ = 0;
  double product_error_ = 0;
  double gradient_error_ = 0;
};

/// log_softmax: d = z - m with z = scale x: 4 u M as for softmax. The sum has the relative error
/// expm1(4 u M + math_ulps u) + growth(n) u, which is an absolute one of its logarithm, whose own
/// is math_ulps u of at most log n; the last difference rounds once.
template <class T>
double log_softmax_bound(std::vector<double> const& x, double scale, double value) {
  using Acc = Accumulator<T>;
  double const u = precision<Acc>().roundoff;
  double const n = static_cast<double>(x.size());
  double largest = 0;
  for (double entry : x) {
    if (std::isfinite(entry)) largest = std::max(largest, std::abs(scale * entry));
  }
  if (!std::isfinite(value)) return 0;
  double const difference = 4 * u * largest;
  double const logarithm =
      std::expm1(difference + math_ulps * u) + growth(n) * u + math_ulps * u * (std::log(n) + 1);
  double const error = difference + logarithm + u * std::abs(value);
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
}

/// softmax's gradient: the sum s of p g has (growth(n) + 1) u sum|p g|; two products and the
/// difference 4 u of |scale p| (|g| + |s|). Products below the smallest normal number may be lost.
template <class T>
double softmax_gradient_bound(std::vector<double> const& p, std::vector<double> const& g,
                              double scale, std::size_t j, double value) {
  using Acc = Accumulator<T>;
  double const u = precision<Acc>().roundoff;
  double const n = static_cast<double>(p.size());
  double sum = 0, magnitude = 0;
  for (std::size_t k = 0; k < p.size(); ++k) {
    sum += p[k] * g[k];
    magnitude += std::abs(p[k] * g[k]);
  }
  double const sum_error = (growth(n) + 1) * u * magnitude + n * precision<Acc>().smallest_normal;
  double const error =
      std::abs(scale * p[j]) * (sum_error + 4 * u * (std::abs(g[j]) + std::abs(sum))) +
      precision<Acc>().smallest_normal;
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
}

/// log_softmax's gradient: the sum s of g has growth(n) u sum|g|, e^y math_ulps u (or all of it
/// below the smallest normal number); 3 u of |g| + |e^y s| for products and difference.
template <class T>
double log_softmax_gradient_bound(std::vector<double> const& y, std::vector<double> const& g,
                                  double scale, std::size_t j, double value) {
  using Acc = Accumulator<T>;
  double const u = precision<Acc>().roundoff;
  double sum = 0, magnitude = 0;
  for (double entry : g) {
    sum += entry;
    magnitude += std::abs(entry);
  }
  double const p = std::exp(y[j]);
  double const sum_error = growth(static_cast<double>(g.size())) * u * magnitude;
  double const error =
      std::abs(scale) * (p * (sum_error + std::abs(sum) * math_ulps * u) +
                         precision<Acc>().smallest_normal * std::abs(sum) +
                         3 * u * (std::abs(g[j]) + p * (std::abs(sum) + sum_error)));
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
}

/// cross_entropy: d = x - m rounds once, u |d| of at most 2 M; the sum and its logarithm err as in
/// log_softmax. `distances`: sum of |d|; `on_label`: |d| at the label. The other terms are a
/// product of three roundings each and two differences.
template <class T, class Out = T>
struct CrossEntropyBound {
  double lse, loss;

  CrossEntropyBound(std::vector<double> const& x, std::int64_t label, double smoothing,
                    double exact_lse, double exact_loss) {
    using Acc = Accumulator<T, Out>;
    double const u = precision<Acc>().roundoff;
    double const n = static_cast<double>(x.size());
    double top = -std::numeric_limits<double>::infinity(), largest = 0, distances = 0;
    for (double entry : x) top = std::max(top, entry);
    for (double entry : x) {
      if (!std::isfinite(entry)) continue;
      largest = std::max(largest, std::abs(entry));
      distances += std::abs(entry - top);
    }
    double const log_sum = std::expm1(2 * u * largest + math_ulps * u) + growth(n) * u +
                           math_ulps * u * (std::log(n) + 1) + n * precision<Acc>().smallest_normal;
    bool const known = label >= 0 && label < static_cast<std::int64_t>(x.size());
    double const on_label = known ? std::abs(x[static_cast<std::size_t>(label)] - top) : 0;
    double const of_label = (1 - smoothing) * on_label, of_all = smoothing / n * distances;
    double const terms = 4 * u * of_label + (growth(n) + 5) * u * of_all;
    double const sizes = std::log(n) + of_label + of_all;
    lse = std::isfinite(exact_lse)
              ? oracle_factor<Acc>() * (log_sum + 2 * u * (std::abs(exact_lse) + std::log(n)))
              : 0;
    double const error = log_sum + terms + 2 * u * sizes;
    loss = std::isfinite(exact_loss) && exact_loss != 0
               ? oracle_factor<Acc>() * error + rounding<Out>(std::abs(exact_loss) + error)
               : 0;
    if (exact_loss == 0 && known) loss = oracle_factor<Acc>() * error + rounding<Out>(error);
  }
};

/// Its gradient, of a given lse: x - lse rounds once, so that p = e^(x - lse) has the relative
/// error expm1(u |x - lse| + math_ulps u), or is lost below the smallest normal number; 4 u of |p|
/// + |t| for the target, two differences and the product.
template <class T, class Out = T>
double cross_entropy_gradient_bound(double x, double lse, double target, double g, double value) {
  using Acc = Accumulator<T, Out>;
  double const u = precision<Acc>().roundoff;
  double const d = x - lse, p = std::exp(d);
  double const of_p = std::isfinite(d) ? p * std::expm1(u * std::abs(d) + math_ulps * u) : 0;
  double const error =
      std::abs(g) * (of_p + 4 * u * (p + target) + precision<Acc>().smallest_normal) +
      precision<Acc>().smallest_normal;
  return oracle_factor<Acc>() * error + rounding<Out>(std::abs(value) + error);
}

}  // namespace attikos::test
