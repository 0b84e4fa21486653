// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Few queries against one stretch of a long cache on a device, in fragments (core/fragments/): the
/// threads of a team walk through keys of their own and join what they have at the end.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/fragments/rows.hpp>
#include <attikos/core/fragments/fragments_few_rows.hpp>
#include <attikos/core/fragments/multiply.hpp>
#include <attikos/core/fragments/slice_stage.hpp>
#include <attikos/decode/decode_tiles.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A team of decoding. Each thread has all `F::rows` rows of the tile, and tiles of 32 keys. Keys
/// come in steps of 128 bytes of their features, values in steps of 4 KiB, a step ahead of what
/// multiplies them. So many steps of queries' features stay in scratch.
template <class F, int Threads, int Features, int QuerySteps, int TeamsAtOnce>
struct DecodeShape : AttentionShape<F, Threads, 1, 32, Features, TeamsAtOnce> {
  static constexpr int size = static_cast<int>(sizeof(typename F::Element));
  static constexpr int steps_ahead = 2, query_steps = QuerySteps;
  static constexpr int key_features = 128 / size;
  static constexpr int value_features = std::min(Features, 128), value_keys = 32 / size;
  static_assert(value_keys % F::depth == 0 && 32 % value_keys == 0);
  static_assert(QuerySteps >= Threads, "queries that do not stay take a step for each thread");
};

/// Queries of the rows of a group.
template <class T>
struct GroupQueries {
  T const* data;
  GroupRow const* group;
  std::int64_t head_stride, query_stride;
  KOKKOS_INLINE_FUNCTION T const* operator()(int n) const {
    return data + group[n].head * head_stride + group[n].query * query_stride;
  }
};

/// Kernel body. Writes partial states; weights are rounded to the type of factors. A team has one
/// slice of the values' features, as of AttentionByScratch.
template <class Exec, class TileShape, class T, class Out, class Functors>
struct DecodeFragments : FragmentRows<Exec, TileShape, T, Out, Functors, RowsOf::group> {
  using Base = FragmentRows<Exec, TileShape, T, Out, Functors, RowsOf::group>;
  using Shape = TileShape;
  using Base::functors, Base::g, Base::next_tile;
  using typename Base::Acc, typename Base::F, typename Base::Columns, typename Base::Head;
  using typename Base::Outputs, typename Base::PerRow, typename Base::Scores, typename Base::Team;
  using typename Base::Work;
  using Element = typename F::Element;
  static constexpr int rows = F::rows, lanes = F::lanes;
  static constexpr int depth = Shape::key_features;
  static constexpr FactorPlace place_k{depth + F::pad_k, 1};
  static constexpr FactorPlace place_v{1, Shape::value_features + F::pad_mn};
  static constexpr FactorPlace place_w = Shape::pairs_place;
  using Features = RowStage<Element, T, depth, place_k.mn>;  ///< of queries and keys
  using Values = RowStage<Element, T, Shape::value_features, place_v.k>;
  static_assert(F::reads_k_major);

  Features stage_q, stage_k;
  Values stage_v;
  DecodePlan plan;
  std::int64_t row_tiles;  ///< as decode_row_tiles() counts them
  Acc* partial_out;
  Acc* partial_lse;

  static constexpr int step_size = std::max(Shape::keys * place_k.mn, Shape::value_keys* place_v.k);
  static constexpr int queries_size = rows * place_k.mn;  ///< of a step
  static constexpr int weights_size = F::sums_make_left ? 0 : rows * place_w.mn;
  static constexpr int thread_size = weights_size + Shape::steps_ahead * step_size;
  /// The head and the rows of the group.
  static constexpr int front_size = Base::head_size + rows * static_cast<int>(sizeof(GroupRow));
  static constexpr int scratch_size =
      front_size + std::max(Base::finish_size,
                            (Shape::query_steps * queries_size + Shape::threads * thread_size) *
                                static_cast<int>(sizeof(Element)));

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    char* const memory = scratch<char>(team, 0, scratch_size);
    // Teams that share keys come one after the other.
    int rest = team.league_rank();
    auto const next_of = [&](std::int64_t count) {
      int const size = static_cast<int>(count), index = rest % size;
      rest /= size;
      return std::int64_t{index};
    };
    std::int64_t const col0 = next_of(feature_slices(g())) * Shape::features;
    std::int64_t const slot = next_of(row_tiles), split = next_of(plan.splits);
    std::int64_t const first_head = next_of(g().heads_kv) * (g().heads_q / g().heads_kv);
    DecodeRows const at = locate_decode_rows(g(), rest, slot, rows);
    if (at.rows == 0) return;  // a slot that no packed sequence needs
    PartialRows const state_row(g(), at, split, rest, first_head);
    if (at.sequence.batch < 0) return state_row.leave_empty(team, partial_lse);
    auto* const group = reinterpret_cast<GroupRow*>(memory + Base::head_size);
    for (int r = lane_in_team<F>(team); r < rows; r += Shape::lanes) group[r] = at.row(r);
    Head const& head = Base::put_head(team, at.sequence, first_head, memory);
    Work const w = work_of(team, at, head, split, group);
    if (w.begin >= w.last) return state_row.leave_empty(team, partial_lse);
    Outputs out = {};
    PerRow maximum, sum;
    Base::start(maximum, sum);
    attend(team, w, col0, reinterpret_cast<Element*>(memory + front_size), out, maximum, sum);
    finish(team, w, memory, out, maximum, sum, col0, state_row.first);
  }

  /// Teams for a tile of rows, at least one.
  KOKKOS_INLINE_FUNCTION static std::int64_t feature_slices(abi::AttentionArgs const& g) {
    return g.head_dim_v <= Shape::features ? 1
                                           : (g.head_dim_v + Shape::features - 1) / Shape::features;
  }

  /// The part of a team at the keys of a split.
  KOKKOS_INLINE_FUNCTION Work work_of(Team const& team, DecodeRows const& at, Head const& head,
                                      std::int64_t split, GroupRow const* group) const {
    Work w{head, at.row0};
    w.group = group;
    w.rows = w.live = at.rows;
    w.lane_in_team = lane_in_team<F>(team);
    w.lane = w.lane_in_team % lanes;
    Base::set_terms(w);
    DecodeQueries const queries(group[0], group[at.rows - 1], at.sequence.rows, head.len_q);
    w.begin = w.last = split * plan.chunk;
    if (queries.low <= queries.highest) {
      std::int64_t const first = head.first(queries.low) / Shape::keys * Shape::keys;
      w.last = clamp_index(head.last(queries.highest), w.begin, w.begin + plan.chunk);
      if (first > w.begin) w.begin = first;
      w.whole_begin = head.first(queries.highest);
      // Rows that the tile does not have see nothing: terms would be read for heads beyond the
      // last.
      bool const has_all = w.live == Shape::rows || !w.terms;
      w.whole_end = has_all && queries.high < head.len_q ? head.last(queries.low) : 0;
    }
    return w;
  }

  /// What comes into scratch in one step: features of keys from c0 on, or values of keys from n0 on
  /// in the tile and their features from c0 on. No keys: nothing.
  struct Step {
    Columns tile;
    bool of_values;
    int n0, c0;
  };
  KOKKOS_INLINE_FUNCTION int key_features() const {
    return g().head_dim > 0 ? static_cast<int>(g().head_dim) : 1;
  }
  KOKKOS_INLINE_FUNCTION int value_features(std::int64_t col0) const {
    return static_cast<int>(clamp_index(g().head_dim_v - col0, 1, Shape::features));
  }
  KOKKOS_INLINE_FUNCTION Step behind(Work const& w, Step const& s, std::int64_t col0) const {
    Step next = s;
    if (!s.of_values) {
      next.c0 += depth;
      if (next.c0 < key_features()) return next;
      next.of_values = true;
      next.c0 = next.n0 = 0;
      return next;
    }
    next.c0 += Shape::value_features;
    if (next.c0 < value_features(col0)) return next;
    next.c0 = 0;
    next.n0 += Shape::value_keys;
    if (next.n0 < s.tile.count) return next;
    return {next_tile(w, s.tile.first + Shape::threads * Shape::keys), false, 0, 0};
  }

  /// Copies `Rows` rows of keys or values from key `first` on, `count` of which exist, and their
  /// features from c0 on, `cols` of them.
  template <bool OfValues, int Rows, class Stage>
  KOKKOS_INLINE_FUNCTION void copy_rows(Work const& w, Stage const& stage, Element* to,
                                        std::int64_t first, int count, std::int64_t c0,
                                        int cols) const {
    Head const& head = w.head;
    if (head.pages != nullptr)
      return copy_pages<OfValues, Rows>(stage, to, &head, first, count, c0, cols, w.lane);
    Block<T const> const& block = OfValues ? head.v : head.k;
    stage.template copy<Rows, lanes>(to, StridedRows<T>{block.at(first, c0), block.row_stride},
                                     count, cols, w.lane);
  }
  /// A function of its own for what copy_any() is one. Pages of 16 keys and multiples of it hold
  /// stretches of 16 whole.
  template <bool OfValues, int Rows, class Stage>
  ATTIKOS_DO_NOT_INLINE_DEVICE static KOKKOS_FUNCTION void copy_pages(Stage stage, Element* to,
                                                                      Head const* head,
                                                                      std::int64_t first, int count,
                                                                      std::int64_t c0, int cols,
                                                                      int lane) {
    constexpr int stretch = Rows < 16 ? Rows : 16, stretches = Rows / stretch;
    Block<T const> const& block = OfValues ? head->v : head->k;
    T const* from[stretches];  // null: its rows lie in several pages, or are not all there
    ATTIKOS_UNROLL_DEVICE
    for (int n = 0; n < stretches; ++n) {
      auto const place = head->page_place(first + n * stretch);
      from[n] = nullptr;
      if ((n + 1) * stretch <= count && place.row + stretch <= head->page_size)
        from[n] = head->at(block, OfValues ? head->v_page_stride : head->k_page_stride, place) +
                  c0 * block.col_stride;
    }
    ATTIKOS_UNROLL_DEVICE
    for (int n = 0; n < stretches; ++n) {
      Element* const at = to + n * stretch * Stage::pitch;
      int const left = count - n * stretch;
      if (from[n] != nullptr)
        stage.template copy<stretch, lanes>(at, StridedRows<T>{from[n], block.row_stride}, left,
                                            cols, lane);
      else
        stage.template copy<stretch, lanes>(
            at, PagedRows<Head, OfValues>{head, first + n * stretch, c0}, left, cols, lane);
    }
  }
  KOKKOS_INLINE_FUNCTION void copy(Work const& w, Step const& s, std::int64_t col0,
                                   Element* to) const {
    if (s.tile.count > 0 && !s.of_values)
      copy_rows<false, Shape::keys>(w, stage_k, to, s.tile.first, s.tile.count, s.c0,
                                    static_cast<int>(g().head_dim) - s.c0);
    else if (s.tile.count > 0)
      copy_rows<true, Shape::value_keys>(
          w, stage_v, to, s.tile.first + s.n0, s.tile.count - s.n0, col0 + s.c0,
          static_cast<int>(clamp_index(g().head_dim_v - col0 - s.c0, 0, Shape::value_features)));
    commit_copies();
  }
  /// A step of the queries' features, by `Threads` lanes.
  template <int Threads>
  KOKKOS_INLINE_FUNCTION void copy_queries(Work const& w, int c0, Element* to, int lane) const {
    Block<T const> const& q = w.head.q;
    stage_q.template copy<rows, Threads>(
        to, GroupQueries<T>{q.at(0, c0), w.group, g().q_stride[1], q.row_stride}, w.rows,
        static_cast<int>(g().head_dim) - c0, lane);
    commit_copies();
  }

  /// Goes through the thread's keys.
  KOKKOS_INLINE_FUNCTION void attend(Team const& team, Work const& w, std::int64_t col0,
                                     Element* memory, Outputs& out, PerRow& maximum,
                                     PerRow& sum) const {
    Element* const weights =
        memory + Shape::query_steps * queries_size + team.team_rank() * thread_size;
    Element* place = weights + weights_size;
    Element* const place_end = place + Shape::steps_ahead * step_size;
    bool const queries_stay = key_features() <= Shape::query_steps * depth;
    Element* const queries = memory + (queries_stay ? 0 : team.team_rank() * queries_size);
    if (queries_stay) {
      for (int c0 = 0; c0 < key_features(); c0 += depth)
        copy_queries<Shape::lanes>(w, c0, queries + c0 / depth * queries_size, w.lane_in_team);
    }
    Step step{next_tile(w, w.begin + team.team_rank() * Shape::keys), false, 0, 0}, ahead = step;
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (Element* to = place; to < place_end; to += step_size) {
      copy(w, ahead, col0, to);
      ahead = behind(w, ahead, col0);
    }
    wait_for_copies<Shape::steps_ahead>();  // queries
    team.team_barrier();
    Scores scores = {};
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    while (step.tile.count > 0) {
      if (!step.of_values && !queries_stay) {
        copy_queries<lanes>(w, step.c0, queries, w.lane);
        wait_for_copies<0>();
      }
      if (step.of_values && step.n0 + step.c0 == 0) {
        Base::score(w, step.tile, scores);
        Base::add_weights(w, step.tile, scores, out, maximum, sum);
        if constexpr (!F::sums_make_left) Shape::store_pairs(scores, weights, w.lane);
      }
      wait_for_copies<Shape::steps_ahead - 1>();
      lane_barrier();
      if (step.of_values) {
        add_values(w, step, scores, weights, place, out);
      } else {
        if (step.c0 == 0) scores_become_zero(scores);
        multiply_staged<F, depth>(queries + (queries_stay ? step.c0 / depth * queries_size : 0) +
                                      F::left_offset(place_k, w.lane),
                                  place_k, place + F::right_offset(place_k, w.lane), place_k,
                                  scores);
      }
      lane_barrier();
      copy(w, ahead, col0, place);
      ahead = behind(w, ahead, col0);
      step = behind(w, step, col0);
      place = place + step_size == place_end ? weights + weights_size : place + step_size;
    }
    wait_for_copies<0>();
  }
  KOKKOS_INLINE_FUNCTION static void scores_become_zero(Scores& scores) {
    ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Base::score_cols; ++j) scores[0][j] = typename F::Sums{};
  }

  /// The product of a step's values with their weights.
  KOKKOS_INLINE_FUNCTION void add_values(Work const& w, Step const& step, Scores const& scores,
                                         Element const* weights, Element const* values,
                                         Outputs& out) const {
    constexpr int fragments = Shape::value_features / F::cols;
    values += F::right_offset(place_v, w.lane);
    ATTIKOS_UNROLL_DEVICE
    for (int s = 0; s < Shape::features / Shape::value_features; ++s) {
      if (step.c0 != s * Shape::value_features) continue;
      auto& sums = part_of<fragments>(out, s);
      if constexpr (F::sums_make_left) {
        constexpr int blocks = Shape::value_keys / F::cols;
        typename F::Sums weights_of_step[1][blocks];
        ATTIKOS_UNROLL_DEVICE
        for (int j = 0; j < Base::score_cols; ++j)
          if (j / blocks * Shape::value_keys == step.n0)
            weights_of_step[0][j % blocks] = scores[0][j];
        multiply_sums<F>(weights_of_step, values, place_v, sums);
      } else {
        multiply_staged<F, Shape::value_keys>(
            weights + F::left_offset(place_w, w.lane) + step.n0 * place_w.k, place_w, values,
            place_v, sums);
      }
    }
    (void)scores;
    (void)weights;
  }
  /// Sums [index · Count, (index + 1) · Count) of a row of fragments.
  template <int Count, int All>
  KOKKOS_INLINE_FUNCTION static auto& part_of(typename F::Sums (&sums)[1][All], int index) {
    return *reinterpret_cast<typename F::Sums(*)[1][Count]>(&sums[0][index * Count]);
  }

  /// Joins the threads' sums in the order of their numbers, and writes columns [col0, col0 +
  /// features) of the split's partial states, with the first their log-sum-exp.
  KOKKOS_INLINE_FUNCTION void finish(Team const& team, Work const& w, char* memory, Outputs& out,
                                     PerRow& maximum, PerRow& sum, std::int64_t col0,
                                     std::int64_t state_row) const {
    SoftmaxState<Acc> state{};
    state.out = reinterpret_cast<Acc*>(memory + front_size);
    state.ldo = Shape::finish_pitch;
    state.maximum = state.out + Shape::finish_size;
    state.sum = state.maximum + Shape::rows;
    int const own = team.team_rank() * rows;
    F::template join_rows<AddNumbers>(sum[0]);
    team.team_barrier();  // all have left what they staged
    ATTIKOS_UNROLL_DEVICE
    for (int r = 0; r < F::held_rows; ++r) {  // lanes that share a row write the same
      state.maximum[own + F::row_of(w.lane, r)] = maximum[0][r];
      state.sum[own + F::row_of(w.lane, r)] = sum[0][r];
    }
    team.team_barrier();
    Acc of_own[F::held_rows];
    ATTIKOS_UNROLL_DEVICE
    for (int r = 0; r < F::held_rows; ++r) {
      Acc const* const maxima = state.maximum + F::row_of(w.lane, r);
      Acc const* const sums = state.sum + F::row_of(w.lane, r);
      Acc largest = maxima[0];
      for (int t = 1; t < Shape::threads; ++t) largest = Kokkos::fmax(largest, maxima[t * rows]);
      auto const factor = [&](Acc x) {
        return x == largest ? Acc(1) : quick_exp2((x - largest) * w.binary);
      };
      Acc total = Acc(0);
      for (int t = 0; t < Shape::threads; ++t) total += sums[t * rows] * factor(maxima[t * rows]);
      of_own[r] = factor(maximum[0][r]);
      maximum[0][r] = largest;
      sum[0][r] = total;
    }
    ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Base::out_cols; ++j)
      for_each_sum<F>(out[0][j], w.lane, [&](SumPosition at, Acc& x) { x *= of_own[at.held]; });
    Base::tell_nan(out, w.lane, memory);
    for (int first = 0; first < Shape::features; first += Shape::finish_features) {
      std::int64_t const left = g().head_dim_v - col0 - first;
      if (left <= 0 && first + col0 > 0) return;
      team.team_barrier();
      Shape::put_outputs(out, first, state.out + own * state.ldo, w.lane);
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) {  // all threads write the same
        int const row = F::row_of(w.lane, r);
        state.maximum[row] = maximum[0][r] * w.natural;
        state.sum[row] = sum[0][r];
      }
      team.team_barrier();
      int const cols = static_cast<int>(clamp_index(left, 0, Shape::finish_features));
      Kokkos::parallel_for(
          Kokkos::TeamVectorRange(team, w.rows * Shape::finish_features), [&](int i) {
            Acc* const x =
                state.out + i / Shape::finish_features * state.ldo + i % Shape::finish_features;
            for (int t = 1; t < Shape::threads; ++t) *x += x[t * rows * state.ldo];
          });
      team.team_barrier();
      if (Base::has_nan(memory)) repair(team, w, state, col0 + first, cols);
      team.team_barrier();
      store_partial_rows(team, w.head.value_scale, partial_out + col0 + first, g().head_dim_v,
                         partial_lse, w.rows, cols, state, [&](int i) {
                           return state_row + w.group[i].head * g().seqlen_q + w.group[i].query;
                         });
    }
  }
  KOKKOS_INLINE_FUNCTION void repair(Team const& team, Work const& w,
                                     SoftmaxState<Acc> const& state, std::int64_t col0,
                                     int cols) const {
    repair_rows(team, g(), functors, w.rows, state, col0, cols, [&](int i) {
      std::int64_t const query = Base::index_of(w, i);
      RepairedRow<Head> row{w.head, query, w.head.first(query), w.head.last(query)};
      row.head.head = Base::head_of(w, i);
      row.head.q.data += (row.head.head - w.head.head) * g().q_stride[1];
      if (g().alibi != nullptr) row.head.slope = Base::slope_of(w, i);
      if (row.first < w.begin) row.first = w.begin;
      if (row.last > w.last) row.last = w.last;
      return row;
    });
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
