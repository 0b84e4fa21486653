// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The checks that turn the tensors of an append_kv call into what its kernel takes.
#pragma once

#include <algorithm>
#include <attikos/abi/append_kv.hpp>
#include <attikos/attention/append_kv_options.hpp>
#include <attikos/attention/append_kv_portable.hpp>
#include <attikos/attention/attention_term_arguments.hpp>
#include <attikos/core/lengths.hpp>
#include <attikos/core/row_checks.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// An extent of 1 in front, for packed tensors.
template <class T, int Rank>
TensorRef<T, 4> with_batch(TensorRef<T, Rank> const& x) {
  if constexpr (Rank == 4) {
    return x;
  } else {
    return {x.data,
            {1, x.extent[0], x.extent[1], x.extent[2]},
            {0, x.stride[0], x.stride[1], x.stride[2]}};
  }
}

/// Offsets of the new tokens (Kv) or of the queries of a call; none where they are padded.
template <bool Kv, class... Extras>
auto token_offsets(Extras const&... extras) {
  auto const given = find_extra<CuSeqlens>(extras...);
  if constexpr (!is_present<decltype(given)>) {
    return Absent{};
  } else if constexpr (Kv) {
    return given.kv;
  } else {
    return given.q;
  }
}

/// How new tokens lie in k_new, which is [batch, heads_kv, seqlen_new, head_dim] or packed.
template <ExecutionSpace Exec, class X, int Rank, class... Extras>
TokenLayout append_kv_tokens(TensorRef<X, Rank> const& k, Extras const&... extras) {
  TokenLayout tokens{};
  auto const offsets = token_offsets<true>(extras...);
  auto const counts = find_extra<NewLengths>(extras...);
  constexpr bool packed = is_present<decltype(offsets)>;
  static_assert(packed ? Rank == 3 : Rank == 4,
                "attikos::append_kv: k_new and v_new have rank 4 [batch, heads_kv, seqlen_new, "
                "head_dim], or rank 3 [heads_kv, total_new, head_dim] with cu_seqlens(q, kv)");
  static_assert(!(packed && is_present<decltype(counts)>),
                "attikos::append_kv: packed k_new has its lengths in cu_seqlens");
  if constexpr (packed) {
    tokens.offsets = offsets_ref<Exec>("append_kv", "cu_seqlens of kv", offsets);
    tokens.batch = extent_of(offsets, 0) - 1;
  } else {
    tokens.batch = k.extent[0];
    if constexpr (is_present<decltype(counts)>) {
      auto const ref = lengths_ref<Exec>("append_kv", "new_lengths", counts.view, k.extent[0],
                                         "sequence of the batch");
      tokens.lengths = ref.data;
      tokens.lengths_stride = ref.stride[0];
    }
  }
  return tokens;
}

/// The tables for new keys (and queries), which stand at the cache's lengths.
template <ExecutionSpace Exec, class Given, class CacheLengths_>
auto append_kv_rotation(Given const& given, CacheLengths_ const& lengths,
                        AppendKvOptions const& options, std::int64_t batch, std::int64_t seqlen,
                        std::int64_t head_dim) {
  if constexpr (is_present<Given>) {
    auto const rotation = [&] {
      if constexpr (is_present<CacheLengths_>) {
        return make_rotation<Exec>("append_kv", given.cos, given.sin, options.style,
                                   options.rotary_dim, 0, batch, seqlen, false,
                                   positions(lengths.view));
      } else {
        return make_rotation<Exec>("append_kv", given.cos, given.sin, options.style,
                                   options.rotary_dim, 0, batch, seqlen, false);
      }
    }();
    if (rotation.dim() > head_dim)
      raise<ShapeError>("append_kv: rotary_dim is ", rotation.dim(), "; expected at most ",
                        head_dim, ", the head_dim of k_new");
    return rotation;
  } else {
    return Absent{};
  }
}

/// Checks the caches against what goes into them, `batch` sequences; returns where it goes.
template <ExecutionSpace Exec, class X, int Rank, class C, class... Extras>
CacheSlots append_kv_slots(TensorRef<X, Rank> const& given_k, TensorRef<X, Rank> const& given_v,
                           TensorRef<C, 4> const& k_cache, TensorRef<C, 4> const& v_cache,
                           std::int64_t batch, Extras const&... extras) {
  auto const k = with_batch(given_k), v = with_batch(given_v);
  auto const shapes = [&] {
    return " k_new is " + describe(given_k) + ", v_new is " + describe(given_v) + ", k_cache is " +
           describe(k_cache) + ", v_cache is " + describe(v_cache) + ".";
  };
  auto const expect = [&](char const* name, char const* what, std::int64_t got, std::int64_t wanted,
                          char const* like) {
    if (got != wanted)
      raise<ShapeError>("append_kv: ", name, " has ", what, " ", got, "; expected ", wanted,
                        " as in ", like, ".", shapes());
  };
  auto const given = find_extra<Paged>(extras...);
  constexpr bool paged_cache = is_present<decltype(given)>;
  expect("v_new", "batch", v.extent[0], k.extent[0], "k_new");
  expect("v_new", "heads", v.extent[1], k.extent[1], "k_new");
  expect("v_new", Rank == 3 ? "total" : "seqlen", v.extent[2], k.extent[2], "k_new");
  if (!paged_cache)
    expect("k_cache", "batch", k_cache.extent[0], batch, Rank == 3 ? "cu_seqlens" : "k_new");
  expect("k_cache", "heads", k_cache.extent[1], k.extent[1], "k_new");
  expect("k_cache", "head_dim", k_cache.extent[3], k.extent[3], "k_new");
  expect("v_cache", paged_cache ? "number of pages" : "batch", v_cache.extent[0], k_cache.extent[0],
         "k_cache");
  expect("v_cache", "heads", v_cache.extent[1], k_cache.extent[1], "k_cache");
  expect("v_cache", paged_cache ? "page size" : "seqlen", v_cache.extent[2], k_cache.extent[2],
         "k_cache");
  expect("v_cache", "head_dim", v_cache.extent[3], v.extent[3], "v_new");

  CacheSlots slots{};
  slots.capacity = k_cache.extent[2];
  slots.num_pages = k_cache.extent[0];
  if constexpr (paged_cache) {
    slots.table = page_table_ref<Exec>("append_kv", given, batch, "k_cache", k_cache.extent[0],
                                       k_cache.extent[2]);
    slots.page_size = given.page_size;
    // An empty table may have no address; its capacity must not pass for that of a plain cache.
    slots.capacity = slots.table.extent[1] * given.page_size;
  }
  auto const lengths = find_extra<CacheLengths>(extras...);
  if constexpr (is_present<decltype(lengths)>) {
    auto const ref = lengths_ref<Exec>("append_kv", "cache_lengths", lengths.view, batch,
                                       "sequence of the batch");
    slots.lengths = ref.data;
    slots.lengths_stride = ref.stride[0];
  }
  return slots;
}

/// Queries as kernels see them; without any, tensors of no rows.
template <class Q, class QOut>
struct QueryRefs {
  TensorRef<Q const, 4> q{};
  TensorRef<QOut, 4> out{};
  TokenLayout tokens{};
};

template <ExecutionSpace Exec, class Given, class X, int Rank, class... Extras>
auto append_kv_queries(Given const& given, TensorRef<X const, Rank> const& k, std::int64_t batch,
                       Extras const&... extras) {
  if constexpr (is_present<Given>) {
    constexpr int rank = rank_of<decltype(given.q)>;
    auto const offsets = token_offsets<false>(extras...);
    constexpr bool packed = is_present<decltype(offsets)>;
    check_tensor<Exec, decltype(given.q)>();
    check_output<Exec>("append_kv", "out of queries", given.out);
    check_extents("append_kv", "q", given.q);
    check_extents("append_kv", "out of queries", given.out);
    static_assert(rank == (packed ? 3 : 4) && rank_of<decltype(given.out)> == rank,
                  "attikos::append_kv: q is [batch, heads_q, seqlen_q, head_dim], or [heads_q, "
                  "total_q, head_dim] with cu_seqlens(q, kv)");
    auto const rq = to_const_ref(given.q);
    auto const ro = to_ref(given.out);
    check_extents_like("append_kv", "out of queries", ro, "q", rq);
    QueryRefs<element_t<decltype(given.q)>, element_t<decltype(given.out)>> refs{
        with_batch(rq), with_batch(ro), {}};
    refs.tokens.batch = batch;
    if ((!packed && refs.q.extent[0] != batch) || refs.q.extent[3] != k.extent[Rank - 1])
      raise<ShapeError>("append_kv: q is ", describe(rq),
                        "; expected batch and head_dim as in k_new, which is ", describe(k));
    if constexpr (packed) {
      refs.tokens.offsets = offsets_ref<Exec>("append_kv", "cu_seqlens of q", offsets);
      if (extent_of(offsets, 0) != batch + 1)
        raise<ShapeError>("append_kv: cu_seqlens of q has ", extent_of(offsets, 0),
                          " entries; expected ", batch + 1, ", one more than there are sequences");
    }
    return refs;
  } else {
    return QueryRefs<X, X>{};
  }
}

/// The call as a compiled kernel takes it.
template <class Acc, class X, class C, class Rotary_, class Q, class QOut>
abi::AppendKvArgs append_kv_arguments(AppendKvRow<Acc, X, C, Rotary_, Q, QOut> const& row) {
  abi::AppendKvArgs g;
  g.k_new = row.k.data, g.v_new = row.v.data;
  g.k_cache = row.k_cache.data, g.v_cache = row.v_cache.data;
  g.type_new = dtype_of<X>, g.type_cache = dtype_of<C>;
  g.batch = row.tokens.batch;
  g.heads = row.k.extent[1], g.seqlen_new = row.k.extent[2];
  g.head_dim = row.k.extent[3], g.head_dim_v = row.v.extent[3];
  auto const take = [](auto const& from, auto& to) {
    std::copy(std::begin(from), std::end(from), std::begin(to));
  };
  take(row.k.stride, g.k_new_stride), take(row.v.stride, g.v_new_stride);
  take(row.k_cache.stride, g.k_cache_stride), take(row.v_cache.stride, g.v_cache_stride);
  g.cu_seqlens_new = row.tokens.offsets;
  g.new_lengths = row.tokens.lengths, g.new_lengths_stride = row.tokens.lengths_stride;
  CacheSlots const& slots = row.slots;
  g.capacity = slots.capacity;
  g.cache_lengths = slots.lengths, g.cache_lengths_stride = slots.lengths_stride;
  g.page_table = slots.table.data, g.page_size = slots.page_size, g.num_pages = slots.num_pages;
  take(slots.table.stride, g.page_table_stride);
  if constexpr (is_present<Rotary_>) {
    auto const& rotation = row.rotation;
    using Table = std::remove_const_t<std::remove_pointer_t<decltype(rotation.cos.data)>>;
    g.cos = rotation.cos.data, g.sin = rotation.sin.data, g.type_table = dtype_of<Table>;
    g.table_rows = rotation.cos.extent[0], g.rotary_dim = rotation.dim();
    take(rotation.cos.stride, g.cos_stride), take(rotation.sin.stride, g.sin_stride);
    g.interleaved = rotation.interleaved, g.half_width = rotation.half_width;
  }
  g.q = row.q.data, g.q_out = row.q_out.data;
  g.type_q = dtype_of<Q>, g.type_q_out = dtype_of<QOut>;
  g.heads_q = row.q.extent[1], g.seqlen_q = row.q.extent[2];
  take(row.q.stride, g.q_stride), take(row.q_out.stride, g.q_out_stride);
  g.cu_seqlens_q = row.query_tokens.offsets;
  g.queries_share_position = row.queries_share_position;
  return g;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
