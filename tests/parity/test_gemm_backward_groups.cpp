// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm_backward of groups of rows and of counted rows, and the gradient of C behind beta, against
// float64 sums and against differences of gemm; what is refused.
#include <attikos/gemm/gemm_backward.hpp>
#include <attikos/reference/gated_mlp_reference.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/messages.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gemm_backward.hpp"

namespace attikos::test {
namespace {

/// Rows that take part: of group g where `given` are offsets, of matrix g where they are counts.
struct CountedCase {
  std::vector<std::int64_t> given;
  std::int64_t rows, n, k;
  bool grouped = true;
  GemmOptions options = {};
  Layout layout = Layout::right;
  bool share_b = false;  ///< of counted matrices
  bool given_dx = false;

  std::int64_t groups() const {
    return static_cast<std::int64_t>(given.size()) - (grouped ? 1 : 0);
  }
  std::int64_t first(std::int64_t g) const {
    return grouped ? std::clamp<std::int64_t>(given[sz(g)], 0, rows) : 0;
  }
  std::int64_t last(std::int64_t g) const {
    return std::clamp<std::int64_t>(given[sz(grouped ? g + 1 : g)], 0, rows);
  }
};

std::string describe(CountedCase const& p) {
  std::ostringstream text;
  text << (p.grouped ? "offsets" : "counts");
  for (auto n : p.given) text << " " << n;
  text << " rows " << p.rows << " n " << p.n << " k " << p.k << " trans " << p.options.trans_a
       << p.options.trans_b << " activation " << activation_name(p.options.activation)
       << " along m " << (p.options.bias_along == BiasAlong::m) << " shared " << p.share_b << " "
       << layout_name(p.layout);
  return text.str();
}

/// What outputs hold where nothing is to be written.
constexpr double untouched = -7;

template <class Exec, class T, class Index>
struct CountedRun {
  using Acc = Accumulator<T>;
  CountedCase p;
  std::int64_t matrices;  ///< of A and dout
  Tensor<T, 3, Exec> a, b, dout, x, da, db, dx, dc;
  Tensor<T, 1, Exec> dbias;
  Tensor<Index, 1, Exec> numbers;
  Tensor<float, 1, Exec> factor;

  static std::array<std::int64_t, 3> turned(bool trans, std::int64_t batch, std::int64_t rows,
                                            std::int64_t cols) {
    return trans ? std::array{batch, cols, rows} : std::array{batch, rows, cols};
  }
  explicit CountedRun(CountedCase const& c)
      : p(c),
        matrices(c.grouped ? 1 : c.groups()),
        a(turned(p.options.trans_a, matrices, p.rows, p.k), p.layout),
        b(turned(p.options.trans_b, p.share_b ? 1 : p.groups(), p.k, p.n), p.layout),
        dout({matrices, p.rows, p.n}, p.layout),
        x(dout.extents()),
        da(a.extents(), p.layout),
        db(b.extents()),
        dx(dout.extents(), p.layout),
        dc(dout.extents(), p.layout),
        dbias({p.options.bias_along == BiasAlong::n ? p.n : p.rows}, Layout::strided),
        numbers({static_cast<std::int64_t>(p.given.size())}, Layout::strided),
        factor({1}) {
    Random random(static_cast<std::uint64_t>(p.rows * 31 + p.n));
    b.fill_uniform(random);
    factor.fill(0.75);
    for (std::size_t i = 0; i < p.given.size(); ++i) numbers(i) = static_cast<Index>(p.given[i]);
    numbers.upload();
    // NaN stays in the rows that do not count.
    for (std::int64_t g = 0; g < p.groups(); ++g) {
      std::int64_t const m = p.grouped ? 0 : g;
      for (std::int64_t i = p.first(g); i < p.last(g); ++i) {
        for (std::int64_t l = 0; l < p.k; ++l)
          a.at(p.options.trans_a ? std::array{m, l, i} : std::array{m, i, l}) =
              from_double<T>(random.uniform(-1, 1));
        for (std::int64_t j = 0; j < p.n; ++j) {
          dout(m, i, j) = from_double<T>(random.uniform(-1, 1));
          x(m, i, j) = from_double<T>(random.uniform(-4, 4));
        }
      }
    }
    a.upload(), dout.upload(), x.upload();
    for (auto* t : {&da, &dx, &dc}) t->fill(untouched);
  }

  void call() {
    auto const run = [&](auto const& av, auto const& grad, auto const& a_out, auto const& saved,
                         auto const& dx_out, auto const& c_out, auto const& which) {
      if (p.given_dx) {
        gemm_backward(Exec(), av, b.const_view(), grad, a_out, db.view(), p.options, which,
                      pre_activation(saved), bias_gradient(dbias.view()), c_gradient(c_out),
                      device_scale(factor.const_view()), pre_activation_gradient(dx_out));
      } else {
        gemm_backward(Exec(), av, b.const_view(), grad, a_out, db.view(), p.options,
                      c_gradient(c_out), device_scale(factor.const_view()),
                      bias_gradient(dbias.view()), which, pre_activation(saved));
      }
    };
    if constexpr (std::is_same_v<Index, std::int32_t>) {
      if (!p.grouped) {
        run(a.const_view(), dout.const_view(), da.view(), x.const_view(), dx.view(), dc.view(),
            masked(numbers.const_view()));
      }
    }
    if (p.grouped)
      run(a.const_front(), dout.const_front(), da.front(), x.const_front(), dx.front(), dc.front(),
          grouped(numbers.const_view()));
    for (auto* t : {&da, &db, &dx, &dc}) {
      t->download();
      EXPECT_EQ(t->writes_outside(), 0u) << describe(p);
    }
    dbias.download();
    EXPECT_EQ(dbias.writes_outside(), 0u) << describe(p);
  }

  double dx_of(std::int64_t m, std::int64_t i, std::int64_t j) const {
    double const d = dout.value(m, i, j);
    return p.options.activation == Activation::silu ? d * reference::silu_slope(x.value(m, i, j))
                                                    : d;
  }
  double dx_error(std::int64_t m, std::int64_t i, std::int64_t j) const {
    return pre_activation_gradient_bound<T>(dout.value(m, i, j), dx_of(m, i, j),
                                            p.options.activation != Activation::none);
  }

  struct Sum {
    double value = 0, magnitude = 0, inherited = 0, terms = 0;
    void add(double d, double e, double other) {
      value += d * other;
      magnitude += std::abs(d * other);
      inherited += e * std::abs(other);
      terms += 1;
    }
  };
  static void finish(Comparison& comparison, double got, Sum const& s, double scale,
                     std::initializer_list<std::int64_t> at) {
    comparison.add(
        got, scale * s.value,
        gradient_sum_bound<Acc, T>(s.terms, scale * s.value, std::abs(scale) * s.magnitude,
                                   std::abs(scale) * s.inherited),
        at);
  }

  void compare() {
    auto const& o = p.options;
    std::string const name =
        std::string("gemm_backward groups/") + type_name<T>() + "/" + Exec::name();
    // Products of single numbers have no norms.
    auto const stored = std::min({p.rows, p.n, p.k}) > 1 ? stored_as<T>() : Stored{};
    Comparison of_a(name + "/da", describe(p), stored), of_b(name + "/db", describe(p), stored),
        of_bias(name + "/bias_gradient", describe(p), stored),
        of_x(name + "/dx", describe(p), stored), of_c(name + "/c_gradient", describe(p), stored);
    double const f = o.alpha * o.scale * 0.75;
    auto const b_of = [&](std::int64_t g, std::int64_t l, std::int64_t j) {
      std::int64_t const m = p.share_b ? 0 : g;
      return o.trans_b ? b.value(m, j, l) : b.value(m, l, j);
    };
    auto const a_of = [&](std::int64_t m, std::int64_t i, std::int64_t l) {
      return o.trans_a ? a.value(m, l, i) : a.value(m, i, l);
    };
    std::vector<Sum> weights(sz(db.extent(0) * p.k * p.n)), biases(sz(dbias.extent(0)));
    std::vector<bool> counts(sz(matrices * p.rows), false);
    for (std::int64_t g = 0; g < p.groups(); ++g) {
      std::int64_t const m = p.grouped ? 0 : g;
      for (std::int64_t i = p.first(g); i < p.last(g); ++i) {
        counts[sz(m * p.rows + i)] = true;
        for (std::int64_t l = 0; l < p.k; ++l) {
          Sum s;
          for (std::int64_t j = 0; j < p.n; ++j)
            s.add(dx_of(m, i, j), dx_error(m, i, j), b_of(g, l, j));
          finish(of_a, o.trans_a ? da.value(m, l, i) : da.value(m, i, l), s, f, {m, i, l});
        }
        for (std::int64_t j = 0; j < p.n; ++j) {
          for (std::int64_t l = 0; l < p.k; ++l)
            weights[sz(((p.share_b ? 0 : g) * p.k + l) * p.n + j)].add(
                dx_of(m, i, j), dx_error(m, i, j), a_of(m, i, l));
          biases[sz(o.bias_along == BiasAlong::n ? j : i)].add(dx_of(m, i, j), dx_error(m, i, j),
                                                               1);
          Sum c;
          c.add(dx_of(m, i, j), dx_error(m, i, j), 1);
          finish(of_c, dc.value(m, i, j), c, o.scale * o.beta * 0.75, {m, i, j});
          if (p.given_dx) of_x.add(dx.value(m, i, j), dx_of(m, i, j), dx_error(m, i, j), {m, i, j});
        }
      }
    }
    for (std::int64_t m = 0; m < matrices; ++m)
      for (std::int64_t i = 0; i < p.rows; ++i) {
        if (counts[sz(m * p.rows + i)]) continue;
        for (std::int64_t l = 0; l < p.k; ++l)
          of_a.add(o.trans_a ? da.value(m, l, i) : da.value(m, i, l), untouched, 0, {m, i, l});
        for (std::int64_t j = 0; j < p.n; ++j) {
          of_c.add(dc.value(m, i, j), untouched, 0, {m, i, j});
          of_x.add(dx.value(m, i, j), untouched, 0, {m, i, j});
        }
      }
    for (std::int64_t g = 0; g < db.extent(0); ++g)
      for (std::int64_t l = 0; l < p.k; ++l)
        for (std::int64_t j = 0; j < p.n; ++j)
          finish(of_b, o.trans_b ? db.value(g, j, l) : db.value(g, l, j),
                 weights[sz((g * p.k + l) * p.n + j)], f, {g, l, j});
    for (std::size_t j = 0; j < biases.size(); ++j)
      finish(of_bias, dbias.value(j), biases[j], 1, {static_cast<std::int64_t>(j)});
  }
};

template <class C>
class GemmBackwardGroups : public testing::Test {};
TYPED_TEST_SUITE(GemmBackwardGroups, FloatingCases, CaseName);

template <class C, class Index = std::int32_t>
void check_counted(CountedCase const& p) {
  CountedRun<typename C::Exec, typename C::T, Index> run(p);
  run.call();
  run.compare();
}

TYPED_TEST(GemmBackwardGroups, Grouped) {
  std::vector<std::vector<std::int64_t>> const partitions{{0, 0},
                                                          {0, 7},
                                                          {0, 3, 3, 10},
                                                          {2, 5, 9},
                                                          {0, 64, 65, 180, 180, 200},
                                                          {190, 191, 200},
                                                          {0, 0, 0, 0, 300},
                                                          {200, 200, 200},
                                                          {-5, 20, 900}};
  int turn = 0;
  for (auto const& offsets : partitions) {
    GemmOptions const options{.alpha = 0.5,
                              .beta = turn % 3 == 0 ? 0 : -1.5,
                              .trans_a = (turn & 1) != 0,
                              .trans_b = (turn & 2) != 0,
                              .activation = turn % 2 == 0 ? Activation::silu : Activation::none,
                              .scale = 3,
                              .bias_along = turn % 4 < 2 ? BiasAlong::n : BiasAlong::m};
    CountedCase p{offsets, 300, 17, 23, true, options, all_layouts[sz(turn % 5)]};
    p.given_dx = turn % 3 == 1;
    check_counted<TypeParam>(p);
    p.n = 40, p.k = 5;
    check_counted<TypeParam>(p);
    ++turn;
  }
  check_counted<TypeParam, std::int64_t>({{0, 30, 31, 60}, 70, 9, 33});
  check_counted<TypeParam>({{0}, 5, 3, 4});
  check_counted<TypeParam>({{0, 5, 9}, 9, 0, 4});
  check_counted<TypeParam>({{0, 5, 9}, 9, 3, 0});
  check_counted<TypeParam>({{0, 0}, 0, 3, 4});
}

TYPED_TEST(GemmBackwardGroups, Masked) {
  std::vector<std::vector<std::int64_t>> const all_counts{
      {3}, {0, 40, 17}, {-4, 900, 1, 0}, {0, 0}, {}};
  int turn = 0;
  for (auto const& counts : all_counts) {
    for (bool share : {false, true}) {
      GemmOptions const options{.beta = 0.5,
                                .trans_a = (turn & 1) != 0,
                                .trans_b = (turn & 2) != 0,
                                .activation = turn % 3 == 0 ? Activation::silu : Activation::none,
                                .bias_along = turn % 4 < 2 ? BiasAlong::m : BiasAlong::n};
      CountedCase p{counts, 40, 19, 11, false, options, all_layouts[sz(turn % 5)], share};
      p.given_dx = turn % 2 == 0;
      check_counted<TypeParam>(p);
      ++turn;
    }
  }
  check_counted<TypeParam>({{500, 600}, 600, 5, 7, false});
}

template <class Exec>
class GemmBackwardGroupsSpaces : public testing::Test {};
TYPED_TEST_SUITE(GemmBackwardGroupsSpaces, SpaceCases, CaseName);

/// Central differences of sum(D·w) in A, B, the bias and C, D from gemm() on groups.
TYPED_TEST(GemmBackwardGroupsSpaces, AgreesWithDifferencesOfGemm) {
  using Exec = TypeParam;
  std::int64_t const rows = 6, n = 3, k = 4;
  GemmOptions const options{
      .alpha = 0.7, .beta = 0.4, .trans_b = true, .activation = Activation::gelu, .scale = 1.5};
  Tensor<double, 2, Exec> a({rows, k}), c({rows, n}), d({rows, n}), x({rows, n}), w({rows, n}),
      da(a.extents()), dc(c.extents());
  Tensor<double, 3, Exec> b({2, n, k}), db(b.extents());
  Tensor<double, 1, Exec> biases({n}), dbias({n});
  Tensor<std::int32_t, 1, Exec> offsets({3});
  std::int32_t const bounds[] = {1, 3, 5};  // the first and the last row belong to no group
  for (int g = 0; g < 3; ++g) offsets(g) = bounds[g];
  offsets.upload();
  Random random(7);
  for (auto* t : {&a, &c, &w}) t->fill_uniform(random);
  b.fill_uniform(random);
  biases.fill_uniform(random);
  auto const loss = [&] {
    Kokkos::fence("attikos_test");
    d = c;  // a copy on the host; upload() takes it to the device
    d.upload();
    gemm(Exec(), a.const_view(), b.const_view(), d.view(), options, grouped(offsets.const_view()),
         bias(biases.const_view()), pre_activation(x.view()));
    d.download();
    double sum = 0;
    d.for_each([&](auto const& at) {
      if (at[0] >= 1 && at[0] < 5) sum += d.at(at) * w.at(at);
    });
    return sum;
  };
  Tensor<double, 2, Exec> const start({rows, n});
  d = start;
  loss();
  for (auto* t : {&da, &dc}) t->fill(0);
  gemm_backward(Exec(), a.const_view(), b.const_view(), w.const_view(), da.view(), db.view(),
                options, pre_activation(x.const_view()), bias_gradient(dbias.view()),
                c_gradient(dc.view()), grouped(offsets.const_view()));
  da.download(), db.download(), dc.download(), dbias.download();
  double const h = 1e-5;
  auto const check_all = [&](auto& parameter, auto& gradient, char const* name) {
    parameter.for_each([&](auto const& at) {
      double const kept = parameter.at(at);
      parameter.at(at) = kept + h;
      parameter.upload();
      double const above = loss();
      parameter.at(at) = kept - h;
      parameter.upload();
      double const below = loss();
      parameter.at(at) = kept;
      parameter.upload();
      // Third derivatives of order 10 times h² and the roundings of the losses over h.
      EXPECT_NEAR(gradient.at(at), (above - below) / (2 * h), 10 * h * h + 1e-15 * 100 / h) << name;
    });
  };
  check_all(a, da, "da");
  check_all(b, db, "db");
  check_all(biases, dbias, "bias_gradient");
  check_all(c, dc, "c_gradient");
}

/// beta = 0 reads nothing for the gradient of C.
TYPED_TEST(GemmBackwardGroupsSpaces, NoGradientOfAnUnreadC) {
  using Exec = TypeParam;
  Tensor<float, 2, Exec> a({3, 4}), b({4, 5}), dout({3, 5}), dc({3, 5});
  Tensor<double, 2, Exec> wide({3, 5});
  gemm_backward(Exec(), a.const_view(), b.const_view(), dout.const_view(), none, none, {},
                c_gradient(dc.view()));
  dout.fill(2);
  gemm_backward(Exec(), a.const_view(), b.const_view(), dout.const_view(), none, none,
                {.beta = 0.25, .scale = -1}, c_gradient(wide.view()));
  dc.download(), wide.download();
  dc.for_each([&](auto const& i) { EXPECT_EQ(dc.at(i), 0.0f); });
  wide.for_each([&](auto const& i) { EXPECT_EQ(wide.at(i), -0.5); });
}

using Exec = Kokkos::DefaultExecutionSpace;

TEST(GemmBackwardGroupsErrors, Messages) {
  Tensor<float, 2, Exec> a({9, 4}), dout({9, 5}), da({9, 4}), small({9, 4});
  Tensor<float, 3, Exec> b({2, 4, 5}), db({2, 4, 5}), batch({2, 9, 5}), batch_a({2, 9, 4});
  Tensor<std::int32_t, 1, Exec> two({2}), three({3});
  Tensor<float, 1, Exec> one({1});
  auto const call = [&](GemmOptions const& options, auto const&... extras) {
    gemm_backward(Exec(), a.view(), b.view(), dout.view(), da.view(), db.view(), options,
                  grouped(three.view()), extras...);
  };
  expect_error<ShapeError>(
      [&] {
        gemm_backward(Exec(), a.view(), b.view(), dout.view(), da.view(), db.view(), {},
                      grouped(two.view()));
      },
      {"attikos::gemm_backward: grouped() has 2 offsets; expected 3, one more than B has matrices",
       "A is [9, 4] float32, B is [2, 4, 5] float32, dout is [9, 5] float32."});
  expect_error<ShapeError>(
      [&] {
        gemm_backward(Exec(), batch_a.view(), b.view(), batch.view(), batch_a.view(), db.view(), {},
                      masked(three.view()));
      },
      {"attikos::gemm_backward: masked() has 3 counts; expected 2, one for each matrix of dout."});
  expect_error<UnsupportedError>(
      [&] {
        gemm_backward(Exec(), a.view(), b.view(), batch.view(), da.view(), db.view(), {},
                      masked(two.view()));
      },
      {"attikos::gemm_backward: matrices of counted rows share one A; expected none for da"});
  expect_error<ShapeError>([&] { call({.beta = 1}, c_gradient(small.view())); },
                           {"attikos::gemm_backward: c_gradient is [9, 4] float32; expected the "
                            "extents of dout, which is [9, 5] float32"});
  expect_error<UnsupportedError>(
      [&] { call({.kernel = "nothing"}); },
      {"attikos::gemm_backward: kernel \"nothing\" was demanded but is not available"});
  for (auto* t : {&da}) {
    t->download();
    EXPECT_TRUE(t->unchanged());
  }
  db.download();
  EXPECT_TRUE(db.unchanged());
}

TEST(GemmBackwardGroupsErrors, WhatRoundsHasNoGradient) {
  Tensor<float, 2, Exec> a({3, 4}), b({4, 5}), dout({3, 5}), da({3, 4}), db({4, 5});
  Tensor<std::int8_t, 2, Exec> a8({3, 4}), b8({4, 5}), out8({3, 5});
  Tensor<float, 1, Exec> one({1});
  Tensor<std::int32_t, 1, Exec> zero({1});
  auto const refused = [&](std::string const& text, auto const& extra) {
    expect_error<UnsupportedError>(
        [&] {
          gemm_backward(Exec(), a.view(), b.view(), dout.view(), da.view(), db.view(), {}, extra);
        },
        {"attikos::gemm_backward: " + text,
         "expected a product of double, float, float16 or bfloat16"});
  };
  refused("scale_out(view) quantizes the result", scale_out(one.view()));
  refused("zero_point_a(view) is of an int8 A", zero_point_a(zero.view()));
  refused("zero_point_b(view) is of an int8 B", zero_point_b(zero.view()));
  refused("scale_a(view) is of a quantized A", scale_a(one.view()));
  refused("scale_b(view) is of a quantized B", scale_b(one.view()));
  refused("epilogue(function) has no known derivative",
          epilogue([](float v, std::int64_t, std::int64_t, std::int64_t) { return v; }));
  std::string const types =
      "attikos::gemm_backward: quantized numbers have no gradient; expected "
      "A, B and dout of double, float, float16 or bfloat16. A is [3, 4] ";
  expect_error<UnsupportedError>(
      [&] { gemm_backward(Exec(), a8.view(), b8.view(), dout.view(), da.view(), db.view()); },
      {types + "int8"});
  expect_error<UnsupportedError>(
      [&] { gemm_backward(Exec(), a.view(), b.view(), out8.view(), da.view(), db.view()); },
      {types + "float32", "dout is [3, 5] int8"});
  for (auto* t : {&da, &db}) {
    t->download();
    EXPECT_TRUE(t->unchanged());
  }
}

}  // namespace
}  // namespace attikos::test
