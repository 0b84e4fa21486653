// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of what was added to attention's scores: the bias and the sinks.
#pragma once

#include <attikos/attention/backward/tile.hpp>
#include <attikos/core/rows/row.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Gradient of the bias: a team takes one tile of it and goes through all pairs that were given its
/// elements, sequence by sequence, head by head, and along broadcast dimensions.
template <class Exec, class T, class Functors>
struct AttentionBackwardBias {
  using Acc = AttentionAccumulator<T>;
  using Head = BackwardHead<T>;
  using Traits = TileTraits<Exec, Acc>;
  using Scratch = BackwardScratch<Traits, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::AttentionBackwardArgs a;
  Functors functors;
  Acc const* delta;
  BackwardTile tile;

  KOKKOS_INLINE_FUNCTION Scratch scratch_of() const {
    return {tile, static_cast<int>(a.forward.head_dim), static_cast<int>(a.forward.head_dim_v)};
  }
  KOKKOS_INLINE_FUNCTION std::int64_t tiles_along(int dimension, std::int64_t size) const {
    return (a.d_bias_extent[dimension] + size - 1) / size;
  }
  std::int64_t teams(std::int64_t rows) const {
    return a.d_bias_extent[0] * a.d_bias_extent[1] * tiles_along(2, rows) *
           tiles_along(3, tile.cols);
  }
  std::size_t bytes() const {
    Scratch const s = scratch_of();
    return s.bytes() + scratch_bytes<Acc>(std::int64_t{tile.rows} * s.ld_pairs());
  }

  KOKKOS_INLINE_FUNCTION static std::int64_t smaller(std::int64_t x, std::int64_t y) {
    return x < y ? x : y;
  }
  KOKKOS_INLINE_FUNCTION static std::int64_t larger(std::int64_t x, std::int64_t y) {
    return x > y ? x : y;
  }

  /// Adds a tile of gradients whose first column is column `at` of the sum. A dimension of extent 1
  /// takes all rows or columns, in ascending order; where both are, a sum is kept for each row.
  KOKKOS_INLINE_FUNCTION void add(Team const& team, Scratch const& s, Acc* sum, int rows, int cols,
                                  int at) const {
    int const ld = s.ld_pairs();
    if (a.d_bias_extent[3] == 1) {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows), [&](int r) {
        Acc total = sum[r * ld];
        for (int c = 0; c < cols; ++c) total += s.gradients[r * ld + c];
        sum[r * ld] = total;
      });
    } else if (a.d_bias_extent[2] == 1) {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, cols), [&](int c) {
        Acc total = sum[at + c];
        for (int r = 0; r < rows; ++r) total += s.gradients[r * ld + c];
        sum[at + c] = total;
      });
    } else {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
        int const r = index / cols, c = index % cols;
        sum[r * ld + at + c] += s.gradients[r * ld + c];
      });
    }
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    abi::AttentionArgs const& g = a.forward;
    bool const all_rows = a.d_bias_extent[2] == 1, all_cols = a.d_bias_extent[3] == 1;
    std::int64_t rest = team.league_rank();
    std::int64_t const col0 = rest % tiles_along(3, tile.cols) * tile.cols;
    rest /= tiles_along(3, tile.cols);
    std::int64_t const row0 = rest % tiles_along(2, tile.rows) * tile.rows;
    rest /= tiles_along(2, tile.rows);
    std::int64_t const h = rest % a.d_bias_extent[1];
    std::int64_t const b = rest / a.d_bias_extent[1];

    Scratch s = scratch_of();
    s.allocate(team);
    int const ld = s.ld_pairs();
    Acc* const sum = scratch<Acc>(team, tile.scratch_level, std::int64_t{tile.rows} * ld);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile.rows * ld),
                         [&](int i) { sum[i] = Acc(0); });

    std::int64_t const first_b = a.d_bias_extent[0] == 1 ? 0 : b;
    std::int64_t const last_b = a.d_bias_extent[0] == 1 ? g.batch : b + 1;
    std::int64_t const first_h = a.d_bias_extent[1] == 1 ? 0 : h;
    std::int64_t const last_h = a.d_bias_extent[1] == 1 ? g.heads_q : h + 1;
    for (std::int64_t bb = first_b; bb < last_b; ++bb) {
      for (std::int64_t hh = first_h; hh < last_h; ++hh) {
        Head const head(a, query_rows(g, bb), hh);
        std::int64_t const end = all_rows ? head.len_q : smaller(head.len_q, row0 + tile.rows);
        for (std::int64_t i0 = all_rows ? 0 : row0; i0 < end; i0 += tile.rows) {
          int const rows = static_cast<int>(smaller(end - i0, tile.rows));
          std::int64_t const begin = larger(head.first(i0), all_cols ? 0 : col0);
          std::int64_t const seen = head.last(i0 + rows - 1);
          std::int64_t const last = all_cols ? seen : smaller(seen, col0 + tile.cols);
          if (begin >= last) continue;
          team.team_barrier();  // the tile before is added up
          s.load_rows(
              team, Block<T const>{head.q.at(i0, 0), head.q.row_stride, head.q.col_stride},
              Block<T const>{head.dout.at(i0, 0), head.dout.row_stride, head.dout.col_stride},
              rows);
          s.load_queries(team, head, delta, i0, rows);
          for (std::int64_t tile0 = begin; tile0 < last; tile0 += tile.cols) {
            ColumnRange const left = seen_columns<false, Functors>(
                g, head, i0, rows, tile0, smaller(last, tile0 + tile.cols));
            if (left.begin == left.end) continue;
            std::int64_t const j0 = left.begin;
            int const cols = static_cast<int>(left.end - j0);
            s.multiply_columns(
                team, Block<T const>{head.k.at(j0, 0), head.k.row_stride, head.k.col_stride},
                Block<T const>{head.v.at(j0, 0), head.v.row_stride, head.v.col_stride}, rows, cols);
            gradient_tile<Traits, false>(team, g, functors, head, true, i0, rows, j0, cols,
                                         s.weights, s.gradients, ld, s.lse, s.delta);
            team.team_barrier();
            add(team, s, sum, rows, cols, all_cols ? 0 : static_cast<int>(j0 - col0));
          }
        }
      }
    }
    team.team_barrier();
    if (all_rows && all_cols)
      Kokkos::single(Kokkos::PerTeam(team), [&] {
        for (int r = 1; r < tile.rows; ++r) sum[0] += sum[r * ld];
      });
    team.team_barrier();
    int const rows = static_cast<int>(smaller(a.d_bias_extent[2] - row0, tile.rows));
    int const cols = static_cast<int>(smaller(a.d_bias_extent[3] - col0, tile.cols));
    std::int64_t const base = b * a.d_bias_stride[0] + h * a.d_bias_stride[1];
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
      int const r = index / cols, c = index % cols;
      store_any(a.type_d_bias, a.d_bias,
                base + (row0 + r) * a.d_bias_stride[2] + (col0 + c) * a.d_bias_stride[3],
                sum[r * ld + c]);
    });
  }
};

/// Gradient of the sinks, −Σ e^(sink − lse)·(dout·out): one team for each query head.
template <class Exec, class T>
struct AttentionBackwardSinks {
  using Acc = AttentionAccumulator<T>;
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;

  abi::AttentionBackwardArgs a;
  Acc const* delta;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    abi::AttentionArgs const& g = a.forward;
    std::int64_t const h = team.league_rank();
    Acc const sink = load_any<Acc>(g.type_sinks, g.sinks, h * g.sinks_stride);
    Acc sum = 0;
    for (std::int64_t b = 0; b < g.batch; ++b) {
      BackwardHead<T> const head(a, query_rows(g, b), h);
      Acc part = 0;
      Kokkos::parallel_reduce(
          Kokkos::TeamVectorRange(team, head.len_q),
          [&](std::int64_t i, Acc& total) {
            Acc const lse = head.lse[i * head.lse_stride];
            if (lse != negative_infinity<Acc>())
              total += Kokkos::exp(sink - lse) * delta[head.delta_row + i];
          },
          part);
      sum += part;
    }
    Kokkos::single(Kokkos::PerTeam(team),
                   [&] { store_any(a.type_d_sinks, a.d_sinks, h * a.d_sinks_stride, -sum); });
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
