// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "text_file.hpp"
#include "utf8.hpp"

namespace llama {
namespace {

namespace fs = std::filesystem;
using sentence_search::DataError;

// splitmix64
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

Vocabulary::Vocabulary(fs::path const& path)
    : pieces_(sentence_search::WordPiece::from_file(path)) {
  sentence_search::for_each_line(
      path, [&](std::string_view line, std::size_t) { words_.emplace_back(line); });
}

std::vector<std::int32_t> Vocabulary::encode(std::string_view text, bool goes_on) const {
  auto tokens = pieces_.encode(text, std::numeric_limits<std::size_t>::max());
  if (goes_on) tokens.pop_back();
  return tokens;
}

std::string Vocabulary::decode(std::vector<std::int32_t> const& tokens) const {
  std::string text;
  for (std::int32_t const token : tokens) {
    auto const index = static_cast<std::size_t>(token);
    std::string_view word = index < words_.size() ? std::string_view(words_[index]) : "[?]";
    bool const continues = word.starts_with("##");
    if (continues) word.remove_prefix(2);
    if (!continues && !text.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::vector<std::int32_t> read_documentation(fs::path const& project,
                                             Vocabulary const& vocabulary) {
  std::vector<fs::path> files;
  auto const take = [&](fs::directory_entry const& entry) {
    if (entry.path().extension() == ".md" && entry.is_regular_file()) files.push_back(entry.path());
  };
  try {
    for (auto const& entry : fs::directory_iterator(project)) take(entry);
    for (char const* const folder : {"docs", "examples", "perf", "tests"}) {
      if (!fs::is_directory(project / folder)) continue;
      for (auto const& entry : fs::recursive_directory_iterator(project / folder)) take(entry);
    }
  } catch (fs::filesystem_error const& failure) {
    throw DataError(failure.path1().string() + ": " + failure.code().message());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::int32_t> tokens;
  for (fs::path const& file : files) {
    std::string const text = sentence_search::read_file(file, sentence_search::max_text_bytes);
    if (auto const at = sentence_search::find_invalid_utf8(text))
      throw DataError(file.string() + ": invalid UTF-8 at byte " + std::to_string(*at));
    auto const more = vocabulary.encode(text, false);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (tokens.empty()) throw DataError(project.string() + ": holds no documentation");
  return tokens;
}

std::vector<std::int64_t> sequence_begins(std::size_t tokens, std::size_t length,
                                          std::uint64_t seed, std::size_t count) {
  if (tokens <= length)
    throw DataError("the text has " + std::to_string(tokens) + " tokens; a sequence needs " +
                    std::to_string(length + 1));
  std::size_t const sequences = (tokens - 1) / length;
  std::vector<std::size_t> order(sequences);
  std::vector<std::int64_t> begins;
  std::uint64_t state = seed;
  while (begins.size() < count) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = sequences; i > 1; --i)
      std::swap(order[i - 1], order[next_random(state) % i]);
    for (std::size_t i = 0; i < sequences && begins.size() < count; ++i)
      begins.push_back(static_cast<std::int64_t>(order[i] * length));
  }
  return begins;
}

}  // namespace llama
