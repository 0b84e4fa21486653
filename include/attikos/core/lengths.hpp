// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Per-sequence lengths: the wrapper that carries them and the check that reads them.
#pragma once

#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/launch.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Numbers of valid positions per sequence, int32, rank 1. See lengths().
template <class Q, class Kv = Q>
struct Lengths {
  Q q;
  Kv kv;
};

/// Lengths of query and key sequences. Kernels read them on the device and clamp them to [0,
/// seqlen]; validate_lengths() checks them on the host.
template <TensorLike Q, TensorLike Kv>
Lengths<Q, Kv> lengths(Q const& q, Kv const& kv) {
  return {q, kv};
}

/// Lengths of the key sequences alone: every query counts.
template <TensorLike Kv>
Lengths<detail::Absent, Kv> lengths(detail::Absent, Kv const& kv) {
  return {{}, kv};
}

/// One set of lengths for queries and keys alike.
template <TensorLike Q>
Lengths<Q, Q> lengths(Q const& both) {
  return {both, both};
}

namespace detail {

/// Lengths without their static type, or Absent.
template <ExecutionSpace Exec, class T>
AnyTensor any_lengths(T const& view) {
  if constexpr (is_present<T>) {
    check_tensor<Exec, T>();
    static_assert(std::is_same_v<element_t<T>, std::int32_t>, "attikos: lengths are int32_t");
    static_assert(rank_of<T> == 1, "attikos: lengths have rank 1");
  }
  return any_tensor(view);
}

/// A checked lengths argument as pointer and stride.
inline TensorRef<std::int32_t const, 1> lengths_ref(char const* operation, char const* name,
                                                    AnyTensor const& x, std::int64_t expected,
                                                    char const* what) {
  if (x.extent[0] != expected)
    raise<ShapeError>(operation, ": ", name, " has ", x.extent[0], " entries; expected ", expected,
                      ", one per ", what);
  return {x.as<std::int32_t>(), {x.extent[0]}, {x.stride[0]}};
}

/// Finds the first length outside [0, limit]: position as the value to minimize, the length itself
/// beside it.
struct FirstInvalidLength {
  using Found = Kokkos::MinLoc<std::int64_t, std::int32_t>;
  TensorRef<std::int32_t const, 1> values;
  std::int64_t limit;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i, Found::value_type& found) const {
    std::int32_t const value = values(i);
    if ((value < 0 || value > limit) && i < found.val) found = {i, value};
  }
};

/// The check of validate_lengths() without the static type of the lengths.
template <ExecutionSpace Exec>
void validate_any_lengths(Exec const& exec, AnyTensor const& lengths, std::int64_t max_length) {
  auto const ref =
      lengths_ref("validate_lengths", "lengths", lengths, lengths.extent[0], "sequence");
  auto const found =
      find_in("validate_lengths", exec, ref.extent[0], FirstInvalidLength{ref, max_length});
  if (ref.extent[0] > 0 && found.val < ref.extent[0])
    raise<ShapeError>("validate_lengths: length ", found.val, " is ", found.loc,
                      "; expected a number in [0, ", max_length, "]");
}

}  // namespace detail

/// Checks that every length lies in [0, max_length]; throws ShapeError naming the first that does
/// not. This reads device memory: it fences `exec`.
template <ExecutionSpace Exec, TensorLike T>
void validate_lengths(Exec const& exec, T const& view, std::int64_t max_length) {
  detail::validate_any_lengths(exec, detail::any_lengths<Exec>(view), max_length);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
