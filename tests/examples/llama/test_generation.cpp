// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tokens that come one by one through a paged cache against the oracle, and against the same model
// that is given all of them at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "generator.hpp"
#include "llama_cases.hpp"

namespace llama::test {
namespace {

namespace block = transformer_block;

template <class T>
std::vector<double> host_matrix(Matrix<T> const& x) {
  Array<T> copy("copy", x.size());
  Kokkos::deep_copy(Vector<T>(copy.data(), copy.size()), Vector<T>(x.data(), x.size()));
  return to_host(copy);
}

TEST(LlamaGeneration, logits_of_the_oracle) {
  for (TextCase const& t : text_cases()) {
    Case c = t.oracle;
    SCOPED_TRACE(c.name);
    Config const config = config_of(c.config);
    Weights<double> const weights(config, "weights");
    to_device(weights.all, c.weights);
    std::size_t const steps = 6, capacity = c.seqlen + steps + 1;
    Generator<double> generator(config, weights, c.batch, c.seqlen, capacity, 3);
    generator.start(c.tokens);
    for (std::size_t step = 0; step <= steps; ++step) {
      if (step > 0) generator.step();
      // The oracle reads all tokens up to here anew.
      auto const all = generator.tokens();
      std::size_t const length = c.seqlen + step;
      std::vector<std::int32_t> tokens;
      for (std::size_t b = 0; b < c.batch; ++b)
        tokens.insert(tokens.end(), all.begin() + static_cast<std::ptrdiff_t>(b * capacity),
                      all.begin() + static_cast<std::ptrdiff_t>(b * capacity + length));
      block::Oracle<block::Bounded<double>> const oracle(c.config, c.weights, tokens, c.batch);
      std::vector<block::Bounded<double>> last;
      for (std::size_t b = 0; b < c.batch; ++b) {
        for (std::size_t word = 0; word < config.vocabulary; ++word)
          last.push_back(oracle.logits((b + 1) * length - 1, word));
      }
      auto const logits = host_matrix(generator.logits());
      block::test::expect_near<double>("llama/double/generation", logits, last);
      for (std::size_t b = 0; b < c.batch; ++b) {
        auto const row = logits.begin() + static_cast<std::ptrdiff_t>(b * config.vocabulary);
        auto const best =
            std::max_element(row, row + static_cast<std::ptrdiff_t>(config.vocabulary));
        EXPECT_EQ(all[b * capacity + length], static_cast<std::int32_t>(best - row));
      }
    }
  }
}

// Several layers, and the recorded step: on CUDA a graph.
template <class T>
void expect_same_tokens() {
  Config const config = several_layers();
  Weights<T> const weights(config, "weights");
  to_device(weights.all, random_weights(config, 0.6));
  std::vector<std::int32_t> prompts{1, 5, 3, 2, 7, 11, 4, 12};
  std::size_t const batch = 2, count = 9, capacity = 4 + count;
  Generator<T> generator(config, weights, batch, 4, capacity, 2);
  generator.start(prompts);
  for (std::size_t i = 1; i < count; ++i) generator.step();
  auto const tokens = generator.tokens();

  generator.start(prompts);
  Recorded const recorded(generator.exec(), [&] { generator.step(); });
  generator.start(prompts);
  for (std::size_t i = 1; i < count; ++i) recorded.replay();
  EXPECT_EQ(generator.tokens(), tokens);

  for (std::size_t length = 4; length < capacity; ++length) {
    std::vector<std::int32_t> all;
    for (std::size_t b = 0; b < batch; ++b)
      all.insert(all.end(), tokens.begin() + static_cast<std::ptrdiff_t>(b * capacity),
                 tokens.begin() + static_cast<std::ptrdiff_t>(b * capacity + length));
    Generator<T> whole(config, weights, batch, length, length + 1, 4);
    whole.start(all);
    for (std::size_t b = 0; b < batch; ++b)
      EXPECT_EQ(whole.tokens()[b * (length + 1) + length], tokens[b * capacity + length]) << length;
  }
}

TEST(LlamaGeneration, with_and_without_a_cache) { expect_same_tokens<double>(); }

}  // namespace
}  // namespace llama::test
