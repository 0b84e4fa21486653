// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sentence_search {

/// Byte offset of the first byte that starts no well-formed sequence; nothing if the text is valid.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Code points of a valid text.
std::u32string decode_utf8(std::string_view text);

void append_utf8(std::string& text, char32_t code);

/// One line for a terminal: control characters and line breaks become spaces, and what is longer
/// than `width` code points ends in an ellipsis.
std::string one_line(std::string_view text, std::size_t width);

}  // namespace sentence_search
