// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "batches.hpp"

#include <algorithm>
#include <numeric>

namespace sentence_search {

std::vector<Batch> plan_batches(std::vector<Tokens> const& texts, std::size_t max_tokens) {
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return texts[a].size() > texts[b].size(); });
  std::vector<Batch> batches;
  for (std::size_t const text : order) {
    bool const fits =
        !batches.empty() && (batches.back().texts.size() + 1) * batches.back().seqlen <= max_tokens;
    if (!fits) batches.push_back({.texts = {}, .seqlen = texts[text].size()});
    batches.back().texts.push_back(text);
  }
  return batches;
}

}  // namespace sentence_search
