// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A straight line through times, for the measuring command.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace attikos_plan {

struct Line {
  double constant, slope;
};

/// The line y = constant + slope·x whose relative errors have the least sum of squares, neither
/// number negative: a measured time is as far off as it is long. \param points (x, y), y > 0
inline Line fit(std::vector<std::pair<double, double>> const& points) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (auto const& [x, y] : points) {
    double const weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  double const determinant = w * wxx - wx * wx;
  Line line{0, 0};
  if (determinant > 0) {
    line.slope = (w * wxy - wx * wy) / determinant;
    line.constant = (wy - line.slope * wx) / w;
  }
  if (line.constant < 0 || !(determinant > 0)) line = {0, wxx > 0 ? wxy / wxx : 0};
  if (line.slope < 0) line = {w > 0 ? wy / w : 0, 0};
  return line;
}

}  // namespace attikos_plan
