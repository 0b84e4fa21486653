// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Order statistics of measured times.
#pragma once

#include <algorithm>
#include <attikos/core/error.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace perf {

/// The value below which the given share of the values lies, interpolated linearly between the two
/// nearest order statistics: with n sorted values, that at position share·(n − 1).
///
/// Throws Error if there are no values, if one is NaN, or if share is outside [0, 1].
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) attikos::detail::raise<Error>("perf::quantile: there are no values");
  if (!(share >= 0 && share <= 1))
    attikos::detail::raise<Error>("perf::quantile: share is ", share, "; expected 0 to 1");
  if (std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); }))
    attikos::detail::raise<Error>("perf::quantile: a value is NaN");
  std::sort(values.begin(), values.end());
  double const place = share * static_cast<double>(values.size() - 1);
  auto const below = static_cast<std::size_t>(place);
  double const part = place - static_cast<double>(below);
  if (part == 0 || values[below] == values[below + 1]) return values[below];
  return values[below] + part * (values[below + 1] - values[below]);
}

/// quantile(values, 1/2).
inline double median(std::vector<double> const& values) { return quantile(values, 0.5); }

}  // namespace perf
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
