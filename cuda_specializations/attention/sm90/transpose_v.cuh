// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Values of 8 bits on their way from the copy engine to the products: wgmma reads operands of 8
/// bits only with their unit stride along the sum, which for values runs over keys.
///
/// ldmatrix transposes pairs of bytes: a thread receives two neighbouring features of two keys, and
/// with a second matrix of the next two keys eight apart. Byte permutations part the features, and
/// stmatrix stores sixteen keys of each. So the keys of 32 stand in the order 16 h + 8 e + 2 q + j
/// at place 16 h + 4 q + 2 e + j: that in which a thread's weights lie, four to a register, without
/// exchange among threads. Features 2 g and 2 g + 1 of sixteen become rows g and g + 8, which keeps
/// stmatrix free of bank conflicts and gives a thread four neighbouring columns of the result.
///
/// Source: J. Shah et al., "FlashAttention-3", arXiv:2407.08608, for transposition by the producer;
/// PTX ISA 9.0, "ldmatrix", "stmatrix", "prmt" and the fragments of "wgmma.mma_async".
#pragma once

#include <attikos/ptx/ldmatrix.hpp>

#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/tma.cuh"
#include "ring.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Brings one block of values into the order of products, the share of warp `warp` of `Warps`.
/// `raw`: panels of 128 features, a row of 128 bytes for each key; `to`: panels of 128 keys, a row
/// for each feature; both swizzled as the copy engine does. `Together` times 32 keys × 16 features
/// are on their way through registers at a time.
template <int TileN, int D, unsigned Warps, int Together>
__device__ __forceinline__ void transpose_block(std::uint32_t raw, std::uint32_t to,
                                                unsigned warp) {
  unsigned const lane = static_cast<unsigned>(fresh_thread()) % 32, swizzle = lane % 8 * 16;
  // Row `lane` of 32 keys; row lane % 8 of the even or odd features, keys 0 to 15 or 16 to 31.
  raw += lane * 128 + swizzle;
  to += lane % 16 * 128 + ((lane & 16) ^ swizzle);
#pragma unroll 1
  for (unsigned group = warp; group < D / 16; group += Warps) {  // of 16 features
    std::uint32_t const from = (raw ^ (group % 8 * 16)) + group / 8 * (TileN * 128);
    std::uint32_t const into = to + group * 2048;
#pragma unroll
    for (int begin = 0; begin < TileN / 32; begin += Together) {
      std::uint32_t x[Together][4];
#pragma unroll
      for (int n = 0; n < Together; ++n)
        if (begin + n < TileN / 32) load_matrices<true>(x[n], from + (begin + n) * 4096);
#pragma unroll
      for (int n = 0; n < Together; ++n)
        if (begin + n < TileN / 32)
          store_matrices(
              (into ^ ((begin + n) % 4 * 32)) + (begin + n) / 4 * (D * 128),
              __byte_perm(x[n][0], x[n][1], 0x6420), __byte_perm(x[n][0], x[n][1], 0x7531),
              __byte_perm(x[n][2], x[n][3], 0x6420), __byte_perm(x[n][2], x[n][3], 0x7531));
    }
  }
}

constexpr int transpose_barrier = 7;  // the warps that transpose

/// The loop of the warps of the producer that transpose.
template <class Config>
__device__ __forceinline__ void transpose_values(unsigned char* raw_ring, unsigned char* v_ring,
                                                 Sm90AttentionSignals<Config>& signals, int warp) {
  static_assert(Config::stages == 2 && Config::raw_stages == 2);
  constexpr int threads = Config::transposers * 32;
  // So far; place and phase as in stage_of() and parity_of().
  std::uint32_t tiles = 0, blocks = 0;
  while (true) {
    auto const& t = wait_for_tile(signals, tiles);
    if (t.row0 < 0) return;
    int left = t.end - t.first;
    bool clears = t.poisoned_tail != 0;  // the last block, which comes first, from `keys` on
    int const keys = max(0, t.len_kv - (t.end - 1) * Config::tile_n);
    __syncwarp();
    if (threadIdx.x % 32 == 0) leave_tile(signals, tiles);
    ++tiles;
    for (; left > 0; --left, ++blocks) {
      std::uint32_t const at = blocks % 2, phase = blocks / 2 % 2;
      unsigned char* const raw = raw_ring + at * Config::raw_bytes;
      mbarrier_wait(&signals.full_raw[at], phase);
      if (clears) {
        clear_rows<Config, threads>(raw, keys, fresh_thread() - 32);
        named_barrier_sync(transpose_barrier, threads);
        clears = false;
      }
      mbarrier_wait(&signals.empty_v[at], phase ^ 1);
      transpose_block<Config::tile_n, Config::dv, Config::transposers,
                      Config::producer_registers == 24 ? 1 : 4>(
          shared_address(raw), shared_address(v_ring + at * Config::v_bytes),
          static_cast<unsigned>(warp));
      fence_proxy_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(&signals.full_v[at]);
        mbarrier_arrive(&signals.empty_raw[at]);
      }
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
