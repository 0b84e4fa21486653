// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tensors where the default execution space computes, and the way there and back.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/dtypes.hpp>
#include <cstddef>
#include <string>
#include <vector>

namespace transformer_block {

/// Memory of the default execution space, row after row.
using Exec = Kokkos::DefaultExecutionSpace;
template <class Data>
using Tensor = Kokkos::View<Data, Kokkos::LayoutRight, Exec>;
/// A part of a Tensor.
template <class Data>
using Part = Kokkos::View<Data, Kokkos::LayoutRight, Exec, Kokkos::MemoryUnmanaged>;

/// A tensor whose elements nobody has written yet.
template <class Data, class... Extents>
Tensor<Data> allocate(std::string const& label, Extents... extents) {
  return Tensor<Data>(Kokkos::view_alloc(Kokkos::WithoutInitializing, label),
                      static_cast<std::size_t>(extents)...);
}

/// Fills `view` with `values`, row after row, rounded to its element type.
template <class View, class Value>
void to_device(View const& view, std::vector<Value> const& values) {
  using Element = typename View::non_const_value_type;
  auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), view);
  for (std::size_t i = 0; i < values.size(); ++i) host.data()[i] = static_cast<Element>(values[i]);
  Kokkos::deep_copy(view, host);
}

/// The elements of `view`, row after row, as `Value`.
template <class Value, class View>
std::vector<Value> to_host(View const& view) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  std::vector<Value> values(host.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Value>(host.data()[i]);
  return values;
}

}  // namespace transformer_block
