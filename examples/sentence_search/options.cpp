// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "options.hpp"

#include <charconv>
#include <string_view>
#include <utility>

#include "corpus.hpp"
#include "failure.hpp"
#include "utf8.hpp"

namespace sentence_search {
namespace {

// What the user typed, fit to be repeated in a message of one line.
std::string as_typed(std::string_view text) {
  if (find_invalid_utf8(text)) return "(invalid UTF-8)";
  return "\"" + one_line(text, 60) + "\"";
}

std::size_t parse_count(std::string_view option, std::string_view text) {
  std::size_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) {
    throw UsageError(std::string(option) + " needs a whole number from 1 on, not " +
                     as_typed(text));
  }
  return value;
}

ElementType parse_dtype(std::string_view text) {
  for (auto const type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    if (text == name_of(type)) return type;
  }
  throw UsageError("--dtype is float32, bfloat16 or float16, not " + as_typed(text));
}

std::filesystem::path parse_path(std::string_view option, std::string const& text) {
  if (text.empty()) throw UsageError(std::string(option) + " needs a path");
  return text;
}

}  // namespace

char const* const help_text =
    R"(Usage: sentence_search [option...]
Finds the passages of a text that are nearest in meaning to a query, with all-MiniLM-L6-v2.

  --query TEXT           what to look for
  --corpus FILE          UTF-8 text to search, one passage a line: at most 256 MiB, 1 MiB a line, 1000000 passages
  --docs DIR             search the documentation of the project in DIR instead (the default: Attikos's own)
  --top K                how many passages to print (default 5)
  --dtype TYPE           float32 (default), bfloat16 or float16: type of weights and activations
  --embeddings OUT.npy   write the passages' vectors, float32 [passages, hidden], in the corpus's order
  --model DIR            folder with model.safetensors, vocab.txt and config.json
  --help                 print this

Arguments that begin with --kokkos, such as --kokkos-num-threads=4, go to Kokkos (--kokkos-help lists them).
Exit status: 0 done, 1 something is wrong with a file or a text, 2 something is wrong with the command line.
)";

char const* name_of(ElementType type) {
  switch (type) {
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::float16:
      return "float16";
    case ElementType::float32:
      break;
  }
  return "float32";
}

Options parse_options(std::vector<char*> const& arguments, Options options) {
  bool docs_given = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string const argument = arguments[i];
    if (argument.starts_with("--kokkos")) {
      options.kokkos_arguments.push_back(arguments[i]);
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      continue;
    }
    std::size_t const equals = argument.find('=');
    std::string const name = argument.substr(0, equals);
    auto const value = [&]() -> std::string {
      if (equals != std::string::npos) return argument.substr(equals + 1);
      if (i + 1 == arguments.size()) throw UsageError(name + " needs a value");
      return arguments[++i];
    };
    if (name == "--query") {
      options.query = value();
    } else if (name == "--corpus") {
      options.corpus = parse_path(name, value());
    } else if (name == "--docs") {
      options.docs = parse_path(name, value());
      docs_given = true;
    } else if (name == "--top") {
      options.top = parse_count(name, value());
    } else if (name == "--dtype") {
      options.dtype = parse_dtype(value());
    } else if (name == "--embeddings") {
      options.embeddings = parse_path(name, value());
    } else if (name == "--model") {
      options.model = parse_path(name, value());
    } else {
      throw UsageError("unknown argument " + as_typed(argument) + " (--help lists the options)");
    }
  }
  if (options.help) return options;
  if (options.corpus && docs_given) throw UsageError("--corpus and --docs exclude each other");
  if (is_blank(options.query)) throw UsageError("the query is empty");
  if (auto const at = find_invalid_utf8(options.query)) {
    throw DataError("the query is no valid UTF-8 at byte offset " + std::to_string(*at));
  }
  return options;
}

}  // namespace sentence_search
