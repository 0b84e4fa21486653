// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the kernels of attention's gradients do with one tile of pairs: recompute q·k and dout·v,
/// sum gradients times rows.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/backward/pairs.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/tile.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Extents of a tile of pairs and where the team's scratch lies. A team keeps its rows and walks
/// through the columns.
struct BackwardTile {
  int rows, cols, scratch_level;
};

/// Scratch of one team. Rows are queries and columns keys, or the other way round; "first" are the
/// factors of q·k, "second" those of dout·v.
template <class Traits, class Acc>
struct BackwardScratch {
  static constexpr int padding =
      Traits::host ? 16 : 1;  // keeps rows out of one another's cache sets or banks

  using Pairs = Acc const*;
  static constexpr bool dots = false;

  BackwardTile tile;
  int d, dv;
  Acc *first = nullptr, *second = nullptr;       // rows, packed once
  Acc *weights = nullptr, *gradients = nullptr;  // of pairs; before that q·k and dout·v
  Acc* packed = nullptr;                         // columns as right-hand factor
  Acc *lse = nullptr, *delta = nullptr;          // of the tile's queries

  KOKKOS_INLINE_FUNCTION int ld_first() const { return d + padding; }
  KOKKOS_INLINE_FUNCTION int ld_second() const { return dv + padding; }
  KOKKOS_INLINE_FUNCTION int ld_pairs() const {
    return round_up(tile.cols, Traits::cols) + padding;
  }
  /// Leading dimension of a result of `width` columns.
  KOKKOS_INLINE_FUNCTION static int ld_sum(int width) { return round_up(width, Traits::cols); }
  KOKKOS_INLINE_FUNCTION static int whole_rows(int rows) { return rows; }
  /// Sums run in one order wherever their columns begin.
  KOKKOS_INLINE_FUNCTION static std::int64_t aligned(std::int64_t column) { return column; }
  KOKKOS_INLINE_FUNCTION std::int64_t packed_size() const {
    int const widest = d > dv ? d : dv;
    std::int64_t const across = std::int64_t{widest} * round_up(tile.cols, Traits::cols);
    std::int64_t const along = std::int64_t{tile.cols} * ld_sum(widest);
    return across > along ? across : along;
  }
  KOKKOS_INLINE_FUNCTION int queries() const {
    return tile.rows > tile.cols ? tile.rows : tile.cols;
  }

  std::size_t bytes() const {
    return scratch_bytes<Acc>(std::int64_t{tile.rows} * ld_first()) +
           scratch_bytes<Acc>(std::int64_t{tile.rows} * ld_second()) +
           2 * scratch_bytes<Acc>(std::int64_t{tile.rows} * ld_pairs()) +
           scratch_bytes<Acc>(packed_size()) + 2 * scratch_bytes<Acc>(queries());
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void allocate(Team const& team) {
    int const level = tile.scratch_level;
    first = scratch<Acc>(team, level, std::int64_t{tile.rows} * ld_first());
    second = scratch<Acc>(team, level, std::int64_t{tile.rows} * ld_second());
    weights = scratch<Acc>(team, level, std::int64_t{tile.rows} * ld_pairs());
    gradients = scratch<Acc>(team, level, std::int64_t{tile.rows} * ld_pairs());
    packed = scratch<Acc>(team, level, packed_size());
    lse = scratch<Acc>(team, level, queries());
    delta = scratch<Acc>(team, level, queries());
  }

  /// Packs the team's rows. Its threads may still be at work on them when this returns; so it is
  /// with load_queries().
  template <class Team, class T>
  KOKKOS_INLINE_FUNCTION void load_rows(Team const& team, Block<T const> const& x,
                                        Block<T const> const& y, int rows) const {
    pack_rows<Traits>(team, first, ld_first(), x, rows, d);
    pack_rows<Traits>(team, second, ld_second(), y, rows, dv);
  }

  /// Log-sum-exp and dout·out of queries [i0, i0 + count).
  template <class Team, class Head>
  KOKKOS_INLINE_FUNCTION void load_queries(Team const& team, Head const& head, Acc const* deltas,
                                           std::int64_t i0, int count) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), [&](int i) {
      lse[i] = head.lse[(i0 + i) * head.lse_stride];
      delta[i] = deltas[head.delta_row + i0 + i];
    });
  }

  /// weights = first·xᵀ and gradients = second·yᵀ for the columns x, y. Everyone is done on return.
  template <class Team, class T>
  KOKKOS_INLINE_FUNCTION void multiply_columns(Team const& team, Block<T const> const& x,
                                               Block<T const> const& y, int rows, int cols) const {
    int const padded = round_up(cols, Traits::cols);
    auto const one = [&](Block<T const> const& block, Acc const* left, int ld_left, int width,
                         Acc* result) {
      int const ld = Traits::host ? width : padded;
      team.team_barrier();
      pack_panels<Traits>(team, packed, ld,
                          Block<T const>{block.data, block.col_stride, block.row_stride}, width,
                          cols);
      team.team_barrier();
      multiply<Traits>(team, left, ld_left, packed, ld, result, ld_pairs(), rows, padded, width,
                       false);
    };
    one(x, first, ld_first(), d, weights);
    one(y, second, ld_second(), dv, gradients);
    team.team_barrier();
  }

  /// Weights and gradients of the pairs of rows from row0 and the columns x, y from m0 on. `ByKey`:
  /// rows are keys.
  template <bool ByKey, class Team, class T, class Functors, class Head>
  KOKKOS_INLINE_FUNCTION void differentiate(Team const& team, abi::AttentionArgs const& g,
                                            Functors const& functors, Head const& head,
                                            Block<T const> const& x, Block<T const> const& y,
                                            std::int64_t row0, int rows, std::int64_t m0,
                                            int cols) const {
    multiply_columns(team, x, y, rows, cols);
    gradient_tile<Traits, ByKey>(team, g, functors, head, false, row0, rows, m0, cols, weights,
                                 gradients, ld_pairs(), lse, delta);
  }
  KOKKOS_INLINE_FUNCTION Pairs pair_weights() const { return weights; }
  KOKKOS_INLINE_FUNCTION Pairs pair_gradients() const { return gradients; }

  /// sum += pairs·columns, left out where a pair's number is 0: what the pair does not see must not
  /// reach it as 0·NaN. `packed` is free on entry; everyone is done on return.
  template <class Team, class T>
  KOKKOS_INLINE_FUNCTION void add_columns(Team const& team, Acc const* pairs,
                                          Block<T const> const& columns, int width, Acc* sum,
                                          int rows, int cols) const {
    int const ld = Traits::host ? cols : ld_sum(width);
    pack_panels<Traits>(team, packed, ld, columns, cols, width);
    team.team_barrier();
    multiply_nonzero<Traits>(team, pairs, ld_pairs(), packed, ld, sum, ld_sum(width), rows,
                             ld_sum(width), cols);
    team.team_barrier();
  }
};

/// Writes sums as elements, on a host.
template <class T, class Acc>
KOKKOS_INLINE_FUNCTION void store_sums(Block<T> const& out, Acc const* from, int ld, int rows,
                                       int cols) {
  KOKKOS_IF_ON_HOST((for (int i = 0; i < rows; ++i) host::for_each_vector<Acc>(
                         from + static_cast<std::int64_t>(i) * ld, 1, cols, Acc(0),
                         [&](std::int64_t j, host::Vec<Acc> x, int count) {
                           host::put<Acc>(out.at(i, j), out.col_stride, count, x);
                         });))
  (void)out, (void)from, (void)ld, (void)rows, (void)cols;
}

/// Picks kernel.tile: on a host rows and columns that fill the second-level cache, fewer rows where
/// threads would idle; on a device the largest square whose scratch fits shared memory, and global
/// scratch where none does. Sums run along the columns in ascending order whatever the tile, so the
/// result does not depend on it.
/// \param rows, cols  extents of the problem
/// \param teams       how many teams there are for a number of rows
template <class Kernel, class Exec, class Teams>
void choose_backward_tile(Kernel& kernel, Exec const& exec, std::int64_t rows, std::int64_t cols,
                          Teams const& teams) {
  using Traits = typename Kernel::Traits;
  abi::AttentionArgs const& g = kernel.a.forward;
  if constexpr (Traits::host) {
    std::int64_t const widest = std::max<std::int64_t>({g.head_dim, g.head_dim_v, 1});
    std::int64_t const room = (std::int64_t{256} << 10) /
                              (widest * static_cast<std::int64_t>(sizeof(typename Kernel::Acc)));
    std::int64_t const most = std::min<std::int64_t>(
        128, std::max<std::int64_t>(round_up<std::int64_t>(cols, Traits::cols), Traits::cols));
    if constexpr (Kernel::Scratch::dots) {
      kernel.tile = {256, 256, Traits::scratch_level};
      constexpr int least = 32;
      while (kernel.tile.rows > least &&
             (teams(kernel.tile.rows) < 4 * concurrency_of(exec) || kernel.tile.rows / 2 >= rows ||
              kernel.bytes() > (std::size_t{3} << 19)))
        kernel.tile.rows /= 2;
      return;
    }
    kernel.tile = {Traits::rows * 8,
                   static_cast<int>(std::clamp<std::int64_t>(room / Traits::cols * Traits::cols,
                                                             Traits::cols, most)),
                   Traits::scratch_level};
    while (kernel.tile.rows > Traits::rows && teams(kernel.tile.rows) < 4 * concurrency_of(exec))
      kernel.tile.rows /= 2;
    // Rows of thousands of features: as many as a share of the last-level cache holds.
    while (kernel.tile.rows > 1 && kernel.bytes() > (std::size_t{8} << 20)) kernel.tile.rows /= 2;
    kernel.tile.rows =
        static_cast<int>(std::min<std::int64_t>(kernel.tile.rows, std::max<std::int64_t>(rows, 1)));
  } else {
    std::size_t const limit = static_cast<std::size_t>(Kernel::Policy::scratch_size_max(0)) - 1024;
    for (int size = 64; size >= 4; size /= 2) {
      kernel.tile = {size, size, 0};
      if (kernel.bytes() <= limit) return;
    }
    kernel.tile = {16, 16, 1};
  }
}

/// The policy under which `teams` teams run a kernel with its scratch; throws what cannot be
/// launched.
template <class Kernel, class Exec>
typename Kernel::Policy backward_policy(Kernel const& kernel, Exec const& exec,
                                        std::int64_t teams) {
  using Traits = typename Kernel::Traits;
  typename Kernel::Policy policy(exec, checked_league("attention_backward", teams),
                                 Traits::team_size, Traits::vector_length);
  policy.set_scratch_size(kernel.tile.scratch_level,
                          Kokkos::PerTeam(checked_scratch("attention_backward", kernel.bytes())));
  return policy;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
