// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Calls captured into a graph and replayed over memory that changes: each replay must leave what a
/// plain call leaves, bit by bit.
#pragma once

#include <functional>
#include <vector>

#include "direct_common.hpp"

namespace {

/// Memory of the device that a call writes.
struct Written {
  void* data;
  std::size_t bytes;
};

constexpr int replay_rounds = 5, replays = 10;

/// Captures `launch(stream)` once. In each round `change(round)` gives its inputs other contents;
/// then it is called plainly and replayed several times, over memory of 0xFF. All of a round must
/// write the same, and no two rounds may.
inline void captured_equals(std::vector<Written> const& written,
                            std::function<int(cudaStream_t)> const& launch,
                            std::function<void(int)> const& change) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(launch(stream), cudaSuccess);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  std::vector<std::vector<unsigned char>> before;
  for (int round = 0; round < replay_rounds; ++round) {
    change(round);
    std::vector<unsigned char> expected;
    for (int turn = 0; turn <= replays; ++turn) {
      for (auto const& w : written) ASSERT_CUDA(cudaMemsetAsync(w.data, 0xFF, w.bytes, stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      poison_shared_memory();
      ASSERT_CUDA(cudaDeviceSynchronize());
      if (turn == 0)
        ASSERT_EQ(launch(stream), cudaSuccess);
      else
        ASSERT_CUDA(cudaGraphLaunch(executable, stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      std::vector<unsigned char> result;
      for (auto const& w : written) {
        result.resize(result.size() + w.bytes);
        ASSERT_CUDA(cudaMemcpy(result.data() + result.size() - w.bytes, w.data, w.bytes,
                               cudaMemcpyDeviceToHost));
      }
      if (turn == 0) expected = result;
      ASSERT_EQ(result == expected, true) << "round " << round << ", replay " << turn;
    }
    for (auto const& other : before)
      ASSERT_EQ(other == expected, false) << "round " << round << " does not follow its inputs";
    before.push_back(std::move(expected));
  }
  ASSERT_CUDA(cudaGraphExecDestroy(executable));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

}  // namespace
