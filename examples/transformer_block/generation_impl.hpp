// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What generation_float32.cpp and generation_bfloat16.cpp instantiate.
#pragma once

#include "generation.hpp"
#include "generator.hpp"
#include "oracle_gradients.hpp"
#include "whole_pass.hpp"

namespace transformer_block {

template <class T>
Generation generate(Config const& config, std::vector<double> const& weights,
                    std::vector<std::int32_t> const& prompt, std::size_t count) {
  Model<T> const model(config, weights);
  Generation result{prompt, {}, {}};
  Generator<T> generator(model, 1, prompt.size() + count);
  result.decoded = generator.append(prompt, prompt.size());
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t const word = likeliest(result.decoded, result.tokens.size() - 1, config.vocabulary);
    result.tokens.push_back(static_cast<std::int32_t>(word));
    auto const logits = generator.append({result.tokens.back()}, 1);
    result.decoded.insert(result.decoded.end(), logits.begin(), logits.end());
  }

  Exec const exec;
  std::size_t const length = result.tokens.size();
  Activations<T> const activations(config, 1, length);
  auto const tokens = allocate<std::int32_t*>("tokens", length);
  to_device(tokens, result.tokens);
  forward_whole(exec, model, tokens, activations, Lse<T>("lse", 1, config.heads_q, length));
  exec.fence("transformer_block: logits go to the host");
  result.whole = to_host<double>(activations.logits);
  return result;
}

template <class T>
Agreement compare_passes(Config const& config, std::vector<double> const& weights,
                         Generation const& generation) {
  std::vector<double> in_t;  // the weights as the passes had them
  for (double const weight : weights)
    in_t.push_back(static_cast<double>(static_cast<T>(static_cast<float>(weight))));
  Oracle<double> const exact(config, in_t, generation.tokens, 1);
  Oracle<Bounded<T>> const local(config, in_t, generation.tokens, 1, Errors::local);
  Agreement worst;
  for (std::size_t row = 0; row < generation.tokens.size(); ++row) {
    std::size_t const word = likeliest(generation.whole, row, config.vocabulary);
    OracleMatrix<double> one(generation.tokens.size(), config.vocabulary);
    one(row, word) = 1;
    double const bound = 2 * first_order_bound(local, OracleGradients<double>(exact, one, false));
    std::size_t const i = row * config.vocabulary + word;
    double const difference = std::abs(generation.decoded[i] - generation.whole[i]);
    worst.difference = std::max(worst.difference, difference);
    worst.bound = std::max(worst.bound, bound);
    double const ratio = difference / bound;
    worst.ratio =
        std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst.ratio, ratio);
  }
  return worst;
}

}  // namespace transformer_block
