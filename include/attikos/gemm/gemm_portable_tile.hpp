// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which tile the portable matrix product uses: its own choice, or the caller's, checked.
#pragma once

#include <algorithm>
#include <attikos/core/host_isa.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_small.hpp>
#include <attikos/tune/tile_config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Tile extents of one launch. The k extent is fixed per execution space, so that sums do not
/// depend on the rest.
struct GemmTile {
  int m, n, k;
};

/// Chooses the tile: large enough to amortize packing, small enough that every core has work. On a
/// host of register blocks of `block_rows` × `block_cols`.
template <class Traits>
GemmTile choose_gemm_tile(std::int64_t m, std::int64_t n, std::int64_t batch, int concurrency,
                          std::size_t acc_size, [[maybe_unused]] int block_rows = Traits::rows,
                          [[maybe_unused]] int block_cols = Traits::cols) {
  if constexpr (!Traits::host) {
    return {64, acc_size > 4 ? 32 : 64, 16};
  } else {
    (void)acc_size;
    GemmTile tile{block_rows * 16, block_cols * 8, 256};
    auto const tiles = [&] {
      return ((m + tile.m - 1) / tile.m) * ((n + tile.n - 1) / tile.n) * batch;
    };
    // Two tiles for each thread at least, while packing still pays.
    while (tiles() < 2 * concurrency && (tile.m > block_rows * 4 || tile.n > block_cols * 2)) {
      bool const shrink_m =
          tile.m > block_rows * 4 && (tile.m >= tile.n || tile.n <= block_cols * 2);
      (shrink_m ? tile.m : tile.n) /= 2;
    }
    tile.m =
        static_cast<int>(std::min<std::int64_t>(tile.m, round_up<std::int64_t>(m, block_rows)));
    tile.n =
        static_cast<int>(std::min<std::int64_t>(tile.n, round_up<std::int64_t>(n, block_cols)));
    return tile;
  }
}

/// What a tile means for this problem: no extent reaches further than the problem does, rounded up
/// to the register block.
template <class Traits>
tune::TileConfig used_tile(GemmTile const& tile, abi::GemmArgs const& g) {
  auto const used = [](int size, std::int64_t extent, int multiple) {
    std::int64_t const all = round_up<std::int64_t>(std::max<std::int64_t>(extent, 1), multiple);
    return static_cast<int>(std::min<std::int64_t>(std::max(size, multiple), all));
  };
  return {used(tile.m, g.m, Traits::rows), used(tile.n, g.n, Traits::cols), used(tile.k, g.k, 1)};
}

/// Columns of a tile whose right factor is read where it lies: long stretches of its rows, of which
/// sums stay in the nearest cache, but two tiles for each thread where that leaves 64 columns.
inline int streamed_columns(abi::GemmArgs const& g, int concurrency, int block_cols,
                            std::size_t acc_size) {
  std::int64_t const rows = std::max<std::int64_t>(g.m, 1);
  std::int64_t const nearest = 16384 / static_cast<std::int64_t>(acc_size) / rows;
  std::int64_t const share = g.n * std::max<std::int64_t>(g.batch, 1) / (2 * concurrency);
  std::int64_t const columns =
      std::clamp<std::int64_t>(share, 64, std::max<std::int64_t>(nearest, 64));
  return static_cast<int>(
      std::min(round_up<std::int64_t>(columns, block_cols),
               round_up<std::int64_t>(std::max<std::int64_t>(g.n, 1), block_cols)));
}

/// Sets the kernel's instruction set, and a tile for it. Throws what host_isa() throws.
template <class Kernel, class Exec>
void set_automatic_gemm_tile(Kernel& kernel, Exec const& exec) {
  using Traits = typename Kernel::Traits;
  abi::GemmArgs const& g = kernel.g;
  if constexpr (Traits::host) kernel.isa = host_isa();
  bool const dots = kernel.dots();
  kernel.tile = choose_gemm_tile<Traits>(
      g.m, g.n, g.batch, concurrency_of(exec), sizeof(typename Kernel::Acc),
      dots ? Kernel::Dot::rows : Traits::rows, dots ? Kernel::Dot::cols : Traits::cols);
  if (dots) kernel.tile.k = Kernel::Dot::k;
  if constexpr (Traits::host) {
    if (kernel.streams())
      kernel.tile.n = streamed_columns(g, concurrency_of(exec), Kernel::Dot::cols,
                                       sizeof(typename Kernel::Acc));
  }
}

/// Throws unless a tile of the caller's consists of whole panels of a packed right factor, which
/// the instructions that it was packed for read.
template <class Kernel>
void check_packed_tile(Kernel const& kernel, tune::TileConfig const& tile) {
  using Dot = typename Kernel::Dot;
  if (!Dot::exists || kernel.isa < Dot::isa) return;
  if (!kernel.dots())
    raise<UnsupportedError>("gemm: tile_k is ", tile.tile_k, "; expected at most ", int{Dot::k},
                            " beside a packed B");
  if (tile.tile_n % Dot::cols != 0 && tile.tile_n < kernel.g.n)
    raise<UnsupportedError>("gemm: tile_n is ", tile.tile_n, "; expected a multiple of ",
                            int{Dot::cols}, ", the columns of a panel of the packed B");
}

/// Sets the kernel's tile: what the caller chose, and the rest automatic. Throws if the kernel
/// cannot run it.
template <class Kernel, class Exec>
void set_gemm_tile(Kernel& kernel, Exec const& exec) {
  using Traits = typename Kernel::Traits;
  abi::GemmArgs const& g = kernel.g;
  // Groups share the rows: together they have the tiles of one matrix, and a few more.
  set_automatic_gemm_tile(kernel, exec);
  kernel.blocked = g.k > 128 && ((g.scale_a.data != nullptr && g.scale_a.col != 0) ||
                                 (g.scale_b.data != nullptr && g.scale_b.row != 0));
  if (kernel.blocked) kernel.tile.k = std::min(kernel.tile.k, 128);
  if (!has_tile(g)) return;
  auto const tile =
      tune::completed({g.tile.m, g.tile.n, g.tile.k}, used_tile<Traits>(kernel.tile, g));
  tune::TileLimits limits{g.m, g.n, g.k, Traits::rows, Traits::cols, 1};
  limits.max_bytes =
      static_cast<std::size_t>(Kernel::Policy::scratch_size_max(Traits::scratch_level));
  if (!Traits::host) limits.max_bytes -= 1024;  // Kokkos itself uses some of it
  tune::check_tile("gemm", tile, limits, [&](tune::TileConfig const& t) {
    kernel.tile = {t.tile_m, t.tile_n, t.tile_k};
    return kernel.bytes();
  });
  if (kernel.blocked && 128 % tile.tile_k != 0)
    raise<UnsupportedError>("gemm: tile_k is ", tile.tile_k,
                            "; expected a divisor of 128, since scales change every 128 products");
  if constexpr (Traits::host) {
    if (g.packed_b != nullptr) check_packed_tile(kernel, tile);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
