// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of gemm's epilogue that are tensors or functions of the caller: pre-activation, scale
// from the device, function in place of the activation.
#include <algorithm>
#include <attikos/gemm/gemm.hpp>
#include <cmath>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gemm.hpp"

namespace attikos::test {
namespace {

template <class C>
class GemmEpilogue : public testing::Test {};
TYPED_TEST_SUITE(GemmEpilogue, FloatingCases, CaseName);

/// Depends on everything it is told, is exact, and is no linear function.
struct Ramp {
  template <class Value>
  KOKKOS_INLINE_FUNCTION Value operator()(Value value, std::int64_t batch, std::int64_t row,
                                          std::int64_t col) const {
    auto const step = static_cast<Value>(4 * batch + 2 * row - col);
    return value < Value(0) ? step : value + step;
  }
};

template <class Exec, class T>
struct EpilogueProblem {
  std::int64_t m, n, k, batch = 2;
  Tensor<T, 3, Exec> a, b, c, pre, residuals;
  Tensor<T, 1, Exec> biases;
  Tensor<float, 1, Exec> factor;
  GemmOptions options{.alpha = 0.5, .beta = 0.25, .scale = 3};
  Tensor<T, 3, Exec> before;

  EpilogueProblem(std::int64_t m_, std::int64_t n_, std::int64_t k_, Layout layout,
                  bool share_b = false)
      : m(m_),
        n(n_),
        k(k_),
        a({2, m, k}, layout),
        b({share_b ? 1 : 2, k, n}),
        c({2, m, n}, layout),
        pre({2, m, n}, layout == Layout::right && !share_b ? Layout::strided : layout),
        residuals({2, m, n}, share_b ? layout : Layout::left),
        biases({n}, Layout::strided),
        factor({1}),
        before(c) {
    Random random(static_cast<std::uint64_t>(m * 100 + n));
    for (auto* t : {&a, &b, &c, &residuals}) t->fill_uniform(random);
    biases.fill_uniform(random);
    factor.fill(0.625);
    before = c;
  }
  reference::GemmElement element(std::int64_t bt, std::int64_t i, std::int64_t j,
                                 reference::GemmTerms& terms) const {
    terms.alpha = options.alpha;
    terms.beta = options.beta;
    terms.c = before.value(bt, i, j);
    terms.scale = options.scale * 0.625;
    terms.bias = biases.value(j);
    terms.residual = residuals.value(bt, i, j);
    return reference::gemm_element(
        k, [&](std::int64_t l) { return a.value(bt, i, l); },
        [&](std::int64_t l) { return b.value(std::min(bt, b.extent(0) - 1), l, j); }, terms);
  }
};

template <class TypeParam>
void check_pre_activation(std::int64_t m, std::int64_t n, std::int64_t k, Layout layout,
                          bool share_b) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  using Acc = Accumulator<T>;
  EpilogueProblem<Exec, T> p(m, n, k, layout, share_b);
  p.options.activation = Activation::silu;
  gemm(Exec(), p.a.const_view(), p.b.const_view(), p.c.view(), p.options,
       bias(p.biases.const_view()), residual(p.residuals.const_view()),
       pre_activation(p.pre.view()), device_scale(p.factor.const_view()));
  p.c.download();
  p.pre.download();
  EXPECT_EQ(p.pre.writes_outside(), 0u);
  std::string const name = std::string("gemm/epilogue/") + type_name<T>() + "/" + Exec::name();
  Comparison values(name, "values", stored_as<T>()),
      saved(name + "/pre_activation", "pre_activation", stored_as<T>());
  p.c.for_each([&](auto const& at) {
    auto const [bt, i, j] = at;
    reference::GemmTerms terms;
    auto const before_act = p.element(bt, i, j, terms);
    terms.residual = 0;
    double const error = scaled_gemm_error<Acc>(k, before_act, terms);
    saved.add(to_double(p.pre.at(at)), before_act.pre_activation,
              stored_gemm_bound<Acc, T>(before_act.pre_activation, error), {bt, i, j});
    terms.activation = reference::silu;
    auto const want = p.element(bt, i, j, terms);
    values.add(to_double(p.c.at(at)), want.value,
               stored_gemm_bound<Acc, T>(want.value, scaled_gemm_error<Acc>(k, want, terms)),
               {bt, i, j});
  });
}

TYPED_TEST(GemmEpilogue, PreActivationAndScaleFromTheDevice) {
  std::size_t turn = 0;
  for (auto const& e :
       {std::array<std::int64_t, 3>{1, 1, 1}, {19, 35, 21}, {67, 5, 300}, {5, 4, 0}})
    for (bool share_b : {false, true})
      check_pre_activation<TypeParam>(e[0], e[1], e[2], all_layouts[turn++ % 5], share_b);
}

TYPED_TEST(GemmEpilogue, FunctionOfTheCaller) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  using Acc = Accumulator<T>;
  for (auto const& e : {std::array<std::int64_t, 3>{1, 1, 1}, {19, 35, 21}, {131, 5, 3}}) {
    std::int64_t const m = e[0], n = e[1], k = e[2];
    bool const share_b = m == 19;  // rows of the second matrix are still told that they are its own
    EpilogueProblem<Exec, T> p(m, n, k, share_b ? Layout::right : Layout::padded, share_b);
    gemm(Exec(), p.a.const_view(), p.b.const_view(), p.c.view(), p.options,
         bias(p.biases.const_view()), residual(p.residuals.const_view()),
         pre_activation(p.pre.view()), epilogue(Ramp{}), device_scale(p.factor.const_view()));
    p.c.download();
    p.pre.download();
    Comparison values(std::string("gemm/function/") + type_name<T>() + "/" + Exec::name(), "",
                      stored_as<T>());
    p.c.for_each([&](auto const& at) {
      auto const [bt, i, j] = at;
      reference::GemmTerms terms;
      auto const plain = p.element(bt, i, j, terms);
      double const error = scaled_gemm_error<Acc>(k, plain, terms);
      // Near 0 either side of the jump is right; the saved argument says which was taken.
      double const x = plain.pre_activation;
      bool const negative = std::abs(x) > error ? x < 0 : to_double(p.pre.at(at)) < 0;
      double const step = static_cast<double>(4 * bt + 2 * i - j);
      double const want = (negative ? step : x + step) + terms.residual;
      double const rounding_error =
          4 * precision<Acc>().roundoff * (std::abs(step) + std::abs(x) + std::abs(want));
      values.add(to_double(p.c.at(at)), want,
                 stored_gemm_bound<Acc, T>(want, error + rounding_error), {bt, i, j});
    });
  }
}

template <class Exec>
class GemmEpilogueSpaces : public testing::Test {};
TYPED_TEST_SUITE(GemmEpilogueSpaces, SpaceCases, CaseName);

/// The pre-activation may have another type than C. Sums of integers are exact, so that it does not
/// matter which kernel takes which type.
TYPED_TEST(GemmEpilogueSpaces, TypesOfThePreActivation) {
  Tensor<bfloat16, 2, TypeParam> a({9, 5}), b({5, 7}), c({9, 7});
  Tensor<float, 2, TypeParam> f({9, 7});
  Tensor<double, 2, TypeParam> d({9, 7});
  Tensor<float16, 2, TypeParam> h({9, 7});
  Random random(2);
  a.fill_integers(random, -100, 100);
  b.fill_integers(random, -100, 100);
  GemmOptions const options{.activation = Activation::relu};
  TypeParam const exec;
  gemm(exec, a.const_view(), b.const_view(), c.view(), options, pre_activation(f.view()));
  gemm(exec, a.const_view(), b.const_view(), c.view(), options, pre_activation(d.view()));
  gemm(exec, a.const_view(), b.const_view(), c.view(), options, pre_activation(h.view()));
  f.download();
  d.download();
  h.download();
  f.for_each([&](auto const& at) {
    EXPECT_EQ(static_cast<double>(f.at(at)), d.at(at));
    EXPECT_EQ(h.at(at).bits, float16(f.at(at)).bits);
  });
}

/// Matrices that share B are one product of all their rows where nothing depends on where they
/// begin.
TEST(GemmBatches, ThatShareBAreJoined) {
  abi::GemmArgs g{};
  g.batch = 3;
  g.m = 5;
  g.n = g.k = 7;
  g.a_batch = 5 * (g.a_m = 10);
  g.c_batch = 5 * (g.c_m = 11);
  auto const rows = [](abi::GemmArgs args, auto change) {
    change(args);
    detail::join_batch(args);
    EXPECT_EQ(args.m * args.batch, 15);
    return args.m;
  };
  std::int32_t number = 0;
  float factor = 1;
  EXPECT_EQ(rows(g, [](auto&) {}), 15);
  EXPECT_EQ(rows(g, [](auto& x) { x.b_batch = 49; }), 5);
  EXPECT_EQ(rows(g, [](auto& x) { x.a_batch = 51; }), 5);
  EXPECT_EQ(rows(g, [](auto& x) { x.a_batch = 0; }), 5);
  EXPECT_EQ(rows(g, [](auto& x) { x.c_batch = 60; }), 5);
  EXPECT_EQ(rows(g, [](auto& x) { x.residual_m = 7; }), 5);
  EXPECT_EQ(rows(g, [](auto& x) { x.residual_batch = 5 * (x.residual_m = 7); }), 15);
  EXPECT_EQ(rows(g, [](auto& x) { x.pre_activation_batch = 36; }), 5);
  EXPECT_EQ(rows(g, [](auto& x) { x.custom_epilogue = true; }), 5);
  EXPECT_EQ(rows(g, [&](auto& x) { x.counts = &number; }), 5);
  EXPECT_EQ(rows(g,
                 [&](auto& x) {
                   x.bias = &factor;
                   x.bias_stride = 1;
                   x.bias_along = BiasAlong::m;
                 }),
            5);
  EXPECT_EQ(rows(g,
                 [&](auto& x) {
                   x.zero_point_a = &number;
                   x.zero_point_a_stride = 1;
                 }),
            5);
  auto const row_factors = [&](std::int64_t batch, std::int32_t shift) {
    return [=, &factor](abi::GemmArgs& x) { x.scale_a = {&factor, batch, 2, 1, shift, 7}; };
  };
  EXPECT_EQ(rows(g, row_factors(10, 0)), 15);
  EXPECT_EQ(rows(g, row_factors(12, 0)), 5);
  EXPECT_EQ(rows(g, row_factors(2, 7)), 5);

  EXPECT_EQ(rows(g, [](auto& x) { x.m = 1, x.batch = 15, x.a_batch = 0; }), 1);

  // One row a matrix: the strides of rows mean nothing, those of matrices lead on.
  g.m = 1;
  g.batch = 15;
  g.a_batch = 13;
  g.c_batch = 17;
  g.scale_a = {&factor, 3, 99, 0, 0, 0};
  detail::join_batch(g);
  EXPECT_EQ(g.m, 15);
  EXPECT_EQ(g.a_m, 13);
  EXPECT_EQ(g.c_m, 17);
  EXPECT_EQ(g.scale_a.row, 3);
}

/// Small integers and powers of two, so that all is exact.
TYPED_TEST(GemmEpilogueSpaces, FactorsOfRowsOfMatricesThatShareB) {
  for (std::int64_t m : {1, 5}) {
    Tensor<float, 3, TypeParam> a({3, m, 6}), c({3, m, 7}), scale({3, m, 1});
    Tensor<float, 2, TypeParam> b({6, 7});
    Random random(4);
    a.fill_integers(random, -10, 10);
    b.fill_integers(random, -10, 10);
    scale.for_each([&](auto const& at) {
      scale.at(at) = std::ldexp(1.0f, static_cast<int>(at[0] * m + at[1]) % 11 - 5);
    });
    scale.upload();
    gemm(TypeParam(), a.const_view(), b.const_view(), c.view(), {}, scale_a(scale.const_view()));
    c.download();
    c.for_each([&](auto const& at) {
      double sum = 0;
      for (std::int64_t l = 0; l < 6; ++l) sum += a.value(at[0], at[1], l) * b.value(l, at[2]);
      EXPECT_EQ(c.at(at), sum * scale.value(at[0], at[1], 0));
    });
  }
}

TYPED_TEST(GemmEpilogueSpaces, ExplainSaysWhyOthersCannot) {
  Tensor<float, 2, TypeParam> a({9, 5}), b({5, 7}), c({9, 7}), pre({9, 7});
  auto const plan = explain(op::gemm, TypeParam(), a.view(), b.view(), c.view(), {},
                            epilogue(Ramp{}), pre_activation(pre.view()));
  EXPECT_EQ(plan.kernel, "portable");
}

}  // namespace
}  // namespace attikos::test
