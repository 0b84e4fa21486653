// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Both products of a gated MLP on any Kokkos back end: one team per tile, x packed once for the
/// two, and a pointwise end that sees gate and up of an element together. A device multiplies in
/// fragments, as products are.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/abi/gated_mlp.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_fragments.hpp>
#include <attikos/gemm/packed_b.hpp>
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
inline GatedMlpTile choose_gated_mlp_tile(std::int64_t tokens, std::int64_t intermediate,
                                          std::int64_t batch, int concurrency, int block_rows,
                                          int block_cols) {
  GatedMlpTile tile{block_rows * 16, block_cols * 4, 256};
  auto const tiles = [&] {
    return ((tokens + tile.m - 1) / tile.m) * ((intermediate + tile.n - 1) / tile.n) * batch;
  };
  // Two tiles for each thread at least, while packing still pays.
  while (tiles() < 2 * concurrency && (tile.m > block_rows * 4 || tile.n > block_cols)) {
    bool const shrink_m = tile.m > block_rows * 4 && (tile.m >= 2 * tile.n || tile.n <= block_cols);
    (shrink_m ? tile.m : tile.n) /= 2;
  }
  tile.m =
      static_cast<int>(std::min<std::int64_t>(tile.m, round_up<std::int64_t>(tokens, block_rows)));
  tile.n = static_cast<int>(
      std::min<std::int64_t>(tile.n, round_up<std::int64_t>(intermediate, block_cols)));
  return tile;
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

/// Kernel body of hosts: one team computes one tile of both products and hands it to `End`.
template <class Exec, class X, class W, class Acc, class End>
struct GatedMlpPortable {
  using Traits = TileTraits<Exec, Acc>;
  static_assert(Traits::host);
  using Dot = GemmDot<Acc, X, W>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::GatedMlpArgs g;
  End end;
  GatedMlpTile tile;
  std::int64_t tiles_m, tiles_n;
  HostIsa isa = HostIsa::compiled;

  static constexpr int x_padding = 16;  // keeps the rows of x out of one another's cache sets

  /// Whether instructions that a host chose at run time multiply.
  KOKKOS_INLINE_FUNCTION bool dots() const { return Dot::exists && isa >= Dot::isa; }
  KOKKOS_INLINE_FUNCTION int ldx() const { return tile.k + x_padding; }
  KOKKOS_INLINE_FUNCTION int padded_n() const {
    return round_up(tile.n, dots() ? int{Dot::cols} : int{Traits::cols});
  }
  KOKKOS_INLINE_FUNCTION std::int64_t x_count() const {
    if constexpr (Dot::exists) {
      if (dots()) return Dot::left_words(tile.m);
    }
    return std::int64_t{tile.m} * ldx();
  }
  KOKKOS_INLINE_FUNCTION std::int64_t weight_count(void const* packed) const {
    if (packed != nullptr) return 0;
    if constexpr (Dot::exists) {
      if (dots()) return Dot::right_words(tile.n);
    }
    return std::int64_t{tile.k} * padded_n();
  }
  KOKKOS_INLINE_FUNCTION std::int64_t result_count() const {
    if constexpr (Dot::exists) {
      if (dots()) return std::int64_t{Dot::whole_rows(tile.m)} * padded_n();
    }
    return std::int64_t{tile.m} * padded_n();
  }

  std::size_t bytes() const {
    return scratch_bytes<Acc>(x_count()) + scratch_bytes<Acc>(weight_count(g.packed_gate)) +
           scratch_bytes<Acc>(weight_count(g.packed_up)) + 2 * scratch_bytes<Acc>(result_count());
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    constexpr int level = Traits::scratch_level;
    Acc* const x = scratch<Acc>(team, level, x_count());
    Acc* const gate_weight = scratch<Acc>(team, level, weight_count(g.packed_gate));
    Acc* const up_weight = scratch<Acc>(team, level, weight_count(g.packed_up));
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
    for (std::int64_t p = 0; p < g.hidden; p += tile.k) {
      int const depth = static_cast<int>(g.hidden - p < tile.k ? g.hidden - p : tile.k);
      Block<X const> const of_x{block_x.at(0, p), g.x_token, g.x_hidden};
      Block<W const> const of_gate{block_gate.at(p, 0), g.gate_hidden, g.gate_intermediate};
      Block<W const> const of_up{block_up.at(p, 0), g.up_hidden, g.up_intermediate};
      Part const part{p, col0, rows, cols, depth};
      KOKKOS_IF_ON_HOST((pack_tokens(x, of_x, part);
                         add_products(team, x, gate_weight, of_gate, g.packed_gate, gate, part);
                         add_products(team, x, up_weight, of_up, g.packed_up, up, part);))
      static_cast<void>(part);
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

  /// A step along the hidden extent: where it and the tile's columns begin, and extents.
  struct Part {
    std::int64_t p, col0;
    int rows, cols, depth;
  };

  /// On a host: x of a step, packed as the instructions want it.
  void pack_tokens(Acc* x, Block<X const> const& from, Part const& at) const {
    if constexpr (Dot::exists) {
      if (dots())
        return Dot::pack_left(reinterpret_cast<typename Dot::Packed*>(x), from, at.rows, at.depth);
    }
    host::pack_rows<Acc, X>(x, ldx(), from, at.rows, at.depth);
  }

  /// On a host: sums (+)= x · the weight, which is packed into `room` or was ahead of time.
  void add_products(Team const& team, Acc const* x, Acc* room, Block<W const> const& weight,
                    void const* packed, Acc* sums, Part const& at) const {
    if constexpr (Dot::exists) {
      if (dots()) {
        using Packed = typename Dot::Packed;
        auto const* const left = reinterpret_cast<Packed const*>(x);
        if (packed != nullptr)
          Dot::multiply_packed(isa, left, static_cast<Packed const*>(packed), g.hidden, at.p,
                               at.col0, sums, padded_n(), at.rows, at.cols, at.depth, at.p > 0);
        else
          Dot::multiply(isa, left, reinterpret_cast<Packed*>(room), weight, sums, padded_n(),
                        at.rows, at.cols, at.depth, at.p > 0);
        return;
      }
    }
    Acc const* right = room;
    int ld = tile.k;
    if (packed != nullptr) {
      right = static_cast<Acc const*>(packed) + at.col0 * g.hidden + at.p * Traits::cols;
      ld = static_cast<int>(g.hidden);
    } else {
      host::pack_panels<Traits::cols, Acc, W>(room, ld, weight, at.depth, at.cols);
    }
    multiply<Traits>(team, x, ldx(), right, ld, sums, padded_n(), at.rows, at.cols, at.depth,
                     at.p > 0);
  }

  KOKKOS_INLINE_FUNCTION void finish(Team const& team, Acc const* gate, Acc const* up,
                                     std::int64_t batch, std::int64_t row0, std::int64_t col0,
                                     int rows, int cols) const {
    KOKKOS_IF_ON_HOST((for (int i = 0; i < rows; ++i) {
      std::int64_t const row = static_cast<std::int64_t>(i) * padded_n();
      end.host_row(batch, row0 + i, col0, cols, gate + row, up + row);
    }))
    (void)team;
  }
};

/// The product with the weight of the gate, as fragments take it.
inline abi::GemmArgs gate_product(abi::GatedMlpArgs const& args) {
  abi::GemmArgs g{};
  g.a = args.x;
  g.b = args.gate_weight;
  g.m = args.tokens;
  g.n = args.intermediate;
  g.k = args.hidden;
  g.batch = args.batch;
  g.outer = 1;
  g.a_batch = args.x_batch;
  g.a_m = args.x_token;
  g.a_k = args.x_hidden;
  g.b_k = args.gate_hidden;
  g.b_n = args.gate_intermediate;
  return g;
}

/// Launches both products with the given end. Asynchronous on `exec`.
template <class X, class W, class Acc, class Exec, class End>
void gated_mlp_products(Exec const& exec, char const* operation, char const* name,
                        abi::GatedMlpArgs const& args, End const& end) {
  if (args.tokens == 0 || args.intermediate == 0 || args.batch == 0) return;
  if constexpr (multiplies_in_fragments<Exec>) {
    if (args.packed_gate == nullptr && args.packed_up == nullptr)
      return gemm_fragments<X, W, Acc>(
          operation, name, exec, gate_product(args),
          TwoProducts<End>{args.up_weight, args.up_intermediate, args.up_hidden, end});
  }
  if constexpr (is_host_space<Exec>) {
    using Kernel = GatedMlpPortable<Exec, X, W, Acc, End>;
    using Traits = typename Kernel::Traits;
    using Dot = typename Kernel::Dot;
    Kernel kernel{args, end, {}, 0, 0, host_isa()};
    bool const dots = kernel.dots();
    kernel.tile = choose_gated_mlp_tile(
        args.tokens, args.intermediate, args.batch, concurrency_of(exec),
        dots ? int{Dot::rows} : int{Traits::rows}, dots ? int{Dot::cols} : int{Traits::cols});
    if (dots) kernel.tile.k = Dot::k;
    kernel.tiles_m = (args.tokens + kernel.tile.m - 1) / kernel.tile.m;
    kernel.tiles_n = (args.intermediate + kernel.tile.n - 1) / kernel.tile.n;
    typename Kernel::Policy policy(
        exec, checked_league(operation, kernel.tiles_m * kernel.tiles_n * args.batch),
        Traits::team_size, Traits::vector_length);
    policy.set_scratch_size(Traits::scratch_level,
                            Kokkos::PerTeam(checked_scratch(operation, kernel.bytes())));
    launch(operation, name, policy, kernel);
  }
}

/// What the portable kernel uses of a host's instructions that are chosen at run time, or of a
/// device's for matrices, by name; empty: nothing.
template <class X, class W, class Out, class Exec>
std::string gated_mlp_portable_instructions(Exec const&) {
  using Acc = GatedMlpAccumulator<X, W, Out>;
  if constexpr (multiplies_in_fragments<Exec>) {
    return GemmFragmentsFor<Exec, X, W, Acc>::name;
  } else {
    using Dot = GemmDot<Acc, X, W>;
    if constexpr (Dot::exists) {
      HostIsa const isa = host_isa();
      if (isa < Dot::isa) return "";
      return host_isa_name(Dot::uses_tiles(isa) ? HostIsa::amx : Dot::isa);
    }
    return "";
  }
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
