// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix products by mma.sync, fed by cp.async: one kernel for all element types, layouts and
/// strides.
///
/// A block computes one tile of C, which scheduler.cuh finds. Copies of the stages to come are
/// under way while it multiplies, and the fragments of the next 32 or 64 bytes of K are loaded
/// while the last are multiplied: those of A where one has been used, those of B to other
/// registers. Strides and what can be copied at a time are run-time values; the layouts of A and B
/// are not, since loads of both kinds in one loop take too many registers.
///
/// Source: the multistage pipeline is that of CUTLASS for sm_80 as published; PTX ISA 9.0, "mma".
#pragma once

#include "common/ring.cuh"
#include "epilogue.cuh"
#include "scheduler.cuh"
#include "split_k.cuh"
#include "zero_points.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Fragments of an operand for `steps` times 32 bytes of K.
template <class Config, int Count>
using Fragments = Fragment<Config::size>[Count][Config::steps];

template <class Config>
__device__ __forceinline__ void load_a(Fragments<Config, Config::fragments_m>& a,
                                       std::uint32_t stage, std::uint32_t lane, int k_step, int i) {
#pragma unroll
  for (int s = 0; s < Config::steps; ++s)
    load_fragment<Config::size, Config::tile_m, Config::mn_a, false>(a[i][s], stage, lane,
                                                                     k_step * Config::steps + s, i);
}

template <class Config>
__device__ __forceinline__ void load_b(Fragments<Config, Config::fragments_n>& b,
                                       std::uint32_t stage, std::uint32_t lane, int k_step) {
#pragma unroll
  for (int j = 0; j < Config::fragments_n; ++j)
#pragma unroll
    for (int s = 0; s < Config::steps; ++s)
      load_fragment<Config::size, Config::tile_n, Config::mn_b, true>(
          b[j][s], stage + Config::a_bytes, lane, k_step * Config::steps + s, j);
}

template <class Config>
using Sums = typename Config::Acc[Config::fragments_m][2 * Config::fragments_n][4];

/// Calls `multiply` with every pair of fragments, and `refill(i)` when fragment i of A has been
/// used.
template <class Config, class Multiply, class Refill>
__device__ __forceinline__ void multiply_all(Sums<Config>& d,
                                             Fragments<Config, Config::fragments_m> const& fa,
                                             Fragments<Config, Config::fragments_n> const& fb,
                                             bool a_e5m2, bool b_e5m2, Multiply multiply,
                                             Refill refill) {
  using Factor = typename Config::Type::Factor;
  Factor b[Config::fragments_n][Config::steps];
#pragma unroll
  for (int j = 0; j < Config::fragments_n; ++j)
#pragma unroll
    for (int s = 0; s < Config::steps; ++s) b[j][s] = Config::Type::prepare(fb[j][s], b_e5m2);
#pragma unroll
  for (int i = 0; i < Config::fragments_m; ++i) {
    Factor a[Config::steps];
#pragma unroll
    for (int s = 0; s < Config::steps; ++s) a[s] = Config::Type::prepare(fa[i][s], a_e5m2);
#pragma unroll
    for (int instruction = 0; instruction < Config::Type::instructions; ++instruction)
#pragma unroll
      for (int j = 0; j < 2 * Config::fragments_n; ++j)
        multiply(d[i][j], a, b[j / 2], j % 2, instruction);
    refill(i);
  }
}

template <class Config, class Refill>
__device__ __forceinline__ void multiply_step(Sums<Config>& d,
                                              Fragments<Config, Config::fragments_m> const& a,
                                              Fragments<Config, Config::fragments_n> const& b,
                                              Sm80Params const& p, Refill refill) {
  using Type = typename Config::Type;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ != 900
  if constexpr (std::is_same_v<Type, Float8Element>) {
    auto const as = [&]<bool A5, bool B5>(std::bool_constant<A5>, std::bool_constant<B5>) {
      multiply_all<Config>(
          d, a, b, A5, B5,
          [](auto& to, auto const& x, auto const& y, int half, int) {
            Type::template multiply_as<A5, B5>(to, x, y, half);
          },
          [](int) {});
    };
    std::true_type const e5{};
    std::false_type const e4{};
    if (p.a.e5m2) {
      p.b.e5m2 ? as(e5, e5) : as(e5, e4);
    } else {
      p.b.e5m2 ? as(e4, e5) : as(e4, e4);
    }
    // Loads in each of the branches would end in moves.
#pragma unroll
    for (int i = 0; i < Config::fragments_m; ++i) refill(i);
    return;
  } else
#endif
  {
    multiply_all<Config>(
        d, a, b, p.a.e5m2, p.b.e5m2,
        [](auto& to, auto const& x, auto const& y, int half, int instruction) {
          Type::multiply(to, x, y, half, instruction);
        },
        refill);
  }
}

template <class Config>
__device__ __forceinline__ void clear(Sums<Config>& d) {
#pragma unroll
  for (auto& row : d)
#pragma unroll
    for (auto& four : row)
#pragma unroll
      for (auto& x : four) x = 0;
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    sm80_mma_kernel(__grid_constant__ Sm80Params const p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr bool promoted = Config::Type::promoted;
  constexpr int size = Config::size;
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const warp_m = warp % Config::warps_m * Config::warp_m;
  int const warp_n = warp / Config::warps_m * Config::warp_n;
  Sm80Share const share = share_of<Config>(p, blockIdx.x);
  Sm80Place at = place_of<Config>(p, share.tile);
  if (at.m0 >= at.end) return;
  int const extent_k = cut_to_share<Config>(p, share, at);
  std::uint32_t const base = shared_address(shared);
  std::uint32_t const lane_a = lane_offset<size, Config::tile_m, Config::mn_a, false>(warp_m);
  std::uint32_t const lane_b = lane_offset<size, Config::tile_n, Config::mn_b, true>(warp_n);
  // One stage of zeros stands for a K of 0.
  int const k_tiles = max(1, (extent_k + Config::tile_k - 1) / Config::tile_k);

  auto const copy_a = [&](int stage, int tile) {
    Share<size, Config::tile_m, Config::threads, Config::mn_a>::copy(
        base + stage * Config::stage_bytes, at.a, p.a.stride, at.unit_a, at.m0, at.end,
        tile * Config::tile_k, extent_k);
  };
  auto const copy_b = [&](int stage, int tile) {
    Share<size, Config::tile_n, Config::threads, Config::mn_b>::copy(
        base + stage * Config::stage_bytes + Config::a_bytes, at.b, p.b.stride, at.unit_b, at.n0,
        p.n, tile * Config::tile_k, extent_k);
  };

  // A warp whose rows are past the last only copies its share for the others, and leaves the matrix
  // unit to other blocks. All meet at the same barriers.
  bool const multiplies = at.m0 + warp_m < at.end;
  int read = 0, write = 0;
  auto const fill_a = [&](int tile) {
    if (tile < k_tiles) copy_a(write, tile);
  };
  auto const fill_b = [&](int tile) {
    if (tile < k_tiles) copy_b(write, tile);
    copy_async_commit();
    write = next_in_ring<Config::stages>(write);
  };
#pragma unroll 1
  for (int tile = 0; tile < Config::stages - 1; ++tile) {
    fill_a(tile);
    fill_b(tile);
  }

  Sums<Config> acc;
  clear<Config>(acc);
  [[maybe_unused]] Sums<Config> part;
  if constexpr (promoted) clear<Config>(part);
  [[maybe_unused]] std::conditional_t<Config::zero_points, Sm80RowColumnSums<Config>,
                                      NoRowColumnSums>
      row_column_sums;
  // Each step multiplies what the one before has loaded, the first one nothing.
  Fragments<Config, Config::fragments_m> fa{};
  Fragments<Config, Config::fragments_n> fb[2]{};
  auto const multiply = [&](auto const& b, auto refill) {
    if constexpr (promoted)
      multiply_step<Config>(part, fa, b, p, refill);
    else
      multiply_step<Config>(acc, fa, b, p, refill);
  };
  [[maybe_unused]] auto const promote = [&] {
#pragma unroll
    for (int i = 0; i < Config::fragments_m; ++i)
#pragma unroll
      for (int j = 0; j < 2 * Config::fragments_n; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          acc[i][j][r] += part[i][j][r];
          part[i][j][r] = 0;
        }
  };
#pragma unroll 1
  for (int tile = 0; tile < k_tiles; ++tile) {
    copy_async_wait<Config::stages - 2>();
    __syncthreads();
    // The stage that is written now was read for the last time before the barrier.
    int const next = tile + Config::stages - 1;
    if (!multiplies) {
      fill_a(next);
      fill_b(next);
      continue;
    }
    std::uint32_t const stage = base + read * Config::stage_bytes;
    read = next_in_ring<Config::stages>(read);
#pragma unroll
    for (int k = 0; k < Config::k_steps; ++k) {
      load_b<Config>(fb[k % 2], stage, lane_b, k);
      if (k == 1) fill_a(next);
      if (k == (Config::k_steps > 2 ? 2 : 1)) fill_b(next);
      auto const& b = fb[(k + 1) % 2];
      if constexpr (Config::zero_points) row_column_sums.add_columns(b);
      multiply(b, [&](int i) {
        if constexpr (Config::zero_points) row_column_sums.add_rows(i, fa[i][0]);
        load_a<Config>(fa, stage, lane_a, k, i);
      });
      if constexpr (promoted) {
        if (k == 0 && !p.one_part) promote();
      }
    }
  }
  copy_async_wait<0>();
  __syncthreads();
  if (!multiplies) return;
  auto const& last = fb[1];
  if constexpr (Config::zero_points) row_column_sums.add_columns(last);
  multiply(last, [&](int i) {
    if constexpr (Config::zero_points) row_column_sums.add_rows(i, fa[i][0]);
  });
  if constexpr (promoted) promote();
  if (!sum_parts<Config>(acc, shared, share)) return;
  if constexpr (Config::zero_points) row_column_sums.apply(p, acc, at.m0 + warp_m, at.n0 + warp_n);
  Sm80Params own;
  store_warp<Config>(placed(p, at, own), acc, shared, at.z, at.m0 + warp_m, at.n0 + warp_n);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
