// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bert_tensors.hpp"

#include <cstdint>
#include <string>

namespace sentence_search {

BertTensors::BertTensors(Safetensors const& file, BertConfig const& config) {
  auto const extent = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
  std::uint64_t const hidden = extent(config.hidden_size);
  std::uint64_t const intermediate = extent(config.intermediate_size);
  auto const norm = [&](std::string const& name) -> Norm {
    return {file.float32(name + ".weight", {hidden}), file.float32(name + ".bias", {hidden})};
  };
  auto const linear = [&](std::string const& name, std::uint64_t out, std::uint64_t in) -> Linear {
    return {file.float32(name + ".weight", {out, in}), file.float32(name + ".bias", {out})};
  };
  auto const table = [&](std::string const& name, std::int64_t rows) {
    return file.float32("embeddings." + name + "_embeddings.weight", {extent(rows), hidden});
  };
  word_embeddings = table("word", config.vocab_size);
  position_embeddings = table("position", config.max_position_embeddings);
  type_embeddings = table("token_type", config.type_vocab_size);
  embedding_norm = norm("embeddings.LayerNorm");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    std::string const layer = "encoder.layer." + std::to_string(i) + ".";
    layers.push_back({.query = linear(layer + "attention.self.query", hidden, hidden),
                      .key = linear(layer + "attention.self.key", hidden, hidden),
                      .value = linear(layer + "attention.self.value", hidden, hidden),
                      .attention_output = linear(layer + "attention.output.dense", hidden, hidden),
                      .intermediate = linear(layer + "intermediate.dense", intermediate, hidden),
                      .output = linear(layer + "output.dense", hidden, intermediate),
                      .attention_norm = norm(layer + "attention.output.LayerNorm"),
                      .output_norm = norm(layer + "output.LayerNorm")});
  }
}

}  // namespace sentence_search
