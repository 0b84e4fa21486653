// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attikos::testing: right results pass, and every way to be wrong is found and named.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/testing/testing.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "support/messages.hpp"

namespace attikos::validation_test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using attikos::testing::validate_attention;
using attikos::testing::validate_gemm;
using attikos::testing::ValidationResult;

/// The library's own product.
struct Product {
  GemmOptions options = {};
  template <class E, class A, class B, class C>
  void operator()(E const& exec, A const& a, B const& b, C const& c) const {
    gemm(exec, a, b, c, options);
  }
};

/// The library's product, then one element is changed.
struct Changed {
  double difference;
  template <class E, class A, class B, class C>
  void operator()(E const& exec, A const& a, B const& b, C const& c) const {
    gemm(exec, a, b, c);
    exec.fence();
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), c);
    host(2, 3) = static_cast<typename C::non_const_value_type>(host(2, 3) + difference);
    Kokkos::deep_copy(c, host);
  }
};

void expect_ok(ValidationResult const& result) {
  EXPECT_TRUE(result.ok) << result.message;
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_LE(result.worst_ratio, 1) << result.message;
  EXPECT_NE(result.message.find(": ok, "), std::string::npos) << result.message;
}
void expect_wrong(ValidationResult const& result, std::string const& part = "") {
  EXPECT_FALSE(result.ok) << result.message;
  EXPECT_GT(result.worst_ratio, 1) << result.message;
  EXPECT_NE(result.message.find(": wrong, "), std::string::npos) << result.message;
  EXPECT_NE(result.message.find(part), std::string::npos) << result.message;
  EXPECT_EQ(result.message.find('\n'), std::string::npos);
}

TEST(ValidateGemm, TheLibrarysProductPasses) {
  expect_ok(validate_gemm(Product{}, 37, 29, 65));
  expect_ok(validate_gemm<double>(Product{}, 37, 29, 65));
  expect_ok(validate_gemm<bfloat16>(Exec(), Product{}, 37, 29, 65));
  auto const exact = validate_gemm<std::int8_t, std::int8_t, std::int32_t>(Product{}, 37, 29, 650);
  expect_ok(exact);
  EXPECT_EQ(exact.max_difference, 0);
  for (bool trans_a : {false, true}) {
    for (bool trans_b : {false, true}) {
      GemmOptions const options{.alpha = 0.5, .beta = -2, .trans_a = trans_a, .trans_b = trans_b};
      expect_ok(validate_gemm(Product{options}, 17, 33, 9,
                              {.alpha = 0.5, .beta = -2, .trans_a = trans_a, .trans_b = trans_b}));
    }
  }
}

TEST(ValidateGemm, EmptyExtents) {
  expect_ok(validate_gemm(Product{}, 0, 3, 4));
  expect_ok(validate_gemm(Product{}, 3, 0, 4));
  expect_ok(validate_gemm(Product{}, 3, 4, 0));
}

TEST(ValidateGemm, OneWrongElementIsNamed) {
  auto const result = validate_gemm(Changed{0.5}, 8, 9, 10);
  expect_wrong(result, "(C[2, 3] is ");
  EXPECT_NEAR(result.max_difference, 0.5, 1e-4);
  EXPECT_GT(result.worst_ratio, 1000);
  expect_wrong(validate_gemm<std::int8_t, std::int8_t, std::int32_t>(Changed{1}, 8, 9, 10),
               "(C[2, 3] is ");
  auto const nan = validate_gemm(Changed{std::nan("")}, 8, 9, 10);
  expect_wrong(nan, "(C[2, 3] is nan");
  EXPECT_EQ(nan.max_difference, std::numeric_limits<double>::infinity());
}

TEST(ValidateGemm, NothingWrittenIsFoundEverywhere) {
  auto const nothing = [](auto const&, auto const&, auto const&) {};
  expect_wrong(validate_gemm(nothing, 8, 9, 10), "is nan");
  expect_wrong(validate_gemm<std::int8_t, std::int8_t, std::int32_t>(nothing, 8, 9, 10));
  // Two rows are compared; those between must still be written.
  expect_wrong(validate_gemm(Changed{std::nan("")}, 8, 9, 10, {.rows = 2}), "C[2, 3] is nan");
  expect_ok(validate_gemm(Changed{0.5}, 8, 9, 10, {.rows = 2}));
}

TEST(ValidateGemm, AnotherProductIsWrong) {
  expect_wrong(validate_gemm(Product{{.alpha = 1.0001}}, 20, 20, 20));
  expect_wrong(validate_gemm(Product{{.trans_a = true}}, 20, 20, 20));
  expect_wrong(validate_gemm(Product{}, 20, 20, 20, {.beta = 1}));
}

/// Rounds A to bfloat16 on the way: what a tensor core would do with float inputs.
struct Narrowed {
  template <class E, class A, class B, class C>
  void operator()(E const& exec, A const& a, B const& b, C const& c) const {
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), a);
    Kokkos::View<bfloat16**, Kokkos::LayoutRight, Exec> const narrow("narrow", a.extent(0),
                                                                     a.extent(1));
    auto const narrow_host = Kokkos::create_mirror_view(narrow);
    for (std::size_t i = 0; i < host.size(); ++i) narrow_host.data()[i] = bfloat16(host.data()[i]);
    Kokkos::deep_copy(narrow, narrow_host);
    gemm(exec, narrow, b, c);
    exec.fence();
  }
};

TEST(ValidateGemm, InputsRoundedToLessAreWrong) {
  expect_wrong(validate_gemm(Narrowed{}, 20, 20, 200));
}

TEST(ValidateGemm, ErrorsNameTheArgument) {
  test::expect_error<ShapeError>([] { validate_gemm(Product{}, -1, 2, 3); },
                                 {"attikos::testing::validate_gemm: m is -1; expected 0 or more"});
  test::expect_error<ShapeError>(
      [] { validate_gemm(Product{}, 1, 2, 3, {.rows = 0}); },
      {"attikos::testing::validate_gemm: rows is 0; expected 1 or more"});
}

struct Attention {
  AttentionOptions options = {};
  template <class E, class Q, class K, class V, class Out>
  void operator()(E const& exec, Q const& q, K const& k, V const& v, Out const& out) const {
    attention(exec, q, k, v, out, options);
  }
};
struct AttentionWithLse {
  AttentionOptions options = {};
  double lse_difference = 0;
  template <class E, class Q, class K, class V, class Out, class Lse>
  void operator()(E const& exec, Q const& q, K const& k, V const& v, Out const& out,
                  Lse const& lse) const {
    attention(exec, q, k, v, out, lse, options);
    exec.fence();
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), lse);
    host(0, 1, 2) += static_cast<typename Lse::non_const_value_type>(lse_difference);
    Kokkos::deep_copy(lse, host);
  }
};

constexpr attikos::testing::AttentionProblem problem{.batch = 2,
                                                     .heads_q = 4,
                                                     .heads_kv = 2,
                                                     .seqlen_q = 33,
                                                     .seqlen_kv = 70,
                                                     .head_dim = 24,
                                                     .head_dim_v = 16};

TEST(ValidateAttention, TheLibrarysAttentionPasses) {
  expect_ok(validate_attention(Attention{}, problem));
  expect_ok(validate_attention<bfloat16>(Exec(), Attention{}, problem));
  expect_ok(validate_attention(AttentionWithLse{{.softmax_scale = 0.3, .causal = true}}, problem,
                               {.softmax_scale = 0.3, .causal = true}));
  expect_ok(validate_attention(
      [](auto const& q, auto const& k, auto const& v, auto const& out) { attention(q, k, v, out); },
      {.seqlen_q = 3, .seqlen_kv = 5, .head_dim = 8}));
  // Rows that see no key give 0 and -inf.
  expect_ok(validate_attention(AttentionWithLse{{.causal = true}},
                               {.heads_q = 2, .seqlen_q = 9, .seqlen_kv = 4, .head_dim = 8},
                               {.causal = true}));
  expect_ok(validate_attention(Attention{}, {.seqlen_q = 0, .seqlen_kv = 5, .head_dim = 8}));
  expect_ok(validate_attention(Attention{}, {.seqlen_q = 3, .seqlen_kv = 0, .head_dim = 8}));
}

TEST(ValidateAttention, AnotherAttentionIsWrong) {
  expect_wrong(validate_attention(Attention{{.causal = true}}, problem), "out[");
  expect_wrong(validate_attention(Attention{}, problem, {.causal = true}), "out[");
  expect_wrong(validate_attention(Attention{{.softmax_scale = 0.25}}, problem), "out[");
  expect_wrong(
      validate_attention(Attention{{.causal = true}}, problem, {.causal = true, .top_left = true}),
      "out[");
  expect_wrong(validate_attention(AttentionWithLse{{}, 0.01}, problem, {.rows = 33}),
               "(lse[0, 1, 2] is ");
  auto const nothing = [](auto const&, auto const&, auto const&, auto const&) {};
  expect_wrong(validate_attention(nothing, problem), "is nan");
}

TEST(ValidateAttention, ErrorsNameTheArgument) {
  test::expect_error<ShapeError>(
      [] { validate_attention(Attention{}, {.heads_q = 3, .heads_kv = 2}); },
      {"attikos::testing::validate_attention: heads_q is 3; expected a multiple of heads_kv, which "
       "is 2"});
  test::expect_error<ShapeError>(
      [] { validate_attention(Attention{}, {.heads_q = 3, .heads_kv = 0}); },
      {"heads_q is 3; expected a multiple of heads_kv, which is 0"});
  test::expect_error<ShapeError>(
      [] { validate_attention(Attention{}, {.seqlen_kv = -7}); },
      {"attikos::testing::validate_attention: seqlen_kv is -7; expected 0 or more"});
}

TEST(ValidationData, AreStandardNormalAndRepeat) {
  attikos::testing::detail::Random random(1), again(1), other(2);
  double sum = 0, squares = 0;
  constexpr int count = 20000;
  int same = 0;
  for (int i = 0; i < count; ++i) {
    double const x = random.normal();
    EXPECT_EQ(x, again.normal());
    same += x == other.normal();
    sum += x;
    squares += x * x;
  }
  // Five standard deviations of the mean and of the mean square.
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_EQ(same, 0);
}

TEST(ValidationData, SampledRowsAreSpreadWithBothEnds) {
  using attikos::testing::detail::sampled;
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(sampled(0, 4), Rows());
  EXPECT_EQ(sampled(3, 4), (Rows{0, 1, 2}));
  EXPECT_EQ(sampled(100, 1), (Rows{0}));
  EXPECT_EQ(sampled(100, 4), (Rows{0, 33, 66, 99}));
}

}  // namespace
}  // namespace attikos::validation_test
