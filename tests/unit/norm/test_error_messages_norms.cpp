// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refused calls of rotary embeddings and of the gradients of row operations: the message names
// operation, argument, what was expected and what came, and outputs stay as they were.
#include <gtest/gtest.h>

#include <attikos/attikos.hpp>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Vector = Tensor<float, 1, Exec>;
using Matrix = Tensor<float, 2, Exec>;
using Cube = Tensor<float, 3, Exec>;
using Heads = Tensor<float, 4, Exec>;
using Integers = Tensor<std::int32_t, 1, Exec>;

template <class... Tensors>
void expect_unchanged(Tensors&... tensors) {
  auto const expect = [](auto& tensor) {
    tensor.download();
    EXPECT_TRUE(tensor.unchanged());
  };
  (expect(tensors), ...);
}

TEST(RopeErrors, Tables) {
  Heads x({2, 3, 5, 8}), out({2, 3, 5, 8}), one_less({2, 3, 4, 8});
  Matrix right({5, 8}), odd({5, 7}), wide({5, 10}), other({5, 6});
  Heads rank4({1, 5, 1, 8}), per_batch({2, 5, 1, 8}), per_head({1, 5, 3, 8});
  rope(Exec(), x.view(), rank4.view(), rank4.view(), out.view());
  Kokkos::fence("attikos_test");
  out.fill(3);
  expect_error<ShapeError>(
      [&] { rope(Exec(), x.view(), right.view(), other.view(), out.view()); },
      {"attikos::rope: sin is [5, 6] float32; expected the extents of cos", "[5, 8] float32"});
  expect_error<ShapeError>(
      [&] { rope(Exec(), x.view(), odd.view(), odd.view(), out.view()); },
      {"attikos::rope: rotary_dim is 7; expected an even number", "cos is [5, 7] float32",
       "tables of half width need options.rotary_dim"});
  for (std::int64_t dim : {-2, 7, 6, 4, 10, 32}) {
    expect_error<ShapeError>(
        [&] {
          rope(Exec(), x.view(), right.view(), right.view(), out.view(), {.rotary_dim = dim});
        },
        {"attikos::rope: options.rotary_dim is " + std::to_string(dim) +
             "; expected an even number that is the width of cos or twice that, or 0",
         "cos is [5, 8] float32"});
  }
  // Twice the width of the tables is more than a head has.
  expect_error<ShapeError>(
      [&] { rope(Exec(), x.view(), right.view(), right.view(), out.view(), {.rotary_dim = 16}); },
      {"attikos::rope: rotary_dim is 16; expected at most 8, the head_dim"});
  expect_error<ShapeError>([&] { rope(Exec(), x.view(), wide.view(), wide.view(), out.view()); },
                           {"attikos::rope: rotary_dim is 10; expected at most 8, the head_dim",
                            "x, which is [2, 3, 5, 8] float32"});
  expect_error<ShapeError>(
      [&] { rope(Exec(), x.view(), per_batch.view(), per_batch.view(), out.view()); },
      {"attikos::rope: cos is [2, 5, 1, 8] float32; expected [1, 5, 1, 8]"});
  expect_error<ShapeError>(
      [&] { rope(Exec(), x.view(), rank4.view(), per_head.view(), out.view()); },
      {"attikos::rope: sin is [1, 5, 3, 8] float32; expected [1, 5, 1, 8]"});
  expect_error<ShapeError>(
      [&] { rope(Exec(), x.view(), right.view(), right.view(), one_less.view()); },
      {"attikos::rope: out is [2, 3, 4, 8] float32; expected the extents of x",
       "[2, 3, 5, 8] float32"});
  expect_error<ShapeError>(
      [&] { rope_backward(Exec(), x.view(), right.view(), right.view(), one_less.view()); },
      {"attikos::rope_backward: dx is [2, 3, 4, 8] float32; expected the extents of dout",
       "[2, 3, 5, 8] float32"});
  expect_unchanged(out, one_less);
}

TEST(RopeErrors, PositionsAndOffsets) {
  Heads x({2, 3, 5, 8}), out({2, 3, 5, 8});
  Matrix six({6, 8}), empty({0, 8});
  Integers two({2}), three({3});
  Tensor<std::int32_t, 2, Exec> tokens({2, 4});
  auto const call = [&](std::int64_t offset) {
    rope(Exec(), x.view(), six.view(), six.view(), out.view(), {.position_offset = offset});
  };
  expect_error<ShapeError>([&] { call(2); },
                           {"attikos::rope: cos has 6 rows; expected at least 7 for "
                            "position_offset 2 and seqlen 5",
                            "cos is [6, 8] float32"});
  for (std::int64_t offset :
       {std::int64_t{-1}, std::int64_t{7}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()}) {
    expect_error<ShapeError>([&] { call(offset); },
                             {"attikos::rope: position_offset is " + std::to_string(offset) +
                              "; expected a number in [0, 6]"});
  }
  expect_error<ShapeError>(
      [&] {
        rope(Exec(), x.view(), six.view(), six.view(), out.view(), {}, positions(three.view()));
      },
      {"attikos::rope: positions is [3] int32; expected [2] or [2, 5]"});
  expect_error<ShapeError>(
      [&] {
        rope(Exec(), x.view(), six.view(), six.view(), out.view(), {}, positions(tokens.view()));
      },
      {"attikos::rope: positions is [2, 4] int32; expected [2] or [2, 5]"});
  expect_error<ShapeError>(
      [&] {
        rope(Exec(), x.view(), empty.view(), empty.view(), out.view(), {}, positions(two.view()));
      },
      {"attikos::rope: cos has 0 rows; expected at least 1"});
  expect_unchanged(out);
}

TEST(RmsNormRopeErrors, HeadsAndWeights) {
  Cube x({2, 5, 24}), out({2, 5, 24});
  Matrix table({5, 8}), ten({5, 10});
  Vector hidden({24}), head({8}), dweight({24});
  auto const call = [&](Matrix const& cos, Vector const& weight,
                        RmsNormRopeOptions const& options) {
    rms_norm_rope(Exec(), x.view(), weight.view(), cos.view(), cos.view(), out.view(), options);
  };
  expect_error<ShapeError>([&] { call(ten, hidden, {}); },
                           {"attikos::rms_norm_rope: hidden is 24; expected a multiple of 10",
                            "cos, which is [5, 10] float32", "x is [2, 5, 24] float32"});
  expect_error<ShapeError>([&] { call(table, hidden, {.num_heads = 4}); },
                           {"attikos::rms_norm_rope: num_heads is 4; expected 3 (hidden 24 over "
                            "head_dim 8) or 0",
                            "x is [2, 5, 24] float32, cos is [5, 8] float32",
                            "rotated in part need options.rotary_dim"});
  expect_error<ShapeError>([&] { call(table, hidden, {.num_heads = 5, .rotary_dim = 8}); },
                           {"attikos::rms_norm_rope: hidden is 24; expected a multiple of "
                            "num_heads 5",
                            "x is [2, 5, 24] float32"});
  expect_error<ShapeError>([&] { call(table, hidden, {.num_heads = 4, .rotary_dim = 8}); },
                           {"attikos::rms_norm_rope: rotary_dim is 8; expected at most 6, hidden "
                            "24 over num_heads 4"});
  expect_error<ShapeError>([&] { call(table, hidden, {.rotary_dim = 6}); },
                           {"attikos::rms_norm_rope: options.rotary_dim is 6; expected an even "
                            "number that is the width of cos"});
  expect_error<ShapeError>(
      [&] { call(table, head, {.num_heads = 2, .norm = NormExtent::head, .rotary_dim = 8}); },
      {"attikos::rms_norm_rope: weight has 8 elements; expected 12, hidden over num_heads"});
  expect_error<ShapeError>([&] { call(table, hidden, {.num_heads = -1}); },
                           {"attikos::rms_norm_rope: num_heads is -1; expected 0"});
  expect_error<ShapeError>([&] { call(table, head, {}); },
                           {"attikos::rms_norm_rope: weight has 8 elements; expected 24, the last "
                            "extent of x (norm = hidden)"});
  expect_error<ShapeError>([&] { call(table, hidden, {.norm = NormExtent::head}); },
                           {"attikos::rms_norm_rope: weight has 24 elements; expected 8, the "
                            "head_dim of cos (norm = head)"});
  expect_error<ShapeError>([&] { call(table, hidden, {.position_offset = 1}); },
                           {"attikos::rms_norm_rope: cos has 5 rows; expected at least 6"});
  expect_error<ShapeError>(
      [&] {
        rms_norm_rope_backward(Exec(), x.view(), head.view(), table.view(), table.view(), x.view(),
                               out.view(), dweight.view(), {.norm = NormExtent::head});
      },
      {"attikos::rms_norm_rope_backward: dweight has 24 elements; expected 8, as weight"});
  expect_unchanged(out, dweight);
}

/// The gradients that turn x (or out) and dout [..., hidden] into dx of the same extents.
struct Gradient {
  std::string name, like;
  std::function<void(Matrix const& x, Matrix const& dout, Matrix::ViewOf<float, 2> const& dx,
                     Vector const& dweight)>
      call;
};

std::vector<Gradient> gradients(Vector const& weight) {
  return {{"rms_norm_backward", "x",
           [&](Matrix const& x, Matrix const& g, auto const& dx, Vector const& dw) {
             rms_norm_backward(Exec(), x.view(), weight.view(), g.view(), dx, dw.view());
           }},
          {"layer_norm_backward", "x",
           [&](Matrix const& x, Matrix const& g, auto const& dx, Vector const& dw) {
             layer_norm_backward(Exec(), x.view(), weight.view(), g.view(), dx, dw.view(),
                                 dw.view());
           }},
          {"l2_normalize_backward", "x",
           [](Matrix const& x, Matrix const& g, auto const& dx, Vector const&) {
             l2_normalize_backward(Exec(), x.view(), g.view(), dx);
           }},
          {"softmax_backward", "out",
           [](Matrix const& x, Matrix const& g, auto const& dx, Vector const&) {
             softmax_backward(Exec(), x.view(), g.view(), dx);
           }},
          {"log_softmax_backward", "out",
           [](Matrix const& x, Matrix const& g, auto const& dx, Vector const&) {
             log_softmax_backward(Exec(), x.view(), g.view(), dx);
           }}};
}

TEST(GradientErrors, ExtentsAndOverlap) {
  Matrix x({3, 8}), dout({3, 8}), few({2, 8}), dx({3, 8});
  Vector weight({8}), dweight({8});
  Matrix::ViewOf<float, 2> const overlapping(dx.view().data(), Kokkos::LayoutStride(3, 0, 8, 1));
  for (auto const& op : gradients(weight)) {
    std::string const expected = "; expected the extents of " + op.like + ", which is [3, 8]";
    expect_error<ShapeError>([&] { op.call(x, few, dx.view(), dweight); },
                             {"attikos::" + op.name + ": dout is [2, 8] float32" + expected});
    expect_error<ShapeError>([&] { op.call(x, dout, few.view(), dweight); },
                             {"attikos::" + op.name + ": dx is [2, 8] float32" + expected});
    expect_error<StrideError>(
        [&] { op.call(x, dout, overlapping, dweight); },
        {"attikos::" + op.name + ": output dx has stride 0 in dimension 0 of extent 3"});
  }
  expect_unchanged(dx, few, dweight);
}

TEST(GradientErrors, WeightsAndBiases) {
  Matrix x({3, 8}), dx({3, 8});
  Vector right({8}), wrong({9}), sum({8}), long_sum({9});
  expect_error<ShapeError>(
      [&] { rms_norm_backward(Exec(), x.view(), wrong.view(), x.view(), dx.view(), sum.view()); },
      {"attikos::rms_norm_backward: weight has 9 elements; expected 8"});
  expect_error<ShapeError>(
      [&] {
        rms_norm_backward(Exec(), x.view(), right.view(), x.view(), dx.view(), long_sum.view());
      },
      {"attikos::rms_norm_backward: dweight has 9 elements; expected 8, as weight"});
  expect_error<ShapeError>(
      [&] {
        layer_norm_backward(Exec(), x.view(), right.view(), x.view(), dx.view(), sum.view(),
                            long_sum.view());
      },
      {"attikos::layer_norm_backward: dbias has 9 elements; expected 8, as weight"});
  expect_unchanged(dx, sum, long_sum);
}

TEST(GradientErrors, WorkspaceTooSmall) {
  Matrix x({100, 8}), dx({100, 8});
  Vector weight({8}), dweight({8}), dbias({8});
  std::size_t const bytes = layer_norm_backward_workspace_size(x.view(), weight.view(), x.view());
  Kokkos::View<std::byte*, Exec::memory_space> const small("attikos_test", bytes - 1);
  expect_error<ResourceError>(
      [&] {
        layer_norm_backward(Exec(), x.view(), weight.view(), x.view(), dx.view(), dweight.view(),
                            dbias.view(), {}, workspace(small));
      },
      {"attikos::layer_norm_backward: workspace has " + std::to_string(bytes - 1) +
       " bytes; expected at least " + std::to_string(bytes)});
  expect_unchanged(dx, dweight, dbias);
}

TEST(GradientErrors, MeanPool) {
  Cube dx({2, 5, 8});
  Matrix wrong({2, 5}), one_more({3, 8}), right({2, 8});
  Integers three({3});
  expect_error<ShapeError>([&] { mean_pool_backward(Exec(), wrong.view(), dx.view()); },
                           {"attikos::mean_pool_backward: dout is [2, 5] float32; expected [2, 8]",
                            "[2, 5, 8] float32"});
  expect_error<ShapeError>([&] { mean_pool_backward(Exec(), one_more.view(), dx.view()); },
                           {"attikos::mean_pool_backward: dout is [3, 8] float32; expected [2, 8]",
                            "[2, 5, 8] float32"});
  expect_error<ShapeError>(
      [&] { mean_pool_backward(Exec(), right.view(), dx.view(), {}, lengths(three.view())); },
      {"attikos::mean_pool_backward: lengths has 3 entries; expected 2"});
  using Negative2 = Kokkos::mdspan<float, Kokkos::dextents<int, 2>>;
  using Negative3 = Kokkos::mdspan<float, Kokkos::dextents<int, 3>>;
  expect_error<ShapeError>(
      [&] { mean_pool_backward(Exec(), Negative2(right.view().data(), 2, -8), dx.view()); },
      {"attikos::mean_pool_backward: dout has extent -8 in dimension 1; expected 0 or more"});
  expect_error<ShapeError>(
      [&] { mean_pool_backward(Exec(), right.view(), Negative3(dx.view().data(), 2, -5, 8)); },
      {"attikos::mean_pool_backward: dx has extent -5 in dimension 1; expected 0 or more"});
  expect_unchanged(dx);
}

TEST(LogSoftmaxErrors, OutHasTheExtentsOfX) {
  Matrix x({3, 8}), few({2, 8});
  expect_error<ShapeError>(
      [&] { log_softmax(Exec(), x.view(), few.view()); },
      {"attikos::log_softmax: out is [2, 8] float32; expected the extents of x", "[3, 8]"});
  expect_unchanged(few);
}

}  // namespace
}  // namespace attikos::test
