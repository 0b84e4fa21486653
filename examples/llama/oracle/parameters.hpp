// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The sizes of the model and where its weights lie. Knows nothing of Kokkos.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace block_oracle {

/// Sizes of the model.
struct Config {
  std::size_t vocabulary = 28;
  std::size_t hidden = 32;
  std::size_t heads_q = 4;
  std::size_t heads_kv = 2;  ///< each serves heads_q/heads_kv neighboring query heads
  std::size_t head_dim = 8;  ///< even
  std::size_t intermediate = 64;
  std::size_t max_positions = 128;  ///< rows of the rotary tables
  double eps = 1e-5;                ///< of the normalizations
  double rope_base = 10000;

  std::size_t context_width() const { return heads_q * head_dim; }
  std::size_t rotated_heads() const { return heads_q + heads_kv; }  ///< queries, then keys
  std::size_t qkv_width() const { return (heads_q + 2 * heads_kv) * head_dim; }
};

/// The weights, in the order in which they lie in memory.
enum class Weight : std::size_t {
  embedding,
  attention_norm,
  qkv,
  attention_out,
  mlp_norm,
  gate,
  up,
  down,
  final_norm,
  head
};

/// One weight inside the array of all of them; matrices are [out, in], row after row.
struct WeightShape {
  char const* name;
  std::size_t rows, cols, offset;
  std::size_t size() const { return rows * cols; }
};

/// Where each Weight lies.
struct WeightMap {
  std::array<WeightShape, 10> shapes;

  explicit WeightMap(Config const& config);
  WeightShape const& operator[](Weight weight) const {
    return shapes[static_cast<std::size_t>(weight)];
  }
  std::size_t size() const { return shapes.back().offset + shapes.back().size(); }
};

/// Weights to start training from, the same on every machine for the same seed. The numbers are
/// exact in float.
std::vector<double> initial_weights(Config const& config, std::uint64_t seed);

/// cos and sin of the rotary embedding, each [max_positions, head_dim], rounded to float.
struct RotaryTables {
  std::vector<double> cos, sin;
  explicit RotaryTables(Config const& config);
};

}  // namespace block_oracle
