// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The sizes of the model and where its weights lie. Knows nothing of Kokkos.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace llama {

/// Sizes of the model.
struct Config {
  std::size_t vocabulary = 0;
  std::size_t layers = 8;
  std::size_t hidden = 2048;
  std::size_t heads = 16;
  std::size_t kv_heads = 4;  ///< each serves heads/kv_heads neighboring query heads
  std::size_t head_dim = 128;
  std::size_t intermediate = 5632;
  double eps = 1e-5;  ///< of the normalizations
  double rope_base = 10000;

  std::size_t context_width() const { return heads * head_dim; }
  std::size_t rotated_heads() const { return heads + kv_heads; }  ///< queries, then keys
  std::size_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// One weight inside the array of all of them; matrices are [out, in], row after row.
struct WeightShape {
  std::size_t rows = 0, cols = 0, offset = 0;
  double limit = 0;  ///< weights are drawn from ±limit; 0: all are 1
  std::size_t size() const { return rows * cols; }
};

struct LayerWeights {
  WeightShape attention_norm, qkv, attention_out, mlp_norm, gate, up, down;
};

/// Where each weight lies: in the order of the members.
struct WeightMap {
  WeightShape embedding;
  std::vector<LayerWeights> layers;
  WeightShape final_norm, head;
  std::size_t size = 0;

  explicit WeightMap(Config const& config);
  /// All of them, in their order.
  std::vector<WeightShape> all() const;
};

/// A part of the array of all weights as the checkpoint names it.
struct NamedWeight {
  std::string name;
  std::vector<std::uint64_t> shape;
};

/// Names and shapes that transformers' LlamaForCausalLM gives the weights; they fill the array
/// without a gap.
std::vector<NamedWeight> named_weights(Config const& config);

/// cos and sin of the rotary embedding, each [positions, head_dim].
struct RotaryTables {
  std::vector<float> cos, sin;
  RotaryTables(Config const& config, std::size_t positions);
};

}  // namespace llama
