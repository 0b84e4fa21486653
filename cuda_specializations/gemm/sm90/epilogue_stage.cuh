// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the accumulators of a warpgroup to panels of shared memory that lie as the copy engine
/// stores them.
#pragma once

#include "epilogue_pairs.cuh"
#include "ptx/thread_index.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Puts 32 columns of 32-bit values, or fewer in multiples of 16, into a panel of 64 rows of 128
/// bytes, swizzled as the copy engine does.
template <class Config, int Columns, class Value>
__device__ __forceinline__ void stage_words(Value const* v, unsigned char* panel, int thread) {
  using Two = std::conditional_t<std::is_same_v<Value, int>, int2, float2>;
  int const lane = thread % 32;
#pragma unroll
  for (int block = 0; block < Columns / 8; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int const r = 4 * block + 2 * i;
      int const line = line_of_sum<Config>(i, thread), chunk = 2 * block + (lane % 4) / 2;
      unsigned char* const at = panel + line * 128 + ((chunk ^ (line % 8)) * 16) + (lane % 2) * 8;
      *reinterpret_cast<Two*>(at) = Two{v[r], v[r + 1]};
    }
  }
}

/// The same for 64 columns of 16-bit elements, or fewer, from the panel's 16-byte group
/// `first_chunk` on.
template <class Config, int Columns>
__device__ __forceinline__ void stage_halves(float const* v, unsigned char* panel, DType type,
                                             int thread, int first_chunk = 0) {
  int const lane = thread % 32, i = lane / 8 & 1;
  int const line = 16 * (thread / 32) + (Config::registers_a ? lane % 8 * 2 + i : i * 8 + lane % 8);
  std::uint32_t const base = shared_address(panel) + line * 128;
#pragma unroll
  for (int pair = 0; pair < Columns / 16; ++pair) {
    float const* const w = v + 8 * pair;
    int const chunk = first_chunk + 2 * pair + lane / 16;
    store_matrices(base + ((chunk ^ (line % 8)) * 16), pack_pair(type, w[0], w[1]),
                   pack_pair(type, w[2], w[3]), pack_pair(type, w[4], w[5]),
                   pack_pair(type, w[6], w[7]));
  }
}

/// The same for 32 columns of 8-bit elements from column `first` of the panel on. `infinities`: of
/// the numbers before they were divided.
template <class Config>
__device__ __forceinline__ void stage_bytes(float const (&v)[16], Infinities const& infinities,
                                            unsigned char* panel, DType type, int thread,
                                            int first) {
  std::uint32_t words[4];
  auto const round_by = [&](auto round) {
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      float const* const w = v + 4 * block;
      words[block] = round(float4{w[0], w[1], w[2], w[3]});
    }
  };
  if (type == DType::int8)
    round_by([](float4 x) { return round_to_int8(x); });
  else if (type == DType::float8_e4m3)
    round_by([](float4 x) { return round_to_float8<__NV_E4M3>(x); });
  else
    round_by([](float4 x) { return round_to_float8<__NV_E5M2>(x); });
  if (infinities.any()) {
#pragma unroll
    for (int block = 0; block < 4; ++block)
      words[block] = infinities.show(type, words[block], 4 * block);
  }
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    int const column = first + 8 * block + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int const line = line_of_sum<Config>(i, thread);
      *reinterpret_cast<std::uint16_t*>(panel + line * 128 + ((column / 16 ^ (line % 8)) * 16) +
                                        column % 16) =
          static_cast<std::uint16_t>(words[block] >> 16 * i);
    }
  }
}

/// Where a thread's first sum of column 2 q + j goes in a panel whose lines are columns of C:
/// `position` along M, in bytes. Eight columns on lies 1024 bytes further.
__device__ __forceinline__ unsigned char* along_m_address(unsigned char* panel, int thread, int j,
                                                          int position) {
  int const line = thread % 4 * 2 + j;
  return panel + line * 128 + ((position / 16 ^ line) * 16) + position % 16;
}

/// As stage_words, for a C whose unit stride is along M: 32 columns, of which one half of the panel
/// holds lines 0 ... 31, the other 32 ... 63. A thread's sums of rows g and g + 8 are neighbours.
template <class Config, class Value>
__device__ __forceinline__ void stage_words_along_m(Value const* v, unsigned char* panel,
                                                    int thread) {
  using Two = std::conditional_t<std::is_same_v<Value, int>, int2, float2>;
  int const line = line_of_sum<Config>(0, thread);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    unsigned char* const at = along_m_address(panel + line / 32 * 4096, thread, j, line % 32 * 4);
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      int const r = 4 * block + j;
      *reinterpret_cast<Two*>(at + block * 1024) = Two{v[r], v[r + 2]};
    }
  }
}

/// As stage_halves, for a C whose unit stride is along M: `Columns` lines from `first_line` on.
template <class Config, int Columns>
__device__ __forceinline__ void stage_halves_along_m(float const* v, unsigned char* panel,
                                                     DType type, int thread, int first_line = 0) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    unsigned char* const at =
        along_m_address(panel + first_line * 128, thread, j, line_of_sum<Config>(0, thread) * 2);
#pragma unroll
    for (int block = 0; block < Columns / 8; ++block) {
      int const r = 4 * block + j;
      *reinterpret_cast<std::uint32_t*>(at + block * 1024) = pack_pair(type, v[r], v[r + 2]);
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
