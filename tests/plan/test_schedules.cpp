// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Schedules of layouts: their work is the mask's, their messages fit together, their time is what
// the loop of the real call takes, their memory what it allocates.
#include <gtest/gtest.h>

#include <map>

#include "plan/schedules.hpp"
#include "support/random.hpp"

namespace attikos::test {
namespace {

using distributed::Piece;
using distributed::Product;
using distributed::Shards;
using plan::ContextSchedule;
using plan::Step;

constexpr Layout of_attention[] = {Layout::ring, Layout::all_gather, Layout::all_to_all,
                                   Layout::two_level};

TEST(BlockWork, CountsThePairsOfAProduct) {
  Random random(2);
  for (int round = 0; round < 5000; ++round) {
    Product p{0, random.integer(1, 12), 0, random.integer(1, 12), {}};
    // As product_of() makes them: each row sees something.
    if (random.integer(0, 1) == 1) p.window.right = random.integer(0, 14);
    if (random.integer(0, 1) == 1)
      p.window.left = std::max<std::int64_t>(p.q_rows - p.kv_rows, random.integer(0, 14));
    std::int64_t want = 0;
    for (std::int64_t i = 0; i < p.q_rows; ++i)
      for (std::int64_t j = 0; j < p.kv_rows; ++j)
        want += (p.window.left < 0 || j >= i - p.window.left) &&
                (p.window.right < 0 || j <= i + p.window.right);
    ASSERT_EQ(plan::pairs_of(p), want)
        << p.q_rows << ' ' << p.kv_rows << ' ' << p.window.left << ' ' << p.window.right;
  }
}

TEST(ContextSchedule, ComputesWhatTheMaskShows) {
  Machine machine = h200x4();
  machine.ranks_per_node = 2;
  for (Layout const layout : of_attention)
    for (bool const causal : {false, true})
      for (int const ranks : {1, 2, 3, 4, 6, 8})
        for (std::int64_t const length : {1, 5, 64, 96, 1001}) {
          Model const model = anchor_model(length, causal);
          if (!ContextSchedule::why_not(layout, model, machine, ranks).empty()) continue;
          EXPECT_EQ(ContextSchedule(layout, model, machine, ranks).pairs(),
                    causal ? length * (length + 1) / 2 : length * length)
              << layout_name(layout) << ' ' << ranks << ' ' << length;
        }
}

TEST(ContextSchedule, MessagesFitTogether) {
  Machine machine = h200x4();
  machine.ranks_per_node = 2;
  for (Layout const layout : of_attention)
    for (int const ranks : {1, 2, 4, 6}) {
      Model const model = anchor_model(1001);
      if (!ContextSchedule::why_not(layout, model, machine, ranks).empty()) continue;
      ContextSchedule const schedule(layout, model, machine, ranks);
      double bytes = 0;
      Step step;
      for (std::int64_t s = 0; s < schedule.steps(); ++s) {
        schedule.fill(s, step);
        for (auto const& t : step.transfers) {
          std::map<int, int> got;
          for (int r = 0; r < ranks; ++r) {
            int const to = t.to[static_cast<std::size_t>(r)];
            ASSERT_TRUE(to >= 0 && to < ranks && to != r);
            EXPECT_EQ(++got[to], 1) << "two messages for one receive";
            bytes += t.bytes[static_cast<std::size_t>(r)];
          }
        }
      }
      // Every rank gets the keys and values of all others, or its heads of everything.
      double const pairs = 1001.0 * 16 * 2 * 128 * 2, lse = 1001.0 * 16 * 4;
      double const n = ranks;
      if (layout == Layout::ring || layout == Layout::all_gather)
        EXPECT_DOUBLE_EQ(bytes, pairs * (n - 1));
      else if (layout == Layout::all_to_all)
        EXPECT_NEAR(bytes, (2 * pairs + lse) * (n - 1) / n, 2e-3 * pairs);
      else  // half the heads of what the other rank has, then blocks between nodes
        EXPECT_NEAR(bytes, (2 * pairs + lse) / 2 + pairs * (n / 2 - 1), 2e-3 * pairs);
    }
}

// 5 heads are dealt out as 2 and 3, 7 positions as 3 and 4.
TEST(ContextSchedule, HeadsGoToTheirRanksAndRowsBack) {
  Model model = anchor_model(7);
  model.heads = model.kv_heads = 5;
  ContextSchedule const schedule(Layout::all_to_all, model, h200x4(), 2);
  double const row = 128 * 2;
  Step step;
  schedule.fill(1, step);  // queries, after the step that packs
  EXPECT_EQ(step.transfers.at(0).to, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(step.transfers[0].bytes, (std::vector<double>{3 * 3 * row, 2 * 4 * row}));
  // Three exchanges of three steps, products, their end, and one that packs.
  schedule.fill(9 + 2 + 1, step);
  EXPECT_EQ(step.transfers.at(0).bytes, (std::vector<double>{2 * 4 * row, 3 * 3 * row}));
  EXPECT_EQ(schedule.steps(), 9 + 2 + 6);
}

TEST(ContextSchedule, SaysWhyItCannotBe) {
  Machine const machine = h200x4();
  Model const model = anchor_model(4096);
  EXPECT_EQ(ContextSchedule::why_not(Layout::all_to_all, model, machine, 17),
            "there are fewer query heads (16) than ranks (17) to deal them out to");
  EXPECT_EQ(ContextSchedule::why_not(Layout::two_level, model, machine, 6),
            "the last node is not full");
  EXPECT_EQ(ContextSchedule::why_not(Layout::two_level, model, machine, 4),
            "they are on one node, where it is all_to_all");
  EXPECT_THROW(ContextSchedule(Layout::all_to_all, model, machine, 17), UnsupportedError);
  EXPECT_THROW(ContextSchedule(Layout::local, model, machine, 2), UnsupportedError);
  EXPECT_THROW(ContextSchedule(Layout::ring, model, machine, 0), UnsupportedError);
}

TEST(ContextSchedule, WorkOfEvenShardsIsThatOfEachBlock) {
  Machine machine = h200x4();
  for (bool const causal : {false, true})
    for (int const ranks : {2, 3, 4, 8, 9}) {
      std::int64_t const length = 2 * ranks * 24;
      ContextSchedule const ring(Layout::ring, anchor_model(length, causal), machine, ranks);
      Shards const shards =
          causal ? Shards::zigzag(length, ranks) : Shards::contiguous(length, ranks);
      Step step;
      for (int s = 0; s < ranks; ++s) {
        ring.fill(1 + s, step);  // after the one that packs
        for (int r = 0; r < ranks; ++r) {
          auto const work =
              block_work(shards.pieces(r), shards.pieces(distributed::ring_step(r, ranks, s).block),
                         anchor_model(length, causal), s > 0);
          EXPECT_EQ(step.work[static_cast<std::size_t>(r)],
                    seconds_of(work, anchor_model(length, causal), machine, 16));
        }
      }
    }
}

// The loop of ContextCall::run_ring() with messages that take virtual time: 1024 ranks in one
// process, over the same ring_step(), Shards and product_of(), with pairs counted row by row.
TEST(ContextSchedule, RingTakesWhatTheRealLoopTakes) {
  struct Case {
    int ranks;
    std::int64_t length;
    double bandwidth;
  };
  for (Case const& c : {Case{3, 100, 1e7}, Case{4, 64, 1e9}, Case{7, 1000, 1e8},
                        Case{1024, 8192, 1e9}, Case{1024, 5000, 1e10}}) {
    Machine machine;
    machine.inside = {2e-6, c.bandwidth};
    machine.ranks_per_node = c.ranks;
    machine.attention = 1e12;
    machine.launch = 1e-6;
    machine.row_keys = 3;
    machine.masked_keys = 5;
    machine.memory_bandwidth = 1e11;
    Model model = anchor_model(c.length);
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 16;
    int const n = c.ranks;
    Shards const shards = Shards::zigzag(c.length, n);
    double const per_pair = 4.0 * 16 * 4, state = 4 * 17 * 4;  // operations; bytes of a row
    double const pair = 2 * 2 * 16 * 2;                        // bytes of a row of keys and values
    std::vector<double> now(static_cast<std::size_t>(n)), next(now);
    std::vector<std::vector<bool>> begun(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r) {
      auto const i = static_cast<std::size_t>(r);
      begun[i].resize(shards.pieces(r).size());
      now[i] = 2 * pair * static_cast<double>(shards.rows(r)) / 1e11 + 2e-6;  // pack_pairs()
    }
    for (int step = 0; step < n; ++step) {
      for (int r = 0; r < n; ++r) {
        auto const i = static_cast<std::size_t>(r);
        auto const s = distributed::ring_step(r, n, step);
        double done = now[i];
        for (std::size_t q = 0; q < begun[i].size(); ++q)
          for (Piece const& kv : shards.pieces(s.block)) {
            auto const p =
                distributed::product_of(shards.pieces(r)[q], kv, {-1, 0}, 0, c.length, c.length);
            if (!p) continue;
            double pairs = 0;
            for (std::int64_t row = 0; row < p->q_rows; ++row)
              pairs += static_cast<double>(p->window.right < 0
                                               ? p->kv_rows
                                               : std::min(p->kv_rows, row + p->window.right + 1));
            auto const rows = static_cast<double>(p->q_rows);
            double const extra = p->window.right < 0 ? 3 : 3 + 5;
            done += 1e-6 + (pairs + extra * rows) * per_pair / 1e12;
            if (begun[i][q]) done += 1e-6 + 3 * rows * state / 1e11;
            begun[i][q] = true;
          }
        if (s.transfers) {
          auto const from = static_cast<std::size_t>(s.from), to = static_cast<std::size_t>(s.to);
          auto const bytes = [&](int block) {
            return pair * static_cast<double>(shards.rows(block)) / c.bandwidth;
          };
          done = std::max({done, std::max(now[i], now[to]) + 2e-6 + bytes(s.block),
                           std::max(now[i], now[from]) + 2e-6 +
                               bytes(distributed::ring_step(s.from, n, step).block)});
        }
        next[i] = done;
      }
      std::swap(now, next);
    }
    double seconds = 0;
    for (int r = 0; r < n; ++r) {
      auto const rows = static_cast<double>(shards.rows(r));
      double const finish = rows * 4 * (16 * (2 + 4) + 2 * 4) / 1e11 +
                            1e-6 * static_cast<double>(shards.pieces(r).size());
      seconds = std::max(seconds, now[static_cast<std::size_t>(r)] + finish);
    }
    ContextSchedule const ring(Layout::ring, model, machine, n);
    expect_close(simulate_steps(ring, machine).seconds, seconds, 1e-9);
    if (n < 1024) expect_close(simulate_events(ring, machine).seconds, seconds, 1e-9);
  }
}

TEST(ContextSchedule, MemoryByHand) {
  Machine machine = h200x4();
  machine.ranks_per_node = 2;
  Model model = anchor_model(64);
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.type = DType::float32;
  // 16 rows a rank: q, out, k, v and the log-sum-exp.
  double const tensors = 16 * (2 * 8 * 4 * (4 + 2) + 4 * 4);
  auto const of = [&](Layout layout) {
    return ContextSchedule(layout, model, machine, 4).memory();
  };
  plan::MemoryUse use = of(Layout::ring);
  EXPECT_DOUBLE_EQ(use.tensors, tensors);
  EXPECT_DOUBLE_EQ(use.messages, 2 * 16 * 2 * 16 * 4);  // two blocks
  // The last rank's two pieces meet: a state of 16 rows, and as much for a partial result.
  EXPECT_DOUBLE_EQ(use.states, 2 * 16 * 4 * (8 + 1) * 4);
  EXPECT_DOUBLE_EQ(use.staging, 0);
  use = of(Layout::all_gather);
  EXPECT_DOUBLE_EQ(use.messages, (16 + 2 * 64) * 2 * 16 * 4);
  EXPECT_DOUBLE_EQ(use.states, 2 * 8 * 4 * (8 + 1) * 4);
  use = of(Layout::all_to_all);
  // One query head and one key head of all 64 rows, twice, and 16 rows of all heads, of which key
  // heads go to two ranks each.
  EXPECT_DOUBLE_EQ(use.messages, 2 * 64 * (4 * 8 * 4 + 4) + 16 * (4 * 4 * 8 * 4 + 4 * 4));
  EXPECT_DOUBLE_EQ(use.states, 64 * 1 * (8 + 1) * 4);
  use = of(Layout::two_level);
  // Two query heads and one key head of the 32 rows of a node, twice, 16 rows of all, and two
  // blocks.
  EXPECT_DOUBLE_EQ(use.messages, 2 * 32 * (2 * 2 * 8 * 4 + 2 * 8 * 4 + 2 * 4) +
                                     16 * (2 * 4 * 8 * 4 + 2 * 2 * 8 * 4 + 4 * 4) +
                                     2 * 32 * 1 * 16 * 4);
  EXPECT_DOUBLE_EQ(use.states, 2 * 32 * 2 * (8 + 1) * 4);
  machine.staging_bandwidth = 1e10;
  EXPECT_DOUBLE_EQ(of(Layout::ring).staging, 2 * 16 * 2 * 16 * 4);
}

TEST(ProductSchedule, ComputesAllProductsAndSendsAllRows) {
  Machine machine = h200x4();
  machine.launch = 0;
  Model model = anchor_model(1024);
  for (int const ranks : {1, 2, 4, 8})
    for (Layout const layout : {Layout::tensor_parallel, Layout::local}) {
      plan::ProductSchedule const schedule(layout, model, machine, ranks);
      double products = 0, bytes = 0;
      Step step;
      for (std::int64_t s = 0; s < schedule.steps(); ++s) {
        schedule.fill(s, step);
        bool const copies =
            layout == Layout::tensor_parallel && (step.collects || s == 0 || s == 2 * ranks + 2);
        for (double seconds : step.work)
          if (!copies) products += seconds;
        for (auto const& t : step.transfers)
          for (double b : t.bytes) bytes += b;
      }
      expect_close(products * machine.gemm, model.product_operations(), 1e-12);
      double const rows = 1024.0 * 2048;
      EXPECT_DOUBLE_EQ(bytes, layout == Layout::local ? 0 : (ranks - 1) * rows * (2 * 2 + 2 * 4));
      // gated_mlp(), after 1 + ranks and ranks + 1 steps and one that packs: what a block came to
      // goes to the rank whose rows it has, a step later.
      for (int at = 2; layout == Layout::tensor_parallel && at <= ranks; ++at) {
        schedule.fill(2 * ranks + 3 + at, step);
        auto const& t = step.transfers.at(0);
        EXPECT_TRUE(t.posted);
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(t.to[static_cast<std::size_t>(r)],
                    distributed::ring_step(r, ranks, at - 1).block);
      }
      // No rank is done before its products, however messages are counted.
      double const least = products / ranks * (1 - 1e-12);
      EXPECT_GE(simulate_events(schedule, machine).seconds, least);
      EXPECT_GE(simulate_steps(schedule, machine).seconds, least);
    }
  EXPECT_THROW(plan::ProductSchedule(Layout::tensor_parallel, model, machine, 4096),
               UnsupportedError);
}

}  // namespace
}  // namespace attikos::test
