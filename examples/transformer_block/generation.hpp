// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Generation from a prompt, and the proof that the cache changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parameters.hpp"

namespace transformer_block {

/// What generate() did.
struct Generation {
  std::vector<std::int32_t> tokens;  ///< prompt and what follows
  /// Logits that prefill and decoding gave, and those of one pass over all the tokens without a
  /// cache: [tokens, vocabulary].
  std::vector<double> decoded, whole;
};

/// Extends `prompt` (at least one token) by the `count` tokens that are the likeliest one after
/// another. Computes in T, to which the weights are rounded.
template <class T>
Generation generate(Config const& config, std::vector<double> const& weights,
                    std::vector<std::int32_t> const& prompt, std::size_t count);

/// Word with the largest of the logits at `row`.
std::size_t likeliest(std::vector<double> const& logits, std::size_t row, std::size_t vocabulary);

/// How far two passes are apart at the likeliest word of each row, and how far they may be.
struct Agreement {
  double difference = 0;  ///< the largest
  double bound = 0;       ///< the largest
  double ratio = 0;       ///< the largest of difference/bound; NaN in a pass makes it infinite
};

/// Each pass is as close to the exact logits as first_order_bound() says; so the two are no further
/// from each other than twice that.
template <class T>
Agreement compare_passes(Config const& config, std::vector<double> const& weights,
                         Generation const& generation);

}  // namespace transformer_block
