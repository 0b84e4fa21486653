// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Forward and backward of the whole block against a float64 oracle, which central differences hold
// to be right about its gradients.
#include <gtest/gtest.h>

#include "cases.hpp"
#include "support/finite_differences.hpp"
#include "trainer.hpp"
#include "training.hpp"

namespace transformer_block::test {
namespace {

// To first order, how far off a computation of the loss in T may be.
template <class T>
double loss_bound(Case const& c) {
  Oracle<double> const exact(c.config, c.weights, c.tokens, c.batch);
  Oracle<Bounded<T>> const local(c.config, c.weights, c.tokens, c.batch, Errors::local);
  double bound = first_order_bound(
      local, OracleGradients<double>(exact, loss_gradient(exact, c.targets), false));
  for (std::size_t row = 0; row < c.targets.size(); ++row)
    bound += local.log_p(row, static_cast<std::size_t>(c.targets[row])).error /
             static_cast<double>(c.targets.size());
  return bound;
}

template <class T>
struct Step {
  Model<T> model;
  Trainer<T> trainer;
  double loss;
  explicit Step(Case const& c)
      : model(c.config, c.weights),
        trainer(model, c.batch, c.seqlen),
        loss(trainer.loss_and_gradients(c.tokens, c.targets)) {}
  std::vector<double> gradients() const { return to_host<double>(trainer.gradients().all); }
};

// A few entries of every weight, those of the largest gradients among them.
std::vector<std::size_t> sample(Case const& c, std::vector<double> const& gradients) {
  std::vector<std::size_t> chosen;
  for (WeightShape const& shape : WeightMap(c.config).shapes) {
    auto const begin = gradients.begin() + static_cast<std::ptrdiff_t>(shape.offset);
    auto const end = begin + static_cast<std::ptrdiff_t>(shape.size());
    auto const largest =
        std::max_element(begin, end, [](double a, double b) { return std::abs(a) < std::abs(b); });
    chosen.push_back(static_cast<std::size_t>(largest - gradients.begin()));
    for (std::size_t i = 0; i < 5; ++i) chosen.push_back(shape.offset + i * 7919 % shape.size());
  }
  return chosen;
}

TEST(TransformerBlock, oracle_gradients_are_those_of_finite_differences) {
  for (Case const& c : cases()) {
    Oracle<double> const oracle(c.config, c.weights, c.tokens, c.batch);
    OracleGradients<double> const all(oracle, loss_gradient(oracle, c.targets), true);
    auto const chosen = sample(c, all.dweights);
    std::vector<double> values, gradients;
    for (std::size_t const i : chosen) {
      values.push_back(c.weights[i]);
      gradients.push_back(all.dweights[i]);
    }
    // What the float64 oracle's loss may be off by, in units of the roundoff.
    double const terms = loss_bound<double>(c) / 0x1p-53;
    attikos::test::expect_gradient(
        "block/" + c.name, values, gradients, terms, 1, [&](std::vector<double> const& changed) {
          auto weights = c.weights;
          for (std::size_t i = 0; i < chosen.size(); ++i)
            if (changed[i] != values[i]) weights[chosen[i]] = changed[i];
          return Oracle<double>(c.config, weights, c.tokens, c.batch).loss(c.targets);
        });
  }
}

// In double the bounds that are carried through the whole block are sharp enough to hold every
// logit and every gradient.
TEST(TransformerBlock, double_forward_and_backward) {
  for (Case const& c : cases()) {
    Oracle<Bounded<double>> const oracle(c.config, c.weights, c.tokens, c.batch);
    OracleGradients<Bounded<double>> const all(oracle, loss_gradient(oracle, c.targets), true);
    Step<double> const step(c);
    expect_near<double>("block/double/logits", to_host<double>(step.trainer.activations().logits),
                        oracle.logits.data);
    expect_near<double>("block/double/gradients", step.gradients(), all.dweights);
    EXPECT_NEAR(step.loss, oracle.loss(c.targets), 2 * loss_bound<double>(c)) << c.name;
    // The bounds say something.
    double largest = 0, error = 0;
    for (auto const& gradient : all.dweights) {
      largest = std::max(largest, std::abs(gradient.value));
      error = std::max(error, gradient.error);
    }
    EXPECT_LT(error, 1e-4 * largest) << c.name;
  }
}

TEST(TransformerBlock, float_forward) {
  for (Case const& c : cases()) {
    Step<float> const step(c);
    expect_logits<float>("block/float/logits", c,
                         to_host<double>(step.trainer.activations().logits), 5);
    EXPECT_NEAR(step.loss, Oracle<double>(c.config, c.weights, c.tokens, c.batch).loss(c.targets),
                loss_bound<float>(c))
        << c.name;
  }
}

// Carried through forward and backward, the bounds of float are wide: what is sharp is the test in
// double above, which runs the same code.
TEST(TransformerBlock, float_backward) {
  for (Case const& c : cases()) {
    Oracle<Bounded<float>> const oracle(c.config, c.weights, c.tokens, c.batch);
    OracleGradients<Bounded<float>> const all(oracle, loss_gradient(oracle, c.targets), true);
    expect_near<float>("block/float/gradients", Step<float>(c).gradients(), all.dweights);
  }
}

TEST(TransformerBlock, a_step_goes_down_the_gradient) {
  Case const c = cases().front();
  Step<float> step(c);
  auto const gradients = step.gradients();
  step.trainer.update(0.25);
  Kokkos::fence();
  auto const after = to_host<double>(step.model.weights.all);
  attikos::test::Comparison comparison("block/float/update", "weight");
  for (std::size_t i = 0; i < after.size(); ++i) {
    double const want = c.weights[i] - 0.25 * gradients[i];
    comparison.add(after[i], want, 0x1p-23 * (std::abs(c.weights[i]) + std::abs(gradients[i])),
                   {static_cast<std::int64_t>(i)});
  }
  EXPECT_LT(step.trainer.loss_and_gradients(c.tokens, c.targets), step.loss);
}

TEST(TransformerBlock, training_lowers_the_loss_the_same_way_each_time) {
  Config const config;
  auto weights = initial_weights(config, 1), again = weights;
  auto const losses = train(config, weights, make_lesson(2), 6, 0.25);
  ASSERT_EQ(losses.size(), 7u);
  for (std::size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]) << i;
  EXPECT_LT(losses.back(), 0.6 * losses.front());
  EXPECT_EQ(train(config, again, make_lesson(2), 6, 0.25), losses);
  EXPECT_EQ(again, weights);
}

TEST(TransformerBlock, lesson) {
  EXPECT_EQ(text_of(tokens_of("a lazy dog.")), "a lazy dog.");
  EXPECT_EQ(text_of(tokens_of("Z!")), "..");
  Lesson const lesson = make_lesson(3);
  std::size_t const length = sentence.size();
  ASSERT_EQ(lesson.tokens.size(), 3 * length);
  for (std::size_t i = 0; i < lesson.tokens.size(); ++i) {
    std::size_t const next = i / length * length + (i + 1) % length;
    EXPECT_EQ(lesson.targets[i], lesson.tokens[next]);
  }
}

}  // namespace
}  // namespace transformer_block::test
