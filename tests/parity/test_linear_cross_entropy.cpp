// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// linear_cross_entropy against the float64 oracle of cross_entropy, with products in plain loops.
#include <attikos/reduce/linear_cross_entropy.hpp>
#include <attikos/reference/cross_entropy_reference.hpp>
#include <attikos/reference/gemm_reference.hpp>

#include "../support/tolerance_gated_mlp.hpp"
#include "../support/tolerance_norms.hpp"
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class LinearCrossEntropy : public testing::Test {};
TYPED_TEST_SUITE(LinearCrossEntropy, FloatingCases, CaseName);

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct LinearCase {
  std::int64_t rows, width, classes;
  LinearCrossEntropyOptions options = {};
  Layout in = Layout::right, out = Layout::right;
  bool strange = false;  ///< some rows are ignored
};

std::string describe(LinearCase const& p) {
  std::ostringstream text;
  text << "rows " << p.rows << " width " << p.width << " classes " << p.classes << " smoothing "
       << p.options.label_smoothing << " rows at once " << p.options.rows_at_once << " layouts "
       << layout_name(p.in) << ", " << layout_name(p.out);
  return text.str();
}

/// `Sum`: the type of dweight.
template <class C, class Label = std::int64_t, class Sum = typename C::T>
struct Linear {
  using T = typename C::T;
  using Exec = typename C::Exec;
  using Acc = Accumulator<T>;
  Tensor<T, 2, Exec> hidden, weight, dhidden;
  Tensor<Sum, 2, Exec> dweight;
  Tensor<Label, 1, Exec> labels;
  Tensor<Acc, 1, Exec> dloss, loss;

  explicit Linear(LinearCase const& p)
      : hidden({p.rows, p.width}, p.in),
        weight({p.classes, p.width}, p.in),
        dhidden({p.rows, p.width}, p.out),
        dweight({p.classes, p.width}, p.out),
        labels({p.rows}),
        dloss({p.rows}),
        loss({p.rows}) {
    Random random(static_cast<std::uint64_t>(p.rows + 3 * p.classes));
    hidden.fill_uniform(random, -1, 1);
    weight.fill_uniform(random, -1, 1);
    dloss.fill_uniform(random, -2, 2);
    for (std::int64_t r = 0; r < p.rows; ++r)
      labels(r) = static_cast<Label>(p.strange && r % 3 == 1 ? p.options.ignore_index
                                                             : random.integer(0, p.classes - 1));
    labels.upload();
  }
};

/// Gradient of a row's logits with the bound of its error. Logits err by `of_logits` at most,
/// their rounding to T among it, by which p changes by the factor e^(2 of_logits); lse errs by
/// `bound.lse` of its own. The gradient itself is rounded to T.
struct LogitGradient {
  std::vector<double> value, error;
};

template <class C, class Label = std::int64_t, class Sum = typename C::T>
void check(LinearCase const& p, bool with_workspace = false) {
  using T = typename C::T;
  using Acc = Accumulator<T>;
  using Exec = typename C::Exec;
  Linear<C, Label, Sum> t(p);
  auto const call = [&](auto const&... extras) {
    linear_cross_entropy(Exec(), t.hidden.const_view(), t.weight.const_view(),
                         t.labels.const_view(), t.dloss.const_view(), t.loss.view(),
                         t.dhidden.view(), t.dweight.view(), p.options, extras...);
  };
  if (with_workspace) {
    std::size_t const bytes =
        linear_cross_entropy_workspace_size(t.hidden.view(), t.weight.view(), p.options);
    Kokkos::View<std::byte*, Exec> const memory("workspace", bytes);
    call(workspace(memory));
    Exec().fence();
  } else {
    call();
  }
  t.loss.download();
  t.dhidden.download();
  t.dweight.download();
  EXPECT_EQ(t.loss.writes_outside() + t.dhidden.writes_outside() + t.dweight.writes_outside(), 0u)
      << describe(p);
  std::vector<LogitGradient> gradients;
  Comparison losses(name_of<C>("linear_cross_entropy/loss"), describe(p));
  for (std::int64_t r = 0; r < p.rows; ++r) {
    std::vector<double> x;
    double of_logits = 0;
    for (std::int64_t c = 0; c < p.classes; ++c) {
      reference::GemmTerms const terms;
      auto const e = reference::gemm_element(
          p.width, [&](std::int64_t l) { return t.hidden.value(r, l); },
          [&](std::int64_t l) { return t.weight.value(c, l); }, terms);
      x.push_back(e.value);
      of_logits = std::max(of_logits, gemm_bound<Acc, T>(p.width, e, terms));
    }
    auto const label = static_cast<std::int64_t>(t.labels(r));
    double const smoothing = p.options.label_smoothing, g = t.dloss.value(r);
    double const lse = reference::log_sum_exp_row(x);
    double const want = reference::cross_entropy_row(x, label, smoothing, p.options.ignore_index);
    CrossEntropyBound<Acc> const bound(x, label, smoothing, lse, want);
    // sum |dloss/dx| = sum |p - t| <= 2
    bool const counts = label != p.options.ignore_index;
    losses.add(t.loss.value(r), want, counts ? bound.loss + 2 * of_logits : 0, {r});
    LogitGradient d{
        reference::cross_entropy_gradient_row(x, lse, label, g, smoothing, p.options.ignore_index),
        {}};
    for (std::size_t c = 0; c < x.size(); ++c) {
      double const target = reference::cross_entropy_target(x.size(), label, smoothing, c);
      double const of_inputs =
          std::abs(g) * std::exp(x[c] - lse) * std::expm1(2 * of_logits + bound.lse);
      double const of_gradient =
          of_inputs + cross_entropy_gradient_bound<Acc>(x[c], lse, target, g, d.value[c]);
      d.error.push_back(counts ? of_gradient + rounding<T>(std::abs(d.value[c]) + of_gradient) : 0);
    }
    gradients.push_back(std::move(d));
  }

  auto const sum = [&]<class Out>(std::type_identity<Out>, std::int64_t terms, double parts,
                                  auto const& d, auto const& other) {
    double value = 0, magnitude = 0, inherited = 0;
    for (std::int64_t i = 0; i < terms; ++i) {
      auto const [v, e] = d(i);
      value += v * other(i);
      magnitude += std::abs(v * other(i));
      inherited += e * std::abs(other(i));
    }
    double const bound =
        gradient_bound<Acc, Out>(static_cast<double>(terms), parts, value, magnitude, inherited);
    // What is stored after each part is rounded again.
    return std::pair(value, bound + (parts - 1) * rounding<Out>(magnitude + inherited));
  };
  Comparison of_hidden(name_of<C>("linear_cross_entropy/dhidden"), describe(p), stored_as<T>());
  for (std::int64_t r = 0; r < p.rows; ++r)
    for (std::int64_t l = 0; l < p.width; ++l) {
      auto const& d = gradients[sz(r)];
      auto const [value, bound] = sum(
          std::type_identity<T>{}, p.classes, 1,
          [&](std::int64_t c) { return std::pair(d.value[sz(c)], d.error[sz(c)]); },
          [&](std::int64_t c) { return t.weight.value(c, l); });
      of_hidden.add(t.dhidden.value(r, l), value, bound, {r, l});
    }
  std::int64_t const at_once = p.options.rows_at_once > 0 ? p.options.rows_at_once : 256;
  std::int64_t const chunks_of_rows = (p.rows + at_once - 1) / at_once;
  auto const chunks = static_cast<double>(chunks_of_rows);
  Comparison of_weight(name_of<C>("linear_cross_entropy/dweight"), describe(p), stored_as<Sum>());
  for (std::int64_t c = 0; c < p.classes; ++c)
    for (std::int64_t l = 0; l < p.width; ++l) {
      auto const [value, bound] = sum(
          std::type_identity<Sum>{}, p.rows, chunks,
          [&](std::int64_t r) {
            return std::pair(gradients[sz(r)].value[sz(c)], gradients[sz(r)].error[sz(c)]);
          },
          [&](std::int64_t r) { return t.hidden.value(r, l); });
      of_weight.add(t.dweight.value(c, l), value, bound, {c, l});
    }
}

TYPED_TEST(LinearCrossEntropy, Shapes) {
  for (auto [rows, width, classes] : {std::array<std::int64_t, 3>{1, 1, 1},
                                      {7, 3, 5},
                                      {65, 33, 17},
                                      {300, 16, 67},
                                      {3, 65, 301},
                                      {0, 4, 3},
                                      {5, 0, 3}}) {
    check<TypeParam>({rows, width, classes});
    check<TypeParam>(
        {rows, width, classes, {.label_smoothing = 0.2}, Layout::padded, Layout::strided}, true);
  }
}

TYPED_TEST(LinearCrossEntropy, RowsAtOnce) {
  for (std::int64_t at_once : {1, 2, 5, 12, 13, 100}) {
    check<TypeParam>({13, 9, 21, {.rows_at_once = at_once}});
    check<TypeParam, std::int32_t>(
        {13,
         9,
         21,
         {.label_smoothing = 1, .ignore_index = -1, .rows_at_once = at_once},
         Layout::right,
         Layout::right,
         true},
        true);
  }
}

// One rounding of dweight, however many chunks there are.
TYPED_TEST(LinearCrossEntropy, SumsOfTheirOwn) {
  using Acc = Accumulator<typename TypeParam::T>;
  check<TypeParam, std::int64_t, Acc>({40, 9, 21, {.rows_at_once = 7}});
  check<TypeParam, std::int64_t, Acc>({40, 9, 21});
}

TYPED_TEST(LinearCrossEntropy, LabelsThatAreNoClass) {
  LinearCase const p{6, 4, 5, {.rows_at_once = 2}};
  using Exec = typename TypeParam::Exec;
  Linear<TypeParam> t(p);
  for (std::int64_t r = 0; r < 6; ++r) t.labels(r) = r == 3 ? 5 : r == 4 ? -100 : 0;
  t.labels.upload();
  linear_cross_entropy(Exec(), t.hidden.view(), t.weight.view(), t.labels.view(), t.dloss.view(),
                       t.loss.view(), t.dhidden.view(), t.dweight.view(), p.options);
  t.loss.download();
  t.dhidden.download();
  t.dweight.download();
  for (std::int64_t r = 0; r < 6; ++r) {
    EXPECT_EQ(std::isnan(t.loss.value(r)), r == 3) << r;
    for (std::int64_t l = 0; l < 4; ++l) {
      EXPECT_EQ(std::isnan(t.dhidden.value(r, l)), r == 3) << r;
      if (r == 4) {
        EXPECT_EQ(t.dhidden.value(r, l), 0);
      }
    }
  }
  t.dweight.for_each([&](auto const& i) { EXPECT_TRUE(std::isnan(t.dweight.value(i[0], i[1]))); });
}

// What is not asked for is not computed, and the rest keeps its bits.
TYPED_TEST(LinearCrossEntropy, SomeOutputs) {
  LinearCase const p{21, 8, 30, {.rows_at_once = 6}};
  using Exec = typename TypeParam::Exec;
  Linear<TypeParam> all(p), some(p);
  auto const call = [&](auto& t, auto const& g, auto const& dh, auto const& dw) {
    linear_cross_entropy(Exec(), t.hidden.view(), t.weight.view(), t.labels.view(), g,
                         t.loss.view(), dh, dw, p.options);
    t.loss.download();
    t.dhidden.download();
    t.dweight.download();
  };
  auto const same = [](auto const& a, auto const& b) {
    a.for_each([&](auto const& i) {
      if constexpr (std::remove_cvref_t<decltype(a)>::Rank == 1) {
        EXPECT_EQ(a.value(i[0]), b.value(i[0]));
      } else {
        EXPECT_EQ(a.value(i[0], i[1]), b.value(i[0], i[1]));
      }
    });
  };
  call(all, all.dloss.view(), all.dhidden.view(), all.dweight.view());
  call(some, none, none, none);
  same(all.loss, some.loss);
  call(some, some.dloss.view(), some.dhidden.view(), none);
  same(all.dhidden, some.dhidden);
  call(some, some.dloss.view(), none, some.dweight.view());
  same(all.dweight, some.dweight);
}

TEST(LinearCrossEntropyMessages, NameWhatIsWrong) {
  using Exec = Kokkos::DefaultExecutionSpace;
  std::string const by = "attikos::linear_cross_entropy: ";
  Kokkos::View<float**, Exec> h("h", 3, 4), w("w", 5, 4), thin("thin", 5, 3), empty("empty", 0, 4);
  Kokkos::View<std::int64_t*, Exec> labels("labels", 3), few("few", 2);
  Kokkos::View<float*, Exec> loss("loss", 3), g("g", 3), long_one("long", 4);
  Kokkos::View<std::byte*, Exec> memory("memory", 8);
  Kokkos::View<float**, Exec> dh("dh", 3, 4), dw("dw", 5, 4);
  auto const call = [&](auto const& weight, auto const& of, auto const& to, auto const& d,
                        LinearCrossEntropyOptions const& options = {}, auto const&... extras) {
    linear_cross_entropy(h, weight, of, g, to, dh, d, options, extras...);
  };
  expect_message<ShapeError>(
      [&] { call(thin, labels, loss, dw); },
      by + "weight is [5, 3] float32; expected [classes, 4] for hidden, which is "
           "[3, 4] float32");
  expect_message<ShapeError>([&] { call(empty, labels, loss, dw); },
                             by + "weight is [0, 4] float32; expected at least one class");
  expect_message<ShapeError>([&] { call(w, few, loss, dw); },
                             by + "labels is [2] int64; expected [3], the rows of hidden, which is "
                                  "[3, 4] float32");
  expect_message<ShapeError>([&] { call(w, labels, long_one, dw); },
                             by + "loss is [4] float32; expected [3], the rows of hidden, which is "
                                  "[3, 4] float32");
  expect_message<ShapeError>(
      [&] { call(w, labels, loss, thin); },
      by + "dweight is [5, 3] float32; expected the extents of weight, which is "
           "[5, 4] float32");
  expect_message<Error>([&] { call(w, labels, loss, dw, {.label_smoothing = nan}); },
                        by + "label_smoothing is nan; expected a number in [0, 1]");
  expect_message<Error>([&] { call(w, labels, loss, dw, {.rows_at_once = -1}); },
                        by + "rows_at_once is -1; expected 0 or more");
  expect_message<Error>(
      [&] { call(w, labels, loss, w); },
      by + "output dweight shares memory with weight; expected memory of its own");
  expect_message<ResourceError>([&] { call(w, labels, loss, dw, {}, workspace(memory)); },
                                by + "workspace has 8 bytes; expected at least 76");
}

}  // namespace
}  // namespace attikos::test
