// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Work that is put into a queue again and again: on CUDA recorded once into a graph.
#pragma once

#include <Kokkos_Core.hpp>
#include <functional>
#include <stdexcept>
#include <string>

#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_runtime.h>
#endif

#include "tensors.hpp"

namespace llama {

#if defined(KOKKOS_ENABLE_CUDA)

inline void check_cuda(cudaError_t status, char const* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// An instance with a stream of its own: the default one's cannot be recorded.
class OwnInstance {
 public:
  OwnInstance() : stream_(make_stream()), exec_(stream_) {}
  ~OwnInstance() {
    exec_ = Exec();
    cudaStreamDestroy(stream_);
  }
  OwnInstance(OwnInstance const&) = delete;
  OwnInstance& operator=(OwnInstance const&) = delete;
  Exec const& exec() const { return exec_; }

 private:
  static cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
  }
  cudaStream_t stream_;
  Exec exec_;
};

class Recorded {
 public:
  static constexpr bool is_graph = true;
  Recorded(Exec const& exec, std::function<void()> const& work) : stream_(exec.cuda_stream()) {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    work();
    check_cuda(cudaStreamEndCapture(stream_, &graph), "capture");
    cudaError_t const status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }
  ~Recorded() { cudaGraphExecDestroy(graph_); }
  Recorded(Recorded const&) = delete;
  Recorded& operator=(Recorded const&) = delete;
  void replay() const { check_cuda(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

#else

class OwnInstance {
 public:
  Exec const& exec() const { return exec_; }

 private:
  Exec exec_;
};

class Recorded {
 public:
  static constexpr bool is_graph = false;
  Recorded(Exec const&, std::function<void()> work) : work_(std::move(work)) {}
  void replay() const { work_(); }

 private:
  std::function<void()> work_;
};

#endif

}  // namespace llama
