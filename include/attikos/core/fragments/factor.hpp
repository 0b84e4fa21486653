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

/// Where a sum that a lane holds lies in a block of C, and the number of its row among those of
/// which the lane holds sums.
struct SumPosition {
  int row, col, held;
};

/// Calls each(position, sum) for every sum of a block that lane `lane` holds.
template <class F, class SumsOfLane, class Each>
KOKKOS_INLINE_FUNCTION void for_each_sum(SumsOfLane& sums, int lane, Each const& each) {
  ATTIKOS_UNROLL_DEVICE
  for (int n = 0; n < F::held_sums; ++n) each(F::position_of(lane, n), F::at(sums, n));
}

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
