// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Scores of flash attention in fragments (core/fragments/): what masks, terms and functors make of
/// dot products in registers.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/abi/attention_backward.hpp>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/fragments/shape.hpp>
#include <cstdint>
#include <new>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

KOKKOS_INLINE_FUNCTION abi::AttentionArgs const& forward_args(abi::AttentionArgs const& args) {
  return args;
}
KOKKOS_INLINE_FUNCTION abi::AttentionArgs const& forward_args(
    abi::AttentionBackwardArgs const& args) {
  return args.forward;
}

/// Number of the lane that calls, among those of its team.
template <class F, class Team>
KOKKOS_INLINE_FUNCTION int lane_in_team(Team const& team) {
  return team.team_rank() * F::lanes + (F::lanes > 1 ? lane_of(team, F::lanes) : 0);
}

/// What rows of a tile are, whose columns are the other side of the pairs: queries of a head, those
/// of all heads that share a key head, one head after another, or keys.
enum class RowsOf { head, group, keys };

/// A row of a group: its query, and the number of its head there.
struct GroupRow {
  std::int64_t query, head;
};

/// What one lane makes of its scores.
template <class Shape, class Args, class HeadOfArgs, class Functors, RowsOf Rows = RowsOf::head>
struct FragmentScores {
  static constexpr bool ByKey = Rows == RowsOf::keys, OfGroup = Rows == RowsOf::group;
  using F = typename Shape::Fragments;
  using Head = HeadOfArgs;
  using Acc = typename Head::Acc;
  static constexpr int score_cols = Shape::keys / F::cols;  ///< fragments along columns
  using Scores = typename Shape::Pairs;

  Args args;
  Functors functors;

  KOKKOS_INLINE_FUNCTION abi::AttentionArgs const& g() const { return forward_args(args); }

  /// What a team works on. No rows: nothing.
  struct Work {
    Head const& head;                             ///< of a group, its first
    std::int64_t row0;                            ///< of the tile, in its sequence or group
    int rows = 0, live = 0;                       ///< rows of the tile, and those that have pairs
    std::int64_t begin = 0, last = 0;             ///< columns that any of them sees
    std::int64_t whole_begin = 0, whole_end = 0;  ///< those that all of a whole tile's see
    int thread_row = 0;                           ///< where the thread's rows begin
    int lane = 0, lane_in_team = 0;
    bool terms = false;  ///< whether more than a scale and ranges of columns makes the scores
    /// What a dot product is to be multiplied by before anything else, and a score, after that, to
    /// be natural or a power of two. A positive scale that nothing comes before is one with them.
    Acc scale = Acc(1), natural = Acc(1), binary = Acc(1);
    GroupRow const* group = nullptr;  ///< rows of the tile, if of a group
  };
  /// Scratch for the head, which would take registers that sums need, and what a team says.
  struct OfTeam {
    Head head;
    bool has_nan;  ///< among the sums
  };
  static constexpr int head_size = static_cast<int>((sizeof(OfTeam) + 63) / 64 * 64);

  /// Puts the head of a sequence's queries into `memory`. Nobody reads another one there.
  template <class Team>
  KOKKOS_INLINE_FUNCTION Head const& put_head(Team const& team, QueryRows const& sequence,
                                              std::int64_t head, char* memory) const {
    if (lane_in_team<F>(team) == 0)
      ::new (static_cast<void*>(memory)) OfTeam{Head(args, sequence, head), false};
    team.team_barrier();
    return reinterpret_cast<OfTeam const*>(memory)->head;
  }
  /// Tells the team that behind the next barrier of a NaN among this lane's sums.
  KOKKOS_INLINE_FUNCTION static void tell_nan(typename Shape::Outputs const& out, int lane,
                                              char* memory) {
    bool found = false;
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Shape::features / F::cols; ++j)
      for_each_sum<F>(out[i][j], lane, [&](SumPosition, Acc x) { found = found || x != x; });
    if (found) reinterpret_cast<OfTeam*>(memory)->has_nan = true;
  }
  KOKKOS_INLINE_FUNCTION static bool has_nan(char const* memory) {
    return reinterpret_cast<OfTeam const*>(memory)->has_nan;
  }

  /// Says what makes the scores of a part.
  KOKKOS_INLINE_FUNCTION void set_terms(Work& w) const {
    w.terms = has_terms<Functors>(g());
    if (w.terms || !(w.head.scale > Acc(0)))
      w.scale = w.head.scale;
    else
      w.natural = w.head.scale;
    w.binary = w.natural * Kokkos::numbers::log2e_v<Acc>;
  }
  /// The part of a team at the tile of `head` that begins at `row0`, of `count` rows.
  template <class Team>
  KOKKOS_INLINE_FUNCTION Work work_at(Team const& team, Head const& head, std::int64_t row0,
                                      std::int64_t count) const {
    Work w{head, row0};
    w.rows = static_cast<int>(clamp_index(count - row0, 0, Shape::rows));
    w.thread_row = team.team_rank() * Shape::rows_of_thread;
    w.lane_in_team = lane_in_team<F>(team);
    w.lane = w.lane_in_team % F::lanes;
    set_terms(w);
    std::int64_t const length = ByKey ? head.len_kv : head.len_q;
    w.live = static_cast<int>(clamp_index(length - row0, 0, w.rows));
    if (w.live > 0) {
      w.last = end_of(head, row0 + w.live - 1);
      w.begin = begin_of(head, row0) / Shape::keys * Shape::keys;
      w.whole_begin = begin_of(head, row0 + w.live - 1);
      if (w.live == Shape::rows) w.whole_end = end_of(head, row0);
    }
    return w;
  }
  /// Columns [begin_of(), end_of()) are those that row `row` sees.
  KOKKOS_INLINE_FUNCTION static std::int64_t begin_of(Head const& head, std::int64_t row) {
    return ByKey ? head.first_query(row) : head.first(row);
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t end_of(Head const& head, std::int64_t row) {
    return ByKey ? head.last_query(row) : head.last(row);
  }

  /// Columns [first, first + count) that some row sees; count 0: no more.
  struct Columns {
    std::int64_t first;
    int count;
  };
  /// The first tile from column `from` on, a multiple of its size, that the block mask leaves.
  KOKKOS_INLINE_FUNCTION Columns next_tile(Work const& w, std::int64_t from) const {
    if constexpr (Functors::has_block_mask) {
      if (from < w.last)
        from = first_seen<ByKey>(g(), w.head, w.row0, w.live, from, w.last) / Shape::keys *
               Shape::keys;
    }
    std::int64_t const left = w.last - from;
    if (left > 0) return {from, static_cast<int>(left < Shape::keys ? left : Shape::keys)};
    return {from, 0};
  }
  /// Whether lengths, causal masks and windows leave all pairs of a tile.
  KOKKOS_INLINE_FUNCTION static bool is_whole(Work const& w, Columns const& tile) {
    return tile.first >= w.whole_begin && tile.first + Shape::keys <= w.whole_end;
  }

  /// Where a score lies: row and column in the tile, the lane's fragment and row of it, and its
  /// number among the lane's scores of that fragment of rows.
  struct Place {
    int row, col, i, held, number;
  };
  template <class Each>
  KOKKOS_INLINE_FUNCTION static void for_each_place(Work const& w, Each const& each) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      ATTIKOS_UNROLL_DEVICE
      for (int n = 0; n < score_cols * F::held_sums; ++n) {
        SumPosition const at = F::position_of(w.lane, n % F::held_sums);
        each(Place{w.thread_row + i * F::rows + at.row, n / F::held_sums * F::cols + at.col, i,
                   at.held, n});
      }
    }
  }
  KOKKOS_INLINE_FUNCTION static Acc& at(Scores& scores, Place const& p) {
    return F::at(scores[p.i][p.number / F::held_sums], p.number % F::held_sums);
  }
  template <class Each>
  KOKKOS_INLINE_FUNCTION static void for_each_score(Work const& w, Scores& scores,
                                                    Each const& each) {
    for_each_place(w, [&](Place const& p) { each(p, at(scores, p)); });
  }

  /// The position that a row of the tile has in its sequence, and its query head.
  KOKKOS_INLINE_FUNCTION static std::int64_t index_of(Work const& w, int row) {
    if constexpr (OfGroup)
      return w.group[row].query;
    else
      return w.row0 + row;
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t head_of(Work const& w, int row) {
    if constexpr (OfGroup)
      return w.head.head + w.group[row].head;
    else
      return w.head.head;
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t query_of(Work const& w, Columns const& tile,
                                                      Place const& p) {
    return ByKey ? tile.first + p.col : index_of(w, p.row);
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t key_of(Work const& w, Columns const& tile,
                                                    Place const& p) {
    return ByKey ? w.row0 + p.row : tile.first + p.col;
  }
  /// The same of the tile's first pair.
  KOKKOS_INLINE_FUNCTION static std::int64_t first_query(Work const& w, Columns const& tile) {
    return ByKey ? tile.first : w.row0;
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t first_key(Work const& w, Columns const& tile) {
    return ByKey ? w.row0 : tile.first;
  }
  /// Where pairs lie in a tensor [batch, head, query, key].
  struct PairOffsets {
    std::int64_t first, row, col, head;
    KOKKOS_INLINE_FUNCTION PairOffsets(Work const& w, Columns const& tile,
                                       std::int64_t const (&stride)[4])
        : first(w.head.batch * stride[0] + first_key(w, tile) * stride[3]),
          row(stride[ByKey ? 3 : 2]),
          col(stride[ByKey ? 2 : 3]),
          head(stride[1]) {
      if constexpr (!OfGroup) first += w.head.head * stride[1] + first_query(w, tile) * stride[2];
    }
    KOKKOS_INLINE_FUNCTION std::int64_t operator()(Work const& w, Place const& p) const {
      if constexpr (OfGroup)
        return first + head_of(w, p.row) * head + index_of(w, p.row) * row + p.col * col;
      else
        return first + p.row * row + p.col * col;
    }
  };

  /// Multiplies by what comes before anything else.
  KOKKOS_INLINE_FUNCTION static void scale(Work const& w, Scores& scores) {
    Acc const by = w.scale;
    if (by != Acc(1)) for_each_score(w, scores, [&](Place const&, Acc& x) { x *= by; });
  }

  /// Dot products become scores in parts of Work::natural, and −∞ where a row does not see a key.
  /// What only some calls ask for is asked once for all scores that the lane holds.
  KOKKOS_INLINE_FUNCTION void score(Work const& w, Columns const& tile, Scores& scores) const {
    Head const& head = w.head;
    bool const whole = is_whole(w, tile);
    scale(w, scores);
    if (whole && !w.terms) return;
    Seen seen;
    see_range(w, tile, whole, seen);
    if (w.terms) {
      cap_scores(w, scores);
      add_terms(w, tile, seen, scores);
      exclude(w, tile, seen);
      bool const all = seen.all();
      if constexpr (Functors::has_score)
        for_each_score(w, scores, [&](Place const& p, Acc& x) {
          if (all || seen.has(p))
            x = functors.score(x, head.batch, head_of(w, p.row), query_of(w, tile, p),
                               key_of(w, tile, p));
        });
      if (all) return;
    }
    for_each_score(w, scores,
                   [&](Place const& p, Acc& x) { x = seen.has(p) ? x : negative_infinity<Acc>(); });
  }

  /// Which scores of a lane take part, a bit for each.
  struct Seen {
    static constexpr int count = Shape::keys * F::rows / F::lanes, words = (count + 31) / 32;
    std::uint32_t bits[Shape::fragments_m][words];

    KOKKOS_INLINE_FUNCTION static constexpr std::uint32_t everything(int word) {
      return count - 32 * word >= 32 ? ~0u : (1u << count % 32) - 1;
    }
    KOKKOS_INLINE_FUNCTION void fill(bool all) {
      for (int i = 0; i < Shape::fragments_m; ++i)
        for (int word = 0; word < words; ++word) bits[i][word] = all ? everything(word) : 0;
    }
    KOKKOS_INLINE_FUNCTION bool all() const {
      bool result = true;
      for (int i = 0; i < Shape::fragments_m; ++i)
        for (int word = 0; word < words; ++word)
          result = result && bits[i][word] == everything(word);
      return result;
    }
    KOKKOS_INLINE_FUNCTION bool has(Place const& p) const {
      return (bits[p.i][p.number / 32] >> p.number % 32 & 1u) != 0;
    }
    KOKKOS_INLINE_FUNCTION void add(Place const& p, bool in) {
      bits[p.i][p.number / 32] |= static_cast<std::uint32_t>(in) << p.number % 32;
    }
    KOKKOS_INLINE_FUNCTION void drop(Place const& p, bool out) {
      bits[p.i][p.number / 32] &= ~(static_cast<std::uint32_t>(out) << p.number % 32);
    }
  };

  /// Columns that lengths, causal masks and windows leave to each row.
  KOKKOS_INLINE_FUNCTION void see_range(Work const& w, Columns const& tile, bool whole,
                                        Seen& seen) const {
    seen.fill(whole);
    if (whole) return;
    int low[Shape::fragments_m][F::held_rows], high[Shape::fragments_m][F::held_rows];
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) {
        int const in_tile = w.thread_row + i * F::rows + F::row_of(w.lane, r);
        std::int64_t const row = index_of(w, in_tile);
        low[i][r] =
            static_cast<int>(clamp_index(begin_of(w.head, row) - tile.first, 0, Shape::keys));
        high[i][r] =
            in_tile < w.live
                ? static_cast<int>(clamp_index(end_of(w.head, row) - tile.first, 0, tile.count))
                : 0;
      }
    }
    for_each_place(w, [&](Place const& p) {
      bool const in = p.col >= low[p.i][p.held] && p.col < high[p.i][p.held];
      seen.add(p, in);
    });
  }

  KOKKOS_INLINE_FUNCTION void cap_scores(Work const& w, Scores& scores) const {
    if (g().softcap <= 0) return;
    Acc const cap = static_cast<Acc>(g().softcap);
    for_each_score(w, scores, [&](Place const&, Acc& x) { x = cap * Kokkos::tanh(x / cap); });
  }

  /// What is added to scores: bias and ALiBi.
  KOKKOS_INLINE_FUNCTION void add_terms(Work const& w, Columns const& tile, Seen const& seen,
                                        Scores& scores) const {
    Head const& head = w.head;
    if (g().bias != nullptr) {
      PairOffsets const at_pair(w, tile, g().bias_stride);
      for_each_score(w, scores, [&](Place const& p, Acc& x) {
        if (seen.has(p)) x += load_any<Acc>(g().type_bias, g().bias, at_pair(w, p));
      });
    }
    if (g().alibi == nullptr) return;
    if constexpr (OfGroup) {
      Acc slope[Shape::fragments_m][F::held_rows];
      std::int64_t ahead[Shape::fragments_m][F::held_rows];
      ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) {
        int const row = w.thread_row + i * F::rows + F::row_of(w.lane, r);
        slope[i][r] = slope_of(w, row);
        ahead[i][r] = index_of(w, row) + head.offset - tile.first;
      }
      for_each_score(w, scores, [&](Place const& p, Acc& x) {
        std::int64_t const distance = ahead[p.i][p.held] - p.col;
        x -= slope[p.i][p.held] * static_cast<Acc>(distance < 0 ? -distance : distance);
      });
    } else {
      std::int64_t const ahead = first_query(w, tile) + head.offset - first_key(w, tile);
      for_each_score(w, scores, [&](Place const& p, Acc& x) {
        std::int64_t const distance = ahead + (ByKey ? p.col - p.row : p.row - p.col);
        x -= head.slope * static_cast<Acc>(distance < 0 ? -distance : distance);
      });
    }
  }

  /// The slope of a row's head; 0 past the last row.
  KOKKOS_INLINE_FUNCTION Acc slope_of(Work const& w, int row) const {
    return row < w.rows ? static_cast<Acc>(g().alibi[w.head.batch * g().alibi_stride[0] +
                                                     head_of(w, row) * g().alibi_stride[1]])
                        : Acc(0);
  }

  /// Pairs that masks, weights of 0 and the block mask leave out.
  KOKKOS_INLINE_FUNCTION void exclude(Work const& w, Columns const& tile, Seen& seen) const {
    Head const& head = w.head;
    if (g().mask != nullptr) {
      PairOffsets const at_pair(w, tile, g().mask_stride);
      for_each_place(w, [&](Place const& p) {
        if (seen.has(p)) seen.drop(p, g().mask[at_pair(w, p)] == 0);
      });
    }
    if constexpr (Functors::has_weight) {
      for_each_place(w, [&](Place const& p) {
        if (seen.has(p))
          seen.drop(p, functors.weight(head.batch, head_of(w, p.row), query_of(w, tile, p),
                                       key_of(w, tile, p)) == 0);
      });
    }
    if constexpr (Functors::has_block_mask) exclude_blocks(w, tile, seen);
  }

  KOKKOS_INLINE_FUNCTION void exclude_blocks(Work const& w, Columns const& tile, Seen& seen) const {
    constexpr int along_rows = ByKey ? 1 : 0, along_cols = 1 - along_rows;
    Head const& head = w.head;
    MaskBlocks const blocks(g(), head);
    std::int64_t const first_row = blocks.tile(along_rows, w.row0),
                       last_row = blocks.tile(along_rows, w.row0 + w.live - 1),
                       first_col = blocks.tile(along_cols, tile.first),
                       last_col = blocks.tile(along_cols, tile.first + tile.count - 1);
    if ((last_row - first_row + 1) * (last_col - first_col + 1) > 16) {  // each pair for itself
      for_each_place(w, [&](Place const& p) {
        if (seen.has(p))
          seen.drop(p,
                    !sees_in_blocks(g(), functors, head, query_of(w, tile, p), key_of(w, tile, p)));
      });
      return;
    }
    for (std::int64_t a = first_row; a <= last_row; ++a)
      for (std::int64_t b = first_col; b <= last_col; ++b) {
        BlockKind const kind = ByKey ? blocks.kind(b, a) : blocks.kind(a, b);
        if (kind == BlockKind::full) continue;
        int const row = start(a, blocks.size[along_rows], w.row0);
        int const col = start(b, blocks.size[along_cols], tile.first);
        int const row_end = stop(a, blocks.size[along_rows], w.row0, w.live);
        int const col_end = stop(b, blocks.size[along_cols], tile.first, tile.count);
        for_each_place(w, [&](Place const& p) {
          if (p.row >= row && p.row < row_end && p.col >= col && p.col < col_end && seen.has(p))
            seen.drop(p, kind == BlockKind::empty ||
                             !functors.predicate(head.batch, head.head, query_of(w, tile, p),
                                                 key_of(w, tile, p)));
        });
      }
  }
  /// Where tile `index` of the block mask begins and ends among `count` positions from `origin` on.
  KOKKOS_INLINE_FUNCTION static int start(std::int64_t index, std::int64_t size,
                                          std::int64_t origin) {
    return index * size <= origin ? 0 : static_cast<int>(index * size - origin);
  }
  KOKKOS_INLINE_FUNCTION static int stop(std::int64_t index, std::int64_t size, std::int64_t origin,
                                         int count) {
    // Compared so that a tile of any size may end past the largest number.
    return origin + count - index * size <= size ? count
                                                 : static_cast<int>((index + 1) * size - origin);
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
