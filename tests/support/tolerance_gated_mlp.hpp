// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of gated_mlp and its gradients, per element, in the notation of tolerance.hpp.
#pragma once

#include <attikos/reference/gated_mlp_reference.hpp>

#include "error_norms.hpp"
#include "tolerance.hpp"

namespace attikos::test {

/// Bounds of the derivatives of silu, gelu and gelu_tanh over the real line: the largest are 1.1290
/// (gelu), 0.7979 (gelu, at 0) and 0.7788 (gelu).
inline constexpr double act_first = 1.13;
inline constexpr double act_second = 0.8;
inline constexpr double act_third = 0.78;

/// Errors of one intermediate element as the kernels compute it, in the type `Acc`.
///   gate, up     growth(k) u sum|x||w|, and what is lost below the smallest number in k products
///   act          Lipschitz with act_first, and (2 math_ulps + 8) u |gate| of its own, as in
///                gemm_bound()
///   act'         Lipschitz with act_second, and (2 math_ulps + 16) u act_first of its own. With
///                s = sigmoid(t) from e = exp(-|t|), s, 1 - s and their product have relative
///                errors of (2 math_ulps + 4) u at most, since no difference is taken, and
///                s + |x t'| s (1 - s) <= 1.3; rounding t by 4 u |t| moves s by at most 0.9 u
///                (|t| s (1 - s) < 0.23) and the second term by 5.3 u (it is below 3 |t| s (1 - s),
///                and t^2 s (1 - s) < 0.44). With gelu's density the exponent -z^2 has an absolute
///                error of 4 u z^2, which |x| z^2 exp(-z^2) < 0.6 keeps below 1 u of the result.
///   rounded      gate and up may be stored in fewer bits (`P`), which moves them by no more than
///                `gate_stored`, `up_stored`
struct GatedMlpErrors {
  double gate, up, act, slope;
  double gate_stored = 0, up_stored = 0;
};

template <class Acc, class P = Acc>
GatedMlpErrors gated_mlp_errors(std::int64_t hidden, reference::GatedMlpElement const& e) {
  double const u = precision<Acc>().roundoff;
  double const k = static_cast<double>(hidden);
  double const lost = k * precision<Acc>().smallest;
  double const gate = growth(k) * u * e.gate_magnitude + lost;
  GatedMlpErrors errors{gate, growth(k) * u * e.up_magnitude + lost,
                        act_first * gate + (2 * math_ulps + 8) * u * std::abs(e.gate),
                        act_second * gate + (2 * math_ulps + 16) * u * act_first};
  if constexpr (!std::is_same_v<P, Acc>) {
    errors.gate_stored = rounding<P>(std::abs(e.gate) + errors.gate);
    errors.up_stored = rounding<P>(std::abs(e.up) + errors.up);
  }
  return errors;
}

/// An error in two parts: `steady` may have one sign everywhere, the other is a sum of independent
/// roundings of this variance, which λ standard deviations bound; see error_norms.hpp.
struct SplitError {
  double steady = 0, variance = 0;
  double bound() const { return steady + 6 * std::sqrt(variance); }
};

/// Variance of the rounding of a number to `P`; none where it is stored as it is.
template <class Acc, class P>
double stored_variance(double magnitude) {
  if constexpr (std::is_same_v<P, Acc>) return 0;
  return rounding_variance(magnitude, precision<P>().roundoff, precision<P>().smallest);
}

/// f(gate)·g(up)·dout for gate and up that were rounded: what is linear in the two roundings has a
/// variance, the rest, of second order, is steady. `slope`, `curve` bound f' and f''.
struct RoundedFactors {
  double f, slope, curve, g, by_up, dout;
};
template <class Acc, class P>
SplitError rounded_factors(GatedMlpErrors const& r, reference::GatedMlpElement const& e,
                           RoundedFactors const& x) {
  double const of_gate = x.slope * std::abs(x.g * x.dout), of_up = std::abs(x.f * x.by_up * x.dout);
  double const d = r.gate_stored, second = x.curve * d * d / 2;
  return {std::abs(x.dout) * (second * (std::abs(x.g) + std::abs(x.by_up) * r.up_stored) +
                              x.slope * d * std::abs(x.by_up) * r.up_stored),
          of_gate * of_gate * stored_variance<Acc, P>(std::abs(e.gate) + r.gate) +
              of_up * of_up * stored_variance<Acc, P>(std::abs(e.up) + r.up)};
}

/// out = act(gate) up before it is stored: the product's error to second order, one rounding.
template <class Acc, class P = Acc>
SplitError gated_mlp_error(std::int64_t hidden, reference::GatedMlpElement const& e, double act) {
  auto const r = gated_mlp_errors<Acc, P>(hidden, e);
  double const u = precision<Acc>().roundoff;
  SplitError split = rounded_factors<Acc, P>(r, e, {act, act_first, act_second, e.up, 1, 1});
  double error = r.act * (std::abs(e.up) + r.up + r.up_stored) + std::abs(act) * r.up +
                 act_first * r.gate_stored * r.up + split.steady;
  error += u * (std::abs(e.value) + error) + precision<Acc>().smallest_normal;
  return {oracle_factor<Acc>() * error, split.variance};
}

/// The same as it is stored.
template <class Acc, class Out>
double gated_mlp_bound(std::int64_t hidden, reference::GatedMlpElement const& e, double act) {
  double const error = gated_mlp_error<Acc>(hidden, e, act).steady;
  return error + rounding<Out>(std::abs(e.value) + error);
}

/// Error of dgate = (dout up) act'(gate), two products: two roundings, and that of its storing.
template <class Acc, class P = Acc>
SplitError dgate_error(std::int64_t hidden, reference::GatedMlpElement const& e, double dout,
                       double slope) {
  auto const r = gated_mlp_errors<Acc, P>(hidden, e);
  SplitError split = rounded_factors<Acc, P>(r, e, {slope, act_second, act_third, e.up, 1, dout});
  double const error =
      split.steady +
      std::abs(dout) * (r.up * (std::abs(slope) + r.slope + act_second * r.gate_stored) +
                        (std::abs(e.up) + r.up_stored) * r.slope);
  split.steady = error + 2 * precision<Acc>().roundoff * (std::abs(dout * e.up * slope) + error) +
                 precision<Acc>().smallest_normal;
  split.variance += stored_variance<Acc, P>(std::abs(dout * e.up * slope) + split.bound());
  return split;
}

/// Error of dup = dout act(gate), one product, and its storing.
template <class Acc, class P = Acc>
SplitError dup_error(std::int64_t hidden, reference::GatedMlpElement const& e, double dout,
                     double act) {
  auto const r = gated_mlp_errors<Acc, P>(hidden, e);
  SplitError split = rounded_factors<Acc, P>(r, e, {act, act_first, act_second, 1, 0, dout});
  double const error = split.steady + std::abs(dout) * r.act;
  split.steady = error + precision<Acc>().roundoff * (std::abs(dout * act) + error) +
                 precision<Acc>().smallest_normal;
  split.variance += stored_variance<Acc, P>(std::abs(dout * act) + split.bound());
  return split;
}

/// A gradient, which is a sum of `terms` products whose first factor has an error: `inherited` is
/// the sum of error times |second factor|, `magnitude` that of |first| |second|. Each gemm adds its
/// own six roundings at most (see gemm_bound()), and so does each of the `parts` that the sum is
/// made in. Without the rounding to its type.
template <class Acc>
double gradient_error(double terms, double parts, double magnitude, double inherited) {
  double const u = precision<Acc>().roundoff;
  double const error = inherited + (growth(terms) + 6 * parts) * u * (magnitude + inherited) +
                       terms * precision<Acc>().smallest;
  return oracle_factor<Acc>() * error;
}

/// The same as it is stored.
template <class Acc, class Out>
double gradient_bound(double terms, double parts, double value, double magnitude,
                      double inherited) {
  double const error = gradient_error<Acc>(terms, parts, magnitude, inherited);
  return error + rounding<Out>(std::abs(value) + error);
}

/// |(L(s + h) - L(s - h)) / 2h - L'(s)| <= h^2 / 6 max|L'''| + (error of the two values) / 2h.
inline double difference_bound(double h, double third, double error) {
  return h * h / 6 * third + error / h;
}

}  // namespace attikos::test
