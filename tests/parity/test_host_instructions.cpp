// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What hosts choose at run time: the choice itself, and the blocks of every instruction set that
// this machine has, on small integers, whose sums are exact in any order.
#include <gtest/gtest.h>

#include <attikos/core/dtypes.hpp>
#include <attikos/core/host_isa.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/host/amx.hpp>
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
  EXPECT_EQ((instructions_of<float, float>(64)), "");
  EXPECT_EQ((instructions_of<double, double>(64)), "");
  EXPECT_EQ((instructions_of<float16, float16>(64)), "");
  EXPECT_EQ((instructions_of<bfloat16, double>(64)), "") << "sums are double";
  EXPECT_EQ((instructions_of<bfloat16, bfloat16>(32)), "") << "small products have no blocks";
}

#if defined(ATTIKOS_HOST_X86)

using namespace detail::host::avx512;

template <class Kind>
double value_of(typename Kind::Element code) {
  if constexpr (sizeof(code) == 4) return __builtin_bit_cast(float, code);
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
    Element const poison = sizeof(Element) == 4   ? Element(0x7fc00000u)
                           : sizeof(Element) == 2 ? Element(0x7fc0)
                                                  : Element(0x7f);
    memory.assign(static_cast<std::size_t>(2 * padded_k * padded_n), poison);
    for (int n = 0; n < neighbors; ++n)
      for (int p = 0; p < k; ++p) {
        auto const small = random.integer(-16, 16);
        if constexpr (sizeof(Element) == 4)
          at(n, p) = __builtin_bit_cast(Element, static_cast<float>(small));
        else if constexpr (sizeof(Element) == 2)
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

/// AMX's tiles as Intel's manual describes them, in memory: what the blocks do with them is checked
/// on any machine. Sums start as garbage.
class EmulatedTiles {
 public:
  EmulatedTiles() {
    for (auto& tile : tiles_)
      for (auto& row : tile)
        for (std::uint32_t& word : row) word = 0x7fc12345u;
  }
  template <int Tile>
  void clear() {
    std::memset(tiles_[Tile], 0, sizeof tiles_[Tile]);
  }
  template <int Tile, class Word>
  void load(Word const* p, std::int64_t stride) {
    for (int i = 0; i < 16; ++i) std::memcpy(tiles_[Tile][i], p + i * stride, 64);
  }
  template <int Tile, class Word>
  void store(Word* p, std::int64_t stride) const {
    for (int i = 0; i < 16; ++i) std::memcpy(p + i * stride, tiles_[Tile][i], 64);
  }
  template <class Kind, int Sums, int Left, int Right>
  void dot() {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        typename Kind::Sum sum;
        std::memcpy(&sum, &tiles_[Sums][i][j], sizeof sum);
        for (int u = 0; u < 16; ++u) sum += unit<Kind>(tiles_[Left][i][u], tiles_[Right][u][j]);
        std::memcpy(&tiles_[Sums][i][j], &sum, sizeof sum);
      }
  }

 private:
  template <class Kind>
  static typename Kind::Sum unit(std::uint32_t a, std::uint32_t b) {
    constexpr int bits = 32 / Kind::values;
    typename Kind::Sum sum = 0;
    for (int v = 0; v < Kind::values; ++v) {
      auto const x = static_cast<typename Kind::Element>(a >> (bits * v));
      auto const y = static_cast<typename Kind::Element>(b >> (bits * v));
      if constexpr (Kind::values == 2)
        sum += static_cast<float>(value_of<Kind>(x) * value_of<Kind>(y));
      else
        sum += static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int8_t>(x)) *
                                          static_cast<std::int8_t>(y));
    }
    return sum;
  }
  std::uint32_t tiles_[8][16][16];
};

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
      auto const at = static_cast<std::size_t>(i * ld + j);
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

#endif  // ATTIKOS_HOST_X86

}  // namespace
}  // namespace attikos::test
