// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The matrix product on a device, one body for every back end: a team computes a tile of C in
/// fragments (core/fragments/), while the next steps of its factors come into scratch.
#pragma once

#include <Kokkos_Core.hpp>
#include <array>
#include <attikos/core/fragments/multiply.hpp>
#include <attikos/core/fragments/stage.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_epilogue.hpp>
#include <attikos/gemm/gemm_groups.hpp>
#include <attikos/gemm/gemm_small.hpp>
#include <attikos/tune/tile_config.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
inline constexpr bool is_float8 = std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;

/// Type in which fragments multiply A and B: their own where the device has instructions for it, a
/// 16-bit type that holds both exactly where there is one, else that of the sums.
template <class Exec, class A, class B, class C>
constexpr auto gemm_factor() {
  using Acc = GemmAccumulator<A, B, C>;
  constexpr auto holds = []<class T>(std::type_identity<T>) {
    return has_matrix_instructions<Exec, T> &&
           (std::is_same_v<A, T> || is_float8<A>)&&(std::is_same_v<B, T> || is_float8<B>);
  };
  if constexpr (std::is_same_v<Acc, double>)
    return std::type_identity<double>{};
  else if constexpr (std::is_integral_v<Acc>)
    return std::type_identity<
        std::conditional_t<has_matrix_instructions<Exec, std::int8_t>, std::int8_t, Acc>>{};
  else if constexpr (holds(std::type_identity<float16>{}))
    return std::type_identity<float16>{};
  else if constexpr (holds(std::type_identity<bfloat16>{}))
    return std::type_identity<bfloat16>{};
  else
    return std::type_identity<float>{};
}
template <class Exec, class A, class B, class C>
using GemmFragmentsFor = FragmentsFor<Exec, typename decltype(gemm_factor<Exec, A, B, C>())::type>;

/// A tile: threads of a team along m and n, fragments of each, and what is staged of k at once.
template <class F, int ThreadsM, int ThreadsN, int FragmentsM, int FragmentsN, int Depth>
struct GemmShape {
  using Fragments = F;
  static constexpr int threads_m = ThreadsM, threads_n = ThreadsN;
  static constexpr int fragments_m = FragmentsM, fragments_n = FragmentsN;
  static constexpr int m = ThreadsM * FragmentsM * F::rows, n = ThreadsN * FragmentsN * F::cols;
  static constexpr int depth = Depth;
  static constexpr int threads = ThreadsM * ThreadsN, lanes = threads * F::lanes;
  static_assert(Depth % F::depth == 0);
};

/// A large tile, how it is held where both factors move by 16 bytes, and a small one for products
/// that have few of the large.
template <class F>
struct GemmShapes {  // of instructions
  static constexpr int depth = 64 / static_cast<int>(sizeof(typename F::Element));
  using Large = GemmShape<F, 2, 4, 4, 2, depth>;
  // Four warps load a third less from scratch than eight do, but eight are faster at copies of less
  // than 16 bytes. <H200, CUDA 13.0, bfloat16, of cuBLAS: 4096^3 0.344 and 0.322; 1777 x 2339 x 901
  // 0.430 and 0.560>
  static constexpr bool four = F::lanes > 1 && sizeof(typename F::Element) == 2;
  using LargeOfNeighbors = std::conditional_t<four, GemmShape<F, 2, 2, 4, 4, depth>, Large>;
  using Small = GemmShape<F, 2, 2, 2, 2, depth>;
};
template <class F>
requires(F::lanes > 1 && sizeof(typename F::Element) == 8 && F::depth > 1) struct GemmShapes<F> {
  using Large = GemmShape<F, 2, 2, 2, 4, 16>;
  using LargeOfNeighbors = Large;
  using Small = GemmShape<F, 2, 2, 1, 2, 16>;
};
template <class T, int Lanes>
struct GemmShapes<PlainFragments<T, Lanes>> {
  using F = PlainFragments<T, Lanes>;
  static constexpr bool wide = sizeof(T) == 8;
  using Large = GemmShape<F, 4, 2, wide ? 1 : 2, wide ? 1 : 2, wide ? 8 : 16>;
  using LargeOfNeighbors = Large;
  using Small = GemmShape<F, wide ? 2 : 4, 2, 1, 1, wide ? 8 : 16>;
};
/// Kernel body.
template <class Exec, class Shape, class A, class B, class C, class Function = Absent>
struct GemmFragments {
  using F = typename Shape::Fragments;
  using T = typename F::Element;
  using Acc = GemmAccumulator<A, B, C>;
  using Scalar = GemmScalar<A, B, C>;
  static constexpr int sums_of_lane = Shape::m * Shape::n / Shape::lanes;
  static constexpr int teams_at_once = sums_of_lane > 64 || Shape::lanes > 128 ? 2 : 4;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::LaunchBounds<Shape::lanes, teams_at_once>>;
  using Team = typename Policy::member_type;

  abi::GemmArgs g;
  Function function;
  Stage<F, A, Shape::m, Shape::depth> stage_a;
  Stage<F, B, Shape::n, Shape::depth> stage_b;
  std::int64_t tiles_m, tiles_n;
  bool moves_c;  ///< rows of C may be written 16 bytes at a time

  static constexpr int a_size = Stage<F, A, Shape::m, Shape::depth>::size;
  static constexpr int b_size = Stage<F, B, Shape::n, Shape::depth>::size;
  static constexpr int stages = 2;
  /// Sums are stored by way of scratch, those of one row of threads at a time.
  static constexpr int pass_rows = Shape::m / Shape::threads_m;
  static constexpr int sums_pitch = Shape::n + 4;
  static constexpr int scratch_size = [] {
    int const factors = stages * (a_size + b_size) * static_cast<int>(sizeof(T));
    int const sums = pass_rows * sums_pitch * static_cast<int>(sizeof(Scalar));
    return factors > sums ? factors : sums;
  }();

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    // Tiles that run at about the same time are eight rows high, so that they share factors in the
    // caches.
    constexpr std::int64_t high = 8;
    std::int64_t const rank = team.league_rank();
    std::int64_t const batch = rank / (tiles_m * tiles_n), in_batch = rank % (tiles_m * tiles_n);
    std::int64_t const first = in_batch / (high * tiles_n) * high;
    std::int64_t const height = tiles_m - first < high ? tiles_m - first : high;
    std::int64_t const in_band = in_batch % (high * tiles_n);
    auto const at = gemm_place(g, batch, first + in_band % height, Shape::m);
    std::int64_t const col0 = in_band / height * Shape::n;
    if (at.row >= at.end) return;
    int const rows = static_cast<int>(at.end - at.row < Shape::m ? at.end - at.row : Shape::m);
    int const cols = static_cast<int>(g.n - col0 < Shape::n ? g.n - col0 : Shape::n);
    int const lane = F::lanes > 1 ? lane_of(team, F::lanes) : 0, thread = team.team_rank();

    char* const memory = scratch<char>(team, 0, scratch_size);
    typename F::Sums sums[Shape::fragments_m][Shape::fragments_n] = {};
    // Addresses of fragments are constants for each order in which factors lie in scratch.
    auto const add = [&](auto a_by_k, auto b_by_k) {
      add_products<a_by_k.value, b_by_k.value>(team, reinterpret_cast<T*>(memory), at, col0, rows,
                                               cols, lane, sums);
    };
    with_order(stage_a, [&](auto a) { with_order(stage_b, [&](auto b) { add(a, b); }); });
    auto* const stored = reinterpret_cast<Scalar*>(memory);
    for (int pass = 0; pass < Shape::threads_m; ++pass) {
      team.team_barrier();
      if (thread / Shape::threads_n == pass)
        put_sums(sums, stored + thread % Shape::threads_n * Shape::fragments_n * F::cols, lane);
      team.team_barrier();
      int const row0 = pass * pass_rows;
      int const left = rows - row0 < pass_rows ? rows - row0 : pass_rows;
      store(stored, at, at.row + row0, col0, left, cols, thread * F::lanes + lane);
    }
  }

  using Sums = typename F::Sums[Shape::fragments_m][Shape::fragments_n];

  /// Calls f(whether blocks lie K-major in scratch, as a constant).
  template <class S, class Call>
  KOKKOS_INLINE_FUNCTION static void with_order(S const& stage, Call const& f) {
    if constexpr (F::reads_k_major && !F::reads_k_major_alone) {
      if (!stage.k_major) return f(std::false_type{});
    }
    f(std::bool_constant<F::reads_k_major>{});
    (void)stage;
  }

  template <bool AByK, bool BByK>
  KOKKOS_INLINE_FUNCTION void add_products(Team const& team, T* memory, GemmPlace const& at,
                                           std::int64_t col0, int rows, int cols, int lane,
                                           Sums& sums) const {
    if (!has_products(g)) return;
    int const thread = team.team_rank(), index = thread * F::lanes + lane;
    // Where this lane reads its fragments.
    constexpr FactorPlace place_a = decltype(stage_a)::place(AByK);
    constexpr FactorPlace place_b = decltype(stage_b)::place(BByK);
    int const lane_a = F::left_offset(place_a, lane) +
                       thread / Shape::threads_n * (Shape::fragments_m * F::rows) * place_a.mn;
    int const lane_b = F::right_offset(place_b, lane) +
                       thread % Shape::threads_n * (Shape::fragments_n * F::cols) * place_b.mn;
    A const* a = gemm_matrix<A const>(g.a, g.a_pointers, at.batch_a, g.a_batch) + at.row * g.a_m;
    B const* b = gemm_matrix<B const>(g.b, g.b_pointers, at.batch_b, g.b_batch) + col0 * g.b_n;
    std::int64_t const steps = (g.k + Shape::depth - 1) / Shape::depth * g.outer;
    std::int64_t from = 0;  // k that is staged next
    for (std::int64_t s = -1; s < steps; ++s) {
      if (s >= 0) {
        wait_for_copies<0>();
        team.team_barrier();  // also: nobody reads what is staged into now
      }
      if (s + 1 < steps) {
        T* const to = memory + ((s + 1) % 2 != 0 ? a_size + b_size : 0);
        int const depth = static_cast<int>(g.k - from < Shape::depth ? g.k - from : Shape::depth);
        stage_a.template copy<Shape::lanes, AByK>(to, a + from * g.a_k, rows, depth, index);
        stage_b.template copy<Shape::lanes, BByK>(to + a_size, b + from * g.b_k, cols, depth,
                                                  index);
        from += Shape::depth;
        if (from >= g.k) {
          from = 0;
          a += g.a_outer;
          b += g.b_outer;
        }
      }
      commit_copies();
      if (s >= 0) {
        T const* const staged = memory + (s % 2 != 0 ? a_size + b_size : 0);
        multiply_staged<F, Shape::depth>(staged + lane_a, place_a, staged + a_size + lane_b,
                                         place_b, sums);
      }
    }
  }

  KOKKOS_INLINE_FUNCTION static void put_sums(Sums const& sums, Scalar* to, int lane) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Shape::fragments_n; ++j)
      for_each_sum<F>(sums[i][j], lane, [&](SumPosition at, typename F::Sum sum) {
        to[(i * F::rows + at.row) * sums_pitch + j * F::cols + at.col] =
            sum_to_scalar<Scalar>(static_cast<Acc>(sum));
      });
  }

  /// Finishes `rows` × `cols` sums and writes them to C from `row0`, `col0` on.
  KOKKOS_INLINE_FUNCTION void store(Scalar const* sums, GemmPlace const& at, std::int64_t row0,
                                    std::int64_t col0, int rows, int cols, int index) const {
    bool const scales = has_products(g) && (g.scale_a.data != nullptr || g.scale_b.data != nullptr);
    if constexpr (!is_quantized<C>) {
      if (moves_c && !scales && stores_sums_alone<C, Scalar, Function>(g))
        return store_packs(sums, gemm_c<C>(g, at.batch_c) + row0 * g.c_m + col0, rows, cols, index);
    }
    bool const by_column = g.c_m == 1 && g.c_n != 1;  // neighboring lanes write neighbors
    for (int i = index; i < pass_rows * Shape::n; i += Shape::lanes) {
      int const row = by_column ? i % pass_rows : i / Shape::n;
      int const col = by_column ? i / pass_rows : i % Shape::n;
      if (row >= rows || col >= cols) continue;
      Scalar x = sums[row * sums_pitch + col];
      if (scales)
        x = x * static_cast<Scalar>(g.scale_a.at(at.batch_a, row0 + row, 0)) *
            static_cast<Scalar>(g.scale_b.at(at.batch_b, 0, col0 + col));
      gemm_store_element<C>(g, function, {at.batch_c, at.batch_b}, row0 + row, col0 + col, x);
    }
  }

  KOKKOS_INLINE_FUNCTION void store_packs(Scalar const* sums, C* to, int rows, int cols,
                                          int index) const {
    constexpr int width = widest_access / static_cast<int>(sizeof(C));
    constexpr int packs = Shape::n / width;
    for (int i = index; i < pass_rows * packs; i += Shape::lanes) {
      int const row = i / packs, col = i % packs * width;
      if (row >= rows || col >= cols) continue;
      Scalar const* const from = sums + row * sums_pitch + col;
      C* const place = to + row * g.c_m + col;
      if (col + width <= cols) {
        Pack<C, width> pack;
        for (int e = 0; e < width; ++e) pack.element[e] = nearest_element<C>(from[e]);
        *reinterpret_cast<Pack<C, width>*>(place) = pack;
      } else {
        for (int e = 0; col + e < cols; ++e) place[e] = nearest_element<C>(from[e]);
      }
    }
  }
};

/// Whether scales change along k, which asks for sums of 128 products at a time.
inline bool scales_along_k(abi::GemmArgs const& g) {
  return g.k > 128 && ((g.scale_a.data != nullptr && g.scale_a.col != 0) ||
                       (g.scale_b.data != nullptr && g.scale_b.row != 0));
}

/// Whether fragments take the call: all but zero points and scales along k.
inline bool gemm_takes_fragments(abi::GemmArgs const& g) {
  return g.zero_point_a == nullptr && g.zero_point_b == nullptr && g.packed_b == nullptr &&
         !scales_along_k(g);
}

/// The two tiles, that which the call takes by itself first.
template <class A, class B, class C, class Exec>
std::array<tune::TileConfig, 2> gemm_fragments_tiles(Exec const& exec, abi::GemmArgs const& g) {
  using Shapes = GemmShapes<GemmFragmentsFor<Exec, A, B, C>>;
  using Large = typename Shapes::Large;
  using Small = typename Shapes::Small;
  constexpr tune::TileConfig large{Large::m, Large::n, Large::depth};
  constexpr tune::TileConfig small{Small::m, Small::n, Small::depth};
  // The large one where it gives a tile to each of half the places that the device has for them.
  // Kokkos counts 2048 threads for each multiprocessor.
  std::int64_t const rows = (g.m + Large::m - 1) / Large::m + g.groups;
  std::int64_t const cols = (g.n + Large::n - 1) / Large::n;
  bool const many = rows * cols * g.batch >= exec.concurrency() / 2048;
  return many ? std::array{large, small} : std::array{small, large};
}

/// The tile of a call that fragments take, the first that has the extents which the caller chose.
/// Throws UnsupportedError if none has.
template <class A, class B, class C, class Exec>
tune::TileConfig gemm_fragments_tile(Exec const& exec, abi::GemmArgs const& g) {
  auto const tiles = gemm_fragments_tiles<A, B, C>(exec, g);
  tune::TileConfig const wanted{g.tile.m, g.tile.n, g.tile.k};
  for (tune::TileConfig const& tile : tiles)
    if (tune::completed(wanted, tile) == tile) return tile;
  raise<UnsupportedError>("gemm: a tile of ", tune::to_string(tune::completed(wanted, tiles[0])),
                          "; expected ", tune::to_string(tiles[0]), " or ",
                          tune::to_string(tiles[1]),
                          ", which the portable kernel has on this device");
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

/// Whether both factors come into scratch by the widest copies.
template <class Shape, class A, class B>
bool gemm_moves_neighbors(abi::GemmArgs const& g) {
  using F = typename Shape::Fragments;
  constexpr int most = 16 / static_cast<int>(sizeof(typename F::Element));
  auto const [a, b] = gemm_sources(g);
  return Stage<F, A, Shape::m, Shape::depth>(a).width == most &&
         Stage<F, B, Shape::n, Shape::depth>(b).width == most;
}

template <class Shape, class A, class B, class C, class Exec, class Function>
void launch_gemm_fragments(Exec const& exec, abi::GemmArgs const& g, Function const& function) {
  using Kernel = GemmFragments<Exec, Shape, A, B, C, Function>;
  using F = typename Shape::Fragments;
  std::int64_t const tiles_m =
      g.offsets == nullptr ? (g.m + Shape::m - 1) / Shape::m : gemm_group_slots(g, Shape::m);
  std::int64_t const tiles_n = (g.n + Shape::n - 1) / Shape::n;
  auto const [a, b] = gemm_sources(g);
  Stage<F, A, Shape::m, Shape::depth> const stage_a(a);
  Stage<F, B, Shape::n, Shape::depth> const stage_b(b);
  Kernel kernel{g, function, stage_a, stage_b, tiles_m, tiles_n, false};
  std::int64_t const width = widest_access / static_cast<std::int64_t>(sizeof(C));
  kernel.moves_c = g.c_pointers == nullptr && g.c_n == 1 && g.c_m % width == 0 &&
                   g.c_batch % width == 0 &&
                   reinterpret_cast<std::uintptr_t>(g.c) % std::uintptr_t{widest_access} == 0;
  typename Kernel::Policy policy(exec, checked_league("gemm", tiles_m * tiles_n * g.batch),
                                 Shape::threads, F::lanes);
  policy.set_scratch_size(
      0, Kokkos::PerTeam(static_cast<int>(scratch_bytes<char>(Kernel::scratch_size))));
  launch("gemm", "portable", policy, kernel);
}

/// Launches a product that fragments take. Asynchronous on `exec`. Throws what
/// gemm_fragments_tile() does, of an empty product, too.
template <class A, class B, class C, class Exec, class Function>
void gemm_fragments(Exec const& exec, abi::GemmArgs const& g, Function const& function) {
  using Shapes = GemmShapes<GemmFragmentsFor<Exec, A, B, C>>;
  using Large = typename Shapes::Large;
  auto const tile = gemm_fragments_tile<A, B, C>(exec, g);
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  if (tile != tune::TileConfig{Large::m, Large::n, Large::depth})
    return launch_gemm_fragments<typename Shapes::Small, A, B, C>(exec, g, function);
  using OfNeighbors = typename Shapes::LargeOfNeighbors;
  if constexpr (!std::is_same_v<OfNeighbors, Large>) {
    static_assert(OfNeighbors::m == Large::m && OfNeighbors::n == Large::n &&
                  OfNeighbors::depth == Large::depth);
    if (gemm_moves_neighbors<OfNeighbors, A, B>(g))
      return launch_gemm_fragments<OfNeighbors, A, B, C>(exec, g, function);
  }
  launch_gemm_fragments<Large, A, B, C>(exec, g, function);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
