// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-distributed.md shows of strategies;
// a test runs it. No MPI is needed.
#include <attikos/distributed/context_cost.hpp>

#include "common.hpp"

void strategies() {
  // [strategies]
  // Which strategy attention over 8 ranks takes, and why,
  // without MPI: 32 heads that share 8 key heads, float.
  using namespace attikos::distributed;
  ContextExtents const extents{.heads_q = 32,
                               .heads_kv = 8,
                               .head_dim = 128,
                               .head_dim_v = 128};
  MachineModel const machine{.latency = 2e-6,
                             .bandwidth = 25e9,
                             .operations = 5e12};
  Shards const shards = Shards::zigzag(65536, 8);
  ContextPlan const chosen = plan_context(
      extents, shards, shards, {.causal = true}, machine);
  std::printf("%s\n", chosen.text().c_str());
  for (StrategyCost const& cost : chosen.costs)
    if (cost.strategy == chosen.strategy)
      std::printf("%s hides all but %g s\n",
                  strategy_name(cost.strategy),
                  cost.exposed);
  // [strategies]
  for (StrategyCost const& cost : chosen.costs)
    if (cost.possible)
      for (StrategyCost const& other : chosen.costs)
        if (other.strategy == chosen.strategy)
          expect(other.seconds() <= cost.seconds(),
                 "the fastest is chosen");

  // [balance]
  // How evenly a mask's work is dealt out: about how
  // many pairs each rank's queries see.
  Visible const causal{.left = -1, .right = 0};
  Shards const all = shards.whole();
  for (int rank = 0; rank < shards.ranks(); ++rank) {
    double const pairs = visible_pairs(
        shards.pieces(rank), all.pieces(0), causal,
        shards, all,
        attikos::CausalAlignment::bottom_right);
    expect_near(pairs, 65536.0 * 65537 / 2 / 8, 1e-3,
                "an eighth of all pairs");
  }
  // [balance]
}

int main() {
  strategies();
  std::printf("all parts ran\n");
}
