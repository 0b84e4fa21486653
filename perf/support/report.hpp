// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What is shown and written of a run.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <support/text.hpp>
#include <vector>

namespace attikos::measure {

/// A case's own name; Google Benchmark appends how it was run ("/iterations:7/manual_time").
inline std::string case_name(benchmark::BenchmarkName name) {
  name.iterations.clear();
  name.time_type.clear();
  return name.str();
}

/// Why a run failed; empty if it did not. Google Benchmark 1.8 renamed the members.
template <class Run>
std::string failure_of(Run const& run) {
  if constexpr (requires { run.skip_message; }) {
    return run.skip_message;
  } else {
    return run.error_occurred ? run.error_message : std::string();
  }
}

/// The JSON file, with the cases' own names.
class JsonReporter : public benchmark::JSONReporter {
 public:
  void ReportRuns(std::vector<Run> const& runs) override {
    std::vector<Run> named = runs;
    for (Run& run : named) {
      run.run_name.iterations.clear();
      run.run_name.time_type.clear();
    }
    benchmark::JSONReporter::ReportRuns(named);
  }
};

/// One line per case: median milliseconds, rate with its p20 and p80, and each peer's rate with the
/// ratio.
class TableReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(Context const&) override {
    std::printf("%-88s %10s %9s  %-17s %s\n", "case", "ms", "rate", "p20 - p80",
                "peers: rate, ours / peer");
    return true;
  }

  void ReportRuns(std::vector<Run> const& runs) override {
    for (Run const& run : runs) {
      std::string name = case_name(run.run_name);
      if (!run.aggregate_name.empty()) name = text(name, "_", run.aggregate_name);
      std::printf("%-88s ", name.c_str());
      if (std::string const failure = failure_of(run); !failure.empty()) {
        std::printf("FAILED: %s\n", failure.c_str());
        failed_ = true;
        continue;
      }
      print_counters(run);
      std::fflush(stdout);
    }
  }

  bool failed() const { return failed_; }

 private:
  static void print_counters(Run const& run) {
    auto const has = [&](std::string const& key) { return run.counters.contains(key); };
    auto const value = [&](std::string const& key) { return run.counters.at(key).value; };
    std::string const unit = has("GB/s") ? "GB/s" : "GFLOP/s";
    if (!has(unit)) {  // a case that measures something else than speed
      for (auto const& [key, counter] : run.counters)
        std::printf("%s %.6g  ", key.c_str(), counter.value);
      std::printf("\n");
      return;
    }
    std::printf("%10.3f %9.1f  %7.1f - %-7.1f %s", value("median_ms"), value(unit),
                value(text(unit, ":p20")), value(text(unit, ":p80")), unit.c_str());
    for (auto const& [key, counter] : run.counters) {
      auto const end = key.rfind(":ratio");
      if (end == std::string::npos) continue;
      std::string const peer = key.substr(0, end);
      std::printf(";  %s %.1f, x%.2f", peer.c_str(), value(text(peer, ":", unit)), counter.value);
    }
    std::printf("\n");
  }

  bool failed_ = false;
};

}  // namespace attikos::measure
