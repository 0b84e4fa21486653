// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where the time goes.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string_view>
#include <vector>

namespace sentence_search {

class OperationTimes {
 public:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// Adds one call. `name` must outlive the table; `flops` are floating-point operations, 0 where
  /// they say nothing.
  void add(std::string_view name, double seconds, double flops = 0);

  /// One row an operation; what `total_seconds` holds beyond them is shown as "other".
  void print(std::ostream& out, double total_seconds) const;

 private:
  struct Row {
    std::string_view name;
    double seconds = 0;
    double flops = 0;
    long calls = 0;
  };
  std::vector<Row> rows_;
};

}  // namespace sentence_search
