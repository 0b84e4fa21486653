// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values up to the edge of what a type holds, in products and attention; extremes.hpp says what is
// promised.
#include <algorithm>
#include <attikos/reference/gated_mlp_reference.hpp>
#include <vector>

#include "../support/tolerance_attention.hpp"
#include "../support/tolerance_decode.hpp"
#include "extremes.hpp"

namespace attikos::test {
namespace {

TYPED_TEST_SUITE(Extremes, OneSpaceCases, CaseName);

/// A kernel, and how large scores and, beside the type's largest number, values may be: compiled
/// kernels subtract a rounded exponent of 2, which the largest may also exceed.
struct Promise {
  char const* kernel;
  double scores, values;
  bool exact;
};
template <class T>
std::vector<Promise> promises() {
  Promise const all{is_host_space<Exec> ? "" : "portable", largest<T>(), 1, true};
  if (is_host_space<Exec>) return {all};
  bool const wide = std::is_same_v<T, double>;
  return {all, {"", wide ? 0x1p60 : 0x1p29, wide ? 0x1p-64 : 0x1p-16, false}};
}

/// Attention by every algorithm and by decode, on the same tensors.
template <class T>
struct Heads {
  std::int64_t queries, keys, d;
  double scale;
  char const* kernel = "";       // or "portable"
  bool rounded_weights = false;  // by the call before
  Tensor<T, 4, Exec> q, k, v, out, dout, dq, dk, dv;
  Tensor<Accumulator<T>, 3, Exec> lse;
  Random random{9};

  Heads(std::int64_t m, std::int64_t n, std::int64_t width, double factor)
      : queries(m),
        keys(n),
        d(width),
        scale(factor),
        q({1, 1, m, d}),
        k({1, 1, n, d}),
        v({1, 1, n, d}),
        out({1, 1, m, d}),
        dout({1, 1, m, d}),
        dq({1, 1, m, d}),
        dk({1, 1, n, d}),
        dv({1, 1, n, d}),
        lse({1, 1, m}) {}

  /// Calls `check(what)` after each.
  template <class Check>
  void each(Check const& check) {
    char const* const names[] = {"flash", "tiled", "naive"};
    for (auto algorithm :
         {AttentionAlgorithm::flash, AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
      AttentionOptions const options{.softmax_scale = scale,
                                     .algorithm = algorithm,
                                     .kernel = *kernel == '\0' ? "" : portable_name(algorithm)};
      attention(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(), options);
      rounded_weights = rounds_weights<Exec>(explain(op::attention, Exec(), q.view(), k.view(),
                                                     v.view(), out.view(), lse.view(), options));
      out.download();
      lse.download();
      check(names[static_cast<int>(algorithm)]);
    }
    decode(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(),
           DecodeOptions{.softmax_scale = scale, .kernel = kernel, .splits = 3});
    rounded_weights = !is_host_space<Exec>;
    out.download();
    lse.download();
    check("decode");
  }

  void backward() {
    attention_backward(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(), dout.view(),
                       dq.view(), dk.view(), dv.view(),
                       AttentionOptions{.softmax_scale = scale, .kernel = kernel});
    dq.download();
    dk.download();
    dv.download();
  }

  void compare(char const* what) {
    Comparison values(name_of<T>("attention"), what), sums(name_of<T>("attention lse"), what);
    for (std::int64_t i = 0; i < queries; ++i) {
      auto const row = reference::attention_row(
          keys, d, d, scale, [&](std::int64_t c) { return q.value(0, 0, i, c); },
          [&](std::int64_t j, std::int64_t c) { return k.value(0, 0, j, c); },
          [&](std::int64_t j, std::int64_t c) { return v.value(0, 0, j, c); });
      DecodeBound<T> const bound(row, d, 3,
                                 rounded_weights);  // decode's, which is no less than attention's
      for (std::int64_t c = 0; c < d; ++c)
        values.add(out.value(0, 0, i, c), row.out[sz(c)],
                   bound.out(sz(c), [&](std::int64_t j) { return v.value(0, 0, j, c); }), {i, c});
      sums.add(lse.value(0, 0, i), row.lse, bound.lse(), {i});
    }
  }
};

// Scores of some hundreds, out of a query near the largest number and keys near its inverse.
TYPED_TEST(Extremes, LargeQueries) {
  using T = typename TypeParam::T;
  Heads<T> x(9, 150, 20, 1);
  fill_up_to(x.q, x.random, largest<T>());
  fill_up_to(x.k, x.random, 200 / largest<T>());
  // Some processors take subnormal numbers of bfloat16 for 0 (docs/precision.md).
  if (std::is_same_v<T, bfloat16>) {
    x.k.for_each([&](auto const& i) {
      if (std::abs(to_double(x.k.at(i))) < precision<T>().smallest_normal)
        x.k.at(i) = from_double<T>(0);
    });
    x.k.upload();
  }
  x.v.fill_uniform(x.random);
  x.each([&](char const* what) { x.compare(what); });
}

// float16 alone has products of its largest numbers that the accumulator holds.
TEST(ExtremesOfFloat16, LargeQueriesAndKeys) {
  double const top = largest<float16>();
  Heads<float16> x(9, 150, 20, 200 / (top * top));
  fill_up_to(x.q, x.random, top);
  fill_up_to(x.k, x.random, top);
  fill_up_to(x.v, x.random, top);
  x.each([&](char const* what) { x.compare(what); });
}

// Values as large as their sum over all keys allows.
TYPED_TEST(Extremes, LargeValues) {
  using T = typename TypeParam::T;
  for (Promise const& promise : promises<T>()) {
    Heads<T> x(9, 150, 20, 0);
    x.scale = 1 / std::sqrt(20.0), x.kernel = promise.kernel;
    bool const half = std::is_same_v<T, float16>;  // no number of which is large for a float
    double const top = half ? largest<T>() : largest<T>() / 150 * promise.values;
    x.q.fill_uniform(x.random, -3, 3);
    x.k.fill_uniform(x.random, -3, 3);
    fill_up_to(x.v, x.random, top);
    x.each([&](char const* what) { x.compare(what); });
    // All the same: a weighted mean must not round up to infinity.
    x.v.fill(top);
    x.each([&](char const* what) { x.compare(what); });
  }
}

// Scores themselves at the edge: one key is far ahead of all others, wherever it stands. Query 1
// sees minus the scores of query 0, query 2 none but zeros.
TYPED_TEST(Extremes, ScoresAtTheEdge) {
  using T = typename TypeParam::T;
  for (Promise const& promise : promises<T>())
    for (std::int64_t ahead : {0, 70, 149}) {
      double const top = std::min(largest<T>(), promise.scores);
      Heads<T> x(3, 150, 4, 1);
      x.kernel = promise.kernel;
      double const of_lse = promise.exact ? 0 : 2 * precision<Accumulator<T>>().roundoff * top;
      double const of_out = promise.exact ? 0 : 4 * precision<T>().roundoff;
      x.q.fill(0);
      x.k.fill(0);
      x.q.set(1, 0, 0, 0, 0);
      x.q.set(-1, 0, 0, 1, 0);
      for (std::int64_t j = 0; j < 150; ++j) x.k.set(j == ahead ? top : -top / 2, 0, 0, j, 0);
      x.k.set(-top, 0, 0, (ahead + 80) % 150, 0);
      x.q.upload();
      x.k.upload();
      x.v.fill_uniform(x.random);
      x.dout.fill_uniform(x.random);
      x.each([&](char const* what) {
        for (std::int64_t i = 0; i < 2; ++i) {
          std::int64_t const j = i == 0 ? ahead : (ahead + 80) % 150;
          EXPECT_NEAR(x.lse.value(0, 0, i), top, of_lse)
              << what << ", " << ahead << ", query " << i;
          for (std::int64_t c = 0; c < x.d; ++c)
            EXPECT_NEAR(x.out.value(0, 0, i, c), x.v.value(0, 0, j, c), of_out)
                << what << ", " << ahead << ", query " << i;
        }
        EXPECT_NEAR(x.lse.value(0, 0, 2), std::log(150.0), 1e-5) << what;
      });
      if (!promise.exact) continue;  // a rounded lse makes weights of such scores anything
      x.backward();
      Comparison dv(name_of<T>("attention_backward dv"), std::to_string(ahead));
      for (std::int64_t j = 0; j < 150; ++j)
        for (std::int64_t c = 0; c < x.d; ++c) {
          EXPECT_FALSE(std::isnan(x.dk.value(0, 0, j, c))) << j;
          double const even = x.dout.value(0, 0, 2, c) / 150;
          double const one = j == ahead                ? x.dout.value(0, 0, 0, c)
                             : j == (ahead + 80) % 150 ? x.dout.value(0, 0, 1, c)
                                                       : 0;
          // e^(-log 150) with the error of the stored lse: 40 u.
          double const error = 40 * precision<Accumulator<T>>().roundoff * std::abs(even) +
                               3 * precision<Accumulator<T>>().roundoff * std::abs(one);
          dv.add(x.dv.value(0, 0, j, c), one + even,
                 error + rounding<T>(std::abs(one + even) + error), {j, c});
        }
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t c = 0; c < x.d; ++c)
          EXPECT_FALSE(std::isnan(x.dq.value(0, 0, i, c))) << i << ", " << c;
    }
}

// Results that round to the largest number, and the first that round to infinity.
TYPED_TEST(Extremes, GemmRoundsToInfinityLate) {
  using T = typename TypeParam::T;
  double const top = largest<T>();
  double const half = top * precision<T>().roundoff / (2 - 2 * precision<T>().roundoff);
  Tensor<T, 2, Exec> a({4, 2}), b({2, 5}), c({4, 5});
  b.fill(1);
  for (std::int64_t i = 0; i < 4; ++i) {
    double const sign = i % 2 == 0 ? 1 : -1;
    a.set(sign * top, i, 0);
    a.set(sign * (i < 2 ? half * (1 - 0x1p-6) : half), i, 1);
  }
  a.upload();
  for (double beta : {0.0, 1.0}) {
    c.fill(0);
    gemm(Exec(), a.view(), b.view(), c.view(), GemmOptions{.beta = beta});
    c.download();
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 5; ++j)
        EXPECT_EQ(c.value(i, j), (i % 2 == 0 ? 1 : -1) * (i < 2 ? top : infinity)) << i;
  }
  // What C holds may cancel a product at the edge, and alpha may bring one down.
  c.fill(top);
  a.fill(-top);
  b.fill(0.5);
  gemm(Exec(), a.view(), b.view(), c.view(), GemmOptions{.beta = 1});
  c.download();
  EXPECT_EQ(c.value(3, 4), 0);
  if constexpr (std::is_same_v<T, float16>) {
    b.fill(top);
    gemm(Exec(), a.view(), b.view(), c.view(), GemmOptions{.alpha = 0.25 / top});
    c.download();
    EXPECT_EQ(c.value(2, 1), -top / 2);
  }
}

// Every activation and its derivative at the ends of the range.
TYPED_TEST(Extremes, Activations) {
  using T = typename TypeParam::T;
  using Acc = Accumulator<T>;
  double const top = largest<T>();
  std::vector<double> const x{top, -top, top / 3, -top / 3, 1e4, -1e4, 50, -50, 0};
  auto const n = static_cast<std::int64_t>(x.size());
  Tensor<T, 2, Exec> row({1, n}), one({1, 1}), out({1, n}), da({1, 1}), db({1, n}), dout({1, n});
  Tensor<T, 2, Exec> rows({n, 1}), gated({n, 1}), wide({n, 1}), dx({n, 1}), dgate({1, 1}),
      dup({1, 1});
  for (std::int64_t j = 0; j < n; ++j) {
    row.set(x[sz(j)], 0, j);
    rows.set(x[sz(j)], j, 0);
  }
  row.upload();
  rows.upload();
  one.fill(1);
  dout.fill(1);
  wide.fill(0.5);
  // Some processors take subnormal numbers of bfloat16 for 0 (docs/precision.md): the gate has a
  // quarter there, so that up need not be divided by as much.
  bool const quarter = std::is_same_v<T, bfloat16>;
  double const share = quarter ? 0.25 : 1;
  Tensor<T, 2, Exec> small({1, 1}), gate({1, 1});
  small.fill(quarter ? precision<T>().smallest_normal : 1 / top);
  gate.fill(share);
  using Function = double (*)(double);
  struct Case {
    Activation activation;
    Function value, slope;
  };
  for (Case const& f :
       {Case{Activation::relu, reference::relu, [](double t) { return t > 0 ? 1.0 : 0.0; }},
        Case{Activation::gelu, reference::gelu, reference::gelu_slope},
        Case{Activation::gelu_tanh, reference::gelu_tanh, reference::gelu_tanh_slope},
        Case{Activation::silu, reference::silu, reference::silu_slope}}) {
    std::string const what = "activation " + std::to_string(static_cast<int>(f.activation));
    Comparison values(name_of<T>("gemm"), what), slopes(name_of<T>("gemm_backward"), what),
        products(name_of<T>("gated_mlp"), what);
    // The oracle's own formulas overflow at the edge: far out they are their limits.
    auto const value = [&](double t) { return std::abs(t) > 100 ? (t > 0 ? t : 0) : f.value(t); };
    auto const slope = [&](double t) {
      return std::abs(t) > 100 ? (t > 0 ? 1.0 : 0.0) : f.slope(t);
    };
    GemmOptions const options{.activation = f.activation};
    gemm(Exec(), one.view(), row.view(), out.view(), options);
    out.download();
    gemm_backward(Exec(), one.view(), row.view(), dout.view(), none, db.view(), options,
                  pre_activation(row.view()));
    db.download();
    bool const gates = f.activation != Activation::relu;  // which gated_mlp does not offer
    if (gates) {                                          // up x / max, or what is near it
      gated_mlp(Exec(), rows.view(), gate.view(), small.view(), gated.view(), {f.activation});
      gated.download();
      gated_mlp_backward(Exec(), rows.view(), gate.view(), small.view(), wide.view(), dx.view(),
                         dgate.view(), dup.view(), {f.activation});
      dx.download();
      dgate.download();
      dup.download();
    }
    double const u = precision<Acc>().roundoff, tiny = precision<Acc>().smallest_normal;
    for (std::int64_t j = 0; j < n; ++j) {
      double const t = row.value(0, j), up = t * small.value(0, 0);
      double const want = value(t), error = 2 * (2 * math_ulps + 8) * u * std::abs(t);
      values.add(out.value(0, j), want, error + rounding<T>(want), {j});
      slopes.add(db.value(0, j), slope(t), 2 * (2 * math_ulps + 17) * u + rounding<T>(1), {j});
      if (!gates) continue;
      double const product = value(t * share) * up;
      products.add(gated.value(j, 0), product,
                   error * std::abs(up) + 4 * u * std::abs(product) + tiny +
                       rounding<T>(std::abs(product) * (1 + 4 * u)),
                   {j});
      EXPECT_FALSE(std::isnan(dx.value(j, 0))) << what << " at " << t;
    }
    EXPECT_FALSE(gates && (std::isnan(dgate.value(0, 0)) || std::isnan(dup.value(0, 0)))) << what;
  }
}

TYPED_TEST(Extremes, MergeStates) {
  using T = typename TypeParam::T;
  using Lse = Accumulator<T>;
  Tensor<T, 4, Exec> a({1, 1, 4, 3}), b({1, 1, 4, 3}), out({1, 1, 4, 3});
  Tensor<Lse, 3, Exec> la({1, 1, 4}), lb({1, 1, 4}), lse({1, 1, 4});
  double const top = largest<Lse>();
  a.fill(largest<T>());
  b.fill(-largest<T>());
  double const left[] = {top, -top, top, -infinity}, right[] = {-top, top, top, -top};
  for (std::int64_t i = 0; i < 4; ++i) {
    la.set(left[i], 0, 0, i);
    lb.set(right[i], 0, 0, i);
  }
  la.upload();
  lb.upload();
  merge_states(Exec(), a.view(), la.view(), b.view(), lb.view(), out.view(), lse.view());
  out.download();
  lse.download();
  double const want[] = {largest<T>(), -largest<T>(), 0, -largest<T>()};
  double const sums[] = {top, top, top, -top};
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out.value(0, 0, i, 1), want[i]) << i;
    EXPECT_EQ(lse.value(0, 0, i), sums[i]) << i;
  }
}

}  // namespace
}  // namespace attikos::test
