// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// append_kv/sm80_simt: rows of new keys and values into a cache, and queries that are rotated with
/// them.
///
/// Bound by memory, so all there is to do is to have enough bytes under way. A thread looks up its
/// token's place and the tables' entries once and then moves the same features of several heads,
/// several heads' loads before the first store.
#pragma once

#include "elements.cuh"
#include "params.cuh"
#include "ptx/dependent_launch.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Elements X become C in one of append_kv_shapes.
template <class X, class C, class Shape>
struct AppendKvConfig : Shape {
  using From = X;
  using To = C;
  /// Blocks of a multiprocessor, whose registers hold all that without spilling. Before sm_89,
  /// conversions of float8 take many.
  static constexpr int blocks = sizeof(X) == 1 ? 2 : sizeof(C) == 1 ? 3 : 4;
};

/// A token's sequence, −1 for none, and its number there.
struct AppendKvToken {
  int batch, number;
};

__device__ __forceinline__ AppendKvToken find_token(AppendKvTokens const& tokens, int batch,
                                                    int total, int outer, int row) {
  if (tokens.offsets.data == nullptr) {
    bool const none =
        tokens.lengths != nullptr && row >= tokens.lengths[outer * tokens.lengths_stride];
    return {none ? -1 : outer, row};
  }
  // Segments: what lies before the first sequence, each sequence, what lies after the last. The
  // last one that does not begin past the row holds it.
  auto const boundary = [&](int e) {
    if (e <= 0) return 0;
    if (e > batch + 1) return total;
    std::int64_t const offset = tokens.offsets[e - 1];
    return static_cast<int>(offset < 0 ? 0 : offset > total ? total : offset);
  };
  int low = 0, high = batch + 2, begin = 0;
  while (high - low > 1) {
    int const middle = low + (high - low) / 2, at = boundary(middle);
    if (at <= row) {
      low = middle, begin = at;
    } else {
      high = middle;
    }
  }
  return {low >= 1 && low <= batch ? low - 1 : -1, row - begin};
}

/// The rows of one item in one block of part number Part, X become C. The number is a constant, so
/// that what the part is told needs no registers.
template <int Part, class X, class C, class Config>
__device__ __forceinline__ void move_rows(AppendKvParams const& p, unsigned block) {
  constexpr int N = Config::group, U = Config::heads;
  constexpr bool query = Part == 2, rotates = Part != 1 && !is_append_kv_bytes<X>;
  AppendKvPart const& part = p.parts[Part];
  using Acc = std::conditional_t<std::is_same_v<X, double>, double, float>;
  unsigned const own = threadIdx.x / part.lanes, lane = threadIdx.x - own * part.lanes;
  unsigned const item = block * part.items_per_block + own;
  if (own >= part.items_per_block || item >= part.items) return;
  unsigned const group = item / part.tokens, outer = group / part.chunks;
  int const row = static_cast<int>(item - group * part.tokens);
  unsigned const head = (group - outer * part.chunks) * part.heads_per_item;
  unsigned const heads = min(part.heads - head, part.heads_per_item);
  AppendKvToken const token =
      find_token(p.tokens[query ? 1 : 0], p.batch, static_cast<int>(part.tokens),
                 static_cast<int>(outer), row);
  // Queries of no sequence become 0, new keys and values of none go nowhere.
  bool const nobody = token.batch < 0;
  if (nobody && !query) return;
  std::int64_t position = token.number;
  if (query && p.queries_share_position) position = 0;
  if (p.cache_lengths != nullptr && !nobody)
    position += p.cache_lengths[token.batch * p.cache_lengths_stride];
  std::int64_t to_outer = outer, to_row = row;
  bool writes = true;
  if (!query) {
    if (position < 0 || position >= p.capacity) return;
    to_outer = token.batch, to_row = position;
    if (p.page_table != nullptr) {
      // Lengths and tokens have 31 bits each.
      unsigned const at = static_cast<unsigned>(position), page = at / p.page_size;
      to_row = at - page * p.page_size;
      to_outer = p.page_table[token.batch * p.page_table_stride[0] + page * p.page_table_stride[1]];
      writes = to_outer >= 0 && to_outer < p.num_pages;
    }
  }
  auto const* const from_row = part.from + outer * part.from_stride[0] +
                               head * part.from_stride[1] + row * part.from_stride[2];
  auto* const to_row_begin = part.to + to_outer * part.to_stride[0] + head * part.to_stride[1] +
                             to_row * part.to_stride[2];
  AppendKvTables const& tables = p.tables;
  std::int64_t const table_row = position < 0             ? 0
                                 : position < tables.rows ? position
                                                          : tables.rows - 1;

  for (int slot = static_cast<int>(lane); slot < part.slots; slot += static_cast<int>(part.lanes)) {
    bool const rotated = slot < part.rotated_slots;
    // Single elements of a pair may be neighbors.
    bool const neighbors = N == 1 && tables.interleaved;
    int const first = !rotated ? slot + part.rotated_slots : neighbors ? 2 * slot : slot;
    int const second = !rotated    ? slot + part.slots
                       : neighbors ? first + 1
                                   : slot + part.rotated_slots;
    bool const two = second < part.groups;
    AppendKvRotation<Acc, N> rotation;
    if constexpr (rotates) {
      if (rotated && !nobody) {
        bool const twice = N > 1 && tables.half_width && tables.interleaved;
#pragma unroll
        for (int which = 0; which < 2; ++which) {
          int const at = which == 0 ? first : second;
          int const entry = !tables.half_width ? at * N : twice ? at * (N / 2) : slot * N;
          bool const vectors = N > 1 && tables.vectors && !twice;
          load_entries(rotation.cos[which], tables.type, tables.cos, table_row, entry,
                       tables.cos_stride, twice, vectors);
          load_entries(rotation.sin[which], tables.type, tables.sin, table_row, entry,
                       tables.sin_stride, twice, vectors);
        }
      }
    }
    auto const* from_a = from_row + first * (N * part.from_stride[3]);
    auto const* from_b = from_row + second * (N * part.from_stride[3]);
    auto* to_a = to_row_begin + first * (N * part.to_stride[3]);
    auto* to_b = to_row_begin + second * (N * part.to_stride[3]);
    for (unsigned h = 0; h < heads; h += U) {
      AppendKvGroup<X, N> a[U] = {}, b[U] = {};
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (h + u < heads && !nobody) {
          a[u] = *reinterpret_cast<AppendKvGroup<X, N> const*>(from_a);
          if (two) b[u] = *reinterpret_cast<AppendKvGroup<X, N> const*>(from_b);
        }
        from_a += part.from_stride[1], from_b += part.from_stride[1];
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        AppendKvGroup<C, N> stored_a, stored_b;
        bool done = false;
        if constexpr (rotates) {
          if (rotated && !nobody) {
            done = true;
            if (N > 1 && tables.interleaved) {
              stored_a = rotation.template within<C>(0, a[u]);
              stored_b = rotation.template within<C>(1, b[u]);
            } else {
              rotation.template across<C>(a[u], b[u], stored_a, stored_b);
            }
          }
        }
        if (!done) stored_a = converted<C>(a[u]), stored_b = converted<C>(b[u]);
        if (h + u < heads && writes) {
          *reinterpret_cast<AppendKvGroup<C, N>*>(to_a) = stored_a;
          if (two) *reinterpret_cast<AppendKvGroup<C, N>*>(to_b) = stored_b;
        }
        to_a += part.to_stride[1], to_b += part.to_stride[1];
      }
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(append_kv_threads, Config::blocks)
    append_kv_kernel(__grid_constant__ AppendKvParams const p) {
  wait_for_launch_before();
  allow_launch_behind();
  using X = typename Config::From;
  using C = typename Config::To;
  unsigned const block = blockIdx.x;
  if (block < p.first_block[0])
    move_rows<0, X, C, Config>(p, block);
  else if (block < p.first_block[1])
    move_rows<1, X, C, Config>(p, block - p.first_block[0]);
  else
    move_rows<2, X, X, Config>(p, block - p.first_block[1]);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
