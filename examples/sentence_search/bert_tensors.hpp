// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The weights of a BERT encoder by name, where they lie in the file.
#pragma once

#include <span>
#include <vector>

#include "bert_config.hpp"
#include "safetensors.hpp"

namespace sentence_search {

struct BertTensors {
  using Values = std::span<float const>;
  /// y = x·weightᵀ + bias, weight [out, in]
  struct Linear {
    Values weight, bias;
  };
  struct Norm {
    Values weight, bias;
  };
  struct Layer {
    Linear query, key, value, attention_output, intermediate, output;
    Norm attention_norm, output_norm;
  };

  Values word_embeddings, position_embeddings, type_embeddings;
  Norm embedding_norm;
  std::vector<Layer> layers;

  /// Finds every tensor and checks its shape. Throws DataError. The values live as long as `file`.
  BertTensors(Safetensors const& file, BertConfig const& config);
};

}  // namespace sentence_search
