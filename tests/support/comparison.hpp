// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares results with an oracle element by element and keeps the worst ratio of error to bound.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace attikos::test {

/// Whether a row is compared with the oracle: every row, but where a build looks for something
/// other than wrong numbers (ATTIKOS_TEST_CASES=few), which runs the kernels on all of them and
/// compares some.
inline bool is_compared([[maybe_unused]] std::int64_t row) {
#if defined(ATTIKOS_TEST_FEW_CASES)
  return row % 13 == 0;
#else
  return true;
#endif
}

/// The worst ratio seen under each name in this process; main prints it.
inline std::map<std::string, double>& worst_ratios() {
  static std::map<std::string, double> ratios;
  return ratios;
}

/// Collects elements; fails in its destructor, once, with the worst element, its index and ratio.
class Comparison {
 public:
  /// \param name under which the worst ratio is kept, e.g. "gemm/float16/Serial"
  /// \param what the problem, for the message
  Comparison(std::string name, std::string what) : name_(std::move(name)), what_(std::move(what)) {}
  Comparison(Comparison const&) = delete;
  Comparison& operator=(Comparison const&) = delete;

  void add(double got, double want, double bound, std::initializer_list<std::int64_t> index) {
    ++count_;
    double const ratio = ratio_of(got, want, bound);
    if (ratio <= worst_) return;
    worst_ = ratio;
    got_ = got;
    want_ = want;
    bound_ = bound;
    index_ = index;
  }

  ~Comparison() {
    double& kept = worst_ratios()[name_];
    kept = std::max(kept, worst_);
    std::ostringstream number;
    number << kept;
    testing::Test::RecordProperty("worst_ratio", number.str());
    if (worst_ <= 1) return;
    std::ostringstream text;
    text.precision(17);
    text << name_ << ": " << what_ << "\n  worst of " << count_ << " elements at [";
    for (std::size_t i = 0; i < index_.size(); ++i) text << (i ? ", " : "") << index_[i];
    text << "]: got " << got_ << ", want " << want_ << ", error " << std::abs(got_ - want_)
         << ", bound " << bound_ << ", error/bound " << worst_;
    ADD_FAILURE() << text.str();
  }

 private:
  static double ratio_of(double got, double want, double bound) {
    double const infinity = std::numeric_limits<double>::infinity();
    if (std::isnan(want)) return std::isnan(got) ? 0 : infinity;
    if (got == want) return 0;
    double const ratio = std::abs(got - want) / bound;
    // NaN anywhere (a NaN result, a NaN bound, an infinite want that was missed) is a failure.
    return std::isnan(ratio) || std::isinf(want) ? infinity : ratio;
  }

  std::string name_;
  std::string what_;
  std::int64_t count_ = 0;
  double worst_ = 0;
  double got_ = 0;
  double want_ = 0;
  double bound_ = 0;
  std::vector<std::int64_t> index_;
};

}  // namespace attikos::test
