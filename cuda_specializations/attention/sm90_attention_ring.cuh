// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rings of shared memory that the sm_90a attention kernels hand blocks on through, and descriptors
/// of what lies in them.
#pragma once

#include "../ptx/mbarrier.cuh"
#include "../ptx/wgmma_a_registers.cuh"
#include "sm90_attention_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Position in a ring of stages.
template <int Stages>
struct RingPosition {
  int stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// The same value, known to the compiler as equal in all lanes.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }

/// The low word of an operand's descriptor; the high word is the same for all of them. Equal in all
/// lanes and known to the compiler as such, which then keeps it in uniform registers.
__device__ __forceinline__ std::uint32_t operand_word(void const* base, std::uint32_t leading) {
  return __shfl_sync(0xffffffff, static_cast<std::uint32_t>(operand_descriptor(base, leading)), 0);
}
__device__ __forceinline__ std::uint32_t at_stage(std::uint32_t word, std::uint32_t stage,
                                                  int bytes) {
  return __shfl_sync(0xffffffff, word + stage * static_cast<std::uint32_t>(bytes >> 4), 0);
}
/// The descriptor `bytes` further on.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t word, int bytes) {
  constexpr std::uint64_t high = std::uint64_t{1024 >> 4 | 1 << 30}
                                 << 32;  // as operand_descriptor()
  return high | (word + static_cast<std::uint32_t>(bytes >> 4));
}

/// Rows of a block from `length` on become 0, by `Threads` threads, before they meet. For values of
/// keys past a sequence's end: a weight of 0 would make a NaN of a NaN.
template <class Config, int Threads>
__device__ __forceinline__ void clear_rows(unsigned char* block, int length, int thread) {
#pragma unroll 1
  for (int at = length * 8 + thread; at < Config::tile_n * 8; at += Threads) {
#pragma unroll
    for (int panel = 0; panel < Config::panels; ++panel)
      *reinterpret_cast<uint4*>(block + panel * Config::tile_n * 128 + at * 16) =
          make_uint4(0, 0, 0, 0);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
