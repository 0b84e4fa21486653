// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The texts that are searched: the input is a file of lines, a Markdown file and a header.
#include <algorithm>

#include "corpus.hpp"
#include "fuzz.hpp"
#include "text_file.hpp"
#include "utf8.hpp"

namespace sentence_search::fuzz {
namespace {

void check(std::vector<Passage> const& passages, std::size_t shortest) {
  require(!passages.empty() && passages.size() <= max_passages, "there are passages");
  for (auto const& passage : passages) {
    require(!find_invalid_utf8(passage.text), "a passage is valid UTF-8");
    require(!is_blank(passage.text) && passage.text.find('\n') == std::string::npos,
            "a passage is a line");
    require(passage.text.size() >= shortest && passage.text.size() <= max_line_bytes,
            "a passage is within its limits");
  }
}

}  // namespace

bool run(std::string_view input) {
  InputFile const file(input);
  std::vector<Passage> passages;
  bool const lines_read = accepts(file.path(), [&] { passages = passages_of_lines(file.path()); });
  if (lines_read) {
    check(passages, 1);
    std::vector<std::string> lines(1);
    for (char const c : input.substr(input.starts_with("\xef\xbb\xbf") ? 3 : 0)) {
      if (c == '\n') {
        lines.emplace_back();
      } else {
        lines.back() += c;
      }
    }
    for (auto const& [text, origin] : passages) {
      auto const& line = lines.at(std::stoul(origin.substr(std::string_view("line ").size())) - 1);
      require(text == line || text + '\r' == line, "a passage is its line of the file");
    }
    auto const count =
        std::count_if(lines.begin(), lines.end(), [](auto const& line) { return !is_blank(line); });
    require(passages.size() == static_cast<std::size_t>(count), "no passage is lost");
  }
  auto const& project = temporary_folder();
  std::filesystem::create_directories(project / "include");
  for (auto const& name : {project / "README.md", project / "include" / "a.hpp"}) {
    std::filesystem::remove(name);
    std::filesystem::create_symlink(file.path(), name);
  }
  bool const documentation_read =
      accepts(project, [&] { passages = passages_of_documentation(project); });
  if (documentation_read) {
    check(passages, 30);
    for (auto const& passage : passages) {
      require(
          passage.origin.starts_with("README.md:") || passage.origin.starts_with("include/a.hpp:"),
          "an origin names a file of the project");
    }
  }
  return lines_read && documentation_read;
}

std::vector<std::string> seeds() {
  return {
      "\xef\xbb\xbf"
      "A first passage of some words\r\nand more\r\n\r\n  \t\r\nsecond passage",
      "one\n\n\ntwo \u00e9 \U0001f600\n",
      "# Heading\n\nA paragraph about swimming\nin cold northern lakes.\n\n```\ncode that is left "
      "out entirely\n```\n"
      "| a | table |\n- An item about baking fresh rye bread.\n12. Another one about repairing old "
      "clocks.\n> quoted\n",
      "/// \\file\n/// What is said of a file of a project, in a line.\n///\n///< left out\nint x; "
      " /// no\n"
      "  /// Finds the passages that are nearest to a query.\n",
      "fine\nabc\xe2\x28\xa1\n",
      "\n \n"};
}

}  // namespace sentence_search::fuzz
