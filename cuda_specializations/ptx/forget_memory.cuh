// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the compiler may conclude about memory.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// From here on the compiler knows nothing of what memory holds: what was stored there is read anew
/// and takes no registers until then. No instruction.
__device__ __forceinline__ void forget_memory() { asm volatile("" ::: "memory"); }

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
