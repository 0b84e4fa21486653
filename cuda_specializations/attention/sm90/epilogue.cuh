// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the sm_90a attention kernels store beside shared/epilogue.cuh: tiles that see nothing, and
/// rows again where a NaN may have come from a value that has no weight.
#pragma once

#include "attention/shared/epilogue.cuh"
#include "common/uniform.cuh"
#include "params.cuh"
#include "sequences/repair.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Stores a tile none of whose queries sees a key: 0 and -inf. By all consumers, each its share.
template <class Config>
__device__ __forceinline__ void store_nothing(AttentionParams const& p, AttentionTile const& t) {
  abi::AttentionArgs const& g = p.args;
  std::int64_t const b = max(t.batch, 0);
  int const shift = pack_shift<Config>(p), dv = static_cast<int>(g.head_dim_v);
  int const rows = min(t.rows - t.row0, Config::tile_m >> shift);
  int const thread = static_cast<int>(threadIdx.x) - 128;
  with_out_type<Config>(p, [&](auto* type) {
    using Out = std::remove_pointer_t<decltype(type)>;
    for (int h = t.head; h < t.head + (1 << shift); ++h)
      for (int at = thread; at < rows * dv; at += 128 * Config::consumers) {
        std::int64_t const row = std::int64_t{t.begin_q} + t.row0 + at / dv;
        static_cast<Out*>(g.out)[b * g.out_stride[0] + h * g.out_stride[1] + row * g.out_stride[2] +
                                 at % dv * g.out_stride[3]] = static_cast<Out>(0.0f);
      }
  });
  if (g.lse == nullptr) return;
  for (int h = t.head; h < t.head + (1 << shift); ++h)
    for (int at = thread; at < rows; at += 128 * Config::consumers)
      static_cast<float*>(g.lse)[b * g.lse_stride[0] + h * g.lse_stride[1] +
                                 (std::int64_t{t.begin_q} + t.row0 + at) * g.lse_stride[2]] =
          minus_infinity();
}

/// Computes the rows of a warp once more that came out as NaN though their weights are none, if a
/// key that they do not see has a value that is no number.
template <class Config>
__device__ __forceinline__ void repair_rows(Sm90AttentionParams const& p,
                                            typename Config::Tile const& t,
                                            BrokenRows const broken) {
  using T = typename Config::Element;
  constexpr int together = Config::consumers == 3 ? 4 : 8;  // as registers allow
  __syncwarp();
  abi::AttentionArgs const& g = p.args;
  int const i = t.row0 + own_query<Config>(p), h = t.head + own_head<Config>(p);
  std::int64_t const b = t.batch, h_kv = h / p.group_of_heads;
  T const* const q = static_cast<T const*>(g.q) + b * g.q_stride[0] + h * g.q_stride[1];
  auto const row_of = [&](void const* base, std::int64_t const(&stride)[4], int j) {
    std::int64_t outer = b, row = std::int64_t{t.begin_kv} + j;
    if (p.page_rows != 0) {
      int const page = p.by_page.of(j);
      int const entry = g.page_table[b * g.page_table_stride[0] + page * g.page_table_stride[1]];
      outer = min(max(entry, 0), static_cast<int>(g.num_pages) - 1);
      row = j - page * static_cast<int>(g.page_size);
    }
    return static_cast<T const*>(base) + outer * stride[0] + h_kv * stride[1] + row * stride[2];
  };
  auto const key = [&](int j) { return row_of(g.k, g.k_stride, j); };
  auto const value = [&](int j) { return row_of(g.v, g.v_stride, j); };
  RepairedQuery<T> query{q,
                         g.q_stride[3],
                         g.k_stride[3],
                         g.v_stride[3],
                         static_cast<int>(g.head_dim),
                         static_cast<int>(g.head_dim_v),
                         (g.head_dim | g.head_dim_v) % 8 == 0};
  int const first = uniform(i), begin = t.first * Config::tile_n;
  int const end = min(t.end * Config::tile_n, t.len_kv);
  // Keys that some of the rows do not see lie at both ends; a bias may exclude any.
  int before = 0x7fffffff, behind = -1;
  bool const looks = query.whole && g.bias == nullptr;
#pragma unroll 1
  for (int side = 0; looks && side < 2; ++side) {
    KeySpan const bad =
        keys_without_numbers<together>(query, side == 0 ? begin : max(begin, t.seen_end(first)),
                                       side == 0 ? min(t.seen_from(first + 15), end) : end, value);
    if (side == 0)
      before = bad.first;
    else
      behind = bad.last;
  }
  ScoreTerms const terms = score_terms(p, t, scale_of(p, t));
#pragma unroll 1
  for (int row = 0; row < 16; ++row) {  // lanes 4·(row % 8) on hold row row % 8, then row + 8
    int const half = row / 8, lane = row % 8 * 4;
    if (((half == 0 ? broken.lanes[0] : broken.lanes[1]) >> lane & 15) == 0) continue;
    int const own = first + row, from = t.seen_from(own);
    if (looks && before >= from && behind < t.seen_end(own)) continue;
    query.q = q + (std::int64_t{t.begin_q} + own) * g.q_stride[2];
    float const factor =
        __shfl_sync(0xffffffff, half == 0 ? broken.factor[0] : broken.factor[1], lane);
    float sums[8];
    sum_row_again<together>(
        query, from, t.seen_end(own),
        __shfl_sync(0xffffffff, half == 0 ? broken.reference[0] : broken.reference[1], lane), key,
        value, [&](float product, int j) { return one_score(p, t, terms, product, own, j); }, sums);
    with_out_type<Config>(p, [&](auto* type) {
      using Out = std::remove_pointer_t<decltype(type)>;
      Out* const out = static_cast<Out*>(g.out) + b * g.out_stride[0] + h * g.out_stride[1] +
                       (std::int64_t{t.begin_q} + own) * g.out_stride[2];
      int const c = fresh_thread() % 32 * 8;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (c + e < g.head_dim_v)
          out[(c + e) * g.out_stride[3]] = static_cast<Out>(sums[e] * factor);
    });
  }
}

/// The same as a function, where it is needed in two places.
template <class Config>
__device__ __noinline__ void call_repair_rows(Sm90AttentionParams const& p,
                                              typename Config::Tile const& t,
                                              BrokenRows const broken) {
  repair_rows<Config>(p, t, broken);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
