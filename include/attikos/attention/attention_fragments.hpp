// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention on a device in fragments (core/fragments/): scores stay in registers, where
/// masks and functors see them, and become the left factor of the product with the values.
///
/// T. Dao, "FlashAttention-2", arXiv:2307.08691.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/attention_dot_blocks.hpp>
#include <attikos/attention/attention_fragments_scores.hpp>
#include <attikos/attention/attention_store.hpp>
#include <attikos/core/fragments/row_stage.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/rows/lanes.hpp>
#include <string>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body: one team computes one tile of query rows of one head.
template <class Exec, class Shape, class T, class Out, class Functors>
struct AttentionFragments : FragmentScores<Shape, T, Out, Functors> {
  using Base = FragmentScores<Shape, T, Out, Functors>;
  using Base::functors, Base::g, Base::for_each_score, Base::score_cols;
  using typename Base::Acc, typename Base::F, typename Base::Head, typename Base::KeyTile;
  using typename Base::Place, typename Base::Scores, typename Base::Work;
  using Element = typename F::Element;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<Shape::lanes, Shape::teams_at_once>>;
  using Team = typename Policy::member_type;
  using Rows = RowStage<Element, T, Shape::features, Shape::pitch>;
  static_assert(std::is_same_v<Acc, typename F::Sum> && F::sums_make_left);
  static constexpr int steps = Shape::features / F::depth;    ///< of a score's product
  static constexpr int out_cols = Shape::features / F::cols;  ///< and of out along features
  static constexpr int blocks_of_left = F::depth / F::cols;
  static_assert(F::depth % F::cols == 0);

  using Queries = typename F::Left[Shape::fragments_m][steps];
  using Outputs = typename F::Sums[Shape::fragments_m][out_cols];
  using PerRow = Acc[Shape::fragments_m][F::held_rows];

  Rows stage_q, stage_k, stage_v;
  std::int64_t tiles_q;

  static constexpr int tile_size = Shape::keys * Shape::pitch;
  static constexpr int ldo = Shape::features + 4;
  static constexpr int scratch_size = [] {
    int const queries = Shape::rows * Shape::pitch * static_cast<int>(sizeof(Element));
    int const keys = 2 * tile_size * static_cast<int>(sizeof(Element));
    int const out = Shape::rows * (ldo + 2) * static_cast<int>(sizeof(Acc));
    int const most = queries > keys ? queries : keys;
    return out > most ? out : most;
  }();

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const groups = query_groups(g), group = team.league_rank() % groups;
    // Late tiles of a causal problem see the most keys: they go first.
    QueryTile const where =
        locate_tile(g, group, tiles_q - 1 - team.league_rank() / groups, Shape::rows);
    Work w{Head(g, where.sequence, group % g.heads_q), where.row0, 0, 0, 0, 0, 0, 0, 0, false};
    Head const& head = w.head;
    if (w.row0 >= head.rows) return;  // a slot that no packed sequence needs
    w.rows = static_cast<int>(clamp_index(head.rows - w.row0, 0, Shape::rows));
    w.live = static_cast<int>(clamp_index(head.len_q - w.row0, 0, w.rows));
    w.last = w.live > 0 ? head.last(w.row0 + w.live - 1) : 0;
    w.begin = w.live > 0 ? head.first(w.row0) / Shape::keys * Shape::keys : 0;
    w.lane = F::lanes > 1 ? lane_of(team, F::lanes) : 0;
    w.index = team.team_rank() * F::lanes + w.lane;
    w.thread_row = team.team_rank() * Shape::rows_of_thread;
    w.terms = has_terms<Functors>(g);

    char* const memory = scratch<char>(team, 0, scratch_size);
    Outputs out = {};
    PerRow maximum, sum;
    for (int i = 0; i < Shape::fragments_m; ++i)
      for (int r = 0; r < F::held_rows; ++r) {
        maximum[i][r] = negative_infinity<Acc>();
        sum[i][r] = Acc(0);
      }
    KeyTile const first = next_tile(w, w.begin);
    if (first.count > 0)
      attend(team, w, first, reinterpret_cast<Element*>(memory), out, maximum, sum);
    finish(team, w, reinterpret_cast<Acc*>(memory), out, maximum, sum);
  }

  /// The first tile from key `from` on, a multiple of its size, that the block mask leaves.
  KOKKOS_INLINE_FUNCTION KeyTile next_tile(Work const& w, std::int64_t from) const {
    if constexpr (Functors::has_block_mask) {
      if (from < w.last)
        from =
            first_seen<false>(g, w.head, w.row0, w.live, from, w.last) / Shape::keys * Shape::keys;
    }
    std::int64_t const left = w.last - from;
    if (left > 0) return {from, static_cast<int>(left < Shape::keys ? left : Shape::keys)};
    return {from, 0};
  }

  KOKKOS_INLINE_FUNCTION void copy_keys(Work const& w, KeyTile const& tile, Element* to) const {
    int const features = static_cast<int>(g.head_dim);
    if (w.head.pages == nullptr)
      stage_k.template copy<Shape::keys, Shape::lanes>(
          to, StridedRows<T>{w.head.k.at(tile.first, 0), w.head.k.row_stride}, tile.count, features,
          w.index);
    else
      stage_k.template copy<Shape::keys, Shape::lanes>(
          to, [&](int n) { return w.head.key(tile.first + n); }, tile.count, features, w.index);
    commit_copies();
  }
  KOKKOS_INLINE_FUNCTION void copy_values(Work const& w, KeyTile const& tile, Element* to) const {
    int const features = static_cast<int>(g.head_dim_v);
    if (w.head.pages == nullptr)
      stage_v.template copy<Shape::keys, Shape::lanes>(
          to, StridedRows<T>{w.head.v.at(tile.first, 0), w.head.v.row_stride}, tile.count, features,
          w.index);
    else
      stage_v.template copy<Shape::keys, Shape::lanes>(
          to, [&](int n) { return w.head.value(tile.first + n); }, tile.count, features, w.index);
    commit_copies();
  }

  /// Goes through the keys. Those of the next tile come while values are multiplied, values while
  /// scores are.
  KOKKOS_INLINE_FUNCTION void attend(Team const& team, Work const& w, KeyTile tile, Element* memory,
                                     Outputs& out, PerRow& maximum, PerRow& sum) const {
    constexpr FactorPlace by_feature{Shape::pitch, 1}, by_key{1, Shape::pitch};
    Element* const keys = memory;
    Element* const values = memory + tile_size;
    stage_q.template copy<Shape::rows, Shape::lanes>(
        memory, [&](int n) { return w.head.q.at(w.row0 + n, 0); }, w.live,
        static_cast<int>(g.head_dim), w.index);
    commit_copies();
    wait_for_copies<0>();
    team.team_barrier();
    Queries queries;
    Element const* const own =
        memory + w.thread_row * Shape::pitch + F::left_offset(by_feature, w.lane);
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int s = 0; s < steps; ++s)
      F::load_left(queries[i][s], own + i * F::rows * Shape::pitch + s * F::depth, by_feature);
    team.team_barrier();

    Element const* const lane_keys = keys + F::right_offset(by_feature, w.lane);
    Element const* const lane_values = values + F::right_offset(by_key, w.lane);
    copy_keys(w, tile, keys);
    while (tile.count > 0) {
      wait_for_copies<0>();
      team.team_barrier();  // keys are there, and nobody needs the values before
      copy_values(w, tile, values);
      Scores scores = {};
      ATTIKOS_UNROLL_DEVICE
      for (int s = 0; s < steps; ++s) ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < score_cols; ++j) {
        typename F::Right right;
        F::load_right(right, lane_keys + j * F::cols * Shape::pitch + s * F::depth, by_feature);
        ATTIKOS_UNROLL_DEVICE
        for (int i = 0; i < Shape::fragments_m; ++i)
          F::multiply_add(scores[i][j], queries[i][s], right);
      }
      Base::score(w, tile, scores);
      add_weights(w, tile, scores, out, maximum, sum);
      KeyTile const next = next_tile(w, tile.first + Shape::keys);
      wait_for_copies<0>();
      team.team_barrier();  // values are there, and nobody needs the keys
      if (next.count > 0) copy_keys(w, next, keys);
      ATTIKOS_UNROLL_DEVICE
      for (int k = 0; k < Shape::keys / F::depth; ++k) {
        typename F::Left left[Shape::fragments_m];
        ATTIKOS_UNROLL_DEVICE
        for (int i = 0; i < Shape::fragments_m; ++i) {
          typename F::Sums block[blocks_of_left];
          ATTIKOS_UNROLL_DEVICE
          for (int b = 0; b < blocks_of_left; ++b) block[b] = scores[i][k * blocks_of_left + b];
          F::left_of(left[i], block);
        }
        ATTIKOS_UNROLL_DEVICE
        for (int j = 0; j < out_cols; ++j) {
          typename F::Right right;
          F::load_right(right, lane_values + k * F::depth * Shape::pitch + j * F::cols, by_key);
          ATTIKOS_UNROLL_DEVICE
          for (int i = 0; i < Shape::fragments_m; ++i) F::multiply_add(out[i][j], left[i], right);
        }
      }
      tile = next;
    }
  }

  /// Scores become weights, and the sums so far follow the largest score.
  KOKKOS_INLINE_FUNCTION void add_weights(Work const& w, KeyTile const& tile, Scores& scores,
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
        shift[i][r] = now == negative_infinity<Acc>() ? Acc(0) : now;
        factor[i][r] = now == maximum[i][r] ? Acc(1) : quick_exp2(maximum[i][r] - shift[i][r]);
        maximum[i][r] = now;
      }
    }
    for_each_score(w, scores, [&](Place const& p, Acc& x) {
      x = quick_exp2(x - shift[p.i][p.held]);
      if constexpr (Functors::has_weight) {
        if (x != Acc(0))
          x *= static_cast<Acc>(
              functors.weight(w.head.batch, w.head.head, w.row0 + p.row, tile.first + p.key));
      }
      total[p.i][p.held] += x;
    });
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      F::template join_rows<AddNumbers>(total[i]);
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) sum[i][r] = sum[i][r] * factor[i][r] + total[i][r];
      ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < out_cols; ++j)
        F::for_each(out[i][j], w.lane, [&](int, int, Acc& x, int r) { x *= factor[i][r]; });
    }
    (void)tile;
  }

  KOKKOS_INLINE_FUNCTION void finish(Team const& team, Work const& w, Acc* memory,
                                     Outputs const& out, PerRow const& maximum,
                                     PerRow const& sum) const {
    SoftmaxState<Acc> state{};
    state.out = memory;
    state.ldo = ldo;
    state.maximum = memory + Shape::rows * ldo;
    state.sum = state.maximum + Shape::rows;
    team.team_barrier();
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      int const row0 = w.thread_row + i * F::rows;
      ATTIKOS_UNROLL_DEVICE
      for (int j = 0; j < out_cols; ++j)
        F::for_each(out[i][j], w.lane, [&](int row, int col, Acc x, int) {
          state.out[(row0 + row) * ldo + j * F::cols + col] = x;
        });
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) {  // lanes that share a row write the same
        int const row = row0 + F::row_of(w.lane, r);
        state.maximum[row] = maximum[i][r] * Kokkos::numbers::ln2_v<Acc>;
        state.sum[row] = row < w.live ? sum[i][r] : Acc(0);
      }
    }
    team.team_barrier();
    repair(team, w, state);
    team.team_barrier();
    store_attention_rows<Traits>(team, g, w.head, w.row0, w.rows, state);
  }

  /// Sums rows of out that hold a NaN again, key by key: a product of matrices multiplies the value
  /// of an excluded key by 0, and so makes a NaN of one that is infinite or NaN itself. A NaN among
  /// the scores is the row's own.
  KOKKOS_INLINE_FUNCTION void repair(Team const& team, Work const& w,
                                     SoftmaxState<Acc> const& state) const {
    int const cols = static_cast<int>(g.head_dim_v);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, w.live), [&](int i) {
      if (state.sum[i] != state.sum[i]) return;
      int broken = 0;
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, cols),
          [&](int c, int& count) {
            Acc const x = state.out[i * ldo + c];
            count += x != x ? 1 : 0;
          },
          broken);
      if (broken == 0) return;
      std::int64_t const row = w.row0 + i;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int c) {
        Acc total = Acc(0);
        for (std::int64_t j = w.head.first(row); j < w.head.last(row); ++j) {
          Acc const x = weight_again(w.head, row, j, state.maximum[i]);
          if (x != Acc(0))
            total += x * element_value<Acc>(w.head.value(j)[c * w.head.v.col_stride]);
        }
        state.out[i * ldo + c] = total;
      });
    });
  }
  /// A pair's weight from its score; 0 where it is excluded.
  KOKKOS_INLINE_FUNCTION Acc weight_again(Head const& head, std::int64_t row, std::int64_t j,
                                          Acc maximum) const {
    Acc dot = Acc(0);
    for (int c = 0; c < g.head_dim; ++c)
      dot += element_value<Acc>(*head.q.at(row, c)) *
             element_value<Acc>(head.key(j)[c * head.k.col_stride]);
    Acc const score = pair_score(g, functors, head, row, j, dot);
    if (score == negative_infinity<Acc>()) return Acc(0);
    Acc x = quick_exp(score - maximum);
    if constexpr (Functors::has_weight)
      x *= static_cast<Acc>(functors.weight(head.batch, head.head, row, j));
    return x;
  }
};

/// Type in which fragments multiply what is stored as T.
template <class T>
using AttentionFactor =
    std::conditional_t<std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>, float16,
                       T>;

/// Whether a device has fragments for attention on T. Weights are rounded to the type of factors,
/// which a result of 16 bits allows. What a functor multiplies them by may be of any size, of which
/// float16 holds too little.
template <class Exec, class T, class Out, class Functors>
inline constexpr bool has_attention_fragments = [] {
  using Factor = AttentionFactor<T>;
  constexpr bool holds_weights = !(Functors::has_weight && std::is_same_v<Factor, float16>);
  if constexpr (multiplies_in_fragments<Exec> && sizeof(Out) == 2 && holds_weights &&
                has_matrix_instructions<Exec, Factor>)
    return FragmentsFor<Exec, Factor>::sums_make_left;
  else
    return false;
}();

/// Whether the kernel has registers for the features of a head.
inline bool takes_attention_fragments(abi::AttentionArgs const& g) {
  return g.head_dim <= 128 && g.head_dim_v <= 128;
}

/// Shapes for heads of up to 64 features, and of more: what they hold in registers is the same.
template <class F>
struct AttentionShapes {
  using Narrow = AttentionShape<F, 4, 1, 64, 64, 3>;
  using Wide = AttentionShape<F, 4, 1, 64, 128, 3>;
};

template <class Shape, class T, class Out, class Exec, class Functors>
void launch_attention_fragments(Exec const& exec, abi::AttentionArgs const& g,
                                Functors const& functors) {
  using Kernel = AttentionFragments<Exec, Shape, T, Out, Functors>;
  using Rows = typename Kernel::Rows;
  auto const rows = [](void const* data, std::int64_t const(&stride)[4]) {
    return Rows(data, stride[3], {stride[0], stride[1], stride[2]});
  };
  std::int64_t const tiles_q = query_tiles(g, Shape::rows);
  Kernel const kernel{
      {g, functors}, rows(g.q, g.q_stride), rows(g.k, g.k_stride), rows(g.v, g.v_stride), tiles_q};
  typename Kernel::Policy policy(exec, checked_league("attention", tiles_q * query_groups(g)),
                                 Shape::threads, Shape::Fragments::lanes);
  policy.set_scratch_size(
      0, Kokkos::PerTeam(static_cast<int>(scratch_bytes<char>(Kernel::scratch_size))));
  launch("attention", portable_name(AttentionAlgorithm::flash), policy, kernel);
}

/// By what the portable flash kernel multiplies, by name; empty: by arithmetic that all have.
template <class Exec, class T, class Out, class Functors>
std::string attention_forward_instructions(abi::AttentionArgs const& g) {
  if constexpr (has_attention_fragments<Exec, T, Out, Functors>) {
    if (takes_attention_fragments(g)) return FragmentsFor<Exec, AttentionFactor<T>>::name;
  }
  return attention_instructions<Exec, T, Functors>(g);
}

/// Launches attention that fragments take. Asynchronous on `exec`.
template <class T, class Out, class Exec, class Functors>
void attention_fragments(Exec const& exec, abi::AttentionArgs const& g, Functors const& functors) {
  using Shapes = AttentionShapes<FragmentsFor<Exec, AttentionFactor<T>>>;
  if (g.head_dim <= 64 && g.head_dim_v <= 64)
    launch_attention_fragments<typename Shapes::Narrow, T, Out>(exec, g, functors);
  else
    launch_attention_fragments<typename Shapes::Wide, T, Out>(exec, g, functors);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
