// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Descriptors of wgmma's operands by their low words: the high word is the same for all operands,
/// so that only the low one, which counts in units of 16 bytes, takes a register.
///
/// Kernels of gemm keep whole descriptors and advance() them: the compiler finds the constant word
/// by itself there. With words gemm/sm90/kernel_split_k.cuh has as many registers, but other code,
/// which nobody has timed.
#pragma once

#include "ptx/wgmma.cuh"
#include "uniform.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The low word of an operand_descriptor().
__device__ __forceinline__ std::uint32_t descriptor_word(void const* base, std::uint32_t leading) {
  return static_cast<std::uint32_t>(operand_descriptor(base, leading));
}
/// The same in a uniform register, if `base` is equal in all lanes.
__device__ __forceinline__ std::uint32_t operand_word(void const* base, std::uint32_t leading) {
  return uniform(descriptor_word(base, leading));
}
/// That of stage `stage` of a ring, `bytes` apart.
__device__ __forceinline__ std::uint32_t at_stage(std::uint32_t word, std::uint32_t stage,
                                                  int bytes) {
  return uniform(word + stage * static_cast<std::uint32_t>(bytes >> 4));
}
/// The descriptor `bytes` further on.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t word, int bytes = 0) {
  constexpr std::uint64_t high = std::uint64_t{1024 >> 4 | 1 << 30}
                                 << 32;  // as operand_descriptor()
  return high | (word + static_cast<std::uint32_t>(bytes >> 4));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
