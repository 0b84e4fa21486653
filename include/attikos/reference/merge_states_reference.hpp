// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of `merge_states`: one row, plain loops, nothing shared with the kernels.
#pragma once

#include <attikos/config.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// One merged row with what an error bound needs to know about it.
struct MergedRow {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
  std::vector<double> weight;    ///< by part: e^(lse of the part - lse); 0 where it saw no key
  std::vector<double> distance;  ///< by part: how far its lse lies below the largest
};

/// lse = log sum e^lses, out = sum e^(lses - lse) outs over the parts with lse > -inf.
/// \param outs `outs(s, c)`, asked only for parts that saw a key
inline MergedRow merge_states_row(std::vector<double> const& lses, std::size_t size,
                                  auto const& outs) {
  double const infinity = std::numeric_limits<double>::infinity();
  MergedRow row;
  row.out.assign(size, 0.0);
  double largest = -infinity;
  for (double l : lses) largest = l > largest ? l : largest;
  double sum = 0;
  for (double l : lses) {
    row.weight.push_back(l == -infinity ? 0.0 : std::exp(l - largest));
    row.distance.push_back(l == -infinity ? 0.0 : largest - l);
    sum += row.weight.back();
  }
  if (sum == 0) return row;
  row.lse = largest + std::log(sum);
  for (std::size_t s = 0; s < lses.size(); ++s) {
    row.weight[s] /= sum;
    if (lses[s] == -infinity) continue;
    for (std::size_t c = 0; c < size; ++c) row.out[c] += row.weight[s] * outs(s, c);
  }
  return row;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
