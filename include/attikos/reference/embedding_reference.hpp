// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of `embedding_backward`: plain loops, nothing shared with the kernels.
#pragma once

#include <attikos/config.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// Of one column of the gradient at each row of the table: the sum, that of the magnitudes, and the
/// number of terms.
struct EmbeddingGradient {
  double sum = 0, magnitude = 0;
  std::int64_t terms = 0;
};

/// ids_i goes with dout_i. An id that is outside, or the padding, adds nothing.
inline std::vector<EmbeddingGradient> embedding_gradient_column(
    std::vector<std::int64_t> const& ids, std::vector<double> const& dout, std::int64_t rows,
    std::int64_t padding_index) {
  std::vector<EmbeddingGradient> result(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= rows || ids[i] == padding_index) continue;
    EmbeddingGradient& g = result[static_cast<std::size_t>(ids[i])];
    g.sum += dout[i];
    g.magnitude += std::abs(dout[i]);
    ++g.terms;
  }
  return result;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
