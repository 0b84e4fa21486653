// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refused calls of the row-wise operations: the message names operation, argument, what was
// expected and what came, and outputs stay as they were.
#include <gtest/gtest.h>

#include <attikos/attikos.hpp>
#include <functional>
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

/// The operations that turn x [..., hidden] into out of the same extents.
struct RowOperation {
  std::string name;
  std::function<void(Matrix const& x, Vector const& weight, Matrix::ViewOf<float, 2> const& out)>
      call;
};

std::vector<RowOperation> row_operations() {
  return {{"layer_norm",
           [](Matrix const& x, Vector const& w, auto const& out) {
             layer_norm(Exec(), x.view(), w.view(), w.view(), out);
           }},
          {"rms_norm", [](Matrix const& x, Vector const& w,
                          auto const& out) { rms_norm(Exec(), x.view(), w.view(), out); }},
          {"softmax",
           [](Matrix const& x, Vector const&, auto const& out) { softmax(Exec(), x.view(), out); }},
          {"l2_normalize", [](Matrix const& x, Vector const&, auto const& out) {
             l2_normalize(Exec(), x.view(), out);
           }}};
}

TEST(RowErrors, OutHasTheExtentsOfX) {
  Matrix x({3, 8}), few({2, 8}), narrow({3, 7});
  Vector weight({8});
  for (auto const& op : row_operations()) {
    expect_error<ShapeError>(
        [&] { op.call(x, weight, few.view()); },
        {"attikos::" + op.name + ": out is [2, 8] float32; expected the extents of x",
         "[3, 8] float32"});
    expect_error<ShapeError>([&] { op.call(x, weight, narrow.view()); },
                             {"attikos::" + op.name + ": out is [3, 7] float32", "[3, 8] float32"});
  }
  for (auto* out : {&few, &narrow}) {
    out->download();
    EXPECT_TRUE(out->unchanged());
  }
}

TEST(RowErrors, OutThatOverlapsItself) {
  Matrix x({3, 8}), out({3, 8});
  Vector weight({8});
  Matrix::ViewOf<float, 2> const overlapping(out.view().data(), Kokkos::LayoutStride(3, 0, 8, 1));
  for (auto const& op : row_operations()) {
    expect_error<StrideError>(
        [&] { op.call(x, weight, overlapping); },
        {"attikos::" + op.name + ": output out has stride 0 in dimension 0 of extent 3"});
  }
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(RowErrors, WeightAndBiasHaveTheLastExtent) {
  Matrix x({3, 8}), out({3, 8});
  Vector right({8}), wrong({9});
  expect_error<ShapeError>(
      [&] { layer_norm(Exec(), x.view(), wrong.view(), right.view(), out.view()); },
      {"attikos::layer_norm: weight has 9 elements; expected 8", "x, which is [3, 8] float32"});
  expect_error<ShapeError>(
      [&] { layer_norm(Exec(), x.view(), right.view(), wrong.view(), out.view()); },
      {"attikos::layer_norm: bias has 9 elements; expected 8", "x, which is [3, 8] float32"});
  expect_error<ShapeError>(
      [&] { rms_norm(Exec(), x.view(), wrong.view(), out.view()); },
      {"attikos::rms_norm: weight has 9 elements; expected 8", "x, which is [3, 8] float32"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(RowErrors, NegativeExtents) {
  Matrix out({3, 8});
  Kokkos::mdspan<float, Kokkos::dextents<int, 2>> const negative(out.view().data(), 3, -8);
  expect_error<ShapeError>(
      [&] { softmax(Exec(), negative, out.view()); },
      {"attikos::softmax: x has extent -8 in dimension 1; expected 0 or more"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(MeanPoolErrors, ExtentsAndLengths) {
  Cube x({2, 5, 8});
  Matrix out({2, 8}), wrong({2, 5});
  Tensor<std::int32_t, 1, Exec> three({3});
  expect_error<ShapeError>(
      [&] { mean_pool(Exec(), x.view(), wrong.view()); },
      {"attikos::mean_pool: out is [2, 5] float32; expected [2, 8]", "[2, 5, 8] float32"});
  expect_error<ShapeError>(
      [&] { mean_pool(Exec(), x.view(), out.view(), {}, lengths(three.view())); },
      {"attikos::mean_pool: lengths has 3 entries; expected 2, one per sequence of the batch"});
  for (auto* matrix : {&out, &wrong}) {
    matrix->download();
    EXPECT_TRUE(matrix->unchanged());
  }
}

}  // namespace
}  // namespace attikos::test
