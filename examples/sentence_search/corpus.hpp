// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where the passages come from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sentence_search {

struct Passage {
  std::string text;    ///< valid UTF-8
  std::string origin;  ///< file and line, for people
};

/// One passage a line; blank lines are passed over. Throws DataError for a file that cannot be
/// read, holds invalid UTF-8 or no passage.
std::vector<Passage> passages_of_lines(std::filesystem::path const& file);

/// The paragraphs of a project's documentation: its Markdown files (at the top and one beside each
/// example) and the `///` comments of its public headers. Code, tables and headings are left out.
std::vector<Passage> passages_of_documentation(std::filesystem::path const& project);

/// True if a text holds nothing but white space.
bool is_blank(std::string const& text);

}  // namespace sentence_search
