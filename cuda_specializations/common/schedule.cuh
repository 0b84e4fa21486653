// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How the consumer warpgroups of a block go about their work.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// All of them at once, or one after the other, so that one's products run beside what another does
/// with its sums.
enum class Schedule { cooperative, ping_pong };

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
