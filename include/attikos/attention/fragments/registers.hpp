// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention on a device in fragments whose sums become a left factor (core/fragments/):
/// scores stay in registers, where masks and functors see them, and are the left factor of the
/// product with the values.
///
/// T. Dao, "FlashAttention-2", arXiv:2307.08691.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/fragments/rows.hpp>
#include <attikos/core/fragments/multiply.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body. Weights are rounded to the type of factors.
template <class Exec, class Shape, class T, class Out, class Functors>
struct AttentionInRegisters : FragmentRows<Exec, Shape, T, Out, Functors> {
  using Base = FragmentRows<Exec, Shape, T, Out, Functors>;
  using Base::g, Base::next_tile, Base::out_cols, Base::score_cols;
  using typename Base::Acc, typename Base::F, typename Base::Columns, typename Base::Outputs;
  using typename Base::PerRow, typename Base::Scores, typename Base::Team, typename Base::Work;
  using Element = typename F::Element;
  using Rows = RowStage<Element, T, Shape::features, Shape::pitch>;
  static_assert(F::sums_make_left);
  static constexpr int steps = Shape::features / F::depth;  ///< of a score's product
  using Queries = typename F::Left[Shape::fragments_m][steps];

  Rows stage_q, stage_k, stage_v;
  std::int64_t tiles_q;

  static constexpr int tile_size = Shape::keys * Shape::pitch;
  static constexpr int queries_size = Shape::rows * Shape::pitch;
  static constexpr int scratch_size =
      Base::head_size + std::max(Base::finish_size, std::max(queries_size, 2 * tile_size) *
                                                        static_cast<int>(sizeof(Element)));

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const groups = query_groups(g());
    char* const memory = scratch<char>(team, 0, scratch_size);
    // Late tiles of a causal problem see the most keys: they go first.
    Work const w = Base::work_of(team, team.league_rank() % groups,
                                 tiles_q - 1 - team.league_rank() / groups, memory);
    if (w.rows == 0) return;  // a slot that no packed sequence needs
    Outputs out = {};
    PerRow maximum, sum;
    Base::start(maximum, sum);
    Columns const first = next_tile(w, w.begin);
    if (first.count > 0)
      attend(team, w, first, reinterpret_cast<Element*>(memory + Base::head_size), out, maximum,
             sum);
    Base::finish(team, w, memory, out, maximum, sum, 0);
  }

  /// Goes through the keys. Those of the next tile come while values are multiplied, values while
  /// scores are.
  KOKKOS_INLINE_FUNCTION void attend(Team const& team, Work const& w, Columns tile, Element* memory,
                                     Outputs& out, PerRow& maximum, PerRow& sum) const {
    constexpr FactorPlace by_feature{Shape::pitch, 1}, by_key{1, Shape::pitch};
    Element* const keys = memory;
    Element* const values = keys + tile_size;
    stage_q.template copy<Shape::rows, Shape::lanes>(
        memory, StridedRows<T>{w.head.q.at(w.row0, 0), w.head.q.row_stride}, w.live,
        static_cast<int>(g().head_dim), w.lane_in_team);
    commit_copies();
    wait_for_copies<0>();
    team.team_barrier();
    Queries queries;
    load_held<F>(queries, memory + w.thread_row * Shape::pitch + F::left_offset(by_feature, w.lane),
                 by_feature);
    team.team_barrier();

    Element const* const lane_keys = keys + F::right_offset(by_feature, w.lane);
    Element const* const lane_values = values + F::right_offset(by_key, w.lane);
    typename Base::template Source<false> const source_k(w.head);
    typename Base::template Source<true> const source_v(w.head);
    auto const copy_keys = [&](Columns const& from) {
      source_k(from.first, 0, [&](auto const& rows) {
        stage_k.template copy<Shape::keys, Shape::lanes>(
            keys, rows, from.count, static_cast<int>(g().head_dim), w.lane_in_team);
      });
      commit_copies();
    };
    copy_keys(tile);
    while (tile.count > 0) {
      wait_for_copies<0>();
      team.team_barrier();  // keys are there, and nobody needs the values before
      source_v(tile.first, 0, [&](auto const& rows) {
        stage_v.template copy<Shape::keys, Shape::lanes>(
            values, rows, tile.count, static_cast<int>(g().head_dim_v), w.lane_in_team);
      });
      commit_copies();
      Scores scores = {};
      multiply_held<F>(queries, lane_keys, by_feature, scores);
      Base::score(w, tile, scores);
      Base::add_weights(w, tile, scores, out, maximum, sum);
      Columns const next = next_tile(w, tile.first + Shape::keys);
      wait_for_copies<0>();
      team.team_barrier();  // values are there, and nobody needs the keys
      if (next.count > 0) copy_keys(next);
      multiply_sums<F>(scores, lane_values, by_key, out);
      tile = next;
    }
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
