// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Non-owning strided tensors: what every View and mdspan becomes before a kernel sees it.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// Pointer, extents and strides of a tensor of static element type `T` (const for an input).
///
/// Strides count elements, are 64-bit, and may be 0 (broadcast). A dimension of extent 1 may carry
/// any stride. Layout is a run-time value here, so that a kernel is compiled once per element type
/// and not once per layout.
template <class T, int Rank>
struct TensorRef {
  static constexpr int rank = Rank;

  T* data;
  std::int64_t extent[Rank];
  std::int64_t stride[Rank];

  /// Address of the element at the given indices, one per dimension.
  template <class... Index>
  ATTIKOS_HD constexpr T* ptr(Index... index) const {
    static_assert(sizeof...(Index) == Rank, "one index per dimension");
    std::int64_t const i[Rank] = {static_cast<std::int64_t>(index)...};
    std::int64_t offset = 0;
    for (int r = 0; r < Rank; ++r) offset += i[r] * stride[r];
    return data + offset;
  }

  /// The element at the given indices, one per dimension.
  template <class... Index>
  ATTIKOS_HD constexpr T& operator()(Index... index) const {
    return *ptr(index...);
  }

  /// Number of elements.
  ATTIKOS_HD constexpr std::int64_t size() const {
    std::int64_t n = 1;
    for (int r = 0; r < Rank; ++r) n *= extent[r];
    return n;
  }
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
