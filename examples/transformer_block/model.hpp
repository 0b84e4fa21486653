// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The block: embedding, RMSNorm, grouped attention, RMSNorm, gated MLP, and the head that gives
/// logits. Training and generation share all of it but the step between q, k, v and the context.
/// Source of the architecture: H. Touvron et al., "LLaMA", arXiv:2302.13971.
#pragma once

#include <attikos/gemm/gemm.hpp>
#include <attikos/mlp/gated_mlp.hpp>
#include <attikos/norm/rms_norm.hpp>

#include "parameters.hpp"
#include "tensors.hpp"

namespace transformer_block {

/// All weights, or the gradients of all weights, in one array.
template <class T>
struct Weights {
  WeightMap map;
  Tensor<T*> all;

  explicit Weights(Config const& config) : map(config), all(allocate<T*>("weights", map.size())) {}

  Part<T**> matrix(Weight weight) const {
    return Part<T**>(all.data() + map[weight].offset, map[weight].rows, map[weight].cols);
  }
  Part<T*> vector(Weight weight) const {
    return Part<T*>(all.data() + map[weight].offset, map[weight].size());
  }
};

/// The model where it computes.
template <class T>
struct Model {
  Config config;
  Weights<T> weights;
  Tensor<float**> cos, sin;

  Model(Config const& sizes, std::vector<double> const& values)
      : config(sizes),
        weights(sizes),
        cos(allocate<float**>("cos", sizes.max_positions, sizes.head_dim)),
        sin(allocate<float**>("sin", sizes.max_positions, sizes.head_dim)) {
    RotaryTables const tables(sizes);
    to_device(weights.all, values);
    to_device(cos, tables.cos);
    to_device(sin, tables.sin);
  }
};

/// What the forward pass of `batch` sequences of `seqlen` tokens leaves behind. Rows are tokens.
template <class T>
struct Activations {
  std::size_t batch, seqlen;
  Tensor<T**> embedded, attention_in, qkv, context, attended, mlp_in, gated, mixed, head_in, logits;

  Activations(Config const& c, std::size_t sequences, std::size_t length)
      : batch(sequences),
        seqlen(length),
        embedded(rows("embedded", c.hidden)),
        attention_in(rows("attention in", c.hidden)),
        qkv(rows("qkv", c.qkv_width())),
        context(rows("context", c.context_width())),
        attended(rows("attended", c.hidden)),
        mlp_in(rows("mlp in", c.hidden)),
        gated(rows("gated", c.intermediate)),
        mixed(rows("mixed", c.hidden)),
        head_in(rows("head in", c.hidden)),
        logits(rows("logits", c.vocabulary)) {}

 private:
  Tensor<T**> rows(char const* name, std::size_t width) const {
    return allocate<T**>(name, batch * seqlen, width);
  }
};

/// `count` heads of a tensor of rows, from head `first` on, as [batch, count, seqlen, head_dim]:
/// strides over the same memory, nothing is transposed.
template <class T>
using Heads = Kokkos::View<T****, Kokkos::LayoutStride, Exec, Kokkos::MemoryUnmanaged>;
template <class T>
Heads<T> heads(Tensor<T**> const& rows, std::size_t batch, std::size_t head_dim, std::size_t first,
               std::size_t count) {
  std::size_t const width = rows.extent(1), seqlen = rows.extent(0) / batch;
  return Heads<T>(
      rows.data() + first * head_dim,
      Kokkos::LayoutStride(batch, seqlen * width, count, head_dim, seqlen, width, head_dim, 1));
}

/// Queries, keys and values inside the rows of `qkv`.
template <class T>
struct QkvHeads {
  Heads<T> q, k, v, rotated;  ///< `rotated`: q and k together

  QkvHeads(Config const& c, Tensor<T**> const& qkv, std::size_t batch)
      : q(heads(qkv, batch, c.head_dim, 0, c.heads_q)),
        k(heads(qkv, batch, c.head_dim, c.heads_q, c.heads_kv)),
        v(heads(qkv, batch, c.head_dim, c.rotated_heads(), c.heads_kv)),
        rotated(heads(qkv, batch, c.head_dim, 0, c.rotated_heads())) {}
};

/// out(row, :) = table(tokens(row), :)
template <class T>
struct Embed {
  Tensor<std::int32_t*> tokens;
  Part<T**> table;
  Tensor<T**> out;
  KOKKOS_FUNCTION void operator()(int row, int h) const { out(row, h) = table(tokens(row), h); }
};

/// Runs `function(i, j)` for all i < rows, j < cols.
template <class Function>
void for_each_element(Exec const& exec, char const* label, std::size_t rows, std::size_t cols,
                      Function const& function) {
  if (rows == 0 || cols == 0) return;  // what a range of two dimensions cannot be
  using Policy = Kokkos::MDRangePolicy<Exec, Kokkos::Rank<2>, Kokkos::IndexType<int>>;
  Kokkos::parallel_for(
      label, Policy(exec, {0, 0}, {static_cast<int>(rows), static_cast<int>(cols)}), function);
}

/// Logits of every token. `attend(qkv, context)` turns projected queries, keys and values, not yet
/// rotated, into the context of every query head.
template <class T, class Attend>
void forward(Exec const& exec, Model<T> const& model, Tensor<std::int32_t*> const& tokens,
             Activations<T> const& a, Attend const& attend) {
  auto const& w = model.weights;
  attikos::RmsNormOptions const norm{.eps = model.config.eps};
  attikos::GemmOptions const linear{.trans_b = true};

  for_each_element(exec, "transformer_block: embed", a.embedded.extent(0), a.embedded.extent(1),
                   Embed<T>{tokens, w.matrix(Weight::embedding), a.embedded});

  attikos::rms_norm(exec, a.embedded, w.vector(Weight::attention_norm), a.attention_in, norm);
  attikos::gemm(exec, a.attention_in, w.matrix(Weight::qkv), a.qkv, linear);
  attend(a.qkv, a.context);
  attikos::gemm(exec, a.context, w.matrix(Weight::attention_out), a.attended, linear,
                attikos::residual(a.embedded));

  attikos::rms_norm(exec, a.attended, w.vector(Weight::mlp_norm), a.mlp_in, norm);
  attikos::gated_mlp(exec, a.mlp_in, w.matrix(Weight::gate), w.matrix(Weight::up), a.gated);
  attikos::gemm(exec, a.gated, w.matrix(Weight::down), a.mixed, linear,
                attikos::residual(a.attended));

  attikos::rms_norm(exec, a.mixed, w.vector(Weight::final_norm), a.head_in, norm);
  attikos::gemm(exec, a.head_in, w.matrix(Weight::head), a.logits, linear);
}

}  // namespace transformer_block
