// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// UTF-8 and BERT's normalization: the input is a text.
#include <algorithm>

#include "bert_text.hpp"
#include "fuzz.hpp"
#include "utf8.hpp"

namespace sentence_search::fuzz {
namespace {

// Bytes at the start that are well formed, by table 3-7 of the Unicode Standard.
std::size_t well_formed(std::string_view text) {
  struct Row {
    unsigned first, last, second_first, second_last;
    std::size_t size;
  };
  static constexpr Row rows[] = {
      {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
      {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
      {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  std::size_t at = 0;
  auto const in = [&](std::size_t i, unsigned first, unsigned last) {
    return at + i < text.size() && static_cast<unsigned char>(text[at + i]) >= first &&
           static_cast<unsigned char>(text[at + i]) <= last;
  };
  for (;;) {
    auto const* const row = std::find_if(std::begin(rows), std::end(rows), [&](Row const& r) {
      return in(0, r.first, r.last) && (r.size < 2 || in(1, r.second_first, r.second_last)) &&
             (r.size < 3 || in(2, 0x80, 0xbf)) && (r.size < 4 || in(3, 0x80, 0xbf));
    });
    if (row == std::end(rows)) return at;
    at += row->size;
  }
}

std::string encoded(std::u32string const& codes) {
  std::string text;
  for (char32_t const code : codes) append_utf8(text, code);
  return text;
}

}  // namespace

bool run(std::string_view input) {
  auto const valid = find_invalid_utf8(input).value_or(input.size());
  require(valid == well_formed(input), "what is valid is as the standard says");
  auto const text = input.substr(0, valid);
  auto const codes = decode_utf8(input);  // stops where the text is invalid
  require(encoded(codes) == text, "a text goes there and back");

  auto const normalized = normalize(codes);
  require(!find_invalid_utf8(encoded(normalized)), "a normalized text holds code points");
  require(normalize(codes + U' ' + codes) == normalized + U' ' + normalized, "a space separates");
  std::u32string words, letters = normalized;
  std::erase(letters, U' ');
  for (auto const word : split_words(normalized)) {
    require(!word.empty(), "a word is not empty");
    words += word;
  }
  require(words == letters, "words are all but the spaces");

  std::size_t const width = 1 + input.size() % 20;
  auto const line = one_line(text, width);
  require(!find_invalid_utf8(line) && decode_utf8(line).size() == std::min(width, codes.size()),
          "a line has its width");
  require(std::none_of(line.begin(), line.end(),
                       [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }),
          "a line has no control characters");
  return valid == input.size();
}

std::vector<std::string> seeds() {
  return {"It's \u00c9COLE, Stra\u00dfe \u0130I\u0307\u212a",
          "a\u0301\u0327\u302e\U0001d165 \u1e69\u0344",
          "\uac01\ud55c\u4e2d\u6587\U0002f800\u304b\u3099",
          "tab\tline\r\n\u2028\u00a0\u3000\u200b\ufffd\x01 \u202e\x1b[31m",
          "\U0010ffff\U00010570\u1e9e\ua7cb \U0001f600",
          "ok \xe2\x82",
          "\xc0\x80",
          "\xed\xa0\x80",
          "\xf4\x90\x80\x80"};
}

}  // namespace sentence_search::fuzz
