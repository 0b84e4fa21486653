// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tokens through a paged cache, in portions of any size, against the oracle, which has no cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cases.hpp"
#include "generation.hpp"
#include "generator.hpp"
#include "training.hpp"

namespace transformer_block::test {
namespace {

// Logits [batch, seqlen, vocabulary] of tokens that come in portions.
template <class T>
std::vector<double> logits_in_portions(Case const& c, std::vector<std::size_t> const& portions) {
  Generator<T> generator(Model<T>(c.config, c.weights), c.batch, c.seqlen);
  std::size_t const words = c.config.vocabulary;
  std::vector<double> logits(c.tokens.size() * words);
  std::size_t done = 0;
  for (std::size_t const count : portions) {
    std::vector<std::int32_t> tokens;
    for (std::size_t b = 0; b < c.batch; ++b) {
      for (std::size_t i = 0; i < count; ++i) tokens.push_back(c.tokens[b * c.seqlen + done + i]);
    }
    auto const part = generator.append(tokens, count);
    for (std::size_t b = 0; b < c.batch; ++b)
      std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(b * count * words), count * words,
                  logits.begin() + static_cast<std::ptrdiff_t>((b * c.seqlen + done) * words));
    done += count;
  }
  return logits;
}

std::vector<std::vector<std::size_t>> portions_of(std::size_t seqlen) {
  std::vector<std::vector<std::size_t>> result{{seqlen}, std::vector<std::size_t>(seqlen, 1)};
  if (seqlen >= 4) result.push_back({2, 1, seqlen - 3});
  return result;
}

TEST(Generation, double_with_a_paged_cache) {
  for (Case const& c : cases()) {
    Oracle<Bounded<double>> const oracle(c.config, c.weights, c.tokens, c.batch);
    for (auto const& portions : portions_of(c.seqlen))
      expect_near<double>("generation/double", logits_in_portions<double>(c, portions),
                          oracle.logits.data);
  }
}

TEST(Generation, a_long_cache_in_pages_of_any_size) {
  Config config;
  for (std::size_t const page_size : {1, 7, 16, 200}) {
    config.page_size = page_size;
    Case const c = make_case("long", config, 2, 70);
    Oracle<Bounded<double>> const oracle(c.config, c.weights, c.tokens, c.batch);
    std::vector<std::size_t> portions(11, 1);
    portions[0] = 60;
    expect_near<double>("generation/double/long", logits_in_portions<double>(c, portions),
                        oracle.logits.data);
  }
}

template <class T>
void expect_agreement(char const* name) {
  Config const config;
  auto weights = initial_weights(config, 1);
  auto const losses = train(config, weights, make_lesson(2), 8, 0.25);
  auto const prompt = tokens_of("the quick ");
  Generation const generation = generate<T>(config, weights, prompt, 25);
  ASSERT_EQ(generation.tokens.size(), prompt.size() + 25);
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), generation.tokens.begin()));
  ASSERT_EQ(generation.decoded.size(), generation.tokens.size() * config.vocabulary);
  for (std::size_t i = prompt.size(); i < generation.tokens.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(generation.tokens[i]),
              likeliest(generation.decoded, i - 1, config.vocabulary));
  }
  Agreement const agreement = compare_passes<T>(config, weights, generation);
  attikos::test::worst_ratios()[std::string("generation/") + name] = agreement.ratio;
  EXPECT_LE(agreement.ratio, 1);
  EXPECT_GT(agreement.bound, 0);

  // Each of the passes against the oracle, too.
  Case c{name, config, 1, generation.tokens.size(), {}, generation.tokens, {}};
  for (double const weight : weights)
    c.weights.push_back(static_cast<double>(static_cast<T>(static_cast<float>(weight))));
  expect_logits<T>(std::string("generation/") + name + "/decoded", c, generation.decoded, 17);
  expect_logits<T>(std::string("generation/") + name + "/whole", c, generation.whole, 17);
}

TEST(Generation, float_with_and_without_a_cache) { expect_agreement<float>("float"); }
TEST(Generation, bfloat16_with_and_without_a_cache) {
  expect_agreement<attikos::bfloat16>("bfloat16");
}

TEST(Generation, a_difference_is_found) {
  Config const config;
  auto const weights = initial_weights(config, 1);
  Generation generation = generate<float>(config, weights, tokens_of("fox"), 3);
  std::size_t const last = generation.tokens.size() - 1;
  std::size_t const i =
      last * config.vocabulary + likeliest(generation.whole, last, config.vocabulary);
  double const right = generation.decoded[i];
  generation.decoded[i] = right + 1e-2;
  EXPECT_GT(compare_passes<float>(config, weights, generation).ratio, 1);
  generation.decoded[i] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_GT(compare_passes<float>(config, weights, generation).ratio, 1);
  generation.decoded[i] = right;
  EXPECT_LE(compare_passes<float>(config, weights, generation).ratio, 1);
}

TEST(Generation, pages_are_dealt_once_and_in_no_order) {
  auto const table = deal_pages(3, 4);
  EXPECT_EQ(std::set<std::int32_t>(table.begin(), table.end()).size(), table.size());
  EXPECT_EQ(*std::min_element(table.begin(), table.end()), 0);
  EXPECT_EQ(*std::max_element(table.begin(), table.end()), 11);
  EXPECT_EQ((std::vector<std::int32_t>(table.begin(), table.begin() + 4)),
            (std::vector<std::int32_t>{9, 6, 3, 0}));
}

}  // namespace
}  // namespace transformer_block::test
