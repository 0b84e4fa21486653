// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The comparer itself: faults that every element's bound lets through fail by the norms, and what
// is right passes.
#include <gtest/gtest.h>

#include <attikos/reference/attention_reference.hpp>
#include <cmath>
#include <map>
#include <vector>

#include "../../support/error_norms.hpp"
#include "../../support/random.hpp"
#include "../../support/tensors.hpp"
#include "../../support/tolerance_attention.hpp"

namespace attikos::test {
namespace {

/// What a kernel is off by: elements over their bound, and norms over theirs.
struct Verdict {
  double element = 0, norms = 0;
};

/// 32 queries of one head of attention in bfloat16, of which a kernel rounds weights to bfloat16
/// before the product with values, as tensor cores do, or does not. Every other feature of values
/// has a mean.
class Problem {
 public:
  explicit Problem(std::int64_t keys) : keys_(keys) {
    Random random(static_cast<std::uint64_t>(keys));
    auto const draw = [&](std::int64_t n, bool means) {
      std::vector<double> all;
      for (std::int64_t i = 0; i < n; ++i)
        all.push_back(rounded(random.uniform(-1, 1) + (means ? mean_of_feature(i) : 0)));
      return all;
    };
    auto const q = draw(rows * head_dim, false), k = draw(keys * head_dim, false);
    v_ = draw(keys * features, true);
    for (std::int64_t i = 0; i < rows; ++i)
      wanted_.push_back(reference::attention_row(
          keys, head_dim, features, 0.5, [&](auto c) { return q[sz(i * head_dim + c)]; },
          [&](auto j, auto c) { return k[sz(j * head_dim + c)]; },
          [&](auto j, auto c) { return v_[sz(j * features + c)]; }));
  }
  static Problem const& of(std::int64_t keys) {
    static std::map<std::int64_t, Problem> problems;
    return problems.try_emplace(keys, keys).first->second;
  }

  /// A kernel that stores fault(i, y) for y of row i, which has seen all keys but the last
  /// `omitted(i)`.
  template <class Fault, class Omitted>
  Verdict judge(bool rounded_weights, Fault const& fault, Omitted const& omitted) const {
    Verdict verdict;
    ErrorNorms norms;
    for (std::int64_t i = 0; i < rows; ++i) {
      auto const& want = wanted_[sz(i)];
      auto const p = kernel_weights(want.probability, keys_ - omitted(i), rounded_weights);
      AttentionBound<bfloat16> const bound(want, head_dim, rounded_weights),
          unrounded(want, head_dim);
      for (std::int64_t c = 0; c < features; ++c) {
        double y = 0;
        for (std::size_t j = 0; j < p.size(); ++j) y += p[j] * v_[j * sz(features) + sz(c)];
        y = rounded(fault(i, y));
        auto const column = [&](std::int64_t j) { return v_[sz(j * features + c)]; };
        double const error = y - want.out[sz(c)];
        verdict.element = std::max(verdict.element, std::abs(error) / bound.out(sz(c), column));
        norms.add(error, want.out[sz(c)],
                  attention_parts(want, unrounded, sz(c), column, rounded_weights));
      }
      norms.end_row();
    }
    verdict.norms = norms.worst();
    return verdict;
  }
  template <class Fault>
  Verdict judge(bool rounded_weights, Fault const& fault) const {
    return judge(rounded_weights, fault, [](std::int64_t) { return 0; });
  }

 private:
  static constexpr std::int64_t rows = 32, features = 32, head_dim = 8;

  static double rounded(double x) { return to_double(from_double<bfloat16>(x)); }
  /// Divided by the exact sum of those that are seen, as kernels do.
  static std::vector<double> kernel_weights(std::vector<double> p, std::int64_t seen, bool round) {
    p.resize(sz(seen));
    double sum = 0, largest = 0;
    for (double x : p) sum += x, largest = std::max(largest, x);
    for (double& x : p) x = (round ? rounded(x / largest) * largest : x) / sum;
    return p;
  }

  std::int64_t keys_;
  std::vector<double> v_;
  std::vector<reference::AttentionRow> wanted_;
};

double nothing(std::int64_t, double y) { return y; }

TEST(ErrorNorms, PassWhatIsRight) {
  for (std::int64_t keys : {1, 2, 64, 1024, 4096})
    for (bool rounded : {false, true}) {
      auto const good = Problem::of(keys).judge(rounded, nothing);
      EXPECT_LE(good.element, 1) << keys << " rounded " << rounded;
      EXPECT_LE(good.norms, 1) << keys << " rounded " << rounded;
    }
}

TEST(ErrorNorms, FailAScaleThatIsOnePercentOff) {
  for (std::int64_t keys : {64, 1024, 4096})
    for (bool rounded : {false, true})
      for (double factor : {0.99, 1.01}) {
        auto const bad =
            Problem::of(keys).judge(rounded, [&](auto, double y) { return factor * y; });
        EXPECT_GT(bad.norms, 1) << keys << " rounded " << rounded << " by " << factor;
      }
}

// The bounds of elements hardly see it where weights are rounded.
TEST(ErrorNorms, FailOneOmittedKey) {
  for (std::int64_t keys : {1024, 4096}) {
    auto const one = [](std::int64_t) { return 1; };
    EXPECT_GT(Problem::of(keys).judge(false, nothing, one).norms, 1) << keys;
    auto const bad = Problem::of(keys).judge(true, nothing, one);
    EXPECT_GT(bad.norms, 1) << keys;
    EXPECT_LE(bad.element, keys < 4096 ? 2 : 1) << keys;
  }
}

TEST(ErrorNorms, FailOneWrongRow) {
  for (std::int64_t keys : {1024, 4096})
    for (bool rounded : {false, true}) {
      auto const scaled = Problem::of(keys).judge(
          rounded, [](std::int64_t i, double y) { return i == 17 ? 1.01 * y : y; });
      EXPECT_GT(scaled.norms, 1) << keys << " rounded " << rounded;
      auto const cut = Problem::of(keys).judge(
          rounded, nothing, [&](std::int64_t i) { return i == 17 ? keys / 256 : 0; });
      EXPECT_GT(cut.norms, 1) << keys << " rounded " << rounded;
    }
}

TEST(ErrorNorms, FailAShift) {
  for (bool rounded : {false, true}) {
    auto const bad =
        Problem::of(1024).judge(rounded, [](std::int64_t, double y) { return y + 0x1p-11; });
    EXPECT_GT(bad.norms, 1) << "rounded " << rounded;
  }
}

// Results that are cut off where they should be rounded: half of their bound, all of one sign.
TEST(ErrorNorms, FailTruncation) {
  Random random(5);
  ErrorNorms norms;
  for (int i = 0; i < 200; ++i) {
    double const want = random.uniform(1, 2), got = std::floor(want * 0x1p7) * 0x1p-7;
    norms.add((got - want) / 2, want, stored_parts(want, 0x1p-8 * want, 0x1p-8, 0));
  }
  EXPECT_LE(norms.norm_ratio(), 1);
  EXPECT_GT(norms.mean_ratio(), 1);
}

}  // namespace
}  // namespace attikos::test
