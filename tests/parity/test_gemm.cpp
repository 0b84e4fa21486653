// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm against the float64 oracle: execution spaces x element types, all layouts at run time.
#include <cmath>
#include <limits>
#include <vector>

#include "../support/shapes.hpp"
#include "gemm_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class Gemm : public testing::Test {};
TYPED_TEST_SUITE(Gemm, FloatingCases, CaseName);

template <class C>
void check(GemmCase const& p) {
  check_gemm<typename C::Exec, typename C::T>(p);
}

TYPED_TEST(Gemm, EveryLayoutOfEveryOperand) {
  for (auto [m, n, k] : small_matrices) {
    for (Layout a : all_layouts) {
      for (Layout b : all_layouts) {
        for (int trans = 0; trans < 4; ++trans) {
          GemmOptions const options{.trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
          // C takes all five layouts over the loop, whatever A and B are.
          auto const c =
              all_layouts[static_cast<std::size_t>(m + n + trans + static_cast<int>(a)) % 5];
          check<TypeParam>(
              {.batch = -1, .m = m, .n = n, .k = k, .options = options, .a = a, .b = b, .c = c});
        }
      }
    }
  }
}

TYPED_TEST(Gemm, TileEdges) {
  int turn = 0;
  for (auto [m, n, k] : edge_matrices) {
    for (int trans = 0; trans < 4; ++trans, ++turn) {
      GemmOptions const options{.trans_a = (trans & 1) != 0, .trans_b = (trans & 2) != 0};
      auto const layout = turn % 3 == 0 ? Layout::padded : Layout::right;
      check<TypeParam>(
          {.batch = -1, .m = m, .n = n, .k = k, .options = options, .a = layout, .b = layout});
    }
  }
}

// Rows of C follow one another as if they were dense, but neighbors in a row lie apart.
TYPED_TEST(Gemm, SmallResultsOfColumnsThatLieApart) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (std::int64_t n : {4, 8, 16}) {
    std::int64_t const m = 5, k = 3;
    Tensor<T, 2, Exec> a({m, k}), b({k, n}), memory({n, m * n});
    Random random(static_cast<std::uint64_t>(n));
    a.fill_integers(random, -4, 4);
    b.fill_integers(random, -4, 4);
    using View = typename Tensor<T, 2, Exec>::template ViewOf<T, 2>;
    gemm(Exec(), a.const_view(), b.const_view(),
         View(memory.view().data(), Kokkos::LayoutStride(m, n, n, m * n)));
    memory.download();
    memory.for_each([&](auto const& at) {
      auto const [j, place] = at;
      double want = 0;
      for (std::int64_t l = 0; l < k; ++l) want += a.value(place / n, l) * b.value(l, j);
      if (place % n == 0)
        EXPECT_EQ(memory.value(j, place), want) << place / n << ", " << j << " of " << n;
      else
        EXPECT_TRUE(std::isnan(memory.value(j, place))) << j << ", " << place << " of " << n;
    });
  }
}

TYPED_TEST(Gemm, DeepAndWide) {
  check<TypeParam>({.batch = -1, .m = 3, .n = 5, .k = 4099});
  check<TypeParam>(
      {.batch = -1, .m = 300, .n = 515, .k = 520, .options = {.trans_b = true}, .rows_checked = 9});
  check<TypeParam>({.batch = -1, .m = 2, .n = 4099, .k = 17});
  check<TypeParam>({.batch = -1, .m = 4099, .n = 2, .k = 17, .rows_checked = 200});
}

TYPED_TEST(Gemm, EmptyExtents) {
  for (auto [m, n, k] : empty_matrices) {
    for (double beta : {0.0, 0.5}) {
      check<TypeParam>({.batch = -1, .m = m, .n = n, .k = k, .options = {.beta = beta}});
      check<TypeParam>({.batch = 2, .m = m, .n = n, .k = k, .options = {.beta = beta}});
    }
  }
  check<TypeParam>({.batch = 0, .m = 3, .n = 4, .k = 5});
}

TYPED_TEST(Gemm, EmptyKStillRunsTheEpilogue) {
  for (Activation act : {Activation::none, Activation::relu, Activation::silu}) {
    GemmOptions const options{.alpha = 3, .beta = -0.75, .activation = act, .scale = 2};
    check<TypeParam>({.batch = -1,
                      .m = 7,
                      .n = 9,
                      .k = 0,
                      .options = options,
                      .bias = BiasKind::along_n,
                      .residual = true});
    check<TypeParam>({.batch = 2,
                      .m = 7,
                      .n = 9,
                      .k = 0,
                      .options = options,
                      .bias = BiasKind::along_m,
                      .residual = true});
  }
}

TYPED_TEST(Gemm, Batches) {
  for (Layout layout : all_layouts) {
    check<TypeParam>({.batch = 1, .m = 5, .n = 6, .k = 7, .a = layout, .b = layout, .c = layout});
    check<TypeParam>({.batch = 5,
                      .m = 17,
                      .n = 13,
                      .k = 35,
                      .options = {.trans_b = true},
                      .a = layout,
                      .b = layout,
                      .c = layout});
  }
  for (auto b : {Batch::extent_1, Batch::rank_2}) {
    check<TypeParam>({.batch = 3, .m = 17, .n = 13, .k = 35, .batch_a = b});
    check<TypeParam>(
        {.batch = 3, .m = 17, .n = 13, .k = 35, .options = {.trans_b = true}, .batch_b = b});
  }
  check<TypeParam>(
      {.batch = 3, .m = 4, .n = 3, .k = 2, .batch_a = Batch::extent_1, .batch_b = Batch::extent_1});
}

TYPED_TEST(Gemm, Epilogues) {
  for (Activation act : {Activation::none, Activation::relu, Activation::gelu,
                         Activation::gelu_tanh, Activation::silu}) {
    for (BiasKind b : {BiasKind::none, BiasKind::along_n, BiasKind::along_m}) {
      for (bool residual : {false, true}) {
        for (double beta : {0.0, -0.5}) {
          GemmOptions const options{.alpha = 1.5, .beta = beta, .activation = act, .scale = 0.7};
          check<TypeParam>({.batch = -1,
                            .m = 19,
                            .n = 35,
                            .k = 21,
                            .options = options,
                            .bias = b,
                            .residual = residual,
                            .c = residual ? Layout::strided : Layout::left});
        }
      }
    }
    // Far into both tails of the activation.
    check<TypeParam>({.batch = -1,
                      .m = 9,
                      .n = 18,
                      .k = 5,
                      .options = {.activation = act, .scale = 37},
                      .bias = BiasKind::along_n,
                      .largest = 3});
  }
}

TYPED_TEST(Gemm, ScalarsInEveryCombination) {
  for (double alpha : {0.0, 1.0, -1.25}) {
    for (double beta : {0.0, 1.0, 0.3}) {
      for (double scale : {1.0, 0.0, -3.0}) {
        check<TypeParam>({.batch = -1,
                          .m = 14,
                          .n = 18,
                          .k = 12,
                          .options = {.alpha = alpha, .beta = beta, .scale = scale}});
      }
    }
  }
}

TYPED_TEST(Gemm, InfinitiesFollowIeee) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  double const infinity = std::numeric_limits<double>::infinity();
  GemmCase const p{
      .batch = -1, .m = 3, .n = 17, .k = 5, .options = {.activation = Activation::relu}};
  GemmOperands<Exec, T, T, T> o(p);
  o.a.fill(1);
  o.b.fill(1);
  o.a.set(infinity, 0, 0, 2);
  o.a.set(-infinity, 0, 1, 2);
  o.b.set(-1, 0, 2, 16);
  o.a.upload();
  o.b.upload();
  call_gemm(Exec(), p, o);
  o.c.download();
  EXPECT_EQ(o.c.value(0, 0, 0), infinity);
  EXPECT_EQ(o.c.value(0, 0, 16), 0);
  EXPECT_EQ(o.c.value(0, 1, 0), 0);
  EXPECT_EQ(o.c.value(0, 1, 16), infinity);
  EXPECT_EQ(o.c.value(0, 2, 0), 5);
  EXPECT_EQ(o.c.value(0, 2, 16), 3);
}

TYPED_TEST(Gemm, NanReachesOnlyItsRowAndColumn) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  GemmCase const p{.batch = -1, .m = 29, .n = 37, .k = 18};
  GemmOperands<Exec, T, T, T> o(p);
  o.a.fill(1);
  o.b.fill(2);
  o.a.at({0, 13, 17}) = poison<T>();
  o.b.at({0, 0, 36}) = poison<T>();
  o.a.upload();
  o.b.upload();
  call_gemm(Exec(), p, o);
  o.c.download();
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      EXPECT_EQ(std::isnan(o.c.value(0, i, j)), i == 13 || j == 36) << i << ", " << j;
    }
  }
}

TYPED_TEST(Gemm, PortableKernelByName) {
  check<TypeParam>({.batch = -1, .m = 65, .n = 33, .k = 47, .options = {.kernel = "portable"}});
  check<TypeParam>(
      {.batch = 2, .m = 65, .n = 33, .k = 47, .options = {.beta = 1, .kernel = "portable"}});
  // Few tiles of a long k, which a device cuts into parts.
  GemmOptions long_k{.beta = -0.5, .activation = Activation::relu};
  long_k.kernel = "portable";
  for (bool trans : {false, true}) {
    long_k.trans_b = trans;
    check<TypeParam>({.batch = trans ? 2 : -1,
                      .m = 70,
                      .n = 91,
                      .k = 3001,
                      .options = long_k,
                      .bias = BiasKind::along_n,
                      .residual = true,
                      .rows_checked = 20});
  }
  // Batches of which a device's threads have a product each.
  for (std::int64_t extent : {5, 8, 13, 16, 27, 32})
    check<TypeParam>({.batch = 601,
                      .m = extent,
                      .n = extent - 1,
                      .k = extent + 4,
                      .options = {.kernel = "portable"},
                      .rows_checked = 3});
}

}  // namespace
}  // namespace attikos::test
