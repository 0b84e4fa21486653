// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From sums in registers, as wgmma and mma.sync leave them, to gradients of keys and values.
#pragma once

#include <cstdint>

#include "ptx/global_memory.cuh"
#include "ptx/thread_index.cuh"
#include "sequences/score_math.cuh"
#include "tiles.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Stores the gradients of 64 keys, rows of `sums` times `factor`: this thread's rows are `row` and
/// `row` + 8, as far as `existing` rows exist.
template <class T, int D>
__device__ __forceinline__ void store_gradients(T* to, std::int64_t const (&stride)[4], int width,
                                                bool vectors, float const (&sums)[D / 2],
                                                float factor, int row, int existing) {
  int const q = fresh_thread() % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    bool const exists = row + 8 * i < existing;
    T* const at = to + (row + 8 * i) * stride[2];
    if (vectors) {
      // Neighbouring lanes swap halves of two blocks of eight columns: each has four columns then.
      bool const odd = q % 2 != 0;
      int const column = q % 2 * 8 + q / 2 * 4;
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint2 four = make_uint2(
            pack_pair<T>(sums[8 * n + 2 * i] * factor, sums[8 * n + 2 * i + 1] * factor),
            pack_pair<T>(sums[8 * n + 4 + 2 * i] * factor, sums[8 * n + 5 + 2 * i] * factor));
        std::uint32_t const got = __shfl_xor_sync(0xffffffff, odd ? four.x : four.y, 1);
        (odd ? four.x : four.y) = got;
        store_global_if(exists && n * 16 + column < width, at + n * 16 + column, four);
      }
    } else if (exists) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (8 * n + 2 * q + j < width)
            at[(8 * n + 2 * q + j) * stride[3]] = static_cast<T>(sums[4 * n + 2 * i + j] * factor);
    }
  }
}

/// Leaves them as sums, in rows of `Pitch` numbers.
template <int Pitch, int D>
__device__ __forceinline__ void store_sums(float* to, float const (&sums)[D / 2], float factor,
                                           int row, int existing) {
  int const q = fresh_thread() % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row + 8 * i >= existing) continue;
    float* const at = to + (row + 8 * i) * Pitch + 2 * q;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<float2*>(at + 8 * n) =
          make_float2(sums[4 * n + 2 * i] * factor, sums[4 * n + 2 * i + 1] * factor);
  }
}

/// The row of a part's sums in which a tile of keys begins.
__device__ __forceinline__ std::int64_t row_of_sums(AttentionBackwardParams const& p,
                                                    KeyTileHead const& t) {
  abi::AttentionArgs const& g = p.args.forward;
  int const part = t.head / p.group_of_heads % p.parts;
  return ((part * g.batch + t.batch) * g.heads_kv + t.head_kv) * g.seqlen_kv + t.key0;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
