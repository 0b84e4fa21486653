// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the consumers of attention's gradients do with scores, which lie transposed, keys along
/// rows: 64 keys of a warpgroup against a tile of queries.
#pragma once

#include <type_traits>

#include "common/descriptor_words.cuh"
#include "common/elements.cuh"
#include "params.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/tma.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Rows of an operand from `length` on become 0, by `threads` threads together, of which this one
/// is number `thread`: what lies behind a sequence may be anything, and 0 times NaN is NaN.
template <int Rows, int Panels>
__device__ __forceinline__ void clear_rows(unsigned char* operand, int length, int thread,
                                           int threads, int barrier) {
#pragma unroll 1
  for (int at = length * 8 + thread; at < Rows * 8; at += threads)
#pragma unroll
    for (int panel = 0; panel < Panels; ++panel)
      *reinterpret_cast<uint4*>(operand + panel * Rows * 128 + at * 16) = make_uint4(0, 0, 0, 0);
  fence_proxy_async();
  named_barrier_sync(barrier, threads);
}
/// The same by the consumers of both warpgroups.
template <int Rows, int Panels>
__device__ __forceinline__ void clear_operand(unsigned char* operand, int length) {
  clear_rows<Rows, Panels>(operand, length, static_cast<int>(threadIdx.x) - 128, 256, 2);
}

template <class Config>
struct BackwardScores {
  using T = typename Config::Element;
  static constexpr int tile_q = Config::tile_q, tile_kv = Config::tile_kv;
  static constexpr int q_panel = tile_q * 128, kv_panel = tile_kv * 128;

  Sm90BackwardParams const& p;
  unsigned char* const shared;
  Sm90BackwardSignals<Config>& signals;
  int const consumer;
  int const kept_thread;

  __device__ __forceinline__ BackwardScores(Sm90BackwardParams const& params, unsigned char* base,
                                            Sm90BackwardSignals<Config>& s, int number)
      : p(params),
        shared(base),
        signals(s),
        consumer(number),
        kept_thread(static_cast<int>(threadIdx.x) - 128 * (1 + number)) {}

  /// This thread in the warpgroup. Read anew where there is no register to keep it in.
  __device__ __forceinline__ int own_thread() const {
    return Config::keeps_no_thread ? fresh_thread() % 128 : kept_thread;
  }

  /// Whether there may be positions behind a sequence's last key. Behind all positions that a
  /// tensor has copies bring zeros.
  __device__ __forceinline__ bool keys_are_cut() const {
    abi::AttentionArgs const& g = p.args.forward;
    return g.cu_seqlens_kv.data != nullptr || g.lengths_kv != nullptr;
  }

  /// The first of this warpgroup's keys in the tile.
  __device__ __forceinline__ int first_key() const {
    return Config::shares_keys ? 0 : consumer * 64;
  }

  /// The low word of the descriptor of an operand at stage `stage` of its ring, equal in all lanes
  /// and known to the compiler as such. It is worked out where it is used: registers are scarce.
  __device__ __forceinline__ std::uint32_t operand(int offset, std::uint32_t leading,
                                                   unsigned stage = 0, int bytes = 0) const {
    return at_stage(descriptor_word(shared + offset, leading), stage, bytes);
  }
  /// keys × queries, over the features, added to what `s` holds.
  template <int D>
  __device__ __forceinline__ void multiply_features(float (&s)[tile_q / 2], std::uint32_t keys,
                                                    std::uint32_t queries) const {
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      Wgmma<T, T, tile_q, 0, 0>::multiply(s, descriptor(keys, k / 4 * kv_panel + k % 4 * 32),
                                          descriptor(queries, k / 4 * q_panel + k % 4 * 32), 1);
    wgmma_commit();
  }
  /// What queries of a tile bring to all pairs becomes the first summand of products with them:
  /// minus the log-sum-exp, or (`sums`) minus the row sum.
  __device__ __forceinline__ void start_from_rows(float (&s)[tile_q / 2], int stage,
                                                  bool sums) const {
    int const thread = own_thread();
    std::uint32_t const from = shared_address(shared) + Config::rows_at +
                               stage * Config::row_bytes + (sums ? tile_q * 4 : 0) +
                               static_cast<std::uint32_t>(thread) % 4 * 8;
#pragma unroll
    for (int b = 0; b < tile_q / 8; ++b) {
      float2 const two = load_shared_two(from + b * 32);
      s[4 * b] = s[4 * b + 2] = two.x;
      s[4 * b + 1] = s[4 * b + 3] = two.y;
    }
  }

  __device__ __forceinline__ void start_scores(float (&s)[tile_q / 2], int stage) const {
    if constexpr (Config::terms) {
#pragma unroll
      for (int r = 0; r < tile_q / 2; ++r) s[r] = 0;
    } else {
      start_from_rows(s, stage, false);
    }
  }

  /// Calls f(r) for each of this thread's pairs that does not exist.
  template <class F>
  __device__ __forceinline__ void each_hidden_pair(KeyTileHead const& t, int m, F const& f) const {
    int const thread = own_thread();
    int const key = t.key0 + first_key() + thread / 32 * 16 + thread % 32 / 4;
    int const query = m * tile_q + thread % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Queries that see the key, counted from this thread's first.
      int const j = key + 8 * h, stands = j - t.offset - query;
      int const from = stands - t.reach + 1;
      int const end = j < t.len_kv ? stands + t.window_left + 1 : from;
      auto const seen = static_cast<unsigned>(max(0, end - from));
#pragma unroll
      for (int b = 0; b < tile_q / 8; ++b)
#pragma unroll
        for (int l = 0; l < 2; ++l)
          if (static_cast<unsigned>(8 * b + l - from) >= seen) f(4 * b + 2 * h + l);
    }
  }
  /// Weights of pairs that do not exist become 0.
  __device__ __forceinline__ void hide_pairs(KeyTileHead const& t, int m,
                                             float (&weights)[tile_q / 2]) const {
    each_hidden_pair(
        t, m, [&](int r) __attribute__((always_inline)) { weights[r] = 0; });
  }
  /// Which pairs do not exist, as bits.
  using Hidden = std::conditional_t<tile_q == 64, std::uint32_t, std::uint64_t>;
  __device__ __forceinline__ Hidden hidden_pairs(KeyTileHead const& t, int m) const {
    std::uint32_t words[tile_q / 64] = {};
    each_hidden_pair(
        t, m, [&](int r) __attribute__((always_inline)) { words[r / 32] |= 1u << r % 32; });
    Hidden hidden = words[0];
    if constexpr (tile_q > 64) hidden |= static_cast<Hidden>(words[1]) << 32;
    return hidden;
  }
  __device__ __forceinline__ static void clear_pairs(float (&x)[tile_q / 2], Hidden hidden) {
#pragma unroll
    for (int r = 0; r < tile_q / 2; ++r)
      if (hidden >> r & 1) x[r] = 0;
  }

  /// Two gradients of scores: dout·v less the row sum, times the weights.
  __device__ __forceinline__ static std::uint32_t weighed(float const* dp, std::uint32_t weights) {
    float2 const w = widen_pair<T>(weights);
    return pack_pair<T>(dp[0] * w.x, dp[1] * w.y);
  }
  /// Of two gradients of scores, those whose weights are 0 become 0: what was multiplied by them
  /// may be anything where pairs do not exist.
  __device__ __forceinline__ static void drop_weightless(std::uint32_t& gradients,
                                                         std::uint32_t weights) {
    if ((weights & 0xffffu) == 0) gradients &= 0xffff0000u;
    if ((weights & 0xffff0000u) == 0) gradients &= 0xffffu;
  }

  /// Products become weights, for scores with a softcap or ALiBi. `slopes`: weights times what a
  /// score's derivative by its product is short of the scale, packed.
  __device__ __forceinline__ void weigh_terms(KeyTileHead const& t, int m, int stage,
                                              float (&s)[tile_q / 2],
                                              std::uint32_t (&slopes)[tile_q / 4]) const {
    int const thread = own_thread();
    abi::AttentionArgs const& g = p.args.forward;
    float const slope =
        g.alibi == nullptr
            ? 0.0f
            : g.alibi[t.batch * g.alibi_stride[0] + t.head * g.alibi_stride[1]] * log2_e;
    // How far this thread's first query stands behind its first key.
    auto const ahead = static_cast<float>(m * tile_q + thread % 4 * 2 + t.offset - t.key0 -
                                          first_key() - thread / 32 * 16 - thread % 32 / 4);
    std::uint32_t const rows = shared_address(shared) + Config::rows_at +
                               stage * Config::row_bytes +
                               static_cast<std::uint32_t>(thread) % 4 * 8;
    if (g.softcap > 0) {
      float const cap = static_cast<float>(g.softcap);
      weigh_pairs(s, slopes, rows, slope, ahead, [=, per_cap = 2 * p.scale_log2 / cap](float& x) {
        // To a few units of cap·2^-24, which is what counts in an exponent.
        float const h = fmaf(-2.0f, reciprocal(power_of_2(x * per_cap) + 1.0f), 1.0f);
        x = cap * log2_e * h;
        return fmaf(-h, h, 1.0f);
      });
    } else {
      weigh_pairs(s, slopes, rows, slope, ahead, [scale = p.scale_log2](float& x) {
        x *= scale;
        return 1.0f;
      });
    }
  }
  /// `score` makes a score of a product and returns its derivative.
  template <class Score>
  __device__ __forceinline__ void weigh_pairs(float (&s)[tile_q / 2],
                                              std::uint32_t (&slopes)[tile_q / 4],
                                              std::uint32_t rows, float slope, float ahead,
                                              Score const& score) const {
#pragma unroll
    for (int b = 0; b < tile_q / 8; ++b) {
      float2 const lse = load_shared_two(rows + b * 32);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float* const x = s + 4 * b + 2 * i;
        float const d_0 = score(x[0]), d_1 = score(x[1]);
        x[0] = fmaf(-slope, fabsf(ahead + (8 * b - 8 * i)), x[0]);
        x[1] = fmaf(-slope, fabsf(ahead + (8 * b - 8 * i + 1)), x[1]);
        x[0] = power_of_2(fmaf(lse.x, p.scale_log2, x[0]));
        x[1] = power_of_2(fmaf(lse.y, p.scale_log2, x[1]));
        slopes[2 * b + i] = pack_pair<T>(x[0] * d_0, x[1] * d_1);
      }
    }
  }

  /// Gradients of scores to shared memory, queries along rows.
  __device__ __forceinline__ void store_ds(std::uint32_t const (&gradients)[tile_q / 4],
                                           int stage) const {
    int const thread = own_thread();
    int const lane = thread % 32;
    int const matrix = lane / 8;  // bit 0: keys 8 on, bit 1: queries 8 on
    int const chunk = thread / 32 * 2 + matrix % 2;
    std::uint32_t const base = shared_address(shared) + Config::ds_at + stage * Config::ds_bytes +
                               first_key() / 64 * q_panel + (matrix / 2 * 8 + lane % 8) * 128 +
                               ((chunk ^ lane % 8) * 16);
#pragma unroll
    for (int k = 0; k < tile_q / 16; ++k)
      store_matrices_transposed(base + k * 2048, gradients[4 * k], gradients[4 * k + 1],
                                gradients[4 * k + 2], gradients[4 * k + 3]);
    fence_proxy_async();
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
