// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the kernels of attention's gradients are told of a call, and what lies in its workspace.
///
/// Launches follow one another. The first ("prepare") writes what every query brings to all
/// its pairs: the log-sum-exp and the row sum of dout·out. The second walks through tiles of keys,
/// of which each block takes one after the other: dk and dv stay with the block, what a tile adds
/// to dq is added up in float32 in the workspace. The third ("finish") turns these sums into dq.
/// A fourth ("parts") adds up the dk and dv of the parts that a key head's queries are divided
/// into, if they are.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; J. Shah et al., "FlashAttention-3",
/// arXiv:2407.08608.
#pragma once

#include <attikos/abi/attention_backward.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Tiles of `tile_q` queries are numbered through: those of a pair of batch and head one after the
/// other; those of packed sequences by head, sequence b from tile cu_seqlens_q[b] / tile_q + b on.
struct AttentionBackwardParams {
  abi::AttentionBackwardArgs args;
  int tiles_q;         ///< of a pair of batch and head, or of a head of packed sequences
  int tiles_kv;        ///< likewise, of keys
  int groups;          ///< what tiles_kv is counted for
  int group_of_heads;  ///< query heads that a tile of keys meets
  /// Parts of the query heads that share a key head, each of which meets its tiles of keys by
  /// itself. More than one bring their sums of dk and dv to the workspace.
  int parts;
  int window_left, reach;  ///< query i sees keys [i + off - window_left, i + off + reach); -1: open
  float scale, scale_log2;  ///< of scores; the second in units of the base-2 exponent
  float lse_unit;           ///< what rows tell of the log-sum-exp, in units of the base-2 exponent
  bool vectors_dq, vectors_dk, vectors_dv;  ///< rows can be written 16 bytes at a time
  bool vectors_dout, vectors_out;           ///< rows can be read 16 bytes at a time
  bool ordered;                             ///< additions to dq come in a fixed order
  /// Tiles of keys are taken from the last on, each from its first tile of queries on; else from
  /// the first on, each from its last tile of queries on.
  bool from_last;
  int interleaved;  ///< pairs of batch and head whose tiles are taken in turn

  // Workspace. Numbers are doubles where elements are; see numbers_of().
  float* rows;      ///< of each tile of queries: -lse / lse_unit of tile_q queries, then -row sums
  float* dq_sums;   ///< of each tile of queries tile_q × padded head_dim sums; see sums.cuh
  unsigned* turns;  ///< of each tile of queries two: how often its halves were added to
  /// Tiles of keys that blocks have taken; whether no turns are taken; tiles of keys near their
  /// end.
  unsigned* tickets;
  /// Of each part, batch, key head and position a row as wide as those of dq_sums.
  float *dk_sums, *dv_sums;
};

/// Numbers of the workspace of a kernel whose elements are T.
template <class T>
__host__ __device__ auto numbers_of(float* from) {
  if constexpr (std::is_same_v<T, double>)
    return reinterpret_cast<double*>(from);
  else
    return from;
}

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
