// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// host_isa(): which instruction set host kernels of this process use.
#pragma once

#include <attikos/core/error.hpp>
#include <attikos/host/isa.hpp>
#include <cstdlib>
#include <string>
#include <string_view>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The instruction set of that name, or `most` where it is null or empty. Throws UnsupportedError,
/// with a list of what there is, if the name is unknown or stands for more than `most`.
inline HostIsa chosen_host_isa(char const* wanted, HostIsa most) {
  if (wanted == nullptr || *wanted == '\0') return most;
  std::string available;
  bool known = false;
  for (int i = 0; i < host_isa_count; ++i) {
    auto const isa = static_cast<HostIsa>(i);
    bool const named = std::string_view(wanted) == host_isa_name(isa);
    if (named && isa <= most) return isa;
    known = known || named;
    if (isa <= most) available += std::string(i == 0 ? "" : ", ") + host_isa_name(isa);
  }
  raise<UnsupportedError>("host_isa: ATTIKOS_HOST_ISA is \"", wanted, "\", which ",
                          known ? "this machine does not have" : "is no instruction set",
                          "; available: ", available);
}

}  // namespace detail

/// The instruction set of host kernels in this process: what ATTIKOS_HOST_ISA names, or without it
/// the most that the machine has. Decided once, at the first call that wants to know. Results may
/// depend on it in their last bits, never on the number of threads.
///
/// Throws UnsupportedError if the variable names what is not there, at every call.
inline HostIsa host_isa() {
  static HostIsa const chosen =
      detail::chosen_host_isa(std::getenv("ATTIKOS_HOST_ISA"), detail::host::machine_isa());
  return chosen;
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
