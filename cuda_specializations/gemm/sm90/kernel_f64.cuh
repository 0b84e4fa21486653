// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// float64 matrix products for sm_90 by mma.sync, fed by the copy engine.
///
/// One warp drives the copy engine through a ring of stages of 16 k, eight multiply, a warp 64 × 32
/// elements of C: no barrier stops them all, and blocks run on into the next tile. Two blocks of a
/// cluster lie one above the other and share B's tile: each loads half of it into both.
///
/// Sums do not mind which row of a tile is which of a fragment. In the swizzle of 128-byte lines
/// the order below lets the loads of a fragment meet in no bank.
#pragma once

#include "common/limits.cuh"
#include "common/ring.cuh"
#include "common/uniform.cuh"
#include "gemm/shared/layouts.cuh"
#include "gemm/sm80/epilogue.cuh"
#include "params.cuh"
#include "ptx/cluster.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/tma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Of Sm80Params the operands are not used.
struct Sm90DoubleParams : Sm80Params {
  CUtensorMap map_a, map_b;
  Sm90Tiles pairs;                 ///< of tiles, one above the other
  int k_blocks;                    ///< 128-byte steps of K
  int a_batch_step, b_batch_step;  ///< 0 where the operand is the same in every batch
};

/// What the warps stage of C at a time, for store_staged(): 16 rows of their 32 columns.
struct Sm90DoubleStaging {
  using Acc = double;
  static constexpr int warps = 8, warp_m = 16, warp_n = 32;
  static constexpr int shared_bytes = warps * warp_m * (warp_n + 8) * 8;
};

template <class Layout>
struct Sm90DoubleConfig {
  static constexpr bool mn_a = Layout::mn_a, mn_b = Layout::mn_b;
  static constexpr int tile_m = 128, tile_n = 128, tile_k = 16, stages = 5, cluster = 2;
  static constexpr int consumer_warps = 8, threads = 128 + 32 * consumer_warps;
  static constexpr int tile_bytes = 128 * 128, stage_bytes = 2 * tile_bytes;
  static constexpr int shared_bytes =
      1024 + stages * stage_bytes + Sm90DoubleStaging::shared_bytes + 2 * 8 * stages;
  static_assert(shared_bytes <= sm90_shared_bytes);
};

namespace {

/// Where a lane's numbers of a fragment lie in a tile, those of rows g and of k q: K-major, row
/// 2 (g mod 4) + g / 4 of eight; MN-major, 16 rows in a line for each k, rows 2 c and 2 c + 1 of
/// them in chunk c, g's bits turned.
template <bool MnMajor>
struct DoubleLane {
  static __device__ __forceinline__ int chunk(int g) { return g / 2 + g % 2 * 4; }
  /// Row of 16 that is row g + 8 h of the fragment.
  static __device__ __forceinline__ int row(int g, int h) {
    return MnMajor ? 2 * chunk(g) + h : g % 4 * 2 + g / 4 + 8 * h;
  }

  std::uint32_t offset;
  __device__ __forceinline__ explicit DoubleLane(int lane) {
    int const g = lane / 4, q = lane % 4;
    offset = MnMajor ? q * 128 + (chunk(g) ^ q) * 16
                     : row(g, 0) * 128 + (q / 2 ^ row(g, 0)) * 16 + q % 2 * 8;
  }
  /// Rows g and g + 8 of 16, k 4 `step` + q.
  __device__ __forceinline__ void load(double (&x)[2], std::uint32_t rows, int step) const {
    if constexpr (MnMajor) {
      std::uint32_t const at = rows + (offset ^ step % 2 * 64) + step * 512;
      double2 const both = load_shared_pair(at);
      x[0] = both.x, x[1] = both.y;
    } else {
      std::uint32_t const at = rows + (offset ^ step * 32);
      x[0] = load_shared_8(at), x[1] = load_shared_8(at + 1024);
    }
  }
};

/// Fragments of 4 k of a warp's 64 rows of A and 32 columns of B.
struct DoubleFragments {
  double a[4][2], b[2][2];
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_f64_kernel(__grid_constant__ Sm90DoubleParams const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw[];
  auto* const shared = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(raw) + 1023) & ~std::uintptr_t{1023});
  auto* const staging = reinterpret_cast<double*>(shared + Config::stages * Config::stage_bytes);
  auto* const full = reinterpret_cast<std::uint64_t*>(
      shared + Config::stages * Config::stage_bytes + Sm90DoubleStaging::shared_bytes);
  Ring<Config::stages> const ring{full, full + Config::stages};
  int const warp = warp_of_block();
  int const rank = static_cast<int>(cluster_rank());
  if (threadIdx.x == 0) {
    ring.init(1, Config::consumer_warps * Config::cluster);
    fence_mbarrier_init();
  }
  cluster_sync();
  allow_next_launch();
  wait_for_previous_launch();

  // Read where it is used: it is not worth a register before.
  auto const first = [] { return fresh_block() / Config::cluster; };
  int const step = static_cast<int>(gridDim.x) / Config::cluster;
  int const count = p.pairs.count();
  auto const locate = [&](int tile, int& z, int& m, int& n) {
    p.pairs.locate(tile, z, m, n);
    m = (m * Config::cluster + rank) * Config::tile_m;
    n *= Config::tile_n;
  };
  RingPosition<Config::stages> at;
  if (warp < 4) {
    decrease_registers<40>();
    if (warp == 0 && elect_one()) {
      for (int tile = first(); tile < count; tile += step) {
        int z, m, n;
        locate(tile, z, m, n);
        int const za = z * p.a_batch_step, zb = z * p.b_batch_step;
        for (int block = 0; block < p.k_blocks; ++block) {
          int const k = block * Config::tile_k;
          unsigned char* const a = shared + at.stage * Config::stage_bytes;
          unsigned char* const b = a + Config::tile_bytes + rank * (Config::tile_bytes / 2);
          std::uint64_t* const full = &ring.full[at.stage];
          ring.acquire(at);
          mbarrier_arrive_expect(full, Config::stage_bytes);
          if constexpr (!Config::mn_a) {
            tma_load(a, &p.map_a, full, Keep::normal, k, m, za);
          } else {
            for (int c = 0; c < 8; ++c)
              tma_load(a + c * 2048, &p.map_a, full, Keep::normal, m + 16 * c, k, za);
          }
          int const half = n + rank * (Config::tile_n / 2);
          if constexpr (!Config::mn_b) {
            tma_load_multicast(b, &p.map_b, full, 3, Keep::normal, k, half, zb);
          } else {
            for (int c = 0; c < 4; ++c)
              tma_load_multicast(b + c * 2048, &p.map_b, full, 3, Keep::normal, half + 16 * c, k,
                                 zb);
          }
          at.next();
        }
      }
    }
    __syncwarp();
  } else {
    increase_registers<232>();
    int const lane = static_cast<int>(threadIdx.x) % 32;
    int const warp_m = warp % 2 * 64, warp_n = (warp - 4) / 2 * 32;
    DoubleLane<Config::mn_a> const lane_a(lane);
    DoubleLane<Config::mn_b> const lane_b(lane);
    // 16 rows take 2 KiB either way.
    std::uint32_t const rows_a = shared_address(shared) + warp_m * 128;
    std::uint32_t const rows_b = shared_address(shared) + Config::tile_bytes + warp_n * 128;
    auto const load = [&](DoubleFragments& f, int from, int k_step) {
      std::uint32_t const there = from * Config::stage_bytes;
#pragma unroll
      for (int i = 0; i < 4; ++i) lane_a.load(f.a[i], rows_a + there + i * 2048, k_step);
#pragma unroll
      for (int j = 0; j < 2; ++j) lane_b.load(f.b[j], rows_b + there + j * 2048, k_step);
    };
    for (int tile = first(); tile < count; tile += step) {
      int z, m, n;
      locate(tile, z, m, n);
      double acc[4][4][4];
#pragma unroll
      for (auto& row : acc)
#pragma unroll
        for (auto& four : row)
#pragma unroll
          for (double& x : four) x = 0;
      DoubleFragments f[2];
      ring.wait(at);
      load(f[0], at.stage, 0);
      for (int block = 0;; ++block) {
        int const held = at.stage;
        bool const last = block + 1 == p.k_blocks;
        at.next();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (k < 3) {
            load(f[(k + 1) % 2], held, k + 1);
          } else if (!last) {
            ring.wait(at);
            load(f[0], at.stage, 0);
          }
#pragma unroll
          for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              double const y[1] = {f[k % 2].b[j / 2][j % 2]};
              mma_f64<1>(acc[i][j], f[k % 2].a[i], y);
            }
        }
        if (lane < Config::cluster) mbarrier_arrive_cluster(&ring.empty[held], lane);
        if (last) break;
      }
      // In a loop, not unrolled: of what finishes 16 rows there is one piece of code.
      using S = Staging<Sm90DoubleStaging>;
      double* const staged = staging + (warp - 4) * (S::rows * S::stride);
      int const g = lane / 4, q = lane % 4;
#pragma unroll 1
      for (int part = 0; part < 4; ++part) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (i == part) {
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
              for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r)
                  staged[DoubleLane<Config::mn_a>::row(g, h) * S::stride + j / 2 * 16 +
                         DoubleLane<Config::mn_b>::row(2 * q + r, j % 2)] = acc[i][j][2 * h + r];
          }
        __syncwarp();
        store_staged<Sm90DoubleStaging>(p, staged, z, m + warp_m + 16 * part, n + warp_n);
      }
    }
  }
  cluster_sync();  // no block leaves while the other may arrive at it
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
