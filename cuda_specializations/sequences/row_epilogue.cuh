// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the sums of a block's warps to rows of out or to partial states; rows again where a NaN may
/// have come from a value that has no weight; and the launch that joins the states.
#pragma once

#include "ptx/dependent_launch.cuh"
#include "repair.cuh"
#include "row_scores.cuh"
#include "row_sum.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

namespace {

/// Blocks of the launch that joins states on a multiprocessor. With 64 registers one fits beside
/// two blocks of head_dim 128 that make states, so that those of the next call take up their places
/// and fetch their first keys meanwhile.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int join_blocks = 4;
#else
constexpr int join_blocks = 8;
#endif

/// Stands for an element of out that has 16 or 32 bits, as the call tells.
struct OutOfCall {};

template <class T>
__device__ __forceinline__ T* element_of(abi::AttentionArgs const& g, std::int64_t at) {
  if constexpr (std::is_same_v<T, OutOfCall>) at *= g.type_out == DType::float32 ? 4 : 2;
  return static_cast<T*>(g.out) + at;
}

/// One row of out: where it lies, its log-sum-exp, and the number of its state.
template <class T>
struct DecodeRow {
  T* out;
  float* lse;
  std::int64_t state;
  int head, query;
};

template <class T>
__device__ __forceinline__ DecodeRow<T> output_row(abi::AttentionArgs const& g, int batch, int head,
                                                   int position) {
  std::int64_t const b = g.cu_seqlens_q.data == nullptr ? batch : 0;
  DecodeRow<T> row;
  row.out =
      element_of<T>(g, b * g.out_stride[0] + head * g.out_stride[1] + position * g.out_stride[2]);
  row.lse = g.lse == nullptr ? nullptr
                             : static_cast<float*>(g.lse) + b * g.lse_stride[0] +
                                   head * g.lse_stride[1] + position * g.lse_stride[2];
  row.state = (b * g.heads_q + head) * g.seqlen_q + position;
  row.head = head, row.query = position;
  return row;
}

/// Stores elements c ... c + 3 of a row of out, as far as there are any.
template <class T>
__device__ __forceinline__ void store_four(DecodeParams const& p, T* out, int c,
                                           float const (&x)[4]) {
  if (p.vectors) {
    if (c >= p.args.head_dim_v) return;
    if constexpr (std::is_same_v<T, float>)
      *reinterpret_cast<float4*>(out + c) = make_float4(x[0], x[1], x[2], x[3]);
    else
      *reinterpret_cast<uint2*>(out + c) =
          make_uint2(pack_pair<T>(x[0], x[1]), pack_pair<T>(x[2], x[3]));
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (c + e < p.args.head_dim_v) out[(c + e) * p.args.out_stride[3]] = static_cast<T>(x[e]);
}

template <>
__device__ __forceinline__ void store_four(DecodeParams const& p, OutOfCall* out, int c,
                                           float const (&x)[4]) {
  if (p.args.type_out == DType::float32)
    store_four(p, reinterpret_cast<float*>(out), c, x);
  else if (p.args.type_out == DType::float16)
    store_four(p, reinterpret_cast<__half*>(out), c, x);
  else
    store_four(p, reinterpret_cast<__nv_bfloat16*>(out), c, x);
}

/// The end of a row of `head`, of weights 2^(score - top).
__device__ __forceinline__ RowEnd<float> finish_row(abi::AttentionArgs const& g, int head,
                                                    float top, float sum) {
  return finish_row<Base2Rows<true>>(sum == 0, top, sum, g.sinks != nullptr,
                                     [&] { return sink_of(g, head); });
}

/// A block that has no keys: rows become 0 and -inf, or the states of this part empty, of which
/// nothing but the log-sum-exp is looked at.
template <class Config>
__device__ __forceinline__ void store_nothing(DecodeParams const& p, DecodeTile const& t,
                                              int split) {
  using T = typename Config::Out;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = warp; r < t.rows; r += Config::warps) {
    auto const row = output_row<T>(p.args, t.batch, t.head_of(r), t.begin_q + t.query_of(r));
    if (p.partial_out != nullptr) {
      if (lane == 0) p.partial_lse[row.state * p.splits + split] = minus_infinity();
      continue;
    }
    float const zeros[4] = {};
    for (int c = 4 * lane; c < p.args.head_dim_v; c += 128) store_four(p, row.out, c, zeros);
    if (lane == 0 && row.lse != nullptr) *row.lse = minus_infinity();
  }
}

/// Sums a row of a block once more, by one warp: elements 4 lane ... of each 128, over the keys
/// whose score is not -inf, of 2^(score - reference) times the value. Leaves the sums as they are
/// if no value that was left out is infinite or NaN.
template <class T, class Tile, int Fours>
__device__ __noinline__ void sum_again(DecodeParams const& p, Tile const& t, DecodeKeys const& keys,
                                       int r, float reference, float (&sums)[Fours][4]) {
  abi::AttentionArgs const& g = p.args;
  int const head = t.head_of(r), i = t.query_of(r), h_kv = t.head / p.group;
  std::int64_t const b = g.cu_seqlens_q.data == nullptr ? t.batch : 0;
  auto const row_of = [&](void const* base, std::int64_t const(&stride)[4], int j) {
    std::int64_t page = t.batch, row = std::int64_t{t.begin_kv} + j;
    if (g.page_table != nullptr) {
      page = clamped(
          g.page_table[t.batch * g.page_table_stride[0] + j / g.page_size * g.page_table_stride[1]],
          0, static_cast<int>(g.num_pages) - 1);
      row = j % g.page_size;
    }
    return static_cast<T const*>(base) + page * stride[0] + h_kv * stride[1] + row * stride[2];
  };
  RepairedQuery<T> const query{static_cast<T const*>(g.q) + b * g.q_stride[0] +
                                   head * g.q_stride[1] +
                                   (std::int64_t{t.begin_q} + i) * g.q_stride[2],
                               1,
                               1,
                               1,
                               static_cast<int>(g.head_dim),
                               static_cast<int>(g.head_dim_v),
                               true};
  auto const value = [&](int j) { return row_of(g.v, g.v_stride, j); };
  int const from = max(keys.begin, t.seen_from(i)), end = min(keys.end, t.seen_end(i));
  if (g.mask == nullptr && g.bias == nullptr &&
      !excludes_nan<1>(query, keys.begin, from, end, keys.end, value))
    return;
  float eight[8];
  sum_row_again<4>(
      query, from, end, reference, [&](int j) { return row_of(g.k, g.k_stride, j); }, value,
      [&](float product, int j) { return one_decode_score(p, t, product, head, i, j); }, eight);
  int const lane = fresh_thread() % 32;
#pragma unroll
  for (int f = 0; f < Fours; ++f)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float const even = __shfl_sync(0xffffffff, eight[e], 16 * f + lane / 2);
      float const odd = __shfl_sync(0xffffffff, eight[e + 4], 16 * f + lane / 2);
      sums[f][e] = lane % 2 == 0 ? even : odd;
    }
}

/// Half `h` of what a thread has summed, to its row of sums. Of float8 values the thread has four
/// neighbours of each 16.
template <class Config>
__device__ __forceinline__ void put_sums(float* row, int q, int h,
                                         float const (&o)[Config::d / 8][4]) {
  if constexpr (Config::bytes) {
#pragma unroll
    for (int c = 0; c < Config::d / 8; c += 2)
      *reinterpret_cast<float4*>(row + 8 * c + 4 * q) =
          make_float4(o[c][2 * h], o[c + 1][2 * h], o[c][2 * h + 1], o[c + 1][2 * h + 1]);
  } else {
#pragma unroll
    for (int c = 0; c < Config::d / 8; ++c)
      *reinterpret_cast<float2*>(row + 8 * c + 2 * q) = make_float2(o[c][2 * h], o[c][2 * h + 1]);
  }
}

/// Joins the sums of the warps that had the same rows, always in the same order, and stores rows of
/// out where there is one part, else states of this part.
template <class Config, class Tile>
__device__ __forceinline__ void merge_and_store(DecodeParams const& p, Tile const& t,
                                                DecodeKeys const& keys, int split,
                                                unsigned char* shared, DecodeSoftmax& softmax,
                                                float const (&o)[Config::d / 8][4]) {
  using T = typename Config::Out;
  __shared__ float largest[Config::warps][16], sum[Config::warps][16];
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  auto* const sums = reinterpret_cast<float*>(shared);
  if (!p.early) allow_launch_behind();
  __syncthreads();  // the ring is free
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int const r = lane / 4 + 8 * h;
    float all = softmax.sum[h];
    all += __shfl_xor_sync(0xffffffff, all, 1);
    all += __shfl_xor_sync(0xffffffff, all, 2);
    if (lane % 4 == 0) largest[warp][r] = softmax.largest[h], sum[warp][r] = all;
    put_sums<Config>(sums + (16 * warp + r) * Config::sum_width, lane % 4, h, o);
  }
  __syncthreads();
  constexpr int fours = (Config::d + 127) / 128;
#pragma unroll 1
  for (int r = warp; r < t.rows; r += Config::warps) {
    constexpr int sources = Config::teams;
    int const first = sources == 1 ? r / 16 : 0, in = r % 16;
    float top = largest[first][in];
#pragma unroll
    for (int w = 1; w < sources; ++w) top = fmaxf(top, largest[w][in]);
    float const shift = top == minus_infinity() ? 0.0f : top;
    float total = 0, x[fours][4] = {};
#pragma unroll
    for (int w = 0; w < sources; ++w) {
      float const factor = sources == 1 ? 1.0f : power_of_2(largest[first + w][in] - shift);
      total = fmaf(factor, sum[first + w][in], total);
#pragma unroll
      for (int f = 0; f < fours; ++f) {
        int const c = 128 * f + 4 * lane;
        if (c >= Config::d) continue;
        float4 const y = *reinterpret_cast<float4 const*>(
            sums + (16 * (first + w) + in) * Config::sum_width + c);
        x[f][0] = fmaf(factor, y.x, x[f][0]), x[f][1] = fmaf(factor, y.y, x[f][1]);
        x[f][2] = fmaf(factor, y.z, x[f][2]), x[f][3] = fmaf(factor, y.w, x[f][3]);
      }
    }
    float probe = 0;
#pragma unroll
    for (int f = 0; f < fours; ++f)
#pragma unroll
      for (int e = 0; e < 4; ++e) probe = fmaf(x[f][e], 0.0f, probe);
    if (__any_sync(0xffffffff, probe != probe && total == total && total != 0))
      sum_again<typename Config::Element>(p, t, keys, r, shift, x);

    auto const row = output_row<T>(p.args, t.batch, t.head_of(r), t.begin_q + t.query_of(r));
    if (p.partial_out == nullptr) {
      RowEnd<float> const scale = finish_row(p.args, row.head, shift, total);
      float const factor = scale.factor * value_scale(t);
#pragma unroll
      for (int f = 0; f < fours; ++f) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x[f][e] = total == 0 ? 0.0f : x[f][e] * factor;
        store_four(p, row.out, 128 * f + 4 * lane, x[f]);
      }
      if (lane == 0 && row.lse != nullptr) *row.lse = scale.lse;
    } else {
      float const factor = total == 0 ? 0.0f : __fdividef(value_scale(t), total);
      float* const to = p.partial_out + (split * p.states + row.state) * p.state_width;
#pragma unroll
      for (int f = 0; f < fours; ++f) {
        int const c = 128 * f + 4 * lane;
        if (c < p.state_width)
          *reinterpret_cast<float4*>(to + c) =
              make_float4(x[f][0] * factor, x[f][1] * factor, x[f][2] * factor, x[f][3] * factor);
      }
      if (lane == 0)
        p.partial_lse[row.state * p.splits + split] =
            total == 0 ? minus_infinity() : shift + log2f(total);
    }
  }
}

/// Joins the states of one row of out. Parts are summed in ascending order by groups of threads,
/// whose sums are then joined in order: the same bits every time.
template <class T>
__global__ void __launch_bounds__(128, join_blocks)
    decode_join_kernel(__grid_constant__ DecodeParams const p) {
  __shared__ float weight[most_decode_splits];
  __shared__ float4 sums[128];
  allow_launch_behind();
  abi::AttentionArgs const& g = p.args;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  unsigned const state = blockIdx.x;
  auto const rows = static_cast<unsigned>(g.seqlen_q), heads = static_cast<unsigned>(g.heads_q);
  auto const row =
      output_row<T>(g, static_cast<int>(state / rows / heads),
                    static_cast<int>(state / rows % heads), static_cast<int>(state % rows));
  float const* const lse = p.partial_lse + std::int64_t{state} * p.splits;
  constexpr int ahead = 8;
  int const columns = p.state_width / 4, groups = 128 / columns;
  int const column = thread % columns, group = thread / columns;
  float const* const from = p.partial_out + std::int64_t{state} * p.state_width + 4 * column;
  std::int64_t const apart = p.states * p.state_width;
  wait_for_launch_before();
  float const first = lane < p.splits ? lse[lane] : minus_infinity();
  // The first sums are under way before it is known what they weigh.
  float4 x[ahead];
#pragma unroll
  for (int i = 0; i < ahead; ++i) {
    int const s = group + i * groups;
    x[i] = group < groups && s < p.splits ? *reinterpret_cast<float4 const*>(from + s * apart)
                                          : make_float4(0, 0, 0, 0);
  }

  float top = first, total = 0;
  for (int s = lane + 32; s < p.splits; s += 32) top = fmaxf(top, lse[s]);
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, step));
  if (top == minus_infinity()) top = 0;
  for (int s = lane; s < p.splits; s += 32) {
    float const w = power_of_2((s == lane ? first : lse[s]) - top);
    if (thread < 32) weight[s] = w;
    total += w;
  }
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
  __syncthreads();
  RowEnd<float> const scale = finish_row(g, row.head, top, total);
  if (thread == 0 && row.lse != nullptr) *row.lse = scale.lse;

  float4 sum = make_float4(0, 0, 0, 0);
  auto const add = [&](float w, float4 const& y) {
    if (w == 0) return;  // what an empty part holds is not looked at
    sum.x = fmaf(w, y.x, sum.x), sum.y = fmaf(w, y.y, sum.y);
    sum.z = fmaf(w, y.z, sum.z), sum.w = fmaf(w, y.w, sum.w);
  };
  if (group < groups) {
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      int const s = group + i * groups;
      if (s < p.splits) add(weight[s], x[i]);
    }
    for (int s = group + ahead * groups; s < p.splits; s += groups)
      add(weight[s], *reinterpret_cast<float4 const*>(from + s * apart));
  }
  sums[thread] = sum;
  __syncthreads();
  if (thread >= columns) return;
  for (int other = 1; other < groups; ++other) {
    float4 const y = sums[other * columns + column];
    sum.x += y.x, sum.y += y.y, sum.z += y.z, sum.w += y.w;
  }
  float const result[4] = {sum.x * scale.factor, sum.y * scale.factor, sum.z * scale.factor,
                           sum.w * scale.factor};
  store_four(p, row.out, 4 * column, result);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
