// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How far the bits of a result repeat.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// How far bits repeat: not at all; from call to call of one problem on one machine, which all
/// operations do unless they say otherwise; and whatever else a batch holds beside a sequence. A
/// result may repeat further than is asked for.
enum class Determinism : std::uint8_t { unordered, run_to_run, batch_invariant };

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
