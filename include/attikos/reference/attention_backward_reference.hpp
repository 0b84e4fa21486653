// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of `attention_backward`: one sequence and head at a time, plain loops over
/// all pairs, nothing shared with the kernels; and the forward pass in any number type, so that
/// gradients can be checked by complex steps.
#pragma once

#include <algorithm>
#include <attikos/config.hpp>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// A row-major matrix.
template <class Number>
struct MatrixOf {
  std::int64_t rows = 0, cols = 0;
  std::vector<Number> x = {};
  MatrixOf(std::int64_t m, std::int64_t n) : rows(m), cols(n), x(static_cast<std::size_t>(m * n)) {}
  Number& operator()(std::int64_t i, std::int64_t j) {
    return x[static_cast<std::size_t>(i * cols + j)];
  }
  Number const& operator()(std::int64_t i, std::int64_t j) const {
    return x[static_cast<std::size_t>(i * cols + j)];
  }
};
using Matrix = MatrixOf<double>;

/// How scores come about; all but scale and softcap are functions of query i and key j.
struct AttentionModel {
  using Pair = std::function<double(std::int64_t, std::int64_t)>;
  using Map = std::function<double(double, std::int64_t, std::int64_t)>;
  double scale = 1, softcap = 0;
  std::function<bool(std::int64_t, std::int64_t)> sees = [](auto, auto) { return true; };
  Pair alibi = [](auto, auto) { return 0.0; };  ///< what ALiBi adds
  Pair weight = [](auto, auto) { return 1.0; };
  Map score = {}, score_slope = {};  ///< functor and its derivative, empty where there is none
};

/// out and log-sum-exp of one head. `score` maps a Number; `sink` joins the denominator.
template <class Number, class Score>
void attention_forward(AttentionModel const& model, MatrixOf<Number> const& q,
                       MatrixOf<Number> const& k, MatrixOf<Number> const& v,
                       MatrixOf<Number> const& bias, Number sink, Score const& score,
                       MatrixOf<Number>& out, std::vector<Number>& lse) {
  double const low = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < q.rows; ++i) {
    std::vector<Number> s(static_cast<std::size_t>(k.rows));
    std::vector<bool> seen(s.size(), false);
    double top = low;
    for (std::int64_t j = 0; j < k.rows; ++j) {
      if (!model.sees(i, j) || model.weight(i, j) == 0) continue;
      Number x = 0;
      for (std::int64_t c = 0; c < q.cols; ++c) x += q(i, c) * k(j, c);
      x *= model.scale;
      if (model.softcap > 0) x = model.softcap * std::tanh(x / model.softcap);
      x = score(x + bias(i, j) + model.alibi(i, j), i, j);
      auto const at = static_cast<std::size_t>(j);
      s[at] = x;
      seen[at] = std::real(x) > low;
      if (seen[at]) top = std::max(top, std::real(x));
    }
    for (std::int64_t c = 0; c < v.cols; ++c) out(i, c) = 0;
    lse[static_cast<std::size_t>(i)] = low;
    if (top == low) continue;
    top = std::max(top, std::real(sink));
    Number sum = std::real(sink) == low ? Number(0) : std::exp(sink - top);
    for (std::int64_t j = 0; j < k.rows; ++j) {
      auto const at = static_cast<std::size_t>(j);
      if (!seen[at]) continue;
      Number const p = model.weight(i, j) * std::exp(s[at] - top);
      sum += p;
      for (std::int64_t c = 0; c < v.cols; ++c) out(i, c) += p * v(j, c);
    }
    for (std::int64_t c = 0; c < v.cols; ++c) out(i, c) /= sum;
    lse[static_cast<std::size_t>(i)] = top + std::log(sum);
  }
}

/// One pair on the way back, with what an error bound needs to know about it.
struct AttentionPair {
  bool seen = false;
  double magnitude = 0;                   ///< |scale| sum |q| |k|
  double raw = 0;                         ///< scale q·k
  double capped = 0;                      ///< softcap's tanh
  double before = 0, after = 0;           ///< the score without and with the functor
  double slope = 1;                       ///< the functor's derivative
  double p = 0;                           ///< w e^(s − lse)
  double dprob = 0, dprob_magnitude = 0;  ///< dout·v
  double d_bias = 0, d_dot = 0;           ///< gradients of what is added to the score and of q·k
};

struct AttentionGradients {
  MatrixOf<AttentionPair> pairs;
  std::vector<double> delta, delta_magnitude;  ///< dout·out by row
  Matrix dq, dk, dv;
  double d_sink = 0;
};

/// Gradients of one head from what the forward pass wrote. Rows whose lse is −∞ have none.
inline AttentionGradients attention_gradients(AttentionModel const& model, Matrix const& q,
                                              Matrix const& k, Matrix const& v, Matrix const& bias,
                                              double sink, Matrix const& out,
                                              std::vector<double> const& lse, Matrix const& dout) {
  double const low = -std::numeric_limits<double>::infinity();
  AttentionGradients r{{q.rows, k.rows}, {}, {}, {q.rows, q.cols}, {k.rows, k.cols},
                       {v.rows, v.cols}};
  for (std::int64_t i = 0; i < q.rows; ++i) {
    double const row_lse = lse[static_cast<std::size_t>(i)];
    double delta = 0, magnitude = 0;
    for (std::int64_t c = 0; c < v.cols && row_lse != low; ++c) {
      delta += dout(i, c) * out(i, c);
      magnitude += std::abs(dout(i, c) * out(i, c));
    }
    r.delta.push_back(delta);
    r.delta_magnitude.push_back(magnitude);
    if (row_lse == low) continue;
    r.d_sink -= std::exp(sink - row_lse) * delta;
    for (std::int64_t j = 0; j < k.rows; ++j) {
      double const w = model.sees(i, j) ? model.weight(i, j) : 0;
      if (w == 0) continue;
      AttentionPair& e = r.pairs(i, j);
      for (std::int64_t c = 0; c < q.cols; ++c) {
        e.raw += q(i, c) * k(j, c);
        e.magnitude += std::abs(q(i, c) * k(j, c));
      }
      e.raw *= model.scale;
      e.magnitude *= std::abs(model.scale);
      if (model.softcap > 0) e.capped = std::tanh(e.raw / model.softcap);
      e.before =
          (model.softcap > 0 ? model.softcap * e.capped : e.raw) + bias(i, j) + model.alibi(i, j);
      e.after = model.score ? model.score(e.before, i, j) : e.before;
      if (e.after == low) continue;
      e.seen = true;
      if (model.score) e.slope = model.score_slope(e.before, i, j);
      e.p = w * std::exp(e.after - row_lse);
      for (std::int64_t c = 0; c < v.cols; ++c) {
        e.dprob += dout(i, c) * v(j, c);
        e.dprob_magnitude += std::abs(dout(i, c) * v(j, c));
        r.dv(j, c) += e.p * dout(i, c);
      }
      e.d_bias = e.p * (e.dprob - delta) * e.slope;
      e.d_dot = e.d_bias * (1 - e.capped * e.capped) * model.scale;
      for (std::int64_t c = 0; c < q.cols; ++c) {
        r.dq(i, c) += e.d_dot * k(j, c);
        r.dk(j, c) += e.d_dot * q(i, c);
      }
    }
  }
  return r;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
