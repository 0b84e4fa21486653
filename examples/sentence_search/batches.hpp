// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which texts are embedded together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sentence_search {

using Tokens = std::vector<std::int32_t>;

struct Batch {
  std::vector<std::size_t> texts;  ///< indices
  std::size_t seqlen = 0;          ///< of the longest
};

/// Texts of like length together, longest first, so that little is spent on padding; a batch has at
/// most `max_tokens` tokens with its padding, or one text.
std::vector<Batch> plan_batches(std::vector<Tokens> const& texts, std::size_t max_tokens);

}  // namespace sentence_search
