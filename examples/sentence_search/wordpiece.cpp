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
constexpr std::string_view continuation = "##";

}  // namespace

WordPiece WordPiece::from_file(std::filesystem::path const& vocabulary) {
  WordPiece result;
  for (auto& line : read_lines(vocabulary)) {
    auto const id = static_cast<std::int32_t>(line.number - 1);
    if (!result.tokens_.emplace(std::move(line.text), id).second) {
      throw DataError(vocabulary.string() + ": line " + std::to_string(line.number) +
                      " repeats a token");
    }
  }
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
  // Special tokens are looked for in the text as it was written, before anything is normalized.
  while (!text.empty()) {
    std::size_t at = text.size();
    Special const* special = nullptr;
    for (auto const& candidate : specials_) {
      std::size_t const found = text.find(candidate.text);
      if (found < at) {
        at = found;
        special = &candidate;
      }
    }
    append_words(text.substr(0, at), tokens);
    if (special == nullptr) break;
    tokens.push_back(special->id);
    text.remove_prefix(at + special->text.size());
  }
  tokens.resize(std::min(tokens.size(), max_tokens - 1));
  tokens.push_back(end_);
  return tokens;
}

void WordPiece::append_words(std::string_view text, std::vector<std::int32_t>& tokens) const {
  std::u32string const normalized = normalize(decode_utf8(text));
  for (auto const word : split_words(normalized)) append_pieces(word, tokens);
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
    std::size_t end = word.size();
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
