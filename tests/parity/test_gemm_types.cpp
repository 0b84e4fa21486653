// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm with mixed element types, int8, offsets past 2^31, and the tensors that are not
// LayoutStride.
#include <climits>
#include <utility>

#include "../support/sparse_memory.hpp"
#include "gemm_checks.hpp"

namespace attikos::test {
namespace {

/// Small integers that differ from row to row and column to column.
int pattern(std::size_t i, std::size_t j, int seed) {
  return static_cast<int>((i * 7 + j * 5 + static_cast<std::size_t>(seed) * 3) % 11) - 5;
}

template <class Exec>
class GemmTypes : public testing::Test {};
TYPED_TEST_SUITE(GemmTypes, SpaceCases, CaseName);

template <class Exec, class TA, class TB, class TC>
void check_mix() {
  for (int trans = 0; trans < 4; ++trans) {
    GemmOptions const options{
        .alpha = 0.75, .beta = 0.5, .trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
    check_gemm<Exec, TA, TB, TC>({.batch = -1, .m = 33, .n = 47, .k = 65, .options = options});
    check_gemm<Exec, TA, TB, TC>({.batch = 2,
                                  .m = 17,
                                  .n = 16,
                                  .k = 32,
                                  .options = {.activation = Activation::silu},
                                  .bias = BiasKind::along_n,
                                  .residual = true,
                                  .a = Layout::strided});
  }
}

TYPED_TEST(GemmTypes, Float16Float16Float32) { check_mix<TypeParam, float16, float16, float>(); }
TYPED_TEST(GemmTypes, Bfloat16Bfloat16Float32) {
  check_mix<TypeParam, bfloat16, bfloat16, float>();
}
TYPED_TEST(GemmTypes, Float32Bfloat16Float32) { check_mix<TypeParam, float, bfloat16, float>(); }
TYPED_TEST(GemmTypes, Float16Bfloat16Float16) {
  check_mix<TypeParam, float16, bfloat16, float16>();
}
TYPED_TEST(GemmTypes, Float32Float32Bfloat16) { check_mix<TypeParam, float, float, bfloat16>(); }
TYPED_TEST(GemmTypes, Float32Float32Float64) { check_mix<TypeParam, float, float, double>(); }
TYPED_TEST(GemmTypes, Float64Float16Float32) { check_mix<TypeParam, double, float16, float>(); }

template <class Exec>
void check_int8(std::int64_t m, std::int64_t n, std::int64_t k, GemmOptions options, Layout layout,
                bool extreme) {
  GemmCase const p{.batch = -1,
                   .m = m,
                   .n = n,
                   .k = k,
                   .options = options,
                   .a = layout,
                   .b = layout,
                   .c = layout};
  GemmOperands<Exec, std::int8_t, std::int8_t, std::int32_t> o(p);
  Random random(7);
  o.a.fill_integers(random, -128, extreme ? -128 : 127);
  o.b.fill_integers(random, -128, extreme ? -128 : 127);
  if (options.beta != 0) o.c.fill_integers(random, INT32_MIN, INT32_MAX);
  auto before = o.c;
  gemm(Exec(), o.a.const_front(), o.b.const_front(), o.c.front(), options);
  o.c.download();
  EXPECT_EQ(o.c.writes_outside(), 0u);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      auto const want = reference::gemm_element_int8(
          k, [&](std::int64_t l) { return options.trans_a ? o.a(0, l, i) : o.a(0, i, l); },
          [&](std::int64_t l) { return options.trans_b ? o.b(0, j, l) : o.b(0, l, j); },
          options.beta != 0 ? before(0, i, j) : 0);
      ASSERT_EQ(o.c(0, i, j), want) << describe(p) << " at [" << i << ", " << j << "]";
    }
  }
}

TYPED_TEST(GemmTypes, Int8IsExact) {
  for (int trans = 0; trans < 4; ++trans) {
    for (Layout layout : all_layouts) {
      for (double beta : {0.0, 1.0}) {
        GemmOptions const options{
            .beta = beta, .trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
        check_int8<TypeParam>(33, 17, 129, options, layout, false);
        check_int8<TypeParam>(5, 3, 0, options, layout, false);
        check_int8<TypeParam>(3, 50, 600, options, layout, false);   // few rows
        check_int8<TypeParam>(51, 40, 530, options, layout, false);  // few in the last tile
      }
    }
  }
  check_int8<TypeParam>(1, 1, 1, {}, Layout::right, true);
  check_int8<TypeParam>(65, 127, 256, {}, Layout::right, true);
}

// 2^17 products of (-128)(-128) are 2^31: one more than int32 holds.
TYPED_TEST(GemmTypes, Int8Wraps) {
  check_int8<TypeParam>(2, 3, (1 << 17) + 5, {}, Layout::right, true);
  check_int8<TypeParam>(2, 3, (1 << 17) + 5, {.trans_b = true}, Layout::right, true);
}

// The types of the tensors, one by one: each instantiates a call of its own, so float32 alone has
// them.
template <class View>
void fill_pattern(View const& view, int seed) {
  auto host = Kokkos::create_mirror_view(view);
  for (std::size_t i = 0; i < view.extent(0); ++i) {
    for (std::size_t j = 0; j < view.extent(1); ++j)
      host(i, j) = static_cast<float>(pattern(i, j, seed));
  }
  Kokkos::deep_copy(view, host);
}

template <class View>
void expect_product(View const& c, std::size_t k) {
  Kokkos::fence("attikos_test");
  auto host = Kokkos::create_mirror_view(c);
  Kokkos::deep_copy(host, c);
  for (std::size_t i = 0; i < c.extent(0); ++i) {
    for (std::size_t j = 0; j < c.extent(1); ++j) {
      int sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += pattern(i, l, 1) * pattern(l, j, 2);
      ASSERT_EQ(static_cast<int>(host(i, j)), sum) << i << ", " << j;
    }
  }
}

template <class LA, class LB, class LC, class Exec>
void check_layouts() {
  Kokkos::View<float**, LA, Exec> a("a", 13, 7);
  Kokkos::View<float**, LB, Exec> b("b", 7, 11);
  Kokkos::View<float**, LC, Exec> c("c", 13, 11);
  fill_pattern(a, 1);
  fill_pattern(b, 2);
  gemm(Exec(), a, b, c);
  expect_product(c, 7);
  Kokkos::deep_copy(c, -1.0f);
  // Const and unmanaged, in another mix.
  Kokkos::View<float const**, LA, Exec> const const_a = a;
  Kokkos::View<float const**, LB, Exec, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const raw_b(
      b.data(), 7, 11);
  Kokkos::View<float**, LC, Exec, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const raw_c(c.data(), 13,
                                                                                       11);
  gemm(Exec(), const_a, raw_b, raw_c);
  expect_product(c, 7);
}

TYPED_TEST(GemmTypes, StaticLayouts) {
  using Kokkos::LayoutLeft;
  using Kokkos::LayoutRight;
  check_layouts<LayoutRight, LayoutRight, LayoutRight, TypeParam>();
  check_layouts<LayoutLeft, LayoutRight, LayoutLeft, TypeParam>();
}

TYPED_TEST(GemmTypes, Subviews) {
  using Kokkos::ALL;
  Kokkos::View<float***, Kokkos::LayoutLeft, TypeParam> a("a", 13, 3, 7);
  Kokkos::View<float***, Kokkos::LayoutRight, TypeParam> b("b", 2, 7, 20);
  Kokkos::View<float**, Kokkos::LayoutRight, TypeParam> c("c", 20, 20);
  auto const sub_a = Kokkos::subview(a, ALL, 1, ALL);
  auto const sub_b = Kokkos::subview(b, 1, ALL, std::pair<int, int>(5, 16));
  auto const sub_c = Kokkos::subview(c, std::pair<int, int>(2, 15), std::pair<int, int>(3, 14));
  Kokkos::View<float**, Kokkos::LayoutRight, TypeParam> dense_a("a", 13, 7), dense_b("b", 7, 11),
      dense_c("c", 13, 11);
  fill_pattern(dense_a, 1);
  fill_pattern(dense_b, 2);
  Kokkos::deep_copy(TypeParam(), sub_a, dense_a);
  Kokkos::deep_copy(TypeParam(), sub_b, dense_b);
  gemm(TypeParam(), sub_a, sub_b, sub_c);
  Kokkos::deep_copy(TypeParam(), dense_c, sub_c);
  expect_product(dense_c, 7);
}

TYPED_TEST(GemmTypes, Mdspan) {
  Kokkos::View<float**, Kokkos::LayoutRight, TypeParam> a("a", 13, 7), b("b", 7, 11);
  Kokkos::View<float**, Kokkos::LayoutLeft, TypeParam> c("c", 13, 11);
  fill_pattern(a, 1);
  fill_pattern(b, 2);
  Kokkos::mdspan<float const, Kokkos::extents<int, 13, 7>> const span_a(a.data());
  Kokkos::mdspan<float, Kokkos::dextents<std::size_t, 2>> const span_b(b.data(), 7, 11);
  Kokkos::mdspan<float, Kokkos::dextents<long, 2>, Kokkos::layout_left> const span_c(c.data(), 13,
                                                                                     11);
  gemm(TypeParam(), span_a, span_b, span_c);
  expect_product(c, 7);
}

TEST(GemmDefaultSpace, MayBeLeftOut) {
  Kokkos::View<float**, Kokkos::LayoutRight> a("a", 13, 7), b("b", 7, 11), c("c", 13, 11);
  fill_pattern(a, 1);
  fill_pattern(b, 2);
  gemm(a, b, c);
  expect_product(c, 7);
  Kokkos::deep_copy(c, -1.0f);
  gemm(a, b, c, {.alpha = 1});
  expect_product(c, 7);
}

// Rows so far apart that element offsets pass 2^31 (and 2^32 for C): a 32-bit offset lands
// elsewhere.
TYPED_TEST(GemmTypes, OffsetsPast32Bits) {
  std::int64_t const stride = (std::int64_t{1} << 30) + 12345;
  SparseMemory<TypeParam> const memory_a(3 * stride), memory_b(3 * stride),
      memory_c(5 * stride * 4);
  ASSERT_TRUE(memory_a && memory_b && memory_c) << "no address space";
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using Bytes = Kokkos::View<std::int8_t**, Kokkos::LayoutStride, TypeParam, Unmanaged>;
  auto const row_stride = static_cast<std::size_t>(stride);
  Bytes const a(static_cast<std::int8_t*>(memory_a.get()),
                Kokkos::LayoutStride(3, row_stride, 3, 1));
  Bytes const b(static_cast<std::int8_t*>(memory_b.get()),
                Kokkos::LayoutStride(3, row_stride, 2, 1));
  Kokkos::View<std::int32_t**, Kokkos::LayoutStride, TypeParam, Unmanaged> const c(
      static_cast<std::int32_t*>(memory_c.get()), Kokkos::LayoutStride(3, 2 * row_stride, 2, 1));
  Kokkos::View<std::int8_t**, TypeParam> near_a("a", 3, 3), near_b("b", 3, 2);
  auto const host_a = Kokkos::create_mirror_view(near_a);
  auto const host_b = Kokkos::create_mirror_view(near_b);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) host_a(i, j) = static_cast<std::int8_t>(pattern(i, j, 1));
    for (std::size_t j = 0; j < 2; ++j) host_b(i, j) = static_cast<std::int8_t>(pattern(i, j, 2));
  }
  Kokkos::deep_copy(near_a, host_a);
  Kokkos::deep_copy(near_b, host_b);
  TypeParam const exec;
  Kokkos::deep_copy(exec, a, near_a);
  Kokkos::deep_copy(exec, b, near_b);
  gemm(exec, a, b, c);
  Kokkos::View<std::int32_t**, TypeParam> near_c("c", 3, 2);
  Kokkos::deep_copy(exec, near_c, c);
  exec.fence();
  auto const host_c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), near_c);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      int sum = 0;
      for (std::size_t l = 0; l < 3; ++l) sum += pattern(i, l, 1) * pattern(l, j, 2);
      EXPECT_EQ(host_c(i, j), sum) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace attikos::test
