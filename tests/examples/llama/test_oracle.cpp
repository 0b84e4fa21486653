// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Central differences hold the oracle to be right about its gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracle_cases.hpp"
#include "support/finite_differences.hpp"

namespace block_oracle::test {
namespace {

// A few entries of every weight, those of the largest gradients among them.
std::vector<std::size_t> sample(Case const& c, std::vector<double> const& gradients) {
  std::vector<std::size_t> chosen;
  for (WeightShape const& shape : WeightMap(c.config).shapes) {
    auto const begin = gradients.begin() + static_cast<std::ptrdiff_t>(shape.offset);
    auto const end = begin + static_cast<std::ptrdiff_t>(shape.size());
    auto const largest =
        std::max_element(begin, end, [](double a, double b) { return std::abs(a) < std::abs(b); });
    chosen.push_back(static_cast<std::size_t>(largest - gradients.begin()));
    for (std::size_t i = 0; i < 5; ++i) chosen.push_back(shape.offset + i * 7919 % shape.size());
  }
  return chosen;
}

TEST(LlamaOracle, gradients_are_those_of_finite_differences) {
  for (Case const& c : cases()) {
    Oracle<double> const oracle(c.config, c.weights, c.tokens, c.batch);
    OracleGradients<double> const all(oracle, loss_gradient(oracle, c.targets), true);
    auto const chosen = sample(c, all.dweights);
    std::vector<double> values, gradients;
    for (std::size_t const i : chosen) {
      values.push_back(c.weights[i]);
      gradients.push_back(all.dweights[i]);
    }
    // What the float64 oracle's loss may be off by, in units of the roundoff.
    double const terms = loss_bound<double>(c) / 0x1p-53;
    attikos::test::expect_gradient(
        "block/" + c.name, values, gradients, terms, 1, [&](std::vector<double> const& changed) {
          auto weights = c.weights;
          for (std::size_t i = 0; i < chosen.size(); ++i)
            if (changed[i] != values[i]) weights[chosen[i]] = changed[i];
          return Oracle<double>(c.config, weights, c.tokens, c.batch).loss(c.targets);
        });
  }
}

}  // namespace
}  // namespace block_oracle::test
