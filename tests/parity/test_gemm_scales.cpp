// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm on 8-bit elements with scales and zero points, and quantization of its result.
#include <attikos/quantize/quantize.hpp>
#include <vector>

#include "gemm_scale_checks.hpp"

namespace attikos::test {
namespace {

template <class Exec>
class GemmScales : public testing::Test {};
TYPED_TEST_SUITE(GemmScales, SpaceCases, CaseName);

constexpr ScaleBlocks all_blocks[] = {{0, 0}, {1, 0}, {1, 128}, {128, 128}, {0, 128}, {128, 0}};

TYPED_TEST(GemmScales, EveryGranularity) {
  int turn = 0;
  for (auto a : all_blocks) {
    for (auto b : all_blocks) {
      for (auto [m, n, k] : {std::array<std::int64_t, 3>{3, 5, 7}, {131, 17, 129}, {9, 140, 300}}) {
        GemmOptions const options{
            .alpha = 0.5, .trans_a = (turn & 1) != 0, .trans_b = (turn & 2) != 0, .scale = 3};
        check_scaled<TypeParam, float8_e4m3, float8_e4m3, float>(
            {.batch = 2,
             .m = m,
             .n = n,
             .k = k,
             .options = options,
             .a = a,
             .b = b,
             .layout = all_layouts[static_cast<std::size_t>(turn) % 5],
             .shared_scales = turn % 3 == 0});
        ++turn;
      }
    }
  }
}

TYPED_TEST(GemmScales, VectorsAndSingleNumbers) {
  for (int trans = 0; trans < 4; ++trans) {
    for (auto form : {ScaleForm::vector, ScaleForm::single}) {
      GemmOptions const options{
          .beta = -0.5, .trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
      check_scaled<TypeParam, float8_e4m3, float8_e4m3, float>({.batch = 3,
                                                                .m = 33,
                                                                .n = 20,
                                                                .k = 150,
                                                                .options = options,
                                                                .form = form,
                                                                .layout = Layout::padded});
    }
  }
}

template <class Exec, class TA, class TB, class TC>
void check_types(bool blocks = true) {
  for (auto [m, n, k] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {65, 34, 257}, {5, 3, 0}, {0, 2, 3}, {64, 64, 128}}) {
    for (int trans : {0, 2}) {
      GemmOptions const options{.trans_b = trans != 0};
      check_scaled<Exec, TA, TB, TC>({.batch = 1,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .options = options,
                                      .a = {1, blocks ? 128 : 0},
                                      .b = {blocks ? 128 : 1, blocks ? 128 : 0}});
      check_scaled<Exec, TA, TB, TC>({.batch = 2,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .options = options,
                                      .a = {1, 0},
                                      .b = {1, 0},
                                      .layout = Layout::strided});
    }
  }
}

TYPED_TEST(GemmScales, E5m2E5m2Float32) {
  check_types<TypeParam, float8_e5m2, float8_e5m2, float>();
}
TYPED_TEST(GemmScales, E4m3E5m2Bfloat16) {
  check_types<TypeParam, float8_e4m3, float8_e5m2, bfloat16>();
}
TYPED_TEST(GemmScales, E4m3E4m3Float16) {
  check_types<TypeParam, float8_e4m3, float8_e4m3, float16>();
}
TYPED_TEST(GemmScales, E4m3Bfloat16Bfloat16) {
  check_types<TypeParam, float8_e4m3, bfloat16, bfloat16>();
}
TYPED_TEST(GemmScales, Float16E5m2Float32) {
  check_types<TypeParam, float16, float8_e5m2, float>();
}
TYPED_TEST(GemmScales, Int8Int8Float32) {
  check_types<TypeParam, std::int8_t, std::int8_t, float>();
}
TYPED_TEST(GemmScales, Int8Int8Bfloat16) {
  check_types<TypeParam, std::int8_t, std::int8_t, bfloat16>();
}

/// Every product of two codes is exact in float.
template <class Exec, class TA, class TB>
void check_codes() {
  Tensor<TA, 2, Exec> a({256, 1});
  Tensor<TB, 2, Exec> b({1, 256});
  Tensor<float, 2, Exec> c({256, 256});
  for (int code = 0; code < 256; ++code) {
    a(code, 0) = TA::from_bits(static_cast<std::uint8_t>(code));
    b(0, code) = TB::from_bits(static_cast<std::uint8_t>(code));
  }
  a.upload();
  b.upload();
  gemm(Exec(), a.const_view(), b.const_view(), c.view());
  c.download();
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 256; ++j) {
      double const want = reference::float8_value(i, QuantizedFormat<TA>::mantissa_bits) *
                          reference::float8_value(j, QuantizedFormat<TB>::mantissa_bits);
      double const got = c.value(i, j);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << i << " x " << j << ": " << got << ", want " << want;
    }
  }
}

TYPED_TEST(GemmScales, AllCodesAreExact) {
  check_codes<TypeParam, float8_e4m3, float8_e4m3>();
  check_codes<TypeParam, float8_e4m3, float8_e5m2>();
  check_codes<TypeParam, float8_e5m2, float8_e5m2>();
}

/// Scales that are powers of two change nothing but the exponent.
TYPED_TEST(GemmScales, QuantizedProductEndToEnd) {
  std::int64_t const m = 70, n = 45, k = 300;
  Tensor<float, 2, TypeParam> a({m, k}), b({n, k}), c({m, n}), again({m, n});
  Tensor<float8_e4m3, 2, TypeParam> a8({m, k}), b8({n, k});
  Tensor<float, 2, TypeParam> sa({m, 3}), sb({1, 3}), back_a({m, k}), back_b({n, k});
  Random random(5);
  a.fill_uniform(random);
  b.fill_uniform(random);
  TypeParam const exec;
  quantize(exec, a.const_view(), a8.view(), sa.view());
  quantize(exec, b.const_view(), b8.view(), sb.view());
  gemm(exec, a8.const_view(), b8.const_view(), c.view(), {.trans_b = true},
       scale_a(sa.const_view()), scale_b(sb.const_view()));
  dequantize(exec, a8.const_view(), sa.const_view(), back_a.view());
  dequantize(exec, b8.const_view(), sb.const_view(), back_b.view());
  gemm(exec, back_a.const_view(), back_b.const_view(), again.view(), {.trans_b = true});
  c.download();
  again.download();
  a.download();
  b.download();
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double exact = 0, magnitude = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        exact += a.value(i, l) * b.value(j, l);
        magnitude += std::abs(a.value(i, l) * b.value(j, l));
      }
      // Either is a sum of 300 terms with a few roundings each, and e4m3 keeps 4 bits.
      EXPECT_NEAR(c.value(i, j), again.value(i, j), 700 * 0x1p-24 * 1.2 * magnitude);
      EXPECT_NEAR(c.value(i, j), exact, (2 * 0x1p-4 + 0x1p-8) * magnitude + 300 * 2e-3 / 448);
    }
  }
}

/// int8 with zero points: exact where C is int32, also past 2^31.
template <class Exec, class TC>
void check_zero_points(std::int64_t m, std::int64_t n, std::int64_t k, bool vectors, int trans,
                       std::int32_t largest) {
  GemmOptions const options{.trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
  Tensor<std::int8_t, 2, Exec> a({options.trans_a ? k : m, options.trans_a ? m : k});
  Tensor<std::int8_t, 2, Exec> b({options.trans_b ? n : k, options.trans_b ? k : n}, Layout::left);
  Tensor<std::int32_t, 1, Exec> za({vectors ? m : 1}, Layout::strided), zb({vectors ? n : 1});
  Tensor<TC, 2, Exec> c({m, n}, Layout::padded);
  Random random(17);
  a.fill_integers(random, -128, 127);
  b.fill_integers(random, -128, 127);
  za.fill_integers(random, -largest, largest);
  zb.fill_integers(random, -largest, largest);
  gemm(Exec(), a.const_view(), b.const_view(), c.view(), options, zero_point_a(za.const_view()),
       zero_point_b(zb.const_view()));
  c.download();
  EXPECT_EQ(c.writes_outside(), 0u);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      std::uint64_t sum = 0;  // modulo 2^64: the largest zero points make more
      for (std::int64_t l = 0; l < k; ++l)
        sum += static_cast<std::uint64_t>(
            (std::int64_t{options.trans_a ? a(l, i) : a(i, l)} - za(vectors ? i : 0)) *
            (std::int64_t{options.trans_b ? b(j, l) : b(l, j)} - zb(vectors ? j : 0)));
      auto const wrapped = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
      if constexpr (std::is_same_v<TC, std::int32_t>) {
        ASSERT_EQ(c(i, j), wrapped) << i << ", " << j << " k " << k;
      } else {
        ASSERT_EQ(c(i, j), static_cast<TC>(static_cast<float>(wrapped))) << i << ", " << j;
      }
    }
  }
}

TYPED_TEST(GemmScales, ZeroPoints) {
  for (int trans = 0; trans < 4; ++trans) {
    for (bool vectors : {false, true}) {
      for (auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                             {33, 70, 129},
                             {5, 3, 0},
                             {70, 20, 300},
                             {3, 50, 600}}) {
        check_zero_points<TypeParam, std::int32_t>(m, n, k, vectors, trans, 128);
        check_zero_points<TypeParam, float>(m, n, k, vectors, trans, 128);
      }
      check_zero_points<TypeParam, std::int32_t>(5, 4, 40, vectors, trans, INT32_MAX);
    }
  }
}

/// D = act(...)·... / scale_out in C's 8-bit type.
template <class Exec, class TA, class TC>
void check_quantized_output(double out_scale, double largest) {
  std::int64_t const m = 37, n = 50, k = 130;
  Tensor<TA, 2, Exec> a({m, k}), b({k, n}, Layout::left);
  Tensor<TC, 2, Exec> c({m, n}, Layout::strided);
  Tensor<float, 1, Exec> biases({n}), out({1}), factor({1});
  Tensor<float, 2, Exec> residuals({m, n});
  Random random(23);
  fill_operand<TA>(a, random, largest);
  fill_operand<TA>(b, random, largest);
  biases.fill_uniform(random, -largest, largest);
  residuals.fill_uniform(random, -largest, largest);
  out.fill(out_scale);
  factor.fill(0.75);
  gemm(Exec(), a.const_view(), b.const_view(), c.view(),
       {.activation = Activation::relu, .scale = 0.5}, bias(biases.const_view()),
       residual(residuals.const_view()), device_scale(factor.const_view()),
       scale_out(out.const_view()));
  c.download();
  EXPECT_EQ(c.writes_outside(), 0u);
  Comparison comparison(std::string("gemm/quantized/") + element_name<TA>() + "_" +
                            QuantizedFormat<TC>::name + "/" + Exec::name(),
                        "scale_out " + std::to_string(out_scale));
  c.for_each([&](auto const& at) {
    std::int64_t const i = at[0], j = at[1];
    reference::GemmTerms terms;
    terms.scale = 0.375;
    terms.bias = biases.value(j);
    terms.residual = residuals.value(i, j);
    terms.activation = reference::relu;
    auto const want = reference::gemm_element(
        k, [&](std::int64_t l) { return a.value(i, l); },
        [&](std::int64_t l) { return b.value(l, j); }, terms);
    double const error = scaled_gemm_error<float>(k, want, terms);
    double const stored = out.value(0);
    double const limit = QuantizedFormat<TC>::limit;
    double const lowest = std::is_same_v<TC, std::int8_t> ? -128 : -limit;
    double const next_to = std::clamp(want.value / stored, lowest, limit);
    double const bound = stored_gemm_bound<float, TC>(want.value, error, stored);
    comparison.add(to_double(c.at(at)), next_to, bound, quantized_parts<TC>(next_to, bound),
                   {i, j});
  });
}

TYPED_TEST(GemmScales, QuantizedOutput) {
  for (double scale : {0.05, 0.7}) {
    check_quantized_output<TypeParam, float8_e4m3, float8_e4m3>(scale, 2);
    check_quantized_output<TypeParam, bfloat16, float8_e5m2>(scale / 100, 2);
    check_quantized_output<TypeParam, float, std::int8_t>(scale, 2);
    check_quantized_output<TypeParam, std::int8_t, std::int8_t>(scale * 10000, 2);
  }
  // Most of it past the end of the range.
  check_quantized_output<TypeParam, float, std::int8_t>(1e-3, 2);
  check_quantized_output<TypeParam, float8_e4m3, float8_e4m3>(1e-4, 2);
}

/// Results that are not finite show in C, whatever they are divided by; finite ones saturate, even
/// where the division overflows.
template <class Exec, class TA, class TC>
void check_infinite_output(bool divided) {
  double const infinity = std::numeric_limits<double>::infinity();
  double const nan = std::numeric_limits<double>::quiet_NaN();
  double const limit = QuantizedFormat<TC>::limit;
  double const lowest = std::is_same_v<TC, std::int8_t> ? -128 : -limit;
  std::int64_t const m = 40, n = 48, k = 64;
  Tensor<TA, 2, Exec> a({m, k}), b({k, n});
  Tensor<TC, 2, Exec> c({m, n});
  Tensor<float, 2, Exec> residuals({m, n});
  Tensor<float, 1, Exec> out({1});
  a.fill(1);
  b.fill(0);
  out.fill(divided ? 1e-30 : 1);
  double const large = 3e38, sent[] = {infinity, -infinity, nan, large, -large, 0};
  double const want[] = {
      nearest<TC>(infinity), nearest<TC>(-infinity), nearest<TC>(nan), limit, lowest, 0};
  residuals.for_each([&](auto const& at) {
    residuals.at(at) = static_cast<float>(sent[static_cast<std::size_t>(at[0] + at[1]) % 6]);
  });
  residuals.upload();
  if (divided) {
    gemm(Exec(), a.const_view(), b.const_view(), c.view(), {}, residual(residuals.const_view()),
         scale_out(out.const_view()));
  } else {
    gemm(Exec(), a.const_view(), b.const_view(), c.view(), {}, residual(residuals.const_view()));
  }
  c.download();
  c.for_each([&](auto const& at) {
    double const got = to_double(c.at(at)), expected = want[(at[0] + at[1]) % 6];
    EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
        << QuantizedFormat<TC>::name << " [" << at[0] << ", " << at[1] << "]: " << got
        << ", expected " << expected;
  });
}

TYPED_TEST(GemmScales, InfiniteOutput) {
  for (bool divided : {false, true}) {
    check_infinite_output<TypeParam, float8_e4m3, float8_e4m3>(divided);
    check_infinite_output<TypeParam, bfloat16, float8_e5m2>(divided);
    check_infinite_output<TypeParam, float, std::int8_t>(divided);
    check_infinite_output<TypeParam, std::int8_t, std::int8_t>(divided);
  }
}

TYPED_TEST(GemmScales, PaddingBehindTheScalesIsNotRead) {
  // Poison lies around every scale; a NaN that is read would reach the result.
  check_scaled<TypeParam, float8_e4m3, float8_e4m3, float>({.batch = 2,
                                                            .m = 129,
                                                            .n = 130,
                                                            .k = 257,
                                                            .a = {128, 128},
                                                            .b = {128, 128},
                                                            .layout = Layout::strided});
}

/// The portable kernel is at least as precise as any of the modes allows.
TYPED_TEST(GemmScales, ModesOfPrecision) {
  for (auto compute : {Compute::ieee, Compute::tf32, Compute::tf32x3}) {
    for (auto accumulate : {Accumulate::promoted, Accumulate::fast}) {
      check_scaled<TypeParam, float8_e4m3, float8_e4m3, float>(
          {.batch = 1,
           .m = 20,
           .n = 30,
           .k = 140,
           .options = {.compute = compute, .accumulate = accumulate},
           .a = {1, 128},
           .b = {128, 128}});
    }
  }
}

}  // namespace
}  // namespace attikos::test
