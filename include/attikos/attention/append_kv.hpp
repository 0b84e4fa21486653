// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// append_kv(): new keys and values into a plain or paged cache, rotated on the way.
#pragma once

#include <algorithm>
#include <attikos/attention/append_kv_options.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/lengths.hpp>
#include <attikos/core/row_checks.hpp>
#include <attikos/core/rows.hpp>
#include <attikos/norm/rope.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept AppendKvExtra = is_any_wrapper<T, CacheLengths, Paged, Rotary, Queries>;

/// Where new positions go.
struct CacheSlots {
  std::int32_t const* lengths;  ///< null: every sequence is empty
  std::int64_t lengths_stride;
  TensorRef<std::int32_t const, 2> table;  ///< data null: the cache is not paged
  std::int64_t page_size;
  std::int64_t num_pages, capacity;  ///< capacity: positions of one sequence

  KOKKOS_INLINE_FUNCTION std::int64_t position(std::int64_t b, std::int64_t i) const {
    return (lengths == nullptr ? 0 : lengths[b * lengths_stride]) + i;
  }

  /// Address of new position i in one head of a cache; null where there is no room for it.
  template <class C>
  KOKKOS_INLINE_FUNCTION C* find(TensorRef<C, 4> const& cache, std::int64_t b, std::int64_t h,
                                 std::int64_t i) const {
    std::int64_t const p = position(b, i);
    if (p < 0 || p >= capacity) return nullptr;
    if (table.data == nullptr) return cache.ptr(b, h, p, 0);
    std::int64_t const page = table(b, p / page_size);
    return page < 0 || page >= num_pages ? nullptr : cache.ptr(page, h, p % page_size, 0);
  }
};

/// One stretch of features in memory and where it goes.
template <class X, class Out>
struct Transfer {
  X const* from;
  std::int64_t from_stride;
  Out* to;
  std::int64_t to_stride, size;

  /// Features [first, size) as they are.
  template <class Acc>
  void host_copy(std::int64_t first) const {
    host::for_each_vector<Acc>(from + first * from_stride, from_stride, size - first, Acc(0),
                               [&](std::int64_t j, host::Vec<Acc> v, int count) {
                                 host::put<Acc>(to + (first + j) * to_stride, to_stride, count, v);
                               });
  }
  template <class Acc, class Team>
  KOKKOS_INLINE_FUNCTION void device_copy(Team const& team, std::int64_t first) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, first, size), [&](std::int64_t j) {
      to[j * to_stride] = static_cast<Out>(static_cast<Acc>(from[j * from_stride]));
    });
  }

  /// The first features rotated by row `row` of the tables, the others as they are.
  template <class Acc, class Table>
  void host_rotate(Rotation<Table> const& rotation, std::int64_t row) const {
    rotation.template host_head<Acc>(
        row,
        [&](std::int64_t j, int count) {
          return host::load_row<Acc>(from + j * from_stride, from_stride, count);
        },
        [&](std::int64_t j, host::Vec<Acc> v, int count) {
          host::put<Acc>(to + j * to_stride, to_stride, count, v);
        });
    host_copy<Acc>(rotation.dim());
  }
  template <class Acc, class Team, class Table>
  KOKKOS_INLINE_FUNCTION void device_rotate(Team const& team, Rotation<Table> const& rotation,
                                            std::int64_t row) const {
    auto const load = [&](std::int64_t j) { return static_cast<Acc>(from[j * from_stride]); };
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, rotation.dim() / 2), [&](std::int64_t i) {
      auto const pair = rotation.template pair<Acc>(row, i, load);
      to[pair.first * to_stride] = static_cast<Out>(pair.a);
      to[pair.second * to_stride] = static_cast<Out>(pair.b);
    });
    device_copy<Acc>(team, rotation.dim());
  }
};

/// Rows are the heads of new keys, then those of new values, then those of queries. `Rotary_` is a
/// Rotation or Absent.
template <class Acc, class X, class C, class Rotary_, class Q, class QOut>
struct AppendKvRow {
  TensorRef<X const, 4> k, v;
  TensorRef<C, 4> k_cache, v_cache;
  CacheSlots slots;
  Rotary_ rotation;
  TensorRef<Q const, 4> q;  ///< no rows where there are no queries
  TensorRef<QOut, 4> q_out;
  bool queries_share_position;

  struct Token {
    std::int64_t b, h, i;
  };
  template <class T>
  KOKKOS_INLINE_FUNCTION static Token token(TensorRef<T, 4> const& x, std::int64_t index) {
    std::int64_t const bh = index / x.extent[2];
    return {bh / x.extent[1], bh % x.extent[1], index % x.extent[2]};
  }
  std::int64_t rows() const { return cache_rows() + q.extent[0] * q.extent[1] * q.extent[2]; }

  /// What row `index` of this operation is about.
  template <class From, class To>
  struct Job {
    Transfer<From, To> transfer;  ///< `to` null: nothing to do
    std::int64_t table_row;       ///< −1: not rotated
  };
  KOKKOS_INLINE_FUNCTION std::int64_t cache_rows() const {
    return 2 * k.extent[0] * k.extent[1] * k.extent[2];
  }

  KOKKOS_INLINE_FUNCTION Job<X, C> cache_job(std::int64_t index) const {
    std::int64_t const count = cache_rows() / 2;
    bool const key = index < count;
    auto const& from = key ? k : v;
    auto const& cache = key ? k_cache : v_cache;
    Token const t = token(from, key ? index : index - count);
    Job<X, C> job{{from.ptr(t.b, t.h, t.i, 0), from.stride[3], slots.find(cache, t.b, t.h, t.i),
                   cache.stride[3], from.extent[3]},
                  -1};
    if constexpr (is_present<Rotary_>) {
      if (key) job.table_row = rotation.row(t.b, t.i);
    }
    return job;
  }

  KOKKOS_INLINE_FUNCTION Job<Q, QOut> query_job(std::int64_t index) const {
    Token const t = token(q, index);
    return {{q.ptr(t.b, t.h, t.i, 0), q.stride[3], q_out.ptr(t.b, t.h, t.i, 0), q_out.stride[3],
             q.extent[3]},
            rotation.row(t.b, queries_share_position ? 0 : t.i)};
  }

  template <class From, class To>
  void host_run(Job<From, To> const& job) const {
    if (job.transfer.to == nullptr) return;
    if constexpr (is_present<Rotary_>) {
      if (job.table_row >= 0) {
        job.transfer.template host_rotate<Acc>(rotation, job.table_row);
        return;
      }
    }
    job.transfer.template host_copy<Acc>(0);
  }
  void host_row(std::int64_t index) const {
    if (index < cache_rows()) {
      host_run(cache_job(index));
    } else if constexpr (is_present<Rotary_>) {
      host_run(query_job(index - cache_rows()));
    }
  }

  template <class Team, class From, class To>
  KOKKOS_INLINE_FUNCTION void device_run(Team const& team, Job<From, To> const& job) const {
    if (job.transfer.to == nullptr) return;
    if constexpr (is_present<Rotary_>) {
      if (job.table_row >= 0) {
        job.transfer.template device_rotate<Acc>(team, rotation, job.table_row);
        return;
      }
    }
    job.transfer.template device_copy<Acc>(team, 0);
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    if (index < cache_rows()) {
      device_run(team, cache_job(index));
    } else if constexpr (is_present<Rotary_>) {
      device_run(team, query_job(index - cache_rows()));
    }
  }
};

/// The tables for new keys (and queries), which stand at the cache's lengths.
template <ExecutionSpace Exec, class Given, class CacheLengths_>
auto append_kv_rotation(Given const& given, CacheLengths_ const& lengths, RopeStyle style,
                        std::int64_t batch, std::int64_t seqlen, std::int64_t head_dim) {
  if constexpr (is_present<Given>) {
    auto const rotation = [&] {
      if constexpr (is_present<CacheLengths_>) {
        return make_rotation<Exec>("append_kv", given.cos, given.sin, style, 0, batch, seqlen,
                                   false, positions(lengths.view));
      } else {
        return make_rotation<Exec>("append_kv", given.cos, given.sin, style, 0, batch, seqlen,
                                   false);
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

/// Checks the caches against what goes into them; returns where it goes.
template <ExecutionSpace Exec, class X, class C, class... Extras>
CacheSlots append_kv_slots(TensorRef<X, 4> const& k, TensorRef<X, 4> const& v,
                           TensorRef<C, 4> const& k_cache, TensorRef<C, 4> const& v_cache,
                           Extras const&... extras) {
  auto const shapes = [&] {
    return " k_new is " + describe(k) + ", v_new is " + describe(v) + ", k_cache is " +
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
  expect("v_new", "seqlen", v.extent[2], k.extent[2], "k_new");
  if (!paged_cache) expect("k_cache", "batch", k_cache.extent[0], k.extent[0], "k_new");
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
    slots.table = page_table_ref<Exec>("append_kv", given, k.extent[0], "k_cache",
                                       k_cache.extent[0], k_cache.extent[2]);
    slots.page_size = given.page_size;
    // An empty table may have no address; its capacity must not pass for that of a plain cache.
    slots.capacity = slots.table.extent[1] * given.page_size;
  }
  auto const lengths = find_extra<CacheLengths>(extras...);
  if constexpr (is_present<decltype(lengths)>) {
    auto const ref = lengths_ref<Exec>("append_kv", "cache_lengths", lengths.view, k.extent[0],
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
};

template <ExecutionSpace Exec, class Given, class X>
auto append_kv_queries(Given const& given, TensorRef<X const, 4> const& k) {
  if constexpr (is_present<Given>) {
    check_tensor<Exec, decltype(given.q)>();
    check_output<Exec>("append_kv", "out of queries", given.out);
    check_extents("append_kv", "q", given.q);
    check_extents("append_kv", "out of queries", given.out);
    static_assert(rank_of<decltype(given.q)> == 4 && rank_of<decltype(given.out)> == 4,
                  "attikos::append_kv: q is [batch, heads_q, seqlen_q, head_dim]");
    QueryRefs<element_t<decltype(given.q)>, element_t<decltype(given.out)>> const refs{
        to_const_ref(given.q), to_ref(given.out)};
    check_extents_like("append_kv", "out of queries", refs.out, "q", refs.q);
    if (refs.q.extent[0] != k.extent[0] || refs.q.extent[3] != k.extent[3])
      raise<ShapeError>("append_kv: q is ", describe(refs.q),
                        "; expected batch and head_dim as in k_new, which is ", describe(k));
    return refs;
  } else {
    return QueryRefs<X, X>{};
  }
}

}  // namespace detail

/// Writes new keys and values behind those that a cache holds: position lengths_b + i of sequence b
/// becomes k_new[b, :, i, :], rotated by its position, and v_new[b, :, i, :].
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param k_new    [batch, heads_kv, seqlen_new, head_dim]
/// \param v_new    [batch, heads_kv, seqlen_new, head_dim_v]
/// \param k_cache  [batch, heads_kv, seqlen_max, head_dim]; paged [num_pages, heads_kv, page_size,
///                 head_dim]
/// \param v_cache  likewise with head_dim_v
/// \param options  style of the rotation, position of queries (see AppendKvOptions)
/// \param extras   cache_lengths(view): int32 [batch], without which every sequence is empty;
///                 paged(table, page_size): int32 [batch, max_pages], the cache is paged;
///                 rotary(cos, sin): new keys are rotated as rope() does at positions lengths_b +
///                 i, features from rotary_dim on stay as they are; queries(q, out): queries are
///                 rotated with them
///
/// Lengths and page numbers are read on the device. What would lie outside the cache is not
/// written: positions below 0 or past seqlen_max (max_pages·page_size), pages that are not in [0,
/// num_pages), such as the −1 of a table's unused entries. Nothing else of the cache is touched. A
/// page must not be written by two sequences at once. Positions past the tables take their last
/// row. Lengths are the caller's to advance: attention over the cache wants lengths_b + seqlen_new.
/// Caches must not overlap the inputs.
///
/// Types: any floating-point element for new keys and values, for caches, for tables, for q and
/// out; rotated in float, in double if keys or cache are double. Any strides, zero extents.
/// Determinism: run to run, and for any number of host threads. Throws ShapeError, StrideError
/// before anything is launched or written.
///
/// Source: flash_attn_with_kvcache of T. Dao's flash-attention (BSD-3-Clause), for what it means;
/// J. Su et al., "RoFormer", arXiv:2104.09864.
template <ExecutionSpace Exec, TensorLike KNew, TensorLike VNew, TensorLike KCache,
          TensorLike VCache, detail::AppendKvExtra... Extras>
void append_kv(Exec const& exec, KNew const& k_new, VNew const& v_new, KCache const& k_cache,
               VCache const& v_cache, AppendKvOptions const& options = {},
               Extras const&... extras) {
  using X = element_t<KNew>;
  using C = element_t<KCache>;
  detail::check_tensor<Exec, KNew>();
  detail::check_tensor<Exec, VNew>();
  detail::check_output<Exec>("append_kv", "k_cache", k_cache);
  detail::check_output<Exec>("append_kv", "v_cache", v_cache);
  static_assert(
      rank_of<KNew> == 4 && rank_of<VNew> == 4 && rank_of<KCache> == 4 && rank_of<VCache> == 4,
      "attikos::append_kv: keys, values and caches have rank 4");
  static_assert(std::is_same_v<X, element_t<VNew>> && std::is_same_v<C, element_t<VCache>>,
                "attikos::append_kv: keys and values have one element type, so have the caches");
  static_assert(is_floating_element<X> && is_floating_element<C>,
                "attikos::append_kv: keys, values and caches hold floating-point elements");
  detail::check_extents("append_kv", "k_new", k_new);
  detail::check_extents("append_kv", "v_new", v_new);
  detail::check_extents("append_kv", "k_cache", k_cache);
  detail::check_extents("append_kv", "v_cache", v_cache);
  auto const rk = detail::to_const_ref(k_new);
  auto const rv = detail::to_const_ref(v_new);
  auto const ck = detail::to_ref(k_cache);
  auto const cv = detail::to_ref(v_cache);
  auto const slots = detail::append_kv_slots<Exec>(rk, rv, ck, cv, extras...);
  auto const given = detail::find_extra<Queries>(extras...);
  auto const tables = detail::find_extra<Rotary>(extras...);
  static_assert(!detail::is_present<decltype(given)> || detail::is_present<decltype(tables)>,
                "attikos::append_kv: queries(q, out) needs rotary(cos, sin)");
  auto const query = detail::append_kv_queries<Exec>(given, rk);
  std::int64_t const seqlen_q = options.queries_share_position
                                    ? std::min<std::int64_t>(query.q.extent[2], 1)
                                    : query.q.extent[2];
  auto const rotation = detail::append_kv_rotation<Exec>(
      tables, detail::find_extra<CacheLengths>(extras...), options.style, rk.extent[0],
      std::max(rk.extent[2], seqlen_q), rk.extent[3]);
  using Q = std::remove_const_t<std::remove_pointer_t<decltype(query.q.data)>>;
  using QOut = std::remove_pointer_t<decltype(query.out.data)>;
  using Acc = std::conditional_t<std::is_same_v<detail::RowAccumulator<X, C>, double> ||
                                     std::is_same_v<detail::RowAccumulator<Q, QOut>, double>,
                                 double, float>;
  using Row = detail::AppendKvRow<Acc, X, C, std::remove_const_t<decltype(rotation)>, Q, QOut>;
  Row const row{
      rk, rv, ck, cv, slots, rotation, query.q, query.out, options.queries_share_position};
  detail::launch_rows(exec, "append_kv", row, row.rows());
}

/// The same on an instance of the default execution space.
template <TensorLike KNew, TensorLike VNew, TensorLike KCache, TensorLike VCache,
          detail::AppendKvExtra... Extras>
void append_kv(KNew const& k_new, VNew const& v_new, KCache const& k_cache, VCache const& v_cache,
               AppendKvOptions const& options = {}, Extras const&... extras) {
  append_kv(Kokkos::DefaultExecutionSpace{}, k_new, v_new, k_cache, v_cache, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
