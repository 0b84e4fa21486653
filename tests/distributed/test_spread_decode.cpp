// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decoding over a cache that is spread over ranks.
#include <attikos/distributed/decode.hpp>

#include "distributed/context_checks.hpp"

namespace attikos::test {
namespace {

/// As context-parallel attention of queries that are all on one rank; every rank has them.
void check_decode(ContextCase p, std::int64_t queries) {
  Shards const cache = p.shards.kv;
  std::vector<std::int64_t> rows(sz(ranks().size()), 0);
  rows[sz(ranks().rank())] = queries;  // so that this rank compares all of them
  p.shards = {Shards::uneven(rows), cache};
  ContextRun<float> run(p);
  auto const q = run.q.const_view();
  Kokkos::DefaultExecutionSpace const exec;
  auto const some = attikos::sinks(run.sinks.const_view());
  if (p.lengths_kv.empty())
    distributed::decode(exec, ranks(), cache, q, run.k.const_view(), run.v.const_view(),
                        run.out.view(), run.lse.view(), p.options, some);
  else
    distributed::decode(exec, ranks(), cache, q, run.k.const_view(), run.v.const_view(),
                        run.out.view(), run.lse.view(), p.options,
                        lengths(run.lengths_q.const_view(), run.lengths_kv.const_view()));
  run.out.download();
  run.lse.download();
  run.compare("distributed/decode/float32");
  // The same bits everywhere.
  auto const out = run.out.elements();
  EXPECT_TRUE(same_bits(of_first_rank(out), out));
}

TEST(SpreadDecode, MergesWhatRanksHave) {
  int const n = ranks().size();
  for (auto const& cache : {Shards::contiguous(300, n), Shards::zigzag(61, n), uneven(40)}) {
    check_decode({2, 8, 2, 16, 16, cache, {}, {}, {}, true}, 1);
    check_decode({1, 4, 4, 16, 24, cache, {.causal = true, .window_left = 30}, {}, {}, true}, 5);
    check_decode({3, 4, 1, 8, 8, cache, {.causal = true}, {2, 1, 2}, {40, 3, 0}}, 2);
  }
}

TEST(SpreadDecode, SaysWhatItDoesNotTake) {
  Shards const cache = Shards::contiguous(40, ranks().size());
  ContextRun<float> run({1, 4, 4, 8, 8, cache});
  Kokkos::DefaultExecutionSpace const exec;
  auto const call = [&](Shards const& shards, distributed::AttentionOptions const& options) {
    distributed::decode(exec, ranks(), shards, run.q.const_view(), run.k.const_view(),
                        run.v.const_view(), run.out.view(), run.lse.view(), options,
                        sinks(run.sinks.const_view()));
  };
  EXPECT_THROW(call(cache, {.strategy = Strategy::ring}), UnsupportedError);
  EXPECT_THROW(call(Shards::contiguous(41, ranks().size()), {}), ShapeError);
  EXPECT_THROW(call(Shards::packed({0, 20, 40}, ranks().size()), {}), UnsupportedError);
}

}  // namespace
}  // namespace attikos::test
