// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of groups of rows, each with a matrix of its own, by wgmma and TMA for sm_90a.
///
/// As gemm/sm90/kernel.cuh, with two differences. The blocks find their tiles in the offsets (or
/// counts) that lie on the device: tiles are numbered group by group, and the producer walks along.
/// And the product is transposed, Cᵀ = Bᵀ·Aᵀ, so that the groups' rows are the columns of wgmma,
/// which come in steps finer than 64: a group of any size is cut into tiles that waste little. A
/// tile has as many rows as registers allow and no more than 128 columns of C, since for every
/// column shared memory takes in a line of weights and gives it to the tensor cores once, however
/// few the rows are. Two blocks of a cluster take tiles side by side, and each brings half of the
/// rows into both.
#pragma once

#include "epilogue.cuh"
#include "factors.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The sums of a product of this width among those of the widest.
template <int Width, class Acc, int Size>
__device__ __forceinline__ Acc (&first_of(Acc (&acc)[Size]))[Width / 2] {
  return reinterpret_cast<Acc(&)[Width / 2]>(acc);
}

/// Calls `run` with the first of these widths that has room for so many rows, or with the last.
template <int Width, int... Wider, class Run>
__device__ __forceinline__ void among_widths(int rows, Run run) {
  if constexpr (sizeof...(Wider) != 0) {
    if (rows > Width) return among_widths<Wider...>(rows, run);
  }
  run(std::integral_constant<int, Width>{});
}

/// Calls `run` with a number of rows rounded up to a width that products come in.
template <class Config, class Run>
__device__ __forceinline__ void with_width(int rows, Run run) {
  if constexpr (Config::scaled)
    among_widths<32, 64, 96, 112, 128>(rows, run);
  else if constexpr (Config::plain)
    among_widths<32, 64, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256>(rows, run);
  else
    among_widths<64, 96, 128, 160, 192, 224, 256>(rows, run);
}

/// The sums of a tile of weights in the tensor cores. `take(a, b)` waits for a stage and gives its
/// place and the descriptors of its operands; `release(place)` gives it back.
template <class Config, int Width, class Take, class Release>
__device__ __forceinline__ void multiply_grouped(typename Config::Acc (&acc)[Width / 2],
                                                 int k_blocks, Take take, Release release) {
  using Product = Wgmma<typename Config::Weights, typename Config::Rows, Width, Config::mn, 0>;
  int previous = -1;
#pragma unroll 1
  for (int k = 0; k < k_blocks; ++k) {
    std::uint64_t a, b;
    int const place = take(a, b);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
      Product::multiply(acc, advance(a, s * (Config::mn ? 2048 : 32)), advance(b, s * 32),
                        s == 0 ? k != 0 : 1);
    wgmma_commit();
    wgmma_wait<1>();  // the stage before this one has been read
    if (previous >= 0) release(previous);
    previous = place;
  }
  wgmma_wait<0>();
  release(previous);
}

/// Promoted sums, of more than 128 rows half of them at a time: there is one set of registers for
/// what the tensor cores sum, and while one warpgroup adds, the other multiplies.
template <class Config, int Width, class Take, class Release>
__device__ __forceinline__ void multiply_parts(float (&acc)[Width / 2], int k_blocks, Take take,
                                               Release release) {
  constexpr int parts = Width > 128 ? 2 : 1, width = Width / parts;
  float part[width / 2];
#pragma unroll
  for (int r = 0; r < Width / 2; ++r) acc[r] = 0;
#pragma unroll 1
  for (int k = 0; k < k_blocks; ++k) {
    std::uint64_t a, b;
    int const place = take(a, b);
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      start_part<GroupedPart<Config, width>>(part, a, advance(b, i * width * 128));
      wgmma_wait<0>();
      if (i + 1 == parts) release(place);
      pin(part);
#pragma unroll
      for (int r = 0; r < width / 2; ++r) acc[i * width / 2 + r] += part[r];
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_grouped_kernel(__grid_constant__ GroupedParams const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* const panels = shared + Config::stages * Config::stage_bytes;
  auto* const full = reinterpret_cast<std::uint64_t*>(panels + 2 * Config::store_bytes);
  Ring<Config::stages> const ring{full, full + Config::stages};
  auto* const tiles =
      reinterpret_cast<int4*>(ring.empty + Config::stages);  // that begin with a stage
  std::uint32_t const factors = shared_address(tiles + Config::stages);

  int const role = warpgroup_of_block();
  if (threadIdx.x == 0) {
    ring.init(1 + (Config::scaled ? factor_threads : 0),
              8 * Config::cluster);  // a lane of each warp of both blocks
    fence_mbarrier_init();
  }
  for (int i = static_cast<int>(threadIdx.x); i < Config::stages * Config::factor_bytes / 4;
       i += Config::threads)
    store_shared(factors + 4 * i, 1.0f);  // those that there are none of
  cluster_sync();
  allow_next_launch();
  wait_for_previous_launch();

  GroupWalk<Config> walk{p};
  int const count = walk.count();
  int const rank = static_cast<int>(cluster_rank());
  int const first = static_cast<int>(blockIdx.x) / 2, step = static_cast<int>(gridDim.x) / 2;
  RingPosition<Config::stages> at;

  if (role == 0) {
    decrease_registers<40>();
    if (threadIdx.x / 32 == 0 && elect_one()) {
      prefetch_tensor_map(&p.weights);
      prefetch_tensor_map(&p.rows);
#pragma unroll 1
      for (int tile = first; tile < count; tile += step) {
        GroupedTile const t = walk.go(tile);
        int const n = t.n + rank * Config::tile_n;
        int const z = t.group * p.weights_step, z_rows = t.group * p.rows_step;
        int const boxes = (t.rows + Config::box_rows - 1) / Config::box_rows;
#pragma unroll 1
        for (int k = 0; k < p.k_blocks; ++k) {
          ring.acquire(at);
          std::uint64_t* const full = &ring.full[at.stage];
          if (k == 0) tiles[at.stage] = {t.group, t.row, t.rows, t.n};
          mbarrier_arrive_expect(full, Config::weights_bytes + boxes * Config::box_rows * 128);
          unsigned char* const to = shared + at.stage * Config::stage_bytes;
          int const k0 = k * Config::tile_k;
          if constexpr (Config::mn) {
#pragma unroll
            for (int c = 0; c < Config::tile_n / 64; ++c)
              tma_load(to + 8192 * c, &p.weights, full, Keep::normal, n + 64 * c, k0, z);
          } else {
            tma_load(to, &p.weights, full, Keep::normal, k0, n, z);
          }
          for (int b = rank; b < boxes; b += Config::cluster)
            tma_load_multicast(to + Config::weights_bytes + b * Config::box_rows * 128, &p.rows,
                               full, 3, Keep::normal, k0, t.row + b * Config::box_rows, z_rows);
          at.next();
        }
      }
    } else if (Config::scaled && threadIdx.x / 32 != 0 && threadIdx.x / 32 <= factor_threads / 32) {
#pragma unroll 1
      for (int tile = first; tile < count; tile += step) {
        GroupedTile const t = walk.go(tile);
        GroupedFactorLoader const from(p.block_rows, p.block_columns, t.group * p.rows_step,
                                       t.group, t.row, p.m - 1,
                                       min(t.n + rank * Config::tile_n, p.n - 1));
#pragma unroll 1
        for (int k = 0; k < p.k_blocks; ++k) {
          ring.acquire(at);
          from.load(factors + at.stage * Config::factor_bytes, &ring.full[at.stage], k);
          at.next();
        }
      }
    }
  } else {
    increase_registers<232>();
    int const consumer = role - 1, lane = static_cast<int>(threadIdx.x) % 32;
    GroupedStorer<Config> out(p, panels + consumer * Config::store_bytes, 1 + consumer);
    std::uint64_t const a0 = operand_descriptor(shared + consumer * 8192, Config::tile_k * 128);
    std::uint64_t const b0 =
        operand_descriptor(shared + Config::weights_bytes, Config::tile_k * 128);
    auto const release = [&](int s) {
      if (lane < Config::cluster) mbarrier_arrive_cluster(&ring.empty[s], lane);
    };
    auto const take = [&](std::uint64_t& a, std::uint64_t& b) {
      return take_operands<Config>(ring, at, a0, b0, a, b);
    };
#pragma unroll 1
    for (int tile = first; tile < count; tile += step) {
      ring.wait(at);  // the producer has found the tile
      int4 const found = tiles[at.stage];
      GroupedTile const t{found.x, found.y, found.z,
                          found.w + rank * Config::tile_n + 64 * consumer};
      out.prepare(t);
      // One set of registers for all widths: of what is not written before it is read, the compiler
      // would keep a set for each.
      typename Config::Acc acc[Config::most_rows / 2];
      if constexpr (Config::plain) pin(acc);
      with_width<Config>(t.rows, [&]<int Width>(std::integral_constant<int, Width>) {
        if constexpr (Config::plain)
          multiply_grouped<Config, Width>(first_of<Width>(acc), p.k_blocks, take, release);
        else if constexpr (Config::scaled)
          multiply_promoted<GroupedPart<Config, Width>>(
              first_of<Width>(acc), GroupedScales(factors, Config::factor_bytes), p.k_blocks, take,
              release);
        else
          multiply_parts<Config, Width>(first_of<Width>(acc), p.k_blocks, take, release);
      });
      if constexpr (Config::plain) pin(acc);
      out.store(acc, t);
    }
  }
  cluster_sync();  // no block leaves while the other may arrive at it
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
