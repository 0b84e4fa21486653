// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The thread's and the block's number, out of sight of the compiler's scheduling.
///
/// Source: PTX ISA 9.0, "Special Registers: %tid", "%ctaid".
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// threadIdx.x, read where it is used: what follows from it is then not worked out early and kept
/// in registers that a main loop needs.
__device__ __forceinline__ int fresh_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  __builtin_assume(thread >= 0 && thread < 1024);
  return thread;
}

/// blockIdx.x, likewise read where it is used.
__device__ __forceinline__ int fresh_block() {
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
