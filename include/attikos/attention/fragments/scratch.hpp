// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention on a device in fragments of any kind (core/fragments/), for heads of any size:
/// scores stay in registers, where masks and functors see them, and weights go by way of scratch.
///
/// T. Dao, "FlashAttention-2", arXiv:2307.08691.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/fragments/rows.hpp>
#include <attikos/core/fragments/multiply.hpp>
#include <attikos/core/fragments/slice_stage.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body. Queries, keys and values come into scratch in steps, one ahead of what multiplies
/// them. A team has one slice of the values' features: more than registers have sums for are
/// several teams', each of which computes the scores.
template <class Exec, class Shape, class T, class Out, class Functors>
struct AttentionByScratch : FragmentRows<Exec, Shape, T, Out, Functors> {
  using Base = FragmentRows<Exec, Shape, T, Out, Functors>;
  using Base::g, Base::next_tile, Base::score_cols;
  using typename Base::Acc, typename Base::F, typename Base::Columns, typename Base::Outputs;
  using typename Base::PerRow, typename Base::Scores, typename Base::Team, typename Base::Work;
  using Element = typename F::Element;
  static_assert(std::is_same_v<Element, Acc>);
  static constexpr int depth = 64 / static_cast<int>(sizeof(Element));  ///< of a step
  using Queries = SliceStage<F, T, Shape::rows, depth>;
  using Keys = SliceStage<F, T, Shape::keys, depth>;
  using Values = RowStage<Element, T, Shape::features, Shape::features + F::pad_mn>;
  static_assert(Shape::keys % depth == 0);

  Queries stage_q;
  Keys stage_k;
  Values stage_v;
  std::int64_t tiles_q;

  static constexpr FactorPlace place_v{1, Shape::features + F::pad_mn};
  static constexpr FactorPlace place_w = F::reads_k_major ? FactorPlace{Shape::keys + F::pad_k, 1}
                                                          : FactorPlace{1, Shape::rows + F::pad_mn};
  static constexpr int weights_size =
      F::reads_k_major ? Shape::rows * place_w.mn : Shape::keys * place_w.k;
  static constexpr int step_size = [] {
    int const scores = Queries::size + Keys::size, values = depth * place_v.k;
    return scores > values ? scores : values;
  }();
  static constexpr int scratch_size = [] {
    int const attend = (weights_size + 2 * step_size) * static_cast<int>(sizeof(Element));
    return Base::head_size + (Base::finish_size > attend ? Base::finish_size : attend);
  }();

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
    char* const rest = memory + Base::head_size;
    if (first.count > 0)
      attend(team, w, first, col0, reinterpret_cast<Element*>(rest), out, maximum, sum);
    Base::finish(team, w, reinterpret_cast<Acc*>(rest), out, maximum, sum, col0);
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
        to, StridedRows<T>{head.q.at(w.row0, c0), head.q.row_stride}, w.live, left, w.index);
    if (head.pages == nullptr)
      stage_k.template copy<Shape::lanes>(
          to + Queries::size, StridedRows<T>{head.k.at(tile.first, c0), head.k.row_stride},
          tile.count, left, w.index);
    else
      stage_k.template copy<Shape::lanes>(
          to + Queries::size,
          [&](int n) { return head.key(tile.first + n) + c0 * head.k.col_stride; }, tile.count,
          left, w.index);
    commit_copies();
  }
  /// Values of keys from n0 on in the tile.
  KOKKOS_INLINE_FUNCTION void copy_values(Work const& w, Columns const& tile, int n0,
                                          std::int64_t col0, Element* to) const {
    AttentionHead<T, Out> const& head = w.head;
    int const cols = static_cast<int>(clamp_index(g().head_dim_v - col0, 0, Shape::features));
    if (head.pages == nullptr)
      stage_v.template copy<depth, Shape::lanes>(
          to, StridedRows<T>{head.v.at(tile.first + n0, col0), head.v.row_stride}, tile.count - n0,
          cols, w.index);
    else
      stage_v.template copy<depth, Shape::lanes>(
          to, [&](int n) { return head.value(tile.first + n0 + n) + col0 * head.v.col_stride; },
          tile.count - n0, cols, w.index);
    commit_copies();
  }

  KOKKOS_INLINE_FUNCTION void attend(Team const& team, Work const& w, Columns tile,
                                     std::int64_t col0, Element* memory, Outputs& out,
                                     PerRow& maximum, PerRow& sum) const {
    Element* const weights = memory + w.thread_row * place_w.mn;
    Element* now = memory + weights_size;  // what is multiplied next
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
      ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < score_cols; ++j)
        F::store_left(scores[i][j], weights + i * F::rows * place_w.mn + j * F::cols * place_w.k,
                      place_w, w.lane);
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
