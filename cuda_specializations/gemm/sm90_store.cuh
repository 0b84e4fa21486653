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

/// Puts 32 columns of the accumulators, or fewer in multiples of 16, into a panel of 64 rows of 128
/// bytes, swizzled as the copy engine does. Words are floats times `alpha`, or integers as they
/// are.
template <class Config, int Columns>
__device__ __forceinline__ void stage_words(typename Config::Acc const* acc, unsigned char* panel,
                                            float alpha) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int block = 0; block < Columns / 8; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int const r = 4 * block + 2 * i;
      int const line = line_of_sum<Config>(i), chunk = 2 * block + (lane % 4) / 2;
      unsigned char* const at = panel + line * 128 + ((chunk ^ (line % 8)) * 16) + (lane % 2) * 8;
      if constexpr (Config::integer)
        *reinterpret_cast<int2*>(at) = make_int2(acc[r], acc[r + 1]);
      else
        *reinterpret_cast<float2*>(at) = make_float2(alpha * acc[r], alpha * acc[r + 1]);
    }
  }
}

/// The same for 64 columns of 16-bit elements, or fewer.
template <class Config, int Columns>
__device__ __forceinline__ void stage_halves(float const* acc, unsigned char* panel, float alpha,
                                             DType type) {
  int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  int const i = lane / 8 & 1;
  int const line = 16 * (thread / 32) + (Config::registers_a ? lane % 8 * 2 + i : i * 8 + lane % 8);
  std::uint32_t const base = shared_address(panel) + line * 128;
#pragma unroll
  for (int pair = 0; pair < Columns / 16; ++pair) {
    float const* const v = acc + 8 * pair;
    int const chunk = 2 * pair + lane / 16;
    store_matrices(base + ((chunk ^ (line % 8)) * 16), pack(type, alpha * v[0], alpha * v[1]),
                   pack(type, alpha * v[2], alpha * v[3]), pack(type, alpha * v[4], alpha * v[5]),
                   pack(type, alpha * v[6], alpha * v[7]));
  }
}

/// Where a thread's first sum of column 2 q + j goes in a panel whose lines are columns of C:
/// `position` along M, in bytes. Eight columns on lies 1024 bytes further.
__device__ __forceinline__ unsigned char* along_m_address(unsigned char* panel, int j,
                                                          int position) {
  int const line = static_cast<int>(threadIdx.x) % 4 * 2 + j;
  return panel + line * 128 + ((position / 16 ^ line) * 16) + position % 16;
}

/// As stage_words, for a C whose unit stride is along M: 32 columns, of which one half of the panel
/// holds lines 0 ... 31, the other 32 ... 63. A thread's sums of rows g and g + 8 are neighbours.
template <class Config>
__device__ __forceinline__ void stage_words_along_m(typename Config::Acc const* acc,
                                                    unsigned char* panel, float alpha) {
  int const line = line_of_sum<Config>(0);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    unsigned char* const at = along_m_address(panel + line / 32 * 4096, j, line % 32 * 4);
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      int const r = 4 * block + j;
      if constexpr (Config::integer)
        *reinterpret_cast<int2*>(at + block * 1024) = make_int2(acc[r], acc[r + 2]);
      else
        *reinterpret_cast<float2*>(at + block * 1024) =
            make_float2(alpha * acc[r], alpha * acc[r + 2]);
    }
  }
}

/// As stage_halves, for a C whose unit stride is along M: 64 columns of 64 lines.
template <class Config>
__device__ __forceinline__ void stage_halves_along_m(float const* acc, unsigned char* panel,
                                                     float alpha, DType type) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    unsigned char* const at = along_m_address(panel, j, line_of_sum<Config>(0) * 2);
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      int const r = 4 * block + j;
      *reinterpret_cast<std::uint32_t*>(at + block * 1024) =
          pack(type, alpha * acc[r], alpha * acc[r + 2]);
    }
  }
}

/// Finishes a staged panel of 64 × 32 sums and stores it element by element, 128 threads along C's
/// unit stride.
template <class Acc>
__device__ __noinline__ void finish_panel(Sm90Params const& p, unsigned char const* panel, int z,
                                          int row0, int column0, int columns) {
  Sm90Epilogue const& e = p.epilogue;
  bool const along_m = e.along_m;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * columns; i += 128) {
    int const line = along_m ? i % 64 : i / columns, column = along_m ? i / 64 : i % columns;
    int const m = row0 + line, n = column0 + column;
    if (m >= p.m || n >= p.n) continue;
    unsigned char const* const at =
        panel + line * 128 + ((column / 4 ^ (line % 8)) * 16) + column % 4 * 4;
    std::int64_t const to = z * e.c_batch + m * e.c_m + n * e.c_n;
    if constexpr (std::is_same_v<Acc, int>)
      store_integer(e, *reinterpret_cast<int const*>(at), z, m, n, to);
    else
      store_from_float(e.c, e.type_c, to, finish(e, *reinterpret_cast<float const*>(at), z, m, n));
  }
}

/// Finishes a staged panel of sums and stores it four at a time along C's unit stride: M where the
/// panel was staged along M, else N. `chunks`: groups of four in each line.
template <class Acc, bool AlongM>
__device__ __noinline__ void finish_vectors(Sm90Params const& p, unsigned char const* panel, int z,
                                            int row0, int column0, int chunks) {
  Sm90Epilogue const& e = p.epilogue;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * chunks; i += 128) {
    int const line = i / chunks, chunk = i % chunks;
    int const m = row0 + (AlongM ? line / 32 * 32 + chunk * 4 : line);
    int const n = column0 + (AlongM ? line % 32 : chunk * 4);
    if (m >= p.m || n >= p.n) continue;
    unsigned char const* const at = panel + line * 128 + ((chunk ^ (line % 8)) * 16);
    finish_and_store<Acc>(e, *reinterpret_cast<FourOf<Acc> const*>(at), z, m, n,
                          AlongM ? p.m - m : p.n - n, AlongM);
  }
}

/// Stores the first `chunks` groups of 16 bytes of each line of a staged panel: the copy engine's
/// boxes are a whole panel wide and would reach into the next tile.
__device__ __noinline__ void store_chunks(Sm90Params const& p, unsigned char const* panel, int z,
                                          int row0, int column0, int chunks) {
  Sm90Epilogue const& e = p.epilogue;
  int const bytes = p.store == Sm90Store::halves ? 2 : 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * chunks; i += 128) {
    int const line = i / chunks, chunk = i % chunks;
    int const m = row0 + line, n = column0 + chunk * (16 / bytes);
    if (m >= p.m || n >= p.n) continue;
    *reinterpret_cast<uint4*>(static_cast<unsigned char*>(e.c) +
                              (z * e.c_batch + m * e.c_m + n) * bytes) =
        *reinterpret_cast<uint4 const*>(panel + line * 128 + ((chunk ^ (line % 8)) * 16));
  }
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
  bool const along_m = Config::registers_a && e.along_m;
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
      if (!along_m) {
        tma_store(&p.c, panel, column, row0, z);
      } else {
        tma_store(&p.c, panel, row0, column, z);
        if (p.store == Sm90Store::words && row0 + 32 < p.m)
          tma_store(&p.c, panel + 4096, row0 + 32, column, z);
      }
      tma_store_commit();
    }
  };
  if (p.store == Sm90Store::halves) {
    if constexpr (!Config::integer) {
#pragma unroll
      for (int s = 0; s < Config::out_n / 64; ++s) {
        if (column0 + 64 * s < p.n) {
          unsigned char* const panel = begin_panel();
          if (along_m)
            stage_halves_along_m<Config>(acc + 32 * s, panel, e.alpha, e.type_c);
          else
            stage_halves<Config, 64>(acc + 32 * s, panel, e.alpha, e.type_c);
          end_panel(panel, column0 + 64 * s);
        }
      }
      constexpr int rest = Config::out_n % 64, at = Config::out_n - rest;
      if constexpr (rest != 0) {
        if (column0 + at < p.n) {
          unsigned char* const panel = begin_panel();
          stage_halves<Config, rest>(acc + at / 2, panel, e.alpha, e.type_c);
          named_barrier_sync(barrier, 128);
          store_chunks(p, panel, z, row0, column0 + at, rest / 8);
        }
      }
    }
  } else {
    bool const whole = p.store == Sm90Store::words, vectors = p.store == Sm90Store::vectors;
    float const alpha = whole ? e.alpha : 1.0f;
#pragma unroll
    for (int s = 0; s < Config::out_n / 32; ++s) {
      int const column = column0 + 32 * s;
      if (column < p.n) {
        unsigned char* const panel = begin_panel();
        if ((whole || vectors) && along_m)
          stage_words_along_m<Config>(acc + 16 * s, panel, alpha);
        else
          stage_words<Config, 32>(acc + 16 * s, panel, alpha);
        if (whole) {
          end_panel(panel, column);
        } else {
          named_barrier_sync(barrier, 128);
          if (!vectors) {
            finish_panel<typename Config::Acc>(p, panel, z, row0, column, 32);
          } else if (along_m) {
            if constexpr (Config::registers_a)
              finish_vectors<typename Config::Acc, true>(p, panel, z, row0, column, 8);
          } else {
            finish_vectors<typename Config::Acc, false>(p, panel, z, row0, column, 8);
          }
        }
      }
    }
    constexpr int rest = Config::out_n % 32, at = Config::out_n - rest;
    if constexpr (rest != 0) {
      if (column0 + at < p.n) {
        unsigned char* const panel = begin_panel();
        stage_words<Config, rest>(acc + at / 2, panel, whole ? e.alpha : 1.0f);
        named_barrier_sync(barrier, 128);
        if (whole)
          store_chunks(p, panel, z, row0, column0 + at, rest / 4);
        else if (vectors)
          finish_vectors<typename Config::Acc, false>(p, panel, z, row0, column0 + at, rest / 4);
        else
          finish_panel<typename Config::Acc>(p, panel, z, row0, column0 + at, rest);
      }
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
