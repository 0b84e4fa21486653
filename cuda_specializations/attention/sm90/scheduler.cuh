// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Packed sequences in order of length, as every block works it out for itself from the boundaries
/// in device memory, and the tiles that a block takes in this order.
#pragma once

#include "params.cuh"
#include "ptx/mbarrier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

namespace {

constexpr int order_barrier = 8;  // the threads of the producer's warpgroup

/// Puts the segments in order; `work` is shared memory for 8 bytes of each. For the producer's
/// warpgroup.
template <class Config, int Segments>
__device__ __forceinline__ void order_segments(Sm90AttentionParams const& p, unsigned char* work,
                                               Sm90AttentionOrder<Segments>& order) {
  static_assert(Segments * 8 <= Config::ring_bytes && Segments < 2048);
  abi::AttentionArgs const& g = p.args;
  int const count = static_cast<int>(g.batch) + 2, thread = static_cast<int>(threadIdx.x);
  int const shift = pack_shift<Config>(p);
  auto* const all = reinterpret_cast<int2*>(work);  // how long a unit takes, and units
  for (int e = thread; e < count; e += 128) {
    AttentionTile t;
    enter_segment(p, e, t);
    int begin = 0, keys = 0;
    if (t.batch >= 0) {
      keys = static_cast<int>(g.seqlen_kv);
      cut_keys(g, t.batch, 0, keys, begin, keys);
    }
    int const tiles = ((t.rows << shift) + Config::tile_m - 1) / Config::tile_m;
    bool const pairs = p.ordered == 2 && tiles > 1;
    all[e] = {pairs ? 2 * keys - t.rows : keys, (tiles + p.ordered - 1) / p.ordered};
  }
  named_barrier_sync(order_barrier, 128);
  for (int e = thread; e < count; e += 128) {
    int2 const own = all[e];
    int place = 0, before = 0;
    for (int f = 0; f < count; ++f) {
      int2 const other = all[f];
      bool const earlier = other.x > own.x || (other.x == own.x && f < e);
      place += earlier;
      // Boundaries that go back would count positions more than once.
      before = min(before + (earlier ? other.y : 0), p.tiles_m);
    }
    order.before[place] = before;
    order.segment[place] = static_cast<std::uint16_t>(e);
    if (place == count - 1) order.before[count] = min(before + own.y, p.tiles_m);
  }
  fence_proxy_async();  // TMA writes to `work` next
  named_barrier_sync(order_barrier, 128);
}

/// Which tile a block takes at a step, in order: where its queries are. False: none at this step;
/// `step` becomes -1 where there are no more. Units are dealt forth and back, so that blocks end
/// together; those of one head follow each other, so that L2 holds its keys.
template <class Config, int Segments>
__device__ __forceinline__ bool next_in_order(Sm90AttentionParams const& p,
                                              Sm90AttentionOrder<Segments> const& order, int& step,
                                              AttentionTile& t) {
  int const blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  bool const pairs = p.ordered == 2, second = pairs && step % 2 != 0;
  int const round = pairs ? step / 2 : step;
  ++step;
  int low = 0, high = static_cast<int>(p.args.batch) + 2;
  int const all = order.before[high] * p.heads;
  int const unit = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
  if (round * blocks >= all) step = -1;
  if (unit >= all) return false;
  while (high - low > 1) {
    int const middle = (low + high) / 2;
    if (order.before[middle] * p.heads <= unit)
      low = middle;
    else
      high = middle;
  }
  int const units = order.before[low + 1] - order.before[low];
  int const in = unit - order.before[low] * p.heads;
  int const shift = pack_shift<Config>(p);
  t.head = in / units << shift;
  enter_segment(p, order.segment[low], t);
  int const tiles = ((t.rows << shift) + Config::tile_m - 1) / Config::tile_m, rank = in % units;
  // Of an odd number of tiles the last is a unit, as long as the others.
  int const tile = second ? rank - tiles % 2 : tiles - 1 - rank;
  t.row0 = tile * Config::tile_m >> shift;
  return tile >= 0;
}

/// Works out the tile that a block takes at a step. False: none at this step; `step` becomes -1
/// where there are no more. Unlike tiles of gemm, those of attention differ in length, so that the
/// order is one of lengths.
template <class Config, int Segments>
__device__ __forceinline__ bool find_tile(Sm90AttentionParams const& p,
                                          Sm90AttentionOrder<Segments> const& order, int& step,
                                          AttentionTile& t) {
  if (p.ordered != 0) {
    if (!next_in_order<Config>(p, order, step, t)) return false;
  } else {
    int z, slot;
    if (!next_tile(p, step, z, slot)) return false;
    locate_queries<Config>(p, z, slot, t, pack_shift<Config>(p));
  }
  return place_keys<Config>(p, t, pack_shift<Config>(p));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
