// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Weights made straight from products of queries and keys where scores have a softcap alone: it
/// costs a few instructions between the product and its exponential, which then run beside the
/// exponentials of other scores, instead of a pass over all scores before them.
#pragma once

#include "attention/shared/scores.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Whether a block of keys may take the shortcut, known before its products are.
template <class Config>
__device__ __forceinline__ bool fuses_softcap_of(Sm90AttentionParams const& p,
                                                 typename Config::Tile const& t, int n) {
  return n >= t.whole_from && n < t.whole_end && p.form == ScoreForm::capped;
}

/// P(s² + shift), given its argument.
__device__ __forceinline__ float series(CapSeries const& cap, float x) {
  return fmaf(fmaf(x, cap.factor[2], cap.factor[1]), x, cap.factor[0]);
}

/// Weights 2^(score - m) of products, which stay as they are, with softcap(s) = s·P(s² + shift),
/// and this thread's share of the sums of either query. Returns whether all products are so small
/// that P stands for the hyperbolic tangent.
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

/// Weights of a block of products that may take the shortcut, relative to m of before. False if it
/// takes the scores: products or weights are too large.
template <class Config>
__device__ __forceinline__ bool weigh_products(Sm90AttentionParams const& p,
                                               float (&s)[Config::tile_n / 2], SoftmaxRows& rows,
                                               std::uint32_t (&weights)[Config::weight_words]) {
  float sum[2];
  bool const fits = weigh_capped<typename Config::Element>(s, rows, p.cap, weights, sum);
  if (__any_sync(0xffffffff, !(fits && sum[0] <= sum_limit && sum[1] <= sum_limit))) return false;
  rows.sum[0] += sum[0], rows.sum[1] += sum[1];
  return true;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
