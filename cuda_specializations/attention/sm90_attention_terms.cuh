// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Weights made straight from products of queries and keys where scores have a softcap or ALiBi
/// alone: the two cost a few instructions between the product and its exponential, which then run
/// beside the exponentials of other scores, instead of a pass over all scores before them.
#pragma once

#include "sm90_attention_scores.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// What is known of a block of keys before its products are: whether it may take a
/// shortcut, and, for ALiBi, how far the first of a thread's two queries stands ahead of its first
/// key, and the slope with the sign that it has on the block's side of the diagonal; of no use if
/// it lies on both.
struct BlockPlace {
  bool whole;
  float ahead, slope;
};

template <class Config>
__device__ __forceinline__ BlockPlace block_place(Sm90AttentionParams const& p,
                                                  typename Config::Tile const& t, int n, int i) {
  int const ahead = i + t.offset - n * Config::tile_n - fresh_thread() % 4 * 2;
  bool const before = __all_sync(0xffffffff, ahead >= Config::tile_n - 7);
  bool const after = __all_sync(0xffffffff, ahead <= -8);
  bool const whole = n >= t.whole_from && n < t.whole_end && p.form != ScoreForm::general &&
                     (p.form == ScoreForm::capped || before || after);
  return {whole, static_cast<float>(ahead), before ? t.slope : -t.slope};
}

/// Weights 2^(score - m) of products, which stay as they are, and this thread's share of the sums
/// of either query.
template <class T, int Count>
__device__ __forceinline__ void weigh_sloped(float const (&s)[Count], SoftmaxRows const& rows,
                                             float scale, float slope, float ahead,
                                             std::uint32_t (&weights)[Count / 2], float (&sum)[2]) {
  float first[2], part[4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    first[i] = fmaf(-slope, ahead + static_cast<float>(8 * i), -rows.largest[i]);
#pragma unroll
  for (int r = 0; r < Count; r += 2) {
    int const i = r / 2 % 2;
    float const key = static_cast<float>(r / 4 * 8);
    float const x = power_of_2(fmaf(s[r], scale, fmaf(slope, key, first[i])));
    float const y = power_of_2(fmaf(s[r + 1], scale, fmaf(slope, key + 1, first[i])));
    part[i] += x, part[i + 2] += y;
    weights[r / 2] = pack_pair<T>(x, y);
  }
  sum[0] = part[0] + part[2], sum[1] = part[1] + part[3];
}

/// P(s² + shift), given its argument.
__device__ __forceinline__ float series(CapSeries const& cap, float x) {
  return fmaf(fmaf(fmaf(x, cap.factor[3], cap.factor[2]), x, cap.factor[1]), x, cap.factor[0]);
}

/// The same of softcap(s) = s·P(s² + shift). Returns whether all products are so small that P
/// stands for the hyperbolic tangent.
template <class T, int Count>
__device__ __forceinline__ bool weigh_capped(float const (&s)[Count], SoftmaxRows const& rows,
                                             CapSeries const& cap,
                                             std::uint32_t (&weights)[Count / 2], float (&sum)[2]) {
  float part[4] = {};
  std::uint32_t seen[2] = {};
#pragma unroll
  for (int r = 0; r < Count; r += 2) {
    int const i = r / 2 % 2;
    float const u = fmaf(s[r], s[r], cap.shift), v = fmaf(s[r + 1], s[r + 1], cap.shift);
    seen[i] |= __float_as_uint(u) | __float_as_uint(v);
    float const x = power_of_2(fmaf(s[r], series(cap, u), -rows.largest[i]));
    float const y = power_of_2(fmaf(s[r + 1], series(cap, v), -rows.largest[i]));
    part[i] += x, part[i + 2] += y;
    weights[r / 2] = pack_pair<T>(x, y);
  }
  sum[0] = part[0] + part[2], sum[1] = part[1] + part[3];
  return (seen[0] | seen[1]) >> 23 == cap.exponent;
}

/// Products of queries i, i + 8 and keys from j on become scores.
template <class Config>
__device__ __forceinline__ void make_scores(Sm90AttentionParams const& p,
                                            typename Config::Tile const& t,
                                            float (&s)[Config::tile_n / 2], int i, int j) {
  scale_scores(score_terms(p, t), s);
  if (p.args.alibi != nullptr) add_distance(t.slope, static_cast<float>(i + t.offset - j), s);
}

/// Weights of a block of products all of whose pairs count, relative to m of before. False if that
/// takes the scores: what is asked for is more, or too much for a shortcut.
template <class Config>
__device__ __forceinline__ bool weigh_products(Sm90AttentionParams const& p,
                                               BlockPlace const& place,
                                               float (&s)[Config::tile_n / 2], SoftmaxRows& rows,
                                               std::uint32_t (&weights)[Config::weight_words]) {
  using T = typename Config::Element;
  float sum[2];
  bool fits = true;
  if (!place.whole) return false;
  if (p.form == ScoreForm::capped)
    fits = weigh_capped<T>(s, rows, p.cap, weights, sum);
  else
    weigh_sloped<T>(s, rows, p.scale_log2, place.slope, place.ahead, weights, sum);
  if (__any_sync(0xffffffff, !fits || sum[0] > sum_limit || sum[1] > sum_limit)) return false;
  rows.sum[0] += sum[0], rows.sum[1] += sum[1];
  return true;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
