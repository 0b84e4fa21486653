// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The part of attention's gradients that is done pair by pair, in registers: from q·k and dout·v
/// to weights and gradients of scores.
///
/// A thread has pairs by four, of two keys and two queries side by side: x[m][b][j + 2 i] is of key
/// `key(m)` + i·`key_step` and query `query(b)` + j, counted from its first ones; its `Pairs` say
/// which these are.
#pragma once

#include "attention_backward/shared/scale.cuh"
#include "params.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/shared_memory.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Pairs as mma.sync leaves them where keys are rows: lane 4 g + q begins with key g and query 2 q.
template <int RowTiles, int Blocks>
struct MmaPairs {
  static constexpr int keys = RowTiles, queries = Blocks, key_step = 8;
  static constexpr __host__ __device__ int key(int m) { return 16 * m; }
  static constexpr __host__ __device__ int query(int b) { return 8 * b; }
};

namespace {

/// Two numbers side by side, from a shared address.
template <class Number>
__device__ __forceinline__ void load_shared_numbers(Number (&x)[2], std::uint32_t address) {
  if constexpr (std::is_same_v<Number, double>) {
    double2 const y = load_shared_pair(address);
    x[0] = y.x, x[1] = y.y;
  } else {
    float2 const y = load_shared_two(address);
    x[0] = y.x, x[1] = y.y;
  }
}

__device__ __forceinline__ void store_shared_numbers(std::uint32_t address, float x, float y) {
  store_shared(address, make_float2(x, y));
}
__device__ __forceinline__ void store_shared_numbers(std::uint32_t address, double x, double y) {
  store_shared(address, make_double2(x, y));
}

/// Whether some pair of tile m of queries does not exist.
template <class Config>
__device__ __forceinline__ bool has_hidden_pairs(KeyTileHead const& t, int m) {
  return t.key0 + Config::tile_kv > t.len_kv || (m + 1) * Config::tile_q > t.len_q ||
         t.key0 + Config::tile_kv > m * Config::tile_q + t.offset + t.reach ||
         t.key0 < (m + 1) * Config::tile_q - 1 + t.offset - t.window_left;
}

/// Which of a thread's pairs do not exist, as bits. `key`, `query`: of its first pair.
template <class Pairs>
__device__ __forceinline__ std::uint32_t hidden_pairs(KeyTileHead const& t, int key, int query) {
  static_assert(Pairs::keys * Pairs::queries * 4 <= 32);
  std::uint32_t hidden = 0;
#pragma unroll
  for (int m = 0; m < Pairs::keys; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Queries that see the key, counted from the thread's first.
      int const j = key + Pairs::key(m) + Pairs::key_step * h, stands = j - t.offset - query;
      int const from = stands - t.reach + 1;
      int const end = j < t.len_kv ? min(stands + t.window_left + 1, t.len_q - query) : from;
      auto const seen = static_cast<unsigned>(max(0, end - from));
#pragma unroll
      for (int b = 0; b < Pairs::queries; ++b)
#pragma unroll
        for (int l = 0; l < 2; ++l) {
          bool const hides = static_cast<unsigned>(Pairs::query(b) + l - from) >= seen;
          hidden |= static_cast<std::uint32_t>(hides) << ((m * Pairs::queries + b) * 4 + 2 * h + l);
        }
    }
  return hidden;
}

/// Products of queries and keys become weights, those of dout and values gradients of products but
/// for the scale. `rows`: shared address of what the thread's first query brings.
template <class Pairs, class Number>
__device__ __forceinline__ void weigh_pairs(AttentionBackwardParams const& p, std::uint32_t rows,
                                            int tile_q, std::uint32_t hidden,
                                            Number (&s)[Pairs::keys][Pairs::queries][4],
                                            Number (&dp)[Pairs::keys][Pairs::queries][4]) {
  constexpr int bytes = sizeof(Number);
  Number const scale = scale_log2_of<Number>(p);
#pragma unroll
  for (int b = 0; b < Pairs::queries; ++b) {
    Number shift[2], sum[2];
    load_shared_numbers(shift, rows + Pairs::query(b) * bytes);
    load_shared_numbers(sum, rows + tile_q * bytes + Pairs::query(b) * bytes);
#pragma unroll
    for (int m = 0; m < Pairs::keys; ++m)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        Number const w = power_of_2(fma(s[m][b][r], scale, shift[r % 2]));
        s[m][b][r] = w;
        dp[m][b][r] = w * (dp[m][b][r] + sum[r % 2]);
      }
  }
  if (hidden != 0) {
#pragma unroll
    for (int m = 0; m < Pairs::keys; ++m)
#pragma unroll
      for (int b = 0; b < Pairs::queries; ++b)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if (hidden >> ((m * Pairs::queries + b) * 4 + r) & 1) s[m][b][r] = dp[m][b][r] = 0;
  }
}

/// Adds terms to four scores of a row tile and a block of queries, of pairs that are not hidden.
template <class B, int KeyStep, class Number>
__device__ __forceinline__ void add_terms(Number (&x)[4], void const* terms, std::int64_t at,
                                          std::int64_t stride_i, std::int64_t stride_j,
                                          std::uint32_t hidden) {
  B const* const from = static_cast<B const*>(terms) + at;
#pragma unroll
  for (int r = 0; r < 4; ++r)
    if ((hidden >> r & 1) == 0)
      x[r] =
          fma(static_cast<Number>(number_of(from[r % 2 * stride_i + r / 2 * KeyStep * stride_j])),
              log2_e_of<Number>, x[r]);
}

/// The same for scores that are more than scale·q·k, and the gradient of the bias.
template <class Pairs, class Number>
__device__ __forceinline__ void weigh_pairs_of_terms(AttentionBackwardParams const& p,
                                                     KeyTileHead const& t, int key, int query,
                                                     std::uint32_t rows, int tile_q,
                                                     std::uint32_t hidden,
                                                     Number (&s)[Pairs::keys][Pairs::queries][4],
                                                     Number (&dp)[Pairs::keys][Pairs::queries][4]) {
  constexpr int step = Pairs::key_step, bytes = sizeof(Number);
  abi::AttentionArgs const& g = p.args.forward;
  auto const place = [&](std::int64_t const(&stride)[4], int i, int j) {
    return t.batch * stride[0] + t.head * stride[1] + i * stride[2] + j * stride[3];
  };
#pragma unroll
  for (int m = 0; m < Pairs::keys; ++m)
#pragma unroll
    for (int b = 0; b < Pairs::queries; ++b) {
      int const i = query + Pairs::query(b), j = key + Pairs::key(m);
      std::uint32_t out = hidden >> ((m * Pairs::queries + b) * 4);
      if (g.mask != nullptr) {
        std::int64_t const at = place(g.mask_stride, i, j);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if ((out >> r & 1) == 0 &&
              g.mask[at + r % 2 * g.mask_stride[2] + r / 2 * step * g.mask_stride[3]] == 0)
            out |= 1u << r;
      }
      Number factor[4] = {1, 1, 1, 1}, x[4];
      if (g.softcap > 0) {
        auto const cap = static_cast<Number>(g.softcap);
        Number const scale = scale_of<Number>(p) / cap;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          Number const capped = tanh_any(s[m][b][r] * scale);
          x[r] = capped * (cap * log2_e_of<Number>);
          factor[r] = fma(-capped, capped, Number{1});
        }
      } else {
#pragma unroll
        for (int r = 0; r < 4; ++r) x[r] = s[m][b][r] * scale_log2_of<Number>(p);
      }
      if (g.bias != nullptr) {
        std::int64_t const at = place(g.bias_stride, i, j);
        auto const add = [&]<class B>(B) {
          add_terms<B, step>(x, g.bias, at, g.bias_stride[2], g.bias_stride[3], out);
        };
        if (g.type_bias == DType::float32)
          add(float());
        else if (g.type_bias == DType::float16)
          add(__half());
        else if (!std::is_same_v<Number, double> || g.type_bias == DType::bfloat16)
          add(__nv_bfloat16());
        else if constexpr (std::is_same_v<Number, double>)
          add(double());
      }
      if (g.alibi != nullptr) {
        Number const slope =
            g.alibi[t.batch * g.alibi_stride[0] + t.head * g.alibi_stride[1]] * log2_e_of<Number>;
        auto const ahead = static_cast<Number>(i + t.offset - j);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          x[r] = fma(-slope, fabs(ahead + static_cast<Number>(r % 2 - r / 2 * step)), x[r]);
      }
      Number shift[2], sum[2];
      load_shared_numbers(shift, rows + Pairs::query(b) * bytes);
      load_shared_numbers(sum, rows + tile_q * bytes + Pairs::query(b) * bytes);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        Number w = power_of_2(x[r] + shift[r % 2]);
        if (out >> r & 1) w = 0;
        Number const gradient = w == 0 ? Number{0} : w * (dp[m][b][r] + sum[r % 2]);
        s[m][b][r] = w;
        dp[m][b][r] = gradient * factor[r];
        x[r] = gradient;
      }
      if (p.args.d_bias != nullptr) {
        std::int64_t const at = place(p.args.d_bias_stride, i, j);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if ((out >> r & 1) == 0)
            store_number(
                p.args.d_bias, p.args.type_d_bias,
                at + r % 2 * p.args.d_bias_stride[2] + r / 2 * step * p.args.d_bias_stride[3],
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
