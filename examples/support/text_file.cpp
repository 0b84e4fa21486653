// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

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

namespace {

[[noreturn]] void fail_too_large(std::filesystem::path const& path, std::size_t max_bytes) {
  throw DataError(path.string() + ": is larger than " + std::to_string(max_bytes >> 20) +
                  " MiB, the limit for this file");
}

// Calls `visit` with one piece of the file after the other.
template <class Visit>
void for_each_block(std::filesystem::path const& path, std::size_t max_bytes, Visit const& visit) {
  require_readable_file(path);
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 16);
  std::size_t total = 0;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    auto const count = static_cast<std::size_t>(file.gcount());
    if ((total += count) > max_bytes) fail_too_large(path, max_bytes);
    visit(std::string_view(block.data(), count));
  }
  if (file.bad()) throw DataError(path.string() + ": reading failed");
}

}  // namespace

std::string read_file(std::filesystem::path const& path, std::size_t max_bytes) {
  std::string content;
  for_each_block(path, max_bytes, [&](std::string_view block) { content += block; });
  return content;
}

void for_each_line(std::filesystem::path const& path,
                   std::function<void(std::string_view, std::size_t)> const& visit) {
  std::string line;
  std::size_t number = 1;
  auto const fail = [&](std::string const& reason) {
    throw DataError(path.string() + ": line " + std::to_string(number) + " " + reason);
  };
  auto const finish = [&] {
    std::string_view text = line;
    if (number == 1 && text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (auto const at = find_invalid_utf8(text)) {
      fail("is no valid UTF-8 at byte offset " + std::to_string(*at));
    }
    visit(text, number);
    line.clear();
    ++number;
  };
  for_each_block(path, max_text_bytes, [&](std::string_view block) {
    while (!block.empty()) {
      std::size_t const end = block.find('\n');
      std::string_view const part = block.substr(0, end);
      if (line.size() + part.size() > max_line_bytes) fail("is longer than 1 MiB");
      line += part;
      if (end == std::string_view::npos) return;
      block.remove_prefix(end + 1);
      finish();
    }
  });
  if (!line.empty()) finish();
}

}  // namespace sentence_search
