// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of `attention`: one query row at a time, plain loops, nothing shared with the
/// kernels.
#pragma once

#include <algorithm>
#include <attikos/config.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// One row of the output with what an error bound needs to know about it.
struct AttentionRow {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
  std::vector<double> probability;      ///< by visible key
  std::vector<double> score_magnitude;  ///< |scale| sum |q| |k|, by visible key
};

/// How many keys row i sees: keys [0, result). A padded row (i >= len_q) sees none.
inline std::int64_t visible_keys(std::int64_t i, std::int64_t len_q, std::int64_t len_kv,
                                 bool causal, bool top_left) {
  if (i >= len_q) return 0;
  if (!causal) return len_kv;
  std::int64_t const offset = top_left ? 0 : len_kv - len_q;
  return std::clamp<std::int64_t>(i + offset + 1, 0, len_kv);
}

/// out = sum_j softmax(scale q . k_j) v_j over the visible keys; nothing visible gives 0 and -inf.
/// \param q `q(c)` for c in [0, head_dim)
/// \param k `k(j, c)`
/// \param v `v(j, c)` for c in [0, head_dim_v)
template <class Query, class Key, class Value>
AttentionRow attention_row(std::int64_t visible, std::int64_t head_dim, std::int64_t head_dim_v,
                           double scale, Query const& q, Key const& k, Value const& v) {
  AttentionRow row;
  row.out.assign(static_cast<std::size_t>(head_dim_v), 0.0);
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < visible; ++j) {
    double score = 0;
    double magnitude = 0;
    for (std::int64_t c = 0; c < head_dim; ++c) {
      score += q(c) * k(j, c);
      magnitude += std::abs(q(c) * k(j, c));
    }
    row.probability.push_back(scale * score);
    row.score_magnitude.push_back(std::abs(scale) * magnitude);
    largest = std::max(largest, scale * score);
  }
  if (largest == -std::numeric_limits<double>::infinity()) {
    std::fill(row.probability.begin(), row.probability.end(), 0.0);
    return row;
  }
  double sum = 0;
  for (double& p : row.probability) sum += p = std::exp(p - largest);
  for (double& p : row.probability) p /= sum;
  for (std::int64_t j = 0; j < visible; ++j) {
    for (std::int64_t c = 0; c < head_dim_v; ++c) {
      row.out[static_cast<std::size_t>(c)] +=
          row.probability[static_cast<std::size_t>(j)] * v(j, c);
    }
  }
  row.lse = largest + std::log(sum);
  return row;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
