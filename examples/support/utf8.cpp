// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "utf8.hpp"

namespace sentence_search {
namespace {

struct Decoded {
  char32_t code;
  std::size_t size;  // 0: not well formed
};

Decoded decode_one(std::string_view text) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned const lead = byte(0);
  if (lead < 0x80u) return {lead, 1};
  std::size_t const size = lead >= 0xf0u ? 4 : lead >= 0xe0u ? 3 : 2;
  if (lead < 0xc2u || lead > 0xf4u || text.size() < size) return {0, 0};
  char32_t code = lead & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {0, 0};
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  char32_t const smallest = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
  bool const surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < smallest || code > 0x10ffff || surrogate) return {0, 0};
  return {code, size};
}

// Besides the control characters, whatever could reorder or hide the rest of the line.
bool disturbs_a_terminal(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    auto const [code, size] = decode_one(text.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return std::nullopt;
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    auto const [code, size] = decode_one(text.substr(at));
    if (size == 0) break;
    codes.push_back(code);
    at += size;
  }
  return codes;
}

void append_utf8(std::string& text, char32_t code) {
  auto const put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3f));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::string one_line(std::string_view text, std::size_t width) {
  constexpr std::size_t longest_code = 4;
  // No more than decides whether it is cut: the text may be long.
  std::u32string const codes = decode_utf8(text.substr(0, longest_code * (width + 1)));
  bool const cut = codes.size() > width;
  std::string line;
  for (char32_t const code : codes.substr(0, cut ? width - 1 : width)) {
    append_utf8(line, disturbs_a_terminal(code) ? U' ' : code);
  }
  if (cut) append_utf8(line, U'\u2026');
  return line;
}

}  // namespace sentence_search
