// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Text files of UTF-8 lines.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace sentence_search {

/// Larger texts are refused while they are read, so that an input without an end has one.
inline constexpr std::size_t max_text_bytes = std::size_t{256} << 20;
inline constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

/// Throws DataError unless `path` is something that can be read as a file.
void require_readable_file(std::filesystem::path const& path);

/// The whole file. Throws DataError if it cannot be read or is larger than `max_bytes`.
std::string read_file(std::filesystem::path const& path, std::size_t max_bytes);

/// Calls `visit` with every line, without its end ("\n" or "\r\n") and without a byte order mark,
/// and its number, counted from 1. Throws DataError if the file cannot be read, a line is no valid
/// UTF-8, or one of the limits above is passed.
void for_each_line(std::filesystem::path const& path,
                   std::function<void(std::string_view line, std::size_t number)> const& visit);

}  // namespace sentence_search
