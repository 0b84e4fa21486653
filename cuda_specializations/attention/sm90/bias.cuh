// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A bias that the copy engine brings into shared memory ahead of the scores it is added to.
///
/// A warpgroup has a ring of its own of two places and a warp of the producer that fills it. A
/// place holds boxes of 64 queries and 128 bytes of keys: a block's keys in 16 bits, half of them
/// in 32.
#pragma once

#include <attikos/ptx/ldmatrix.hpp>

#include "ptx/shared_memory.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/tma_4d.cuh"
#include "ring.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr int bias_box_bytes = 64 * 128;

/// The loop of the thread that loads the biases of a warpgroup's queries.
template <class Config>
__device__ __forceinline__ void produce_bias(Sm90AttentionParams const& p, unsigned char* ring,
                                             Sm90AttentionSignals<Config>& signals, int consumer) {
  constexpr int boxes = Config::bias_bytes / bias_box_bytes;
  int const keys = p.args.type_bias == DType::float32 ? 32 : 64;  // of a box
  // What heads share is read again soon.
  Keep const keep = p.bias_steps[0] == 0 ? Keep::normal : Keep::briefly;
  ring += consumer * Config::bias_stages * Config::bias_bytes;
  RingPosition<Config::bias_stages> at;
  for (std::uint32_t tiles = 0;; ++tiles) {
    auto const& t = wait_for_tile(signals, tiles);
    int const row0 = t.row0, row = row0 + consumer * 64;
    int const h = t.head * p.bias_steps[0], b = t.batch * p.bias_steps[1];
    int j = t.end * Config::tile_n;
    int const first = t.end > t.first ? t.first * Config::tile_n : j;
    leave_tile(signals, tiles);
    if (row0 < 0) return;
    while (j > first) {
      j -= Config::tile_n;
      int x = j;
      do {
        std::uint64_t* const full = &signals.full_bias[consumer][at.stage];
        mbarrier_wait(&signals.empty_bias[consumer][at.stage], at.phase ^ 1);
        mbarrier_arrive_expect(full, Config::bias_bytes);
#pragma unroll
        for (int box = 0; box < boxes; ++box, x += keys)
          tma_load(ring + at.stage * Config::bias_bytes + box * bias_box_bytes, &p.bias, full, keep,
                   x, row, h, b);
        at.next();
      } while (x < j + Config::tile_n);
    }
  }
}

/// Where a thread of a warpgroup reads in a box of 16-bit biases: row l % 16 of its warp's, keys
/// 0 or 8 to the next 7.
__device__ __forceinline__ std::uint32_t lane_address_16(std::uint32_t thread) {
  std::uint32_t const row = thread / 32 * 16 + thread % 16;
  return row * 128 + ((thread % 32 / 16 ^ row % 8) << 4);
}

/// The same of float32, 32 keys. Of the blocks of eight keys that lie 64 bytes apart, threads of
/// odd queries read the second first, so that queries that are read together are in other banks.
__device__ __forceinline__ std::uint32_t lane_address_32(std::uint32_t thread) {
  std::uint32_t const g = thread % 32 / 4, q = thread % 4;
  return (thread / 32 * 16 + g) * 128 + (((q / 2 ^ g) << 4 | q % 2 << 3) ^ g % 2 << 6);
}

/// Adds a box of 16-bit biases of 64 keys, times `factor`, to products, or puts it where they will
/// be added if it comes first. Returns bits of all that was read, as add_box_32() does.
template <class B, bool First>
__device__ __forceinline__ std::uint32_t add_box_16(float* s, std::uint32_t at, float factor) {
  std::uint32_t seen = 0;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    std::uint32_t words[4];
    load_matrices(words, at ^ (step * 32));
    seen ^= words[0];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float2 const x = widen_pair<B>(words[w]);
      float* const pair = s + 8 * step + 2 * w;
      pair[0] = fmaf(x.x, factor, First ? 0.0f : pair[0]);
      pair[1] = fmaf(x.y, factor, First ? 0.0f : pair[1]);
    }
  }
  return seen;
}

/// The same of float32 biases of 32 keys.
template <bool First>
__device__ __forceinline__ std::uint32_t add_box_32(float* s, std::uint32_t at, float factor,
                                                    bool odd) {
  std::uint32_t seen = 0;
#pragma unroll
  for (int step = 0; step < 2; ++step)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 const x = load_shared_two((at ^ (step * 32)) + half * 1024);
      float2 const y = load_shared_two((at ^ (step * 32) ^ 64) + half * 1024);
      seen ^= __float_as_uint(x.x) ^ __float_as_uint(y.x);
      float* const low = s + 4 * step + 2 * half;
      float* const high = low + 8;
      low[0] = fmaf(odd ? y.x : x.x, factor, First ? 0.0f : low[0]);
      low[1] = fmaf(odd ? y.y : x.y, factor, First ? 0.0f : low[1]);
      high[0] = fmaf(odd ? x.x : y.x, factor, First ? 0.0f : high[0]);
      high[1] = fmaf(odd ? x.y : y.y, factor, First ? 0.0f : high[1]);
    }
  return seen;
}

/// Adds the bias to the products of block number `block` of a warpgroup, in units of the products,
/// or puts it where they will be added.
template <class Config>
__device__ __forceinline__ void add_copied_bias(Sm90AttentionParams const& p,
                                                float (&s)[Config::tile_n / 2], unsigned char* ring,
                                                Sm90AttentionSignals<Config>& signals, int consumer,
                                                std::uint32_t block) {
  constexpr int boxes = Config::bias_bytes / bias_box_bytes;
  std::uint32_t const thread = static_cast<std::uint32_t>(fresh_thread()) % 128;
  std::uint32_t const own =
      shared_address(ring) + consumer * Config::bias_stages * Config::bias_bytes;
  // Gives a place back. An arrival does not wait for earlier reads whose results have not been
  // used, and beside products these may be late: so bits of all that was read are used first.
  auto const release = [&](std::uint32_t stage, std::uint32_t seen) {
    __syncwarp();
    if (thread % 32 == 0)
      mbarrier_arrive(&signals.empty_bias[consumer][stage] + (seen & p.bias_none));
  };
  auto const add_16 = [&](auto* type) {
    std::uint32_t const stage = stage_of<2>(block);
    std::uint32_t const at = own + lane_address_16(thread) + stage * Config::bias_bytes;
    mbarrier_wait(&signals.full_bias[consumer][stage], parity_of<2>(block));
    std::uint32_t seen = 0;
#pragma unroll
    for (int box = 0; box < boxes; ++box)
      seen ^= add_box_16<std::remove_pointer_t<decltype(type)>, Config::bias_first>(
          s + 32 * box, at + box * bias_box_bytes, p.bias_factor);
    release(stage, seen);
  };
  if (p.args.type_bias == DType::float32) {
#pragma unroll
    for (int stage = 0; stage < 2; ++stage) {
      std::uint32_t const at = own + lane_address_32(thread) + stage * Config::bias_bytes;
      mbarrier_wait(&signals.full_bias[consumer][stage], block % 2);
      std::uint32_t seen = 0;
#pragma unroll
      for (int box = 0; box < boxes; ++box)
        seen ^= add_box_32<Config::bias_first>(s + 16 * (boxes * stage + box),
                                               at + box * bias_box_bytes, p.bias_factor,
                                               thread % 8 >= 4);
      release(static_cast<std::uint32_t>(stage), seen);
    }
  } else if (p.args.type_bias == DType::bfloat16) {
    add_16(static_cast<__nv_bfloat16*>(nullptr));
  } else {
    add_16(static_cast<__half*>(nullptr));
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
