// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Scores of flash attention in fragments (core/fragments/): what masks, terms and functors make of
/// dot products in registers.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/core/fragments/fragments.hpp>
#include <attikos/core/fragments/unroll.hpp>
#include <cstdint>
#include <new>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A team's part: threads, fragments of each along its query rows, keys at a time, and features of
/// a head, rounded up. Registers are to suffice for so many teams on a multiprocessor.
template <class F, int Threads, int FragmentsM, int Keys, int Features, int TeamsAtOnce>
struct AttentionShape {
  using Fragments = F;
  static constexpr int threads = Threads, fragments_m = FragmentsM;
  static constexpr int keys = Keys, features = Features, teams_at_once = TeamsAtOnce;
  static constexpr int rows_of_thread = FragmentsM * F::rows;
  static constexpr int rows = Threads * rows_of_thread, lanes = Threads * F::lanes;
  static constexpr int pitch = Features + F::pad_k;  ///< of rows in scratch
  static_assert(Keys % F::cols == 0 && Keys % F::depth == 0);
  static_assert(Features % F::cols == 0 && Features % F::depth == 0);
};

/// What one lane makes of its scores.
template <class Shape, class T, class Out, class Functors>
struct FragmentScores {
  using F = typename Shape::Fragments;
  using Acc = AttentionAccumulator<T>;
  using Head = AttentionHead<T, Out>;
  static constexpr int score_cols = Shape::keys / F::cols;  ///< fragments along keys
  using Scores = typename F::Sums[Shape::fragments_m][score_cols];

  abi::AttentionArgs g;
  Functors functors;

  /// What a team works on. No rows: nothing.
  struct Work {
    Head const& head;
    std::int64_t row0;         ///< of the tile, in its sequence
    int rows, live;            ///< rows of the tile, and those that see keys
    std::int64_t begin, last;  ///< keys that any of them sees
    int thread_row, lane, index;
    bool terms;
  };
  /// Scratch for the head, which would take registers that sums need.
  static constexpr int head_size = static_cast<int>((sizeof(Head) + 63) / 64 * 64);

  /// What a team works on in slot `slot` of `group`. The head goes to `memory`.
  template <class Team>
  KOKKOS_INLINE_FUNCTION Work work_of(Team const& team, std::int64_t group, std::int64_t slot,
                                      char* memory) const {
    QueryTile const where = locate_tile(g, group, slot, Shape::rows);
    int const lane = F::lanes > 1 ? lane_of(team, F::lanes) : 0;
    int const index = team.team_rank() * F::lanes + lane;
    if (index == 0) ::new (static_cast<void*>(memory)) Head(g, where.sequence, group % g.heads_q);
    team.team_barrier();
    Head const& head = *reinterpret_cast<Head const*>(memory);
    Work w{head,
           where.row0,
           0,
           0,
           0,
           0,
           team.team_rank() * Shape::rows_of_thread,
           lane,
           index,
           has_terms<Functors>(g)};
    w.rows = static_cast<int>(clamp_index(head.rows - w.row0, 0, Shape::rows));
    w.live = static_cast<int>(clamp_index(head.len_q - w.row0, 0, w.rows));
    w.last = w.live > 0 ? head.last(w.row0 + w.live - 1) : 0;
    w.begin = w.live > 0 ? head.first(w.row0) / Shape::keys * Shape::keys : 0;
    return w;
  }

  /// Keys [first, first + count) that some row sees; count 0: no more.
  struct KeyTile {
    std::int64_t first;
    int count;
  };

  /// Where a score lies: row and key in the tile, the lane's fragment and row of it, and its number
  /// among the lane's scores of that fragment of rows.
  struct Place {
    int row, key, i, held, number;
  };
  template <class Each>
  KOKKOS_INLINE_FUNCTION static void for_each_score(Work const& w, Scores& scores,
                                                    Each const& each) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      int number = 0;
      ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < score_cols; ++j)
        F::for_each(scores[i][j], w.lane, [&](int row, int col, Acc& x, int held) {
          each(Place{w.thread_row + i * F::rows + row, j * F::cols + col, i, held, number++}, x);
        });
    }
  }

  /// Dot products become scores, times log2(e), and −∞ where a row does not see a key. What only
  /// some calls ask for is asked once for all scores that the lane holds.
  KOKKOS_INLINE_FUNCTION void score(Work const& w, KeyTile const& tile, Scores& scores) const {
    constexpr Acc log2_e = Kokkos::numbers::log2e_v<Acc>;
    Head const& head = w.head;
    bool const whole = tile.count == Shape::keys && head.last(w.row0) - tile.first >= Shape::keys &&
                       head.first(w.row0 + w.live - 1) <= tile.first && w.live == Shape::rows;
    if (whole && !w.terms) {
      Acc const scale = head.scale * log2_e;
      for_each_score(w, scores, [&](Place const&, Acc& x) { x *= scale; });
      return;
    }
    Seen seen;
    see_range(w, tile, whole, seen, scores);
    Acc const scale = w.terms ? head.scale : head.scale * log2_e;
    for_each_score(w, scores, [&](Place const&, Acc& x) { x *= scale; });
    if (w.terms) {
      add_terms(w, tile, seen, scores);
      exclude(w, tile, seen, scores);
      bool const all = seen.all();
      for_each_score(w, scores, [&](Place const& p, Acc& x) {
        if constexpr (Functors::has_score)
          if (all || seen.has(p))
            x = functors.score(x, head.batch, head.head, w.row0 + p.row, tile.first + p.key);
        x *= log2_e;
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

  /// Keys that lengths, causal masks and windows leave to each row.
  KOKKOS_INLINE_FUNCTION void see_range(Work const& w, KeyTile const& tile, bool whole, Seen& seen,
                                        Scores& scores) const {
    seen.fill(whole);
    if (whole) return;
    int low[Shape::fragments_m][F::held_rows], high[Shape::fragments_m][F::held_rows];
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) {
        int const in_tile = w.thread_row + i * F::rows + F::row_of(w.lane, r);
        std::int64_t const row = w.row0 + in_tile;
        low[i][r] = static_cast<int>(clamp_index(w.head.first(row) - tile.first, 0, Shape::keys));
        high[i][r] =
            in_tile < w.live
                ? static_cast<int>(clamp_index(w.head.last(row) - tile.first, 0, tile.count))
                : 0;
      }
    }
    for_each_score(w, scores, [&](Place const& p, Acc&) {
      bool const in = p.key >= low[p.i][p.held] && p.key < high[p.i][p.held];
      seen.add(p, in);
    });
  }

  /// Everything that a score may be made of but the functor.
  KOKKOS_INLINE_FUNCTION void add_terms(Work const& w, KeyTile const& tile, Seen const& seen,
                                        Scores& scores) const {
    Head const& head = w.head;
    if (g.softcap > 0) {
      Acc const cap = static_cast<Acc>(g.softcap);
      for_each_score(w, scores, [&](Place const&, Acc& x) { x = cap * Kokkos::tanh(x / cap); });
    }
    if (g.bias != nullptr) {
      std::int64_t const first = head.batch * g.bias_stride[0] + head.head * g.bias_stride[1] +
                                 w.row0 * g.bias_stride[2] + tile.first * g.bias_stride[3];
      for_each_score(w, scores, [&](Place const& p, Acc& x) {
        if (seen.has(p))
          x += load_any<Acc>(g.type_bias, g.bias,
                             first + p.row * g.bias_stride[2] + p.key * g.bias_stride[3]);
      });
    }
    if (g.alibi != nullptr) {
      std::int64_t const ahead = w.row0 + head.offset - tile.first;
      for_each_score(w, scores, [&](Place const& p, Acc& x) {
        std::int64_t const distance = ahead + (p.row - p.key);
        x -= head.slope * static_cast<Acc>(distance < 0 ? -distance : distance);
      });
    }
  }

  /// Pairs that masks, weights of 0 and the block mask leave out.
  KOKKOS_INLINE_FUNCTION void exclude(Work const& w, KeyTile const& tile, Seen& seen,
                                      Scores& scores) const {
    Head const& head = w.head;
    if (g.mask != nullptr) {
      auto const* const mask = g.mask + head.batch * g.mask_stride[0] +
                               head.head * g.mask_stride[1] + w.row0 * g.mask_stride[2] +
                               tile.first * g.mask_stride[3];
      for_each_score(w, scores, [&](Place const& p, Acc&) {
        if (seen.has(p))
          seen.drop(p, mask[p.row * g.mask_stride[2] + p.key * g.mask_stride[3]] == 0);
      });
    }
    if constexpr (Functors::has_weight) {
      for_each_score(w, scores, [&](Place const& p, Acc&) {
        if (seen.has(p))
          seen.drop(
              p, functors.weight(head.batch, head.head, w.row0 + p.row, tile.first + p.key) == 0);
      });
    }
    if constexpr (Functors::has_block_mask) {
      MaskBlocks const blocks(g, head);
      std::int64_t const end = tile.first + tile.count;
      for (std::int64_t a = blocks.tile(0, w.row0); a <= blocks.tile(0, w.row0 + w.live - 1); ++a)
        for (std::int64_t b = blocks.tile(1, tile.first); b <= blocks.tile(1, end - 1); ++b) {
          BlockKind const kind = blocks.kind(a, b);
          if (kind == BlockKind::full) continue;
          int const row = start(a, blocks.size[0], w.row0),
                    key = start(b, blocks.size[1], tile.first);
          int const row_end = stop(a, blocks.size[0], w.row0, w.live);
          int const key_end = stop(b, blocks.size[1], tile.first, tile.count);
          for_each_score(w, scores, [&](Place const& p, Acc&) {
            if (p.row >= row && p.row < row_end && p.key >= key && p.key < key_end && seen.has(p))
              seen.drop(p, kind == BlockKind::empty ||
                               !functors.predicate(head.batch, head.head, w.row0 + p.row,
                                                   tile.first + p.key));
          });
        }
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
