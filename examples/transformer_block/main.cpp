// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// transformer_block: trains a small transformer on one sentence, then lets it go on from the
/// sentence's beginning. Fails if the loss does not fall, or if what a paged cache gives differs
/// from what the same tokens give without one.
#include <Kokkos_Core.hpp>
#include <attikos/core/dtypes.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "generation.hpp"
#include "options.hpp"
#include "training.hpp"

namespace transformer_block {
namespace {

constexpr std::size_t prompt_length = 10;

template <class T>
void generate_and_compare(Config const& config, std::vector<double> const& weights,
                          std::size_t count) {
  auto const prompt = tokens_of(sentence.substr(0, prompt_length));
  Generation const generation = generate<T>(config, weights, prompt, count);
  std::string const text = text_of(generation.tokens);
  std::printf("\n%s|%s\n\n", text.substr(0, prompt_length).c_str(),
              text.substr(prompt_length).c_str());
  Agreement const agreement = compare_passes<T>(config, weights, generation);
  std::printf("logits with and without the cache: difference at most %.2e, %.1e of its bound\n",
              agreement.difference, agreement.ratio);
  if (!(agreement.ratio <= 1))
    throw std::runtime_error("logits with the cache are not those without it");
}

void run(Options const& options, Config const& config) {
  auto weights = initial_weights(config, 1);
  std::printf("%zu weights; %s, %s for generation\n", weights.size(),
              Kokkos::DefaultExecutionSpace::name(), options.bfloat16 ? "bfloat16" : "float32");
  auto const losses = train(config, weights, make_lesson(2), options.steps, options.learning_rate);
  std::size_t const stride = (options.steps + 9) / 10;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    if (step % stride == 0 || step + 1 == losses.size())
      std::printf("step %4zu: loss %.4f\n", step, losses[step]);
  }
  if (!(losses.back() < losses.front())) throw std::runtime_error("the loss did not go down");
  if (options.bfloat16) {
    generate_and_compare<attikos::bfloat16>(config, weights, options.generate);
  } else {
    generate_and_compare<float>(config, weights, options.generate);
  }
}

}  // namespace
}  // namespace transformer_block

int main(int argc, char* argv[]) {
  using namespace transformer_block;
  auto const fail = [](std::exception const& error, int status) {
    std::fprintf(stderr, "transformer_block: %s\n", error.what());
    return status;
  };
  try {
    Config const config;
    Options options = parse_options({argv + 1, argv + argc}, config.max_positions - prompt_length);
    if (options.help) {
      std::fputs(help_text, stdout);
      return 0;
    }
    auto& arguments = options.kokkos_arguments;
    arguments.insert(arguments.begin(), argv[0]);
    int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    Kokkos::ScopeGuard const kokkos(count, arguments.data());
    run(options, config);
  } catch (UsageError const& error) {
    return fail(error, 2);
  } catch (std::exception const& error) {
    return fail(error, 1);
  }
  return 0;
}
