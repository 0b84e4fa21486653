// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launching a kernel with its label and arguments by value, and what becomes of launches that
/// fail.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/concepts.hpp>
#include <attikos/core/dispatch/cuda_capture.hpp>
#include <attikos/core/error.hpp>
#include <attikos/core/label.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Number of teams as Kokkos counts them; throws UnsupportedError if there are more than it can.
inline int checked_league(char const* operation, std::int64_t teams) {
  if (teams > std::numeric_limits<int>::max())
    raise<UnsupportedError>(
        operation, ": ", teams,
        " tiles are more than one launch can hold; expected at most 2147483647");
  return static_cast<int>(teams);
}

/// Bytes of scratch as Kokkos counts them; throws UnsupportedError if there are more than it can.
inline int checked_scratch(char const* operation, std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    raise<UnsupportedError>(operation, ": rows this long need ", bytes,
                            " bytes of scratch for each team; expected at most 2147483647");
  return static_cast<int>(bytes);
}

/// All of [0, count). On a host, in chunks of about the size that Kokkos chooses; Kokkos itself
/// would ask an instance that it makes for the number of threads, see concurrency_of().
template <class Exec>
auto range_policy(Exec const& exec, std::int64_t count) {
  using Policy = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
  if constexpr (is_host_space<Exec>) {
    std::int64_t const share = count / std::max(concurrency_of(exec), 1);
    std::int64_t const chunk =
        share / 100 >= 128 ? share / 100 : std::clamp<std::int64_t>(share / 40, 1, 128);
    return Policy(exec, 0, count,
                  Kokkos::ChunkSize(static_cast<int>(
                      std::min<std::int64_t>(chunk, std::numeric_limits<int>::max()))));
  } else {
    return Policy(exec, 0, count);
  }
}

#if defined(KOKKOS_ENABLE_CUDA)
/// Throws DeviceError; `before` is the thread's last CUDA error from before the launch, which is
/// left for the caller to find.
[[noreturn]] inline void launch_failed(char const* operation, char const* name, cudaError_t before,
                                       char const* why) {
  if (before == cudaSuccess) static_cast<void>(cudaGetLastError());
  raise<DeviceError>(operation, ": launching ", name, " failed: ", why);
}
#endif

/// Makes the Kokkos launches of `body` on instances of Exec. On CUDA, Kokkos does not ask whether a
/// kernel was launched, and throws std::runtime_error where a call before that fails: here both
/// throw DeviceError. The run time tells by the thread's last error, so that a launch goes
/// unnoticed that fails as something did before it and nobody has asked about.
template <class Exec, class Body>
void report_launches([[maybe_unused]] char const* operation, [[maybe_unused]] char const* name,
                     Body const& body) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
    // The first launch of a file's kernels copies to the device, which no graph should record.
    OutsideCapture const outside;
    cudaError_t const before = cudaPeekAtLastError();
    if (outside.status() != cudaSuccess)
      launch_failed(operation, name, before, cudaGetErrorString(outside.status()));
    try {
      body();
    } catch (std::runtime_error const& error) {
      launch_failed(operation, name, before, error.what());
    }
    cudaError_t const after = cudaPeekAtLastError();
    if (after != before) launch_failed(operation, name, before, cudaGetErrorString(after));
  } else {
    body();
  }
#else
  body();
#endif
}

/// Launches `kernel` asynchronously on the policy's instance. The hint makes CUDA take the functor
/// as a kernel argument whatever its size: passing it through constant memory would wait for the
/// launch before.
template <class Policy, class Kernel>
void launch(char const* operation, char const* name, Policy const& policy, Kernel const& kernel) {
  using Exec = typename Policy::execution_space;
  report_launches<Exec>(operation, name, [&] {
    if constexpr (is_host_space<Exec>) {
      // As it is: the hint costs a policy more, which allocates memory.
      Kokkos::parallel_for(label_if_heard(operation, name), policy, kernel);
    } else {
      Kokkos::parallel_for(label_if_heard(operation, name),
                           Kokkos::Experimental::require(
                               policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight),
                           kernel);
    }
  });
}

/// What `search` finds in [0, count) by its reducer Search::Found. Waits for it.
template <class Search, class Exec>
auto find_in(char const* operation, Exec const& exec, std::int64_t count, Search const& search) {
  typename Search::Found::value_type found{};
  report_launches<Exec>(operation, "portable", [&] {
    Kokkos::parallel_reduce(
        label(operation, "portable"),
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, count), search,
        typename Search::Found(found));
    exec.fence("attikos::" + std::string(operation));
  });
  return found;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
