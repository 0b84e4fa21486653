// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "failure.hpp"
#include "utf8.hpp"

namespace sentence_search {

void require_readable_file(std::filesystem::path const& path) {
  std::error_code ignored;
  auto const status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) throw DataError(path.string() + ": no such file");
  if (std::filesystem::is_directory(status)) {
    throw DataError(path.string() + ": is a directory, not a file");
  }
  errno = 0;
  if (!std::ifstream(path)) throw DataError(path.string() + ": " + std::strerror(errno));
}

std::string read_file(std::filesystem::path const& path) {
  require_readable_file(path);
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) throw DataError(path.string() + ": reading failed");
  return content;
}

std::vector<Line> read_lines(std::filesystem::path const& path) {
  std::string const content = read_file(path);
  std::string_view rest = content;
  if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
  std::vector<Line> lines;
  while (!rest.empty()) {
    std::size_t const end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::size_t const number = lines.size() + 1;
    if (auto const at = find_invalid_utf8(line)) {
      throw DataError(path.string() + ": line " + std::to_string(number) +
                      " is no valid UTF-8 at byte offset " + std::to_string(*at));
    }
    lines.push_back({std::string(line), number});
  }
  return lines;
}

}  // namespace sentence_search
