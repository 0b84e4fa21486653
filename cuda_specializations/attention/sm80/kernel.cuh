// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of 16-bit types by mma.sync: a tile of queries against blocks of keys and values that
/// stream through a ring in shared memory.
///
/// Each warp has 16 or 32 queries, all features of their sums in registers, and sees every key. A
/// step is a product with a block of keys, or of the weights, which stay in registers, with a block
/// of values; a barrier before each hands the place of the step before on to the copies.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma", "ldmatrix", "cp.async".
#pragma once

#include "attention/shared/epilogue.cuh"
#include "float8.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/registers.cuh"
#include "sequences/mma_tiles.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Excludes the pairs of queries i, i + 8 and keys from j on that a boolean mask excludes.
template <int Count>
__device__ __forceinline__ void apply_mask(abi::AttentionArgs const& g, AttentionTile const& t,
                                           float (&s)[Count], int i, int j) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int const left = i + 8 * half < t.len_q ? t.len_kv - j : 0;
    std::uint8_t const* at = g.mask + t.batch * g.mask_stride[0] + t.head * g.mask_stride[1] +
                             (i + 8 * half) * g.mask_stride[2] + j * g.mask_stride[3];
#pragma unroll
    for (int block = 0; block < Count / 4; ++block, at += 8 * g.mask_stride[3])
#pragma unroll
      for (int l = 0; l < 2; ++l)
        if (8 * block + l < left && at[l * g.mask_stride[3]] == 0)
          s[4 * block + 2 * half + l] = minus_infinity();
  }
}

/// Adds the product of weights and half a block of values that holds infinities or NaN, leaving out
/// the pairs that are excluded: a product of matrices would multiply those values by 0. i is the
/// thread's first query, j the first key.
template <class Config>
__device__ __forceinline__ void multiply_pairwise(
    abi::AttentionArgs const& g, AttentionTile const& t,
    float (&o)[Config::row_tiles][Config::d / 2],
    std::uint32_t const (&weights)[Config::row_tiles][2][Config::tile_n / 8], int half,
    std::uint32_t values, int i, int j) {
  using T = typename Config::Element;
  int const lane = fresh_thread() % 32;
#pragma unroll 1
  for (int key = 0; key < Config::tile_n / 2; ++key) {
    float w[Config::row_tiles][2];
    bool in[Config::row_tiles][2];
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        // Written out, since an index that is not constant would send all weights to memory.
        std::uint32_t pair = 0;
#pragma unroll
        for (int n = 0; n < Config::tile_n / 8; ++n)  // of a block
          take_if_equal(pair,
                        weights[m][n / (Config::tile_n / 16)][n % (Config::tile_n / 16) * 2 + h],
                        half * Config::tile_n / 16 + key / 8, n);
        pair = __shfl_sync(0xffffffff, pair, (lane & ~3) + key % 8 / 2);
        auto const bits = static_cast<unsigned short>(key % 2 == 0 ? pair : pair >> 16);
        w[m][h] = widen(*reinterpret_cast<T const*>(&bits));
        in[m][h] = w[m][h] != 0 || !is_excluded(g, t, i + 16 * m + 8 * h, j + key);
      }
    std::uint32_t const row = values + key * Config::d * 2 + lane % 4 * 4, swizzle = key % 8 * 16;
#pragma unroll
    for (int n = 0; n < Config::d / 8; ++n) {
      std::uint32_t const pair = load_shared_4(row + ((n % 8 * 16) ^ swizzle) + n / 8 * 128);
      auto const low = static_cast<unsigned short>(pair);
      auto const high = static_cast<unsigned short>(pair >> 16);
      float const x = widen(*reinterpret_cast<T const*>(&low));
      float const y = widen(*reinterpret_cast<T const*>(&high));
#pragma unroll
      for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          if (in[m][h]) {
            o[m][4 * n + 2 * h] = fmaf(w[m][h], x, o[m][4 * n + 2 * h]);
            o[m][4 * n + 2 * h + 1] = fmaf(w[m][h], y, o[m][4 * n + 2 * h + 1]);
          }
    }
  }
}

/// Whether scores are more than products times a positive scale.
template <class Config>
__device__ __forceinline__ bool has_terms(MmaAttentionParams const& p,
                                          typename Config::Tile const& t) {
  if constexpr (Config::scaled) return t.terms;
  return !Config::plain && p.terms;
}

/// From products of block n to scores: terms, masks. `terms`: whether they are more than products.
template <class Config, int Scores>
__device__ __forceinline__ void finish_scores(MmaAttentionParams const& p,
                                              typename Config::Tile const& t,
                                              float (&s)[Config::row_tiles][2][Scores], int n,
                                              bool terms) {
  constexpr int row_tiles = Config::row_tiles, scores = Scores, half_n = Config::tile_n / 2;
  // Asked for where it is needed, since registers are scarce.
  bool const right = n >= t.whole_end, left = n < t.whole_from;
  if (right || left || terms) {
    int const own = fresh_thread();
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int const i = own_row<Config>(t, own) + 16 * m;
        int const j = n * Config::tile_n + half * half_n + (own & 3) * 2;
        auto& x = s[m][half];
        if (terms) {
          // In parts, since registers are scarce.
#pragma unroll
          for (int r = 0; r < scores; r += 8) {
            auto& part = reinterpret_cast<float(&)[8]>(x[r]);
            if constexpr (Config::plain) {
              scale_scores(score_terms(p, t, scale_of(p, t)), part);
            } else {
              apply_terms(p, t, score_terms(p, t, scale_of(p, t)), part, i, j + r * 2);
              if (p.args.mask != nullptr) apply_mask(p.args, t, part, i, j + r * 2);
            }
          }
        }
        if (right) mask_right(x, t.seen_end(i) - j, t.seen_end(i + 8) - j);
        if (left) mask_left(x, t.seen_from(i) - j, t.seen_from(i + 8) - j);
      }
  }
}

/// Products with features 16 step ... 16 step + 15 of the keys.
template <class Config, int Steps, int Scores>
__device__ __forceinline__ void multiply_keys(float (&s)[Config::row_tiles][2][Scores],
                                              std::uint32_t (&q)[Config::row_tiles][Steps][4],
                                              std::uint32_t keys, std::uint32_t queries, int step) {
  using T = typename Config::Element;
  constexpr int d = Config::d, tile_n = Config::tile_n, half_n = tile_n / 2;
  if constexpr (!Config::q_in_registers)
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
      load_matrices(q[m][0], chunk_at(queries + m * 16 * d * 2, step * 32));
#pragma unroll
  for (int b = 0; b < tile_n / 8; b += 2) {
    std::uint32_t x[4];
    load_matrices(x, 8 * b * d * 2 + chunk_at(keys, step * 32));
    int const half = b / (half_n / 8), at = b % (half_n / 8) * 4;
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m) {
      auto& a = q[m][Config::q_in_registers ? step : 0];
      multiply_16<T>(reinterpret_cast<float(&)[4]>(s[m][half][at]), a, x[0], x[1]);
      multiply_16<T>(reinterpret_cast<float(&)[4]>(s[m][half][at + 4]), a, x[2], x[3]);
    }
  }
}

/// Products with 16 columns of 16 keys of a half of the values.
template <class Config, int Words>
__device__ __forceinline__ void multiply_values(
    float (&o)[Config::row_tiles][Config::d / 2],
    std::uint32_t const (&weights)[Config::row_tiles][2][Words], std::uint32_t values, int half,
    int product) {
  using T = typename Config::Element;
  constexpr int d = Config::d, steps = d / 16, half_n = Config::tile_n / 2;
  int const b = product / steps, e = product % steps;
  std::uint32_t x[4];
  load_matrices<true>(x, (half * half_n + 16 * b) * d * 2 + chunk_at(values, e * 32));
#pragma unroll
  for (int m = 0; m < Config::row_tiles; ++m) {
    auto const& a = reinterpret_cast<std::uint32_t const(&)[4]>(weights[m][half][4 * b]);
    multiply_16<T>(reinterpret_cast<float(&)[4]>(o[m][8 * e]), a, x[0], x[1]);
    multiply_16<T>(reinterpret_cast<float(&)[4]>(o[m][8 * e + 4]), a, x[2], x[3]);
  }
}

/// Weights of a warp's queries for the two halves of a block of keys, made with the references of
/// before; see online_softmax().
template <class Config>
struct HalfWeights {
  using T = typename Config::Element;
  static constexpr int row_tiles = Config::row_tiles, scores = Config::tile_n / 4;

  std::uint32_t words[row_tiles][2][scores / 2];
  SoftmaxRows rows[row_tiles];
  float shift[row_tiles][2], sum[row_tiles][2], c = 0;

  __device__ __forceinline__ HalfWeights() {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
      rows[m] = {{minus_infinity(), minus_infinity()}, {0.0f, 0.0f}};
  }

  /// `factor`: what makes exponents of scores.
  __device__ __forceinline__ void begin(float factor) {
    c = factor;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) shift[m][i] = rows[m].largest[i] * c, sum[m][i] = 0;
  }
  /// Part `step` of `of` of the weights of a half.
  __device__ __forceinline__ void make(float const (&s)[row_tiles][2][scores], int half, int step,
                                       int of) {
    constexpr int pairs = row_tiles * scores / 2;
#pragma unroll
    for (int w = step * pairs / of; w < (step + 1) * pairs / of; ++w) {
      int const m = w % row_tiles, r = w / row_tiles * 2, i = r / 2 % 2;
      float const x = power_of_2(fmaf(s[m][half][r], c, -shift[m][i]));
      float const y = power_of_2(fmaf(s[m][half][r + 1], c, -shift[m][i]));
      sum[m][i] += x + y;
      words[m][half][r / 2] = pack_pair<T>(x, y);
    }
  }
  /// Makes them anew where a sum shows, as NaN if there was none, that the references are too
  /// small, and scales what was summed so far to larger ones.
  __device__ __forceinline__ void end(float const (&s)[row_tiles][2][scores],
                                      float (&o)[row_tiles][Config::d / 2], int half) {
    bool beyond = false;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
      beyond = beyond || !(sum[m][0] <= sum_limit) || !(sum[m][1] <= sum_limit);
    if (__any_sync(0xffffffff, beyond)) {
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        float seen[2], factor[2];
        largest_score<scores>(s[m][half], seen);
        raise_reference(seen, rows[m], c, factor);
        weigh<T>(s[m][half], rows[m], c, words[m][half], sum[m]);
#pragma unroll
        for (int r = 0; r < Config::d / 2; ++r) o[m][r] *= factor[r / 2 % 2];
      }
    }
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) rows[m].sum[i] += sum[m][i];
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    sm80_attention_kernel(__grid_constant__ MmaAttentionParams const p) {
  using T = typename Config::Element;
  constexpr int d = Config::d, tile_n = Config::tile_n, row_tiles = Config::row_tiles;
  extern __shared__ unsigned char raw_shared[];
  // Banks follow from the address.
  std::uint32_t const shared = (shared_address(raw_shared) + 127u) & ~127u;
  abi::AttentionArgs const& g = p.args;
  __shared__ typename Config::Tile t;
  if (!take_tile<Config>(p, t)) return;
  if (t.end <= t.first) {
    store_zeros<Config, float>(p, t);
    return;
  }
  constexpr int ring_at = Config::q_through_ring ? 0 : Config::q_bytes;
  using Ring = std::conditional_t<Config::scaled, ByteRing<Config>, KeyRing<Config>>;
  if constexpr (Config::scaled) {  // through the place of bytes of keys and values
    std::uint32_t const bytes = shared + ring_at + Ring::bytes_at;
    load_queries<Config>(p, t, bytes);
    copy_async_wait<0>();
    widen_own<Config, Config::tile_m>(bytes, shared);
  } else {
    load_queries<Config>(p, t, shared);
  }
  // Where a lane reads of queries or values, rows first, and of blocks of 8 keys and 8 features,
  // features first: lane 8 n + l gives row l of matrix n. Worked out, as what follows from the
  // thread in general, where it is needed: registers are scarce.
  auto const row_lane = [](unsigned thread) {
    return thread % 16 * d * 2 + ((thread / 16 % 2) ^ (thread % 8)) * 16;
  };
  auto const key_lane = [](unsigned thread) {
    return (thread / 2 % 16 / 8 * 8 + thread % 8) * d * 2 + ((thread / 8 % 2) ^ (thread % 8)) * 16;
  };
  auto const own_queries = [&](unsigned thread) {
    return shared + thread / 32 * row_tiles * 16 * d * 2 + row_lane(thread);
  };
  [[maybe_unused]] std::uint32_t q[row_tiles][Config::q_in_registers ? d / 16 : 1][4];
  auto const take_queries = [&] {
    if constexpr (Config::q_in_registers) {
      std::uint32_t const queries = own_queries(static_cast<unsigned>(fresh_thread()));
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
#pragma unroll
        for (int step = 0; step < d / 16; ++step)
          load_matrices(q[m][step], chunk_at(queries + m * 16 * d * 2, step * 32));
    }
  };
  if constexpr (Config::q_through_ring) {
    copy_async_wait<0>();
    __syncthreads();
    take_queries();
    __syncthreads();
  }
  Ring ring(p, t, shared + ring_at);
  if constexpr (Config::q_in_registers && !Config::q_through_ring) {
    copy_async_wait<Config::stages - 1>();
    __syncthreads();
    take_queries();
  }

  // What makes exponents of scores.
  auto const exponent_factor = [&] {
    float c;
    if constexpr (Config::scaled)
      c = t.exponent;
    else
      c = !Config::plain && p.terms ? 1.0f : p.scale * log2_e;
    make_opaque(c);
    return c;
  };
  // A block's keys are taken in two halves: weights of the second are made beside the products of
  // the first with values.
  constexpr int steps = d / 16, half_n = tile_n / 2, scores = half_n / 2;
  static_assert(half_n % 16 == 0);
  float o[row_tiles][d / 2] = {};
  float s[row_tiles][2][scores];
  HalfWeights<Config> weights;

  constexpr int products = half_n / 16 * steps;
  bool const terms = has_terms<Config>(p, t), excludes = !Config::plain && p.excludes;
#pragma unroll 1
  for (int n = uniform(t.end) - 1; n >= ring.loader.first; --n) {
    std::uint32_t const key_block = ring.wait_for_keys();
    bool const active = sees_block<Config>(t, n);
    ring.template fill<false>(n);
    if (active) {
      auto const thread = static_cast<unsigned>(fresh_thread());
      std::uint32_t const keys = key_block + key_lane(thread), queries = own_queries(thread);
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
#pragma unroll
        for (int r = 0; r < scores; ++r) s[m][0][r] = s[m][1][r] = 0;
#pragma unroll
      for (int step = 0; step < steps; ++step) multiply_keys<Config>(s, q, keys, queries, step);
      finish_scores<Config>(p, t, s, n, terms);
      weights.begin(exponent_factor());
      weights.make(s, 0, 0, 1);
      weights.end(s, o, 0);
    }
    bool pairwise;
    bool const masked = n >= t.whole_end || n < t.whole_from;
    std::uint32_t const value_block = ring.wait_for_values(masked || excludes, pairwise);
    if (active) {
      weights.begin(exponent_factor());
      if (!pairwise) {
        std::uint32_t const values = value_block + row_lane(static_cast<unsigned>(fresh_thread()));
#pragma unroll
        for (int k = 0; k < products; ++k) {
          multiply_values<Config>(o, weights.words, values, 0, k);
          weights.make(s, 1, k, products);
        }
        weights.end(s, o, 1);
#pragma unroll
        for (int k = 0; k < products; ++k) multiply_values<Config>(o, weights.words, values, 1, k);
      } else {
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          if (half == 1) {
            weights.make(s, 1, 0, 1);
            weights.end(s, o, 1);
          }
          multiply_pairwise<Config>(g, t, o, weights.words, half,
                                    value_block + half * half_n * d * 2,
                                    own_row<Config>(t, fresh_thread()), n * tile_n + half * half_n);
        }
      }
    }
    ring.template fill<true>(n);
  }
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
    store_rows<Config>(p, t, o[m], weights.rows[m], exponent_factor(),
                       own_row<Config>(t, fresh_thread()) - t.row0 + 16 * m, false);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
