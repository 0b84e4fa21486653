// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What teams of attention's gradients in fragments (core/fragments/) have in common: a tile of
/// rows of dq, dk or dv, what its pairs have, and what becomes of the sums.
///
/// T. Dao, "FlashAttention-2", arXiv:2307.08691.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/backward/pairs.hpp>
#include <attikos/attention/fragments/repair.hpp>
#include <attikos/attention/fragments/scores.hpp>
#include <attikos/core/fragments/row_stage.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/rows/lanes.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

enum class GradientOf { query, key, value, key_and_value };

/// Base of kernel bodies. A team has a tile of rows, queries or keys, and one slice of their
/// features, and walks through the columns, keys or queries; those of keys through all heads of
/// queries that share them. Each gradient is a product of what its pairs have, weights or gradients
/// of dot products, with the rows of one tensor. That is rounded to the type of factors; to
/// float16, whose numbers may be neither as large nor as small as gradients are, in parts of a
/// row's scale.
template <class Exec, class TileShape, class T, class Functors, GradientOf What>
struct GradientRows
    : FragmentScores<TileShape, abi::AttentionBackwardArgs, BackwardHead<T>, Functors,
                     What == GradientOf::query ? RowsOf::head : RowsOf::keys> {
  using Shape = TileShape;
  static constexpr bool by_key = What != GradientOf::query, of_value = What == GradientOf::value;
  /// Gradients that a team sums up at once: of the value comes last.
  static constexpr int results = What == GradientOf::key_and_value ? 2 : 1;
  KOKKOS_INLINE_FUNCTION static constexpr bool is_of_value(int result) {
    return of_value || result == 1;
  }
  using Base = FragmentScores<Shape, abi::AttentionBackwardArgs, BackwardHead<T>, Functors,
                              by_key ? RowsOf::keys : RowsOf::head>;
  using Base::args, Base::functors, Base::g, Base::for_each_score;
  using typename Base::Acc, typename Base::Columns, typename Base::F, typename Base::Head;
  using typename Base::Place, typename Base::Scores, typename Base::Seen, typename Base::Work;
  using Element = typename F::Element;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<Shape::lanes, Shape::teams_at_once>>;
  using Team = typename Policy::member_type;
  static_assert(std::is_same_v<Acc, typename F::Sum>);

  /// A team's sums of its rows, of float16 in parts of scales.
  static constexpr bool scales_rows = std::is_same_v<Element, float16>;
  struct RowScales {
    Acc of[Shape::fragments_m][F::held_rows];
  };
  struct Outputs {
    typename Shape::Outputs of;
    RowScales scales;
  };
  using Results = Outputs[results];

  std::int64_t tiles;
  Acc const* delta;  ///< dout·out of each query

  /// A query's log-sum-exp and delta.
  struct alignas(2 * sizeof(Acc)) QuerySums {
    Acc lse, delta;
  };
  static constexpr bool tells_functor = What == GradientOf::query && accumulates<Functors, Acc>();
  /// Scratch for those of a tile, behind the head.
  static constexpr int queries = by_key ? Shape::keys : Shape::rows;
  static constexpr int front_size = Base::head_size + queries * static_cast<int>(sizeof(QuerySums));
  static constexpr int finish_size =
      front_size + Shape::finish_size * static_cast<int>(sizeof(Acc));

  KOKKOS_INLINE_FUNCTION static std::int64_t groups(abi::AttentionArgs const& g) {
    return by_key ? (g.cu_seqlens_kv.data == nullptr ? g.batch : 1) * g.heads_kv : query_groups(g);
  }
  static std::int64_t row_tiles(abi::AttentionArgs const& g) {
    return by_key ? packed_tiles(packed_keys(g), Shape::rows) : query_tiles(g, Shape::rows);
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t width(abi::AttentionArgs const& g) {
    return of_value ? g.head_dim_v : g.head_dim;
  }

  /// Computes what the team has to, of `parts` slices of features. walk(w, col0, out) sums up what
  /// the rows of a head get.
  template <class Walk>
  KOKKOS_INLINE_FUNCTION void compute(Team const& team, std::int64_t parts, char* memory,
                                      Walk const& walk) const {
    std::int64_t const all = groups(g()) * parts, in_groups = team.league_rank() % all;
    std::int64_t const group = in_groups / parts, col0 = in_groups % parts * Shape::features;
    std::int64_t slot = team.league_rank() / all;
    Results out = {};
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
        walk(Base::work_at(team, head, where.row0, where.sequence.rows), col0, out);
      }
      finish(team, where, head_kv, col0, memory, out);
    } else {
      // Late tiles of a causal problem see the most keys: they go first.
      slot = tiles - 1 - slot;
      QueryTile const where = locate_tile(g(), group, slot, Shape::rows);
      if (where.row0 >= where.sequence.rows) return;
      Head const& head = Base::put_head(team, where.sequence, group % g().heads_q, memory);
      walk(Base::work_at(team, head, where.row0, head.rows), col0, out);
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
  KOKKOS_INLINE_FUNCTION static Block<T const> const& summed(Head const& h, int result = 0) {
    return What == GradientOf::query ? h.k : is_of_value(result) ? h.dout : h.q;
  }

  KOKKOS_INLINE_FUNCTION static QuerySums* queries_of(char* memory) {
    return reinterpret_cast<QuerySums*>(memory + Base::head_size);
  }
  KOKKOS_INLINE_FUNCTION void load_queries(Work const& w, std::int64_t i0, int count,
                                           char* memory) const {
    QuerySums* const sums = queries_of(memory);
    for (int i = w.lane_in_team; i < queries; i += Shape::lanes) {
      Acc const lse = i < count ? w.head.lse[(i0 + i) * w.head.lse_stride] : Acc(0);
      // A row without keys: every weight is e^(-inf) = 0.
      sums[i] = {lse == negative_infinity<Acc>() ? -lse : lse,
                 i < count ? delta[w.head.delta_row + i0 + i] : Acc(0)};
    }
  }

  /// What pairs have becomes parts of their row's scale, a power of two, which follows the largest.
  KOKKOS_INLINE_FUNCTION static void scale_rows(Work const& w, Scores& pairs, Outputs& out) {
    RowScales& scales = out.scales;
    RowScales factor = {};
    for_each_score(w, pairs, [&](Place const& p, Acc x) {
      factor.of[p.i][p.held] = Kokkos::fmax(factor.of[p.i][p.held], Kokkos::fabs(x));
    });
    bool grows = false;
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) {
      F::template join_rows<LargerNumber>(factor.of[i]);
      ATTIKOS_UNROLL_DEVICE
      for (int r = 0; r < F::held_rows; ++r) {
        Acc& scale = scales.of[i][r];
        Acc const largest = factor.of[i][r];
        factor.of[i][r] = Acc(1);
        if (largest <= most_of_scale * scale) continue;
        Acc const before = scale;
        scale = power_of_two_below(largest);
        factor.of[i][r] = before / scale;
        grows = true;
      }
    }
    if (grows) multiply_rows(out.of, factor);
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int r = 0; r < F::held_rows; ++r)
      factor.of[i][r] = scales.of[i][r] > 0 ? Acc(1) / scales.of[i][r] : Acc(0);
    for_each_score(w, pairs, [&](Place const& p, Acc& x) { x *= factor.of[p.i][p.held]; });
  }
  /// float16 holds parts of up to 65504; what is below 2⁻²⁵ of a scale, it does not.
  static constexpr Acc most_of_scale = Acc(4096);

  /// The largest power of two that is not above x > 0, within the range of its own reciprocal.
  KOKKOS_INLINE_FUNCTION static Acc power_of_two_below(Acc x) {
    constexpr Acc most = Acc(1.2676506002282294e30);  // 2^100
    x = x < most ? (x > 1 / most ? x : 1 / most) : most;
    return Kokkos::bit_cast<float>(Kokkos::bit_cast<std::uint32_t>(static_cast<float>(x)) &
                                   0x7f800000u);
  }
  KOKKOS_INLINE_FUNCTION static void multiply_rows(typename Shape::Outputs& out,
                                                   RowScales const& factor) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Shape::features / F::cols; ++j) ATTIKOS_UNROLL_DEVICE
    for (int n = 0; n < F::held_sums; ++n)
      F::at(out[i][j], n) *= factor.of[i][F::position_of(0, n).held];
  }
  KOKKOS_INLINE_FUNCTION static void multiply_all(typename Shape::Outputs& out, Acc factor) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Shape::features / F::cols; ++j) ATTIKOS_UNROLL_DEVICE
    for (int n = 0; n < F::held_sums; ++n) F::at(out[i][j], n) *= factor;
  }
  template <class Each>
  KOKKOS_INLINE_FUNCTION static void for_each_pair(Work const& w, Scores& dots, Scores& changes,
                                                   Each const& each) {
    Base::for_each_place(w,
                         [&](Place const& p) { each(p, Base::at(dots, p), Base::at(changes, p)); });
  }

  /// q·k becomes a pair's weight and dout·v the gradient of its q·k; 0 where the pair takes no
  /// part.
  KOKKOS_INLINE_FUNCTION void differentiate(Work const& w, Columns const& tile,
                                            QuerySums const* sums, [[maybe_unused]] bool tell,
                                            Scores& dots, Scores& changes) const {
    Head const& head = w.head;
    auto const in_tile = [](Place const& p) { return by_key ? p.col : p.row; };
    bool const whole = Base::is_whole(w, tile);
    if constexpr (tells_functor) {
      // The functor hears of each pair once, what the score was before and the gradient after it.
      for_each_pair(w, dots, changes, [&](Place const& p, Acc& x, Acc& y) {
        PairGradient<Acc> pair{0, 0};
        if (p.row < w.live && p.col < tile.count) {
          Acc const sum = sums[p.row].lse, mean = sums[p.row].delta;
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
    Base::scale(w, dots);
    if constexpr (!of_value)
      for_each_score(w, changes, [&](Place const& p, Acc& y) { y -= sums[in_tile(p)].delta; });
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
      // Not of powers of two: to round the log-sum-exp once more would show where it is large.
      x = quick_exp2(Kokkos::fma(x, w.natural, -sums[in_tile(p)].lse) *
                     Kokkos::numbers::log2e_v<Acc>);
      if (!all && !seen.has(p)) x = Acc(0);
      if constexpr (Functors::has_weight) {
        if (x != Acc(0))
          x *= static_cast<Acc>(functors.weight(head.batch, head.head, Base::query_of(w, tile, p),
                                                Base::key_of(w, tile, p)));
      }
      if constexpr (!of_value) y = x == Acc(0) ? Acc(0) : x * y;
    });
  }

  /// Stores rows of the tile.
  KOKKOS_INLINE_FUNCTION void finish(Team const& team, QueryTile const& where, std::int64_t head,
                                     std::int64_t col0, char* memory, Results& out) const {
    finish<0>(team, where, head, col0, memory, out[0]);
    if constexpr (results > 1) {
      team.team_barrier();
      finish<1>(team, where, head, col0, memory, out[1]);
    }
  }
  template <int Result>
  KOKKOS_INLINE_FUNCTION void finish(Team const& team, QueryTile const& where, std::int64_t head,
                                     std::int64_t col0, char* memory,
                                     Outputs& sums_and_scales) const {
    auto& out = sums_and_scales.of;
    constexpr bool value = is_of_value(Result);
    std::int64_t const width = value ? g().head_dim_v : g().head_dim;
    if constexpr (scales_rows) multiply_rows(out, sums_and_scales.scales);
    if constexpr (!value && !tells_functor) multiply_all(out, static_cast<Acc>(g().softmax_scale));
    constexpr int ldo = Shape::finish_pitch;
    Acc* const sums = reinterpret_cast<Acc*>(memory + front_size);
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
                            : value                   ? to(args.dv, args.dv_stride)
                                                      : to(args.dk, args.dk_stride);
    Base::tell_nan(out, index % F::lanes, memory);
    for (int first = 0; first < Shape::features; first += Shape::finish_features) {
      std::int64_t const left = width - col0 - first;
      if (left <= 0) return;
      int const cols = static_cast<int>(clamp_index(left, 0, Shape::finish_features));
      team.team_barrier();
      Shape::put_outputs(out, first, sums + thread_row * ldo, index % F::lanes);
      team.team_barrier();
      if (Base::has_nan(memory)) repair<Result>(team, where, head, rows, col0 + first, cols, sums);
      team.team_barrier();
      bool const by_column = result.row_stride == 1;  // neighboring lanes write neighbors
      for (int i = index; i < rows * cols; i += Shape::lanes) {
        int const r = by_column ? i % rows : i / cols, c = by_column ? i / rows : i % cols;
        *result.at(r, col0 + first + c) = static_cast<T>(sums[r * ldo + c]);
      }
    }
  }

  /// As repair_rows() has it.
  template <int Result>
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
              is_of_value(Result)
                  ? Acc(0)
                  : dot_by_lanes<Acc>(team, head.dout.at(i, 0), head.dout.col_stride,
                                      head.v.at(j, 0), head.v.col_stride, g().head_dim_v);
          auto const pair =
              pair_gradient<false>(g(), functors, head, false, i, j, dot, change,
                                   head.lse[i * head.lse_stride], delta[head.delta_row + i]);
          Acc const factor = is_of_value(Result) ? pair.weight : pair.slope;
          if (factor == Acc(0)) continue;
          Block<T const> const& rows = summed(head, Result);
          T const* const from = rows.at(m, col0);
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int c) {
            out[c] += factor * element_value<Acc>(from[c * rows.col_stride]);
          });
          if (count_numbers(team, out, cols) == 0) return;
        }
      }
    });
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
