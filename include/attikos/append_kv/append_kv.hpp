// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// append_kv(): new keys and values into a plain or paged cache, rotated on the way.
#pragma once

#include <algorithm>
#include <attikos/append_kv/append_kv_arguments.hpp>
#include <attikos/append_kv/append_kv_cuda.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/rows/rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept AppendKvExtra =
    is_any_wrapper<T, CacheLengths, Paged, Rotary, Queries, NewLengths, CuSeqlens>;

/// Checks, then explains (log given) or runs (log null): new keys of type X into caches of type C,
/// tables of type Table (void where there are none), queries of type Q into QOut.
template <class X, class C, class Table, class Q, class QOut, ExecutionSpace Exec>
void append_kv_run(Exec const& exec, AppendKvTensors const& t, AppendKvOptions const& options,
                   Explanation* log) {
  AppendKvPlan const p = append_kv_plan(t, options);
  auto const rotation = append_kv_rotation<Table>(t, options, p);
  using Acc = std::conditional_t<std::is_same_v<RowAccumulator<X, C>, double> ||
                                     std::is_same_v<RowAccumulator<Q, QOut>, double>,
                                 double, float>;
  using Row = AppendKvRow<Acc, X, C, std::remove_const_t<decltype(rotation)>, Q, QOut>;
  // Without queries: tensors without rows.
  TensorRef<Q const, 4> q{};
  TensorRef<QOut, 4> q_out{};
  if (t.q.given()) {
    q = ref_of<Q const, 4>(t.q);
    q_out = ref_of<QOut, 4>(t.q_out);
  }
  Row const row{ref_of<X const, 4>(t.k_new),
                ref_of<X const, 4>(t.v_new),
                ref_of<C, 4>(t.k_cache),
                ref_of<C, 4>(t.v_cache),
                p.tokens,
                p.slots,
                rotation,
                q,
                q_out,
                p.query_tokens,
                options.queries_share_position};
  using Kernels = typename Specializations<op::AppendKv, Exec, X, C>::kernels;
  auto const arguments = append_kv_arguments(row);
  bool const done = choose_kernel("append_kv", Kernels{}, options.kernel, arguments, exec, log,
                                  [&]<class Kernel>(std::type_identity<Kernel>) {
                                    if (log == nullptr) Kernel::run(arguments, exec);
                                  });
  if (done || log != nullptr) return;
  // Finding a row's place takes longer than copying it, so half a warp takes a row: 66 µs, with a
  // whole warp 103. <H200 700 W, CUDA 13.0, bfloat16, 131072 rows of keys, head_dim 128>
  launch_rows<16>(exec, "append_kv", row, row.rows());
}

/// The same for a call with the types that the user wrote.
template <ExecutionSpace Exec, TensorLike KNew, TensorLike VNew, TensorLike KCache,
          TensorLike VCache, class... Extras>
void append_kv_dispatch(Exec const& exec, KNew const& k_new, VNew const& v_new,
                        KCache const& k_cache, VCache const& v_cache,
                        AppendKvOptions const& options, Explanation* log, Extras const&... extras) {
  using X = element_t<KNew>;
  using C = element_t<KCache>;
  check_tensor<Exec, KNew>();
  check_tensor<Exec, VNew>();
  check_tensor<Exec, KCache>();
  check_tensor<Exec, VCache>();
  check_writable(k_cache);
  check_writable(v_cache);
  static_assert(rank_of<VNew> == rank_of<KNew> && rank_of<KCache> == 4 && rank_of<VCache> == 4,
                "attikos::append_kv: keys and values have one rank, and caches have rank 4");
  static_assert(std::is_same_v<X, element_t<VNew>> && std::is_same_v<C, element_t<VCache>>,
                "attikos::append_kv: keys and values have one element type, so have the caches");
  static_assert(is_floating_element<X> && is_floating_element<C>,
                "attikos::append_kv: keys, values and caches hold floating-point elements");
  AppendKvTensors t;
  t.k_new = any_tensor(k_new);
  t.v_new = any_tensor(v_new);
  t.k_cache = any_tensor(k_cache);
  t.v_cache = any_tensor(v_cache);
  append_kv_storage<Exec, rank_of<KNew>>(t, extras...);
  auto const given = find_extra<Queries>(extras...);
  auto const tables = find_extra<Rotary>(extras...);
  constexpr bool rotated = is_present<decltype(tables)>, queried = is_present<decltype(given)>;
  static_assert(!queried || rotated, "attikos::append_kv: queries(q, out) needs rotary(cos, sin)");
  if constexpr (!rotated) {
    append_kv_run<X, C, void, X, X>(exec, t, options, log);
  } else {
    using Table = element_t<decltype(tables.cos)>;
    static_assert(std::is_same_v<Table, element_t<decltype(tables.sin)>>,
                  "attikos: cos and sin hold the same element type");
    t.cos = any_table<Exec>(tables.cos);
    t.sin = any_table<Exec>(tables.sin);
    if constexpr (queried) {
      using Q = decltype(given.q);
      using QOut = decltype(given.out);
      constexpr int rank = packs_queries<Extras...> ? 3 : 4;
      check_tensor<Exec, Q>();
      check_tensor<Exec, QOut>();
      check_writable(given.out);
      static_assert(rank_of<Q> == rank && rank_of<QOut> == rank,
                    "attikos::append_kv: q is [batch, heads_q, seqlen_q, head_dim], or [heads_q, "
                    "total_q, head_dim] with cu_seqlens(q, kv)");
      t.q = any_tensor(given.q);
      t.q_out = any_tensor(given.out);
      append_kv_run<X, C, Table, element_t<Q>, element_t<QOut>>(exec, t, options, log);
    } else {
      append_kv_run<X, C, Table, X, X>(exec, t, options, log);
    }
  }
}

}  // namespace detail

/// Writes new keys and values behind those that a cache holds: position lengths_b + i of sequence b
/// becomes k_new[b, :, i, :], rotated by its position, and v_new[b, :, i, :].
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param k_new    [batch, heads_kv, seqlen_new, head_dim]; packed [heads_kv, total_new, head_dim]
/// \param v_new    likewise with head_dim_v
/// \param k_cache  [batch, heads_kv, seqlen_max, head_dim]; paged [num_pages, heads_kv, page_size,
///                 head_dim]
/// \param v_cache  likewise with head_dim_v
/// \param options  style and width of the rotation, position of queries (see AppendKvOptions)
/// \param extras   cache_lengths(view): int32 [batch], without which every sequence is empty;
///                 paged(table, page_size): int32 [batch, max_pages], the cache is paged;
///                 rotary(cos, sin): new keys are rotated as rope() does at positions lengths_b +
///                 i, features from rotary_dim on stay as they are; queries(q, out): queries are
///                 rotated with them; new_lengths(view): int32 [batch], how many of the seqlen_new
///                 positions of each sequence are new tokens, without which all are; cu_seqlens(q,
///                 kv): packed queries and new tokens, cu_seqlens(none, kv) or cu_seqlens(q, none)
///                 where one of the two is padded
///
/// Lengths, offsets and page numbers are read on the device, and validate_append_kv() checks them;
/// numbers of new tokens are clamped to [0, seqlen_new], and what lies behind them is not read.
/// Packed queries that belong to no sequence get 0; padded ones are rotated to the last. What would
/// lie outside the cache is not written: positions below 0 or past seqlen_max
/// (max_pages·page_size), pages that are not in [0, num_pages), such as the −1 of a table's unused
/// entries. Nothing else of the cache is touched. A page must not be written by two sequences at
/// once. Positions past the tables take their last row. Lengths are the caller's to advance:
/// attention over the cache wants lengths_b + seqlen_new. Caches must not overlap each other or the
/// inputs.
///
/// Types: any floating-point element for new keys and values, for caches, for tables, for q and
/// out; rotated in float, in double if keys or cache are double. Any strides, zero extents.
/// Which kernel a call goes to, and why not to the others, is what explain() tells;
/// docs/kernels.md has their conditions.
/// Determinism: run to run, and for any number of host threads. Throws ShapeError, StrideError,
/// Error, UnsupportedError (a demanded kernel) before anything is launched or written.
///
/// Source: flash_attn_with_kvcache of T. Dao's flash-attention (BSD-3-Clause), for what it means;
/// J. Su et al., "RoFormer", arXiv:2104.09864.
template <ExecutionSpace Exec, TensorLike KNew, TensorLike VNew, TensorLike KCache,
          TensorLike VCache, detail::AppendKvExtra... Extras>
void append_kv(Exec const& exec, KNew const& k_new, VNew const& v_new, KCache const& k_cache,
               VCache const& v_cache, AppendKvOptions const& options = {},
               Extras const&... extras) {
  detail::append_kv_dispatch(exec, k_new, v_new, k_cache, v_cache, options, nullptr, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike KNew, TensorLike VNew, TensorLike KCache, TensorLike VCache,
          detail::AppendKvExtra... Extras>
void append_kv(KNew const& k_new, VNew const& v_new, KCache const& k_cache, VCache const& v_cache,
               AppendKvOptions const& options = {}, Extras const&... extras) {
  append_kv(Kokkos::DefaultExecutionSpace{}, k_new, v_new, k_cache, v_cache, options, extras...);
}

/// Which kernel append_kv() would run for these arguments, and why not the others. Throws what
/// append_kv() would throw.
template <ExecutionSpace Exec, TensorLike KNew, TensorLike VNew, TensorLike KCache,
          TensorLike VCache, detail::AppendKvExtra... Extras>
Explanation explain(op::AppendKv, Exec const& exec, KNew const& k_new, VNew const& v_new,
                    KCache const& k_cache, VCache const& v_cache,
                    AppendKvOptions const& options = {}, Extras const&... extras) {
  Explanation result;
  detail::append_kv_dispatch(exec, k_new, v_new, k_cache, v_cache, options, &result, extras...);
  return result;
}

/// The same on an instance of the default execution space.
template <TensorLike KNew, TensorLike VNew, TensorLike KCache, TensorLike VCache,
          detail::AppendKvExtra... Extras>
Explanation explain(op::AppendKv tag, KNew const& k_new, VNew const& v_new, KCache const& k_cache,
                    VCache const& v_cache, AppendKvOptions const& options = {},
                    Extras const&... extras) {
  return explain(tag, Kokkos::DefaultExecutionSpace{}, k_new, v_new, k_cache, v_cache, options,
                 extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
