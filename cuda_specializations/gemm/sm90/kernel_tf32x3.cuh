// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// float32 matrix products for sm_90a, each as three products of tf32 numbers by wgmma.
///
/// Every factor is big + small, tf32 numbers of 11 significant bits; small · small is left out. A
/// goes to the tensor cores through registers, where two warpgroups part it. B has to lie in shared
/// memory, along K: a third warpgroup writes the small parts beside it. What is there already is
/// the big part, since the tensor cores leave out the lower 13 bits. Operands whose unit stride is
/// not along K are transposed on the way, in place.
///
/// The tensor cores truncate what they add, so they sum 32 k and no more: 12 products, the small
/// ones first, then a float32 addition in each of 64 registers, while the other warpgroup's
/// products run.
///
/// From <H200 700 W, CUDA 13.0, 2048³, 4096³>: 113 ... 127 TFLOP/s; making the warpgroups take
/// turns changes nothing.
///
/// Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
/// surpassing the FP32 theoretical peak performance", IJHPCA 36(4), 2022; PTX ISA 9.0,
/// "wgmma.mma_async" (fragments of A).
#pragma once

#include <attikos/ptx/ldmatrix.hpp>

#include "common/limits.cuh"
#include "common/ring.cuh"
#include "common/uniform.cuh"
#include "epilogue_store.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/wgmma_rs.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct Tf32x3Params : Sm90Params {
  bool transposes_a, transposes_b;  ///< whose unit stride is not along K
};

/// Tiles of 128 × 128; a warpgroup for the copy engine, one that parts B, two that multiply.
struct Tf32x3Config {
  using A = float;
  using B = float;
  using Acc = float;
  static constexpr bool integer = false, registers_a = false, promoted = true, gated = false;
  static constexpr bool factors_alone = false, writes_bytes = false, reads_ahead = false;
  static constexpr int waves = 1, consumers = 2;
  static constexpr int tile_m = 128, tile_n = 128, out_n = tile_n, tile_k = 32, stages = 4;
  static constexpr int threads = 128 * (2 + consumers);
  static constexpr int tile_bytes = 128 * 128;        ///< of either operand
  static constexpr int stage_bytes = 3 * tile_bytes;  ///< A, B, the small part of B
  static constexpr int panel_bytes = 64 * 128;        ///< 64 rows × 128 bytes of C
  static constexpr int group_panels = 2, panels = group_panels * consumers;
  static constexpr int panels_together = 1;  ///< of 16-bit elements
  static constexpr int shared_bytes =
      1024 + stages * stage_bytes + panels * panel_bytes + 3 * 8 * stages;
  static_assert(shared_bytes <= sm90_shared_bytes);
};

namespace {

/// x to 11 significant bits, halves away from zero. A NaN whose bits run over here is still one in
/// what is left of x without them.
__device__ __forceinline__ std::uint32_t rounded_tf32(std::uint32_t x) {
  return (x + 0x1000u) & 0xFFFFE000u;
}
/// What is left of x without `big`, exactly.
__device__ __forceinline__ std::uint32_t left_of(std::uint32_t x, std::uint32_t big) {
  return __float_as_uint(__uint_as_float(x) - __uint_as_float(big));
}
/// What the tensor cores leave out of x. They leave out up to two bits of that, too: rounding there
/// would turn a NaN into a number.
__device__ __forceinline__ std::uint32_t left_out(std::uint32_t x) {
  return left_of(x, x & 0xFFFFE000u);
}

/// 32 × 32 elements of B, K-major, for one warp: writes their small parts `apart` bytes on.
__device__ __forceinline__ void part_block(std::uint32_t block, std::uint32_t apart, int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    std::uint32_t const at = block + (32 * i + lane) * 16;
    std::uint32_t w[4];
    load_shared_16(w, at);
#pragma unroll
    for (std::uint32_t& x : w) x = left_out(x);
    store_shared_16(at + apart, w);
  }
}

/// Transposes 32 × 32 elements in place, both ways in the copy engine's swizzle of 128-byte rows;
/// one warp. Of B writes their small parts `apart` bytes on.
template <bool OfB>
__device__ __forceinline__ void transpose_block(std::uint32_t block, std::uint32_t apart,
                                                int lane) {
  std::uint32_t line[32];
#pragma unroll
  for (int k = 0; k < 32; ++k)
    line[k] = load_shared_4(block + k * 128 + (lane / 4 ^ k % 8) * 16 + lane % 4 * 4);
  __syncwarp();
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    std::uint32_t const at = block + lane * 128 + (c ^ lane % 8) * 16;
    std::uint32_t w[4] = {line[4 * c], line[4 * c + 1], line[4 * c + 2], line[4 * c + 3]};
    store_shared_16(at, w);
    if constexpr (OfB) {
#pragma unroll
      for (std::uint32_t& x : w) x = left_out(x);
      store_shared_16(at + apart, w);
    }
  }
}

/// Loads a warpgroup's A of 32 k, 16 rows for each warp: words of step s are those of 8 k.
__device__ __forceinline__ void load_lines(std::uint32_t (&a)[4][4], std::uint32_t lane_address) {
#pragma unroll
  for (int s = 0; s < 4; ++s) load_matrices(a[s], lane_address ^ (s * 32));
}

/// Starts the products of a stage into `part`.
__device__ __forceinline__ void start_products(float (&part)[64], std::uint32_t (&big)[4][4],
                                               std::uint32_t (&small)[4][4], std::uint64_t b,
                                               std::uint64_t small_b) {
  pin(part);
#pragma unroll
  for (int s = 0; s < 4; ++s) pin(big[s]), pin(small[s]);
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; ++s) multiply_tf32(part, small[s], advance(b, 32 * s), s != 0);
#pragma unroll
  for (int s = 0; s < 4; ++s) multiply_tf32(part, big[s], advance(small_b, 32 * s), 1);
#pragma unroll
  for (int s = 0; s < 4; ++s) multiply_tf32(part, big[s], advance(b, 32 * s), 1);
  wgmma_commit();
}

__global__ void __launch_bounds__(Tf32x3Config::threads, 1)
    sm90_tf32x3_kernel(__grid_constant__ Tf32x3Params const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Config = Tf32x3Config;
  extern __shared__ unsigned char raw[];
  auto* const shared = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(raw) + 1023) & ~std::uintptr_t{1023});
  unsigned char* const panels = shared + Config::stages * Config::stage_bytes;
  auto* const full =
      reinterpret_cast<std::uint64_t*>(panels + Config::panels * Config::panel_bytes);
  std::uint64_t* const ready = full + Config::stages;  // parted and transposed
  Ring<Config::stages> const ring{full, ready + Config::stages};
  int const group = warpgroup_of_block();
  if (threadIdx.x == 0) {
    ring.init(1, 4 * Config::consumers);
    for (int s = 0; s < Config::stages; ++s) mbarrier_init(&ready[s], 4);
    fence_mbarrier_init();
  }
  __syncthreads();
  allow_next_launch();
  wait_for_previous_launch();

  int const first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  int const count = p.tiles.count();
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const warp = uniform(static_cast<int>(threadIdx.x) / 32 % 4);
  RingPosition<Config::stages> at;

  if (group == 0) {
    decrease_registers<24>();
    if (warp == 0 && elect_one()) {
      prefetch_tensor_map(&p.a);
      prefetch_tensor_map(&p.b);
      for (int tile = first; tile < count; tile += step) {
        int z, m, n;
        p.tiles.locate(tile, z, m, n);
        m *= Config::tile_m, n *= Config::tile_n;
        int const za = z * p.a_batch_step, zb = z * p.b_batch_step;
        for (int block = 0; block < p.k_blocks; ++block) {
          int const k = block * Config::tile_k;
          unsigned char* const a = shared + at.stage * Config::stage_bytes;
          unsigned char* const b = a + Config::tile_bytes;
          std::uint64_t* const full = &ring.full[at.stage];
          ring.acquire(at);
          mbarrier_arrive_expect(full, 2 * Config::tile_bytes);
          if (!p.transposes_a) {
            tma_load(a, &p.a, full, Keep::normal, k, m, za);
          } else {
            for (int c = 0; c < 4; ++c)
              tma_load(a + c * 4096, &p.a, full, Keep::normal, m + 32 * c, k, za);
          }
          if (!p.transposes_b) {
            tma_load(b, &p.b, full, Keep::normal, k, n, zb);
          } else {
            for (int c = 0; c < 4; ++c)
              tma_load(b + c * 4096, &p.b, full, Keep::normal, n + 32 * c, k, zb);
          }
          at.next();
        }
      }
    }
  } else if (group == 1) {
    decrease_registers<56>();
    std::uint32_t const own = shared_address(shared) + warp * 4096;
    for (int tile = first; tile < count; tile += step) {
      for (int block = 0; block < p.k_blocks; ++block) {
        ring.wait(at);
        std::uint32_t const a = own + at.stage * Config::stage_bytes, b = a + Config::tile_bytes;
        if (p.transposes_b)
          transpose_block<true>(b, Config::tile_bytes, lane);
        else
          part_block(b, Config::tile_bytes, lane);
        if (p.transposes_a) transpose_block<false>(a, 0, lane);
        fence_proxy_async();  // wgmma reads B
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&ready[at.stage]);
        at.next();
      }
    }
  } else {
    increase_registers<216>();
    int const consumer = group - 2;
    std::uint64_t* const there = p.transposes_a ? ready : full;  // A
    std::uint32_t const lines = shared_address(shared) + consumer * 8192 +
                                (16 * warp + lane % 16) * 128 + (lane / 16 ^ lane % 8) * 16;
    std::uint64_t const b0 = operand_descriptor(shared + Config::tile_bytes, 0);
    Sm90Storer<Config> storer(p, panels + consumer * Config::group_panels * Config::panel_bytes,
                              consumer);
    for (int tile = first; tile < count; tile += step) {
      int z, m, n;
      p.tiles.locate(tile, z, m, n);
      m = m * Config::tile_m + consumer * 64, n *= Config::tile_n;
      float acc[1][64], part[64];
#pragma unroll
      for (float& x : acc[0]) x = 0;
      std::uint32_t next[4][4];
      mbarrier_wait(&there[at.stage], at.phase);
      load_lines(next, lines + at.stage * Config::stage_bytes);
      for (int block = 0;; ++block) {
        std::uint32_t big[4][4], small[4][4];
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            big[s][i] = rounded_tf32(next[s][i]);
            small[s][i] = left_of(next[s][i], big[s][i]);
          }
        int const held = at.stage;
        bool const last = block + 1 == p.k_blocks;
        mbarrier_wait(&ready[held], at.phase);
        std::uint64_t const b = advance(b0, held * Config::stage_bytes);
        start_products(part, big, small, b, advance(b, Config::tile_bytes));
        at.next();
        wgmma_wait<0>();
        if (lane == 0) ring.release(held);
        if (!last) {
          mbarrier_wait(&there[at.stage], at.phase);
          load_lines(next, lines + at.stage * Config::stage_bytes);
        }
        pin(part);
#pragma unroll
        for (int r = 0; r < 64; ++r) acc[0][r] += part[r];
        if (last) break;
      }
      storer.store(acc, z, m, n);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait_read<0>();
  }
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
