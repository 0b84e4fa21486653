// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "command_line.hpp"

#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>

namespace attikos_plan {
namespace {

using attikos::DType;

constexpr int most_ranks = 1 << 20;

/// What was typed, fit for a message of one line.
std::string as_typed(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string shown = "\"";
  for (char const c : text.substr(0, longest)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > longest ? "...\"" : "\"");
}

template <class T>
bool read(std::string_view text, T& value) {
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::int64_t count(std::string_view option, std::string_view text) {
  std::int64_t value = 0;
  if (!read(text, value) || value < 1)
    throw UsageError(std::string(option) + " needs a whole number from 1 on, not " +
                     as_typed(text));
  return value;
}

double number(std::string_view option, std::string_view text) {
  double value = 0;
  if (!read(text, value) || !std::isfinite(value) || value < 0)
    throw UsageError(std::string(option) + " needs a number of at least 0, not " + as_typed(text));
  return value;
}

/// Two parts around the first `separator`.
std::pair<std::string_view, std::string_view> halves(std::string_view option, std::string_view text,
                                                     char separator, char const* form) {
  std::size_t const at = text.find(separator);
  if (at == std::string_view::npos)
    throw UsageError(std::string(option) + " needs " + form + ", not " + as_typed(text));
  return {text.substr(0, at), text.substr(at + 1)};
}

int place(std::string_view option, std::string_view text) {
  int value = 0;
  if (!read(text, value) || value < 0)
    throw UsageError(std::string(option) + " needs a number from 0 on, not " + as_typed(text));
  return value;
}

/// "1,2,4", "1..16": the powers of two between them, and both ends.
std::vector<int> rank_counts(std::string_view text) {
  std::vector<int> ranks;
  auto const one = [](std::string_view part) {
    int value = 0;
    if (!read(part, value) || value < 1 || value > most_ranks)
      throw UsageError("--ranks needs numbers from 1 to 1048576, as in 1,2,4 or 1..16384, not " +
                       as_typed(part));
    return value;
  };
  if (std::size_t const dots = text.find(".."); dots != std::string_view::npos) {
    int const first = one(text.substr(0, dots)), last = one(text.substr(dots + 2));
    if (last < first)
      throw UsageError("--ranks needs a first number that is not above the last, not " +
                       as_typed(text));
    for (std::int64_t n = first; n < last; n *= 2) ranks.push_back(static_cast<int>(n));
    ranks.push_back(last);
    return ranks;
  }
  for (;;) {
    std::size_t const comma = text.find(',');
    ranks.push_back(one(text.substr(0, comma)));
    if (comma == std::string_view::npos) return ranks;
    text = text.substr(comma + 1);
  }
}

DType type(std::string_view text) {
  for (DType const t : {DType::float64, DType::float32, DType::float16, DType::bfloat16})
    if (text == dtype_name(t)) return t;
  throw UsageError("--type is float64, float32, float16 or bfloat16, not " + as_typed(text));
}

Format format(std::string_view text) {
  if (text == "table") return Format::table;
  if (text == "csv") return Format::csv;
  if (text == "json") return Format::json;
  throw UsageError("--format is table, csv or json, not " + as_typed(text));
}

}  // namespace

char const* const help_text =
    R"(Usage: attikos-plan --machine FILE [option...]
What each way of spreading a transformer over ranks is expected to take, and which to take.

  --machine FILE         what a machine can do: JSON, such as perf/plan/machines/h200x4.json
  --ranks LIST           1,2,4 or 1..64, powers of two from 1 to 64 (default 1..16384)
  --length N             positions of the sequence (default 131072)
  --length-per-rank N    the same for each rank: the sequence grows with the ranks
  --batch N              (default 1)
  --layers N --heads N --kv-heads N --head-dim N --hidden N --intermediate N
                         of the transformer (default 32, 32, 8, 128, 4096, 14336)
  --full                 attention without a causal mask
  --type TYPE            bfloat16 (default), float16, float32 or float64
  --slow-rank R:F        rank R takes F times as long
  --slow-link A-B:F      the link between ranks A and B of a node has F of its bandwidth; 0: it failed
  --slow-nodes A-B:F     the same between nodes A and B
  --slow-card N/C:F      the same of network card C of node N
  --jitter X --seed N    each step's work takes 1 + X times as long on average, at random
  --format FORMAT        table (default), csv or json
  --help                 print this

Exit status: 0 done, 1 something is wrong with a file, the model or a disturbance, 2 with the command line.
)";

Request parse(std::vector<std::string> const& arguments) {
  Request r;
  auto& m = r.model;
  auto& d = r.disturbances;
  bool length = false;
  using Text = std::string_view;
  auto const counted = [](std::int64_t& target) {
    return [&target](Text option, Text value) { target = count(option, value); };
  };
  auto const link = [&d](bool nodes) {
    return [&d, nodes](Text option, Text value) {
      auto const [ends, factor] = halves(option, value, ':', "A-B:F");
      auto const [a, b] = halves(option, ends, '-', "A-B:F");
      d.links.push_back({nodes, place(option, a), place(option, b), number(option, factor)});
    };
  };
  auto const long_as = [&](bool per_rank) {
    return [&, per_rank](Text option, Text value) {
      if (length) throw UsageError("--length and --length-per-rank: expected one of them, once");
      length = true;
      m.length = count(option, value);
      r.length_is_per_rank = per_rank;
    };
  };
  std::map<std::string, std::function<void(Text, Text)>, std::less<>> const options{
      {"--machine", [&](Text, Text value) { r.machine = value; }},
      {"--ranks", [&](Text, Text value) { r.ranks = rank_counts(value); }},
      {"--length", long_as(false)},
      {"--length-per-rank", long_as(true)},
      {"--batch", counted(m.batch)},
      {"--layers", counted(m.layers)},
      {"--heads", counted(m.heads)},
      {"--kv-heads", counted(m.kv_heads)},
      {"--head-dim", counted(m.head_dim)},
      {"--hidden", counted(m.hidden)},
      {"--intermediate", counted(m.intermediate)},
      {"--type", [&](Text, Text value) { m.type = type(value); }},
      {"--slow-rank",
       [&](Text option, Text value) {
         auto const [rank, factor] = halves(option, value, ':', "R:F");
         d.ranks.push_back({place(option, rank), number(option, factor)});
       }},
      {"--slow-link", link(false)},
      {"--slow-nodes", link(true)},
      {"--slow-card",
       [&](Text option, Text value) {
         auto const [card, factor] = halves(option, value, ':', "N/C:F");
         auto const [node, index] = halves(option, card, '/', "N/C:F");
         d.cards.push_back({place(option, node), place(option, index), number(option, factor)});
       }},
      {"--jitter", [&](Text option, Text value) { d.jitter = number(option, value); }},
      {"--seed",
       [&](Text option, Text value) { d.seed = static_cast<std::uint64_t>(count(option, value)); }},
      {"--format", [&](Text, Text value) { r.format = format(value); }},
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string const& option = arguments[i];
    if (option == "--help") {
      r.help = true;
      return r;
    }
    if (option == "--full") {
      m.causal = false;
      continue;
    }
    auto const found = options.find(option);
    if (found == options.end()) throw UsageError("no option " + as_typed(option) + "; see --help");
    if (++i == arguments.size()) throw UsageError(option + " needs a value");
    found->second(option, arguments[i]);
  }
  if (r.machine.empty()) throw UsageError("--machine is needed; see --help");
  if (r.ranks.empty()) r.ranks = rank_counts("1..16384");
  return r;
}

}  // namespace attikos_plan
