// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launching a team kernel with its label, its scratch and arguments by value.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/cuda_capture.hpp>
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

/// Launches `kernel` asynchronously on the policy's instance. The hint makes CUDA take the functor
/// as a kernel argument whatever its size: the way through constant memory would wait for the
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
