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
};

/// Two warpgroups share a tile of 128 keys, 64 each, and go through tiles of queries.
template <class T, class Shape>
struct Sm90BackwardConfig {
  using Element = T;
  static constexpr int d = Shape::d, tile_q = Shape::tile_q, tile_kv = 128, consumers = 2;
  static constexpr bool terms = Shape::terms;
  /// Of dq, a warpgroup has 64 queries; else all, and half of the features.
  static constexpr bool splits_queries = tile_q == 128;
  /// No registers for the next scores beside gradients of scores.
  static constexpr bool scores_late = tile_q == 128 || terms;
  static constexpr int threads = 128 * (1 + consumers);
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr int q_stages = 3, dout_stages = 2;
  /// Score gradients: the next ones are written while products read these.
  static constexpr int ds_stages = 2;
  static constexpr int dq_stages = 1;  ///< sums on their way to memory
  static constexpr int segments = 4;   ///< tiles of keys on their way

  static constexpr int panels = (d + 63) / 64;  ///< of 64 features, 128 bytes a row
  static constexpr int q_bytes = tile_q * panels * 128, kv_bytes = tile_kv * panels * 128;
  static constexpr int ds_bytes = tile_q * tile_kv * 2;
  /// Features of dq that are summed: where warpgroups share them, a panel each.
  static constexpr int dq_d = splits_queries ? d : 64 * panels;
  static constexpr int dq_bytes = tile_q * dq_d / 2 * 4;  ///< of one warpgroup
  static constexpr int row_bytes = 2 * tile_q * 4;
  static constexpr int k_at = 0, v_at = k_at + kv_bytes, q_at = v_at + kv_bytes;
  static constexpr int dout_at = q_at + q_stages * q_bytes;
  static constexpr int ds_at = dout_at + dout_stages * q_bytes;
  static constexpr int dq_at = ds_at + ds_stages * ds_bytes;
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
  std::uint64_t full_segment[Config::segments], empty_segment[Config::segments];
  KeyTile found;                          ///< for the warp that finds tiles
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
