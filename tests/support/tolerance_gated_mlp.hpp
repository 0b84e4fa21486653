// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of gated_mlp and its gradients, per element, in the notation of tolerance.hpp.
#pragma once

#include <attikos/reference/gated_mlp_reference.hpp>

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
struct GatedMlpErrors {
  double gate, up, act, slope;
};

template <class Acc>
GatedMlpErrors gated_mlp_errors(std::int64_t hidden, reference::GatedMlpElement const& e) {
  double const u = precision<Acc>().roundoff;
  double const k = static_cast<double>(hidden);
  double const lost = k * precision<Acc>().smallest;
  double const gate = growth(k) * u * e.gate_magnitude + lost;
  return {gate, growth(k) * u * e.up_magnitude + lost,
          act_first * gate + (2 * math_ulps + 8) * u * std::abs(e.gate),
          act_second * gate + (2 * math_ulps + 16) * u * act_first};
}

/// out = act(gate) up: the product's error to second order, one rounding, and storing.
template <class Acc, class Out>
double gated_mlp_bound(std::int64_t hidden, reference::GatedMlpElement const& e, double act) {
  auto const r = gated_mlp_errors<Acc>(hidden, e);
  double const u = precision<Acc>().roundoff;
  double error = r.act * (std::abs(e.up) + r.up) + std::abs(act) * r.up;
  error += u * (std::abs(e.value) + error) + precision<Acc>().smallest_normal;
  return oracle_factor<Acc>() * error + rounding<Out>(std::abs(e.value) + error);
}

/// Error of dgate = (dout up) act'(gate), two products: two roundings.
template <class Acc>
double dgate_bound(std::int64_t hidden, reference::GatedMlpElement const& e, double dout,
                   double slope) {
  auto const r = gated_mlp_errors<Acc>(hidden, e);
  double const error =
      std::abs(dout) * (r.up * (std::abs(slope) + r.slope) + std::abs(e.up) * r.slope);
  return error + 2 * precision<Acc>().roundoff * (std::abs(dout * e.up * slope) + error) +
         precision<Acc>().smallest_normal;
}

/// Error of dup = dout act(gate), one product.
template <class Acc>
double dup_bound(std::int64_t hidden, reference::GatedMlpElement const& e, double dout,
                 double act) {
  double const error = std::abs(dout) * gated_mlp_errors<Acc>(hidden, e).act;
  return error + precision<Acc>().roundoff * (std::abs(dout * act) + error) +
         precision<Acc>().smallest_normal;
}

/// A gradient, which is a sum of `terms` products whose first factor has an error: `inherited` is
/// the sum of error times |second factor|, `magnitude` that of |first| |second|. Each gemm adds its
/// own six roundings at most (see gemm_bound()), and so does each of the `parts` that the sum is
/// made in.
template <class Acc, class Out>
double gradient_bound(double terms, double parts, double value, double magnitude,
                      double inherited) {
  double const u = precision<Acc>().roundoff;
  double const error = inherited + (growth(terms) + 6 * parts) * u * (magnitude + inherited) +
                       terms * precision<Acc>().smallest;
  return oracle_factor<Acc>() * error + rounding<Out>(std::abs(value) + error);
}

/// |(L(s + h) - L(s - h)) / 2h - L'(s)| <= h^2 / 6 max|L'''| + (error of the two values) / 2h.
inline double difference_bound(double h, double third, double error) {
  return h * h / 6 * third + error / h;
}

}  // namespace attikos::test
