// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of the forward pass in float64, in plain loops.
#pragma once

#include "oracle.hpp"

namespace block_oracle {

/// Gradient of the mean of −log p(target) in the logits.
template <class Number>
OracleMatrix<Number> loss_gradient(Oracle<Number> const& o,
                                   std::vector<std::int32_t> const& targets) {
  OracleMatrix<Number> dlogits(o.logits.rows, o.logits.cols);
  Number const share = stored(Number(-1 / static_cast<double>(targets.size())));
  for (std::size_t row = 0; row < dlogits.rows; ++row) {
    for (std::size_t word = 0; word < dlogits.cols; ++word) {
      bool const hit = word == static_cast<std::size_t>(targets[row]);
      Number const p =
          shifted_exp(o.log_p(row, word), 0, std::abs(value_of(o.log_p(row, word))), 1);
      dlogits(row, word) = stored((hit ? share : Number(0)) - p * share);
    }
  }
  return dlogits;
}

template <class Number>
class OracleGradients {
 public:
  using Matrix = OracleMatrix<Number>;

  /// With respect to what the matrices of the Oracle hold; dqkv to queries and keys as rotated.
  Matrix dlogits, dhead_in, dmixed, dgated, dmlp_in, dattended, dcontext, dqkv, dattention_in,
      dembedded;
  /// In the order of the weights; empty unless asked for.
  std::vector<Number> dweights;

  /// Of the sum of dlogits·logits.
  OracleGradients(Oracle<Number> const& oracle, Matrix const& seed, bool with_weights)
      : dlogits(seed), o_(oracle), with_weights_(with_weights) {
    if (with_weights) dweights.resize(o_.map.size());
    dhead_in = linear(o_.head_in, Weight::head, dlogits);
    dmixed = norm(o_.mixed, Weight::final_norm, dhead_in);
    dgated = linear(o_.gated, Weight::down, dmixed);
    mlp();
    dattended = norm(o_.attended, Weight::mlp_norm, dmlp_in, &dmixed);
    dcontext = linear(o_.context, Weight::attention_out, dattended);
    attend();
    dattention_in = linear(o_.attention_in, Weight::qkv, unrotated());
    dembedded = norm(o_.embedded, Weight::attention_norm, dattention_in, &dattended);
    if (with_weights) embedding();
  }

 private:
  Number& dweight(Weight weight, std::size_t i, std::size_t j) {
    return dweights[o_.map[weight].offset + i * o_.map[weight].cols + j];
  }

  // dx of out = x·wᵀ before it is stored, and dw.
  Matrix product(Matrix const& x, Weight weight, Matrix const& dout) {
    Matrix dx(x.rows, x.cols);
    for (std::size_t row = 0; row < x.rows; ++row) {
      for (std::size_t h = 0; h < x.cols; ++h) {
        Sum<Number> sum;
        for (std::size_t c = 0; c < dout.cols; ++c) sum.add(dout(row, c), o_.at(weight, c, h));
        dx(row, h) = sum.result();
      }
    }
    for (std::size_t c = 0; with_weights_ && c < dout.cols; ++c) {
      for (std::size_t h = 0; h < x.cols; ++h) {
        Sum<Number> sum;
        for (std::size_t row = 0; row < x.rows; ++row) sum.add(dout(row, c), x(row, h));
        dweight(weight, c, h) = stored(sum.result());
      }
    }
    return dx;
  }

  Matrix linear(Matrix const& x, Weight weight, Matrix const& dout) {
    Matrix dx = product(x, weight, dout);
    for (Number& value : dx.data) value = stored(value);
    return dx;
  }

  // `residual`: what reaches x on the way around the branch that begins with the normalization.
  Matrix norm(Matrix const& x, Weight weight, Matrix const& dout,
              Matrix const* residual = nullptr) {
    Matrix dx(x.rows, x.cols);
    std::vector<Sum<Number>> sums(x.cols);
    for (std::size_t row = 0; row < x.rows; ++row) {
      Number const factor = o_.norm_factor(x, row);
      Sum<Number> dots;
      for (std::size_t h = 0; h < x.cols; ++h)
        dots.add(dout(row, h) * Number(o_.at(weight, 0, h)), x(row, h));
      Number const mean = dots.result() * factor * Number(1 / static_cast<double>(x.cols));
      for (std::size_t h = 0; h < x.cols; ++h) {
        Number const unit_x = x(row, h) * factor;
        dx(row, h) = stored(factor * (dout(row, h) * Number(o_.at(weight, 0, h)) - unit_x * mean));
        if (residual != nullptr) dx(row, h) = stored(dx(row, h) + (*residual)(row, h));
        sums[h].add(dout(row, h), unit_x);
      }
    }
    for (std::size_t h = 0; with_weights_ && h < x.cols; ++h)
      dweight(weight, 0, h) = stored(sums[h].result());
    return dx;
  }

  void mlp() {
    Matrix dgate(dgated.rows, dgated.cols), dup(dgated.rows, dgated.cols);
    for (std::size_t i = 0; i < dgated.data.size(); ++i) {
      Number const x = o_.gate.data[i], s = sigmoid(x);
      Number const slope = s * (Number(1) + x * (Number(1) - s));
      dgate.data[i] = dgated.data[i] * o_.up.data[i] * slope;
      dup.data[i] = dgated.data[i] * (x * s);
    }
    dmlp_in = product(o_.mlp_in, Weight::gate, dgate);
    Matrix const other = product(o_.mlp_in, Weight::up, dup);
    for (std::size_t i = 0; i < dmlp_in.data.size(); ++i)
      dmlp_in.data[i] = stored(dmlp_in.data[i] + other.data[i]);
  }

  void attend() {
    Config const& c = o_.config;
    std::size_t const d = c.head_dim;
    std::vector<Sum<Number>> sums(o_.qkv.data.size());
    for (std::size_t row = 0; row < o_.qkv.rows; ++row) {
      for (std::size_t head = 0; head < c.heads_q; ++head) attend(row, head, sums);
    }
    dqkv = Matrix(o_.qkv.rows, o_.qkv.cols);
    for (std::size_t row = 0; row < dqkv.rows; ++row) {
      for (std::size_t j = 0; j < dqkv.cols; ++j) {
        Number const sum = sums[row * dqkv.cols + j].result();
        bool const scaled = j < c.rotated_heads() * d;
        dqkv(row, j) = stored(scaled ? sum * Number(1 / std::sqrt(static_cast<double>(d))) : sum);
      }
    }
  }

  void attend(std::size_t row, std::size_t head, std::vector<Sum<Number>>& sums) {
    Config const& c = o_.config;
    std::size_t const d = c.head_dim, first = row / o_.seqlen * o_.seqlen;
    std::size_t const shared = head / (c.heads_q / c.heads_kv), query = head * d;
    std::size_t const key = (c.heads_q + shared) * d, value = key + c.heads_kv * d;
    auto const sum = [&](std::size_t r, std::size_t j) -> Sum<Number>& {
      return sums[r * o_.qkv.cols + j];
    };
    Sum<Number> delta;
    for (std::size_t i = 0; i < d; ++i)
      delta.add(dcontext(row, query + i), o_.context(row, query + i));
    for (std::size_t j = first; j <= row; ++j) {
      Sum<Number> score, dp;
      for (std::size_t i = 0; i < d; ++i) {
        score.add(o_.qkv(row, query + i), o_.qkv(j, key + i));
        dp.add(dcontext(row, query + i), o_.qkv(j, value + i));
      }
      Number const s = score.result() * Number(1 / std::sqrt(static_cast<double>(d)));
      Number const exponent = s - o_.lse(row, head);
      Number const p = shifted_exp(exponent, 0, std::abs(value_of(exponent)), 1);
      Number const ds = p * (dp.result() - delta.result());
      for (std::size_t i = 0; i < d; ++i) {
        sum(row, query + i).add(ds, o_.qkv(j, key + i));
        sum(j, key + i).add(ds, o_.qkv(row, query + i));
        sum(j, value + i).add(p, dcontext(row, query + i));
      }
    }
  }

  // dqkv before the rotation: its transpose.
  Matrix unrotated() const {
    Matrix out = dqkv;
    std::size_t const d = o_.config.head_dim, half = d / 2;
    for (std::size_t row = 0; row < out.rows; ++row) {
      double const* const cos = o_.tables.cos.data() + row % o_.seqlen * d;
      double const* const sin = o_.tables.sin.data() + row % o_.seqlen * d;
      for (std::size_t head = 0; head < o_.config.rotated_heads(); ++head) {
        for (std::size_t i = 0; i < half; ++i) {
          Number const a = dqkv(row, head * d + i), b = dqkv(row, head * d + half + i);
          out(row, head * d + i) = stored(a * Number(cos[i]) + b * Number(sin[half + i]));
          out(row, head * d + half + i) = stored(b * Number(cos[half + i]) - a * Number(sin[i]));
        }
      }
    }
    return out;
  }

  void embedding() {
    std::vector<Sum<Number>> sums(o_.map[Weight::embedding].size());
    for (std::size_t row = 0; row < o_.tokens.size(); ++row) {
      for (std::size_t h = 0; h < o_.config.hidden; ++h)
        sums[static_cast<std::size_t>(o_.tokens[row]) * o_.config.hidden + h].add(
            dembedded(row, h));
    }
    for (std::size_t i = 0; i < sums.size(); ++i) dweights[i] = sums[i].result();
  }

  Oracle<Number> const& o_;
  bool with_weights_;
};

/// How far off a forward pass in T may make the number whose gradients are given, to first order:
/// each element's own error (Errors::local) times the gradient in it.
template <class T>
double first_order_bound(Oracle<Bounded<T>> const& local,
                         OracleGradients<double> const& gradients) {
  double bound = 0;
  auto const add = [&](OracleMatrix<Bounded<T>> const& x, OracleMatrix<double> const& dx) {
    for (std::size_t i = 0; i < dx.data.size(); ++i)
      bound += std::abs(dx.data[i]) * x.data[i].error;
  };
  add(local.attention_in, gradients.dattention_in);
  add(local.qkv, gradients.dqkv);
  add(local.context, gradients.dcontext);
  add(local.attended, gradients.dattended);
  add(local.mlp_in, gradients.dmlp_in);
  add(local.gated, gradients.dgated);
  add(local.mixed, gradients.dmixed);
  add(local.head_in, gradients.dhead_in);
  add(local.logits, gradients.dlogits);
  return bound;
}

}  // namespace block_oracle
