// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refused calls of gemm: the message names operation, argument, what was expected and what came,
// and outputs stay as they were.
#include <gtest/gtest.h>

#include <attikos/attikos.hpp>
#include <limits>
#include <string>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Parts = std::initializer_list<std::string>;
template <class T>
using Matrix = Tensor<T, 2, Exec>;
template <class T>
using Batched = Tensor<T, 3, Exec>;

/// The call must throw E with these parts, and C must stay as it was.
template <class E, class A, class B, class C, class... Extras>
void expect_refused(A const& a, B const& b, C& c, GemmOptions const& options, Parts parts,
                    Extras const&... extras) {
  expect_error<E>([&] { gemm(Exec(), a.view(), b.view(), c.view(), options, extras...); }, parts);
  c.download();
  EXPECT_TRUE(c.unchanged()) << "a refused call wrote";
}

TEST(GemmErrors, InnerExtents) {
  Matrix<bfloat16> a({128, 256}), b({512, 64}), c({128, 64});
  // The whole text once, as the contract writes it.
  try {
    gemm(Exec(), a.view(), b.view(), c.view());
    FAIL() << "no error";
  } catch (ShapeError const& error) {
    EXPECT_STREQ(error.what(),
                 "attikos::gemm: B has 512 rows but A has 256 columns (k must match). A is [128, "
                 "256] bfloat16, B is "
                 "[512, 64] bfloat16, C is [128, 64] bfloat16.");
  }
  expect_refused<ShapeError>(a, b, c, {.trans_a = true},
                             {"attikos::gemm: B has 512 rows but op(A) = A^T has 128 columns"});
  expect_refused<ShapeError>(a, b, c, {.trans_b = true},
                             {"attikos::gemm: op(B) = B^T has 64 rows but A has 256 columns"});
}

TEST(GemmErrors, ExtentsOfC) {
  Matrix<float> a({3, 4}), b({4, 5}), wide({3, 6}), tall({4, 5}), turned({5, 3});
  for (auto* c : {&wide, &tall, &turned}) {
    expect_refused<ShapeError>(a, b, *c, {},
                               {"attikos::gemm: C has extents [", "]; expected [3, 5]",
                                "A is [3, 4] float32", "B is [4, 5] float32"});
  }
}

TEST(GemmErrors, Batches) {
  Batched<float> a({2, 3, 4}), b({5, 4, 6}), c({5, 3, 6}), d({2, 3, 6});
  expect_refused<ShapeError>(
      a, b, c, {}, {"attikos::gemm: A has batch 2; expected 5", "C is [5, 3, 6] float32"});
  expect_refused<ShapeError>(a, b, d, {}, {"attikos::gemm: B has batch 5; expected 2"});
}

TEST(GemmErrors, BiasAndResidual) {
  Matrix<float> a({3, 4}), b({4, 5}), c({3, 5}), wrong({5, 3});
  Tensor<float, 1, Exec> three({3}), five({5});
  expect_refused<ShapeError>(
      a, b, c, {}, {"attikos::gemm: bias has 3 elements; expected 5, one per column of C"},
      bias(three.view()));
  expect_refused<ShapeError>(a, b, c, {.bias_along = BiasAlong::m},
                             {"attikos::gemm: bias has 5 elements; expected 3, one per row of C"},
                             bias(five.view()));
  expect_refused<ShapeError>(
      a, b, c, {},
      {"attikos::gemm: residual is [5, 3] float32; expected the extents of C", "C is [3, 5]"},
      residual(wrong.view()));
}

TEST(GemmErrors, FactorsMustBeFinite) {
  Matrix<float> a({3, 4}), b({4, 5}), c({3, 5});
  double const nan = std::numeric_limits<double>::quiet_NaN();
  double const infinity = std::numeric_limits<double>::infinity();
  expect_refused<Error>(
      a, b, c, {.alpha = nan},
      {"attikos::gemm: alpha is nan; expected a number that is finite in float32"});
  expect_refused<Error>(
      a, b, c, {.beta = infinity},
      {"attikos::gemm: beta is inf; expected a number that is finite in float32"});
  expect_refused<Error>(
      a, b, c, {.scale = -infinity},
      {"attikos::gemm: scale is -inf; expected a number that is finite in float32"});
}

TEST(GemmErrors, Int8HasNoEpilogue) {
  Matrix<std::int8_t> a({3, 4}), b({4, 5});
  Matrix<std::int32_t> c({3, 5});
  Tensor<float, 1, Exec> five({5});
  Matrix<float> residuals({3, 5});
  std::string const expected =
      "takes alpha = 1, beta = 0 or 1 and no scale, bias, activation or residual; got ";
  expect_refused<UnsupportedError>(a, b, c, {.alpha = 2},
                                   {"attikos::gemm: int8", expected, "alpha = 2"});
  expect_refused<UnsupportedError>(a, b, c, {.beta = 0.5},
                                   {"attikos::gemm: int8", expected, "beta = 0.5"});
  expect_refused<UnsupportedError>(a, b, c, {.scale = 3},
                                   {"attikos::gemm: int8", expected, "scale = 3"});
  expect_refused<UnsupportedError>(a, b, c, {.activation = Activation::silu},
                                   {"attikos::gemm: int8", expected, "activation = silu"});
  expect_refused<UnsupportedError>(a, b, c, {}, {"attikos::gemm: int8", expected, "a bias"},
                                   bias(five.view()));
  expect_refused<UnsupportedError>(a, b, c, {}, {"attikos::gemm: int8", expected, "a residual"},
                                   residual(residuals.view()));
}

TEST(GemmErrors, OutputThatOverlapsItself) {
  Matrix<float> a({3, 4}), b({4, 5}), c({3, 5});
  using View = typename Matrix<float>::template ViewOf<float, 2>;
  View const overlapping(c.view().data(), Kokkos::LayoutStride(3, 0, 5, 1));
  expect_error<StrideError>(
      [&] { gemm(Exec(), a.view(), b.view(), overlapping); },
      {"attikos::gemm: output C has stride 0 in dimension 0 of extent 3", "expected distinct"});
  View const folded(c.view().data(), Kokkos::LayoutStride(3, 1, 5, 1));
  expect_error<StrideError>(
      [&] { gemm(Exec(), a.view(), b.view(), folded); },
      {"attikos::gemm: output C has extents [3, 5] and strides [1, 1], so its "
       "elements share memory; expected distinct elements"});
  c.download();
  EXPECT_TRUE(c.unchanged());
}

TEST(GemmErrors, OutputThatOverlapsAnother) {
  Matrix<float> a({4, 4}), b({4, 4}), c({4, 4});
  using View = typename Matrix<float>::template ViewOf<float, 2>;
  Kokkos::LayoutStride const dense(4, 4, 4, 1);
  // The whole texts once; tests of all operations are in test_overlapping_arguments.cpp.
  auto const refused = [&](std::string const& text, auto const&... arguments) {
    try {
      gemm(Exec(), arguments...);
      ADD_FAILURE() << "no error; expected: " << text;
    } catch (Error const& error) {
      EXPECT_EQ(typeid(error), typeid(Error));
      EXPECT_EQ(error.what(), "attikos::gemm: output " + text);
    }
    c.download();
    EXPECT_TRUE(c.unchanged());
  };
  GemmOptions const options;
  refused("C shares memory with A; expected memory of its own", c.view(), b.view(), c.view());
  refused("C shares memory with output pre_activation; expected memory of its own", a.view(),
          b.view(), c.view(), options, pre_activation(c.view()));
  refused("C shares memory with residual; expected memory of its own, or exactly that of residual",
          a.view(), b.view(), c.view(), options, residual(View(c.view().data() + 1, dense)));
}

TEST(GemmErrors, NegativeExtents) {
  Matrix<float> a({3, 4}), b({4, 5}), c({3, 5});
  using Span = Kokkos::mdspan<float, Kokkos::dextents<int, 2>>;
  Span const negative(a.view().data(), -3, 4);
  expect_error<ShapeError>([&] { gemm(Exec(), negative, b.view(), c.view()); },
                           {"attikos::gemm: A has extent -3 in dimension 0; expected 0 or more"});
  Span const negative_b(b.view().data(), 4, -5);
  expect_error<ShapeError>([&] { gemm(Exec(), a.view(), negative_b, c.view()); },
                           {"attikos::gemm: B has extent -5 in dimension 1; expected 0 or more"});
  c.download();
  EXPECT_TRUE(c.unchanged());
}

TEST(GemmErrors, EmptyProblemsAreCheckedToo) {
  Matrix<float> a({0, 4}), b({5, 0}), c({0, 0});
  expect_refused<ShapeError>(a, b, c, {}, {"attikos::gemm: B has 5 rows but A has 4 columns"});
}

}  // namespace
}  // namespace attikos::test
