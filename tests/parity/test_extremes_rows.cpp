// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values up to the edge of what a type holds, in operations on rows; extremes.hpp says what is
// promised.
#include <attikos/reference/reduce_reference.hpp>

#include "../support/tolerance_norms.hpp"
#include "extremes.hpp"

namespace attikos::test {
namespace {

TYPED_TEST_SUITE(Extremes, OneSpaceCases, CaseName);

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

}  // namespace
}  // namespace attikos::test
