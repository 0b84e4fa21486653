// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tokens that come one by one through a paged cache against the oracle, and against the same model
// that is given all of them at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "generator.hpp"
#include "llama_cases.hpp"

namespace llama::test {
namespace {

namespace block = block_oracle;

template <class T>
std::vector<double> host_matrix(Matrix<T> const& x) {
  Array<T> copy("copy", x.size());
  Kokkos::deep_copy(Vector<T>(copy.data(), copy.size()), Vector<T>(x.data(), x.size()));
  return to_host(copy);
}

// Logits of each sequence's last token, and all tokens so far.
template <class T>
struct Generated {
  std::vector<double> logits;
  std::vector<std::int32_t> tokens;
};

// A prompt, then `steps` steps; `visit` gets what is there after each.
template <class T, class Visit>
void for_each_step(Case const& c, Config const& config, std::size_t steps, Visit const& visit) {
  Weights<T> const weights(config, "weights");
  to_device(weights.all, c.weights);
  std::size_t const capacity = c.seqlen + steps + 1;
  Generator<T> generator(config, weights, c.batch, c.seqlen, capacity, 3);
  generator.start(c.tokens);
  for (std::size_t step = 0; step <= steps; ++step) {
    if (step > 0) generator.step();
    auto const all = generator.tokens();
    std::size_t const length = c.seqlen + step;
    Generated<T> result{host_matrix(generator.logits()), {}};
    for (std::size_t b = 0; b < c.batch; ++b) {
      auto const first = all.begin() + static_cast<std::ptrdiff_t>(b * capacity);
      result.tokens.insert(result.tokens.end(), first, first + static_cast<std::ptrdiff_t>(length));
      auto const row = result.logits.begin() + static_cast<std::ptrdiff_t>(b * config.vocabulary);
      auto const best = std::max_element(row, row + static_cast<std::ptrdiff_t>(config.vocabulary));
      EXPECT_EQ(all[b * capacity + length], static_cast<std::int32_t>(best - row));
    }
    visit(step, result);
  }
}

TEST(LlamaGeneration, double_against_the_oracle_without_a_cache) {
  for (TextCase const& t : text_cases()) {
    Case const& c = t.oracle;
    SCOPED_TRACE(c.name);
    Config const config = config_of(c.config);
    for_each_step<double>(c, config, 6, [&](std::size_t, Generated<double> const& got) {
      block::Oracle<block::Bounded<double>> const oracle(c.config, c.weights, got.tokens, c.batch);
      std::size_t const length = got.tokens.size() / c.batch;
      std::vector<block::Bounded<double>> last;
      for (std::size_t b = 0; b < c.batch; ++b) {
        for (std::size_t word = 0; word < config.vocabulary; ++word)
          last.push_back(oracle.logits((b + 1) * length - 1, word));
      }
      block::test::expect_near<double>("llama/double/generation", got.logits, last);
    });
  }
}

// Each logit is off by no more than its first-order bound: that of each operation by itself, times
// the gradient in it.
template <class T>
void expect_bounded(std::string const& name) {
  Case c = text_cases().front().oracle;
  for (double& weight : c.weights)
    weight = static_cast<double>(static_cast<T>(static_cast<float>(weight)));
  Config const config = config_of(c.config);
  for_each_step<T>(c, config, 6, [&](std::size_t step, Generated<T> const& got) {
    if (step != 0 && step != 6) return;
    block::Oracle<double> const exact(c.config, c.weights, got.tokens, c.batch);
    block::Oracle<block::Bounded<T>> const local(c.config, c.weights, got.tokens, c.batch,
                                                 block::Errors::local);
    attikos::test::Comparison comparison(name + "/" + Kokkos::DefaultExecutionSpace::name(),
                                         c.name + ": logits [sequence, word]");
    std::size_t const length = got.tokens.size() / c.batch;
    for (std::size_t b = 0; b < c.batch; ++b) {
      for (std::size_t word = b; word < config.vocabulary; word += 5) {
        block::OracleMatrix<double> one(exact.logits.rows, exact.logits.cols);
        one((b + 1) * length - 1, word) = 1;
        double const bound =
            block::first_order_bound(local, block::OracleGradients<double>(exact, one, false));
        comparison.add(got.logits[b * config.vocabulary + word],
                       exact.logits((b + 1) * length - 1, word), bound,
                       {static_cast<std::int64_t>(b), static_cast<std::int64_t>(word)});
      }
    }
  });
}

TEST(LlamaGeneration, float_against_the_oracle) { expect_bounded<float>("llama/float/generation"); }
TEST(LlamaGeneration, bfloat16_against_the_oracle) {
  expect_bounded<attikos::bfloat16>("llama/bfloat16/generation");
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
