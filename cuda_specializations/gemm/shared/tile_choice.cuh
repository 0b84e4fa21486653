// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Choice among configurations of a kernel: by cost, or the tile that the caller asks for.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Where a call goes: to a stream, or no further than into a list of the tiles that it could have.
struct Destination {
  CUstream_st* stream;
  abi::GemmTiles* tiles;
};

namespace {

constexpr double unusable = std::numeric_limits<double>::infinity();

constexpr bool matches(abi::GemmTile const& wanted, abi::GemmTile const& tile) {
  return (wanted.m == 0 || wanted.m == tile.m) && (wanted.n == 0 || wanted.n == tile.n) &&
         (wanted.k == 0 || wanted.k == tile.k);
}

/// Of configurations with these tiles and costs, `unusable` for what the call cannot have, the
/// cheapest that the caller's wish leaves; -1 if the call only lists them, or there is none.
template <int Count>
int choose_tile(abi::GemmArgs const& g, abi::GemmTile const (&tiles)[Count],
                double const (&costs)[Count], Destination const& to) {
  int order[Count], left = 0;
  for (int i = 0; i < Count; ++i)
    if (costs[i] < unusable && matches(g.tile, tiles[i])) order[left++] = i;
  std::stable_sort(order, order + left, [&](int i, int j) { return costs[i] < costs[j]; });
  if (to.tiles == nullptr) return left == 0 ? -1 : order[0];
  for (int i = 0; i < left; ++i) to.tiles->add(tiles[order[i]]);
  return -1;
}

/// What a transposed call's tiles are for the call itself.
inline abi::GemmTiles transposed(abi::GemmTiles list) {
  for (int i = 0; i < list.count; ++i) std::swap(list.tile[i].m, list.tile[i].n);
  return list;
}

constexpr char const* no_such_tile = "it has no such tile for this call";

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
