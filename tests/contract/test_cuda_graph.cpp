// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on a CUDA instance can be captured into a graph, after a call of the same kind or as the
// first: capture fails if anything fences, or strays to another stream, or allocates in a way that
// captures forbid.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <algorithm>

#include "operations.hpp"

namespace attikos::test {
namespace {

template <class T>
void expect_capturable() {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    Kokkos::Cuda const exec(stream);
    for (auto const& operation : operations<Kokkos::Cuda, T>()) {
      operation.call(exec);
      exec.fence();
      auto const eager = operation.output.bytes();

      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
      operation.call(exec);
      ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << operation.name;
      std::size_t nodes = 0;
      ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
      EXPECT_GE(nodes, 1u) << operation.name << " was not captured";

      operation.output.clear();
      cudaGraphExec_t executable = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess) << operation.name;
      for (int replay = 0; replay < 3; ++replay)
        ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(operation.output.bytes(), eager) << operation.name;
      cudaGraphExecDestroy(executable);
      cudaGraphDestroy(graph);
    }
  }
  cudaStreamDestroy(stream);
}

/// A graph of one call, which owns what CUDA made for it.
struct Graph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  template <class Operation>
  Graph(Operation const& operation, Kokkos::Cuda const& exec) {
    EXPECT_EQ(cudaStreamBeginCapture(exec.cuda_stream(), cudaStreamCaptureModeGlobal), cudaSuccess);
    operation.call(exec);
    EXPECT_EQ(cudaStreamEndCapture(exec.cuda_stream(), &graph), cudaSuccess) << operation.name;
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess) << operation.name;
  }
  ~Graph() {
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  Graph(Graph const&) = delete;
  Graph& operator=(Graph const&) = delete;

  void replay(cudaStream_t stream) const {
    EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  }
};

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(Stream const&) = delete;
  Stream& operator=(Stream const&) = delete;
};

template <class T>
void expect_capturable_at_first() {
  for (auto const& operation : operations<Kokkos::Cuda, T>()) {
    SCOPED_TRACE(operation.name);
    Stream const stream, other;
    Kokkos::Cuda const exec(stream.stream), elsewhere(other.stream);
    Graph const graph(operation, exec);
    operation.output.clear();
    // On another stream than it was captured on, where the instance's own memory would not do.
    graph.replay(other.stream);
    elsewhere.fence();
    auto const replayed = operation.output.bytes();
    operation.call(exec);
    exec.fence();
    EXPECT_EQ(replayed, operation.output.bytes());
  }
}

TEST(CudaGraph, CapturesEveryFirstCallFloat32) { expect_capturable_at_first<float>(); }
TEST(CudaGraph, CapturesEveryFirstCallBfloat16) { expect_capturable_at_first<bfloat16>(); }

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

TEST(CudaGraph, WorkspaceOfAGraphThatIsGoneServesTheNext) {
  Stream const stream;
  Kokkos::Cuda const exec(stream.stream);
  auto const list = operations<Kokkos::Cuda, float>();
  auto const capture_all = [&] {
    for (auto const& operation : list) Graph const graph(operation, exec);
    exec.fence();
  };
  for (int warm = 0; warm < 3; ++warm) capture_all();
  // What is free changes with other programs on the device, too: memory that graphs leave behind is
  // missing after every trial.
  std::size_t least_missing = ~std::size_t{0};
  for (int trial = 0; trial < 8 && least_missing > (4u << 20); ++trial) {
    std::size_t const before = free_memory();
    for (int round = 0; round < 10; ++round) capture_all();
    std::size_t const after = free_memory();
    least_missing = std::min(least_missing, before > after ? before - after : 0);
  }
  EXPECT_LE(least_missing, 4u << 20);
}

TEST(CudaGraph, CapturesEveryOperationFloat32) { expect_capturable<float>(); }
TEST(CudaGraph, CapturesEveryOperationBfloat16) { expect_capturable<bfloat16>(); }

}  // namespace
}  // namespace attikos::test
