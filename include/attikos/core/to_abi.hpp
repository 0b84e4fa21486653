// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Views and mdspans become pointers, extents and strides; checks that every operation shares.
#pragma once

#include <attikos/abi/tensor_ref.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/error.hpp>
#include <cstdint>
#include <string>
#include <utility>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

using abi::TensorRef;

/// Extent of one dimension as a signed 64-bit number.
template <TensorLike T>
std::int64_t extent_of(T const& tensor, int dimension) {
  if constexpr (KokkosView<T>) {
    return static_cast<std::int64_t>(tensor.extent(static_cast<std::size_t>(dimension)));
  } else {
    return static_cast<std::int64_t>(
        tensor.extent(static_cast<typename std::remove_cvref_t<T>::rank_type>(dimension)));
  }
}

/// Stride of one dimension in elements.
template <TensorLike T>
std::int64_t stride_of(T const& tensor, int dimension) {
  if constexpr (KokkosView<T>) {
    return static_cast<std::int64_t>(tensor.stride(static_cast<std::size_t>(dimension)));
  } else {
    return static_cast<std::int64_t>(tensor.mapping().stride(
        static_cast<typename std::remove_cvref_t<T>::rank_type>(dimension)));
  }
}

template <TensorLike T>
auto* data_of(T const& tensor) {
  if constexpr (KokkosView<T>) {
    return tensor.data();
  } else {
    return tensor.data_handle();
  }
}

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

/// The same tensor with read-only elements.
template <TensorLike T>
auto to_const_ref(T const& tensor) {
  auto const ref = to_ref(tensor);
  TensorRef<element_t<T> const, rank_of<T>> result{};
  result.data = ref.data;
  for (int r = 0; r < rank_of<T>; ++r) {
    result.extent[r] = ref.extent[r];
    result.stride[r] = ref.stride[r];
  }
  return result;
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

/// An output must be writable and must not lay two of its elements on one address by a zero stride.
/// Views of no elements may carry any stride.
template <ExecutionSpace Exec, TensorLike T>
void check_output(char const* operation, char const* name, T const& tensor) {
  check_tensor<Exec, T>();
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(data_of(tensor))>>,
                "attikos: an output View must not be const");
  auto const ref = to_ref(tensor);
  for (int r = 0; r < rank_of<T>; ++r)
    if (ref.extent[r] == 0) return;
  for (int r = 0; r < rank_of<T>; ++r) {
    if (ref.extent[r] > 1 && ref.stride[r] == 0)
      raise<StrideError>(operation, ": output ", name, " has stride 0 in dimension ", r,
                         " of extent ", ref.extent[r],
                         ", so its elements share memory; expected distinct elements");
  }
}

/// Extents of an mdspan are signed where its index type is; a negative one is refused.
template <TensorLike T>
void check_extents(char const* operation, char const* name, T const& tensor) {
  auto const ref = to_ref(tensor);
  for (int r = 0; r < rank_of<T>; ++r) {
    if (ref.extent[r] < 0)
      raise<ShapeError>(operation, ": ", name, " has extent ", ref.extent[r], " in dimension ", r,
                        "; expected 0 or more");
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
