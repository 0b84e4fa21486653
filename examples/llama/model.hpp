// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The model: start reading here. Training and generation share the layer, and differ in where its
/// intermediate results lie and in the step from queries, keys and values to the context. Source of
/// the architecture: H. Touvron et al., "LLaMA", arXiv:2302.13971.
#pragma once

#include <vector>

#include "config.hpp"
#include "operations.hpp"

namespace llama {

/// All weights, or the gradients of all weights, in one array.
template <class T>
struct Weights {
  WeightMap map;
  Array<T> all;

  Weights(Config const& config, char const* label)
      : map(config), all(allocate<T>(label, map.size)) {}

  Matrix<T> matrix(WeightShape const& w) const {
    return Matrix<T>(all.data() + w.offset, w.rows, w.cols);
  }
  Vector<T> vector(WeightShape const& w) const {
    return Vector<T>(all.data() + w.offset, w.size());
  }
};

/// Where a layer's results lie; rows are tokens. `in` is the residual stream before it, `attended`
/// behind its attention, `out` behind it: where nothing is kept, all three may be one.
template <class T>
struct LayerResults {
  Matrix<T> in, attention_in, qkv, context, attended, mlp_in, gated, out;
  KeptMlp<T> kept;
};

template <class T>
Qkv<T> qkv_of(Config const& c, Matrix<T> const& rows, std::size_t batch) {
  return {heads(rows, batch, c.head_dim, 0, c.heads),
          heads(rows, batch, c.head_dim, c.heads, c.kv_heads),
          heads(rows, batch, c.head_dim, c.rotated_heads(), c.kv_heads),
          heads(rows, batch, c.head_dim, 0, c.rotated_heads())};
}
template <class T>
Heads<T> context_of(Config const& c, Matrix<T> const& rows, std::size_t batch) {
  return heads(rows, batch, c.head_dim, 0, c.heads);
}

/// One layer. `attend()` turns a.qkv, not yet rotated, into a.context.
template <class T, class Attend>
void run_layer(Exec const& exec, Config const& c, Weights<T> const& weights, LayerWeights const& w,
               LayerResults<T> const& a, Attend const& attend_to) {
  norm(exec, a.in, weights.vector(w.attention_norm), a.attention_in, c.eps);
  linear(exec, a.attention_in, weights.matrix(w.qkv), a.qkv);
  attend_to();
  linear(exec, a.context, weights.matrix(w.attention_out), a.attended, a.in);

  norm(exec, a.attended, weights.vector(w.mlp_norm), a.mlp_in, c.eps);
  gated_mlp(exec, a.mlp_in, weights.matrix(w.gate), weights.matrix(w.up), a.kept, a.gated);
  linear(exec, a.gated, weights.matrix(w.down), a.out, a.attended);
}

/// cos and sin where the model computes.
class RotationTables {
 public:
  RotationTables(Config const& config, std::size_t positions)
      : tables_(allocate<float>("rotary tables", 2 * positions * config.head_dim)),
        rotation_{Matrix<float>(tables_.data(), positions, config.head_dim),
                  Matrix<float>(tables_.data() + positions * config.head_dim, positions,
                                config.head_dim)} {
    RotaryTables const host(config, positions);
    copy(rotation_.cos, host.cos);
    copy(rotation_.sin, host.sin);
  }
  Rotation const& rotation() const { return rotation_; }

 private:
  static void copy(Matrix<float> const& to, std::vector<float> const& from) {
    Kokkos::deep_copy(
        to, Kokkos::View<float const**, Kokkos::LayoutRight, Kokkos::HostSpace,
                         Kokkos::MemoryUnmanaged>(from.data(), to.extent(0), to.extent(1)));
  }
  Array<float> tables_;
  Rotation rotation_;
};

}  // namespace llama
