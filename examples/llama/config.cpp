// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "config.hpp"

#include <cmath>

namespace llama {

WeightMap::WeightMap(Config const& c) : layers(c.layers) {
  auto const place = [&](WeightShape& weight, std::size_t rows, std::size_t cols,
                         double deviation) {
    weight = {rows, cols, size, deviation * std::sqrt(3.0)};
    size += weight.size();
  };
  // GPT-2's: what is added to the residual stream is smaller the more of it there is.
  double const usual = 0.02, added = usual / std::sqrt(2.0 * static_cast<double>(c.layers));
  place(embedding, c.vocabulary, c.hidden, usual);
  for (LayerWeights& layer : layers) {
    place(layer.attention_norm, 1, c.hidden, 0);
    place(layer.qkv, c.qkv_width(), c.hidden, usual);
    place(layer.attention_out, c.hidden, c.context_width(), added);
    place(layer.mlp_norm, 1, c.hidden, 0);
    place(layer.gate, c.intermediate, c.hidden, usual);
    place(layer.up, c.intermediate, c.hidden, usual);
    place(layer.down, c.hidden, c.intermediate, added);
  }
  place(final_norm, 1, c.hidden, 0);
  place(head, c.vocabulary, c.hidden, usual);
}

std::vector<WeightShape> WeightMap::all() const {
  std::vector<WeightShape> result{embedding};
  for (LayerWeights const& layer : layers)
    result.insert(result.end(), {layer.attention_norm, layer.qkv, layer.attention_out,
                                 layer.mlp_norm, layer.gate, layer.up, layer.down});
  result.insert(result.end(), {final_norm, head});
  return result;
}

std::vector<NamedWeight> named_weights(Config const& c) {
  std::vector<NamedWeight> result{{"model.embed_tokens.weight", {c.vocabulary, c.hidden}}};
  for (std::size_t i = 0; i < c.layers; ++i) {
    auto const add = [&](char const* name, std::vector<std::uint64_t> const& shape) {
      result.push_back({"model.layers." + std::to_string(i) + "." + name + ".weight", shape});
    };
    add("input_layernorm", {c.hidden});
    add("self_attn.q_proj", {c.context_width(), c.hidden});
    add("self_attn.k_proj", {c.kv_heads * c.head_dim, c.hidden});
    add("self_attn.v_proj", {c.kv_heads * c.head_dim, c.hidden});
    add("self_attn.o_proj", {c.hidden, c.context_width()});
    add("post_attention_layernorm", {c.hidden});
    add("mlp.gate_proj", {c.intermediate, c.hidden});
    add("mlp.up_proj", {c.intermediate, c.hidden});
    add("mlp.down_proj", {c.hidden, c.intermediate});
  }
  result.push_back({"model.norm.weight", {c.hidden}});
  result.push_back({"lm_head.weight", {c.vocabulary, c.hidden}});
  return result;
}

RotaryTables::RotaryTables(Config const& c, std::size_t positions) {
  std::size_t const half = c.head_dim / 2;
  for (std::size_t position = 0; position < positions; ++position) {
    for (std::size_t i = 0; i < c.head_dim; ++i) {
      double const exponent = static_cast<double>(i % half) / static_cast<double>(half);
      double const angle = static_cast<double>(position) * std::pow(c.rope_base, -exponent);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

}  // namespace llama
