// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values up to the edge of what a type holds: results are within the bounds, or the infinity that
// rounding gives, and never NaN where the formula is finite. The limit of what is promised is the
// accumulator: sums and products of the formula, as written, must fit into it.
#include <attikos/reference/gated_mlp_reference.hpp>
#include <attikos/reference/reduce_reference.hpp>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_decode.hpp"
#include "../support/tolerance_norms.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The largest finite number.
template <class T>
constexpr double largest() {
  if constexpr (std::is_same_v<T, double>) return 0x1.fffffffffffffp1023;
  if constexpr (std::is_same_v<T, float>) return 0x1.fffffep127;
  if constexpr (std::is_same_v<T, float16>) return 65504;
  return 0x1.fep127;
}

template <class C>
class Extremes : public testing::Test {};
TYPED_TEST_SUITE(Extremes, OneSpaceCases, CaseName);

template <class T>
std::string name_of(char const* operation) {
  return std::string("extremes/") + operation + "/" + type_name<T>();
}

/// Uniform in [-size, size], where 2 size may be infinite.
template <class TensorType>
void fill_up_to(TensorType& x, Random& random, double size) {
  x.for_each([&](auto const& i) {
    x.at(i) = from_double<typename TensorType::T>(size * random.uniform(-1, 1));
  });
  x.upload();
}

/// Attention by every algorithm and by decode, on the same tensors.
template <class T>
struct Heads {
  std::int64_t queries, keys, d;
  double scale;
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
      attention(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(),
                AttentionOptions{.softmax_scale = scale, .algorithm = algorithm});
      out.download();
      lse.download();
      check(names[static_cast<int>(algorithm)]);
    }
    decode(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(),
           DecodeOptions{.softmax_scale = scale, .splits = 3});
    out.download();
    lse.download();
    check("decode");
  }

  void backward() {
    attention_backward(Exec(), q.view(), k.view(), v.view(), out.view(), lse.view(), dout.view(),
                       dq.view(), dk.view(), dv.view(), AttentionOptions{.softmax_scale = scale});
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
      DecodeBound<T> const bound(row, d, 3);  // decode's, which is no less than attention's
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
  Heads<T> x(9, 150, 20, 0);
  x.scale = 1 / std::sqrt(20.0);
  double const top = std::is_same_v<T, float16> ? largest<T>() : largest<T>() / 150;
  x.q.fill_uniform(x.random, -3, 3);
  x.k.fill_uniform(x.random, -3, 3);
  fill_up_to(x.v, x.random, top);
  x.each([&](char const* what) { x.compare(what); });
  // All the same: a weighted mean must not round up to infinity.
  x.v.fill(top);
  x.each([&](char const* what) { x.compare(what); });
}

// Scores themselves at the edge: one key is far ahead of all others, wherever it stands. Query 1
// sees minus the scores of query 0, query 2 none but zeros.
TYPED_TEST(Extremes, ScoresAtTheEdge) {
  using T = typename TypeParam::T;
  double const top = largest<T>();
  for (std::int64_t ahead : {0, 70, 149}) {
    Heads<T> x(3, 150, 4, 1);
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
        EXPECT_EQ(x.lse.value(0, 0, i), top) << what << ", " << ahead << ", query " << i;
        for (std::int64_t c = 0; c < x.d; ++c)
          EXPECT_EQ(x.out.value(0, 0, i, c), x.v.value(0, 0, j, c))
              << what << ", " << ahead << ", query " << i;
      }
      EXPECT_NEAR(x.lse.value(0, 0, 2), std::log(150.0), 1e-5) << what;
    });
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
  Tensor<T, 2, Exec> small({1, 1});
  small.fill(1 / top);
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
    if (gates) {                                          // gate x, up x / max
      gated_mlp(Exec(), rows.view(), one.view(), small.view(), gated.view(), {f.activation});
      gated.download();
      gated_mlp_backward(Exec(), rows.view(), one.view(), small.view(), wide.view(), dx.view(),
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
      products.add(gated.value(j, 0), want * up,
                   error * std::abs(up) + 4 * u * std::abs(want * up) + tiny +
                       rounding<T>(std::abs(want * up) * (1 + 4 * u)),
                   {j});
      EXPECT_FALSE(std::isnan(dx.value(j, 0))) << what << " at " << t;
    }
    EXPECT_FALSE(gates && (std::isnan(dgate.value(0, 0)) || std::isnan(dup.value(0, 0)))) << what;
  }
}

TYPED_TEST(Extremes, Softmax) {
  using T = typename TypeParam::T;
  double const top = largest<T>();
  constexpr std::int64_t n = 70;
  Tensor<T, 2, Exec> x({5, n}), out({5, n}), g({5, n}), dx({5, n});
  g.fill(1);
  for (std::int64_t j = 0; j < n; ++j) {
    x.set(j % 2 == 0 ? top : -top, 0, j);
    x.set(top, 1, j);
    x.set(-top, 2, j);
    x.set(j == 66 ? -top / 2 : -top, 3, j);
    x.set(j == 3 ? top : static_cast<double>(j), 4, j);
  }
  x.upload();
  auto const row_of = [&](std::int64_t i) {
    std::vector<double> row;
    for (std::int64_t j = 0; j < n; ++j) row.push_back(x.value(i, j));
    return row;
  };
  for (double scale : {1.0, -1.0, 0.25}) {
    softmax(Exec(), x.view(), out.view(), SoftmaxOptions{.scale = scale});
    out.download();
    Comparison values(name_of<T>("softmax"), "scale " + std::to_string(scale));
    for (std::int64_t i = 0; i < 5; ++i) {
      // Distances are 0 or too large to matter, but for row 4 without its first entry.
      auto const want = reference::softmax_row(row_of(i), scale);
      for (std::int64_t j = 0; j < n; ++j) {
        double const error = (growth(n) + 3 * math_ulps + 8 + 4 * n) *
                             precision<Accumulator<T>>().roundoff * want[sz(j)];
        values.add(out.value(i, j), want[sz(j)],
                   2 * error + precision<Accumulator<T>>().smallest_normal +
                       rounding<T>(want[sz(j)] + error),
                   {i, j});
      }
    }
    softmax_backward(Exec(), out.view(), g.view(), dx.view(), SoftmaxOptions{.scale = scale});
    dx.download();
    log_softmax(Exec(), x.view(), out.view(), SoftmaxOptions{.scale = scale});
    out.download();
    for (std::int64_t i = 0; i < 5; ++i) {
      auto const want = reference::log_softmax_row(row_of(i), scale);
      for (std::int64_t j = 0; j < n; ++j) {
        EXPECT_LE(std::abs(dx.value(i, j)), 0.1) << i << ", " << j;
        // −2 max may be −∞ in T, and rounds to it.
        double const got = out.value(i, j), exact = to_double(from_double<T>(want[sz(j)]));
        if (std::isinf(exact)) {
          EXPECT_EQ(got, exact) << i << ", " << j;
        } else {
          EXPECT_NEAR(got, want[sz(j)], 1e-5 + 2 * precision<T>().roundoff * std::abs(want[sz(j)]))
              << i << ", " << j;
        }
      }
    }
    log_softmax_backward(Exec(), out.view(), g.view(), dx.view(), SoftmaxOptions{.scale = scale});
    dx.download();
    dx.for_each([&](auto const& i) { EXPECT_FALSE(std::isnan(to_double(dx.at(i)))); });
  }
}

// As large as the sum of squares in the accumulator allows: for float16 that is any value.
TYPED_TEST(Extremes, Norms) {
  using T = typename TypeParam::T;
  using Acc = Accumulator<T>;
  constexpr std::int64_t n = 100;
  double const edge = std::sqrt(largest<Acc>() / n) * (1 - 0x1p-7);
  double const top = std::min(largest<T>(), edge);
  Tensor<T, 2, Exec> x({3, n}), g({3, n}), out({3, n}), dx({3, n});
  Tensor<T, 1, Exec> weight({n}), bias({n}), dweight({n}), dbias({n});
  Random random(7);
  x.for_each([&](auto const& i) {
    double const sign = i[0] == 2 ? 1 : random.uniform(-1, 1);
    x.at(i) = from_double<T>(i[0] == 0 ? std::copysign(top, sign) : top * sign);
  });
  x.upload();
  g.fill_uniform(random);
  weight.fill_uniform(random, 0.5, 1);
  bias.fill_uniform(random);
  std::vector<double> w, add;
  for (std::int64_t j = 0; j < n; ++j) {
    w.push_back(weight.value(j));
    add.push_back(bias.value(j));
  }
  auto const rows = [&](Tensor<T, 2, Exec> const& of, std::int64_t i) {
    std::vector<double> row;
    for (std::int64_t j = 0; j < n; ++j) row.push_back(of.value(i, j));
    return row;
  };
  double const eps = RmsNormOptions{}.eps, layer_eps = LayerNormOptions{}.eps;
  rms_norm(Exec(), x.view(), weight.view(), out.view());
  out.download();
  rms_norm_backward(Exec(), x.view(), weight.view(), g.view(), dx.view(), dweight.view());
  dx.download();
  for (std::int64_t i = 0; i < 3; ++i) {
    Comparison values(name_of<T>("rms_norm"), std::to_string(i)),
        slopes(name_of<T>("rms_norm_backward"), std::to_string(i));
    auto const want = reference::rms_norm_row(rows(x, i), w, eps);
    auto const slope = reference::rms_norm_gradient_row(rows(x, i), w, rows(g, i), eps);
    auto sizes = rows(g, i);
    for (double& size : sizes) size = std::abs(size);
    ScaledGradientBound<T> const bound(slope, w, sizes, 1);
    for (std::int64_t j = 0; j < n; ++j) {
      values.add(out.value(i, j), want[sz(j)], scaled_row_bound<T>(n, want[sz(j)]), {j});
      slopes.add(dx.value(i, j), slope.dx[sz(j)], bound.dx(sz(j)), {j});
    }
  }
  l2_normalize(Exec(), x.view(), out.view());
  out.download();
  for (std::int64_t i = 0; i < 3; ++i) {
    Comparison values(name_of<T>("l2_normalize"), std::to_string(i));
    auto const want = reference::l2_normalize_row(rows(x, i), L2NormalizeOptions{}.eps);
    for (std::int64_t j = 0; j < n; ++j)
      values.add(out.value(i, j), want[sz(j)], scaled_row_bound<T>(n, want[sz(j)]), {j});
  }
  layer_norm(Exec(), x.view(), weight.view(), bias.view(), out.view());
  out.download();
  layer_norm_backward(Exec(), x.view(), weight.view(), g.view(), dx.view(), dweight.view(),
                      dbias.view());
  dx.download();
  for (std::int64_t i = 0; i < 2; ++i) {  // row 2 is constant
    Comparison values(name_of<T>("layer_norm"), std::to_string(i)),
        slopes(name_of<T>("layer_norm_backward"), std::to_string(i));
    auto const want = reference::layer_norm_row(rows(x, i), w, add, layer_eps);
    auto const slope = reference::layer_norm_gradient_row(rows(x, i), w, rows(g, i), layer_eps);
    LayerNormGradientBound<T> const bound(slope, want, w, rows(g, i), layer_eps);
    for (std::int64_t j = 0; j < n; ++j) {
      values.add(out.value(i, j), want.out[sz(j)],
                 layer_norm_bound<T>(want, sz(j), x.value(i, j), w[sz(j)], add[sz(j)], layer_eps),
                 {j});
      slopes.add(dx.value(i, j), slope.dx[sz(j)], bound.dx(sz(j)), {j});
    }
  }
  out.for_each([&](auto const& i) { EXPECT_FALSE(std::isnan(to_double(out.at(i)))); });
}

// What the operations' documentation says of rows whose sums leave the accumulator's range.
TEST(ExtremesOfFloat32, RowsBeyondTheAccumulator) {
  constexpr std::int64_t n = 70;
  Tensor<float, 2, Exec> x({2, n}), out({2, n});
  Tensor<float, 1, Exec> ones({n});
  ones.fill(1);
  for (std::int64_t j = 0; j < n; ++j) {
    x.set(1e38, 0, j);
    x.set(static_cast<double>(j), 1, j);
  }
  x.upload();
  auto const check = [&](char const* name, auto is_as_said) {
    out.download();
    for (std::int64_t j = 0; j < n; ++j) {
      EXPECT_TRUE(is_as_said(out.value(0, j))) << name << ' ' << j << ": " << out.value(0, j);
      EXPECT_TRUE(std::isfinite(out.value(1, j))) << name << ' ' << j << ": " << out.value(1, j);
    }
  };
  auto const is_zero = [](double value) { return value == 0; };
  auto const is_nan = [](double value) { return std::isnan(value); };
  rms_norm(Exec(), x.view(), ones.view(), out.view());
  check("rms_norm", is_zero);
  l2_normalize(Exec(), x.view(), out.view());
  check("l2_normalize", is_zero);
  layer_norm(Exec(), x.view(), ones.view(), ones.view(), out.view());
  check("layer_norm", is_nan);
  softmax(Exec(), x.view(), out.view(), {.scale = 10});
  check("softmax", is_nan);
  log_softmax(Exec(), x.view(), out.view(), {.scale = 10});
  check("log_softmax", is_nan);
}

TYPED_TEST(Extremes, Quantize) {
  using T = typename TypeParam::T;
  // Factors are float, whatever x is.
  double const top = std::min(largest<T>(), largest<float>());
  Tensor<T, 2, Exec> x({2, 300}), back({2, 300});
  Tensor<float8_e4m3, 2, Exec> codes({2, 300});
  Tensor<float, 2, Exec> scales({2, 1});
  Random random(8);
  fill_up_to(x, random, top);
  x.set(top, 0, 17);
  x.set(-top, 1, 299);
  x.upload();
  quantize(Exec(), x.view(), codes.view(), scales.view());
  codes.download();
  scales.download();
  dequantize(Exec(), codes.view(), scales.view(), back.view());
  back.download();
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(scales.value(i, 0) * 448 / top, 1, 1e-6);
    for (std::int64_t j = 0; j < 300; ++j) {
      double const want = x.value(i, j), scale = scales.value(i, 0);
      // Half the spacing of the codes is 1/16 of them, 2^-10 below the normal numbers. What stood
      // for the largest number may round past it.
      EXPECT_NEAR(codes.value(i, j) * scale / top, want / top,
                  std::max(std::abs(want) / 16, scale * 0x1p-10) / top * (1 + 1e-6));
      EXPECT_FALSE(std::isnan(back.value(i, j)));
    }
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
