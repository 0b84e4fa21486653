// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// IEEE float32 matrix products on CUDA cores for sm_90, fed by the copy engine.
///
/// One warp drives the copy engine through a ring of stages of 32 k, eight warps multiply, a thread
/// 8 × 16 elements of its warp's 64 × 64. Both operands come four rows or columns to a load, for
/// the sake of add_products(). A K-major operand, whose loads along k would put all of one k into
/// the same half of the register file, is therefore transposed in shared memory, once a stage, by
/// three warps that have nothing else to do.
///
/// Where tiles are few, the eight warps share out each stage's k, and the blocks of a cluster share
/// out K. A share's sums run through its k in ascending order; shares are added in the order of
/// block, then warps, so that the result is the same every time.
#pragma once

#include "common/limits.cuh"
#include "common/ring.cuh"
#include "common/uniform.cuh"
#include "gemm/shared/simt_products.cuh"
#include "params.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct SimtParams : Sm90Params {
  bool k_major_a, k_major_b;
  float alpha;  ///< instead of the epilogue's, which is 1
};

/// What follows from a SimtShape; warps that its tile has no place for share out k.
template <class Shape>
struct SimtConfig {
  using A = float;
  using B = float;
  static constexpr int tile_m = Shape::rows, tile_n = Shape::columns, stages = Shape::stages;
  static constexpr int cycles = Shape::cycles;  ///< of a k
  static constexpr int most_splits = Shape::most_splits;
  static constexpr bool split = most_splits > 0;
  static constexpr int tile_k = 32;
  static constexpr int consumer_warps = 8, transposing_warps = 3;
  static constexpr int warps_m = tile_m / 64, warps_n = tile_n / 64, places = warps_m * warps_n;
  static constexpr int groups = consumer_warps / places;  ///< that share out k
  static constexpr int threads = 128 + 32 * consumer_warps;
  static constexpr int a_bytes = tile_m * 128, b_bytes = tile_n * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static constexpr int shared_bytes = 1024 + stages * stage_bytes + 3 * 8 * stages;
  static constexpr int sums = 128;  ///< of a thread
  static_assert(shared_bytes <= sm90_shared_bytes && consumer_warps % places == 0 && groups <= 4);
  static_assert(consumer_warps * 32 * sums * 4 <= stages * stage_bytes);
};

namespace {

/// Transposes 32 × 32 elements in place, both ways in the copy engine's swizzle of 128-byte rows;
/// one warp.
__device__ __noinline__ void transpose_block(std::uint32_t block, int lane) {
  float row[32];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    float4 const v = load_shared(block + lane * 128 + (c ^ lane % 8) * 16);
    row[4 * c] = v.x, row[4 * c + 1] = v.y, row[4 * c + 2] = v.z, row[4 * c + 3] = v.w;
  }
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 32; ++k)
    store_shared(block + k * 128 + (lane / 4 ^ k % 8) * 16 + lane % 4 * 4, row[k]);
}

/// Finishes and stores four sums side by side.
__device__ __noinline__ void finish_four(Sm90Params const& p, float4 sums, int z, int m, int n) {
  Epilogue const& e = p.epilogue;
  if (m >= p.m) return;
  if (e.only_alpha)
    return store_times_alpha<4>(
        e, z * e.c_batch + m * e.c_m + n * e.c_n, e.c_n, p.n - n, [&](int j) {
          return j == 0 ? sums.x : j == 1 ? sums.y : j == 2 ? sums.z : sums.w;
        });
  auto const sum_of = [&](int j) {
    return j == 0 ? sums.x : j == 1 ? sums.y : j == 2 ? sums.z : sums.w;
  };
  if (e.pre_activation.data != nullptr) {
#pragma unroll 1
    for (int j = 0; j < min(4, p.n - n); ++j) keep_argument(e, sum_of(j), z, m, n + j);
  }
#pragma unroll 1
  for (int j = 0; j < 4; ++j) {
    if (n + j >= p.n) return;
    finish_element(e, sum_of(j), z, m, n + j);
  }
}

/// Stores four sums side by side. Where alpha is all there is to do, a group of four is inside C or
/// outside as a whole.
__device__ __forceinline__ void store_four(SimtParams const& p, float4 sums, int z, int m, int n) {
  sums.x *= p.alpha, sums.y *= p.alpha, sums.z *= p.alpha, sums.w *= p.alpha;
  if (p.store == Sm90Store::words) {
    Epilogue const& e = p.epilogue;
    if (m >= p.m || n >= p.n) return;
    *reinterpret_cast<float4*>(static_cast<float*>(e.c) + z * e.c_batch + m * e.c_m + n) = sums;
  } else {
    finish_four(p, sums, z, m, n);
  }
}

/// Adds the sums of all shares of K, each share's warps an equal part, and stores them. `own`: the
/// thread's place in shared memory, where the stages were; `group`: its warps' share in the block.
template <class Config>
__device__ __forceinline__ void sum_shares(SimtParams const& p, float const (&acc)[8][16],
                                           std::uint32_t own, int group, int z, int m, int n) {
  int const splits = p.splits, rank = static_cast<int>(cluster_rank());
  // Every share's sums in place of the stages, four rows of a column at a time and odd rows
  // before even ones, which leaves the compiler the halves that it needs above. Each share's
  // warps then add an equal part.
  constexpr int bytes = 32 * Config::places * 16;      // of four sums of each thread of a share
  named_barrier_sync(1, 32 * Config::consumer_warps);  // no warp reads the stages any more
#pragma unroll
  for (int v = 0; v < 32; ++v)
    store_shared(own + (group * 32 + v) * bytes,
                 make_float4(acc[v / 16 * 4 + 1][v % 16], acc[v / 16 * 4][v % 16],
                             acc[v / 16 * 4 + 3][v % 16], acc[v / 16 * 4 + 2][v % 16]));
  cluster_sync();
#pragma unroll 1
  for (int part = rank * Config::groups + group; part < 8; part += splits * Config::groups) {
    float sums[4][4] = {};  // of rows 4 (part / 4) and on, columns 4 (part % 4) and on
#pragma unroll 2
    for (int r = 0; r < splits; ++r) {
#pragma unroll
      for (int g = 0; g < Config::groups; ++g) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float4 const share =
              load_cluster_four(own + (g * 32 + part / 4 * 16 + part % 4 * 4 + j) * bytes, r);
          sums[0][j] += share.y, sums[1][j] += share.x;
          sums[2][j] += share.w, sums[3][j] += share.z;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_four(p, make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]), z,
                 m + part / 4 * 32 + i, n + part % 4 * 16);
  }
  cluster_sync();  // the others may still read this block's sums
}

/// Config::split: p.splits blocks of a cluster share out one tile's K. Otherwise blocks go through
/// tiles.
template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    simt_f32_kernel(__grid_constant__ SimtParams const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(Config::split || Config::groups == 1);
  extern __shared__ unsigned char raw[];
  auto* const shared = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(raw) + 1023) & ~std::uintptr_t{1023});
  auto* const full =
      reinterpret_cast<std::uint64_t*>(shared + Config::stages * Config::stage_bytes);
  std::uint64_t* const ready = full + Config::stages;  // of what had to be transposed
  Ring<Config::stages> const ring{full, ready + Config::stages};
  int const warp = warp_of_block();
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    ring.init(1, Config::consumer_warps);
    for (int s = 0; s < Config::stages; ++s) mbarrier_init(&ready[s], Config::transposing_warps);
    fence_mbarrier_init();
  }
  __syncthreads();
  allow_next_launch();
  wait_for_previous_launch();

  int const splits = Config::split ? p.splits : 1;
  int const rank = Config::split ? static_cast<int>(cluster_rank()) : 0;
  long long const first = Config::split ? blockIdx.x / splits : blockIdx.x;
  long long const count = Config::split ? first + 1 : p.tiles.count();
  int const begin = static_cast<int>(static_cast<long long>(p.k_blocks) * rank / splits);
  int const end = static_cast<int>(static_cast<long long>(p.k_blocks) * (rank + 1) / splits);
  bool const transposes = p.k_major_a || p.k_major_b;
  RingPosition<Config::stages> at;
  if (warp < 4) {
    decrease_registers<56>();
    if (warp == 0) {
      if (elect_one()) {
        for (long long tile = first; tile < count; tile += gridDim.x) {
          int z, m, n;
          p.tiles.locate(tile, z, m, n);
          m *= Config::tile_m;
          n *= Config::tile_n;
          int const za = z * p.a_batch_step, zb = z * p.b_batch_step;
          for (int block = begin; block < end; ++block) {
            int const k = block * Config::tile_k;
            unsigned char* const a = shared + at.stage * Config::stage_bytes;
            unsigned char* const b = a + Config::a_bytes;
            std::uint64_t* const full = &ring.full[at.stage];
            ring.acquire(at);
            mbarrier_arrive_expect(full, Config::stage_bytes);
            if (p.k_major_a) {
              tma_load(a, &p.a, full, Keep::normal, k, m, za);
            } else {
              for (int c = 0; c < Config::tile_m / 32; ++c)
                tma_load(a + c * 4096, &p.a, full, Keep::normal, m + 32 * c, k, za);
            }
            if (p.k_major_b) {
              tma_load(b, &p.b, full, Keep::normal, k, n, zb);
            } else {
              for (int c = 0; c < Config::tile_n / 32; ++c)
                tma_load(b + c * 4096, &p.b, full, Keep::normal, n + 32 * c, k, zb);
            }
            at.next();
          }
        }
      }
    } else if (transposes) {
      int const from = p.k_major_a ? 0 : Config::tile_m / 32;
      int const to = (p.k_major_b ? Config::tile_n : 0) / 32 + Config::tile_m / 32;
      for (long long tile = first; tile < count; tile += gridDim.x) {
        for (int block = begin; block < end; ++block) {
          ring.wait(at);
          std::uint32_t const there = shared_address(shared) + at.stage * Config::stage_bytes;
          for (int b = from + warp - 1; b < to; b += Config::transposing_warps)
            transpose_block(there + b * 4096, lane);
          fence_proxy_async();  // these accesses come before the copy engine's next writes
          __syncwarp();
          if (lane == 0) mbarrier_arrive(&ready[at.stage]);
          at.next();
        }
      }
    }
    __syncwarp();
    if constexpr (Config::split) {
      cluster_sync();
      cluster_sync();
    }
  } else {
    increase_registers<224>();
    int const consumer = warp - 4;
    int const group = consumer / Config::places, place = consumer % Config::places;
    int const lane_m = lane % 8, lane_n = lane / 8;
    int const first_m = place % Config::warps_m * 64, first_n = place / Config::warps_m * 64;
    constexpr int steps = 4 / Config::groups;  // of 8 k in a stage
    std::uint32_t const own_a = shared_address(shared) + first_m * 128 + group * steps * 1024;
    std::uint32_t const own_b = own_a + Config::a_bytes + (first_n - first_m) * 128;
    for (long long tile = first; tile < count; tile += gridDim.x) {
      int z, m, n;
      p.tiles.locate(tile, z, m, n);
      // Element (i, j) of a thread is (32 (i / 4) + i % 4, 16 (j / 4) + j % 4) from here.
      m = m * Config::tile_m + first_m + 4 * lane_m;
      n = n * Config::tile_n + first_n + 4 * lane_n;
      float acc[8][16];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 16; ++j) acc[i][j] = 0;
      for (int block = begin; block < end; ++block) {
        ring.wait(at);
        if (transposes) mbarrier_wait(&ready[at.stage], at.phase);
        std::uint32_t const a = own_a + at.stage * Config::stage_bytes;
        std::uint32_t const b = own_b + at.stage * Config::stage_bytes;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
#pragma unroll
          for (int k = 0; k < 8; ++k) {
            float fa[8], fb[16];
#pragma unroll
            for (int g = 0; g < 2; ++g) {
              float4 const v =
                  load_shared(a + step * 1024 + g * 4096 + k * 128 + (lane_m ^ k) * 16);
              fa[4 * g] = v.x, fa[4 * g + 1] = v.y, fa[4 * g + 2] = v.z, fa[4 * g + 3] = v.w;
            }
#pragma unroll
            for (int g = 0; g < 4; ++g) {
              float4 const v = load_shared(b + step * 1024 + g / 2 * 4096 + k * 128 +
                                           (lane_n ^ k % 4) * 16 + (g % 2 ^ k / 4) * 64);
              fb[4 * g] = v.x, fb[4 * g + 1] = v.y, fb[4 * g + 2] = v.z, fb[4 * g + 3] = v.w;
            }
            add_products(acc, fa, fb);
          }
        }
        fence_proxy_async();  // these reads come before the copy engine's next writes
        __syncwarp();
        if (lane == 0) ring.release(at.stage);
        at.next();
      }
      if constexpr (Config::split) {
        sum_shares<Config>(p, acc, shared_address(shared) + (place * 32 + lane) * 16, group, z, m,
                           n);
      } else {
#pragma unroll
        for (int v = 0; v < 32; ++v)
          store_four(p,
                     make_float4(acc[v / 4][v % 4 * 4], acc[v / 4][v % 4 * 4 + 1],
                                 acc[v / 4][v % 4 * 4 + 2], acc[v / 4][v % 4 * 4 + 3]),
                     z, m + v / 16 * 32 + v / 4 % 4, n + v % 4 * 16);
      }
    }
  }
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
