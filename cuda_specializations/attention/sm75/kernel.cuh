// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of float16 through nvcuda::wmma, for sm_75 and newer: a tile of queries against blocks
/// of keys and values, which come to shared memory through registers.
///
/// Each warp has 16 queries, all features of their sums in fragments, and sees every key. The
/// layout of a fragment is opaque, so scores go through the warp's own piece of shared memory,
/// where two lanes have a query, and come back as weights. Which element of its matrix each number
/// of a fragment is, a matrix of these numbers tells that is loaded like any other.
///
/// Source: CUDA C++ Programming Guide, "Warp Matrix Functions"; T. Dao, "FlashAttention-2",
/// arXiv:2307.08691.
#pragma once

#include <cuda_fp16.h>
#include <mma.h>

#include "attention/shared/f32_scores.cuh"
#include "attention/shared/ring.cuh"
#include "common/limits.cuh"
#include "ptx/registers.cuh"
#include "sequences/row_sum.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// What follows from one of sm75_attention_shapes. A lane has half of the keys of one query, every
/// other four of them.
template <class Shape>
struct WmmaAttentionConfig {
  using Element = __half;
  using Source = __half;
  using Tile = MmaAttentionTile;
  using Copied = WmmaAttentionConfig;
  static constexpr bool asynchronous = false, turned = false, plain = false, scaled = false;
  static constexpr int d = Shape::d, tile_n = Shape::keys, blocks = Shape::blocks;
  static constexpr int warps = 4, threads = 32 * warps, row_tiles = 1, tile_m = 16 * warps;
  /// Rows are 16 bytes apart beyond their own, so that those that wmma reads at once lie in
  /// different banks. Likewise of scores and weights.
  static constexpr int row_bytes = d * 2, pitch = row_bytes + 16, ld = pitch / 2;
  static constexpr int score_ld = tile_n + 8;
  static constexpr int q_bytes = tile_m * pitch, slot_bytes = tile_n * pitch;
  static constexpr int piece_bytes = 16 * score_ld * 4;  ///< scores of a warp
  static constexpr int factor_bytes = tile_m * 4;
  static constexpr int shared_bytes =
      q_bytes + 2 * slot_bytes + warps * piece_bytes + factor_bytes + 128;
  static_assert(d % 64 == 0 && tile_n % 16 == 0);
  static_assert(16 * pitch % 32 == 0 && piece_bytes % 32 == 0, "wmma loads want 32 bytes");
  static_assert(piece_bytes >= 16 * 16 * 4, "a matrix of numbers fits, too");
  static_assert(shared_bytes <= sm75_shared_bytes, "all that sm_75 has");

  // As attention/shared/f32_scores.cuh asks.
  static constexpr int rows = 1, keys = tile_n / 2, shared = 1;
  static constexpr __host__ __device__ int row(int) { return 0; }
  static constexpr __host__ __device__ int key(int j) { return j / 4 * 8 + j % 4; }
};

namespace {

using WmmaSums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

/// Row and column of each number of a fragment of sums, a byte for both.
struct WmmaPlaces {
  std::uint32_t places[WmmaSums::num_elements / 4] = {};

  /// `piece`: 256 numbers of shared memory for this warp.
  __device__ __forceinline__ explicit WmmaPlaces(float* piece) {
    for (int n = static_cast<int>(threadIdx.x) % 32; n < 256; n += 32)
      piece[n] = static_cast<float>(n);
    __syncwarp();
    WmmaSums numbers;
    nvcuda::wmma::load_matrix_sync(numbers, piece, 16, nvcuda::wmma::mem_row_major);
#pragma unroll
    for (int e = 0; e < WmmaSums::num_elements; ++e)
      places[e / 4] |= static_cast<std::uint32_t>(numbers.x[e]) << e % 4 * 8;
    __syncwarp();
  }
  __device__ __forceinline__ int row(int e) const { return four_bits(e, 4); }
  __device__ __forceinline__ int column(int e) const { return four_bits(e, 0); }

 private:
  /// Worked out where it is needed: registers are scarce.
  __device__ __forceinline__ int four_bits(int e, int first) const {
    std::uint32_t four = places[e / 4];
    make_opaque(four);
    return static_cast<int>(four >> (e % 4 * 8 + first) & 15u);
  }
};

/// Products of a warp's queries with a block of keys, to its piece.
template <class Config>
__device__ __forceinline__ void multiply_wmma_keys(__half const* queries, __half const* keys,
                                                   float* piece) {
  namespace wmma = nvcuda::wmma;
  constexpr int blocks = Config::tile_n / 16;
  WmmaSums s[blocks];
#pragma unroll
  for (int n = 0; n < blocks; ++n) wmma::fill_fragment(s[n], 0.0f);
#pragma unroll
  for (int k = 0; k < Config::d; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
    wmma::load_matrix_sync(x, queries + k, Config::ld);
#pragma unroll
    for (int n = 0; n < blocks; ++n) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> y;
      wmma::load_matrix_sync(y, keys + 16 * n * Config::ld + k, Config::ld);
      wmma::mma_sync(s[n], x, y, s[n]);
    }
  }
#pragma unroll
  for (int n = 0; n < blocks; ++n)
    wmma::store_matrix_sync(piece + 16 * n, s[n], Config::score_ld, wmma::mem_row_major);
}

/// Adds the products of a warp's weights and a block of values.
template <class Config>
__device__ __forceinline__ void multiply_wmma_values(WmmaSums (&o)[Config::d / 16],
                                                     __half const* weights, __half const* values) {
  namespace wmma = nvcuda::wmma;
#pragma unroll
  for (int k = 0; k < Config::tile_n; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
    wmma::load_matrix_sync(x, weights + k, Config::score_ld);
#pragma unroll
    for (int c = 0; c < Config::d / 16; ++c) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> y;
      wmma::load_matrix_sync(y, values + k * Config::ld + 16 * c, Config::ld);
      wmma::mma_sync(o[c], x, y, o[c]);
    }
  }
}

/// The same where a value is infinite or NaN, leaving out the pairs that are excluded: a product of
/// matrices would multiply those values by 0. i0: the warp's first query, j0 the first key.
template <class Config>
__device__ __forceinline__ void multiply_wmma_pairwise(
    abi::AttentionArgs const& g, AttentionTile const& t, WmmaPlaces const& places,
    WmmaSums (&o)[Config::d / 16], __half const* weights, __half const* values, int i0, int j0) {
#pragma unroll 1
  for (int key = 0; key < Config::tile_n; ++key) {
#pragma unroll
    for (int e = 0; e < WmmaSums::num_elements; ++e) {
      int const row = places.row(e);
      float const w = widen(weights[row * Config::score_ld + key]);
      if (w == 0 && is_excluded(g, t, i0 + row, j0 + key)) continue;
#pragma unroll
      for (int c = 0; c < Config::d / 16; ++c)
        o[c].x[e] = fmaf(w, widen(values[key * Config::ld + 16 * c + places.column(e)]), o[c].x[e]);
    }
  }
}

/// Scores of a warp in its piece become weights there. Returns whether `factors` say by what the
/// sums of its queries must be multiplied. i0 and j0: the lane's query and first key.
template <class Config>
__device__ __forceinline__ bool weigh_wmma_scores(MmaAttentionParams const& p,
                                                  AttentionTile const& t, bool masked,
                                                  F32Softmax<Config>& softmax, float c,
                                                  float* piece, float* factors, int i0, int j0) {
  int const lane = static_cast<int>(threadIdx.x) % 32, at = lane / 2 * Config::score_ld;
  float s[1][Config::keys];
#pragma unroll
  for (int j = 0; j < Config::keys; j += 4) {
    auto const four = *reinterpret_cast<float4 const*>(piece + at + lane % 2 * 4 + Config::key(j));
    s[0][j] = four.x, s[0][j + 1] = four.y, s[0][j + 2] = four.z, s[0][j + 3] = four.w;
  }
  if (p.terms) apply_f32_terms<Config>(p, t, s, i0, j0);
  if (masked) mask_f32<Config>(p, t, s, i0, j0);
  bool raised = false;
  softmax.weigh(s, c, [&](int, float factor) {
    raised = true;
    factors[lane / 2] = factor;
  });
  __syncwarp();
  auto* const weights = reinterpret_cast<__half*>(piece) + at + lane % 2 * 4;
#pragma unroll
  for (int j = 0; j < Config::keys; j += 4)
    *reinterpret_cast<uint2*>(weights + Config::key(j)) = make_uint2(
        pack_pair<__half>(s[0][j], s[0][j + 1]), pack_pair<__half>(s[0][j + 2], s[0][j + 3]));
  __syncwarp();
  return raised;
}

/// Stores a warp's sums divided by the sums of their weights, and the log-sum-exp. i0: the warp's
/// first query.
template <class Config>
__device__ __forceinline__ void store_wmma_rows(MmaAttentionParams const& p, AttentionTile const& t,
                                                WmmaPlaces const& places,
                                                WmmaSums const (&o)[Config::d / 16],
                                                F32Softmax<Config> const& softmax, float c,
                                                float* factors, int i0) {
  abi::AttentionArgs const& g = p.args;
  int const lane = static_cast<int>(threadIdx.x) % 32, query = i0 + lane / 2;
  float sum = softmax.sum[0] + __shfl_xor_sync(0xffffffff, softmax.sum[0], 1);
  float top = softmax.shift(0, c);
  bool const empty = query >= t.len_q || sum == 0;
  std::int64_t const b = max(t.batch, 0), h = t.head;
  RowEnd<float> const end =
      finish_row<Base2Rows<>>(empty, top, sum, g.sinks != nullptr, [&] { return sink_of(g, h); });
  if (g.lse != nullptr && lane % 2 == 0 && query < t.rows)
    static_cast<float*>(g.lse)[b * g.lse_stride[0] + h * g.lse_stride[1] +
                               (std::int64_t{t.begin_q} + query) * g.lse_stride[2]] = end.lse;
  __syncwarp();
  factors[lane / 2] = empty ? -1.0f : end.factor;
  __syncwarp();
  auto* const out = static_cast<__half*>(g.out) + b * g.out_stride[0] + h * g.out_stride[1];
#pragma unroll
  for (int e = 0; e < WmmaSums::num_elements; ++e) {
    int const i = i0 + places.row(e);
    float const scale = factors[places.row(e)];
    if (i >= t.rows) continue;
    auto* at =
        out + (std::int64_t{t.begin_q} + i) * g.out_stride[2] + places.column(e) * g.out_stride[3];
#pragma unroll
    for (int n = 0; n < Config::d / 16; ++n, at += 16 * g.out_stride[3]) {
      make_opaque(at);  // else all addresses would be computed first and kept
      if (16 * n + places.column(e) < g.head_dim_v)
        *at = __float2half(scale < 0 ? 0.0f : o[n].x[e] * scale);
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    wmma_attention_kernel(__grid_constant__ MmaAttentionParams const p) {
  extern __shared__ unsigned char raw_shared[];
  __shared__ MmaAttentionTile t;
  if (!take_tile<Config>(p, t)) return;
  if (t.end <= t.first) {
    store_zeros<Config, float>(p, t);
    return;
  }
  unsigned char* const shared = raw_shared + (-shared_address(raw_shared) & 127u);
  unsigned char* const key_slot = shared + Config::q_bytes;
  unsigned char* const value_slot = key_slot + Config::slot_bytes;
  unsigned char* const pieces = value_slot + Config::slot_bytes;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  auto const* const queries = reinterpret_cast<__half const*>(shared) + warp * 16 * Config::ld;
  auto const* const keys = reinterpret_cast<__half const*>(key_slot);
  auto const* const values = reinterpret_cast<__half const*>(value_slot);
  auto* const piece = reinterpret_cast<float*>(pieces + warp * Config::piece_bytes);
  auto* const factors =
      reinterpret_cast<float*>(pieces + Config::warps * Config::piece_bytes) + warp * 16;

  load_queries<Config>(p, t, shared_address(shared));
  KeyLoader<Config> loader(p, t);
  WmmaPlaces const places(piece);
  float const c = p.terms ? 1.0f : p.scale * log2_e;
  int const i0 = t.row0 + warp * 16;
  F32Softmax<Config> softmax;
  WmmaSums o[Config::d / 16];
#pragma unroll
  for (auto& sums : o) nvcuda::wmma::fill_fragment(sums, 0.0f);
#pragma unroll 1
  for (int n = t.end - 1; n >= loader.first; --n) {
    bool const masked = n >= t.whole_end || n < t.whole_from || p.excludes;
    loader.template issue<false>(n, shared_address(key_slot));
    loader.template issue<true>(n, shared_address(value_slot));
    bool pairwise = false;
    if (masked)
      pairwise = __syncthreads_or(loader.no_numbers(shared_address(value_slot))) != 0;
    else
      __syncthreads();
    if (sees_block<Config>(t, n)) {
      int const j0 = n * Config::tile_n;
      multiply_wmma_keys<Config>(queries, keys, piece);
      __syncwarp();
      if (weigh_wmma_scores<Config>(p, t, masked, softmax, c, piece, factors, i0 + lane / 2,
                                    j0 + lane % 2 * 4)) {
#pragma unroll
        for (int e = 0; e < WmmaSums::num_elements; ++e) {
          float const factor = factors[places.row(e)];
#pragma unroll
          for (auto& sums : o) sums.x[e] *= factor;
        }
      }
      auto const* const weights = reinterpret_cast<__half const*>(piece);
      if (pairwise)
        multiply_wmma_pairwise<Config>(p.args, t, places, o, weights, values, i0, j0);
      else
        multiply_wmma_values<Config>(o, weights, values);
    }
    __syncthreads();
  }
  store_wmma_rows<Config>(p, t, places, o, softmax, c, factors, i0);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
