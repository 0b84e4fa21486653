// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// softmax, mean_pool and l2_normalize against the float64 oracle.
#include <attikos/reference/reduce_reference.hpp>

#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class Reduce : public testing::Test {};
TYPED_TEST_SUITE(Reduce, FloatingCases, CaseName);

template <class C>
void check_softmax(RowCase const& p, double largest, double scale, bool with_infinities) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({p.batch, p.rows, p.hidden}, p.x), out({p.batch, p.rows, p.hidden}, p.out);
  Random random(static_cast<std::uint64_t>(p.hidden + 3));
  x.fill_uniform(random, -largest, largest);
  if (with_infinities) {
    // Row 0 is -inf throughout, row 1 in its first half, others here and there.
    x.for_each([&](auto const& i) {
      if (i[1] == 0 || (i[1] == 1 && 2 * i[2] < p.hidden) || random.integer(0, 3) == 0) {
        x.at(i) = from_double<T>(-infinity);
      }
    });
    x.upload();
  }
  run_rows<Exec>(p, x, out, [&](auto const& in, auto const& result) {
    softmax(Exec(), in, result, SoftmaxOptions{.scale = scale});
  });
  // Equal results are rounded alike.
  Comparison comparison(name_of<C>("softmax"), describe(p), scale == 0 ? Stored{} : stored_as<T>());
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const row = row_of(x, n, i);
      auto const want = reference::softmax_row(row, scale);
      for (std::int64_t c = 0; c < p.hidden; c += p.column_step) {
        comparison.add(out.value(n, i, c), want[sz(c)], softmax_bound<T>(row, scale, want[sz(c)]),
                       {n, i, c});
      }
    }
  }
}

TYPED_TEST(Reduce, Softmax) {
  for_row_cases([](RowCase const& p) { check_softmax<TypeParam>(p, 4, 1, false); });
}

TYPED_TEST(Reduce, SoftmaxScales) {
  for (double scale : {0.125, -2.0, 0.0, 20.0})
    check_softmax<TypeParam>({2, 3, 77}, 8, scale, false);
}

TYPED_TEST(Reduce, SoftmaxOfMinusInfinity) {
  for (auto hidden : row_lengths) check_softmax<TypeParam>({2, 4, hidden}, 4, 1, true);
  check_softmax<TypeParam>({.batch = 1, .rows = 3, .hidden = 20000, .column_step = 111}, 4, 1,
                           true);
}

template <class C>
void check_mean_pool(std::int64_t batch, std::int64_t seqlen, std::int64_t hidden, Layout layout,
                     std::vector<int> const& cut) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({batch, seqlen, hidden}, layout);
  Tensor<T, 2, Exec> out({batch, hidden}, layout);
  Tensor<std::int32_t, 1, Exec> len({batch}, Layout::strided);
  Random random(static_cast<std::uint64_t>(seqlen + 4));
  x.fill_uniform(random, -1, 3);
  if (cut.empty()) {
    mean_pool(Exec(), x.const_view(), out.view());
  } else {
    x.for_each([&](auto const& i) {
      if (i[1] >= cut[sz(i[0])]) x.at(i) = poison<T>();
    });
    x.upload();
    for (std::int64_t b = 0; b < batch; ++b) len(b) = cut[sz(b)];
    len.upload();
    mean_pool(Exec(), x.const_view(), out.view(), MeanPoolOptions{}, lengths(len.const_view()));
  }
  out.download();
  EXPECT_EQ(out.writes_outside(), 0u);
  Comparison comparison(name_of<C>("mean_pool"),
                        describe(RowCase{batch, seqlen, hidden, layout, layout}), stored_as<T>());
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t c = 0; c < hidden; ++c) {
      std::vector<double> column;
      std::int64_t const rows = cut.empty() ? seqlen : cut[sz(b)];
      for (std::int64_t i = 0; i < rows; ++i) column.push_back(x.value(b, i, c));
      double const want = reference::mean(column);
      comparison.add(out.value(b, c), want, column.empty() ? 0 : mean_bound<T>(column, want),
                     {b, c});
    }
  }
}

TYPED_TEST(Reduce, MeanPool) {
  for (Layout layout : all_layouts) {
    check_mean_pool<TypeParam>(3, 17, 37, layout, {});
    check_mean_pool<TypeParam>(5, 17, 37, layout, {17, 1, 0, 16, 5});
  }
  for (auto n : row_lengths) {
    check_mean_pool<TypeParam>(2, 5, n, Layout::right, {5, 3});
    check_mean_pool<TypeParam>(2, n, 5, Layout::right,
                               {static_cast<int>(n), static_cast<int>(n / 2)});
  }
  check_mean_pool<TypeParam>(0, 5, 5, Layout::right, {});
  check_mean_pool<TypeParam>(2, 0, 5, Layout::right, {});
  check_mean_pool<TypeParam>(2, 0, 5, Layout::right, {0, 0});
  check_mean_pool<TypeParam>(2, 5, 0, Layout::right, {2, 3});
}

template <class C>
void check_l2_normalize(RowCase const& p, double largest, double eps) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({p.batch, p.rows, p.hidden}, p.x), out({p.batch, p.rows, p.hidden}, p.out);
  Random random(static_cast<std::uint64_t>(p.hidden + 5));
  x.fill_uniform(random, -largest, largest);
  run_rows<Exec>(p, x, out, [&](auto const& in, auto const& result) {
    l2_normalize(Exec(), in, result, L2NormalizeOptions{.eps = eps});
  });
  // One factor for all of a row: no norms (error_norms.hpp).
  Comparison comparison(name_of<C>("l2_normalize"), describe(p));
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const want = reference::l2_normalize_row(row_of(x, n, i), eps);
      for (std::int64_t c = 0; c < p.hidden; c += p.column_step) {
        comparison.add(out.value(n, i, c), want[sz(c)],
                       scaled_row_bound<T>(sz(p.hidden), want[sz(c)]), {n, i, c});
      }
    }
  }
}

TYPED_TEST(Reduce, L2Normalize) {
  for_row_cases([](RowCase const& p) { check_l2_normalize<TypeParam>(p, 1, 1e-12); });
}

TYPED_TEST(Reduce, LongRowsAndMany) {
  for_long_row_cases<typename TypeParam::Exec>([](RowCase const& p) {
    check_softmax<TypeParam>(p, 4, 1, false);
    check_l2_normalize<TypeParam>(p, 1, 1e-12);
  });
}

TYPED_TEST(Reduce, L2NormalizeOfSmallRowsDividesByEps) {
  check_l2_normalize<TypeParam>({1, 3, 33}, 0, 1e-12);
  check_l2_normalize<TypeParam>({1, 3, 33}, 1e-3, 0.5);
}

TYPED_TEST(Reduce, L2NormalizeOfZerosIsZeroForAnyEps) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (double eps : {0.0, 1e-46, 1e-12}) {
    Tensor<T, 2, Exec> x({2, 33}), out({2, 33});
    x.fill(0);
    x.set(3, 1, 32);
    x.upload();
    l2_normalize(Exec(), x.const_view(), out.view(), {.eps = eps});
    out.download();
    for (std::int64_t c = 0; c < 33; ++c) {
      EXPECT_EQ(out.value(0, c), 0) << eps << ", " << c;
      EXPECT_NEAR(out.value(1, c), c == 32 ? 1 : 0, scaled_row_bound<T>(33, c == 32 ? 1 : 0));
    }
  }
}

TYPED_TEST(Reduce, NanStaysInItsRow) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (std::int64_t size : {35, 20001}) {
    Tensor<T, 3, Exec> x({1, 5, size}), out({1, 5, size});
    Random random(1);
    x.fill_uniform(random);
    x.at({0, 2, size - 1}) = poison<T>();
    x.at({0, 3, 0}) = poison<T>();
    x.upload();
    auto const expect = [&] {
      out.download();
      out.for_each([&](auto const& i) {
        EXPECT_EQ(std::isnan(to_double(out.at(i))), i[1] == 2 || i[1] == 3) << i[1] << ", " << i[2];
      });
      out.fill(0);
    };
    softmax(Exec(), x.view(), out.view());
    expect();
    l2_normalize(Exec(), x.view(), out.view());
    expect();
  }
}

TEST(ReduceDefaultSpace, MayBeLeftOut) {
  Kokkos::View<float***> x("x", 2, 3, 4), out("out", 2, 3, 4);
  Kokkos::View<float**> pooled("pooled", 2, 4);
  Kokkos::deep_copy(x, 3.0f);
  softmax(x, out);
  Kokkos::fence("attikos_test");
  auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  EXPECT_EQ(host(1, 2, 3), 0.25f);
  l2_normalize(x, out);
  Kokkos::fence("attikos_test");
  Kokkos::deep_copy(host, out);
  EXPECT_EQ(host(1, 2, 3), 0.5f);
  mean_pool(x, pooled);
  Kokkos::fence("attikos_test");
  auto host_pooled = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), pooled);
  EXPECT_EQ(host_pooled(1, 3), 3.0f);
}

}  // namespace
}  // namespace attikos::test
