// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Time of single calls: device events where there is a device, the steady clock elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <support/settings.hpp>
#include <vector>

namespace attikos::perf {

#if defined(KOKKOS_ENABLE_CUDA)

inline void check_cuda(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

/// Calls are launched back to back; an event stands between any two of them.
class Timer {
 public:
  explicit Timer(Exec const& exec) : exec_(exec) {}
  Timer(Timer const&) = delete;
  Timer& operator=(Timer const&) = delete;
  ~Timer() {
    for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  }

  /// Seconds of each of `count` calls.
  template <class Call>
  std::vector<double> seconds(std::size_t count, Call const& call) {
    while (events_.size() <= count) {
      cudaEvent_t event;
      check_cuda(cudaEventCreate(&event));
      events_.push_back(event);
    }
    check_cuda(cudaEventRecord(events_[0], exec_.cuda_stream()));
    for (std::size_t i = 1; i <= count; ++i) {
      call();
      check_cuda(cudaEventRecord(events_[i], exec_.cuda_stream()));
    }
    check_cuda(cudaEventSynchronize(events_[count]));
    std::vector<double> result;
    for (std::size_t i = 0; i < count; ++i) {
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]));
      result.push_back(1e-3 * static_cast<double>(milliseconds));
    }
    return result;
  }

 private:
  Exec exec_;
  std::vector<cudaEvent_t> events_;
};

#else

class Timer {
 public:
  explicit Timer(Exec const& exec) : exec_(exec) {}

  /// Seconds of each of `count` calls.
  template <class Call>
  std::vector<double> seconds(std::size_t count, Call const& call) {
    using Clock = std::chrono::steady_clock;
    exec_.fence("attikos::perf::Timer: before");
    std::vector<double> result;
    for (std::size_t i = 0; i < count; ++i) {
      auto const start = Clock::now();
      call();
      exec_.fence("attikos::perf::Timer: after");
      result.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    return result;
  }

 private:
  Exec exec_;
};

#endif

}  // namespace attikos::perf
