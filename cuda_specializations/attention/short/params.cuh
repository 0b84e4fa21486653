// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the kernels for short sequences are told, how their rows lie in shared memory, and which
/// queries are whose.
#pragma once

#include "sequences/row_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// `group`, `window_left`, `reach` and `scale` as in decode. `tiles`: of a head's queries; slots
/// for them where q is packed. `vectors`: rows of out can be written 8 elements at a time.
struct ShortParams : DecodeParams {
  int warps;       ///< that share a tile, each with 16 queries
  int keys;        ///< of a sequence that shared memory holds at a time
  unsigned units;  ///< tiles in all
};

/// Rows of `D` elements of shared memory have their 16 bytes permuted, so that the 8 rows which a
/// load of matrices takes, and those that a copy writes, lie in different banks.
template <class T, int D>
struct ShortRows {
  using Element = T;
  static constexpr int d = D, chunks = D / 8, row_bytes = 2 * D;
  static constexpr int rows_at_once = 32 / chunks;  ///< by one copy of a warp

  /// What row r does to the offset of a chunk, by exclusive or.
  __host__ __device__ static constexpr std::uint32_t swizzle(int r) {
    return static_cast<std::uint32_t>(chunks >= 8 ? r & 7 : r >> 1 & 3) << 4;
  }
  /// Offset of 16 bytes number c of row r.
  __device__ static std::uint32_t place(int r, int c) {
    return static_cast<std::uint32_t>(r * row_bytes) +
           (static_cast<std::uint32_t>(c << 4) ^ swizzle(r));
  }
};

namespace {

/// Queries of one head. Positions count within the sequence.
struct alignas(16) ShortTile {
  int batch;  ///< -1: positions that belong to no sequence
  int head;
  int row0;  ///< first query
  int rows;  ///< positions of the sequence that have an output
  int begin_q, begin_kv;
  int len_q, len_kv;
  int end, from;  ///< query i sees keys [i + from, i + end), as far as there are any

  __device__ __forceinline__ int seen_end(int i) const { return max(0, min(i + end, len_kv)); }
  __device__ __forceinline__ int seen_from(int i) const { return max(0, i + from); }
  /// Where the keys end that some of `count` queries from i on see.
  __device__ __forceinline__ int last_end(int i, int count) const {
    return i < len_q ? seen_end(min(i + count, len_q) - 1) : 0;
  }
};

/// Works out tile number `unit`, by all lanes of a warp. Where queries are packed, segment e has
/// the slots from begin/tile + e on, of which it needs no more than there are up to the next one's.
__device__ __forceinline__ ShortTile locate_short(ShortParams const& p, unsigned unit) {
  abi::AttentionArgs const& g = p.args;
  int const tile = 16 * p.warps;
  int slot = 0;
  if (p.tiles > 1) {
    slot = static_cast<int>(unit % static_cast<unsigned>(p.tiles));
    unit /= static_cast<unsigned>(p.tiles);
  }
  // Heads are neighbours: they may lie side by side.
  auto const heads = static_cast<unsigned>(g.heads_q);
  ShortTile t;
  t.batch = static_cast<int>(unit / heads);
  t.head = static_cast<int>(unit - static_cast<unsigned>(t.batch) * heads);
  t.row0 = slot * tile;
  t.rows = static_cast<int>(g.seqlen_q);
  t.begin_q = t.begin_kv = 0;
  if (g.cu_seqlens_q.data != nullptr) {
    // The last segment whose first slot is not past this one: 32 of them looked at in one go.
    int low = 0, high = static_cast<int>(g.batch) + 2;
    while (high - low > 1) {
      int const apart = (high - low + 31) / 32;
      int const e = low + static_cast<int>(threadIdx.x) % 32 * apart;
      bool const before = e < high && packed_boundary(g, e) / tile + e <= slot;
      low += (__popc(__ballot_sync(0xffffffff, before)) - 1) * apart;
      high = min(high, low + apart);
    }
    t.begin_q = packed_boundary(g, low);
    t.rows = max(0, packed_boundary(g, low + 1) - t.begin_q);
    t.row0 = (slot - (t.begin_q / tile + low)) * tile;
    t.batch = low >= 1 && low <= g.batch ? low - 1 : -1;
  }
  t.len_q = t.batch < 0 ? 0 : t.rows;
  t.len_kv = t.batch < 0 ? 0 : static_cast<int>(g.seqlen_kv);
  if (t.batch >= 0) {
    if (g.lengths_q != nullptr)
      t.len_q =
          clamped(g.lengths_q[t.batch * g.lengths_q_stride[0] + t.head * g.lengths_q_stride[1]], 0,
                  t.len_q);
    if (g.lengths_kv != nullptr || g.cu_seqlens_kv.data != nullptr)
      cut_keys(g, t.batch, t.head / p.group, static_cast<int>(g.seqlen_kv), t.begin_kv, t.len_kv);
  }
  int const offset = g.causal_alignment == CausalAlignment::bottom_right ? t.len_kv - t.len_q : 0;
  int const everything = t.len_q + t.len_kv + 1;
  t.end = offset + (p.reach < 0 || p.reach > everything ? everything : p.reach);
  t.from = offset - (p.window_left < 0 || p.window_left > everything ? everything : p.window_left);
  return t;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
