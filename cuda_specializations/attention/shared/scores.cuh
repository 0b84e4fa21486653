// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From products of queries and keys in the registers of warps, as wgmma and mma.sync leave them,
/// to weights: softcap, bias, ALiBi, masks, online softmax.
///
/// Scores are kept in units of the base-2 exponent. Thread t of a warpgroup or block, w = t / 32,
/// g = t % 32 / 4, q = t % 4, holds in s[j + 2 i + 4 b] query 16 w + g + 8 i, key 8 b + 2 q + j.
#pragma once

#include "ptx/convert.cuh"
#include "tile.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Factors that turn products into scores, the same for a whole tile.
struct ScoreTerms {
  float scale;        ///< of the product; within softcap's tanh its share
  float cap;          ///< softcap's factor, 0: none
  float slope;        ///< of ALiBi
  std::int64_t bias;  ///< of query 0 and key 0
};

__device__ __forceinline__ ScoreTerms score_terms(AttentionParams const& p, AttentionTile const& t,
                                                  float scale) {
  abi::AttentionArgs const& g = p.args;
  auto const cap = static_cast<float>(g.softcap);
  return {cap > 0 ? scale / cap : scale * log2_e, cap * log2_e, slope_of(p, t),
          t.batch * g.bias_stride[0] + t.head * g.bias_stride[1]};
}

__device__ __forceinline__ ScoreTerms score_terms(AttentionParams const& p,
                                                  AttentionTile const& t) {
  return score_terms(p, t, p.scale);
}

/// Adds the bias to the scores of queries i, i + 8 and keys from j on; `bias` is of query 0, key 0.
template <class B, int Count>
__device__ __forceinline__ void add_bias(float (&s)[Count], B const* bias, std::int64_t stride_i,
                                         std::int64_t stride_j, int i, int j, int len_q,
                                         int len_kv) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    B const* at = bias + (i + 8 * half) * stride_i + j * stride_j;
    int const left = i + 8 * half < len_q ? len_kv - j : 0;
#pragma unroll
    for (int block = 0; block < Count / 4; ++block, at += 8 * stride_j) {
      int const r = 4 * block + 2 * half;
      if (8 * block < left) s[r] = fmaf(widen(at[0]), log2_e, s[r]);
      if (8 * block + 1 < left) s[r + 1] = fmaf(widen(at[stride_j]), log2_e, s[r + 1]);
    }
  }
}

/// Scales products and caps them.
template <int Count>
__device__ __forceinline__ void scale_scores(ScoreTerms const& terms, float (&s)[Count]) {
#pragma unroll
  for (int r = 0; r < Count; ++r) s[r] *= terms.scale;
  if (terms.cap > 0) {
    float largest = 0;
#pragma unroll
    for (int r = 0; r < Count; ++r) largest = fmaxf(largest, fabsf(s[r]));
    if (__any_sync(0xffffffff, largest >= 0.625f)) {
#pragma unroll
      for (int r = 0; r < Count; ++r) s[r] = terms.cap * tanh_any(s[r]);
    } else {
#pragma unroll
      for (int r = 0; r < Count; ++r) s[r] = terms.cap * tanh_near(s[r]);
    }
  }
}

/// Adds ALiBi to scores; the first query stands `ahead` positions before the first key.
template <int Count>
__device__ __forceinline__ void add_distance(float slope, float ahead, float (&s)[Count]) {
#pragma unroll
  for (int r = 0; r < Count; ++r)
    s[r] =
        fmaf(-slope, fabsf(ahead + static_cast<float>((r / 2 % 2) * 8 - r / 4 * 8 - r % 2)), s[r]);
}

/// Products of queries i, i + 8 and keys from j on become scores.
template <int Count>
__device__ __forceinline__ void apply_terms(AttentionParams const& p, AttentionTile const& t,
                                            ScoreTerms const& terms, float (&s)[Count], int i,
                                            int j) {
  abi::AttentionArgs const& g = p.args;
  scale_scores(terms, s);
  if (g.bias != nullptr) {
    auto const add = [&](auto const* bias) {
      add_bias(s, bias + terms.bias, g.bias_stride[2], g.bias_stride[3], i, j, t.len_q, t.len_kv);
    };
    if (g.type_bias == DType::float32)
      add(static_cast<float const*>(g.bias));
    else if (g.type_bias == DType::float16)
      add(static_cast<__half const*>(g.bias));
    else
      add(static_cast<__nv_bfloat16 const*>(g.bias));
  }
  if (g.alibi != nullptr) add_distance(terms.slope, static_cast<float>(i + t.offset - j), s);
}

/// The same for one pair.
__device__ __forceinline__ float one_score(AttentionParams const& p, AttentionTile const& t,
                                           ScoreTerms const& terms, float product, int i, int j) {
  abi::AttentionArgs const& g = p.args;
  float s = product * terms.scale;
  if (terms.cap > 0) s = terms.cap * tanh_any(s);
  if (g.bias != nullptr)
    s = fmaf(
        load_float(g.bias, g.type_bias, terms.bias + i * g.bias_stride[2] + j * g.bias_stride[3]),
        log2_e, s);
  if (g.alibi != nullptr) s = fmaf(-terms.slope, fabsf(static_cast<float>(i + t.offset - j)), s);
  return s;
}

/// Bits of the first of a query's `Count` scores that this thread holds: those of keys before
/// `end`.
template <int Count>
__device__ __forceinline__ std::uint32_t bits_before(int end) {
  static_assert(Count <= 32);
  int const x = max(0, min(end, 4 * Count));
  int const count = x / 8 * 2 + min(x % 8, 2);
  return count == 0 ? 0 : 0xffffffffu >> (32 - count);
}
/// Leaves of either query the scores of keys before its bound or, without `Before`, of those from
/// it on, counted from the thread's first key.
template <bool Before, int Count>
__device__ __forceinline__ void mask(float (&s)[Count], int bound_0, int bound_1) {
  constexpr int words = (Count / 2 + 31) / 32, part = Count / 2 / words;
#pragma unroll
  for (int w = 0; w < 2 * words; ++w) {
    int const i = w / words, from = w % words * part;
    std::uint32_t const bits = bits_before<part>((i == 0 ? bound_0 : bound_1) - from * 4);
#pragma unroll
    for (int r = 0; r < part; ++r)
      if ((bits >> r & 1) != (Before ? 1 : 0))
        s[(from + r) / 2 * 4 + i * 2 + r % 2] = minus_infinity();
  }
}
/// Leaves scores whose bits are set, of either query from the lowest on.
template <int Count>
__device__ __forceinline__ void keep_seen(float (&s)[Count], std::uint32_t const (&seen)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int r = 0; r < Count / 2; ++r)
      if ((seen[i] >> r & 1) == 0) s[r / 2 * 4 + i * 2 + r % 2] = minus_infinity();
}
template <int Count>
__device__ __forceinline__ void mask_right(float (&s)[Count], int end_0, int end_1) {
  mask<true>(s, end_0, end_1);
}
template <int Count>
__device__ __forceinline__ void mask_left(float (&s)[Count], int from_0, int from_1) {
  mask<false>(s, from_0, from_1);
}

/// Largest score that weights refer to, and this thread's share of their sum, for its two queries.
struct SoftmaxRows {
  float largest[2], sum[2];
};

/// The largest of the first `Seen` scores of either query that this thread holds.
template <int Seen, int Count>
__device__ __forceinline__ void own_largest_score(float const (&s)[Count], float (&largest)[2]) {
  float top[4] = {s[0], s[2], s[1], s[3]};
#pragma unroll
  for (int r = 4; r < Seen; ++r)
    top[r / 2 % 2 + r % 2 * 2] = fmaxf(top[r / 2 % 2 + r % 2 * 2], s[r]);
  largest[0] = fmaxf(top[0], top[2]), largest[1] = fmaxf(top[1], top[3]);
}

/// The largest numbers of all four threads that share either query.
__device__ __forceinline__ void share_largest(float (&largest)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    largest[i] = fmaxf(largest[i], __shfl_xor_sync(0xffffffff, largest[i], 1));
    largest[i] = fmaxf(largest[i], __shfl_xor_sync(0xffffffff, largest[i], 2));
  }
}

/// The largest of the first `Seen` scores of either query, those of all four threads that share it.
template <int Seen, int Count>
__device__ __forceinline__ void largest_score(float const (&s)[Count], float (&largest)[2]) {
  own_largest_score<Seen>(s, largest);
  share_largest(largest);
}

/// Lets the reference that weights are relative to follow the largest scores, and scales the sums
/// so far by `factor`.
__device__ __forceinline__ void raise_reference(float const (&seen)[2], SoftmaxRows& rows, float c,
                                                float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float const now = fmaxf(rows.largest[i], seen[i]);
    factor[i] = now == rows.largest[i] ? 1.0f : power_of_2((rows.largest[i] - now) * c);
    rows.largest[i] = now;
    rows.sum[i] *= factor[i];
  }
}

/// The exponent of the weight of a score that equals its reference. 8-bit weights hold 2^-9 to 448.
template <class T>
constexpr float top_exponent = sizeof(T) == 1 ? 7.0f : 0.0f;

/// Weights 2^(c·s - m) as the next product takes them, and this thread's share of the sums of
/// either query.
template <class T, int Count>
__device__ __forceinline__ void weigh(float const (&s)[Count], SoftmaxRows const& rows, float c,
                                      std::uint32_t (&weights)[Count * sizeof(T) / 4],
                                      float (&sum)[2]) {
  float shift[2], part[4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    shift[i] = rows.largest[i] == minus_infinity() ? 0.0f : rows.largest[i] * c - top_exponent<T>;
  // The weights of neighbouring keys r and r + 1.
  auto const pair = [&](int r, float& x, float& y) {
    int const i = r / 2 % 2;
    x = power_of_2(fmaf(s[r], c, -shift[i]));
    y = power_of_2(fmaf(s[r + 1], c, -shift[i]));
    part[i] += x, part[i + 2] += y;
  };
  if constexpr (sizeof(T) == 1) {
    // Four of one query: of two keys each in neighbouring blocks of eight.
#pragma unroll
    for (int w = 0; w < Count / 4; ++w) {
      float x[4];
      pair(w / 2 * 8 + w % 2 * 2, x[0], x[1]);
      pair(w / 2 * 8 + w % 2 * 2 + 4, x[2], x[3]);
      weights[w] = round_to_float8<__NV_E4M3>({x[0], x[1], x[2], x[3]});
    }
  } else {
#pragma unroll
    for (int r = 0; r < Count; r += 2) {
      float x, y;
      pair(r, x, y);
      weights[r / 2] = pack_pair<T>(x, y);
    }
  }
  sum[0] = part[0] + part[2], sum[1] = part[1] + part[3];
}

/// What no thread's sum of weights may exceed for 16 bits to hold them all for certain.
constexpr float sum_limit = 8192;

/// Scores become weights relative to 2^m. m need not be the largest score so far: as long as no sum
/// of a thread's weights exceeds 2^13, float16 holds them and nothing is lost. So the weights are
/// first made with the previous m; only if a sum turns out larger, or m has not been set, is the
/// largest score looked for. NaN is no reason to look, since no m would help, and padding may hold
/// it. Returns whether m has changed, and what was summed must be scaled by `factor`.
///
/// Source of the lazy reference: the published description of FlashAttention-4, which still looks
/// for the largest score every time.
template <class T, int Count>
__device__ __forceinline__ bool online_softmax(float const (&s)[Count], SoftmaxRows& rows, float c,
                                               std::uint32_t (&weights)[Count * sizeof(T) / 4],
                                               float (&factor)[2]) {
  float sum[2];
  weigh<T>(s, rows, c, weights, sum);
  bool const beyond = sum[0] > sum_limit || sum[1] > sum_limit ||
                      rows.largest[0] == minus_infinity() || rows.largest[1] == minus_infinity();
  bool const raise = __any_sync(0xffffffff, beyond);
  if (raise) {
    float seen[2];
    largest_score<Count>(s, seen);
    raise_reference(seen, rows, c, factor);
    weigh<T>(s, rows, c, weights, sum);
  }
  rows.sum[0] += sum[0], rows.sum[1] += sum[1];
  return raise;
}

/// The same for 8-bit weights, which hold no more than 448: m is raised every few blocks, in one of
/// four warps that wait for each other. So the largest score is looked for first, and weights are
/// made once; only an m that is raised is agreed on with other threads. A score may be forgotten as
/// soon as its weight is made, which saves registers.
template <class T, int Count>
__device__ __forceinline__ bool online_softmax_by_largest(
    float const (&s)[Count], SoftmaxRows& rows, float c,
    std::uint32_t (&weights)[Count * sizeof(T) / 4], float (&factor)[2]) {
  float seen[2];
  own_largest_score<Count>(s, seen);
  // Except where both are -inf, so that their difference is NaN.
  bool const raise = __any_sync(
      0xffffffff, (seen[0] - rows.largest[0]) * c > 1.8f || (seen[1] - rows.largest[1]) * c > 1.8f);
  if (raise) {
    share_largest(seen);
    raise_reference(seen, rows, c, factor);
  }
  float sum[2];
  weigh<T>(s, rows, c, weights, sum);
  rows.sum[0] += sum[0], rows.sum[1] += sum[1];
  return raise;
}

/// The first weights of a tile. Their reference is the largest of 16 keys' scores, which is almost
/// always large enough; that of 8-bit weights the largest of all.
template <class T, int Count>
__device__ __forceinline__ void first_softmax(float const (&s)[Count], SoftmaxRows& rows, float c,
                                              std::uint32_t (&weights)[Count * sizeof(T) / 4]) {
  if constexpr (sizeof(T) == 1) {
    largest_score<Count>(s, rows.largest);
    weigh<T>(s, rows, c, weights, rows.sum);
  } else {
    float factor[2];
    rows.sum[0] = rows.sum[1] = 0;
    largest_score<8>(s, rows.largest);
    online_softmax<T>(s, rows, c, weights, factor);
  }
}

/// Scores become weights 2^(c·s - m). The reference m follows the largest score only when that has
/// grown by more than 2^8: until then sums stay far from overflow, and what was summed need not be
/// scaled again. Returns whether it must be, by `factor`.
///
/// Source of the lazy reference: T. Dao et al., FlashAttention-4's published description.
template <int Count>
__device__ __forceinline__ bool online_softmax_in_place(float (&s)[Count], SoftmaxRows& rows,
                                                        float c, float (&factor)[2]) {
  float seen[2];
  largest_score<Count>(s, seen);
  // Except where both are -inf, so that their difference is NaN.
  bool const grown =
      (seen[0] - rows.largest[0]) * c > 8.0f || (seen[1] - rows.largest[1]) * c > 8.0f;
  bool const rescale = __any_sync(0xffffffff, grown);
  if (rescale) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float const now = fmaxf(rows.largest[i], seen[i]);
      factor[i] = now == rows.largest[i] ? 1.0f : power_of_2((rows.largest[i] - now) * c);
      rows.largest[i] = now;
      rows.sum[i] *= factor[i];
    }
  }
  float shift[2], sum[4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    shift[i] = rows.largest[i] == minus_infinity() ? 0.0f : rows.largest[i] * c;
#pragma unroll
  for (int r = 0; r < Count; ++r) {
    int const i = r / 2 % 2;
    s[r] = power_of_2(fmaf(s[r], c, -shift[i]));
    sum[i + r % 2 * 2] += s[r];
  }
  rows.sum[0] += sum[0] + sum[2];
  rows.sum[1] += sum[1] + sum[3];
  return rescale;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
