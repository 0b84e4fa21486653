// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Copies of boxes of tensors of four dimensions by the copy engine (TMA).
///
/// Source: PTX ISA 9.0, "cp.async.bulk.tensor".
#pragma once

#include "tma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Loads the box at (x, y, z, w), x along the unit stride and a multiple of 16 bytes. What lies
/// outside the tensor becomes zero and counts as bytes too.
__device__ __forceinline__ void tma_load(void* to, CUtensorMap const* map, std::uint64_t* barrier,
                                         Keep keep, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w),
      "l"(static_cast<std::uint64_t>(keep))
      : "memory");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
