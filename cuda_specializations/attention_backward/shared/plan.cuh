// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Host side that kernels of attention's gradients share: what they refuse, what they are told of a
/// call, and how they divide its workspace.
#pragma once

#include <cuda_runtime_api.h>

#include <attikos/abi/device.hpp>

#include "params.cuh"
#include "sequences/call.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Sizes that follow from a call's extents. `tile_q`, `tile_kv`: of the kernel; `padded`: the
/// head_dim that it works with.
struct BackwardSizes {
  std::int64_t tiles_q, tiles_kv;                     ///< see AttentionBackwardParams
  std::int64_t groups_q, groups_kv;                   ///< what they are counted for, with parts
  std::int64_t parts;                                 ///< see AttentionBackwardParams
  std::int64_t rows, dq_sums, turns, tickets, bytes;  ///< places in the workspace, and its size
  std::int64_t dk_sums, dv_sums;
};

inline BackwardSizes backward_sizes(abi::AttentionArgs const& g, std::int64_t tile_q,
                                    std::int64_t tile_kv, std::int64_t padded,
                                    std::int64_t parts = 1) {
  std::int64_t const number = g.type == DType::float64 ? 8 : 4;  // bytes
  auto const tiles = [&](bool packed, std::int64_t positions, std::int64_t rows) {
    return packed ? positions / rows + g.batch : (positions + rows - 1) / rows;
  };
  bool const packed_q = g.cu_seqlens_q.data != nullptr;
  bool const packed_kv = g.cu_seqlens_kv.data != nullptr;
  BackwardSizes s{};
  s.tiles_q = tiles(packed_q, g.seqlen_q, tile_q);
  s.tiles_kv = tiles(packed_kv, g.seqlen_kv, tile_kv);
  s.groups_q = (packed_q ? 1 : g.batch) * g.heads_q;
  s.parts = parts;
  s.groups_kv = (packed_kv ? 1 : g.batch) * g.heads_kv * parts;
  std::int64_t const all = s.tiles_q * s.groups_q;
  auto const up = [](std::int64_t bytes) { return (bytes + 255) / 256 * 256; };
  s.dq_sums = 0;
  s.rows = s.dq_sums + up(all * tile_q * padded * number);
  s.turns = s.rows + up(all * 2 * tile_q * number);
  s.tickets = s.turns + up(all * 2 * 4);
  s.dk_sums = s.tickets + 256;
  std::int64_t const of_keys =
      parts > 1 ? up(s.groups_kv * g.seqlen_kv * padded * std::int64_t{sizeof(float)}) : 0;
  s.dv_sums = s.dk_sums + of_keys;
  s.bytes = s.dv_sums + of_keys + 256;  // from the first multiple of 256 on
  return s;
}

/// First reason for which no kernel that knows these options takes a call, wherever its tensors
/// lie; null if one may.
inline char const* refuse_any_backward(abi::AttentionBackwardArgs const& a,
                                       abi::AttentionOptionSet known) {
  abi::AttentionArgs const& g = a.forward;
  if (g.type_out != g.type) return "it takes out in the element type of q only";
  if (char const* reason = abi::beyond(g, known)) return reason;
  if (a.d_bias != nullptr && g.bias == nullptr) return "the gradient of a bias has no bias";
  if (a.d_sinks != nullptr && g.sinks == nullptr) return "the gradient of sinks has no sinks";
  if (has_negative_extent(g)) return "an extent is negative";
  // What is left to do is to clear gradients, or nothing.
  if (is_empty(g) || g.seqlen_kv == 0 || g.heads_kv == 0 || g.batch == 0)
    return "there are no pairs of queries and keys";
  return refuse_extents(g);
}

/// Why kernels that go through tiles of keys cannot have so many; null if they can. The first
/// launch has up to four blocks for a tile.
inline char const* refuse_backward_tiles(BackwardSizes const& s) {
  return refuse_tiles(std::max(s.tiles_q * s.groups_q, s.tiles_kv * s.groups_kv), (1 << 28) - 1);
}

/// Which of its tensors a call has to have; null if they are all there.
inline char const* refuse_missing_tensors(abi::AttentionBackwardArgs const& a) {
  abi::AttentionArgs const& g = a.forward;
  if (g.lse == nullptr) return "lse is a null pointer";
  for (void const* data :
       {g.q, g.k, g.v, static_cast<void const*>(g.out), a.dout, static_cast<void const*>(a.dq),
        static_cast<void const*>(a.dk), static_cast<void const*>(a.dv)})
    if (data == nullptr) return "a tensor is a null pointer";
  return nullptr;
}

/// Fills what kernels are told of a call. `resident`: blocks that the device works on at a time.
inline void plan_backward(abi::AttentionBackwardArgs const& a, BackwardSizes const& s,
                          std::int64_t resident, AttentionBackwardParams& p) {
  abi::AttentionArgs const& g = a.forward;
  p.args = a;
  p.tiles_q = static_cast<int>(s.tiles_q);
  p.tiles_kv = static_cast<int>(s.tiles_kv);
  p.groups = static_cast<int>(s.groups_kv);
  p.parts = static_cast<int>(s.parts);
  p.group_of_heads = static_cast<int>(g.heads_q / g.heads_kv / s.parts);
  plan_window(g, p);
  p.scale = static_cast<float>(g.softmax_scale);
  p.scale_log2 = static_cast<float>(g.softmax_scale * 1.4426950408889634);
  StoredExtents const extents(g);
  std::int64_t const out[4] = {extents.q[0], g.heads_q, g.seqlen_q, g.head_dim_v};
  int const size = dtype_size(g.type);
  auto const in_vectors = [=](void const* data, std::int64_t const(&extent)[4],
                              std::int64_t const(&stride)[4]) {
    if (extent[3] * size % 16 != 0) return false;
    return size == 2   ? rows_in_groups<std::uint16_t>(data, extent, stride)
           : size == 4 ? rows_in_groups<float>(data, extent, stride)
                       : rows_in_groups<double>(data, extent, stride);
  };
  p.vectors_dq = in_vectors(a.dq, extents.q, a.dq_stride);
  p.vectors_dk = in_vectors(a.dk, extents.k, a.dk_stride);
  p.vectors_dv = in_vectors(a.dv, extents.v, a.dv_stride);
  p.vectors_dout = in_vectors(a.dout, out, a.dout_stride);
  p.vectors_out = in_vectors(g.out, out, g.out_stride);
  p.ordered = a.ordered;
  // In a fixed order, tiles of keys wait for each other at queries that they share, few under a
  // causal mask where each starts at the diagonal. Else those that take longest come first.
  p.from_last =
      a.ordered && p.reach >= 0 && s.tiles_kv <= 64 && p.group_of_heads == 1 && s.parts == 1;
  // As many pairs of batch and head at a time as L2 holds queries and sums of; more where tiles of
  // keys are few and long, or wait for each other.
  std::int64_t const bytes = std::max<std::int64_t>(1, g.seqlen_q * g.head_dim * 4 * size);
  std::int64_t pairs = std::clamp<std::int64_t>((std::int64_t{12} << 20) / bytes, 1, 64);
  if (a.ordered) pairs = std::max<std::int64_t>(pairs, 4);
  if (s.tiles_kv * s.groups_kv < 6 * resident) pairs = std::max<std::int64_t>(pairs, 16);
  // Parts are there to keep blocks busy to the end: the longest of all come first.
  if (s.parts > 1) pairs = s.groups_kv;
  p.interleaved = static_cast<int>(std::min(pairs, s.groups_kv));
  auto* const workspace = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(a.workspace) + 255) / 256 * 256);
  p.dq_sums = reinterpret_cast<float*>(workspace + s.dq_sums);
  p.rows = reinterpret_cast<float*>(workspace + s.rows);
  p.turns = reinterpret_cast<unsigned*>(workspace + s.turns);
  p.tickets = reinterpret_cast<unsigned*>(workspace + s.tickets);
  p.dk_sums = reinterpret_cast<float*>(workspace + s.dk_sums);
  p.dv_sums = reinterpret_cast<float*>(workspace + s.dv_sums);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
