// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Error bounds of the operations, per element, derived from type, length and data. Nothing here is
/// tuned to a result. They hold for any kernel that keeps the library's promises, a user's own too.
///
/// Notation: u = unit roundoff (half the spacing at 1) of the type that accumulates, u_out that of
/// the output. A sum of n terms in any order, with or without fma, obeys
///     |computed - exact| <= growth(n) u (sum of |terms|) .
/// The worst case is growth = n (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); for
/// roundings that are independent of each other it is lambda sqrt(n) with probability
/// 1 - 2 exp(-lambda^2 / 2) (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019). lambda = 6 makes
/// that 3e-8 per sum; data are seeded, so a bound that holds once holds always.
///
/// `math_ulps` is what an elementary function may be off by, in units of u: 4 ulp = 8 u, the
/// largest error that CUDA documents for the float functions used here (expf, erff, tanhf, logf),
/// and what the vectorized host code has to meet.
#pragma once

#include <algorithm>
#include <attikos/core/dtypes.hpp>
#include <attikos/reference/attention_reference.hpp>
#include <attikos/reference/gemm_reference.hpp>
#include <attikos/reference/norm_reference.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace testing {

/// Largest error of an elementary function in units of u.
inline constexpr double math_ulps = 8;

/// Rounding to a type: relative part (normal numbers) and absolute part (subnormal numbers).
struct Precision {
  double roundoff;  ///< u
  double smallest;  ///< smallest subnormal
  double smallest_normal;
};

/// The numbers of a type that results are rounded to or summed in.
template <class T>
constexpr Precision precision() {
  if constexpr (std::is_same_v<T, double>) return {0x1p-53, 0x0.0000000000001p-1022, 0x1p-1022};
  if constexpr (std::is_same_v<T, float>) return {0x1p-24, 0x1p-149, 0x1p-126};
  if constexpr (std::is_same_v<T, float16>) return {0x1p-11, 0x1p-24, 0x1p-14};
  if constexpr (std::is_same_v<T, bfloat16>) return {0x1p-8, 0x1p-133, 0x1p-126};
  return {0, 0, 0};
}

/// Error of rounding a result near `value` to T.
template <class T>
double rounding(double value) {
  return precision<T>().roundoff * std::abs(value) + precision<T>().smallest;
}

/// The type in which operands of these types accumulate.
template <class... Ts>
using Accumulator = std::conditional_t<(std::is_same_v<Ts, double> || ...), double, float>;

/// The oracle computes in float64 too: where that is the accumulator, its own error doubles the
/// bound.
template <class Acc>
constexpr double oracle_factor() {
  return std::is_same_v<Acc, double> ? 2 : 1;
}

/// Factor of u in the error of a sum.
inline double growth(double terms) { return std::min(terms, 6 * std::sqrt(terms)); }

/// gemm. With P = |scale alpha| sum|a||b|:
///   x = scale (alpha sum + beta c) + bias carries growth(k) u P from the sum, and at most six more
///   roundings (alpha, beta, scale to Acc, two products, two additions) of terms no larger than
///   P + |scale beta c| + |bias|.
///   act is Lipschitz with 1.13 (gelu's largest slope; silu's is 1.10) and has an error of its own
///   of at most (2 math_ulps + 8) u |x|: its result never exceeds |x|; gelu_tanh evaluates its
///   cubic argument t with a relative error of 4 u, and |t d(tanh t)/dt| < 1/2. The residual adds
///   one rounding of the sum, storing to C another.
template <class Acc, class Out>
double gemm_bound(std::int64_t k, reference::GemmElement const& e, reference::GemmTerms const& t) {
  double const u = precision<Acc>().roundoff;
  double const product = std::abs(t.scale * t.alpha) * e.magnitude;
  double const terms =
      product + (t.beta != 0 ? std::abs(t.scale * t.beta * t.c) : 0.0) + std::abs(t.bias);
  double error = growth(static_cast<double>(k)) * u * product + 6 * u * terms;
  if (t.activation != reference::identity) {
    error = 1.13 * error + (2 * math_ulps + 8) * u * std::abs(e.pre_activation);
  }
  if (t.residual != 0) error += u * (std::abs(e.value) + error);
  error += static_cast<double>(k) * precision<Acc>().smallest;
  return oracle_factor<Acc>() * error + rounding<Out>(std::abs(e.value) + error);
}

/// gemm of two float8 matrices on Hopper's tensor cores, before alpha and scales: an instruction
/// aligns its 32 products and the sum so far to the largest of these, M, and drops what is below
/// 2^-13 M (measured): 33·2^-13·M. Sums of `promoted` products start anew every 128 k; where else a
/// kernel starts one is its own affair, so that M covers the sums over any instructions.
/// `product(l)` is a(i, l)·b(l, j). To be added to the error of the sum.
template <class ProductOf>
double float8_tensor_core_error(std::int64_t k, bool promoted, ProductOf const& product) {
  double error = 0, sum = 0, low = 0, high = 0, before = 0, largest = 0;
  for (std::int64_t l = 0; l < k; ++l) {
    if (promoted && l % 128 == 0) sum = low = high = before = 0;
    double const term = product(l);
    sum += term;
    largest = std::max(largest, std::abs(term));
    if (l % 32 != 31 && l + 1 != k) continue;
    low = std::min(low, sum), high = std::max(high, sum);
    double const after = std::max(sum - low, high - sum);
    error += 33 * 0x1p-13 * std::max({largest, before, after});
    before = after, largest = 0;
  }
  return error;
}

/// attention. With M_j = |scale| sum_c |q_c||k_jc| >= |s_j| and M = max_j M_j:
///   computed score   s_j (1 + ..): error d_j <= (growth(d) + 4) u M_j (the sum, the scale, its
///                    product with log2(e) where exp2 is used);
///   exponent         s_j - m: rounding u (|s_j| + M) <= 2 u M; online softmax reaches the last
///                    maximum in steps that telescope, each rounded: 2 u M more; the error of m
///                    itself cancels between numerator and denominator;
///   weight           exp: math_ulps u, and once more with a product for each rescaling. Tiles hold
///                    at least 8 keys, so there are at most T = n/8 + 1: growth(T) (math_ulps + 1)
///                    u.
///   So each weight has a relative error of at most e_j = expm1 of the sum of these.
///   sums             growth(n) u sum_j p_j |v_jc| above, growth(n) u below, two roundings more.
///   out_c  <= sum_j p_j |v_jc| (e_j + growth(n) u) + |out_c| (sum_j p_j e_j + growth(n) u + 3 u)
///   lse    <= sum_j p_j e_j + growth(n) u + (math_ulps + 3) u (M + log n + 1): a relative error of
///             the sum is an absolute one of its logarithm.
///   Weights below the smallest normal number may be lost: n smallest_normal max|v|.
///   A sink joins M and the sum, whose error grows by that of one more weight and two products. The
///   product with a weight functor and the factor of float8 values are two roundings more.
///   Kernels on tensor cores round weights to out's type where that has 16 bits
///   (`rounded_weights`): u_out sum_j p_j |v_jc| more, and n max|v| half its smallest number, the
///   largest weight being 1 or more. Where q, k and v are float8 (`In`), to E4M3 with the largest
///   weight from 2^7 on: 2^-4 and 2^-17 instead; and their products are summed as
///   float8_tensor_core_error() says: no term or sum so far exceeds M_j, and none of values, nor
///   what is left of them by whole tiles of up to 256 keys, sum_j p_j |v_jc| (1 + 2^-4).
template <class T, class In = T>
class AttentionBound {
 public:
  using Acc = Accumulator<T>;
  AttentionBound(reference::AttentionRow const& row, std::int64_t head_dim,
                 bool rounded_weights = false)
      : row_(row),
        rounded_weights_(rounded_weights &&
                         (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)) {
    double const u = precision<Acc>().roundoff;
    double const n = static_cast<double>(row.probability.size());
    for (double m : row.score_magnitude) {
      if (std::isfinite(m)) largest_ = std::max(largest_, m);
    }
    bool const has_sink = std::isfinite(row.sink);
    if (has_sink) largest_ = std::max(largest_, std::abs(row.sink));
    double const rescaling = growth(n / 8 + 1) * (math_ulps + 1) * u;
    for (std::size_t j = 0; j < row.probability.size(); ++j) {
      double const score = ((growth(static_cast<double>(head_dim)) + 4) * u + dropped(head_dim)) *
                           row.score_magnitude[j];
      weight_error_.push_back(std::expm1(score + 4 * u * largest_ + math_ulps * u + rescaling));
      // A key with probability 0 may have an infinite score; it has no share in the error.
      if (row.probability[j] > 0) mean_error_ += row.probability[j] * weight_error_[j];
    }
    sum_error_ = (growth(n) + 2) * u;
    if (has_sink) sum_error_ += std::expm1(4 * u * largest_ + math_ulps * u) + 2 * u;
  }

  /// \param v column c of v: `v(j)` for the visible keys
  template <class Column>
  double out(std::size_t c, Column const& v) const {
    double error =
        std::abs(row_.out[c]) * (mean_error_ + sum_error_ + 3 * precision<Acc>().roundoff);
    double largest_v = 0;
    for (std::size_t j = 0; j < weight_error_.size(); ++j) {
      double const magnitude = std::abs(v(static_cast<std::int64_t>(j)));
      if (row_.probability[j] > 0) {
        error += row_.probability[j] * magnitude * (weight_error_[j] + sum_error_);
      }
      largest_v = std::max(largest_v, magnitude);
    }
    error +=
        static_cast<double>(weight_error_.size()) * precision<Acc>().smallest_normal * largest_v;
    if (rounded_weights_) {
      double size = 0;
      for (std::size_t j = 0; j < weight_error_.size(); ++j)
        if (row_.probability[j] > 0)
          size += row_.probability[j] * std::abs(v(static_cast<std::int64_t>(j)));
      auto const n = static_cast<double>(weight_error_.size());
      error += (float8 ? 0x1p-4 : precision<T>().roundoff) * size +
               n / 2 * (float8 ? 0x1p-16 : precision<T>().smallest) * largest_v +
               dropped(static_cast<std::int64_t>(n) + 256) * (1 + 0x1p-4) * size;
    }
    return oracle_factor<Acc>() * error + rounding<T>(std::abs(row_.out[c]) + error);
  }

  double lse() const {
    double const n = static_cast<double>(row_.probability.size());
    double const u = precision<Acc>().roundoff;
    double const error =
        mean_error_ + sum_error_ + (math_ulps + 3) * u * (largest_ + std::log(n + 1) + 1);
    return oracle_factor<Acc>() * error + rounding<Acc>(row_.lse);
  }

 private:
  static constexpr bool float8 = std::is_same_v<In, float8_e4m3>;

  /// What a sum of `terms` products loses, in units of its largest term or sum so far.
  double dropped(std::int64_t terms) const {
    std::int64_t const sums = (terms + 31) / 32;
    return float8 && rounded_weights_ ? 33 * 0x1p-13 * static_cast<double>(sums) : 0;
  }

  reference::AttentionRow const& row_;
  bool rounded_weights_;
  std::vector<double> weight_error_;
  double largest_ = 0;
  double mean_error_ = 0;
  double sum_error_ = 0;
};

/// layer_norm. mean: error m <= (growth(h) + 1) u mean|x|. variance: relative error at most
/// (growth(h) + 4) u kappa, kappa = sqrt(1 + mean^2 / variance), which Welford's and the two-pass
/// algorithm meet and the textbook E[x^2] - mean^2 does not (Chan, Golub, LeVeque, Am. Stat. 37(3),
/// 1983), plus m^2 from centering on the computed mean. 1/sqrt halves a relative error r, to first
/// order: r/2 (1 + r). Four more roundings for the products, one for the addition, one for storing.
template <class T>
double layer_norm_bound(reference::LayerNormRow const& row, std::size_t c, double x, double weight,
                        double bias, double eps) {
  using Acc = Accumulator<T>;
  double const u = precision<Acc>().roundoff;
  double const h = static_cast<double>(row.out.size());
  double const mean_error = (growth(h) + 1) * u * row.magnitude;
  double const spread = row.variance + eps;
  double const centered = std::sqrt(row.variance) * std::sqrt(row.variance + row.mean * row.mean);
  double const r = ((growth(h) + 4) * u * centered + mean_error * mean_error) / spread;
  double const slope = std::abs(weight) / std::sqrt(spread);
  double const scaled = slope * std::abs(x - row.mean);
  double const error = slope * mean_error +
                       (scaled + slope * mean_error) * (r / 2 * (1 + r) + 6 * u) +
                       u * (scaled + std::abs(bias));
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(row.out[c]) + error);
}

/// rms_norm and l2_normalize: the sum of squares has a relative error of growth(h) u, its root half
/// of that; six more roundings (products, eps, root, quotient), then storing.
template <class T>
double scaled_row_bound(std::size_t hidden, double value) {
  using Acc = Accumulator<T>;
  double const relative = (growth(static_cast<double>(hidden)) / 2 + 6) * precision<Acc>().roundoff;
  double const error = relative * std::abs(value);
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
}

/// softmax: each weight has a relative error e = expm1(4 u M + math_ulps u), M = max |scale x| over
/// the finite entries (rounding of scale, product and difference); the sum e + growth(n) u; two
/// more roundings.
template <class T>
double softmax_bound(std::vector<double> const& x, double scale, double value) {
  using Acc = Accumulator<T>;
  double const u = precision<Acc>().roundoff;
  double largest = 0;
  for (double entry : x) {
    if (std::isfinite(entry)) largest = std::max(largest, std::abs(scale * entry));
  }
  double const weight = std::expm1(4 * u * largest + math_ulps * u);
  double const relative = 2 * weight + growth(static_cast<double>(x.size())) * u + 2 * u;
  double const error = relative * std::abs(value) + precision<Acc>().smallest_normal;
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
}

/// mean_pool: growth(n) u mean|x|, two more roundings, then storing.
template <class T>
double mean_bound(std::vector<double> const& x, double value) {
  using Acc = Accumulator<T>;
  double magnitude = 0;
  for (double entry : x) magnitude += std::abs(entry) / static_cast<double>(x.size());
  double const n = static_cast<double>(x.size());
  double const error = (growth(n) + 2) * precision<Acc>().roundoff * magnitude;
  return oracle_factor<Acc>() * error + rounding<T>(std::abs(value) + error);
}

}  // namespace testing
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
