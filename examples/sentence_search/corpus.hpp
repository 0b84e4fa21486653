// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where the passages come from.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sentence_search {

/// What a corpus may hold: its tokens and vectors take about 3 GB.
inline constexpr std::size_t max_passages = 1'000'000;

struct Passage {
  std::string text;    ///< valid UTF-8
  std::string origin;  ///< file and line, for people
};

/// One passage a line; blank lines are passed over. Throws DataError for a file that cannot be
/// read, holds invalid UTF-8 or no passage, or passes a limit: max_passages and those of
/// text_file.hpp.
std::vector<Passage> passages_of_lines(std::filesystem::path const& file);

/// The paragraphs of a project's documentation: its Markdown files (at the top, in docs/, and one
/// beside each example) and the `///` comments of its public headers. Code, tables and headings are
/// left out. The same limits; a paragraph has that of a line.
std::vector<Passage> passages_of_documentation(std::filesystem::path const& project);

/// True if a text holds nothing but white space.
bool is_blank(std::string_view text);

}  // namespace sentence_search
