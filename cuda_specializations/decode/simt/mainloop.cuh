// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Few rows of queries against one part of a long cache on CUDA cores: keys and values of any type
/// and layout go from memory to registers, a row spread over the lanes of a warp.
///
/// A step of a warp takes 1 to 8 keys. While their products with the rows are summed, weighed and
/// multiplied by the values, the next step's keys and then its values are on their way. Products
/// are summed across lanes many at a time: with each halving of the lanes that share a sum a lane
/// gives away half of its sums, so that n of them cost about n exchanges. Then one lane has one
/// pair of a row and a key, or some have the same.
///
/// Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023.
#pragma once

#include <type_traits>

#include "loads.cuh"
#include "sequences/row_epilogue.cuh"
#include "sequences/row_sum.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Arithmetic of scores, which are kept in `unit`s of the natural exponent.
template <class Acc>
struct ScoreUnits;
template <>
struct ScoreUnits<float> {  // of the base-2 exponent, for which there is an instruction
  static constexpr float unit = log2_e;
  static constexpr bool quick = false;  // see finish_row
  __device__ __forceinline__ static float power(float x) { return power_of_2(x); }
  __device__ __forceinline__ static float log(float x) { return log2f(x); }
  __device__ __forceinline__ static float log_sum_exp(float top, float sum) {
    return cuda::log_sum_exp(top, sum);
  }
  __device__ __forceinline__ static float tanh(float x) { return tanh_any(x); }
  __device__ __forceinline__ static float load(void const* from, DType type, std::int64_t at) {
    return load_float(from, type, at);
  }
};
template <>
struct ScoreUnits<double> {
  static constexpr double unit = 1;
  static constexpr bool quick = false;
  __device__ __forceinline__ static double power(double x) { return ::exp(x); }
  __device__ __forceinline__ static double log(double x) { return ::log(x); }
  __device__ __forceinline__ static double log_sum_exp(double top, double sum) {
    return top + ::log(sum);
  }
  __device__ __forceinline__ static double tanh(double x) { return ::tanh(x); }
  __device__ __forceinline__ static double load(void const* from, DType type, std::int64_t at) {
    return type == DType::float64 ? static_cast<double const*>(from)[at]
                                  : load_float(from, type, at);
  }
};

template <class Acc>
__device__ __forceinline__ constexpr Acc lowest() {
  return -static_cast<Acc>(__builtin_huge_val());
}

/// What a lane knows of the one row whose pairs it weighs: the keys of the part that it sees, and
/// where its terms lie.
template <class Acc>
struct SimtScoreRow {
  int from, end;  ///< empty where the row sees nothing or does not exist
  int position;   ///< of the key that the query stands at
  Acc slope;
  std::int64_t bias, mask;

  __device__ __forceinline__ SimtScoreRow(SimtDecodeParams const& p, DecodeTile const& t,
                                          DecodeKeys const& keys, int r) {
    abi::AttentionArgs const& g = p.args;
    int const exists = r < t.rows, row = exists ? r : 0;
    int const head = t.head_of(row), i = t.query_of(row);
    from = max(keys.begin, t.seen_from(i));
    end = exists ? min(keys.end, t.seen_end(i)) : from;
    position = i + t.offset;
    slope = 0, bias = mask = 0;
    if (g.alibi != nullptr)
      slope = static_cast<Acc>(g.alibi[t.batch * g.alibi_stride[0] + head * g.alibi_stride[1]]) *
              ScoreUnits<Acc>::unit;
    if (g.bias != nullptr) bias = term_offset(g.bias_stride, t.batch, head, i, 0);
    if (g.mask != nullptr) mask = term_offset(g.mask_stride, t.batch, head, i, 0);
  }

  __device__ __forceinline__ bool sees_some() const { return from < end; }
  __device__ __forceinline__ bool sees(int j) const { return j >= from && j < end; }

  /// What softcap, bias, ALiBi and mask make of a product with key j, times product_factor().
  __device__ __forceinline__ Acc score(SimtDecodeParams const& p, Acc s, int j) const {
    abi::AttentionArgs const& g = p.args;
    using Units = ScoreUnits<Acc>;
    if (g.softcap > 0) s = static_cast<Acc>(g.softcap) * Units::unit * Units::tanh(s);
    if (g.bias != nullptr)
      s += Units::load(g.bias, g.type_bias, bias + j * g.bias_stride[3]) * Units::unit;
    if (g.alibi != nullptr) {
      int const away = position - j;
      s -= slope * static_cast<Acc>(away < 0 ? -away : away);
    }
    if (g.mask != nullptr && g.mask[mask + j * g.mask_stride[3]] == 0) s = lowest<Acc>();
    return s;
  }
};

/// Sums s[n] over all lanes: each gets sum number lane / (32 / Count).
template <int Count, int Step = 16, class Acc>
__device__ __forceinline__ Acc sum_across_lanes(Acc (&s)[Count]) {
  if constexpr (Count > 1) {
    bool const upper = (static_cast<int>(threadIdx.x) & Step) != 0;
    Acc half[Count / 2];
#pragma unroll
    for (int n = 0; n < Count / 2; ++n) {
      Acc const keep = upper ? s[n + Count / 2] : s[n], give = upper ? s[n] : s[n + Count / 2];
      half[n] = keep + __shfl_xor_sync(0xffffffff, give, Step);
    }
    return sum_across_lanes<Count / 2, Step / 2>(half);
  } else {
    Acc x = s[0];
#pragma unroll
    for (int step = Step; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
    return x;
  }
}

/// Queries of a tile as numbers of Acc, each row as the lanes hold a row of keys.
template <class Config>
__device__ __forceinline__ void share_simt_queries(typename Config::Acc* to,
                                                   abi::AttentionArgs const& g,
                                                   DecodeTile const& t) {
  using T = typename Config::Element;
  using Acc = typename Config::Acc;
  std::int64_t const b = g.cu_seqlens_q.data == nullptr ? t.batch : 0;
  for (int n = static_cast<int>(threadIdx.x); n < Config::rows * Config::d; n += Config::threads) {
    int const r = n / Config::d, f = Config::feature_at(n % Config::d);
    Acc x = 0;
    if (r < t.rows && f < g.head_dim)
      x = static_cast<Acc>(static_cast<T const*>(
          g.q)[b * g.q_stride[0] + t.head_of(r) * g.q_stride[1] +
               (std::int64_t{t.begin_q} + t.query_of(r)) * g.q_stride[2] + f * g.q_stride[3]]);
    to[n] = x;
  }
}

/// What a block keeps in shared memory.
template <class Config>
struct SimtDecodeShared {
  using Acc = typename Config::Acc;
  union {
    Acc queries[Config::rows * Config::d];
    Acc sums[Config::warps * Config::rows * Config::d];  ///< once all keys are through
  };
  Acc weights[Config::warps][Config::pairs];  ///< of a step: key by key those of all rows
  Acc largest[Config::warps][Config::rows], sum[Config::warps][Config::rows];
};

/// Attention of one tile of rows over one part of the keys: o[r][e] is the lane's share of row r,
/// `largest` and `sum` are of the row whose pairs the lane weighs.
template <class Config>
__device__ __forceinline__ void simt_decode_part(
    SimtDecodeParams const& p, DecodeTile const& t, DecodeKeys const& part,
    SimtDecodeShared<Config>& shared, typename Config::Acc (&o)[Config::rows][Config::each],
    typename Config::Acc& largest, typename Config::Acc& sum) {
  using Acc = typename Config::Acc;
  using Units = ScoreUnits<Acc>;
  constexpr int keys = Config::keys, pairs = Config::pairs, rows = Config::rows;
  constexpr int chunks = Config::chunks, vector = Config::vector;
  constexpr int sharing = 32 / pairs;  // lanes that have the same pair
  constexpr int stride = Config::warps * keys;
  constexpr Acc excluded = -1;  // in place of a weight
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  largest = lowest<Acc>(), sum = 0;
#pragma unroll
  for (int r = 0; r < rows; ++r)
#pragma unroll
    for (int e = 0; e < Config::each; ++e) o[r][e] = 0;
  int j0 = part.begin + warp * keys;
  if (j0 >= part.end) return;

  SimtKeyPlaces<Config> places(p, t, part, j0, lane);
  SimtRow<Config> k[keys], v[keys];
  places.load_keys(k, j0);
  places.load_values(v, j0);
  SimtScoreRow<Acc> const own(p, t, part, lane / (32 / rows));
  bool const live = own.sees_some();
  Acc const cap = static_cast<Acc>(p.args.softcap), scale = static_cast<Acc>(p.args.softmax_scale);
  Acc const factor = cap > 0 ? scale / cap : scale * Units::unit;
  Acc* const weights = shared.weights[warp];

#pragma unroll 1
  for (;;) {
    Acc s[pairs] = {};
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      Acc x[keys][vector];
#pragma unroll
      for (int n = 0; n < keys; ++n)
#pragma unroll
        for (int e = 0; e < vector; ++e) x[n][e] = k[n].get(c * vector + e);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        Acc q[vector];
        copy_group(q, shared.queries + r * Config::d + (32 * c + lane) * vector);
#pragma unroll
        for (int n = 0; n < keys; ++n)
#pragma unroll
          for (int e = 0; e < vector; ++e) s[r * keys + n] += q[e] * x[n][e];
      }
    }
    int const next = j0 + stride;
    bool const more = next < part.end;
    if (more) {
      places.advance(next, lane);
      places.load_keys(k, next);
    }

    // This lane's pair.
    int const n = lane / sharing % keys, j = j0 + n;
    Acc score = sum_across_lanes(s) * factor;
    if (!own.sees(j))
      score = lowest<Acc>();
    else if (p.terms)
      score = own.score(p, score, j);
    Acc top = score;
#pragma unroll
    for (int step = 16 / rows; step >= sharing; step /= 2)
      top = max(top, __shfl_xor_sync(0xffffffff, top, step));
    if (__any_sync(0xffffffff, top > largest)) {
      Acc const now = max(largest, top);
      Acc const shrink = now == largest ? Acc(1) : Units::power(largest - now);
      largest = now, sum *= shrink;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        Acc const y = __shfl_sync(0xffffffff, shrink, r * (32 / rows));
#pragma unroll
        for (int e = 0; e < Config::each; ++e) o[r][e] *= y;
      }
    }
    Acc weight = Units::power(score - (largest == lowest<Acc>() ? Acc(0) : largest));
    sum += weight;
    // A row that sees nothing may get 0 times NaN: it is not looked at.
    bool const out = live && score == lowest<Acc>();
    if (out) weight = excluded;
    if (lane % sharing == 0) weights[n * rows + lane / (32 / rows)] = weight;
    bool const some_out = __any_sync(0xffffffff, out);
    __syncwarp();

    auto const add = [&](auto checked) {
#pragma unroll
      for (int i = 0; i < keys; ++i) {
        Acc w[rows];
        copy_group(w, weights + i * rows);
#pragma unroll
        for (int e = 0; e < Config::each; ++e) {
          Acc const y = v[i].get(e);
#pragma unroll
          for (int r = 0; r < rows; ++r)
            if (!decltype(checked)::value || w[r] != excluded) o[r][e] += w[r] * y;
        }
      }
    };
    if (some_out)
      add(std::true_type{});
    else
      add(std::false_type{});
    if (!more) break;
    places.load_values(v, next);
    j0 = next;
    __syncwarp();  // all have read the weights
  }
#pragma unroll
  for (int step = 16 / rows; step >= sharing; step /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, step);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
