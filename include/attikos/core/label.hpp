// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Names under which Kokkos Tools sees kernels.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/config.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// `attikos::gemm[portable]`
inline std::string label(char const* operation, char const* kernel) {
  // Appended piece by piece: for a sum of strings GCC 12 warns, behind precompiled headers, of a
  // write past the buffer.
  std::string text("attikos::");
  text += operation;
  text += '[';
  text += kernel;
  text += ']';
  return text;
}

/// The same for a launch or a region; nothing where no tool listens. Nothing may be allocated
/// between two launches of a call: that could fail when half of the result has been written.
inline std::string label_if_heard(char const* operation, char const* kernel) {
  return Kokkos::Tools::profileLibraryLoaded() ? label(operation, kernel) : std::string();
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
