// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A warpgroup of consumers: 64 keys, which stay, against all tiles of queries that see them.
///
/// Scores lie transposed, keys along rows: weights and gradients of scores are then left operands
/// of the products that give dv and dk where they are, in registers. Only gradients of scores go
/// through shared memory, for dq. While the tensor cores work on a product, the warpgroup prepares
/// the next: dout·v beside the weights, dv and the next scores beside the gradients of scores, dq
/// beside the next tile's dout·v.
#pragma once

#include "params.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma_rs.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The low word of an operand's descriptor, equal in all lanes and known to the compiler as such.
__device__ __forceinline__ std::uint32_t backward_operand(void const* base, std::uint32_t leading) {
  return __shfl_sync(0xffffffff, static_cast<std::uint32_t>(operand_descriptor(base, leading)), 0);
}
__device__ __forceinline__ std::uint64_t backward_descriptor(std::uint32_t word, int bytes) {
  constexpr std::uint64_t high = std::uint64_t{1024 >> 4 | 1 << 30} << 32;
  return high | (word + static_cast<std::uint32_t>(bytes >> 4));
}

__device__ __forceinline__ int same_in_all_lanes(int x) { return __shfl_sync(0xffffffff, x, 0); }

/// Rows of an operand from `length` on become 0, by the consumers together: what lies behind a
/// sequence may be anything, and 0 times NaN is NaN.
template <class Config, int Rows>
__device__ __forceinline__ void clear_operand(unsigned char* operand, int length) {
  int const thread = static_cast<int>(threadIdx.x) - 128;
#pragma unroll 1
  for (int at = length * 8 + thread; at < Rows * 8; at += 256)
#pragma unroll
    for (int panel = 0; panel < Config::panels; ++panel)
      *reinterpret_cast<uint4*>(operand + panel * Rows * 128 + at * 16) = make_uint4(0, 0, 0, 0);
  fence_proxy_async();
  named_barrier_sync(2, 256);
}

/// Two packed 16-bit numbers as floats.
template <class T>
__device__ __forceinline__ float2 unpack_pair(std::uint32_t x) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(*reinterpret_cast<__half2 const*>(&x));
  else
    return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}

/// Stores the gradients of 64 keys, rows of `sums` times `factor`: this thread's rows are `row` and
/// `row` + 8, as far as `existing` rows exist.
template <class T, int D>
__device__ __forceinline__ void store_gradients(T* to, std::int64_t const (&stride)[4], int width,
                                                bool vectors, float const (&sums)[D / 2],
                                                float factor, int row, int existing) {
  int const q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    bool const exists = row + 8 * i < existing;
    T* const at = to + (row + 8 * i) * stride[2];
    if (vectors) {
      // Neighbouring lanes swap halves of two blocks of eight columns: each has four columns then.
      bool const odd = q % 2 != 0;
      int const column = q % 2 * 8 + q / 2 * 4;
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint2 four = make_uint2(
            pack_pair<T>(sums[8 * n + 2 * i] * factor, sums[8 * n + 2 * i + 1] * factor),
            pack_pair<T>(sums[8 * n + 4 + 2 * i] * factor, sums[8 * n + 5 + 2 * i] * factor));
        std::uint32_t const got = __shfl_xor_sync(0xffffffff, odd ? four.x : four.y, 1);
        (odd ? four.x : four.y) = got;
        store_global_if(exists && n * 16 + column < width, at + n * 16 + column, four);
      }
    } else if (exists) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (8 * n + 2 * q + j < width)
            at[(8 * n + 2 * q + j) * stride[3]] = static_cast<T>(sums[4 * n + 2 * i + j] * factor);
    }
  }
}

template <class Config>
struct BackwardConsumer {
  using T = typename Config::Element;
  static constexpr int D = Config::d, tile_q = Config::tile_q, tile_kv = Config::tile_kv;
  static constexpr int q_panel = tile_q * 128, kv_panel = tile_kv * 128;

  Sm90BackwardParams const& p;
  unsigned char* const shared;
  Sm90BackwardSignals<Config>& signals;
  int const consumer;
  std::uint32_t k_rows, v_rows;     ///< as left operands of scores: this warpgroup's keys
  std::uint32_t q_rows, dout_rows;  ///< as right operands of scores, features along K
  std::uint32_t q_cols, dout_cols;  ///< as right operands of dk and dv, features along N
  std::uint32_t k_cols, ds_rows;    ///< operands of dq

  __device__ __forceinline__ BackwardConsumer(Sm90BackwardParams const& params, unsigned char* base,
                                              Sm90BackwardSignals<Config>& s, int number)
      : p(params), shared(base), signals(s), consumer(number) {
    k_rows = backward_operand(base + Config::k_at + number * 8192, 16);
    v_rows = backward_operand(base + Config::v_at + number * 8192, 16);
    q_rows = backward_operand(base + Config::q_at, 16);
    dout_rows = backward_operand(base + Config::dout_at, 16);
    q_cols = backward_operand(base + Config::q_at, q_panel);
    dout_cols = backward_operand(base + Config::dout_at, q_panel);
    // The features that a warpgroup has of dq: a panel, or half of one.
    k_cols = backward_operand(base + Config::k_at + (D == 64 ? number * 64 : number * kv_panel),
                              kv_panel);
    ds_rows = backward_operand(base + Config::ds_at, 16);
  }

  /// keys × queries, over the features.
  __device__ __forceinline__ void multiply_features(float (&s)[tile_q / 2], std::uint32_t keys,
                                                    std::uint32_t queries) const {
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      Wgmma<T, T, tile_q, 0, 0>::multiply(
          s, backward_descriptor(keys, k / 4 * kv_panel + k % 4 * 32),
          backward_descriptor(queries, k / 4 * q_panel + k % 4 * 32), k != 0);
    wgmma_commit();
  }
  /// keys × features, over the queries.
  __device__ __forceinline__ void add_queries(float (&d)[D / 2],
                                              std::uint32_t const (&pairs)[tile_q / 4],
                                              std::uint32_t queries) const {
#pragma unroll
    for (int k = 0; k < tile_q / 16; ++k)
      WgmmaRs<T, D>::multiply(d, pairs + 4 * k, backward_descriptor(queries, k * 2048), 1);
    wgmma_commit();
  }
  /// queries × features, over the keys.
  __device__ __forceinline__ void multiply_keys(float (&dq)[D / 4], std::uint32_t ds) const {
#pragma unroll
    for (int k = 0; k < tile_kv / 16; ++k)
      Wgmma<T, T, D / 2, 0, 1>::multiply(dq, backward_descriptor(ds, k / 4 * q_panel + k % 4 * 32),
                                         backward_descriptor(k_cols, k * 2048), k != 0);
    wgmma_commit();
  }

  __device__ __forceinline__ static std::uint32_t at(std::uint32_t word, int stage, int bytes) {
    return __shfl_sync(0xffffffff, word + static_cast<std::uint32_t>(stage * (bytes >> 4)), 0);
  }

  /// Hands this warpgroup's part of dq to the warp that takes it to memory.
  __device__ __forceinline__ void pass_on(float const (&dq)[D / 4],
                                          BackwardRing<Config::dq_stages>& ring) {
    int const thread = static_cast<int>(threadIdx.x) % 128;
    mbarrier_wait(&signals.empty_dq[consumer][ring.stage], ring.phase ^ 1);
    std::uint32_t const to = shared_address(shared) + Config::dq_at +
                             (consumer * Config::dq_stages + ring.stage) * Config::dq_bytes +
                             thread * 16;
#pragma unroll
    for (int b = 0; b < D / 16; ++b)
      store_shared(to + b * 2048,
                   make_float4(dq[4 * b], dq[4 * b + 1], dq[4 * b + 2], dq[4 * b + 3]));
    fence_proxy_async();
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(&signals.full_dq[consumer][ring.stage]);
    ring.next();
  }

  /// Which of this thread's pairs do not exist, as bits.
  __device__ __forceinline__ std::uint32_t hidden_pairs(KeyTileHead const& t, int m) const {
    int const thread = fresh_thread() % 128;
    int const key = t.key0 + consumer * 64 + thread / 32 * 16 + thread % 32 / 4;
    int const query = m * tile_q + thread % 4 * 2;
    std::uint32_t hidden = 0;
#pragma unroll
    for (int r = 0; r < tile_q / 2; ++r) {
      int const j = key + r / 2 % 2 * 8, i = query + r / 4 * 8 + r % 2;
      bool const seen =
          j < t.len_kv && j < i + t.offset + t.reach && j >= i + t.offset - t.window_left;
      if (!seen) hidden |= 1u << r;
    }
    return hidden;
  }
  /// Whether some pair of a tile does not exist.
  __device__ __forceinline__ static bool has_hidden_pairs(KeyTileHead const& t, int m) {
    return t.key0 + tile_kv > t.len_kv || t.key0 + tile_kv > m * tile_q + t.offset + t.reach ||
           t.key0 < (m + 1) * tile_q - 1 + t.offset - t.window_left;
  }

  __device__ __forceinline__ void run() {
    BackwardRing<Config::q_stages> q;
    BackwardRing<Config::dout_stages> dout;
    BackwardRing<Config::dq_stages> staged;
    BackwardRing<Config::segments> segment;
    std::uint32_t kv_phase = 0;
    int ds_stage = 0;
    bool const signaller = threadIdx.x % 32 == 0;
    float dk[D / 2], dv[D / 2];
#pragma unroll 1
    for (;;) {
      mbarrier_wait(&signals.full_segment[segment.stage], segment.phase);
      KeyTileHead const& t = signals.segment[segment.stage];
      if (same_in_all_lanes(t.key0) < 0) return;
      if (same_in_all_lanes(t.starts) != 0) {
        mbarrier_wait(&signals.full_kv, kv_phase);
        kv_phase ^= 1;
        int const live = t.len_kv - t.key0;
        if (live < tile_kv) {
          clear_operand<Config, tile_kv>(shared + Config::k_at, max(live, 0));
          clear_operand<Config, tile_kv>(shared + Config::v_at, max(live, 0));
        }
#pragma unroll
        for (int r = 0; r < D / 2; ++r) dk[r] = dv[r] = 0;
      }
      if (same_in_all_lanes(t.first < t.end) != 0) {
        int const first = same_in_all_lanes(t.first), last = same_in_all_lanes(t.end) - 1;
        float s[tile_q / 2];
        wait_for_queries(t, first, q);
        wgmma_fence();
        multiply_features(s, k_rows, at(q_rows, q.stage, Config::q_bytes));
        wgmma_wait<0>();
        pin(s);
        auto const step = [&](int m, auto more) __attribute__((always_inline)) {
          float dp[tile_q / 2], dq[D / 4];
          wait_for_douts(t, m, dout);
          wgmma_fence();
          multiply_features(dp, v_rows, at(dout_rows, dout.stage, Config::q_bytes));
          bool const masked = same_in_all_lanes(has_hidden_pairs(t, m)) != 0;
          std::uint32_t const hidden = masked ? hidden_pairs(t, m) : 0;
          std::uint32_t weights[tile_q / 4], gradients[tile_q / 4];
          std::uint32_t const rows = shared_address(shared) + Config::rows_at +
                                     q.stage * Config::row_bytes +
                                     static_cast<std::uint32_t>(threadIdx.x) % 4 * 8;
          float const scale = p.scale_log2;
#pragma unroll
          for (int b = 0; b < tile_q / 8; ++b) {
            float2 const low = load_shared_two(rows + b * 32);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              int const r = 4 * b + 2 * i;
              s[r] = power_of_2(fmaf(s[r], scale, low.x));
              s[r + 1] = power_of_2(fmaf(s[r + 1], scale, low.y));
            }
          }
          if (masked) {
#pragma unroll
            for (int r = 0; r < tile_q / 2; ++r)
              if (hidden >> r & 1) s[r] = 0;
          }
#pragma unroll
          for (int n = 0; n < tile_q / 4; ++n) weights[n] = pack_pair<T>(s[2 * n], s[2 * n + 1]);
          wgmma_fence();
          add_queries(dv, weights, at(dout_cols, dout.stage, Config::q_bytes));
          BackwardRing<Config::q_stages> next = q;
          next.next();
          if constexpr (decltype(more)::value) {
            wait_for_queries(t, m + 1, next);
            wgmma_fence();
            multiply_features(s, k_rows, at(q_rows, next.stage, Config::q_bytes));
            wgmma_wait<1>();
            pin(dv);
          } else {
            wgmma_wait<0>();
            pin(dv);
          }
          pin(dp);
#pragma unroll
          for (int b = 0; b < tile_q / 8; ++b) {
            float2 const sum = load_shared_two(rows + tile_q * 4 + b * 32);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              int const r = 4 * b + 2 * i;
              float2 const w = unpack_pair<T>(weights[r / 2]);
              dp[r] = w.x * (dp[r] - sum.x);
              dp[r + 1] = w.y * (dp[r + 1] - sum.y);
            }
          }
          if (masked) {
#pragma unroll
            for (int r = 0; r < tile_q / 2; ++r)
              if (hidden >> r & 1) dp[r] = 0;
          }
#pragma unroll
          for (int n = 0; n < tile_q / 4; ++n)
            gradients[n] = pack_pair<T>(dp[2 * n], dp[2 * n + 1]);
          store_ds(gradients, ds_stage);
          wgmma_fence();
          add_queries(dk, gradients, at(q_cols, q.stage, Config::q_bytes));
          named_barrier_sync(1, 256);
          wgmma_fence();
          multiply_keys(dq, at(ds_rows, ds_stage, Config::ds_bytes));
          wgmma_wait<0>();
          pin(s);
          pin(dk);
          pin(dv);
          pin(dq);
          if (signaller) {
            mbarrier_arrive(&signals.empty_q[q.stage]);
            mbarrier_arrive(&signals.empty_dout[dout.stage]);
          }
          pass_on(dq, staged);
          ds_stage ^= 1;
          q = next;
          dout.next();
        };
#pragma unroll 1
        for (int m = first; m < last; ++m) step(m, std::true_type());
        step(last, std::false_type());
      }
      if (same_in_all_lanes(t.stops) != 0) {
        if (signaller) mbarrier_arrive(&signals.empty_kv);
        store(t, dk, dv);
      }
      __syncwarp();
      if (signaller) mbarrier_arrive(&signals.empty_segment[segment.stage]);
      segment.next();
    }
  }

  __device__ __forceinline__ void wait_for_queries(KeyTileHead const& t, int m,
                                                   BackwardRing<Config::q_stages> const& q) {
    mbarrier_wait(&signals.full_q[q.stage], q.phase);
    int const live = same_in_all_lanes(t.len_q) - m * tile_q;
    if (live < tile_q)
      clear_operand<Config, tile_q>(shared + Config::q_at + q.stage * Config::q_bytes, live);
  }
  __device__ __forceinline__ void wait_for_douts(KeyTileHead const& t, int m,
                                                 BackwardRing<Config::dout_stages> const& dout) {
    mbarrier_wait(&signals.full_dout[dout.stage], dout.phase);
    int const live = same_in_all_lanes(t.len_q) - m * tile_q;
    if (live < tile_q)
      clear_operand<Config, tile_q>(shared + Config::dout_at + dout.stage * Config::q_bytes, live);
  }

  /// Gradients of scores to shared memory, queries along rows.
  __device__ __forceinline__ void store_ds(std::uint32_t const (&gradients)[tile_q / 4],
                                           int stage) const {
    int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    int const matrix = lane / 8;  // bit 0: keys 8 on, bit 1: queries 8 on
    int const chunk = thread / 32 * 2 + matrix % 2;
    std::uint32_t const base = shared_address(shared) + Config::ds_at + stage * Config::ds_bytes +
                               consumer * q_panel + (matrix / 2 * 8 + lane % 8) * 128 +
                               ((chunk ^ lane % 8) * 16);
#pragma unroll
    for (int k = 0; k < tile_q / 16; ++k)
      store_matrices_transposed(base + k * 2048, gradients[4 * k], gradients[4 * k + 1],
                                gradients[4 * k + 2], gradients[4 * k + 3]);
    fence_proxy_async();
  }

  __device__ __forceinline__ void store(KeyTileHead const& t, float const (&dk)[D / 2],
                                        float const (&dv)[D / 2]) const {
    abi::AttentionBackwardArgs const& a = p.args;
    int const thread = fresh_thread() % 128;
    int const row = thread / 32 * 16 + thread % 32 / 4, first = t.key0 + consumer * 64;
    int const existing = t.rows_kv - first;
    std::int64_t const b = a.forward.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
    std::int64_t const position = std::int64_t{t.begin_kv} + first;
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
