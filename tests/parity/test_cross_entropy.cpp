// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cross_entropy and its gradient against the float64 oracle, and the oracle against finite
// differences.
#include <attikos/reference/cross_entropy_reference.hpp>

#include "../support/finite_differences.hpp"
#include "../support/tolerance_norms.hpp"
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class CrossEntropy : public testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, FloatingCases, CaseName);

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// What a case has besides its rows.
struct Labels {
  double smoothing = 0;
  std::int64_t ignore_index = -100;
  bool strange = false;  ///< some rows are ignored, of some the label is no class
  double largest = 4;
};

/// Labels drawn from all classes, the first and the last among them.
template <class Labels2>
void draw_labels(Labels2& labels, std::int64_t classes, Labels const& how, Random& random) {
  std::int64_t row = 0;
  labels.for_each([&](auto const& i) {
    std::int64_t label = random.integer(0, classes - 1);
    if (row == 1) label = 0;
    if (row == 2) label = classes - 1;
    if (how.strange && row % 4 == 3) label = how.ignore_index;
    if (how.strange && row % 8 == 4) label = row % 16 == 4 ? classes : -1;
    labels.at(i) = static_cast<typename Labels2::T>(label);
    ++row;
  });
  labels.upload();
}

CrossEntropyOptions options_of(Labels const& how) {
  return {.label_smoothing = how.smoothing, .ignore_index = how.ignore_index};
}

template <class C, class Label>
struct Problem {
  using T = typename C::T;
  using Exec = typename C::Exec;
  using Acc = Accumulator<T>;
  Tensor<T, 3, Exec> x;
  Tensor<Label, 2, Exec> labels;
  Tensor<T, 2, Exec> loss, dloss;
  Tensor<Acc, 2, Exec> lse;

  Problem(RowCase const& p, Labels const& how)
      : x({p.batch, p.rows, p.hidden}, p.x),
        labels({p.batch, p.rows}, p.out),
        loss({p.batch, p.rows}, p.x),
        dloss({p.batch, p.rows}, p.out),
        lse({p.batch, p.rows}, p.out) {
    Random random(static_cast<std::uint64_t>(p.hidden + 11));
    x.fill_uniform(random, -how.largest, how.largest);
    dloss.fill_uniform(random, -2, 2);
    draw_labels(labels, p.hidden, how, random);
  }
};

template <class C, class Label = std::int64_t>
void check_loss(RowCase const& p, Labels const& how = {}, bool with_lse = true) {
  using T = typename C::T;
  Problem<C, Label> t(p, how);
  typename C::Exec const exec;
  if (p.flat) {
    cross_entropy(exec, t.x.const_front(), t.labels.const_front(), t.loss.front(), t.lse.front(),
                  options_of(how));
  } else if (with_lse) {
    cross_entropy(exec, t.x.const_view(), t.labels.const_view(), t.loss.view(), t.lse.view(),
                  options_of(how));
  } else {
    cross_entropy(exec, t.x.const_view(), t.labels.const_view(), t.loss.view(), options_of(how));
  }
  t.loss.download();
  t.lse.download();
  EXPECT_EQ(t.loss.writes_outside() + t.lse.writes_outside(), 0u) << describe(p);
  // One number of each row: no norms.
  Comparison losses(name_of<C>("cross_entropy"), describe(p));
  Comparison sums(name_of<C>("cross_entropy/lse"), describe(p));
  for (std::int64_t n = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; i += p.row_step) {
      auto const row = row_of(t.x, n, i);
      auto const label = static_cast<std::int64_t>(t.labels(n, i));
      double const lse = reference::log_sum_exp_row(row);
      double const want = reference::cross_entropy_row(row, label, how.smoothing, how.ignore_index);
      CrossEntropyBound<T> const bound(row, label, how.smoothing, lse, want);
      losses.add(t.loss.value(n, i), want, bound.loss, {n, i});
      if (with_lse) sums.add(t.lse.value(n, i), lse, bound.lse, {n, i});
    }
  }
}

template <class C, class Label = std::int64_t>
void check_gradient(RowCase const& p, Labels const& how = {}) {
  using T = typename C::T;
  Problem<C, Label> t(p, how);
  typename C::Exec const exec;
  Tensor<T, 3, typename C::Exec> dx({p.batch, p.rows, p.hidden}, p.out);
  std::vector<std::vector<double>> rows;
  for (std::int64_t n = 0; n < p.batch; ++n)
    for (std::int64_t i = 0; i < p.rows; ++i) {
      rows.push_back(row_of(t.x, n, i));
      t.lse.set(reference::log_sum_exp_row(rows.back()), n, i);
    }
  t.lse.upload();
  auto const call = [&](auto const& x, auto const& labels, auto const& lse, auto const& g,
                        auto const& to) {
    cross_entropy_backward(exec, x, labels, lse, g, to, options_of(how));
  };
  if (p.in_place) dx = t.x;
  if (p.flat) {
    call(p.in_place ? dx.const_front() : t.x.const_front(), t.labels.const_front(),
         t.lse.const_front(), t.dloss.const_front(), dx.front());
  } else {
    call(p.in_place ? dx.const_view() : t.x.const_view(), t.labels.const_view(), t.lse.const_view(),
         t.dloss.const_view(), dx.view());
  }
  dx.download();
  EXPECT_EQ(dx.writes_outside(), 0u) << describe(p);
  Comparison comparison(name_of<C>("cross_entropy_backward"), describe(p), stored_as<T>());
  for (std::int64_t n = 0, r = 0; n < p.batch; ++n) {
    for (std::int64_t i = 0; i < p.rows; ++i, ++r) {
      if (i % p.row_step != 0) continue;
      auto const& row = rows[sz(r)];
      auto const label = static_cast<std::int64_t>(t.labels(n, i));
      double const lse = t.lse.value(n, i), g = t.dloss.value(n, i);
      auto const want = reference::cross_entropy_gradient_row(row, lse, label, g, how.smoothing,
                                                              how.ignore_index);
      for (std::int64_t c = 0; c < p.hidden; ++c) {
        if (c % p.column_step != 0 && c != label) continue;
        double const target =
            reference::cross_entropy_target(row.size(), label, how.smoothing, sz(c));
        double bound = cross_entropy_gradient_bound<T>(row[sz(c)], lse, target, g, want[sz(c)]);
        if (label == how.ignore_index || std::isinf(lse)) bound = 0;
        comparison.add(dx.value(n, i, c), want[sz(c)], bound, {n, i, c});
      }
    }
  }
}

TYPED_TEST(CrossEntropy, Loss) {
  for_row_cases([](RowCase const& p) {
    if (p.hidden > 0) check_loss<TypeParam>(p);
  });
}

TYPED_TEST(CrossEntropy, LossOfLongRowsAndMany) {
  for_long_row_cases<typename TypeParam::Exec>([](RowCase const& p) {
    check_loss<TypeParam>(p);
    check_loss<TypeParam>(p, {.smoothing = 0.1});
  });
}

TYPED_TEST(CrossEntropy, Smoothing) {
  for (double smoothing : {0.1, 0.5, 1.0}) {
    for (auto hidden : row_lengths) {
      if (hidden == 0) continue;
      check_loss<TypeParam>({2, 5, hidden}, {.smoothing = smoothing});
      check_gradient<TypeParam>({2, 5, hidden}, {.smoothing = smoothing});
    }
  }
}

TYPED_TEST(CrossEntropy, LabelsThatDoNotCount) {
  for (std::int64_t ignored : {-100, 3, -1}) {
    for (double smoothing : {0.0, 0.3}) {
      Labels const how{.smoothing = smoothing, .ignore_index = ignored, .strange = true};
      check_loss<TypeParam>({2, 33, 37}, how);
      check_loss<TypeParam, std::int32_t>({1, 40, 9, Layout::strided, Layout::padded}, how, false);
      check_gradient<TypeParam>({2, 33, 37}, how);
      check_gradient<TypeParam, std::int32_t>({1, 40, 9, Layout::strided, Layout::padded}, how);
    }
  }
}

TYPED_TEST(CrossEntropy, LargeLogits) {
  check_loss<TypeParam>({2, 9, 65}, {.largest = 300});
  check_loss<TypeParam>({2, 9, 65}, {.smoothing = 0.2, .largest = 300});
  check_gradient<TypeParam>({2, 9, 65}, {.largest = 300});
}

TYPED_TEST(CrossEntropy, Gradient) {
  for_row_cases([](RowCase const& p) {
    if (p.hidden > 0) check_gradient<TypeParam>(p);
  });
}

TYPED_TEST(CrossEntropy, GradientOfLongRowsAndMany) {
  for_long_row_cases<typename TypeParam::Exec>(
      [](RowCase const& p) { check_gradient<TypeParam>(p, {.smoothing = 0.1}); });
}

// −∞ as models have it for classes that are left out, a row of nothing else, +∞ and NaN.
template <class C>
void check_extremes(std::int64_t classes) {
  using T = typename C::T;
  for (double smoothing : {0.0, 0.25, 1.0}) {
    Labels const how{.smoothing = smoothing};
    Problem<C, std::int64_t> t({1, 6, classes}, how);
    Tensor<T, 3, typename C::Exec> dx({1, 6, classes});
    for (std::int64_t c = 0; c < classes; ++c) {
      t.x.set(-infinity, 0, 0, c);
      t.x.set(c == 7 ? 1 : -infinity, 0, 1, c);
      if (c < classes / 2) t.x.set(-infinity, 0, 2, c);
    }
    t.x.set(infinity, 0, 3, 5);
    t.x.set(nan, 0, 4, classes - 1);
    t.x.upload();
    for (std::int64_t i = 0; i < 6; ++i) t.labels(0, i) = i == 1 ? 7 : classes - 11;
    t.labels.upload();
    typename C::Exec const exec;
    cross_entropy(exec, t.x.const_view(), t.labels.const_view(), t.loss.view(), t.lse.view(),
                  options_of(how));
    cross_entropy_backward(exec, t.x.const_view(), t.labels.const_view(), t.lse.const_view(),
                           t.dloss.const_view(), dx.view(), options_of(how));
    t.loss.download();
    t.lse.download();
    dx.download();
    EXPECT_EQ(t.lse.value(0, 0), -infinity);
    EXPECT_EQ(t.loss.value(0, 0), infinity);
    EXPECT_EQ(t.lse.value(0, 1), 1);
    EXPECT_EQ(t.loss.value(0, 1), smoothing == 0 ? 0 : infinity);
    EXPECT_EQ(std::isinf(t.loss.value(0, 2)), smoothing > 0);
    EXPECT_TRUE(std::isfinite(t.lse.value(0, 2)));
    for (int i : {3, 4}) EXPECT_TRUE(std::isnan(t.loss.value(0, i))) << i;
    EXPECT_TRUE(std::isfinite(t.loss.value(0, 5)));
    for (std::int64_t c = 0; c < classes; ++c) {
      EXPECT_EQ(dx.value(0, 0, c), 0);
      EXPECT_TRUE(std::isfinite(dx.value(0, 1, c)));
      EXPECT_TRUE(std::isfinite(dx.value(0, 2, c)));
      EXPECT_TRUE(std::isfinite(dx.value(0, 5, c)));
    }
  }
}
TYPED_TEST(CrossEntropy, Extremes) {
  for (std::int64_t classes : {41, 20001}) check_extremes<TypeParam>(classes);
}

// Rows whose largest number so far rises, or falls, from one end to the other.
TYPED_TEST(CrossEntropy, Slopes) {
  constexpr std::int64_t classes = 24000;
  Labels const how{.smoothing = 0.1};
  Problem<TypeParam, std::int64_t> t({1, 2, classes}, how);
  for (std::int64_t c = 0; c < classes; ++c) {
    t.x.set(static_cast<double>(c) / 300 - 40, 0, 0, c);
    t.x.set(40 - static_cast<double>(c) / 300, 0, 1, c);
  }
  t.x.upload();
  cross_entropy(typename TypeParam::Exec(), t.x.const_view(), t.labels.const_view(), t.loss.view(),
                t.lse.view(), options_of(how));
  t.loss.download();
  t.lse.download();
  Comparison losses(name_of<TypeParam>("cross_entropy"), "slopes");
  Comparison sums(name_of<TypeParam>("cross_entropy/lse"), "slopes");
  for (std::int64_t i = 0; i < 2; ++i) {
    auto const row = row_of(t.x, 0, i);
    auto const label = static_cast<std::int64_t>(t.labels(0, i));
    double const lse = reference::log_sum_exp_row(row);
    double const want = reference::cross_entropy_row(row, label, how.smoothing, how.ignore_index);
    CrossEntropyBound<typename TypeParam::T> const bound(row, label, how.smoothing, lse, want);
    losses.add(t.loss.value(0, i), want, bound.loss, {0, i});
    sums.add(t.lse.value(0, i), lse, bound.lse, {0, i});
  }
}

TYPED_TEST(CrossEntropy, OneFactorForAllRows) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  RowCase const p{2, 7, 19};
  Problem<TypeParam, std::int64_t> t(p, {});
  Tensor<T, 3, Exec> expected({2, 7, 19}), found({2, 7, 19});
  t.lse.fill(1);
  t.dloss.fill(0.5);
  Tensor<T, 1, Exec> one({1});
  one.fill(0.5);
  Kokkos::View<T const**, Kokkos::LayoutStride, typename Exec::memory_space,
               Kokkos::MemoryTraits<Kokkos::Unmanaged>> const all(one.const_view().data(),
                                                                  Kokkos::LayoutStride(2, 0, 7, 0));
  cross_entropy_backward(Exec(), t.x.const_view(), t.labels.const_view(), t.lse.const_view(),
                         t.dloss.const_view(), expected.view());
  cross_entropy_backward(Exec(), t.x.const_view(), t.labels.const_view(), t.lse.const_view(), all,
                         found.view());
  expected.download();
  found.download();
  expected.for_each([&](auto const& i) {
    EXPECT_EQ(to_double(expected.at(i)), to_double(found.at(i))) << i[0] << i[1] << i[2];
  });
}

TEST(CrossEntropyTypes, LossAndGradientInFloat) {
  using Exec = Kokkos::DefaultExecutionSpace;
  Kokkos::View<bfloat16**, Exec> x("x", 3, 5);
  Kokkos::View<std::int32_t*, Exec> labels("labels", 3);
  Kokkos::View<float*, Exec> loss("loss", 3), lse("lse", 3), g("g", 3);
  Kokkos::View<float**, Exec> dx("dx", 3, 5);
  Kokkos::deep_copy(g, 2.0f);
  cross_entropy(x, labels, loss, lse);
  cross_entropy_backward(x, labels, lse, g, dx);
  auto const at = [](auto const& view, auto... i) {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view)(i...);
  };
  EXPECT_NEAR(at(loss, 2), std::log(5.0f), 1e-6f);
  EXPECT_NEAR(at(lse, 1), std::log(5.0f), 1e-6f);
  EXPECT_NEAR(at(dx, 0, 0), 2 * (0.2f - 1), 1e-6f);
  EXPECT_NEAR(at(dx, 0, 4), 0.4f, 1e-6f);
  Kokkos::deep_copy(loss, -1.0f);
  cross_entropy(x, labels, loss);
  EXPECT_NEAR(at(loss, 0), std::log(5.0f), 1e-6f);
}

TEST(CrossEntropyOracle, FiniteDifferences) {
  for (std::size_t n : {1u, 2u, 9u, 64u}) {
    auto const x = random_values(3, n);
    for (double smoothing : {0.0, 0.3}) {
      auto const label = static_cast<std::int64_t>(n / 2);
      double const lse = reference::log_sum_exp_row(x);
      expect_gradient("cross_entropy", x,
                      reference::cross_entropy_gradient_row(x, lse, label, 1.5, smoothing, -100),
                      4 * static_cast<double>(n), 1.5 * (2 + std::abs(lse) + dot_size(x, x)),
                      [&](auto const& at) {
                        return 1.5 * reference::cross_entropy_row(at, label, smoothing, -100);
                      });
    }
  }
}

TEST(CrossEntropyMessages, NameWhatIsWrong) {
  using Exec = Kokkos::DefaultExecutionSpace;
  Kokkos::View<float**, Exec> x("x", 3, 5), none("none", 3, 0), dx("dx", 3, 4);
  Kokkos::View<std::int64_t*, Exec> labels("labels", 3), few("few", 2);
  Kokkos::View<float*, Exec> loss("loss", 3), lse("lse", 3), long_one("long", 4);
  expect_message<ShapeError>([&] { cross_entropy(x, few, loss); },
                             "attikos::cross_entropy: labels is [2] int64; expected the extents of "
                             "logits but the last, which is [3, 5] float32");
  expect_message<ShapeError>([&] { cross_entropy(x, labels, long_one); },
                             "attikos::cross_entropy: loss is [4] float32; expected the extents of "
                             "logits but the last, which is [3, 5] float32");
  expect_message<ShapeError>([&] { cross_entropy(x, labels, loss, long_one); },
                             "attikos::cross_entropy: lse is [4] float32; expected the extents of "
                             "logits but the last, which is [3, 5] float32");
  expect_message<ShapeError>([&] { cross_entropy(none, labels, loss); },
                             "attikos::cross_entropy: logits is [3, 0] float32; expected at least "
                             "one class");
  expect_message<Error>([&] { cross_entropy(x, labels, loss, {.label_smoothing = 1.5}); },
                        "attikos::cross_entropy: label_smoothing is 1.5; expected a number in "
                        "[0, 1]");
  expect_message<Error>([&] { cross_entropy(x, labels, loss, {.label_smoothing = nan}); },
                        "attikos::cross_entropy: label_smoothing is nan; expected a number in "
                        "[0, 1]");
  expect_message<Error>([&] { cross_entropy(x, labels, loss, loss); },
                        "attikos::cross_entropy: output loss shares memory with output lse; "
                        "expected memory of its own");
  expect_message<ShapeError>([&] { cross_entropy_backward(x, labels, lse, loss, dx); },
                             "attikos::cross_entropy_backward: dlogits is [3, 4] float32; expected "
                             "the extents of logits, which is [3, 5] float32");
}

}  // namespace
}  // namespace attikos::test
