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
  return std::string("attikos::") + operation + '[' + kernel + ']';
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
