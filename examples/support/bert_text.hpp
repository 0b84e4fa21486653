// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What BERT's uncased tokenizer does to a text before it looks into its vocabulary.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sentence_search {

/// Drops control characters, sets CJK ideographs apart, decomposes canonically (NFD), drops
/// non-spacing marks and lowers the case, in this order.
std::u32string normalize(std::u32string_view text);

/// Splits at white space, which is dropped, and around every punctuation mark, which is a word of
/// its own.
std::vector<std::u32string_view> split_words(std::u32string_view text);

}  // namespace sentence_search
