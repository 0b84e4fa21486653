// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The matrix product on any Kokkos back end: one team per tile of C, factors packed into scratch.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/launch.hpp>
#include <attikos/core/row.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_arguments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Tile extents of one launch. The k extent is fixed per execution space, so that sums do not
/// depend on the rest.
struct GemmTile {
  int m, n, k;
};

/// Chooses the tile: large enough to amortize packing, small enough that every core has work.
template <class Traits>
GemmTile choose_gemm_tile(std::int64_t m, std::int64_t n, std::int64_t batch, int concurrency,
                          std::size_t acc_size) {
  if constexpr (!Traits::host) {
    return {64, acc_size > 4 ? 32 : 64, 16};
  } else {
    (void)acc_size;
    GemmTile tile{Traits::rows * 16, Traits::cols * 8, 256};
    auto const tiles = [&] {
      return ((m + tile.m - 1) / tile.m) * ((n + tile.n - 1) / tile.n) * batch;
    };
    // Two tiles for each thread at least, while packing still pays.
    while (tiles() < 2 * concurrency && (tile.m > Traits::rows * 4 || tile.n > Traits::cols * 2)) {
      bool const shrink_m =
          tile.m > Traits::rows * 4 && (tile.m >= tile.n || tile.n <= Traits::cols * 2);
      (shrink_m ? tile.m : tile.n) /= 2;
    }
    tile.m =
        static_cast<int>(std::min<std::int64_t>(tile.m, round_up<std::int64_t>(m, Traits::rows)));
    tile.n =
        static_cast<int>(std::min<std::int64_t>(tile.n, round_up<std::int64_t>(n, Traits::cols)));
    return tile;
  }
}

namespace host {

/// D = act(scale·(alpha·x + beta·C) + bias) + residual for one row of accumulators, stored as
/// elements of C.
template <class C, class Acc>
inline void gemm_epilogue_row(abi::GemmArgs const& g, std::int64_t batch, std::int64_t row,
                              std::int64_t col, int n, Acc const* acc) {
  constexpr int W = lanes<Acc>;
  C* const c = static_cast<C*>(g.c) + batch * g.c_batch + row * g.c_m + col * g.c_n;
  Acc const alpha = static_cast<Acc>(g.alpha);
  Acc const beta = static_cast<Acc>(g.beta);
  Acc const scale = static_cast<Acc>(g.scale);
  bool const bias_per_row = g.bias != nullptr && g.bias_along == BiasAlong::m;
  Acc const row_bias =
      bias_per_row ? load_any<Acc>(g.type_bias, g.bias, row * g.bias_stride) : Acc(0);
  for (int j = 0; j < n; j += W) {
    int const count = n - j < W ? n - j : W;
    Vec<Acc> x = load<Acc, W>(acc + j) * alpha;
    C* const to = c + j * g.c_n;
    if (g.beta != 0) {
      x += beta * load_row<Acc>(to, g.c_n, count);
    }
    if constexpr (std::is_floating_point_v<Acc>) {
      x *= scale;
      if (bias_per_row) {
        x += row_bias;
      } else if (g.bias != nullptr) {
        x += load_vector_any<Acc>(g.type_bias, g.bias, (col + j) * g.bias_stride, g.bias_stride,
                                  count);
      }
      x = activate<Acc>(g.activation, x);
      if (g.residual != nullptr) {
        x += load_vector_any<Acc>(
            g.type_residual, g.residual,
            batch * g.residual_batch + row * g.residual_m + (col + j) * g.residual_n, g.residual_n,
            count);
      }
    }
    put<Acc>(to, g.c_n, count, x);
  }
  (void)scale;
  (void)row_bias;
}

}  // namespace host

/// Kernel body: one team computes one tile of one product.
template <class Exec, class A, class B, class C>
struct GemmPortable {
  using Acc = GemmAccumulator<A, B, C>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::GemmArgs g;
  GemmTile tile;
  std::int64_t tiles_m, tiles_n;

  static constexpr int a_padding =
      Traits::host ? 16 : 1;  // keeps the rows of A out of one another's cache sets

  KOKKOS_INLINE_FUNCTION int lda() const { return tile.k + a_padding; }
  KOKKOS_INLINE_FUNCTION int padded_n() const { return round_up(tile.n, Traits::cols); }

  std::size_t bytes() const {
    return scratch_bytes<Acc>(std::int64_t{tile.m} * lda()) +
           scratch_bytes<Acc>(std::int64_t{tile.k} * padded_n()) +
           scratch_bytes<Acc>(std::int64_t{tile.m} * padded_n());
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    Acc* const a = scratch<Acc>(team, Traits::scratch_level, std::int64_t{tile.m} * lda());
    Acc* const b = scratch<Acc>(team, Traits::scratch_level, std::int64_t{tile.k} * padded_n());
    Acc* const c = scratch<Acc>(team, Traits::scratch_level, std::int64_t{tile.m} * padded_n());

    std::int64_t const rank = team.league_rank();
    std::int64_t const batch = rank / (tiles_m * tiles_n);
    std::int64_t const row0 = rank % tiles_m * tile.m;
    std::int64_t const col0 = rank / tiles_m % tiles_n * tile.n;
    int const rows = static_cast<int>(g.m - row0 < tile.m ? g.m - row0 : tile.m);
    int const cols = static_cast<int>(g.n - col0 < tile.n ? g.n - col0 : tile.n);

    Block<A const> const block_a{static_cast<A const*>(g.a) + batch * g.a_batch + row0 * g.a_m,
                                 g.a_m, g.a_k};
    Block<B const> const block_b{static_cast<B const*>(g.b) + batch * g.b_batch + col0 * g.b_n,
                                 g.b_k, g.b_n};
    int const ldb = Traits::host ? tile.k : padded_n();

    for (std::int64_t p = 0; p < g.k; p += tile.k) {
      int const depth = static_cast<int>(g.k - p < tile.k ? g.k - p : tile.k);
      pack_rows<Traits>(team, a, lda(), Block<A const>{block_a.at(0, p), g.a_m, g.a_k}, rows,
                        depth);
      pack_panels<Traits>(team, b, ldb, Block<B const>{block_b.at(p, 0), g.b_k, g.b_n}, depth,
                          cols);
      team.team_barrier();
      multiply<Traits>(team, a, lda(), b, ldb, c, padded_n(), rows,
                       Traits::host ? cols : padded_n(), depth, p > 0);
      team.team_barrier();
    }
    if (g.k == 0) {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * padded_n()),
                           [&](int i) { c[i] = Acc(0); });
      team.team_barrier();
    }
    store_tile(team, c, batch, row0, col0, rows, cols);
  }

  KOKKOS_INLINE_FUNCTION void store_tile(Team const& team, Acc const* c, std::int64_t batch,
                                         std::int64_t row0, std::int64_t col0, int rows,
                                         int cols) const {
    if constexpr (Traits::host) {
      KOKKOS_IF_ON_HOST(
          (for (int i = 0; i < rows; ++i) host::gemm_epilogue_row<C, Acc>(
               g, batch, row0 + i, col0, cols, c + static_cast<std::int64_t>(i) * padded_n());))
    } else {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
        // Neighboring threads write neighboring elements of C.
        bool const by_column = g.c_m == 1 && g.c_n != 1;
        int const i = by_column ? index % rows : index / cols;
        int const j = by_column ? index / rows : index % cols;
        store_element(batch, row0 + i, col0 + j, c[i * padded_n() + j]);
      });
    }
    (void)team;
  }

  KOKKOS_INLINE_FUNCTION void store_element(std::int64_t batch, std::int64_t row, std::int64_t col,
                                            Acc x) const {
    C* const to = static_cast<C*>(g.c) + batch * g.c_batch + row * g.c_m + col * g.c_n;
    x *= static_cast<Acc>(g.alpha);
    if (g.beta != 0) x += static_cast<Acc>(g.beta) * static_cast<Acc>(*to);
    if constexpr (std::is_floating_point_v<Acc>) {
      x *= static_cast<Acc>(g.scale);
      if (g.bias != nullptr)
        x += load_any<Acc>(g.type_bias, g.bias,
                           (g.bias_along == BiasAlong::m ? row : col) * g.bias_stride);
      x = apply_activation(g.activation, x);
      if (g.residual != nullptr)
        x += load_any<Acc>(g.type_residual, g.residual,
                           batch * g.residual_batch + row * g.residual_m + col * g.residual_n);
    }
    *to = static_cast<C>(x);
  }
};

/// Launches the portable kernel. Asynchronous on `exec`.
template <class A, class B, class C, class Exec>
void gemm_portable(Exec const& exec, abi::GemmArgs const& args) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  using Kernel = GemmPortable<Exec, A, B, C>;
  using Traits = typename Kernel::Traits;
  Kernel kernel{args, {}, 0, 0};
  kernel.tile = choose_gemm_tile<Traits>(args.m, args.n, args.batch, exec.concurrency(),
                                         sizeof(typename Kernel::Acc));
  kernel.tiles_m = (args.m + kernel.tile.m - 1) / kernel.tile.m;
  kernel.tiles_n = (args.n + kernel.tile.n - 1) / kernel.tile.n;
  typename Kernel::Policy policy(
      exec, checked_league("gemm", kernel.tiles_m * kernel.tiles_n * args.batch), Traits::team_size,
      Traits::vector_length);
  policy.set_scratch_size(Traits::scratch_level,
                          Kokkos::PerTeam(checked_scratch("gemm", kernel.bytes())));
  launch("gemm", "portable", policy, kernel);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
