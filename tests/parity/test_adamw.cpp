// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// adamw_step against the float64 oracle; lists of parameters, and memory of any kind, by bits.
#include <attikos/reference/adamw_reference.hpp>
#include <memory>

#include "../support/messages.hpp"
#include "row_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class AdamwStep : public testing::Test {};
TYPED_TEST_SUITE(AdamwStep, FloatingCases, CaseName);

struct Errors {
  double weight, exp_avg, exp_avg_sq;
};

/// What an element may be off by before the parameter is rounded, `before` and `after` the step:
/// roundings of the options and of each operation, in their order, those of multiply-adds that are
/// no instruction included. In double the factors of the bias are off themselves, by functions.
template <class Acc>
Errors errors_of(reference::AdamWElement const& before, reference::AdamWElement const& after,
                 double gradient, AdamWOptions const& o) {
  double const u = precision<Acc>().roundoff, tiny = precision<Acc>().smallest;
  double const of_factors = (std::is_same_v<Acc, double> ? attikos::testing::math_ulps : 1) * u;
  double const g = o.gradient_scale * gradient, square = g * g;
  double const of_g = 2 * u * std::abs(g) + tiny;
  double const of_square = 2 * std::abs(g) * of_g + u * square + tiny;
  auto const moment = [&](double beta, double x, double old, double result, double of_x) {
    bool const is_old = beta > 0.5;
    double const rate = is_old ? 1 - beta : beta;
    return rate * (3.1 * u * std::abs(x - old) + of_x) + (is_old ? 0 : of_x) +
           u * std::abs(result) + 2 * tiny;
  };
  double const of_m = moment(o.beta1, g, before.exp_avg, after.exp_avg, of_g);
  double const of_v = moment(o.beta2, square, before.exp_avg_sq, after.exp_avg_sq, of_square);
  double const root = std::sqrt(after.exp_avg_sq);
  double const of_root = std::min(std::sqrt(of_v), root > 0 ? of_v / root : infinity) + u * root;
  double const c1 = reference::bias_correction(o.beta1, o.step);
  double const c2 = std::sqrt(reference::bias_correction(o.beta2, o.step));
  double const divisor = after.divisor;
  double const of_divisor =
      (of_root + (of_factors + u) * root) / c2 + u * o.epsilon + u * divisor + tiny;
  // m / divisor, whose quotient the oracle has with 1 / c1
  double const quotient = std::abs(after.quotient) * c1;
  double const of_quotient =
      divisor > of_divisor
          ? (of_m + quotient * of_divisor) / (divisor - of_divisor) + u * quotient + tiny
          : infinity;
  double const step_size = o.learning_rate / c1;
  double const kept = std::abs(before.weight);
  return {3.1 * u * kept + step_size * (of_quotient + (of_factors + u) * quotient) +
              u * std::abs(after.weight) + 2 * tiny,
          of_m, of_v};
}

/// How the tensors of one parameter lie.
struct Layouts {
  Layout parameter = Layout::right, gradient = Layout::right, exp_avg = Layout::right,
         exp_avg_sq = Layout::right, master = Layout::right;
};

/// The tensors of one parameter.
template <class T, class G, class Exec>
struct Slot {
  using State = Accumulator<T>;
  Tensor<T, 3, Exec> parameter;
  Tensor<G, 3, Exec> gradient;
  Tensor<State, 3, Exec> exp_avg, exp_avg_sq, master;
  bool has_master;

  Slot(std::array<std::int64_t, 3> extents, Layouts const& layouts, bool with_master,
       unsigned seed = 1)
      : parameter(extents, layouts.parameter),
        gradient(extents, layouts.gradient),
        exp_avg(extents, layouts.exp_avg),
        exp_avg_sq(extents, layouts.exp_avg_sq),
        master(extents, layouts.master),
        has_master(with_master) {
    Random random(seed);
    // Gradients of very different sizes, and some of 0.
    gradient.for_each([&](auto const& at) {
      double const size = std::pow(10.0, random.uniform(-4, 1));
      gradient.at(at) =
          from_double<G>(random.integer(0, 9) == 0 ? 0 : random.uniform(-1, 1) * size);
    });
    gradient.upload();
    exp_avg.fill_uniform(random, -0.1, 0.1);
    exp_avg_sq.fill_uniform(random, 0, 0.1);
    exp_avg_sq.for_each([&](auto const& at) {
      if (random.integer(0, 9) == 0) exp_avg_sq.at(at) = exp_avg.at(at) = State(0);
    });
    exp_avg.upload(), exp_avg_sq.upload();
    if (with_master) {
      master.fill_uniform(random);  // the parameter stays poison, which is not read
    } else {
      parameter.fill_uniform(random);
    }
  }
  auto described() const {
    if (has_master)
      return adamw_parameter(Exec(), parameter.view(), gradient.const_view(), exp_avg.view(),
                             exp_avg_sq.view(), attikos::master(master.view()));
    return adamw_parameter(Exec(), parameter.view(), gradient.const_view(), exp_avg.view(),
                           exp_avg_sq.view());
  }
  void step(AdamWOptions const& o) const {
    if (has_master)
      adamw_step(Exec(), parameter.view(), gradient.const_view(), exp_avg.view(), exp_avg_sq.view(),
                 o, attikos::master(master.view()));
    else
      adamw_step(Exec(), parameter.view(), gradient.const_view(), exp_avg.view(), exp_avg_sq.view(),
                 o);
  }
  void download() {
    parameter.download(), exp_avg.download(), exp_avg_sq.download(), master.download();
  }
  std::size_t writes_outside() const {
    return parameter.writes_outside() + exp_avg.writes_outside() + exp_avg_sq.writes_outside() +
           (has_master ? master.writes_outside() : !master.unchanged());
  }
};

template <class A, class B>
void expect_same_bits(A& a, B& b, std::string const& what) {
  a.download(), b.download();
  auto const same = [&](auto& x, auto& y, char const* name) {
    auto const of_x = x.elements(), of_y = y.elements();
    ASSERT_EQ(of_x.size(), of_y.size());
    EXPECT_TRUE(of_x.empty() ||
                std::memcmp(of_x.data(), of_y.data(), of_x.size() * sizeof of_x[0]) == 0)
        << what << ": " << name;
  };
  same(a.parameter, b.parameter, "parameter");
  same(a.exp_avg, b.exp_avg, "exp_avg");
  same(a.exp_avg_sq, b.exp_avg_sq, "exp_avg_sq");
  if (a.has_master) same(a.master, b.master, "master");
}

template <class C, class G = typename C::T>
void check_step(std::array<std::int64_t, 3> extents, Layouts const& layouts, bool with_master,
                AdamWOptions const& o) {
  using T = typename C::T;
  using Acc = Accumulator<T>;
  std::ostringstream what;
  what << extents[0] << " x " << extents[1] << " x " << extents[2] << " layouts";
  for (Layout layout :
       {layouts.parameter, layouts.gradient, layouts.exp_avg, layouts.exp_avg_sq, layouts.master})
    what << " " << layout_name(layout);
  what << " master " << with_master << " step " << o.step << " betas " << o.beta1 << " " << o.beta2;
  Slot<T, G, typename C::Exec> t(extents, layouts, with_master);
  Slot<T, G, typename C::Exec> const old(t);
  t.step(o);
  t.download();
  EXPECT_EQ(t.writes_outside(), 0u) << what.str();
  Stored const stored = with_master ? Stored{} : stored_as<T>();
  Comparison parameters(name_of<C>("adamw_step"), what.str(), stored);
  Comparison moments(name_of<C>("adamw_step moments"), what.str());
  reference::AdamWSettings const settings{o.learning_rate, o.beta1, o.beta2,         o.epsilon,
                                          o.weight_decay,  o.step,  o.gradient_scale};
  t.parameter.for_each([&](auto const& i) {
    auto const [a, b, c] = i;
    reference::AdamWElement const before{
        with_master ? old.master.value(a, b, c) : old.parameter.value(a, b, c),
        old.exp_avg.value(a, b, c), old.exp_avg_sq.value(a, b, c)};
    double const g = old.gradient.value(a, b, c);
    auto const want = reference::adamw(before, g, settings);
    auto error = errors_of<Acc>(before, want, g, o);
    double const factor = oracle_factor<Acc>();
    moments.add(t.exp_avg.value(a, b, c), want.exp_avg, factor * error.exp_avg, {a, b, c});
    moments.add(t.exp_avg_sq.value(a, b, c), want.exp_avg_sq, factor * error.exp_avg_sq, {a, b, c});
    double const got = t.parameter.value(a, b, c);
    if (with_master) {
      double const weight = t.master.value(a, b, c);
      parameters.add(weight, want.weight, factor * error.weight, {a, b, c});
      EXPECT_EQ(got, to_double(from_double<T>(weight))) << what.str();
    } else {
      double const rounded =
          std::is_same_v<T, Acc> ? 0 : rounding<T>(std::abs(want.weight) + error.weight);
      double const bound = factor * error.weight + rounded;
      if (stored.roundoff == 0) {
        parameters.add(got, want.weight, bound, {a, b, c});
        return;
      }
      // It was of T before: of a step below half a spacing all is lost, whose sign is that of the
      // random moments.
      ErrorParts parts = stored_parts(want.weight, bound, stored.roundoff, stored.smallest);
      double const lost = std::min(std::abs(want.weight - before.weight), bound);
      parts.own = std::max(parts.own, lost * lost);
      parameters.add(got, want.weight, bound, parts, {a, b, c});
    }
  });
}

constexpr Layouts dense{};

TYPED_TEST(AdamwStep, Steps) {
  for (bool with_master : {false, true}) {
    for (std::int64_t step : {1, 2, 1000, 1000000}) {
      check_step<TypeParam>({2, 3, 37}, dense, with_master, {.step = step});
      check_step<TypeParam>({2, 3, 37}, dense, with_master,
                            {.learning_rate = 0.3,
                             .beta1 = 0,
                             .beta2 = 0.5,
                             .epsilon = 1e-3,
                             .weight_decay = 0,
                             .step = step,
                             .gradient_scale = -0.125});
      check_step<TypeParam>(
          {1, 1, 70}, dense, with_master,
          {.beta1 = 0.95, .beta2 = 0, .epsilon = 0.01, .weight_decay = 0.5, .step = step});
    }
    check_step<TypeParam>({1, 5, 1000}, dense, with_master, {.step = 3});
  }
}

TYPED_TEST(AdamwStep, GradientsInFloat) {
  using T = typename TypeParam::T;
  if constexpr (sizeof(T) == 2) {
    for (bool with_master : {false, true}) {
      check_step<TypeParam, float>({2, 3, 37}, dense, with_master, {.step = 5});
      check_step<TypeParam, float>({3, 9, 40}, {Layout::left, Layout::padded}, with_master, {});
    }
  }
}

TYPED_TEST(AdamwStep, Layouts) {
  for (bool with_master : {false, true}) {
    for (Layout a : all_layouts) {
      check_step<TypeParam>({3, 4, 7}, {a, a, a, a, a}, with_master, {.step = 2});
      check_step<TypeParam>({3, 4, 7}, {.gradient = a}, with_master, {.step = 2});
      check_step<TypeParam>({3, 4, 7}, {Layout::right, a, Layout::left, a, Layout::strided},
                            with_master, {.step = 2});
    }
    check_step<TypeParam>({1, 1, 3000}, {.parameter = Layout::strided}, with_master, {});
    for (auto [a, b, c] : {std::array<std::int64_t, 3>{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {1, 1, 1}})
      check_step<TypeParam>({a, b, c}, dense, with_master, {});
  }
}

// An element's step is the same wherever it lies, by itself and in a list, of which a launch takes
// a part.
TYPED_TEST(AdamwStep, Lists) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  using One = Slot<T, T, Exec>;
  AdamWOptions const options{.step = 7};
  std::vector<std::unique_ptr<One>> alone, together;
  std::vector<AdamWParameter<T, T, Exec>> list;
  for (unsigned i = 0; i < 110; ++i) {
    std::int64_t const n = i % 11 == 3 ? 0 : i % 11 == 5 ? 2050 : 1 + i * 7 % 90;
    Layout const layout = i % 5 == 4 ? Layout::strided : i % 5 == 3 ? Layout::left : Layout::right;
    Layouts const layouts{layout, layout, layout, layout, layout};
    alone.push_back(
        std::make_unique<One>(std::array<std::int64_t, 3>{1, 2, n}, dense, i % 2 == 0, i));
    together.push_back(
        std::make_unique<One>(std::array<std::int64_t, 3>{1, 2, n}, layouts, i % 2 == 0, i));
    list.push_back(together.back()->described());
    alone.back()->step(options);
  }
  adamw_step(Exec(), std::span(std::as_const(list)), options);
  for (std::size_t i = 0; i < list.size(); ++i) {
    expect_same_bits(*alone[i], *together[i], "parameter " + std::to_string(i));
    EXPECT_EQ(together[i]->writes_outside(), 0u) << i;
  }
  adamw_step(Exec(), std::span<AdamWParameter<T, T, Exec> const>{}, options);
}

TYPED_TEST(AdamwStep, StrangeGradients) {
  using T = typename TypeParam::T;
  for (double strange : {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
    Slot<T, T, typename TypeParam::Exec> plain({1, 3, 41}, dense, true), t(plain);
    t = Slot<T, T, typename TypeParam::Exec>({1, 3, 41}, dense, true);
    t.gradient.set(strange, 0, 1, 17);
    t.gradient.upload();
    plain.step({}), t.step({});
    plain.download(), t.download();
    t.parameter.for_each([&](auto const& i) {
      auto const [a, b, c] = i;
      if (b == 1 && c == 17) {
        EXPECT_TRUE(std::isnan(t.parameter.value(a, b, c)));
        EXPECT_TRUE(std::isnan(t.master.value(a, b, c)));
        EXPECT_FALSE(std::isfinite(t.exp_avg.value(a, b, c)));
        EXPECT_FALSE(std::isfinite(t.exp_avg_sq.value(a, b, c)));
      } else {
        EXPECT_EQ(t.master.value(a, b, c), plain.master.value(a, b, c));
        EXPECT_EQ(t.exp_avg.value(a, b, c), plain.exp_avg.value(a, b, c));
      }
    });
  }
}

TEST(AdamwMessages, NameWhatIsWrong) {
  using Exec = Kokkos::DefaultExecutionSpace;
  Kokkos::View<float**, Exec> w("w", 3, 5), g("g", 3, 5), m("m", 3, 5), v("v", 3, 5),
      turned("turned", 5, 3);
  expect_message<ShapeError>(
      [&] { adamw_step(w, turned, m, v); },
      "attikos::adamw_step: gradient is [5, 3] float32; expected the extents "
      "of parameter, which is [3, 5] float32");
  expect_message<ShapeError>([&] { adamw_step(w, g, m, turned); },
                             "attikos::adamw_step: exp_avg_sq is [5, 3] float32; expected the "
                             "extents of parameter, which is [3, 5] float32");
  expect_message<ShapeError>([&] { adamw_step(w, g, m, v, {}, master(turned)); },
                             "attikos::adamw_step: master is [5, 3] float32; expected the extents "
                             "of parameter, which is [3, 5] float32");
  expect_message<Error>([&] { adamw_step(w, g, m, m); },
                        "attikos::adamw_step: output exp_avg shares memory with output exp_avg_sq; "
                        "expected memory of its own");
  expect_message<Error>([&] { adamw_step(w, w, m, v); },
                        "attikos::adamw_step: output parameter shares memory with gradient; "
                        "expected memory of its own");
  struct Wrong {
    AdamWOptions options;
    std::string words;
  };
  for (Wrong const& x : std::vector<Wrong>{
           {{.learning_rate = -1}, "learning_rate is -1; expected a number of 0 or more"},
           {{.beta1 = 1}, "beta1 is 1; expected a number in [0, 1)"},
           {{.beta2 = -0.5}, "beta2 is -0.5; expected a number in [0, 1)"},
           {{.beta2 = std::nan("")}, "beta2 is nan; expected a number in [0, 1)"},
           {{.epsilon = -1}, "epsilon is -1; expected a number of 0 or more"},
           {{.weight_decay = infinity}, "weight_decay is inf; expected a number of 0 or more"},
           {{.step = 0}, "step is 0; expected the number of a step, from 1 on"},
           {{.gradient_scale = infinity},
            "gradient_scale is inf; expected a number that is finite"}})
    expect_message<Error>([&] { adamw_step(w, g, m, v, x.options); },
                          "attikos::adamw_step: " + x.words);

  Kokkos::View<float**, Exec> w2("w2", 2, 2), g2("g2", 2, 2), m2("m2", 2, 2), v2("v2", 2, 2);
  Kokkos::View<float**, Exec> g3("g3", 3, 5), m3("m3", 3, 5), v3("v3", 3, 5);
  auto const first = adamw_parameter(Exec(), w, g, m, v);
  auto const list = [&](auto const& second) {
    std::vector<AdamWParameter<float>> const parameters{first, second};
    adamw_step(std::span(parameters));
  };
  expect_message<ShapeError>([&] { list(adamw_parameter(Exec(), w2, g, m2, v2)); },
                             "attikos::adamw_step: parameters[1]: gradient is [3, 5] float32; "
                             "expected the extents of parameter, which is [2, 2] float32");
  expect_message<Error>(
      [&] { list(adamw_parameter(Exec(), w, g3, m3, v3)); },
      "attikos::adamw_step: output parameter of parameters[0] shares memory with parameter of "
      "parameters[1]; expected memory of its own");
  expect_message<Error>(
      [&] {
        list(adamw_parameter(Exec(), w2, g2, m2,
                             Kokkos::subview(g, std::pair(0, 2), std::pair(0, 2))));
      },
      "attikos::adamw_step: output exp_avg_sq of parameters[1] shares memory "
      "with gradient of parameters[0]; expected memory of its own");
  list(adamw_parameter(Exec(), w2, Kokkos::subview(g, std::pair(0, 2), std::pair(0, 2)), m2, v2));
}

}  // namespace
}  // namespace attikos::test
