// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What norms (tests/support/error_norms.hpp) want of attention's values and weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

/// Values of every other feature get a mean: what a wrong scale shows in.
template <class Tensor>
void add_means(Tensor& v) {
  for (std::int64_t b = 0; b < v.extent[0]; ++b)
    for (std::int64_t h = 0; h < v.extent[1]; ++h)
      for (std::int64_t s = 0; s < v.extent[2]; ++s)
        for (std::int64_t c = 1; c < v.extent[3]; c += 2) {
          auto& x = v.at(b, h, s, c);
          x = std::remove_reference_t<decltype(x)>(static_cast<float>(x) + 1);
        }
}

/// Whether weights lie so close together that they may all be rounded the same way, which scales
/// their row; over 64 spacings it is averaged out (tests/support/tolerance_attention.hpp).
inline bool is_narrow(std::vector<std::pair<std::int64_t, double>> const& weights, double unit) {
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (auto const& [j, p] : weights)
    if (p > 0) most = std::max(most, p), least = std::min(least, p);
  return most < (1 + 64 * unit) * least;
}

}  // namespace
