// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which matrices and rows a block's tile has, where arrays of pointers, groups or counts of rows
/// are known to the device alone.
#pragma once

#include "params.cuh"
#include "ptx/global_memory.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// A tile of C, and the operands that it is made of.
struct Sm80Place {
  int z, z_b;  ///< matrix of A and C, and of B
  int m0;      ///< first row
  int end;     ///< of the rows that it may have; not behind m0 where there are none
  int n0;
  char const *a, *b;   ///< their matrices
  int unit_a, unit_b;  ///< bytes that may be copied of them at a time
};

/// First row of a group, inside C whatever the device holds.
__device__ __forceinline__ int group_begin(Sm80Params const& p, int group) {
  Sm80Lists const& l = p.lists;
  std::int64_t const at = group * l.offsets_stride;
  std::int64_t const value = l.wide ? static_cast<std::int64_t const*>(l.offsets)[at]
                                    : std::int64_t{static_cast<std::int32_t const*>(l.offsets)[at]};
  return static_cast<int>(value < 0 ? 0 : value > p.m ? p.m : value);
}

/// The last group whose tiles, those from group_begin(g) / tile + g on, do not begin behind tile
/// `slot`. Each step asks 32 groups at a time.
template <int Tile>
__device__ __forceinline__ int group_of(Sm80Params const& p, int slot) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int low = 0, count = p.lists.groups;
  while (count > 1) {
    int const step = (count + 31) / 32, group = low + lane * step;
    bool const before = lane * step < count && group_begin(p, group) / Tile + group <= slot;
    unsigned const votes = __ballot_sync(0xffffffff, before) | 1;
    int const skipped = (31 - __clz(static_cast<int>(votes))) * step;
    low += skipped;
    count = min(step, count - skipped);
  }
  return low;
}

/// Bytes that may be copied at a time from an address on; `most` by the strides.
__device__ __forceinline__ int unit_at(char const* from, int most) {
  int const past = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) & 15);
  return past == 0 ? most : min(most, past & -past);
}

template <class Config>
__device__ __forceinline__ Sm80Place place_of(Sm80Params const& p, unsigned tile) {
  Sm80Place at;
  p.tiles.locate(tile, at.z, at.m0, at.n0);
  at.n0 *= Config::tile_n;
  at.z_b = at.z, at.end = p.m;
  at.unit_a = p.a.unit, at.unit_b = p.b.unit;
  Sm80Lists const& l = p.lists;
  if (!l.exist) {
    at.m0 *= Config::tile_m;
    at.a = static_cast<char const*>(p.a.data) + at.z * p.a.batch_stride;
    at.b = static_cast<char const*>(p.b.data) + at.z * p.b.batch_stride;
    return at;
  }
  if (l.offsets != nullptr) {
    int const group = group_of<Config::tile_m>(p, at.m0), begin = group_begin(p, group);
    int const own = at.m0 - begin / Config::tile_m - group;  // of the group's tiles
    // The first group does not begin with the first tile; offsets in no order leave any tile to
    // one.
    bool const inside = own >= 0 && own <= (p.m - begin) / Config::tile_m;
    at.z_b = group;
    at.m0 = begin + (inside ? own * Config::tile_m : 0);
    at.end = inside ? group_begin(p, group + 1) : 0;
  } else {
    at.m0 *= Config::tile_m;
    if (l.counts != nullptr) at.end = min(p.m, l.counts[at.z * l.counts_stride]);
  }
  if (at.m0 >= at.end) return at;
  // The pointer to C is used last, and is on its way until then.
  if (l.c != nullptr) prefetch_l1(l.c + at.z * p.epilogue.c_batch);
  auto const matrix = [](Sm80Operand const& x, void const* const* pointers, int z) {
    return pointers != nullptr ? static_cast<char const*>(pointers[z * x.batch_stride])
                               : static_cast<char const*>(x.data) + z * x.batch_stride;
  };
  at.a = matrix(p.a, l.a, at.z);
  at.b = matrix(p.b, l.b, at.z_b);
  // Groups begin at any row.
  at.unit_a = unit_at(at.a + (Config::mn_a ? at.m0 * Config::size : 0), p.a.unit);
  at.unit_b = unit_at(at.b, p.b.unit);
  return at;
}

/// The kernel's parameters as they are for the rows and the matrices of a tile: the kernel's own,
/// or where lists exist a changed copy in `own`.
__device__ __forceinline__ Sm80Params const& placed(Sm80Params const& p, Sm80Place const& at,
                                                    Sm80Params& own) {
  if (!p.lists.exist) return p;
  own = p;
  Epilogue& e = own.epilogue;
  own.m = at.end;
  if (p.lists.c != nullptr) {
    e.c = p.lists.c[at.z * e.c_batch];
    e.c_batch = 0;
    own.whole = own.whole && reinterpret_cast<std::uintptr_t>(e.c) % 16 == 0;
  }
  if (e.column_factors != nullptr) e.column_factors += at.z_b * e.column_factors_batch;
  e.column_factors_batch = 0;
  return own;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
