// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of attention in fragments of any kind (core/fragments/), for heads of any size:
/// factors come into scratch in steps, and what pairs have goes by way of it.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/fragments/gradient_rows.hpp>
#include <attikos/core/fragments/multiply.hpp>
#include <attikos/core/fragments/slice_stage.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body.
template <class Exec, class Shape, class T, class Functors, GradientOf What>
struct GradientByScratch : GradientRows<Exec, Shape, T, Functors, What> {
  using Base = GradientRows<Exec, Shape, T, Functors, What>;
  using Base::by_key, Base::g, Base::of_value, Base::summed, Base::width;
  using typename Base::Columns, typename Base::Element, typename Base::F, typename Base::Head;
  using typename Base::Results, typename Base::Scores, typename Base::Team, typename Base::Work;
  static constexpr int depth = 64 / static_cast<int>(sizeof(Element));  ///< of a step
  static_assert(Shape::keys % depth == 0);
  using RowSlices = SliceStage<F, T, Shape::rows, depth>;
  using ColumnSlices = SliceStage<F, T, Shape::keys, depth>;
  using Summed = RowStage<Element, T, Shape::features, Shape::summed_place.k>;

  RowSlices stage_first, stage_second;  ///< of rows, for q·k and dout·v
  ColumnSlices stage_first_cols, stage_second_cols;
  Summed stage_summed;
  static constexpr bool copies_summed = true;

  static constexpr FactorPlace place_s = Shape::summed_place, place_p = Shape::pairs_place;
  static constexpr int step_size = std::max(RowSlices::size + ColumnSlices::size, depth* place_s.k);
  static constexpr int scratch_size =
      std::max(Base::finish_size, Base::front_size + (Shape::pairs_size + 2 * step_size) *
                                                         static_cast<int>(sizeof(Element)));

  KOKKOS_INLINE_FUNCTION static std::int64_t slices(abi::AttentionArgs const& g) {
    return (width(g) + Shape::features - 1) / Shape::features;
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    char* const memory = scratch<char>(team, 0, scratch_size);
    Base::compute(team, slices(g()), memory, [&](Work const& w, std::int64_t col0, Results& out) {
      walk(team, w, col0, memory, out);
    });
  }

  /// Features from c0 on.
  KOKKOS_INLINE_FUNCTION void copy_slices(Work const& w, Columns const& tile, bool second, int c0,
                                          Element* to) const {
    Block<T const> const& rows = Base::row_factor(w.head, second);
    Block<T const> const& cols = Base::column_factor(w.head, second);
    int const left = static_cast<int>(second ? g().head_dim_v : g().head_dim) - c0;
    (second ? stage_second : stage_first)
        .template copy<Shape::lanes>(to, StridedRows<T>{rows.at(w.row0, c0), rows.row_stride},
                                     w.live, left, w.lane_in_team);
    (second ? stage_second_cols : stage_first_cols)
        .template copy<Shape::lanes>(to + RowSlices::size,
                                     StridedRows<T>{cols.at(tile.first, c0), cols.row_stride},
                                     tile.count, left, w.lane_in_team);
    commit_copies();
  }
  /// Rows of columns from n0 on in the tile.
  KOKKOS_INLINE_FUNCTION void copy_summed(Work const& w, Columns const& tile, int n0,
                                          std::int64_t col0, Element* to) const {
    Block<T const> const& from = summed(w.head);
    int const cols = static_cast<int>(clamp_index(width(g()) - col0, 0, Shape::features));
    stage_summed.template copy<depth, Shape::lanes>(
        to, StridedRows<T>{from.at(tile.first + n0, col0), from.row_stride}, tile.count - n0, cols,
        w.lane_in_team);
    commit_copies();
  }
  KOKKOS_INLINE_FUNCTION void walk(Team const& team, Work const& w, std::int64_t col0, char* memory,
                                   Results& out) const {
    Columns tile = Base::next_tile(w, w.begin);
    if (tile.count == 0) return;
    Element* const pairs = reinterpret_cast<Element*>(memory + Base::front_size);
    Element* const own_pairs = pairs + w.thread_row * place_p.mn;
    Element* now = pairs + Shape::pairs_size;  // what is multiplied next
    Element* then = now + step_size;
    Element const* const lane_pairs = own_pairs + F::left_offset(place_p, w.lane);
    int const lane_row =
        F::left_offset(RowSlices::place, w.lane) + w.thread_row * RowSlices::place.mn;
    int const lane_col = RowSlices::size + F::right_offset(ColumnSlices::place, w.lane);
    int const lane_s = F::right_offset(place_s, w.lane);
    auto const turn = [&] {
      Element* const other = now;
      now = then;
      then = other;
    };
    int const features = g().head_dim > 0 ? static_cast<int>(g().head_dim) : 1;
    int const features_v = g().head_dim_v > 0 ? static_cast<int>(g().head_dim_v) : 1;
    copy_slices(w, tile, false, 0, now);
    if constexpr (!by_key) Base::load_queries(w, w.row0, w.live, memory);
    while (tile.count > 0) {
      if constexpr (by_key) Base::load_queries(w, tile.first, tile.count, memory);
      Scores dots = {}, changes = {};
      for (int c0 = 0; c0 < features; c0 += depth) {
        wait_for_copies<0>();
        team.team_barrier();  // also: nobody reads what is staged into now
        if (c0 + depth < features)
          copy_slices(w, tile, false, c0 + depth, then);
        else if constexpr (of_value)
          copy_summed(w, tile, 0, col0, then);
        else
          copy_slices(w, tile, true, 0, then);
        multiply_staged<F, depth>(now + lane_row, RowSlices::place, now + lane_col,
                                  ColumnSlices::place, dots);
        turn();
      }
      if constexpr (!of_value) {
        for (int c0 = 0; c0 < features_v; c0 += depth) {
          wait_for_copies<0>();
          team.team_barrier();
          if (c0 + depth < features_v)
            copy_slices(w, tile, true, c0 + depth, then);
          else
            copy_summed(w, tile, 0, col0, then);
          multiply_staged<F, depth>(now + lane_row, RowSlices::place, now + lane_col,
                                    ColumnSlices::place, changes);
          turn();
        }
      }
      Base::differentiate(w, tile, Base::queries_of(memory), col0 == 0, dots, changes);
      if constexpr (Base::scales_rows) Base::scale_rows(w, of_value ? dots : changes, out[0]);
      Shape::store_pairs(of_value ? dots : changes, own_pairs, w.lane);
      Columns const next = Base::next_tile(w, tile.first + Shape::keys);
      for (int n0 = 0; n0 < tile.count; n0 += depth) {
        wait_for_copies<0>();
        team.team_barrier();
        if (n0 + depth < tile.count)
          copy_summed(w, tile, n0 + depth, col0, then);
        else if (next.count > 0)
          copy_slices(w, next, false, 0, then);
        multiply_staged<F, depth>(lane_pairs + n0 * place_p.k, place_p, now + lane_s, place_s,
                                  out[0].of);
        turn();
      }
      tile = next;
    }
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
