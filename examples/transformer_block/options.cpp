// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "options.hpp"

#include <charconv>
#include <sstream>
#include <string>
#include <string_view>

namespace transformer_block {
namespace {

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

}  // namespace

char const* const help_text =
    R"(Usage: transformer_block [option...]
Trains a small transformer on one sentence, then lets it go on from the sentence's beginning.

  --steps N           steps of gradient descent (default 20)
  --learning-rate R   what a gradient is multiplied by (default 0.5)
  --generate N        tokens to generate (default 35, to the end of the sentence)
  --type TYPE         float32 (default) or bfloat16: what generation computes in
  --help              print this

Arguments that begin with --kokkos, such as --kokkos-num-threads=4, go to Kokkos (--kokkos-help lists them).
Exit status: 0 done, 1 training or generation failed its checks, 2 something is wrong with the command line.
)";

Options parse_options(std::vector<char*> const& arguments, std::size_t max_generate) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string const argument = arguments[i];
    if (argument.starts_with("--kokkos")) {
      options.kokkos_arguments.push_back(arguments[i]);
      continue;
    }
    if (argument == "--help") {
      options.help = true;
      continue;
    }
    bool const known = argument == "--steps" || argument == "--learning-rate" ||
                       argument == "--generate" || argument == "--type";
    if (!known) throw UsageError("unknown argument \"" + argument + "\"; --help lists all");
    if (++i == arguments.size()) throw UsageError(argument + " needs a value");
    std::string_view const value = arguments[i];
    if (argument == "--steps") {
      options.steps = parse<std::size_t>(argument, value, 1, 1000000);
    } else if (argument == "--generate") {
      options.generate = parse<std::size_t>(argument, value, 1, max_generate);
    } else if (argument == "--learning-rate") {
      options.learning_rate = parse<double>(argument, value, 0, 1000);
    } else if (value == "float32" || value == "bfloat16") {
      options.bfloat16 = value == "bfloat16";
    } else {
      throw UsageError("--type is float32 or bfloat16, not \"" + std::string(value) + "\"");
    }
  }
  return options;
}

}  // namespace transformer_block
