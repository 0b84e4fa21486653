// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Training: forward, cross entropy, backward through every operation, stochastic gradient descent.
#pragma once

#include <attikos/attention/attention_backward.hpp>
#include <attikos/gemm/gemm_backward.hpp>
#include <attikos/mlp/gated_mlp_backward.hpp>
#include <attikos/norm/rms_norm_backward.hpp>
#include <attikos/reduce/log_softmax.hpp>
#include <attikos/reduce/softmax_backward.hpp>
#include <cstdint>
#include <vector>

#include "whole_pass.hpp"

namespace transformer_block {

/// Gradient of the mean of −log p(target) in log p.
template <class T>
struct CrossEntropyGradient {
  Tensor<std::int32_t*> targets;
  Tensor<T**> out;
  T value;
  KOKKOS_FUNCTION void operator()(int row, int word) const {
    out(row, word) = word == targets(row) ? value : T(0);
  }
};

/// Every word adds up the rows of its own tokens, in their order: no atomics, the same bits always.
template <class T>
struct EmbedBackward {
  Tensor<std::int32_t*> tokens;
  Tensor<T**> dout;
  Part<T**> dtable;
  KOKKOS_FUNCTION void operator()(int word, int h) const {
    T sum = 0;
    for (int row = 0; row < dout.extent_int(0); ++row) {
      if (tokens(row) == word) sum += dout(row, h);
    }
    dtable(word, h) = sum;
  }
};

/// sum += term
template <class T>
struct AddRows {
  Tensor<T**> sum, term;
  KOKKOS_FUNCTION void operator()(int row, int h) const { sum(row, h) += term(row, h); }
};

/// weights −= rate · gradients
template <class T>
struct Descend {
  Tensor<T*> weights, gradients;
  T rate;
  KOKKOS_FUNCTION void operator()(int i) const { weights(i) -= rate * gradients(i); }
};

/// Trains a model in place: T is double or float. Rows of tokens: `batch` sequences of `seqlen`,
/// one behind the other.
template <class T>
class Trainer {
 public:
  /// Buffers for batches of these sizes.
  Trainer(Model<T> const& model, std::size_t batch, std::size_t seqlen);

  /// Mean over all tokens of −log p(target), and its gradients in gradients().
  double loss_and_gradients(std::vector<std::int32_t> const& tokens,
                            std::vector<std::int32_t> const& targets);

  /// weights −= learning_rate · gradients
  void update(double learning_rate);

  Weights<T> const& gradients() const { return gradients_; }
  Activations<T> const& activations() const { return activations_; }

 private:
  void run_backward();
  void add(Tensor<T**> const& sum, Tensor<T**> const& term);

  Exec exec_;
  Model<T> model_;
  Activations<T> activations_;
  Weights<T> gradients_;
  Tensor<std::int32_t*> tokens_, targets_;
  Lse<T> lse_;                   // [batch, heads_q, seqlen]
  Tensor<T**> log_p_, dlogits_;  // [tokens, vocabulary]
  Tensor<T**> dx_, dbranch_;     // [tokens, hidden]: the residual stream, a branch of it
  Tensor<T**> dgated_, dcontext_, dqkv_;
};

template <class T>
Trainer<T>::Trainer(Model<T> const& model, std::size_t batch, std::size_t seqlen)
    : model_(model),
      activations_(model.config, batch, seqlen),
      gradients_(model.config),
      tokens_(allocate<std::int32_t*>("tokens", batch * seqlen)),
      targets_(allocate<std::int32_t*>("targets", batch * seqlen)),
      lse_("lse", batch, model.config.heads_q, seqlen),
      log_p_(allocate<T**>("log p", batch * seqlen, model.config.vocabulary)),
      dlogits_(allocate<T**>("dlogits", batch * seqlen, model.config.vocabulary)),
      dx_(allocate<T**>("dx", batch * seqlen, model.config.hidden)),
      dbranch_(allocate<T**>("dbranch", batch * seqlen, model.config.hidden)),
      dgated_(allocate<T**>("dgated", batch * seqlen, model.config.intermediate)),
      dcontext_(allocate<T**>("dcontext", batch * seqlen, model.config.context_width())),
      dqkv_(allocate<T**>("dqkv", batch * seqlen, model.config.qkv_width())) {}

template <class T>
void Trainer<T>::add(Tensor<T**> const& sum, Tensor<T**> const& term) {
  for_each_element(exec_, "transformer_block: add", sum.extent(0), sum.extent(1),
                   AddRows<T>{sum, term});
}

// The forward pass from its end to its beginning. dx_ is the gradient of the residual stream.
template <class T>
void Trainer<T>::run_backward() {
  Config const& c = model_.config;
  auto const& a = activations_;
  auto const& w = model_.weights;
  auto const& dw = gradients_;
  attikos::RmsNormOptions const norm{.eps = c.eps};
  attikos::GemmOptions const linear{.trans_b = true};

  for_each_element(
      exec_, "transformer_block: loss", log_p_.extent(0), log_p_.extent(1),
      CrossEntropyGradient<T>{targets_, dlogits_, T(-1) / static_cast<T>(targets_.extent(0))});
  attikos::log_softmax_backward(exec_, log_p_, dlogits_, dlogits_);
  attikos::gemm_backward(exec_, a.head_in, w.matrix(Weight::head), dlogits_, dbranch_,
                         dw.matrix(Weight::head), linear);
  attikos::rms_norm_backward(exec_, a.mixed, w.vector(Weight::final_norm), dbranch_, dx_,
                             dw.vector(Weight::final_norm), norm);

  attikos::gemm_backward(exec_, a.gated, w.matrix(Weight::down), dx_, dgated_,
                         dw.matrix(Weight::down), linear);
  attikos::gated_mlp_backward(exec_, a.mlp_in, w.matrix(Weight::gate), w.matrix(Weight::up),
                              dgated_, dbranch_, dw.matrix(Weight::gate), dw.matrix(Weight::up));
  attikos::rms_norm_backward(exec_, a.attended, w.vector(Weight::mlp_norm), dbranch_, dbranch_,
                             dw.vector(Weight::mlp_norm), norm);
  add(dx_, dbranch_);

  attikos::gemm_backward(exec_, a.context, w.matrix(Weight::attention_out), dx_, dcontext_,
                         dw.matrix(Weight::attention_out), linear);
  QkvHeads<T> const part(c, a.qkv, a.batch), dpart(c, dqkv_, a.batch);
  attikos::attention_backward(exec_, part.q, part.k, part.v,
                              heads(a.context, a.batch, c.head_dim, 0, c.heads_q), lse_,
                              heads(dcontext_, a.batch, c.head_dim, 0, c.heads_q), dpart.q, dpart.k,
                              dpart.v, {.causal = true});
  attikos::rope_backward(exec_, dpart.rotated, model_.cos, model_.sin, dpart.rotated);
  attikos::gemm_backward(exec_, a.attention_in, w.matrix(Weight::qkv), dqkv_, dbranch_,
                         dw.matrix(Weight::qkv), linear);
  attikos::rms_norm_backward(exec_, a.embedded, w.vector(Weight::attention_norm), dbranch_,
                             dbranch_, dw.vector(Weight::attention_norm), norm);
  add(dx_, dbranch_);

  for_each_element(exec_, "transformer_block: embed backward", c.vocabulary, c.hidden,
                   EmbedBackward<T>{tokens_, dx_, dw.matrix(Weight::embedding)});
}

template <class T>
double Trainer<T>::loss_and_gradients(std::vector<std::int32_t> const& tokens,
                                      std::vector<std::int32_t> const& targets) {
  to_device(tokens_, tokens);
  to_device(targets_, targets);
  forward_whole(exec_, model_, tokens_, activations_, lse_);
  attikos::log_softmax(exec_, activations_.logits, log_p_);
  run_backward();
  exec_.fence("transformer_block: the loss goes to the host");
  auto const log_p = to_host<double>(log_p_);
  double sum = 0;
  for (std::size_t row = 0; row < targets.size(); ++row)
    sum -= log_p[row * model_.config.vocabulary + static_cast<std::size_t>(targets[row])];
  return sum / static_cast<double>(targets.size());
}

template <class T>
void Trainer<T>::update(double learning_rate) {
  Tensor<T*> const weights = model_.weights.all;
  Kokkos::parallel_for("transformer_block: descend",
                       Kokkos::RangePolicy<Exec>(exec_, 0, weights.extent(0)),
                       Descend<T>{weights, gradients_.all, static_cast<T>(learning_rate)});
}

extern template class Trainer<float>;  // in training.cpp

}  // namespace transformer_block
