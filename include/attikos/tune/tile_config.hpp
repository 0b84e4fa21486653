// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Extents of a kernel's tile as a value that a caller may read, set and keep.
#pragma once

#include <algorithm>
#include <attikos/core/error.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace tune {

/// Rows, columns and depth of the tile that a team computes; 0 leaves that extent to the library.
struct TileConfig {
  int tile_m = 0;
  int tile_n = 0;
  int tile_k = 0;
  friend bool operator==(TileConfig const&, TileConfig const&) = default;
};

/// "192 x 256 x 256", the way messages show a tile.
inline std::string to_string(TileConfig const& tile) {
  return std::to_string(tile.tile_m) + " x " + std::to_string(tile.tile_n) + " x " +
         std::to_string(tile.tile_k);
}

/// The extents that the caller chose, with the automatic ones where that is 0.
inline TileConfig completed(TileConfig const& chosen, TileConfig const& automatic) {
  return {chosen.tile_m == 0 ? automatic.tile_m : chosen.tile_m,
          chosen.tile_n == 0 ? automatic.tile_n : chosen.tile_n,
          chosen.tile_k == 0 ? automatic.tile_k : chosen.tile_k};
}

/// What bounds a tile: the problem, the kernel's register blocks, and the memory of a team.
struct TileLimits {
  std::int64_t m = 0, n = 0, k = 0;                      ///< extents of the problem
  int multiple_m = 1, multiple_n = 1, multiple_k = 1;    ///< register block
  std::size_t max_bytes = static_cast<std::size_t>(-1);  ///< scratch that a team may have
};

/// Refuses a tile that its kernel cannot run, before anything is launched.
///
/// Each extent must be positive (ShapeError), no larger than the problem's extent rounded up to the
/// register block (ShapeError) and a multiple of the register block (UnsupportedError); the tile
/// must fit a team's memory (ResourceError). `bytes(tile)` says how much it needs, and is asked
/// last.
template <class Bytes>
void check_tile(char const* operation, TileConfig const& tile, TileLimits const& limits,
                Bytes const& bytes) {
  auto const check = [&](char const* name, int value, char const* extent_name, std::int64_t extent,
                         int multiple) {
    if (value < 1)
      attikos::detail::raise<ShapeError>(
          operation, ": ", name, " is ", value,
          "; expected 1 or more, or 0 in the options to leave it to the "
          "library");
    std::int64_t const blocks = (std::max<std::int64_t>(extent, 1) + multiple - 1) / multiple;
    if (value > blocks * multiple)
      attikos::detail::raise<ShapeError>(operation, ": ", name, " is ", value,
                                         "; expected at most ", blocks * multiple, " since ",
                                         extent_name, " is ", extent);
    if (value % multiple != 0)
      attikos::detail::raise<UnsupportedError>(operation, ": ", name, " is ", value,
                                               "; expected a multiple of ", multiple,
                                               ", the kernel's register block");
  };
  check("tile_m", tile.tile_m, "m", limits.m, limits.multiple_m);
  check("tile_n", tile.tile_n, "n", limits.n, limits.multiple_n);
  check("tile_k", tile.tile_k, "k", limits.k, limits.multiple_k);
  std::size_t const needed = bytes(tile);
  if (needed > limits.max_bytes)
    attikos::detail::raise<ResourceError>(operation, ": a tile of ", to_string(tile), " needs ",
                                          needed, " bytes of scratch; expected at most ",
                                          limits.max_bytes, ", which a team can have here");
}

}  // namespace tune
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
