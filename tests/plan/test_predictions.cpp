// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is predicted: formula and simulation, the anchors' figures, what more of everything brings.
#include <gtest/gtest.h>

#include "plan/schedules.hpp"

namespace attikos::test {
namespace {

using plan::ContextSchedule;
using plan::Prediction;

constexpr Layout of_attention[] = {Layout::ring, Layout::all_gather, Layout::all_to_all,
                                   Layout::two_level};

TEST(Formula, IsWhatTheSimulationGives) {
  // Nodes of 4 with cards enough, of 4 that share a card and a port, and every link far too slow.
  Machine plenty = h200x4(), shared = h200x4(), slow = h200x4();
  shared.cards = 1;
  slow.inside.bandwidth = slow.outside.bandwidth = 1e8;
  for (Machine machine : {plenty, shared, slow})
    for (double const staging : {0.0, 50e9}) {
      machine.staging_bandwidth = staging;
      for (Layout const layout : of_attention)
        for (bool const causal : {false, true})
          for (int const ranks : {1, 2, 4, 8, 16})
            for (std::int64_t const rows : {64, 4096, 65536}) {
              Model const model = anchor_model(rows * ranks, causal);
              // Blocks that take about as long as products; all_to_all between nodes.
              if (!ContextSchedule::why_not(layout, model, machine, ranks).empty()) continue;
              if (layout == Layout::all_to_all && ranks > 4) continue;  // messages meet on cards
              double const simulated =
                  simulate_steps(ContextSchedule(layout, model, machine, ranks), machine).seconds;
              double const formula = formula_seconds(layout, model, machine, ranks);
              EXPECT_LE(std::abs(formula - simulated), 0.02 * simulated)
                  << layout_name(layout) << " causal " << causal << " ranks " << ranks << " rows "
                  << rows << " staging " << staging << ' ' << machine.cards;
            }
    }
}

TEST(Formula, IsExactWhereRanksShareEvenly) {
  Machine machine = h200x4();
  for (Layout const layout : of_attention)
    for (bool const causal : {false, true})
      for (int const ranks : {1, 2, 3, 4, 8, 16, 512}) {
        Model const model = anchor_model(std::int64_t{65536} * ranks, causal);
        if (!ContextSchedule::why_not(layout, model, machine, ranks).empty() ||
            (layout == Layout::all_to_all && (ranks > 4 || 16 % ranks != 0)))
          continue;
        expect_close(simulate(ContextSchedule(layout, model, machine, ranks), machine).seconds,
                     formula_seconds(layout, model, machine, ranks), 1e-9);
      }
}

TEST(Anchors, MachineFileHasTheirFigures) {
  Machine const m = h200x4();
  constexpr double mib = 1 << 20;
  auto const seconds = [&](double bytes) { return m.inside.latency + bytes / m.inside.bandwidth; };
  EXPECT_NEAR(seconds(16 * mib), 127e-6, 0.5e-6);
  EXPECT_NEAR(seconds(256 * mib), 889e-6, 1e-6);
  EXPECT_NEAR(256 * mib / seconds(256 * mib), 302e9, 0.5e9);
  // One GPU, causal, 32k positions: 672 TFLOP/s.
  double const operations = anchor_model(32768).operations_per_pair() * 32768.0 * 32768 / 2;
  EXPECT_NEAR(operations / seconds_on_one(anchor_model(32768), m), 672e12, 1e12);
  // Rows of 512 and 4096 keys, and 512 under a mask: 504, 651 and 321 TFLOP/s.
  EXPECT_NEAR(m.attention / (1 + m.row_keys / 512), 504e12, 0.03 * 504e12);
  EXPECT_NEAR(m.attention / (1 + m.row_keys / 4096), 651e12, 0.01 * 651e12);
  EXPECT_NEAR(m.attention / (1 + (m.row_keys + m.masked_keys) / 256), 321e12, 0.01 * 321e12);
}

double efficiency(Machine const& machine, std::int64_t length) {
  return predict(Layout::ring, anchor_model(length), machine, 4).efficiency();
}

TEST(Anchors, FourCardsReachTheGoalsOnceKernelsContinueStates) {
  Machine m = h200x4();
  // As calls are made today, what the rings lack is the joining of states; transfers are hidden.
  EXPECT_EQ(predict(Layout::ring, anchor_model(32768), m, 4).exposed, 0);
  double const long_today = efficiency(m, 131072), short_today = efficiency(m, 32768);
  EXPECT_GT(long_today, 525.0 / 574);   // PyTorch's ratio
  EXPECT_GT(short_today, 354.0 / 672);  // PyTorch's ratio
  m.continues_states = true;
  EXPECT_GE(efficiency(m, 131072), 0.98);
  EXPECT_GE(efficiency(m, 32768), 0.88);
  EXPECT_GT(efficiency(m, 131072), long_today);
  // With the rate that one card held at 128k positions transfers weigh less.
  m.attention *= 574e12 / 681e12;
  EXPECT_GE(efficiency(m, 131072), 0.98);
}

TEST(Anchors, RingOf1024HidesItsTransfers) {
  constexpr std::int64_t rows = 131072;
  for (bool const causal : {false, true}) {
    Model const model = anchor_model(1024 * rows, causal);
    Machine m = h200x4();
    Prediction const nodes = predict(Layout::ring, model, m, 1024);
    EXPECT_LE(nodes.exposed, 0.02 * nodes.seconds);
    m.ranks_per_node = 1024;  // the anchors' link everywhere
    Prediction const links = predict(Layout::ring, model, m, 1024);
    EXPECT_LE(links.exposed, 0.02 * links.seconds);
    EXPECT_GE(links.efficiency(), 0.98);
  }
}

TEST(Predictions, MoreIsNotSlower) {
  Model const model = anchor_model(16384);
  for (Layout const layout : {Layout::ring, Layout::all_gather, Layout::all_to_all,
                              Layout::two_level, Layout::tensor_parallel}) {
    Machine const base = h200x4();
    // Step by step: a sum of maxima. With events a faster link can make messages of tensor_parallel
    // meet on a card that had passed it one after the other.
    auto const taken = [&](Machine const& m) {
      if (is_attention(layout))
        return simulate_steps(ContextSchedule(layout, model, m, 8), m).seconds;
      return simulate_steps(plan::ProductSchedule(layout, model, m, 8), m).seconds;
    };
    double const seconds = taken(base);
    ASSERT_GT(seconds, 0);
    auto const changed = [&](auto const& change) {
      Machine m = base;
      change(m);
      return taken(m);
    };
    constexpr double rounding = 1 + 1e-12;
    EXPECT_LE(changed([](Machine& m) { m.inside.bandwidth *= 2; }), seconds * rounding);
    EXPECT_LE(changed([](Machine& m) { m.outside.bandwidth *= 2; }), seconds * rounding);
    EXPECT_GE(changed([](Machine& m) { m.outside.bandwidth /= 64; }), seconds);
    EXPECT_GE(changed([](Machine& m) { m.inside.latency *= 100; }), seconds);
    EXPECT_LT(changed([](Machine& m) { m.attention *= 2, m.gemm *= 2; }), seconds);
    EXPECT_LT(changed([](Machine& m) { m.memory_bandwidth *= 2; }), seconds);
    EXPECT_GT(changed([](Machine& m) { m.launch *= 4; }), seconds);
    EXPECT_GE(changed([](Machine& m) { m.cards = 1; }), seconds / rounding);
    Prediction const p = predict(layout, model, base, 8);
    Model longer = model;
    longer.length *= 2;
    EXPECT_GT(predict(layout, longer, base, 8).seconds, p.seconds);
    longer = model;
    longer.layers = 3;
    expect_close(predict(layout, longer, base, 8).seconds, 3 * p.seconds, 1e-12);
    // No layout is faster than its work.
    EXPECT_LE(p.efficiency(), 1);
    EXPECT_GE(p.seconds, p.work * (1 - 1e-12));
    EXPECT_NEAR(p.exposed, p.seconds - p.work, 1e-12);
  }
}

TEST(Predictions, ChooseWhatIsDoneFirstAndFits) {
  Machine m = h200x4();
  auto const plan = plan_ranks(anchor_model(131072), m, 4);
  ASSERT_GE(plan.attention, 0);
  EXPECT_EQ(plan.predictions[static_cast<std::size_t>(plan.attention)].layout, Layout::ring);
  EXPECT_EQ(plan.predictions[static_cast<std::size_t>(plan.products)].layout, Layout::local);
  double const least = plan.predictions[static_cast<std::size_t>(plan.attention)].seconds;
  for (Prediction const& p : plan.predictions) {
    if (p.possible() && is_attention(p.layout)) {
      EXPECT_GE(p.seconds, least);
    }
  }
  // Weights that do not fit whole are spread; and memory for nothing leaves no choice.
  Model large = anchor_model(131072);
  large.layers = 1200;
  EXPECT_EQ(plan_ranks(large, m, 8).predictions[4].layout, Layout::tensor_parallel);
  EXPECT_EQ(plan_ranks(large, m, 8).products, 4);
  m.memory = 1;
  EXPECT_EQ(plan_ranks(anchor_model(131072), m, 4).attention, -1);
}

TEST(Predictions, RefuseModelsThatCannotBe) {
  Machine const m = h200x4();
  Model model = anchor_model(4096);
  model.kv_heads = 3;
  EXPECT_THROW(predict(Layout::ring, model, m, 2), ShapeError);
  model = anchor_model(0);
  EXPECT_THROW(predict(Layout::ring, model, m, 2), ShapeError);
  model = anchor_model(4096);
  model.type = DType::int8;
  EXPECT_THROW(predict(Layout::ring, model, m, 2), DtypeError);
  plan::Disturbances d;
  d.links = {{true, 0, 1, 0}};
  model = anchor_model(4096);
  EXPECT_EQ(predict(Layout::ring, model, m, 8, d).why_not.substr(0, 24),
            "no way from rank 3 to ra");
}

}  // namespace
}  // namespace attikos::test
