// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Shapes, parameters and shared memory of the sm_90a kernels of attention's gradients.
#pragma once

#include <cuda.h>

#include "attention_backward/shared/tiles.cuh"
#include "common/limits.cuh"
#include "common/ring.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct Sm90BackwardParams : AttentionBackwardParams {
  CUtensorMap q, dout, k, v;
  int q_steps[2], dout_steps[2], k_steps[2], v_steps[2];  ///< per head and batch; 0: shared
  int works;                                              ///< tiles of keys of all heads
  /// Tiles of queries that a tile of keys has left when it is near its end, which the next round
  /// waits for; 0: rounds do not wait. See near_end_of().
  int near_end;
};

/// Head dimensions up to 128: two warpgroups share a tile of 128 keys, 64 each, and go through
/// tiles of queries.
template <class T, class Shape>
struct Sm90BackwardConfig {
  using Element = T;
  static constexpr int d = Shape::d, tile_q = Shape::tile_q, tile_kv = 128, consumers = 2;
  static constexpr bool terms = Shape::terms;
  /// Whether both warpgroups have the same keys.
  static constexpr bool shares_keys = false;
  /// Of dq, a warpgroup has 64 queries; else all, and half of the features.
  static constexpr bool splits_queries = tile_q == 128;
  /// No registers for the next scores beside gradients of scores.
  static constexpr bool scores_late = tile_q == 128 || terms;
  static constexpr bool keeps_no_thread = tile_q == 128;
  /// Which pairs do not exist stays known until their gradients are there. Where there are no
  /// registers for that, weights of 0 say it.
  static constexpr bool keeps_hidden = tile_q == 64 || d == 32;
  static constexpr int threads = 128 * (1 + consumers);
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr int q_stages = 3, dout_stages = 2;
  /// Score gradients: the next ones are written while products read these.
  static constexpr int ds_stages = 2;
  static constexpr int dq_stages = 1;  ///< sums on their way to memory
  static constexpr int dq_parts = 1;   ///< that a warpgroup hands over one after the other
  static constexpr int segments = 4;   ///< tiles of keys on their way
  /// Warps that release a stage of queries, and of dout, and that fill one of score gradients.
  static constexpr int q_warps = 4 * consumers, dout_warps = q_warps, ds_warps = q_warps;

  static constexpr int panels = (d + 63) / 64, v_panels = panels;  ///< 64 features, 128 bytes a row
  static constexpr int q_bytes = tile_q * panels * 128, k_bytes = tile_kv * panels * 128;
  static constexpr int dout_bytes = q_bytes, v_bytes = k_bytes;
  static constexpr int ds_bytes = tile_q * tile_kv * 2;
  /// Features of dq that are summed: where warpgroups share them, a panel each.
  static constexpr int dq_d = splits_queries ? d : 64 * panels;
  static constexpr int dq_bytes = tile_q * dq_d / 2 * 4;  ///< of one warpgroup
  static constexpr int row_bytes = 2 * tile_q * 4;
  static constexpr int k_at = 0, v_at = k_at + k_bytes, q_at = v_at + v_bytes;
  static constexpr int dout_at = q_at + q_stages * q_bytes;
  static constexpr int ds_at = dout_at + dout_stages * dout_bytes;
  static constexpr int dq_at = ds_at + ds_stages * ds_bytes;
  static constexpr int rows_at = dq_at + dq_stages * consumers * dq_bytes;
  static constexpr int signals_at = rows_at + q_stages * row_bytes;
};

/// Head dimensions above 128: two warpgroups share a tile of 64 keys. One has its scores, weights
/// and dv, the other its dout·v, gradients of scores and dk. See wide_consumer.cuh.
template <class T, class Shape>
struct Sm90WideBackwardConfig {
  using Element = T;
  static constexpr int d = Shape::d, d_v = Shape::d_v, tile_q = 64, tile_kv = 64, consumers = 2;
  static constexpr bool terms = Shape::terms, shares_keys = true, keeps_no_thread = true;
  static constexpr int threads = 128 * (1 + consumers);
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr int q_stages = 2, dout_stages = d > 192 ? 1 : 2, segments = 4;
  static constexpr int q_warps = 4, dout_warps = 4, ds_warps = 4;

  static constexpr int panels = d / 64, v_panels = d_v / 64;  ///< 64 features, 128 bytes a row
  static constexpr int q_bytes = tile_q * panels * 128, k_bytes = tile_kv * panels * 128;
  static constexpr int dout_bytes = tile_q * v_panels * 128, v_bytes = tile_kv * v_panels * 128;
  static constexpr int ds_bytes = tile_q * tile_kv * 2;
  static constexpr int dq_d = d;
  /// Half of the features of dq is a warpgroup's, which it hands over 32 at a time.
  static constexpr int dq_parts = d / 64, dq_bytes = tile_q * 32 * 4;
  static constexpr int dq_stages = d > 192 ? 2 : 3;
  static constexpr int row_bytes = 2 * tile_q * 4;
  static constexpr int k_at = 0, v_at = k_at + k_bytes, q_at = v_at + v_bytes;
  static constexpr int dout_at = q_at + q_stages * q_bytes;
  static constexpr int ds_at = dout_at + dout_stages * dout_bytes;
  static constexpr int weights_at = ds_at + ds_bytes;
  static constexpr int dq_at = weights_at + ds_bytes;
  static constexpr int rows_at = dq_at + dq_stages * consumers * dq_bytes;
  static constexpr int signals_at = rows_at + q_stages * row_bytes;
};

/// Barriers of a block and the tiles of keys on their way from the producer.
template <class Config>
struct Sm90BackwardSignals {
  std::uint64_t wanted, full_kv, empty_kv;
  std::uint64_t full_q[Config::q_stages], empty_q[Config::q_stages];
  std::uint64_t full_dout[Config::dout_stages], empty_dout[Config::dout_stages];
  std::uint64_t full_dq[Config::consumers][Config::dq_stages];
  std::uint64_t empty_dq[Config::consumers][Config::dq_stages];
  std::uint64_t full_ds[2], empty_ds[2];
  std::uint64_t full_weights;
  std::uint64_t full_segment[Config::segments], empty_segment[Config::segments];
  KeyTile found;                          ///< for the warp that finds tiles
  int work, head;                         ///< its number, and the first query head that it meets
  KeyTileHead segment[Config::segments];  ///< key0 < 0: there are no more
};

template <class Config>
constexpr int sm90_backward_shared_bytes() {
  constexpr int bytes = Config::signals_at + static_cast<int>(sizeof(Sm90BackwardSignals<Config>));
  static_assert(bytes <= sm90_shared_bytes);
  return bytes;
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
