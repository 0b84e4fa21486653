// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm_backward against the float64 oracle and against differences of gemm: execution spaces x
// element types.
#include <attikos/gemm/gemm_backward.hpp>
#include <attikos/reference/gated_mlp_reference.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gemm_backward.hpp"

namespace attikos::test {
namespace {

template <class C>
class GemmBackward : public testing::Test {};
TYPED_TEST_SUITE(GemmBackward, FloatingCases, CaseName);

struct BackwardCase {
  std::int64_t batch, m, n, k;
  GemmOptions options = {};
  bool share_a = false, share_b = false;
  Layout layout = Layout::right;
  bool given_dx = false;
};

double slope(Activation activation, double x) {
  switch (activation) {
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::gelu:
      return reference::gelu_slope(x);
    case Activation::gelu_tanh:
      return reference::gelu_tanh_slope(x);
    case Activation::silu:
      return reference::silu_slope(x);
    case Activation::none:
      break;
  }
  return 1;
}

std::string describe(BackwardCase const& p) {
  std::ostringstream text;
  text << "batch " << p.batch << " m " << p.m << " n " << p.n << " k " << p.k << " trans "
       << p.options.trans_a << p.options.trans_b << " activation "
       << activation_name(p.options.activation) << " along m "
       << (p.options.bias_along == BiasAlong::m) << " shared " << p.share_a << p.share_b << " "
       << layout_name(p.layout);
  return text.str();
}

template <class Exec, class T>
void check(BackwardCase const& p) {
  using Acc = Accumulator<T>;
  auto const& o = p.options;
  bool const along_n = o.bias_along == BiasAlong::n;
  std::int64_t const rows_a = o.trans_a ? p.k : p.m, cols_a = o.trans_a ? p.m : p.k;
  std::int64_t const rows_b = o.trans_b ? p.n : p.k, cols_b = o.trans_b ? p.k : p.n;
  std::int64_t const batch_a = p.share_a ? 1 : p.batch, batch_b = p.share_b ? 1 : p.batch;
  Tensor<T, 3, Exec> a({batch_a, rows_a, cols_a}, p.layout), b({batch_b, rows_b, cols_b}, p.layout);
  Tensor<T, 3, Exec> dout({p.batch, p.m, p.n}, p.layout), x({p.batch, p.m, p.n}, Layout::left);
  Tensor<T, 3, Exec> da({batch_a, rows_a, cols_a}, p.layout), db({batch_b, rows_b, cols_b});
  Tensor<T, 3, Exec> dx({p.batch, p.m, p.n}, p.layout);
  Tensor<T, 1, Exec> dbias({along_n ? p.n : p.m}, Layout::strided);
  Tensor<float, 1, Exec> factor({1});
  Random random(static_cast<std::uint64_t>(p.m * 1009 + p.n * 31 + p.k));
  a.fill_uniform(random);
  b.fill_uniform(random);
  dout.fill_uniform(random);
  x.fill_uniform(random, -4, 4);
  factor.fill(0.75);
  Exec const exec;
  if (p.given_dx) {
    gemm_backward(exec, a.const_view(), b.const_view(), dout.const_view(), da.view(), db.view(), o,
                  pre_activation(x.const_view()), bias_gradient(dbias.view()),
                  pre_activation_gradient(dx.view()), device_scale(factor.const_view()));
  } else {
    gemm_backward(exec, a.const_view(), b.const_view(), dout.const_view(), da.view(), db.view(), o,
                  pre_activation(x.const_view()), bias_gradient(dbias.view()),
                  device_scale(factor.const_view()));
  }
  da.download();
  db.download();
  dx.download();
  dbias.download();
  for (auto* t : {&da, &db, &dx}) EXPECT_EQ(t->writes_outside(), 0u) << describe(p);
  EXPECT_EQ(dbias.writes_outside(), 0u) << describe(p);

  std::string const name = std::string("gemm_backward/") + type_name<T>() + "/" + Exec::name();
  // Products of single numbers have no norms.
  auto const stored = std::min({p.m, p.n, p.k}) > 1 ? stored_as<T>() : Stored{};
  Comparison compare_a(name + "/da", describe(p), stored),
      compare_b(name + "/db", describe(p), stored),
      compare_bias(name + "/bias_gradient", describe(p), stored),
      compare_x(name + "/dx", describe(p), stored);
  bool const activated = o.activation != Activation::none;
  auto const dx_of = [&](std::int64_t bt, std::int64_t i, std::int64_t j) {
    return dout.value(bt, i, j) * slope(o.activation, x.value(bt, i, j));
  };
  auto const dx_error = [&](std::int64_t bt, std::int64_t i, std::int64_t j) {
    return pre_activation_gradient_bound<T>(dout.value(bt, i, j), dx_of(bt, i, j), activated);
  };
  double const f = o.alpha * o.scale * 0.75;
  if (p.given_dx) {
    dx.for_each([&](auto const& at) {
      auto const [bt, i, j] = at;
      compare_x.add(to_double(dx.at(at)), dx_of(bt, i, j), dx_error(bt, i, j), {bt, i, j});
    });
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
  auto const finish = [&](Comparison& comparison, double got, Sum const& s, double scale,
                          std::initializer_list<std::int64_t> at) {
    comparison.add(
        got, scale * s.value,
        gradient_sum_bound<Acc, T>(s.terms, scale * s.value, std::abs(scale) * s.magnitude,
                                   std::abs(scale) * s.inherited),
        at);
  };
  da.for_each([&](auto const& at) {
    std::int64_t const i = o.trans_a ? at[2] : at[1], l = o.trans_a ? at[1] : at[2];
    Sum s;
    for (std::int64_t bt = p.share_a ? 0 : at[0]; bt < (p.share_a ? p.batch : at[0] + 1); ++bt) {
      std::int64_t const bb = p.share_b ? 0 : bt;
      for (std::int64_t j = 0; j < p.n; ++j)
        s.add(dx_of(bt, i, j), dx_error(bt, i, j),
              o.trans_b ? b.value(bb, j, l) : b.value(bb, l, j));
    }
    finish(compare_a, to_double(da.at(at)), s, f, {at[0], at[1], at[2]});
  });
  db.for_each([&](auto const& at) {
    std::int64_t const l = o.trans_b ? at[2] : at[1], j = o.trans_b ? at[1] : at[2];
    Sum s;
    for (std::int64_t bt = p.share_b ? 0 : at[0]; bt < (p.share_b ? p.batch : at[0] + 1); ++bt) {
      std::int64_t const ba = p.share_a ? 0 : bt;
      for (std::int64_t i = 0; i < p.m; ++i)
        s.add(dx_of(bt, i, j), dx_error(bt, i, j),
              o.trans_a ? a.value(ba, l, i) : a.value(ba, i, l));
    }
    finish(compare_b, to_double(db.at(at)), s, f, {at[0], at[1], at[2]});
  });
  dbias.for_each([&](auto const& at) {
    Sum s;
    for (std::int64_t bt = 0; bt < p.batch; ++bt)
      for (std::int64_t r = 0; r < (along_n ? p.m : p.n); ++r)
        s.add(dx_of(bt, along_n ? r : at[0], along_n ? at[0] : r),
              dx_error(bt, along_n ? r : at[0], along_n ? at[0] : r), 1);
    finish(compare_bias, to_double(dbias.at(at)), s, 1, {at[0]});
  });
}

TYPED_TEST(GemmBackward, EveryTransposeActivationAndLayout) {
  int turn = 0;
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu}) {
    for (int trans = 0; trans < 4; ++trans, ++turn) {
      GemmOptions const options{.alpha = 0.5,
                                .trans_a = (trans & 1) != 0,
                                .trans_b = (trans & 2) != 0,
                                .activation = activation,
                                .scale = 3,
                                .bias_along = turn % 3 == 0 ? BiasAlong::m : BiasAlong::n};
      for (auto [m, n, k] :
           {std::array<std::int64_t, 3>{1, 1, 1}, {17, 13, 7}, {9, 40, 33}, {70, 5, 20}})
        check<typename TypeParam::Exec, typename TypeParam::T>(
            {.batch = 1 + turn % 3,
             .m = m,
             .n = n,
             .k = k,
             .options = options,
             .layout = all_layouts[static_cast<std::size_t>(turn) % 5],
             .given_dx = turn % 2 == 0});
    }
  }
}

TYPED_TEST(GemmBackward, SharedOperandsSumOverTheBatch) {
  for (bool share_a : {false, true}) {
    for (bool share_b : {false, true}) {
      for (int trans : {0, 3}) {
        GemmOptions const options{.trans_a = (trans & 1) != 0,
                                  .trans_b = (trans & 2) != 0,
                                  .activation = Activation::gelu};
        for (std::int64_t batch : {0, 1, 5})
          check<typename TypeParam::Exec, typename TypeParam::T>({.batch = batch,
                                                                  .m = 11,
                                                                  .n = 19,
                                                                  .k = 6,
                                                                  .options = options,
                                                                  .share_a = share_a,
                                                                  .share_b = share_b});
      }
    }
  }
}

TYPED_TEST(GemmBackward, EmptyExtents) {
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {0, 0, 0}}) {
    for (auto activation : {Activation::none, Activation::silu}) {
      for (bool given : {false, true})
        check<typename TypeParam::Exec, typename TypeParam::T>(
            {.batch = 2,
             .m = m,
             .n = n,
             .k = k,
             .options = {.activation = activation},
             .given_dx = given});
    }
  }
}

TYPED_TEST(GemmBackward, ManyRowsOfBias) {
  check<typename TypeParam::Exec, typename TypeParam::T>(
      {.batch = 2, .m = 3000, .n = 3, .k = 1, .options = {.activation = Activation::relu}});
  check<typename TypeParam::Exec, typename TypeParam::T>(
      {.batch = 2, .m = 3, .n = 3000, .k = 1, .options = {.bias_along = BiasAlong::m}});
}

template <class Exec>
class GemmBackwardSpaces : public testing::Test {};
TYPED_TEST_SUITE(GemmBackwardSpaces, SpaceCases, CaseName);

TYPED_TEST(GemmBackwardSpaces, AnyOutputMayBeLeftOut) {
  using Exec = TypeParam;
  Tensor<float, 2, Exec> a({9, 5}), b({5, 7}), dout({9, 7}), da({9, 5}), db({5, 7}), all_a({9, 5}),
      all_b({5, 7});
  Tensor<float, 1, Exec> dbias({7}), all_bias({7});
  Random random(3);
  a.fill_uniform(random);
  b.fill_uniform(random);
  dout.fill_uniform(random);
  Exec const exec;
  auto const av = a.const_view(), bv = b.const_view(), dv = dout.const_view();
  gemm_backward(exec, av, bv, dv, all_a.view(), all_b.view(), {}, bias_gradient(all_bias.view()));
  gemm_backward(exec, av, bv, dv, da.view(), none);
  gemm_backward(exec, av, bv, dv, none, db.view());
  gemm_backward(exec, av, bv, dv, none, none, {}, bias_gradient(dbias.view()));
  for (auto* t : {&da, &db, &all_a, &all_b}) t->download();
  dbias.download();
  all_bias.download();
  EXPECT_TRUE(same_bits(da.elements(), all_a.elements()));
  EXPECT_TRUE(same_bits(db.elements(), all_b.elements()));
  EXPECT_TRUE(same_bits(dbias.elements(), all_bias.elements()));
}

TYPED_TEST(GemmBackwardSpaces, WorkspaceThatIsHandedIn) {
  using Exec = TypeParam;
  GemmOptions const options{.activation = Activation::silu};
  Tensor<float, 3, Exec> a({2, 9, 5}), b({2, 5, 7}), dout({2, 9, 7}), x({2, 9, 7}), da({2, 9, 5}),
      db({2, 5, 7}), again({2, 9, 5});
  Tensor<float, 1, Exec> dbias({7});
  Random random(3);
  for (auto* t : {&a, &b, &dout, &x}) t->fill_uniform(random);
  std::size_t const bytes = gemm_backward_workspace_size(dout.view(), options);
  Tensor<std::uint8_t, 1, Exec> memory({static_cast<std::int64_t>(bytes)});
  Exec const exec;
  auto const call = [&](auto const& out, auto const&... extras) {
    gemm_backward(exec, a.const_view(), b.const_view(), dout.const_view(), out, db.view(), options,
                  pre_activation(x.const_view()), bias_gradient(dbias.view()), extras...);
  };
  call(da.view(), workspace(memory.view()));
  call(again.view());
  da.download();
  again.download();
  memory.download();
  EXPECT_EQ(memory.writes_outside(), 0u);
  EXPECT_TRUE(same_bits(da.elements(), again.elements()));
}

/// Central differences of sum(D·w), D from gemm() with everything that has a derivative.
TYPED_TEST(GemmBackwardSpaces, AgreesWithDifferencesOfGemm) {
  using Exec = TypeParam;
  std::int64_t const m = 4, n = 3, k = 5;
  Exec const exec;
  for (auto activation :
       {Activation::none, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    GemmOptions const options{
        .alpha = 0.7, .trans_b = true, .activation = activation, .scale = 1.5};
    Tensor<double, 2, Exec> a({m, k}), b({n, k}), d({m, n}), x({m, n}), w({m, n}), da({m, k}),
        db({n, k});
    Tensor<double, 1, Exec> biases({n}), dbias({n});
    Random random(7);
    for (auto* t : {&a, &b, &w}) t->fill_uniform(random);
    biases.fill_uniform(random);
    auto const loss = [&] {
      gemm(exec, a.const_view(), b.const_view(), d.view(), options, bias(biases.const_view()),
           pre_activation(x.view()));
      d.download();
      double sum = 0;
      d.for_each([&](auto const& at) { sum += d.at(at) * w.at(at); });
      return sum;
    };
    loss();
    gemm_backward(exec, a.const_view(), b.const_view(), w.const_view(), da.view(), db.view(),
                  options, pre_activation(x.const_view()), bias_gradient(dbias.view()));
    da.download();
    db.download();
    dbias.download();
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
        EXPECT_NEAR(gradient.at(at), (above - below) / (2 * h), 10 * h * h + 1e-15 * 100 / h)
            << name << ", " << activation_name(activation);
      });
    };
    check_all(a, da, "da");
    check_all(b, db, "db");
    check_all(biases, dbias, "bias_gradient");
  }
}

/// Types need not agree.
TYPED_TEST(GemmBackwardSpaces, MixedTypes) {
  using Exec = TypeParam;
  Tensor<bfloat16, 2, Exec> a({9, 5}), dout({9, 7});
  Tensor<float, 2, Exec> b({5, 7}), da({9, 5}), db({5, 7});
  Random random(3);
  a.fill_uniform(random);
  dout.fill_uniform(random);
  b.fill_uniform(random);
  gemm_backward(Exec(), a.const_view(), b.const_view(), dout.const_view(), da.view(), db.view());
  da.download();
  db.download();
  for (std::int64_t i = 0; i < 9; ++i)
    for (std::int64_t l = 0; l < 5; ++l) {
      double sum = 0, magnitude = 0;
      for (std::int64_t j = 0; j < 7; ++j) {
        sum += dout.value(i, j) * b.value(l, j);
        magnitude += std::abs(dout.value(i, j) * b.value(l, j));
      }
      EXPECT_NEAR(da.value(i, l), sum, (gradient_sum_bound<float, float>(7, sum, magnitude, 0)));
    }
}

}  // namespace
}  // namespace attikos::test
