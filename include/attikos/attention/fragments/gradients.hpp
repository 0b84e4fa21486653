// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of attention on a device in fragments (core/fragments/). Scores are computed anew from
/// q, k and the log-sum-exp. One body serves dq, dk and dv, each of which is a product of what its
/// pairs have, weights or gradients of dot products, with the rows of one tensor.
///
/// T. Dao, "FlashAttention-2", arXiv:2307.08691.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_backward_pairs.hpp>
#include <attikos/attention/fragments/repair.hpp>
#include <attikos/attention/fragments/scores.hpp>
#include <attikos/core/fragments/multiply.hpp>
#include <attikos/core/fragments/slice_stage.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/rows/lanes.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

enum class GradientOf { query, key, value };

/// Kernel body. A team has a tile of rows, queries or keys, and one slice of their features, and
/// walks through the columns, keys or queries; those of keys through all heads of queries that
/// share them. What a pair has is rounded to the type of factors, and goes by way of scratch.
template <class Exec, class TileShape, class T, class Functors, GradientOf What>
struct AttentionGradient : FragmentScores<TileShape, abi::AttentionBackwardArgs, BackwardHead<T>,
                                          Functors, What != GradientOf::query> {
  using Shape = TileShape;
  static constexpr bool by_key = What != GradientOf::query, of_value = What == GradientOf::value;
  using Base = FragmentScores<Shape, abi::AttentionBackwardArgs, BackwardHead<T>, Functors, by_key>;
  using Base::args, Base::functors, Base::g, Base::for_each_score;
  using typename Base::Acc, typename Base::Columns, typename Base::F, typename Base::Head;
  using typename Base::Place, typename Base::Scores, typename Base::Seen, typename Base::Work;
  using Element = typename F::Element;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<Shape::lanes, Shape::teams_at_once>>;
  using Team = typename Policy::member_type;
  static_assert(std::is_same_v<Acc, typename F::Sum>);
  static constexpr int depth = 64 / static_cast<int>(sizeof(Element));  ///< of a step
  static_assert(Shape::keys % depth == 0);
  using RowSlices = SliceStage<F, T, Shape::rows, depth>;
  using ColumnSlices = SliceStage<F, T, Shape::keys, depth>;
  using Summed = RowStage<Element, T, Shape::features, Shape::summed_place.k>;
  using Outputs = typename Shape::Outputs;

  RowSlices stage_q, stage_dout;  ///< or of k and v
  ColumnSlices stage_k, stage_v;  ///< or of q and dout
  Summed stage_summed;
  std::int64_t tiles;
  Acc const* delta;  ///< dout·out of each query

  static constexpr FactorPlace place_s = Shape::summed_place, place_p = Shape::pairs_place;
  static constexpr int step_size = std::max(RowSlices::size + ColumnSlices::size, depth* place_s.k);
  /// Log-sum-exp and delta of a tile's queries.
  static constexpr int queries = by_key ? Shape::keys : Shape::rows;
  static constexpr int queries_size = 2 * queries * static_cast<int>(sizeof(Acc));
  static constexpr int scratch_size =
      Base::head_size + queries_size +
      std::max(Shape::finish_size * static_cast<int>(sizeof(Acc)),
               (Shape::pairs_size + 2 * step_size) * static_cast<int>(sizeof(Element)));

  KOKKOS_INLINE_FUNCTION static std::int64_t groups(abi::AttentionArgs const& g) {
    return by_key ? (g.cu_seqlens_kv.data == nullptr ? g.batch : 1) * g.heads_kv : query_groups(g);
  }
  static std::int64_t row_tiles(abi::AttentionArgs const& g) {
    return by_key ? packed_tiles(packed_keys(g), Shape::rows) : query_tiles(g, Shape::rows);
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t width(abi::AttentionArgs const& g) {
    return of_value ? g.head_dim_v : g.head_dim;
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t slices(abi::AttentionArgs const& g) {
    return (width(g) + Shape::features - 1) / Shape::features;
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const parts = slices(g()), all = groups(g()) * parts;
    std::int64_t const in_groups = team.league_rank() % all;
    std::int64_t const group = in_groups / parts, col0 = in_groups % parts * Shape::features;
    std::int64_t slot = team.league_rank() / all;
    char* const memory = scratch<char>(team, 0, scratch_size);
    Outputs out = {};
    if constexpr (by_key) {
      QueryTile const where =
          g().cu_seqlens_kv.data == nullptr
              ? QueryTile{{group / g().heads_kv, 0, g().seqlen_kv}, slot * Shape::rows}
              : locate_packed_tile(packed_keys(g()), slot, Shape::rows);
      if (where.row0 >= where.sequence.rows) return;  // a slot that no packed sequence needs
      std::int64_t const head_kv = group % g().heads_kv;
      std::int64_t const shared = g().heads_q / g().heads_kv;
      std::int64_t const batch = where.sequence.batch;
      for (std::int64_t n = 0; batch >= 0 && n < shared; ++n) {
        team.team_barrier();
        Head const& head =
            Base::put_head(team, query_rows(g(), batch), head_kv * shared + n, memory);
        walk(team, Base::work_at(team, head, where.row0, where.sequence.rows), col0, memory, out);
      }
      finish(team, where, head_kv, col0, memory, out);
    } else {
      // Late tiles of a causal problem see the most keys: they go first.
      slot = tiles - 1 - slot;
      QueryTile const where = locate_tile(g(), group, slot, Shape::rows);
      if (where.row0 >= where.sequence.rows) return;
      Head const& head = Base::put_head(team, where.sequence, group % g().heads_q, memory);
      walk(team, Base::work_at(team, head, where.row0, head.rows), col0, memory, out);
      finish(team, where, group % g().heads_q, col0, memory, out);
    }
  }

  /// The factors of q·k and dout·v, by rows and by columns, and the rows that are summed up.
  KOKKOS_INLINE_FUNCTION static Block<T const> const& row_factor(Head const& h, bool second) {
    return by_key ? (second ? h.v : h.k) : (second ? h.dout : h.q);
  }
  KOKKOS_INLINE_FUNCTION static Block<T const> const& column_factor(Head const& h, bool second) {
    return by_key ? (second ? h.dout : h.q) : (second ? h.v : h.k);
  }
  KOKKOS_INLINE_FUNCTION static Block<T const> const& summed(Head const& h) {
    return What == GradientOf::query ? h.k : of_value ? h.dout : h.q;
  }

  /// Features from c0 on.
  KOKKOS_INLINE_FUNCTION void copy_slices(Work const& w, Columns const& tile, bool second, int c0,
                                          Element* to) const {
    Block<T const> const& rows = row_factor(w.head, second);
    Block<T const> const& cols = column_factor(w.head, second);
    int const left = static_cast<int>(second ? g().head_dim_v : g().head_dim) - c0;
    (second ? stage_dout : stage_q)
        .template copy<Shape::lanes>(to, StridedRows<T>{rows.at(w.row0, c0), rows.row_stride},
                                     w.live, left, w.lane_in_team);
    (second ? stage_v : stage_k)
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
  KOKKOS_INLINE_FUNCTION void load_queries(Work const& w, std::int64_t i0, int count,
                                           Acc* lse) const {
    for (int i = w.lane_in_team; i < queries; i += Shape::lanes) {
      Acc const sum = i < count ? w.head.lse[(i0 + i) * w.head.lse_stride] : Acc(0);
      // A row without keys: every weight is e^(-inf) = 0.
      lse[i] = sum == negative_infinity<Acc>() ? -sum : sum;
      lse[queries + i] = i < count ? delta[w.head.delta_row + i0 + i] : Acc(0);
    }
  }

  KOKKOS_INLINE_FUNCTION void walk(Team const& team, Work const& w, std::int64_t col0, char* memory,
                                   Outputs& out) const {
    Columns tile = Base::next_tile(w, w.begin);
    if (tile.count == 0) return;
    Acc* const lse = reinterpret_cast<Acc*>(memory + Base::head_size);
    Element* const pairs = reinterpret_cast<Element*>(memory + Base::head_size + queries_size);
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
    if constexpr (!by_key) load_queries(w, w.row0, w.live, lse);
    while (tile.count > 0) {
      if constexpr (by_key) load_queries(w, tile.first, tile.count, lse);
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
      differentiate(w, tile, lse, col0 == 0, dots, changes);
      Shape::store_pairs(of_value ? dots : changes, own_pairs, w.lane);
      Columns const next = Base::next_tile(w, tile.first + Shape::keys);
      for (int n0 = 0; n0 < tile.count; n0 += depth) {
        wait_for_copies<0>();
        team.team_barrier();
        if (n0 + depth < tile.count)
          copy_summed(w, tile, n0 + depth, col0, then);
        else if (next.count > 0)
          copy_slices(w, next, false, 0, then);
        multiply_staged<F, depth>(lane_pairs + n0 * place_p.k, place_p, now + lane_s, place_s, out);
        turn();
      }
      tile = next;
    }
  }

  template <class Each>
  KOKKOS_INLINE_FUNCTION static void for_each_pair(Work const& w, Scores& dots, Scores& changes,
                                                   Each const& each) {
    Base::for_each_place(w,
                         [&](Place const& p) { each(p, Base::at(dots, p), Base::at(changes, p)); });
  }

  /// q·k becomes a pair's weight and dout·v the gradient of its q·k; 0 where the pair takes no
  /// part.
  KOKKOS_INLINE_FUNCTION void differentiate(Work const& w, Columns const& tile, Acc const* lse,
                                            [[maybe_unused]] bool tell, Scores& dots,
                                            Scores& changes) const {
    constexpr Acc log2_e = Kokkos::numbers::log2e_v<Acc>;
    Head const& head = w.head;
    auto const in_tile = [](Place const& p) { return by_key ? p.col : p.row; };
    bool const whole = Base::is_whole(w, tile);
    Acc const scale = head.scale;
    if constexpr (What == GradientOf::query && accumulates<Functors, Acc>()) {
      // The functor hears of each pair once, what the score was before and the gradient after it.
      for_each_pair(w, dots, changes, [&](Place const& p, Acc& x, Acc& y) {
        PairGradient<Acc> pair{0, 0};
        if (p.row < w.live && p.col < tile.count) {
          Acc const sum = lse[p.row], mean = lse[queries + p.row];
          std::int64_t const i = w.row0 + p.row, j = tile.first + p.col;
          Acc const low = sum == -negative_infinity<Acc>() ? -sum : sum;
          pair = tell ? pair_gradient<true>(g(), functors, head, false, i, j, x, y, low, mean)
                      : pair_gradient<false>(g(), functors, head, false, i, j, x, y, low, mean);
        }
        x = pair.weight;
        y = pair.slope;
      });
      return;
    }
    Seen seen;
    Base::see_range(w, tile, whole, seen);
    for_each_pair(w, dots, changes, [&](Place const& p, Acc& x, Acc& y) {
      x *= scale;
      if constexpr (!of_value) y -= lse[queries + in_tile(p)];
    });
    if (w.terms) {
      if (g().softcap > 0) {
        Base::cap_scores(w, dots);
        Acc const cap = static_cast<Acc>(g().softcap);
        for_each_pair(w, dots, changes, [&](Place const&, Acc& x, Acc& y) {
          Acc const capped = x / cap;
          if constexpr (!of_value) y *= Acc(1) - capped * capped;
        });
      }
      Base::add_terms(w, tile, seen, dots);
      Base::exclude(w, tile, seen);
      if constexpr (Functors::has_score)
        for_each_pair(w, dots, changes, [&](Place const& p, Acc& x, Acc& y) {
          if (!seen.has(p)) return;
          std::int64_t const i = Base::query_of(w, tile, p), j = Base::key_of(w, tile, p);
          if constexpr (!of_value)
            y *= static_cast<Acc>(functors.score.derivative(x, head.batch, head.head, i, j));
          x = static_cast<Acc>(functors.score(x, head.batch, head.head, i, j));
        });
    }
    bool const all = seen.all();
    for_each_pair(w, dots, changes, [&](Place const& p, Acc& x, Acc& y) {
      x = quick_exp2((x - lse[in_tile(p)]) * log2_e);
      if (!all && !seen.has(p)) x = Acc(0);
      if constexpr (Functors::has_weight) {
        if (x != Acc(0))
          x *= static_cast<Acc>(functors.weight(head.batch, head.head, Base::query_of(w, tile, p),
                                                Base::key_of(w, tile, p)));
      }
      if constexpr (!of_value) y = x == Acc(0) ? Acc(0) : x * y * scale;
    });
  }

  /// Stores rows of the tile.
  KOKKOS_INLINE_FUNCTION void finish(Team const& team, QueryTile const& where, std::int64_t head,
                                     std::int64_t col0, char* memory, Outputs const& out) const {
    constexpr int ldo = Shape::finish_pitch;
    Acc* const sums = reinterpret_cast<Acc*>(memory + Base::head_size + queries_size);
    int const index = lane_in_team<F>(team);
    int const thread_row = team.team_rank() * Shape::rows_of_thread;
    int const rows =
        static_cast<int>(clamp_index(where.sequence.rows - where.row0, 0, Shape::rows));
    std::int64_t const batch = where.sequence.batch < 0 ? 0 : where.sequence.batch;
    std::int64_t const row = where.sequence.begin + where.row0;
    auto const to = [&](void* data, std::int64_t const(&stride)[4]) {
      return Block<T>{
          static_cast<T*>(data) + batch * stride[0] + head * stride[1] + row * stride[2], stride[2],
          stride[3]};
    };
    Block<T> const result = What == GradientOf::query ? to(args.dq, args.dq_stride)
                            : of_value                ? to(args.dv, args.dv_stride)
                                                      : to(args.dk, args.dk_stride);
    for (int first = 0; first < Shape::features; first += Shape::finish_features) {
      std::int64_t const left = width(g()) - col0 - first;
      if (left <= 0) return;
      int const cols = static_cast<int>(clamp_index(left, 0, Shape::finish_features));
      team.team_barrier();
      Shape::put_outputs(out, first, sums + thread_row * ldo, index % F::lanes);
      team.team_barrier();
      repair(team, where, head, rows, col0 + first, cols, sums);
      team.team_barrier();
      bool const by_column = result.row_stride == 1;  // neighboring lanes write neighbors
      for (int i = index; i < rows * cols; i += Shape::lanes) {
        int const r = by_column ? i % rows : i / cols, c = by_column ? i / rows : i % cols;
        *result.at(r, col0 + first + c) = static_cast<T>(sums[r * ldo + c]);
      }
    }
  }

  /// As repair_rows() has it.
  KOKKOS_INLINE_FUNCTION void repair(Team const& team, QueryTile const& where, std::int64_t head0,
                                     int rows, std::int64_t col0, int cols, Acc* sums) const {
    if (where.sequence.batch < 0) return;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int r) {
      Acc* const out = sums + r * Shape::finish_pitch;
      if (count_numbers(team, out, cols) == cols) return;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int c) { out[c] = Acc(0); });
      std::int64_t const row = where.row0 + r;
      std::int64_t const shared = by_key ? g().heads_q / g().heads_kv : 1;
      for (std::int64_t n = 0; n < shared; ++n) {
        Head const head(args, by_key ? query_rows(g(), where.sequence.batch) : where.sequence,
                        head0 * shared + n);
        std::int64_t const last = Base::end_of(head, row);
        for (std::int64_t m = Base::begin_of(head, row); m < last; ++m) {
          std::int64_t const i = by_key ? m : row, j = by_key ? row : m;
          Acc const dot = dot_by_lanes<Acc>(team, head.q.at(i, 0), head.q.col_stride,
                                            head.k.at(j, 0), head.k.col_stride, g().head_dim);
          Acc const change =
              of_value ? Acc(0)
                       : dot_by_lanes<Acc>(team, head.dout.at(i, 0), head.dout.col_stride,
                                           head.v.at(j, 0), head.v.col_stride, g().head_dim_v);
          auto const pair =
              pair_gradient<false>(g(), functors, head, false, i, j, dot, change,
                                   head.lse[i * head.lse_stride], delta[head.delta_row + i]);
          Acc const factor = of_value ? pair.weight : pair.slope;
          if (factor == Acc(0)) continue;
          T const* const from = summed(head).at(m, col0);
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int c) {
            out[c] += factor * element_value<Acc>(from[c * summed(head).col_stride]);
          });
          if (count_numbers(team, out, cols) == 0) return;
        }
      }
    });
  }
};

/// Type in which gradients are multiplied: T where a device has instructions for it, whose numbers
/// may be as large and as small as gradients are.
template <class Exec, class T>
using GradientFactor =
    std::conditional_t<has_matrix_instructions<Exec, T> && std::is_same_v<T, bfloat16>, T,
                       AttentionAccumulator<T>>;

/// Shapes for up to 64 features of a gradient, and for more.
template <class F>
struct GradientShapes {
  using Narrow = AttentionShape<F, 4, 1, 64, 64, 3>;
  using Wide = AttentionShape<F, 4, 1, 64, 128, 2>;
};
template <class F>
requires(F::lanes > 1 && sizeof(typename F::Element) == 8) struct GradientShapes<F> {
  using Narrow = AttentionShape<F, 4, 1, 32, 64, 3>;
  using Wide = AttentionShape<F, 4, 1, 32, 128, 2>;
};

/// A kernel with its policy. Throws what cannot be launched.
template <class Kernel>
struct GradientLaunch {
  Kernel kernel;
  typename Kernel::Policy policy;
};
template <class Kernel, class T, class Exec, class Functors, class Acc>
GradientLaunch<Kernel> gradient_launch(Exec const& exec, abi::AttentionBackwardArgs const& a,
                                       Functors const& functors, Acc const* delta) {
  using Rows = typename Kernel::RowSlices;
  using Cols = typename Kernel::ColumnSlices;
  using Summed = typename Kernel::Summed;
  abi::AttentionArgs const& g = a.forward;
  std::int64_t const tiles = Kernel::row_tiles(g);
  auto const kernel = [&]() -> Kernel {
    if constexpr (!Kernel::by_key)
      return {{a, functors},
              stage_of<Rows>(g.q, g.q_stride),
              stage_of<Rows>(a.dout, a.dout_stride),
              stage_of<Cols>(g.k, g.k_stride),
              stage_of<Cols>(g.v, g.v_stride),
              stage_of<Summed>(g.k, g.k_stride),
              tiles,
              delta};
    else
      return {{a, functors},
              stage_of<Rows>(g.k, g.k_stride),
              stage_of<Rows>(g.v, g.v_stride),
              stage_of<Cols>(g.q, g.q_stride),
              stage_of<Cols>(a.dout, a.dout_stride),
              Kernel::of_value ? stage_of<Summed>(a.dout, a.dout_stride)
                               : stage_of<Summed>(g.q, g.q_stride),
              tiles,
              delta};
  }();
  return {kernel, tile_policy<Kernel>("attention_backward", exec,
                                      tiles * Kernel::groups(g) * Kernel::slices(g))};
}

/// Calls run(launch) with what computes one gradient. It may have no teams.
template <GradientOf What, class T, class Exec, class Functors, class Acc, class Run>
void with_gradient_launch(Exec const& exec, abi::AttentionBackwardArgs const& a,
                          Functors const& functors, Acc const* delta, Run const& run) {
  using Shapes = GradientShapes<FragmentsFor<Exec, GradientFactor<Exec, T>>>;
  using Narrow = AttentionGradient<Exec, typename Shapes::Narrow, T, Functors, What>;
  using Wide = AttentionGradient<Exec, typename Shapes::Wide, T, Functors, What>;
  // One shape has to do for each set of functors: compilation takes seconds for each kernel.
  if constexpr (std::is_same_v<Functors, NoFunctors>) {
    if (Narrow::width(a.forward) <= Shapes::Narrow::features)
      return run(gradient_launch<Narrow, T>(exec, a, functors, delta));
  }
  run(gradient_launch<Wide, T>(exec, a, functors, delta));
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
