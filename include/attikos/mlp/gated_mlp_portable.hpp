// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Both products of a gated MLP on any Kokkos back end: one team per tile, x packed once for the
/// two, and a pointwise end that sees gate and up of an element together.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/abi/gated_mlp.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/rows/gradient.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/mlp/gated_mlp_arguments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Tile extents of one launch: m tokens, n intermediate elements, k of the hidden extent. k is
/// fixed per execution space and type, so that sums do not depend on the rest.
struct GatedMlpTile {
  int m, n, k;
};

/// Chooses the tile. Two tiles of weights and two of results share the memory that a plain product
/// has one of each in.
template <class Traits>
GatedMlpTile choose_gated_mlp_tile(std::int64_t tokens, std::int64_t intermediate,
                                   std::int64_t batch, int concurrency, std::size_t acc_size) {
  if constexpr (!Traits::host) {
    // 45 KiB of shared memory: below the 48 KiB that a block has without asking.
    return acc_size > 4 ? GatedMlpTile{64, 32, 8} : GatedMlpTile{64, 64, 16};
  } else {
    (void)acc_size;
    GatedMlpTile tile{Traits::rows * 16, Traits::cols * 4, 256};
    auto const tiles = [&] {
      return ((tokens + tile.m - 1) / tile.m) * ((intermediate + tile.n - 1) / tile.n) * batch;
    };
    // Two tiles for each thread at least, while packing still pays.
    while (tiles() < 2 * concurrency && (tile.m > Traits::rows * 4 || tile.n > Traits::cols)) {
      bool const shrink_m =
          tile.m > Traits::rows * 4 && (tile.m >= 2 * tile.n || tile.n <= Traits::cols);
      (shrink_m ? tile.m : tile.n) /= 2;
    }
    tile.m = static_cast<int>(
        std::min<std::int64_t>(tile.m, round_up<std::int64_t>(tokens, Traits::rows)));
    tile.n = static_cast<int>(
        std::min<std::int64_t>(tile.n, round_up<std::int64_t>(intermediate, Traits::cols)));
    return tile;
  }
}

/// The end of a forward call: out = act(gate)·up.
template <class Out, class Acc>
struct GatedMlpStore {
  Out* out;
  std::int64_t batch_stride, token_stride, stride;
  Activation activation;

  /// `n` elements of one row from packed accumulators.
  void host_row(std::int64_t batch, std::int64_t token, std::int64_t col, int n, Acc const* gate,
                Acc const* up) const {
    constexpr int W = host::lanes<Acc>;
    Out* const to = out + batch * batch_stride + token * token_stride + col * stride;
    for (int j = 0; j < n; j += W) {
      host::Vec<Acc> const a = host::activate<Acc>(activation, host::load<Acc, W>(gate + j));
      host::put<Acc>(to + j * stride, stride, std::min(n - j, W),
                     host::Vec<Acc>(a * host::load<Acc, W>(up + j)));
    }
  }

  KOKKOS_INLINE_FUNCTION void element(std::int64_t batch, std::int64_t token, std::int64_t col,
                                      Acc gate, Acc up) const {
    out[batch * batch_stride + token * token_stride + col * stride] =
        static_cast<Out>(apply_activation(activation, gate) * up);
  }

  /// Whether neighbors in memory are tokens, not elements of one.
  KOKKOS_INLINE_FUNCTION bool by_token() const { return token_stride == 1 && stride != 1; }
};

/// The pointwise part of a backward call: dgate = dout·up·act'(gate) and dup = dout·act(gate), both
/// dense [batch, tokens, intermediate] accumulators.
template <class DOut, class Acc>
struct GatedMlpGradients {
  DOut const* dout;
  std::int64_t batch_stride, token_stride, stride;
  Acc* dgate;
  Acc* dup;
  std::int64_t tokens, intermediate;
  Activation activation;

  KOKKOS_INLINE_FUNCTION std::int64_t place(std::int64_t batch, std::int64_t token,
                                            std::int64_t col) const {
    return (batch * tokens + token) * intermediate + col;
  }

  void host_row(std::int64_t batch, std::int64_t token, std::int64_t col, int n, Acc const* gate,
                Acc const* up) const {
    constexpr int W = host::lanes<Acc>;
    DOut const* const from = dout + batch * batch_stride + token * token_stride + col * stride;
    std::int64_t const to = place(batch, token, col);
    for (int j = 0; j < n; j += W) {
      int const count = std::min(n - j, W);
      host::Vec<Acc> const d = host::load_row<Acc>(from + j * stride, stride, count);
      host::Vec<Acc> const g = host::load<Acc, W>(gate + j);
      host::Vec<Acc> const u = host::load<Acc, W>(up + j);
      host::put<Acc>(dgate + to + j, 1, count,
                     host::Vec<Acc>(d * u * host::activation_gradient<Acc>(activation, g)));
      host::put<Acc>(dup + to + j, 1, count,
                     host::Vec<Acc>(d * host::activate<Acc>(activation, g)));
    }
  }

  KOKKOS_INLINE_FUNCTION void element(std::int64_t batch, std::int64_t token, std::int64_t col,
                                      Acc gate, Acc up) const {
    Acc const d =
        static_cast<Acc>(dout[batch * batch_stride + token * token_stride + col * stride]);
    std::int64_t const to = place(batch, token, col);
    dgate[to] = d * up * apply_activation_gradient(activation, gate);
    dup[to] = d * apply_activation(activation, gate);
  }

  KOKKOS_INLINE_FUNCTION bool by_token() const { return false; }
};

/// Kernel body: one team computes one tile of both products and hands it to `End`.
template <class Exec, class X, class W, class Acc, class End>
struct GatedMlpPortable {
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::GatedMlpArgs g;
  End end;
  GatedMlpTile tile;
  std::int64_t tiles_m, tiles_n;

  static constexpr int x_padding =
      Traits::host ? 16 : 1;  // keeps the rows of x out of one another's cache sets

  KOKKOS_INLINE_FUNCTION int ldx() const { return tile.k + x_padding; }
  KOKKOS_INLINE_FUNCTION int padded_n() const { return round_up(tile.n, Traits::cols); }
  KOKKOS_INLINE_FUNCTION std::int64_t weight_count() const {
    return std::int64_t{tile.k} * padded_n();
  }
  KOKKOS_INLINE_FUNCTION std::int64_t result_count() const {
    return std::int64_t{tile.m} * padded_n();
  }

  std::size_t bytes() const {
    return scratch_bytes<Acc>(std::int64_t{tile.m} * ldx()) +
           2 * scratch_bytes<Acc>(weight_count()) + 2 * scratch_bytes<Acc>(result_count());
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    constexpr int level = Traits::scratch_level;
    Acc* const x = scratch<Acc>(team, level, std::int64_t{tile.m} * ldx());
    Acc* const gate_weight = scratch<Acc>(team, level, weight_count());
    Acc* const up_weight = scratch<Acc>(team, level, weight_count());
    Acc* const gate = scratch<Acc>(team, level, result_count());
    Acc* const up = scratch<Acc>(team, level, result_count());

    std::int64_t const rank = team.league_rank();
    std::int64_t const batch = rank / (tiles_m * tiles_n);
    std::int64_t const row0 = rank % tiles_m * tile.m;
    std::int64_t const col0 = rank / tiles_m % tiles_n * tile.n;
    int const rows = static_cast<int>(g.tokens - row0 < tile.m ? g.tokens - row0 : tile.m);
    int const cols =
        static_cast<int>(g.intermediate - col0 < tile.n ? g.intermediate - col0 : tile.n);

    Block<X const> const block_x{static_cast<X const*>(g.x) + batch * g.x_batch + row0 * g.x_token,
                                 g.x_token, g.x_hidden};
    Block<W const> const block_gate{
        static_cast<W const*>(g.gate_weight) + col0 * g.gate_intermediate, g.gate_hidden,
        g.gate_intermediate};
    Block<W const> const block_up{static_cast<W const*>(g.up_weight) + col0 * g.up_intermediate,
                                  g.up_hidden, g.up_intermediate};
    int const ld = Traits::host ? tile.k : padded_n();
    int const multiplied = Traits::host ? cols : padded_n();

    for (std::int64_t p = 0; p < g.hidden; p += tile.k) {
      int const depth = static_cast<int>(g.hidden - p < tile.k ? g.hidden - p : tile.k);
      pack_rows<Traits>(team, x, ldx(), Block<X const>{block_x.at(0, p), g.x_token, g.x_hidden},
                        rows, depth);
      pack_panels<Traits>(team, gate_weight, ld,
                          Block<W const>{block_gate.at(p, 0), g.gate_hidden, g.gate_intermediate},
                          depth, cols);
      pack_panels<Traits>(team, up_weight, ld,
                          Block<W const>{block_up.at(p, 0), g.up_hidden, g.up_intermediate}, depth,
                          cols);
      team.team_barrier();
      multiply<Traits>(team, x, ldx(), gate_weight, ld, gate, padded_n(), rows, multiplied, depth,
                       p > 0);
      multiply<Traits>(team, x, ldx(), up_weight, ld, up, padded_n(), rows, multiplied, depth,
                       p > 0);
      team.team_barrier();
    }
    if (g.hidden == 0) {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * padded_n()), [&](int i) {
        gate[i] = Acc(0);
        up[i] = Acc(0);
      });
      team.team_barrier();
    }
    finish(team, gate, up, batch, row0, col0, rows, cols);
  }

  KOKKOS_INLINE_FUNCTION void finish(Team const& team, Acc const* gate, Acc const* up,
                                     std::int64_t batch, std::int64_t row0, std::int64_t col0,
                                     int rows, int cols) const {
    if constexpr (Traits::host) {
      KOKKOS_IF_ON_HOST((for (int i = 0; i < rows; ++i) {
        std::int64_t const row = static_cast<std::int64_t>(i) * padded_n();
        end.host_row(batch, row0 + i, col0, cols, gate + row, up + row);
      }))
    } else {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
        bool const by_token = end.by_token();
        int const i = by_token ? index % rows : index / cols;
        int const j = by_token ? index / rows : index % cols;
        end.element(batch, row0 + i, col0 + j, gate[i * padded_n() + j], up[i * padded_n() + j]);
      });
    }
    (void)team;
  }
};

/// Launches both products with the given end. Asynchronous on `exec`.
template <class X, class W, class Acc, class Exec, class End>
void gated_mlp_products(Exec const& exec, char const* operation, char const* name,
                        abi::GatedMlpArgs const& args, End const& end) {
  if (args.tokens == 0 || args.intermediate == 0 || args.batch == 0) return;
  using Kernel = GatedMlpPortable<Exec, X, W, Acc, End>;
  using Traits = typename Kernel::Traits;
  Kernel kernel{args, end, {}, 0, 0};
  kernel.tile = choose_gated_mlp_tile<Traits>(args.tokens, args.intermediate, args.batch,
                                              concurrency_of(exec), sizeof(Acc));
  kernel.tiles_m = (args.tokens + kernel.tile.m - 1) / kernel.tile.m;
  kernel.tiles_n = (args.intermediate + kernel.tile.n - 1) / kernel.tile.n;
  typename Kernel::Policy policy(
      exec, checked_league(operation, kernel.tiles_m * kernel.tiles_n * args.batch),
      Traits::team_size, Traits::vector_length);
  policy.set_scratch_size(Traits::scratch_level,
                          Kokkos::PerTeam(checked_scratch(operation, kernel.bytes())));
  launch(operation, name, policy, kernel);
}

template <class X, class W, class Out, class Exec>
void gated_mlp_portable(Exec const& exec, abi::GatedMlpArgs const& args) {
  using Acc = GatedMlpAccumulator<X, W, Out>;
  GatedMlpStore<Out, Acc> const end{static_cast<Out*>(args.out), args.out_batch, args.out_token,
                                    args.out_intermediate, args.activation};
  gated_mlp_products<X, W, Acc>(exec, "gated_mlp", "portable", args, end);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
