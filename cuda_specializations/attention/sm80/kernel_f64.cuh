// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of float64 on the tensor cores of sm_80 and later: as kernel.cuh, each warp
/// with 16 queries.
///
/// The order of features in products with keys, and of keys and columns in products with values, is
/// free, and chosen so that fragments are 16 bytes of a row, and weights are a left operand as they
/// stand: of features 8 t ... 8 t + 7 lane q of four has 2 q and 2 q + 1, the one in one step of
/// four and the other in the next; likewise of keys. Columns 16 n + 2 g and 16 n + 2 g + 1 are
/// number g of two blocks of eight: so lane q ends up with columns 16 n + 4 q ... + 3 of a row.
///
/// In s[4 b + 2 h + j] is the score of row g + 8 h, key 8 b + 2 q + j.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma".
#pragma once

#include <attikos/ptx/mma_sync.hpp>

#include "attention/shared/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/registers.cuh"
#include "sequences/row_sum.cuh"
#include "sequences/score_math_f64.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Two numbers, 16 bytes, from a shared address.
__device__ __forceinline__ void load_two(double& x, double& y, std::uint32_t address) {
  double2 const both = load_shared_pair(address);
  x = both.x, y = both.y;
}

/// Offset of a chunk of row r of a tile. Rows 8 apart are swizzled alike, likewise chunks.
template <class Config>
__device__ __forceinline__ std::uint32_t chunk_of(int r, int chunk) {
  return static_cast<std::uint32_t>(r * Config::d * 8 + (chunk ^ row_swizzle<double>(r)) * 16);
}

/// Where element (batch, head, i, j) of a bias or mask of a tile lies.
__device__ __forceinline__ std::int64_t pair_offset(std::int64_t const (&stride)[4],
                                                    AttentionTile const& t, int i, int j) {
  return t.batch * stride[0] + t.head * stride[1] + i * stride[2] + j * stride[3];
}

/// Whether query i attends to key j.
__device__ __forceinline__ bool is_pair(abi::AttentionArgs const& g, AttentionTile const& t, int i,
                                        int j) {
  if (i >= t.len_q || j < t.seen_from(i) || j >= t.seen_end(i)) return false;
  return g.mask == nullptr || g.mask[pair_offset(g.mask_stride, t, i, j)] != 0;
}

/// The score of a pair from its product.
__device__ __forceinline__ double score_of(abi::AttentionArgs const& g, AttentionTile const& t,
                                           double product, int i, int j) {
  double s = product * g.softmax_scale;
  if (g.softcap > 0) s = g.softcap * tanh(s / g.softcap);
  if (g.bias != nullptr) s += load_double(g.bias, g.type_bias, pair_offset(g.bias_stride, t, i, j));
  if (g.alibi != nullptr)
    s -= static_cast<double>(g.alibi[t.batch * g.alibi_stride[0] + t.head * g.alibi_stride[1]]) *
         abs(i + t.offset - j);
  return s * log2_e_64;
}

/// Products become scores, of a thread's queries i, i + 8 and keys from j on.
template <int Count>
__device__ __forceinline__ void score_pairs(abi::AttentionArgs const& g, AttentionTile const& t,
                                            bool terms, double (&s)[Count], int i, int j) {
#pragma unroll
  for (int r = 0; r < Count; ++r) {
    int const row = i + r / 2 % 2 * 8, key = j + r / 4 * 8 + r % 2;
    if (!is_pair(g, t, row, key))
      s[r] = minus_infinity_64();
    else if (terms)
      s[r] = score_of(g, t, s[r], row, key);
  }
}

/// What the exponents of a thread's two queries are relative to, and its share of the sums of
/// their weights.
struct DoubleRows {
  double reference[2], sum[2];
};

/// Scores become weights 2^(c·s - reference). The reference is not the largest exponent so far: it
/// is raised only when there was none or one exceeds it by 64. Returns whether it was for a query;
/// what was summed must then be scaled by `factor`.
template <int Count>
__device__ __forceinline__ bool online_softmax_64(double (&s)[Count], DoubleRows& rows, double c,
                                                  double (&factor)[2]) {
  constexpr int upper_half_of_64 = 0x40500000;
  int top = 0;
#pragma unroll
  for (int r = 0; r < Count; ++r) {
    double const reference = rows.reference[r / 2 % 2];
    s[r] = fma(s[r], c, reference == minus_infinity_64() ? 0.0 : -reference);
    top = max(top, __double2hiint(s[r]));
  }
  bool const raise =
      __any_sync(0xffffffff, top >= upper_half_of_64 || rows.reference[0] == minus_infinity_64() ||
                                 rows.reference[1] == minus_infinity_64());
  if (raise) {
    double largest[2] = {minus_infinity_64(), minus_infinity_64()};
#pragma unroll
    for (int r = 0; r < Count; ++r) largest[r / 2 % 2] = fmax(largest[r / 2 % 2], s[r]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      double step = largest[h];
      step = fmax(step, __shfl_xor_sync(0xffffffff, step, 1));
      step = fmax(step, __shfl_xor_sync(0xffffffff, step, 2));
      bool const first = rows.reference[h] == minus_infinity_64();
      if (first) rows.reference[h] = step;
      step = first ? (step == minus_infinity_64() ? 0.0 : step) : fmax(step, 0.0);
      if (!first) rows.reference[h] += step;
      factor[h] = first ? 1.0 : power_of_2(-step);
      rows.sum[h] *= factor[h];
#pragma unroll
      for (int r = 2 * h; r < Count; r += 4) s[r] -= step, s[r + 1] -= step;
    }
  }
#pragma unroll
  for (int r = 0; r < Count; ++r) {
    s[r] = power_of_2(s[r]);
    rows.sum[r / 2 % 2] += s[r];
  }
  return raise;
}

/// Adds weights times a block of values.
template <class Config>
__device__ __forceinline__ void multiply_values(double (&o)[Config::d / 2],
                                                double const (&s)[Config::tile_n / 2],
                                                std::uint32_t values) {
  int const lane = fresh_thread() % 32;
  std::uint32_t const row_0 = values + chunk_of<Config>(lane % 4 * 2, lane / 4);
  std::uint32_t const row_1 = values + chunk_of<Config>(lane % 4 * 2 + 1, lane / 4);
#pragma unroll
  for (int b = 0; b < Config::tile_n / 16; ++b) {
    double x[8];
#pragma unroll
    for (int e = 0; e < 8; ++e)  // step e / 2, row half e % 2
      x[e] = s[8 * b + e / 4 * 4 + e % 2 * 2 + e / 2 % 2];
#pragma unroll
    for (int c = 0; c < Config::d / 16; ++c) {
      double y[4], z[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        load_two(y[e], z[e],
                 (e % 2 == 0 ? row_0 : row_1) + (16 * b + e / 2 * 8) * Config::d * 8 + c * 128);
      mma_f64<4>(reinterpret_cast<double(&)[4]>(o[8 * c]), x, y);
      mma_f64<4>(reinterpret_cast<double(&)[4]>(o[8 * c + 4]), x, z);
    }
  }
}

/// Adds weights times a block of values that holds infinities or NaN, leaving out pairs that are
/// excluded: a product of matrices would multiply those values by 0.
template <class Config>
__device__ __forceinline__ void multiply_pairwise(abi::AttentionArgs const& g,
                                                  AttentionTile const& t,
                                                  double (&o)[Config::d / 2],
                                                  double const (&s)[Config::tile_n / 2],
                                                  std::uint32_t values, int i, int j) {
  int const lane = fresh_thread() % 32;
#pragma unroll 1
  for (int key = 0; key < Config::tile_n; ++key) {
    double w[2];
    bool in[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Written out, since an index that is not constant would send all weights to memory.
      double x = 0;
#pragma unroll
      for (int n = 0; n < Config::tile_n / 4; ++n)
        take_if_equal(x, s[n / 2 * 4 + 2 * h + n % 2], key / 8 * 2 + key % 2, n);
      w[h] = __shfl_sync(0xffffffff, x, (lane & ~3) + key % 8 / 2);
      int const row = i + 8 * h;
      in[h] = w[h] != 0 ||
              (is_pair(g, t, row, j + key) &&
               (g.bias == nullptr ||
                load_double(g.bias, g.type_bias, pair_offset(g.bias_stride, t, row, j + key)) !=
                    minus_infinity_64()));
    }
#pragma unroll
    for (int n = 0; n < Config::d / 16; ++n)
#pragma unroll
      for (int l = 0; l < 2; ++l) {  // columns 16 n + 4 q + 2 l, + 1
        double x, y;
        load_two(x, y, values + chunk_of<Config>(key, 8 * n + lane % 4 * 2 + l));
#pragma unroll
        for (int h = 0; h < 2; ++h)
          if (in[h]) {
            o[8 * n + 2 * h + l] = fma(w[h], x, o[8 * n + 2 * h + l]);
            o[8 * n + 4 + 2 * h + l] = fma(w[h], y, o[8 * n + 4 + 2 * h + l]);
          }
      }
  }
}

/// Base2Rows of float64.
struct Base2DoubleRows {
  static constexpr bool quick = false;
  __device__ __forceinline__ static double power(double x) { return power_of_2(x); }
  __device__ __forceinline__ static double log_sum_exp(double top, double sum) {
    return (top + log2(sum)) / log2_e_64;
  }
};

/// Stores the sums of this thread's two queries, the first of which is i, and their log-sum-exp.
template <class Config>
__device__ __forceinline__ void store_rows_64(abi::AttentionArgs const& g, AttentionTile const& t,
                                              double const (&o)[Config::d / 2],
                                              DoubleRows const& rows, int i) {
  int const q = fresh_thread() % 4;
  std::int64_t const b = g.cu_seqlens_q.data != nullptr ? 0 : t.batch;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int const row = i + 8 * h;
    double sum = rows.sum[h], top = rows.reference[h];
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    if (row >= t.rows) continue;
    bool const empty = row >= t.len_q || sum == 0;
    RowEnd<double> const end = finish_row<Base2DoubleRows>(
        empty, top, sum, g.sinks != nullptr,
        [&] { return load_double(g.sinks, g.type_sinks, t.head * g.sinks_stride) * log2_e_64; });
    std::int64_t const position = std::int64_t{t.begin_q} + row;
    if (g.lse != nullptr && q == 0)
      static_cast<double*>(
          g.lse)[b * g.lse_stride[0] + t.head * g.lse_stride[1] + position * g.lse_stride[2]] =
          end.lse;
    double* at = static_cast<double*>(g.out) + b * g.out_stride[0] + t.head * g.out_stride[1] +
                 position * g.out_stride[2] + 4 * q * g.out_stride[3];
#pragma unroll
    for (int n = 0; n < Config::d / 16; ++n) {
#pragma unroll
      for (int l = 0; l < 4; ++l) {  // column 16 n + 4 q + l is of block l % 2, number l / 2
        if (16 * n + 4 * q + l < g.head_dim_v)
          *at = empty ? 0.0 : o[8 * n + l % 2 * 4 + 2 * h + l / 2] * end.factor;
        at += l < 3 ? g.out_stride[3] : 13 * g.out_stride[3];
        make_opaque(at);  // else all addresses would be computed first and kept
      }
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    sm80_attention_f64_kernel(__grid_constant__ MmaAttentionParams const p) {
  constexpr int d = Config::d, tile_n = Config::tile_n;
  static_assert(Config::row_tiles == 1 && tile_n % 16 == 0);
  extern __shared__ unsigned char raw_shared[];
  std::uint32_t const shared = (shared_address(raw_shared) + 127u) & ~127u;
  abi::AttentionArgs const& g = p.args;
  __shared__ MmaAttentionTile t;
  if (!take_tile<Config>(p, t)) return;
  if (t.end <= t.first) {
    store_zeros<Config, double>(p, t);
    return;
  }
  load_queries<Config>(p, t, shared);
  [[maybe_unused]] double q[Config::q_in_registers ? d / 16 : 1][8];
  // Features 16 k ... 16 k + 15 of this thread's queries.
  auto const take_queries = [&](double(&x)[8], int k) {
    int const thread = fresh_thread(), row = thread / 32 * 16 + thread % 32 / 4;
    std::uint32_t const at = shared + chunk_of<Config>(row, thread % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int l = 0; l < 2; ++l)
        load_two(x[4 * l + h], x[4 * l + 2 + h], (at ^ l * 64u) + h * 8 * d * 8 + k * 128);
  };
  if constexpr (Config::q_in_registers) {
    copy_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < d / 16; ++k) take_queries(q[k], k);
    __syncthreads();
  }
  KeyRing<Config> ring(p, t, shared + (Config::q_through_ring ? 0 : Config::q_bytes));
  double o[d / 2] = {};
  DoubleRows rows = {{minus_infinity_64(), minus_infinity_64()}, {0.0, 0.0}};
  bool const terms = !Config::plain && p.terms, excludes = !Config::plain && p.excludes;
  // What makes exponents of scores; worked out anew each time, since registers are scarce.
  auto const exponent_factor = [&] {
    double c = terms ? 1.0 : g.softmax_scale * log2_e_64;
    make_opaque(c);
    return c;
  };
#pragma unroll 1
  for (int n = uniform(t.end) - 1; n >= ring.loader.first; --n) {
    bool const masked = n >= t.whole_end || n < t.whole_from, active = sees_block<Config>(t, n);
    std::uint32_t const keys = ring.wait_for_keys();
    double s[tile_n / 2];
    if (active) {
#pragma unroll
      for (int r = 0; r < tile_n / 2; ++r) s[r] = 0;
      int const lane = fresh_thread() % 32;
      std::uint32_t const at = keys + chunk_of<Config>(lane / 4, lane % 4);
#pragma unroll
      for (int k = 0; k < d / 16; ++k) {
        if constexpr (!Config::q_in_registers) take_queries(q[0], k);
#pragma unroll
        for (int b = 0; b < tile_n / 8; ++b) {
          double y[4];
          load_two(y[0], y[1], at + b * 8 * d * 8 + k * 128);
          load_two(y[2], y[3], (at ^ 64u) + b * 8 * d * 8 + k * 128);
          mma_f64<4>(reinterpret_cast<double(&)[4]>(s[4 * b]), q[Config::q_in_registers ? k : 0],
                     y);
        }
      }
    }
    ring.template fill<false>(n);
    if (active) {
      int const i = own_row<Config>(t, fresh_thread()), lane = fresh_thread() % 32;
      if (masked || terms) score_pairs(g, t, terms, s, i, n * tile_n + lane % 4 * 2);
      double factor[2];
      if (online_softmax_64(s, rows, exponent_factor(), factor)) {
#pragma unroll
        for (int r = 0; r < d / 2; ++r) o[r] *= factor[r / 2 % 2];
      }
    }
    bool pairwise;
    std::uint32_t const values = ring.wait_for_values(masked || excludes, pairwise);
    if (active && pairwise)
      multiply_pairwise<Config>(g, t, o, s, values, own_row<Config>(t, fresh_thread()), n * tile_n);
    else if (active)
      multiply_values<Config>(o, s, values);
    ring.template fill<true>(n);
  }
  store_rows_64<Config>(g, t, o, rows, own_row<Config>(t, fresh_thread()));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
