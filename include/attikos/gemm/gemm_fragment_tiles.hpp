// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tiles that a device's products come in, and which of them a call takes: the one of least time by
/// a model of the device.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <attikos/abi/gemm.hpp>
#include <attikos/core/fragments/fragments.hpp>
#include <attikos/gemm/gemm_types.hpp>
#include <attikos/tune/tile_config.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A tile: threads of a team along m and n, fragments of each, what is staged of k at once, and how
/// many stages are under way. If `Alone`, which counts threads, each thread of a team has a tile of
/// its own.
template <class F, int ThreadsM, int ThreadsN, int FragmentsM, int FragmentsN, int Depth,
          int Stages = 2, int Alone = 0>
struct GemmShape {
  using Fragments = F;
  static constexpr int threads_m = ThreadsM, threads_n = ThreadsN;
  static constexpr int fragments_m = FragmentsM, fragments_n = FragmentsN;
  static constexpr int m = ThreadsM * FragmentsM * F::rows, n = ThreadsN * FragmentsN * F::cols;
  static constexpr int depth = Depth, stages = Stages;
  static constexpr bool alone = Alone > 0;
  static constexpr int tiles = alone ? Alone : 1;  ///< of a team, at most
  static constexpr int threads = ThreadsM * ThreadsN, lanes = threads * F::lanes;
  static constexpr int sums_of_lane = m * n / lanes;
  static constexpr int size_of_element = static_cast<int>(sizeof(typename F::Element));
  static constexpr int sum_registers = sums_of_lane * static_cast<int>(sizeof(typename F::Sum)) / 4;
  /// Teams of which a multiprocessor's registers hold sums and factors. Eight would be faster where
  /// threads have small tiles of their own, but no device has the scratch that they ask for
  /// together. <H200, CUDA 13.0, float32, 16^3: 88 and 104 us>
  static constexpr int teams_at_once = lanes * tiles > 128 || sum_registers > 64 ? 2
                                       : sum_registers == 64                     ? 3
                                                                                 : 4;
  /// Bytes of scratch of a team with several tiles, so that so many teams find room in the 100 KiB
  /// that multiprocessors have at the least, 1 KiB for each not theirs. A launch for which they do
  /// not is refused. No team has more than 48 KiB without asking for it.
  static constexpr int room = std::min(45 * 1024, (100 / teams_at_once - 2) * 1024);
  static constexpr tune::TileConfig config{m, n, depth};
  static_assert(Depth % F::depth == 0 && Stages > 1 && (!alone || threads == 1));
};

/// A large tile, how it is held where both factors move by 16 bytes, and a small one for products
/// that have few of the large; and tiles of one thread each, for batches of products of up to 8, 16
/// and 32 rows and columns.
template <class F>
struct GemmShapes {  // of instructions
  static constexpr int depth = 64 / static_cast<int>(sizeof(typename F::Element));
  using Large = GemmShape<F, 2, 4, 4, 2, depth>;
  // Four warps load a third less from scratch than eight do, but eight are faster at copies of less
  // than 16 bytes. <H200, CUDA 13.0, bfloat16, of cuBLAS: 4096^3 0.344 and 0.322; 1777 x 2339 x 901
  // 0.430 and 0.560>
  static constexpr bool four = F::lanes > 1 && sizeof(typename F::Element) == 2;
  using LargeOfNeighbors = std::conditional_t<four, GemmShape<F, 2, 2, 4, 4, depth>, Large>;
  using Small = GemmShape<F, 2, 2, 2, 2, depth, 3>;
  using OfThread32 = GemmShape<F, 1, 1, 2, 2, depth, 2, 4>;
  using OfThread16 = GemmShape<F, 1, 1, 1, 1, depth / 2, 2, 4>;
  using OfThread8 = OfThread16;
};
template <class F>
requires(F::lanes > 1 && sizeof(typename F::Element) == 8 && F::depth > 1) struct GemmShapes<F> {
  using Large = GemmShape<F, 2, 2, 2, 4, 16>;
  using LargeOfNeighbors = Large;
  using Small = GemmShape<F, 2, 2, 2, 2, 16, 3>;
  using OfThread32 = GemmShape<F, 1, 1, 2, 4, 16, 2, 2>;
  using OfThread16 = GemmShape<F, 1, 1, 1, 2, 16, 2, 4>;
  using OfThread8 = GemmShape<PlainFragments<double, 4>, 1, 1, 1, 1, 8, 2, 32>;
};
template <class T, int Lanes>
struct GemmShapes<PlainFragments<T, Lanes>> {
  using F = PlainFragments<T, Lanes>;
  static constexpr bool wide = sizeof(T) == 8;
  static constexpr int depth = wide ? 8 : 16;
  using Large = std::conditional_t<wide, GemmShape<F, 4, 2, 1, 1, depth>,
                                   GemmShape<F, 2, 2, 2, 2, depth, Lanes <= 32 ? 3 : 2>>;
  using LargeOfNeighbors = Large;
  using Small = GemmShape<F, 2, 2, wide ? 1 : 2, 1, depth, 3>;
  using OfThread32 = GemmShape<F, 1, 1, 2, 1, 8, wide ? 2 : 3, wide ? 2 : 4>;
  using OfThread16 = GemmShape<PlainFragments<T, 16>, 1, 1, 1, 1, depth, 2, 8>;
  using OfThread8 = GemmShape<PlainFragments<T, 4>, 1, 1, 1, 1, 8, 2, 32>;
};

/// What the model knows of a tile.
struct GemmTileModel {
  tune::TileConfig tile;
  int lanes, teams;  ///< of a team; of a multiprocessor at once
  double rate;       ///< multiplications of a busy multiprocessor in a cycle
  int element_size, sum_size;
};

template <class Shape>
constexpr GemmTileModel gemm_tile_model() {
  using F = typename Shape::Fragments;
  constexpr int size = static_cast<int>(sizeof(typename F::Element));
  constexpr double of_instructions = size == 8 ? 280 : size == 2 ? 340 : 680;
  constexpr double rate = F::name[0] != 0 ? of_instructions : size == 8 ? 65 : 130;
  return {Shape::config, Shape::lanes, Shape::teams_at_once,
          rate,          size,         static_cast<int>(sizeof(typename F::Sum))};
}

/// How a call is cut: which tile, and into how many parts along k, summed apart. Parts do not
/// depend on a tile that the caller chose, so that all have the same bits.
struct GemmCut {
  int tile = 0;   ///< its number among those that were to choose from
  int parts = 1;  ///< of `part_steps` steps of k, the last of what is left
  std::int64_t part_steps = 0;
};

/// Tiles of a call.
inline std::int64_t gemm_tiles(GemmTileModel const& t, abi::GemmArgs const& g) {
  return ((g.m + t.tile.tile_m - 1) / t.tile.tile_m + g.groups) *
         ((g.n + t.tile.tile_n - 1) / t.tile.tile_n) * g.batch;
}

/// Cycles that a product takes of `parts`, in a model of a device: teams of a multiprocessor share
/// its arithmetic and its way to memory, of which few lanes make less than all. `copy_a`, `copy_b`:
/// cycles to copy an element. Constants are those of a fit to 50 shapes. <H200, CUDA 13.0: 1 %
/// slower than the best of two tiles and seven numbers of parts each, in the mean>
inline double gemm_cycles(GemmTileModel const& t, abi::GemmArgs const& g, double copy_a,
                          double copy_b, int processors, int parts, std::int64_t part_steps) {
  constexpr double start = 8000, bytes_of_cycle = 64, launch = 7000, busy_lanes = 290;
  std::int64_t const teams = gemm_tiles(t, g) * parts;
  double const m = t.tile.tile_m, n = t.tile.tile_n, k = t.tile.tile_k;
  double const traffic = (m + n) * k * t.element_size / bytes_of_cycle;
  double const step = m * n * k / t.rate + (m * copy_a + n * copy_b) * k + traffic;
  double const least = busy_lanes / t.lanes;
  auto const round = [&](std::int64_t at_once) {  // of teams that share a multiprocessor
    double const share = static_cast<double>(at_once);
    return start + static_cast<double>(part_steps) * step * (share > least ? share : least);
  };
  std::int64_t const share = (teams + processors - 1) / processors;
  std::int64_t const full_rounds = share / t.teams;
  double cycles = static_cast<double>(full_rounds) * round(t.teams);
  if (share % t.teams != 0) cycles += round(share % t.teams);
  if (parts > 1)
    cycles += launch + static_cast<double>(g.m * g.n * g.batch) * (2 * parts + 1) * t.sum_size /
                           (processors * bytes_of_cycle);
  return cycles;
}

/// Cycles to copy an element into scratch, `width` of them at once.
inline double gemm_copy_cycles(int width, int element_size) {
  return width * element_size >= 16 ? 0 : 5.5 / 32 / width;
}

/// The cut of least cycles. Along k are cut products of less tiles than a device has places for, of
/// rows that the host knows.
template <std::size_t Count>
GemmCut choose_gemm_cut(std::array<GemmTileModel, Count> const& models, abi::GemmArgs const& g,
                        double copy_a, double copy_b, int processors) {
  constexpr int most_parts = 16, least_steps = 4;
  std::int64_t const depth = models[0].tile.tile_k;
  std::int64_t const steps = (g.k + depth - 1) / depth * g.outer;
  bool const whole = g.offsets != nullptr || g.counts != nullptr;
  GemmCut best{0, 1, steps};
  double least = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    bool const few = gemm_tiles(models[i], g) < std::int64_t{processors} * models[i].teams;
    for (int parts = 1; parts <= (few && !whole ? most_parts : 1); ++parts) {
      std::int64_t const of_part = (steps + parts - 1) / parts;
      if (parts > 1 && (of_part < least_steps || of_part * (parts - 1) >= steps)) continue;
      double const cycles = gemm_cycles(models[i], g, copy_a, copy_b, processors, parts, of_part);
      if ((i != 0 || parts != 1) && cycles >= least) continue;
      least = cycles;
      best = {static_cast<int>(i), parts, of_part};
    }
  }
  return best;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
