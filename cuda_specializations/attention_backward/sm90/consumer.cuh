// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A warpgroup of consumers: 64 keys, which stay, against all tiles of queries that see them.
///
/// Scores lie transposed, keys along rows: weights are then a left operand where they are, in
/// registers, and only gradients of scores go through shared memory. While the tensor cores work on
/// a product, the warpgroup prepares the next: weights beside dout·v, gradients of scores beside dv
/// and the next scores, sums of dq on their way beside dk. dq is one tile of queries behind, so
/// that no warpgroup waits for the other's gradients of scores while they are made.
#pragma once

#include "attention_backward/shared/store.cuh"
#include "ptx/wgmma_rs.cuh"
#include "scores.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Config>
struct BackwardConsumer : BackwardScores<Config> {
  using Base = BackwardScores<Config>;
  using T = typename Config::Element;
  static constexpr int D = Config::d, tile_q = Config::tile_q, tile_kv = Config::tile_kv;
  static constexpr int sums = tile_q * Config::dq_d / 256;  ///< of dq, of a thread
  static constexpr int q_panel = tile_q * 128, kv_panel = tile_kv * 128;

  using Base::clear_pairs, Base::drop_weightless, Base::hidden_pairs, Base::hide_pairs;
  using Base::consumer, Base::own_thread, Base::operand, Base::p, Base::shared, Base::signals;
  using Base::start_from_rows, Base::start_scores, Base::store_ds, Base::weigh_terms;

  __device__ __forceinline__ BackwardConsumer(Sm90BackwardParams const& params, unsigned char* base,
                                              Sm90BackwardSignals<Config>& s, int number)
      : Base(params, base, s, number) {}

  // As left operands of scores: this warpgroup's keys.
  __device__ __forceinline__ std::uint32_t k_rows() const {
    return operand(Config::k_at, 16, consumer, 8192);
  }
  __device__ __forceinline__ std::uint32_t v_rows() const {
    return operand(Config::v_at, 16, consumer, 8192);
  }
  // As right operands of scores, features along K.
  __device__ __forceinline__ std::uint32_t q_rows(int stage) const {
    return operand(Config::q_at, 16, stage, Config::q_bytes);
  }
  __device__ __forceinline__ std::uint32_t dout_rows(int stage) const {
    return operand(Config::dout_at, 16, stage, Config::q_bytes);
  }
  // As right operands of dk and dv, features along N.
  __device__ __forceinline__ std::uint32_t q_columns(int stage) const {
    return operand(Config::q_at, q_panel, stage, Config::q_bytes);
  }
  __device__ __forceinline__ std::uint32_t dout_columns(int stage) const {
    return operand(Config::dout_at, q_panel, stage, Config::q_bytes);
  }
  // Operands of dq: all keys; of queries or of features this warpgroup has half.
  __device__ __forceinline__ std::uint32_t k_columns() const {
    return operand(Config::k_at, kv_panel, Config::splits_queries ? 0 : consumer,
                   Config::panels == 1 ? 64 : kv_panel);
  }
  __device__ __forceinline__ std::uint32_t ds_rows(int stage) const {
    return operand(Config::ds_at + (Config::splits_queries ? consumer * 8192 : 0), 16, stage,
                   Config::ds_bytes);
  }
  // As a left operand of dk: this warpgroup's keys.
  __device__ __forceinline__ std::uint32_t ds_columns(int stage) const {
    return operand(Config::ds_at + consumer * q_panel, 16, stage, Config::ds_bytes);
  }

  /// dv: keys × features, over the queries.
  __device__ __forceinline__ void add_dv(float (&dv)[D / 2],
                                         std::uint32_t const (&weights)[tile_q / 4],
                                         std::uint32_t douts) const {
#pragma unroll
    for (int k = 0; k < tile_q / 16; ++k)
      WgmmaRs<T, D>::multiply(dv, weights + 4 * k, descriptor(douts, k * 2048), 1);
    wgmma_commit();
  }
  /// dk: likewise.
  __device__ __forceinline__ void add_dk(float (&dk)[D / 2], std::uint32_t ds,
                                         std::uint32_t queries) const {
#pragma unroll
    for (int k = 0; k < tile_q / 16; ++k)
      Wgmma<T, T, D, 1, 1>::multiply(dk, descriptor(ds, k * 2048), descriptor(queries, k * 2048),
                                     1);
    wgmma_commit();
  }
  /// dq: queries × features, over the keys.
  __device__ __forceinline__ void multiply_keys(float (&dq)[sums], std::uint32_t ds) const {
    std::uint32_t const keys = k_columns();
#pragma unroll
    for (int k = 0; k < tile_kv / 16; ++k)
      Wgmma<T, T, 2 * sums, 0, 1>::multiply(dq, descriptor(ds, k / 4 * q_panel + k % 4 * 32),
                                            descriptor(keys, k * 2048), k != 0);
    wgmma_commit();
  }

  /// Puts this warpgroup's part of dq, of tile number `n`, where a warp takes it from to memory.
  __device__ __forceinline__ void put_dq(float const (&dq)[sums], unsigned n) const {
    int const thread = own_thread();
    unsigned const stage = stage_of<Config::dq_stages>(n);
    mbarrier_wait(&signals.empty_dq[consumer][stage], parity_of<Config::dq_stages>(n) ^ 1);
    std::uint32_t const to = shared_address(shared) + Config::dq_at +
                             (consumer * Config::dq_stages + stage) * Config::dq_bytes +
                             thread * 16;
#pragma unroll
    for (int b = 0; b < sums / 4; ++b)
      store_shared(to + b * 2048,
                   make_float4(dq[4 * b], dq[4 * b + 1], dq[4 * b + 2], dq[4 * b + 3]));
  }
  /// Hands it over, after a fence_proxy_async of all threads; by one thread of each warp.
  __device__ __forceinline__ void pass_dq(unsigned n) const {
    mbarrier_arrive(&signals.full_dq[consumer][stage_of<Config::dq_stages>(n)]);
  }

  __device__ __forceinline__ void run() {
    RingPosition<Config::q_stages> q;
    RingPosition<Config::segments> segment;
    std::uint32_t kv_phase = 0;
    unsigned n = 0;  // tiles of queries so far
    bool const signaller = threadIdx.x % 32 == 0;
    float dk[D / 2], dv[D / 2];
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
          clear_operand<tile_kv, Config::panels>(shared + Config::v_at, max(live, 0));
        }
#pragma unroll
        for (int r = 0; r < D / 2; ++r) dk[r] = dv[r] = 0;
      }
      if (uniform(t.first < t.end) != 0) {
        int const ahead = p.from_last ? 1 : -1;
        int const first = uniform(p.from_last ? t.first : t.end - 1);
        int const last = uniform(p.from_last ? t.end - 1 : t.first);
        int const masked_before = uniform(t.masked_before);
        int const masked_from = uniform(t.masked_from);
        int const partial = uniform(t.partial);
        float s[tile_q / 2];
        wait_for_queries(t, first == partial, q);
        start_scores(s, q.stage);
        wgmma_fence();
        Base::template multiply_features<D>(s, k_rows(), q_rows(q.stage));
        wgmma_wait<0>();
        pin(s);
        // Stages of dout and of gradients of scores, two each, are written out: by stage_of() the
        // loop has as many registers, but other code.
        static_assert(Config::dout_stages == 2 && Config::ds_stages == 2);
        auto const step = [&](int m, auto after, auto more) __attribute__((always_inline)) {
          constexpr bool is_first = !decltype(after)::value, is_last = !decltype(more)::value;
          float dp[tile_q / 2];
          start_from_rows(dp, q.stage, true);
          wait_for_douts(t, m == partial, n);
          wgmma_fence();
          Base::template multiply_features<D>(dp, v_rows(), dout_rows(n % 2));
          if constexpr (!is_first)
            if (m != first + ahead) {
              fence_proxy_async();
              __syncwarp();
              if (signaller) pass_dq(n - 2);
            }
          bool const masked = m < masked_before || m >= masked_from;
          [[maybe_unused]] float const scale = p.scale_log2;
          std::uint32_t weights[tile_q / 4], slopes[tile_q / 4];
          if constexpr (Config::terms) {
            weigh_terms(t, m, q.stage, s, slopes);
          } else {
#pragma unroll
            for (int r = 0; r < tile_q / 2; ++r) s[r] = power_of_2(s[r] * scale);
          }
          [[maybe_unused]] typename Base::Hidden hidden = 0;
          if constexpr (Config::keeps_hidden) {
            if (masked) hidden = hidden_pairs(t, m);
            if (masked) clear_pairs(s, hidden);
          } else {
            if (masked) hide_pairs(t, m, s);
          }
#pragma unroll
          for (int r = 0; r < tile_q / 4; ++r) weights[r] = pack_pair<T>(s[2 * r], s[2 * r + 1]);
          wgmma_fence();
          add_dv(dv, weights, dout_columns(n % 2));
          RingPosition<Config::q_stages> next = q;
          next.next();
          auto const next_scores = [&]() __attribute__((always_inline)) {
            wait_for_queries(t, m + ahead == partial, next);
            start_scores(s, next.stage);
            wgmma_fence();
            Base::template multiply_features<D>(s, k_rows(), q_rows(next.stage));
          };
          if constexpr (!is_last && !Config::scores_late) {
            next_scores();
            wgmma_wait<2>();
          } else {
            wgmma_wait<1>();
          }
          pin(dp);
          // dk of the tile before is done.
          if (!is_first && signaller)
            mbarrier_arrive(&signals.empty_q[previous_in_ring<Config::q_stages>(q.stage)]);
          std::uint32_t gradients[tile_q / 4];
#pragma unroll
          for (int r = 0; r < tile_q / 4; ++r) {
            float2 const w = widen_pair<T>(Config::terms ? slopes[r] : weights[r]);
            dp[2 * r] *= w.x;
            dp[2 * r + 1] *= w.y;
          }
          if constexpr (Config::keeps_hidden)
            if (masked) clear_pairs(dp, hidden);
#pragma unroll
          for (int r = 0; r < tile_q / 4; ++r)
            gradients[r] = pack_pair<T>(dp[2 * r], dp[2 * r + 1]);
          if constexpr (!Config::keeps_hidden)
            if (masked) {
#pragma unroll
              for (int r = 0; r < tile_q / 4; ++r) drop_weightless(gradients[r], weights[r]);
            }
          if constexpr (!is_last && Config::scores_late) {
            wgmma_wait<0>();
            pin(dv);
            next_scores();
          }
          float dq[sums];
          if constexpr (!is_first) {
            mbarrier_wait(&signals.full_ds[(n - 1) % 2], (n - 1) / 2 % 2);
            wgmma_fence();
            multiply_keys(dq, ds_rows((n - 1) % 2));
          }
          mbarrier_wait(&signals.empty_ds[n % 2], parity_of<Config::ds_stages>(n) ^ 1);
          store_ds(gradients, n % 2);
          __syncwarp();
          if (signaller) {
            mbarrier_arrive(&signals.full_ds[n % 2]);
          }
          named_barrier_sync(3 + consumer, 128);
          wgmma_fence();
          add_dk(dk, ds_columns(n % 2), q_columns(q.stage));
          wgmma_wait<1>();
          pin(s);
          pin(dv);
          if constexpr (!is_first) {
            pin(dq);
            if (signaller) mbarrier_arrive(&signals.empty_ds[(n - 1) % 2]);
          }
          if (signaller) mbarrier_arrive(&signals.empty_dout[n % 2]);
          if constexpr (!is_first) put_dq(dq, n - 1);
          q = next;
          ++n;
        };
        if (first == last) {
          step(first, std::false_type(), std::false_type());
        } else {
          step(first, std::false_type(), std::true_type());
#pragma unroll 1
          for (int m = first + ahead; m != last; m += ahead)
            step(m, std::true_type(), std::true_type());
          step(last, std::true_type(), std::false_type());
        }
        float dq[sums];
        mbarrier_wait(&signals.full_ds[(n - 1) % 2], (n - 1) / 2 % 2);
        wgmma_fence();
        multiply_keys(dq, ds_rows((n - 1) % 2));
        if (first != last) {
          fence_proxy_async();
          __syncwarp();
          if (signaller) pass_dq(n - 2);
        }
        wgmma_wait<0>();
        pin(dk);
        pin(dq);
        if (signaller) {
          mbarrier_arrive(&signals.empty_ds[(n - 1) % 2]);
          mbarrier_arrive(&signals.empty_q[previous_in_ring<Config::q_stages>(q.stage)]);
        }
        put_dq(dq, n - 1);
        fence_proxy_async();
        __syncwarp();
        if (signaller) pass_dq(n - 1);
      }
      if (uniform(t.stops) != 0) {
        if (signaller) mbarrier_arrive(&signals.empty_kv);
        store(t, dk, dv);
      }
      __syncwarp();
      if (signaller) mbarrier_arrive(&signals.empty_segment[segment.stage]);
      segment.next();
    }
  }

  __device__ __forceinline__ void wait_for_queries(KeyTileHead const& t, bool partial,
                                                   RingPosition<Config::q_stages> const& q) const {
    mbarrier_wait(&signals.full_q[q.stage], q.phase);
    if (partial)
      clear_operand<tile_q, Config::panels>(shared + Config::q_at + q.stage * Config::q_bytes,
                                            t.len_q % tile_q);
  }
  __device__ __forceinline__ void wait_for_douts(KeyTileHead const& t, bool partial,
                                                 unsigned n) const {
    mbarrier_wait(&signals.full_dout[stage_of<Config::dout_stages>(n)],
                  parity_of<Config::dout_stages>(n));
    if (partial)
      clear_operand<tile_q, Config::panels>(
          shared + Config::dout_at + stage_of<Config::dout_stages>(n) * Config::q_bytes,
          t.len_q % tile_q);
  }

  __device__ __forceinline__ void store(KeyTileHead const& t, float const (&dk)[D / 2],
                                        float const (&dv)[D / 2]) const {
    int const thread = own_thread();
    abi::AttentionBackwardArgs const& a = p.args;
    int const row = thread / 32 * 16 + thread % 32 / 4, first = t.key0 + consumer * 64;
    int const existing = t.rows_kv - first;
    std::int64_t const b = a.forward.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const position = std::int64_t{t.begin_kv} + first;
    if (p.parts > 1) {
      std::int64_t const at = (row_of_sums(p, t) + consumer * 64) * Config::dq_d;
      store_sums<Config::dq_d, D>(p.dv_sums + at, dv, 1.0f, row, existing);
      store_sums<Config::dq_d, D>(p.dk_sums + at, dk, p.scale, row, existing);
      return;
    }
    store_gradients<T, D>(static_cast<T*>(a.dv) + b * a.dv_stride[0] + t.head_kv * a.dv_stride[1] +
                              position * a.dv_stride[2],
                          a.dv_stride, static_cast<int>(a.forward.head_dim_v), p.vectors_dv, dv,
                          1.0f, row, existing);
    store_gradients<T, D>(static_cast<T*>(a.dk) + b * a.dk_stride[0] + t.head_kv * a.dk_stride[1] +
                              position * a.dk_stride[2],
                          a.dk_stride, static_cast<int>(a.forward.head_dim), p.vectors_dk, dk,
                          p.scale, row, existing);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
