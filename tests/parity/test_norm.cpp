// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// layer_norm and rms_norm against the float64 oracle.
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class Norm : public testing::Test {};
TYPED_TEST_SUITE(Norm, FloatingCases, CaseName);

template <class C>
void check_layer_norm(RowCase const& p, double shift, double eps) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({p.batch, p.rows, p.hidden}, p.x), out({p.batch, p.rows, p.hidden}, p.out);
  Tensor<T, 1, Exec> weight({p.hidden}, vector_layout(p)), bias({p.hidden});
  Random random(static_cast<std::uint64_t>(p.hidden + 1));
  x.fill_uniform(random, shift - 1, shift + 1);
  weight.fill_uniform(random);
  bias.fill_uniform(random);
  run_rows<Exec>(p, x, out, [&](auto const& in, auto const& result) {
    layer_norm(Exec(), in, weight.const_view(), bias.const_view(), result,
               LayerNormOptions{.eps = eps});
  });
  Comparison comparison(std::string("layer_norm/") + type_name<T>() + "/" + Exec::name(),
                        describe(p), stored_as<T>());
  auto const w = values_of(weight), b = values_of(bias);
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const row = reference::layer_norm_row(row_of(x, n, i), w, b, eps);
      for (std::int64_t c = 0; c < p.hidden; c += p.column_step) {
        comparison.add(out.value(n, i, c), row.out[sz(c)],
                       layer_norm_bound<T>(row, sz(c), x.value(n, i, c), w[sz(c)], b[sz(c)], eps),
                       {n, i, c});
      }
    }
  }
}

TYPED_TEST(Norm, LayerNorm) {
  for_row_cases([](RowCase const& p) { check_layer_norm<TypeParam>(p, 0, 1e-5); });
}

// The variance of shifted data: E[x^2] - mean^2 would fail here.
TYPED_TEST(Norm, LayerNormOfShiftedRows) {
  for (auto hidden : row_lengths) {
    check_layer_norm<TypeParam>({1, 5, hidden}, 100, 1e-5);
    check_layer_norm<TypeParam>({1, 5, hidden}, -1000, 1e-12);
  }
}

TYPED_TEST(Norm, LayerNormOfConstantRowsIsBias) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  Tensor<T, 3, Exec> x({1, 3, 64}), out({1, 3, 64});
  Tensor<T, 1, Exec> weight({64}), bias({64});
  x.fill(0.5);
  weight.fill(2);
  bias.fill(0.25);
  layer_norm(Exec(), x.view(), weight.view(), bias.view(), out.view());
  out.download();
  out.for_each([&](auto const& i) { EXPECT_EQ(to_double(out.at(i)), 0.25); });
}

template <class C>
void check_rms_norm(RowCase const& p, double largest, double eps) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({p.batch, p.rows, p.hidden}, p.x), out({p.batch, p.rows, p.hidden}, p.out);
  Tensor<T, 1, Exec> weight({p.hidden}, vector_layout(p));
  Random random(static_cast<std::uint64_t>(p.hidden + 2));
  x.fill_uniform(random, -largest, largest);
  weight.fill_uniform(random);
  run_rows<Exec>(p, x, out, [&](auto const& in, auto const& result) {
    rms_norm(Exec(), in, weight.const_view(), result, RmsNormOptions{.eps = eps});
  });
  Comparison comparison(std::string("rms_norm/") + type_name<T>() + "/" + Exec::name(), describe(p),
                        stored_as<T>());
  auto const w = values_of(weight);
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const want = reference::rms_norm_row(row_of(x, n, i), w, eps);
      for (std::int64_t c = 0; c < p.hidden; c += p.column_step) {
        comparison.add(out.value(n, i, c), want[sz(c)],
                       scaled_row_bound<T>(sz(p.hidden), want[sz(c)]), {n, i, c});
      }
    }
  }
}

TYPED_TEST(Norm, RmsNorm) {
  for_row_cases([](RowCase const& p) { check_rms_norm<TypeParam>(p, 1, 1e-6); });
}

TYPED_TEST(Norm, LongRowsAndMany) {
  for_long_row_cases<typename TypeParam::Exec>([](RowCase const& p) {
    check_layer_norm<TypeParam>(p, 0, 1e-5);
    check_rms_norm<TypeParam>(p, 1, 1e-6);
  });
}

TYPED_TEST(Norm, RmsNormOfTinyAndHugeRows) {
  for (auto hidden : row_lengths) {
    check_rms_norm<TypeParam>({1, 3, hidden}, 1e-3, 1e-6);
    check_rms_norm<TypeParam>({1, 3, hidden}, 1e3, 1e-6);
    check_rms_norm<TypeParam>({1, 3, hidden}, 0, 1e-6);
  }
}

TYPED_TEST(Norm, NanStaysInItsRow) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  Tensor<T, 3, Exec> x({1, 5, 35}), out({1, 5, 35});
  Tensor<T, 1, Exec> weight({35}), bias({35});
  Random random(1);
  x.fill_uniform(random);
  x.at({0, 2, 34}) = poison<T>();
  x.upload();
  weight.fill(1);
  bias.fill(0);
  auto const expect = [&] {
    out.download();
    out.for_each(
        [&](auto const& i) { EXPECT_EQ(std::isnan(to_double(out.at(i))), i[1] == 2) << i[1]; });
    out.fill(0);
  };
  layer_norm(Exec(), x.view(), weight.view(), bias.view(), out.view());
  expect();
  rms_norm(Exec(), x.view(), weight.view(), out.view());
  expect();
}

// Rank 1 is one row; every argument may have a type of its own.
TYPED_TEST(Norm, RankOneAndMixedTypes) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  Tensor<T, 1, Exec> x({37});
  Tensor<float, 1, Exec> weight({37}), out({37});
  Tensor<bfloat16, 1, Exec> bias({37});
  Random random(9);
  x.fill_uniform(random);
  weight.fill_uniform(random);
  bias.fill_uniform(random);
  layer_norm(Exec(), x.view(), weight.view(), bias.view(), out.view());
  out.download();
  Comparison comparison(std::string("layer_norm/mixed/") + type_name<T>() + "/" + Exec::name(),
                        "rank 1");
  auto const w = values_of(weight), b = values_of(bias);
  auto const want = reference::layer_norm_row(values_of(x), w, b, 1e-5);
  for (std::int64_t c = 0; c < 37; ++c) {
    comparison.add(out.value(c), want.out[sz(c)],
                   layer_norm_bound<float>(want, sz(c), x.value(c), w[sz(c)], b[sz(c)], 1e-5), {c});
  }
}

TYPED_TEST(Norm, DefaultsMayBeLeftOut) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  if constexpr (std::is_same_v<Exec, Kokkos::DefaultExecutionSpace> && std::is_same_v<T, float>) {
    Kokkos::View<float**> x("x", 3, 8), out("out", 3, 8);
    Kokkos::View<float*> weight("weight", 8);
    Kokkos::deep_copy(x, 2.0f);
    Kokkos::deep_copy(weight, 3.0f);
    rms_norm(x, weight, out, {.eps = 0});
    Kokkos::fence("attikos_test");
    auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
    EXPECT_EQ(host(2, 7), 3.0f);
    layer_norm(x, weight, weight, out);
    Kokkos::fence("attikos_test");
    Kokkos::deep_copy(host, out);
    EXPECT_EQ(host(2, 7), 3.0f);
  }
}

}  // namespace
}  // namespace attikos::test
