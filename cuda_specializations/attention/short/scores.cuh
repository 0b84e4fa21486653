// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From products of queries and keys in a warp's registers to weights, for short sequences.
///
/// Lane 4 g + q holds in s[b][j + 2 i] query g + 8 i of the warp's 16, key 8 b + 2 q + j: the same
/// after mma.sync and wgmma.
#pragma once

#include "params.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Largest score of a thread's two queries, in units of the base-2 exponent, and its share of the
/// sums of their weights.
struct ShortSums {
  float largest[2] = {-__builtin_huge_valf(), -__builtin_huge_valf()};
  float sum[2] = {0, 0};
};

/// The largest of the first `Seen` blocks of scores of either query, in all four threads that share
/// them.
template <int Seen, int Blocks>
__device__ __forceinline__ void largest_short(float const (&s)[Blocks][4], float (&top)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
    for (int b = 1; b < Seen; ++b) top[h] = fmaxf(top[h], fmaxf(s[b][2 * h], s[b][2 * h + 1]));
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffff, top[h], 1));
#pragma unroll
  for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffff, top[h], 2));
}

/// Weights 2^(c·s - m), and this thread's share of their sums.
template <class T, int Blocks>
__device__ __forceinline__ void weigh(float const (&s)[Blocks][4], float const (&largest)[2],
                                      float c, std::uint32_t (&weights)[Blocks / 2][4],
                                      float (&sum)[2]) {
  float part[4] = {};
#pragma unroll
  for (int b = 0; b < Blocks; ++b)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float const shift = largest[h] == minus_infinity() ? 0.0f : largest[h];
      float const x = power_of_2(fmaf(s[b][2 * h], c, -shift));
      float const y = power_of_2(fmaf(s[b][2 * h + 1], c, -shift));
      part[h] += x, part[h + 2] += y;
      weights[b / 2][h + b % 2 * 2] = pack_pair<T>(x, y);
    }
  sum[0] = part[0] + part[2], sum[1] = part[1] + part[3];
}

/// Scores, of a positive scale yet to be multiplied by c, become weights 2^(c·s - m). m need not be
/// the largest score: as long as no sum of a thread's weights exceeds 2^13, float16 holds them and
/// nothing is lost. A tile's first m is the largest score of a few keys; only if a sum turns out
/// larger, or m is not set, is the largest score looked for; not for NaN, which padding may hold.
/// Returns whether m has changed, and what was summed must be scaled by `factor`. The same in all
/// lanes.
///
/// Source of the lazy reference: the published description of FlashAttention-4.
template <class T, int Blocks>
__device__ __forceinline__ bool weigh_short(float const (&s)[Blocks][4], bool first,
                                            ShortSums& rows, float c, float (&factor)[2],
                                            std::uint32_t (&weights)[Blocks / 2][4]) {
  float sum[2];
  if (first) {
    largest_short<2>(s, rows.largest);
    rows.largest[0] *= c, rows.largest[1] *= c;
    rows.sum[0] = rows.sum[1] = 0;
  }
  weigh<T>(s, rows.largest, c, weights, sum);
  bool const raise = __any_sync(0xffffffff, sum[0] > 8192.0f || sum[1] > 8192.0f ||
                                                rows.largest[0] == minus_infinity() ||
                                                rows.largest[1] == minus_infinity());
  if (raise) {
    float top[2];
    largest_short<Blocks>(s, top);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float const now = fmaxf(rows.largest[h], top[h] * c);
      factor[h] = now == rows.largest[h] ? 1.0f : power_of_2(rows.largest[h] - now);
      rows.largest[h] = now;
      rows.sum[h] *= factor[h];
    }
    weigh<T>(s, rows.largest, c, weights, sum);
  }
  rows.sum[0] += sum[0], rows.sum[1] += sum[1];
  return raise;
}

/// Bits of the scores of one query that a thread holds: those of keys before `end`, counted from
/// its first.
template <int Blocks>
__device__ __forceinline__ std::uint32_t bits_of_keys_before(int end) {
  static_assert(Blocks < 16);
  int const x = max(0, min(end, 8 * Blocks));
  return (1u << (x / 8 * 2 + min(x % 8, 2))) - 1;
}

/// Excludes keys that the thread's queries i and i + 8 do not see; j is its first key.
template <int Blocks>
__device__ __forceinline__ void mask_short(float (&s)[Blocks][4], ShortTile const& t, int i,
                                           int j) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    std::uint32_t const seen = bits_of_keys_before<Blocks>(t.seen_end(i + 8 * h) - j) &
                               ~bits_of_keys_before<Blocks>(t.seen_from(i + 8 * h) - j);
#pragma unroll
    for (int r = 0; r < 2 * Blocks; ++r)
      if ((seen >> r & 1) == 0) s[r / 2][2 * h + r % 2] = minus_infinity();
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
