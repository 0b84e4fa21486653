// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What follows from a shape of the kernels of attention/sm80_mma_*.
#pragma once

#include "attention/shared/mma_params.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A kernel for elements of type T in one of sm80_attention_shapes.
template <class T, class Shape>
struct Sm80AttentionConfig {
  using Element = T;  ///< that products take
  using Source = T;   ///< that q, k and v have
  using Tile = MmaAttentionTile;
  using Copied = Sm80AttentionConfig;                        ///< what copies take it for
  static constexpr bool transposes = false, scaled = false;  ///< float8 alone has that
  static constexpr int d = Shape::d, dv = d, tile_n = Shape::keys, stages = Shape::stages;
  static constexpr int row_tiles = Shape::row_tiles, warps = Shape::warps, threads = 32 * warps;
  static constexpr int blocks = Shape::blocks, tile_m = 16 * row_tiles * warps;
  static constexpr bool asynchronous = true, turned = true;  ///< copies, and chunks of rows
  static constexpr int row_bytes = d * static_cast<int>(sizeof(T)), pitch = row_bytes;
  static constexpr int slot_bytes = tile_n * row_bytes, q_bytes = tile_m * row_bytes;
  static constexpr int ring_bytes = stages * slot_bytes;
  /// Queries that are kept come through the ring where shared memory has little room for both.
  static constexpr bool q_in_registers = Shape::queries_kept;
  static constexpr bool q_through_ring = q_in_registers && row_bytes > 128;
  static constexpr int shared_bytes =
      (q_through_ring ? (ring_bytes > q_bytes ? ring_bytes : q_bytes) : q_bytes + ring_bytes) + 128;
  static constexpr bool plain = Shape::plain;
  static_assert(d % 64 == 0 && tile_n % 16 == 0 && stages >= 2);
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
