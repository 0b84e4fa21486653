// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Shapes, parameters and shared memory of the sm_80 kernels of attention's gradients.
#pragma once

#include "attention_backward/shared/tiles.cuh"
#include "sequences/score_math_f64.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct Sm80BackwardParams : AttentionBackwardParams {
  bool wide_q, wide_dout, wide_k, wide_v;  ///< rows can be copied 16 bytes at a time
};

/// A block keeps a tile of keys and goes through tiles of `TileQ` queries. `KeyWarps` warps have 16
/// times `RowTiles` keys each. `Shares` warps share the same keys: each works out the scores of as
/// many of the queries, and has as many of the features of dk and dv; what others have worked out
/// comes to it through shared memory. Where there is one share alone, weights and gradients of
/// scores stay in registers, and the queries of a tile are taken `ChunkQ` at a time. Head
/// dimensions up to D. `Terms`: scores are more than scale·q·k.
template <class T, int D, int KeyWarps, int RowTiles, int Shares, int TileQ, int ChunkQ,
          int QStages, int DoutStages, int RowStages, int Blocks, bool Terms>
struct MmaBackwardTiles {
  using Element = T;
  static constexpr int d = D, tile_q = TileQ, tile_kv = 16 * KeyWarps * RowTiles;
  static constexpr int key_warps = KeyWarps, row_tiles = RowTiles, shares = Shares;
  static constexpr int chunk_q = ChunkQ, chunks = TileQ / Shares / ChunkQ;
  static constexpr int warps = KeyWarps * Shares, threads = 32 * warps, blocks = Blocks;
  static constexpr int q_stages = QStages, dout_stages = DoutStages, row_stages = RowStages;
  static constexpr bool terms = Terms, pairs_shared = Shares > 1;
  static_assert(Shares == 1 || chunks == 1);

  // Of rows of q, dout, k and v; see RowCopier.
  static constexpr int row_bytes = D * static_cast<int>(sizeof(T)), pitch = row_bytes;
  static constexpr bool turned = true, asynchronous = true;

  static constexpr int q_bytes = TileQ * pitch, kv_bytes = tile_kv * pitch;
  static constexpr int pair_pitch = TileQ * static_cast<int>(sizeof(T));
  static constexpr int pair_bytes = tile_kv * pair_pitch;
  static constexpr int row_sum_bytes = 2 * TileQ * static_cast<int>(sizeof(NumberOf<T>));
  static constexpr int k_at = 0, v_at = k_at + kv_bytes, q_at = v_at + kv_bytes;
  static constexpr int dout_at = q_at + QStages * q_bytes;
  static constexpr int gradients_at = dout_at + DoutStages * q_bytes;
  static constexpr int weights_at = gradients_at + pair_bytes;
  static constexpr int rows_at = weights_at + (Shares > 1 ? pair_bytes : 0);
  static constexpr int shared_bytes = rows_at + RowStages * row_sum_bytes + 128;

  /// First key of a warp, and the number of its share.
  __device__ __forceinline__ static int own_keys(int warp) {
    return warp % KeyWarps * RowTiles * 16;
  }
  __device__ __forceinline__ static int own_share(int warp) {
    return Shares == 1 ? 0 : warp / KeyWarps;
  }
};

/// Of 16-bit elements; see MmaBackwardTiles.
template <class T, int D, int KeyWarps, int RowTiles, int Shares, int TileQ, int ChunkQ,
          int QStages, int DoutStages, int Blocks, bool Terms>
struct Sm80BackwardConfig : MmaBackwardTiles<T, D, KeyWarps, RowTiles, Shares, TileQ, ChunkQ,
                                             QStages, DoutStages, 2, Blocks, Terms> {
  static_assert(QStages == 2 || Shares > 1);
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
