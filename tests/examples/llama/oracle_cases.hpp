// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Models and texts to test the block with, and its comparison with the oracle.
#pragma once

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/oracle_gradients.hpp"
#include "oracle/parameters.hpp"

// The support headers say `testing` and mean GoogleTest, not the attikos::testing of the oracle.
namespace attikos::test {
namespace testing = ::testing;
}
#include "support/comparison.hpp"
#include "support/random.hpp"

namespace block_oracle::test {

struct Case {
  std::string name;
  Config config;
  std::size_t batch, seqlen;
  std::vector<double> weights;
  std::vector<std::int32_t> tokens, targets;  ///< each target is the token behind its own
};

inline Case make_case(std::string const& name, Config const& config, std::size_t batch,
                      std::size_t seqlen) {
  Case c{name, config, batch, seqlen, initial_weights(config, 7), {}, {}};
  attikos::test::Random random(batch * 100 + seqlen);
  WeightMap const map(config);
  for (Weight const norm : {Weight::attention_norm, Weight::mlp_norm, Weight::final_norm}) {
    for (std::size_t i = 0; i < config.hidden; ++i)  // exact in float
      c.weights[map[norm].offset + i] += static_cast<double>(random.integer(-64, 64)) / 128;
  }
  auto const last = static_cast<std::int64_t>(config.vocabulary) - 1;
  for (std::size_t i = 0; i < batch * seqlen; ++i) {
    c.tokens.push_back(static_cast<std::int32_t>(random.integer(0, last)));
  }
  c.targets.assign(c.tokens.begin() + 1, c.tokens.end());
  c.targets.push_back(0);
  return c;
}

/// Grouped, one key head for all, a key head for each; widths that fill no vector.
inline std::vector<Case> cases() {
  Config grouped, shared, own;
  shared.vocabulary = 11;
  shared.hidden = 12;
  shared.heads_q = 6;
  shared.heads_kv = 1;
  shared.head_dim = 6;
  shared.intermediate = 19;
  own.vocabulary = 5;
  own.hidden = 9;
  own.heads_q = own.heads_kv = 3;
  own.head_dim = 2;
  own.intermediate = 1;
  return {make_case("grouped", grouped, 2, 9), make_case("shared", shared, 3, 7),
          make_case("own", own, 1, 4), make_case("one token", grouped, 2, 1)};
}

/// Compares what was computed in T with values and bounds. Where T is double the oracle itself
/// may be off by as much.
template <class T>
void expect_near(std::string const& name, std::vector<double> const& got,
                 std::vector<Bounded<T>> const& want) {
  attikos::test::Comparison comparison(name + "/" + Kokkos::DefaultExecutionSpace::name(),
                                       "element of the flat tensor");
  ASSERT_EQ(got.size(), want.size());
  double const factor = attikos::testing::oracle_factor<attikos::testing::Accumulator<T>>();
  for (std::size_t i = 0; i < got.size(); ++i)
    comparison.add(got[i], want[i].value, factor * want[i].error, {static_cast<std::int64_t>(i)});
}

/// To first order, how far off a computation of the loss in T may be.
template <class T>
double loss_bound(Case const& c) {
  Oracle<double> const exact(c.config, c.weights, c.tokens, c.batch);
  Oracle<Bounded<T>> const local(c.config, c.weights, c.tokens, c.batch, Errors::local);
  double bound = first_order_bound(
      local, OracleGradients<double>(exact, loss_gradient(exact, c.targets), false));
  for (std::size_t row = 0; row < c.targets.size(); ++row)
    bound += local.log_p(row, static_cast<std::size_t>(c.targets[row])).error /
             static_cast<double>(c.targets.size());
  return bound;
}

}  // namespace block_oracle::test
