// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error bounds of attention's gradients, per element. Notation and building blocks are those of
// tolerance.hpp. q, k, v, dout, out and lse are exact: oracle and kernel read the same stored
// numbers.
//
// Scores, by pair, with M = |scale| sum|q||k|:
//   q·k·scale    (growth(d) + 3) u M                   sum, scale to Acc, product
//   softcap c    t = tanh(x/c): the argument has three roundings more (c to Acc, quotient, and c
//                again on the way out), tanh math_ulps u |t|; its slope is at most 1
//   1 − t²       2|t| e_t + e_t² and two roundings
//   bias, ALiBi  conversion to Acc, slope·distance, and an addition each: 2u|bias| + 3u|alibi| +
//                2u (sum of magnitudes)
//   functor f    |f'| e + curvature e², its own arithmetic 4u (|f'||s| + curvature s²); its
//                derivative curvature e + 2u (|f'| + curvature |s|)
// Then p = w e^(s − lse): u|s − lse| from the difference, all of it relative behind exp, which adds
// math_ulps u; the weight's conversion and product 2u. Numbers below the smallest normal one may be
// lost. dout·v and dout·out are sums, growth(dv) u sum|dout||v|. The gradient of the score is a
// product of these; Approximate carries errors through differences and products without dropping
// second-order terms. dq, dk, dv, d_bias and d_sinks are sums of such numbers times exact ones.
//
// Kernels on tensor cores, and of hosts on dot-product instructions (`PairRounding`), multiply
// 16-bit numbers, and in units of the base-2 exponent:
//   p            rounded to T before it goes into dv and into the gradient of the score
//   that         rounded to T before it goes into dq and dk; the scale is applied to their sums.
//                What goes into d_bias and to functors is neither. These and d_sinks are sums of
//                numbers of type Acc in that type: without norms whatever T, since the bound of
//                each is of roundings of Acc alone, far below a wrong scale or an omitted pair
//   lse·log2(e)  the constant and a product: 2u|lse| more in the exponent
//   tanh         1 − 2/(e^2x + 1): 12u, of the exponential 4u and its argument's rounding, halved
//   by
//                its slope, of the sum, the reciprocal and the difference 2u of at most 2 each
//   sums         tensor cores add up 16 products at once and cut off what does not fit: half a unit
//                of the largest number for each of these and of the sum so far, two of the result.
//                Such errors do not cancel: (n + 10) u in place of growth(n) u
#pragma once

#include <attikos/reference/attention_backward_reference.hpp>
#include <cmath>

#include "tolerance.hpp"

namespace attikos::test {

/// A number and how far off the computed one may be.
template <class Acc>
struct Approximate {
  double value = 0, error = 0;

  friend Approximate operator*(Approximate const& a, Approximate const& b) {
    double const product = a.value * b.value;
    double const error = std::abs(a.value) * b.error + a.error * (std::abs(b.value) + b.error);
    return {product, error + precision<Acc>().roundoff * (std::abs(product) + error) +
                         precision<Acc>().smallest_normal};
  }
  friend Approximate operator-(Approximate const& a, Approximate const& b) {
    double const difference = a.value - b.value, error = a.error + b.error;
    return {difference, error + precision<Acc>().roundoff * (std::abs(difference) + error)};
  }
};

/// What kernels on tensor cores that round weights and gradients of scores to a type lose by it;
/// nothing for the others.
struct PairRounding {
  double roundoff = 0, smallest = 0;

  template <class T>
  static PairRounding to() {
    return {precision<T>().roundoff, precision<T>().smallest};
  }
  bool tensor_cores() const { return roundoff != 0; }
  double growth(double terms) const { return tensor_cores() ? terms + 10 : test::growth(terms); }
  template <class Acc>
  Approximate<Acc> operator()(Approximate<Acc> const& x) const {
    return {x.value, x.error + roundoff * (std::abs(x.value) + x.error) + smallest};
  }
};

/// A sum of products whose first factors have errors; the second ones are exact.
template <class Acc>
struct InexactSum {
  double value = 0, magnitude = 0, inherited = 0, terms = 0;

  void add(Approximate<Acc> const& a, double b = 1) {
    value += a.value * b;
    magnitude += std::abs(a.value * b);
    inherited += a.error * std::abs(b);
    terms += 1;
  }
  template <class Out>
  double bound(PairRounding const& rounded = {}) const {
    double const u = precision<Acc>().roundoff;
    double const error = inherited + rounded.growth(terms) * u * (magnitude + inherited) +
                         terms * precision<Acc>().smallest;
    return terms == 0 ? 0 : oracle_factor<Acc>() * error + rounding<Out>(std::abs(value) + error);
  }
};

/// Errors of one pair's numbers.
template <class Acc>
struct PairBound {
  Approximate<Acc> p, d_bias, d_dot;

  /// \param curvature  bound of the functor's second derivative
  PairBound(reference::AttentionModel const& model, reference::AttentionPair const& e, double bias,
            double alibi, double lse, Approximate<Acc> const& delta, std::int64_t d,
            std::int64_t dv, double curvature, PairRounding const& rounded = {}) {
    double const u = precision<Acc>().roundoff;
    double const tiny = precision<Acc>().smallest_normal;
    double score = (rounded.growth(static_cast<double>(d)) + 3) * u * e.magnitude +
                   static_cast<double>(d) * precision<Acc>().smallest;
    double base = std::abs(e.raw);
    Approximate<Acc> cap{1, 0};
    if (model.softcap > 0) {
      double const c = model.softcap, t = std::abs(e.capped);
      double const tanh_error = score / c + 3 * u * (base + score) / c + math_ulps * u * t +
                                (rounded.tensor_cores() ? 12 * u : 0);
      score = c * tanh_error + 2 * u * c * (t + tanh_error);
      base = c * t;
      cap = {1 - t * t, tanh_error * (2 * t + tanh_error) + 2 * u};
    }
    score += 2 * u * std::abs(bias) + 3 * u * std::abs(alibi) +
             2 * u * (base + std::abs(bias) + std::abs(alibi) + score);
    Approximate<Acc> slope{e.slope, 0};
    if (model.score) {
      double const s = std::abs(e.before), f = std::abs(e.slope);
      slope.error = curvature * score + 2 * u * (f + curvature * s);
      score = (f + curvature * score) * score + 4 * u * (f * s + curvature * s * s);
    }
    double const exponent = score + u * (std::abs(e.after - lse) + score) + (math_ulps + 2) * u +
                            (rounded.tensor_cores() ? 2 * u * std::abs(lse) : 0);
    Approximate<Acc> const weight{e.p, e.p * std::expm1(exponent) + tiny};
    p = rounded(weight);
    Approximate<Acc> const dprob{e.dprob,
                                 rounded.growth(static_cast<double>(dv)) * u * e.dprob_magnitude};
    d_bias = weight * (dprob - delta) * slope;
    d_dot = rounded(p * (dprob - delta) * slope) * cap *
            Approximate<Acc>{model.scale, u * std::abs(model.scale)};
  }
};

/// dout·out of a row.
template <class Acc>
Approximate<Acc> delta_bound(double value, double magnitude, std::int64_t dv) {
  return {value, growth(static_cast<double>(dv)) * precision<Acc>().roundoff * magnitude +
                     static_cast<double>(dv) * precision<Acc>().smallest};
}

/// e^(sink − lse), exactly 0 for a sink of −∞.
template <class Acc>
Approximate<Acc> sink_bound(double sink, double lse) {
  if (std::isinf(sink)) return {};
  double const u = precision<Acc>().roundoff, p = std::exp(sink - lse);
  return {p, p * std::expm1(u * (std::abs(sink) + std::abs(sink - lse)) + math_ulps * u) +
                 precision<Acc>().smallest_normal};
}

}  // namespace attikos::test
