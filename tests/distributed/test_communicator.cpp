// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator may be told: when ranks compare what they are asked for, and how long they
// wait for one another.
#include "context_checks.hpp"
#include "thrown.hpp"

namespace attikos::test {
namespace {

using distributed::Agree;
using Exec = Kokkos::DefaultExecutionSpace;

class CommunicatorOptions : public testing::Test {
 protected:
  int last = ranks().size() - 1;
  bool odd_one = ranks().rank() == last;
  Shards shards = Shards::zigzag(40, ranks().size());
  ContextCase usual{1, 4, 2, 8, 8, shards, {.causal = true, .strategy = Strategy::ring}};

  /// All ranks go on together, on a communicator of their own.
  template <class F>
  void with(distributed::CommunicatorOptions const& options, F const& f) {
    {
      OtherRanks const others(options);
      f();
    }
    wait_for_all_ranks();
  }
};

TEST_F(CommunicatorOptions, AgreesOnceOnCallsThatAreAlike) {
  with({.agree = Agree::first_call_alike}, [&] {
    ContextRun<float> run(usual);
    run.call();
    run.compare("distributed/attention/float32");
    EXPECT_EQ(ranks().agreed().size(), 1u);
    auto const out = run.out.elements();
    for (int repeat = 0; repeat < 3; ++repeat) {
      run.call();
      EXPECT_TRUE(same_bits(run.out.elements(), out));
    }
    EXPECT_EQ(ranks().agreed().size(), 1u);
    check_all_strategies<float>(usual);
    EXPECT_EQ(ranks().agreed().size(), 3u);
    // One that is new is compared.
    ContextCase other = usual;
    other.heads_q = 2;
    if (odd_one) other.batch = 2;
    ContextRun<float> differs(other);
    if (last > 0) {
      auto const text = thrown<ShapeError>([&] { differs.call(); });
      EXPECT_NE(text.find("has batch"), std::string::npos) << text;
    }
    EXPECT_EQ(ranks().agreed().size(), 3u);
    run.call();
    run.compare("distributed/attention/float32");
    // So is one whose arguments do not fit.
    run.p.shards = Shards::contiguous(41 + ranks().size(), ranks().size());
    EXPECT_NE(thrown<ShapeError>([&] { run.call(); }).find("rank 0 of "), std::string::npos);
    EXPECT_TRUE(ranks().alive());
  });
}

TEST_F(CommunicatorOptions, ComparesNothingIfToldSo) {
  with({.agree = Agree::never}, [&] {
    check_all_strategies<float>(usual);
    EXPECT_EQ(ranks().agreed().size(), 0u);
    ContextRun<float> run(usual);
    run.p.shards = Shards::contiguous(41 + ranks().size(), ranks().size());
    auto const text = thrown<ShapeError>([&] { run.call(); });
    EXPECT_NE(text.find("attikos::distributed::attention: q has"), std::string::npos) << text;
    EXPECT_EQ(text.find("cannot go on"), std::string::npos) << text;
    check_all_strategies<float>(usual);
  });
}

TEST_F(CommunicatorOptions, ATimeOutChangesNothingWhereAllCome) {
  with({.time_out = 100}, [&] {
    check_all_strategies<float>(usual);
    usual.options.determinism = distributed::Determinism::rank_invariant;
    usual.options.block = 64;
    usual.shards = Shards::uneven([&] {
      std::vector<std::int64_t> rows(sz(ranks().size()), 0);
      rows[0] = 40;
      return rows;
    }());
    check_all_strategies<float>(usual);
  });
}

// One rank makes no call: the others find out while they agree, and are told so later.
TEST_F(CommunicatorOptions, ARankThatDoesNotComeIsNotWaitedForLonger) {
  if (last == 0) return;  // nobody to wait for
  with({.time_out = 0.2}, [&] {
    check_context<float>(usual);  // NCCL waits without limit where two ranks first meet
    if (odd_one) return;
    ContextRun<float> run(usual);
    run.out.fill(7);
    auto const text = thrown<CommunicationError>([&] { run.call(); });
    EXPECT_NE(text.find("waited 0.2 s; expected every rank to make the same call"),
              std::string::npos)
        << text;
    run.out.download();
    EXPECT_TRUE(run.out.unchanged());
    EXPECT_FALSE(ranks().alive());
    EXPECT_NE(thrown<CommunicationError>([&] { run.call(); }).find("the communicator is dead"),
              std::string::npos);
    EXPECT_NE(
        thrown<CommunicationError>([&] { ranks().fence(Exec()); }).find("the communicator is dead"),
        std::string::npos);
  });
  check_context<float>(usual);  // of which another communicator knows nothing
}

}  // namespace
}  // namespace attikos::test
