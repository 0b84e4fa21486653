// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Numbers of which the compiler does not know where they are from.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

#if defined(__CUDACC__)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Leaves x as it is.
__device__ __forceinline__ void make_opaque(std::int64_t& x) { asm volatile("" : "+l"(x)); }

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
