// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The text that the model learns, and the order in which it reads it. Knows nothing of Kokkos.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "wordpiece.hpp"

namespace llama {

/// MiniLM's vocabulary, both ways.
class Vocabulary {
 public:
  /// Reads a vocab.txt. Throws DataError.
  explicit Vocabulary(std::filesystem::path const& path);

  /// Words of the model: those of the file and some that never occur, up to a multiple of 64, which
  /// products want.
  std::size_t size() const { return (words_.size() + 63) / 64 * 64; }

  /// [CLS], the text, and [SEP] unless the text is to go on.
  std::vector<std::int32_t> encode(std::string_view text, bool goes_on) const;
  std::string decode(std::vector<std::int32_t> const& tokens) const;

 private:
  sentence_search::WordPiece pieces_;
  std::vector<std::string> words_;
};

/// Tokens of a project's documentation, one file behind the other: Markdown at the top and anywhere
/// below docs/, examples/, perf/ and tests/, in the order of the paths. Throws DataError.
std::vector<std::int32_t> read_documentation(std::filesystem::path const& project,
                                             Vocabulary const& vocabulary);

/// The text is cut into sequences of `length` tokens (and one more, to be foretold), which are read
/// in an order that each round draws anew from the seed. Where sequences [0, count) begin. Throws
/// DataError if the text is shorter than one.
std::vector<std::int64_t> sequence_begins(std::size_t tokens, std::size_t length,
                                          std::uint64_t seed, std::size_t count);

}  // namespace llama
