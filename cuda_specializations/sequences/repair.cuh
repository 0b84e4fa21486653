// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows of attention once more, key by key, where a NaN may have come from a value that has no
/// weight: in a product of matrices an excluded key's value is multiplied by 0, and so makes a NaN
/// of a row where it is infinite or NaN itself.
///
/// A warp takes 32 keys of a row at a time. Of the features, 8 lie with each of 8, 16 or 32 lanes,
/// so that 1 to 4 keys are read at once and some such reads are under way; then every lane makes
/// the weight of one key.
#pragma once

#include <cstdint>

#include "ptx/thread_index.cuh"
#include "score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Eight neighbouring elements of a row.
template <class T>
struct EightElements {
  alignas(sizeof(T) == 1 ? 8 : 16) T x[8];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < 2 * static_cast<int>(sizeof(T)); ++w)
      reinterpret_cast<std::uint32_t*>(x)[w] = 0;
  }
  /// Loads all of them, `Whole`, or the `left` that there are.
  template <bool Whole>
  __device__ __forceinline__ void load(T const* from, std::int64_t stride, int left) {
    if constexpr (!Whole) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (e < left) x[e] = from[e * stride];
    } else if constexpr (sizeof(T) == 1) {
      *reinterpret_cast<uint2*>(x) = *reinterpret_cast<uint2 const*>(from);
    } else {
#pragma unroll
      for (int part = 0; part < static_cast<int>(sizeof(T)) / 2; ++part)
        reinterpret_cast<uint4*>(x)[part] = reinterpret_cast<uint4 const*>(from)[part];
    }
  }
};

/// Lanes that share a row of `features` elements, at most 256: a multiple of 8 of them.
__device__ __forceinline__ int lanes_of_row(int features) {
  return features <= 64 ? 8 : features <= 128 ? 16 : 32;
}

/// Reads rows [from, end), at most 32 of them, of `features` elements `stride` apart: `use(n, x)`
/// is called in all lanes for the lane's eight elements of row from + n, zeros where there are
/// none. `row(j)` is where row j begins. `Together`, up to 8: reads that are under way at a time,
/// of eights that are whole and aligned; 0: of any, one after the other.
template <int Together, class T, class Row, class Use>
__device__ __forceinline__ void read_rows(int from, int end, int features, std::int64_t stride,
                                          Row const& row, Use const& use) {
  int const lane = fresh_thread() % 32, lanes = lanes_of_row(features), at_once = 32 / lanes;
  int const left = features - lane % lanes * 8;
  constexpr int together = Together == 0 ? 1 : Together;
#pragma unroll 1
  for (int n0 = lane / lanes; n0 < 32; n0 += together * at_once) {
    EightElements<T> eights[together];
#pragma unroll
    for (int k = 0; k < together; ++k) {
      int const j = from + n0 + k * at_once;
      eights[k].clear();
      if (j < end && left > 0)
        eights[k].template load<Together != 0>(row(j) + lane % lanes * 8 * stride, stride, left);
    }
#pragma unroll
    for (int k = 0; k < together; ++k) use(n0 + k * at_once, eights[k].x);
  }
}

/// A query of which a row of out is summed again, and the strides of features and their numbers, at
/// most 256. `whole`: of keys and values eight features at a time are whole and aligned.
template <class T>
struct RepairedQuery {
  T const* q;
  std::int64_t q_stride, k_stride, v_stride;
  int head_dim, head_dim_v;
  bool whole;
};

/// Sums over keys [from, end) whose score is not -inf 2^(score - reference) times the value, by one
/// warp: features 8·(lane % lanes) ... 8·(lane % lanes) + 7 for lanes_of_row(head_dim_v) `lanes`.
/// `key(j)` and `value(j)` are rows, `score(product, j)` the score of a pair.
template <int Together, class T, class Key, class Value, class Score>
__device__ __forceinline__ void sum_row_by(RepairedQuery<T> const& query, int from, int end,
                                           float reference, Key const& key, Value const& value,
                                           Score const& score, float (&sums)[8]) {
  int const lane = fresh_thread() % 32, lanes = lanes_of_row(query.head_dim);
  int const lanes_v = lanes_of_row(query.head_dim_v), at_once = 32 / lanes;
  float q[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    int const c = lane % lanes * 8 + e;
    q[e] = c < query.head_dim ? static_cast<float>(query.q[c * query.q_stride]) : 0.0f;
    sums[e] = 0;
  }
#pragma unroll 1
  for (int j0 = from; j0 < end; j0 += 32) {
    // Key number `own` of the 32 is this lane's.
    int const own = lane % lanes * at_once + lane / lanes;
    float product = 0;
    auto const multiply = [&](int n, T const(&x)[8]) {
      float dot = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) dot = fmaf(q[e], static_cast<float>(x[e]), dot);
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        float const other = __shfl_xor_sync(0xffffffff, dot, step);
        if (step < lanes) dot += other;
      }
      if (n == own) product = dot;
    };
    read_rows<Together, T>(j0, end, query.head_dim, query.k_stride, key, multiply);
    float weight = -1;  // none: a weight of 0 would not do for a value that is NaN
    if (j0 + own < end) {
      float const s = score(product, j0 + own);
      if (s != minus_infinity()) weight = power_of_2(s - reference);
    }
    auto const add = [&](int n, T const(&x)[8]) {
      float const w = __shfl_sync(0xffffffff, weight, n % at_once * lanes + n / at_once);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (w >= 0) sums[e] = fmaf(w, static_cast<float>(x[e]), sums[e]);
    };
    read_rows<Together, T>(j0, end, query.head_dim_v, query.v_stride, value, add);
  }
#pragma unroll
  for (int step = 8; step < 32; step *= 2)
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float const other = __shfl_xor_sync(0xffffffff, sums[e], step);
      if (step >= lanes_v) sums[e] += other;
    }
}
template <int Together, class T, class Key, class Value, class Score>
__device__ __forceinline__ void sum_row_again(RepairedQuery<T> const& query, int from, int end,
                                              float reference, Key const& key, Value const& value,
                                              Score const& score, float (&sums)[8]) {
  if (query.whole)
    sum_row_by<Together>(query, from, end, reference, key, value, score, sums);
  else
    sum_row_by<0>(query, from, end, reference, key, value, score, sums);
}

/// The first and the last of some keys; the last is less where there are none.
struct KeySpan {
  int first, last;
};

/// Those of keys [from, end) whose values hold infinities or NaN, as one warp finds them in values
/// that are whole.
template <int Together, class T, class Value>
__device__ __forceinline__ KeySpan keys_without_numbers(RepairedQuery<T> const& query, int from,
                                                        int end, Value const& value) {
  KeySpan span{0x7fffffff, -1};
#pragma unroll 1
  for (int j0 = from; j0 < end; j0 += 32) {
    auto const look = [&](int n, T const(&x)[8]) {
      float probe = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) probe = fmaf(static_cast<float>(x[e]), 0.0f, probe);
      if (probe != probe) span = {min(span.first, j0 + n), max(span.last, j0 + n)};
    };
    read_rows<Together, T>(j0, end, query.head_dim_v, query.v_stride, value, look);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    span.first = min(span.first, __shfl_xor_sync(0xffffffff, span.first, step));
    span.last = max(span.last, __shfl_xor_sync(0xffffffff, span.last, step));
  }
  return span;
}

/// Whether values of keys [begin, from) or [to, end), which a query does not see, hold infinities
/// or NaN. Where none does, a NaN of its row is one that it sees.
template <int Together, class T, class Value>
__device__ __forceinline__ bool excludes_nan(RepairedQuery<T> const& query, int begin, int from,
                                             int to, int end, Value const& value) {
  bool found = false;
#pragma unroll 1
  for (int side = 0; side < 2; ++side)
    found = found || keys_without_numbers<Together>(query, side == 0 ? begin : max(begin, to),
                                                    side == 0 ? min(from, end) : end, value)
                             .last >= 0;
  return found;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
