// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Text files of UTF-8 lines.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace sentence_search {

struct Line {
  std::string text;
  std::size_t number;  ///< counted from 1
};

/// Throws DataError unless `path` is something that can be read as a file.
void require_readable_file(std::filesystem::path const& path);

/// The whole file. Throws DataError if it cannot be read.
std::string read_file(std::filesystem::path const& path);

/// All lines without their ends ("\n" or "\r\n") and without a byte order mark. Throws DataError if
/// the file cannot be read or a line is no valid UTF-8.
std::vector<Line> read_lines(std::filesystem::path const& path);

}  // namespace sentence_search
