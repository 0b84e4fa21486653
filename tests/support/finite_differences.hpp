// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Central finite differences in float64: the oracles of gradients against the oracles of the
// functions that they are gradients of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "comparison.hpp"
#include "random.hpp"

namespace attikos::test {

inline std::vector<double> random_values(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<double> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(random.uniform(-1, 1));
  return result;
}

/// Sum of g out.
inline double dot(std::vector<double> const& g, std::vector<double> const& out) {
  double sum = 0;
  for (std::size_t i = 0; i < g.size(); ++i) sum += g[i] * out[i];
  return sum;
}
/// Sum of |g out|.
inline double dot_size(std::vector<double> const& g, std::vector<double> const& out) {
  double sum = 0;
  for (std::size_t i = 0; i < g.size(); ++i) sum += std::abs(g[i] * out[i]);
  return sum;
}

/// Compares `gradient` with central differences of `loss(x)`, coordinate by coordinate, and prints
/// the largest difference.
///
/// D(h) = (loss(x + h) - loss(x - h))/(2h) has a truncation error of h^2 f'''/6 + O(h^4), of which
/// D(2h) - D(h) is three times; and a rounding error of the two sums of `terms` terms over 2h, with
/// `magnitude` >= the sum of the absolute values of the terms, and of x + h itself. The bound is
/// |D(2h) - D(h)| and the roundings of D(h) and of that difference. h = 2^-17 balances the two for
/// functions of size 1.
template <class Loss>
void expect_gradient(std::string const& name, std::vector<double> const& x,
                     std::vector<double> const& gradient, double terms, double magnitude,
                     Loss const& loss) {
  constexpr double h = 0x1p-17, u = 0x1p-53;
  Comparison comparison("finite differences/" + name, "gradient of the oracle");
  double largest = 0, scale = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto const difference = [&](double step) {
      std::vector<double> above = x, below = x;
      above[i] += step;
      below[i] -= step;
      return (loss(above) - loss(below)) / (2 * step);
    };
    double const near = difference(h), far = difference(2 * h);
    double const rounding = (terms + 8) * u * magnitude + u * std::abs(x[i] * gradient[i]);
    comparison.add(near, gradient[i], std::abs(far - near) + 3 * rounding / h,
                   {static_cast<std::int64_t>(i)});
    largest = std::max(largest, std::abs(near - gradient[i]));
    scale = std::max(scale, std::abs(gradient[i]));
  }
  std::printf("finite differences: %-28s largest difference %.2e, largest gradient %.2e\n",
              name.c_str(), largest, scale);
}

}  // namespace attikos::test
