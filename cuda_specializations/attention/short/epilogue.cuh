// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the sums of a warp to rows of out and the log-sum-exp; and rows again where a NaN may have
/// come from a value that has no weight.
#pragma once

#include <attikos/ptx/ldmatrix.hpp>

#include "ptx/global_memory.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/tma.cuh"
#include "scores.cuh"
#include "sequences/mma_tiles.cuh"
#include "sequences/repair.cuh"
#include "sequences/row_sum.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class T>
__device__ __forceinline__ T from_bits(std::uint32_t bits) {
  auto const half = static_cast<unsigned short>(bits);
  return *reinterpret_cast<T const*>(&half);
}

/// Sums query i of a tile once more, by one warp, over the keys that it sees: the values' weights
/// are 2^(score - reference). The row of out goes to row r of a warp's at the shared address `to`.
template <class Config>
__device__ __forceinline__ void repair_short(ShortParams const& p, ShortTile const& t, int i,
                                             float reference, float factor, std::uint32_t to,
                                             int r) {
  using T = typename Config::Element;
  abi::AttentionArgs const& g = p.args;
  int const h_kv = t.head / p.group;
  std::int64_t const b = t.batch;  // strides are 0 where tensors are packed
  T const* const k = static_cast<T const*>(g.k) + b * g.k_stride[0] + h_kv * g.k_stride[1] +
                     t.begin_kv * g.k_stride[2];
  T const* const v = static_cast<T const*>(g.v) + b * g.v_stride[0] + h_kv * g.v_stride[1] +
                     t.begin_kv * g.v_stride[2];
  RepairedQuery<T> const query{static_cast<T const*>(g.q) + b * g.q_stride[0] +
                                   t.head * g.q_stride[1] +
                                   (std::int64_t{t.begin_q} + i) * g.q_stride[2],
                               1,
                               1,
                               1,
                               static_cast<int>(g.head_dim),
                               static_cast<int>(g.head_dim_v),
                               true};
  float sums[8];
  sum_row_again<8>(
      query, t.seen_from(i), t.seen_end(i), reference, [&](int j) { return k + j * g.k_stride[2]; },
      [&](int j) { return v + j * g.v_stride[2]; },
      [&](float product, int) { return product * (p.scale * log2_e); }, sums);
  int const chunk = fresh_thread() % 32;
  if (chunk >= Config::chunks) return;
  to += Config::place(r, chunk);
#pragma unroll
  for (int e = 0; e < 8; e += 2)
    store_shared_4(to + 2 * e, pack_pair<T>(sums[e] * factor, sums[e + 1] * factor));
}

/// Where a tile's results go: query row0 of out and of the log-sum-exp, null if that is not wanted.
struct ShortOut {
  void* out;
  float* lse;
};
template <class T>
__device__ __forceinline__ ShortOut short_out(ShortParams const& p, ShortTile const& t) {
  abi::AttentionArgs const& g = p.args;
  std::int64_t const row = t.begin_q + t.row0;
  return {static_cast<T*>(g.out) + t.batch * g.out_stride[0] + t.head * g.out_stride[1] +
              row * g.out_stride[2],
          g.lse == nullptr ? nullptr
                           : static_cast<float*>(g.lse) + t.batch * g.lse_stride[0] +
                                 t.head * g.lse_stride[1] + row * g.lse_stride[2]};
}

/// Divides a warp's sums by those of their weights and stores its rows of out, by way of its part
/// of shared memory. `masked`: keys were excluded. `release()` is called as soon as neither that
/// memory nor the tile is needed any more.
template <class Config, class Release>
__device__ __forceinline__ void store_short(ShortParams const& p, ShortTile const& t,
                                            ShortOut const& to, int warp, std::uint32_t own,
                                            ShortSums const& rows, float (&o)[Config::d / 8][4],
                                            bool masked, Release const& release) {
  using T = typename Config::Element;
  constexpr int d = Config::d, chunks = Config::chunks;
  abi::AttentionArgs const& g = p.args;
  int const i0 = 16 * warp + fresh_thread() % 32 / 4;  // counted from row0
  // Not by finish_row(), which ends one row behind a branch: two are ended side by side here.
  float sum[2], factor[2], shift[2];
  bool empty[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) sum[h] = rows.sum[h] + __shfl_xor_sync(0xffffffff, rows.sum[h], 1);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 2);
    shift[h] = rows.largest[h] == minus_infinity() ? 0.0f : rows.largest[h];
    empty[h] = t.row0 + i0 + 8 * h >= t.len_q || sum[h] == 0;
    factor[h] = 1;
  }
  float top[2] = {shift[0], shift[1]};
  if (g.sinks != nullptr) {
    float const sink = sink_of(g, t.head);
#pragma unroll
    for (int h = 0; h < 2; ++h) join_sink(sink, top[h], sum[h], factor[h]);
  }
  if (to.lse != nullptr) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (fresh_thread() % 4 == 0 && t.row0 + i0 + 8 * h < t.rows)
        to.lse[(i0 + 8 * h) * g.lse_stride[2]] =
            empty[h] ? minus_infinity() : fast_log_sum_exp(top[h], sum[h]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) factor[h] = __fdividef(factor[h], sum[h]);
  unsigned broken[2] = {};
  if (masked) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float probe[2] = {};
#pragma unroll
      for (int c = 0; c < d / 8; ++c)
#pragma unroll
        for (int e = 0; e < 2; ++e) probe[e] = fmaf(o[c][2 * h + e], 0.0f, probe[e]);
      float const all = probe[0] + probe[1];
      broken[h] = __ballot_sync(0xffffffff, all != all && sum[h] == sum[h] && !empty[h]);
    }
  }
  if (__any_sync(0xffffffff, empty[0] || empty[1])) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (empty[h]) {
        factor[h] = 0;
#pragma unroll
        for (int c = 0; c < d / 8; ++c) o[c][2 * h] = o[c][2 * h + 1] = 0;
      }
  }
  int const lane = fresh_thread() % 32;
  if constexpr (Config::stores_matrices) {
    std::uint32_t const at = own + Config::place(lane % 16, lane / 16);
#pragma unroll
    for (int c = 0; c < d / 8; c += 2)
      store_matrices(chunk_at(at, 16 * c), pack_pair<T>(o[c][0] * factor[0], o[c][1] * factor[0]),
                     pack_pair<T>(o[c][2] * factor[1], o[c][3] * factor[1]),
                     pack_pair<T>(o[c + 1][0] * factor[0], o[c + 1][1] * factor[0]),
                     pack_pair<T>(o[c + 1][2] * factor[1], o[c + 1][3] * factor[1]));
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      std::uint32_t const at = own + Config::place(lane / 4 + 8 * h, 0) + lane % 4 * 4;
#pragma unroll
      for (int c = 0; c < d / 8; ++c)
        store_shared_4(chunk_at(at, 16 * c),
                       pack_pair<T>(o[c][2 * h] * factor[h], o[c][2 * h + 1] * factor[h]));
    }
  }
  __syncwarp();
  if (masked && (broken[0] | broken[1]) != 0) {
#pragma unroll 1
    for (int r = 0; r < 16; ++r) {  // lanes 4·(r % 8) on hold row r % 8, then row + 8
      int const first = r % 8 * 4;
      if (((r < 8 ? broken[0] : broken[1]) >> first & 15) == 0) continue;
      repair_short<Config>(p, t, t.row0 + 16 * warp + r,
                           __shfl_sync(0xffffffff, r < 8 ? shift[0] : shift[1], first),
                           __shfl_sync(0xffffffff, r < 8 ? factor[0] : factor[1], first), own, r);
    }
    __syncwarp();
    // Of no use any more, which the products that begin the next sums may not tell the compiler: it
    // would keep them meanwhile.
#pragma unroll
    for (int c = 0; c < d / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[c][e] = 0;
  }

  int const c = lane % chunks, r0 = lane / chunks;
  int const existing = 8 * c < g.head_dim_v ? t.rows - t.row0 - 16 * warp - r0 : 0;
  T* const out =
      static_cast<T*>(to.out) + (16 * warp + r0) * g.out_stride[2] + 8 * c * g.out_stride[3];
  std::uint32_t const from = own + Config::place(r0, c);
  if (p.vectors) {
    constexpr int copies = 16 / Config::rows_at_once;
    float4 x[copies];
#pragma unroll
    for (int n = 0; n < copies; ++n) {
      int const r = n * Config::rows_at_once;
      x[n] = load_shared((from ^ Config::swizzle(r)) + r * Config::row_bytes);
    }
    release();
#pragma unroll
    for (int n = 0; n < copies; ++n) {
      int const r = n * Config::rows_at_once;
      if (r < existing) store_global_16(out + r * g.out_stride[2], x[n]);
    }
  } else {
#pragma unroll 1
    for (int r = 0; r < 16 && r < existing; r += Config::rows_at_once) {
#pragma unroll 1
      for (int e = 0; e < 8; e += 2) {
        std::uint32_t const pair =
            load_shared_4((from ^ Config::swizzle(r)) + r * Config::row_bytes + 2 * e);
        T* const at = out + r * g.out_stride[2] + e * g.out_stride[3];
        at[0] = from_bits<T>(pair & 0xffffu);
        at[g.out_stride[3]] = from_bits<T>(pair >> 16);
      }
    }
    release();
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
