// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views and mdspans become pointers, extents and strides; what messages say about them.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using detail::to_const_ref;
using detail::to_ref;

template <class Ref>
std::vector<std::int64_t> extents(Ref const& ref) {
  return {ref.extent, ref.extent + Ref::rank};
}
template <class Ref>
std::vector<std::int64_t> strides(Ref const& ref) {
  return {ref.stride, ref.stride + Ref::rank};
}
using Numbers = std::vector<std::int64_t>;

TEST(ToRef, LayoutsBecomeStrides) {
  Kokkos::View<float***, Kokkos::LayoutRight, Exec> const right("right", 2, 3, 5);
  EXPECT_EQ(to_ref(right).data, right.data());
  EXPECT_EQ(extents(to_ref(right)), (Numbers{2, 3, 5}));
  EXPECT_EQ(strides(to_ref(right)), (Numbers{15, 5, 1}));
  Kokkos::View<float***, Kokkos::LayoutLeft, Exec> const left("left", 2, 3, 5);
  EXPECT_EQ(strides(to_ref(left)), (Numbers{1, 2, 6}));
  auto const part = Kokkos::subview(left, 1, Kokkos::ALL, std::pair<int, int>(2, 4));
  EXPECT_EQ(to_ref(part).data, left.data() + 13);
  EXPECT_EQ(extents(to_ref(part)), (Numbers{3, 2}));
  EXPECT_EQ(strides(to_ref(part)), (Numbers{2, 6}));
  Kokkos::View<double* [7], Kokkos::LayoutStride, Exec> const strided(
      nullptr, Kokkos::LayoutStride(4, 100, 7, 3));
  EXPECT_EQ(extents(to_ref(strided)), (Numbers{4, 7}));
  EXPECT_EQ(strides(to_ref(strided)), (Numbers{100, 3}));
}

TEST(HeadsFirst, SwapsStridesAndCopiesNothing) {
  Kokkos::View<float****, Kokkos::LayoutRight, Exec> const tokens("tokens", 2, 5, 3, 8);
  auto const view = heads_first(tokens);
  EXPECT_EQ(view.data(), tokens.data());
  EXPECT_EQ(extents(to_ref(view)), (Numbers{2, 3, 5, 8}));
  EXPECT_EQ(strides(to_ref(view)), (Numbers{120, 8, 24, 1}));
  Kokkos::View<float const****, Kokkos::LayoutRight, Exec> const read_only = tokens;
  EXPECT_TRUE((std::is_same_v<decltype(to_ref(heads_first(read_only)).data), float const*>));
}

TEST(ToRef, StridesAre64Bit) {
  std::size_t const far = std::size_t{1} << 40;
  Kokkos::View<std::int8_t**, Kokkos::LayoutStride, Exec> const view(
      nullptr, Kokkos::LayoutStride(4, far, 7, 1));
  EXPECT_EQ(strides(to_ref(view)), (Numbers{std::int64_t{1} << 40, 1}));
}

TEST(ToRef, ConstStaysConst) {
  Kokkos::View<float**, Exec> const view("view", 2, 3);
  Kokkos::View<float const**, Exec> const constant = view;
  EXPECT_TRUE((std::is_same_v<decltype(to_ref(view)), abi::TensorRef<float, 2>>));
  EXPECT_TRUE((std::is_same_v<decltype(to_ref(constant)), abi::TensorRef<float const, 2>>));
  EXPECT_TRUE((std::is_same_v<decltype(to_const_ref(view)), abi::TensorRef<float const, 2>>));
  EXPECT_EQ(to_const_ref(view).data, view.data());
  EXPECT_EQ(strides(to_const_ref(view)), strides(to_ref(view)));
}

TEST(ToRef, MdspanOfAnyKind) {
  std::vector<float> data(60);
  Kokkos::mdspan<float, Kokkos::extents<int, 2, Kokkos::dynamic_extent, 5>> const right(data.data(),
                                                                                        3);
  EXPECT_EQ(to_ref(right).data, data.data());
  EXPECT_EQ(extents(to_ref(right)), (Numbers{2, 3, 5}));
  EXPECT_EQ(strides(to_ref(right)), (Numbers{15, 5, 1}));
  Kokkos::mdspan<float const, Kokkos::dextents<std::uint64_t, 2>, Kokkos::layout_left> const left(
      data.data(), 6, 10);
  EXPECT_EQ(strides(to_ref(left)), (Numbers{1, 6}));
  using Strided = Kokkos::mdspan<float, Kokkos::dextents<int, 2>, Kokkos::layout_stride>;
  Strided const strided(data.data(), Strided::mapping_type(Kokkos::dextents<int, 2>(2, 3),
                                                           std::array<int, 2>{20, 4}));
  EXPECT_EQ(strides(to_ref(strided)), (Numbers{20, 4}));
}

TEST(ToRef, ElementsAreAddressedByStrides) {
  std::vector<int> data{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  abi::TensorRef<int, 2> const ref{data.data(), {3, 2}, {4, 2}};
  EXPECT_EQ(ref(0, 0), 0);
  EXPECT_EQ(ref(2, 1), 10);
  EXPECT_EQ(ref.ptr(1, 1), data.data() + 6);
  EXPECT_EQ(ref.size(), 6);
  EXPECT_EQ((abi::TensorRef<int, 2>{nullptr, {0, 2}, {4, 2}}.size()), 0);
}

TEST(Elements, ForeignHalfTypesAreOurs) {
  if constexpr (sizeof(Kokkos::Experimental::half_t) == 2) {
    EXPECT_TRUE(
        (std::is_same_v<element_t<Kokkos::View<Kokkos::Experimental::half_t const**>>, float16>));
    EXPECT_TRUE(
        (std::is_same_v<element_t<Kokkos::View<Kokkos::Experimental::bhalf_t**>>, bfloat16>));
  } else {
    // An alias of float is float.
    EXPECT_TRUE((std::is_same_v<element_t<Kokkos::View<float**>>, float>));
  }
#if defined(KOKKOS_ENABLE_CUDA)
  EXPECT_TRUE((std::is_same_v<element_t<Kokkos::View<__half**>>, float16>));
  EXPECT_TRUE((std::is_same_v<element_t<Kokkos::View<__nv_bfloat16**>>, bfloat16>));
#endif
  EXPECT_TRUE((std::is_same_v<element_t<Kokkos::View<std::int8_t const*>>, std::int8_t>));
}

TEST(Describe, NamesExtentsAndType) {
  Kokkos::View<bfloat16**, Exec> const view("view", 128, 256);
  EXPECT_EQ(detail::describe(to_ref(view)), "[128, 256] bfloat16");
  EXPECT_EQ(detail::describe(to_const_ref(Kokkos::View<std::int32_t*, Exec>("view", 0))),
            "[0] int32");
}

TEST(Label, IsOperationAndKernel) {
  EXPECT_EQ(detail::label("gemm", "portable"), "attikos::gemm[portable]");
}

}  // namespace
}  // namespace attikos::test
