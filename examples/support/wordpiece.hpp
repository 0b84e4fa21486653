// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// WordPiece tokens of BERT's uncased models (Devlin et al. 2019, arXiv:1810.04805; the
/// longest-match-first algorithm of Wu et al. 2016, arXiv:1609.08144), exactly as the `tokenizers`
/// package gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sentence_search {

class WordPiece {
 public:
  /// Reads a vocab.txt: one token a line, its number is its line's. Throws DataError.
  static WordPiece from_file(std::filesystem::path const& vocabulary);

  /// Token numbers with [CLS] in front and [SEP] behind; what is beyond `max_tokens` in all is cut
  /// off. `max_tokens` is at least 2, `text` valid UTF-8. Special tokens written in the text, such
  /// as "[SEP]", stand for themselves. Time is linear in the text, but for runs of combining marks,
  /// which are sorted.
  std::vector<std::int32_t> encode(std::string_view text, std::size_t max_tokens) const;

  std::size_t size() const { return tokens_.size(); }

 private:
  struct Special {
    std::string text;
    std::int32_t id;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  /// Stops when there are `limit` tokens or more.
  void append_words(std::string_view text, std::vector<std::int32_t>& tokens,
                    std::size_t limit) const;
  void append_pieces(std::u32string_view word, std::vector<std::int32_t>& tokens) const;

  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> tokens_;
  std::vector<Special> specials_;
  std::int32_t unknown_ = 0, begin_ = 0, end_ = 0;
  std::size_t longest_ = 0;  // bytes of the longest token, so at least its characters
};

}  // namespace sentence_search
