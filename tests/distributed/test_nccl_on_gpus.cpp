// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What only a device shows: calls that return before it is done, and calls that are captured.
#include <cuda_runtime.h>

#include "context_checks.hpp"
#include "thrown.hpp"

namespace attikos::test {
namespace {

using distributed::Agree;
using Exec = Kokkos::Cuda;

/// About half a second of one thread.
struct HoldUp {
  Kokkos::View<long long*, Exec> clock;

  KOKKOS_FUNCTION void operator()(int) const {
    KOKKOS_IF_ON_DEVICE((long long const begin = clock64();
                         while (clock64() - begin < 1000000000LL) clock(0) = begin;))
  }
};

class NcclOnGpus : public testing::Test {
 protected:
  int last = ranks().size() - 1;
  bool odd_one = ranks().rank() == last;
  Shards shards = Shards::zigzag(1000, ranks().size());
  ContextCase usual{1, 8, 4, 64, 64, shards, {.causal = true, .strategy = Strategy::ring}};

  template <class F>
  void with(distributed::CommunicatorOptions const& options, F const& f) {
    {
      OtherRanks const others(options);
      f();
    }
    wait_for_all_ranks();
  }
  static void call(Exec const& exec, ContextRun<float>& run) {
    distributed::attention(exec, ranks(), run.p.shards, run.q.const_view(), run.k.const_view(),
                           run.v.const_view(), run.out.view(), run.lse.view(), run.p.options);
  }
};

TEST_F(NcclOnGpus, InstancesAreOfTheDevice) {
  Kokkos::DefaultHostExecutionSpace const host;
  detail::QueueRef const queue(host);
  EXPECT_NE(thrown<DeviceError>([&] {
              ranks().transport().check_queue("attention", queue);
            }).find("exec is of a host"),
            std::string::npos);
}

// Behind work that holds the instance up, the call returns first.
TEST_F(NcclOnGpus, ACallDoesNotWaitForTheDevice) {
  with({.agree = Agree::first_call_alike}, [&] {
    for (Strategy strategy : all_strategies()) {
      usual.options.strategy = strategy;
      ContextRun<float> run(usual);
      Exec const exec;
      call(exec, run);  // memory, kernels that are loaded, NCCL's connections
      ranks().fence(exec);
      run.out.upload();
      run.lse.upload();
      Kokkos::View<long long*, Exec> const clock("clock", 1);
      Kokkos::parallel_for(Kokkos::RangePolicy<Exec>(exec, 0, 1), HoldUp{clock});
      call(exec, run);
      EXPECT_EQ(cudaStreamQuery(exec.cuda_stream()), cudaErrorNotReady) << strategy_name(strategy);
      ranks().fence(exec);
      EXPECT_EQ(cudaStreamQuery(exec.cuda_stream()), cudaSuccess);
      run.out.download();
      run.lse.download();
      run.compare("distributed/attention/float32");
    }
  });
}

TEST_F(NcclOnGpus, CallsAreCaptured) {
  with({.agree = Agree::first_call_alike}, [&] {
    for (Strategy strategy : all_strategies()) {
      usual.options.strategy = strategy;
      ContextRun<float> run(usual);
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
      {
        Exec const exec(stream);
        call(exec, run);
        ranks().fence(exec);
        run.out.upload();
        run.lse.upload();
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t runnable = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        call(exec, run);
        ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << strategy_name(strategy);
        ASSERT_EQ(cudaGraphInstantiate(&runnable, graph, 0), cudaSuccess);
        for (int turn = 0; turn < 3; ++turn) {
          ASSERT_EQ(cudaGraphLaunch(runnable, stream), cudaSuccess);
          ranks().fence(exec);
          run.out.download();
          run.lse.download();
          run.compare("distributed/attention/captured");
        }
        cudaGraphExecDestroy(runnable);
        cudaGraphDestroy(graph);
      }
      cudaStreamDestroy(stream);
    }
  });
}

// The device waits for a rank that does not come, and is released.
TEST_F(NcclOnGpus, FenceNoticesARankThatHasGone) {
  if (last == 0) return;  // nobody to wait for
  with({.agree = Agree::first_call_alike, .time_out = 3}, [&] {
    Exec const exec;
    ContextRun<float> run(usual);
    call(exec, run);
    ranks().fence(exec);
    if (odd_one) return;
    call(exec, run);
    EXPECT_NE(thrown<CommunicationError>([&] { ranks().fence(exec); }).find("waited 3 s"),
              std::string::npos);
    EXPECT_FALSE(ranks().alive());
    exec.fence();  // ends, since the communicator was aborted
  });
  check_context<float>(usual);
}

}  // namespace
}  // namespace attikos::test
