// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the host side of both kernels for short sequences shares.
#pragma once

#include <attikos/abi/attention_cuda.hpp>

#include "common/limits.cuh"
#include "common/tensor_map.cuh"
#include "params.cuh"
#include "sequences/call.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How long a call's sequences are; of packed ones on average.
struct ShortLengths {
  std::int64_t queries, keys;

  explicit ShortLengths(abi::AttentionArgs const& g) : queries(g.seqlen_q), keys(g.seqlen_kv) {
    std::int64_t const sequences = std::max<std::int64_t>(g.batch, 1);
    if (g.cu_seqlens_q.data != nullptr) queries = (queries + sequences - 1) / sequences;
    if (g.cu_seqlens_kv.data != nullptr) keys = (keys + sequences - 1) / sequences;
  }
};

/// First reason not to take a call that both kernels for short sequences have; null if there is
/// none.
template <class T>
char const* refuse_short(abi::AttentionArgs const& g) {
  if (g.type != TensorMapElement<T>::dtype || g.type_out != g.type)
    return "it takes other element types";
  if (char const* reason = abi::beyond(g, abi::short_attention_options)) return reason;
  if (!(g.softmax_scale > 0)) return "softmax_scale is not positive";
  if (has_negative_extent(g)) return "an extent is negative";
  if (is_empty(g)) return nullptr;
  if (g.head_dim > 128 || g.head_dim_v > 128) return "head_dim is above 128";
  if (g.head_dim % 8 != 0 || g.head_dim_v % 8 != 0) return "head_dim is not a multiple of 8";
  if (g.heads_kv == 0) return "k and v have no heads";
  if (char const* reason = refuse_extents(g)) return reason;
  constexpr int smallest_tile = 16;
  if (char const* reason = refuse_tiles(most_tiles(g, smallest_tile), most_blocks_x)) return reason;
  if (g.out == nullptr) return "q, k, v or out is a null pointer";
  return nullptr;
}

/// What both kernels are told, for tiles of 16·warps queries and `keys` keys at a time.
inline ShortParams short_params(abi::AttentionArgs const& g, int warps, int keys) {
  bool const packed = g.cu_seqlens_q.data != nullptr;
  std::int64_t const tile = 16 * warps;
  std::int64_t const tiles =
      packed ? g.seqlen_q / tile + g.batch + 2 : (g.seqlen_q + tile - 1) / tile;
  ShortParams p{};
  p.args = g;
  p.splits = 1;
  p.tiles = static_cast<int>(tiles);
  p.group = static_cast<int>(g.heads_q / g.heads_kv);
  p.warps = warps, p.keys = keys;
  p.units = static_cast<unsigned>((packed ? 1 : g.batch) * g.heads_q * tiles);
  plan_window(g, p);
  p.scale = static_cast<float>(g.softmax_scale);
  p.vectors = stores_groups(g, 8);
  return p;
}

/// The native head dimension.
inline int short_head_dim(abi::AttentionArgs const& g) {
  std::int64_t const d = std::max(g.head_dim, g.head_dim_v);
  return d <= 32 ? 32 : d <= 64 ? 64 : 128;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
