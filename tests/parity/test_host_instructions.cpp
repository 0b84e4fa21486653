// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What hosts choose at run time: the choice itself, and the blocks of every instruction set that
// this machine has, on small integers, whose sums are exact in any order.
#include <gtest/gtest.h>

#include <algorithm>
#include <attikos/attention/attention.hpp>
#include <attikos/attention/attention_backward.hpp>
#include <attikos/core/dtypes.hpp>
#include <attikos/core/host_isa.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/host/amx.hpp>
#include <attikos/host/attention_rows.hpp>
#include <attikos/host/dot_product.hpp>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <vector>

#include "../support/messages.hpp"
#include "../support/random.hpp"
#include "host_factors.hpp"

namespace attikos::test {
namespace {

TEST(HostIsa, IsChosenByName) {
  using detail::chosen_host_isa;
  auto const most = static_cast<HostIsa>(host_isa_count - 1);
  for (int i = 0; i < host_isa_count; ++i) {
    auto const isa = static_cast<HostIsa>(i);
    EXPECT_EQ(chosen_host_isa(host_isa_name(isa), most), isa);
    EXPECT_EQ(chosen_host_isa(host_isa_name(isa), isa), isa);
    EXPECT_EQ(chosen_host_isa(nullptr, isa), isa);
    EXPECT_EQ(chosen_host_isa("", isa), isa);
  }
  expect_error<UnsupportedError>(
      [&] { chosen_host_isa("sse9", most); },
      {"attikos::host_isa: ATTIKOS_HOST_ISA is \"sse9\"", "is no instruction set",
       "available: compiled, avx512, avx512_vnni"});
  expect_error<UnsupportedError>(
      [] { chosen_host_isa("avx512_bf16", HostIsa::avx512_vnni); },
      {"ATTIKOS_HOST_ISA is \"avx512_bf16\", which this machine does not have",
       "available: compiled, avx512, avx512_vnni"});
}

TEST(HostIsa, IsWhatTheVariableOrTheMachineSays) {
  char const* const wanted = std::getenv("ATTIKOS_HOST_ISA");
  HostIsa const machine = detail::host::machine_isa();
  std::cout << "machine: " << host_isa_name(machine) << ", chosen: " << host_isa_name(host_isa())
            << "\n";
  EXPECT_EQ(host_isa(), detail::chosen_host_isa(wanted, machine));
}

/// What explain() says a host's product of this type uses.
template <class T, class Sum>
std::string instructions_of(int extent) {
  using Space = Kokkos::DefaultHostExecutionSpace;
  Kokkos::View<T**, Kokkos::HostSpace> a("a", extent, extent), b("b", extent, extent);
  Kokkos::View<Sum**, Kokkos::HostSpace> c("c", extent, extent);
  return explain(op::gemm, Space(), a, b, c).instructions;
}

TEST(HostIsa, IsWhatExplainNames) {
  bool const tiles = host_isa() >= HostIsa::amx;
  char const* const bfloat16_isa = tiles                                ? "amx"
                                   : host_isa() >= HostIsa::avx512_bf16 ? "avx512_bf16"
                                                                        : "";
  char const* const int8_isa = tiles                                ? "amx"
                               : host_isa() >= HostIsa::avx512_vnni ? "avx512_vnni"
                                                                    : "";
  EXPECT_EQ((instructions_of<bfloat16, bfloat16>(64)), bfloat16_isa);
  EXPECT_EQ((instructions_of<bfloat16, float>(64)), bfloat16_isa);
  EXPECT_EQ((instructions_of<std::int8_t, std::int32_t>(64)), int8_isa);
  char const* const vectors = host_isa() >= HostIsa::avx512 ? "avx512" : "";
  EXPECT_EQ((instructions_of<float, float>(64)), vectors);
  EXPECT_EQ((instructions_of<double, double>(64)), vectors);
  EXPECT_EQ((instructions_of<float16, float16>(64)), vectors);
  EXPECT_EQ((instructions_of<bfloat16, double>(64)), vectors) << "sums are double";
  EXPECT_EQ((instructions_of<bfloat16, bfloat16>(32)), "") << "small products have no blocks";
  EXPECT_EQ((instructions_of<float, float>(32)), "") << "small products have no blocks";
}

/// The same of attention over 64 positions.
template <class T>
std::string attention_instructions_of(AttentionOptions const& options) {
  using Tensor = Kokkos::View<T****, Kokkos::LayoutRight, Kokkos::HostSpace>;
  Tensor x("x", 1, 1, 64, 16), out("out", 1, 1, 64, 16);
  return explain(op::attention, Kokkos::DefaultHostExecutionSpace(), x, x, x, out, options)
      .instructions;
}

/// And of its gradients.
template <class T>
std::string gradient_instructions_of() {
  using Tensor = Kokkos::View<T****, Kokkos::LayoutRight, Kokkos::HostSpace>;
  Tensor x("x", 1, 1, 64, 16), y("y", 1, 1, 64, 16), dq("dq", 1, 1, 64, 16), dk("dk", 1, 1, 64, 16),
      dv("dv", 1, 1, 64, 16);
  Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace> lse("lse", 1, 1, 64);
  return explain(op::attention_backward, Kokkos::DefaultHostExecutionSpace(), x, x, x, y, lse, y,
                 dq, dk, dv)
      .instructions;
}

TEST(HostIsa, IsWhatExplainNamesOfAttention) {
  char const* const isa = host_isa() >= HostIsa::avx512_bf16 ? host_isa_name(host_isa()) : "";
  EXPECT_EQ(attention_instructions_of<bfloat16>({}), isa);
  EXPECT_EQ(attention_instructions_of<bfloat16>({.causal = true, .window_left = 3}), isa);
  EXPECT_EQ(attention_instructions_of<bfloat16>({.algorithm = AttentionAlgorithm::tiled}), "");
  EXPECT_EQ(attention_instructions_of<float16>({}), "");
  EXPECT_EQ(attention_instructions_of<float>({}), "");
  EXPECT_EQ(gradient_instructions_of<bfloat16>(), isa);
  EXPECT_EQ(gradient_instructions_of<float>(), "");
}

#if defined(ATTIKOS_HOST_X86)

using namespace detail::host::avx512;

/// AVX-512's blocks, which take an Engine for nothing.
struct Vectors {};

template <class Kind, class Engine>
void check_products(int m, int n, int k, int layout_a, int layout_b) {
  constexpr bool vectors = std::is_same_v<Engine, Vectors>;
  std::uint32_t const flip = vectors ? Kind::flip : detail::host::amx::flip;
  using Sum = typename Kind::Sum;
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", layouts " << layout_a
                                  << layout_b);
  Random random(static_cast<std::uint64_t>(m + 100 * n + 10000 * k));
  PackedFactor<Kind> a(random, m, k, layout_a), b(random, n, k, layout_b);
  int const ld = (n + 15) / 16 * 16 + 16;
  std::vector<std::uint32_t> left(static_cast<std::size_t>((m + 15) / 16 * 16 * row_words), ~0u);
  std::vector<std::uint32_t> right(static_cast<std::size_t>((n + 31) / 32 * panel_words<Kind>(k)),
                                   ~0u);
  int const room = vectors ? m : (m + 15) / 16 * 16;  // tiles write whole
  std::vector<Sum> sums(static_cast<std::size_t>(room * ld), Sum(3));
  pack_left<Kind>(left.data(), a.factor(), m, k);
  pack_right<Kind>(right.data(), b.factor(), k, n, flip);
  auto const add = [&](std::vector<Sum>& to, bool accumulate) {
    if constexpr (vectors)
      multiply<Kind>(left.data(), right.data(), to.data(), ld, m, n, k, accumulate);
    else
      detail::host::amx::multiply<Kind, Engine>(left.data(), right.data(), to.data(), ld, m, n, k,
                                                accumulate);
  };
  std::vector<Sum> fresh(sums.size(), Sum(7));
  add(sums, true);
  add(fresh, false);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double exact = 0;
      for (int p = 0; p < k; ++p) exact += value_of<Kind>(a.at(i, p)) * value_of<Kind>(b.at(j, p));
      auto const at = static_cast<std::size_t>(std::int64_t{i} * ld + j);
      if constexpr (std::is_same_v<Sum, float>) {
        ASSERT_EQ(sums[at], static_cast<float>(exact + 3)) << i << ", " << j;
        ASSERT_EQ(fresh[at], static_cast<float>(exact)) << i << ", " << j;
      } else {
        ASSERT_EQ(static_cast<std::int32_t>(sums[at]), static_cast<std::int32_t>(exact + 3));
        ASSERT_EQ(static_cast<std::int32_t>(fresh[at]), static_cast<std::int32_t>(exact));
      }
    }
    for (int j = (n + 15) / 16 * 16; j < ld; ++j)
      ASSERT_EQ(sums[static_cast<std::size_t>(i * ld + j)], Sum(3)) << "behind the last vector";
  }
  if constexpr (Kind::moves) {
    std::vector<std::uint32_t> of_columns(static_cast<std::size_t>((n + 15) / 16 * 16));
    column_sums(right.data(), of_columns.data(), k, n, flip);
    for (int j = 0; j < n; ++j) {
      std::int32_t exact = 0;
      for (int p = 0; p < k; ++p) exact += static_cast<std::int8_t>(b.at(j, p));
      ASSERT_EQ(static_cast<std::int32_t>(of_columns[static_cast<std::size_t>(j)]), exact) << j;
    }
    for (int i = 0; i < m; ++i) {
      std::int32_t exact = 0;
      for (int p = 0; p < k; ++p) exact += static_cast<std::int8_t>(a.at(i, p));
      ASSERT_EQ(
          static_cast<std::int32_t>(left[static_cast<std::size_t>(i * row_words + most_units)]),
          exact)
          << i;
    }
  }
}

/// A right factor in panels that are as deep as it is, multiplied in steps along k: as calls of
/// gemm with one packed ahead of time do it.
template <class Kind, class Engine>
void check_parts(int m, int n, int k, int step) {
  constexpr bool vectors = std::is_same_v<Engine, Vectors>;
  using Sum = typename Kind::Sum;
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " in steps of " << step);
  Random random(static_cast<std::uint64_t>(m + 100 * n + 10000 * k));
  PackedFactor<Kind> a(random, m, k, 0), b(random, n, k, 1);
  std::int64_t const ld = (n + 15) / 16 * 16, room = (m + 15) / 16 * 16;
  std::vector<std::uint32_t> left(static_cast<std::size_t>(room * row_words), ~0u);
  std::vector<std::uint32_t> right(static_cast<std::size_t>((n + 31) / 32 * panel_words<Kind>(k)),
                                   ~0u);
  pack_right<Kind>(right.data(), b.factor(), k, n, vectors ? Kind::flip : detail::host::amx::flip);
  std::vector<Sum> sums(static_cast<std::size_t>(room * ld));
  for (int p = 0; p < k; p += step) {
    int const depth = std::min(step, k - p);
    auto const of_a = a.factor();
    pack_left<Kind>(left.data(),
                    {of_a.data + p * of_a.k_stride, of_a.neighbor_stride, of_a.k_stride}, m, depth);
    PanelPart const part{panel_words<Kind>(k), p / Kind::values};
    if constexpr (vectors) {
      multiply<Kind>(left.data(), right.data(), sums.data(), ld, m, n, depth, p > 0, part);
    } else {
      Engine tiles;
      detail::host::amx::multiply<Kind>(tiles, left.data(), right.data(), sums.data(), ld, m, n,
                                        depth, p > 0, part);
    }
  }
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double exact = 0;
      for (int p = 0; p < k; ++p) exact += value_of<Kind>(a.at(i, p)) * value_of<Kind>(b.at(j, p));
      auto const sum = sums[static_cast<std::size_t>(i * ld + j)];
      if constexpr (std::is_same_v<Sum, float>)
        ASSERT_EQ(sum, static_cast<float>(exact)) << i << ", " << j;
      else
        ASSERT_EQ(static_cast<std::int32_t>(sum), static_cast<std::int32_t>(exact))
            << i << ", " << j;
    }
}

template <class Kind, class Engine>
void check_shapes(HostIsa needed) {
  if (detail::host::machine_isa() < needed) {
    std::cout << "this machine has no " << host_isa_name(needed) << "\n";
    return;
  }
  int layout = 0;
  for (int m : {1, 2, 5, 12, 13, 31, 40})
    for (int n : {1, 15, 16, 17, 33, 48, 50})
      for (int k : {1, 2, 3, 31, 33, 64, 65, 128, most_units * Kind::values}) {
        check_products<Kind, Engine>(m, n, k, layout % 3, layout / 3 % 3);
        ++layout;
      }
  check_products<Kind, Engine>(3, 20, most_units * Kind::values, 0, 1);
  for (int n : {15, 17, 48, 70}) {
    check_parts<Kind, Engine>(13, n, 3 * most_units * Kind::values + 7, most_units * Kind::values);
    check_parts<Kind, Engine>(33, n, 300, 128);
  }
  for (int m = 1; m <= 2 * block_rows + 1; ++m)  // every height of a block
    check_products<Kind, Engine>(m, 48, 2 * Kind::values, 0, 0);
}

TEST(HostDotProduct, Bfloat16PairsAreExact) {
  check_shapes<Bfloat16Pairs, Vectors>(HostIsa::avx512_bf16);
}
TEST(HostDotProduct, Int8QuadsAreExact) { check_shapes<Int8Quads, Vectors>(HostIsa::avx512_vnni); }
TEST(HostTiles, AreExact) {
  check_shapes<Bfloat16Pairs, detail::host::amx::Tiles>(HostIsa::amx);
  check_shapes<Int8Quads, detail::host::amx::Tiles>(HostIsa::amx);
}
// Packing is that of AVX-512.
TEST(HostTiles, AreExactInEmulation) {
  check_shapes<Bfloat16Pairs, EmulatedTiles>(HostIsa::avx512_vnni);
  check_shapes<Int8Quads, EmulatedTiles>(HostIsa::avx512_vnni);
}

/// A row of scores among others that nobody may see, in two parts, as blocks of keys come.
struct SoftmaxRow {
  std::vector<float> scores;
  std::vector<std::uint16_t> weights;
  std::vector<float> sums = std::vector<float>(16, 0.0f), out = std::vector<float>(32, 0.0f);
  float maximum = -std::numeric_limits<float>::infinity();

  void take(int first, int last, int cols, float scale) {
    weights.assign(static_cast<std::size_t>(cols) + 32, 0x7fc0);
    softmax_row(scores.data(), weights.data(), first, last, cols, WeightScale(scale),
                {&maximum, sums.data(), out.data(), 32});
  }
  double sum() const {
    double total = 0;
    for (float s : sums) total += s;
    return total;
  }
  double weight(int j) const { return bfloat16::from_bits(weights[static_cast<std::size_t>(j)]); }
};

TEST(HostAttentionRows, AreWeightsRelativeToTheLargestScore) {
  if (detail::host::machine_isa() < HostIsa::avx512_bf16) GTEST_SKIP() << "no AVX512-BF16";
  Random random(3);
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (int cols : {32, 64, 256})
    for (int first : {0, 1, 17, 31, 40})
      for (int last : {0, 1, 16, 33, 63, 250, 256})
        for (float scale : {1.0f, 0.125f, 30.0f}) {
          if (last > cols || first > cols) continue;
          SCOPED_TRACE(testing::Message() << first << " to " << last << " of " << cols);
          SoftmaxRow row;
          row.scores.assign(static_cast<std::size_t>(cols) + 32, nan);
          for (int j = first; j < last; ++j)
            row.scores[static_cast<std::size_t>(j)] = static_cast<float>(random.uniform(-9, 9));
          std::vector<float> const scores = row.scores;
          row.maximum = -20;
          row.sums[5] = 2;
          row.out[31] = 3;
          row.take(first, last, cols, scale);
          double largest = -20;
          for (int j = first; j < last; ++j)
            largest = std::max<double>(largest, scores[static_cast<std::size_t>(j)]);
          EXPECT_EQ(row.maximum, largest);
          double const before = std::exp(scale * (-20 - largest));
          double sum = 2 * before;
          for (int j = 0; j < cols; ++j) {
            double exact = 0;
            if (j >= first && j < last)
              exact = std::exp(scale * (scores[static_cast<std::size_t>(j)] - largest));
            sum += exact;
            // 2^-8 of rounding to bfloat16; the exponent's error is 3 roundings of it.
            double const bound = exact * (0x1p-8 + 3 * 0x1p-24 * scale * 40 + 0x1p-21) + 0x1p-126;
            ASSERT_NEAR(row.weight(j), exact, bound) << j;
          }
          EXPECT_NEAR(row.sum(), sum, sum * (3 * 0x1p-24 * scale * 40 + 0x1p-20) + 256 * 0x1p-126);
          EXPECT_NEAR(row.out[31], 3 * before,
                      3 * (before * (scale * 40 * 0x1p-22 + 0x1p-20) + 0x1p-126));
          EXPECT_EQ(row.weights[static_cast<std::size_t>(cols)], 0x7fc0) << "behind the row";
        }
}

TEST(HostAttentionRows, ExponentialIsOffByThreeRoundings) {
  if (detail::host::machine_isa() < HostIsa::avx512_bf16) GTEST_SKIP() << "no AVX512-BF16";
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    float const x = -static_cast<float>(i) / 200000 * 2;  // 2^x: exponents are not rounded much
    SoftmaxRow row;
    row.scores.assign(32, 0.0f);
    row.scores[1] = x;
    row.maximum = 0;
    row.take(1, 2, 32, 1);
    double const exact = std::exp2(static_cast<double>(x) * WeightScale(1).factor);
    worst = std::max(worst, std::abs(row.sum() / exact - 1));
  }
  EXPECT_LE(worst, 3 * 0x1p-24);
}

TEST(HostAttentionRows, KeepNansAndIgnoreInfinitelyLowScores) {
  if (detail::host::machine_isa() < HostIsa::avx512_bf16) GTEST_SKIP() << "no AVX512-BF16";
  float const infinity = std::numeric_limits<float>::infinity();
  SoftmaxRow row;
  row.scores.assign(64, -infinity);
  row.take(0, 64, 64, 1);
  EXPECT_EQ(row.maximum, -infinity);
  EXPECT_EQ(row.sum(), 0);
  for (int j = 0; j < 64; ++j) EXPECT_EQ(row.weight(j), 0);
  row.scores[40] = 7;
  row.take(0, 64, 64, 1);
  EXPECT_EQ(row.maximum, 7);
  EXPECT_EQ(row.sum(), 1);
  EXPECT_EQ(row.weight(40), 1);
  for (std::uint32_t bits : {0x7fc00000u, 0xffc00001u, 0x7fffffffu}) {
    SoftmaxRow with_nan;
    with_nan.scores.assign(32, 1.0f);
    with_nan.scores[3] = __builtin_bit_cast(float, bits);
    with_nan.take(0, 32, 32, 1);
    EXPECT_EQ(with_nan.maximum, 1);
    EXPECT_TRUE(std::isnan(with_nan.weight(3)));
    EXPECT_EQ(with_nan.weight(4), 1);
    EXPECT_TRUE(std::isnan(with_nan.sum()));
  }
}

template <bool ByKey>
void check_gradient_rows() {
  Random random(4);
  float const nan = std::numeric_limits<float>::quiet_NaN();
  int const cols = 96;
  for (int first : {0, 5, 33})
    for (int last : {0, 31, 34, 64, 90, 96}) {
      SCOPED_TRACE(testing::Message() << first << " to " << last);
      std::vector<float> x(96, nan), y(96, nan), lse(96, nan), delta(96, nan);
      for (int j = first; j < last; ++j) {
        auto const at = static_cast<std::size_t>(j);
        x[at] = static_cast<float>(random.uniform(-9, 9));
        y[at] = static_cast<float>(random.uniform(-2, 2));
        lse[at] = static_cast<float>(random.uniform(0, 3));
        delta[at] = static_cast<float>(random.uniform(-1, 1));
      }
      if constexpr (!ByKey) lse[0] = 1.5f, delta[0] = -0.25f;
      std::vector<std::uint16_t> weights(128, 0x7fc0), gradients(128, 0x7fc0);
      gradient_row<ByKey>(x.data(), y.data(), weights.data(), gradients.data(), first, last, cols,
                          {lse.data(), delta.data(), 0.5f});
      for (int j = 0; j < 128; ++j) {
        auto const at = static_cast<std::size_t>(j);
        float const weight = bfloat16::from_bits(weights[at]);
        float const gradient = bfloat16::from_bits(gradients[at]);
        if (j >= cols) {
          ASSERT_TRUE(std::isnan(weight) && std::isnan(gradient)) << j;
        } else if (j < first || j >= last) {
          ASSERT_TRUE(weight == 0 && gradient == 0) << j;
        } else {
          std::size_t const of = ByKey ? at : 0;
          double const exact = std::exp(0.5 * x[at] - lse[of]);
          double const slope = exact * (static_cast<double>(y[at]) - delta[of]) * 0.5;
          // 2^-8 of rounding to bfloat16, the exponent's roundings, and those of the difference.
          ASSERT_NEAR(weight, exact, exact * (0x1p-8 + 0x1p-20)) << j;
          ASSERT_NEAR(gradient, slope, std::abs(slope) * (0x1p-8 + 0x1p-20) + exact * 0x1p-22) << j;
        }
      }
    }
}

TEST(HostAttentionRows, GradientsAreThoseOfPairs) {
  if (detail::host::machine_isa() < HostIsa::avx512_bf16) GTEST_SKIP() << "no AVX512-BF16";
  check_gradient_rows<true>();
  check_gradient_rows<false>();
  // Rows that see nothing, and numbers behind weights of 0.
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(32, 1), y(32, infinity), lse(32, infinity), delta(32, 0);
  std::vector<std::uint16_t> weights(32, 1), gradients(32, 1);
  gradient_row<true>(x.data(), y.data(), weights.data(), gradients.data(), 0, 32, 32,
                     {lse.data(), delta.data(), 1});
  for (std::size_t j = 0; j < 32; ++j) EXPECT_TRUE(weights[j] == 0 && gradients[j] == 0) << j;
}

TEST(HostAttentionRows, ClearWhatIsNotFinite) {
  if (detail::host::machine_isa() < HostIsa::avx512_bf16) GTEST_SKIP() << "no AVX512-BF16";
  std::vector<std::uint32_t> packed(64, 0x7f7fff7fu);  // the largest finite numbers
  EXPECT_FALSE(clear_not_finite(packed.data(), 64));
  packed[17] = 0x3f80ff80u;
  packed[63] = 0x7fc00001u;
  EXPECT_TRUE(clear_not_finite(packed.data(), 64));
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_EQ(packed[i], i == 17 ? 0x3f800000u : i == 63 ? 0x00000001u : 0x7f7fff7fu) << i;
}

/// Values that rows must not see change no bit of theirs, and those that they see come through, in
/// whatever tile a row is.
TEST(HostAttention, ValuesThatAreNotFiniteReachThoseThatSeeThem) {
  using Space = Kokkos::DefaultHostExecutionSpace;
  using Tensor = Kokkos::View<bfloat16****, Kokkos::LayoutRight, Kokkos::HostSpace>;
  std::int64_t const length = 300, d = 40;
  Tensor q("q", 1, 2, length, d), k("k", 1, 1, length, d), v("v", 1, 1, length, d),
      out("out", 1, 2, length, d), clean("clean", 1, 2, length, d);
  Random random(1);
  for (auto const& x : {q, k, v})
    for (std::size_t i = 0; i < x.size(); ++i)
      x.data()[i] = bfloat16(static_cast<float>(random.uniform(-1, 1)));
  AttentionOptions const options{.causal = true, .kernel = "portable/flash"};
  attention(Space(), q, k, v, clean, options);
  float const infinity = std::numeric_limits<float>::infinity();
  v(0, 0, 70, 3) = bfloat16(infinity);
  v(0, 0, 90, 3) = bfloat16(-infinity);
  v(0, 0, 280, 7) = bfloat16(std::numeric_limits<float>::quiet_NaN());
  attention(Space(), q, k, v, out, options);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t c = 0; c < d; ++c) {
        float const x = out(0, h, i, c);
        if ((c == 3 && i >= 90) || (c == 7 && i >= 280))
          ASSERT_TRUE(std::isnan(x)) << i << ", " << c;
        else if (c == 3 && i >= 70)
          ASSERT_EQ(x, infinity) << i;
        else
          ASSERT_EQ(x, static_cast<float>(clean(0, h, i, c))) << i << ", " << c;
      }
}

#endif  // ATTIKOS_HOST_X86

}  // namespace
}  // namespace attikos::test
