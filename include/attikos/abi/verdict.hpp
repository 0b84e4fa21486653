// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Answer of a specialization that was asked whether it takes a call.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// Whether a specialization takes a call; if not, why, in the user's words.
///
/// It is asked once a call: `launch` is for arguments that `accepts` took on the same device, and
/// asks again in builds without NDEBUG alone.
///
/// `reason` is static text, never null, and reaches the user through `explain` and error messages.
/// It is empty when `ok` is true.
struct Verdict {
  bool ok;
  char const* reason;
};

/// The call can be taken.
constexpr Verdict accepted() noexcept { return Verdict{true, ""}; }

/// The call cannot be taken. `reason` must be static text, e.g. "A is bfloat16; this kernel
/// multiplies float16".
constexpr Verdict refused(char const* reason) noexcept { return Verdict{false, reason}; }

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
