// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// vocab.txt and what becomes of a text with it: the input is the vocabulary, a zero byte, the text.
#include <algorithm>
#include <optional>

#include "bert_text.hpp"
#include "fuzz.hpp"
#include "utf8.hpp"
#include "wordpiece.hpp"

namespace sentence_search::fuzz {
namespace {

// The pieces of tokens, put together again.
std::u32string joined(WordPiece const& words, std::vector<std::int32_t> const& tokens,
                      std::string_view vocabulary) {
  std::vector<std::string_view> lines;
  for (std::size_t at = vocabulary.starts_with("\xef\xbb\xbf") ? 3 : 0;
       lines.size() < words.size();) {
    auto const end = vocabulary.find('\n', at);
    auto const line = vocabulary.substr(std::min(at, vocabulary.size()), end - at);
    lines.push_back(line.substr(0, line.size() - (line.ends_with('\r') ? 1 : 0)));
    at = end + 1;
  }
  std::u32string text;
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
    auto const piece = lines.at(static_cast<std::size_t>(tokens[i]));
    text += decode_utf8(piece.substr(piece.starts_with("##") ? 2 : 0));
  }
  return text;
}

}  // namespace

bool run(std::string_view input) {
  auto const zero = std::min(input.find('\0'), input.size());
  auto const vocabulary = input.substr(0, zero);
  auto text = input.substr(std::min(zero + 1, input.size()));
  text = text.substr(0, find_invalid_utf8(text).value_or(text.size()));
  InputFile const file(vocabulary);
  std::optional<WordPiece> words;
  if (!accepts(file.path(), [&] { words = WordPiece::from_file(file.path()); })) return false;

  constexpr std::size_t no_limit = std::size_t{1} << 24;
  auto const id = [&](char const* special) { return words->encode(special, 3)[1]; };
  auto const all = words->encode(text, no_limit);
  require(all.size() >= 2 && all.front() == id("[CLS]") && all.back() == id("[SEP]"),
          "[CLS] and [SEP] are around");
  for (auto const token : all) {
    require(token >= 0 && static_cast<std::size_t>(token) < words->size(),
            "a token is one of the vocabulary's");
  }
  for (std::size_t const limit : {std::size_t{2}, 2 + all.size() / 2}) {
    auto expected = all;
    expected.resize(std::min(limit, all.size()));
    expected.back() = all.back();
    require(words->encode(text, limit) == expected, "a limit cuts and changes nothing else");
  }
  bool const unknown = std::count(all.begin(), all.end(), id("[UNK]")) > 0;
  if (unknown || text.find('[') != std::string_view::npos) return false;
  std::u32string letters;
  auto const normalized = normalize(decode_utf8(text));
  for (auto const word : split_words(normalized)) letters += word;
  require(joined(*words, all, vocabulary) == letters, "the pieces make up the words");
  return true;
}

std::vector<std::string> seeds() {
  std::string const vocabulary =
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nab\n##b\n##c\nstra\n##\u00df\n##e\n\u4e2d\n,\n";
  std::string const zero(1, '\0');
  std::string const windows =
      "\xef\xbb\xbf[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n#\r\n##a\r\nx";
  return {vocabulary + zero + "abc Stra\u00dfe, ABC\u4e2da,a,a",
          vocabulary + zero + "a[SEP]b [MASK][MAS [UNK] a\u0301\u0327b",
          windows + zero + "xaaa #x \u00a0x\u2028a",
          vocabulary + zero + std::string(101, 'a') + " " + std::string(100, 'b'),
          "[PAD]\n[UNK]\n[CLS]\na\na\n"};
}

}  // namespace sentence_search::fuzz
