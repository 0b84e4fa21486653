// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The whole model against embeddings that an independent float64 implementation computed
// (make_fixture.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "embedder.hpp"
#include "fixture.hpp"
#include "safetensors.hpp"

namespace sentence_search::test {
namespace {

struct Model {
  BertConfig config = BertConfig::from_file(model_folder() / "config.json");
  Safetensors file = Safetensors(model_folder() / "model.safetensors");
  BertTensors tensors = BertTensors(file, config);
};

std::vector<Tokens> tokens_of(Fixture const& fixture) {
  std::vector<Tokens> tokens;
  for (auto const& sentence : fixture.sentences) tokens.push_back(sentence.tokens);
  return tokens;
}

struct Deviation {
  double max_difference = 0;
  double min_cosine = 1;
};

// Compares row by row in double; the cosine does not trust either side to be of unit length.
Deviation compare(std::vector<float> const& ours, Fixture const& fixture) {
  Deviation worst;
  for (std::size_t row = 0; row < fixture.sentences.size(); ++row) {
    double product = 0, ours_squared = 0, theirs_squared = 0;
    for (std::size_t i = row * fixture.hidden; i < (row + 1) * fixture.hidden; ++i) {
      double const a = ours[i], b = fixture.embeddings[i];
      // A NaN fails every comparison, so it has to be asked for.
      EXPECT_TRUE(std::isfinite(a)) << "sentence " << row;
      worst.max_difference = std::max(worst.max_difference, std::abs(a - b));
      product += a * b;
      ours_squared += a * a;
      theirs_squared += b * b;
    }
    EXPECT_NEAR(ours_squared, 1.0, 1e-5) << "sentence " << row;
    worst.min_cosine =
        std::min(worst.min_cosine, product / std::sqrt(ours_squared * theirs_squared));
  }
  return worst;
}

Deviation deviation(ElementType type) {
  Fixture const fixture = read_fixture();
  Model const model;
  OperationTimes times;
  auto const embedder = make_embedder(type, model.tensors, model.config, times);
  std::size_t last = 0;
  auto const vectors = embedder->embed(tokens_of(fixture), [&](std::size_t done) {
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_EQ(last, fixture.sentences.size());
  EXPECT_EQ(vectors.size(), fixture.embeddings.size());
  if (vectors.size() != fixture.embeddings.size()) return {1, 0};
  Deviation const worst = compare(vectors, fixture);
  std::printf("%s: max abs difference %.3e, 1 - min cosine %.3e over %zu sentences\n",
              name_of(type), worst.max_difference, 1 - worst.min_cosine, fixture.sentences.size());
  return worst;
}

TEST(Embeddings, float32) { EXPECT_LE(deviation(ElementType::float32).max_difference, 2e-5); }
TEST(Embeddings, bfloat16) { EXPECT_GE(deviation(ElementType::bfloat16).min_cosine, 0.9995); }
TEST(Embeddings, float16) { EXPECT_GE(deviation(ElementType::float16).min_cosine, 0.9995); }

// A text's vector must not depend on what else was embedded, before or beside it.
TEST(Embeddings, one_at_a_time) {
  Fixture const fixture = read_fixture();
  Model const model;
  OperationTimes times;
  auto const embedder = make_embedder(ElementType::float32, model.tensors, model.config, times);
  auto const tokens = tokens_of(fixture);
  for (std::size_t const row : {std::size_t{0}, std::size_t{13}, std::size_t{4}, std::size_t{23}}) {
    auto const vector = embedder->embed({tokens[row]}, [](std::size_t) {});
    ASSERT_EQ(vector.size(), fixture.hidden);
    for (std::size_t i = 0; i < fixture.hidden; ++i) {
      ASSERT_NEAR(vector[i], fixture.embeddings[row * fixture.hidden + i], 2e-5)
          << "sentence " << row;
    }
  }
}

TEST(Embeddings, nothing_to_embed) {
  Model const model;
  OperationTimes times;
  auto const embedder = make_embedder(ElementType::float32, model.tensors, model.config, times);
  EXPECT_TRUE(embedder->embed({}, [](std::size_t) {}).empty());
}

TEST(Embeddings, similarity_is_the_dot_product) {
  OperationTimes times;
  auto const scores = similarities({1, 2, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, 4, times);
  EXPECT_EQ(scores, (std::vector<float>{1, 2, 3, 6}));
}

TEST(Batches, hold_every_text_once_and_respect_the_limit) {
  std::vector<Tokens> texts;
  for (std::size_t i = 0; i < 100; ++i) texts.emplace_back(1 + i * 37 % 64);
  texts.emplace_back(500);  // longer than a batch may be
  std::vector<int> seen(texts.size());
  std::size_t longest_before = 500;
  for (auto const& batch : plan_batches(texts, 256)) {
    EXPECT_TRUE(batch.texts.size() == 1 || batch.texts.size() * batch.seqlen <= 256);
    EXPECT_LE(batch.seqlen, longest_before);
    longest_before = batch.seqlen;
    for (std::size_t const text : batch.texts) {
      ++seen[text];
      EXPECT_LE(texts[text].size(), batch.seqlen);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(texts.size(), 1));
}

}  // namespace
}  // namespace sentence_search::test
