// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Token sequences to sentence vectors.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "batches.hpp"
#include "bert_config.hpp"
#include "bert_tensors.hpp"
#include "operation_times.hpp"
#include "options.hpp"

namespace sentence_search {

/// A model whose weights lie where the default execution space computes.
class Embedder {
 public:
  virtual ~Embedder() = default;

  /// Unit vectors [texts, hidden], one behind the other, in the order of `texts`. `progress` hears
  /// how many texts are done. Every text has between 1 and max_position_embeddings tokens, all
  /// inside the vocabulary.
  virtual std::vector<float> embed(std::vector<Tokens> const& texts,
                                   std::function<void(std::size_t)> const& progress) = 0;
};

/// Copies the weights as elements of `type`. Kokkos must be initialized. `times` must outlive the
/// embedder.
std::unique_ptr<Embedder> make_embedder(ElementType type, BertTensors const& tensors,
                                        BertConfig const& config, OperationTimes& times);

/// Dot product of `query` [hidden] with each of `count` vectors [count, hidden].
std::vector<float> similarities(std::vector<float> const& query, std::vector<float> const& vectors,
                                std::size_t count, OperationTimes& times);

}  // namespace sentence_search
