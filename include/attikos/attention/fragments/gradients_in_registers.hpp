// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of attention in fragments whose sums become a left factor (core/fragments/): a team's
/// rows stay in registers, and so does what pairs have.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/fragments/gradient_rows.hpp>
#include <attikos/core/fragments/multiply.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body, for heads of up to Shape::features.
template <class Exec, class Shape, class T, class Functors, GradientOf What>
struct GradientInRegisters : GradientRows<Exec, Shape, T, Functors, What> {
  using Base = GradientRows<Exec, Shape, T, Functors, What>;
  using Base::by_key, Base::g, Base::of_value, Base::results;
  using typename Base::Columns, typename Base::Element, typename Base::F, typename Base::Outputs;
  using typename Base::Results, typename Base::Scores, typename Base::Team, typename Base::Work;
  using Rows = RowStage<Element, T, Shape::features, Shape::pitch>;
  static_assert(F::sums_make_left);
  static constexpr bool copies_summed = false;  ///< they are columns that are there already

  Rows stage_first, stage_second;            ///< of rows, for q·k and dout·v
  Rows stage_first_cols, stage_second_cols;  ///< and of columns

  using Factor = typename F::Left[Shape::fragments_m][Shape::features / F::depth];
  static constexpr FactorPlace by_feature{Shape::pitch, 1}, by_column{1, Shape::pitch};
  static constexpr int tile_size = Shape::keys * Shape::pitch;
  /// Two tiles of columns for q·k, one for dout·v. Rows come by way of their place.
  static constexpr int scratch_size = std::max(
      Base::finish_size, Base::front_size + std::max(3 * tile_size, Shape::rows* Shape::pitch) *
                                                static_cast<int>(sizeof(Element)));

  KOKKOS_INLINE_FUNCTION static std::int64_t slices(abi::AttentionArgs const&) { return 1; }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    char* const memory = scratch<char>(team, 0, scratch_size);
    Base::compute(team, 1, memory,
                  [&](Work const& w, std::int64_t, Results& out) { walk(team, w, memory, out); });
  }

  KOKKOS_INLINE_FUNCTION int features(bool second) const {
    return static_cast<int>(second ? g().head_dim_v : g().head_dim);
  }
  KOKKOS_INLINE_FUNCTION void load_rows(Team const& team, Work const& w, bool second,
                                        Element* place, Factor& factor) const {
    auto const& rows = Base::row_factor(w.head, second);
    team.team_barrier();
    (second ? stage_second : stage_first)
        .template copy<Shape::rows, Shape::lanes>(
            place, StridedRows<T>{rows.at(w.row0, 0), rows.row_stride}, w.live, features(second),
            w.lane_in_team);
    commit_copies();
    wait_for_copies<0>();
    team.team_barrier();
    load_held<F>(factor, place + w.thread_row * Shape::pitch + F::left_offset(by_feature, w.lane),
                 by_feature);
  }

  KOKKOS_INLINE_FUNCTION void walk(Team const& team, Work const& w, char* memory,
                                   Results& out) const {
    Columns tile = Base::next_tile(w, w.begin);
    if (tile.count == 0) return;
    Element* now = reinterpret_cast<Element*>(memory + Base::front_size);  // columns for q·k
    Element* then = now + tile_size;
    Element* const other = then + tile_size;  // columns for dout·v
    Factor first;
    [[maybe_unused]] Factor second;
    load_rows(team, w, false, now, first);
    if constexpr (!of_value) load_rows(team, w, true, now, second);
    team.team_barrier();

    Block<T const> const first_cols = Base::column_factor(w.head, false),
                         second_cols = Base::column_factor(w.head, true);
    auto const copy_first = [&](Columns const& from, Element* to) {
      if (from.count > 0)
        stage_first_cols.template copy<Shape::keys, Shape::lanes>(
            to, StridedRows<T>{first_cols.at(from.first, 0), first_cols.row_stride}, from.count,
            features(false), w.lane_in_team);
      commit_copies();
    };
    auto const copy_second = [&](Columns const& from) {
      if (from.count > 0)
        stage_second_cols.template copy<Shape::keys, Shape::lanes>(
            other, StridedRows<T>{second_cols.at(from.first, 0), second_cols.row_stride},
            from.count, features(true), w.lane_in_team);
      commit_copies();
    };
    int const lane_feature = F::right_offset(by_feature, w.lane);
    int const lane_column = F::right_offset(by_column, w.lane);
    copy_first(tile, now);
    copy_second(tile);
    if constexpr (!by_key) Base::load_queries(w, w.row0, w.live, memory);
    while (tile.count > 0) {
      wait_for_copies<1>();
      team.team_barrier();  // columns for q·k are there, and nobody needs those before
      Columns const next = Base::next_tile(w, tile.first + Shape::keys);
      copy_first(next, then);
      if constexpr (by_key) Base::load_queries(w, tile.first, tile.count, memory);
      Scores dots = {}, changes = {};
      multiply_held<F>(first, now + lane_feature, by_feature, dots);
      wait_for_copies<1>();
      team.team_barrier();  // those for dout·v, too
      if constexpr (!of_value) {
        multiply_held<F>(second, other + lane_feature, by_feature, changes);
        if constexpr (results == 1) {
          team.team_barrier();
          copy_second(next);
        }
      }
      Base::differentiate(w, tile, Base::queries_of(memory), true, dots, changes);
      if constexpr (of_value || results > 1) {
        Outputs& of_values = out[results - 1];
        if constexpr (Base::scales_rows) Base::scale_rows(w, dots, of_values);
        multiply_sums<F>(dots, other + lane_column, by_column, of_values.of);
        team.team_barrier();
        copy_second(next);
      }
      if constexpr (!of_value) {
        if constexpr (Base::scales_rows) Base::scale_rows(w, changes, out[0]);
        multiply_sums<F>(changes, now + lane_column, by_column, out[0].of);
      }
      Element* const free = now;
      now = then;
      then = free;
      tile = next;
    }
    wait_for_copies<0>();
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
