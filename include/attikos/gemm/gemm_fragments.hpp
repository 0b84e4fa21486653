// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launches of products in fragments (gemm_fragments_kernel.hpp).
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <attikos/core/launch.hpp>
#include <attikos/core/workspace.hpp>
#include <attikos/gemm/gemm_fragments_kernel.hpp>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Whether scales change along k, which asks for sums of 128 products at a time.
inline bool scales_along_k(abi::GemmArgs const& g) {
  return g.k > 128 && ((g.scale_a.data != nullptr && g.scale_a.col != 0) ||
                       (g.scale_b.data != nullptr && g.scale_b.row != 0));
}

/// Whether fragments take the call: all but zero points and scales along k, and steps beyond count.
inline bool gemm_takes_fragments(abi::GemmArgs const& g) {
  return g.k < std::numeric_limits<std::int32_t>::max() / std::max<std::int64_t>(g.outer, 1) &&
         g.zero_point_a == nullptr && g.zero_point_b == nullptr && g.packed_b == nullptr &&
         !scales_along_k(g);
}

template <class Exec, class A, class B, class C>
using GemmShapesFor = GemmShapes<GemmFragmentsFor<Exec, A, B, C>>;

/// Whether each product of a call is a tile of one thread: many of few rows and columns.
template <class Exec>
bool gemm_fits_threads(Exec const& exec, abi::GemmArgs const& g) {
  return g.m <= small_gemm_extent && g.n <= small_gemm_extent && g.offsets == nullptr &&
         g.counts == nullptr && !has_tile(g) && g.batch >= exec.concurrency() / 512;
}

/// Where the factors lie.
inline std::array<StageSource, 2> gemm_sources(abi::GemmArgs const& g) {
  bool const grouped = g.offsets != nullptr;
  return {
      StageSource{
          g.a_pointers == nullptr ? g.a : nullptr, g.a_m, g.a_k, {g.a_batch, g.a_outer}, grouped},
      StageSource{
          g.b_pointers == nullptr ? g.b : nullptr, g.b_n, g.b_k, {g.b_batch, g.b_outer}, false}};
}

/// The large tile and the small one.
template <class A, class B, class C, class Exec>
constexpr std::array<GemmTileModel, 2> gemm_tile_models() {
  using Shapes = GemmShapesFor<Exec, A, B, C>;
  static_assert(Shapes::Large::depth == Shapes::Small::depth);
  return {gemm_tile_model<typename Shapes::Large>(), gemm_tile_model<typename Shapes::Small>()};
}

/// How the call is cut by itself: 0 is the large tile, 1 the small one.
template <class A, class B, class C, class Exec>
GemmCut gemm_fragments_cut(Exec const& exec, abi::GemmArgs const& g) {
  using Large = typename GemmShapesFor<Exec, A, B, C>::Large;
  using F = typename Large::Fragments;
  constexpr int size = static_cast<int>(sizeof(typename F::Element));
  auto const [a, b] = gemm_sources(g);
  return choose_gemm_cut(gemm_tile_models<A, B, C, Exec>(), g,
                         gemm_copy_cycles(Stage<F, A, Large::m, Large::depth>(a).width, size),
                         gemm_copy_cycles(Stage<F, B, Large::n, Large::depth>(b).width, size),
                         multiprocessors_of(exec));
}

/// The two tiles, that which the call takes by itself first.
template <class A, class B, class C, class Exec>
std::array<tune::TileConfig, 2> gemm_fragments_tiles(Exec const& exec, abi::GemmArgs const& g) {
  using Shapes = GemmShapesFor<Exec, A, B, C>;
  constexpr tune::TileConfig large = Shapes::Large::config, small = Shapes::Small::config;
  return gemm_fragments_cut<A, B, C>(exec, g).tile == 0 ? std::array{large, small}
                                                        : std::array{small, large};
}

/// The tile of a call that fragments take, the first that has the extents which the caller chose;
/// zeros for one of threads. Throws UnsupportedError if none has.
template <class A, class B, class C, class Exec>
tune::TileConfig gemm_fragments_tile(Exec const& exec, abi::GemmArgs const& g) {
  if (gemm_fits_threads(exec, g)) return {};
  auto const tiles = gemm_fragments_tiles<A, B, C>(exec, g);
  tune::TileConfig const wanted{g.tile.m, g.tile.n, g.tile.k};
  for (tune::TileConfig const& tile : tiles)
    if (tune::completed(wanted, tile) == tile) return tile;
  raise<UnsupportedError>("gemm: a tile of ", tune::to_string(tune::completed(wanted, tiles[0])),
                          "; expected ", tune::to_string(tiles[0]), " or ",
                          tune::to_string(tiles[1]),
                          ", which the portable kernel has on this device");
}

/// Whether both factors come into scratch by the widest copies.
template <class Shape, class A, class B>
bool gemm_moves_neighbors(abi::GemmArgs const& g) {
  using F = typename Shape::Fragments;
  constexpr int most = 16 / static_cast<int>(sizeof(typename F::Element));
  auto const [a, b] = gemm_sources(g);
  return Stage<F, A, Shape::m, Shape::depth>(a).width == most &&
         Stage<F, B, Shape::n, Shape::depth>(b).width == most;
}

/// Launches the call by tiles of one shape, in parts along k as `cut` has it.
template <class Shape, class A, class B, class C, class Exec, class Function>
void launch_gemm_fragments(char const* operation, char const* name, Exec const& exec,
                           abi::GemmArgs const& g, Function const& function,
                           GemmCut const& cut = {}) {
  using Kernel = GemmFragments<Exec, Shape, A, B, C, Function>;
  using F = typename Shape::Fragments;
  using Acc = typename Kernel::Acc;
  std::int64_t const tiles_m =
      g.offsets == nullptr ? (g.m + Shape::m - 1) / Shape::m : gemm_group_slots(g, Shape::m);
  std::int64_t const tiles_n = (g.n + Kernel::tile_n - 1) / Kernel::tile_n;
  std::array const sources = gemm_sources(g);
  std::int64_t const steps = (g.k + Shape::depth - 1) / Shape::depth * g.outer;
  GemmParts<Acc> parts{cut.parts, static_cast<int>(cut.parts > 1 ? cut.part_steps : steps),
                       nullptr};
  WorkspaceLease lease;
  if (cut.parts > 1) {
    lease = get_workspace<OfProducts>(
        operation, exec,
        static_cast<std::size_t>(cut.parts * g.batch * g.m * Kernel::rights * g.n) * sizeof(Acc));
    parts.sums = static_cast<Acc*>(lease.data);
  }
  Kokkos::Array<typename Kernel::StageB, Kernel::rights> const stages_b = [&] {
    typename Kernel::StageB const first(sources[1]);
    if constexpr (Kernel::rights == 1) {
      return Kokkos::Array<typename Kernel::StageB, 1>{{first}};
    } else {
      typename Kernel::StageB second({function.b, function.b_n, function.b_k, {0, 0}, false});
      second.lie_beside(first.k_major);
      return Kokkos::Array<typename Kernel::StageB, 2>{{first, second}};
    }
  }();
  Kernel kernel{g,       function, typename Kernel::StageA(sources[0]), stages_b, tiles_m,
                tiles_n, parts,    Kernel::scratch_of(parts.steps),     false};
  std::int64_t const width = widest_access / static_cast<std::int64_t>(sizeof(C));
  kernel.moves_c = g.c_pointers == nullptr && g.c_n == 1 && g.c_m % width == 0 &&
                   g.c_batch % width == 0 &&
                   reinterpret_cast<std::uintptr_t>(g.c) % std::uintptr_t{widest_access} == 0;
  // Tiles of a team: whole warps of them, as many as its scratch holds.
  int per_team = 1;
  if constexpr (Shape::alone) {
    constexpr int of_warp = F::lanes < 32 && Shape::tiles > 1 ? 32 / F::lanes : 1;
    per_team = std::clamp(Shape::room / kernel.tile_bytes / of_warp * of_warp,
                          std::min(of_warp, Shape::tiles), Shape::tiles);
  }
  std::int64_t const tiles = tiles_m * tiles_n * g.batch * cut.parts;
  typename Kernel::Policy policy(exec, checked_league(operation, (tiles + per_team - 1) / per_team),
                                 Shape::threads * per_team, F::lanes);
  policy.set_scratch_size(
      0, Kokkos::PerTeam(static_cast<int>(scratch_bytes<char>(kernel.tile_bytes * per_team))));
  launch(operation, name, policy, kernel);
  if (cut.parts == 1) return;
  launch(operation, name, range_policy(exec, g.batch * g.m * g.n),
         GemmJoin<A, B, C, Function>{g, function, parts, gemm_stores_by_column(g, function)});
}

/// Launches a product that fragments take. Asynchronous on `exec`. Throws what
/// gemm_fragments_tile() does, of an empty product, too.
template <class A, class B, class C, class Exec, class Function>
void gemm_fragments(char const* operation, char const* name, Exec const& exec,
                    abi::GemmArgs const& g, Function const& function) {
  using Shapes = GemmShapesFor<Exec, A, B, C>;
  using Large = typename Shapes::Large;
  using OfNeighbors = typename Shapes::LargeOfNeighbors;
  constexpr bool one = right_factors<Function> == 1;
  auto const run = [&]<class Shape>(std::type_identity<Shape>, GemmCut const& cut) {
    launch_gemm_fragments<Shape, A, B, C>(operation, name, exec, g, function, cut);
  };
  bool const empty = g.m == 0 || g.n == 0 || g.batch == 0;
  GemmCut cut{};
  if constexpr (one) {
    if (gemm_fits_threads(exec, g)) {
      if (empty) return;
      auto const fits = [&]<class Shape>(std::type_identity<Shape>) {
        return g.m <= Shape::m && g.n <= Shape::n;
      };
      constexpr std::type_identity<typename Shapes::OfThread8> of_8;
      constexpr std::type_identity<typename Shapes::OfThread16> of_16;
      constexpr std::type_identity<typename Shapes::OfThread32> of_32;
      return fits(of_8) ? run(of_8, {}) : fits(of_16) ? run(of_16, {}) : run(of_32, {});
    }
    // Refuses a tile of the caller's that there is none of, of an empty product, too.
    bool const small = has_tile(g) && gemm_fragments_tile<A, B, C>(exec, g) != Large::config;
    if (empty) return;
    cut = gemm_fragments_cut<A, B, C>(exec, g);
    if (has_tile(g)) cut.tile = small ? 1 : 0;
  } else {
    if (empty) return;
    abi::GemmArgs both = g;
    both.n *= 2;
    cut = gemm_fragments_cut<A, B, C>(exec, both);
  }
  if (cut.tile != 0) return run(std::type_identity<typename Shapes::Small>{}, cut);
  if constexpr (!std::is_same_v<OfNeighbors, Large>) {
    static_assert(OfNeighbors::config == Large::config);
    if (gemm_moves_neighbors<OfNeighbors, A, B>(g))
      return run(std::type_identity<OfNeighbors>{}, cut);
  }
  run(std::type_identity<Large>{}, cut);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
