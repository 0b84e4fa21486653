// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// One (sequence, head) of an attention problem as kernels walk through it, whatever way the
/// sequences are stored: padded, packed or paged.
#pragma once

#include <attikos/abi/attention.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/core/tile.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Type in which scores, weights and sums are kept.
template <class T>
using AttentionAccumulator = typename ElementTraits<T>::Accumulator;

template <class Acc>
KOKKOS_INLINE_FUNCTION constexpr Acc negative_infinity() {
  return -Kokkos::Experimental::infinity_v<Acc>;
}

KOKKOS_INLINE_FUNCTION std::int64_t clamp_index(std::int64_t x, std::int64_t low,
                                                std::int64_t high) {
  return x < low ? low : (x > high ? high : x);
}

/// Query rows of one sequence: rows [begin, begin + rows) of dimension 2 of q and out. In a packed
/// problem batch −1 stands for positions that belong to no sequence.
struct QueryRows {
  std::int64_t batch, begin, rows;
};

/// Sequences that lie one behind the other in dimension 2 of a tensor of `total` positions.
struct PackedSequences {
  abi::Offsets const& offsets;
  std::int64_t batch, total;
};
KOKKOS_INLINE_FUNCTION PackedSequences packed_queries(abi::AttentionArgs const& g) {
  return {g.cu_seqlens_q, g.batch, g.seqlen_q};
}
KOKKOS_INLINE_FUNCTION PackedSequences packed_keys(abi::AttentionArgs const& g) {
  return {g.cu_seqlens_kv, g.batch, g.seqlen_kv};
}

/// Boundary `e` of the segments of packed sequences: positions before the first sequence, each
/// sequence, positions after the last.
KOKKOS_INLINE_FUNCTION std::int64_t packed_boundary(PackedSequences const& s, std::int64_t e) {
  return e <= 0 ? 0 : e > s.batch + 1 ? s.total : clamp_index(s.offsets[e - 1], 0, s.total);
}

KOKKOS_INLINE_FUNCTION QueryRows packed_rows(PackedSequences const& s, std::int64_t e) {
  std::int64_t const begin = packed_boundary(s, e);
  std::int64_t const rows = packed_boundary(s, e + 1) - begin;
  return {e >= 1 && e <= s.batch ? e - 1 : -1, begin, rows > 0 ? rows : 0};
}

/// A tile of query rows: the rows of its sequence, and where in them the tile starts.
struct QueryTile {
  QueryRows sequence;
  std::int64_t row0;
};

/// Number of tiles per head that hold every position wherever packed sequences begin: segment e
/// gets the slots from begin/tile + e on, of which it needs no more than there are up to the next
/// segment's.
inline std::int64_t packed_tiles(PackedSequences const& s, std::int64_t tile) {
  return s.offsets.data == nullptr ? (s.total + tile - 1) / tile : s.total / tile + s.batch + 2;
}
inline std::int64_t query_tiles(abi::AttentionArgs const& g, std::int64_t tile) {
  return packed_tiles(packed_queries(g), tile);
}

/// Number of (batch, head) pairs that tiles are counted for: packed tiles know their sequence.
KOKKOS_INLINE_FUNCTION std::int64_t query_groups(abi::AttentionArgs const& g) {
  return (g.cu_seqlens_q.data == nullptr ? g.batch : 1) * g.heads_q;
}

/// The tile of a packed tensor that slot `slot` stands for. It may lie past the last row.
KOKKOS_INLINE_FUNCTION QueryTile locate_packed_tile(PackedSequences const& s, std::int64_t slot,
                                                    int tile) {
  std::int64_t low = 0, high = s.batch + 2;  // the last segment whose first slot is not past `slot`
  while (high - low > 1) {
    std::int64_t const middle = low + (high - low) / 2;
    (packed_boundary(s, middle) / tile + middle <= slot ? low : high) = middle;
  }
  QueryRows const sequence = packed_rows(s, low);
  return {sequence, (slot - (sequence.begin / tile + low)) * tile};
}

/// The tile of rows that slot `slot` of group `group` stands for. It may lie past the last row.
KOKKOS_INLINE_FUNCTION QueryTile locate_tile(abi::AttentionArgs const& g, std::int64_t group,
                                             std::int64_t slot, int tile) {
  if (g.cu_seqlens_q.data == nullptr) return {{group / g.heads_q, 0, g.seqlen_q}, slot * tile};
  return locate_packed_tile(packed_queries(g), slot, tile);
}

/// The sequence that position `row` of group `group` belongs to.
KOKKOS_INLINE_FUNCTION QueryRows locate_row(abi::AttentionArgs const& g, std::int64_t group,
                                            std::int64_t row) {
  if (g.cu_seqlens_q.data == nullptr) return {group / g.heads_q, 0, g.seqlen_q};
  PackedSequences const s = packed_queries(g);
  std::int64_t low = 0, high = g.batch + 2;
  while (high - low > 1) {
    std::int64_t const middle = low + (high - low) / 2;
    (packed_boundary(s, middle) <= row ? low : high) = middle;
  }
  return packed_rows(s, low);
}

/// Which keys the queries of a sequence see: contiguous ones, whose ends do not come down from one
/// query to the next.
struct VisibleKeys {
  std::int64_t len_q, len_kv;
  std::int64_t offset;  ///< query i stands where key i + offset stands
  /// Query i sees j with −window_left ≤ j − i − offset < causal_limit.
  std::int64_t causal_limit, window_left;
  std::int64_t chunk;  ///< and within its own chunk of so many positions; 0: all

  /// Query i sees keys [first(i), last(i)).
  KOKKOS_INLINE_FUNCTION std::int64_t last(std::int64_t i) const {
    std::int64_t end = i + offset + causal_limit;
    if (chunk > 0) end = least(end, chunk_of(i + offset) + chunk);
    return i >= len_q ? 0 : clamp_index(end, 0, len_kv);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t first(std::int64_t i) const {
    std::int64_t begin = i + offset - window_left;
    if (chunk > 0) begin = greatest(begin, chunk_of(i + offset));
    return clamp_index(begin, 0, len_kv);
  }

  /// Key j is seen by no query but those in [first_query(j), last_query(j)).
  KOKKOS_INLINE_FUNCTION std::int64_t first_query(std::int64_t j) const {
    std::int64_t begin = j - causal_limit + 1;
    if (chunk > 0) begin = greatest(begin, chunk_of(j));
    return clamp_index(begin - offset, 0, len_q);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t last_query(std::int64_t j) const {
    std::int64_t end = j + window_left + 1;
    if (chunk > 0) end = least(end, chunk_of(j) + chunk);
    return j >= len_kv ? 0 : clamp_index(end - offset, 0, len_q);
  }

 private:
  static KOKKOS_INLINE_FUNCTION std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
  }
  static KOKKOS_INLINE_FUNCTION std::int64_t greatest(std::int64_t a, std::int64_t b) {
    return a < b ? b : a;
  }
  /// Where the chunk begins that a position lies in, before the first key, too.
  KOKKOS_INLINE_FUNCTION std::int64_t chunk_of(std::int64_t position) const {
    std::int64_t const rest = position % chunk;
    return position - (rest < 0 ? rest + chunk : rest);
  }
};

template <class T, class Out = T>
struct AttentionHead : VisibleKeys {
  using Acc = AttentionAccumulator<T>;

  std::int64_t batch, head, head_kv;
  std::int64_t begin_q, rows;  ///< first row in dimension 2 of q, and number of rows
  Acc scale, value_scale, slope;
  Block<T const> q, k, v;  ///< k and v of the first page where paged
  Block<Out> out;
  std::int32_t const* pages;  ///< page table of this sequence, or null
  std::int64_t page_table_stride, page_size, num_pages, k_page_stride, v_page_stride;

  KOKKOS_INLINE_FUNCTION AttentionHead(abi::AttentionArgs const& g, QueryRows const& sequence,
                                       std::int64_t h)
      : batch(sequence.batch),
        head(h),
        head_kv(h / (g.heads_q / g.heads_kv)),
        begin_q(sequence.begin),
        rows(sequence.rows) {
    // Positions of no sequence see no keys; the arrays may have no entry, since there may be no
    // sequence.
    bool const outside = batch < 0;
    std::int64_t const b = outside ? 0 : batch;
    len_q = outside ? 0 : rows;
    if (g.lengths_q != nullptr && !outside)
      len_q =
          clamp_index(g.lengths_q[b * g.lengths_q_stride[0] + h * g.lengths_q_stride[1]], 0, len_q);
    len_kv = outside ? 0 : g.seqlen_kv;
    std::int64_t begin_kv = 0;
    if (g.cu_seqlens_kv.data != nullptr && !outside) {
      begin_kv = clamp_index(g.cu_seqlens_kv[b], 0, g.seqlen_kv);
      len_kv = clamp_index(g.cu_seqlens_kv[b + 1], begin_kv, g.seqlen_kv) - begin_kv;
    }
    if (g.lengths_kv != nullptr && !outside)
      len_kv = clamp_index(
          g.lengths_kv[b * g.lengths_kv_stride[0] + head_kv * g.lengths_kv_stride[1]], 0, len_kv);
    pages = nullptr;
    if (g.page_table != nullptr) {
      pages = g.page_table + b * g.page_table_stride[0];
      page_table_stride = g.page_table_stride[1];
      page_size = g.page_size;
      num_pages = g.num_pages;
      k_page_stride = g.k_stride[0];
      v_page_stride = g.v_stride[0];
    }
    auto const base = [&](auto* p, std::int64_t const(&stride)[4], std::int64_t bb, std::int64_t hh,
                          std::int64_t row) {
      return p + bb * stride[0] + hh * stride[1] + row * stride[2];
    };
    std::int64_t const bk = pages == nullptr ? b : 0;
    q = {base(static_cast<T const*>(g.q), g.q_stride, b, h, begin_q), g.q_stride[2], g.q_stride[3]};
    k = {base(static_cast<T const*>(g.k), g.k_stride, bk, head_kv, begin_kv), g.k_stride[2],
         g.k_stride[3]};
    v = {base(static_cast<T const*>(g.v), g.v_stride, bk, head_kv, begin_kv), g.v_stride[2],
         g.v_stride[3]};
    out = {base(static_cast<Out*>(g.out), g.out_stride, b, h, begin_q), g.out_stride[2],
           g.out_stride[3]};

    scale = static_cast<Acc>(g.softmax_scale);
    auto const factor = [&](float const* p, std::int64_t const(&stride)[2]) {
      return p == nullptr || outside ? Acc(1)
                                     : static_cast<Acc>(p[b * stride[0] + head_kv * stride[1]]);
    };
    scale *= factor(g.descale_q, g.descale_q_stride) * factor(g.descale_k, g.descale_k_stride);
    value_scale = factor(g.descale_v, g.descale_v_stride);
    slope = g.alibi == nullptr || outside
                ? Acc(0)
                : static_cast<Acc>(g.alibi[b * g.alibi_stride[0] + h * g.alibi_stride[1]]);

    offset = g.causal_alignment == CausalAlignment::bottom_right ? len_kv - len_q : 0;
    std::int64_t const everything = len_q + len_kv + 1;
    causal_limit =
        g.window_right < 0 || g.window_right > everything ? everything : g.window_right + 1;
    if (g.causal) causal_limit = causal_limit < 1 ? causal_limit : 1;
    window_left = g.window_left < 0 || g.window_left > everything ? everything : g.window_left;
    chunk = g.attention_chunk;
  }

  /// Where a key lies in pages: its entry of the table, and its row in the page.
  struct PagePlace {
    std::int64_t entry, row;
  };
  KOKKOS_INLINE_FUNCTION PagePlace page_place(std::int64_t j) const {
    if (((j | page_size) >> 32) != 0) return {j / page_size, j % page_size};
    // A device divides 32 bits in a fraction of the time.
    auto const size = static_cast<std::uint32_t>(page_size);
    std::uint32_t const entry = static_cast<std::uint32_t>(j) / size;
    return {entry, static_cast<std::uint32_t>(j) - entry * size};
  }
  /// How many of the keys [j, j + count) lie at a constant stride behind key j.
  KOKKOS_INLINE_FUNCTION int run(std::int64_t j, int count) const {
    if (pages == nullptr) return count;
    std::int64_t const left = page_size - page_place(j).row;
    return left < count ? static_cast<int>(left) : count;
  }
  KOKKOS_INLINE_FUNCTION T const* at(Block<T const> const& x, std::int64_t page_stride,
                                     PagePlace const& place) const {
    std::int64_t const page = clamp_index(pages[place.entry * page_table_stride], 0, num_pages - 1);
    return x.at(place.row, 0) + page * page_stride;
  }
  KOKKOS_INLINE_FUNCTION T const* at(Block<T const> const& x, std::int64_t page_stride,
                                     std::int64_t j) const {
    return pages == nullptr ? x.at(j, 0) : at(x, page_stride, page_place(j));
  }
  KOKKOS_INLINE_FUNCTION T const* key(std::int64_t j) const { return at(k, k_page_stride, j); }
  KOKKOS_INLINE_FUNCTION T const* value(std::int64_t j) const { return at(v, v_page_stride, j); }
};

/// Packs keys [j0, j0 + cols) as the right-hand factor Kᵀ, feature by key; see pack_panels().
template <class Traits, class Team, class Acc, class Head>
KOKKOS_INLINE_FUNCTION void pack_keys(Team const& team, Acc* dst, int ld, Head const& head,
                                      std::int64_t j0, int d, int cols) {
  auto const block = [&](std::int64_t j) {
    return decltype(head.k){head.key(j), head.k.col_stride, head.k.row_stride};
  };
  if (head.pages == nullptr) {
    pack_panels<Traits>(team, dst, ld, block(j0), d, cols);
  } else if constexpr (Traits::host) {
    constexpr int NR = Traits::cols;
    for (int c = 0; c < cols;) {
      auto const from = block(j0 + c);
      int const run = head.run(j0 + c, cols - c);
      bool const whole = c % NR == 0 && (run % NR == 0 || c + run == cols);
      if (whole) {
        pack_panels<Traits>(team, dst + std::int64_t{c} * ld, ld, from, d, run);
      } else {
        for (int l = c; l < c + run; ++l)
          for (int p = 0; p < d; ++p)
            dst[std::int64_t{l / NR} * ld * NR + std::int64_t{p} * NR + l % NR] =
                static_cast<Acc>(*from.at(p, l - c));
      }
      c += run;
      if (!whole && c == cols)  // missing columns of the last panel are 0
        for (int l = cols; l % NR != 0; ++l)
          for (int p = 0; p < d; ++p)
            dst[std::int64_t{l / NR} * ld * NR + std::int64_t{p} * NR + l % NR] = Acc(0);
    }
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, d * ld), [&](int index) {
      int const p = index % d, j = index / d;
      dst[p * ld + j] =
          j < cols ? static_cast<Acc>(head.key(j0 + j)[p * head.k.col_stride]) : Acc(0);
    });
  }
}

/// Packs values [j0, j0 + count) as the right-hand factor V, key by feature [c0, c0 + cols).
template <class Traits, class Team, class Acc, class Head>
KOKKOS_INLINE_FUNCTION void pack_values(Team const& team, Acc* dst, int ld, Head const& head,
                                        std::int64_t j0, int count, std::int64_t c0, int cols) {
  auto const block = [&](std::int64_t j) {
    return decltype(head.v){head.value(j) + c0 * head.v.col_stride, head.v.row_stride,
                            head.v.col_stride};
  };
  if (head.pages == nullptr) {
    pack_panels<Traits>(team, dst, ld, block(j0), count, cols);
  } else if constexpr (Traits::host) {
    for (int j = 0; j < count;) {
      int const run = head.run(j0 + j, count - j);
      pack_panels<Traits>(team, dst + std::int64_t{j} * Traits::cols, ld, block(j0 + j), run, cols);
      j += run;
    }
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count * ld), [&](int index) {
      int const j = index / ld, c = index % ld;
      dst[j * ld + c] =
          c < cols ? static_cast<Acc>(head.value(j0 + j)[(c0 + c) * head.v.col_stride]) : Acc(0);
    });
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
