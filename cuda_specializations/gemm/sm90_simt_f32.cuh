// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// IEEE float32 matrix products on CUDA cores for sm_90, fed by the copy engine.
///
/// The schedule is that of sm90_wgmma.cuh: one producer warp, a ring of stages of 32 k, persistent
/// blocks. A thread sums ThreadM × ThreadN elements; a warp's lanes stand 8 along M and 4 along N.
/// K-major operands are read four k at a time, others four rows or columns at a time: both ways 16
/// bytes, without bank conflicts in the copy engine's swizzle, so that no operand is ever
/// transposed.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/tma.cuh"
#include "sm90_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Tile of a block, elements of a thread along N (8 along M), and stages.
template <bool MnMajorA, bool MnMajorB, int TileM, int TileN, int ThreadN, int Stages,
          int BlocksPerSm>
struct SimtConfig {
  using A = float;
  using B = float;
  static constexpr bool mn_a = MnMajorA, mn_b = MnMajorB, gated = false;
  static constexpr int tile_m = TileM, tile_n = TileN, out_n = TileN, stages = Stages;
  static constexpr int cluster = 1, blocks_per_sm = BlocksPerSm;
  static constexpr int tile_k = 32;
  static constexpr int thread_m = 8, thread_n = ThreadN;
  static constexpr int warps_m = TileM / 64, warps_n = TileN / (4 * ThreadN);
  static constexpr int consumer_warps = warps_m * warps_n;
  static constexpr int threads = 32 * consumer_warps + 128;
  static constexpr int a_bytes = TileM * 128, b_bytes = TileN * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static constexpr int staged_bytes = consumer_warps * 64 * 4 * 4;  ///< 64 × 4 sums of each warp
  static constexpr int shared_bytes = 1024 + Stages * stage_bytes + staged_bytes + 2 * 8 * Stages;
  static_assert((shared_bytes + 1024) * BlocksPerSm <= 233472);
  static_assert(consumer_warps % 4 == 0 && TileM % 64 == 0 && TileN % 32 == 0 && TileN <= 256);
};

namespace {

/// Four k of `Count` rows of an operand, at rows first + offset + lane + lanes · i if it is
/// K-major, else at first + offset + 4 · lane + 4 · lanes · (i / 4) + i % 4. `first` is a multiple
/// of 32, `offset` of 16 and known to the compiler; a fragment of 4 lanes and MN-major has 4 rows.
template <bool MnMajor, int Lanes, int Count>
__device__ __forceinline__ void load_fragment(float (&f)[Count][4], std::uint32_t tile, int first,
                                              int offset, int lane, int k4) {
  // Written so that a few addresses serve all rows, the rest being constants.
  if constexpr (MnMajor) {
    std::uint32_t const chunk = tile + first / 32 * 4096 + k4 * 512;
    int const parity = (offset % 32 / 16 ^ k4 % 2) * 64;  // with 4 lanes
#pragma unroll
    for (int g = 0; g < Count / 4; ++g) {
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) {
        int const column =
            Lanes == 8 ? (lane ^ (4 * (k4 % 2) + kk)) * 16 : (lane ^ kk) * 16 + parity;
        float4 const v =
            load_shared(chunk + (offset + 4 * Lanes * g) / 32 * 4096 + kk * 128 + column);
        f[4 * g][kk] = v.x, f[4 * g + 1][kk] = v.y, f[4 * g + 2][kk] = v.z, f[4 * g + 3][kk] = v.w;
      }
    }
  } else {
    std::uint32_t const rows = tile + (first + lane) * 128;
    int const even = (k4 ^ lane) * 16, odd = even ^ (Lanes % 8 * 16);  // of rows 8 i and 8 i + 4
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      float4 const v = load_shared(rows + (offset + i * Lanes) * 128 + (i % 2 == 0 ? even : odd));
      f[i][0] = v.x, f[i][1] = v.y, f[i][2] = v.z, f[i][3] = v.w;
    }
  }
}

/// Row or column of a thread's element i within its warp's share.
template <bool MnMajor, int Lanes>
__device__ __forceinline__ int fragment_row(int lane, int i) {
  return MnMajor ? 4 * Lanes * (i / 4) + 4 * lane + i % 4 : lane + Lanes * i;
}

/// Finishes 64 × 4 staged sums of a warp and stores them.
template <class Config>
__device__ __noinline__ void finish_columns(Sm90Params const& p, float const* staged, int z,
                                            int row0, int column0, int j) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int e = lane; e < 256; e += 32) {
    int const m = row0 + e / 4;
    int const n = column0 + fragment_row<Config::mn_b, 4>(e % 4, j);
    if (m >= p.m || n >= p.n) continue;
    Sm90Epilogue const& to = p.epilogue;
    store_from_float(to.c, to.type_c, z * to.c_batch + m * to.c_m + n * to.c_n,
                     finish(to, staged[e], z, m, n));
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_sm)
    simt_f32_kernel(__grid_constant__ Sm90Params const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw[];
  auto* const shared = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(raw) + 1023) & ~std::uintptr_t{1023});
  auto* const staged = reinterpret_cast<float*>(shared + Config::stages * Config::stage_bytes);
  auto* const full = reinterpret_cast<std::uint64_t*>(staged + Config::staged_bytes / 4);
  std::uint64_t* const empty = full + Config::stages;
  int const warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Config::stages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], Config::consumer_warps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  allow_next_launch();
  wait_for_previous_launch();

  long long const count = p.tiles.count();
  int stage = 0;
  std::uint32_t phase = 0;
  auto const next_stage = [&] {
    if (++stage == Config::stages) {
      stage = 0;
      phase ^= 1;
    }
  };
  if (warp < 4) {
    decrease_registers<40>();
    if (warp == 0 && elect_one()) {
      for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        int z, m, n;
        p.tiles.locate(tile, z, m, n);
        m *= Config::tile_m;
        n *= Config::tile_n;
        int const za = z * p.a_batch_step, zb = z * p.b_batch_step;
        for (int block = 0; block < p.k_blocks; ++block) {
          int const k = block * Config::tile_k;
          unsigned char* const a = shared + stage * Config::stage_bytes;
          unsigned char* const b = a + Config::a_bytes;
          mbarrier_wait(&empty[stage], phase ^ 1);
          mbarrier_arrive_expect(&full[stage], Config::stage_bytes);
          if constexpr (Config::mn_a) {
            for (int c = 0; c < Config::tile_m / 32; ++c)
              tma_load(a + c * 4096, &p.a, &full[stage], Keep::normal, m + 32 * c, k, za);
          } else {
            tma_load(a, &p.a, &full[stage], Keep::normal, k, m, za);
          }
          if constexpr (Config::mn_b) {
            for (int c = 0; c < Config::tile_n / 32; ++c)
              tma_load(b + c * 4096, &p.b, &full[stage], Keep::normal, n + 32 * c, k, zb);
          } else {
            tma_load(b, &p.b, &full[stage], Keep::normal, k, n, zb);
          }
          next_stage();
        }
      }
    }
  } else {
    increase_registers<Config::blocks_per_sm == 1 ? 232 : 216>();
    int const consumer = warp - 4, lane = static_cast<int>(threadIdx.x) % 32;
    int const lane_m = lane % 8, lane_n = lane / 8;
    int const first_m = consumer % Config::warps_m * 64;
    int const first_n = consumer / Config::warps_m * 4 * Config::thread_n;
    float* const own = staged + consumer * 256;
    Sm90Epilogue const& e = p.epilogue;
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
      int z, m, n;
      p.tiles.locate(tile, z, m, n);
      m = m * Config::tile_m + first_m;
      n = n * Config::tile_n + first_n;
      float acc[8][Config::thread_n];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < Config::thread_n; ++j) acc[i][j] = 0;
      for (int block = 0; block < p.k_blocks; ++block) {
        std::uint32_t const a = shared_address(shared) + stage * Config::stage_bytes;
        std::uint32_t const b = a + Config::a_bytes;
        mbarrier_wait(&full[stage], phase);
#pragma unroll 2
        for (int k4 = 0; k4 < 8; ++k4) {
          float fa[8][4];
          load_fragment<Config::mn_a, 8>(fa, a, first_m, 0, lane_m, k4);
#pragma unroll
          for (int four = 0; four < Config::thread_n / 4; ++four) {
            float fb[4][4];
            load_fragment<Config::mn_b, 4>(fb, b, first_n, 16 * four, lane_n, k4);
#pragma unroll
            for (int kk = 0; kk < 4; ++kk)
#pragma unroll
              for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                  acc[i][4 * four + j] = fmaf(fa[i][kk], fb[j][kk], acc[i][4 * four + j]);
          }
        }
        fence_proxy_async();  // these reads come before the copy engine's next writes
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&empty[stage]);
        next_stage();
      }
      if (p.store == Sm90Store::words) {
        float* const c = static_cast<float*>(e.c) + z * e.c_batch;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          int const to_m = m + fragment_row<Config::mn_a, 8>(lane_m, i);
          float* const row = c + to_m * e.c_m;
#pragma unroll
          for (int j = 0; j < Config::thread_n; ++j) {
            int const to_n = n + fragment_row<Config::mn_b, 4>(lane_n, j);
            if (to_m < p.m && to_n < p.n) row[to_n] = e.alpha * acc[i][j];
          }
        }
      } else {
#pragma unroll
        for (int j = 0; j < Config::thread_n; ++j) {
#pragma unroll
          for (int i = 0; i < 8; ++i)
            own[fragment_row<Config::mn_a, 8>(lane_m, i) * 4 + lane_n] = acc[i][j];
          __syncwarp();
          finish_columns<Config>(p, own, z, m, n, j);
          __syncwarp();
        }
      }
    }
  }
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
