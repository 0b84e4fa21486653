// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dot products of rows that are read where they lie and stored where they are wanted, on small
// integers, whose sums are exact in any order.
#include <gtest/gtest.h>

#include <attikos/core/dtypes.hpp>
#include <attikos/host/dot_product.hpp>
#include <attikos/host/few_rows.hpp>
#include <iostream>
#include <vector>

#include "../support/random.hpp"
#include "host_factors.hpp"

namespace attikos::test {
namespace {

#if defined(ATTIKOS_HOST_X86)

using namespace detail::host::avx512;

template <class Kind>
constexpr HostIsa needed = Kind::values == 2 ? HostIsa::avx512_bf16 : HostIsa::avx512_vnni;

/// What is stored of a sum: itself, or its bfloat16.
template <class To>
double stored(double sum) {
  if constexpr (std::is_same_v<To, float>) return static_cast<float>(sum);
  if constexpr (std::is_same_v<To, std::uint16_t>)
    return static_cast<float>(bfloat16(static_cast<float>(sum)));
  return sum;
}
template <class To>
double found(To x) {
  if constexpr (std::is_same_v<To, float>) return x;
  if constexpr (std::is_same_v<To, std::uint16_t>)
    return static_cast<float>(bfloat16::from_bits(x));
  return static_cast<std::int32_t>(x);
}

/// `m` rows of `k` elements `gap` apart, behind the last of which is nothing.
template <class Kind>
struct Rows {
  using Element = typename Kind::Element;
  std::vector<Element> memory;
  std::int64_t stride;

  Rows(Random& random, int m, int k, int gap)
      : memory(static_cast<std::size_t>((m - 1) * (k + gap) + k),
               sizeof(Element) == 2 ? Element(0x7fc0) : Element(0x7f)),
        stride(k + gap) {
    PackedFactor<Kind> numbers(random, m, k, 0);
    for (int i = 0; i < m; ++i)
      for (int p = 0; p < k; ++p)
        memory[static_cast<std::size_t>(i * stride + p)] = numbers.at(i, p);
  }
  double at(int i, int p) const {
    return value_of<Kind>(memory[static_cast<std::size_t>(i * stride + p)]);
  }
};

/// In steps along k, of which the last goes to C.
template <class Kind, class To>
void check_in_place(int m, int n, int k, int step, int gap) {
  using Sum = typename Kind::Sum;
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " in steps of " << step
                                  << ", gap " << gap);
  Random random(static_cast<std::uint64_t>(m + 100 * n + 10000 * k));
  Rows<Kind> const a(random, m, k, gap);
  PackedFactor<Kind> b(random, n, k, 1);
  std::vector<std::uint32_t> room(static_cast<std::size_t>(words_in_place(m)), ~0u);
  std::vector<std::uint32_t> right(static_cast<std::size_t>((n + 31) / 32 * panel_words<Kind>(k)));
  pack_right<Kind>(right.data(), b.factor(), k, n);
  std::int64_t const whole = (n + 15) / 16 * 16, ld = n + 3;
  std::vector<Sum> sums(static_cast<std::size_t>(m * whole), Sum(7));
  std::vector<To> c(static_cast<std::size_t>(m * ld), To(42));
  for (int p = 0; p < k; p += step) {
    int const depth = std::min(step, k - p);
    auto const rows =
        rows_in_place<Kind>(room.data(), {a.memory.data() + p, a.stride, 1}, m, depth);
    PanelPart const part{panel_words<Kind>(k), p / Kind::values};
    Sum const* const before = p > 0 ? sums.data() : nullptr;
    if (p + depth < k)
      multiply<Kind, Sum>(rows, right.data(), {before, whole, sums.data(), whole}, m,
                          static_cast<int>(whole), depth, part);
    else
      multiply<Kind, To>(rows, right.data(), {before, whole, c.data(), ld}, m, n, depth, part);
  }
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double exact = 0;
      for (int p = 0; p < k; ++p) exact += a.at(i, p) * value_of<Kind>(b.at(j, p));
      ASSERT_EQ(found<To>(c[static_cast<std::size_t>(i * ld + j)]), stored<To>(exact))
          << i << ", " << j;
    }
    for (std::int64_t j = n; j < ld; ++j)
      ASSERT_EQ(c[static_cast<std::size_t>(i * ld + j)], To(42)) << "behind row " << i;
  }
}

template <class Kind, class To>
void check_shapes() {
  if (detail::host::machine_isa() < needed<Kind>) {
    std::cout << "this machine has no " << host_isa_name(needed<Kind>) << "\n";
    return;
  }
  constexpr int most = most_units * Kind::values;
  int turn = 0;
  for (int m : {1, 2, 11, 13, 17, 40})
    for (int n : {1, 15, 16, 17, 31, 32, 33, 50, 70})
      for (int k : {1, 2, 3, 5, 31, 64, 66, 129})
        check_in_place<Kind, To>(m, n, k, most, turn++ % 4);
  for (int n : {9, 48, 200}) {  // panels that stay in the nearest cache, and such as do not
    check_in_place<Kind, To>(26, n, 3 * most + 7, most, 1);
    check_in_place<Kind, To>(26, n, 3 * most + 7, 4 * most, 0);
  }
  for (int m = 1; m <= 2 * block_rows + 1; ++m)  // every height of a block
    check_in_place<Kind, To>(m, 47, 2 * Kind::values + 1, most, 0);
}

TEST(HostRowsInPlace, Bfloat16PairsAreExact) { check_shapes<Bfloat16Pairs, float>(); }
TEST(HostRowsInPlace, AreRoundedToBfloat16) { check_shapes<Bfloat16Pairs, std::uint16_t>(); }
TEST(HostRowsInPlace, Int8QuadsAreExact) { check_shapes<Int8Quads, std::uint32_t>(); }

/// Columns of int8 that are read where they lie, behind the last of which is nothing; exact modulo
/// 2³².
TEST(HostFewRows, OfQuadsAreExact) {
  if (detail::host::machine_isa() < HostIsa::avx512_vnni) GTEST_SKIP() << "no VNNI";
  int turn = 0;
  for (int m = 1; m <= streamed_quad_rows; ++m)
    for (int n : {1, 2, 15, 16, 17, 31, 32, 50})
      for (int k : {1, 3, 4, 63, 64, 65, 130, 511, 512}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
        Random random(static_cast<std::uint64_t>(m + 100 * n + 10000 * k));
        PackedFactor<Int8Quads> a(random, m, k, turn % 3);
        Rows<Int8Quads> const b(random, n, k, turn++ % 4);
        std::vector<std::uint32_t> left(static_cast<std::size_t>(16 * row_words), ~0u);
        pack_left<Int8Quads>(left.data(), a.factor(), m, k);
        int const whole = (n + 15) / 16 * 16, ld = whole + 3;
        for (bool accumulate : {false, true}) {
          std::vector<std::uint32_t> sums(static_cast<std::size_t>(m * ld), 3u);
          stream_quads(left.data(), {b.memory.data(), b.stride, 1}, sums.data(), ld, m, n, k,
                       accumulate);
          for (int i = 0; i < m; ++i) {
            for (int j = 0; j < n; ++j) {
              double exact = accumulate ? 3 : 0;
              for (int p = 0; p < k; ++p) exact += value_of<Int8Quads>(a.at(i, p)) * b.at(j, p);
              ASSERT_EQ(found<std::uint32_t>(sums[static_cast<std::size_t>(i * ld + j)]), exact)
                  << i << ", " << j;
            }
            for (int j = whole; j < ld; ++j)
              ASSERT_EQ(sums[static_cast<std::size_t>(i * ld + j)], 3u) << "behind row " << i;
          }
        }
      }
}

#endif

}  // namespace
}  // namespace attikos::test
