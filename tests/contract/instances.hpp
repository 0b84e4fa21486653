// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Instances, and what operations of the contract suite compute on them, for lives of both.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "../support/backends.hpp"
#include "../support/lives.hpp"
#include "operations.hpp"

#define REQUIRE(condition) \
  if (!(condition)) fail(#condition)

namespace attikos::test {

#if defined(KOKKOS_ENABLE_CUDA)
using Default = Kokkos::Cuda;
#else
using Default = Kokkos::DefaultExecutionSpace;
#endif

inline void initialize() {
  Kokkos::initialize(Kokkos::InitializationSettings().set_disable_warnings(true));
}
struct Running {
  Running() { initialize(); }
  ~Running() { Kokkos::finalize(); }
};

template <class F, class... Spaces>
void on_each_space(F const& run, List<Spaces...>) {
  (run(std::type_identity<Spaces>{}), ...);
}
/// run(std::type_identity<Exec>) for every space.
template <class F>
void on_each_space(F const& run) {
  on_each_space(run, ExecutionSpaces{});
}
/// An instance that is nobody else's, OpenMP's of so many threads. The caller destroys a stream.
template <class Exec>
Exec new_instance([[maybe_unused]] int threads = 1) {
#if defined(KOKKOS_ENABLE_CUDA)
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  return Exec(stream);
#else
  if constexpr (std::is_constructible_v<Exec, int>)
    return Exec(threads);
  else
    return Kokkos::Experimental::partition_space(Exec(), 1)[0];
#endif
}

/// The same, told to the library when it ends.
template <class Exec>
class Own {
 public:
  Own() = default;
  ~Own() {
    exec_.fence();
    detail::forget_workspaces(exec_);
#if defined(KOKKOS_ENABLE_CUDA)
    cudaStreamDestroy(exec_.cuda_stream());
#endif
  }
  Own(Own const&) = delete;
  Own& operator=(Own const&) = delete;
  Exec const& operator*() const { return exec_; }

 private:
  Exec exec_ = new_instance<Exec>();
};

/// Operations, each `every`-th of the contract suite's, and the bits that they give.
template <class Exec>
class Work {
 public:
  explicit Work(std::size_t every = 1, Exec const& exec = Exec()) {
    auto const all = operations<Exec, float>();
    for (std::size_t i = 0; i < all.size(); i += every) list_.push_back(all[i]);
    for (auto const& operation : list_) {
      operation.output.clear();
      operation.call(exec);
      exec.fence();
      bits_.push_back(operation.output.bytes());
    }
  }
  std::size_t size() const { return list_.size(); }
  auto const& operation(std::size_t i) const { return list_[i % size()]; }
  auto const& bits(std::size_t i) const { return bits_[i % size()]; }

  /// The operation of a thread's i-th call, which none of three other threads takes. Every fourth
  /// operation writes what no other of these does.
  std::size_t of_thread(int thread, int i) const { return sz(thread) + 4 * (sz(i) % (size() / 4)); }

  bool is_right(Exec const& exec, std::size_t i) const {
    operation(i).output.clear();
    operation(i).call(exec);
    exec.fence();
    return operation(i).output.bytes() == bits(i);
  }
  bool all_are_right(Exec const& exec) const {
    for (std::size_t i = 0; i < size(); ++i)
      if (!is_right(exec, i)) return false;
    return true;
  }

 private:
  std::vector<Operation<Exec>> list_;
  std::vector<std::vector<std::byte>> bits_;
};
/// Whether a call gives the same again, by itself alone: nothing of Kokkos's default instance is
/// used, which neither a forked child nor a process that ends can count on.
template <class Exec>
bool is_right_by_itself(Work<Exec> const& work, Exec const& exec, std::size_t i) {
  work.operation(i).call(exec);
  exec.fence();
  if (!is_host_space<Exec>) return true;
  auto const now = work.operation(i).output.memory;
  auto const& bits = work.bits(i);
  return std::equal(now.begin(), now.end(), bits.begin(), bits.end());
}

/// Where it is not known when Kokkos ends, Views must not be destroyed.
template <class Exec>
Work<Exec> const& kept_work() {
  static auto const& work = *new Work<Exec>(4);
  return work;
}

/// What the library holds as workspace, as Kokkos's tools are told.
struct Held {
  static inline std::mutex mutex;
  static inline std::uint64_t bytes = 0, largest = 0;

  static void listen() {
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, char const* name, void const*, std::uint64_t size) {
          if (std::strncmp(name, "attikos::workspace", 18) != 0) return;
          std::lock_guard<std::mutex> const lock(mutex);
          bytes += size;
          if (size > largest) largest = size;
        });
    Kokkos::Tools::Experimental::set_deallocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, char const* name, void const*, std::uint64_t size) {
          if (std::strncmp(name, "attikos::workspace", 18) != 0) return;
          std::lock_guard<std::mutex> const lock(mutex);
          bytes -= size;
        });
  }
};

}  // namespace attikos::test
