// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The checks that turn the tensors of an append_kv call into what its kernel takes.
#pragma once

#include <algorithm>
#include <attikos/abi/append_kv.hpp>
#include <attikos/append_kv/append_kv_options.hpp>
#include <attikos/append_kv/append_kv_portable.hpp>
#include <attikos/attention/attention_term_arguments.hpp>
#include <attikos/core/lengths.hpp>
#include <attikos/core/rows/checks.hpp>
#include <attikos/norm/rotation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What a call of append_kv() was given. Absent is what was not.
struct AppendKvTensors {
  AnyTensor k_new, v_new, k_cache, v_cache;
  AnyTensor cache_lengths, new_lengths, page_table;
  std::int64_t page_size = 0;
  AnyTensor cu_q, cu_kv;
  AnyTensor cos, sin, q, q_out;

  bool packed() const { return cu_kv.given(); }
  bool paged() const { return page_table.given(); }
  /// What messages show of the tensors.
  std::string shapes() const {
    return " k_new is " + describe(k_new) + ", v_new is " + describe(v_new) + ", k_cache is " +
           describe(k_cache) + ", v_cache is " + describe(v_cache) + ".";
  }
};

/// How new tokens lie in k_new, which is [batch, heads_kv, seqlen_new, head_dim] or packed.
inline TokenLayout append_kv_tokens(AppendKvTensors const& t) {
  TokenLayout tokens{};
  if (t.packed()) {
    tokens.offsets = offsets_ref("append_kv", "cu_seqlens of kv", t.cu_kv);
    tokens.batch = t.cu_kv.extent[0] - 1;
    return tokens;
  }
  tokens.batch = t.k_new.extent[0];
  if (t.new_lengths.given()) {
    auto const ref = lengths_ref("append_kv", "new_lengths", t.new_lengths, t.k_new.extent[0],
                                 "sequence of the batch");
    tokens.lengths = ref.data;
    tokens.lengths_stride = ref.stride[0];
  }
  return tokens;
}

/// Checks the caches against what goes into them, `batch` sequences; returns where it goes.
inline CacheSlots append_kv_slots(AppendKvTensors const& t, std::int64_t batch) {
  AnyTensor const k = t.k_new.with_rank(4), v = t.v_new.with_rank(4);
  AnyTensor const &k_cache = t.k_cache, &v_cache = t.v_cache;
  auto const expect = [&](char const* name, char const* what, std::int64_t got, std::int64_t wanted,
                          char const* like) {
    if (got != wanted)
      raise<ShapeError>("append_kv: ", name, " has ", what, " ", got, "; expected ", wanted,
                        " as in ", like, ".", t.shapes());
  };
  expect("v_new", "batch", v.extent[0], k.extent[0], "k_new");
  expect("v_new", "heads", v.extent[1], k.extent[1], "k_new");
  expect("v_new", t.packed() ? "total" : "seqlen", v.extent[2], k.extent[2], "k_new");
  if (!t.paged())
    expect("k_cache", "batch", k_cache.extent[0], batch, t.packed() ? "cu_seqlens" : "k_new");
  expect("k_cache", "heads", k_cache.extent[1], k.extent[1], "k_new");
  expect("k_cache", "head_dim", k_cache.extent[3], k.extent[3], "k_new");
  expect("v_cache", t.paged() ? "number of pages" : "batch", v_cache.extent[0], k_cache.extent[0],
         "k_cache");
  expect("v_cache", "heads", v_cache.extent[1], k_cache.extent[1], "k_cache");
  expect("v_cache", t.paged() ? "page size" : "seqlen", v_cache.extent[2], k_cache.extent[2],
         "k_cache");
  expect("v_cache", "head_dim", v_cache.extent[3], v.extent[3], "v_new");

  CacheSlots slots{};
  slots.capacity = k_cache.extent[2];
  slots.num_pages = k_cache.extent[0];
  if (t.paged()) {
    slots.table = page_table_ref("append_kv", t.page_table, t.page_size, batch, "k_cache",
                                 k_cache.extent[0], k_cache.extent[2]);
    slots.page_size = t.page_size;
    // Set here since an empty table may have a null address, like a cache that has no pages.
    slots.capacity = slots.table.extent[1] * t.page_size;
  }
  if (t.cache_lengths.given()) {
    auto const ref =
        lengths_ref("append_kv", "cache_lengths", t.cache_lengths, batch, "sequence of the batch");
    slots.lengths = ref.data;
    slots.lengths_stride = ref.stride[0];
  }
  return slots;
}

/// Checks queries, and finds out how they lie. Without queries there are no tokens.
inline TokenLayout append_kv_query_tokens(AppendKvTensors const& t, std::int64_t batch) {
  TokenLayout tokens{};
  if (!t.q.given()) return tokens;
  check_extents("append_kv", "q", t.q);
  check_extents("append_kv", "out of queries", t.q_out);
  check_extents_like("append_kv", "out of queries", t.q_out, "q", t.q);
  tokens.batch = batch;
  AnyTensor const q = t.q.with_rank(4);
  if ((!t.cu_q.given() && q.extent[0] != batch) || q.extent[3] != t.k_new.extent[t.k_new.rank - 1])
    raise<ShapeError>("append_kv: q is ", describe(t.q),
                      "; expected batch and head_dim as in k_new, which is ", describe(t.k_new));
  if (t.cu_q.given()) {
    tokens.offsets = offsets_ref("append_kv", "cu_seqlens of q", t.cu_q);
    if (t.cu_q.extent[0] != batch + 1)
      raise<ShapeError>("append_kv: cu_seqlens of q has ", t.cu_q.extent[0], " entries; expected ",
                        batch + 1, ", one more than there are sequences");
  }
  return tokens;
}

/// A call after the checks that need no element type.
struct AppendKvPlan {
  TokenLayout tokens, query_tokens;
  CacheSlots slots;
  std::int64_t seqlen;  ///< how far the tables must reach as far as the host can tell
};

inline AppendKvPlan append_kv_plan(AppendKvTensors const& t, AppendKvOptions const& options) {
  check_extents("append_kv", "k_new", t.k_new);
  check_extents("append_kv", "v_new", t.v_new);
  check_extents("append_kv", "k_cache", t.k_cache);
  check_extents("append_kv", "v_cache", t.v_cache);
  AppendKvPlan p{};
  p.tokens = append_kv_tokens(t);
  p.slots = append_kv_slots(t, p.tokens.batch);
  p.query_tokens = append_kv_query_tokens(t, p.tokens.batch);
  // That is one token where sequences are packed.
  auto const reach = [](AnyTensor const& x, bool one) {
    std::int64_t const seqlen = x.with_rank(4).extent[2];
    return one ? std::min<std::int64_t>(seqlen, 1) : seqlen;
  };
  p.seqlen = reach(t.k_new, t.packed());
  if (t.q.given())
    p.seqlen = std::max(p.seqlen, reach(t.q, options.queries_share_position || t.cu_q.given()));
  check_outputs("append_kv",
                {{"k_cache", t.k_cache}, {"v_cache", t.v_cache}, {"out of queries", t.q_out}},
                {{"k_new", t.k_new},
                 {"v_new", t.v_new},
                 {"q", t.q, 2},
                 {"cos", t.cos},
                 {"sin", t.sin},
                 {"cache_lengths", t.cache_lengths},
                 {"new_lengths", t.new_lengths},
                 {"page table", t.page_table},
                 {"cu_seqlens of q", t.cu_q},
                 {"cu_seqlens of kv", t.cu_kv}});
  return p;
}

/// The rotation of new keys and queries, which stand at the cache's lengths; Absent for Table void.
template <class Table>
auto append_kv_rotation(AppendKvTensors const& t, AppendKvOptions const& options,
                        AppendKvPlan const& p) {
  if constexpr (std::is_void_v<Table>) {
    return Absent{};
  } else {
    RotationArguments const given{t.cos, t.sin, t.cache_lengths, options.style, options.rotary_dim,
                                  0,     false};
    auto const rotation = make_rotation<Table>("append_kv", given, p.tokens.batch, p.seqlen);
    std::int64_t const head_dim = t.k_new.extent[t.k_new.rank - 1];
    if (rotation.dim() > head_dim)
      raise<ShapeError>("append_kv: rotary_dim is ", rotation.dim(), "; expected at most ",
                        head_dim, ", the head_dim of k_new");
    return rotation;
  }
}

template <class Cu>
constexpr bool packs(bool keys) {
  if constexpr (is_present<Cu>) {
    return keys ? is_present<decltype(Cu::kv)> : is_present<decltype(Cu::q)>;
  } else {
    return false;
  }
}
/// Whether new keys, or queries, of a call are packed.
template <class... Extras>
inline constexpr bool packs_keys =
    packs<decltype(find_extra<CuSeqlens>(std::declval<Extras const&>()...))>(true);
template <class... Extras>
inline constexpr bool packs_queries =
    packs<decltype(find_extra<CuSeqlens>(std::declval<Extras const&>()...))>(false);

/// Where the sequences of a call lie, without static types, which are checked here.
template <ExecutionSpace Exec, int Rank, class... Extras>
void append_kv_storage(AppendKvTensors& t, Extras const&... extras) {
  auto const cu = find_extra<CuSeqlens>(extras...);
  auto const fresh = find_extra<NewLengths>(extras...);
  auto const used = find_extra<CacheLengths>(extras...);
  auto const pages = find_extra<Paged>(extras...);
  if constexpr (is_present<decltype(cu)>) {
    t.cu_q = any_offsets<Exec>(cu.q);
    t.cu_kv = any_offsets<Exec>(cu.kv);
  }
  constexpr bool packed = packs_keys<Extras...>;
  static_assert(packed ? Rank == 3 : Rank == 4,
                "attikos::append_kv: k_new and v_new have rank 4 [batch, heads_kv, seqlen_new, "
                "head_dim], or rank 3 [heads_kv, total_new, head_dim] with cu_seqlens(q, kv)");
  static_assert(!(packed && is_present<decltype(fresh)>),
                "attikos::append_kv: packed k_new has its lengths in cu_seqlens");
  if constexpr (is_present<decltype(fresh)>) t.new_lengths = any_lengths<Exec>(fresh.view);
  if constexpr (is_present<decltype(used)>) t.cache_lengths = any_lengths<Exec>(used.view);
  if constexpr (is_present<decltype(pages)>) {
    t.page_table = any_page_table<Exec>(pages.table);
    t.page_size = pages.page_size;
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
  auto& to = g;
  auto const& from = row;
  ATTIKOS_OPTION_QUERIES_SHARE_POSITION(ATTIKOS_CXX_OPTION_COPY)
  return g;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
