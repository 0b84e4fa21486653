// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix products by wgmma and TMA for sm_90a: persistent blocks, one producer warp, cooperating
/// consumer warpgroups.
///
/// A ring of stages in shared memory, each 128 bytes of K of A's and B's tile, is filled by the
/// copy engine and emptied by the tensor cores. The producer runs ahead over the ends of tiles, so
/// that the loads of the next tile hide behind the epilogue of this one. Two blocks of a cluster
/// lie one above the other and share B's tile: each loads half of it into both. The epilogue hands
/// C to the copy engine through swizzled panels. Factors of blocks of float8 operands come by the
/// copy engine, too, or with their stage, brought by other warps of the producer.
///
/// Source of the schedule: CUTLASS's and fast.cu's published descriptions of warp-specialized,
/// persistent Hopper GEMMs; PTX ISA for every layout.
#pragma once

#include "copied_factors.cuh"
#include "epilogue_store.cuh"
#include "mainloop_registers.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "split_k.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

namespace {

/// Loads the tiles of one stage. K-major operands come as one box of all rows, MN-major ones as
/// boxes of 128 bytes along M or N.
template <class Config>
struct Sm90Loader {
  static constexpr auto all_blocks = static_cast<std::uint16_t>((1 << Config::cluster) - 1);

  Sm90Params const& p;
  std::uint32_t rank;

  __device__ __forceinline__ void load(unsigned char* stage, std::uint64_t* full, int z, int m,
                                       int n, int k) const {
    int const za = z * p.a_batch_step, zb = z * p.b_batch_step;
    unsigned char* const a = stage;
    if constexpr (Config::mn_a) {
      constexpr int box = 128 / static_cast<int>(sizeof(typename Config::A));
#pragma unroll
      for (int c = 0; c < Config::tile_m / box; ++c)
        tma_load(a + c * Config::tile_k * 128, &p.a, full, Keep::normal, m + box * c, k, za);
    } else {
      tma_load(a, &p.a, full, Keep::normal, k, m, za);
    }
    unsigned char* const b = stage + Config::a_bytes;
    constexpr int share = Config::tile_n / Config::cluster;  // rows that this block brings
    int const first = Config::cluster == 1 ? 0 : static_cast<int>(rank) * share;
    if constexpr (Config::mn_b) {
#pragma unroll
      for (int c = 0; c < share / 64; ++c) {
        unsigned char* const to = b + first * 128 + c * 8192;
        int const x = n + first + 64 * c;
        if constexpr (Config::cluster == 1)
          tma_load(to, &p.b, full, Keep::normal, x, k, zb);
        else
          tma_load_multicast(to, &p.b, full, all_blocks, Keep::normal, x, k, zb);
      }
    } else if constexpr (Config::gated) {
      constexpr int half = Config::out_n;  // rows of either weight
      if constexpr (Config::cluster == 1) {
        tma_load(b, &p.b, full, Keep::normal, k, n, zb);
        tma_load(b + half * 128, &p.up, full, Keep::normal, k, n, zb);
      } else {
        tma_load_multicast(b + first * 128, rank == 0 ? &p.b : &p.up, full, all_blocks,
                           Keep::normal, k, n, zb);
      }
    } else {
      unsigned char* const to = b + first * 128;
      if constexpr (Config::cluster == 1)
        tma_load(to, &p.b, full, Keep::normal, k, n, zb);
      else
        tma_load_multicast(to, &p.b, full, all_blocks, Keep::normal, k, n + first, zb);
    }
  }
};

/// The products of one stage for one warpgroup.
template <class Config>
__device__ __forceinline__ void multiply_stage(
    typename Config::Acc (&acc)[Config::waves][Config::tile_n / 2], std::uint64_t a,
    std::uint64_t b, int accumulate) {
  using Product =
      Wgmma<typename Config::A, typename Config::B, Config::tile_n, Config::mn_a, Config::mn_b>;
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    std::uint32_t const step_a = step * (Config::mn_a ? 2048 : 32);
    std::uint32_t const step_b = step * (Config::mn_b ? 2048 : 32);
#pragma unroll
    for (int wave = 0; wave < Config::waves; ++wave)
      Product::multiply(acc[wave], advance(a, step_a + wave * 8192), advance(b, step_b),
                        step == 0 ? accumulate : 1);
  }
  wgmma_commit();
}

/// Sums the products of a tile, promoted, times the block scales that there are for it.
template <class Config, class Release>
__device__ __forceinline__ void multiply_promoted_tile(
    Sm90Params const& p, typename Config::Acc (&acc)[Config::waves][Config::tile_n / 2],
    Ring<Config::stages> const& ring, RingPosition<Config::stages>& at, std::uint64_t const& a0,
    std::uint64_t const& b0, unsigned char* shared, unsigned char* factors,
    Sm90FactorRing<Config>& factor_ring, bool copies, int share, int consumer, int m, int n,
    Release const& release) {
  if constexpr (Config::registers_a) {
    auto const take = [&] { return ring.take(at); };
    with_block_scales<Config>(p, shared_address(factors), consumer * 64, [&](auto scales) {
      multiply_registers_promoted<Config>(acc[0], scales, p.k_blocks, shared_address(shared),
                                          share * Config::waves, b0, take, release);
    });
  } else {
    auto const take = [&](std::uint64_t& a, std::uint64_t& b) {
      return take_operands<Config>(ring, at, a0, b0, a, b);
    };
    auto const multiply = [&](auto scales) {
      multiply_promoted<Config>(acc[0], scales, p.k_blocks, take, release);
    };
    if (copies)
      multiply(
          Sm90CopiedScales<Config>(p, shared_address(factors), factor_ring, m, n, consumer * 64));
    else
      with_block_scales<Config>(p, shared_address(factors), consumer * 64, multiply);
  }
}

constexpr int turn_barrier = 4;  // and 5: whose turn it is to multiply

/// Sets up a block's barriers and places for factors, for all of its cluster to see.
template <class Config>
__device__ __forceinline__ void make_ready(Sm90Params const& p, Ring<Config::stages> const& ring,
                                           unsigned char* factors, bool fetches, bool copies) {
  if (threadIdx.x == 0) {
    ring.init(1 + (fetches ? 32 * Config::factor_warps : 0),
              4 * Config::sharers * Config::cluster);  // a lane of each warp
    fence_mbarrier_init();
  }
  if constexpr (Config::promoted) {
    if (fetches) Sm90FactorSlot<Config>::clear(shared_address(factors));
    if (copies) Sm90FactorRing<Config>::clear(p, shared_address(factors));
  }
  if constexpr (Config::blocks == 1)
    __syncthreads();
  else
    cluster_sync();
}

/// Brings the block scales of a tile, stage by stage, by one warp.
template <class Config>
__device__ __forceinline__ void load_factors(Sm90Params const& p, Ring<Config::stages> const& ring,
                                             RingPosition<Config::stages>& at,
                                             std::uint32_t factors, int z, int m, int n) {
  Sm90FactorLoader<Config> const loader(p, z, m, n);
  for (int k = 0; k < p.k_blocks; ++k) {
    ring.acquire(at);
    loader.load(factors + at.stage * Sm90FactorSlot<Config>::bytes, &ring.full[at.stage], k);
    at.next();
  }
}

/// Multiplies stages `begin` ... `end` − 1 of K and gives back all but the last, which it returns
/// and which may still be read.
template <class Config, class Release>
__device__ __forceinline__ int multiply_stages(
    typename Config::Acc (&acc)[Config::waves][Config::tile_n / 2],
    Ring<Config::stages> const& ring, RingPosition<Config::stages>& at, std::uint64_t const& a0,
    std::uint64_t const& b0, int begin, int end, Release const& release) {
  int previous = -1;
  for (int k = begin; k < end; ++k) {
    ring.wait(at);
    multiply_stage<Config>(acc, advance(a0, at.stage * Config::stage_bytes),
                           advance(b0, at.stage * Config::stage_bytes), previous >= 0);
    wgmma_wait<1>();  // the stage before this one has been read
    if (previous >= 0) release(previous);
    previous = at.stage;
    at.next();
  }
  return previous;
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_gemm_kernel(__grid_constant__ Sm90Params const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* const panels = shared + Config::stages * Config::stage_bytes;
  auto* const full =
      reinterpret_cast<std::uint64_t*>(panels + Config::panels * Config::panel_bytes);
  Ring<Config::stages> const ring{full, full + Config::stages};
  unsigned char* const factors =  // of promoted products
      reinterpret_cast<unsigned char*>(full) + Config::barrier_bytes;
  bool const fetches = p.block_factors == BlockFactors::fetched;
  bool const copies = Config::copied_places != 0 && p.block_factors == BlockFactors::copied;

  int const group = warpgroup_of_block();
  // Not worth a register: read afresh.
  auto const rank = [] { return Config::blocks == 1 ? 0 : cluster_rank(); };
  make_ready<Config>(p, ring, factors, fetches, copies);
  allow_next_launch();
  wait_for_previous_launch();

  int const first = static_cast<int>(blockIdx.x) / Config::blocks;
  int const step = static_cast<int>(gridDim.x) / Config::blocks;
  int const count = p.tiles.count();
  auto const locate = [&](int tile, int& z, int& m,
                          int& n) {  // this block's first row, column
    p.tiles.locate(tile, z, m, n);
    m = (m * Config::cluster + (Config::splits > 1 ? 0 : static_cast<int>(rank()))) *
        Config::tile_m;
    n *= Config::out_n;
  };
  // Where a block's part of K begins.
  auto const begin = [&](std::uint32_t part) {
    return static_cast<int>(part) * p.k_blocks / Config::splits;
  };
  std::uint32_t const part = Config::splits > 1 ? rank() : 0;
  // One for all roles, which stand here and not in functions of their own: with those, tiles of 256
  // columns and of promoted sums spill. What they are made of can be functions.
  RingPosition<Config::stages> at;

  if (group == 0) {
    decrease_registers<Config::producer_registers>();
    if (threadIdx.x / 32 == 0 && elect_one()) {
      prefetch_tensor_map(&p.a);
      prefetch_tensor_map(&p.b);
      Sm90Loader<Config> const loader{p, rank()};
      Sm90FactorRing<Config> factor_ring;
      int const ring_bytes = copies ? Sm90FactorRing<Config>::bytes(p) : 0;
      for (int tile = first; tile < count; tile += step) {
        int z, m, n;
        locate(tile, z, m, n);
        for (int k = begin(part); k < begin(part + 1); ++k) {
          ring.acquire(at);
          std::uint64_t* const full = &ring.full[at.stage];
          bool const begins = copies && factor_ring.begins(k);
          mbarrier_arrive_expect(full, Config::stage_bytes + (begins ? ring_bytes : 0));
          if (begins) factor_ring.load(p, factors, full, z, m, n, k);
          loader.load(shared + at.stage * Config::stage_bytes, full, z, m, n, k * Config::tile_k);
          at.next();
        }
      }
    }
    if constexpr (Config::promoted) {
      if (threadIdx.x - Config::first_factor_thread < 32 * Config::factor_warps && fetches) {
        for (int tile = first; tile < count; tile += step) {
          int z, m, n;
          locate(tile, z, m, n);
          load_factors<Config>(p, ring, at, shared_address(factors), z, m, n);
        }
      }
    }
  } else {
    increase_registers<Config::consumer_registers>();
    int const consumer = group - 1;
    int const lane = static_cast<int>(threadIdx.x) % 32;
    auto const release = [&](int s) {
      if constexpr (Config::cluster == 1) {
        if (lane == 0) ring.release(s);
      } else {
        if (lane < Config::cluster) mbarrier_arrive_cluster(&ring.empty[s], lane);
      }
    };
    int const share = Config::ping_pong ? 0 : consumer;  // of the rows of a tile
    std::uint64_t const a0 =
        operand_descriptor(shared + share * Config::waves * 8192, Config::tile_k * 128);
    std::uint64_t const b0 = operand_descriptor(shared + Config::a_bytes, Config::tile_k * 128);
    Sm90Storer<typename Config::Stored> storer(
        p, panels + consumer * Config::group_panels * Config::panel_bytes, consumer,
        shared_address(factors) + Config::factor_bytes + consumer * Config::row_column_bytes);
    typename Config::Acc acc[Config::waves][Config::tile_n / 2];
    Sm90FactorRing<Config> factor_ring;
    int tile = first, stride = step;
    if constexpr (Config::ping_pong) {  // a warpgroup passes over the stages of the other's tiles
      stride = 2 * step;
      if (consumer == 1) {
        tile += step;
        at.pass(p.k_blocks);
        if (first < count) named_barrier_arrive(turn_barrier, 256);
      }
    }
    for (; tile < count; tile += stride) {
      int z, m, n;
      locate(tile, z, m, n);
      m += share * Config::waves * 64;
      int const first_column = Config::splits > 1 ? static_cast<int>(part) * Config::stored_n : 0;
      storer.fetch(z, m, n + first_column);
      if constexpr (Config::ping_pong) named_barrier_sync(turn_barrier + consumer, 256);
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) pin(acc[wave]);
      auto const finish_products = [&](int held) {
        if constexpr (Config::ping_pong) {
          if (tile + step < count) named_barrier_arrive(turn_barrier + (1 - consumer), 256);
          at.pass(p.k_blocks);
        }
        wgmma_wait<0>();
        release(held);
      };
      if constexpr (Config::promoted)
        multiply_promoted_tile<Config>(p, acc, ring, at, a0, b0, shared, factors, factor_ring,
                                       copies, share, consumer, m, n, release);
      else if constexpr (Config::registers_a)
        finish_products(multiply_registers<Config>(
            acc, p.k_blocks, shared_address(shared), share * Config::waves, b0,
            [&] { return ring.take(at); }, release));
      else
        finish_products(
            multiply_stages<Config>(acc, ring, at, a0, b0, begin(part), begin(part + 1), release));
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) pin(acc[wave]);
      if constexpr (Config::splits == 1) {
        storer.store(acc, z, m, n);
      } else {
        typename Config::Acc sums[Config::waves][Config::stored_n / 2];
        sum_parts<Config>(acc, sums, shared_address(shared), static_cast<int>(part));
        if (first_column < Config::tile_n) storer.store(sums, z, m, n + first_column);
        break;  // there is a cluster for every tile
      }
    }
    if (threadIdx.x % 128 == 0) tma_store_wait_read<0>();
  }
  if constexpr (Config::splits > 1)
    if (group == 0) cluster_sync();  // sum_parts' in the consumers
  if constexpr (Config::blocks > 1)
    cluster_sync();  // no block leaves while another may arrive at it
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
