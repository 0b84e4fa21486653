// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// 16-bit tiles in shared memory as kernels of attention, its gradients and decode through mma.sync
/// keep them, and products of a warp.
#pragma once

#include <cuda_fp16.h>

#include <attikos/ptx/mma_sync.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// One product of a warp with 16-bit factors.
template <class T>
__device__ __forceinline__ void multiply_16(float (&d)[4], std::uint32_t const (&a)[4],
                                            std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    mma_f16(d, a, b0, b1);
  else
    mma_bf16(d, a, b0, b1);
}

/// Offset of what lies `bytes` behind the chunk at offset `at` of a row: eight chunks are permuted
/// among themselves. Few numbers, so that they can be kept, and constants.
__device__ __forceinline__ std::uint32_t chunk_at(std::uint32_t at, std::uint32_t bytes) {
  return (at ^ (bytes & 127u)) + (bytes & ~127u);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
