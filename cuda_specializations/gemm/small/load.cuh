// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Batches of small products: what a team of warps is told, and how it brings slices of K of a
/// group of products to shared memory.
///
/// Every team of one or two warps works for itself: it copies ahead through a ring of stages of its
/// own, multiplies, and stores, so that no block ever waits as a whole. The warps of a team share
/// out the rows of a product. In shared memory A lies in rows along k, B in rows along n, whatever
/// the layouts of the caller.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <attikos/ptx/cp_async.hpp>

#include "common/ring.cuh"
#include "ptx/mbarrier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// How a team copies one operand: pieces in x and y of a slice of each product of a group. A piece
/// is 16 bytes along the dimension that lies together both in memory and in the stage, or one
/// element. Lanes lie side by side along x, then y, then products, powers of two of them.
struct SmallOperand {
  unsigned char const* data;
  unsigned char const* const* pointers;  ///< one for each product; null: `data`
  std::int64_t batch;                    ///< bytes, or pointers, from one product to the next
  std::int64_t step_x, step_y;           ///< bytes from one piece to the next
  std::int64_t step_k;                   ///< bytes from one k to the next
  int size_x, size_y;                    ///< pieces of a slice
  int extent_x, extent_y;                ///< elements of the matrix along x and y
  int shared_x, shared_y;                ///< bytes between pieces in a stage
  int lanes_x, lanes_y, lanes_product;
  bool whole;    ///< pieces of 16 bytes
  bool aligned;  ///< lines of whole pieces are multiples of 16 bytes apart
  bool k_is_x;
};

struct SmallParams {
  SmallOperand a, b;
  unsigned char* c;
  unsigned char* const* c_pointers;
  std::int64_t c_batch, c_m, c_n;  ///< of elements (c_batch of pointers where there are any)
  double alpha, beta;
  int batch, groups;  ///< a group: what a team takes at a time
  int m, n, k;
  int per_group;      ///< products of a group
  int depth, slices;  ///< of k in a stage, a multiple of 4; stages of a product, at least one
  int lanes_m, lanes_n;
  int pitch_a, pitch_b;  ///< bytes from row to row in a stage
  int b_offset;          ///< bytes from a product's A to its B
  int product_bytes, stage_bytes;
};

namespace {

/// Where a lane begins to copy.
struct SmallPiece {
  int x, y, product;
};
__device__ __forceinline__ SmallPiece first_piece(SmallOperand const& o, int lane) {
  return {lane & (o.lanes_x - 1), lane / o.lanes_x & (o.lanes_y - 1),
          lane / (o.lanes_x * o.lanes_y)};
}

/// Begins to copy the slice from `k0` on of `count` products from `first` on. Elements of a slice
/// that do not exist become 0.
template <class T>
__device__ __forceinline__ void load_slice(SmallOperand const& o, SmallPiece const& at,
                                           std::uint32_t to, int product_bytes, int first,
                                           int count, int k0) {
  constexpr int size = static_cast<int>(sizeof(T));
  if (at.x >= o.size_x) return;
  int const extent_x = o.extent_x - (o.k_is_x ? k0 : 0);
  int const extent_y = o.extent_y - (o.k_is_x ? 0 : k0);
  std::int64_t const offset = k0 * o.step_k + at.y * o.step_y + at.x * o.step_x;
  to += at.y * o.shared_y + at.x * o.shared_x;
#pragma unroll 1
  for (int q = at.product; q < count; q += o.lanes_product) {
    // A matrix without elements has no pointer to follow.
    unsigned char const* from = o.pointers == nullptr          ? o.data + (first + q) * o.batch
                                : extent_x > 0 && extent_y > 0 ? o.pointers[(first + q) * o.batch]
                                                               : nullptr;
    from += offset;
    std::uint32_t place = to + q * product_bytes;
    int const step = o.lanes_y * o.shared_y;
    std::int64_t const advance = o.lanes_y * o.step_y;
    if (o.whole) {
      int const bytes = min(16, max(0, extent_x * size - at.x * 16));
      if (o.aligned && (reinterpret_cast<std::uintptr_t>(from) & 15) == 0) {
        int y = at.y;
        auto const next = [&] { y += o.lanes_y, place += step, from += advance; };
        if (bytes == 16) {  // copies that never fill up with zeros are a third of the instructions
          int const end = min(o.size_y, extent_y);
#pragma unroll 1
          while (y + 3 * o.lanes_y < end) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              copy_async_whole(place, from);
              next();
            }
          }
#pragma unroll 1
          for (; y < end; next()) copy_async_whole(place, from);
        }
#pragma unroll 1
        for (; y < o.size_y; next()) copy_async<16>(place, from, y < extent_y ? bytes : 0);
      } else {
#pragma unroll 1
        for (int y = at.y; y < o.size_y; y += o.lanes_y, place += step, from += advance)
#pragma unroll
          for (int j = 0; j < 16; j += size)
            copy_async<size>(place + j, from + j, y < extent_y && j < bytes ? size : 0);
      }
    } else {
#pragma unroll 1
      for (int y = at.y; y < o.size_y; y += o.lanes_y, place += step, from += advance)
#pragma unroll 2
        for (int x = at.x; x < o.size_x; x += o.lanes_x)
          copy_async<size>(place + (x - at.x) * o.shared_x, from + (x - at.x) * o.step_x,
                           x < extent_x && y < extent_y ? size : 0);
    }
  }
}

/// Which of its team a thread is, and which of its block the team.
template <int Team>
struct SmallPlace {
  int thread = static_cast<int>(threadIdx.x) % (32 * Team);
  int team = static_cast<int>(threadIdx.x) / (32 * Team);
  int warp = Team == 1 ? 0 : thread / 32;
  int lane = thread % 32;
};

/// One team's way through its groups: copies `Stages` − 1 slices ahead, and calls
/// `multiply(stage, slice)` for each slice and `store(first product, products)` after the last of a
/// group.
template <class Shape, class Multiply, class Store>
__device__ __forceinline__ void for_each_slice(SmallParams const& p, Multiply const& multiply,
                                               Store const& store) {
  using T = typename Shape::T;
  constexpr int stages = Shape::stages, team_size = Shape::team;
  extern __shared__ __align__(16) unsigned char shared[];
  SmallPlace<team_size> const own;
  std::uint32_t const ring = shared_address(shared) + own.team * stages * p.stage_bytes;
  int const teams = static_cast<int>(blockDim.x) / (32 * team_size);
  int const first = static_cast<int>(blockIdx.x) * teams + own.team;
  int const step = static_cast<int>(gridDim.x) * teams;
  SmallPiece const first_a = first_piece(p.a, own.thread), first_b = first_piece(p.b, own.thread);

  int load_group = first, load_at = 0, load_stage = 0;
  auto const load = [&] {
    if (load_group < p.groups) {
      int const product = load_group * p.per_group, count = min(p.batch - product, p.per_group);
      std::uint32_t const to = ring + load_stage * p.stage_bytes;
      int const k0 = load_at * p.depth;
      load_slice<T>(p.a, first_a, to, p.product_bytes, product, count, k0);
      load_slice<T>(p.b, first_b, to + p.b_offset, p.product_bytes, product, count, k0);
      if (++load_at == p.slices) load_at = 0, load_group += step;
      load_stage = next_in_ring<stages>(load_stage);
    }
    copy_async_commit();
  };
#pragma unroll 1
  for (int s = 0; s + 1 < stages; ++s) load();
  int stage = 0;
#pragma unroll 1
  for (int group = first; group < p.groups; group += step) {
#pragma unroll 1
    for (int slice = 0; slice < p.slices; ++slice) {
      copy_async_wait<stages - 2>();
      // The whole team's copies have landed, and the stage before is no longer read.
      if constexpr (team_size == 1) {
        __syncwarp();
      } else {  // constant numbers: otherwise a block would be given all barriers
        static_assert(team_size == 2);  // a block of four warps has two teams
        own.team == 0 ? named_barrier_sync(1, 64) : named_barrier_sync(2, 64);
      }
      load();
      multiply(ring + stage * p.stage_bytes, slice);
      stage = next_in_ring<stages>(stage);
    }
    int const product = group * p.per_group;
    store(product, min(p.batch - product, p.per_group));
  }
}

template <class T>
__device__ __forceinline__ T* product_of_c(SmallParams const& p, std::int64_t product) {
  return p.c_pointers != nullptr ? reinterpret_cast<T*>(p.c_pointers[product * p.c_batch])
                                 : reinterpret_cast<T*>(p.c) + product * p.c_batch;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
