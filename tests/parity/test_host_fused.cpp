// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of float32 and float64 on instructions chosen at run time: the bits of one chain of
// fused multiply-adds in ascending k, which std::fma computes here.
#include <gtest/gtest.h>

#include <attikos/core/dtypes.hpp>
#include <attikos/core/host_isa.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/host/few_rows.hpp>
#include <attikos/host/fused_product.hpp>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "../support/random.hpp"

namespace attikos::test {
namespace {

/// `rows` × `cols` numbers among others that would be seen. Layouts: neighbors side by side along
/// rows, along columns, or nowhere.
template <class T>
struct Strided {
  std::vector<T> memory;
  std::int64_t row_stride, col_stride;

  Strided(Random& random, int rows, int cols, int layout) {
    row_stride = layout == 0 ? cols + 3 : layout == 1 ? 1 : 2 * (cols + 3);
    col_stride = layout == 0 ? 1 : layout == 1 ? rows + 5 : 2;
    memory.assign(2 * (static_cast<std::size_t>(rows) + 5) * (static_cast<std::size_t>(cols) + 3),
                  std::numeric_limits<T>::quiet_NaN());
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) at(i, j) = static_cast<T>(random.uniform(-1, 1));
    if (rows > 1 && cols > 1) at(1, 1) = T(-0.0);
  }
  T& at(int i, int j) { return memory[static_cast<std::size_t>(i * row_stride + j * col_stride)]; }
};

template <class T>
T chain(Strided<T>& a, Strided<T>& b, int i, int j, int k, T sum) {
  for (int p = 0; p < k; ++p) sum = std::fma(a.at(i, p), b.at(p, j), sum);
  return sum;
}

#if defined(ATTIKOS_HOST_X86)

using namespace detail::host::avx512;

/// Sums of a block, packed or, where rows are few, read where they lie: fresh, and added to 3.
template <class T>
void check_fused(int m, int n, int k, int layout, bool streamed) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", layout " << layout
                                  << (streamed ? ", streamed" : ", packed"));
  constexpr int W = Fused<T>::width, columns = fused_columns<T>;
  Random random(static_cast<std::uint64_t>(m + 100 * n + 10000 * k));
  Strided<T> a(random, m, k, 0), b(random, k, n, layout);
  T const nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> left(static_cast<std::size_t>(m) * fused_row, nan);
  for (int i = 0; i < m; ++i)
    for (int p = 0; p < k; ++p)
      left[static_cast<std::size_t>(i) * fused_row + static_cast<std::size_t>(p)] = a.at(i, p);
  std::int64_t const panel = std::int64_t{columns} * (k + 2);
  std::vector<T> right(static_cast<std::size_t>((n + columns - 1) / columns * panel), T(0));
  for (int j = 0; j < n; ++j)
    for (int p = 0; p < k; ++p)
      right[static_cast<std::size_t>(j / columns * panel + p * columns + j % columns)] = b.at(p, j);
  int const ld = (n + W - 1) / W * W + W;
  auto const add = [&](std::vector<T>& sums, bool accumulate) {
    if (streamed)
      stream_multiply<Fused<T>>(left.data(), {b.memory.data(), b.col_stride, b.row_stride},
                                sums.data(), ld, m, n, k, accumulate);
    else
      fused_multiply<T>(left.data(), right.data(), panel, sums.data(), ld, m, n, k, accumulate);
  };
  std::vector<T> sums(static_cast<std::size_t>(m * ld), T(3)), fresh(sums.size(), nan);
  add(sums, true);
  add(fresh, false);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      auto const at = static_cast<std::size_t>(std::int64_t{i} * ld + j);
      ASSERT_EQ(sums[at], chain<T>(a, b, i, j, k, 3)) << i << ", " << j;
      ASSERT_EQ(fresh[at], chain<T>(a, b, i, j, k, 0)) << i << ", " << j;
    }
    for (int j = (n + W - 1) / W * W; j < ld; ++j)
      ASSERT_EQ(sums[static_cast<std::size_t>(i * ld + j)], T(3)) << "behind the last vector";
  }
}

template <class T>
void check_packed_blocks() {
  for (int m = 1; m <= 2 * block_rows + 1; ++m)  // every height of a block
    check_fused<T>(m, 40, 5, 0, false);
  for (int n : {1, 7, 8, 9, 16, 17, 31, 32, 33, 50})
    for (int k : {1, 2, 63, fused_depth}) check_fused<T>(13, n, k, 0, false);
}

template <class T>
void check_streams() {
  for (int layout : {0, 1})
    for (int m = 1; m <= streamed_rows; ++m)
      for (int n : {1, 7, 8, 9, 16, 17, 33, 48})
        for (int k : {1, 7, 8, 9, 16, 17, 40, fused_depth}) check_fused<T>(m, n, k, layout, true);
}

TEST(HostFused, BlocksAreChainsOfMultiplyAdds) {
  if (detail::host::machine_isa() < HostIsa::avx512) GTEST_SKIP() << "no AVX-512";
  check_packed_blocks<float>();
  check_packed_blocks<double>();
}

TEST(HostFewRows, ThatReadTheRightFactorWhereItLiesAreTheSameChains) {
  if (detail::host::machine_isa() < HostIsa::avx512) GTEST_SKIP() << "no AVX-512";
  check_streams<float>();
  check_streams<double>();
}

/// bfloat16 pairs that are read where they lie: the bits of packed panels, which
/// test_host_instructions.cpp compares with exact sums.
TEST(HostFewRows, OfPairsHaveTheBitsOfPanels) {
  if (detail::host::machine_isa() < HostIsa::avx512_bf16) GTEST_SKIP() << "no AVX512-BF16";
  for (int layout : {0, 1})
    for (int m = 1; m <= streamed_rows; ++m)
      for (int n : {1, 15, 16, 17, 50})
        for (int k : {1, 2, 15, 16, 17, 32, 33, 100, 256}) {
          SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", " << layout);
          Random random(static_cast<std::uint64_t>(m + 100 * n + 10000 * k));
          Strided<float> a(random, m, k, 0), b(random, k, n, layout);
          std::vector<std::uint16_t> from_a, from_b;
          for (float x : a.memory) from_a.push_back(bfloat16(x).bits);
          for (float x : b.memory) from_b.push_back(bfloat16(x).bits);
          Factor<std::uint16_t> const factor{from_b.data(), b.col_stride, b.row_stride};
          std::vector<std::uint32_t> left(static_cast<std::size_t>(16 * row_words), ~0u);
          std::vector<std::uint32_t> right(
              static_cast<std::size_t>((n + 31) / 32 * panel_words<Bfloat16Pairs>(k)), ~0u);
          pack_left<Bfloat16Pairs>(left.data(), {from_a.data(), a.row_stride, a.col_stride}, m, k);
          pack_right<Bfloat16Pairs>(right.data(), factor, k, n);
          int const ld = (n + 15) / 16 * 16 + 16;
          for (bool accumulate : {false, true}) {
            std::vector<float> want(static_cast<std::size_t>(m * ld), 3), sums = want;
            multiply<Bfloat16Pairs>(left.data(), right.data(), want.data(), ld, m, n, k,
                                    accumulate);
            stream_multiply<StreamedPairs>(left.data(), factor, sums.data(), ld, m, n, k,
                                           accumulate);
            for (std::size_t at = 0; at < sums.size(); ++at) ASSERT_EQ(sums[at], want[at]) << at;
          }
        }
}

/// Sums of pairs as bfloat16: what the conversion of one number says, and nothing behind the row.
TEST(HostRounding, IsThatOfBfloat16) {
  if (detail::host::machine_isa() < HostIsa::avx512_bf16) GTEST_SKIP() << "no AVX512-BF16";
  Random random(9);
  for (int count = 0; count <= 100; ++count) {
    std::vector<float> sums(100);
    for (float& x : sums) x = static_cast<float>(random.uniform(-1, 1));
    std::uint32_t const special[] = {0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00001u,
                                     0x7f800001u, 0x3f808000u, 0x3f818000u, 0x3f808001u,
                                     0x7f7fffffu, 0x00800000u};
    for (std::uint32_t bits : special)
      sums[static_cast<std::size_t>(random.integer(0, 99))] = __builtin_bit_cast(float, bits);
    std::vector<std::uint16_t> rounded(140, 0x1234);
    round_row(rounded.data(), sums.data(), count);
    for (int j = 0; j < 140; ++j) {
      auto const at = static_cast<std::size_t>(j);
      ASSERT_EQ(rounded[at], j < count ? bfloat16(sums[at]).bits : 0x1234) << j << " of " << count;
    }
  }
}

#endif  // ATTIKOS_HOST_X86

/// Whether products of this process are chains of fused multiply-adds.
bool fuses() {
  return host_isa() >= HostIsa::avx512 || detail::host::has_multiply_add<float, 16>();
}

template <class T>
void check_gemm_is_a_chain() {
  using Space = Kokkos::DefaultHostExecutionSpace;
  using Kokkos::LayoutStride;
  using View = Kokkos::View<T**, LayoutStride, Kokkos::HostSpace>;
  int layout = 0;
  for (int m : {1, 2, 3, 7, 8, 9, 20})
    for (int n : {33, 64, 75, 700})
      for (int k : {40, 256, 531}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", layout " << layout);
        Random random(static_cast<std::uint64_t>(m * n + k));
        Strided<T> a(random, m, k, layout % 3), b(random, k, n, layout / 3 % 3);
        std::vector<T> c(static_cast<std::size_t>(m * n), T(7));
        auto const view = [](Strided<T>& x, int rows, int cols) {
          return View(x.memory.data(), LayoutStride(rows, x.row_stride, cols, x.col_stride));
        };
        gemm(Space(), view(a, m, k), view(b, k, n), View(c.data(), LayoutStride(m, n, n, 1)));
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j)
            ASSERT_EQ(c[static_cast<std::size_t>(i * n + j)], chain<T>(a, b, i, j, k, 0))
                << i << ", " << j;
        ++layout;
      }
}

/// Whatever the instruction set, the layout and the number of rows.
TEST(HostFused, ProductsHaveTheSameBitsOnEveryInstructionSet) {
  if (!fuses()) GTEST_SKIP() << "compiled without fused multiply-adds";
  check_gemm_is_a_chain<float>();
  check_gemm_is_a_chain<double>();
}

/// A product of few rows reads its right factor where it lies, one of many packs it.
template <class T, class Sum>
void check_rows_alone() {
  using Space = Kokkos::DefaultHostExecutionSpace;
  using Kokkos::LayoutStride;
  using View = Kokkos::View<T**, LayoutStride, Kokkos::HostSpace>;
  using Sums = Kokkos::View<Sum**, Kokkos::LayoutRight, Kokkos::HostSpace>;
  int const m = 20, few = 3;
  for (int layout : {0, 1, 2})
    for (int n : {33, 70, 301})
      for (int k : {5, 40, 263, 600}) {
        SCOPED_TRACE(testing::Message() << n << " x " << k << ", layout " << layout);
        Random random(static_cast<std::uint64_t>(n + k));
        Strided<float> a(random, m, k, 0), b(random, k, n, layout);
        std::vector<T> from_a, from_b;
        for (float x : a.memory) from_a.push_back(T(x));
        for (float x : b.memory) from_b.push_back(T(x));
        View const va(from_a.data(), LayoutStride(m, a.row_stride, k, a.col_stride));
        View const vb(from_b.data(), LayoutStride(k, b.row_stride, n, b.col_stride));
        Sums const c("c", m, n), rows("rows", few, n);
        gemm(Space(), va, vb, c);
        gemm(Space(), Kokkos::subview(va, std::pair(0, few), Kokkos::ALL), vb, rows);
        for (int i = 0; i < few; ++i)
          for (int j = 0; j < n; ++j) ASSERT_EQ(rows(i, j), c(i, j)) << i << ", " << j;
      }
}

TEST(HostFewRows, HaveTheBitsThatTheyHaveAmongOthers) {
  check_rows_alone<float, float>();
  check_rows_alone<double, double>();
  check_rows_alone<bfloat16, float>();
  check_rows_alone<float16, float>();
}

}  // namespace
}  // namespace attikos::test
