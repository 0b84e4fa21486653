// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gated_mlp and its gradients against the float64 oracle: execution spaces x element types, all
// layouts at run time; the gradients also against differences of the forward call.
#include <limits>

#include "gated_mlp_checks.hpp"

namespace attikos::test {
namespace {

template <class C>
class GatedMlp : public testing::Test {};
TYPED_TEST_SUITE(GatedMlp, FloatingCases, CaseName);

template <class C>
void forward(GatedMlpCase const& p) {
  check_gated_mlp<typename C::Exec, typename C::T>(p);
}
template <class C>
void backward(GatedMlpCase const& p) {
  check_gated_mlp_backward<typename C::Exec, typename C::T>(p);
}

struct Shape {
  std::int64_t tokens, hidden, intermediate;
};
constexpr std::array small_shapes{Shape{1, 1, 1},   Shape{7, 3, 5},    Shape{1, 19, 37},
                                  Shape{23, 11, 1}, Shape{13, 33, 17}, Shape{16, 16, 16},
                                  Shape{12, 16, 14}};
/// Around the edges of tiles, primes, long and flat ones.
constexpr std::array edge_shapes{Shape{31, 127, 63},   Shape{32, 128, 64},  Shape{33, 129, 65},
                                 Shape{65, 257, 33},   Shape{127, 31, 129}, Shape{193, 15, 7},
                                 Shape{5, 2, 257},     Shape{3, 1, 255},    Shape{1, 1031, 1},
                                 Shape{2, 769, 3},     Shape{1, 65, 515},   Shape{101, 89, 97},
                                 Shape{255, 256, 128}, Shape{64, 17, 64},   Shape{400, 5, 2}};
constexpr std::array activations{Activation::silu, Activation::gelu, Activation::gelu_tanh};

TYPED_TEST(GatedMlp, EveryLayoutOfEveryOperand) {
  for (auto [tokens, hidden, intermediate] : small_shapes) {
    for (Layout x : all_layouts) {
      for (Layout weights : all_layouts) {
        for (Layout out : all_layouts) {
          forward<TypeParam>({.batch = -1,
                              .tokens = tokens,
                              .hidden = hidden,
                              .intermediate = intermediate,
                              .x = x,
                              .weights = weights,
                              .out = out});
        }
      }
    }
  }
}

TYPED_TEST(GatedMlp, TileEdges) {
  int turn = 0;
  for (auto [tokens, hidden, intermediate] : edge_shapes) {
    auto const layout = all_layouts[sz(turn++ % 5)];
    forward<TypeParam>({.batch = -1,
                        .tokens = tokens,
                        .hidden = hidden,
                        .intermediate = intermediate,
                        .weights = layout,
                        .rows_checked = 20});
  }
}

TYPED_TEST(GatedMlp, Batches) {
  for (Layout layout : all_layouts) {
    for (std::int64_t tokens : {1, 5, 35}) {
      forward<TypeParam>({.batch = 3,
                          .tokens = tokens,
                          .hidden = 17,
                          .intermediate = 34,
                          .x = layout,
                          .out = layout == Layout::padded ? Layout::right : layout});
    }
  }
  forward<TypeParam>({.batch = 1, .tokens = 4, .hidden = 8, .intermediate = 6});
  forward<TypeParam>({.batch = 70, .tokens = 1, .hidden = 8, .intermediate = 6});
}

TYPED_TEST(GatedMlp, Activations) {
  for (Activation activation : activations) {
    for (double largest : {0.01, 1.0, 4.0, 7.0}) {  // far into both tails
      forward<TypeParam>({.batch = -1,
                          .tokens = 19,
                          .hidden = 5,
                          .intermediate = 70,
                          .options = {.activation = activation},
                          .largest = largest});
    }
  }
}

TYPED_TEST(GatedMlp, EmptyExtents) {
  {
    // What an earlier call left in scratch must not reach the result.
    using T = typename TypeParam::T;
    GatedMlpCase const p{.batch = -1, .tokens = 3, .hidden = 5, .intermediate = 5};
    GatedMlpOperands<typename TypeParam::Exec, T, T, T> o(p);
    o.x.fill(std::numeric_limits<double>::quiet_NaN());
    o.forward(p);
    Kokkos::fence("attikos_test");
  }
  for (std::int64_t batch : {-1, 0, 2}) {
    for (auto [tokens, hidden, intermediate] :
         {Shape{0, 3, 5}, Shape{3, 0, 5}, Shape{3, 5, 0}, Shape{0, 0, 0}}) {
      GatedMlpCase const p{
          .batch = batch, .tokens = tokens, .hidden = hidden, .intermediate = intermediate};
      forward<TypeParam>(p);
      backward<TypeParam>(p);
    }
  }
  GatedMlpCase const none{.batch = 0, .tokens = 4, .hidden = 3, .intermediate = 5};
  forward<TypeParam>(none);
  backward<TypeParam>(none);
}

TYPED_TEST(GatedMlp, NanReachesOnlyItsRowAndColumn) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  GatedMlpCase const p{.batch = -1, .tokens = 29, .hidden = 18, .intermediate = 37};
  GatedMlpOperands<Exec, T, T, T> o(p);
  o.x.at({0, 13, 17}) = poison<T>();
  o.gate.at({36, 0}) = poison<T>();
  o.up.at({5, 3}) = poison<T>();
  o.x.upload();
  o.gate.upload();
  o.up.upload();
  o.forward(p);
  o.out.download();
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t i = 0; i < p.intermediate; ++i) {
      EXPECT_EQ(std::isnan(o.out.value(0, t, i)), t == 13 || i == 36 || i == 5) << t << ", " << i;
    }
  }
}

TYPED_TEST(GatedMlp, TailsOfTheActivationAreExact) {
  using T = typename TypeParam::T;
  using Exec = typename TypeParam::Exec;
  for (Activation activation : activations) {
    GatedMlpCase const p{.batch = -1,
                         .tokens = 4,
                         .hidden = 1,
                         .intermediate = 33,
                         .options = {.activation = activation}};
    GatedMlpOperands<Exec, T, T, T> o(p);
    o.gate.fill(200);
    o.up.fill(1);
    o.dout.fill(1);
    double const x[] = {1, -1, 128, -128};
    for (int t = 0; t < 4; ++t) o.x.set(x[t], 0, t, 0);
    o.x.upload();
    o.forward(p);
    o.backward(p);
    o.out.download();
    o.dx.download();
    for (std::int64_t i = 0; i < p.intermediate; ++i) {
      EXPECT_EQ(o.out.value(0, 0, i), 200) << activation_name(activation);
      EXPECT_EQ(o.out.value(0, 2, i), static_cast<double>(from_double<T>(25600.0 * 128)));
      EXPECT_NEAR(o.out.value(0, 3, i), 0, 1e-30);
      EXPECT_NEAR(o.out.value(0, 1, i), 0, 1e-30);
    }
    // d(act(200 x) x)/dx = 200 x act'(200 x) + act(200 x), summed over the intermediate elements.
    EXPECT_EQ(o.dx.value(0, 0, 0), static_cast<double>(from_double<T>(33 * 400.0)));
    EXPECT_NEAR(o.dx.value(0, 1, 0), 0, 1e-30);
    EXPECT_NEAR(o.dx.value(0, 3, 0), 0, 1e-30);
  }
}

TYPED_TEST(GatedMlp, PortableKernelByName) {
  GatedMlpCase const p{.batch = -1,
                       .tokens = 17,
                       .hidden = 9,
                       .intermediate = 21,
                       .options = {.kernel = "portable"}};
  forward<TypeParam>(p);
  backward<TypeParam>(p);
}

// The projections are stored, and the gradients computed from what was stored.
TYPED_TEST(GatedMlp, KeptProjections) {
  int turn = 0;
  for (auto [tokens, hidden, intermediate] :
       {Shape{7, 3, 5}, Shape{1, 19, 37}, Shape{23, 11, 1}, Shape{33, 65, 31}, Shape{65, 31, 130},
        Shape{2, 30, 257}, Shape{18, 8, 544}}) {
    for (Layout x : all_layouts) {
      GatedMlpCase const p{.batch = turn % 2 == 0 ? -1 : 2,
                           .tokens = tokens,
                           .hidden = hidden,
                           .intermediate = intermediate,
                           .options = {.activation = activations[sz(turn % 3)]},
                           .x = x,
                           .weights = all_layouts[sz(turn % 5)],
                           .out = all_layouts[sz(turn % 4)],
                           .kept = true};
      forward<TypeParam>(p);
      backward<TypeParam>(p);
      ++turn;
    }
  }
  for (Shape none : {Shape{0, 3, 5}, Shape{3, 0, 5}, Shape{3, 5, 0}}) {
    GatedMlpCase const p{.batch = -1,
                         .tokens = none.tokens,
                         .hidden = none.hidden,
                         .intermediate = none.intermediate,
                         .kept = true};
    forward<TypeParam>(p);
    backward<TypeParam>(p);
  }
}

TYPED_TEST(GatedMlp, GradientsInEveryLayout) {
  for (auto [tokens, hidden, intermediate] : {Shape{7, 3, 5}, Shape{13, 17, 9}}) {
    for (Layout x : all_layouts) {
      for (Layout weights : all_layouts) {
        for (std::int64_t batch : {-1, 2}) {
          backward<TypeParam>(
              {.batch = batch,
               .tokens = tokens,
               .hidden = hidden,
               .intermediate = intermediate,
               .x = x,
               .weights = weights,
               .out =
                   all_layouts[(static_cast<std::size_t>(x) + static_cast<std::size_t>(weights)) %
                               5]});
        }
      }
    }
  }
}

TYPED_TEST(GatedMlp, GradientsAtTileEdges) {
  int turn = 0;
  for (auto [tokens, hidden, intermediate] :
       {Shape{33, 65, 31}, Shape{65, 31, 129}, Shape{1, 40, 257}, Shape{129, 3, 12},
        Shape{2, 300, 5}}) {
    backward<TypeParam>({.batch = turn % 2 == 0 ? -1 : 3,
                         .tokens = tokens,
                         .hidden = hidden,
                         .intermediate = intermediate,
                         .options = {.activation = activations[sz(turn % 3)]},
                         .x = turn > 2 ? Layout::padded : Layout::right});
    ++turn;
  }
}

TYPED_TEST(GatedMlp, GradientsOfEveryActivation) {
  for (Activation activation : activations) {
    for (double largest : {0.01, 1.0, 4.0}) {
      backward<TypeParam>({.batch = -1,
                           .tokens = 18,
                           .hidden = 5,
                           .intermediate = 37,
                           .options = {.activation = activation},
                           .largest = largest});
    }
  }
}

template <class C>
class GatedMlpSpaces : public testing::Test {};
TYPED_TEST_SUITE(GatedMlpSpaces, SpaceCases, CaseName);

// 16-bit activations with float weights and gradients, as in mixed-precision training.
TYPED_TEST(GatedMlpSpaces, MixedTypes) {
  GatedMlpCase p{.batch = 2, .tokens = 19, .hidden = 33, .intermediate = 21};
  check_gated_mlp<TypeParam, bfloat16, float, bfloat16>(p);
  p.x = Layout::padded;  // sequences that do not join
  check_gated_mlp_backward<TypeParam, bfloat16, bfloat16, float, float>(p);
  p.kept = true;
  check_gated_mlp<TypeParam, bfloat16, float, bfloat16>(p);
  check_gated_mlp_backward<TypeParam, bfloat16, bfloat16, float, float>(p);
}

/// Central differences of L = sum dout out with respect to one operand, by the forward call itself.
template <class Operands, class TensorType, class Third>
void check_differences(GatedMlpCase const& p, Operands& o, TensorType& operand,
                       TensorType const& gradient, char const* name, Third const& third) {
  double const h = 0x1p-17;  // h^2 / 6 and u / h are about equally small
  Comparison comparison(std::string("gated_mlp_backward/differences/") + name + "/" + o.types(),
                        describe(p));
  // The value and the bound of its error.
  auto const loss = [&] {
    o.forward(p);
    o.out.download();
    double const terms = static_cast<double>(o.out.extent(0) * o.out.extent(1) * o.out.extent(2));
    double sum = 0, error = 0;
    o.out.for_each([&](auto const& index) {
      auto const [b, t, i] = index;
      auto const e = o.element(p, b, t, i);
      double const d = o.dout.value(b, t, i);
      sum += d * o.out.value(b, t, i);
      error += std::abs(d) * (gated_mlp_bound<double, double>(p.hidden, e, act_of(p)(e.gate)) +
                              terms * precision<double>().roundoff * std::abs(e.value));
    });
    return std::pair(sum, error);
  };
  operand.for_each([&](auto const& index) {
    double const before = operand.at(index);
    operand.at(index) = before + h;
    operand.upload();
    auto const above = loss();
    operand.at(index) = before - h;
    operand.upload();
    auto const below = loss();
    operand.at(index) = before;
    operand.upload();
    auto copy = gradient;
    comparison.add(copy.at(index), (above.first - below.first) / (2 * h),
                   difference_bound(h, third(index), std::max(above.second, below.second)), {});
  });
}

TYPED_TEST(GatedMlpSpaces, GradientsAreDifferencesOfTheForwardCall) {
  for (Activation activation : activations) {
    GatedMlpCase const p{.batch = 2,
                         .tokens = 2,
                         .hidden = 4,
                         .intermediate = 3,
                         .options = {.activation = activation},
                         .largest = 1.5};
    GatedMlpOperands<TypeParam, double, double, double> o(p);
    o.backward(p);
    o.dx.download();
    o.dgate.download();
    o.dup.download();
    // Third derivatives of L along a coordinate, with |act''| <= act_second and so on. The factor 2
    // covers how little gate and up move within h.
    check_differences(p, o, o.x, o.dx, "dx", [&](auto const& index) {
      auto const [b, t, l] = index;
      double sum = 0;
      for (std::int64_t i = 0; i < p.intermediate; ++i) {
        double const a = std::abs(o.gate.value(i, l)), c = std::abs(o.up.value(i, l));
        auto const e = o.element(p, b, t, i);
        sum += std::abs(o.dout.value(b, t, i)) *
               (act_third * a * a * a * std::abs(e.up) + 3 * act_second * a * a * c);
      }
      return 2 * sum;
    });
    check_differences(p, o, o.gate, o.dgate, "dgate", [&](auto const& index) {
      auto const [i, l] = index;
      double sum = 0;
      for (std::int64_t b = 0; b < p.batch; ++b) {
        for (std::int64_t t = 0; t < p.tokens; ++t) {
          double const a = std::abs(o.x.value(b, t, l));
          sum += std::abs(o.dout.value(b, t, i)) * act_third * a * a * a *
                 std::abs(o.element(p, b, t, i).up);
        }
      }
      return 2 * sum;
    });
    // out is linear in the other weight.
    check_differences(p, o, o.up, o.dup, "dup", [](auto const&) { return 0.0; });
  }
}

}  // namespace
}  // namespace attikos::test
