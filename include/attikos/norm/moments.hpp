// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Mean and variance of a row from one pass over it.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Of a row.
template <class Acc, class Sums>
struct Moments {
  Acc mean, variance;
  Acc from_shift;  ///< the mean less the shift that sums are relative to
  Sums sums;       ///< Σ(x − shift), Σ(x − shift)², and what else is summed with them
};

/// How many variances the square of what lies between shift and mean may come to: they cost the
/// variance about two bits, and one row of twenty that are normally distributed is summed again.
inline constexpr int far_shift = 4;

/// Moments of a row of n elements. `first` is one of them; sums(shift) adds up the row. Sums of
/// x − shift are as good as those of x − mean where the shift is near the mean, and there is no
/// mean to wait for before them. A row whose first element is far from it is summed once more.
/// Source: Chan, Golub and LeVeque, "Algorithms for computing the sample variance", The American
/// Statistician 37 (1983).
template <class Acc, class F>
KOKKOS_INLINE_FUNCTION auto moments(Acc first, std::int64_t n, F const& sums) {
  Acc const share = Acc(1) / static_cast<Acc>(n);
  Moments<Acc, decltype(sums(first))> result;
  Acc shift = first;
  for (bool again = false;; again = true) {
    result.sums = sums(shift);
    Acc const from_shift = result.sums.of[0] * share;
    Acc const variance = result.sums.of[1] * share - from_shift * from_shift;
    result.mean = shift + from_shift;
    result.variance = variance < Acc(0) ? Acc(0) : variance;  // NaN stays NaN
    result.from_shift = from_shift;
    if (again || !(from_shift * from_shift > far_shift * variance)) return result;
    shift = result.mean;
  }
}

/// What moments() needs of an element.
struct AddMoments {
  template <class Acc>
  KOKKOS_INLINE_FUNCTION void operator()(Acc x, Acc shift, Acc* sum) const {
    Acc const d = x - shift;
    sum[0] += d;
    sum[1] += d * d;
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
