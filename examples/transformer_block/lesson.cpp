// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>

#include "generation.hpp"
#include "training.hpp"

namespace transformer_block {

std::vector<std::int32_t> tokens_of(std::string_view text) {
  std::vector<std::int32_t> tokens;
  for (char const letter : text) {
    bool const known = letter >= 'a' && letter <= 'z';
    tokens.push_back(letter == ' ' ? 0 : known ? letter - 'a' + 1 : 27);
  }
  return tokens;
}

std::string text_of(std::vector<std::int32_t> const& tokens) {
  std::string text;
  for (std::int32_t const token : tokens)
    text += token == 0 ? ' ' : token < 27 ? static_cast<char>('a' + token - 1) : '.';
  return text;
}

std::size_t likeliest(std::vector<double> const& logits, std::size_t row, std::size_t vocabulary) {
  auto const begin = logits.begin() + static_cast<std::ptrdiff_t>(row * vocabulary);
  auto const end = begin + static_cast<std::ptrdiff_t>(vocabulary);
  return static_cast<std::size_t>(std::max_element(begin, end) - begin);
}

Lesson make_lesson(std::size_t batch) {
  auto const tokens = tokens_of(sentence);
  Lesson lesson{batch, {}, {}};
  for (std::size_t b = 0; b < batch; ++b) {
    std::size_t const begin = b * tokens.size() / batch;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      lesson.tokens.push_back(tokens[(begin + i) % tokens.size()]);
      lesson.targets.push_back(tokens[(begin + i + 1) % tokens.size()]);
    }
  }
  return lesson;
}

}  // namespace transformer_block
