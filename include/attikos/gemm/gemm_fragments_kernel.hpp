// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The matrix product on a device, one body for every back end: a team computes a tile of C in
/// fragments (core/fragments/), while the next steps of its factors come into scratch; or each of
/// its threads does, of small products. Sums of a long k may be cut into parts.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/fragments/multiply.hpp>
#include <attikos/core/fragments/stage.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_epilogue.hpp>
#include <attikos/gemm/gemm_fragment_tiles.hpp>
#include <attikos/gemm/gemm_groups.hpp>
#include <attikos/gemm/gemm_small.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// In place of a function: two right factors of like extents and one type, of which B is the first,
/// and what takes both sums of an element.
template <class End>
struct TwoProducts {
  void const* b;
  std::int64_t b_n, b_k;
  End end;
};
template <class Function>
inline constexpr int right_factors = 1;
template <class End>
inline constexpr int right_factors<TwoProducts<End>> = 2;

/// The parts of a product along k, each with sums of its own: [parts, batch, m, right factors, n].
template <class Acc>
struct GemmParts {
  int parts;
  int steps;  ///< of one part
  Acc* sums;  ///< null where there is one part, which is finished at once
};

/// Finishes an element and writes it to C.
template <class A, class B, class C, class Function, class Acc>
KOKKOS_INLINE_FUNCTION void gemm_finish_element(abi::GemmArgs const& g, Function const& function,
                                                GemmPlace const& at, std::int64_t row,
                                                std::int64_t col, Acc const* sums, int apart) {
  using Scalar = GemmScalar<A, B, C>;
  if constexpr (right_factors<Function> == 2) {
    function.end.element(at.batch_c, row, col, sums[0], sums[apart]);
  } else {
    Scalar x = sum_to_scalar<Scalar>(sums[0]);
    if (has_scaled_products(g))
      x = x * static_cast<Scalar>(g.scale_a.at(at.batch_a, row, 0)) *
          static_cast<Scalar>(g.scale_b.at(at.batch_b, 0, col));
    gemm_store_element<C>(g, function, {at.batch_c, at.batch_b}, row, col, x);
  }
  (void)apart;
}

/// Whether neighboring lanes write neighbors of C down a column.
template <class Function>
KOKKOS_INLINE_FUNCTION bool gemm_stores_by_column(abi::GemmArgs const& g,
                                                  Function const& function) {
  if constexpr (right_factors<Function> == 2) return function.end.by_token();
  return g.c_m == 1 && g.c_n != 1;
}

/// Kernel body.
template <class Exec, class Shape, class A, class B, class C, class Function = Absent>
struct GemmFragments {
  using F = typename Shape::Fragments;
  using T = typename F::Element;
  using Acc = GemmAccumulator<A, B, C>;
  using Scalar = GemmScalar<A, B, C>;
  static constexpr bool alone = Shape::alone;
  static constexpr int rights = right_factors<Function>;
  static constexpr int tile_n = Shape::n / rights;
  using Policy =
      Kokkos::TeamPolicy<Exec,
                         Kokkos::LaunchBounds<Shape::lanes * Shape::tiles, Shape::teams_at_once>>;
  using Team = typename Policy::member_type;
  using StageA = Stage<F, A, Shape::m, Shape::depth>;
  using StageB = Stage<F, B, tile_n, Shape::depth, Shape::n>;

  abi::GemmArgs g;
  Function function;
  StageA stage_a;
  Kokkos::Array<StageB, rights> stage_b;
  std::int64_t tiles_m, tiles_n;
  GemmParts<Acc> parts;
  int tile_bytes;  ///< of scratch
  bool moves_c;    ///< rows of C may be written 16 bytes at a time

  static constexpr int a_size = StageA::size, stage_size = a_size + StageB::size;
  /// Sums are stored by way of scratch, those of one row of threads at a time.
  static constexpr int pass_rows = Shape::m / Shape::threads_m;
  static constexpr int sums_pitch = Shape::n + 4;

  /// Scratch of a tile that takes so many steps; those of threads of one warp lie in other banks.
  static int scratch_of(int steps) {
    int const stages = steps < Shape::stages ? steps : Shape::stages;
    int const factors = stages * stage_size * static_cast<int>(sizeof(T));
    int const sums = pass_rows * sums_pitch * static_cast<int>(sizeof(Acc));
    int const bytes = factors > sums ? factors : sums;
    return alone ? (bytes + 31) / 32 * 32 + 16 : bytes;
  }

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    int const thread = alone ? 0 : team.team_rank();
    int const lane = F::lanes > 1 ? lane_of(team, F::lanes) : 0;
    int const tiles = alone ? team.team_size() : 1;
    char* memory = scratch<char>(team, 0, tile_bytes * tiles);
    std::int64_t rank = team.league_rank(), col0 = 0;
    int part = 0;
    GemmPlace at{};
    if constexpr (alone) {
      memory += team.team_rank() * tile_bytes;
      rank = rank * tiles + team.team_rank();
      if (rank < g.batch) at = {rank, rank, rank, 0, g.m};
    } else {
      // Tiles that run at about the same time are eight rows high, so that they share factors in
      // the caches.
      constexpr std::int64_t high = 8;
      std::int64_t const batch = rank / (tiles_m * tiles_n), in_batch = rank % (tiles_m * tiles_n);
      std::int64_t const first = in_batch / (high * tiles_n) * high;
      std::int64_t const height = tiles_m - first < high ? tiles_m - first : high;
      std::int64_t const in_band = in_batch % (high * tiles_n);
      if (parts.parts > 1) part = static_cast<int>(batch / g.batch);
      at = gemm_place(g, parts.parts > 1 ? batch % g.batch : batch, first + in_band % height,
                      Shape::m);
      col0 = in_band / height * tile_n;
      if (at.row >= at.end) return;
    }
    int const rows = static_cast<int>(at.end - at.row < Shape::m ? at.end - at.row : Shape::m);
    int const cols = static_cast<int>(g.n - col0 < tile_n ? g.n - col0 : tile_n);

    typename F::Sums sums[Shape::fragments_m][Shape::fragments_n] = {};
    // Addresses of fragments are constants for each order in which factors lie in scratch.
    auto const add = [&](auto a_by_k, auto b_by_k) {
      add_products<a_by_k.value, b_by_k.value>(team, reinterpret_cast<T*>(memory), at, part, col0,
                                               rows, cols, thread, lane, sums);
    };
    with_order(stage_a, [&](auto a) { with_order(stage_b[0], [&](auto b) { add(a, b); }); });
    auto* const stored = reinterpret_cast<Acc*>(memory);
    for (int pass = 0; pass < Shape::threads_m; ++pass) {
      meet<alone>(team);
      if (thread / Shape::threads_n == pass)
        put_sums(sums, stored + thread % Shape::threads_n * Shape::fragments_n * F::cols, lane);
      meet<alone>(team);
      int const row0 = pass * pass_rows;
      int const left = rows - row0 < pass_rows ? rows - row0 : pass_rows;
      if (parts.sums != nullptr)
        store_part(stored, at, part, at.row + row0, col0, left, cols, thread * F::lanes + lane);
      else
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
                                           int part, std::int64_t col0, int rows, int cols,
                                           int thread, int lane, Sums& sums) const {
    if (!has_products(g)) return;
    int const index = thread * F::lanes + lane;
    // Where this lane reads its fragments.
    constexpr FactorPlace place_a = StageA::place(AByK);
    constexpr FactorPlace place_b = StageB::place(BByK);
    int const lane_a = F::left_offset(place_a, lane) +
                       thread / Shape::threads_n * (Shape::fragments_m * F::rows) * place_a.mn;
    int const lane_b = F::right_offset(place_b, lane) +
                       thread % Shape::threads_n * (Shape::fragments_n * F::cols) * place_b.mn;
    A const* a = gemm_matrix<A const>(g.a, g.a_pointers, at.batch_a, g.a_batch) + at.row * g.a_m;
    B const* b = gemm_matrix<B const>(g.b, g.b_pointers, at.batch_b, g.b_batch) + col0 * g.b_n;
    std::int64_t from = 0;  // k that is staged next
    int steps = parts.steps;
    if (part > 0) {
      int const of_k = static_cast<int>((g.k + Shape::depth - 1) / Shape::depth);
      int const first = part * parts.steps, left = of_k * static_cast<int>(g.outer) - first;
      a += first / of_k * g.a_outer;
      b += first / of_k * g.b_outer;
      from = std::int64_t{first % of_k} * Shape::depth;
      if (left < steps) steps = left;
    }
    constexpr int ahead = Shape::stages - 1;
    int stage = 0;  // of step s, behind that which is staged
    for (int s = -ahead; s < steps; ++s) {
      if (s >= 0) {
        wait_for_copies<ahead - 1>();
        meet<alone>(team);  // also: nobody reads what is staged into now
      }
      if (s + ahead < steps) {
        T* const to = memory + (s < 0 ? s + ahead : stage == 0 ? ahead : stage - 1) * stage_size;
        int const depth = static_cast<int>(g.k - from < Shape::depth ? g.k - from : Shape::depth);
        stage_a.template copy<Shape::lanes, AByK>(to, a + from * g.a_k, rows, depth, index);
        stage_b[0].template copy<Shape::lanes, BByK>(to + a_size, b + from * g.b_k, cols, depth,
                                                     index);
        if constexpr (rights == 2)
          stage_b[1].template copy<Shape::lanes, BByK>(
              to + a_size + tile_n * place_b.mn,
              static_cast<B const*>(function.b) + col0 * function.b_n + from * function.b_k, cols,
              depth, index);
        from += Shape::depth;
        if (from >= g.k) {
          from = 0;
          a += g.a_outer;
          b += g.b_outer;
        }
      }
      commit_copies();
      if (s >= 0) {
        T const* const staged = memory + stage * stage_size;
        stage = stage == ahead ? 0 : stage + 1;
        multiply_staged<F, Shape::depth>(staged + lane_a, place_a, staged + a_size + lane_b,
                                         place_b, sums);
      }
    }
  }

  KOKKOS_INLINE_FUNCTION static void put_sums(Sums const& sums, Acc* to, int lane) {
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Shape::fragments_m; ++i) ATTIKOS_UNROLL_DEVICE
    for (int j = 0; j < Shape::fragments_n; ++j)
      for_each_sum<F>(sums[i][j], lane, [&](SumPosition at, typename F::Sum sum) {
        to[(i * F::rows + at.row) * sums_pitch + j * F::cols + at.col] = static_cast<Acc>(sum);
      });
  }

  /// Finishes `rows` × `cols` sums and writes them to C from `row0`, `col0` on.
  KOKKOS_INLINE_FUNCTION void store(Acc const* sums, GemmPlace const& at, std::int64_t row0,
                                    std::int64_t col0, int rows, int cols, int index) const {
    if constexpr (!is_quantized<C> && rights == 1) {
      if (!has_scaled_products(g) && stores_sums_alone<C, Scalar, Function>(g)) {
        C* const to = gemm_c<C>(g, at.batch_c) + row0 * g.c_m + col0 * g.c_n;
        return moves_c ? store_packs(sums, to, rows, cols, index)
                       : store_elements(sums, to, rows, cols, index);
      }
    }
    bool const by_column = gemm_stores_by_column(g, function);
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (int i = index; i < pass_rows * tile_n; i += Shape::lanes) {
      int const row = by_column ? i % pass_rows : i / tile_n;
      int const col = by_column ? i / pass_rows : i % tile_n;
      if (row >= rows || col >= cols) continue;
      gemm_finish_element<A, B, C>(g, function, at, row0 + row, col0 + col,
                                   sums + row * sums_pitch + col, tile_n);
    }
  }

  /// An element of C where nothing happens to a sum but its conversion.
  KOKKOS_INLINE_FUNCTION static C converted(Acc sum) {
    return nearest_element<C>(sum_to_scalar<Scalar>(sum));
  }

  KOKKOS_INLINE_FUNCTION void store_elements(Acc const* sums, C* to, int rows, int cols,
                                             int index) const {
    bool const by_column = gemm_stores_by_column(g, function);
    ATTIKOS_DO_NOT_UNROLL_DEVICE
    for (int i = index; i < pass_rows * Shape::n; i += Shape::lanes) {
      int const row = by_column ? i % pass_rows : i / Shape::n;
      int const col = by_column ? i / pass_rows : i % Shape::n;
      if (row < rows && col < cols)
        to[row * g.c_m + col * g.c_n] = converted(sums[row * sums_pitch + col]);
    }
  }

  KOKKOS_INLINE_FUNCTION void store_packs(Acc const* sums, C* to, int rows, int cols,
                                          int index) const {
    constexpr int width = widest_access / static_cast<int>(sizeof(C));
    constexpr int packs = Shape::n / width;
    for (int i = index; i < pass_rows * packs; i += Shape::lanes) {
      int const row = i / packs, col = i % packs * width;
      if (row >= rows || col >= cols) continue;
      Acc const* const from = sums + row * sums_pitch + col;
      C* const place = to + row * g.c_m + col;
      if (col + width <= cols) {
        Pack<C, width> pack;
        for (int e = 0; e < width; ++e) pack.element[e] = converted(from[e]);
        *reinterpret_cast<Pack<C, width>*>(place) = pack;
      } else {
        for (int e = 0; col + e < cols; ++e) place[e] = converted(from[e]);
      }
    }
  }

  /// Writes sums of one part of k to where they wait for those of the others.
  KOKKOS_INLINE_FUNCTION void store_part(Acc const* sums, GemmPlace const& at, int part,
                                         std::int64_t row0, std::int64_t col0, int rows, int cols,
                                         int index) const {
    Acc* const to =
        parts.sums + ((part * g.batch + at.batch_c) * g.m + row0) * (rights * g.n) + col0;
    for (int i = index; i < pass_rows * Shape::n; i += Shape::lanes) {
      int const row = i / Shape::n, which = i % Shape::n / tile_n, col = i % tile_n;
      if (row >= rows || col >= cols) continue;
      to[(std::int64_t{row} * rights + which) * g.n + col] =
          sums[row * sums_pitch + which * tile_n + col];
    }
  }
};

/// Kernel body: adds the parts of an element, the first first, and finishes it.
template <class A, class B, class C, class Function>
struct GemmJoin {
  using Acc = GemmAccumulator<A, B, C>;
  static constexpr int rights = right_factors<Function>;

  abi::GemmArgs g;
  Function function;
  GemmParts<Acc> parts;
  bool by_column;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    auto const m = static_cast<std::uint32_t>(g.m), n = static_cast<std::uint32_t>(g.n);
    auto const i = static_cast<std::uint32_t>(index);
    std::uint32_t const batch = i / (m * n), in_batch = i % (m * n);
    std::uint32_t const row = by_column ? in_batch % m : in_batch / n;
    std::uint32_t const col = by_column ? in_batch / m : in_batch % n;
    std::int64_t const apart = g.batch * g.m * rights * g.n;
    Acc sums[rights];
    for (int r = 0; r < rights; ++r) {
      Acc const* const from = parts.sums + ((std::int64_t{batch} * m + row) * rights + r) * n + col;
      sums[r] = from[0];
      for (int p = 1; p < parts.parts; ++p) sums[r] += from[p * apart];
    }
    gemm_finish_element<A, B, C>(g, function, {batch, batch, batch, 0, 0}, row, col, sums, 1);
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
