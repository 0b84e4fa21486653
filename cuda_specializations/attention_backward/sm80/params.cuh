// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Parameters and shared memory of the sm_80 kernels of attention's gradients.
#pragma once

#include "attention_backward/shared/tiles.cuh"
#include "sequences/score_math_f64.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct Sm80BackwardParams : AttentionBackwardParams {
  bool wide_q, wide_dout, wide_k, wide_v;  ///< rows can be copied 16 bytes at a time
};

/// A kernel by mma.sync for elements of type T in one of sm80_backward_shapes. `RowStages`: places
/// for what a tile's queries bring along, a number each.
template <class T, class Shape, int RowStages>
struct MmaBackwardTiles {
  using Element = T;
  static constexpr int d = Shape::d, tile_q = Shape::tile_q, tile_kv = Shape::tile_kv;
  static constexpr int key_warps = Shape::key_warps, row_tiles = Shape::row_tiles;
  static constexpr int shares = Shape::shares, blocks = Shape::blocks;
  static constexpr int chunk_q = Shape::chunk_q, chunks = tile_q / shares / chunk_q;
  static constexpr int warps = key_warps * shares, threads = 32 * warps;
  static constexpr int q_stages = Shape::q_stages, dout_stages = Shape::dout_stages;
  static constexpr int row_stages = RowStages;
  static constexpr bool terms = Shape::terms, pairs_shared = shares > 1;
  static_assert(shares == 1 || chunks == 1);

  // Of rows of q, dout, k and v; see RowCopier.
  static constexpr int row_bytes = d * static_cast<int>(sizeof(T)), pitch = row_bytes;
  static constexpr bool turned = true, asynchronous = true;

  static constexpr int q_bytes = tile_q * pitch, kv_bytes = tile_kv * pitch;
  static constexpr int pair_pitch = tile_q * static_cast<int>(sizeof(T));
  static constexpr int pair_bytes = tile_kv * pair_pitch;
  static constexpr int row_sum_bytes = 2 * tile_q * static_cast<int>(sizeof(NumberOf<T>));
  static constexpr int k_at = 0, v_at = k_at + kv_bytes, q_at = v_at + kv_bytes;
  static constexpr int dout_at = q_at + q_stages * q_bytes;
  static constexpr int gradients_at = dout_at + dout_stages * q_bytes;
  static constexpr int weights_at = gradients_at + pair_bytes;
  static constexpr int rows_at = weights_at + (shares > 1 ? pair_bytes : 0);
  static constexpr int shared_bytes = rows_at + RowStages * row_sum_bytes + 128;

  /// First key of a warp, and the number of its share.
  __device__ __forceinline__ static int own_keys(int warp) {
    return warp % key_warps * row_tiles * 16;
  }
  __device__ __forceinline__ static int own_share(int warp) {
    return shares == 1 ? 0 : warp / key_warps;
  }
};

/// Of 16-bit elements.
template <class T, class Shape>
struct Sm80BackwardConfig : MmaBackwardTiles<T, Shape, 2> {
  static_assert(Shape::q_stages == 2 || Shape::shares > 1);
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
