// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Host side that kernels which take attention by tiles of one head's queries share: what none of
/// them takes, and what they are told of a call.
#pragma once

#include <cuda_runtime_api.h>

#include <attikos/abi/attention_cuda.hpp>

#include "common/check.cuh"
#include "sequences/call.cuh"
#include "tile.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Why no kernel with tiles of `rows` queries takes a call that is not empty, for its extents or
/// because q or out is not there; null if one may.
inline char const* refuse_tile_extents(abi::AttentionArgs const& g, int rows) {
  if (char const* reason = refuse_extents(g)) return reason;
  if (g.page_size >= most_positions) return "an extent is too large";
  if (char const* reason = refuse_tiles(most_tiles(g, rows))) return reason;
  return g.q == nullptr || g.out == nullptr ? "q or out is a null pointer" : nullptr;
}

/// Why no kernel that takes these options takes a call, whatever the device; null if one may.
inline char const* refuse_any_attention(abi::AttentionArgs const& g,
                                        abi::AttentionOptionSet takes) {
  if (char const* reason = abi::beyond(g, takes)) return reason;
  if (char const* reason = refuse_bias_type(g, g.type == DType::float64)) return reason;
  if (has_negative_extent(g)) return "an extent is negative";
  if (is_empty(g)) return nullptr;
  if (g.heads_kv == 0 && g.seqlen_kv != 0) return "k and v have no heads";
  if (g.page_table != nullptr && g.page_size == 0) return "page_size is 0";
  if (g.num_pages >= most_positions) return "an extent is too large";
  if (char const* reason = refuse_tile_extents(g, 64)) return reason;
  if (g.heads_kv != 0 && g.seqlen_kv != 0 && (g.k == nullptr || g.v == nullptr))
    return "k or v is a null pointer";
  return nullptr;
}

/// Why no kernel from sm_80 on takes such a call; null if one may.
inline char const* refuse_any_attention(abi::AttentionArgs const& g, abi::Device const& device,
                                        abi::AttentionOptionSet takes) {
  if (char const* reason = refuse_before_sm80(device)) return reason;
  return refuse_any_attention(g, takes);
}

/// Why kernels of 8- and 16-bit tiles, which go through the keys `times` times, each for 256
/// features of v, cannot work with a call's head dims; null if they can.
inline char const* refuse_head_dims(abi::AttentionArgs const& g, int times = 2) {
  if (is_empty(g)) return nullptr;
  if (g.head_dim > 256) return "head_dim is above 256";
  if (g.head_dim_v <= 256 * times) return nullptr;
  return times == 1 ? "head_dim of v is above 256" : "head_dim of v is above 512";
}

/// What a kernel with tiles of `tile_m` queries of 2^shift heads is told of a call. `resident`:
/// tiles that the device works on at a time. As many heads are worked on together as that takes:
/// tiles that read the same keys and values do so together, and no more of both, of `element_bytes`
/// each, than L2 holds. Returns the bytes of a head's keys and values.
inline std::int64_t plan_attention(abi::AttentionArgs const& g, std::int64_t tile_m,
                                   std::int64_t resident, int element_bytes, AttentionParams& p,
                                   int shift = 0) {
  p.args = g;
  bool const packed_q = g.cu_seqlens_q.data != nullptr;
  std::int64_t const rows = g.seqlen_q << shift, slots = rows / tile_m + g.batch + 2;
  p.tiles_m = static_cast<int>(packed_q ? slots : (rows + tile_m - 1) / tile_m);
  p.heads = static_cast<int>((packed_q ? g.heads_q : g.batch * g.heads_q) >> shift);
  p.pack_shift = shift;
  p.group_of_heads = static_cast<int>(g.heads_kv == 0 ? 1 : g.heads_q / g.heads_kv);
  plan_window(g, p);
  p.scale = static_cast<float>(g.softmax_scale);
  std::int64_t const bytes =
      std::max<std::int64_t>(1, g.seqlen_kv * (g.head_dim + g.head_dim_v) * element_bytes);
  std::int64_t const fitting = std::max<std::int64_t>(1, (std::int64_t{32} << 20) / bytes);
  std::int64_t const at_once = std::max<std::int64_t>(
      1, std::min<std::int64_t>(std::int64_t{p.tiles_m} * p.heads, resident));
  // So many tiles read the same keys.
  int const sharing = std::max(1, p.group_of_heads >> shift);
  std::int64_t const needed = ((at_once + p.tiles_m - 1) / p.tiles_m + sharing - 1) / sharing;
  p.group = static_cast<int>(std::min<std::int64_t>(p.heads, std::min(fitting, needed) * sharing));
  p.vectors = stores_groups(g, 8);
  return bytes;
}

/// Calls `launch` for every `most` features of values, each with a launch of its own, which weighs
/// them anew. `T`, `Out`: types of v and out.
template <class T, class Out = T, class Launch>
cudaError_t launch_by_features(abi::AttentionArgs const& g, std::int64_t most,
                               Launch const& launch) {
  for (std::int64_t first = 0; first < g.head_dim_v; first += most) {
    abi::AttentionArgs part = g;
    part.head_dim_v = std::min(g.head_dim_v - first, most);
    part.v = static_cast<T const*>(g.v) + first * g.v_stride[3];
    part.out = static_cast<Out*>(g.out) + first * g.out_stride[3];
    if (first != 0) part.lse = nullptr;
    cudaError_t const status = launch(part);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
