// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The warpgroups of consumers for head dimensions above 128: 64 keys, which stay, against all
/// tiles of queries that see them.
///
/// Sums of dk and of dv of 64 keys fill a warpgroup's registers each, so that one warpgroup has dv,
/// the other dk. The first makes scores and weights, which are the left operand of dv where they
/// are, in registers; the second makes dout·v, takes the weights from it through shared memory and
/// has gradients of scores, the left operand of dk. These go through shared memory for dq, of which
/// either warpgroup has half of the features. One warpgroup's arithmetic is beside the other's
/// products.
///
/// Weights number n are read before gradients of scores number n are passed on, and these by both
/// products before weights number n + 1 are: one place for each is enough, and no signal back.
#pragma once

#include "attention_backward/shared/store.cuh"
#include "ptx/wgmma_rs.cuh"
#include "scores.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Config>
struct WideBackwardConsumer : BackwardScores<Config> {
  using Base = BackwardScores<Config>;
  using T = typename Config::Element;
  static constexpr int D = Config::d, DV = Config::d_v, tile_q = Config::tile_q;
  static constexpr int tile_kv = Config::tile_kv;
  /// Features of dq that a warpgroup works on in either of two steps: a panel of k's and what there
  /// is of the next, or half of the one in the middle.
  template <bool First, int Step>
  static __device__ constexpr int step_width() {
    return D == 256 || First == (Step == 0) ? 64 : 32;
  }
  static constexpr int panel_bytes = tile_q * 128;
  static_assert(tile_q == 64 && tile_kv == 64 && (D == 192 || D == 256));

  using Base::consumer, Base::own_thread, Base::operand, Base::p, Base::shared, Base::signals;
  using Base::drop_weightless, Base::hide_pairs, Base::start_from_rows, Base::start_scores;
  using Base::store_ds, Base::weigh_terms, Base::weighed;

  __device__ __forceinline__ WideBackwardConsumer(Sm90BackwardParams const& params,
                                                  unsigned char* base,
                                                  Sm90BackwardSignals<Config>& s, int number)
      : Base(params, base, s, number) {}

  static __device__ __forceinline__ int q_stage(unsigned n) {
    return static_cast<int>(stage_of<Config::q_stages>(n));
  }
  static __device__ __forceinline__ int dout_stage(unsigned n) {
    return static_cast<int>(stage_of<Config::dout_stages>(n));
  }
  /// Right operands: rows of features along K, of which each adds to scores; or features along N.
  __device__ __forceinline__ std::uint32_t queries(unsigned n, std::uint32_t leading) const {
    return operand(Config::q_at, leading, q_stage(n), Config::q_bytes);
  }
  __device__ __forceinline__ std::uint32_t douts(unsigned n, std::uint32_t leading) const {
    return operand(Config::dout_at, leading, dout_stage(n), Config::dout_bytes);
  }

  /// Sums that stay: keys × features, over the queries, the left operand in registers.
  template <int Width>
  __device__ __forceinline__ void add_queries(float (&to)[Width / 2],
                                              std::uint32_t const (&left)[tile_q / 4],
                                              std::uint32_t right) const {
#pragma unroll
    for (int k = 0; k < tile_q / 16; ++k)
      WgmmaRs<T, Width>::multiply(to, left + 4 * k, descriptor(right, k * 2048), 1);
    wgmma_commit();
  }

  /// Part of dq: queries × `Width` features from byte `from` of k's features on, over the keys.
  template <int Width>
  __device__ __forceinline__ void multiply_keys(float (&dq)[Width / 2], int from) const {
    std::uint32_t const ds = operand(Config::ds_at, 16);
    std::uint32_t const keys = operand(Config::k_at + from, panel_bytes);
#pragma unroll
    for (int k = 0; k < tile_kv / 16; ++k)
      Wgmma<T, T, Width, 0, 1>::multiply(dq, descriptor(ds, k * 32), descriptor(keys, k * 2048),
                                         k != 0);
  }
  /// The products of dq in a step.
  template <bool First, int Step>
  __device__ __forceinline__ void multiply_keys(float (&dq)[step_width<First, Step>() / 2]) const {
    constexpr int feature = (First ? 0 : D / 2) + (Step == 0 ? 0 : step_width<First, 0>());
    multiply_keys<step_width<First, Step>()>(dq, feature / 64 * panel_bytes + feature % 64 * 2);
    wgmma_commit();
  }

  /// Hands a step's part of dq, of tile number `n`, to the warp that takes it to memory.
  template <bool First, int Step>
  __device__ __forceinline__ void put_dq(float const (&dq)[step_width<First, Step>() / 2],
                                         unsigned n) const {
    constexpr int parts = Config::dq_parts, stages = Config::dq_stages;
    static_assert(parts % stages == 0);  // so that a part's stage is a constant
    int const thread = own_thread();
    std::uint32_t const to = shared_address(shared) + Config::dq_at +
                             consumer * (stages * Config::dq_bytes) + thread * 16;
#pragma unroll
    for (int i = 0; i < step_width<First, Step>() / 32; ++i) {
      int const part = Step * (step_width<First, 0>() / 32) + i, stage = stage_of<stages>(part);
      unsigned const round = n * (parts / stages) + part / stages;
      mbarrier_wait(&signals.empty_dq[consumer][stage], parity_of<1>(round) ^ 1);
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        float const* const x = dq + 16 * i + 4 * b;
        store_shared(to + stage * Config::dq_bytes + b * 2048, make_float4(x[0], x[1], x[2], x[3]));
      }
      fence_proxy_async();
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(&signals.full_dq[consumer][stage]);
    }
  }

  __device__ __forceinline__ std::uint32_t place_of_weights() const {
    return shared_address(shared) + Config::weights_at + own_thread() * 16;
  }

  /// Waits for tile number `n` of queries; the warpgroup that makes scores.
  __device__ __forceinline__ void wait_for_queries(KeyTileHead const& t, bool partial,
                                                   unsigned n) const {
    mbarrier_wait(&signals.full_q[q_stage(n)], parity_of<Config::q_stages>(n));
    if (partial)
      clear_rows<tile_q, Config::panels>(shared + Config::q_at + q_stage(n) * Config::q_bytes,
                                         t.len_q % tile_q, own_thread(), 128, 3);
  }
  /// Likewise for its dout; `First`: where it is cleared by the other warpgroup.
  template <bool First>
  __device__ __forceinline__ void wait_for_douts(KeyTileHead const& t, bool partial,
                                                 unsigned n) const {
    mbarrier_wait(&signals.full_dout[dout_stage(n)], parity_of<Config::dout_stages>(n));
    if (!partial) return;
    if constexpr (First) {
      named_barrier_sync(5, 256);
    } else {
      clear_rows<tile_q, Config::v_panels>(
          shared + Config::dout_at + dout_stage(n) * Config::dout_bytes, t.len_q % tile_q,
          own_thread(), 128, 4);
      named_barrier_arrive(5, 256);
    }
  }

  /// Begins the products of tile number `n` of queries, m of its sequence, with the keys or values.
  template <bool First>
  __device__ __forceinline__ void begin_products(KeyTileHead const& t, int m, unsigned n,
                                                 float (&s)[tile_q / 2]) const {
    bool const partial = m == uniform(t.partial);
    if constexpr (First) {
      wait_for_queries(t, partial, n);
      start_scores(s, q_stage(n));
      wgmma_fence();
      Base::template multiply_features<D>(s, operand(Config::k_at, 16), queries(n, 16));
    } else {
      mbarrier_wait(&signals.full_q[q_stage(n)], parity_of<Config::q_stages>(n));
      start_from_rows(s, q_stage(n), true);
      wait_for_douts<false>(t, partial, n);
      wgmma_fence();
      Base::template multiply_features<DV>(s, operand(Config::v_at, 16), douts(n, 16));
    }
  }

  /// Scores of a tile become weights and dv; `s` becomes the scores of the next one.
  template <bool More>
  __device__ __forceinline__ void weigh(KeyTileHead const& t, int m, int next, unsigned n,
                                        float (&s)[tile_q / 2], float (&dv)[DV / 2]) const {
    bool const signaller = own_thread() % 32 == 0;
    [[maybe_unused]] float const scale = p.scale_log2;
    std::uint32_t weights[tile_q / 4], slopes[tile_q / 4];
    if constexpr (Config::terms) {
      weigh_terms(t, m, q_stage(n), s, slopes);
    } else {
#pragma unroll
      for (int r = 0; r < tile_q / 2; ++r) s[r] = power_of_2(s[r] * scale);
    }
    bool const masked = m < uniform(t.masked_before) || m >= uniform(t.masked_from);
    if (masked) hide_pairs(t, m, s);
#pragma unroll
    for (int r = 0; r < tile_q / 4; ++r) {
      weights[r] = pack_pair<T>(s[2 * r], s[2 * r + 1]);
      if (Config::terms && masked) drop_weightless(slopes[r], weights[r]);
    }
    std::uint32_t const place = place_of_weights();
    std::uint32_t const* const passed = Config::terms ? slopes : weights;
#pragma unroll
    for (int b = 0; b < tile_q / 16; ++b)
      store_shared_16(place + b * 2048, reinterpret_cast<std::uint32_t const(&)[4]>(passed[4 * b]));
    __syncwarp();
    if (signaller) mbarrier_arrive(&signals.full_weights);
    wait_for_douts<true>(t, m == uniform(t.partial), n);
    wgmma_fence();
    add_queries<DV>(dv, weights, douts(n, panel_bytes));
    float dq[step_width<true, 0>() / 2];
    mbarrier_wait(&signals.full_ds[0], parity_of<1>(n));
    wgmma_fence();
    multiply_keys<true, 0>(dq);
    wgmma_wait<1>();
    pin(dv);
    if (signaller) mbarrier_arrive(&signals.empty_dout[dout_stage(n)]);
    if constexpr (More) {
      begin_products<true>(t, next, n + 1, s);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    pin(dq);
    put_dq<true, 0>(dq, n);
    float rest[step_width<true, 1>() / 2];
    wgmma_fence();
    multiply_keys<true, 1>(rest);
    wgmma_wait<0>();
    if constexpr (More) pin(s);
    pin(rest);
    put_dq<true, 1>(rest, n);
  }

  /// Products of dout and values become gradients of scores and dk; `dp` becomes those of the next
  /// tile.
  template <bool More>
  __device__ __forceinline__ void differentiate(KeyTileHead const& t, int m, int next, unsigned n,
                                                float (&dp)[tile_q / 2], float (&dk)[D / 2]) const {
    bool const signaller = own_thread() % 32 == 0;
    bool const masked = m < uniform(t.masked_before) || m >= uniform(t.masked_from);
    std::uint32_t gradients[tile_q / 4];
    mbarrier_wait(&signals.full_weights, parity_of<1>(n));
    std::uint32_t const place = place_of_weights();
    auto const weigh_all = [&](auto some_hidden) __attribute__((always_inline)) {
#pragma unroll
      for (int b = 0; b < tile_q / 16; ++b) {
        std::uint32_t weights[4];
        load_shared_16(weights, place + b * 2048);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          std::uint32_t& two = gradients[4 * b + i];
          two = weighed(dp + 8 * b + 2 * i, weights[i]);
          if constexpr (decltype(some_hidden)::value) drop_weightless(two, weights[i]);
        }
      }
    };
    if (masked)
      weigh_all(std::true_type());
    else
      weigh_all(std::false_type());
    store_ds(gradients, 0);
    __syncwarp();
    if (signaller) mbarrier_arrive(&signals.full_ds[0]);
    float dq[step_width<false, 0>() / 2], rest[step_width<false, 1>() / 2];
    mbarrier_wait(&signals.full_ds[0], parity_of<1>(n));
    wgmma_fence();
    multiply_keys<false, 0>(dq);
    multiply_keys<false, 1>(rest);
    add_queries<D>(dk, gradients, queries(n, panel_bytes));
    wgmma_wait<2>();
    pin(dq);
    put_dq<false, 0>(dq, n);
    wgmma_wait<1>();
    pin(rest);
    put_dq<false, 1>(rest, n);
    if constexpr (More) {
      begin_products<false>(t, next, n + 1, dp);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    pin(dk);
    if (signaller) mbarrier_arrive(&signals.empty_q[q_stage(n)]);
    if constexpr (More) {
      wgmma_wait<0>();
      pin(dp);
    }
  }

  /// All tiles of keys of this block; `First`: the warpgroup of scores and dv.
  template <bool First>
  __device__ __forceinline__ void run() const {
    RingPosition<Config::segments> segment;
    std::uint32_t kv_phase = 0;
    unsigned n = 0;  // tiles of queries so far
    bool const signaller = threadIdx.x % 32 == 0;
    float kept[(First ? DV : D) / 2];
#pragma unroll 1
    for (;;) {
      mbarrier_wait(&signals.full_segment[segment.stage], segment.phase);
      KeyTileHead const& t = signals.segment[segment.stage];
      if (uniform(t.key0) < 0) return;
      if (uniform(t.starts) != 0) {
        mbarrier_wait(&signals.full_kv, kv_phase);
        kv_phase ^= 1;
        if (int const live = t.len_kv - t.key0; live < tile_kv && Base::keys_are_cut()) {
          clear_operand<tile_kv, Config::panels>(shared + Config::k_at, max(live, 0));
          clear_operand<tile_kv, Config::v_panels>(shared + Config::v_at, max(live, 0));
        }
#pragma unroll
        for (float& x : kept) x = 0;
      }
      if (uniform(t.first < t.end) != 0) {
        int const ahead = p.from_last ? 1 : -1;
        int const first = uniform(p.from_last ? t.first : t.end - 1);
        int const last = uniform(p.from_last ? t.end - 1 : t.first);
        float s[tile_q / 2];
        begin_products<First>(t, first, n, s);
        wgmma_wait<0>();
        pin(s);
        int m = first;
#pragma unroll 1
        for (; m != last; m += ahead, ++n) {
          if constexpr (First)
            weigh<true>(t, m, m + ahead, n, s, kept);
          else
            differentiate<true>(t, m, m + ahead, n, s, kept);
        }
        if constexpr (First)
          weigh<false>(t, m, m, n, s, kept);
        else
          differentiate<false>(t, m, m, n, s, kept);
        ++n;
      }
      if (uniform(t.stops) != 0) {
        if (signaller) mbarrier_arrive(&signals.empty_kv);
        store<First>(t, kept);
      }
      __syncwarp();
      if (signaller) mbarrier_arrive(&signals.empty_segment[segment.stage]);
      segment.next();
    }
  }

  template <bool First>
  __device__ __forceinline__ void store(KeyTileHead const& t,
                                        float const (&kept)[(First ? DV : D) / 2]) const {
    int const thread = own_thread();
    abi::AttentionBackwardArgs const& a = p.args;
    int const row = thread / 32 * 16 + thread % 32 / 4;
    int const existing = t.rows_kv - t.key0;
    std::int64_t const b = a.forward.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const position = std::int64_t{t.begin_kv} + t.key0;
    if (p.parts > 1) {
      std::int64_t const at = row_of_sums(p, t) * Config::dq_d;
      if constexpr (First)
        store_sums<Config::dq_d, DV>(p.dv_sums + at, kept, 1.0f, row, existing);
      else
        store_sums<Config::dq_d, D>(p.dk_sums + at, kept, p.scale, row, existing);
      return;
    }
    if constexpr (First)
      store_gradients<T, DV>(static_cast<T*>(a.dv) + b * a.dv_stride[0] +
                                 t.head_kv * a.dv_stride[1] + position * a.dv_stride[2],
                             a.dv_stride, static_cast<int>(a.forward.head_dim_v), p.vectors_dv,
                             kept, 1.0f, row, existing);
    else
      store_gradients<T, D>(static_cast<T*>(a.dk) + b * a.dk_stride[0] +
                                t.head_kv * a.dk_stride[1] + position * a.dk_stride[2],
                            a.dk_stride, static_cast<int>(a.forward.head_dim), p.vectors_dk, kept,
                            p.scale, row, existing);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
