// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of float64 on the tensor cores of sm_80 and later: as sm80_attention.cuh, each warp
/// with 16 queries.
///
/// The order of features in products with keys, and of keys and columns in products with values, is
/// free, and chosen so that fragments are 16 bytes of a row, and weights are a left operand as they
/// stand: of features 8 t ... 8 t + 7 lane q of four has 2 q and 2 q + 1, the one in one step of
/// four and the other in the next; likewise of keys. Columns 16 n + 2 g and 16 n + 2 g + 1 are
/// number g of two blocks of eight: so lane q ends up with columns 16 n + 4 q ... + 3 of a row.
///
/// Scores are kept in units of the base-2 exponent: in s[4 b + 2 h + j] row g + 8 h, key 8 b + 2 q
/// + j.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma".
#pragma once

#include "../ptx/mbarrier.cuh"
#include "../ptx/mma_sync.cuh"
#include "sm80_attention_ring.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr double log2_e_64 = 1.4426950408889634074;

__device__ __forceinline__ double minus_infinity_64() {
  return __longlong_as_double(0xfff0000000000000ll);
}

__device__ __forceinline__ double load_double(void const* from, DType type, std::int64_t at) {
  return type == DType::float64 ? static_cast<double const*>(from)[at] : load_float(from, type, at);
}

/// Two numbers, 16 bytes, from a shared address.
__device__ __forceinline__ void load_two(double& x, double& y, std::uint32_t address) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(x), "=d"(y) : "r"(address) : "memory");
}

/// Offset of a chunk of row r of a tile.
template <class Config>
__device__ __forceinline__ std::uint32_t chunk_of(int r, int chunk) {
  return static_cast<std::uint32_t>(r * Config::d * 8 + (chunk ^ row_turn<double>(r)) * 16);
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
                                            bool terms, bool masked, double (&s)[Count], int i,
                                            int j) {
  if (!terms) {
    double const c = g.softmax_scale * log2_e_64;
#pragma unroll
    for (int r = 0; r < Count; ++r) s[r] *= c;
    if (!masked) return;
  }
#pragma unroll
  for (int r = 0; r < Count; ++r) {
    int const row = i + r / 2 % 2 * 8, key = j + r / 4 * 8 + r % 2;
    if (!is_pair(g, t, row, key))
      s[r] = minus_infinity_64();
    else if (terms)
      s[r] = score_of(g, t, s[r], row, key);
  }
}

/// Largest score of a thread's two queries so far, and its share of the sums of their weights.
struct DoubleRows {
  double largest[2], sum[2];
};

/// Scores become weights 2^(s - largest). Returns whether a query's largest score has grown; what
/// was summed must then be scaled by `factor`.
template <int Count>
__device__ __forceinline__ bool online_softmax_64(double (&s)[Count], DoubleRows& rows,
                                                  double (&factor)[2]) {
  double top[2] = {rows.largest[0], rows.largest[1]};
#pragma unroll
  for (int r = 0; r < Count; ++r) top[r / 2 % 2] = fmax(top[r / 2 % 2], s[r]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmax(top[h], __shfl_xor_sync(0xffffffff, top[h], 1));
    top[h] = fmax(top[h], __shfl_xor_sync(0xffffffff, top[h], 2));
  }
  bool const grown = __any_sync(0xffffffff, top[0] > rows.largest[0] || top[1] > rows.largest[1]);
  if (grown) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      factor[h] = top[h] == rows.largest[h] ? 1.0 : exp2(rows.largest[h] - top[h]);
      rows.largest[h] = top[h];
      rows.sum[h] *= factor[h];
    }
  }
#pragma unroll
  for (int r = 0; r < Count; ++r) {
    double const m = rows.largest[r / 2 % 2];
    s[r] = exp2(s[r] - (m == minus_infinity_64() ? 0.0 : m));
    rows.sum[r / 2 % 2] += s[r];
  }
  return grown;
}

/// Adds weights times a block of values.
template <class Config>
__device__ __forceinline__ void multiply_values(double (&o)[Config::d / 2],
                                                double const (&s)[Config::tile_n / 2],
                                                std::uint32_t values) {
  int const lane = fresh_thread() % 32;
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
        load_two(
            y[e], z[e],
            values + chunk_of<Config>(16 * b + e / 2 * 8 + lane % 4 * 2 + e % 2, 8 * c + lane / 4));
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
        asm("{\n.reg .pred here;\nsetp.eq.s32 here, %1, %2;\nselp.f64 %0, %3, %0, here;\n}"
            : "+d"(x)
            : "r"(key / 8 * 2 + key % 2), "r"(n), "d"(s[n / 2 * 4 + 2 * h + n % 2]));
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
    double sum = rows.sum[h], top = rows.largest[h], factor = 1;
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    if (row >= t.rows) continue;
    bool const empty = row >= t.len_q || sum == 0;
    if (!empty && g.sinks != nullptr) {
      double const sink = load_double(g.sinks, g.type_sinks, t.head * g.sinks_stride) * log2_e_64;
      double const before = top;
      top = fmax(before, sink);
      factor = exp2(before - top);
      sum = fma(sum, factor, exp2(sink - top));
    }
    factor = empty ? 0.0 : factor / sum;
    std::int64_t const position = std::int64_t{t.begin_q} + row;
    if (g.lse != nullptr && q == 0)
      static_cast<double*>(
          g.lse)[b * g.lse_stride[0] + t.head * g.lse_stride[1] + position * g.lse_stride[2]] =
          empty ? minus_infinity_64() : (top + log2(sum)) / log2_e_64;
    double* at = static_cast<double*>(g.out) + b * g.out_stride[0] + t.head * g.out_stride[1] +
                 position * g.out_stride[2] + 4 * q * g.out_stride[3];
#pragma unroll
    for (int n = 0; n < Config::d / 16; ++n) {
#pragma unroll
      for (int l = 0; l < 4; ++l) {  // column 16 n + 4 q + l is of block l % 2, number l / 2
        if (16 * n + 4 * q + l < g.head_dim_v)
          *at = empty ? 0.0 : o[8 * n + l % 2 * 4 + 2 * h + l / 2] * factor;
        at += l < 3 ? g.out_stride[3] : 13 * g.out_stride[3];
        asm volatile("" : "+l"(at));  // else all addresses would be computed first and kept
      }
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    sm80_attention_f64_kernel(__grid_constant__ Sm80AttentionParams const p) {
  constexpr int d = Config::d, tile_n = Config::tile_n;
  static_assert(Config::row_tiles == 1 && tile_n % 16 == 0);
  extern __shared__ unsigned char raw_shared[];
  std::uint32_t const shared = (shared_address(raw_shared) + 127u) & ~127u;
  abi::AttentionArgs const& g = p.args;
  __shared__ Sm80AttentionTile t;
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
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int l = 0; l < 2; ++l)
        load_two(x[4 * l + h], x[4 * l + 2 + h],
                 shared + chunk_of<Config>(row + 8 * h, 8 * k + 4 * l + thread % 4));
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
#pragma unroll 1
  for (int n = uniform(t.end) - 1; n >= ring.loader.first; --n) {
    bool const masked = n >= t.whole_end || n < t.whole_from, active = sees_block<Config>(t, n);
    std::uint32_t const keys = ring.wait_for_keys();
    double s[tile_n / 2];
    if (active) {
#pragma unroll
      for (int r = 0; r < tile_n / 2; ++r) s[r] = 0;
      int const lane = fresh_thread() % 32;
#pragma unroll
      for (int k = 0; k < d / 16; ++k) {
        if constexpr (!Config::q_in_registers) take_queries(q[0], k);
#pragma unroll
        for (int b = 0; b < tile_n / 8; ++b) {
          double y[4];
          std::uint32_t const at = keys + chunk_of<Config>(8 * b + lane / 4, 8 * k + lane % 4);
          load_two(y[0], y[1], at);
          load_two(y[2], y[3], at ^ 64u);
          mma_f64<4>(reinterpret_cast<double(&)[4]>(s[4 * b]), q[Config::q_in_registers ? k : 0],
                     y);
        }
      }
    }
    ring.template fill<false>(n);
    if (active) {
      int const i = own_row<Config>(t, fresh_thread()), lane = fresh_thread() % 32;
      score_pairs(g, t, p.terms, masked, s, i, n * tile_n + lane % 4 * 2);
      double factor[2];
      if (online_softmax_64(s, rows, factor)) {
#pragma unroll
        for (int r = 0; r < d / 2; ++r) o[r] *= factor[r / 2 % 2];
      }
    }
    bool pairwise;
    std::uint32_t const values = ring.wait_for_values(masked || p.excludes, pairwise);
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
