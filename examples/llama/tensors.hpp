// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Memory of the default execution space, and tensors that are parts of it.
#pragma once

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace llama {

using Exec = Kokkos::DefaultExecutionSpace;

/// Memory that somebody owns.
template <class T>
using Array = Kokkos::View<T*, Exec>;
/// Parts of it, row after row.
template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, Exec, Kokkos::MemoryUnmanaged>;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Exec, Kokkos::MemoryUnmanaged>;
/// Some heads of a matrix whose rows are tokens, as [batch, heads, length, head_dim]: strides over
/// the same memory, nothing is transposed.
template <class T>
using Heads = Kokkos::View<T****, Kokkos::LayoutStride, Exec, Kokkos::MemoryUnmanaged>;
/// A cache, [pages, heads, positions of a page, head_dim].
template <class T>
using Pages = Kokkos::View<T****, Kokkos::LayoutRight, Exec, Kokkos::MemoryUnmanaged>;
/// log-sum-exp of attention, [batch, heads, length].
template <class State>
using Lse = Kokkos::View<State***, Kokkos::LayoutRight, Exec, Kokkos::MemoryUnmanaged>;

using Tokens = Vector<std::int32_t>;
using Bytes = Vector<unsigned char>;

/// What sums, losses, moments and master weights are kept in.
template <class T>
using StateOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// An array whose elements nobody has written yet.
template <class T>
Array<T> allocate(std::string const& label, std::size_t size) {
  return Array<T>(Kokkos::view_alloc(Kokkos::WithoutInitializing, label), size);
}

/// Cuts an array into tensors that begin at multiples of 64 elements, so that all kernels take
/// them. Without memory it finds out how much they want.
template <class T>
class Cutter {
 public:
  explicit Cutter(T* memory = nullptr) : memory_(memory) {}

  template <class View, class... Extents>
  View take(Extents... extents) {
    std::size_t const at = used_;
    used_ += ((extents * ...) + 63) / 64 * 64;
    return View(memory_ == nullptr ? nullptr : memory_ + at, extents...);
  }
  Matrix<T> matrix(std::size_t rows, std::size_t cols) { return take<Matrix<T>>(rows, cols); }
  std::size_t used() const { return used_; }

 private:
  T* memory_;
  std::size_t used_ = 0;
};

/// The first `count` rows.
template <class T>
Matrix<T> first_rows(Matrix<T> const& x, std::size_t count) {
  return Matrix<T>(x.data(), count, x.extent(1));
}

/// `count` heads of a matrix of `batch` sequences, one behind the other, from head `first` on.
template <class T>
Heads<T> heads(Matrix<T> const& rows, std::size_t batch, std::size_t head_dim, std::size_t first,
               std::size_t count) {
  std::size_t const width = rows.extent(1), length = rows.extent(0) / batch;
  return Heads<T>(
      rows.data() + first * head_dim,
      Kokkos::LayoutStride(batch, length * width, count, head_dim, length, width, head_dim, 1));
}

}  // namespace llama
