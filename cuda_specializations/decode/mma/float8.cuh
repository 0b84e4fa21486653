// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// float8_e4m3 in the decode kernels: bytes come through the rings as they are and become float16
/// in registers, between the load of a fragment and its product.
///
/// Which of its factors a product of matrices calls first is free, and so is the order of its
/// columns. A lane's four bytes of a key stand for two neighbours of either half of 16 features, so
/// that queries are arranged likewise; of values, transposed as pairs of bytes, it gets two
/// features of two keys, and even and odd features make a block of columns each.
///
/// Source: PTX ISA, "ldmatrix", "cvt", "mma".
#pragma once

#include <cuda_fp8.h>

#include <attikos/ptx/ldmatrix.hpp>

#include "common/limits.cuh"
#include "ptx/convert.cuh"
#include "sequences/mma_tiles.cuh"
#include "sequences/row_epilogue.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A kernel for float8_e4m3 in one of the shapes of shapes.cuh, see Sm80DecodeConfig. Out is what
/// the call says.
template <class Shape>
struct Sm80DecodeBytesConfig {
  using Element = __nv_fp8_e4m3;
  using Factor = __half;
  using Out = OutOfCall;
  static constexpr bool bytes = true;
  static constexpr int d = Shape::d, warps_m = Shape::warps_m, warps = 4, threads = 128;
  static constexpr int teams = warps / warps_m, tile_m = 16 * warps_m;
  static constexpr int keys = warps_m == 4 ? (d == 256 ? 32 : 64) : d == 256 ? 16 : 32;
  static constexpr int row_bytes = d, chunks = row_bytes / 16;
  static constexpr int slot_bytes = keys * row_bytes;
  static constexpr int stages = d == 64 ? 10 : d == 256 && warps_m == 4 ? 7 : 5;
  static constexpr int ring_bytes = stages * slot_bytes * teams;
  /// The padding spreads pairs of rows, in which a lane has four neighbours, over the banks.
  static constexpr int sum_width = d + 16;
  static constexpr int sum_bytes = warps * 16 * sum_width * 4;
  /// Queries are float16. Sums take their place too.
  static constexpr bool shared_queries = d > 128;
  static constexpr int queries_at = ring_bytes;
  static constexpr int before_sums = ring_bytes + (shared_queries ? tile_m * d * 2 : 0);
  static constexpr int shared_bytes = (before_sums > sum_bytes ? before_sums : sum_bytes) + 128;
  static_assert(d % 64 == 0 && warps % warps_m == 0 && shared_bytes <= sm80_shared_bytes);

  /// Which place of row r a chunk takes: eight rows of a matrix meet in no bank.
  static constexpr __host__ __device__ int place(int chunk, int r) {
    return chunk ^ (d == 64 ? r >> 1 & 3 : r & 7);
  }
};

namespace {

/// A tile, with the factors of what it reads if that is float8.
template <class Config>
__device__ __forceinline__ auto with_factors(DecodeParams const& p, DecodeTile const& t, int h_kv) {
  if constexpr (!Config::bytes) {
    return t;
  } else {
    abi::AttentionArgs const& g = p.args;
    auto const factor = [&](float const* of, std::int64_t const(&stride)[2]) {
      return of == nullptr || t.batch < 0 ? 1.0f : of[t.batch * stride[0] + h_kv * stride[1]];
    };
    return ScaledDecodeTile{
        t,
        p.scale * factor(g.descale_q, g.descale_q_stride) * factor(g.descale_k, g.descale_k_stride),
        factor(g.descale_v, g.descale_v_stride)};
  }
}

/// load_queries() of float8.
template <class Config>
__device__ __forceinline__ void load_byte_queries(std::uint32_t (&a)[Config::d / 16][4],
                                                  abi::AttentionArgs const& g, DecodeTile const& t,
                                                  int r, int lane) {
  int const d = static_cast<int>(g.head_dim), q = lane % 4;
  std::int64_t const b = g.cu_seqlens_q.data == nullptr ? t.batch : 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    bool const exists = r + 8 * h < t.rows;
    int const row = exists ? r + 8 * h : 0;
    std::uint8_t const* const from =
        static_cast<std::uint8_t const*>(g.q) + b * g.q_stride[0] + t.head_of(row) * g.q_stride[1] +
        (std::int64_t{t.begin_q} + t.query_of(row)) * g.q_stride[2] + 4 * q;
#pragma unroll
    for (int s = 0; s < Config::d / 16; ++s)
      widen_four(exists && 16 * s + 4 * q < d
                     ? *reinterpret_cast<std::uint32_t const*>(from + 16 * s)
                     : 0u,
                 a[s][h], a[s][h + 2]);
  }
}

/// share_queries() of float8: of 16 features the first chunk has what a lane takes first.
template <class Config>
__device__ __forceinline__ void share_byte_queries(unsigned char* to, abi::AttentionArgs const& g,
                                                   DecodeTile const& t) {
  std::int64_t const b = g.cu_seqlens_q.data == nullptr ? t.batch : 0;
  int const c = static_cast<int>(threadIdx.x) % Config::chunks;
  for (int r = static_cast<int>(threadIdx.x) / Config::chunks; r < Config::tile_m;
       r += Config::threads / Config::chunks) {
    uint2 x[2] = {};
    std::uint8_t const* const from =
        static_cast<std::uint8_t const*>(g.q) + b * g.q_stride[0] +
        t.head_of(min(r, t.rows - 1)) * g.q_stride[1] +
        (std::int64_t{t.begin_q} + t.query_of(min(r, t.rows - 1))) * g.q_stride[2] + 16 * c;
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (r < t.rows && 16 * c + 8 * e < g.head_dim)
        x[e] = *reinterpret_cast<uint2 const*>(from + 8 * e);
    uint4 first, second;
    widen_four(x[0].x, first.x, second.x), widen_four(x[0].y, first.y, second.y);
    widen_four(x[1].x, first.z, second.z), widen_four(x[1].y, first.w, second.w);
    unsigned char* const row = to + r * Config::d * 2;
    *reinterpret_cast<uint4*>(row + (2 * c ^ (r & 7)) * 16) = first;
    *reinterpret_cast<uint4*>(row + ((2 * c + 1) ^ (r & 7)) * 16) = second;
  }
  __syncthreads();
}

/// multiply_keys() of float8.
template <class Config, int Blocks, int Kept>
__device__ __forceinline__ void multiply_byte_keys(float (&s)[Blocks][4],
                                                   std::uint32_t (&a)[Kept][4],
                                                   std::uint32_t q_lane, std::uint32_t slot,
                                                   std::uint32_t k_lane) {
  constexpr int together = Blocks < 4 || Config::shared_queries ? 2 : 4;  // as registers allow
#pragma unroll
  for (int step = 0; step < Config::d / 32; ++step)
#pragma unroll
    for (int first = 0; first < Blocks; first += together) {
      std::uint32_t x[together / 2][4];
#pragma unroll
      for (int b = 0; b < together; b += 2)
        load_matrices(x[b / 2],
                      slot + 8 * (first + b) * Config::row_bytes + chunk_at(k_lane, step * 32));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int const kept = Config::shared_queries ? 0 : 2 * step + half;
        if constexpr (Config::shared_queries)
          load_matrices(a[0], chunk_at(q_lane, step * 64 + half * 32));
#pragma unroll
        for (int b = 0; b < together; ++b) {
          std::uint32_t low, high;
          widen_four(x[b / 2][b % 2 * 2 + half], low, high);
          mma_f16(s[first + b], a[kept], low, high);
        }
      }
    }
}

/// multiply_values() of float8. Blocks 2 c and 2 c + 1 of columns have the even and the odd of
/// features 16 c ... 16 c + 15.
template <class Config, int Pairs>
__device__ __forceinline__ void multiply_byte_values(float (&o)[Config::d / 8][4],
                                                     std::uint32_t const (&weights)[Pairs][4],
                                                     std::uint32_t slot, std::uint32_t v_lane) {
#pragma unroll
  for (int b = 0; b < Pairs; ++b)
#pragma unroll
    for (int c = 0; c < Config::d / 16; c += 2) {
      std::uint32_t x[4];
      load_matrices<true>(x, slot + 16 * b * Config::row_bytes + chunk_at(v_lane, c * 16));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        std::uint32_t even[2], odd[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)  // of two keys: even features first
          widen_four(__byte_perm(x[2 * e + half], 0, 0x3120), even[half], odd[half]);
        mma_f16(o[2 * (c + e)], weights[b], even[0], even[1]);
        mma_f16(o[2 * (c + e) + 1], weights[b], odd[0], odd[1]);
      }
    }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
