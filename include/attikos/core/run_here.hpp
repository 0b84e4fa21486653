// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Calls that are over before threads would have been woken: the calling thread does them.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/label.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Whether kernels on instances of the space are done when their launch returns, so that the
/// calling thread may do their work in its place.
template <class Exec>
inline constexpr bool runs_at_once =
#if defined(KOKKOS_ENABLE_OPENMP)
    std::is_same_v<Exec, Kokkos::OpenMP> ||
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
    std::is_same_v<Exec, Kokkos::Serial> ||
#endif
    false;

/// Operations up to which that is sooner. Small problems do some 10^10 in a second and a core;
/// waking threads and waiting for them takes 5 to 20 microseconds, and n threads save no more than
/// the share (n − 1)/n of the time that one takes.
inline constexpr double few_operations = 1e5;

/// Does `body` in the calling thread. Kokkos's tools hear of it as of a launch.
template <class Exec, class Body>
void run_here(char const* operation, char const* name, Exec const& exec, Body const& body) {
  if (!Kokkos::Tools::profileLibraryLoaded()) return body();
  std::uint64_t id = 0;
  Kokkos::Tools::beginParallelFor(label(operation, name),
                                  Kokkos::Tools::Experimental::device_id(exec), &id);
  body();
  Kokkos::Tools::endParallelFor(id);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
