// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Loads that nobody waits for, and whether an address has any use for them.
///
/// Source: PTX ISA 9.0, "Data Movement and Conversion Instructions":
/// "isspacep", "prefetch".
#pragma once

#include <attikos/config.hpp>

#if defined(__CUDACC__)
namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Whether an address is that of global memory.
__device__ __forceinline__ bool is_global(void const* address) {
  int global;
  asm("{\n.reg .pred global;\n"
      "isspacep.global global, %1;\n"
      "selp.s32 %0, 1, 0, global;\n}"
      : "=r"(global)
      : "l"(address));
  return global != 0;
}

/// Brings the line of an address nearer.
__device__ __forceinline__ void prefetch_line(void const* from) {
  asm volatile("prefetch.L1 [%0];" ::"l"(from));
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#endif
