// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the public functions take: execution space instances and strided tensors.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/dtypes.hpp>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// A Kokkos execution space instance.
template <class T>
concept ExecutionSpace = Kokkos::is_execution_space_v<std::remove_cvref_t<T>>;

/// A Kokkos::View of any layout, memory space and memory traits, of values (not of Views).
template <class T>
concept KokkosView = Kokkos::is_view_v<std::remove_cvref_t<T>>;

/// An mdspan of any extents and any strided layout, std's or the one Kokkos brings. Its accessor
/// must hand out plain references: one that scales or conjugates would be passed over.
template <class T>
concept Mdspan = requires(std::remove_cvref_t<T> const& m) {
  typename std::remove_cvref_t<T>::element_type;
  typename std::remove_cvref_t<T>::accessor_type;
  requires std::same_as < typename std::remove_cvref_t<T>::data_handle_type,
  typename std::remove_cvref_t<T>::element_type* > ;
  requires std::same_as < typename std::remove_cvref_t<T>::reference,
  typename std::remove_cvref_t<T>::element_type& > ;
  m.data_handle();
  { std::remove_cvref_t<T>::rank() } -> std::convertible_to<std::size_t>;
  m.extent(0);
  m.mapping().stride(0);
};

/// Whatever Attikos accepts as a tensor.
template <class T>
concept TensorLike = KokkosView<T> || Mdspan<T>;

namespace detail {

/// The Attikos element type stored in memory as `Storage`: itself, or the type another library
/// calls by another name.
template <class Storage>
struct ElementOf {
  using type = Storage;
};

/// A foreign half type counts only while it really occupies two bytes.
template <class Foreign, class Element>
struct ForeignHalf {
  static_assert(sizeof(Foreign) == 2,
                "attikos: this half type is not 2 bytes wide (Kokkos fell back to float); use "
                "attikos::float16 or "
                "attikos::bfloat16 instead");
  using type = Element;
};

// Where Kokkos has no half of its own, half_t is the very type float and a View of it is a float
// View.
struct NoHalf {
  std::uint16_t bits;
};
struct NoBhalf {
  std::uint16_t bits;
};
using KokkosHalf = std::conditional_t<std::is_same_v<Kokkos::Experimental::half_t, float>, NoHalf,
                                      Kokkos::Experimental::half_t>;
using KokkosBhalf = std::conditional_t<std::is_same_v<Kokkos::Experimental::bhalf_t, float>,
                                       NoBhalf, Kokkos::Experimental::bhalf_t>;

template <>
struct ElementOf<KokkosHalf> : ForeignHalf<KokkosHalf, float16> {};
template <>
struct ElementOf<KokkosBhalf> : ForeignHalf<KokkosBhalf, bfloat16> {};
#if defined(KOKKOS_ENABLE_CUDA)
template <>
struct ElementOf<__half> : ForeignHalf<__half, float16> {};
template <>
struct ElementOf<__nv_bfloat16> : ForeignHalf<__nv_bfloat16, bfloat16> {};
#endif

template <class T>
struct StorageOf {
  using type = typename std::remove_cvref_t<T>::element_type;
};
template <KokkosView T>
struct StorageOf<T> {
  using type = typename std::remove_cvref_t<T>::value_type;
};

}  // namespace detail

/// Attikos element type of a tensor, without const: `element_t<View<const float**>>` is float.
template <TensorLike T>
using element_t =
    typename detail::ElementOf<std::remove_cv_t<typename detail::StorageOf<T>::type>>::type;

/// Number of dimensions of a tensor.
template <TensorLike T>
inline constexpr int rank_of = static_cast<int>(std::remove_cvref_t<T>::rank());

/// Whether kernels on `Exec` may dereference the tensor's memory. An mdspan does not say; its owner
/// answers for it.
template <ExecutionSpace Exec, TensorLike T>
constexpr bool is_accessible() {
  if constexpr (KokkosView<T>) {
    return Kokkos::SpaceAccessibility<Exec,
                                      typename std::remove_cvref_t<T>::memory_space>::accessible;
  } else {
    return true;
  }
}

/// True where kernels run on the processor that launches them, one thread to a team.
template <ExecutionSpace Exec>
inline constexpr bool is_host_space =
    std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;

namespace detail {

/// How many threads an instance has. Where Kokkos's function is static, as Kokkos 4 has OpenMP's,
/// exec.concurrency() would make a default instance, which costs memory, and speak of that one.
template <class Exec>
int concurrency_of(Exec const& exec) {
  if constexpr (requires { Exec::concurrency(exec); }) {
    return Exec::concurrency(exec);
  } else {
    return exec.concurrency();
  }
}
/// Multiprocessors of a device, at least one: Kokkos counts 2048 threads for each.
template <class Exec>
int multiprocessors_of(Exec const& exec) {
  int const count = concurrency_of(exec) / 2048;
  return count > 0 ? count : 1;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
