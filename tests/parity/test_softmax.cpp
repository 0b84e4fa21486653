// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// log_softmax, the gradients of softmax and log_softmax, softmax of long rows and
// mean_pool_backward against the float64 oracle, and the oracle against finite differences.
#include <attikos/reference/reduce_reference.hpp>

#include "../support/finite_differences.hpp"
#include "../support/tolerance_norms.hpp"
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class Softmax : public testing::Test {};
TYPED_TEST_SUITE(Softmax, FloatingCases, CaseName);

/// Row 0 becomes -inf throughout, row 1 in its first half, others here and there.
template <class Tensor3>
void mask(Tensor3& x, Random& random) {
  using T = typename Tensor3::T;
  x.for_each([&](auto const& i) {
    if (i[1] == 0 || (i[1] == 1 && 2 * i[2] < x.extent(2)) || random.integer(0, 3) == 0)
      x.at(i) = from_double<T>(-infinity);
  });
  x.upload();
}

template <class C>
void check_log_softmax(RowCase const& p, double largest, double scale, bool with_infinities) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({p.batch, p.rows, p.hidden}, p.x), out({p.batch, p.rows, p.hidden}, p.out);
  Random random(static_cast<std::uint64_t>(p.hidden + 3));
  x.fill_uniform(random, -largest, largest);
  if (with_infinities) mask(x, random);
  run_rows<Exec>(p, x, out, [&](auto const& in, auto const& result) {
    log_softmax(Exec(), in, result, SoftmaxOptions{.scale = scale});
  });
  // x of few bits less one number for all of a row: no norms (error_norms.hpp).
  Comparison comparison(name_of<C>("log_softmax"), describe(p));
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const row = row_of(x, n, i);
      auto const want = reference::log_softmax_row(row, scale);
      for (std::int64_t c = 0; c < p.hidden; c += p.column_step) {
        comparison.add(out.value(n, i, c), want[sz(c)],
                       log_softmax_bound<T>(row, scale, want[sz(c)]), {n, i, c});
      }
    }
  }
}

TYPED_TEST(Softmax, LogSoftmax) {
  for_row_cases([](RowCase const& p) { check_log_softmax<TypeParam>(p, 4, 1, false); });
}

TYPED_TEST(Softmax, LogSoftmaxOfLongRowsAndMany) {
  for_long_row_cases<typename TypeParam::Exec>(
      [](RowCase const& p) { check_log_softmax<TypeParam>(p, 4, 1, false); });
}

TYPED_TEST(Softmax, LogSoftmaxScales) {
  for (double scale : {0.125, -2.0, 0.0, 20.0})
    check_log_softmax<TypeParam>({2, 3, 77}, 8, scale, false);
}

TYPED_TEST(Softmax, LogSoftmaxOfMinusInfinity) {
  for (auto hidden : row_lengths) check_log_softmax<TypeParam>({2, 4, hidden}, 4, 1, true);
  check_log_softmax<TypeParam>({.batch = 1, .rows = 3, .hidden = 20000, .column_step = 111}, 4, 1,
                               true);
}

/// `alias` says what dx is: 0 apart, 1 out, 2 dout.
template <class C>
void check_gradient(bool logarithm, RowCase const& p, double scale, bool with_infinities,
                    int alias) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 3, Exec> x({p.batch, p.rows, p.hidden}), out({p.batch, p.rows, p.hidden}, p.x);
  Tensor<T, 3, Exec> dout({p.batch, p.rows, p.hidden}, p.out);
  Tensor<T, 3, Exec> dx({p.batch, p.rows, p.hidden}, p.out);
  Random random(static_cast<std::uint64_t>(p.hidden + 7));
  x.fill_uniform(random, -4, 4);
  dout.fill_uniform(random);
  if (with_infinities) mask(x, random);
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; ++i) {
      auto const row = row_of(x, n, i);
      auto const values =
          logarithm ? reference::log_softmax_row(row, scale) : reference::softmax_row(row, scale);
      for (std::int64_t c = 0; c < p.hidden; ++c) out.set(values[sz(c)], n, i, c);
    }
  }
  out.upload();
  if (alias == 1) dx = out;
  if (alias == 2) dx = dout;
  auto const call = [&](auto const& y, auto const& g, auto const& to) {
    if (logarithm) {
      log_softmax_backward(Exec(), y, g, to, SoftmaxOptions{.scale = scale});
    } else {
      softmax_backward(Exec(), y, g, to, SoftmaxOptions{.scale = scale});
    }
  };
  if (p.flat) {
    call(out.const_front(), dout.const_front(), dx.front());
  } else {
    call(out.const_view(), dout.const_view(), dx.view());
  }
  dx.download();
  EXPECT_EQ(dx.writes_outside(), 0u) << describe(p);
  Comparison comparison(name_of<C>(logarithm ? "log_softmax_backward" : "softmax_backward"),
                        describe(p), stored_as<T>());
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const y = row_of(out, n, i), g = row_of(dout, n, i);
      auto const want = logarithm ? reference::log_softmax_gradient_row(y, g, scale)
                                  : reference::softmax_gradient_row(y, g, scale);
      for (std::int64_t c = 0; c < p.hidden; c += p.column_step) {
        auto const k = sz(c);
        double bound = logarithm ? log_softmax_gradient_bound<T>(y, g, scale, k, want[k])
                                 : softmax_gradient_bound<T>(y, g, scale, k, want[k]);
        if (with_infinities && i == 0) bound = 0;  // exactly 0
        comparison.add(dx.value(n, i, c), want[k], bound, {n, i, c});
      }
    }
  }
}

template <class C>
void check_gradients(bool logarithm) {
  int turn = 0;
  for_row_cases([&](RowCase const& p) {
    RowCase q = p;
    int const alias = p.in_place ? 1 + turn++ % 2 : 0;
    if (alias != 0) q.out = p.x;
    check_gradient<C>(logarithm, q, 1, false, alias);
  });
  for (double scale : {0.125, -2.0, 0.0}) {
    check_gradient<C>(logarithm, {2, 3, 77}, scale, false, 0);
  }
  for (auto hidden : row_lengths) check_gradient<C>(logarithm, {2, 4, hidden}, 1, true, 0);
}

TYPED_TEST(Softmax, GradientsOfLongRows) {
  for_long_gradient_cases<typename TypeParam::Exec>([](RowCase const& p) {
    check_gradient<TypeParam>(false, p, 1, false, p.x == Layout::right ? 1 : 0);
    check_gradient<TypeParam>(true, p, 1, true, 0);
  });
}

TYPED_TEST(Softmax, SoftmaxBackward) { check_gradients<TypeParam>(false); }
TYPED_TEST(Softmax, LogSoftmaxBackward) { check_gradients<TypeParam>(true); }

// Rows about as long as what a host thread keeps of them, and longer.
TYPED_TEST(Softmax, LongRows) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (std::int64_t hidden : {4095, 4096, 4097, 4500}) {
    RowCase const p{1, 1, hidden};
    Tensor<T, 3, Exec> x({1, 1, hidden}), out({1, 1, hidden});
    Random random(static_cast<std::uint64_t>(hidden));
    x.fill_uniform(random, -4, 4);
    run_rows<Exec>(p, x, out, [&](auto const& in, auto const& to) { softmax(Exec(), in, to); });
    Comparison comparison(name_of<TypeParam>("softmax/long"), describe(p), stored_as<T>());
    auto const row = row_of(x, 0, 0);
    auto const want = reference::softmax_row(row, 1);
    for (std::int64_t c = 0; c < hidden; ++c) {
      comparison.add(out.value(0, 0, c), want[sz(c)], softmax_bound<T>(row, 1, want[sz(c)]), {c});
    }
  }
}

TYPED_TEST(Softmax, NanStaysInItsRow) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (std::int64_t size : {35, 20001}) {
    Tensor<T, 3, Exec> x({1, 5, size}), g({1, 5, size}), out({1, 5, size});
    Random random(1);
    x.fill_uniform(random);
    g.fill_uniform(random);
    x.at({0, 2, size - 1}) = poison<T>();
    x.at({0, 3, 0}) = poison<T>();
    x.upload();
    auto const expect = [&](char const* what) {
      out.download();
      out.for_each([&](auto const& i) {
        EXPECT_EQ(std::isnan(to_double(out.at(i))), i[1] == 2 || i[1] == 3)
            << what << ": " << i[1] << ", " << i[2];
      });
      out.fill(0);
    };
    log_softmax(Exec(), x.view(), out.view());
    expect("log_softmax");
    softmax_backward(Exec(), x.view(), g.view(), out.view());
    expect("softmax_backward");
    log_softmax_backward(Exec(), g.view(), x.view(), out.view());
    expect("log_softmax_backward");
  }
}

template <class C>
void check_mean_pool_backward(std::int64_t batch, std::int64_t seqlen, std::int64_t hidden,
                              Layout layout, std::vector<int> const& cut) {
  using T = typename C::T;
  using Exec = typename C::Exec;
  Tensor<T, 2, Exec> dout({batch, hidden}, layout);
  Tensor<T, 3, Exec> dx({batch, seqlen, hidden}, layout);
  Tensor<std::int32_t, 1, Exec> len({batch}, Layout::strided);
  Random random(static_cast<std::uint64_t>(seqlen + 4));
  dout.fill_uniform(random);
  if (cut.empty()) {
    mean_pool_backward(Exec(), dout.const_view(), dx.view());
  } else {
    for (std::int64_t b = 0; b < batch; ++b) len(b) = cut[sz(b)];
    len.upload();
    mean_pool_backward(Exec(), dout.const_view(), dx.view(), MeanPoolOptions{},
                       lengths(len.const_view()));
  }
  dx.download();
  EXPECT_EQ(dx.writes_outside(), 0u);
  // All rows of a batch are equal: no norms.
  Comparison comparison(name_of<C>("mean_pool_backward"),
                        describe(RowCase{batch, seqlen, hidden, layout, layout}));
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t const n = cut.empty() ? seqlen : std::clamp<std::int64_t>(cut[sz(b)], 0, seqlen);
    for (std::int64_t s = 0; s < seqlen; ++s) {
      for (std::int64_t c = 0; c < hidden; ++c) {
        double const want = s < n ? dout.value(b, c) / static_cast<double>(n) : 0;
        // The reciprocal and the product round.
        double const error = 2 * precision<Accumulator<T>>().roundoff * std::abs(want);
        comparison.add(dx.value(b, s, c), want,
                       s < n ? error + rounding<T>(std::abs(want) + error) : 0, {b, s, c});
      }
    }
  }
}

TYPED_TEST(Softmax, MeanPoolBackward) {
  for (Layout layout : all_layouts) {
    check_mean_pool_backward<TypeParam>(3, 17, 37, layout, {});
    check_mean_pool_backward<TypeParam>(5, 17, 37, layout, {17, 1, 0, 16, 5});
  }
  check_mean_pool_backward<TypeParam>(2, 5, 7, Layout::right, {-3, 1000});
  check_mean_pool_backward<TypeParam>(0, 5, 5, Layout::right, {});
  check_mean_pool_backward<TypeParam>(2, 0, 5, Layout::right, {0, 0});
  check_mean_pool_backward<TypeParam>(2, 5, 0, Layout::right, {2, 3});
}

TEST(SoftmaxDefaultSpace, MayBeLeftOut) {
  Kokkos::View<float***> x("x", 2, 3, 4), out("out", 2, 3, 4), dx("dx", 2, 3, 4);
  Kokkos::View<float**> pooled("pooled", 2, 4);
  auto const last = [](auto const& view) {
    Kokkos::fence("attikos_test");
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view)(1, 2, 3);
  };
  log_softmax(x, out);
  EXPECT_NEAR(last(out), -1.3862944f, 1e-6f);
  Kokkos::deep_copy(x, 1.0f);
  log_softmax_backward(out, x, dx);
  EXPECT_NEAR(last(dx), 0.0f, 1e-6f);
  Kokkos::deep_copy(out, 0.25f);
  softmax_backward(out, x, dx);
  EXPECT_EQ(last(dx), 0.0f);
  Kokkos::deep_copy(pooled, 6.0f);
  mean_pool_backward(pooled, dx);
  EXPECT_EQ(last(dx), 2.0f);
}

TEST(SoftmaxOracle, FiniteDifferences) {
  for (std::size_t n : {1u, 2u, 9u, 64u}) {
    auto const x = random_values(1, n), g = random_values(2, n);
    for (double scale : {1.0, -0.5, 3.0}) {
      auto const p = reference::softmax_row(x, scale);
      auto const y = reference::log_softmax_row(x, scale);
      double const terms = 4 * static_cast<double>(n);
      expect_gradient("softmax", x, reference::softmax_gradient_row(p, g, scale), terms,
                      (1 + std::abs(scale)) * dot_size(g, p),
                      [&](auto const& at) { return dot(g, reference::softmax_row(at, scale)); });
      expect_gradient("log_softmax", x, reference::log_softmax_gradient_row(y, g, scale), terms,
                      (1 + std::abs(scale)) * dot_size(g, y) + dot_size(g, g), [&](auto const& at) {
                        return dot(g, reference::log_softmax_row(at, scale));
                      });
    }
  }
}

}  // namespace
}  // namespace attikos::test
