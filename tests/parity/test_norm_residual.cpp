// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// rms_norm and layer_norm of an input and a residual against the float64 oracle.
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class ResidualNorm : public testing::Test {};
TYPED_TEST_SUITE(ResidualNorm, FloatingCases, CaseName);

/// Where the sum goes.
enum class SumIn { own, residual, x };

/// `S` is the type of the residual and of the sum.
template <class C, class S = typename C::T>
void check(RowCase const& p, SumIn where, bool layer, double eps = 1e-5) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({p.batch, p.rows, p.hidden}, p.x), out({p.batch, p.rows, p.hidden}, p.out);
  Tensor<S, 3, Exec> residual({p.batch, p.rows, p.hidden}, p.out);
  Tensor<S, 3, Exec> sum({p.batch, p.rows, p.hidden}, p.out);
  Tensor<T, 1, Exec> weight({p.hidden}, vector_layout(p)), bias({p.hidden});
  Random random(static_cast<std::uint64_t>(p.hidden + 3));
  x.fill_uniform(random);
  residual.fill_uniform(random);
  weight.fill_uniform(random);
  bias.fill_uniform(random);
  std::vector<double> wanted;
  x.for_each([&](auto const& i) {
    wanted.push_back(x.value(i[0], i[1], i[2]) + residual.value(i[0], i[1], i[2]));
  });
  if (where == SumIn::residual) sum = residual;
  if constexpr (std::is_same_v<S, T>) {
    if (where == SumIn::x) sum = x;
  }
  auto const call = [&](auto const& in, auto const& r, auto const& s, auto const& to) {
    if (layer)
      layer_norm(Exec(), in, weight.const_view(), bias.const_view(), to, {.eps = eps},
                 attikos::residual(r), residual_sum(s));
    else
      rms_norm(Exec(), in, weight.const_view(), to, {.eps = eps}, residual_sum(s),
               attikos::residual(r));
  };
  if (p.flat)
    call(x.const_front(), residual.const_front(), sum.front(), out.front());
  else
    call(x.const_view(), residual.const_view(), sum.view(), out.view());
  out.download();
  sum.download();
  EXPECT_EQ(out.writes_outside() + sum.writes_outside(), 0u) << describe(p);

  using Acc = Accumulator<T, S>;
  std::string const op = layer ? "layer_norm" : "rms_norm";
  Comparison sums(name_of<C>((op + "/sum").c_str()), describe(p), stored_as<S>());
  std::size_t at = 0;
  sum.for_each([&](auto const& i) {
    double const want = wanted[at++], u = precision<Acc>().roundoff * std::abs(want);
    sums.add(sum.value(i[0], i[1], i[2]), want, u + rounding<S>(std::abs(want) + u),
             {i[0], i[1], i[2]});
  });
  Comparison comparison(name_of<C>((op + "/residual").c_str()), describe(p), stored_as<T>());
  auto const w = values_of(weight), b = values_of(bias);
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const of_layer = reference::layer_norm_row(row_of(sum, n, i), w, b, eps);
      auto const of_rms = reference::rms_norm_row(row_of(sum, n, i), w, eps);
      for (std::int64_t c = 0; c < p.hidden; c += p.column_step) {
        auto const k = sz(c);
        if (layer)
          comparison.add(out.value(n, i, c), of_layer.out[k],
                         layer_norm_bound<T>(of_layer, k, sum.value(n, i, c), w[k], b[k], eps),
                         {n, i, c});
        else
          comparison.add(out.value(n, i, c), of_rms[k],
                         scaled_row_bound<T>(sz(p.hidden), of_rms[k]), {n, i, c});
      }
    }
  }
}

TYPED_TEST(ResidualNorm, EveryRow) {
  constexpr SumIn places[] = {SumIn::own, SumIn::residual, SumIn::x};
  int turn = 0;
  for_row_cases([&](RowCase p) {
    SumIn const where = places[turn++ % 3];
    if (where == SumIn::x) p.out = p.x;
    check<TypeParam>(p, where, turn % 2 == 0);
    check<TypeParam>(p, where, turn % 2 != 0);
  });
}

TYPED_TEST(ResidualNorm, LongRowsAndMany) {
  for_long_row_cases<typename TypeParam::Exec>([](RowCase const& p) {
    check<TypeParam>(p, SumIn::residual, false);
    check<TypeParam>(p, SumIn::own, true);
  });
}

// A residual stream in float, as models with layers in 16 bits have it.
TYPED_TEST(ResidualNorm, StreamOfItsOwnType) {
  if constexpr (std::is_same_v<typename TypeParam::T, bfloat16>) {
    for (std::int64_t hidden : {1, 37, 64, 1024}) {
      check<TypeParam, float>({2, 5, hidden}, SumIn::residual, false);
      check<TypeParam, float>({2, 5, hidden}, SumIn::own, true);
    }
  }
}

TYPED_TEST(ResidualNorm, Refusals) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  Tensor<T, 2, Exec> x({3, 8}), other({3, 7}), out({3, 8});
  Tensor<T, 1, Exec> weight({8});
  std::string const type = type_name<T>();
  expect_message<ShapeError>(
      [&] {
        rms_norm(Exec(), x.view(), weight.view(), out.view(), {}, attikos::residual(other.view()),
                 residual_sum(x.view()));
      },
      "attikos::rms_norm: residual is [3, 7] " + type +
          "; expected the extents of x, which is [3, 8] " + type);
  expect_message<ShapeError>(
      [&] {
        layer_norm(Exec(), x.view(), weight.view(), weight.view(), out.view(), {},
                   attikos::residual(x.view()), residual_sum(other.view()));
      },
      "attikos::layer_norm: residual_sum is [3, 7] " + type +
          "; expected the extents of x, which is [3, 8] " + type);
  expect_message<Error>(
      [&] {
        rms_norm(Exec(), x.view(), weight.view(), out.view(), {}, attikos::residual(x.view()),
                 residual_sum(out.view()));
      },
      "attikos::rms_norm: output residual_sum shares memory with output out; expected memory of "
      "its own");
}

}  // namespace
}  // namespace attikos::test
