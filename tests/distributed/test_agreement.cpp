// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that disagree, and ranks that cannot go on: all throw the same, and go on together.
#include <optional>

#include "context_checks.hpp"
#include "thrown.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;

/// All ranks have the same text, of which `part` is a part.
void expect_same_text(std::string const& text, std::string const& part) {
  char first[2048] = "";
  std::snprintf(first, sizeof first, "%s", text.c_str());
  ranks().transport().broadcast(first, sizeof first, 0);
  EXPECT_EQ(text, first);
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nexpected in it: " << part;
}

class Agreement : public testing::Test {
 protected:
  int last = ranks().size() - 1;
  bool odd_one = ranks().rank() == last;
  Shards shards = Shards::zigzag(40, ranks().size());
  ContextCase usual{2, 4, 4, 8, 8, shards, {.strategy = Strategy::ring}};

  template <class E = ShapeError>
  void expect_difference(ContextCase const& other, std::string const& part) {
    if (last == 0) return;  // nobody to disagree with
    ContextRun<float> run(odd_one ? other : usual);
    run.out.fill(7);
    expect_same_text(thrown<E>([&] { run.call(); }), part);
    run.out.download();
    EXPECT_TRUE(run.out.unchanged());
    check_context<float>(usual);  // the communicator is as good as before
  }
  std::string rank_has(std::string const& what) const {
    return "rank " + std::to_string(last) + " has " + what;
  }
};

TEST_F(Agreement, NamesRankAndArgument) {
  ContextCase other = usual;
  other.heads_q = 8;
  expect_difference(other, rank_has("heads_q 8 where rank 0 has 4"));
  other = usual;
  other.batch = 3;
  expect_difference(other, rank_has("batch 3 where rank 0 has 2"));
  other = usual;
  other.options.causal = true;
  expect_difference(other, rank_has("causal 1 where rank 0 has 0"));
  other = usual;
  other.options.softcap = 3;
  expect_difference(other, rank_has("other softcap than rank 0"));
  other = usual;
  other.options.strategy = Strategy::all_gather;
  expect_difference(other, rank_has("strategy 2 where rank 0 has 1"));
  other = usual;
  other.sinks = true;
  expect_difference(other, rank_has("sinks 1 where rank 0 has 0"));
  other = usual;
  other.lengths_q = {40, 1};
  other.lengths_kv = {40, 1};
  expect_difference(other, rank_has("other lengths of q than rank 0"));
  other = usual;
  other.shards = Shards::contiguous(40, ranks().size());
  expect_difference(other, rank_has("other shards of q than rank 0"));
}

TEST_F(Agreement, NamesTypes) {
  if (last == 0) return;
  ContextRun<float> run(usual);
  ContextRun<double> other(usual);
  expect_same_text(thrown<DtypeError>([&] { odd_one ? other.call() : run.call(); }),
                   rank_has("other element type than rank 0"));
}

TEST_F(Agreement, OneRankCannotGoOn) {
  // Rows that the shards do not have.
  ContextRun<float> run(usual);
  Exec const exec;
  Tensor<float, 4, Exec> k({2, 4, 77, 8}), v({2, 4, 77, 8});
  auto const call = [&](auto const& keys, auto const& values) {
    distributed::attention(exec, ranks(), shards, run.q.const_view(), keys, values, run.out.view(),
                           run.lse.view(), usual.options);
  };
  auto const text = thrown<ShapeError>([&] {
    odd_one ? call(k.const_view(), v.const_view()) : call(run.k.const_view(), run.v.const_view());
  });
  expect_same_text(text, "rank " + std::to_string(last) + " of " + std::to_string(ranks().size()) +
                             " cannot go on: ");
  expect_same_text(text, "k has 77 rows; expected ");
  // An output that is an input, on one rank.
  expect_same_text(thrown<Error>([&] {
                     distributed::attention(exec, ranks(), shards, run.q.const_view(),
                                            run.k.const_view(), run.v.const_view(),
                                            odd_one ? run.q.view() : run.out.view(), run.lse.view(),
                                            usual.options);
                   }),
                   "output out shares memory with q");
  check_context<float>(usual);
}

// Kernels that split the keys want memory in the middle of the call. Others get the keys and values
// that they wait for, and their results. A build for devices without the companion has no such
// kernels, and no rank fails.
TEST_F(Agreement, OneRankFailsInTheMiddle) {
  int const n = ranks().size();
  std::int64_t const keys = 1030;  // of each rank; devices split 1024 and more
  abi::AttentionArgs of_rank{};
  of_rank.batch = 1;
  of_rank.heads_q = of_rank.heads_kv = 4;
  of_rank.seqlen_q = 2;
  of_rank.seqlen_kv = keys;
  of_rank.head_dim = of_rank.head_dim_v = 8;
  bool const one_fails = detail::splits_keys<float, float>(Exec(), of_rank);
  bool const fails = odd_one && one_fails;
  ContextCase few{1,
                  4,
                  4,
                  8,
                  8,
                  {Shards::contiguous(2 * n, n), Shards::contiguous(keys * n, n)},
                  {.strategy = Strategy::ring}};
  ContextRun<float> run(few);
  auto const call = [&](ContextRun<float>& x) {
    std::optional<NoWorkspace> none;
    if (odd_one) none.emplace();
    x.call();
  };
  if (fails)
    EXPECT_NE(thrown<ResourceError>([&] { call(run); }).find("allocator did not give"),
              std::string::npos);
  else
    call(run);
  if (!fails) run.compare("distributed/attention/float32");
  // Where others get results of the rank, all throw.
  few.options.strategy = Strategy::all_to_all;
  if (n > 4) return;  // ranks without heads do not fail
  few.shards = {Shards::contiguous(2, n), few.shards.kv};
  ContextRun<float> all(few);
  if (fails)
    EXPECT_NE(thrown<ResourceError>([&] { call(all); }).find("did not give"), std::string::npos);
  else if (!one_fails || ranks().transport().asynchronous())
    call(all);  // and learn of it by the next one
  else
    EXPECT_NE(thrown<Error>([&] { call(all); })
                  .find("rank " + std::to_string(last) + " of " + std::to_string(n) +
                        " failed in the middle of the call"),
              std::string::npos);
  if (one_fails && ranks().transport().asynchronous())
    expect_same_text(thrown<Error>([&] { all.call(); }),
                     "rank " + std::to_string(last) + " of " + std::to_string(n) +
                         " cannot go on: attikos::distributed::attention: this rank failed in the "
                         "middle of an earlier call");
  check_all_strategies<float>(usual);
}

TEST_F(Agreement, KernelsAreAskedBeforeAnythingIsSent) {
  ContextCase other = usual;
  other.options.kernel = "attention/of_tomorrow";
  ContextRun<float> run(other);
  expect_same_text(thrown<UnsupportedError>([&] { run.call(); }), "attention/of_tomorrow");
  other.options.kernel = "portable";
  check_all_strategies<float>(other);
}

TEST_F(Agreement, ShardsAreForTheseRanks) {
  ContextRun<float> run(usual);
  Exec const exec;
  Shards const more = Shards::zigzag(40, ranks().size() + 1);
  expect_same_text(thrown<ShapeError>([&] {
                     distributed::attention(exec, ranks(), more, run.q.const_view(),
                                            run.k.const_view(), run.v.const_view(), run.out.view(),
                                            usual.options);
                   }),
                   "the shards of q are for " + std::to_string(ranks().size() + 1) + " ranks");
}

TEST_F(Agreement, InvariantBlocksNeedShardsThatBeginThere) {
  ContextCase other = usual;
  other.options.determinism = distributed::Determinism::rank_invariant;
  other.options.block = 7;
  if (other.shards.q.aligned_to(7)) return;  // of one rank
  ContextRun<float> run(other);
  expect_same_text(thrown<ShapeError>([&] { run.call(); }), "multiples of 7 positions");
}

}  // namespace
}  // namespace attikos::test
