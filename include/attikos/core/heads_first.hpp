// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Presenting token-major tensors in the order that attention() takes.
#pragma once

#include <attikos/core/concepts.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// A [batch, seqlen, heads, head_dim] View as [batch, heads, seqlen, head_dim]: same memory, other
/// strides, no copy.
///
/// The result is unmanaged and lives no longer than the View it was made from.
template <KokkosView T>
requires(rank_of<T> == 4) auto heads_first(T const& view) {
  using View = std::remove_cvref_t<T>;
  using Element = typename View::value_type;
  using Result = Kokkos::View<Element****, Kokkos::LayoutStride, typename View::device_type,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  return Result(view.data(), Kokkos::LayoutStride(view.extent(0), view.stride(0), view.extent(2),
                                                  view.stride(2), view.extent(1), view.stride(1),
                                                  view.extent(3), view.stride(3)));
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
