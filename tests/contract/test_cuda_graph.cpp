// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on a CUDA instance can be captured into a graph: capture fails if anything fences,
// allocates or strays to another stream.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>

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

TEST(CudaGraph, CapturesEveryOperationFloat32) { expect_capturable<float>(); }
TEST(CudaGraph, CapturesEveryOperationBfloat16) { expect_capturable<bfloat16>(); }

}  // namespace
}  // namespace attikos::test
