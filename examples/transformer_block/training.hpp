// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Training in float32, and the text that the model learns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parameters.hpp"

namespace transformer_block {

/// A sentence with every letter; the model reads it round and round.
inline constexpr std::string_view sentence = "the quick brown fox jumps over the lazy dog. ";

/// Tokens of a text: 0 is a space, 1 to 26 are letters, 27 is anything else, shown as a period.
std::vector<std::int32_t> tokens_of(std::string_view text);
std::string text_of(std::vector<std::int32_t> const& tokens);

/// `batch` sequences, one behind the other, and the token that follows each token.
struct Lesson {
  std::size_t batch;
  std::vector<std::int32_t> tokens, targets;
};

/// The sentence, begun at `batch` different places.
Lesson make_lesson(std::size_t batch);

/// Trains `weights` and returns the loss before each step and after the last one.
std::vector<double> train(Config const& config, std::vector<double>& weights, Lesson const& lesson,
                          std::size_t steps, double learning_rate);

}  // namespace transformer_block
