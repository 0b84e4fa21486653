// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Training: forward, loss, the way back, AdamW. Everything that a step needs is allocated before
/// the first: one array holds all weights, one all gradients, one all that the forward pass leaves
/// for the way back, and one is the workspace of all calls.
#pragma once

#include <algorithm>
#include <attikos/core/dtypes.hpp>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace llama {

struct TrainingOptions {
  std::size_t batch = 8;
  std::size_t length = 2048;  ///< tokens of a sequence
  std::size_t steps = 1000;   ///< in all: losses are kept of each
  std::uint64_t seed = 1;     ///< of the first weights
  Descent descent;
  std::size_t warmup = 20;      ///< steps in which the learning rate rises to what it is
  std::size_t logits_rows = 0;  ///< tokens whose logits are in memory, 0: the library's choice
  bool keep_mlp = true;         ///< keep projections of gated MLPs for the way back
};

/// Draws ±limit for every element of a weight from its place and the seed (splitmix64): the same
/// numbers on every machine.
template <class T>
struct DrawWeights {
  T* weights;
  StateOf<T>* master;  // or null
  std::uint64_t seed, offset;
  float limit;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::uint64_t const index = offset + static_cast<std::uint64_t>(i);
    std::uint64_t z = (seed << 40) + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    float const draw = static_cast<float>(z >> 40) * 0x1p-23f - 1;  // exact
    float const value = limit == 0 ? 1.0f : limit * draw;
    weights[index] = T(value);
    if (master != nullptr) master[index] = static_cast<StateOf<T>>(value);
  }
};

/// Sequences of this step, and what follows each of their tokens.
struct TakeTokens {
  Tokens text;
  std::int64_t const* begins;
  std::int64_t length;
  Tokens tokens, targets;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::int64_t const at = begins[i / length] + i % length;
    tokens(i) = text(at);
    targets(i) = text(at + 1);
  }
};

/// The mean in double, in an order that the shape alone decides.
template <class State>
struct MeanLoss {
  Vector<State> rows;
  State* mean;
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    auto const count = static_cast<std::int64_t>(rows.extent(0));
    double sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, count),
        [&](std::int64_t i, double& partial) { partial += static_cast<double>(rows(i)); }, sum);
    Kokkos::single(Kokkos::PerTeam(team),
                   [&] { *mean = static_cast<State>(sum / static_cast<double>(count)); });
  }
};

template <class T>
class Trainer {
 public:
  using State = StateOf<T>;
  static constexpr bool has_master = !std::is_same_v<T, State>;

  /// `text`: the tokens that sequences are cut from. `begins`: where, batch of them for each step.
  Trainer(Config const& config, TrainingOptions const& options,
          std::vector<std::int32_t> const& text, std::vector<std::int64_t> const& begins);

  /// The first weights; moments of 0.
  void initialize();

  /// Step `step`, counted from 0, without waiting for it.
  void step(std::size_t step);
  /// The parts of a step. `forward` and what follows leave the loss of `step` behind.
  void forward_and_backward(std::size_t step);
  void update(std::size_t step);
  void fence() const { exec_.fence("llama: a report or a checkpoint"); }

  Weights<T> const& weights() const { return weights_; }
  Weights<T> const& gradients() const { return gradients_; }
  Array<State> const& master() const { return master_; }    ///< empty without has_master
  Array<State> const& moments() const { return moments_; }  ///< first, then second
  Array<State> const& losses() const { return losses_; }    ///< of each step
  /// Bytes of everything.
  std::size_t bytes() const { return bytes_; }

 private:
  void plan(Cutter<T>& cut);
  std::size_t workspace_bytes() const;
  void forward();
  void layer_backward(LayerWeights const& w, LayerResults<T> const& a, Lse<State> const& lse);

  Exec exec_;
  Config config_;
  TrainingOptions options_;
  std::size_t rows_;
  Weights<T> weights_, gradients_;
  Array<State> master_, moments_, losses_;
  RotationTables tables_;
  Array<std::int32_t> text_, token_memory_;
  Array<std::int64_t> begins_;
  Tokens tokens_, targets_;
  Array<T> activations_;
  std::vector<LayerResults<T>> layers_;
  Matrix<T> head_in_, dx_, dbranch_, dgated_, dcontext_, dqkv_;
  Array<State> row_memory_;
  std::vector<Lse<State>> lse_;
  Vector<State> loss_, share_;
  Array<unsigned char> workspace_memory_;
  Bytes workspace_;
  std::size_t bytes_ = 0;
};

template <class View, class Value>
void copy_to(View const& view, std::vector<Value> const& values) {
  Kokkos::deep_copy(view, Kokkos::View<Value const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                              values.data(), values.size()));
}

template <class T>
Trainer<T>::Trainer(Config const& config, TrainingOptions const& options,
                    std::vector<std::int32_t> const& text, std::vector<std::int64_t> const& begins)
    : config_(config),
      options_(options),
      rows_(options.batch * options.length),
      weights_(config, "weights"),
      gradients_(config, "gradients"),
      master_(allocate<State>("master weights", has_master ? weights_.map.size : 0)),
      moments_("moments", 2 * weights_.map.size),
      losses_("losses", options.steps),
      tables_(config, options.length),
      text_(allocate<std::int32_t>("text", text.size())),
      token_memory_(allocate<std::int32_t>("tokens", 2 * rows_)),
      begins_(allocate<std::int64_t>("begins", begins.size())),
      tokens_(token_memory_.data(), rows_),
      targets_(token_memory_.data() + rows_, rows_) {
  copy_to(text_, text);
  copy_to(begins_, begins);
  Cutter<T> measure;
  plan(measure);
  activations_ = allocate<T>("activations", measure.used());
  Cutter<T> cut(activations_.data());
  plan(cut);

  Cutter<State> rows_measure;
  auto const plan_rows = [&](Cutter<State>& cutter) {
    lse_.clear();
    for (std::size_t i = 0; i < config_.layers; ++i)
      lse_.push_back(
          cutter.template take<Lse<State>>(options_.batch, config_.heads, options_.length));
    loss_ = cutter.template take<Vector<State>>(rows_);
    share_ = cutter.template take<Vector<State>>(rows_);
  };
  plan_rows(rows_measure);
  row_memory_ = allocate<State>("log-sum-exp and losses", rows_measure.used());
  Cutter<State> rows_cut(row_memory_.data());
  plan_rows(rows_cut);
  Kokkos::deep_copy(share_, State(1) / static_cast<State>(rows_));

  workspace_memory_ = allocate<unsigned char>("workspace", workspace_bytes());
  workspace_ = Bytes(workspace_memory_.data(), workspace_memory_.size());
  bytes_ = (2 * weights_.map.size + activations_.size()) * sizeof(T) +
           (master_.size() + moments_.size() + row_memory_.size()) * sizeof(State) +
           workspace_.size();
}

template <class T>
void Trainer<T>::plan(Cutter<T>& cut) {
  Config const& c = config_;
  layers_.clear();
  Matrix<T> stream = cut.matrix(rows_, c.hidden);
  for (std::size_t i = 0; i < c.layers; ++i) {
    LayerResults<T> a;
    a.in = stream;
    a.attention_in = cut.matrix(rows_, c.hidden);
    a.qkv = cut.matrix(rows_, c.qkv_width());
    a.context = cut.matrix(rows_, c.context_width());
    a.attended = cut.matrix(rows_, c.hidden);
    a.mlp_in = cut.matrix(rows_, c.hidden);
    a.gated = cut.matrix(rows_, c.intermediate);
    if (options_.keep_mlp)
      a.kept = {cut.matrix(rows_, c.intermediate), cut.matrix(rows_, c.intermediate)};
    a.out = stream = cut.matrix(rows_, c.hidden);
    layers_.push_back(a);
  }
  head_in_ = cut.matrix(rows_, c.hidden);
  dx_ = cut.matrix(rows_, c.hidden);
  dbranch_ = cut.matrix(rows_, c.hidden);
  dgated_ = cut.matrix(rows_, c.intermediate);
  dcontext_ = cut.matrix(rows_, c.context_width());
  dqkv_ = cut.matrix(rows_, c.qkv_width());
}

template <class T>
std::size_t Trainer<T>::workspace_bytes() const {
  WeightMap const& map = weights_.map;
  auto const qkv = qkv_of(config_, dqkv_, options_.batch);
  Matrix<T> const embedding = gradients_.matrix(map.embedding);
  std::size_t const mlp =
      map.layers.empty()
          ? 0
          : gated_mlp_backward_bytes(dx_, weights_.matrix(map.layers[0].gate), dgated_);
  return std::max({attend_bytes(qkv), attend_backward_bytes(exec_, qkv), mlp,
                   norm_backward_bytes(dx_, weights_.vector(map.final_norm)),
                   loss_bytes(head_in_, weights_.matrix(map.head), options_.logits_rows),
                   embed_backward_bytes(tokens_, dx_, embedding)});
}

template <class T>
void Trainer<T>::initialize() {
  for (WeightShape const& w : weights_.map.all())
    Kokkos::parallel_for("llama: draw weights", Kokkos::RangePolicy<Exec>(exec_, 0, w.size()),
                         DrawWeights<T>{weights_.all.data(), has_master ? master_.data() : nullptr,
                                        options_.seed, w.offset, static_cast<float>(w.limit)});
  Kokkos::deep_copy(exec_, moments_, State(0));
}

template <class T>
void Trainer<T>::forward() {
  WeightMap const& map = weights_.map;
  embed(exec_, weights_.matrix(map.embedding), tokens_, layers_.front().in);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerResults<T> const& a = layers_[i];
    run_layer(exec_, config_, weights_, map.layers[i], a, [&] {
      attend(exec_, qkv_of(config_, a.qkv, options_.batch), tables_.rotation(),
             context_of(config_, a.context, options_.batch), lse_[i], workspace_);
    });
  }
  norm(exec_, layers_.back().out, weights_.vector(map.final_norm), head_in_, config_.eps);
}

// From the gradient of a layer's end in dx_ to that of its beginning.
template <class T>
void Trainer<T>::layer_backward(LayerWeights const& w, LayerResults<T> const& a,
                                Lse<State> const& lse) {
  auto const& weights = weights_;
  auto const& d = gradients_;
  double const eps = config_.eps;
  linear_backward(exec_, a.gated, weights.matrix(w.down), dx_, dgated_, d.matrix(w.down));
  gated_mlp_backward(exec_, a.mlp_in, weights.matrix(w.gate), weights.matrix(w.up), a.kept, dgated_,
                     dbranch_, d.matrix(w.gate), d.matrix(w.up), workspace_);
  add_norm_backward(exec_, a.attended, weights.vector(w.mlp_norm), dbranch_, dx_,
                    d.vector(w.mlp_norm), eps, workspace_);

  linear_backward(exec_, a.context, weights.matrix(w.attention_out), dx_, dcontext_,
                  d.matrix(w.attention_out));
  std::size_t const batch = options_.batch;
  attend_backward(exec_, qkv_of(config_, a.qkv, batch), tables_.rotation(),
                  context_of(config_, a.context, batch), lse, context_of(config_, dcontext_, batch),
                  qkv_of(config_, dqkv_, batch), workspace_);
  linear_backward(exec_, a.attention_in, weights.matrix(w.qkv), dqkv_, dbranch_, d.matrix(w.qkv));
  add_norm_backward(exec_, a.in, weights.vector(w.attention_norm), dbranch_, dx_,
                    d.vector(w.attention_norm), eps, workspace_);
}

template <class T>
void Trainer<T>::forward_and_backward(std::size_t step) {
  WeightMap const& map = weights_.map;
  Kokkos::parallel_for(
      "llama: take tokens", Kokkos::RangePolicy<Exec>(exec_, 0, rows_),
      TakeTokens{Tokens(text_.data(), text_.size()), begins_.data() + step * options_.batch,
                 static_cast<std::int64_t>(options_.length), tokens_, targets_});
  forward();
  loss_and_gradients(exec_, head_in_, weights_.matrix(map.head), targets_, share_, loss_, dbranch_,
                     gradients_.matrix(map.head), options_.logits_rows, workspace_);
  int const team = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace> ? 1 : 256;
  Kokkos::parallel_for("llama: mean loss", Kokkos::TeamPolicy<Exec>(exec_, 1, team),
                       MeanLoss<State>{loss_, losses_.data() + step});
  norm_backward(exec_, layers_.back().out, weights_.vector(map.final_norm), dbranch_, dx_,
                gradients_.vector(map.final_norm), config_.eps, workspace_);
  for (std::size_t i = layers_.size(); i-- > 0;) layer_backward(map.layers[i], layers_[i], lse_[i]);
  embed_backward(exec_, tokens_, dx_, gradients_.matrix(map.embedding), workspace_);
}

template <class T>
void Trainer<T>::update(std::size_t step) {
  std::size_t const size = weights_.map.size;
  Descent descent = options_.descent;
  if (step < options_.warmup)
    descent.learning_rate *= static_cast<double>(step + 1) / static_cast<double>(options_.warmup);
  descend<T>(exec_, Vector<T>(weights_.all.data(), size), Vector<T>(gradients_.all.data(), size),
             Vector<State>(moments_.data(), size), Vector<State>(moments_.data() + size, size),
             Vector<State>(master_.data(), master_.size()), descent,
             static_cast<std::int64_t>(step) + 1);
}

template <class T>
void Trainer<T>::step(std::size_t step) {
  forward_and_backward(step);
  update(step);
}

}  // namespace llama
