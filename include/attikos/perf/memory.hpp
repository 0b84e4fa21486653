// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Peak of the memory that Kokkos allocates while a piece of code runs.
#pragma once

#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace perf {

/// Listens, while it lives, to the allocations that Kokkos Tools report for one memory space, and
/// hands each event on to whoever listened before. One at a time in a process.
///
/// Counted is what goes through Kokkos in that memory space, by any host thread: Views, the
/// library's workspace, scratch of team kernels where Kokkos allocates it. Not counted: what was
/// allocated before, and what comes from elsewhere (malloc, cudaMalloc, a vendor's library).
template <class MemorySpace>
class MemoryPeak {
 public:
  MemoryPeak() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    state() = State{};
    previous() = before_;
    Kokkos::Tools::Experimental::set_allocate_data_callback(&allocated);
    Kokkos::Tools::Experimental::set_deallocate_data_callback(&deallocated);
  }
  MemoryPeak(MemoryPeak const&) = delete;
  MemoryPeak& operator=(MemoryPeak const&) = delete;
  ~MemoryPeak() { Kokkos::Tools::Experimental::set_callbacks(before_); }

  /// Largest number of bytes alive at once, less those alive at the start.
  std::int64_t bytes() const { return state().peak.load(); }

 private:
  using Events = Kokkos::Tools::Experimental::EventSet;
  using Handle = Kokkos::Tools::SpaceHandle;

  // Callbacks are plain functions: what they count lies here.
  struct State {
    std::atomic<std::int64_t> alive{0};
    std::atomic<std::int64_t> peak{0};
    State() = default;
    State& operator=(State const&) {
      alive = 0;
      peak = 0;
      return *this;
    }
  };
  static State& state() {
    static State state;
    return state;
  }
  static Events& previous() {
    static Events events;
    return events;
  }

  static bool counts(Handle const& handle) {
    return std::strncmp(handle.name, MemorySpace::name(), sizeof handle.name) == 0;
  }

  static void allocated(Handle handle, char const* label, void const* data, std::uint64_t bytes) {
    if (previous().allocate_data != nullptr) previous().allocate_data(handle, label, data, bytes);
    if (!counts(handle)) return;
    std::int64_t const alive = state().alive += static_cast<std::int64_t>(bytes);
    std::int64_t peak = state().peak.load();
    while (alive > peak && !state().peak.compare_exchange_weak(peak, alive)) {
    }
  }

  static void deallocated(Handle handle, char const* label, void const* data, std::uint64_t bytes) {
    if (previous().deallocate_data != nullptr)
      previous().deallocate_data(handle, label, data, bytes);
    if (counts(handle)) state().alive -= static_cast<std::int64_t>(bytes);
  }

  Events before_;
};

}  // namespace perf
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
