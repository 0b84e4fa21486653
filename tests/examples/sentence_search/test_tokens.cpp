// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// UTF-8 and the tokenizer, against tokens of the `tokenizers` package (make_fixture.py).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bert_text.hpp"
#include "fixture.hpp"
#include "utf8.hpp"
#include "wordpiece.hpp"

namespace sentence_search::test {
namespace {

constexpr std::size_t max_tokens = 256;

WordPiece vocabulary() { return WordPiece::from_file(model_folder() / "vocab.txt"); }

TEST(Tokens, of_the_fixture) {
  auto const words = vocabulary();
  auto const fixture = read_fixture();
  ASSERT_GE(fixture.sentences.size(), 32u);
  for (auto const& sentence : fixture.sentences) {
    EXPECT_EQ(words.encode(sentence.text, max_tokens), sentence.tokens) << sentence.text;
  }
}

// Every code point there is, alone and inside a word, as one FNV-1a hash a plane.
TEST(Tokens, of_every_code_point) {
  auto const words = vocabulary();
  auto const fixture = read_fixture();
  ASSERT_EQ(fixture.token_hashes.size(), 17u);
  for (char32_t plane = 0; plane < 17; ++plane) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    auto const add = [&](std::string const& text) {
      for (auto const token : words.encode(text, max_tokens)) {
        hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001b3u;
      }
    };
    constexpr char32_t block = 4096;  // the order in which the fixture was made
    for (char32_t start = plane << 16; start < (plane + 1) << 16; start += block) {
      std::vector<std::string> texts;
      for (char32_t code = start; code < start + block; ++code) {
        if (code < 0xd800 || code > 0xdfff) append_utf8(texts.emplace_back(), code);
      }
      for (auto const& text : texts) add(text);
      for (auto const& text : texts) add("ab" + text + "ing");
    }
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
    EXPECT_EQ(digits, fixture.token_hashes[plane]) << "plane " << static_cast<unsigned>(plane);
  }
}

TEST(Tokens, are_cut_to_the_limit) {
  auto const words = vocabulary();
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word ";
  auto const all = words.encode(text, 1000);
  EXPECT_EQ(all.size(), 302u);
  auto const cut = words.encode(text, 10);
  ASSERT_EQ(cut.size(), 10u);
  EXPECT_EQ(cut.front(), all.front());
  EXPECT_EQ(cut.back(), all.back());
}

// Time quadratic in the length would be minutes here; each of these is one line without spaces.
TEST(Tokens, of_long_lines_take_linear_time) {
  auto const words = vocabulary();
  auto const repeated = [](std::string_view text) {
    std::string line;
    while (line.size() < (std::size_t{1} << 20)) line += text;
    return line;
  };
  auto const id = [&](std::string_view token) { return words.encode(token, 3)[1]; };
  auto const start = std::chrono::steady_clock::now();
  struct Case {
    std::string_view text;
    std::vector<std::string_view> tokens;  // which repeat
  };
  // A word of 100 letters that is in no vocabulary: what of it is known does not matter.
  std::string const long_word = std::string(100, 'q') + ".";
  std::vector<Case> cases(7);
  cases[0] = {"[SEP]", {"[SEP]"}};
  cases[1] = {"[SEP]a", {"[SEP]", "a"}};
  cases[2] = {"[", {"["}};
  cases[3] = {"[[SEP]", {"[", "[SEP]"}};
  cases[4] = {"a,", {"a", ","}};
  cases[5] = {"\u4e2d", {"\u4e2d"}};
  cases[6] = {long_word, {}};
  for (auto const& [text, tokens] : cases) {
    auto const got = words.encode(repeated(text), max_tokens);
    ASSERT_EQ(got.size(), max_tokens);
    for (std::size_t i = 1; !tokens.empty() && i + 1 < max_tokens; ++i) {
      ASSERT_EQ(got[i], id(tokens[(i - 1) % tokens.size()])) << text << " " << i;
    }
  }
  EXPECT_EQ(words.encode(repeated("a"), max_tokens), words.encode("[UNK]", max_tokens));
  EXPECT_EQ(words.encode("a" + repeated("\u0301"), max_tokens), words.encode("a", max_tokens));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Text, is_normalized) {
  EXPECT_EQ(normalize(U"\u00c9COLE"), U"ecole");
  EXPECT_EQ(normalize(U"E\u0301\u0327"), U"e");
  EXPECT_EQ(normalize(U"\u0130"), U"i");
  EXPECT_EQ(normalize(U"\uac01"), U"\u1100\u1161\u11a8");  // Hangul becomes its letters
  EXPECT_EQ(normalize(U"a\u4e2db"), U"a \u4e2d b");
  EXPECT_EQ(normalize(U"a\u0001b\ufffdc\td"), U"abc d");
  EXPECT_EQ(normalize(U""), U"");
  // Two marks that stay, written against the order of their classes.
  EXPECT_EQ(normalize(U"a\u302e\U0001d165"), U"a\U0001d165\u302e");
}

TEST(Text, is_split_into_words) {
  std::u32string const text = U" it's  a,b.";
  std::vector<std::u32string_view> const expected{U"it", U"'", U"s", U"a", U",", U"b", U"."};
  EXPECT_EQ(split_words(text), expected);
  EXPECT_TRUE(split_words(U" \u3000 ").empty());
}

TEST(Utf8, says_where_a_text_is_invalid) {
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("a\u00e9\u20ac\U0010ffff"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2u);            // continuation without a lead
  EXPECT_EQ(find_invalid_utf8("\xc3"), 0u);              // cut off
  EXPECT_EQ(find_invalid_utf8("a\xe2\x82"), 1u);         // cut off
  EXPECT_EQ(find_invalid_utf8("\xc0\x80"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xc1\xbf"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xe0\x9f\xbf"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("\xf0\x8f\xbf\xbf"), 0u);  // overlong
  EXPECT_EQ(find_invalid_utf8("x\xed\xa0\x80"), 1u);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xff"), 0u);
  EXPECT_EQ(find_invalid_utf8("a\xe2\x28\xa1"), 1u);  // no continuation
}

TEST(Utf8, goes_there_and_back) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    std::string text;
    append_utf8(text, code);
    ASSERT_EQ(find_invalid_utf8(text), std::nullopt);
    ASSERT_EQ(decode_utf8(text), std::u32string(1, code));
  }
}

TEST(Utf8, one_line_fits_a_terminal) {
  EXPECT_EQ(one_line("short", 10), "short");
  EXPECT_EQ(one_line("0123456789", 10), "0123456789");
  EXPECT_EQ(one_line("0123456789a", 10), "012345678\u2026");
  EXPECT_EQ(one_line("a\tb\nc\x1b[31md\u202e", 20), "a b c [31md ");
}

}  // namespace
}  // namespace sentence_search::test
