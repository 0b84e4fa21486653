// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention on a device in fragments of any kind (core/fragments/), for heads of any size:
/// scores stay in registers, where masks and functors see them, and weights go by way of scratch.
///
/// T. Dao, "FlashAttention-2", arXiv:2307.08691.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/fragments/rows.hpp>
#include <attikos/core/fragments/multiply.hpp>
#include <attikos/core/fragments/slice_stage.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body. Queries, keys and values come into scratch in steps, one ahead of what multiplies
/// them. Weights are rounded to the type of factors. A team has one slice of the values' features:
/// more than registers have sums for are several teams', each of which computes the scores.
template <class Exec, class Shape, class T, class Out, class Functors>
struct AttentionByScratch : FragmentRows<Exec, Shape, T, Out, Functors> {
  using Base = FragmentRows<Exec, Shape, T, Out, Functors>;
  using Base::g, Base::next_tile;
  using typename Base::Acc, typename Base::F, typename Base::Columns, typename Base::Outputs;
  using typename Base::PerRow, typename Base::Scores, typename Base::Team, typename Base::Work;
  using Element = typename F::Element;
  static constexpr int depth = 64 / static_cast<int>(sizeof(Element));  ///< of a step
  using Queries = SliceStage<F, T, Shape::rows, depth>;
  using Keys = SliceStage<F, T, Shape::keys, depth>;
  using Values = RowStage<Element, T, Shape::features, Shape::summed_place.k>;
  static_assert(Shape::keys % depth == 0);

  Queries stage_q;
  Keys stage_k;
  Values stage_v;
  std::int64_t tiles_q;

  static constexpr FactorPlace place_v = Shape::summed_place, place_w = Shape::pairs_place;
  static constexpr int step_size = std::max(Queries::size + Keys::size, depth* place_v.k);
  static constexpr int scratch_size =
      Base::head_size + std::max(Base::finish_size, (Shape::pairs_size + 2 * step_size) *
                                                        static_cast<int>(sizeof(Element)));

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    // Teams that share keys come one after the other. Late tiles of a causal problem see the most
    // keys: they go first.
    std::int64_t const slices = feature_slices(g()), groups = query_groups(g()) * slices;
    std::int64_t const in_groups = team.league_rank() % groups;
    char* const memory = scratch<char>(team, 0, scratch_size);
    Work const w =
        Base::work_of(team, in_groups / slices, tiles_q - 1 - team.league_rank() / groups, memory);
    if (w.rows == 0) return;  // a slot that no packed sequence needs
    std::int64_t const col0 = in_groups % slices * Shape::features;
    Outputs out = {};
    PerRow maximum, sum;
    Base::start(maximum, sum);
    Columns const first = next_tile(w, w.begin);
    if (first.count > 0)
      attend(team, w, first, col0, reinterpret_cast<Element*>(memory + Base::head_size), out,
             maximum, sum);
    Base::finish(team, w, memory, out, maximum, sum, col0);
  }

  /// Teams for a tile of queries, at least one.
  KOKKOS_INLINE_FUNCTION static std::int64_t feature_slices(abi::AttentionArgs const& g) {
    return g.head_dim_v <= Shape::features ? 1
                                           : (g.head_dim_v + Shape::features - 1) / Shape::features;
  }

  /// Features from c0 on of queries and keys.
  KOKKOS_INLINE_FUNCTION void copy_slices(Work const& w, Columns const& tile, int c0,
                                          Element* to) const {
    AttentionHead<T, Out> const& head = w.head;
    int const left = static_cast<int>(g().head_dim) - c0;
    stage_q.template copy<Shape::lanes>(
        to, StridedRows<T>{head.q.at(w.row0, c0), head.q.row_stride}, w.live, left, w.lane_in_team);
    typename Base::template Source<false> const keys(head);
    keys(tile.first, c0, [&](auto const& rows) {
      stage_k.template copy<Shape::lanes>(to + Queries::size, rows, tile.count, left,
                                          w.lane_in_team);
    });
    commit_copies();
  }
  /// Values of keys from n0 on in the tile.
  KOKKOS_INLINE_FUNCTION void copy_values(Work const& w, Columns const& tile, int n0,
                                          std::int64_t col0, Element* to) const {
    int const cols = static_cast<int>(clamp_index(g().head_dim_v - col0, 0, Shape::features));
    typename Base::template Source<true> const values(w.head);
    values(tile.first + n0, col0, [&](auto const& rows) {
      stage_v.template copy<depth, Shape::lanes>(to, rows, tile.count - n0, cols, w.lane_in_team);
    });
    commit_copies();
  }

  KOKKOS_INLINE_FUNCTION void attend(Team const& team, Work const& w, Columns tile,
                                     std::int64_t col0, Element* memory, Outputs& out,
                                     PerRow& maximum, PerRow& sum) const {
    Element* const weights = memory + w.thread_row * place_w.mn;
    Element* now = memory + Shape::pairs_size;  // what is multiplied next
    Element* then = now + step_size;
    Element const* const lane_weights = weights + F::left_offset(place_w, w.lane);
    int const lane_q = F::left_offset(Queries::place, w.lane) + w.thread_row * Queries::place.mn;
    int const lane_k = Queries::size + F::right_offset(Keys::place, w.lane);
    int const lane_v = F::right_offset(place_v, w.lane);
    auto const turn = [&] {
      Element* const other = now;
      now = then;
      then = other;
    };
    int const features = g().head_dim > 0 ? static_cast<int>(g().head_dim) : 1;
    copy_slices(w, tile, 0, now);
    while (tile.count > 0) {
      Scores scores = {};
      for (int c0 = 0; c0 < features; c0 += depth) {
        wait_for_copies<0>();
        team.team_barrier();  // also: nobody reads what is staged into now
        if (c0 + depth < features)
          copy_slices(w, tile, c0 + depth, then);
        else
          copy_values(w, tile, 0, col0, then);
        multiply_staged<F, depth>(now + lane_q, Queries::place, now + lane_k, Keys::place, scores);
        turn();
      }
      Base::score(w, tile, scores);
      Base::add_weights(w, tile, scores, out, maximum, sum);
      Shape::store_pairs(scores, weights, w.lane);
      Columns const next = next_tile(w, tile.first + Shape::keys);
      for (int n0 = 0; n0 < tile.count; n0 += depth) {
        wait_for_copies<0>();
        team.team_barrier();
        if (n0 + depth < tile.count)
          copy_values(w, tile, n0 + depth, col0, then);
        else if (next.count > 0)
          copy_slices(w, next, 0, then);
        multiply_staged<F, depth>(lane_weights + n0 * place_w.k, place_w, now + lane_v, place_v,
                                  out);
        turn();
      }
      tile = next;
    }
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
