// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// config.json: the input is the file.
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "bert_config.hpp"
#include "fuzz.hpp"

namespace sentence_search::fuzz {

bool run(std::string_view input) {
  InputFile const file(input);
  BertConfig config;
  if (!accepts(file.path(), [&] { config = BertConfig::from_file(file.path()); })) return false;
  require(input.find('\0') == std::string_view::npos, "the JSON is all of the file");
  auto const json = nlohmann::json::parse(input);
  for (auto const& [name, size] :
       {std::pair("vocab_size", config.vocab_size), std::pair("hidden_size", config.hidden_size),
        std::pair("num_hidden_layers", config.num_hidden_layers),
        std::pair("num_attention_heads", config.num_attention_heads),
        std::pair("intermediate_size", config.intermediate_size),
        std::pair("max_position_embeddings", config.max_position_embeddings),
        std::pair("type_vocab_size", config.type_vocab_size)}) {
    require(json.at(name) == size, "a size is what the file says");
    require(size >= 1 && size <= 1 << 24, "a size is within its limits");
  }
  require(config.head_dim() * config.num_attention_heads == config.hidden_size,
          "heads divide evenly");
  require(std::isfinite(config.layer_norm_eps) && config.layer_norm_eps >= 0,
          "epsilon is a number");
  require(config.max_position_embeddings >= 3, "a token fits between [CLS] and [SEP]");
  return true;
}

std::vector<std::string> seeds() {
  std::string const sizes =
      R"("vocab_size":9,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":4,)"
      R"("max_position_embeddings":16,"type_vocab_size":2,"layer_norm_eps":1e-12)";
  return {"{" + sizes + "}",
          R"({"model_type":"bert","hidden_act":"gelu","position_embedding_type":"absolute",)" +
              sizes + R"(,"id2label":{"0":["a",{"b":null}]},"use_cache":true})",
          R"({"hidden_act":"relu",)" + sizes + "}",
          R"({"a":[[[[[[{"b":1e999}]]]]]],)" + sizes + "}",
          "{" + sizes + "}" + std::string(1, '\0') + "{",
          "[]",
          "3"};
}

}  // namespace sentence_search::fuzz
