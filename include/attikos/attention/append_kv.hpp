// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// append_kv(): new keys and values into a plain or paged cache, rotated on the way.
#pragma once

#include <algorithm>
#include <attikos/attention/append_kv_arguments.hpp>
#include <attikos/attention/append_kv_cuda.hpp>
#include <attikos/core/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept AppendKvExtra =
    is_any_wrapper<T, CacheLengths, Paged, Rotary, Queries, NewLengths, CuSeqlens>;

/// Checks, then explains (log given) or runs (log null).
template <ExecutionSpace Exec, TensorLike KNew, TensorLike VNew, TensorLike KCache,
          TensorLike VCache, class... Extras>
void append_kv_dispatch(Exec const& exec, KNew const& k_new, VNew const& v_new,
                        KCache const& k_cache, VCache const& v_cache,
                        AppendKvOptions const& options, Explanation* log, Extras const&... extras) {
  using X = element_t<KNew>;
  using C = element_t<KCache>;
  check_tensor<Exec, KNew>();
  check_tensor<Exec, VNew>();
  check_output<Exec>("append_kv", "k_cache", k_cache);
  check_output<Exec>("append_kv", "v_cache", v_cache);
  static_assert(rank_of<VNew> == rank_of<KNew> && rank_of<KCache> == 4 && rank_of<VCache> == 4,
                "attikos::append_kv: keys and values have one rank, and caches have rank 4");
  static_assert(std::is_same_v<X, element_t<VNew>> && std::is_same_v<C, element_t<VCache>>,
                "attikos::append_kv: keys and values have one element type, so have the caches");
  static_assert(is_floating_element<X> && is_floating_element<C>,
                "attikos::append_kv: keys, values and caches hold floating-point elements");
  check_extents("append_kv", "k_new", k_new);
  check_extents("append_kv", "v_new", v_new);
  check_extents("append_kv", "k_cache", k_cache);
  check_extents("append_kv", "v_cache", v_cache);
  auto const rk = to_const_ref(k_new);
  auto const rv = to_const_ref(v_new);
  auto const ck = to_ref(k_cache);
  auto const cv = to_ref(v_cache);
  auto const tokens = append_kv_tokens<Exec>(rk, extras...);
  auto const slots = append_kv_slots<Exec>(rk, rv, ck, cv, tokens.batch, extras...);
  auto const given = find_extra<Queries>(extras...);
  auto const tables = find_extra<Rotary>(extras...);
  static_assert(!is_present<decltype(given)> || is_present<decltype(tables)>,
                "attikos::append_kv: queries(q, out) needs rotary(cos, sin)");
  auto const query = append_kv_queries<Exec>(given, rk, tokens.batch, extras...);
  auto const k4 = with_batch(rk);
  // Tables must reach as far as the host can tell, which is one token where sequences are packed.
  auto const reach = [](std::int64_t seqlen, bool one) {
    return one ? std::min<std::int64_t>(seqlen, 1) : seqlen;
  };
  std::int64_t const seqlen =
      std::max(reach(k4.extent[2], tokens.offsets.data != nullptr),
               reach(query.q.extent[2],
                     options.queries_share_position || query.tokens.offsets.data != nullptr));
  auto const rotation = append_kv_rotation<Exec>(tables, find_extra<CacheLengths>(extras...),
                                                 options, tokens.batch, seqlen, k4.extent[3]);
  using Q = std::remove_const_t<std::remove_pointer_t<decltype(query.q.data)>>;
  using QOut = std::remove_pointer_t<decltype(query.out.data)>;
  using Acc = std::conditional_t<std::is_same_v<RowAccumulator<X, C>, double> ||
                                     std::is_same_v<RowAccumulator<Q, QOut>, double>,
                                 double, float>;
  using Row = AppendKvRow<Acc, X, C, std::remove_const_t<decltype(rotation)>, Q, QOut>;
  Row const row{k4,
                with_batch(rv),
                ck,
                cv,
                tokens,
                slots,
                rotation,
                query.q,
                query.out,
                query.tokens,
                options.queries_share_position};
  using Kernels = typename Specializations<op::AppendKv, Exec, X, C>::kernels;
  auto const arguments = append_kv_arguments(row);
  bool const done = choose_kernel("append_kv", Kernels{}, options.kernel, arguments, exec, log,
                                  [&]<class Kernel>(std::type_identity<Kernel>) {
                                    if (log == nullptr) Kernel::run(arguments, exec);
                                  });
  if (done || log != nullptr) return;
  // To find a row's place takes longer than to copy it, so that half a warp has one: 66 µs, 103
  // with 32 lanes. From <H200 700 W, CUDA 13.0, bfloat16, 131072 rows of keys, head_dim 128>.
  launch_rows<16>(exec, "append_kv", row, row.rows());
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
/// attention over the cache wants lengths_b + seqlen_new. Caches must not overlap the inputs.
///
/// Types: any floating-point element for new keys and values, for caches, for tables, for q and
/// out; rotated in float, in double if keys or cache are double. Any strides, zero extents.
/// On CUDA devices from compute capability 8.0 on, `append_kv/sm80_simt` takes new keys
/// and queries of one type, caches of that type, beside float32 also of 16 and 8 bits, beside 16
/// bits also of 8, and tables of 16 bits or more.
/// Determinism: run to run, and for any number of host threads. Throws ShapeError, StrideError,
/// UnsupportedError (a demanded kernel) before anything is launched or written.
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
