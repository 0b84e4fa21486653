// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Main loops of products whose 8-bit A has its unit stride along M: it goes to the tensor cores
/// through registers, the next stage's while this one's products run.
#pragma once

#include "mainloop_promoted.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_a_registers.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// A's registers for two of the four k-steps of a stage, for one warpgroup.
template <class Config>
struct RegisterSteps {
  std::uint32_t a[2][Config::waves][4];

  /// Loads those of steps `first` and `first` + 1 of the tile at shared address `tile`.
  __device__ __forceinline__ void load(TransposedBytes const& from, std::uint32_t tile, int first,
                                       int first_wave) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave)
        from.load(a[step][wave], tile, first + step, first_wave + wave);
    }
  }
  /// Starts their products with B's tile, whose descriptor is `b`.
  __device__ __forceinline__ void multiply(
      typename Config::Acc (&acc)[Config::waves][Config::tile_n / 2], std::uint64_t b, int first,
      int accumulate) {
    using Product = WgmmaRegisters<typename Config::A, typename Config::B, Config::tile_n>;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) pin(a[step][wave]);
    }
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave)
        Product::multiply(acc[wave], a[step][wave], advance(b, (first + step) * 32),
                          step == 0 ? accumulate : 1);
    }
    wgmma_commit();
  }
};

/// Sums the products of a tile into `acc`. `take()` waits for a stage and numbers it, `release`
/// gives it back. Returns the last stage, whose products are still under way.
template <class Config, class Take, class Release>
__device__ __forceinline__ int multiply_registers(
    typename Config::Acc (&acc)[Config::waves][Config::tile_n / 2], int k_blocks,
    std::uint32_t tiles_a, int first_wave, std::uint64_t b0, Take take, Release release) {
  TransposedBytes const from;
  RegisterSteps<Config> early, late;
  int previous = -1, held = take();
  early.load(from, tiles_a + held * Config::stage_bytes, 0, first_wave);
  for (int k = 0;; ++k) {
    std::uint32_t const at = held * Config::stage_bytes;
    early.multiply(acc, advance(b0, at), 0, k != 0);
    wgmma_wait<1>();  // the stage before this one and the registers of its late steps are free
    if (previous >= 0) release(previous);
    late.load(from, tiles_a + at, 2, first_wave);
    late.multiply(acc, advance(b0, at), 2, 1);
    if (k + 1 == k_blocks) return held;
    previous = held;
    held = take();
    wgmma_wait<1>();
    early.load(from, tiles_a + held * Config::stage_bytes, 0, first_wave);
  }
}

/// The same for float8 sums that go on in float32 after each stage, scaled; nothing is under way at
/// the end.
template <class Config, class Scales, class Take, class Release>
__device__ __forceinline__ void multiply_registers_promoted(float (&acc)[Config::tile_n / 2],
                                                            Scales scales, int k_blocks,
                                                            std::uint32_t tiles_a, int first_wave,
                                                            std::uint64_t b0, Take take,
                                                            Release release) {
  static_assert(Config::waves == 1);
  TransposedBytes const from;
  RegisterSteps<Config> early, late;
  float part[1][Config::tile_n / 2];
#pragma unroll
  for (int r = 0; r < Config::tile_n / 2; ++r) acc[r] = 0;
  int held = take();
  early.load(from, tiles_a + held * Config::stage_bytes, 0, first_wave);
  for (int k = 0;; ++k) {
    std::uint32_t const at = held * Config::stage_bytes;
    int const done = held;
    bool const last = k + 1 == k_blocks;
    pin(part[0]);
    early.multiply(part, advance(b0, at), 0, 0);
    late.load(from, tiles_a + at, 2, first_wave);
    late.multiply(part, advance(b0, at), 2, 1);
    if (!last) {
      held = take();
      wgmma_wait<1>();
      early.load(from, tiles_a + held * Config::stage_bytes, 0, first_wave);
    }
    float4 const factors = scales.read(done);
    wgmma_wait<0>();
    scales.add(acc, part[0], factors, done);
    release(done);
    if (last) return;
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
