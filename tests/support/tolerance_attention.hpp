// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the error of attention is made of, for norms; see error_norms.hpp and tolerance.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "tolerance.hpp"

namespace attikos::test {

/// The parts of AttentionBound<T>::out(c, v), of which `unrounded` is the bound of kernels that
/// keep weights as they are.
///
/// Weights that are rounded to T are off by a relative δ_j each, |δ_j| <= u_T: Σ_j p_j δ_j v_jc has
/// the variance u_T²/3 Σ_j p_j² v_jc². It is shared: the same δ_j go into all features of a row.
/// They are independent unless the weights lie so close together that they are rounded the same
/// way. A mean of them scales all of a row, u_T |out_c|; it is averaged out where weights spread
/// over many spacings, here from 64 u_T on (the mean of the rounding errors of numbers that spread
/// over more than one spacing decays exponentially; Widrow, Kollar, Quantization Noise, 2008, ch.
/// 5).
template <class T, class Column>
ErrorParts attention_parts(reference::AttentionRow const& row, AttentionBound<T> const& unrounded,
                           std::size_t c, Column const& v, bool rounded_weights) {
  double const u = precision<T>().roundoff;
  ErrorParts parts = stored_parts(row.out[c], unrounded.out(c, v), u, precision<T>().smallest);
  if (!rounded_weights) return parts;
  double most = 0, least = std::numeric_limits<double>::infinity(), largest_v = 0;
  for (std::size_t j = 0; j < row.probability.size(); ++j) {
    double const p = row.probability[j];
    if (p == 0) continue;
    double const value = v(static_cast<std::int64_t>(j));
    parts.shared += u * u / 3 * p * p * value * value;
    most = std::max(most, p), least = std::min(least, p);
    largest_v = std::max(largest_v, std::abs(value));
  }
  auto const n = static_cast<double>(row.probability.size());
  parts.steady += n / 2 * precision<T>().smallest * largest_v;
  if (most < (1 + 64 * u) * least) parts.steady += u * std::abs(row.out[c]);
  return parts;
}

}  // namespace attikos::test
