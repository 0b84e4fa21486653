// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention in float32 on tensor cores by mma.sync: each factor is split into two numbers of 11
/// significant bits, and three of their four products are summed.
///
/// A warp has 16 queries for itself; weights stay in registers as the left operand of the second
/// product. Numbers of features and keys are permuted within a step of either product so that a
/// lane's 16 bytes of a row are what it multiplies: of a step's 8 k, number q + 4 l of lane
/// (g, q) is feature 4 q + 2 s + l of 16 in the first product, where s counts two steps, and key
/// 2 q + l in the second; column g of four products side by side is feature 4 g + e of 32.
///
/// Matrix units truncate what they add, so a block's products with the values are summed apart and
/// join the sums of the blocks before in float32.
///
/// Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
/// surpassing the FP32 theoretical peak performance", IJHPCA 36(4), 2022; T. Dao,
/// "FlashAttention-2", arXiv:2307.08691.
#pragma once

#include <attikos/ptx/mma_sync.hpp>

#include "attention/shared/f32_scores.cuh"
#include "common/split_tf32.cuh"
#include "ptx/registers.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A kernel in one of the shapes of shapes.cuh.
template <class Shape>
struct Tf32x3AttentionConfig {
  static constexpr int d = Shape::d, stages = Shape::stages, blocks = Shape::blocks;
  static constexpr int warps = Shape::warps, threads = 32 * warps;
  static constexpr int rows = 2, keys = Shape::keys / 4, columns = d / 4, side_by_side = 4;
  static constexpr int shared = 0b00011;  ///< bits of q in the number of a lane
  static constexpr int tile_m = warps * 16, tile_n = Shape::keys;
  static constexpr bool across = false;
  static constexpr bool late = d > 128 || blocks > 2;  ///< see SplitWeights
  static constexpr bool apart = d <= 128;              ///< see Tf32Sums
  static constexpr int k_features = 32, v_features = 32, v_keys = tile_n;
  static constexpr int v_chunks = d / v_features;
  static constexpr int k_pitch = 128, slot_bytes = tile_n * k_pitch;
  static constexpr int q_bytes = tile_m * d * 4;
  static constexpr int shared_bytes = 128 + q_bytes + stages * slot_bytes + 128;
  static_assert(d % 64 == 0);

  /// Rows of either parity, and keys 2 q, meet in no bank.
  static constexpr __host__ __device__ int swizzle_k(int row) { return (row & 1) * 4; }
  static constexpr __host__ __device__ int swizzle_v(int row) { return row & 6; }
  static constexpr __host__ __device__ int row(int i) { return 8 * i; }
  static constexpr __host__ __device__ int key(int j) { return j / 2 * 8 + j % 2; }
  static constexpr __host__ __device__ int column(int c) { return c / 8 * 32 + c % 8; }
};

namespace {

/// The left factor of a product: 16 rows, 8 k.
struct Tf32Pair {
  std::uint32_t big[4], small[4];
};

/// The right factors of four products, 8 k and 8 columns each.
struct Tf32Columns {
  std::uint32_t big[4][2], small[4][2];

  /// Number `l` of the lane's two k of product `e`.
  __device__ __forceinline__ void set(int e, int l, float x) {
    split_tf32(x, big[e][l], small[e][l]);
  }
};

/// Sums of a product. `Apart`: what has a small factor is summed for itself. The matrix unit
/// truncates each sum, and so does it to the large ones once for each 8 k, not three times.
template <bool Apart>
struct Tf32Sums {
  float big[4] = {}, small[4] = {};
  __device__ __forceinline__ auto lesser() -> float (&)[4] {
    if constexpr (Apart)
      return small;
    else
      return big;
  }
  __device__ __forceinline__ float operator[](int r) const {
    return Apart ? big[r] + small[r] : big[r];
  }
};

/// Four sums from d[first] on += a·b, less the products of small numbers with small ones. The four
/// take turns, since each waits for its own last sum.
template <bool Apart, int Count>
__device__ __forceinline__ void multiply_split(Tf32Sums<Apart> (&d)[Count], int first,
                                               Tf32Pair const& a, Tf32Columns const& b) {
#pragma unroll
  for (int e = 0; e < 4; ++e) mma_tf32(d[first + e].lesser(), a.small, b.big[e][0], b.big[e][1]);
#pragma unroll
  for (int e = 0; e < 4; ++e) mma_tf32(d[first + e].big, a.big, b.big[e][0], b.big[e][1]);
#pragma unroll
  for (int e = 0; e < 4; ++e) mma_tf32(d[first + e].lesser(), a.big, b.small[e][0], b.small[e][1]);
}

/// Adds the products of a chunk's 32 features.
template <class C>
__device__ __forceinline__ void add_split_scores(Tf32Sums<C::apart> (&s)[8], std::uint32_t q,
                                                 std::uint32_t k) {
#pragma unroll
  for (int sixteen = 0; sixteen < 2; ++sixteen) {
    Tf32Pair a[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float4 const x = load_shared((q ^ (sixteen * 64)) + h * 1024);
      split_tf32(x.x, a[0].big[h], a[0].small[h]);
      split_tf32(x.y, a[0].big[h + 2], a[0].small[h + 2]);
      split_tf32(x.z, a[1].big[h], a[1].small[h]);
      split_tf32(x.w, a[1].big[h + 2], a[1].small[h + 2]);
    }
#pragma unroll
    for (int b = 0; b < 8; b += 4) {
      Tf32Columns first, second;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float4 const y = load_shared((k ^ (sixteen * 64)) + (b + e) * 1024);
        first.set(e, 0, y.x), first.set(e, 1, y.y);
        second.set(e, 0, y.z), second.set(e, 1, y.w);
      }
      multiply_split(s, b, a[0], first);
      multiply_split(s, b, a[1], second);
    }
  }
}

/// A block's weights as left factors. `Late`: split where they are used, again each time, since
/// there are no registers for both numbers.
template <bool Late>
struct SplitWeights {
  Tf32Pair pairs[8];
  __device__ __forceinline__ explicit SplitWeights(float const (&s)[2][16]) {
#pragma unroll
    for (int b = 0; b < 8; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        split_tf32(s[e % 2][2 * b + e / 2], pairs[b].big[e], pairs[b].small[e]);
  }
  __device__ __forceinline__ Tf32Pair const& operator[](int b) const { return pairs[b]; }
};
template <>
struct SplitWeights<true> {
  float const (&s)[2][16];
  __device__ __forceinline__ explicit SplitWeights(float const (&weights)[2][16]) : s(weights) {}
  __device__ __forceinline__ Tf32Pair operator[](int b) const {
    Tf32Pair pair;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float x = s[e % 2][2 * b + e / 2];
      make_opaque(x);  // else the compiler would keep what it has split
      split_tf32(x, pair.big[e], pair.small[e]);
    }
    return pair;
  }
};

/// Products of the weights with 32 features of a block's values.
template <bool Apart, class Weights>
__device__ __forceinline__ void multiply_values(Tf32Sums<Apart> (&part)[4], Weights const& weights,
                                                std::uint32_t v) {
#pragma unroll
  for (int b = 0; b < 8; ++b) {
    float4 const x = load_shared(v + b * 1024);
    // The next row, whose 16 bytes are permuted likewise.
    float4 const y = load_shared(v + b * 1024 + 128);
    Tf32Columns columns;
    columns.set(0, 0, x.x), columns.set(1, 0, x.y), columns.set(2, 0, x.z), columns.set(3, 0, x.w);
    columns.set(0, 1, y.x), columns.set(1, 1, y.y), columns.set(2, 1, y.z), columns.set(3, 1, y.w);
    multiply_split(part, 0, weights[b], columns);
  }
}

template <class C>
__global__ void __launch_bounds__(C::threads, resident_blocks(C::blocks))
    tf32x3_attention_kernel(__grid_constant__ F32AttentionParams const p) {
  extern __shared__ unsigned char raw_shared[];
  unsigned char* const shared = raw_shared + (-shared_address(raw_shared) & 127u);
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const g = lane / 4, q = lane % 4;
  // The tile stands in shared memory, since registers are scarce.
  auto* const place = reinterpret_cast<AttentionTile*>(shared);
  if (!locate_for_block<C>(p, place)) return;
  AttentionTile const& t = *place;
  std::uint32_t const queries = shared_address(shared) + 128, ring = queries + C::q_bytes;
  F32Loader<C> loader(p, t, ring);
  if (t.first < t.end) copy_queries<C>(queries, p, t);
#pragma unroll
  for (int i = 0; i < C::stages - 1; ++i) loader.issue();

  float const c = p.terms ? 1.0f : p.scale * log2_e;
  int const row0 = warp * 16 + g;  // of the tile
  std::uint32_t const k_lane = g * 128 + (q ^ C::swizzle_k(g)) * 16;
  std::uint32_t const v_lane = 2 * q * 128 + (g ^ C::swizzle_v(2 * q)) * 16;
  std::uint32_t const own_queries = queries + warp * (16 * 128) + k_lane;
  F32Softmax<C> softmax;
  float o[2][C::columns] = {};
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
    Tf32Sums<C::apart> products[8];
#pragma unroll 1
    for (int chunk = 0; chunk < loader.k_chunks(); ++chunk)
      add_split_scores<C>(products, own_queries + chunk * (C::tile_m * 128), next_chunk() + k_lane);
    float s[2][16];
#pragma unroll
    for (int b = 0; b < 8; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[e / 2][2 * b + e % 2] = products[b][e];
    int const i0 = t.row0 + row0, j0 = block * C::tile_n + 2 * q;
    if (p.terms) apply_f32_terms<C>(p, t, s, i0, j0);
    if (block < t.whole_from || block >= t.whole_end || p.excludes) mask_f32<C>(p, t, s, i0, j0);
    float scale[2] = {1, 1};
    softmax.weigh(s, c, [&](int i, float factor) { scale[i] = factor; });
    SplitWeights<C::late> const weights(s);
#pragma unroll
    for (int chunk = 0; chunk < C::v_chunks; ++chunk) {
      Tf32Sums<C::apart> part[4];
      multiply_values(part, weights, next_chunk() + v_lane);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          float& sum = o[r / 2][chunk * 8 + r % 2 * 4 + e];
          sum = fmaf(sum, scale[r / 2], part[e][r]);
        }
    }
  }
  copy_async_wait<0>();
  bool const masked = t.whole_from > t.first || t.whole_end < t.end || p.excludes;
  if (masked)
    store_f32_rows<C, true>(p, t, o, softmax, c, t.row0 + row0, 8 * q);
  else
    store_f32_rows<C>(p, t, o, softmax, c, t.row0 + row0, 8 * q);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
