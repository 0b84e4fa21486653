// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tensors without their static types, so that the checks of a call are compiled once and not once
/// for every combination of Views.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/error.hpp>
#include <attikos/core/extras.hpp>
#include <cstdint>
#include <string>
#include <utility>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

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

/// A strided tensor whose element type and rank are values. Rank 0 means that there is none.
struct AnyTensor {
  static constexpr int max_rank = 5;
  void const* data = nullptr;
  DType type = DType::float32;
  int rank = 0;
  std::int64_t extent[max_rank] = {}, stride[max_rank] = {};

  bool given() const { return rank != 0; }
  /// The elements, which an output may write.
  void* output() const { return const_cast<void*>(data); }
  template <class T>
  T const* as() const {
    return static_cast<T const*>(data);
  }
  /// The tensor with that many dimensions: those it lacks are added in front, with extent 1.
  AnyTensor with_rank(int wanted) const {
    AnyTensor x = *this;
    int const missing = wanted - rank;
    for (int r = wanted - 1; r >= 0; --r) {
      x.extent[r] = r < missing ? 1 : extent[r - missing];
      x.stride[r] = r < missing ? 0 : stride[r - missing];
    }
    x.rank = wanted;
    return x;
  }
};

/// "[2, 8, 128, 64]"
inline std::string describe_extents(AnyTensor const& x) {
  std::string text = "[";
  for (int r = 0; r < x.rank; ++r) text += (r == 0 ? "" : ", ") + std::to_string(x.extent[r]);
  return text + "]";
}

/// "[2, 8, 128, 64] float16", the way messages show a tensor.
inline std::string describe(AnyTensor const& x) {
  return describe_extents(x) + " " + dtype_name(x.type);
}

/// The tensor without its static type. A bool counts as uint8.
template <TensorLike T>
AnyTensor any_tensor(T const& tensor) {
  using Storage = std::remove_cv_t<typename StorageOf<std::remove_cvref_t<T>>::type>;
  static_assert(rank_of<T> >= 1 && rank_of<T> <= AnyTensor::max_rank,
                "attikos: tensors have rank 1 to 5");
  AnyTensor any;
  any.data = data_of(tensor);
  if constexpr (std::is_same_v<Storage, bool>) {
    any.type = DType::uint8;
  } else {
    any.type = dtype_of<element_t<T>>;
  }
  any.rank = rank_of<T>;
  [&]<int... R>(std::integer_sequence<int, R...>) {
    ((any.extent[R] = extent_of(tensor, R), any.stride[R] = stride_of(tensor, R)), ...);
  }
  (std::make_integer_sequence<int, rank_of<T>>{});
  return any;
}

/// The same of an optional argument.
inline AnyTensor any_tensor(Absent) { return {}; }

/// Extents of an mdspan are signed where its index type is; a negative one is refused.
inline void check_extents(char const* operation, char const* name, AnyTensor const& x) {
  for (int r = 0; r < x.rank; ++r) {
    if (x.extent[r] < 0)
      raise<ShapeError>(operation, ": ", name, " has extent ", x.extent[r], " in dimension ", r,
                        "; expected 0 or more");
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
