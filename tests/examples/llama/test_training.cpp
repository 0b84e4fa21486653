// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loss and gradients of one layer against the float64 oracle, those of several against differences
// of the loss; the order in which the text is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "llama_cases.hpp"
#include "text.hpp"

namespace llama::test {
namespace {

namespace block = block_oracle;

template <class T>
void expect_oracle(std::string const& name, bool keep_mlp) {
  for (TextCase const& t : text_cases()) {
    SCOPED_TRACE(t.oracle.name);
    Case const& c = t.oracle;
    block::Oracle<block::Bounded<T>> const oracle(c.config, c.weights, c.tokens, c.batch);
    block::OracleGradients<block::Bounded<T>> const all(
        oracle, block::loss_gradient(oracle, c.targets), true);
    Trainer<T> trainer(config_of(c.config), options_of(c, keep_mlp), t.text, t.begins);
    ASSERT_EQ(trainer.weights().map.size, c.weights.size());
    to_device(trainer.weights().all, c.weights);
    Kokkos::deep_copy(trainer.gradients().all, static_cast<T>(std::nan("")));
    trainer.forward_and_backward(0);
    trainer.fence();
    block::test::expect_near<T>(name, to_host(trainer.gradients().all), all.dweights);
    double const factor = attikos::testing::oracle_factor<attikos::testing::Accumulator<T>>();
    EXPECT_NEAR(to_host(trainer.losses())[0], oracle.loss(c.targets),
                factor * block::test::loss_bound<T>(c));
  }
}

TEST(LlamaTraining, double_of_one_layer) {
  expect_oracle<double>("llama/double/recomputed", false);
}
TEST(LlamaTraining, double_of_one_layer_that_keeps_products) {
  expect_oracle<double>("llama/double/kept", true);
}
TEST(LlamaTraining, float_of_one_layer) { expect_oracle<float>("llama/float/recomputed", false); }

// Layers behind each other: the derivative of the loss along any direction.
void expect_differences(bool keep_mlp) {
  Config const config = several_layers();
  TrainingOptions options;
  options.batch = 2;
  options.length = 7;
  options.steps = 1;
  options.keep_mlp = keep_mlp;
  std::vector<std::int32_t> text(15);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i * i % 13);
  Trainer<double> trainer(config, options, text, {0, 7});
  auto const weights = random_weights(config, 0.6);
  auto const loss_at = [&](std::vector<double> const& values) {
    to_device(trainer.weights().all, values);
    trainer.forward_and_backward(0);
    trainer.fence();
    return to_host(trainer.losses())[0];
  };
  loss_at(weights);
  auto const gradients = to_host(trainer.gradients().all);
  std::size_t index = 0;
  for (WeightShape const& w : trainer.weights().map.all()) {
    SCOPED_TRACE(index++);
    // Along the gradient in this weight alone, so that its length is what is expected.
    double length = 0;
    for (std::size_t i = w.offset; i < w.offset + w.size(); ++i)
      length += gradients[i] * gradients[i];
    length = std::sqrt(length);
    ASSERT_GT(length, 1e-6);
    auto const at = [&](double step) {
      auto moved = weights;
      for (std::size_t i = w.offset; i < w.offset + w.size(); ++i)
        moved[i] += step * gradients[i] / length;
      return loss_at(moved);
    };
    // Differences of fourth order: what is left is h⁴ of the fifth derivative, and roundings/h.
    double const h = 1e-3;
    double const slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    EXPECT_NEAR(slope, length, 1e-9 + 1e-8 * length);
  }
}

TEST(LlamaTraining, differences_of_several_layers) { expect_differences(false); }
TEST(LlamaTraining, differences_of_several_layers_that_keep_products) { expect_differences(true); }

TEST(LlamaTraining, a_step_of_adamw) {
  TextCase const t = text_cases().front();
  TrainingOptions const options = options_of(t.oracle, false);
  Trainer<double> trainer(config_of(t.oracle.config), options, t.text, t.begins);
  to_device(trainer.weights().all, t.oracle.weights);
  trainer.step(0);
  trainer.fence();
  auto const after = to_host(trainer.weights().all), gradients = to_host(trainer.gradients().all);
  Descent const& d = options.descent;
  for (std::size_t i = 0; i < after.size(); ++i) {
    double const w = t.oracle.weights[i], g = gradients[i];
    double const want = w - d.learning_rate * (d.weight_decay * w + g / (std::abs(g) + d.epsilon));
    ASSERT_NEAR(after[i], want, 1e-14 * std::abs(w) + 1e-10 * d.learning_rate) << i;
  }
}

// Weights in bfloat16 are roundings of the master weights, from the first on.
TEST(LlamaTraining, master_weights) {
  Config config = several_layers();
  config.hidden = 16;
  config.heads = 4;
  config.head_dim = 4;
  TrainingOptions options;
  options.batch = 1;
  options.length = 8;
  options.steps = 3;
  std::vector<std::int32_t> const text{1, 2, 3, 4, 5, 6, 7, 8, 9};
  Trainer<attikos::bfloat16> trainer(config, options, text, {0, 0, 0});
  trainer.initialize();
  auto const first = to_host(trainer.master());
  for (std::size_t step = 0; step < options.steps; ++step) trainer.step(step);
  trainer.fence();
  auto const master = to_host(trainer.master()), weights = to_host(trainer.weights().all);
  for (std::size_t i = 0; i < master.size(); ++i)
    ASSERT_EQ(weights[i], static_cast<double>(attikos::bfloat16(static_cast<float>(master[i]))));
  EXPECT_NE(master, first);
  auto const losses = to_host(trainer.losses());
  EXPECT_LT(losses.back(), losses.front());
}

int allocations = 0;

// All memory is there before the first step, but for what the library keeps for an instance from
// its first calls on.
TEST(LlamaTraining, no_allocation_in_the_loop) {
  Config const config = several_layers();
  TrainingOptions options;
  options.batch = 2;
  options.length = 8;
  options.steps = 3;
  std::vector<std::int32_t> text(33, 3);
  Trainer<float> trainer(config, options, text, {0, 8, 16, 24, 0, 8});
  trainer.initialize();
  trainer.step(0);
  trainer.fence();
  auto const before = Kokkos::Tools::Experimental::get_callbacks();
  allocations = 0;
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, char const*, void const*, std::uint64_t) { ++allocations; });
  trainer.step(1);
  trainer.step(2);
  trainer.fence();
  Array<float> const one("one", 1);
  Kokkos::Tools::Experimental::set_callbacks(before);
  EXPECT_EQ(allocations, 1);
}

TEST(LlamaText, sequences_are_read_once_a_round) {
  auto const begins = sequence_begins(101, 10, 3, 25);
  ASSERT_EQ(begins.size(), 25u);
  for (std::size_t round : {0, 1}) {
    auto const first = begins.begin() + static_cast<std::ptrdiff_t>(10 * round);
    std::vector<std::int64_t> sorted(first, first + 10);
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(sorted[i], static_cast<std::int64_t>(10 * i));
  }
  EXPECT_FALSE(std::equal(begins.begin(), begins.begin() + 10, begins.begin() + 10));
  auto const more = sequence_begins(101, 10, 3, 40);
  EXPECT_TRUE(std::equal(begins.begin(), begins.end(), more.begin()));
  EXPECT_NE(sequence_begins(101, 10, 4, 25), begins);
  EXPECT_ANY_THROW(sequence_begins(10, 10, 3, 1));
}

}  // namespace
}  // namespace llama::test
