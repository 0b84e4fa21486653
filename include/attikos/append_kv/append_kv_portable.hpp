// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where new keys and values go, and the kernel that takes them there.
#pragma once

#include <attikos/attention/attention_head.hpp>
#include <attikos/norm/rope.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// How sequences lie in a tensor [batch, heads, seqlen, features], or packed in one of batch 1.
struct TokenLayout {
  abi::Offsets offsets;         ///< of packed sequences; data null: padded
  std::int64_t batch;           ///< number of sequences
  std::int32_t const* lengths;  ///< of padded sequences; null: all of them are full
  std::int64_t lengths_stride;

  /// Row `index` of a tensor: where it lies, and token i of which sequence b it is; b is −1 where
  /// it belongs to none.
  struct Token {
    std::int64_t outer, h, row, b, i;
  };
  template <class T>
  KOKKOS_INLINE_FUNCTION Token operator()(TensorRef<T, 4> const& x, std::int64_t index) const {
    std::int64_t const bh = index / x.extent[2], row = index % x.extent[2];
    Token t{bh / x.extent[1], bh % x.extent[1], row, bh / x.extent[1], row};
    if (offsets.data != nullptr) {
      PackedSequences const s{offsets, batch, x.extent[2]};
      std::int64_t low = 0, high = batch + 2;  // the last segment that does not begin past the row
      while (high - low > 1) {
        std::int64_t const middle = low + (high - low) / 2;
        (packed_boundary(s, middle) <= row ? low : high) = middle;
      }
      QueryRows const sequence = packed_rows(s, low);
      t.b = sequence.batch;
      t.i = row - sequence.begin;
    } else if (lengths != nullptr && t.i >= lengths[t.b * lengths_stride]) {
      t.b = -1;
    }
    return t;
  }
};

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

  /// Features [first, size) as they are, or zeros.
  template <class Acc>
  void host_copy(std::int64_t first) const {
    if (from == nullptr) {
      for (std::int64_t j = first; j < size; ++j) to[j * to_stride] = static_cast<Out>(Acc(0));
      return;
    }
    host::for_each_vector<Acc>(from + first * from_stride, from_stride, size - first, Acc(0),
                               [&](std::int64_t j, host::Vec<Acc> v, int count) {
                                 host::put<Acc>(to + (first + j) * to_stride, to_stride, count, v);
                               });
  }
  template <class Acc, class Team>
  KOKKOS_INLINE_FUNCTION void device_copy(Team const& team, std::int64_t first) const {
    if constexpr (std::is_same_v<X, Out>) {  // 16 bytes at a time where that can be
      if (from != nullptr && from_stride == 1 && to_stride == 1) {
        struct alignas(16) Chunk {
          std::uint32_t words[4];
        };
        constexpr std::int64_t elements = sizeof(Chunk) / sizeof(X);
        auto const* const chunks = reinterpret_cast<Chunk const*>(from + first);
        auto* const copies = reinterpret_cast<Chunk*>(to + first);
        if ((reinterpret_cast<std::uintptr_t>(chunks) | reinterpret_cast<std::uintptr_t>(copies)) %
                sizeof(Chunk) ==
            0) {
          std::int64_t const count = (size - first) / elements;
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, count),
                               [&](std::int64_t c) { copies[c] = chunks[c]; });
          first += count * elements;
        }
      }
    }
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, first, size), [&](std::int64_t j) {
      to[j * to_stride] =
          static_cast<Out>(from == nullptr ? Acc(0) : static_cast<Acc>(from[j * from_stride]));
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
  using Token = TokenLayout::Token;

  TensorRef<X const, 4> k, v;
  TensorRef<C, 4> k_cache, v_cache;
  TokenLayout tokens;
  CacheSlots slots;
  Rotary_ rotation;
  TensorRef<Q const, 4> q;  ///< no rows where there are no queries
  TensorRef<QOut, 4> q_out;
  TokenLayout query_tokens;
  bool queries_share_position;

  std::int64_t rows() const { return cache_rows() + q.extent[0] * q.extent[1] * q.extent[2]; }

  /// What row `index` of this operation is about.
  template <class From, class To>
  struct Job {
    Transfer<From, To> transfer;  ///< `to` null: nothing to do; `from` null: zeros
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
    Token const t = tokens(from, key ? index : index - count);
    Job<X, C> job{
        {from.ptr(t.outer, t.h, t.row, 0), from.stride[3],
         t.b < 0 ? nullptr : slots.find(cache, t.b, t.h, t.i), cache.stride[3], from.extent[3]},
        -1};
    if constexpr (is_present<Rotary_>) {
      if (key && job.transfer.to != nullptr) job.table_row = rotation.row(t.b, t.i);
    }
    return job;
  }

  KOKKOS_INLINE_FUNCTION Job<Q, QOut> query_job(std::int64_t index) const {
    Token const t = query_tokens(q, index);
    return {{t.b < 0 ? nullptr : q.ptr(t.outer, t.h, t.row, 0), q.stride[3],
             q_out.ptr(t.outer, t.h, t.row, 0), q_out.stride[3], q.extent[3]},
            t.b < 0 ? -1 : rotation.row(t.b, queries_share_position ? 0 : t.i)};
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

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
