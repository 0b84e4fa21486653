// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares results with an oracle element by element, and in norms where they are stored in few
// bits; keeps the worst ratio of error to bound.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "error_norms.hpp"
#include "ratchet.hpp"

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

/// How a result is stored: with one rounding to a type of `roundoff`, subnormal ones `smallest`
/// apart. Norms are taken where that is coarse beside all other errors; 0: they are not.
struct Stored {
  double roundoff = 0, smallest = 0;
};

/// Collects elements; fails in its destructor, once, with the worst element, its index and ratio,
/// or with the norms (error_norms.hpp) of elements that are good one by one.
class Comparison {
 public:
  /// \param name under which the worst ratio is kept, e.g. "gemm/float16/Serial"
  /// \param what the problem, for the message
  /// \param stored stored_as<T>() of tolerance.hpp
  Comparison(std::string name, std::string what, Stored stored = {})
      : name_(std::move(name)), what_(std::move(what)), stored_(stored) {}
  Comparison(Comparison const&) = delete;
  Comparison& operator=(Comparison const&) = delete;

  void add(double got, double want, double bound, std::initializer_list<std::int64_t> index) {
    ++count_;
    if (stored_.roundoff != 0)
      add_to_norms(got, want, stored_parts(want, bound, stored_.roundoff, stored_.smallest), index);
    judge(got, want, bound, index);
  }
  /// One whose error is known in parts.
  void add(double got, double want, double bound, ErrorParts const& parts,
           std::initializer_list<std::int64_t> index) {
    ++count_;
    has_parts_ = true;
    add_to_norms(got, want, parts, index);
    judge(got, want, bound, index);
  }

  ~Comparison() {
    keep_worst_ratio(name_, worst_);
    if (stored_.roundoff != 0 || has_parts_) {
      keep_worst_ratio(name_ + "/norms", norms_.worst());
      if (worst_ <= 1 && !(norms_.worst() <= 1))
        ADD_FAILURE() << name_ << ": " << what_ << "\n  every one of " << count_
                      << " elements is within its bound, but not all of them: error/bound of norm "
                      << norms_.norm_ratio() << ", mean " << norms_.mean_ratio() << ", gain "
                      << norms_.gain_ratio() << ", worst of a row " << norms_.worst_row();
    }
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

  void judge(double got, double want, double bound, std::initializer_list<std::int64_t> index) {
    double const ratio = ratio_of(got, want, bound);
    if (ratio <= worst_) return;
    worst_ = ratio;
    got_ = got;
    want_ = want;
    bound_ = bound;
    index_ = index;
  }

  /// Rows are what has all indices but the last in common.
  void add_to_norms(double got, double want, ErrorParts const& parts,
                    std::initializer_list<std::int64_t> index) {
    auto const last = index.end() - (index.size() > 0 ? 1 : 0);
    if (!std::equal(index.begin(), last, row_.begin(), row_.end())) {
      norms_.end_row();
      row_.assign(index.begin(), last);
    }
    norms_.add(got - want, want, parts);
  }

  std::string name_;
  std::string what_;
  Stored stored_;
  bool has_parts_ = false;
  ErrorNorms norms_;
  std::vector<std::int64_t> row_;
  std::int64_t count_ = 0;
  double worst_ = 0;
  double got_ = 0;
  double want_ = 0;
  double bound_ = 0;
  std::vector<std::int64_t> index_;
};

}  // namespace attikos::test
