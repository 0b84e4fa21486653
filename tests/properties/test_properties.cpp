// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Properties of gemm and the row-wise operations on random shapes, types and layouts.
#include "../parity/gemm_checks.hpp"
#include "../parity/row_checks.hpp"
#include "generators.hpp"

namespace attikos::test {
namespace {

GemmCase any_gemm_case(std::int64_t largest) {
  GemmCase p{.batch = any_extent(1, 3),
             .m = any_extent(0, largest),
             .n = any_extent(0, largest),
             .k = any_extent(0, largest)};
  p.options.trans_a = *rc::gen::arbitrary<bool>();
  p.options.trans_b = *rc::gen::arbitrary<bool>();
  p.a = any_layout();
  p.b = any_layout();
  p.c = any_layout();
  return p;
}

/// Small integers: every sum is exact in float, so results are equal and not just close.
template <class O>
void fill_small(O& o, std::uint64_t seed) {
  Random random(seed);
  o.a.fill_integers(random, -8, 8);
  o.b.fill_integers(random, -8, 8);
}

template <class T>
void any_problem_matches_the_oracle() {
  GemmCase p = any_gemm_case(150);
  p.options.alpha = *rc::gen::element(1.0, 0.0, -0.75);
  p.options.beta = *rc::gen::element(0.0, 1.0, 0.3);
  p.options.activation = *rc::gen::element(Activation::none, Activation::relu, Activation::gelu,
                                           Activation::gelu_tanh, Activation::silu);
  p.bias = *rc::gen::element(BiasKind::none, BiasKind::along_n, BiasKind::along_m);
  p.residual = p.bias != BiasKind::none;  // rank 3 calls know both or none
  RC_LOG() << describe(p) << '\n';
  check_gemm<Exec, T>(p);
  RC_ASSERT(!testing::Test::HasFailure());
}
RC_GTEST_PROP(GemmProperties, AnyFloat32ProblemMatchesTheOracle, ()) {
  any_problem_matches_the_oracle<float>();
}
RC_GTEST_PROP(GemmProperties, AnyBfloat16ProblemMatchesTheOracle, ()) {
  any_problem_matches_the_oracle<bfloat16>();
}

RC_GTEST_PROP(GemmProperties, LinearInB, ()) {
  GemmCase const p = any_gemm_case(80);
  RC_LOG() << describe(p) << '\n';
  GemmOperands<Exec, float, float, float> sum(p), parts(p);
  fill_small(sum, any_seed());
  Random random(any_seed());
  Tensor<float, 3, Exec> first(sum.b.extents(), p.b), second(sum.b.extents(), p.a);
  first.fill_integers(random, -8, 8);
  second.fill_integers(random, -8, 8);
  sum.b.for_each([&](auto const& i) { sum.b.at(i) = first.at(i) + second.at(i); });
  sum.b.upload();
  gemm(Exec(), sum.a.view(), sum.b.view(), sum.c.view(), p.options);
  gemm(Exec(), sum.a.view(), first.view(), parts.c.view(), p.options);
  GemmOptions add = p.options;
  add.beta = 1;
  gemm(Exec(), sum.a.view(), second.view(), parts.c.view(), add);
  sum.c.download();
  parts.c.download();
  sum.c.for_each([&](auto const& i) { RC_ASSERT(sum.c.at(i) == parts.c.at(i)); });
}

RC_GTEST_PROP(GemmProperties, TransposeOfTheProduct, ()) {
  GemmCase const p = any_gemm_case(80);
  RC_LOG() << describe(p) << '\n';
  GemmOperands<Exec, float, float, float> o(p);
  fill_small(o, any_seed());
  Tensor<float, 3, Exec> transposed({p.batch, p.n, p.m}, any_layout());
  gemm(Exec(), o.a.view(), o.b.view(), o.c.view(), p.options);
  // (op(A) op(B))^T = op(B)^T op(A)^T
  gemm(Exec(), o.b.view(), o.a.view(), transposed.view(),
       GemmOptions{.trans_a = !p.options.trans_b, .trans_b = !p.options.trans_a});
  o.c.download();
  transposed.download();
  o.c.for_each([&](auto const& i) { RC_ASSERT(o.c.at(i) == transposed.at({i[0], i[2], i[1]})); });
}

RC_GTEST_PROP(GemmProperties, ZeroAlphaScalesC, ()) {
  GemmCase p = any_gemm_case(60);
  p.options.alpha = 0;
  p.options.beta = *rc::gen::element(2.0, -1.0, 0.5);
  GemmOperands<Exec, float, float, float> o(p);
  fill_small(o, any_seed());
  Random random(any_seed());
  o.c.fill_integers(random, -100, 100);
  auto before = o.c;
  gemm(Exec(), o.a.view(), o.b.view(), o.c.view(), p.options);
  o.c.download();
  o.c.for_each([&](auto const& i) {
    RC_ASSERT(static_cast<double>(o.c.at(i)) == p.options.beta * static_cast<double>(before.at(i)));
  });
}

RC_GTEST_PROP(GemmProperties, RowsDoNotKnowEachOther, ()) {
  // Permuting the rows of A permutes the rows of C; with exact data also across tile edges.
  GemmCase p = any_gemm_case(80);
  p.options.trans_a = false;
  GemmOperands<Exec, float, float, float> o(p), q(p);
  fill_small(o, any_seed());
  auto const order = any_permutation(p.m);
  q.a.for_each([&](auto const& i) { q.a.at(i) = o.a.at({i[0], order[sz(i[1])], i[2]}); });
  q.a.upload();
  gemm(Exec(), o.a.view(), o.b.view(), o.c.view(), p.options);
  gemm(Exec(), q.a.view(), o.b.view(), q.c.view(), p.options);
  o.c.download();
  q.c.download();
  q.c.for_each([&](auto const& i) {
    RC_ASSERT(q.c.at(i) == o.c.at({i[0], order[sz(i[1])], i[2]}));
  });
}

RC_GTEST_PROP(SoftmaxProperties, SumsToOneAndIgnoresAShift, ()) {
  std::int64_t const rows = any_extent(1, 40), n = any_extent(1, 300);
  Tensor<float, 2, Exec> x({rows, n}, any_layout()), out({rows, n}, any_layout()),
      shifted({rows, n}, any_layout());
  Random random(any_seed());
  x.fill_integers(random, -20, 20);
  softmax(Exec(), x.const_view(), out.view());
  float const shift = static_cast<float>(*rc::gen::inRange(-1000, 1000));
  x.for_each([&](auto const& i) { x.at(i) += shift; });  // exact: small integers
  x.upload();
  softmax(Exec(), x.const_view(), shifted.view());
  out.download();
  shifted.download();
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0, bound = 0;
    std::vector<double> row;
    for (std::int64_t j = 0; j < n; ++j) row.push_back(x.value(i, j));
    for (std::int64_t j = 0; j < n; ++j) {
      double const value = out.value(i, j);
      double const one = softmax_bound<float>(row, 1, value);
      RC_ASSERT(value >= 0);
      RC_ASSERT(std::abs(shifted.value(i, j) - value) <= 2 * one);
      sum += value;
      bound += one;
    }
    RC_ASSERT(std::abs(sum - 1) <= bound);
  }
}

RC_GTEST_PROP(LayerNormProperties, IgnoresShiftAndScale, ()) {
  std::int64_t const rows = any_extent(1, 20), n = any_extent(2, 300);
  Tensor<float, 2, Exec> x({rows, n}, any_layout()), moved({rows, n}, any_layout());
  Tensor<float, 2, Exec> out({rows, n}, any_layout()), moved_out({rows, n}, any_layout());
  Tensor<float, 1, Exec> weight({n}), bias({n});
  Random random(any_seed());
  x.fill_integers(random, -50, 50);
  weight.fill_uniform(random);
  bias.fill_uniform(random);
  float const shift = static_cast<float>(*rc::gen::inRange(-100, 100));
  float const factor = *rc::gen::element(0.25f, 2.0f, 16.0f);
  x.for_each([&](auto const& i) { moved.at(i) = factor * x.at(i) + shift; });  // exact
  moved.upload();
  double const eps = 1e-3;
  layer_norm(Exec(), x.const_view(), weight.view(), bias.view(), out.view(),
             LayerNormOptions{.eps = eps});
  double const moved_eps = eps * static_cast<double>(factor) * static_cast<double>(factor);
  layer_norm(Exec(), moved.const_view(), weight.view(), bias.view(), moved_out.view(),
             LayerNormOptions{.eps = moved_eps});
  out.download();
  moved_out.download();
  auto const w = values_of(weight), b = values_of(bias);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::vector<double> row, moved_row;
    for (std::int64_t j = 0; j < n; ++j) {
      row.push_back(x.value(i, j));
      moved_row.push_back(moved.value(i, j));
    }
    auto const want = reference::layer_norm_row(row, w, b, eps);
    auto const moved_want = reference::layer_norm_row(moved_row, w, b, moved_eps);
    for (std::int64_t j = 0; j < n; ++j) {
      auto const c = sz(j);
      double const bound =
          layer_norm_bound<float>(want, c, row[c], w[c], b[c], eps) +
          layer_norm_bound<float>(moved_want, c, moved_row[c], w[c], b[c], moved_eps);
      RC_ASSERT(std::abs(out.value(i, j) - moved_out.value(i, j)) <= bound);
    }
  }
}

RC_GTEST_PROP(NormProperties, InPlaceGivesTheSameBits, ()) {
  std::int64_t const rows = any_extent(1, 20), n = any_extent(1, 200);
  Layout const layout = any_layout();
  Tensor<float, 2, Exec> x({rows, n}, layout), out({rows, n}, layout);
  Tensor<float, 1, Exec> weight({n}), bias({n});
  Random random(any_seed());
  weight.fill_uniform(random);
  bias.fill_uniform(random);
  auto const compare = [&](auto const& op) {
    x.fill_uniform(random);
    op(x.view(), out.view());
    Kokkos::fence("attikos_test");
    op(x.view(), x.view());
    out.download();
    x.download();
    RC_ASSERT(same_bits(x.elements(), out.elements()));
  };
  compare([&](auto const& in, auto const& to) {
    layer_norm(Exec(), in, weight.view(), bias.view(), to);
  });
  compare([&](auto const& in, auto const& to) { rms_norm(Exec(), in, weight.view(), to); });
  compare([&](auto const& in, auto const& to) { softmax(Exec(), in, to); });
  compare([&](auto const& in, auto const& to) { l2_normalize(Exec(), in, to); });
}

}  // namespace
}  // namespace attikos::test
