// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refused calls of gated_mlp and gated_mlp_backward, what explain() says of them, and outputs that
// stay as they were.
#include <gtest/gtest.h>

#include <attikos/mlp/gated_mlp.hpp>
#include <attikos/mlp/gated_mlp_backward.hpp>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using FloatMatrix = Tensor<float, 2, Exec>;
using Cube = Tensor<float, 3, Exec>;

/// x [2, 3, 8] and weights [5, 8].
class GatedMlpErrors : public testing::Test {
 protected:
  Cube x{{2, 3, 8}}, out{{2, 3, 5}}, dout{{2, 3, 5}}, dx{{2, 3, 8}};
  FloatMatrix gate{{5, 8}}, up{{5, 8}}, dgate{{5, 8}}, dup{{5, 8}};

  void TearDown() override {
    for (auto* tensor : {&out, &dx}) {
      tensor->download();
      EXPECT_TRUE(tensor->unchanged());
    }
    for (auto* tensor : {&dgate, &dup}) {
      tensor->download();
      EXPECT_TRUE(tensor->unchanged());
    }
  }

  template <class E, class Wg, class Wu, class Out>
  void refuse(Wg const& wg, Wu const& wu, Out const& o, GatedMlpOptions const& options,
              std::initializer_list<std::string> parts) {
    expect_error<E>([&] { gated_mlp(Exec(), x.view(), wg, wu, o, options); }, parts);
    expect_error<E>([&] { explain(op::gated_mlp, Exec(), x.view(), wg, wu, o, options); }, parts);
  }
};

TEST_F(GatedMlpErrors, ShapesOfTheWeights) {
  FloatMatrix wide({5, 9}), tall({6, 8});
  refuse<ShapeError>(wide.view(), up.view(), out.view(), {},
                     {"attikos::gated_mlp: gate_weight is [5, 9] float32; expected [intermediate, "
                      "hidden] with hidden = 8",
                      "[2, 3, 8] float32"});
  refuse<ShapeError>(gate.view(), tall.view(), out.view(), {},
                     {"attikos::gated_mlp: up_weight is [6, 8] float32; expected the extents of "
                      "gate_weight, which is [5, 8] float32"});
}

TEST_F(GatedMlpErrors, ShapeOfTheResult) {
  Cube wide({2, 3, 8}), few({1, 3, 5});
  for (auto* wrong : {&wide, &few}) {
    refuse<ShapeError>(gate.view(), up.view(), wrong->view(), {},
                       {"attikos::gated_mlp: out is ",
                        "; expected [2, 3, 5] float32, since x is "
                        "[2, 3, 8] float32 and gate_weight is [5, 8] float32"});
    wrong->download();
    EXPECT_TRUE(wrong->unchanged());
  }
  Cube::ViewOf<float, 3> const overlapping(out.view().data(),
                                           Kokkos::LayoutStride(2, 0, 3, 5, 5, 1));
  refuse<StrideError>(gate.view(), up.view(), overlapping, {},
                      {"attikos::gated_mlp: output out has stride 0 in dimension 0 of extent 2"});
}

TEST_F(GatedMlpErrors, NegativeExtents) {
  Kokkos::mdspan<float, Kokkos::dextents<int, 2>> const negative(up.view().data(), -5, 8);
  refuse<ShapeError>(gate.view(), negative, out.view(), {},
                     {"attikos::gated_mlp: up_weight has extent -5 in dimension 0"});
}

TEST_F(GatedMlpErrors, OtherActivationsAndKernels) {
  for (auto activation : {Activation::none, Activation::relu}) {
    refuse<UnsupportedError>(gate.view(), up.view(), out.view(), {.activation = activation},
                             {"attikos::gated_mlp: activation is ", activation_name(activation),
                              "; expected silu, gelu or gelu_tanh"});
    expect_error<UnsupportedError>(
        [&] {
          gated_mlp_backward(Exec(), x.view(), gate.view(), up.view(), dout.view(), dx.view(),
                             dgate.view(), dup.view(), {.activation = activation});
        },
        {"attikos::gated_mlp_backward: activation is ", activation_name(activation)});
  }
  refuse<UnsupportedError>(gate.view(), up.view(), out.view(), {.kernel = "nonsense"},
                           {"attikos::gated_mlp", "nonsense", "available: portable"});
  expect_error<UnsupportedError>(
      [&] {
        gated_mlp_backward(Exec(), x.view(), gate.view(), up.view(), dout.view(), dx.view(),
                           dgate.view(), dup.view(), {.kernel = "nonsense"});
      },
      {"attikos::gated_mlp_backward", "nonsense", "available: portable"});
}

TEST_F(GatedMlpErrors, GradientsHaveTheExtentsOfTheirArguments) {
  Cube wrong_x({2, 3, 7}), wrong_dout({2, 2, 5});
  FloatMatrix wrong({8, 5});
  auto const refuse_backward = [&](auto const& d, auto const& gx, auto const& gg, auto const& gu,
                                   std::initializer_list<std::string> parts) {
    expect_error<ShapeError>(
        [&] { gated_mlp_backward(Exec(), x.view(), gate.view(), up.view(), d, gx, gg, gu); },
        parts);
  };
  refuse_backward(wrong_dout.view(), dx.view(), dgate.view(), dup.view(),
                  {"attikos::gated_mlp_backward: dout is [2, 2, 5] float32; expected [2, 3, 5]"});
  refuse_backward(dout.view(), wrong_x.view(), dgate.view(), dup.view(),
                  {"attikos::gated_mlp_backward: dx is [2, 3, 7] float32; expected the extents of "
                   "x, which is [2, 3, 8] float32"});
  refuse_backward(dout.view(), dx.view(), wrong.view(), dup.view(),
                  {"attikos::gated_mlp_backward: dgate_weight is [8, 5] float32; expected the "
                   "extents of gate_weight, which is [5, 8] float32"});
  refuse_backward(dout.view(), dx.view(), dgate.view(), wrong.view(),
                  {"attikos::gated_mlp_backward: dup_weight is [8, 5] float32; expected the "
                   "extents of up_weight"});
}

TEST_F(GatedMlpErrors, AWorkspaceThatIsTooSmall) {
  // Two gradients of 6 rows, each of a line of 64 bytes.
  Kokkos::View<std::byte*, Exec::memory_space> const memory("memory", 2 * 6 * 64 - 1);
  expect_error<ResourceError>(
      [&] {
        gated_mlp_backward(Exec(), x.view(), gate.view(), up.view(), dout.view(), dx.view(),
                           dgate.view(), dup.view(), {}, workspace(memory));
      },
      {"attikos::gated_mlp_backward: workspace has 767 bytes; expected at least 768"});
}

TEST_F(GatedMlpErrors, ProjectionsHaveTheExtentsOfTheResult) {
  expect_error<ShapeError>(
      [&] {
        gated_mlp(Exec(), x.view(), gate.view(), up.view(), out.view(), {},
                  projections(x.view(), out.view()));
      },
      {"attikos::gated_mlp: gate of projections(gate, up) is ", "expected the extents of out"});
  expect_error<ShapeError>(
      [&] {
        gated_mlp_backward(Exec(), x.view(), gate.view(), up.view(), dout.view(), dx.view(),
                           dgate.view(), dup.view(), {}, projections(dout.view(), x.view()));
      },
      {"attikos::gated_mlp_backward: up of projections(gate, up) is ",
       "expected the extents of dout"});
  expect_error<Error>(
      [&] {
        gated_mlp(Exec(), x.view(), gate.view(), up.view(), out.view(), {},
                  projections(dout.view(), out.view()));
      },
      {"attikos::gated_mlp: output out shares memory with output up of projections(gate, up)"});
}

TEST_F(GatedMlpErrors, ExplainNamesTheKernel) {
  EXPECT_EQ(explain(op::gated_mlp, Exec(), x.view(), gate.view(), up.view(), out.view()).kernel,
            "portable");
  EXPECT_EQ(explain(op::gated_mlp, x.view(), gate.view(), up.view(), out.view(),
                    GatedMlpOptions{.kernel = "portable"})
                .kernel,
            "portable");
}

TEST(GatedMlpDefaults, ExecAndOptionsMayBeLeftOut) {
  Cube x({1, 2, 3}), out({1, 2, 4}), dx({1, 2, 3});
  FloatMatrix gate({4, 3}), up({4, 3}), dgate({4, 3}), dup({4, 3});
  x.fill(1);
  gate.fill(0);
  up.fill(2);
  gated_mlp(x.view(), gate.view(), up.view(), out.view());
  out.download();
  EXPECT_EQ(out.value(0, 1, 3), 0);
  out.fill(1);
  gated_mlp_backward(x.view(), gate.view(), up.view(), out.view(), dx.view(), dgate.view(),
                     dup.view());
  dgate.download();
  EXPECT_EQ(dgate.value(2, 1), 2 * 6 * 0.5);  // two tokens, up = 6, silu'(0) = 1/2
}

}  // namespace
}  // namespace attikos::test
