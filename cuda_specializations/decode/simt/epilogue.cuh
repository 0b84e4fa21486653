// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// decode/sm80_simt_*: from the sums of a block's warps to rows of out or to partial states, the
/// kernel, and the launch that joins the states.
#pragma once

#include "mainloop.cuh"
#include "sequences/row_sum.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// One row of out: where it lies, its log-sum-exp, null if that is not wanted, and the number of
/// its state.
template <class T, class Acc>
struct SimtOutRow {
  T* out;
  Acc* lse;
  std::int64_t state;

  __device__ __forceinline__ SimtOutRow(abi::AttentionArgs const& g, int batch, int head,
                                        int position) {
    std::int64_t const b = g.cu_seqlens_q.data == nullptr ? batch : 0;
    out = static_cast<T*>(g.out) + b * g.out_stride[0] + head * g.out_stride[1] +
          position * g.out_stride[2];
    lse = g.lse == nullptr ? nullptr
                           : static_cast<Acc*>(g.lse) + b * g.lse_stride[0] +
                                 head * g.lse_stride[1] + position * g.lse_stride[2];
    state = (b * g.heads_q + head) * g.seqlen_q + position;
  }
};

/// The end of a row of `head`, of weights power(score - top).
template <class Acc>
__device__ __forceinline__ RowEnd<Acc> finish_simt_row(abi::AttentionArgs const& g, int head,
                                                       Acc top, Acc sum) {
  using Units = ScoreUnits<Acc>;
  return finish_row<Units>(sum == 0, top, sum, g.sinks != nullptr, [&] {
    return Units::load(g.sinks, g.type_sinks, head * g.sinks_stride) * Units::unit;
  });
}

/// A block that has no keys: rows become 0 and -inf, or the states of this part empty, of which
/// nothing but the log-sum-exp is looked at.
template <class Config>
__device__ __forceinline__ void store_no_keys(SimtDecodeParams const& p, DecodeTile const& t,
                                              int split) {
  using T = typename Config::Element;
  using Acc = typename Config::Acc;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = warp; r < t.rows; r += Config::warps) {
    SimtOutRow<T, Acc> const row(p.args, t.batch, t.head_of(r), t.begin_q + t.query_of(r));
    if (p.splits > 1) {
      if (lane == 0) sums_of_parts<Acc>(p)[row.state * p.splits + split] = lowest<Acc>();
      continue;
    }
    for (int c = lane; c < p.args.head_dim_v; c += 32) row.out[c * p.args.out_stride[3]] = T(0.0f);
    if (lane == 0 && row.lse != nullptr) *row.lse = lowest<Acc>();
  }
}

/// Joins the sums of a block's warps, always in the same order, and stores rows of out where there
/// is one part, else states of this part.
template <class Config>
__device__ __forceinline__ void join_warps(
    SimtDecodeParams const& p, DecodeTile const& t, int split, SimtDecodeShared<Config>& shared,
    typename Config::Acc const (&o)[Config::rows][Config::each], typename Config::Acc largest,
    typename Config::Acc sum) {
  using T = typename Config::Element;
  using Acc = typename Config::Acc;
  using Units = ScoreUnits<Acc>;
  constexpr int rows = Config::rows, chunks = Config::chunks, vector = Config::vector;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  allow_launch_behind();
  __syncthreads();  // queries have been read
#pragma unroll
  for (int r = 0; r < rows; ++r)
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      Acc x[vector];
#pragma unroll
      for (int e = 0; e < vector; ++e) x[e] = o[r][c * vector + e];
      store_group(shared.sums + (warp * rows + r) * Config::d + (32 * c + lane) * vector, x);
    }
  if (lane % (32 / rows) == 0) {
    shared.largest[warp][lane / (32 / rows)] = largest;
    shared.sum[warp][lane / (32 / rows)] = sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int r = warp; r < t.rows; r += Config::warps) {
    Acc top = shared.largest[0][r];
#pragma unroll
    for (int w = 1; w < Config::warps; ++w) top = max(top, shared.largest[w][r]);
    if (top == lowest<Acc>()) top = 0;
    Acc factor[Config::warps], total = 0;
#pragma unroll
    for (int w = 0; w < Config::warps; ++w) {
      factor[w] = Units::power(shared.largest[w][r] - top);
      total += factor[w] * shared.sum[w][r];
    }
    int const head = t.head_of(r);
    SimtOutRow<T, Acc> const row(p.args, t.batch, head, t.begin_q + t.query_of(r));
    RowEnd<Acc> scale;
    if (p.splits > 1)
      scale = {total == 0 ? Acc(0) : 1 / total,
               total == 0 ? lowest<Acc>() : top + Units::log(total)};
    else
      scale = finish_simt_row(p.args, head, top, total);
    Acc* const state = parts_of<Acc>(p) + (split * p.states + row.state) * p.state_width;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      Acc x[vector] = {};
#pragma unroll
      for (int w = 0; w < Config::warps; ++w) {
        Acc y[vector];
        copy_group(y, shared.sums + (w * rows + r) * Config::d + (32 * c + lane) * vector);
#pragma unroll
        for (int e = 0; e < vector; ++e) x[e] += factor[w] * y[e];
      }
#pragma unroll
      for (int e = 0; e < vector; ++e) {
        int const f = Config::feature_at((32 * c + lane) * vector + e);
        Acc const y = total == 0 ? Acc(0) : x[e] * scale.factor;
        if (f >= p.args.head_dim_v) continue;
        if (p.splits > 1)
          state[f] = y;
        else
          row.out[f * p.args.out_stride[3]] = static_cast<T>(y);
      }
    }
    if (lane != 0) continue;
    if (p.splits > 1)
      sums_of_parts<Acc>(p)[row.state * p.splits + split] = scale.lse;
    else if (row.lse != nullptr)
      *row.lse = scale.lse;
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    sm80_simt_decode_kernel(__grid_constant__ SimtDecodeParams const p) {
  using Acc = typename Config::Acc;
  __shared__ __align__(16) SimtDecodeShared<Config> shared;
  auto const heads_kv = static_cast<unsigned>(p.args.heads_kv);
  // Tiles that read the same keys are neighbours, and so are heads, which may lie side by side.
  unsigned unit = blockIdx.x;
  int const slot = static_cast<int>(unit % static_cast<unsigned>(p.tiles));
  unit /= static_cast<unsigned>(p.tiles);
  int const h_kv = static_cast<int>(unit % heads_kv);
  unit /= heads_kv;
  int const split = static_cast<int>(unit % static_cast<unsigned>(p.splits));
  int const batch = static_cast<int>(unit / static_cast<unsigned>(p.splits));
  wait_for_launch_before();
  DecodeTile const t = locate_rows(p, batch, h_kv, slot, Config::rows);
  if (t.rows == 0) return;
  DecodeKeys const keys = part_of_keys(t, p.splits, split);
  if (keys.begin >= keys.end) {
    store_no_keys<Config>(p, t, split);
    return;
  }
  share_simt_queries<Config>(shared.queries, p.args, t);
  __syncthreads();
  Acc o[Config::rows][Config::each], largest, sum;
  simt_decode_part<Config>(p, t, keys, shared, o, largest, sum);
  join_warps<Config>(p, t, split, shared, o, largest, sum);
}

/// Joins the states of one row of out. Parts are summed in ascending order by groups of threads,
/// whose sums are then joined in order: the same bits every time.
template <class T, class Acc>
__global__ void __launch_bounds__(256)
    sm80_simt_join_kernel(__grid_constant__ SimtDecodeParams const p) {
  using Units = ScoreUnits<Acc>;
  constexpr int vector = 16 / static_cast<int>(sizeof(Acc));
  constexpr Acc empty = -1;  // in place of a weight
  __shared__ Acc weight[most_decode_splits];
  __shared__ __align__(16) Acc sums[256 * vector];
  wait_for_launch_before();
  abi::AttentionArgs const& g = p.args;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  unsigned const state = blockIdx.x;
  Acc const* const lse = sums_of_parts<Acc>(p) + std::int64_t{state} * p.splits;
  Acc top = lowest<Acc>(), total = 0;
  for (int s = lane; s < p.splits; s += 32) top = max(top, lse[s]);
  for (int step = 16; step > 0; step /= 2) top = max(top, __shfl_xor_sync(0xffffffff, top, step));
  if (top == lowest<Acc>()) top = 0;
  for (int s = lane; s < p.splits; s += 32) {
    Acc const x = lse[s], w = Units::power(x - top);
    if (thread < 32) weight[s] = x == lowest<Acc>() ? empty : w;
    total += w;
  }
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
  __syncthreads();

  int const columns = p.state_width / vector, groups = 256 / columns;
  int const column = thread % columns, group = thread / columns;
  Acc x[vector] = {};
  if (group < groups) {
    Acc const* const from =
        parts_of<Acc>(p) + std::int64_t{state} * p.state_width + vector * column;
#pragma unroll 8
    for (int s = group; s < p.splits; s += groups) {
      Acc const w = weight[s];
      Acc y[vector];
      copy_group(y, from + s * p.states * p.state_width);
      if (w == empty) continue;  // what it holds is not looked at
#pragma unroll
      for (int e = 0; e < vector; ++e) x[e] += w * y[e];
    }
    store_group(sums + thread * vector, x);
  }
  __syncthreads();
  if (thread >= columns) return;
  for (int other = 1; other < groups; ++other)
#pragma unroll
    for (int e = 0; e < vector; ++e) x[e] += sums[(other * columns + column) * vector + e];
  auto const rows = static_cast<unsigned>(g.seqlen_q), heads = static_cast<unsigned>(g.heads_q);
  int const head = static_cast<int>(state / rows % heads);
  SimtOutRow<T, Acc> const row(g, static_cast<int>(state / rows / heads), head,
                               static_cast<int>(state % rows));
  RowEnd<Acc> const scale = finish_simt_row(g, head, top, total);
  if (thread == 0 && row.lse != nullptr) *row.lse = scale.lse;
#pragma unroll
  for (int e = 0; e < vector; ++e) {
    int const f = vector * column + e;
    if (f < g.head_dim_v)
      row.out[f * g.out_stride[3]] = static_cast<T>(total == 0 ? Acc(0) : x[e] * scale.factor);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
