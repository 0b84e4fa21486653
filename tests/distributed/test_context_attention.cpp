// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Context-parallel attention in float: strategies × masks × shards against float64.
#include "context_checks.hpp"

namespace attikos::test {
namespace {

Shards zigzag(std::int64_t length) { return Shards::zigzag(length, ranks().size()); }
Shards contiguous(std::int64_t length) { return Shards::contiguous(length, ranks().size()); }

TEST(ContextAttention, SeesAllKeys) {
  for (auto const& shards : {zigzag(40), contiguous(37), uneven(43)})
    check_all_strategies<float>({2, 8, 4, 16, 24, shards});
}

TEST(ContextAttention, IsCausalInBothAlignments) {
  for (auto alignment : {CausalAlignment::bottom_right, CausalAlignment::top_left}) {
    for (auto const& shards : {zigzag(40), contiguous(37), uneven(43)})
      check_all_strategies<float>(
          {1, 8, 2, 16, 16, shards, {.causal = true, .causal_alignment = alignment}});
    // More keys than queries, and fewer.
    for (auto [nq, nk] : {std::pair{24, 45}, {45, 24}})
      check_all_strategies<float>({1,
                                   8,
                                   8,
                                   16,
                                   16,
                                   {zigzag(nq), contiguous(nk)},
                                   {.causal = true, .causal_alignment = alignment}});
  }
}

TEST(ContextAttention, KeepsWindows) {
  for (auto [left, right] : {std::pair{5, 3}, {0, 0}, {-1, 7}})
    for (auto const& shards : {zigzag(40), uneven(43)})
      check_all_strategies<float>(
          {1, 8, 4, 16, 16, shards, {.window_left = left, .window_right = right}});
  check_all_strategies<float>(
      {1, 8, 4, 16, 16, {zigzag(21), uneven(50)}, {.causal = true, .window_left = 9}});
}

TEST(ContextAttention, KnowsSoftcapSinksAndLengths) {
  check_all_strategies<float>({3,
                               8,
                               2,
                               16,
                               16,
                               zigzag(64),
                               {.causal = true, .softcap = 2},
                               {40, 64, 0},
                               {64, 50, 7},
                               true});
  check_all_strategies<float>({2,
                               8,
                               2,
                               16,
                               16,
                               uneven(50),
                               {.softmax_scale = 0.7},
                               {50, 13},
                               {1, 50},
                               false,
                               Layout::strided});
  check_all_strategies<float>({2, 8, 8, 16, 8, contiguous(50), {}, {}, {}, true, Layout::permuted});
}

TEST(ContextAttention, TakesPackedSequencesOfAnyLength) {
  std::vector<std::int64_t> const q{0, 3, 3, 40, 41, 90}, kv{0, 9, 20, 57, 57, 90};
  for (auto placement : {distributed::Placement::zigzag, distributed::Placement::contiguous}) {
    ContextShards const shards(Shards::packed(q, ranks().size(), placement),
                               Shards::packed(kv, ranks().size(), placement));
    check_all_strategies<float>({1, 8, 4, 16, 16, shards, {.causal = true}});
    check_all_strategies<float>(
        {1, 8, 4, 16, 16, shards, {.window_left = 4, .window_right = 4}, {}, {}, true});
  }
  for (bool causal : {false, true})
    check_all_strategies<float>(
        {1, 8, 4, 16, 16, Shards::balanced(q, ranks().size(), causal), {.causal = causal}});
}

// Heads that ranks cannot share alike: fewer key heads than ranks, groups that a boundary between
// ranks cuts, more ranks than heads.
TEST(ContextAttention, DealsOutHeadsThatDoNotGoEvenly) {
  for (auto [hq, hkv] : {std::pair{8, 1}, {6, 3}, {9, 3}, {12, 2}, {2, 2}, {1, 1}})
    check_context<float>(
        {2, hq, hkv, 8, 8, zigzag(40), {.causal = true, .strategy = Strategy::all_to_all}});
}

// Nodes of four of eight ranks, or of two of four, heads that they cannot share alike, and
// sequences that not every node has a part of.
TEST(ContextAttention, DealsOutHeadsInNodesAndBlocksBetweenThem) {
  int const n = ranks().size();
  if (n % 4 != 0) return;  // one node
  distributed::CommunicatorOptions options;
  options.machine.ranks_per_node = n / 2;
  OtherRanks const nodes(options);
  std::vector<std::int64_t> const offsets{0, 3, 3, 40, 41, 90};
  for (auto [hq, hkv] : {std::pair{8, 1}, {6, 3}, {9, 3}, {2, 2}, {1, 1}})
    for (auto const& shards : {zigzag(40), uneven(43), Shards::packed(offsets, n)})
      check_context<float>(
          {1, hq, hkv, 8, 8, shards, {.causal = true, .strategy = Strategy::two_level}});
}
TEST(ContextAttention, RefusesNodesThatThereAreNot) {
  distributed::CommunicatorOptions options;
  options.machine.ranks_per_node = ranks().size() + 1;
  OtherRanks const nodes(options);
  ContextRun<float> run(
      {1, 8, 4, 16, 16, zigzag(64), {.causal = true, .strategy = Strategy::two_level}});
  EXPECT_THROW(run.call(), UnsupportedError);
}

TEST(ContextAttention, AllowsNothing) {
  check_all_strategies<float>({1, 4, 4, 8, 8, {zigzag(20), zigzag(0)}});
  check_all_strategies<float>({1, 4, 4, 8, 8, {zigzag(0), zigzag(20)}});
  check_all_strategies<float>({0, 4, 4, 8, 8, zigzag(20)});
}

// Any number of ranks, any shards that begin at blocks, any strategy: the bits are those of one
// rank.
TEST(ContextAttention, RepeatsItsBitsOnAnyNumberOfRanks) {
  std::int64_t const block = 4, length = 70;
  distributed::AttentionOptions const options{
      .causal = true, .determinism = distributed::Determinism::rank_invariant, .block = block};
  int const n = ranks().size();
  auto const rows_of_all = [&](ContextCase const& p) {
    ContextRun<float> run(p);
    run.call();
    if (p.shards.q.rows(0) == length) run.compare("distributed/attention/invariant");
    // By their positions: rows of this rank, zeros elsewhere.
    std::vector<float> all(sz(p.batch * p.heads_q * length * (p.dv + 1)), 0);
    for_each_row(p.shards.q, ranks().rank(),
                 [&](std::int64_t row, std::int64_t, std::int64_t, std::int64_t at) {
                   for (std::int64_t b = 0; b < p.batch; ++b)
                     for (std::int64_t h = 0; h < p.heads_q; ++h) {
                       float* const to = &all[sz(((b * p.heads_q + h) * length + at) * (p.dv + 1))];
                       for (std::int64_t c = 0; c < p.dv; ++c) to[c] = run.out(b, h, row, c);
                       to[p.dv] = run.lse(b, h, row);
                     }
                 });
    return sum_over_ranks(all);
  };
  // One rank has everything, the others help with nothing: the products of one device.
  std::vector<std::int64_t> alone(sz(n), 0);
  alone[0] = length;
  ContextCase p{1, 8, 4, 16, 16, Shards::uneven(alone), options};
  for (int window : {-1, 30}) {
    p.options.window_left = window;
    p.shards = Shards::uneven(alone);
    p.options.strategy = Strategy::ring;
    auto const want = rows_of_all(p);
    for (auto const& shards :
         {Shards::zigzag(length, n, block), Shards::contiguous(length, n, block),
          Shards::zigzag(length, n, 2 * block)})
      for (Strategy strategy : all_strategies()) {
        p.shards = shards;
        p.options.strategy = strategy;
        EXPECT_TRUE(same_bits(rows_of_all(p), want)) << describe(p);
      }
  }
}

TEST(ContextAttention, RepeatsItsBitsFromRunToRun) {
  for (Strategy strategy : all_strategies()) {
    ContextCase const p{1, 8, 4, 16, 16, zigzag(100), {.causal = true, .strategy = strategy}};
    ContextRun<float> run(p);
    run.call();
    auto const out = run.out.elements();
    auto const lse = run.lse.elements();
    for (int repeat = 0; repeat < 3; ++repeat) {
      run.call();
      EXPECT_TRUE(same_bits(run.out.elements(), out) && same_bits(run.lse.elements(), lse));
    }
  }
}

// Buffers are the communicator's: the same call once more needs none.
TEST(ContextAttention, KeepsItsBuffers) {
  ContextCase const p{1, 8, 4, 16, 16, zigzag(100), {.causal = true, .strategy = Strategy::ring}};
  ContextRun<float> run(p);
  run.call();
  std::size_t const bytes = ranks().buffer_bytes();
  run.call();
  EXPECT_EQ(ranks().buffer_bytes(), bytes);
}

TEST(ContextAttention, ExplainsItsChoice) {
  ContextRun<float> run({1, 8, 4, 16, 16, zigzag(64), {.causal = true}});
  auto const plan = distributed::explain(op::attention, ranks(), run.p.shards, run.q.const_view(),
                                         run.k.const_view(), run.v.const_view(), run.p.options);
  EXPECT_EQ(plan.costs.size(), 4u);
  EXPECT_NE(plan.strategy, Strategy::automatic);
  EXPECT_NE(plan.text().find(std::string("* ") + strategy_name(plan.strategy)), std::string::npos)
      << plan.text();
  run.call();
  run.compare("distributed/attention/automatic");
}

}  // namespace
}  // namespace attikos::test
