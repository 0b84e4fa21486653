// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From products of rows and keys in a warp's registers to weights: softcap, bias, ALiBi, masks,
/// online softmax.
///
/// Scores are kept in units of the base-2 exponent. Lane 4 g + q holds in s[b][j + 2 h] row g + 8
/// h, key 8 b + 2 q + j.
#pragma once

#include "row_params.cuh"
#include "score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// A thread's two rows, `first` and first + 8 of a tile, of which those past the tile's last see
/// nothing. What they are is worked out where it is needed: registers are scarce.
struct DecodeRowPair {
  int first;

  __device__ __forceinline__ int head(DecodeTile const& t, int h) const {
    return t.head_of(min(first + 8 * h, t.rows - 1));
  }
  __device__ __forceinline__ int query(DecodeTile const& t, int h) const {
    return t.query_of(min(first + 8 * h, t.rows - 1));
  }
  /// The keys of a part that a row sees.
  __device__ __forceinline__ DecodeKeys seen(DecodeTile const& t, DecodeKeys const& keys,
                                             int h) const {
    int const i = query(t, h);
    return {t.seen_from(i), first + 8 * h < t.rows ? min(keys.end, t.seen_end(i)) : 0};
  }
};

/// Where element (batch, head, i, j) of a bias or mask lies.
__device__ __forceinline__ std::int64_t term_offset(std::int64_t const (&stride)[4], int batch,
                                                    int head, int i, int j) {
  return batch * stride[0] + head * stride[1] + i * stride[2] + j * stride[3];
}

/// Adds the bias to the scores of keys from j on.
template <class B, int Blocks>
__device__ __forceinline__ void add_decode_bias(float (&s)[Blocks][4], B const* bias,
                                                abi::AttentionArgs const& g, DecodeTile const& t,
                                                DecodeKeys const& keys, DecodeRowPair const& rows,
                                                int j) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    DecodeKeys const seen = rows.seen(t, keys, h);
    B const* const row =
        bias + term_offset(g.bias_stride, t.batch, rows.head(t, h), rows.query(t, h), 0);
#pragma unroll
    for (int b = 0; b < Blocks; ++b)
#pragma unroll
      for (int l = 0; l < 2; ++l) {
        int const key = j + 8 * b + l;
        if (key >= seen.begin && key < seen.end)
          s[b][2 * h + l] = fmaf(widen(row[key * g.bias_stride[3]]), log2_e, s[b][2 * h + l]);
      }
  }
}

/// Factor of the product within softcap's tanh, or of the product itself.
template <class Tile>
__device__ __forceinline__ float product_factor(DecodeParams const& p, Tile const& t) {
  auto const cap = static_cast<float>(p.args.softcap);
  return cap > 0 ? product_scale(p, t) / cap : product_scale(p, t) * log2_e;
}
__device__ __forceinline__ float slope_of(abi::AttentionArgs const& g, int batch, int head) {
  return g.alibi[batch * g.alibi_stride[0] + head * g.alibi_stride[1]] * log2_e;
}

/// What turns products, times product_factor(), into scores, for keys from j on.
template <int Blocks>
__device__ __forceinline__ void apply_decode_terms(DecodeParams const& p, DecodeTile const& t,
                                                   DecodeKeys const& keys,
                                                   DecodeRowPair const& rows, float (&s)[Blocks][4],
                                                   int j) {
  abi::AttentionArgs const& g = p.args;
  if (g.softcap > 0) {
    float const cap = static_cast<float>(g.softcap) * log2_e;
#pragma unroll
    for (int b = 0; b < Blocks; ++b)
#pragma unroll
      for (int r = 0; r < 4; ++r) s[b][r] = cap * tanh_any(s[b][r]);
  }
  if (g.bias != nullptr) {
    if (g.type_bias == DType::float32)
      add_decode_bias(s, static_cast<float const*>(g.bias), g, t, keys, rows, j);
    else if (g.type_bias == DType::float16)
      add_decode_bias(s, static_cast<__half const*>(g.bias), g, t, keys, rows, j);
    else
      add_decode_bias(s, static_cast<__nv_bfloat16 const*>(g.bias), g, t, keys, rows, j);
  }
  if (g.alibi != nullptr) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float const slope = slope_of(g, t.batch, rows.head(t, h));
      auto const ahead = static_cast<float>(rows.query(t, h) + t.offset - j);
#pragma unroll
      for (int b = 0; b < Blocks; ++b)
#pragma unroll
        for (int l = 0; l < 2; ++l)
          s[b][2 * h + l] =
              fmaf(-slope, fabsf(ahead - static_cast<float>(8 * b + l)), s[b][2 * h + l]);
    }
  }
  if (g.mask != nullptr) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      DecodeKeys const seen = rows.seen(t, keys, h);
      std::uint8_t const* const row =
          g.mask + term_offset(g.mask_stride, t.batch, rows.head(t, h), rows.query(t, h), 0);
#pragma unroll
      for (int b = 0; b < Blocks; ++b)
#pragma unroll
        for (int l = 0; l < 2; ++l) {
          int const key = j + 8 * b + l;
          if (key >= seen.begin && key < seen.end && row[key * g.mask_stride[3]] == 0)
            s[b][2 * h + l] = minus_infinity();
        }
    }
  }
}

/// The score of one pair that a window does not exclude.
template <class Tile>
__device__ __forceinline__ float one_decode_score(DecodeParams const& p, Tile const& t,
                                                  float product, int head, int i, int j) {
  abi::AttentionArgs const& g = p.args;
  float s = product * product_factor(p, t);
  if (g.softcap > 0) s = static_cast<float>(g.softcap) * log2_e * tanh_any(s);
  if (g.bias != nullptr)
    s = fmaf(load_float(g.bias, g.type_bias, term_offset(g.bias_stride, t.batch, head, i, j)),
             log2_e, s);
  if (g.alibi != nullptr)
    s = fmaf(-slope_of(g, t.batch, head), fabsf(static_cast<float>(i + t.offset - j)), s);
  if (g.mask != nullptr && g.mask[term_offset(g.mask_stride, t.batch, head, i, j)] == 0)
    s = minus_infinity();
  return s;
}

/// Excludes keys that a thread's two rows do not see; j is the thread's first.
template <int Blocks>
__device__ __forceinline__ void mask_keys(float (&s)[Blocks][4], DecodeKeys const (&seen)[2],
                                          int j) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int b = 0; b < Blocks; ++b)
#pragma unroll
      for (int l = 0; l < 2; ++l) {
        int const key = j + 8 * b + l;
        if (key < seen[h].begin || key >= seen[h].end) s[b][2 * h + l] = minus_infinity();
      }
}

/// Largest score of a thread's two rows so far, and its share of the sums of their weights.
struct DecodeSoftmax {
  float largest[2] = {-__builtin_huge_valf(), -__builtin_huge_valf()};
  float sum[2] = {0, 0};
};

/// Scores become weights 2^(s - largest). Returns whether a row's largest score has grown; what was
/// summed must then be scaled by `factor`.
template <int Blocks>
__device__ __forceinline__ bool weigh_keys(float (&s)[Blocks][4], DecodeSoftmax& rows,
                                           float (&factor)[2]) {
  float top[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
    for (int b = 1; b < Blocks; ++b) top[h] = fmaxf(top[h], fmaxf(s[b][2 * h], s[b][2 * h + 1]));
    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffff, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffff, top[h], 2));
  }
  bool const grown = __any_sync(0xffffffff, top[0] > rows.largest[0] || top[1] > rows.largest[1]);
  if (grown) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float const now = fmaxf(rows.largest[h], top[h]);
      factor[h] = now == rows.largest[h] ? 1.0f : power_of_2(rows.largest[h] - now);
      rows.largest[h] = now;
      rows.sum[h] *= factor[h];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float const shift = rows.largest[h] == minus_infinity() ? 0.0f : rows.largest[h];
    float sum = 0;
#pragma unroll
    for (int b = 0; b < Blocks; ++b)
#pragma unroll
      for (int l = 0; l < 2; ++l) {
        s[b][2 * h + l] = power_of_2(s[b][2 * h + l] - shift);
        sum += s[b][2 * h + l];
      }
    rows.sum[h] += sum;
  }
  return grown;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
