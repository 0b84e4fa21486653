// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "wordpiece.hpp"

#include <algorithm>

#include "bert_text.hpp"
#include "failure.hpp"
#include "text_file.hpp"
#include "utf8.hpp"

namespace sentence_search {
namespace {

constexpr std::size_t max_word_length = 100;  // in characters; a longer word is unknown as a whole
constexpr std::size_t max_vocabulary = std::size_t{1} << 20;
constexpr std::string_view continuation = "##";

}  // namespace

WordPiece WordPiece::from_file(std::filesystem::path const& vocabulary) {
  WordPiece result;
  for_each_line(vocabulary, [&](std::string_view line, std::size_t number) {
    if (number > max_vocabulary) {
      throw DataError(vocabulary.string() + ": holds more than " + std::to_string(max_vocabulary) +
                      " tokens, the limit");
    }
    auto const id = static_cast<std::int32_t>(number - 1);
    result.longest_ = std::max(result.longest_, line.size());
    if (!result.tokens_.emplace(line, id).second) {
      throw DataError(vocabulary.string() + ": line " + std::to_string(number) +
                      " repeats a token");
    }
  });
  auto const find_special = [&](char const* text) {
    auto const found = result.tokens_.find(std::string_view(text));
    if (found == result.tokens_.end()) {
      throw DataError(vocabulary.string() + ": the token " + text + " is missing");
    }
    result.specials_.push_back({text, found->second});
    return found->second;
  };
  find_special("[PAD]");
  result.unknown_ = find_special("[UNK]");
  result.begin_ = find_special("[CLS]");
  result.end_ = find_special("[SEP]");
  find_special("[MASK]");
  return result;
}

std::vector<std::int32_t> WordPiece::encode(std::string_view text, std::size_t max_tokens) const {
  std::vector<std::int32_t> tokens{begin_};
  std::size_t const limit = max_tokens - 1;  // the last one is [SEP]
  // Special tokens are looked for in the text as it was written, before anything is normalized.
  // Where each is found next stays known until it is passed, so that the text is searched once.
  std::vector<std::size_t> next;
  for (auto const& special : specials_) next.push_back(text.find(special.text));
  for (std::size_t at = 0; tokens.size() < limit;) {
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (next[i] < at) next[i] = text.find(specials_[i].text, at);
    }
    auto const nearest = std::min_element(next.begin(), next.end());
    append_words(text.substr(at, *nearest - at), tokens, limit);
    if (*nearest == std::string_view::npos) break;
    auto const& special = specials_[static_cast<std::size_t>(nearest - next.begin())];
    tokens.push_back(special.id);
    at = *nearest + special.text.size();
  }
  tokens.resize(std::min(tokens.size(), limit));
  tokens.push_back(end_);
  return tokens;
}

void WordPiece::append_words(std::string_view text, std::vector<std::int32_t>& tokens,
                             std::size_t limit) const {
  std::u32string const normalized = normalize(decode_utf8(text));
  for (auto const word : split_words(normalized)) {
    if (tokens.size() >= limit) return;
    append_pieces(word, tokens);
  }
}

void WordPiece::append_pieces(std::u32string_view word, std::vector<std::int32_t>& tokens) const {
  if (word.size() > max_word_length) {
    tokens.push_back(unknown_);
    return;
  }
  // Byte offset of every character, so that pieces are cut between characters only.
  std::string bytes;
  std::vector<std::size_t> offsets{0};
  for (char32_t const code : word) {
    append_utf8(bytes, code);
    offsets.push_back(bytes.size());
  }
  std::size_t const first_token = tokens.size();
  std::string piece;
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t end = std::min(word.size(), begin + longest_);
    for (; end > begin; --end) {
      piece.assign(begin == 0 ? std::string_view() : continuation);
      piece.append(bytes, offsets[begin], offsets[end] - offsets[begin]);
      if (auto const found = tokens_.find(piece); found != tokens_.end()) {
        tokens.push_back(found->second);
        break;
      }
    }
    if (end == begin) {  // one part that no piece fits makes the whole word unknown
      tokens.resize(first_token);
      tokens.push_back(unknown_);
      return;
    }
    begin = end;
  }
}

}  // namespace sentence_search
