// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report.hpp"

#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

namespace attikos_plan {
namespace {

namespace plan = attikos::distributed::plan;
using nlohmann::ordered_json;

std::string in_unit(double value, char const* const (&units)[4], double step) {
  int unit = 0;
  while (unit < 3 && value < 1) value *= step, ++unit;
  std::ostringstream text;
  text << std::fixed
       << std::setprecision(value < 10    ? 2
                            : value < 100 ? 1
                                          : 0)
       << value << ' ' << units[unit];
  return text.str();
}
std::string time_text(double seconds) { return in_unit(seconds, {"s", "ms", "us", "ns"}, 1e3); }
std::string memory_text(double bytes) {
  return in_unit(bytes / 1e12, {"TB", "GB", "MB", "kB"}, 1e3);
}
std::string percent_text(double share) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << 100 * share << " %";
  return text.str();
}
double share_exposed(plan::Prediction const& p) {
  return p.seconds > 0 ? p.exposed / p.seconds : 0;
}
bool chosen(plan::RankPlan const& of, std::size_t index) {
  return static_cast<int>(index) == of.attention || static_cast<int>(index) == of.products;
}

void table_row(std::ostream& out, Row const& row) {
  for (std::size_t i = 0; i < row.plan.predictions.size(); ++i) {
    plan::Prediction const& p = row.plan.predictions[i];
    if (i == 0)
      out << std::setw(6) << row.ranks << ' ';
    else
      out << "       ";
    out << (chosen(row.plan, i) ? '*' : ' ') << ' ' << std::left << std::setw(16)
        << layout_name(p.layout) << std::right;
    if (!p.possible()) {
      out << "   " << p.why_not << '\n';
      continue;
    }
    out << std::setw(10) << time_text(p.seconds) << std::setw(11) << percent_text(p.efficiency())
        << std::setw(10) << percent_text(share_exposed(p)) << std::setw(10)
        << memory_text(p.memory.device()) << (p.fits ? "" : "   does not fit") << '\n';
  }
}

/// A text between quotes, in which CSV doubles a quote.
std::string quoted(std::string const& text) {
  std::string result = "\"";
  for (char const c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

void csv_row(std::ostream& out, Row const& row) {
  out << std::setprecision(9);
  for (std::size_t i = 0; i < row.plan.predictions.size(); ++i) {
    plan::Prediction const& p = row.plan.predictions[i];
    out << row.ranks << ',' << row.model.length << ',' << layout_name(p.layout) << ','
        << chosen(row.plan, i) << ',';
    if (p.possible())
      out << p.seconds << ',' << p.efficiency() << ',' << p.work << ',' << p.exposed << ','
          << p.memory.device() << ',' << p.memory.staging << ',' << p.fits << ",\n";
    else
      out << ",,,,,,," << quoted(p.why_not) << '\n';
  }
}

}  // namespace

plan::Machine read_machine(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw attikos::Error("attikos::plan: machine file: " + path + " cannot be read");
  constexpr std::size_t most = 1 << 20;
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most)
    throw attikos::Error("attikos::plan: machine file: " + path +
                         " has more than 1048576 bytes; expected at most as many");
  ordered_json content;
  try {
    content = ordered_json::parse(text);
  } catch (ordered_json::exception const& error) {
    throw attikos::Error("attikos::plan: machine file: " + path + " is no JSON: " + error.what());
  }
  return plan::machine_of(content);
}

void write_heading(std::ostream& out, Request const& request, plan::Machine const& machine) {
  if (request.format == Format::csv)
    out << "ranks,length,layout,chosen,seconds,efficiency,work_seconds,exposed_seconds,"
           "device_bytes,staging_bytes,fits,why_not\n";
  if (request.format != Format::table) return;
  auto const& m = request.model;
  out << machine.name << ", nodes of " << machine.ranks_per_node << " ranks: " << m.layers
      << (m.layers == 1 ? " layer of " : " layers of ") << m.heads << ':' << m.kv_heads
      << " heads of " << m.head_dim << ", hidden " << m.hidden << ':' << m.intermediate << ", "
      << dtype_name(m.type) << ", " << (m.causal ? "causal" : "full") << ", batch " << m.batch
      << ", " << m.length << " positions" << (request.length_is_per_rank ? " a rank" : "")
      << "\n\n ranks   layout                time efficiency   exposed    memory\n";
}

void write_row(std::ostream& out, Format format, Row const& row) {
  if (format == Format::table)
    table_row(out, row);
  else if (format == Format::csv)
    csv_row(out, row);
}

void write_json(std::ostream& out, plan::Machine const& machine, std::vector<Row> const& rows) {
  ordered_json file;
  file["machine"] = plan::machine_file<ordered_json>(machine);
  auto& all = file["predictions"] = ordered_json::array();
  for (Row const& row : rows)
    for (std::size_t i = 0; i < row.plan.predictions.size(); ++i) {
      plan::Prediction const& p = row.plan.predictions[i];
      ordered_json one;
      one["ranks"] = row.ranks;
      one["length"] = row.model.length;
      one["layout"] = layout_name(p.layout);
      one["chosen"] = chosen(row.plan, i);
      if (p.possible()) {
        one["seconds"] = p.seconds;
        one["efficiency"] = p.efficiency();
        one["work_seconds"] = p.work;
        one["exposed_seconds"] = p.exposed;
        one["device_bytes"] = p.memory.device();
        one["staging_bytes"] = p.memory.staging;
        one["fits"] = p.fits;
      } else {
        one["why_not"] = p.why_not;
      }
      all.push_back(std::move(one));
    }
  out << file.dump(1) << '\n';
}

}  // namespace attikos_plan
