// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How the consumer warpgroups of a block go about their work. Which tile a block takes next is a
/// matter of each family, since they number different things: Sm80Tiles and Sm90Tiles of gemm,
/// GroupWalk of its groups, find_tile() of attention.
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
