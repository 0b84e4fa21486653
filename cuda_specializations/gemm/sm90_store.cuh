// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the accumulators of a warpgroup to C, through panels of shared memory.
#pragma once

#include "../ptx/tma.cuh"
#include "sm90_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

__device__ __forceinline__ std::uint32_t pack(DType type, float x, float y) {
  if (type == DType::float16) {
    __half2 const h = __floats2half2_rn(x, y);
    return *reinterpret_cast<std::uint32_t const*>(&h);
  }
  __nv_bfloat162 const h = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<std::uint32_t const*>(&h);
}

/// Puts columns 32 s ... 32 s + 31 of the accumulators into a panel of 64 rows of 128 bytes,
/// swizzled as the copy engine does. Words are floats times `alpha`, or integers as they are.
template <class Config>
__device__ __forceinline__ void stage_words(typename Config::Acc const* acc, unsigned char* panel,
                                            float alpha) {
  int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  int const row = 16 * (thread / 32) + lane / 4;
#pragma unroll
  for (int block = 0; block < 4; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int const r = 4 * block + 2 * i;
      int const line = row + 8 * i, chunk = 2 * block + (lane % 4) / 2;
      unsigned char* const at = panel + line * 128 + ((chunk ^ (line % 8)) * 16) + (lane % 2) * 8;
      if constexpr (Config::integer)
        *reinterpret_cast<int2*>(at) = make_int2(acc[r], acc[r + 1]);
      else
        *reinterpret_cast<float2*>(at) = make_float2(alpha * acc[r], alpha * acc[r + 1]);
    }
  }
}

/// The same for 64 columns of 16-bit elements.
template <class Config>
__device__ __forceinline__ void stage_halves(float const* acc, unsigned char* panel, float alpha,
                                             DType type) {
  int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  int const line = 16 * (thread / 32) + (lane / 8 & 1) * 8 + lane % 8;
  std::uint32_t const base = shared_address(panel) + line * 128;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    float const* const v = acc + 8 * pair;
    int const chunk = 2 * pair + lane / 16;
    store_matrices(base + ((chunk ^ (line % 8)) * 16), pack(type, alpha * v[0], alpha * v[1]),
                   pack(type, alpha * v[2], alpha * v[3]), pack(type, alpha * v[4], alpha * v[5]),
                   pack(type, alpha * v[6], alpha * v[7]));
  }
}

/// Finishes a staged panel of 64 × 32 sums and stores it element by element, 128 threads along C's
/// unit stride.
template <class Config>
__device__ __noinline__ void finish_panel(Sm90Params const& p, unsigned char const* panel, int z,
                                          int row0, int column0) {
  Sm90Epilogue const& e = p.epilogue;
  bool const along_m = e.along_m;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * 32; i += 128) {
    int const line = along_m ? i % 64 : i / 32, column = along_m ? i / 64 : i % 32;
    int const m = row0 + line, n = column0 + column;
    if (m >= p.m || n >= p.n) continue;
    unsigned char const* const at =
        panel + line * 128 + ((column / 4 ^ (line % 8)) * 16) + column % 4 * 4;
    std::int64_t const to = z * e.c_batch + m * e.c_m + n * e.c_n;
    if constexpr (Config::integer)
      store_integer(e, *reinterpret_cast<int const*>(at), z, m, n, to);
    else
      store_from_float(e.c, e.type_c, to, finish(e, *reinterpret_cast<float const*>(at), z, m, n));
  }
}

/// Any activation, as one piece of code: inlined for every sum it would be a hundred.
__device__ __noinline__ float activate_called(Activation activation, float x) {
  return apply_activation(activation, x);
}

/// act of the first half of a wave's sums times the second half, in place of the first.
template <class Config, int Size>
__device__ __forceinline__ void gate(Activation activation, float (&acc)[Size]) {
  constexpr int half = Size / 2;
  if (activation == Activation::silu) {
#pragma unroll
    for (int r = 0; r < half; ++r)
      acc[r] = __fdividef(acc[r], 1.0f + __expf(-acc[r])) * acc[half + r];
  } else {
#pragma unroll
    for (int r = 0; r < half; ++r) acc[r] = activate_called(activation, acc[r]) * acc[half + r];
  }
}

/// Stores the sums of 64 rows. What only scales goes to C through the copy engine, panel by panel;
/// the rest, and a C that the copy engine cannot reach, is finished from shared memory.
template <class Config>
__device__ __forceinline__ void store_wave(Sm90Params const& p,
                                           typename Config::Acc (&acc)[Config::tile_n / 2],
                                           unsigned char* panels, int& buffer, int group, int z,
                                           int row0, int column0) {
  Sm90Epilogue const& e = p.epilogue;
  if constexpr (Config::gated) gate<Config>(p.gate, acc);
  bool const first_thread = threadIdx.x % 128 == 0;
  int const barrier = 1 + group;
  auto const begin_panel = [&] {
    unsigned char* const panel = panels + buffer * Config::panel_bytes;
    buffer ^= 1;
    if (first_thread) tma_store_wait_read<1>();  // the panel stored before the last one
    named_barrier_sync(barrier, 128);
    return panel;
  };
  auto const end_panel = [&](unsigned char* panel, int column) {
    fence_proxy_async();
    named_barrier_sync(barrier, 128);
    if (first_thread) {
      tma_store(&p.c, panel, column, row0, z);
      tma_store_commit();
    }
  };
  if (p.store == Sm90Store::halves) {
    if constexpr (!Config::integer) {
#pragma unroll
      for (int s = 0; s < Config::out_n / 64; ++s) {
        if (column0 + 64 * s < p.n) {
          unsigned char* const panel = begin_panel();
          stage_halves<Config>(acc + 32 * s, panel, e.alpha, e.type_c);
          end_panel(panel, column0 + 64 * s);
        }
      }
    }
  } else {
#pragma unroll
    for (int s = 0; s < Config::out_n / 32; ++s) {
      if (column0 + 32 * s < p.n) {
        unsigned char* const panel = begin_panel();
        bool const whole = p.store == Sm90Store::words;
        stage_words<Config>(acc + 16 * s, panel, whole ? e.alpha : 1.0f);
        if (whole) {
          end_panel(panel, column0 + 32 * s);
        } else {
          named_barrier_sync(barrier, 128);
          finish_panel<Config>(p, panel, z, row0, column0 + 32 * s);
        }
      }
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
