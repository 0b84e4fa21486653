// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What fragments of all kinds are made with (fragments.hpp).
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/config.hpp>
#include <attikos/core/fragments/unroll.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Strides of a factor in scratch, in elements: along k, and along rows of A or columns of B.
struct FactorPlace {
  int mn, k;
};

/// Joins numbers of `Lanes` neighboring lanes, a power of two: all of them get the same. A host,
/// where lanes come one after the other, has none to join.
template <class Join, int Lanes, class T, int Count>
KOKKOS_INLINE_FUNCTION void join_neighbors([[maybe_unused]] T (&numbers)[Count]) {
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int apart = 1; apart < Lanes; apart *= 2)
#pragma unroll
    for (int i = 0; i < Count; ++i)
      numbers[i] = Join::join(numbers[i], __shfl_xor_sync(~0u, numbers[i], apart));
#endif
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
