// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What kernels that take attention by tiles of one head's queries are told, and which tile is
/// whose.
#pragma once

#include <attikos/abi/attention.hpp>
#include <cstdint>
#include <type_traits>

#include "sequences/lengths.cuh"
#include "sequences/score_math.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct AttentionParams {
  abi::AttentionArgs args;
  int tiles_m;         ///< tiles of queries of one head; slots for them where sequences are packed
  int heads;           ///< pairs of batch and heads that tiles are counted for
  int pack_shift;      ///< log2 of the heads, neighbours that share a key head, of a tile
  int group;           ///< how many of them are worked on together, so that L2 holds their keys
  int group_of_heads;  ///< query heads to a key head
  int window_left, reach;  ///< query i sees keys [i + off - window_left, i + off + reach); -1: open
  float scale;             ///< of scores
  bool vectors;            ///< rows of out can be written 16 bytes at a time
};

/// One tile of queries. Positions count within the sequence.
struct alignas(16) AttentionTile {
  int batch;  ///< -1: positions that belong to no sequence
  int head;   ///< the first where it has rows of more
  int row0;   ///< first query; -1: there are no more tiles
  int rows;   ///< positions of the sequence that have an output
  int begin_q, begin_kv;
  int len_q, len_kv;
  int offset;  ///< query i stands where key i + offset stands
  int reach, window_left;
  int first, end;     ///< blocks of keys that some query of the tile sees
  int whole_from;     ///< blocks before this one have keys that stand left of a window
  int whole_end;      ///< blocks from this one on have keys that some query must not see
  int poisoned_tail;  ///< the last block has keys past the length, whose values may be anything

  /// Query i < len_q sees keys [seen_from(i), seen_end(i)); others, which are not stored, too.
  __device__ __forceinline__ int seen_end(int i) const {
    return max(0, min(i + offset + reach, len_kv));
  }
  __device__ __forceinline__ int seen_from(int i) const { return max(0, i + offset - window_left); }
};

/// The factors of float8 elements of a tile's head.
struct TileFactors {
  float scale;        ///< of products of queries and keys, the softmax's scale included
  float value_scale;  ///< of values
};

/// A tile, and where the results of its first query go.
struct AttentionResultTile : AttentionTile {
  void* out;
  float* lse;  ///< null: nowhere
};

namespace {

/// Adds to a tile where its results go. Elements of out have 16 bits, whatever the type of queries.
__device__ __forceinline__ void add_results(AttentionParams const& p, AttentionResultTile& t) {
  abi::AttentionArgs const& g = p.args;
  std::int64_t const b = max(t.batch, 0), h = t.head, row = std::int64_t{t.begin_q} + t.row0;
  t.out = static_cast<std::uint16_t*>(g.out) + b * g.out_stride[0] + h * g.out_stride[1] +
          row * g.out_stride[2];
  t.lse = g.lse == nullptr ? nullptr
                           : static_cast<float*>(g.lse) + b * g.lse_stride[0] +
                                 h * g.lse_stride[1] + row * g.lse_stride[2];
}

/// ALiBi's slope in a tile, in units of the base-2 exponent.
__device__ __forceinline__ float slope_of(AttentionParams const& p, AttentionTile const& t) {
  abi::AttentionArgs const& g = p.args;
  if (g.alibi == nullptr || t.batch < 0) return 0.0f;
  return g.alibi[t.batch * g.alibi_stride[0] + t.head * g.alibi_stride[1]] * log2_e;
}

/// What a product of a query and a key of the tile is multiplied by.
template <class Tile>
__device__ __forceinline__ float scale_of(AttentionParams const& p, Tile const& t) {
  if constexpr (std::is_base_of_v<TileFactors, Tile>)
    return t.scale;
  else
    return p.scale;
}

/// The factors of a tile of a call.
__device__ __forceinline__ TileFactors find_factors(AttentionParams const& p,
                                                    AttentionTile const& t) {
  abi::AttentionArgs const& g = p.args;
  auto const factor = [&](float const* of, std::int64_t const(&stride)[2]) {
    if (of == nullptr || t.batch < 0) return 1.0f;
    return of[t.batch * stride[0] + t.head / p.group_of_heads * stride[1]];
  };
  return {
      p.scale * factor(g.descale_q, g.descale_q_stride) * factor(g.descale_k, g.descale_k_stride),
      factor(g.descale_v, g.descale_v_stride)};
}

/// Pair of batch and head and tile of number `index`: the tiles of a group of heads in turn, those
/// at the end, which under a causal mask are the longest, first. The first `without` tiles of each
/// head are left out.
__device__ __forceinline__ void tile_of_index(AttentionParams const& p, int index, int& z,
                                              int& slot, int without = 0) {
  int const width = p.group * (p.tiles_m - without);
  int const first = index / width * p.group, in = index % width;
  int const heads = min(p.heads - first, p.group);
  z = first + in % heads;
  slot = p.tiles_m - 1 - in / heads;
}

/// What a tile has of segment `segment` of packed sequences; see packed_boundary().
__device__ __forceinline__ void enter_segment(AttentionParams const& p, int segment,
                                              AttentionTile& t) {
  t.begin_q = packed_boundary(p.args, segment);
  t.rows = max(0, packed_boundary(p.args, segment + 1) - t.begin_q);
  t.batch = segment >= 1 && segment <= p.args.batch ? segment - 1 : -1;
  t.len_q = t.batch < 0 ? 0 : t.rows;
}

/// Works out which queries tile `slot` of pair of batch and heads `z` has, `Config::tile_m` rows of
/// 2^shift heads.
template <class Config>
__device__ __forceinline__ void locate_queries(AttentionParams const& p, int z, int slot,
                                               AttentionTile& t, int shift = 0) {
  abi::AttentionArgs const& g = p.args;
  if (g.cu_seqlens_q.data == nullptr) {
    int const heads = static_cast<int>(g.heads_q) >> shift;
    t.batch = z / heads;
    t.head = z % heads << shift;
    t.row0 = slot * Config::tile_m >> shift;
    t.rows = t.len_q = static_cast<int>(g.seqlen_q);
    t.begin_q = 0;
  } else {
    t.head = z << shift;
    // The last segment whose first slot is not past this one; see query_tiles() of the callers.
    int low = 0, high = static_cast<int>(g.batch) + 2;
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      if ((packed_boundary(p.args, middle) << shift) / Config::tile_m + middle <= slot)
        low = middle;
      else
        high = middle;
    }
    enter_segment(p, low, t);
    t.row0 = (slot - ((t.begin_q << shift) / Config::tile_m + low)) * Config::tile_m >> shift;
  }
}

/// Works out which keys the queries of a tile see, of which where they are is known. False if there
/// is nothing to do in it. A tile has `Config::tile_m` rows of 2^shift heads.
template <class Config>
__device__ __forceinline__ bool place_keys(AttentionParams const& p, AttentionTile& t,
                                           int shift = 0) {
  abi::AttentionArgs const& g = p.args;
  if (t.row0 >= t.rows) return false;
  int const b = t.batch, h = t.head, h_kv = h / p.group_of_heads;
  int const seqlen_kv = static_cast<int>(g.seqlen_kv);
  t.begin_kv = 0;
  t.len_kv = b < 0 ? 0 : seqlen_kv;
  if (b >= 0) {
    if (g.lengths_q != nullptr)
      t.len_q =
          clamped(g.lengths_q[b * g.lengths_q_stride[0] + h * g.lengths_q_stride[1]], 0, t.len_q);
    cut_keys(g, b, h_kv, seqlen_kv, t.begin_kv, t.len_kv);
  }
  t.offset = g.causal_alignment == CausalAlignment::bottom_right ? t.len_kv - t.len_q : 0;
  int const everything = t.len_q + t.len_kv + 1;
  t.reach = p.reach < 0 || p.reach > everything ? everything : p.reach;
  t.window_left = p.window_left < 0 || p.window_left > everything ? everything : p.window_left;
  int const last_row = min(t.row0 + (Config::tile_m >> shift), t.len_q) - 1;
  t.first = t.end = t.whole_from = t.whole_end = t.poisoned_tail = 0;
  if (last_row < t.row0) return true;
  int const end = t.seen_end(last_row);
  t.first = t.seen_from(t.row0) / Config::tile_n;
  t.end = (end + Config::tile_n - 1) / Config::tile_n;
  t.whole_from = (t.seen_from(last_row) + Config::tile_n - 1) / Config::tile_n;
  t.whole_end = t.seen_end(t.row0) / Config::tile_n;
  t.poisoned_tail = t.end * Config::tile_n > t.len_kv && t.begin_kv + t.len_kv < seqlen_kv;
  return true;
}

/// Works out a tile; false if there is nothing to do in it.
template <class Config>
__device__ __forceinline__ bool locate_tile(AttentionParams const& p, int z, int slot,
                                            AttentionTile& t) {
  locate_queries<Config>(p, z, slot, t);
  return place_keys<Config>(p, t);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
