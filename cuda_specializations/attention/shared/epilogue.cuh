// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the sums of warps to rows of out and the log-sum-exp.
#pragma once

#include "ptx/global_memory.cuh"
#include "ptx/registers.cuh"
#include "ptx/thread_index.cuh"
#include "scores.cuh"
#include "sequences/row_sum.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Calls f with a null pointer to the type of out: that of q, or of float8 as the call says.
template <class Config, class F>
__device__ __forceinline__ void with_out_type(AttentionParams const& p, F const& f) {
  if constexpr (!Config::scaled)
    f(static_cast<typename Config::Element*>(nullptr));
  else if (p.args.type_out == DType::float16)
    f(static_cast<__half*>(nullptr));
  else
    f(static_cast<__nv_bfloat16*>(nullptr));
}

/// What repair_rows() has to know about a thread's two queries.
struct BrokenRows {
  unsigned lanes[2];  ///< whose query came out as NaN though its weights are none
  float factor[2], reference[2];
};

/// Stores the sums of this thread's two queries times `factor`; they are rows `row` and `row` + 8
/// behind `to`, as far as `existing` rows from the first on exist. `broken`: whether an element of
/// either query is infinite or NaN.
template <class Config, class Out>
__device__ __forceinline__ void store_sums(AttentionParams const& p, Out* to,
                                           float const (&o)[Config::dv / 2],
                                           float const (&factor)[2], int row, int existing,
                                           bool (&broken)[2]) {
  using Pair = std::conditional_t<std::is_same_v<Out, __half>, __half2, __nv_bfloat162>;
  abi::AttentionArgs const& g = p.args;
  int const q = fresh_thread() % 4, dv = static_cast<int>(g.head_dim_v);
  Out* const out_0 = to + static_cast<unsigned>(row) * g.out_stride[2];
  Out* const out_1 = out_0 + 8 * g.out_stride[2];
  bool const stored_0 = existing > 0, stored_1 = existing > 8;
  Pair probe[2] = {};  // 0 times all elements
  // Products of neighbouring columns, in a word.
  constexpr int to_second = Config::transposes ? 4 : 1, to_next = Config::transposes ? 1 : 4;
  auto const pack = [&](int r) {
    int const half = r / 2 % 2;
    std::uint32_t const x = pack_pair<Out>(o[r] * factor[half], o[r + to_second] * factor[half]);
    probe[half] = __hfma2(reinterpret_cast<Pair const&>(x), Pair{}, probe[half]);
    return x;
  };
  if (__builtin_expect(p.vectors, 1)) {
    // Neighbouring lanes swap halves of two blocks of eight columns: each has four columns then, a
    // quad 32 bytes of a row. Of transposed values they have them as it is.
    bool const odd = q % 2 != 0;
    int const column = Config::transposes ? q * 4 : q % 2 * 8 + q / 2 * 4;
    int const left_0 = stored_0 ? dv - column : 0, left_1 = stored_1 ? dv - column : 0;
    Out *at_0 = out_0 + column, *at_1 = out_1 + column;
    make_opaque(at_0), make_opaque(at_1);  // addresses of all stores are these and a constant
    // Of 64 columns at a time, all exchanges are under way together.
    constexpr int together = Config::dv / 2 < 32 ? Config::dv / 2 : 32;
#pragma unroll
    for (int from = 0; from < Config::dv / 2; from += together) {
      uint2 four[together / 4];
      std::uint32_t got[together / 4];
#pragma unroll
      for (int n = 0; n < together / 4 && from + 4 * n < Config::dv / 2; ++n) {
        int const r = from + n / 2 * 8 + n % 2 * 2;
        four[n] = make_uint2(pack(r), pack(r + to_next));
        if constexpr (!Config::transposes)
          got[n] = __shfl_xor_sync(0xffffffff, odd ? four[n].x : four[n].y, 1);
      }
#pragma unroll
      for (int n = 0; n < together / 4 && from + 4 * n < Config::dv / 2; ++n) {
        if constexpr (!Config::transposes) (odd ? four[n].x : four[n].y) = got[n];
        int const first = from * 2 + n / 2 * 16;
        store_global_if(first < (n % 2 == 0 ? left_0 : left_1), (n % 2 == 0 ? at_0 : at_1) + first,
                        four[n]);
      }
    }
  } else {
    constexpr int run = Config::transposes ? 4 : 2;  // columns side by side
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!(half == 0 ? stored_0 : stored_1)) continue;
      Out* at = (half == 0 ? out_0 : out_1) + run * q * g.out_stride[3];
#pragma unroll
      for (int n = 0; n < Config::dv / 8; ++n) {
        int const column = n / 2 * 16 + n % 2 * (Config::transposes ? 2 : 8);
        std::uint32_t const x = pack(n / 2 * 8 + n % 2 * to_next + 2 * half);
        auto const& pair = reinterpret_cast<Pair const&>(x);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (column + run * q + e < dv) *at = e == 0 ? pair.x : pair.y;
          bool const on = e == 0 || (Config::transposes && n % 2 == 0);
          at += on ? g.out_stride[3] : (3 * run + 1) * g.out_stride[3];
          make_opaque(at);  // else all addresses would be computed first and kept
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    broken[half] = !(widen(probe[half].x) + widen(probe[half].y) == 0);
}

/// Stores the sums of this thread's two queries, the first of which is row `row` of the tile's of
/// its head number `head`, divided by the sums of their weights. `masked`: the tile's blocks have
/// keys that a query must not see.
template <class Config>
__device__ __forceinline__ BrokenRows store_rows(AttentionParams const& p,
                                                 typename Config::Tile const& t,
                                                 float (&o)[Config::dv / 2],
                                                 SoftmaxRows const& rows, float c, int row,
                                                 bool masked, int head = 0) {
  using T = typename Config::Element;
  abi::AttentionArgs const& g = p.args;
  int const existing = t.rows - t.row0 - row, attending = t.len_q - t.row0 - row;
  BrokenRows broken{};
  // Not by finish_row(), which ends one row: of two side by side, a lane takes the logarithm of one
  // alone.
  float sum[2], top[2], factor[2];
  bool empty[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float x = rows.sum[half];
    x += __shfl_xor_sync(0xffffffff, x, 1);
    sum[half] = x + __shfl_xor_sync(0xffffffff, x, 2);
    empty[half] = 8 * half >= attending || sum[half] == 0;
    top[half] =
        rows.largest[half] == minus_infinity() ? 0.0f : rows.largest[half] * c - top_exponent<T>;
    broken.reference[half] = top[half];
    factor[half] = 1;
  }
  if (__builtin_expect(g.sinks != nullptr, 0)) {
    float const sink = sink_of(g, t.head + head);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (!empty[half]) join_sink(sink, top[half], sum[half], factor[half]);
  }
  if (t.lse != nullptr) {  // lanes 0 and 1 of four that share two queries store one each
    int const q = fresh_thread() % 4;
    float const of = q == 0 ? sum[0] : sum[1], from = q == 0 ? top[0] : top[1];
    bool const none = q == 0 ? empty[0] : empty[1];
    store_global_if(
        q < 2 && 8 * q < existing,
        t.lse + head * g.lse_stride[1] + static_cast<unsigned>(row + 8 * q) * g.lse_stride[2],
        none ? minus_infinity() : fast_log_sum_exp(from, of));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) factor[half] = __fdividef(factor[half], sum[half]);
  if constexpr (Config::scaled) factor[0] *= t.value_scale, factor[1] *= t.value_scale;
  broken.factor[0] = factor[0], broken.factor[1] = factor[1];
  if (__any_sync(0xffffffff, empty[0] || empty[1])) {
#pragma unroll
    for (int r = 0; r < Config::dv / 2; ++r)
      if (empty[r / 2 % 2]) o[r] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (empty[half]) factor[half] = 0;
  }
  bool bad[2];
  with_out_type<Config>(p, [&](auto* type) {
    using Out = std::remove_pointer_t<decltype(type)>;
    store_sums<Config>(p, static_cast<Out*>(t.out) + head * g.out_stride[1], o, factor, row,
                       existing, bad);
  });
  if (masked) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      broken.lanes[half] = __ballot_sync(0xffffffff, bad[half] && sum[half] == sum[half]);
  }
  return broken;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
