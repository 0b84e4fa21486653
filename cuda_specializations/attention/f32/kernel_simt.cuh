// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention in IEEE float32 on the CUDA cores: fused multiply-adds alone, online softmax, keys and
/// values in shared memory by cp.async.
///
/// A warp has 4·`rows` queries for itself, so that weights go from its registers through its own
/// piece of shared memory to the second product, and blocks meet only where chunks of keys and
/// values change. Both products are sums of outer products: queries and keys lie as columns, which
/// leaves the compiler registers of either bank for the factors. Lane (m, n), 4 × 8 of them, has
/// queries 4 m + i + 16 h, keys 4 n + j + 32 h, and columns 4 n + e + 32 g of its queries. Bits of
/// m and n alternate in the lane's number: then neighbouring lanes read the same 16 bytes, and a
/// load of 32 lanes takes two passes, not four.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; the lanes' order is that of CUTLASS's
/// SIMT products as published.
#pragma once

#include "attention/shared/f32_scores.cuh"
#include "common/limits.cuh"
#include "sequences/outer_product.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A kernel in one of the shapes of shapes.cuh.
template <class Shape>
struct SimtAttentionConfig {
  static constexpr int d = Shape::d, stages = Shape::stages, blocks = Shape::blocks;
  static constexpr int warps = Shape::warps, threads = 32 * warps;
  static constexpr int rows = d <= 128 ? 8 : 4;                  ///< queries of a thread
  static constexpr int tile_n = Shape::keys, keys = tile_n / 8;  ///< of a thread
  static constexpr int columns = d / 8, side_by_side = 4;
  static constexpr int shared = 0b11010;  ///< bits of n in the number of a lane
  static constexpr int tile_m = warps * 4 * rows;
  static constexpr bool across = true;
  static constexpr int k_features = 2048 / tile_n, v_features = d, v_keys = 2048 / d;
  static constexpr int v_chunks = tile_n / v_keys;
  static constexpr int k_pitch = (tile_n + 4) * 4;  ///< of a feature's keys: no bank is met twice
  static constexpr int slot_bytes = k_features * k_pitch;
  static constexpr int q_bytes = tile_m * d * 4;
  /// Weights of 32 keys of a warp at a time; those of one key.
  static constexpr int weight_pitch = 4 * rows * 4, weight_bytes = 32 * weight_pitch;
  static constexpr int shared_bytes =
      128 + q_bytes + warps * weight_bytes + stages * slot_bytes + 128;
  static_assert(d % 64 == 0 && tile_n % 32 == 0 && slot_bytes >= v_keys * d * 4);
  static_assert(shared_bytes <= sm80_shared_bytes);

  static constexpr __host__ __device__ int swizzle_q(int feature) { return feature & (rows - 1); }
  static constexpr __host__ __device__ int swizzle_k(int) { return 0; }
  static constexpr __host__ __device__ int swizzle_v(int) { return 0; }
  static constexpr __host__ __device__ int row(int i) { return i / 4 * 16 + i % 4; }
  static constexpr __host__ __device__ int key(int j) { return j / 4 * 32 + j % 4; }
  static constexpr __host__ __device__ int column(int c) { return c / 4 * 32 + c % 4; }
};

namespace {

/// add_outer where a factor x of 0 adds nothing, not even the NaN of y.
template <int Rows, int Columns>
__device__ __forceinline__ void add_outer_masked(float (&sums)[Rows][Columns],
                                                 float const (&x)[Rows], float4 y, int column) {
  float const z[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
  for (int e = 0; e < 4; ++e)
#pragma unroll
    for (int i = 0; i < Rows; ++i)
      if (x[i] != 0) sums[i][column + e] = fmaf(x[i], z[e], sums[i][column + e]);
}

/// The queries of a lane, 4 m ... of each 16, where 16 bytes stand in pairs `apart` from each
/// other.
template <int Rows>
__device__ __forceinline__ void load_rows(float (&x)[Rows], std::uint32_t from, bool swapped) {
#pragma unroll
  for (int h = 0; h < Rows / 4; ++h) {
    float4 const y = load_shared(from + (Rows == 8 && swapped ? h ^ 1 : h) * 64);
    x[4 * h] = y.x, x[4 * h + 1] = y.y, x[4 * h + 2] = y.z, x[4 * h + 3] = y.w;
  }
}

/// Adds the products of a chunk's features. `q`: the chunk's features of the warp's queries; `k`:
/// the thread's first key.
template <class C>
__device__ __forceinline__ void add_scores(float (&s)[C::rows][C::keys], std::uint32_t q,
                                           std::uint32_t k, int m) {
  std::uint32_t at[4];
#pragma unroll
  for (int f = 0; f < 4; ++f) at[f] = q + f * (C::tile_m * 4) + (m ^ f) * 16;
#pragma unroll 1
  for (int f0 = 0; f0 < C::k_features; f0 += 8) {
#pragma unroll
    for (int f = 0; f < 8; ++f) {
      float x[C::rows];
      load_rows(x, at[f % 4] + (f0 + f / 4 * 4) * (C::tile_m * 4), f >= 4);
#pragma unroll
      for (int j = 0; j < C::keys; j += 4)
        add_outer(s, x, load_shared(k + (f0 + f) * C::k_pitch + j * 32), j);
    }
  }
}

/// Adds the products of weights and a chunk's values. `Masked`: a weight of 0 adds nothing, not
/// even the NaN of a value.
template <class C, bool Masked>
__device__ __forceinline__ void add_values(float (&o)[C::rows][C::columns], std::uint32_t weights,
                                           std::uint32_t v) {
#pragma unroll 1
  for (int key0 = 0; key0 < C::v_keys; key0 += 8) {
#pragma unroll
    for (int key = 0; key < 8; ++key) {
      float x[C::rows];
      load_rows(x, weights + (key0 + key) * C::weight_pitch, key >= 4);
#pragma unroll
      for (int c = 0; c < C::columns; c += 4) {
        float4 const y = load_shared(v + (key0 + key) * (C::d * 4) + c * 32);
        if constexpr (Masked)
          add_outer_masked(o, x, y, c);
        else
          add_outer(o, x, y, c);
      }
    }
  }
}

/// Stores a thread's weights of 32 keys where add_values() finds them: those of a key side by side.
/// Of keys 4 to 7 of eight the two 16 bytes of a lane change places, so that no bank is met twice.
template <class C>
__device__ __forceinline__ void share_weights(float const (&s)[C::rows][C::keys], int first,
                                              std::uint32_t weights, int n) {
#pragma unroll
  for (int e = 0; e < 4; ++e)
#pragma unroll
    for (int h = 0; h < C::rows / 4; ++h)
      store_shared(weights + (4 * n + e) * C::weight_pitch + (C::rows == 8 ? h ^ (n & 1) : h) * 64,
                   make_float4(s[4 * h][first + e], s[4 * h + 1][first + e],
                               s[4 * h + 2][first + e], s[4 * h + 3][first + e]));
}

template <class C>
__global__ void __launch_bounds__(C::threads, resident_blocks(C::blocks))
    simt_attention_kernel(__grid_constant__ F32AttentionParams const p) {
  extern __shared__ unsigned char raw_shared[];
  unsigned char* const shared = raw_shared + (-shared_address(raw_shared) & 127u);
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const m = (lane & 1) | (lane >> 1 & 2), n = (lane >> 1 & 1) | (lane >> 2 & 6);
  // The tile stands in shared memory, since registers are scarce.
  auto* const place = reinterpret_cast<AttentionTile*>(shared);
  if (!locate_for_block<C>(p, place)) return;
  AttentionTile const& t = *place;
  std::uint32_t const queries = shared_address(shared) + 128, weights = queries + C::q_bytes;
  std::uint32_t const ring = weights + C::warps * C::weight_bytes;
  F32Loader<C> loader(p, t, ring);
  if (t.first < t.end) copy_queries_across<C>(queries, p, t);
#pragma unroll
  for (int i = 0; i < C::stages - 1; ++i) loader.issue();

  float const c = p.terms ? 1.0f : p.scale * log2_e;
  int const row0 = warp * 4 * C::rows + 4 * m;  // of the tile
  std::uint32_t const own_queries = queries + warp * (4 * C::rows * 4);
  std::uint32_t const own_weights = weights + warp * C::weight_bytes + m * 16;
  F32Softmax<C> softmax;
  float o[C::rows][C::columns] = {};
  int read = 0;
  auto const next_chunk = [&] {
    copy_async_wait<C::stages - 2>();
    __syncthreads();
    loader.issue();
    std::uint32_t const slot = ring + read * C::slot_bytes;
    read = next_in_ring<C::stages>(read);
    return slot;
  };
#pragma unroll 1
  for (int block = t.first; block < t.end; ++block) {
    float s[C::rows][C::keys] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < loader.k_chunks(); ++chunk)
      add_scores<C>(s, own_queries + chunk * (C::k_features * C::tile_m * 4), next_chunk() + n * 16,
                    m);
    int const i0 = t.row0 + row0, j0 = block * C::tile_n + 4 * n;
    if (p.terms) apply_f32_terms<C>(p, t, s, i0, j0);
    bool const masked = block < t.whole_from || block >= t.whole_end || p.excludes;
    if (masked) mask_f32<C>(p, t, s, i0, j0);
    softmax.weigh(s, c, [&](int i, float factor) {
#pragma unroll
      for (int x = 0; x < C::columns; ++x) o[i][x] *= factor;
    });
#pragma unroll
    for (int half = 0; half < C::keys / 4; ++half) {
      __syncwarp();
      share_weights<C>(s, 4 * half, own_weights, n);
      __syncwarp();
#pragma unroll 1
      for (int chunk = 0; chunk < 32 / C::v_keys; ++chunk) {
        std::uint32_t const v = next_chunk() + n * 16;
        std::uint32_t const w = own_weights + chunk * (C::v_keys * C::weight_pitch);
        if (masked)
          add_values<C, true>(o, w, v);
        else
          add_values<C, false>(o, w, v);
      }
    }
  }
  copy_async_wait<0>();
  store_f32_rows<C>(p, t, o, softmax, c, t.row0 + row0, 4 * n);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
