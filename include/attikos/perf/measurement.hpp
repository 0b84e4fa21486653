// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// One timed callable.
#pragma once

#include <attikos/perf/statistics.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace perf {

/// What is measured, and how much one call does.
struct Case {
  std::string problem = {};  ///< what is computed, e.g. "gemm m4096 n4096 k4096"; cases of one
                             ///< problem are compared with each other
  std::string name = {};     ///< who computes it, e.g. "portable"
  double flop = 0;           ///< floating-point operations of one call; 0 if that is no measure
  double bytes = 0;          ///< bytes one call has to move; 0 if that is no measure
};

/// Times of one case. Where the callable threw, `error` says what and there are no times.
struct Measurement {
  Case what;
  std::vector<double> seconds;             ///< of single calls, one for each repetition
  std::optional<std::int64_t> peak_bytes;  ///< see Runner; empty if it was not observed
  std::string error;

  bool ok() const { return error.empty() && !seconds.empty(); }
  double median_seconds() const { return median(seconds); }
  double quantile_seconds(double share) const { return quantile(seconds, share); }

  /// Rate at the median time; empty if the case does not say what a call does.
  std::optional<double> tflops() const { return rate(what.flop, 1e-12); }
  std::optional<double> gigabytes_per_second() const { return rate(what.bytes, 1e-9); }

 private:
  std::optional<double> rate(double amount, double unit) const {
    if (!ok() || !(amount > 0)) return {};
    return amount * unit / median_seconds();
  }
};

/// Median time of the first measurement of the same problem over this one's: above 1 where this one
/// is faster. Empty where one of them failed.
inline std::optional<double> speedup(std::vector<Measurement> const& all,
                                     Measurement const& measurement) {
  for (auto const& first : all) {
    if (first.what.problem != measurement.what.problem) continue;
    if (!first.ok() || !measurement.ok()) return {};
    return first.median_seconds() / measurement.median_seconds();
  }
  return {};
}

}  // namespace perf
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
