// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Views and mdspans become pointers, extents and strides; checks that every operation shares.
#pragma once

#include <attikos/abi/tensor_ref.hpp>
#include <attikos/core/overlap.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

using abi::TensorRef;

/// The tensor as kernels see it: element type of Attikos's own, const exactly where the input was.
template <TensorLike T>
auto to_ref(T const& tensor) {
  using Storage = std::remove_pointer_t<decltype(data_of(tensor))>;
  using Element = std::conditional_t<std::is_const_v<Storage>, element_t<T> const, element_t<T>>;
  TensorRef<Element, rank_of<T>> ref{};
  ref.data = reinterpret_cast<Element*>(data_of(tensor));
  // Constant dimensions: with a loop the compiler warns of subscripts past the tensor's rank.
  [&]<int... R>(std::integer_sequence<int, R...>) {
    ((ref.extent[R] = extent_of(tensor, R), ref.stride[R] = stride_of(tensor, R)), ...);
  }
  (std::make_integer_sequence<int, rank_of<T>>{});
  return ref;
}

/// The same tensor, to be read.
template <class T, int Rank>
TensorRef<T const, Rank> as_const(TensorRef<T, Rank> const& x) {
  TensorRef<T const, Rank> result{};
  result.data = x.data;
  for (int r = 0; r < Rank; ++r) {
    result.extent[r] = x.extent[r];
    result.stride[r] = x.stride[r];
  }
  return result;
}

/// The same tensor with read-only elements.
template <TensorLike T>
auto to_const_ref(T const& tensor) {
  return as_const(to_ref(tensor));
}

/// The tensor without its static type.
template <class T, int Rank>
AnyTensor any_tensor(TensorRef<T, Rank> const& ref) {
  AnyTensor any;
  any.data = ref.data;
  any.type = dtype_of<std::remove_const_t<T>>;
  any.rank = Rank;
  for (int r = 0; r < Rank; ++r) {
    any.extent[r] = ref.extent[r];
    any.stride[r] = ref.stride[r];
  }
  return any;
}

/// A tensor of which the element type is known after all, its rank raised by leading extents of 1.
template <class T, int Rank>
TensorRef<T, Rank> ref_of(AnyTensor const& x) {
  AnyTensor const y = x.with_rank(Rank);
  TensorRef<T, Rank> ref{};
  ref.data = static_cast<T*>(y.output());
  for (int r = 0; r < Rank; ++r) {
    ref.extent[r] = y.extent[r];
    ref.stride[r] = y.stride[r];
  }
  return ref;
}

/// "[2, 8, 128, 64]"
template <class T, int Rank>
std::string describe_extents(TensorRef<T, Rank> const& ref) {
  std::string text = "[";
  for (int r = 0; r < Rank; ++r) text += (r == 0 ? "" : ", ") + std::to_string(ref.extent[r]);
  return text + "]";
}

/// "[2, 8, 128, 64] float16", the way messages show a tensor.
template <class T, int Rank>
std::string describe(TensorRef<T, Rank> const& ref) {
  return describe_extents(ref) + " " + dtype_name(dtype_of<T>);
}

/// Compile-time checks on one argument: an element type Attikos knows, and memory that the space
/// can reach.
template <ExecutionSpace Exec, TensorLike T>
constexpr void check_tensor() {
  static_assert(ElementTraits<element_t<T>>::is_element,
                "attikos: element type is none of double, float, float16, bfloat16, float8_e4m3, "
                "float8_e5m2, int8_t, "
                "uint8_t, int32_t, int64_t");
  static_assert(
      is_accessible<Exec, T>(),
      "attikos: the View's memory space cannot be reached from the execution space; copy it first");
}

/// An output must not be a tensor of const elements.
template <TensorLike T>
constexpr void check_writable(T const&) {
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(data_of(std::declval<T>()))>>,
                "attikos: an output View must not be const");
}

/// The same as check_tensor() of an output, which must be writable. check_outputs() does the rest.
template <ExecutionSpace Exec, TensorLike T>
constexpr void check_output(T const& tensor) {
  check_tensor<Exec, T>();
  check_writable(tensor);
}

/// Extents of an mdspan are signed where its index type is; a negative one is refused.
template <TensorLike T>
void check_extents(char const* operation, char const* name, T const& tensor) {
  check_extents(operation, name, any_tensor(tensor));
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
