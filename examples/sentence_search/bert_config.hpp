// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The sizes of a BERT model, from its config.json.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sentence_search {

struct BertConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;
  double layer_norm_eps = 0;

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }

  /// Throws DataError for a file that cannot be read, no valid JSON, or another kind of model.
  static BertConfig from_file(std::filesystem::path const& path);
};

}  // namespace sentence_search
