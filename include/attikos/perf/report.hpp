// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Measurements as a table for people, as JSON and as CSV.
///
/// Numbers are written with a point whatever the locale, in the fewest digits that read back as the
/// same number (the table rounds). Times are in seconds (milliseconds in the table).
#pragma once

#include <algorithm>
#include <array>
#include <attikos/perf/measurement.hpp>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace perf {

/// Facts of a run, in order: key and value.
using Context = std::vector<std::pair<std::string, std::string>>;

namespace detail {

/// The shortest text that reads back as the number.
inline std::string number(double value) {
  std::array<char, 64> text;
  auto const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

inline std::string fixed(double value, int digits) {
  std::array<char, 400> text;
  auto const end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits)
          .ptr;
  return {text.data(), end};
}

/// Length of the UTF-8 sequence at the front of `text`; 0 if there is none that is well-formed
/// (RFC 3629).
inline std::size_t utf8_length(std::string_view text) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char const first = byte(0);
  if (first < 0x80) return 1;
  std::size_t const length = first >= 0xC2 && first <= 0xDF   ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  unsigned char const second = byte(1);
  bool const overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  bool const surrogate = first == 0xED && second > 0x9F;
  bool const too_large = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

}  // namespace detail

/// A JSON string (RFC 8259) with its quotes. Quotes, backslashes and control characters are
/// escaped; bytes that are no UTF-8 become U+FFFD.
inline std::string json_string(std::string_view text) {
  constexpr char const* digits = "0123456789abcdef";
  std::string result = "\"";
  while (!text.empty()) {
    std::size_t const length = detail::utf8_length(text);
    char const c = text[0];
    if (length == 0) {
      result += "\xEF\xBF\xBD";
    } else if (length > 1) {
      result += text.substr(0, length);
    } else if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (c == '\r') {
      result += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    } else {
      result += c;
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result + '"';
}

/// A JSON number; JSON has no infinities and no NaN: null.
inline std::string json_number(double value) {
  return std::isfinite(value) ? detail::number(value) : "null";
}

/// A CSV field (RFC 4180): in quotes, with inner quotes doubled, where it holds a comma, a quote, a
/// line break, or a space at an end.
inline std::string csv_field(std::string_view text) {
  bool const plain = text.find_first_of(",\"\r\n") == std::string_view::npos &&
                     (text.empty() || (text.front() != ' ' && text.back() != ' '));
  if (plain) return std::string(text);
  std::string result = "\"";
  for (char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

/// {"context": {…}, "measurements": [{…}, …]}. A rate, a memory peak or a speedup that is not known
/// is null, as are the times of a case that failed; `error` is null where it did not.
inline std::string to_json(std::vector<Measurement> const& measurements,
                           Context const& context = {}) {
  auto const optional = [](auto const& value) {
    return value ? json_number(static_cast<double>(*value)) : std::string("null");
  };
  std::string text = "{\n  \"context\": {";
  for (std::size_t i = 0; i < context.size(); ++i)
    text += std::string(i == 0 ? "\n" : ",\n") + "    " + json_string(context[i].first) + ": " +
            json_string(context[i].second);
  text += context.empty() ? "},\n" : "\n  },\n";
  text += "  \"measurements\": [";
  bool first = true;
  for (auto const& m : measurements) {
    auto const time = [&](double share) {
      return m.ok() ? json_number(m.quantile_seconds(share)) : std::string("null");
    };
    text += std::string(first ? "\n" : ",\n") + "    {\"problem\": " + json_string(m.what.problem) +
            ", \"name\": " + json_string(m.what.name) + ",\n     \"median_seconds\": " + time(0.5) +
            ", \"p20_seconds\": " + time(0.2) + ", \"p80_seconds\": " + time(0.8) +
            ",\n     \"tflops\": " + optional(m.tflops()) +
            ", \"gigabytes_per_second\": " + optional(m.gigabytes_per_second()) +
            ", \"peak_bytes\": " + optional(m.peak_bytes) +
            ", \"speedup\": " + optional(speedup(measurements, m)) +
            ",\n     \"error\": " + (m.error.empty() ? "null" : json_string(m.error)) +
            ",\n     \"seconds\": [";
    for (std::size_t i = 0; i < m.seconds.size(); ++i)
      text += (i == 0 ? "" : ", ") + json_number(m.seconds[i]);
    text += "]}";
    first = false;
  }
  return text + (measurements.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

/// A header line and one line for each measurement; an unknown number is an empty field. Lines end
/// with a line feed.
inline std::string to_csv(std::vector<Measurement> const& measurements) {
  auto const optional = [](auto const& value) {
    return value && std::isfinite(static_cast<double>(*value))
               ? detail::number(static_cast<double>(*value))
               : std::string();
  };
  std::string text =
      "problem,name,repetitions,median_seconds,p20_seconds,p80_seconds,tflops,"
      "gigabytes_per_second,peak_bytes,speedup,error\n";
  for (auto const& m : measurements) {
    text += csv_field(m.what.problem) + ',' + csv_field(m.what.name) + ',' +
            std::to_string(m.seconds.size());
    for (double share : {0.5, 0.2, 0.8})
      text += ',' + (m.ok() ? detail::number(m.quantile_seconds(share)) : std::string());
    text += ',' + optional(m.tflops()) + ',' + optional(m.gigabytes_per_second()) + ',' +
            optional(m.peak_bytes) + ',' + optional(speedup(measurements, m)) + ',' +
            csv_field(m.error) + '\n';
  }
  return text;
}

/// One line for each measurement under a header, columns aligned; the last column compares with the
/// first case of the same problem. A case that failed shows its error.
inline std::string to_table(std::vector<Measurement> const& measurements) {
  std::vector<std::vector<std::string>> rows{
      {"problem", "name", "median ms", "p20", "p80", "TFLOP/s", "GB/s", "peak MiB", "speedup"}};
  auto const optional = [](auto const& value, double factor, int digits) {
    return value ? detail::fixed(factor * static_cast<double>(*value), digits) : std::string("-");
  };
  auto const one_line = [](std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
    return text;
  };
  for (auto const& m : measurements) {
    std::vector<std::string> row{one_line(m.what.problem), one_line(m.what.name)};
    if (m.ok()) {
      for (double share : {0.5, 0.2, 0.8})
        row.push_back(detail::fixed(1e3 * m.quantile_seconds(share), 4));
      row.push_back(optional(m.tflops(), 1, 3));
      row.push_back(optional(m.gigabytes_per_second(), 1, 2));
      row.push_back(optional(m.peak_bytes, 0x1p-20, 2));
      auto const faster = speedup(measurements, m);
      row.push_back(faster ? "x" + detail::fixed(*faster, 2) : "-");
    } else {
      row.push_back("FAILED: " + one_line(m.error.empty() ? "no repetitions" : m.error));
    }
    rows.push_back(row);
  }
  // A column is as wide as its widest cell, in characters; an error may run over the numbers.
  auto const width = [](std::string const& cell) {
    return static_cast<std::size_t>(
        std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (auto const& row : rows)
    for (std::size_t i = 0; i < row.size() && row.size() == widths.size(); ++i)
      widths[i] = std::max(widths[i], width(row[i]));
  for (auto const& row : rows)
    for (std::size_t i = 0; i < 2; ++i) widths[i] = std::max(widths[i], width(row[i]));
  std::string text;
  for (auto const& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::string const gap(widths[i] - std::min(widths[i], width(row[i])), ' ');
      bool const left = i < 2 || row.size() != widths.size();  // names to the left, numbers right
      line += std::string(i == 0 ? "" : "  ") + (left ? row[i] + gap : gap + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace perf
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
