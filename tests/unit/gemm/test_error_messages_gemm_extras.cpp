// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refused calls of gemm's extras, gemm_backward and quantize: the text, and that nothing is
// written.
#include <gtest/gtest.h>

#include <attikos/gemm/gemm.hpp>
#include <attikos/gemm/gemm_backward.hpp>
#include <attikos/quantize/quantize.hpp>
#include <string>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Parts = std::initializer_list<std::string>;
using E4m3 = float8_e4m3;
template <class T, int Rank>
using Array = Tensor<T, Rank, Exec>;

template <class E, class A, class B, class C, class... Extras>
void expect_refused(A const& a, B const& b, C& c, GemmOptions const& options, Parts parts,
                    Extras const&... extras) {
  expect_error<E>([&] { gemm(Exec(), a.view(), b.view(), c.view(), options, extras...); }, parts);
  c.download();
  EXPECT_TRUE(c.unchanged()) << "a refused call wrote";
}

TEST(GemmExtraErrors, ShapesOfScales) {
  Array<E4m3, 2> a({300, 400}), b({500, 400});
  Array<float, 2> c({300, 500});
  Array<float, 1> columns({500}), three({3});
  Array<float, 2> per_k({300, 400}), blocks({3, 4}), wide({4, 4});
  Array<float, 3> deep({1, 3, 4});
  GemmOptions const options{.trans_b = true};
  std::string const a_shapes =
      "expected [1] for the tensor, [300] or [300, 1] per row, [300, 4] per 1x128 block, [3, 4] "
      "per "
      "128x128 block, of A as it is stored. A is [300, 400] float8_e4m3";
  expect_refused<ShapeError>(a, b, c, options,
                             {"attikos::gemm: scale_a is [500] float32; " + a_shapes},
                             scale_a(columns.view()));
  expect_refused<ShapeError>(a, b, c, options,
                             {"attikos::gemm: scale_a is [300, 400] float32; " + a_shapes},
                             scale_a(per_k.view()));
  expect_refused<ShapeError>(a, b, c, options,
                             {"attikos::gemm: scale_a is [4, 4] float32; " + a_shapes},
                             scale_a(wide.view()));
  expect_refused<ShapeError>(a, b, c, options,
                             {"attikos::gemm: scale_a is [1, 3, 4] float32; " + a_shapes},
                             scale_a(deep.view()));
  expect_refused<ShapeError>(
      a, b, c, options,
      {"attikos::gemm: scale_b is [3, 4] float32; expected [1] for the tensor, [500] or [500, 1] "
       "per row, [500, 4] per 1x128 block, [4, 4] per 128x128 block, of B as it is stored"},
      scale_b(blocks.view()));
  Array<E4m3, 2> plain_b({400, 500});
  expect_refused<ShapeError>(
      a, plain_b, c, {},
      {"attikos::gemm: scale_b is [3] float32; expected [1] for the tensor, [500] or [1, 500] per "
       "column, [4, 500] per 128x1 block, [4, 4] per 128x128 block"},
      scale_b(three.view()));
}

TEST(GemmExtraErrors, ZeroPointsAndSingleNumbers) {
  Array<std::int8_t, 2> a({3, 4}), b({4, 5});
  Array<std::int8_t, 2> c({3, 5});
  Array<std::int32_t, 1> two({2});
  Array<float, 1> pair({2});
  expect_refused<ShapeError>(
      a, b, c, {},
      {"attikos::gemm: zero_point_a has 2 elements; expected 1, or 3, one per row of op(A)"},
      zero_point_a(two.view()));
  expect_refused<ShapeError>(
      a, b, c, {},
      {"attikos::gemm: zero_point_b has 2 elements; expected 1, or 5, one per column of op(B)"},
      zero_point_b(two.view()));
  expect_refused<ShapeError>(a, b, c, {}, {"attikos::gemm: scale_out has 2 elements; expected 1"},
                             scale_out(pair.view()));
  expect_refused<ShapeError>(a, b, c, {},
                             {"attikos::gemm: device_scale has 2 elements; expected 1"},
                             device_scale(pair.view()));
  expect_refused<UnsupportedError>(
      a, b, c, {.beta = 1},
      {"attikos::gemm: beta is 1; expected 0 where C is quantized. A is [3, 4] int8"});
}

struct Twice {
  template <class Value>
  KOKKOS_INLINE_FUNCTION Value operator()(Value value, std::int64_t, std::int64_t,
                                          std::int64_t) const {
    return value + value;
  }
};

TEST(GemmExtraErrors, ExactIntegersTakeNoEpilogue) {
  Array<std::int8_t, 2> a({3, 4}), b({4, 5});
  Array<std::int32_t, 2> c({3, 5});
  Array<float, 1> one({1});
  Array<float, 2> pre({3, 5});
  std::string const expected = "takes alpha = 1, beta = 0 or 1 and no scale";
  auto const check = [&](std::string const& what, auto const& extra) {
    expect_refused<UnsupportedError>(a, b, c, {}, {"attikos::gemm: int8", expected, ", " + what},
                                     extra);
  };
  check("scale_a", scale_a(one.view()));
  check("scale_b", scale_b(one.view()));
  check("device_scale", device_scale(one.view()));
  check("pre_activation", pre_activation(pre.view()));
  check("an epilogue function", epilogue(Twice{}));
}

TEST(GemmExtraErrors, FunctionInPlaceOfTheActivation) {
  Array<float, 2> a({3, 4}), b({4, 5}), c({3, 5}), wrong({5, 3});
  expect_refused<UnsupportedError>(
      a, b, c, {.activation = Activation::silu},
      {"attikos::gemm: epilogue(function) stands in place of the activation; got silu as well"},
      epilogue(Twice{}));
  expect_refused<ShapeError>(
      a, b, c, {},
      {"attikos::gemm: pre_activation is [5, 3] float32; expected the extents of C. A is [3, 4]"},
      pre_activation(wrong.view()));
}

TEST(GemmExtraErrors, GroupsAndCounts) {
  Array<float, 2> a({9, 4}), c({9, 5});
  Array<float, 3> b({3, 4, 5}), batched_a({3, 9, 4}), batched_c({3, 9, 5});
  Array<std::int32_t, 1> three({3}), four({4});
  expect_refused<ShapeError>(
      a, b, c, {},
      {"attikos::gemm: grouped() has 3 offsets; expected 4, one more than B has matrices. A is"},
      grouped(three.view()));
  expect_refused<ShapeError>(
      batched_a, b, batched_c, {},
      {"attikos::gemm: masked() has 4 counts; expected 3, one for each matrix of C. A is"},
      masked(four.view()));
}

TEST(GemmExtraErrors, Pointers) {
  Array<float, 3> c({2, 3, 5});
  float const* const* const nothing = nullptr;
  auto const refused = [&](auto const& a, auto const& b, Parts parts) {
    expect_error<Error>([&] { gemm(Exec(), a, b, c.view()); }, parts);
  };
  auto const some = reinterpret_cast<float const* const*>(c.view().data());
  auto const fine = matrix_pointers(some, 2, 4, 5);
  refused(matrix_pointers(nothing, 2, 3, 4), fine,
          {"attikos::gemm: the array of pointers of A is null; expected one pointer for each of 2 "
           "matrices"});
  expect_error<ShapeError>([&] { gemm(Exec(), matrix_pointers(some, -2, 3, 4), fine, c.view()); },
                           {"attikos::gemm: A has extent -2 in dimension 0; expected 0 or more"});
  expect_error<ShapeError>([&] { gemm(Exec(), matrix_pointers(some, 3, 3, 4), fine, c.view()); },
                           {"attikos::gemm: A has batch 3; expected 2 as in C",
                            "A is [3, 3, 4] float32 behind pointers"});
  auto const c_pointers = reinterpret_cast<float* const*>(c.view().data());
  expect_error<StrideError>(
      [&] {
        gemm(Exec(), matrix_pointers(some, 2, 3, 4), fine,
             matrix_pointers(c_pointers, 2, 3, 5, 0, 1));
      },
      {"attikos::gemm: output C has stride 0 in dimension 1 of extent 3", "expected distinct"});
  expect_error<StrideError>(
      [&] {
        gemm(Exec(), matrix_pointers(some, 2, 3, 4), fine,
             matrix_pointers(c_pointers, 2, 3, 5, 4, 1));
      },
      {"attikos::gemm: output C has extents [1, 3, 5] and strides [0, 4, 1], so its elements "
       "share"});
  // One array of pointers leads to the same matrices.
  expect_error<Error>(
      [&] {
        gemm(Exec(), matrix_pointers(some, 2, 4, 4), matrix_pointers(some, 2, 4, 4),
             matrix_pointers(c_pointers, 2, 4, 4));
      },
      {"attikos::gemm: output C shares memory with A; expected memory of its own"});
  c.download();
  EXPECT_TRUE(c.unchanged());
}

/// What a specialization sees: every feature has a reason to refuse it.
TEST(GemmExtraErrors, PlainKernelsRefuseEveryExtra) {
  EXPECT_EQ(abi::beyond(abi::GemmArgs{}, abi::plain_gemm_options), nullptr);
  float number = 1;
  std::int32_t integer = 0;
  void const* pointer = &number;
  void* out = &number;
  auto const reason = [&](auto const& change) {
    abi::GemmArgs g{};
    change(g);
    char const* const text = abi::beyond(g, abi::plain_gemm_options);
    return std::string(text == nullptr ? "nothing" : text);
  };
  using G = abi::GemmArgs;
  EXPECT_EQ(reason([&](G& g) { g.scale_a.data = &number; }), "it does not scale A");
  EXPECT_EQ(reason([&](G& g) { g.scale_b.data = &number; }), "it does not scale B");
  EXPECT_EQ(reason([&](G& g) { g.zero_point_a = &integer; }), "it has no zero points");
  EXPECT_EQ(reason([&](G& g) { g.zero_point_b = &integer; }), "it has no zero points");
  EXPECT_EQ(reason([&](G& g) { g.device_scale = &number; }), "it reads no scale from the device");
  EXPECT_EQ(reason([&](G& g) { g.scale_out = &number; }), "it does not quantize its result");
  EXPECT_EQ(reason([&](G& g) { g.pre_activation = out; }), "it does not write the pre-activation");
  EXPECT_EQ(reason([&](G& g) { g.custom_epilogue = true; }),
            "it does not contain the caller's epilogue function");
  EXPECT_EQ(reason([&](G& g) { g.a_pointers = &pointer; }), "it takes no arrays of pointers");
  EXPECT_EQ(reason([&](G& g) { g.b_pointers = &pointer; }), "it takes no arrays of pointers");
  EXPECT_EQ(reason([&](G& g) { g.c_pointers = &out; }), "it takes no arrays of pointers");
  EXPECT_EQ(reason([&](G& g) { g.offsets = &integer; }), "it does not multiply groups of rows");
  EXPECT_EQ(reason([&](G& g) { g.counts = &integer; }),
            "it does not count the rows of each matrix");
  EXPECT_EQ(reason([&](G& g) { g.outer = 2; }), "it does not sum over several products");
}

TEST(GemmBackwardErrors, ShapesAndMissingParts) {
  Array<float, 2> a({3, 4}), b({4, 5}), dout({3, 5}), da({3, 4}), db({4, 5}), wrong({4, 3});
  Array<float, 1> four({4});
  auto const refused = [&]<class E>(std::type_identity<E>, Parts parts, auto const& grad,
                                    auto const& out_a, GemmOptions const& options,
                                    auto const&... extras) {
    expect_error<E>(
        [&] {
          gemm_backward(Exec(), a.view(), b.view(), grad, out_a, db.view(), options, extras...);
        },
        parts);
    db.download();
    EXPECT_TRUE(db.unchanged()) << "a refused call wrote";
  };
  std::type_identity<ShapeError> const shape;
  refused(
      shape,
      {"attikos::gemm_backward: dout has extents [4, 3]; expected [3, 5] from op(A) and op(B). A "
       "is [3, 4] float32, B is [4, 5] float32, dout is [4, 3] float32."},
      wrong.view(), da.view(), {});
  refused(
      shape,
      {"attikos::gemm_backward: da is [4, 3] float32; expected the extents of A, which is [3, 4] "
       "float32"},
      dout.view(), wrong.view(), {});
  refused(shape,
          {"attikos::gemm_backward: bias_gradient has 4 elements; expected 5, one per column of "
           "dout. A"},
          dout.view(), da.view(), {}, bias_gradient(four.view()));
  refused(
      std::type_identity<UnsupportedError>{},
      {"attikos::gemm_backward: activation is gelu but there is no pre_activation(view); expected "
       "what gemm() saved"},
      dout.view(), da.view(), {.activation = Activation::gelu});
  refused(std::type_identity<UnsupportedError>{},
          {"attikos::gemm_backward: kernel \"nothing\" was demanded but is not available"},
          dout.view(), da.view(), {.kernel = "nothing"});
  refused(
      shape,
      {"attikos::gemm_backward: pre_activation is [4, 3] float32; expected the extents of dout."},
      dout.view(), da.view(), {.activation = Activation::gelu}, pre_activation(wrong.view()));
}

TEST(QuantizeErrors, Shapes) {
  Array<float, 2> x({300, 500}), wrong_scale({3, 5});
  Array<E4m3, 2> out({300, 500}), small({300, 499});
  Array<float, 1> one({1}), columns({500});
  Array<float, 2> each({300, 500});
  auto const refused = [&](Parts parts, auto const& target, auto const& scale) {
    expect_error<ShapeError>([&] { quantize(Exec(), x.view(), target.view(), scale.view()); },
                             parts);
    expect_error<ShapeError>(
        [&] { quantize_with_scale(Exec(), x.view(), scale.const_view(), target.view()); },
        {"attikos::quantize_with_scale: "});
    out.download();
    EXPECT_TRUE(out.unchanged());
  };
  std::string const shapes =
      "expected [1] for the tensor, [300] or [300, 1] per row, [1, 500] per column, [300, 4] per "
      "1x128 block, [3, 500] per 128x1 block, [3, 4] per 128x128 block, of x, which is [300, 500] "
      "float32";
  refused({"attikos::quantize: out is [300, 499] float8_e4m3; expected the extents of x, which is "
           "[300, 500] float32"},
          small, one);
  refused({"attikos::quantize: scale is [3, 5] float32; " + shapes}, out, wrong_scale);
  refused({"attikos::quantize: scale is [500] float32; " + shapes}, out, columns);
  refused({"attikos::quantize: scale has one factor for each element; " + shapes}, out, each);
}

TEST(QuantizeErrors, ScalesOfAnotherRank) {
  Array<float, 3> x({2, 3, 5});
  Array<E4m3, 3> out({2, 3, 5});
  Array<float, 1> scale({4});
  expect_error<ShapeError>([&] { quantize(Exec(), x.view(), out.view(), scale.view()); },
                           {"attikos::quantize: scale is [4] float32; expected "});
  expect_error<ShapeError>(
      [&] { quantize_with_scale(Exec(), x.view(), scale.const_view(), out.view()); },
      {"attikos::quantize_with_scale: scale is [4] float32; expected "});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

TEST(QuantizeErrors, ScalesThatOverlap) {
  Array<float, 2> x({3, 5});
  Array<E4m3, 2> out({3, 5});
  Array<float, 2> scale({3, 1});
  using View = typename Array<float, 2>::template ViewOf<float, 2>;
  View const overlapping(scale.view().data(), Kokkos::LayoutStride(3, 0, 1, 1));
  expect_error<StrideError>([&] { quantize(Exec(), x.view(), out.view(), overlapping); },
                            {"attikos::quantize: output scale has stride 0 in dimension 0"});
  out.download();
  EXPECT_TRUE(out.unchanged());
}

}  // namespace
}  // namespace attikos::test
