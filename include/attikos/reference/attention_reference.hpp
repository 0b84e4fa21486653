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
#include <functional>
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
  std::vector<double> score_magnitude;  ///< |scale| sum |q| |k| and further terms, by visible key
  double sink = -std::numeric_limits<double>::infinity();  ///< logit in the denominator
};

/// How many keys row i sees: keys [0, result). A padded row (i >= len_q) sees none.
inline std::int64_t visible_keys(std::int64_t i, std::int64_t len_q, std::int64_t len_kv,
                                 bool causal, bool top_left) {
  if (i >= len_q) return 0;
  if (!causal) return len_kv;
  std::int64_t const offset = top_left ? 0 : len_kv - len_q;
  return std::clamp<std::int64_t>(i + offset + 1, 0, len_kv);
}

/// Whether two positions lie in one chunk of so many, of which one begins at position 0; 0: always.
inline bool in_one_chunk(std::int64_t a, std::int64_t b, std::int64_t chunk) {
  auto const number = [&](std::int64_t x) {
    return std::floor(static_cast<double>(x) / static_cast<double>(chunk));
  };
  return chunk <= 0 || number(a) == number(b);
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

/// What may enter a row's scores beyond scale·q·k, each as a function of the key.
struct AttentionTerms {
  double scale = 1;
  double softcap = 0;
  std::function<bool(std::int64_t)> sees = [](std::int64_t) { return true; };
  std::function<double(std::int64_t)> bias = [](std::int64_t) { return 0.0; };
  std::function<double(double, std::int64_t)> score = [](double s, std::int64_t) { return s; };
  std::function<double(std::int64_t)> weight = [](std::int64_t) { return 1.0; };
  double sink = -std::numeric_limits<double>::infinity();
};

/// The same over keys [0, len_kv) with p = w e^s / (sum w e^s + e^sink). Pairs that are not seen,
/// have weight 0 or score -inf are left out altogether. A term t that joins the score counts with a
/// multiple of |t| in `score_magnitude`: 2 for an addition, 3 for softcap's tanh (8 roundings where
/// a magnitude stands for at least 5), 4 for a functor's result.
template <class Query, class Key, class Value>
AttentionRow attention_row(std::int64_t len_kv, std::int64_t head_dim, std::int64_t head_dim_v,
                           AttentionTerms const& terms, Query const& q, Key const& k,
                           Value const& v) {
  constexpr double low = -std::numeric_limits<double>::infinity();
  AttentionRow row;
  row.out.assign(static_cast<std::size_t>(head_dim_v), 0.0);
  std::vector<double> weight;
  double largest = low;
  for (std::int64_t j = 0; j < len_kv; ++j) {
    double score = low, magnitude = 0, w = 0;
    if (terms.sees(j) && (w = terms.weight(j)) != 0) {
      score = 0;
      for (std::int64_t c = 0; c < head_dim; ++c) {
        score += q(c) * k(j, c);
        magnitude += std::abs(q(c) * k(j, c));
      }
      score *= terms.scale;
      magnitude *= std::abs(terms.scale);
      if (terms.softcap > 0) {
        score = terms.softcap * std::tanh(score / terms.softcap);
        magnitude += 3 * std::abs(score);
      }
      double const bias = terms.bias(j);
      double const capped = score + bias;
      score = terms.score(capped, j);
      magnitude += 2 * std::abs(bias) + (score == capped ? 0 : 4 * std::abs(score));
    }
    row.probability.push_back(score);
    row.score_magnitude.push_back(magnitude);
    weight.push_back(score == low ? 0 : w);
    largest = std::max(largest, score);
  }
  if (largest == low) {
    std::fill(row.probability.begin(), row.probability.end(), 0.0);
    return row;
  }
  row.sink = terms.sink;
  double const top = std::max(largest, terms.sink);
  double sum = std::exp(terms.sink - top);
  for (std::size_t j = 0; j < weight.size(); ++j)
    sum += row.probability[j] = weight[j] == 0 ? 0 : weight[j] * std::exp(row.probability[j] - top);
  for (double& p : row.probability) p /= sum;
  for (std::size_t j = 0; j < weight.size(); ++j)
    if (row.probability[j] != 0)
      for (std::int64_t c = 0; c < head_dim_v; ++c)
        row.out[static_cast<std::size_t>(c)] +=
            row.probability[j] * v(static_cast<std::int64_t>(j), c);
  row.lse = top + std::log(sum);
  return row;
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
