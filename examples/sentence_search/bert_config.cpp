// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bert_config.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "failure.hpp"
#include "text_file.hpp"

namespace sentence_search {

BertConfig BertConfig::from_file(std::filesystem::path const& path) {
  using Json = nlohmann::json;
  auto const fail = [&](std::string const& reason) {
    throw DataError(path.string() + ": " + reason);
  };
  Json json;
  try {
    json = Json::parse(read_file(path));
  } catch (Json::parse_error const& error) {
    fail("no valid JSON at byte " + std::to_string(error.byte));
  }
  if (!json.is_object()) fail("no JSON object");

  // A bound far above any BERT keeps products of two sizes within 64 bits.
  constexpr std::uint64_t max_size = 1u << 24;
  auto const size = [&](char const* name) -> std::int64_t {
    if (!json.contains(name) || !json[name].is_number_unsigned() ||
        json[name].get<std::uint64_t>() == 0 || json[name].get<std::uint64_t>() > max_size) {
      fail(std::string(name) + " must be a positive integer");
    }
    return json[name].get<std::int64_t>();
  };
  auto const expect = [&](char const* name, char const* value) {
    if (json.contains(name) && json[name] != value) {
      fail(std::string(name) + " must be \"" + value + "\"");
    }
  };
  expect("model_type", "bert");
  expect("hidden_act", "gelu");
  expect("position_embedding_type", "absolute");
  BertConfig config;
  config.vocab_size = size("vocab_size");
  config.hidden_size = size("hidden_size");
  config.num_hidden_layers = size("num_hidden_layers");
  config.num_attention_heads = size("num_attention_heads");
  config.intermediate_size = size("intermediate_size");
  config.max_position_embeddings = size("max_position_embeddings");
  config.type_vocab_size = size("type_vocab_size");
  if (!json.contains("layer_norm_eps") || !json["layer_norm_eps"].is_number() ||
      !(json["layer_norm_eps"].get<double>() >= 0)) {
    fail("layer_norm_eps must be a number that is not negative");
  }
  config.layer_norm_eps = json["layer_norm_eps"].get<double>();
  if (config.hidden_size % config.num_attention_heads != 0) {
    fail("hidden_size must be a multiple of num_attention_heads");
  }
  return config;
}

}  // namespace sentence_search
