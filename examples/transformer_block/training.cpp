// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "training.hpp"

#include "trainer.hpp"

namespace transformer_block {

template class Trainer<float>;

std::vector<double> train(Config const& config, std::vector<double>& weights, Lesson const& lesson,
                          std::size_t steps, double learning_rate) {
  Model<float> const model(config, weights);
  Trainer<float> trainer(model, lesson.batch, lesson.tokens.size() / lesson.batch);
  std::vector<double> losses;
  for (std::size_t step = 0; step < steps; ++step) {
    losses.push_back(trainer.loss_and_gradients(lesson.tokens, lesson.targets));
    trainer.update(learning_rate);
  }
  losses.push_back(trainer.loss_and_gradients(lesson.tokens, lesson.targets));
  weights = to_host<double>(model.weights.all);
  return losses;
}

}  // namespace transformer_block
