// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// One head's attention done by one team without scratch memory: the problem, and what a host
/// thread and a device thread make of it.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_head.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <cstring>
#include <limits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Queries, keys and values of one head inside a kernel. `lse` may be null. Rows from len_q on are
/// padding.
template <class T, class Out>
struct TeamAttentionProblem : VisibleKeys {
  using Element = T;
  using Acc = AttentionAccumulator<T>;

  int rows, d, dv;
  Block<T const> q, k, v;
  Block<Out> out;
  Acc* lse;
  std::int64_t lse_stride;
  Acc scale, value_scale, softcap;
};

/// Rows, keys and features that a host thread holds at a time; keys and columns of out that a
/// device thread does.
struct TeamAttentionBlock {
  static constexpr int host_rows = 32, host_keys = 32, host_depth = 128;
  static constexpr int keys = 8, cols = 16;
};

/// The whole problem on a device: every thread and lane has pieces of rows of out, keeps them in
/// registers and computes their scores anew.
template <class Team, class Problem>
KOKKOS_INLINE_FUNCTION void team_attention_pieces(Team const& team, Problem const& x) {
  using Acc = typename Problem::Acc;
  using Block = TeamAttentionBlock;
  int const pieces = x.dv > 0 ? (x.dv + Block::cols - 1) / Block::cols : 1;
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, x.rows * pieces), [&](int index) {
    int const i = index % x.rows;
    int const c0 = index / x.rows * Block::cols;
    int const cols = x.dv - c0 < Block::cols ? x.dv - c0 : Block::cols;
    Acc out[Block::cols] = {};
    Acc maximum = negative_infinity<Acc>();
    Acc sum = 0;
    std::int64_t const last = x.last(i);
    for (std::int64_t j0 = x.first(i); j0 < last; j0 += Block::keys) {
      Acc s[Block::keys] = {};
      for (int p = 0; p < x.d; ++p) {
        Acc const left = static_cast<Acc>(*x.q.at(i, p));
        for (int l = 0; l < Block::keys; ++l)
          s[l] += left * static_cast<Acc>(*x.k.at(j0 + l < last ? j0 + l : j0, p));
      }
      Acc now = maximum;
      for (int l = 0; l < Block::keys; ++l) {
        s[l] *= x.scale;
        if (x.softcap > Acc(0)) s[l] = x.softcap * Kokkos::tanh(s[l] / x.softcap);
        if (j0 + l >= last) s[l] = negative_infinity<Acc>();
        if (s[l] > now) now = s[l];
      }
      Acc const shift = now == negative_infinity<Acc>() ? Acc(0) : now;
      if (now != maximum) {
        Acc const correction = Kokkos::exp(maximum - shift);
        sum *= correction;
        for (int c = 0; c < Block::cols; ++c) out[c] *= correction;
        maximum = now;
      }
      for (int l = 0; l < Block::keys; ++l) {
        Acc const p = Kokkos::exp(s[l] - shift);
        if (p == Acc(0)) continue;  // not even 0·NaN of its value
        sum += p;
        for (int c = 0; c < Block::cols; ++c)
          if (c < cols) out[c] += p * static_cast<Acc>(*x.v.at(j0 + l, c0 + c));
      }
    }
    bool const empty = sum == Acc(0);
    Acc const factor = empty ? Acc(0) : x.value_scale / sum;
    for (int c = 0; c < Block::cols; ++c)
      if (c < cols) {
        auto* const to = x.out.at(i, c0 + c);
        *to = static_cast<std::remove_pointer_t<decltype(to)>>(empty ? Acc(0) : out[c] * factor);
      }
    if (x.lse != nullptr && c0 == 0)
      x.lse[i * x.lse_stride] = empty ? negative_infinity<Acc>() : maximum + Kokkos::log(sum);
  });
}

namespace host {

/// Calls f.operator()<W>() with vectors no wider than `count` needs: the empty lanes of wider ones
/// would be most of the work.
template <class Acc, class F>
inline void with_width(int count, F const& f) {
  constexpr int most = lanes<Acc>;
  if constexpr (most > 4) {
    if (count <= 4) return f.template operator()<4>();
  }
  if constexpr (most > 8) {
    if (count <= 8) return f.template operator()<8>();
  }
  f.template operator()<most>();
}

/// `count` ≤ W elements at a stride, 0 in the missing lanes.
template <class Acc, int W, class T>
inline Vec<Acc, W> load_lanes(T const* p, std::int64_t stride, int count) {
  return stride == 1 && count == W ? load<Acc, W>(p)
                                   : load_partial<Acc, W>(p, stride, count, Acc(0));
}

/// `count` ≤ W rows of x as columns of a panel, `d` by W; missing columns are 0.
template <int W, class Acc, class T>
inline void pack_transposed(Acc* panel, Block<T const> const& x, int count, int d) {
  if (x.col_stride != 1) {
    for (int p = 0; p < d; ++p)
      store<Acc, W>(panel + p * W, load_lanes<Acc, W>(x.at(0, p), x.row_stride, count));
    return;
  }
  for (int p = 0; p < d; p += W) {
    int const depth = d - p < W ? d - p : W;
    Vec<Acc, W> v[W];
    for (int l = 0; l < W; ++l)
      v[l] = l < count ? load_lanes<Acc, W>(x.at(l, p), 1, depth) : Vec<Acc, W>{};
    transpose<Acc, W>(v);
    for (int l = 0; l < depth; ++l) store<Acc, W>(panel + (p + l) * W, v[l]);
  }
}

/// `cols` ≤ W columns of `rows` rows of x as a panel. Whether all of them are finite.
template <int W, class Acc, class T>
inline bool pack_finite(Acc* panel, Block<T const> const& x, int rows, int cols) {
  Vec<Acc, W> probe{};
  for (int p = 0; p < rows; ++p) {
    Vec<Acc, W> const v = load_lanes<Acc, W>(x.at(p, 0), x.col_stride, cols);
    probe += v * Acc(0);
    store<Acc, W>(panel + p * W, v);
  }
  return reduce_sum<Acc, W>(probe) == Acc(0);
}

/// Maximum and sum of a row so far.
template <class Acc>
struct RowState {
  Acc maximum, sum;
};

/// One row of dot products, of which [first, last) count, becomes weights e^(s − maximum), the
/// others 0, through column `cols` rounded up to W. Returns what the row's output so far has to be
/// multiplied by.
template <int W, class Acc>
inline Acc weigh_row(Acc* x, int first, int last, int cols, Acc scale, Acc softcap,
                     RowState<Acc>& state) {
  using Index = Vec<typename BitsOf<Acc>::type, W>;
  constexpr Acc low = negative_infinity<Acc>();
  Vec<Acc, W> const nothing = broadcast<Acc, W>(low);
  Index lane;
  for (int l = 0; l < W; ++l) lane[l] = l;
  Vec<Acc, W> best = nothing;
  for (int j = 0; j < cols; j += W) {
    Vec<Acc, W> v = load<Acc, W>(x + j) * scale;
    if (softcap > Acc(0))
      for (int l = 0; l < W; ++l) v[l] = softcap * Kokkos::tanh(v[l] / softcap);
    v = ((lane + j >= first) & (lane + j < last)) ? v : nothing;
    store<Acc, W>(x + j, v);
    best = max<Acc, W>(v, best);  // a NaN score never wins here and comes out of exp below
  }
  Acc const seen = reduce_max<Acc, W>(best);
  Acc const now = seen > state.maximum ? seen : state.maximum;
  Acc const shift = now == low ? Acc(0) : now;
  Vec<Acc, W> total{};
  for (int j = 0; j < cols; j += W) {
    Vec<Acc, W> const v = exp<Acc, W>(load<Acc, W>(x + j) - shift);
    store<Acc, W>(x + j, v);
    total += v;
  }
  Acc correction = 1;
  if (now != state.maximum && state.maximum != low) {
    Vec<Acc, W> const factor = exp<Acc, W>(broadcast<Acc, W>(state.maximum - shift));
    correction = factor[0];
    state.sum *= correction;
  }
  state.sum += reduce_sum<Acc, W>(total);
  state.maximum = now;
  return correction;
}

/// What a host thread needs for a block of rows; on its stack.
template <class Acc>
struct TeamAttentionMemory {
  using Block = TeamAttentionBlock;
  static constexpr int W = lanes<Acc>;
  static_assert(Block::host_keys % W == 0 && Block::host_depth % W == 0);
  Acc q[Block::host_rows * Block::host_depth];
  Acc packed[Block::host_depth * Block::host_keys];
  Acc scores[Block::host_rows * Block::host_keys];
  Acc out[Block::host_rows * Block::host_depth];
  RowState<Acc> state[Block::host_rows];
};

/// scores = q·kᵀ for rows [row0, row0 + rows) and keys [j0, j0 + count).
template <int W, class Problem, class Acc>
inline void team_attention_scores(Problem const& x, TeamAttentionMemory<Acc>& memory,
                                  std::int64_t row0, int rows, std::int64_t j0, int count,
                                  bool keeps_q) {
  using T = typename Problem::Element;
  using Block = TeamAttentionBlock;
  using In = detail::Block<T const>;
  bool const reads_q = std::is_same_v<T, Acc> && x.q.col_stride == 1 && x.q.row_stride >= 0 &&
                       x.q.row_stride <= std::numeric_limits<int>::max();
  if (x.d == 0) std::memset(memory.scores, 0, sizeof memory.scores);
  for (int p0 = 0; p0 < x.d; p0 += Block::host_depth) {
    int const depth = x.d - p0 < Block::host_depth ? x.d - p0 : Block::host_depth;
    Acc const* left = memory.q;
    int ld = depth;
    if (!reads_q) {
      if (!keeps_q || x.d > Block::host_depth)
        pack_rows<Acc, T>(memory.q, depth, In{x.q.at(row0, p0), x.q.row_stride, x.q.col_stride},
                          rows, depth);
    } else if constexpr (std::is_same_v<T, Acc>) {
      left = x.q.at(row0, p0);
      ld = static_cast<int>(x.q.row_stride);
    }
    for (int j = 0; j < count; j += W) {
      pack_transposed<W, Acc, T>(memory.packed,
                                 In{x.k.at(j0 + j, p0), x.k.row_stride, x.k.col_stride},
                                 count - j < W ? count - j : W, depth);
      multiply_rows<Acc, W, 8, 1>(left, ld, memory.packed, memory.scores + j, Block::host_keys,
                                  rows, depth, p0 > 0);
    }
  }
}

/// Columns [c0, c0 + cols) of rows [row0, row0 + rows), all of them before len_q, unnormalized, in
/// rows of host_depth; and the state of the rows.
template <class Problem, class Acc>
inline void team_attention_sums(Problem const& x, TeamAttentionMemory<Acc>& memory,
                                std::int64_t row0, int rows, int c0, int cols) {
  using T = typename Problem::Element;
  using Block = TeamAttentionBlock;
  constexpr int ld = Block::host_keys;
  std::int64_t const last = x.last(row0 + rows - 1);
  // Blocks of keys begin at multiples of their size: a row's sums depend on the problem alone.
  std::int64_t const begin = x.first(row0) / Block::host_keys * Block::host_keys;
  bool first_block = true;
  for (std::int64_t j0 = begin; j0 < last; j0 += Block::host_keys, first_block = false) {
    int const count = static_cast<int>(last - j0 < Block::host_keys ? last - j0 : Block::host_keys);
    with_width<Acc>(count, [&]<int W>() {
      team_attention_scores<W>(x, memory, row0, rows, j0, count, !first_block);
      for (int i = 0; i < rows; ++i) {
        int const low = static_cast<int>(clamp_index(x.first(row0 + i) - j0, 0, count));
        int const high = static_cast<int>(clamp_index(x.last(row0 + i) - j0, low, count));
        Acc const correction = weigh_row<W, Acc>(memory.scores + i * ld, low, high, count, x.scale,
                                                 x.softcap, memory.state[i]);
        if (correction == Acc(1) || first_block) continue;
        for (int c = 0; c < cols; ++c) memory.out[i * Block::host_depth + c] *= correction;
      }
    });
    int c = 0;
    while (c < cols) {
      with_width<Acc>(cols - c, [&]<int W>() {
        int const width = cols - c < W ? cols - c : W;
        bool const finite = pack_finite<W, Acc, T>(
            memory.packed,
            detail::Block<T const>{x.v.at(j0, c0 + c), x.v.row_stride, x.v.col_stride}, count,
            width);
        Acc* const out = memory.out + c;
        if (finite) {  // 0·finite adds nothing
          multiply_rows<Acc, W, 8, 1>(memory.scores, ld, memory.packed, out, Block::host_depth,
                                      rows, count, !first_block);
        } else {
          for (int i = 0; i < rows; ++i) {
            Acc* const to = out + i * Block::host_depth;
            if (first_block) store<Acc, W>(to, Vec<Acc, W>{});
            multiply_nonzero_row<Acc, W, 1>(memory.scores + i * ld, memory.packed, to, count);
          }
        }
        c += W;
      });
    }
  }
  if (first_block)
    for (int i = 0; i < rows; ++i)
      for (int c = 0; c < cols; ++c) memory.out[i * Block::host_depth + c] = Acc(0);
}

/// Rows [row0, row0 + rows) from beginning to end, rows ≤ host_rows.
template <class Problem>
inline void team_attention_rows(Problem const& x, std::int64_t row0, int rows) {
  using Acc = typename Problem::Acc;
  using Block = TeamAttentionBlock;
  TeamAttentionMemory<Acc> memory;
  int const live = static_cast<int>(clamp_index(x.len_q - row0, 0, rows));
  // More columns than fit are done in parts that compute the scores anew.
  int c0 = 0;
  do {
    int const cols = x.dv - c0 < Block::host_depth ? x.dv - c0 : Block::host_depth;
    for (int i = 0; i < rows; ++i) memory.state[i] = {negative_infinity<Acc>(), Acc(0)};
    if (live > 0) team_attention_sums(x, memory, row0, live, c0, cols);
    for (int i = 0; i < rows; ++i) {
      Acc const sum = memory.state[i].sum;
      bool const empty = sum == Acc(0);
      Acc const factor = empty ? Acc(0) : x.value_scale / sum;
      Acc const* const from = memory.out + i * Block::host_depth;
      int c = 0;
      while (c < cols) {
        with_width<Acc>(cols - c, [&]<int W>() {
          Vec<Acc, W> const v = empty ? Vec<Acc, W>{} : load<Acc, W>(from + c) * factor;
          auto* const to = x.out.at(row0 + i, c0 + c);
          if (x.out.col_stride == 1 && cols - c >= W)
            store<Acc, W>(to, v);
          else
            store_partial<Acc, W>(to, x.out.col_stride, cols - c < W ? cols - c : W, v);
          c += W;
        });
      }
      if (x.lse != nullptr && c0 == 0)
        x.lse[(row0 + i) * x.lse_stride] =
            empty ? negative_infinity<Acc>() : memory.state[i].maximum + Kokkos::log(sum);
    }
    c0 += Block::host_depth;
  } while (c0 < x.dv);
}

/// The whole problem by one thread.
template <class Problem>
inline void team_attention_all(Problem const& x) {
  constexpr int block = TeamAttentionBlock::host_rows;
  for (int row = 0; row < x.rows; row += block)
    team_attention_rows(x, row, x.rows - row < block ? x.rows - row : block);
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
