// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The matrix product on any Kokkos back end: one team per tile of C, factors packed into scratch.
/// A device takes what it can in fragments (gemm_fragments.hpp).
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/launch.hpp>
#include <attikos/core/run_here.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_arguments.hpp>
#include <attikos/gemm/gemm_dot.hpp>
#include <attikos/gemm/gemm_epilogue.hpp>
#include <attikos/gemm/gemm_fragments.hpp>
#include <attikos/gemm/gemm_groups.hpp>
#include <attikos/gemm/gemm_portable_tile.hpp>
#include <attikos/gemm/gemm_small.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body: one team computes one tile of one product, or a run of small products. `Function`
/// is the caller's epilogue, or Absent.
template <class Exec, class A, class B, class C, class Function = Absent>
struct GemmPortable {
  using Acc = GemmAccumulator<A, B, C>;
  using Scalar = GemmScalar<A, B, C>;
  using Traits = TileTraits<Exec, Acc>;
  using Dot = std::conditional_t<Traits::host, GemmDot<Acc, A, B>, GemmDotOfAny>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  abi::GemmArgs g;
  Function function;
  GemmTile tile;
  std::int64_t tiles_m, tiles_n;
  /// Small products of one team; 0 where they are not small, and a team computes a tile.
  int per_team = 0;
  /// Scales change along k: sums are scaled and moved on every 128 products.
  bool blocked = false;
  HostIsa isa = HostIsa::compiled;

  static constexpr int a_padding =
      Traits::host ? 16 : 1;  // keeps the rows of A out of one another's cache sets
  static constexpr bool converts = !std::is_same_v<Acc, Scalar>;
  /// Whether C has a type that a host's instructions store sums in.
  static constexpr bool stores_c =
      Dot::direct && (std::is_same_v<C, Acc> || (Dot::rounds && std::is_same_v<C, bfloat16>) ||
                      (std::is_same_v<C, std::int32_t> && std::is_integral_v<Acc>));

  /// Whether instructions that a host chose at run time multiply. A tile deeper than they take is
  /// left to the others.
  KOKKOS_INLINE_FUNCTION bool dots() const {
    return Dot::exists && isa >= Dot::isa && (!Dot::any_depth || tile.k <= int{Dot::k});
  }
  /// Whether `rows` are so few that a host reads the right factor where it lies, and packs none.
  KOKKOS_INLINE_FUNCTION bool streams(std::int64_t rows) const {
    return dots() && g.packed_b == nullptr && Dot::template streams<B>(isa) &&
           rows <= int{Dot::streamed_rows} &&
           (g.b_k == 1 || (g.b_n == 1 && !Dot::streams_columns_alone)) &&
           g.zero_point_a == nullptr && g.zero_point_b == nullptr;
  }
  KOKKOS_INLINE_FUNCTION bool streams() const { return streams(g.m); }
  /// Whether instructions multiply `rows` that need neither A packed nor sums in scratch.
  KOKKOS_INLINE_FUNCTION bool direct(std::int64_t rows) const {
    if constexpr (Dot::direct) return dots() && !Dot::uses_tiles(isa) && !streams(rows);
    return false;
  }
  /// Whether rows of A are read where they lie.
  KOKKOS_INLINE_FUNCTION bool in_place() const { return direct(g.m) && g.a_k == 1; }
  /// k that is taken at once. Dot products of pairs take what fits their rows, whatever the tile
  /// says, so that their pairs are the same for every tile.
  KOKKOS_INLINE_FUNCTION int step() const {
    if (!dots() || Dot::any_depth) return tile.k;
    if (blocked && Dot::k > 128) return 128;
    if constexpr (Dot::direct) {
      if (in_place() && g.packed_b != nullptr) return Dot::direct_k;
    }
    return Dot::k;
  }
  KOKKOS_INLINE_FUNCTION int lda() const { return tile.k + a_padding; }
  KOKKOS_INLINE_FUNCTION int padded_n() const {
    return round_up(tile.n, dots() ? int{Dot::cols} : int{Traits::cols});
  }
  /// Whether scaled sums have a place of their own.
  KOKKOS_INLINE_FUNCTION bool moves() const { return blocked || converts; }

  /// Elements of packed factors and of sums.
  KOKKOS_INLINE_FUNCTION std::int64_t a_count() const {
    if constexpr (Dot::exists) {
      if constexpr (Dot::direct) {
        if (in_place()) return Dot::direct_left_words(tile.m);
      }
      if (dots()) return Dot::left_words(tile.m);
    }
    return std::int64_t{tile.m} * lda();
  }
  KOKKOS_INLINE_FUNCTION std::int64_t b_count() const {
    if (streams() || g.packed_b != nullptr) return 0;
    if constexpr (Dot::exists) {
      if (dots()) return Dot::right_words(tile.n);
    }
    return std::int64_t{tile.k} * padded_n();
  }
  KOKKOS_INLINE_FUNCTION std::int64_t c_count() const {
    if constexpr (Dot::exists) {
      if (dots()) return std::int64_t{Dot::whole_rows(tile.m)} * padded_n();
    }
    return std::int64_t{tile.m} * padded_n();
  }

  std::size_t bytes() const {
    return scratch_bytes<Acc>(a_count()) + scratch_bytes<Acc>(b_count()) +
           scratch_bytes<Acc>(c_count()) + (moves() ? scratch_bytes<Scalar>(c_count()) : 0);
  }

  /// Scratch of a team, and how far apart rows of sums lie.
  struct Memory {
    Acc *a, *b, *c;
    Scalar* scaled;
    int ldc;
  };

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    if (per_team > 0) return small_products(team);
    Memory memory{};
    memory.a = scratch<Acc>(team, Traits::scratch_level, a_count());
    memory.b = scratch<Acc>(team, Traits::scratch_level, b_count());
    memory.c = scratch<Acc>(team, Traits::scratch_level, c_count());
    memory.ldc = padded_n();
    if (moves()) {
      memory.scaled = scratch<Scalar>(team, Traits::scratch_level, c_count());
    } else if constexpr (!converts) {
      memory.scaled = memory.c;
    }
    std::int64_t const rank = team.league_rank();
    std::int64_t const slot = rank % tiles_m;
    compute_tile(team, memory, gemm_place(g, rank / (tiles_m * tiles_n), slot, tile.m),
                 rank / tiles_m % tiles_n * tile.n);
  }

  KOKKOS_INLINE_FUNCTION void small_products(Team const& team) const {
    std::int64_t const first = std::int64_t{team.league_rank()} * per_team;
    int const count = static_cast<int>(g.batch - first < per_team ? g.batch - first : per_team);
    if constexpr (Traits::host) {
      KOKKOS_IF_ON_HOST(
          (for (int s = 0; s < count; ++s) host::small_gemm<A, B, C>(g, function, first + s);))
    } else {
      small_gemm_team<A, B, C>(team, g, function, first, count);
    }
    (void)count;
  }

  /// Whether a host may sum in C itself: what is stored there are sums, of their own type, one
  /// behind the other, written once, and register blocks write no more than the tile has. (Sums
  /// that are read again do better close together.)
  KOKKOS_INLINE_FUNCTION bool sums_in_place([[maybe_unused]] int rows,
                                            [[maybe_unused]] int cols) const {
    if constexpr (Traits::host && (std::is_same_v<C, Acc> ||
                                   (std::is_same_v<C, std::int32_t> && std::is_integral_v<Acc>))) {
      int const width = dots() ? int{Dot::vector_cols} : int{Traits::cols};
      int const height = dots() ? Dot::whole_height(isa) : 1;
      bool const alone = g.scale_a.data == nullptr && g.scale_b.data == nullptr && g.c_n == 1 &&
                         stores_sums_alone<C, Scalar, Function>(g);
      return alone && g.outer == 1 && g.k > 0 && g.k <= step() && cols % width == 0 &&
             rows % height == 0 && g.c_m > 0 && g.c_m <= INT32_MAX;
    } else {
      return false;
    }
  }

  /// Whether instructions store what they sum in C, of its type, whatever the extents.
  KOKKOS_INLINE_FUNCTION bool stores_directly(int rows) const {
    if constexpr (stores_c) {
      return direct(rows) && !blocked && g.k > 0 && g.outer > 0 && g.c_n == 1 &&
             g.scale_a.data == nullptr && g.scale_b.data == nullptr && g.zero_point_a == nullptr &&
             g.zero_point_b == nullptr && stores_sums_alone<C, Scalar, Function>(g);
    } else {
      return false;
    }
  }

  /// Whether what is stored are a host's sums, rounded to bfloat16 by its instruction.
  KOKKOS_INLINE_FUNCTION bool rounds_sums() const {
    return Dot::rounds && dots() && g.c_n == 1 && g.scale_a.data == nullptr &&
           g.scale_b.data == nullptr && stores_sums_alone<C, Scalar, Function>(g);
  }

  KOKKOS_INLINE_FUNCTION void compute_tile(Team const& team, Memory memory, GemmPlace const& at,
                                           std::int64_t col0) const {
    if (at.row >= at.end) return;
    int const rows = static_cast<int>(at.end - at.row < tile.m ? at.end - at.row : tile.m);
    int const cols = static_cast<int>(g.n - col0 < tile.n ? g.n - col0 : tile.n);
    A const* const a =
        gemm_matrix<A const>(g.a, g.a_pointers, at.batch_a, g.a_batch) + at.row * g.a_m;
    B const* const b =
        gemm_matrix<B const>(g.b, g.b_pointers, at.batch_b, g.b_batch) + col0 * g.b_n;

    C* const end =
        stores_directly(rows) ? gemm_c<C>(g, at.batch_c) + at.row * g.c_m + col0 : nullptr;
    bool const sums_in_c = end == nullptr && sums_in_place(rows, cols);
    if (sums_in_c) {
      memory.c = reinterpret_cast<Acc*>(gemm_c<C>(g, at.batch_c) + at.row * g.c_m + col0);
      memory.ldc = static_cast<int>(g.c_m);
    }
    bool sums_empty = true, scaled_empty = true;
    for (std::int64_t o = 0; o < g.outer; ++o) {
      Block<A const> const block_a{a + o * g.a_outer, g.a_m, g.a_k};
      Block<B const> const block_b{b + o * g.b_outer, g.b_k, g.b_n};
      for (std::int64_t p = 0; p < g.k; p += step()) {
        int const depth = static_cast<int>(g.k - p < step() ? g.k - p : step());
        bool const last = o + 1 == g.outer && p + depth == g.k;
        add_products(team, memory, {block_a.at(0, p), g.a_m, g.a_k},
                     {block_b.at(p, 0), g.b_k, g.b_n}, at.row, col0, p, rows, cols, depth,
                     !sums_empty, last ? end : nullptr);
        sums_empty = false;
        std::int64_t const done = p + depth;
        if (blocked && (done == g.k || done % 128 == 0)) {
          scale_sums(team, memory, at, p, col0, rows, cols, !scaled_empty);
          scaled_empty = false;
          sums_empty = true;
          team.team_barrier();
        }
      }
    }
    if (sums_in_c || end != nullptr) return;
    bool const empty = sums_empty && scaled_empty;
    if (empty) {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * padded_n()),
                           [&](int i) { memory.scaled[i] = Scalar(0); });
      team.team_barrier();
    } else if (!blocked && (converts || g.scale_a.data != nullptr || g.scale_b.data != nullptr)) {
      scale_sums(team, memory, at, 0, col0, rows, cols, false);
      team.team_barrier();
    }
    store_tile(team, memory.scaled, {at.batch_c, at.batch_b}, at.row, col0, rows, cols);
  }

  /// c (+)= a · b, `depth` ≤ step() deep; zero points are those of rows from row0, columns from
  /// col0, and a packed b is that from row p, column col0 on. Where there is an `end`, where
  /// stores_directly(), sums go there.
  KOKKOS_INLINE_FUNCTION void add_products(Team const& team, Memory const& memory,
                                           Block<A const> const& a, Block<B const> const& b,
                                           std::int64_t row0, std::int64_t col0, std::int64_t p,
                                           int rows, int cols, int depth, bool accumulate,
                                           [[maybe_unused]] C* end = nullptr) const {
    if constexpr (Dot::exists) {
      if (dots()) {
        KOKKOS_IF_ON_HOST(
            (add_dot_products(memory, a, b, row0, col0, p, rows, cols, depth, accumulate, end);))
        return;
      }
    }
    pack_rows<Traits>(team, memory.a, lda(), a, rows, depth);
    if constexpr (Traits::host) {
      if (g.packed_b != nullptr)
        return multiply<Traits>(team, memory.a, lda(),
                                static_cast<Acc const*>(g.packed_b) + col0 * g.k + p * Traits::cols,
                                static_cast<int>(g.k), memory.c, memory.ldc, rows, cols, depth,
                                accumulate);
    }
    int const ldb = Traits::host ? tile.k : padded_n();
    pack_panels<Traits>(team, memory.b, ldb, b, depth, cols);
    team.team_barrier();
    if constexpr (std::is_integral_v<Acc>)
      subtract_zero_points(team, memory, row0, col0, rows, cols, depth, ldb);
    multiply<Traits>(team, memory.a, lda(), memory.b, ldb, memory.c, memory.ldc, rows,
                     Traits::host ? cols : padded_n(), depth, accumulate);
    team.team_barrier();
  }

  /// The same on instructions that a host chose.
  void add_dot_products(Memory const& memory, Block<A const> const& a, Block<B const> const& b,
                        std::int64_t row0, std::int64_t col0, std::int64_t p, int rows, int cols,
                        int depth, bool accumulate, [[maybe_unused]] C* end) const {
    using Packed = typename Dot::Packed;
    auto* const left = reinterpret_cast<Packed*>(memory.a);
    auto* const right = reinterpret_cast<Packed*>(memory.b);
    auto const* const packed = static_cast<Packed const*>(g.packed_b);
    if constexpr (Dot::direct) {
      if (direct(rows)) {
        auto const of_a = Dot::direct_left(left, a, rows, depth);
        auto const of_b = packed != nullptr ? Dot::packed_part(packed, g.k, p, col0)
                                            : Dot::direct_right(right, b, cols, depth);
        if (end == nullptr) {
          Dot::add_direct(of_a, of_b, memory.c, memory.ldc, rows, cols, depth, accumulate);
          subtract_zero_points_of(of_a, of_b, memory, row0, col0, rows, cols, depth);
        } else if constexpr (stores_c) {
          Dot::multiply_direct(of_a, of_b, accumulate ? memory.c : nullptr, memory.ldc, end, g.c_m,
                               rows, cols, depth);
        }
        return;
      }
    }
    Dot::pack_left(left, a, rows, depth);
    if (packed != nullptr)
      Dot::multiply_packed(isa, left, packed, g.k, p, col0, memory.c, memory.ldc, rows, cols, depth,
                           accumulate);
    else
      Dot::multiply(isa, left, streams(rows) ? nullptr : right, b, memory.c, memory.ldc, rows, cols,
                    depth, accumulate);
    if constexpr (Dot::direct)
      subtract_zero_points_of(Dot::packed_left(left),
                              packed != nullptr ? Dot::packed_part(packed, g.k, p, col0)
                                                : Dot::packed_part(right, depth, 0, 0),
                              memory, row0, col0, rows, cols, depth);
  }

  /// Takes the zero points off sums of those factors.
  template <class Left, class Right>
  void subtract_zero_points_of(Left const& left, Right const& right, Memory const& memory,
                               std::int64_t row0, std::int64_t col0, int rows, int cols,
                               int depth) const {
    if constexpr (std::is_integral_v<Acc>) {
      if (g.zero_point_a == nullptr && g.zero_point_b == nullptr) return;
      auto const from = [](std::int32_t const* zero, std::int64_t offset) {
        return zero == nullptr ? nullptr : zero + offset;
      };
      Dot::subtract_zero_points(
          isa, left, right, from(g.zero_point_a, row0 * g.zero_point_a_stride),
          g.zero_point_a_stride, from(g.zero_point_b, col0 * g.zero_point_b_stride),
          g.zero_point_b_stride, memory.c, memory.ldc, rows, cols, depth);
    }
  }

  /// Takes the zero points off the packed factors, exactly modulo 2³².
  KOKKOS_INLINE_FUNCTION void subtract_zero_points(Team const& team, Memory const& memory,
                                                   std::int64_t row0, std::int64_t col0, int rows,
                                                   int cols, int depth, int ldb) const {
    if (g.zero_point_a == nullptr && g.zero_point_b == nullptr) return;
    if (g.zero_point_a != nullptr)
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * depth), [&](int index) {
        int const i = index / depth;
        memory.a[i * lda() + index % depth] -=
            static_cast<Acc>(g.zero_point_a[(row0 + i) * g.zero_point_a_stride]);
      });
    if (g.zero_point_b != nullptr)
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, depth * cols), [&](int index) {
        int const p = index / cols, j = index % cols;
        // A host has panels of Traits::cols columns one behind the other.
        int const at = Traits::host ? j / Traits::cols * ldb * Traits::cols + p * Traits::cols +
                                          j % Traits::cols
                                    : p * ldb + j;
        memory.b[at] -= static_cast<Acc>(g.zero_point_b[(col0 + j) * g.zero_point_b_stride]);
      });
    team.team_barrier();
  }

  /// scaled (+)= sums · scale of A · scale of B, for the block of k that holds p.
  KOKKOS_INLINE_FUNCTION void scale_sums(Team const& team, Memory const& memory,
                                         GemmPlace const& at, std::int64_t p, std::int64_t col0,
                                         int rows, int cols, bool accumulate) const {
    auto const scale = [&](int i, int j) {
      int const offset = i * padded_n() + j;
      Scalar const scale_a = static_cast<Scalar>(g.scale_a.at(at.batch_a, at.row + i, p));
      Scalar const scale_b = static_cast<Scalar>(g.scale_b.at(at.batch_b, p, col0 + j));
      Scalar const sum = sum_to_scalar<Scalar>(memory.c[offset]) * scale_a * scale_b;
      memory.scaled[offset] = accumulate ? memory.scaled[offset] + sum : sum;
    };
    if constexpr (Traits::host) {
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < cols; ++j) scale(i, j);
    } else {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols),
                           [&](int index) { scale(index / cols, index % cols); });
    }
  }

  KOKKOS_INLINE_FUNCTION void store_tile(Team const& team, Scalar const* sums, GemmBatch batch,
                                         std::int64_t row0, std::int64_t col0, int rows,
                                         int cols) const {
    if constexpr (Dot::rounds && std::is_same_v<C, bfloat16>) {
      if (rounds_sums()) {
        KOKKOS_IF_ON_HOST((Dot::round_rows(gemm_c<C>(g, batch.c) + row0 * g.c_m + col0, g.c_m, sums,
                                           padded_n(), rows, cols);))
        return;
      }
    }
    if constexpr (Traits::host) {
      KOKKOS_IF_ON_HOST((for (int i = 0; i < rows; ++i) host::gemm_store_row<C, Scalar>(
                             g, function, batch, row0 + i, col0, cols,
                             sums + static_cast<std::int64_t>(i) * padded_n());))
    } else {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * cols), [&](int index) {
        // Neighboring threads write neighboring elements of C.
        bool const by_column = g.c_m == 1 && g.c_n != 1;
        int const i = by_column ? index % rows : index / cols;
        int const j = by_column ? index / rows : index % cols;
        gemm_store_element<C>(g, function, batch, row0 + i, col0 + j, sums[i * padded_n() + j]);
      });
    }
    (void)team;
  }
};

/// Whether the portable kernel takes the call as one of small products. A device gives a whole team
/// to each of few, and a thread to each of many (the limit is a guess). Either way what a product
/// gives does not depend on how they are shared out.
template <class Traits>
bool shares_small_gemms(abi::GemmArgs const& g) {
  return is_small_gemm(g) && (Traits::host || g.batch >= 4096);
}

/// The tile that the portable kernel would use; zeros where it has none. Throws what it would throw
/// of the caller's.
template <class A, class B, class C, class Exec>
tune::TileConfig gemm_portable_tile(Exec const& exec, abi::GemmArgs const& args) {
  using Kernel = GemmPortable<Exec, A, B, C>;
  using Traits = typename Kernel::Traits;
  bool const empty = args.m == 0 || args.n == 0 || args.batch == 0;
  if constexpr (multiplies_in_fragments<Exec>) {
    if (gemm_takes_fragments(args)) {
      auto const tile = gemm_fragments_tile<A, B, C>(exec, args);
      return empty ? tune::TileConfig{} : tile;
    }
  }
  Kernel kernel{args, {}, {}, 0, 0};
  set_gemm_tile(kernel, exec);
  if (empty || shares_small_gemms<Traits>(args)) return {};
  return used_tile<Traits>(kernel.tile, args);
}

/// What the portable kernel uses of a host's instructions that are chosen at run time, or of a
/// device's for matrices, by name; empty: nothing.
template <class A, class B, class C, class Exec>
std::string gemm_portable_instructions(Exec const& exec, abi::GemmArgs const& args) {
  using Kernel = GemmPortable<Exec, A, B, C>;
  bool const small = shares_small_gemms<typename Kernel::Traits>(args);
  if constexpr (multiplies_in_fragments<Exec>) {
    if (gemm_takes_fragments(args)) return GemmFragmentsFor<Exec, A, B, C>::name;
  }
  Kernel kernel{args, {}, {}, 0, 0};
  set_gemm_tile(kernel, exec);
  if (!kernel.dots() || small) return "";
  if constexpr (Kernel::Dot::exists) {
    if (Kernel::Dot::uses_tiles(kernel.isa)) return host_isa_name(HostIsa::amx);
  }
  return host_isa_name(Kernel::Dot::isa);
}

/// Launches the portable kernel. Asynchronous on `exec`.
template <class A, class B, class C, class Exec, class Function = Absent>
void gemm_portable(Exec const& exec, abi::GemmArgs const& args, Function const& function = {}) {
  using Kernel = GemmPortable<Exec, A, B, C, Function>;
  using Traits = typename Kernel::Traits;
  if constexpr (Traits::host && runs_at_once<Exec>) {
    if (is_small_gemm(args) && small_gemm_operations(args) <= few_operations) {
      if (args.m == 0 || args.n == 0 || args.batch == 0) return;
      return run_here("gemm", "portable", exec, [&] {
        // CUDA's compiler reads this for devices, too, where vectors of a host do not exist.
        KOKKOS_IF_ON_HOST((for (std::int64_t s = 0; s < args.batch; ++s)
                               host::small_gemm<A, B, C>(args, function, s);))
      });
    }
  }
  if constexpr (multiplies_in_fragments<Exec>) {
    if (gemm_takes_fragments(args))
      return gemm_fragments<A, B, C>("gemm", "portable", exec, args, function);
  }
  Kernel kernel{args, function, {}, 0, 0};
  set_gemm_tile(kernel, exec);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  std::int64_t teams = 0;
  if (shares_small_gemms<Traits>(args)) {
    std::int64_t const share = args.batch / (Traits::host ? 8 * concurrency_of(exec) : 512);
    kernel.per_team =
        static_cast<int>(std::clamp<std::int64_t>(share, 1, Traits::host ? 64 : Traits::team_size));
    teams = (args.batch + kernel.per_team - 1) / kernel.per_team;
  } else {
    kernel.tiles_m = args.offsets == nullptr ? (args.m + kernel.tile.m - 1) / kernel.tile.m
                                             : gemm_group_slots(args, kernel.tile.m);
    kernel.tiles_n = (args.n + kernel.tile.n - 1) / kernel.tile.n;
    teams = kernel.tiles_m * kernel.tiles_n * args.batch;
  }
  typename Kernel::Policy policy(exec, checked_league("gemm", teams), Traits::team_size,
                                 Traits::vector_length);
  if (kernel.per_team == 0)
    policy.set_scratch_size(Traits::scratch_level,
                            Kokkos::PerTeam(checked_scratch("gemm", kernel.bytes())));
  launch("gemm", "portable", policy, kernel);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
