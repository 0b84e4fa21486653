// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Time of single calls: device events where there is a device, the steady clock elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <support/settings.hpp>
#include <vector>

namespace attikos::measure {

#if defined(KOKKOS_ENABLE_CUDA)

inline void check_cuda(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

/// Calls are launched back to back and timed together: an event between two of them would keep a
/// launch from beginning while the one before it ends.
class Timer {
 public:
  explicit Timer(Exec const& exec) : exec_(exec) {
    for (cudaEvent_t& event : events_) check_cuda(cudaEventCreate(&event));
  }
  Timer(Timer const&) = delete;
  Timer& operator=(Timer const&) = delete;
  ~Timer() {
    for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  }

  /// Mean seconds of a call in a block of `count`; one value.
  template <class Call>
  std::vector<double> seconds(std::size_t count, Call const& call) {
    check_cuda(cudaEventRecord(events_[0], exec_.cuda_stream()));
    for (std::size_t i = 0; i < count; ++i) call();
    check_cuda(cudaEventRecord(events_[1], exec_.cuda_stream()));
    check_cuda(cudaEventSynchronize(events_[1]));
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return {1e-3 * static_cast<double>(milliseconds) / static_cast<double>(count)};
  }

 private:
  Exec exec_;
  cudaEvent_t events_[2] = {};
};

#else

class Timer {
 public:
  explicit Timer(Exec const& exec) : exec_(exec) {}

  /// Seconds of each of `count` calls.
  template <class Call>
  std::vector<double> seconds(std::size_t count, Call const& call) {
    using Clock = std::chrono::steady_clock;
    exec_.fence("attikos::measure::Timer: before");
    std::vector<double> result;
    for (std::size_t i = 0; i < count; ++i) {
      auto const start = Clock::now();
      call();
      exec_.fence("attikos::measure::Timer: after");
      result.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    return result;
  }

 private:
  Exec exec_;
};

#endif

}  // namespace attikos::measure
