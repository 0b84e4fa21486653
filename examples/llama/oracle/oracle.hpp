// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The same forward pass in float64, in plain loops: nothing here is an Attikos call. With
/// Number = Bounded<T> it also says how far off a computation in T may be.
///
/// Bounds that are carried from operation to operation hold always, but grow with each: what the
/// errors of neighbors have in common is lost. The way out is to bound each operation apart, for
/// exact inputs (Errors::local), and to ask the gradients how much that matters in the end
/// (oracle_gradients.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "bounded.hpp"
#include "parameters.hpp"

namespace block_oracle {

template <class Number>
struct OracleMatrix {
  std::size_t rows = 0, cols = 0;
  std::vector<Number> data;

  OracleMatrix() = default;
  OracleMatrix(std::size_t m, std::size_t n) : rows(m), cols(n), data(m * n) {}
  Number& operator()(std::size_t i, std::size_t j) { return data[i * cols + j]; }
  Number const& operator()(std::size_t i, std::size_t j) const { return data[i * cols + j]; }
};

/// What the errors in an Oracle's numbers stand for.
enum class Errors {
  carried,  ///< all that happened since the embedding
  local     ///< what one operation does to exact inputs
};

template <class Number>
class Oracle {
 public:
  using Matrix = OracleMatrix<Number>;

  Config config;
  WeightMap map;
  std::vector<double> weights;
  RotaryTables tables;
  std::size_t batch, seqlen;
  std::vector<std::int32_t> tokens;

  Matrix embedded, attention_in, qkv, context, lse, attended, mlp_in, gate, up, gated, mixed,
      head_in, logits, log_p;

  /// `sequences` sequences, one behind the other in `row_tokens`.
  Oracle(Config const& sizes, std::vector<double> const& values,
         std::vector<std::int32_t> const& row_tokens, std::size_t sequences,
         Errors errors = Errors::carried)
      : config(sizes),
        map(sizes),
        weights(values),
        tables(sizes),
        batch(sequences),
        seqlen(row_tokens.size() / sequences),
        tokens(row_tokens),
        local_(errors == Errors::local) {
    embedded = Matrix(tokens.size(), config.hidden);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::size_t h = 0; h < config.hidden; ++h)
        embedded(row, h) = at(Weight::embedding, static_cast<std::size_t>(tokens[row]), h);
    }
    attention_in = norm(embedded, Weight::attention_norm);
    qkv = linear(attention_in, Weight::qkv);
    rotate();
    attend();
    attended = linear(context, Weight::attention_out, &embedded);
    mlp_in = norm(attended, Weight::mlp_norm);
    mlp();
    mixed = linear(gated, Weight::down, &attended);
    head_in = norm(mixed, Weight::final_norm);
    logits = linear(head_in, Weight::head);
    log_softmax();
  }

  double at(Weight weight, std::size_t i, std::size_t j) const {
    return weights[map[weight].offset + i * map[weight].cols + j];
  }

  /// Mean of −log p(target).
  double loss(std::vector<std::int32_t> const& targets) const {
    double sum = 0;
    for (std::size_t row = 0; row < targets.size(); ++row)
      sum -= value_of(log_p(row, static_cast<std::size_t>(targets[row])));
    return sum / static_cast<double>(targets.size());
  }

  /// 1/√(mean(x²) + eps) of a row.
  Number norm_factor(Matrix const& x, std::size_t row) const {
    Sum<Number> squares;
    for (std::size_t h = 0; h < x.cols; ++h) squares.add(input(x(row, h)), input(x(row, h)));
    return reciprocal_root(squares.result() * Number(1 / static_cast<double>(x.cols)) +
                           Number(config.eps));
  }

 private:
  // A number that the operation before this one has stored.
  Number input(Number const& x) const { return local_ ? Number(value_of(x)) : x; }

  Matrix norm(Matrix const& x, Weight weight) const {
    Matrix out(x.rows, x.cols);
    for (std::size_t row = 0; row < x.rows; ++row) {
      Number const factor = norm_factor(x, row);
      for (std::size_t h = 0; h < x.cols; ++h)
        out(row, h) = stored(input(x(row, h)) * factor * Number(at(weight, 0, h)));
    }
    return out;
  }

  // x·wᵀ, in the accumulator.
  Matrix product(Matrix const& x, Weight weight) const {
    Matrix out(x.rows, map[weight].rows);
    for (std::size_t row = 0; row < x.rows; ++row) {
      for (std::size_t o = 0; o < out.cols; ++o) {
        Sum<Number> sum;
        for (std::size_t h = 0; h < x.cols; ++h) sum.add(input(x(row, h)), at(weight, o, h));
        out(row, o) = sum.result();
      }
    }
    return out;
  }

  Matrix linear(Matrix const& x, Weight weight, Matrix const* residual = nullptr) const {
    Matrix out = product(x, weight);
    for (std::size_t i = 0; i < out.data.size(); ++i)
      out.data[i] =
          stored(residual == nullptr ? out.data[i] : out.data[i] + input(residual->data[i]));
    return out;
  }

  // Queries and keys, in place, half-split pairs.
  void rotate() {
    std::size_t const d = config.head_dim, half = d / 2;
    for (std::size_t row = 0; row < qkv.rows; ++row) {
      double const* const cos = tables.cos.data() + row % seqlen * d;
      double const* const sin = tables.sin.data() + row % seqlen * d;
      for (std::size_t head = 0; head < config.rotated_heads(); ++head) {
        for (std::size_t i = 0; i < half; ++i) {
          Number& first = qkv(row, head * d + i);
          Number& second = qkv(row, head * d + half + i);
          Number const a = first, b = second;
          first = stored(a * Number(cos[i]) - b * Number(sin[i]));
          second = stored(b * Number(cos[half + i]) + a * Number(sin[half + i]));
        }
      }
    }
  }

  void attend() {
    context = Matrix(qkv.rows, config.context_width());
    lse = Matrix(qkv.rows, config.heads_q);
    for (std::size_t row = 0; row < qkv.rows; ++row) {
      for (std::size_t head = 0; head < config.heads_q; ++head) attend(row, head);
    }
  }

  // One query of one head, over the keys of its sequence up to itself.
  void attend(std::size_t row, std::size_t head) {
    std::size_t const d = config.head_dim, first = row / seqlen * seqlen, n = row - first + 1;
    std::size_t const shared = head / (config.heads_q / config.heads_kv);
    std::size_t const key = (config.heads_q + shared) * d, value = key + config.heads_kv * d;
    std::vector<Number> weight(n);
    double largest = -std::numeric_limits<double>::infinity(), extent = 0;
    for (std::size_t j = 0; j < n; ++j) {
      Sum<Number> score;
      for (std::size_t c = 0; c < d; ++c)
        score.add(input(qkv(row, head * d + c)), input(qkv(first + j, key + c)));
      weight[j] = score.result() * Number(1 / std::sqrt(static_cast<double>(d)));
      largest = std::max(largest, value_of(weight[j]));
      extent = std::max(extent, std::abs(value_of(weight[j])));
    }
    Sum<Number> total;
    for (Number& w : weight) {
      // Tiles hold 8 keys or more; each may change the maximum, and so may merging parts.
      w = shifted_exp(w, largest, extent, static_cast<double>(n) / 8 + 2);
      total.add(w);
    }
    Number const share = reciprocal(total.result());
    for (std::size_t c = 0; c < d; ++c) {
      Sum<Number> sum;
      for (std::size_t j = 0; j < n; ++j) sum.add(weight[j], input(qkv(first + j, value + c)));
      context(row, head * d + c) = stored(sum.result() * share);
    }
    lse(row, head) = Number(largest) + logarithm(total.result());
  }

  void mlp() {
    gate = product(mlp_in, Weight::gate);
    up = product(mlp_in, Weight::up);
    gated = Matrix(gate.rows, gate.cols);
    for (std::size_t i = 0; i < gated.data.size(); ++i)
      gated.data[i] = stored(gate.data[i] * sigmoid(gate.data[i]) * up.data[i]);
  }

  void log_softmax() {
    log_p = Matrix(logits.rows, logits.cols);
    for (std::size_t row = 0; row < logits.rows; ++row) {
      double largest = -std::numeric_limits<double>::infinity(), extent = 0;
      for (std::size_t word = 0; word < logits.cols; ++word) {
        largest = std::max(largest, value_of(logits(row, word)));
        extent = std::max(extent, std::abs(value_of(logits(row, word))));
      }
      Sum<Number> total;
      for (std::size_t word = 0; word < logits.cols; ++word)
        total.add(shifted_exp(input(logits(row, word)), largest, extent, 1));
      Number const log_sum = logarithm(total.result());
      for (std::size_t word = 0; word < logits.cols; ++word)
        log_p(row, word) = stored(input(logits(row, word)) - Number(largest) - log_sum);
    }
  }

  bool local_;
};

}  // namespace block_oracle
