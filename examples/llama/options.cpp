// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "options.hpp"

#include <charconv>
#include <functional>
#include <map>
#include <sstream>
#include <string_view>

#include "failure.hpp"

namespace llama {
namespace {

using sentence_search::UsageError;

template <class Number>
Number parse(std::string const& option, std::string_view text, Number low, Number high) {
  Number value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool const number = error == std::errc() && end == text.data() + text.size();
  if (!number || !(value >= low && value <= high)) {
    std::ostringstream message;
    message << option << " needs a number from " << low << " to " << high << ", not \"" << text
            << '"';
    throw UsageError(message.str());
  }
  return value;
}

bool parse_choice(std::string const& option, std::string_view text, char const* no,
                  char const* yes) {
  if (text != no && text != yes)
    throw UsageError(option + " is " + no + " or " + yes + ", not \"" + std::string(text) + '"');
  return text == yes;
}

}  // namespace

char const* const help_text =
    R"(Usage: llama [option...]
Trains a Llama model on a project's documentation, then lets it go on from a prompt.

  --layers N            (8)           --batch N         sequences of a step (8)
  --hidden N            (2048)        --length N        tokens of a sequence (2048)
  --heads N             (16)          --steps N         in all, those before --resume too (200)
  --kv-heads N          (4)           --warmup N        steps in which the learning rate rises (20)
  --intermediate N      (5632)        --learning-rate R (0.0003)
  --type TYPE           float32 (default), or bfloat16 with float32 master weights
  --weight-decay R      (0.1)
  --seed N              of weights and of the order of sequences (1)
  --logits-rows N       tokens whose logits are in memory at once, 0 (default) for a tenth of all
  --mlp WAY             keep (default): both projections of a gated MLP are kept for the way back;
                        recompute: they are computed again

  --report N            a line every N steps (10)
  --losses FILE         losses of all steps as CSV
  --batches FILE        the tokens of all steps as safetensors, before the first
  --checkpoint FILE     written at the end, and --checkpoint-every N steps, as safetensors
  --resume FILE         goes on from a checkpoint

  --generate N          tokens to generate, 0 (default) for none
  --generate-batch N    sequences that are generated at once (1)
  --prompt TEXT         what they begin with
  --page-size N         positions in a page of the cache (64)

  --docs DIR            the project's folder (this one)
  --vocabulary FILE     a vocab.txt of BERT (MiniLM's)
  --help                print this

Arguments that begin with --kokkos, such as --kokkos-num-threads=4, go to Kokkos (--kokkos-help lists them).
Exit status: 0 done, 1 something failed, 2 something is wrong with the command line.
)";

Options parse_options(std::vector<char*> const& arguments, Options options) {
  std::string name;
  std::string_view value;

  auto const number = [&](std::size_t& to, std::size_t low = 1, std::size_t high = 1 << 20) {
    return [&, low, high] { to = parse<std::size_t>(name, value, low, high); };
  };
  auto const real = [&](double& to) { return [&] { to = parse<double>(name, value, 0, 1); }; };
  auto const path = [&](std::filesystem::path& to) { return [&] { to = value; }; };
  std::map<std::string, std::function<void()>> const known{
      {"--layers", number(options.config.layers, 1, 1000)},
      {"--hidden", number(options.config.hidden)},
      {"--heads", number(options.config.heads, 1, 1000)},
      {"--kv-heads", number(options.config.kv_heads, 1, 1000)},
      {"--intermediate", number(options.config.intermediate)},
      {"--batch", number(options.batch)},
      {"--length", number(options.length)},
      {"--steps", number(options.steps, 0)},
      {"--warmup", number(options.warmup, 0)},
      {"--seed", [&] { options.seed = parse<std::uint64_t>(name, value, 0, 1 << 20); }},
      {"--learning-rate", real(options.learning_rate)},
      {"--weight-decay", real(options.weight_decay)},
      {"--logits-rows", number(options.logits_rows, 0)},
      {"--type", [&] { options.bfloat16 = parse_choice(name, value, "float32", "bfloat16"); }},
      {"--mlp", [&] { options.keep_mlp = parse_choice(name, value, "recompute", "keep"); }},
      {"--report", number(options.report)},
      {"--losses", path(options.losses)},
      {"--batches", path(options.batches)},
      {"--checkpoint", path(options.checkpoint)},
      {"--checkpoint-every", number(options.checkpoint_every)},
      {"--resume", path(options.resume)},
      {"--generate", number(options.generate, 0)},
      {"--generate-batch", number(options.generate_batch, 1, 4096)},
      {"--prompt", [&] { options.prompt = value; }},
      {"--page-size", number(options.page_size, 1, 4096)},
      {"--docs", path(options.documentation)},
      {"--vocabulary", path(options.vocabulary)}};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    name = arguments[i];
    if (name.starts_with("--kokkos")) {
      options.kokkos_arguments.push_back(arguments[i]);
      continue;
    }
    if (name == "--help") {
      options.help = true;
      continue;
    }
    auto const found = known.find(name);
    if (found == known.end())
      throw UsageError("unknown argument \"" + name + "\"; --help lists all");
    if (++i == arguments.size()) throw UsageError(name + " needs a value");
    value = arguments[i];
    found->second();
  }
  Config& c = options.config;
  if (c.hidden % c.heads != 0 || (c.hidden / c.heads) % 2 != 0)
    throw UsageError("--hidden is an even multiple of --heads");
  if (c.heads % c.kv_heads != 0) throw UsageError("--heads is a multiple of --kv-heads");
  if (options.checkpoint_every != 0 && options.checkpoint.empty())
    throw UsageError("--checkpoint-every needs --checkpoint");
  c.head_dim = c.hidden / c.heads;
  return options;
}

}  // namespace llama
