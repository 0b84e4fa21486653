// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Names under which Kokkos Tools sees kernels.
#pragma once

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

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
