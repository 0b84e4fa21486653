// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of what decoding is made of. Notation and building blocks are those of
// tolerance.hpp.
#pragma once

#include <attikos/reference/attention_reference.hpp>
#include <attikos/reference/merge_states_reference.hpp>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tolerance.hpp"

namespace attikos::test {

/// merge_states of n parts, computed in Acc. With t_s = largest lse - lse_s >= 0:
///   weight   the difference is rounded, u t_s, and goes through exp: a relative error of
///            e_s = expm1(u t_s + math_ulps u);
///   sum      sum_s p_s e_s + growth(n) u =: E, its reciprocal one rounding more;
///   out_c    a product for the weight, one with the value, a sum of n terms:
///            sum_s p_s |o_sc| (e_s + E + (growth(n) + 3) u);
///   lse      E is absolute behind the logarithm, which has math_ulps u log n of its own; the
///            addition rounds, u |lse|.
/// Weights below the smallest normal number may be lost: n smallest_normal max|o|.
template <class Acc>
class MergeBound {
 public:
  explicit MergeBound(reference::MergedRow const& row) : row_(row) {
    double const u = precision<Acc>().roundoff;
    parts_ = static_cast<double>(row.weight.size());
    for (std::size_t s = 0; s < row.weight.size(); ++s) {
      error_.push_back(std::expm1(u * row.distance[s] + math_ulps * u));
      if (row.weight[s] > 0) sum_error_ += row.weight[s] * error_.back();
    }
    sum_error_ += growth(parts_) * u;
  }

  /// \param part the parts' element c: `part(s)`, asked only for parts that saw a key
  template <class Out, class Part>
  double out(std::size_t c, Part const& part) const {
    double const u = precision<Acc>().roundoff;
    double error = 0;
    double largest = 0;
    for (std::size_t s = 0; s < error_.size(); ++s) {
      if (row_.weight[s] == 0) continue;
      double const magnitude = std::abs(part(s));
      error += row_.weight[s] * magnitude * (error_[s] + sum_error_ + (growth(parts_) + 3) * u);
      largest = std::max(largest, magnitude);
    }
    error += parts_ * precision<Acc>().smallest_normal * largest;
    return oracle_factor<Acc>() * error + rounding<Out>(std::abs(row_.out[c]) + error);
  }

  template <class Lse>
  double lse() const {
    double const u = precision<Acc>().roundoff;
    double const error = sum_error_ + math_ulps * u * std::log(parts_ + 1) + u * std::abs(row_.lse);
    return oracle_factor<Acc>() * error + rounding<Lse>(row_.lse);
  }

 private:
  reference::MergedRow const& row_;
  double parts_ = 0;
  double sum_error_ = 0;
  std::vector<double> error_;
};

/// decode, or attention over parts and merge_states. The sum S~ of a part, with whatever error, is
/// divided out of its output and comes back in its weight e^(m + log S~): it cancels, and what
/// AttentionBound says of numerator and denominator holds for those of the whole. Every part's
/// share of either carries in addition, with M the largest |score| and n keys (a part's lse, and
/// how far it lies below the largest, are at most 2 M + log n):
///   log S~      math_ulps u log n, and u |lse| for the addition to m;
///   weight      u (2 M + log n) for the difference, math_ulps u for exp;
///   products    output by 1/S~ and factor, weight by 1/sum, output by weight: 6 u;
///   parts       growth(P) u for the sum of P of them.
/// Together d; out gets d (sum_j p_j |v_jc| + |out_c|), lse gets d and u |lse|. Kernels on tensor
/// cores round weights (`rounded_weights`, see AttentionBound); a part's are no larger in the
/// whole. Where q, k and v are float8 (`In`) they are rounded to float16, whatever out's type is:
/// u_16 sum_j p_j |v_jc|, and n max|v| half float16's smallest number.
template <class T, class In = T>
class DecodeBound {
 public:
  using Acc = Accumulator<T>;
  DecodeBound(reference::AttentionRow const& row, std::int64_t head_dim, double parts,
              bool rounded_weights = false)
      : row_(row),
        whole_(row, head_dim, rounded_weights && !float8),
        float16_weights_(rounded_weights && float8) {
    double const u = precision<Acc>().roundoff;
    double const log_n = std::log(static_cast<double>(row.probability.size()) + 1);
    double largest = std::isfinite(row.sink) ? std::abs(row.sink) : 0.0;
    for (double m : row.score_magnitude)
      if (std::isfinite(m)) largest = std::max(largest, m);
    extra_ = u * (math_ulps * (log_n + 1) + 2 * (2 * largest + log_n) + 6 + growth(parts));
  }

  template <class Column>
  double out(std::size_t c, Column const& v) const {
    double size = 0, largest = 0;
    for (std::size_t j = 0; j < row_.probability.size(); ++j) {
      double const magnitude = std::abs(v(static_cast<std::int64_t>(j)));
      if (row_.probability[j] > 0) size += row_.probability[j] * magnitude;
      largest = std::max(largest, magnitude);
    }
    double error = oracle_factor<Acc>() * extra_ * (size + std::abs(row_.out[c]));
    auto const n = static_cast<double>(row_.probability.size());
    if (float16_weights_)
      error +=
          precision<float16>().roundoff * size + n / 2 * precision<float16>().smallest * largest;
    // Twice, for what rounding to T makes of the larger error.
    return whole_.out(c, v) + 2 * error;
  }

  double lse() const {
    double const u = precision<Acc>().roundoff;
    return whole_.lse() +
           oracle_factor<Acc>() * (extra_ + (std::isfinite(row_.lse) ? u * std::abs(row_.lse) : 0));
  }

 private:
  static constexpr bool float8 = std::is_same_v<In, float8_e4m3> || std::is_same_v<In, float8_e5m2>;

  reference::AttentionRow const& row_;
  AttentionBound<T> whole_;
  bool float16_weights_;
  double extra_;
};

}  // namespace attikos::test
