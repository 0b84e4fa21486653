// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launching a team kernel with its label, its scratch and arguments by value.
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
#include <type_traits>
#include <variant>

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

/// Launches `kernel` asynchronously on the policy's instance. The hint makes CUDA take the functor
/// as a kernel argument whatever its size: passing it through constant memory would wait for the
/// launch before.
template <class Policy, class Kernel>
void launch(char const* operation, char const* name, Policy const& policy, Kernel const& kernel) {
#if defined(KOKKOS_ENABLE_CUDA)
  // The first launch of a file's kernels copies to the device, which no graph should record.
  std::conditional_t<std::is_same_v<typename Policy::execution_space, Kokkos::Cuda>, OutsideCapture,
                     std::monostate> const outside{};
  static_cast<void>(outside);
#endif
  if constexpr (is_host_space<typename Policy::execution_space>) {
    // As it is: the hint costs a policy more, which allocates memory.
    Kokkos::parallel_for(label_if_heard(operation, name), policy, kernel);
  } else {
    Kokkos::parallel_for(label_if_heard(operation, name),
                         Kokkos::Experimental::require(
                             policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight),
                         kernel);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
