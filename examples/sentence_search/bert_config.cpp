// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bert_config.hpp"

#include <map>
#include <string>

#include "failure.hpp"
#include "json_events.hpp"
#include "text_file.hpp"

namespace sentence_search {
namespace {

using Json = JsonEvents::Json;

// The members of the outer object; of what is an object or array itself only that it is one.
class Members final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  /// Null where there is no such member.
  Json const* find(char const* name) const {
    auto const found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  void on_key(std::string const& name) override {
    if (depth() == 1) name_ = name;
  }
  void on_scalar(Json const& value) override {
    if (depth() == 0) fail("is no JSON object");
    if (depth() == 1) values_[name_] = value;
  }
  void on_open(bool object) override {
    if (depth() == 1 && !object) fail("is no JSON object");
    if (depth() == 2) values_[name_] = object ? Json::object() : Json::array();
  }
  void on_close() override {}

  std::map<std::string, Json> values_;
  std::string name_;
};

}  // namespace

BertConfig BertConfig::from_file(std::filesystem::path const& path) {
  constexpr std::size_t max_bytes = std::size_t{1} << 20;
  auto const fail = [&](std::string const& reason) {
    throw DataError(path.string() + ": " + reason);
  };
  Members json(path.string() + ":");
  json.read(read_file(path, max_bytes));

  // A bound far above any BERT keeps products of two sizes within 64 bits.
  constexpr std::uint64_t max_size = 1u << 24;
  auto const size = [&](char const* name, std::uint64_t min_size = 1) -> std::int64_t {
    Json const* const found = json.find(name);
    if (found == nullptr || !found->is_number_unsigned() ||
        found->get<std::uint64_t>() < min_size || found->get<std::uint64_t>() > max_size) {
      fail(std::string(name) + " must be an integer from " + std::to_string(min_size) + " to " +
           std::to_string(max_size));
    }
    return found->get<std::int64_t>();
  };
  auto const expect = [&](char const* name, char const* value) {
    Json const* const found = json.find(name);
    if (found != nullptr && *found != value) {
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
  config.max_position_embeddings = size("max_position_embeddings", 3);  // [CLS], a token, [SEP]
  config.type_vocab_size = size("type_vocab_size");
  Json const* const eps = json.find("layer_norm_eps");
  if (eps == nullptr || !eps->is_number() || !(eps->get<double>() >= 0)) {
    fail("layer_norm_eps must be a number that is not negative");
  }
  config.layer_norm_eps = eps->get<double>();
  if (config.hidden_size % config.num_attention_heads != 0) {
    fail("hidden_size must be a multiple of num_attention_heads");
  }
  return config;
}

}  // namespace sentence_search
