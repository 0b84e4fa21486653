// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The barriers of the rings that the sm_90a attention kernels hand blocks and tiles on through.
#pragma once

#include "common/descriptor_words.cuh"
#include "common/ring.cuh"
#include "params.cuh"
#include "ptx/wgmma_a_registers.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Tile number n on its way through shared memory, once the producer has found it.
template <class Config>
__device__ __forceinline__ typename Config::Tile const& wait_for_tile(
    Sm90AttentionSignals<Config>& signals, std::uint32_t n) {
  constexpr int tiles = Sm90AttentionSignals<Config>::tiles;
  mbarrier_wait(&signals.full_tile[stage_of<tiles>(n)], parity_of<tiles>(n));
  return signals.tile[stage_of<tiles>(n)];
}
/// Tile number n has been read, as one of those that init_signals() counts says.
template <class Config>
__device__ __forceinline__ void leave_tile(Sm90AttentionSignals<Config>& signals, std::uint32_t n) {
  mbarrier_arrive(&signals.empty_tile[stage_of<Sm90AttentionSignals<Config>::tiles>(n)]);
}

/// Sets up the barriers of a block, by one thread.
template <class Config>
__device__ __forceinline__ void init_signals(Sm90AttentionParams const& p,
                                             Sm90AttentionSignals<Config>& signals) {
  constexpr int warps = 4 * Config::consumers;
  // Pages of keys and of values are brought by a warp each, rows of them found by another.
  int const producers = !Config::finds_apart   ? 0
                        : p.page_rows == 0     ? 1
                        : p.page_rows % 8 == 0 ? 2
                                               : 3;
  if constexpr (Config::copies_rows)
    for (int s = 0; s < Config::stages; ++s) {
      mbarrier_init(&signals.full_rows[s], 1);
      mbarrier_init(&signals.empty_rows[s], 2);
    }
  for (int s = 0; s < Config::stages; ++s) {
    mbarrier_init(&signals.full_k[s], 1 + Config::column_producers);
    mbarrier_init(&signals.full_v[s], Config::transposes ? Config::transposers : 1);
    mbarrier_init(&signals.empty_k[s], warps);
    mbarrier_init(&signals.empty_v[s], warps);
  }
  for (int s = 0; s < signals.tiles; ++s) {
    mbarrier_init(&signals.full_tile[s], 1);
    mbarrier_init(&signals.empty_tile[s], warps + Config::transposers + Config::bias_producers +
                                              Config::column_producers + producers);
  }
  if constexpr (Config::transposes)
    for (int s = 0; s < Config::raw_stages; ++s) {
      mbarrier_init(&signals.full_raw[s], 1);
      mbarrier_init(&signals.empty_raw[s], Config::transposers);
    }
  if constexpr (Config::copies_bias)
    for (int consumer = 0; consumer < Config::consumers; ++consumer)
      for (int s = 0; s < Config::bias_stages; ++s) {
        mbarrier_init(&signals.full_bias[consumer][s], 1);
        mbarrier_init(&signals.empty_bias[consumer][s], 4);
      }
  for (int s = 0; s < Config::q_slots; ++s) {
    mbarrier_init(&signals.full_q[s], 1);
    mbarrier_init(&signals.empty_q[s], 4);
  }
  fence_mbarrier_init();
}

/// Rows of a block from `length` on become 0, by `Threads` threads, before they meet. For values of
/// keys past a sequence's end: a weight of 0 would make a NaN of a NaN.
template <class Config, int Threads>
__device__ __forceinline__ void clear_rows(unsigned char* block, int length, int thread) {
#pragma unroll 1
  for (int at = length * 8 + thread; at < Config::tile_n * 8; at += Threads) {
#pragma unroll
    for (int panel = 0; panel < Config::v_panels; ++panel)
      *reinterpret_cast<uint4*>(block + panel * Config::tile_n * 128 + at * 16) =
          make_uint4(0, 0, 0, 0);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
