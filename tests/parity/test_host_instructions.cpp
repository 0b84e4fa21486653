// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What hosts choose at run time: the choice itself, and the blocks of every instruction set that
// this machine has, on small integers, whose sums are exact in any order.
#include <gtest/gtest.h>

#include <attikos/core/dtypes.hpp>
#include <attikos/core/host_isa.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/host/dot_product.hpp>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "../support/messages.hpp"
#include "../support/random.hpp"

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
  expect_error<UnsupportedError>([&] { chosen_host_isa("sse9", most); },
                                 {"attikos::host_isa: ATTIKOS_HOST_ISA is \"sse9\"",
                                  "is no instruction set", "available: compiled, avx512_vnni"});
  expect_error<UnsupportedError>(
      [] { chosen_host_isa("avx512_bf16", HostIsa::avx512_vnni); },
      {"ATTIKOS_HOST_ISA is \"avx512_bf16\", which this machine does not have",
       "available: compiled, avx512_vnni"});
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
  char const* const bfloat16_isa = host_isa() >= HostIsa::avx512_bf16 ? "avx512_bf16" : "";
  char const* const int8_isa = host_isa() >= HostIsa::avx512_vnni ? "avx512_vnni" : "";
  EXPECT_EQ((instructions_of<bfloat16, bfloat16>(64)), bfloat16_isa);
  EXPECT_EQ((instructions_of<bfloat16, float>(64)), bfloat16_isa);
  EXPECT_EQ((instructions_of<std::int8_t, std::int32_t>(64)), int8_isa);
  EXPECT_EQ((instructions_of<float, float>(64)), "");
  EXPECT_EQ((instructions_of<bfloat16, double>(64)), "") << "sums are double";
  EXPECT_EQ((instructions_of<bfloat16, bfloat16>(32)), "") << "small products have no blocks";
}

#if defined(ATTIKOS_HOST_X86)

using namespace detail::host::avx512;

template <class Kind>
double value_of(typename Kind::Element code) {
  if constexpr (sizeof(code) == 2) return bfloat16::from_bits(code);
  if constexpr (sizeof(code) == 1) return static_cast<std::int8_t>(code);
}

/// A factor of `neighbors` × k elements in one of the layouts, among elements that would be seen:
/// NaN, or for integers a large number.
template <class Kind>
struct PackedFactor {
  using Element = typename Kind::Element;
  std::vector<Element> memory;
  std::int64_t neighbor_stride, k_stride;

  PackedFactor(Random& random, int neighbors, int k, int layout) {
    std::int64_t const padded_k = k + 3, padded_n = neighbors + 5;
    neighbor_stride = layout == 0 ? padded_k : layout == 1 ? 1 : 2 * padded_k;
    k_stride = layout == 0 ? 1 : layout == 1 ? padded_n : 2;
    Element const poison = sizeof(Element) == 2 ? Element(0x7fc0) : Element(0x7f);
    memory.assign(static_cast<std::size_t>(2 * padded_k * padded_n), poison);
    for (int n = 0; n < neighbors; ++n)
      for (int p = 0; p < k; ++p) {
        auto const small = random.integer(-16, 16);
        if constexpr (sizeof(Element) == 2)
          at(n, p) = bfloat16(static_cast<float>(small)).bits;
        else
          at(n, p) = static_cast<Element>(random.integer(-128, 127));
      }
  }
  Element& at(int n, int p) {
    return memory[static_cast<std::size_t>(n * neighbor_stride + p * k_stride)];
  }
  Factor<Element> factor() const { return {memory.data(), neighbor_stride, k_stride}; }
};

template <class Kind>
void check_products(int m, int n, int k, int layout_a, int layout_b) {
  using Sum = typename Kind::Sum;
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", layouts " << layout_a
                                  << layout_b);
  Random random(static_cast<std::uint64_t>(m + 100 * n + 10000 * k));
  PackedFactor<Kind> a(random, m, k, layout_a), b(random, n, k, layout_b);
  int const ld = (n + 15) / 16 * 16 + 16;
  std::vector<std::uint32_t> left(static_cast<std::size_t>((m + 15) / 16 * 16 * row_words), ~0u);
  std::vector<std::uint32_t> right(static_cast<std::size_t>((n + 31) / 32 * panel_words<Kind>(k)),
                                   ~0u);
  std::vector<Sum> sums(static_cast<std::size_t>(m * ld), Sum(3));
  pack_left<Kind>(left.data(), a.factor(), m, k);
  pack_right<Kind>(right.data(), b.factor(), k, n);
  multiply<Kind>(left.data(), right.data(), sums.data(), ld, m, n, k, true);
  std::vector<Sum> fresh(sums.size(), Sum(7));
  multiply<Kind>(left.data(), right.data(), fresh.data(), ld, m, n, k, false);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double exact = 0;
      for (int p = 0; p < k; ++p) exact += value_of<Kind>(a.at(i, p)) * value_of<Kind>(b.at(j, p));
      auto const at = static_cast<std::size_t>(i * ld + j);
      if constexpr (sizeof(typename Kind::Element) == 2) {
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
    column_sums(right.data(), of_columns.data(), k, n);
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

template <class Kind>
void check_shapes(HostIsa needed) {
  if (detail::host::machine_isa() < needed) {
    std::cout << "this machine has no " << host_isa_name(needed) << "\n";
    return;
  }
  int layout = 0;
  for (int m : {1, 2, 5, 12, 13, 31, 40})
    for (int n : {1, 15, 16, 17, 33, 48, 50})
      for (int k : {1, 2, 3, 31, 33, 64, 65, 200, 256}) {
        check_products<Kind>(m, n, k, layout % 3, layout / 3 % 3);
        ++layout;
      }
  check_products<Kind>(3, 20, most_units * Kind::values, 0, 1);
}

TEST(HostDotProduct, Bfloat16PairsAreExact) { check_shapes<Bfloat16Pairs>(HostIsa::avx512_bf16); }
TEST(HostDotProduct, Int8QuadsAreExact) { check_shapes<Int8Quads>(HostIsa::avx512_vnni); }

#endif  // ATTIKOS_HOST_X86

}  // namespace
}  // namespace attikos::test
