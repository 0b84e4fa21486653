// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rings of shared memory that the sm_90a attention kernels hand blocks on through.
#pragma once

#include "../ptx/mbarrier.cuh"
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
