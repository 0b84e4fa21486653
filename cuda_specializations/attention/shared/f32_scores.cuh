// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From products of queries and keys in registers to float32 weights, and from sums to rows of out:
/// what the float32 attention kernels have in common, and what the one through wmma takes of it.
///
/// Scores are kept in units of the base-2 exponent. `Layout` says which pairs a thread holds:
/// s[i][j] is of query row(i) and key key(j) from the thread's first on, and o[i][c] of column
/// column(c); the lanes that share its queries differ in the bits `shared` of their number.
#pragma once

#include "f32_params.cuh"
#include "ptx/registers.cuh"
#include "scores.cuh"
#include "sequences/repair.cuh"
#include "sequences/row_sum.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Products become scores.
template <class Layout>
__device__ __forceinline__ void apply_f32_terms(AttentionParams const& p, AttentionTile const& t,
                                                float (&s)[Layout::rows][Layout::keys], int i0,
                                                int j0) {
  ScoreTerms const terms = score_terms(p, t);  // here, since registers are scarce
  abi::AttentionArgs const& g = p.args;
#pragma unroll
  for (int i = 0; i < Layout::rows; ++i)
#pragma unroll
    for (int j = 0; j < Layout::keys; ++j) {
      s[i][j] *= terms.scale;
      if (terms.cap > 0) s[i][j] = terms.cap * tanh_any(s[i][j]);
    }
  if (g.bias != nullptr) {
    auto const add = [&](auto const* bias) {
#pragma unroll
      for (int i = 0; i < Layout::rows; ++i) {
        int const left = i0 + Layout::row(i) < t.len_q ? t.len_kv - j0 : 0;
        auto const* at = bias + terms.bias + std::int64_t{i0 + Layout::row(i)} * g.bias_stride[2] +
                         j0 * g.bias_stride[3];
#pragma unroll
        for (int j = 0; j < Layout::keys; ++j) {
          make_opaque(at);  // else all addresses would be computed first and kept
          if (Layout::key(j) < left) s[i][j] = fmaf(widen(*at), log2_e, s[i][j]);
          if (j + 1 < Layout::keys) at += (Layout::key(j + 1) - Layout::key(j)) * g.bias_stride[3];
        }
      }
    };
    if (g.type_bias == DType::float32)
      add(static_cast<float const*>(g.bias));
    else if (g.type_bias == DType::float16)
      add(static_cast<__half const*>(g.bias));
    else
      add(static_cast<__nv_bfloat16 const*>(g.bias));
  }
  if (g.alibi != nullptr) {
    auto const ahead = static_cast<float>(i0 + t.offset - j0);
#pragma unroll
    for (int i = 0; i < Layout::rows; ++i)
#pragma unroll
      for (int j = 0; j < Layout::keys; ++j)
        s[i][j] = fmaf(-terms.slope,
                       fabsf(ahead + static_cast<float>(Layout::row(i) - Layout::key(j))), s[i][j]);
  }
}

/// Excludes pairs that windows or the boolean mask exclude.
template <class Layout>
__device__ __forceinline__ void mask_f32(AttentionParams const& p, AttentionTile const& t,
                                         float (&s)[Layout::rows][Layout::keys], int i0, int j0) {
  abi::AttentionArgs const& g = p.args;
#pragma unroll
  for (int i = 0; i < Layout::rows; ++i) {
    int const query = i0 + Layout::row(i);
    int const from = t.seen_from(query) - j0, end = t.seen_end(query) - j0;
#pragma unroll
    for (int j = 0; j < Layout::keys; ++j)
      if (Layout::key(j) < from || Layout::key(j) >= end) s[i][j] = minus_infinity();
    if (g.mask != nullptr && query < t.len_q) {
      std::uint8_t const* at = g.mask + t.batch * g.mask_stride[0] + t.head * g.mask_stride[1] +
                               query * g.mask_stride[2] + j0 * g.mask_stride[3];
#pragma unroll
      for (int j = 0; j < Layout::keys; ++j) {
        make_opaque(at);
        if (Layout::key(j) >= from && Layout::key(j) < end && *at == 0) s[i][j] = minus_infinity();
        if (j + 1 < Layout::keys) at += (Layout::key(j + 1) - Layout::key(j)) * g.mask_stride[3];
      }
    }
  }
}

/// The references of the weights of a thread's queries, and the thread's share of their sums.
template <class Layout>
struct F32Softmax {
  float largest[Layout::rows], sum[Layout::rows];

  __device__ __forceinline__ F32Softmax() {
#pragma unroll
    for (int i = 0; i < Layout::rows; ++i) largest[i] = minus_infinity(), sum[i] = 0;
  }
  __device__ __forceinline__ float shift(int i, float c) const {
    return largest[i] == minus_infinity() ? 0.0f : largest[i] * c;
  }

  /// Scores become weights 2^(c·s - m). The reference m follows the largest score only when that
  /// has grown by more than 2^8: float32 has room for such weights. Then the sums of the rows are
  /// scaled by `rescale(i, factor)`.
  template <class Rescale>
  __device__ __forceinline__ void weigh(float (&s)[Layout::rows][Layout::keys], float c,
                                        Rescale const& rescale) {
    float seen[Layout::rows];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < Layout::rows; ++i) {
      float x = s[i][0];
#pragma unroll
      for (int j = 1; j < Layout::keys; ++j) x = fmaxf(x, s[i][j]);
#pragma unroll
      for (int bit = 1; bit < 32; bit *= 2)
        if (bit & Layout::shared) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, bit));
      seen[i] = x;
      grown = grown || (x - largest[i]) * c > 8.0f;  // not so where both are -inf
    }
    if (__any_sync(0xffffffff, grown)) {
#pragma unroll
      for (int i = 0; i < Layout::rows; ++i) {
        float const now = fmaxf(largest[i], seen[i]);
        float const factor = now == largest[i] ? 1.0f : power_of_2((largest[i] - now) * c);
        largest[i] = now;
        sum[i] *= factor;
        rescale(i, factor);
      }
    }
#pragma unroll
    for (int i = 0; i < Layout::rows; ++i) {
      float const m = shift(i, c);
#pragma unroll
      for (int j = 0; j < Layout::keys; ++j) {
        s[i][j] = power_of_2(fmaf(s[i][j], c, -m));
        sum[i] += s[i][j];
      }
    }
  }
};

/// The score of one pair that a window does not exclude.
__device__ __forceinline__ float one_f32_score(F32AttentionParams const& p, AttentionTile const& t,
                                               ScoreTerms const& terms, float product, int i,
                                               int j) {
  abi::AttentionArgs const& g = p.args;
  float s = product * terms.scale;
  if (terms.cap > 0) s = terms.cap * tanh_any(s);
  if (g.bias != nullptr)
    s = fmaf(
        load_float(g.bias, g.type_bias, terms.bias + i * g.bias_stride[2] + j * g.bias_stride[3]),
        log2_e, s);
  if (g.alibi != nullptr) s = fmaf(-terms.slope, fabsf(static_cast<float>(i + t.offset - j)), s);
  if (g.mask != nullptr && g.mask[t.batch * g.mask_stride[0] + t.head * g.mask_stride[1] +
                                  i * g.mask_stride[2] + j * g.mask_stride[3]] == 0)
    s = minus_infinity();
  return s;
}

/// Computes row i of a tile once more, by one warp: sum over the keys whose score is not -inf of
/// factor·2^(score - reference) times the value. Keys were taken in blocks of `tile_n`.
__device__ __noinline__ void repair_f32_row(F32AttentionParams const& p, AttentionTile const& t,
                                            int tile_n, int i, float reference, float factor) {
  abi::AttentionArgs const& g = p.args;
  std::int64_t const b = t.batch, h = t.head, h_kv = h / p.group_of_heads;
  auto const row_of = [&](void const* base, std::int64_t const(&stride)[4], int j) {
    return static_cast<float const*>(base) + h_kv * stride[1] + F32Rows{g, t, stride}.offset(j);
  };
  RepairedQuery<float> const query{static_cast<float const*>(g.q) + b * g.q_stride[0] +
                                       h * g.q_stride[1] +
                                       (std::int64_t{t.begin_q} + i) * g.q_stride[2],
                                   g.q_stride[3],
                                   g.k_stride[3],
                                   g.v_stride[3],
                                   static_cast<int>(g.head_dim),
                                   static_cast<int>(g.head_dim_v),
                                   p.whole_k && p.whole_v && (g.head_dim | g.head_dim_v) % 8 == 0};
  ScoreTerms const terms = score_terms(p, t);
  auto const value = [&](int j) { return row_of(g.v, g.v_stride, j); };
  int const from = t.seen_from(i), end = t.seen_end(i);
  if (query.whole && !p.excludes &&
      !excludes_nan<4>(query, t.first * tile_n, from, end, min(t.end * tile_n, t.len_kv), value))
    return;
  float sums[8];
  sum_row_again<4>(
      query, from, end, reference, [&](int j) { return row_of(g.k, g.k_stride, j); }, value,
      [&](float product, int j) { return one_f32_score(p, t, terms, product, i, j); }, sums);
  float* const out = static_cast<float*>(g.out) + b * g.out_stride[0] + h * g.out_stride[1] +
                     (std::int64_t{t.begin_q} + i) * g.out_stride[2];
  int const c = fresh_thread() % 32 * 8;
#pragma unroll
  for (int e = 0; e < 8; ++e)
    if (c + e < g.head_dim_v) out[(c + e) * g.out_stride[3]] = sums[e] * factor;
}

/// Stores the sums of a thread's queries, the first of which is i0, divided by the sums of their
/// weights, and the log-sum-exp. `i0` counts within the sequence. `Repairs`: rows that come out as
/// NaN though their weights are none are computed again.
template <class Layout, bool Repairs = false>
__device__ __forceinline__ void store_f32_rows(F32AttentionParams const& p, AttentionTile const& t,
                                               float (&o)[Layout::rows][Layout::columns],
                                               F32Softmax<Layout> const& rows, float c, int i0,
                                               int column0) {
  abi::AttentionArgs const& g = p.args;
  int const dv = static_cast<int>(g.head_dim_v);
  std::int64_t const b = max(t.batch, 0), h = t.head;
  bool const first = (static_cast<int>(threadIdx.x) & Layout::shared) == 0;
  float sink = 0;
  if (g.sinks != nullptr) sink = sink_of(g, h);
#pragma unroll
  for (int i = 0; i < Layout::rows; ++i) {
    float sum = rows.sum[i];
#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2)
      if (bit & Layout::shared) sum += __shfl_xor_sync(0xffffffff, sum, bit);
    int const row = i0 + Layout::row(i);
    if (!Repairs && row >= t.rows) continue;
    bool const stored = row < t.rows, empty = row >= t.len_q || sum == 0;
    float top = rows.shift(i, c);
    RowEnd<float> const end =
        finish_row<Base2Rows<>>(empty, top, sum, g.sinks != nullptr, [&] { return sink; });
    std::int64_t const position = std::int64_t{t.begin_q} + row;
    if (g.lse != nullptr && first && stored)
      static_cast<float*>(
          g.lse)[b * g.lse_stride[0] + h * g.lse_stride[1] + position * g.lse_stride[2]] = end.lse;
    float const reference = rows.shift(i, c), factor = end.factor;
    float* const out = static_cast<float*>(g.out) + b * g.out_stride[0] + h * g.out_stride[1] +
                       position * g.out_stride[2];
#pragma unroll
    for (int x = 0; x < Layout::columns; x += Layout::side_by_side) {
      int const column = column0 + Layout::column(x);
      float y[Layout::side_by_side];
#pragma unroll
      for (int e = 0; e < Layout::side_by_side; ++e) y[e] = empty ? 0.0f : o[i][x + e] * factor;
      if (p.vectors) {
        if (stored && column < dv) {
          if constexpr (Layout::side_by_side == 4)
            *reinterpret_cast<float4*>(out + column) = make_float4(y[0], y[1], y[2], y[3]);
          else
            *reinterpret_cast<float2*>(out + column) = make_float2(y[0], y[1]);
        }
      } else {
#pragma unroll
        for (int e = 0; e < Layout::side_by_side; ++e)
          if (stored && column + e < dv) out[(column + e) * g.out_stride[3]] = y[e];
      }
    }
    if constexpr (Repairs) {
      float probe = 0;
#pragma unroll
      for (int x = 0; x < Layout::columns; ++x) probe = fmaf(o[i][x], 0.0f, probe);
      unsigned broken = __ballot_sync(0xffffffff, stored && !empty && sum == sum && probe != probe);
      if (broken != 0) __syncwarp();
      while (broken != 0) {
        int const lane = __ffs(static_cast<int>(broken)) - 1;
        for (int l = 0; l < 32; ++l)  // all that share the row
          if ((l & ~Layout::shared) == (lane & ~Layout::shared)) broken &= ~(1u << l);
        repair_f32_row(p, t, Layout::tile_n, __shfl_sync(0xffffffff, row, lane),
                       __shfl_sync(0xffffffff, reference, lane),
                       __shfl_sync(0xffffffff, factor, lane));
      }
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
