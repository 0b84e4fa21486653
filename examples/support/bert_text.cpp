// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bert_text.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace sentence_search {
namespace {

struct CodeRange {
  char32_t first, last;
};
struct ClassRange {
  char32_t first, last;
  std::uint8_t combining_class;
};
struct CodeMapping {
  char32_t first;
  char32_t to[4];  // ends at the first 0
};

#include "unicode_tables.inc"

// The entry of a sorted table that begins at or before a code point.
template <class Entry>
Entry const* last_starting_by(std::span<Entry const> table, char32_t code) {
  auto const after = std::upper_bound(table.begin(), table.end(), code,
                                      [](char32_t c, Entry const& e) { return c < e.first; });
  return after == table.begin() ? nullptr : &*std::prev(after);
}

bool contains(std::span<CodeRange const> table, char32_t code) {
  auto const* const entry = last_starting_by(table, code);
  return entry != nullptr && code <= entry->last;
}

unsigned combining_class(char32_t code) {
  auto const* const entry = last_starting_by(std::span<ClassRange const>(combining_classes), code);
  return entry != nullptr && code <= entry->last ? entry->combining_class : 0u;
}

void append_mapped(std::u32string& text, std::span<CodeMapping const> table, char32_t code) {
  auto const* const entry = last_starting_by(table, code);
  if (entry == nullptr || entry->first != code) {
    text.push_back(code);
    return;
  }
  for (char32_t const to : entry->to) {
    if (to == 0) break;
    text.push_back(to);
  }
}

// The blocks BERT calls Chinese. Kana and Hangul are not among them: they are written with spaces,
// or treated as if they were.
bool is_ideograph(char32_t code) {
  constexpr CodeRange blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                  {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                  {0x2f800, 0x2fa1f}};
  return contains(blocks, code);
}

// Hangul syllables decompose by arithmetic (The Unicode Standard, section 3.12).
void append_decomposed(std::u32string& text, char32_t code) {
  constexpr char32_t first = 0xac00, count = 11172, vowels = 21, finals = 28;
  if (code < first || code >= first + count) {
    append_mapped(text, decompositions, code);
    return;
  }
  char32_t const index = code - first;
  text.push_back(0x1100 + index / (vowels * finals));
  text.push_back(0x1161 + index / finals % vowels);
  if (index % finals != 0) text.push_back(0x11a7 + index % finals);
}

// Every run of combining characters into the order of their classes.
void order_canonically(std::u32string& text) {
  for (auto at = text.begin(); at != text.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    auto const end =
        std::find_if(at, text.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(
        at, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

}  // namespace

std::u32string normalize(std::u32string_view text) {
  std::u32string decomposed;
  decomposed.reserve(text.size());
  for (char32_t const code : text) {
    if (contains(dropped, code)) continue;
    if (contains(white_space, code)) {
      decomposed.push_back(U' ');
    } else if (is_ideograph(code)) {
      decomposed.push_back(U' ');
      append_decomposed(decomposed, code);
      decomposed.push_back(U' ');
    } else {
      append_decomposed(decomposed, code);
    }
  }
  order_canonically(decomposed);

  std::u32string normalized;
  normalized.reserve(decomposed.size());
  for (char32_t const code : decomposed) {
    if (!contains(nonspacing_marks, code)) append_mapped(normalized, lower_case, code);
  }
  return normalized;
}

std::vector<std::u32string_view> split_words(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  std::size_t begin = 0;
  auto const end_word = [&](std::size_t end) {
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (contains(white_space, text[i])) {
      end_word(i);
    } else if (contains(punctuation, text[i])) {
      end_word(i);
      words.push_back(text.substr(i, 1));
    }
  }
  end_word(text.size());
  return words;
}

}  // namespace sentence_search
