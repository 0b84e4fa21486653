// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tensors in memory as Views, for operations that call others.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/abi/tensor_ref.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A tensor in memory as an unmanaged View of any strides.
template <class Exec, class T, int Rank>
auto view_of(abi::TensorRef<T, Rank> const& x) {
  static_assert(Rank >= 1 && Rank <= 3);
  using Data = std::conditional_t<Rank == 1, T*, std::conditional_t<Rank == 2, T**, T***>>;
  Kokkos::LayoutStride layout;
  for (int r = 0; r < Rank; ++r) {
    layout.dimension[r] = static_cast<std::size_t>(x.extent[r]);
    layout.stride[r] = static_cast<std::size_t>(x.stride[r]);
  }
  return Kokkos::View<Data, Kokkos::LayoutStride, Kokkos::Device<Exec, typename Exec::memory_space>,
                      Kokkos::MemoryTraits<Kokkos::Unmanaged>>(x.data, layout);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
