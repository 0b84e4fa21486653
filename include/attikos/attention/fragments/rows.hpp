// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a team of flash attention keeps of its query rows in fragments (core/fragments/): sums of
/// values, the largest score, the sum of weights; and what becomes of them.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_store.hpp>
#include <attikos/attention/fragments/repair.hpp>
#include <attikos/attention/fragments/scores.hpp>
#include <attikos/core/fragments/row_stage.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/rows/lanes.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Rows of keys or values in pages, from key `first` and feature c0 on.
template <class Head, bool OfValues>
struct PagedRows {
  Head const* head;
  std::int64_t first, c0;
  KOKKOS_INLINE_FUNCTION auto const* operator()(int n) const {
    return OfValues ? head->value(first + n) + c0 * head->v.col_stride
                    : head->key(first + n) + c0 * head->k.col_stride;
  }
};

/// Base of kernel bodies: one team computes one tile of query rows, of one head or of a group.
template <class Exec, class TileShape, class T, class Out, class Functors,
          RowsOf Rows = RowsOf::head>
struct FragmentRows
    : FragmentScores<TileShape, abi::AttentionArgs, AttentionHead<T, Out>, Functors, Rows> {
  using Shape = TileShape;
  using Base = FragmentScores<Shape, abi::AttentionArgs, AttentionHead<T, Out>, Functors, Rows>;
  using Base::functors, Base::g, Base::for_each_score;
  using typename Base::Acc, typename Base::F, typename Base::Columns, typename Base::Place;
  using typename Base::Scores, typename Base::Work;
  using Head = typename Base::Head;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<Shape::lanes, Shape::teams_at_once>>;
  using Team = typename Policy::member_type;
  static_assert(std::is_same_v<Acc, typename F::Sum>);

  static constexpr int out_cols = Shape::features / F::cols;  ///< fragments of out along features
  using Outputs = typename Shape::Outputs;
  using PerRow = Acc[Shape::fragments_m][F::held_rows];

  /// Bytes that finish() needs: rows of out, their largest scores and their sums.
  static constexpr int finish_size =
      (Shape::finish_size + 2 * Shape::rows) * static_cast<int>(sizeof(Acc));

  KOKKOS_INLINE_FUNCTION static void start(PerRow& maximum, PerRow& sum) {
    for (int i = 0; i < Shape::fragments_m; ++i)
      for (int r = 0; r < F::held_rows; ++r) {
        maximum[i][r] = negative_infinity<Acc>();
        sum[i][r] = Acc(0);
      }
  }

  /// What a team works on in slot `slot` of `group`. The head goes to `memory`.
  KOKKOS_INLINE_FUNCTION Work work_of(Team const& team, std::int64_t group, std::int64_t slot,
                                      char* memory) const {
    QueryTile const where = locate_tile(g(), group, slot, Shape::rows);
    auto const& head = Base::put_head(team, where.sequence, group % g().heads_q, memory);
    return Base::work_at(team, head, where.row0, head.rows);
  }

  /// Scores become weights, and the sums so far follow the largest score. A lane's `sum` is of its
  /// own weights.
  KOKKOS_INLINE_FUNCTION void add_weights(Work const& w, Columns const& tile, Scores& scores,
                                          Outputs& out, PerRow& maximum, PerRow& sum) const {
    PerRow shift, factor, total;
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int r = 0; r < F::held_rows; ++r) {
      shift[i][r] = negative_infinity<Acc>();
      total[i][r] = Acc(0);
    }
    // A NaN score never is the largest, and comes out of the exponential.
    for_each_score(w, scores, [&](Place const& p, Acc x) {
      shift[p.i][p.held] = Kokkos::fmax(shift[p.i][p.held], x);
    });
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      F::template join_rows<LargerNumber>(shift[i]);
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) {
        Acc const now = Kokkos::fmax(maximum[i][r], shift[i][r]);
        // No finite score yet: every weight is e^(-inf) = 0.
        shift[i][r] = now == negative_infinity<Acc>() ? Acc(0) : now * w.binary;
        factor[i][r] = now == maximum[i][r]
                           ? Acc(1)
                           : quick_exp2(Kokkos::fma(maximum[i][r], w.binary, -shift[i][r]));
        maximum[i][r] = now;
      }
    }
    for_each_score(w, scores, [&](Place const& p, Acc& x) {
      x = quick_exp2(Kokkos::fma(x, w.binary, -shift[p.i][p.held]));
      if constexpr (Functors::has_weight) {
        if (x != Acc(0))
          x *= static_cast<Acc>(functors.weight(w.head.batch, Base::head_of(w, p.row),
                                                Base::index_of(w, p.row), tile.first + p.col));
      }
      total[p.i][p.held] += x;
    });
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) sum[i][r] = sum[i][r] * factor[i][r] + total[i][r];
      ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < out_cols; ++j)
        for_each_sum<F>(out[i][j], w.lane,
                        [&](SumPosition at, Acc& x) { x *= factor[i][at.held]; });
    }
    (void)tile;
  }

  /// Where keys lie, or values: what each tile asks of the head, kept in registers.
  template <bool OfValues>
  struct Source {
    Head const& head;
    Block<T const> block;
    bool paged;

    KOKKOS_INLINE_FUNCTION explicit Source(Head const& h)
        : head(h), block(OfValues ? h.v : h.k), paged(h.pages != nullptr) {}

    /// Calls copy(rows), in which rows(n) is where feature c0 of key first + n begins.
    template <class Copy>
    KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t c0,
                                           Copy const& copy) const {
      if (paged)
        copy(PagedRows<Head, OfValues>{&head, first, c0});
      else
        copy(StridedRows<T>{block.at(first, c0), block.row_stride});
    }
  };

  /// Writes, by way of what lies behind the head in `memory`, columns [col0, col0 + features) of
  /// out, and the rows' log-sum-exp with the first.
  KOKKOS_INLINE_FUNCTION void finish(Team const& team, Work const& w, char* memory,
                                     Outputs const& out, PerRow const& maximum, PerRow& sum,
                                     std::int64_t col0) const {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) F::template join_rows<AddNumbers>(sum[i]);
    Base::tell_nan(out, w.lane, memory);
    SoftmaxState<Acc> state{};
    state.out = reinterpret_cast<Acc*>(memory + Base::head_size);
    state.ldo = Shape::finish_pitch;
    state.maximum = state.out + Shape::finish_size;
    state.sum = state.maximum + Shape::rows;
    for (int first = 0; first < Shape::features; first += Shape::finish_features) {
      std::int64_t const left = g().head_dim_v - col0 - first;
      if (left <= 0 && first + col0 > 0) return;
      team.team_barrier();
      Shape::put_outputs(out, first, state.out + w.thread_row * state.ldo, w.lane);
      ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < Shape::fragments_m; ++i) {
        ATTIKOS_UNROLL_DEVICE
        for (int r = 0; r < F::held_rows; ++r) {  // lanes that share a row write the same
          int const row = w.thread_row + i * F::rows + F::row_of(w.lane, r);
          state.maximum[row] = maximum[i][r] * w.natural;
          state.sum[row] = row < w.live ? sum[i][r] : Acc(0);
        }
      }
      team.team_barrier();
      int const cols = static_cast<int>(clamp_index(left, 0, Shape::finish_features));
      if (Base::has_nan(memory))
        repair_rows(team, g(), functors, w.live, state, col0 + first, cols, [&](int i) {
          std::int64_t const row = w.row0 + i;
          return RepairedRow<Head const&>{w.head, row, w.head.first(row), w.head.last(row)};
        });
      team.team_barrier();
      store_attention_rows<Traits>(team, g(), w.head, w.row0, w.rows, state, col0 + first, cols);
    }
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
