// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Runs a kernel of attention's gradients on a case and compares what it writes with float64.
#pragma once

#include "direct_attention_backward.hpp"

namespace {

/// A number and how far off a kernel's may be; how far without what roundings to T come to, and
/// the variance of those.
struct Inexact {
  double value, error, steady, variance = 0;
};

/// One element of a gradient as the oracle adds it up.
struct GradientSum {
  double value = 0, magnitude = 0, inherited = 0, terms = 0, steady = 0, variance = 0;
  void add(Inexact const& a, double b) {
    steady += a.steady * std::abs(b), variance += a.variance * b * b;
    value += a.value * b, magnitude += std::abs(a.value * b), inherited += a.error * std::abs(b);
    terms += 1;
  }
};

double worst_backward_ratio = 0;

/// Gradients in float64, and how far a kernel's may be off.
///
/// With u = 2^-24 (of float64 2^-53) times `units`, u_T half the spacing of T at 1 and t_T half its
/// smallest number: scores have an error of (d + 13) u sum|scale||q||k|, as tensor cores cut off at
/// most 10.5 u for each 16 products that they begin with; the exponent s - lse, in units of
/// log2(e), 3 u |lse| + u |s - lse| more, and exp2 with its argument 12 u. Softcap's tanh, 1 -
/// 2/(e^2x + 1), is off by 12 u in addition to what its argument is off by: the exponential by a
/// rounded argument and 4 u, which 2e/(e + 1)² <= 1/2 takes down, the reciprocal, the sum and the
/// difference 2 u or less of at most 2 each. A capped score, a bias and ALiBi are rounded,
/// converted to log2(e) and added, 4 u of the largest of the sums.
///
/// Weights p and then p (dout·v - dout·out), times softcap's derivative 1 - h², are rounded to T,
/// an error of u_T and t_T each, on top of those of the sums, (dv + 10) u sum|dout||v| and (dv +
/// 10) u sum|dout||out|, of the difference and the products, u each, and of the derivative, 2 |h|
/// that of the tanh. The gradient of a bias is p (dout·v - dout·out) rounded to its own type. A
/// gradient of n terms inherits their errors, adds (n + 10) u of their magnitudes, 3 u for the
/// scale, and is rounded.
///
/// Of norms (error_norms.hpp) the roundings of weights and of gradients of scores are independent
/// from pair to pair, and shared by a row of a gradient, unless some row's weights are all alike.
template <class T>
class GradientOracle {
 public:
  GradientOracle(BackwardProblem<T> const& problem, double units)
      : x(problem), u((is_double ? 0x1p-53 : 0x1p-24) * units) {
    x.d_bias.visit([&](auto const& tensor) { d_bias = sums_of(tensor); });
    for (auto const& e : x.all)
      for (std::int64_t h = 0; e.batch >= 0 && h < t.heads; ++h) add_head(e, h);
  }

  /// Compares results().
  void compare(std::vector<std::vector<unsigned char>> const& got) const {
    check(x.dq, dq, got[0], x.scale(), unit, smallest, "dq");
    check(x.dk, dk, got[1], x.scale(), unit, smallest, "dk");
    check(x.dv, dv, got[2], 1, unit, smallest, "dv");
    if (t.sinks)
      check(x.d_sinks, d_sinks, got[3], 1, 0x1p-24, 0x1p-126, "d_sinks");
    else
      EXPECT_EQ(got[3] == x.d_sinks.host, true) << "d_sinks was written";
    x.d_bias.visit([&](auto const& tensor) {
      using Element = std::remove_cvref_t<decltype(*tensor.begin())>;
      bool const half = std::is_same_v<Element, __half>;
      check(tensor, d_bias, got[4], 1, rounding<Element>(), half ? 0x1p-25 : 0x1p-126, "d_bias");
    });
  }

 private:
  using Sums = std::vector<GradientSum>;

  /// A head of a sequence: its place in the tensors, and its rows.
  struct Head {
    Sequence const& e;
    std::int64_t h, bq, bk, hk;
    std::vector<double> q, dout, out, k, v;
  };
  /// A row of queries: delta is dout·out.
  struct Row {
    std::int64_t i;
    double lse, delta, delta_error;
  };
  /// What a pair adds to gradients: rounded to T the weight and the gradient of the score; and
  /// the latter as a bias gets it.
  struct Pair {
    double p;
    Inexact weight, gradient, of_bias;
  };

  static constexpr bool is_double = std::is_same_v<T, double>;
  BackwardProblem<T> const& x;
  Case const& t = x.t;
  double const u, unit = rounding<T>(),
                  smallest = std::is_same_v<T, __half> ? 0x1p-25
                             : is_double               ? 0x1p-1074
                                                       : 0x1p-134,
                  tiny = is_double ? 0x1p-1022 : 0x1p-126;
  Sums dq = sums_of(x.dq), dk = sums_of(x.dk), dv = sums_of(x.dv), d_sinks = sums_of(x.d_sinks),
       d_bias;
  bool independent = true;

  template <class Tensor>
  static Sums sums_of(Tensor const& tensor) {
    std::size_t n = 1;
    for (auto e : tensor.extent) n *= static_cast<std::size_t>(e);
    return Sums(n);
  }
  template <class Tensor>
  static GradientSum* row_of(Sums& sums, Tensor const& tensor, std::int64_t b, std::int64_t h,
                             std::int64_t s) {
    return &sums[static_cast<std::size_t>(((b * tensor.extent[1] + h) * tensor.extent[2] + s) *
                                          tensor.extent[3])];
  }
  Inexact round(Inexact a) const {
    double const rounded = unit * (std::abs(a.value) + a.error);
    return {a.value, a.error + rounded + smallest, a.steady + smallest,
            a.variance + rounded * rounded / 3};
  }

  void add_head(Sequence const& e, std::int64_t h) {
    std::int64_t const bq = x.packed_q ? 0 : e.batch, bk = x.packed_kv ? 0 : e.batch;
    std::int64_t const hk = h / (t.heads / t.heads_kv);
    Head const head{e,
                    h,
                    bq,
                    bk,
                    hk,
                    x.rows(x.q, bq, h, e.begin_q, e.len_q),
                    x.rows(x.dout, bq, h, e.begin_q, e.len_q),
                    x.rows(x.out, bq, h, e.begin_q, e.len_q),
                    x.rows(x.k, bk, hk, e.begin_kv, e.len_kv),
                    x.rows(x.v, bk, hk, e.begin_kv, e.len_kv)};
    for (std::int64_t i = 0; i < e.len_q; ++i) add_row(head, i);
  }

  void add_row(Head const& head, std::int64_t i) {
    double const lse = x.lse.value(head.bq, head.h, head.e.begin_q + i, 0);
    if (lse == -infinity) return;
    auto const [delta, size] = x.dot(head.dout, i, head.out, i, t.dv);
    Row const row{i, lse, delta, (static_cast<double>(t.dv) + 10) * u * size};
    if (t.sinks) add_sink(head, row);
    std::vector<std::pair<std::int64_t, double>> weights;
    for (std::int64_t j = 0; j < head.e.len_kv; ++j) {
      if (!x.sees(head.e, head.h, i, j)) continue;
      Pair const pair = pair_of(head, row, j);
      weights.push_back({j, pair.p});
      add_pair(head, i, j, pair);
    }
    independent = independent && (weights.size() < 8 || !is_narrow(weights, unit));
  }

  void add_sink(Head const& head, Row const& row) {
    double const s = x.sinks[static_cast<std::size_t>(head.h)], p = std::exp(s - row.lse);
    double const error =
        p * std::expm1(3 * u * (std::abs(s) + std::abs(row.lse) + std::abs(s - row.lse)) + 12 * u);
    auto& sum = d_sinks[static_cast<std::size_t>(head.h)];
    sum.add({-p, error + tiny, error + tiny}, row.delta);
    sum.inherited += (p + error) * row.delta_error, sum.steady += (p + error) * row.delta_error;
  }

  Pair pair_of(Head const& head, Row const& row, std::int64_t j) const {
    bool const has_terms = t.softcap > 0 || t.alibi || t.bias != 0;
    double const scale = x.scale();
    auto const [raw, size] = x.dot(head.q, row.i, head.k, j, t.d);
    auto const [product, product_size] = x.dot(head.dout, row.i, head.v, j, t.dv);
    Score const score = x.score(head.e, head.h, row.i, j, raw * scale);
    double const s = score.value, p = std::exp(s - row.lse);
    double const raw_error = (static_cast<double>(t.d) + 13) * u * std::abs(scale) * size;
    double const cap_error = t.softcap > 0 ? 12 * u : 0;
    double const exponent = raw_error + t.softcap * cap_error + 3 * u * std::abs(row.lse) +
                            u * std::abs(s - row.lse) + (has_terms ? 4 * u * score.terms : 0) +
                            12 * u;
    double const off_by = p * std::expm1(exponent) + tiny;
    Inexact const exact{p, off_by, off_by};
    double const difference = product - row.delta;
    double off = (static_cast<double>(t.dv) + 10) * u * product_size + row.delta_error;
    off += u * (std::abs(difference) + off);
    // The derivative, of which weights are a factor before or after they are rounded.
    double const slope = score.derivative;
    double const slope_error = t.softcap > 0 ? 2 * (raw_error / t.softcap + cap_error) + 2 * u : 0;
    Inexact const sloped = round({p * slope, p * slope_error + exact.error * (slope + slope_error),
                                  p * slope_error + exact.error * (slope + slope_error)});
    double steady = std::abs(sloped.value) * off + sloped.steady * (std::abs(difference) + off);
    double error = std::abs(sloped.value) * off + sloped.error * (std::abs(difference) + off);
    error += 3 * u * (std::abs(sloped.value * difference) + error) + tiny;
    steady += 3 * u * (std::abs(sloped.value * difference) + error) + tiny;
    Inexact const gradient =
        round({sloped.value * difference, error, steady,
               sloped.variance * (std::abs(difference) + off) * (std::abs(difference) + off)});
    double const of_bias = p * off + exact.error * (std::abs(difference) + off);
    return {p, round(exact), gradient, {p * difference, of_bias + tiny, of_bias + tiny}};
  }

  void add_pair(Head const& head, std::int64_t i, std::int64_t j, Pair const& pair) {
    Sequence const& e = head.e;
    if (!d_bias.empty()) {
      auto const place = ((e.batch * t.heads + head.h) * t.len_q + i) * t.len_kv + j;
      d_bias[static_cast<std::size_t>(place)].add(pair.of_bias, 1);
    }
    std::size_t const row = static_cast<std::size_t>(i * t.d),
                      col = static_cast<std::size_t>(j * t.d);
    GradientSum* const to_q = row_of(dq, x.dq, head.bq, head.h, e.begin_q + i);
    GradientSum* const to_k = row_of(dk, x.dk, head.bk, head.hk, e.begin_kv + j);
    for (std::size_t c = 0; c < static_cast<std::size_t>(t.d); ++c)
      to_q[c].add(pair.gradient, head.k[col + c]), to_k[c].add(pair.gradient, head.q[row + c]);
    GradientSum* const to_v = row_of(dv, x.dv, head.bk, head.hk, e.begin_kv + j);
    for (std::size_t c = 0; c < static_cast<std::size_t>(t.dv); ++c)
      to_v[c].add(pair.weight, head.dout[static_cast<std::size_t>(i * t.dv) + c]);
  }

  /// How far off a gradient of `factor` times this sum may be.
  double bound_of(GradientSum const& sum, double factor, double unit_out,
                  double smallest_out) const {
    if (sum.terms == 0) return 0;
    double bound = sum.inherited + (sum.terms + 10) * u * (sum.magnitude + sum.inherited) + tiny;
    bound = std::abs(factor) * (bound + 3 * u * (std::abs(sum.value) + bound));
    return bound + unit_out * (std::abs(sum.value * factor) + bound) + smallest_out;
  }

  template <class Tensor>
  void check(Tensor const& tensor, Sums const& sums, std::vector<unsigned char> const& bytes,
             double factor, double unit_out, double smallest_out, char const* what) const {
    using Element = std::remove_cvref_t<decltype(*tensor.begin())>;
    auto untouched = tensor.host;
    std::size_t n = 0;
    ResultNorms<Element> norms;
    for (std::int64_t b = 0; b < tensor.extent[0]; ++b)
      for (std::int64_t h = 0; h < tensor.extent[1]; ++h)
        for (std::int64_t s = 0; s < tensor.extent[2]; ++s, norms.end_row())
          for (std::int64_t c = 0; c < tensor.extent[3]; ++c) {
            GradientSum const& sum = sums[n++];
            std::size_t const place = tensor.offset(b, h, s, c) * sizeof(Element);
            Element stored;
            std::memcpy(static_cast<void*>(&stored), &bytes[place], sizeof stored);
            std::memcpy(&untouched[place], &bytes[place], sizeof stored);
            double const value = wide(stored), expected = sum.value * factor;
            double const bound = bound_of(sum, factor, unit_out, smallest_out);
            if (independent && sum.terms != 0) {
              double const steady = bound -
                                    unit_out * (std::abs(expected) + bound) / (1 + unit_out) -
                                    std::abs(factor) * (sum.inherited - sum.steady);
              norms.add(
                  value, expected,
                  {steady,
                   test::rounding_variance(std::abs(expected) + bound, unit_out, 2 * smallest_out),
                   factor * factor * sum.variance});
            } else {
              norms.add(value, expected, bound);
            }
            double const off = std::abs(value - expected);
            double const ratio = off == 0 ? 0 : bound == 0 ? infinity : off / bound;
            if (!(ratio <= 1) && !testing::Test::HasFailure())
              ADD_FAILURE() << what << " [" << b << ", " << h << ", " << s << ", " << c << "] is "
                            << value << ", expected " << expected << " ± " << bound;
            if (!(ratio <= worst_backward_ratio))
              worst_backward_ratio = std::isnan(ratio) ? infinity : ratio;
          }
    test::keep_worst_ratio("direct attention_backward", worst_backward_ratio);
    norms.check("direct attention_backward", what);
    EXPECT_EQ(untouched == bytes, true) << "memory around " << what << " was written";
  }
};

/// Compares results() with float64.
template <class T>
void compare_gradients(BackwardProblem<T> const& x,
                       std::vector<std::vector<unsigned char>> const& got, double units = 1) {
  GradientOracle<T>(x, units).compare(got);
}

inline std::string describe(Case const& t, Beside const& more) {
  std::ostringstream text;
  text << "batch" << t.batch << " heads" << t.heads << "/" << t.heads_kv << " q" << t.len_q << " kv"
       << t.len_kv << " d" << t.d << "/" << t.dv << " causal" << t.causal << t.top_left
       << " window " << t.left << ' ' << t.right << " scale " << (more.unscaled ? -0.0 : t.scale)
       << " cap " << t.softcap << " alibi" << t.alibi << " bias" << t.bias << " d_bias"
       << (more.d_bias ? dtype_name(*more.d_bias) : "") << " mask" << more.mask << " sinks"
       << t.sinks << " order " << static_cast<int>(t.order) << static_cast<int>(t.order_out)
       << " lengths " << t.lengths_q.size() << ' ' << t.lengths_kv.size() << " packed "
       << t.cu_q.size() << ' ' << t.cu_kv.size() << (t.wide ? " wide" : "")
       << (more.ordered ? "" : " unordered") << " shared " << more.shared_bytes;
  return text.str();
}

/// Runs a case for devices of all multiprocessors, of 1 and of 3, the last of next to no L2, and
/// once more with strides of no account that no kernel could use, and compares every element with
/// float64. Ordered, all bits must agree.
template <class Kernel>
void run_backward(Case const& t, Beside const& more = {}) {
  using T = ElementOf<Kernel>;
  SKIP_IF_LEFT_OUT(Kernel);
  Device real = abi::query_device(abi::current_device());
  ASSERT_GE(real.compute_major, 8) << "this suite needs a card of compute capability 8.0";
  if (more.shared_bytes != 0) real.shared_memory_per_block_optin = more.shared_bytes;
  SCOPED_TRACE(describe(t, more) + ' ' + Kernel::name);
  BackwardProblem<T> x(t, more);
  AttentionBackwardArgs a = x.arguments();
  DirectWorkspace memory(Kernel::workspace_bytes(a, real));
  a.workspace = memory.begin();
  GradientOracle<T> const oracle(x, ArithmeticOf<Kernel>::units);
  std::vector<std::vector<unsigned char>> first;
  int const devices[][2] = {
      {real.sm_count, real.l2_bytes}, {1, real.l2_bytes}, {3, 1}, {real.sm_count, 1}};
  for (auto const& [sm_count, l2_bytes] : devices) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count) + " L2 " + std::to_string(l2_bytes));
    Device d = real;
    d.sm_count = sm_count, d.l2_bytes = l2_bytes;
    if (sm_count == 3) mislead(a);
    x.forget_results();
    memory.forget();
    poison_shared_memory();
    ASSERT_STREQ(Kernel::accepts(a, d).reason, "");
    ASSERT_EQ(Kernel::workspace_bytes(a, d), Kernel::workspace_bytes(a, real));
    ASSERT_EQ(Kernel::launch(a, d, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    auto const results = x.results();
    EXPECT_TRUE(memory.is_kept()) << "memory behind the workspace was written";
    if (first.empty() || !more.ordered) oracle.compare(results);
    if (first.empty()) first = results;
    if (more.ordered) {
      ASSERT_EQ(results == first, true) << "bits depend on the device, or on the run";
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
