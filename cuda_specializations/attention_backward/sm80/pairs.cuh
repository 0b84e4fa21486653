// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The part of attention's gradients that is done pair by pair, in a warp's registers: from q·k and
/// dout·v to weights and gradients of scores.
///
/// Scores lie transposed: lane 4 g + q holds in x[m][b][j + 2 i] key 16 m + g + 8 i, query 8 b +
/// 2 q + j.
#pragma once

#include "params.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/shared_memory.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Whether some pair of tile m of queries does not exist.
template <class Config>
__device__ __forceinline__ bool has_hidden_pairs(KeyTileHead const& t, int m) {
  return t.key0 + Config::tile_kv > t.len_kv || (m + 1) * Config::tile_q > t.len_q ||
         t.key0 + Config::tile_kv > m * Config::tile_q + t.offset + t.reach ||
         t.key0 < (m + 1) * Config::tile_q - 1 + t.offset - t.window_left;
}

/// Which of a thread's pairs do not exist, as bits. `key`, `query`: of its first pair.
template <int RowTiles, int Blocks>
__device__ __forceinline__ std::uint32_t hidden_pairs(KeyTileHead const& t, int key, int query) {
  static_assert(RowTiles * Blocks * 4 <= 32);
  std::uint32_t hidden = 0;
#pragma unroll
  for (int m = 0; m < RowTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Queries that see the key, counted from the thread's first.
      int const j = key + 16 * m + 8 * h, stands = j - t.offset - query;
      int const from = stands - t.reach + 1;
      int const end = j < t.len_kv ? min(stands + t.window_left + 1, t.len_q - query) : from;
      auto const seen = static_cast<unsigned>(max(0, end - from));
#pragma unroll
      for (int b = 0; b < Blocks; ++b)
#pragma unroll
        for (int l = 0; l < 2; ++l) {
          bool const hides = static_cast<unsigned>(8 * b + l - from) >= seen;
          hidden |= static_cast<std::uint32_t>(hides) << ((m * Blocks + b) * 4 + 2 * h + l);
        }
    }
  return hidden;
}

/// Products of queries and keys become weights, those of dout and values gradients of products but
/// for the scale. `rows`: shared address of what the thread's first query brings.
template <int RowTiles, int Blocks>
__device__ __forceinline__ void weigh_pairs(AttentionBackwardParams const& p, std::uint32_t rows,
                                            int tile_q, std::uint32_t hidden,
                                            float (&s)[RowTiles][Blocks][4],
                                            float (&dp)[RowTiles][Blocks][4]) {
  float const scale = p.scale_log2;
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    float2 const shift = load_shared_two(rows + b * 32);
    float2 const sum = load_shared_two(rows + tile_q * 4 + b * 32);
#pragma unroll
    for (int m = 0; m < RowTiles; ++m)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float const w = power_of_2(fmaf(s[m][b][r], scale, r % 2 == 0 ? shift.x : shift.y));
        s[m][b][r] = w;
        dp[m][b][r] = w * (dp[m][b][r] + (r % 2 == 0 ? sum.x : sum.y));
      }
  }
  if (hidden != 0) {
#pragma unroll
    for (int m = 0; m < RowTiles; ++m)
#pragma unroll
      for (int b = 0; b < Blocks; ++b)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if (hidden >> ((m * Blocks + b) * 4 + r) & 1) s[m][b][r] = dp[m][b][r] = 0;
  }
}

/// Adds terms to four scores of a row tile and a block of queries, of pairs that are not hidden.
template <class B>
__device__ __forceinline__ void add_terms(float (&x)[4], void const* terms, std::int64_t at,
                                          std::int64_t stride_i, std::int64_t stride_j,
                                          std::uint32_t hidden) {
  B const* const from = static_cast<B const*>(terms) + at;
#pragma unroll
  for (int r = 0; r < 4; ++r)
    if ((hidden >> r & 1) == 0)
      x[r] = fmaf(widen(from[r % 2 * stride_i + r / 2 * 8 * stride_j]), log2_e, x[r]);
}

/// The same for scores that are more than scale·q·k, and the gradient of the bias.
template <int RowTiles, int Blocks>
__device__ __forceinline__ void weigh_pairs_of_terms(AttentionBackwardParams const& p,
                                                     KeyTileHead const& t, int key, int query,
                                                     std::uint32_t rows, int tile_q,
                                                     std::uint32_t hidden,
                                                     float (&s)[RowTiles][Blocks][4],
                                                     float (&dp)[RowTiles][Blocks][4]) {
  abi::AttentionArgs const& g = p.args.forward;
  auto const place = [&](std::int64_t const(&stride)[4], int i, int j) {
    return t.batch * stride[0] + t.head * stride[1] + i * stride[2] + j * stride[3];
  };
#pragma unroll
  for (int m = 0; m < RowTiles; ++m)
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      int const i = query + 8 * b, j = key + 16 * m;
      std::uint32_t out = hidden >> ((m * Blocks + b) * 4);
      if (g.mask != nullptr) {
        std::int64_t const at = place(g.mask_stride, i, j);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if ((out >> r & 1) == 0 &&
              g.mask[at + r % 2 * g.mask_stride[2] + r / 2 * 8 * g.mask_stride[3]] == 0)
            out |= 1u << r;
      }
      float factor[4] = {1, 1, 1, 1}, x[4];
      if (g.softcap > 0) {
        auto const cap = static_cast<float>(g.softcap);
        float const scale = p.scale / cap;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          float const capped = tanh_any(s[m][b][r] * scale);
          x[r] = capped * (cap * log2_e);
          factor[r] = fmaf(-capped, capped, 1.0f);
        }
      } else {
#pragma unroll
        for (int r = 0; r < 4; ++r) x[r] = s[m][b][r] * p.scale_log2;
      }
      if (g.bias != nullptr) {
        std::int64_t const at = place(g.bias_stride, i, j);
        if (g.type_bias == DType::float32)
          add_terms<float>(x, g.bias, at, g.bias_stride[2], g.bias_stride[3], out);
        else if (g.type_bias == DType::float16)
          add_terms<__half>(x, g.bias, at, g.bias_stride[2], g.bias_stride[3], out);
        else
          add_terms<__nv_bfloat16>(x, g.bias, at, g.bias_stride[2], g.bias_stride[3], out);
      }
      if (g.alibi != nullptr) {
        float const slope =
            g.alibi[t.batch * g.alibi_stride[0] + t.head * g.alibi_stride[1]] * log2_e;
        auto const ahead = static_cast<float>(i + t.offset - j);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          x[r] = fmaf(-slope, fabsf(ahead + static_cast<float>(r % 2 - r / 2 * 8)), x[r]);
      }
      float2 const shift = load_shared_two(rows + b * 32);
      float2 const sum = load_shared_two(rows + tile_q * 4 + b * 32);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float w = power_of_2(x[r] + (r % 2 == 0 ? shift.x : shift.y));
        if (out >> r & 1) w = 0;
        float const gradient = w == 0 ? 0.0f : w * (dp[m][b][r] + (r % 2 == 0 ? sum.x : sum.y));
        s[m][b][r] = w;
        dp[m][b][r] = gradient * factor[r];
        x[r] = gradient;
      }
      if (p.args.d_bias != nullptr) {
        std::int64_t const at = place(p.args.d_bias_stride, i, j);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if ((out >> r & 1) == 0)
            store_float(p.args.d_bias, p.args.type_d_bias,
                        at + r % 2 * p.args.d_bias_stride[2] + r / 2 * 8 * p.args.d_bias_stride[3],
                        x[r]);
      }
    }
}

/// Zeros in the gradient of a bias, whose pairs the kernel writes only where they exist.
__global__ void __launch_bounds__(256)
    attention_backward_clear_bias(__grid_constant__ AttentionBackwardParams const p) {
  wait_for_launch_before();
  std::int64_t const(&n)[4] = p.args.d_bias_extent;
  std::int64_t const(&stride)[4] = p.args.d_bias_stride;
  for (std::int64_t row = blockIdx.x; row < n[0] * n[1] * n[2]; row += gridDim.x) {
    std::int64_t const at =
        row / n[2] / n[1] * stride[0] + row / n[2] % n[1] * stride[1] + row % n[2] * stride[2];
    for (std::int64_t j = threadIdx.x; j < n[3]; j += 256)
      store_float(p.args.d_bias, p.args.type_d_bias, at + j * stride[3], 0.0f);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
