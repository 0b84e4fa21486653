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

/// The same with keys in pages of each rank's own, in an order of its own, the last page not full.
template <class T>
void check_pages(ContextCase p, std::int64_t queries, std::int64_t page_size) {
  Shards const cache = p.shards.kv;
  std::vector<std::int64_t> rows(sz(ranks().size()), 0);
  rows[sz(ranks().rank())] = queries;
  p.shards = {Shards::uneven(rows), cache};
  ContextRun<T> run(p);
  using Exec = Kokkos::DefaultExecutionSpace;
  Exec const exec;
  std::int64_t const own = cache.rows(ranks().rank());
  std::int64_t const each = (own + page_size - 1) / page_size, pages = each * p.batch;
  Tensor<T, 4, Exec> k({pages + 1, p.heads_kv, page_size, p.d}),
      v({pages + 1, p.heads_kv, page_size, p.dv});
  Tensor<std::int32_t, 2, Exec> table({p.batch, each + 1});
  Tensor<std::int32_t, 1, Exec> used({p.batch});
  for (std::int64_t b = 0; b < p.batch; ++b) {
    used(b) = static_cast<std::int32_t>(own);
    for (std::int64_t e = 0; e <= each; ++e)
      table(b, e) = static_cast<std::int32_t>(e < each ? pages - 1 - (b * each + e) : pages);
    for (std::int64_t i = 0; i < own; ++i)
      for (std::int64_t h = 0; h < p.heads_kv; ++h) {
        std::int64_t const page = table(b, i / page_size);
        for (std::int64_t c = 0; c < p.d; ++c) k(page, h, i % page_size, c) = run.k(b, h, i, c);
        for (std::int64_t c = 0; c < p.dv; ++c) v(page, h, i % page_size, c) = run.v(b, h, i, c);
      }
  }
  k.upload(), v.upload(), table.upload(), used.upload();
  DecodeOptions options;
  options.softcap = p.options.softcap;
  auto const call = [&](auto const&... sinks) {
    distributed::decode(exec, ranks(), run.q.const_view(), k.const_view(), v.const_view(),
                        run.out.view(), run.lse.view(), options,
                        paged(table.const_view(), page_size), lengths(none, used.const_view()),
                        sinks...);
  };
  if (p.sinks)
    call(attikos::sinks(run.sinks.const_view()));
  else
    call();
  run.out.download();
  run.lse.download();
  run.compare(std::string("distributed/decode/pages/") + type_name<T>());
  auto const out = run.out.elements();
  EXPECT_TRUE(same_bits(of_first_rank(out), out));
}

TEST(SpreadDecode, MergesWhatIsInPagesOfRanks) {
  int const n = ranks().size();
  for (auto const& cache : {Shards::contiguous(300, n), Shards::zigzag(61, n), uneven(40)}) {
    check_pages<float>({2, 8, 2, 16, 16, cache, {}, {}, {}, true}, 1, 16);
    check_pages<float>({3, 4, 1, 8, 24, cache, {.softcap = 3}}, 3, 8);
    check_pages<bfloat16>({2, 4, 4, 16, 16, cache}, 2, 16);
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
  // Without positions.
  Tensor<float, 4, Kokkos::DefaultExecutionSpace> two({1, 4, 2, 8}), out({1, 4, 2, 8});
  for (DecodeOptions const& options :
       {DecodeOptions{.causal = true}, DecodeOptions{.window_left = 3}})
    EXPECT_THROW(distributed::decode(exec, ranks(), two.const_view(), run.k.const_view(),
                                     run.v.const_view(), out.view(), options),
                 UnsupportedError);
}

}  // namespace
}  // namespace attikos::test
