// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the NCCL transport does with streams, events and failures, over what stands in for NCCL.
#include <nccl.h>

#include <attikos/distributed/nccl_transport.hpp>

#include "context_checks.hpp"
#include "thrown.hpp"

namespace attikos::test {
namespace {

using distributed::Agree;
using Exec = Kokkos::DefaultExecutionSpace;

class NcclTransport : public testing::Test {
 protected:
  int last = ranks().size() - 1;
  bool odd_one = ranks().rank() == last;
  Shards shards = Shards::zigzag(40, ranks().size());
  ContextCase usual{1, 4, 2, 8, 8, shards, {.causal = true, .strategy = Strategy::ring}};

  template <class F>
  void with(distributed::CommunicatorOptions options, F const& f) {
    options.machine = ranks().machine();
    ncclComm_t const comm = nccl_on_hosts::make_communicator();
    auto own = std::make_unique<distributed::Communicator>(comm, options);
    auto* const before = std::exchange(current_ranks(), own.get());
    f(comm);
    current_ranks() = before;
    own.reset();
    nccl_on_hosts::behavior() = {};
    wait_for_all_ranks();
  }
};

TEST_F(NcclTransport, HasTheCallersCommunicator) {
  with({}, [&](ncclComm_t comm) {
    EXPECT_EQ(ranks().handle<ncclComm_t>(), comm);
    EXPECT_TRUE(ranks().gpu_aware());
    check_all_strategies<float>(usual);
    EXPECT_EQ(thrown<Error>([&] { ranks().handle(); }),
              "attikos::distributed: the communicator is over NCCL and has no MPI_Comm");
  });
}

// Only ranks that agree wait for the device.
TEST_F(NcclTransport, TheHostDoesNotWait) {
  with({.agree = Agree::first_call_alike}, [&](ncclComm_t) {
    for (Strategy strategy : all_strategies()) {
      usual.options.strategy = strategy;
      ContextRun<float> run(usual);
      run.call();
      int const before = nccl_on_hosts::queries();
      run.call();
      EXPECT_EQ(nccl_on_hosts::queries(), before) << strategy_name(strategy);
      run.compare("distributed/attention/float32");
    }
  });
}

TEST_F(NcclTransport, CallsThatAreCapturedHaveToBeAgreedOnBefore) {
  with({}, [&](ncclComm_t) {
    ContextRun<float> run(usual);
    nccl_on_hosts::behavior().capturing = true;
    EXPECT_NE(thrown<UnsupportedError>([&] { run.call(); }).find("agree first_call_alike or never"),
              std::string::npos);
    EXPECT_TRUE(ranks().alive());
  });
  with({.agree = Agree::first_call_alike}, [&](ncclComm_t) {
    ContextRun<float> run(usual);
    nccl_on_hosts::behavior().capturing = true;
    EXPECT_NE(thrown<UnsupportedError>([&] { run.call(); }).find("same call before the capture"),
              std::string::npos);
    nccl_on_hosts::behavior().capturing = false;
    run.call();
    nccl_on_hosts::behavior().capturing = true;
    run.call();
    run.compare("distributed/attention/float32");
  });
}

TEST_F(NcclTransport, AnErrorOfNcclEndsTheCommunicator) {
  for (bool const aborts : {false, true}) {
    with({.aborts_nccl = aborts}, [&](ncclComm_t comm) {
      check_context<float>(usual);
      int const before = nccl_on_hosts::aborted();
      wait_for_all_ranks();
      nccl_on_hosts::fail(comm, ncclRemoteError);
      ContextRun<float> run(usual);
      auto const text = thrown<CommunicationError>([&] { run.call(); });
      EXPECT_NE(text.find("remote process exited"), std::string::npos) << text;
      EXPECT_FALSE(ranks().alive());
      EXPECT_EQ(nccl_on_hosts::aborted() - before, aborts ? 1 : 0);
      EXPECT_NE(thrown<CommunicationError>([&] { run.call(); }).find("the communicator is dead"),
                std::string::npos);
    });
  }
}

// A device waits for a rank that does not come; the host goes on, and finds out when it waits.
TEST_F(NcclTransport, FenceNoticesARankThatHasGone) {
  if (last == 0) return;  // nobody to wait for
  for (Strategy strategy : all_strategies()) {
    usual.options.strategy = strategy;
    with({.agree = Agree::never, .time_out = 0.2, .aborts_nccl = true}, [&](ncclComm_t) {
      if (odd_one) return;
      int const before = nccl_on_hosts::aborted();
      nccl_on_hosts::behavior().patience = 0.05;
      ContextRun<float> run(usual);
      run.call();
      auto const text = thrown<CommunicationError>([&] { ranks().fence(Exec()); });
      EXPECT_NE(text.find("Communicator::fence on rank"), std::string::npos) << text;
      EXPECT_NE(text.find("waited 0.2 s"), std::string::npos) << text;
      EXPECT_FALSE(ranks().alive());
      EXPECT_EQ(nccl_on_hosts::aborted() - before, 1);
      EXPECT_NE(thrown<CommunicationError>([&] { run.call(); }).find("the communicator is dead"),
                std::string::npos);
    });
  }
  check_context<float>(usual);
}

// Where ranks do not compare, one that fails in the middle of a call has no way to say so.
TEST_F(NcclTransport, OneRankThatFailsInTheMiddleEndsItsCommunicator) {
  int const n = ranks().size();
  if (n > 4) return;  // ranks without heads do not fail
  ContextCase few{1,
                  4,
                  4,
                  8,
                  8,
                  {Shards::contiguous(2, n), Shards::contiguous(130 * n, n)},
                  {.strategy = Strategy::all_to_all}};
  with({.agree = Agree::never, .aborts_nccl = true}, [&](ncclComm_t) {
    int const before = nccl_on_hosts::aborted();
    ContextRun<float> run(few);
    std::optional<NoWorkspace> none;
    if (odd_one) {
      none.emplace();
      EXPECT_NE(thrown<ResourceError>([&] { run.call(); }).find("did not give"), std::string::npos);
    } else {
      run.call();
    }
    EXPECT_EQ(ranks().alive(), !odd_one);
    EXPECT_EQ(nccl_on_hosts::aborted() - before, odd_one ? 1 : 0);
  });
}

}  // namespace
}  // namespace attikos::test
