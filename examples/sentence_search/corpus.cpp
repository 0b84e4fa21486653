// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "corpus.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "failure.hpp"
#include "text_file.hpp"

namespace sentence_search {
namespace {

namespace fs = std::filesystem;

std::string_view strip(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\v\f";
  std::size_t const begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

void add_passage(std::vector<Passage>& passages, fs::path const& path, std::string text,
                 std::string origin) {
  if (passages.size() == max_passages) {
    throw DataError(path.string() + ": there are more than " + std::to_string(max_passages) +
                    " passages, the limit");
  }
  passages.push_back({std::move(text), std::move(origin)});
}

// Collects lines into paragraphs. A paragraph of a few letters says nothing that could be searched
// for.
class Paragraphs {
 public:
  Paragraphs(std::vector<Passage>& passages, fs::path path, std::string name)
      : passages_(passages), path_(std::move(path)), name_(std::move(name)) {}

  void add(std::string_view line, std::size_t number) {
    if (text_.empty()) first_line_ = number;
    if (text_.size() + line.size() >= max_line_bytes) {
      throw DataError(path_.string() + ": the paragraph from line " + std::to_string(first_line_) +
                      " on is longer than 1 MiB");
    }
    if (!text_.empty()) text_ += ' ';
    text_ += line;
  }

  void finish() {
    constexpr std::size_t shortest = 30;
    if (text_.size() >= shortest) {
      add_passage(passages_, path_, text_, name_ + ":" + std::to_string(first_line_));
    }
    text_.clear();
  }

 private:
  std::vector<Passage>& passages_;
  fs::path path_;
  std::string name_;
  std::string text_;
  std::size_t first_line_ = 0;
};

// Length of a list item's marker with the blank behind it ("- ", "* ", "3. "); 0 if the line begins
// no item.
std::size_t list_marker(std::string_view line) {
  if (line.starts_with("- ") || line.starts_with("* ") || line.starts_with("+ ")) return 2;
  std::size_t digits = 0;
  while (digits < line.size() && std::isdigit(static_cast<unsigned char>(line[digits])) != 0)
    ++digits;
  return digits > 0 && line.substr(digits).starts_with(". ") ? digits + 2 : 0;
}

void read_markdown(fs::path const& path, std::string const& name, std::vector<Passage>& passages) {
  Paragraphs paragraphs(passages, path, name);
  bool code = false;
  for_each_line(path, [&](std::string_view line, std::size_t number) {
    line = strip(line);
    bool const fence = line.starts_with("```") || line.starts_with("~~~");
    if (fence) code = !code;
    if (fence || code || line.empty() || line[0] == '#' || line[0] == '|' || line[0] == '<') {
      paragraphs.finish();
      return;
    }
    if (line.starts_with("> ")) line.remove_prefix(2);
    if (std::size_t const marker = list_marker(line)) {
      paragraphs.finish();
      line.remove_prefix(marker);
    }
    paragraphs.add(line, number);
  });
  paragraphs.finish();
}

void read_comments(fs::path const& path, std::string const& name, std::vector<Passage>& passages) {
  Paragraphs paragraphs(passages, path, name);
  for_each_line(path, [&](std::string_view line, std::size_t number) {
    line = strip(line);
    bool const comment = line.starts_with("///") && !line.starts_with("///<");
    line = comment ? strip(line.substr(3)) : std::string_view();
    if (line.empty() || line.starts_with("\\file")) {
      paragraphs.finish();
    } else {
      paragraphs.add(line, number);
    }
  });
  paragraphs.finish();
}

}  // namespace

bool is_blank(std::string_view text) { return strip(text).empty(); }

std::vector<Passage> passages_of_lines(fs::path const& file) {
  std::vector<Passage> passages;
  for_each_line(file, [&](std::string_view line, std::size_t number) {
    if (is_blank(line)) return;
    add_passage(passages, file, std::string(line), "line " + std::to_string(number));
  });
  if (passages.empty()) throw DataError(file.string() + ": holds no passage");
  return passages;
}

std::vector<Passage> passages_of_documentation(fs::path const& project) {
  std::error_code error;
  if (!fs::is_directory(project, error)) {
    throw DataError(project.string() + ": no such directory");
  }
  std::vector<fs::path> markdown, headers;
  try {
    for (auto const& folder : {project, project / "docs"}) {
      if (!fs::is_directory(folder)) continue;
      for (auto const& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".md" && entry.is_regular_file()) {
          markdown.push_back(entry.path());
        }
      }
    }
    if (fs::is_directory(project / "examples")) {
      for (auto const& entry : fs::directory_iterator(project / "examples")) {
        if (fs::is_regular_file(entry.path() / "README.md")) {
          markdown.push_back(entry.path() / "README.md");
        }
      }
    }
    if (fs::is_directory(project / "include")) {
      for (auto const& entry : fs::recursive_directory_iterator(project / "include")) {
        if (entry.path().extension() == ".hpp" && entry.is_regular_file()) {
          headers.push_back(entry.path());
        }
      }
    }
  } catch (fs::filesystem_error const& failure) {
    throw DataError(failure.path1().string() + ": " + failure.code().message());
  }
  // Directories come in no order; the numbering of passages should not depend on the file system.
  std::sort(markdown.begin(), markdown.end());
  std::sort(headers.begin(), headers.end());
  std::vector<Passage> passages;
  auto const name = [&](fs::path const& path) { return path.lexically_relative(project).string(); };
  for (auto const& path : markdown) read_markdown(path, name(path), passages);
  for (auto const& path : headers) read_comments(path, name(path), passages);
  if (passages.empty()) throw DataError(project.string() + ": holds no documentation");
  return passages;
}

}  // namespace sentence_search
