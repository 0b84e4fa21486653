// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// llama: trains a Llama model on the project's documentation, and lets it go on from a prompt.
#include <Kokkos_Core.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "default_paths.hpp"
#include "failure.hpp"
#include "generator.hpp"
#include "options.hpp"
#include "saved_training.hpp"
#include "text.hpp"

namespace llama {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class T>
std::vector<double> host_losses(Trainer<T> const& trainer, std::size_t first, std::size_t count) {
  std::vector<float> values(count);
  trainer.fence();
  Kokkos::deep_copy(
      Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(values.data(), count),
      Vector<float>(trainer.losses().data() + first, count));
  return {values.begin(), values.end()};
}

template <class T>
void write_losses(std::filesystem::path const& path, Trainer<T> const& trainer, std::size_t steps) {
  std::ofstream file(path);
  auto const losses = host_losses(trainer, 0, steps);
  file.precision(9);
  file << "step,loss\n";
  for (std::size_t i = 0; i < steps; ++i) file << i << ',' << losses[i] << '\n';
  if (!file.flush()) throw sentence_search::DataError(path.string() + ": cannot be written");
}

/// The tokens of every step, [steps, batch, length + 1], for a program that is to do the same.
void write_batches(Options const& options, std::vector<std::int32_t> const& text,
                   std::vector<std::int64_t> const& begins) {
  std::size_t const width = options.length + 1;
  SafetensorsWriter file(options.batches,
                         {{"tokens", "I32", {options.steps, options.batch, width}}});
  for (std::int64_t const begin : begins)
    file.append(std::as_bytes(std::span(text).subspan(static_cast<std::size_t>(begin), width)));
  file.commit();
}

/// Lines of progress. The first report of a run, in which kernels are loaded, is not in the mean.
class Reports {
 public:
  Reports(Options const& options, std::size_t first)
      : options_(options), last_step_(first), last_(Clock::now()) {}

  void line(std::size_t done, double loss) {
    double const passed = seconds_since(last_);
    double const tokens =
        static_cast<double>((done - last_step_) * options_.batch * options_.length);
    auto const left = static_cast<long>(passed / static_cast<double>(done - last_step_) *
                                        static_cast<double>(options_.steps - done));
    std::printf("step %6zu of %zu: loss %.4f, %.0f tokens/s, %ld:%02ld:%02ld left\n", done,
                options_.steps, loss, tokens / passed, left / 3600, left / 60 % 60, left % 60);
    std::fflush(stdout);
    if (reports_++ > 0) {
      tokens_ += tokens;
      seconds_ += passed;
    }
    restart(done);
  }
  void restart(std::size_t done) {
    last_step_ = done;
    last_ = Clock::now();
  }
  void finish() const {
    if (seconds_ > 0)
      std::printf("trained at %.0f tokens/s after the first report\n", tokens_ / seconds_);
  }

 private:
  Options const& options_;
  std::size_t last_step_, reports_ = 0;
  Clock::time_point last_;
  double tokens_ = 0, seconds_ = 0;
};

template <class T>
void train(Options const& options, Trainer<T>& trainer, TrainingState& state,
           SavedTraining<T>& saved) {
  Reports reports(options, state.step);
  while (state.step < options.steps) {
    trainer.step(state.step);
    ++state.step;
    state.position = state.step * options.batch;
    bool const last = state.step == options.steps;
    if (state.step % options.report == 0 || last) {
      double const loss = host_losses(trainer, state.step - 1, 1)[0];
      reports.line(state.step, loss);
      if (!std::isfinite(loss)) throw std::runtime_error("the loss is no number any more");
    }
    bool const due = options.checkpoint_every != 0 && state.step % options.checkpoint_every == 0;
    if (!options.checkpoint.empty() && (due || last)) {
      saved.write(options.checkpoint, trainer, state);
      reports.restart(state.step);
    }
  }
  reports.finish();
}

template <class T>
void generate(Options const& options, Config const& config, Weights<T> const& weights,
              Vocabulary const& vocabulary) {
  auto const prompt = vocabulary.encode(options.prompt, true);
  std::size_t const batch = options.generate_batch;
  std::vector<std::int32_t> prompts;
  for (std::size_t b = 0; b < batch; ++b)
    prompts.insert(prompts.end(), prompt.begin(), prompt.end());
  // One token comes from the prompt, and one step warms up.
  std::size_t const capacity = prompt.size() + options.generate + 1;
  Generator<T> generator(config, weights, batch, prompt.size(), capacity, options.page_size);
  auto const run = [&](char const* way, std::function<void()> const& step) {
    generator.start(prompts);
    step();
    generator.exec().fence();
    auto const begin = Clock::now();
    for (std::size_t i = 1; i < options.generate; ++i) step();
    generator.exec().fence();
    double const seconds = seconds_since(begin);
    auto const steps = static_cast<double>(options.generate - 1);
    std::printf(
        "generated %zu tokens for each of %zu sequences, %s: %.1f us a step, %.0f tokens/s\n",
        options.generate, batch, way, seconds / steps * 1e6,
        steps * static_cast<double>(batch) / seconds);
    return generator.tokens();
  };
  auto const tokens = run("call by call", [&] { generator.step(); });
  if constexpr (Recorded::is_graph) {
    generator.start(prompts);
    Recorded const recorded(generator.exec(), [&] { generator.step(); });
    if (run("as a graph", [&] { recorded.replay(); }) != tokens)
      throw std::runtime_error("the graph gives other tokens than the calls");
  }
  auto const at = tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size());
  std::printf("\n%s | %s\n", vocabulary.decode({tokens.begin(), at}).c_str(),
              vocabulary.decode({at, at + static_cast<std::ptrdiff_t>(options.generate)}).c_str());
}

template <class T>
void run(Options const& options) {
  Vocabulary const vocabulary(options.vocabulary);
  Config config = options.config;
  config.vocabulary = vocabulary.size();
  auto const text = read_documentation(options.documentation, vocabulary);
  auto const begins =
      sequence_begins(text.size(), options.length, options.seed, options.steps * options.batch);
  if (!options.batches.empty()) write_batches(options, text, begins);

  TrainingOptions training;
  training.batch = options.batch;
  training.length = options.length;
  training.steps = options.steps;
  training.seed = options.seed;
  training.descent.learning_rate = options.learning_rate;
  training.descent.weight_decay = options.weight_decay;
  training.warmup = options.warmup;
  training.logits_rows = options.logits_rows;
  training.keep_mlp = options.keep_mlp;
  Trainer<T> trainer(config, training, text, begins);
  std::printf("%zu tokens of text; %zu weights, %.2f GB; %s, %s\n", text.size(),
              trainer.weights().map.size, static_cast<double>(trainer.bytes()) * 1e-9, Exec::name(),
              options.bfloat16 ? "bfloat16" : "float32");
  SavedTraining<T> saved(config);
  TrainingState state{0, 0, options.seed, options.batch, options.length};
  if (options.resume.empty()) {
    trainer.initialize();
    // The weights to begin with, for a program that is to do the same.
    if (!options.batches.empty() && !options.checkpoint.empty())
      saved.write(options.checkpoint.string() + ".first", trainer, state);
  } else {
    state = saved.read(options.resume, trainer, state);
    std::printf("resumed behind step %zu\n", static_cast<std::size_t>(state.step));
  }
  train(options, trainer, state, saved);
  if (!options.losses.empty()) write_losses(options.losses, trainer, state.step);
  if (options.generate > 0) generate(options, config, trainer.weights(), vocabulary);
}

}  // namespace
}  // namespace llama

int main(int argc, char* argv[]) {
  using namespace llama;
  auto const fail = [](std::exception const& error, int status) {
    std::fprintf(stderr, "llama: %s\n", error.what());
    return status;
  };
  try {
    Options defaults;
    defaults.documentation = default_documentation;
    defaults.vocabulary = default_vocabulary;
    Options options = parse_options({argv + 1, argv + argc}, defaults);
    if (options.help) {
      std::fputs(help_text, stdout);
      return 0;
    }
    auto& arguments = options.kokkos_arguments;
    arguments.insert(arguments.begin(), argv[0]);
    int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    Kokkos::ScopeGuard const kokkos(count, arguments.data());
    if (options.bfloat16)
      run<attikos::bfloat16>(options);
    else
      run<float>(options);
  } catch (sentence_search::UsageError const& error) {
    return fail(error, 2);
  } catch (std::exception const& error) {
    return fail(error, 1);
  }
  return 0;
}
