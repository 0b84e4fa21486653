// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the sm_90a attention kernels are told, the shapes that they come in, and which tile of
/// queries is whose.
#pragma once

#include <cuda.h>

#include <attikos/abi/attention.hpp>
#include <cstdint>

#include "lengths.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct Sm90AttentionParams {
  CUtensorMap q, k, v;
  abi::AttentionArgs args;
  int tiles_m;         ///< tiles of queries of one head; slots for them where sequences are packed
  int heads;           ///< pairs of batch and head that tiles are counted for
  int group;           ///< how many of them are worked on together, so that L2 holds their keys
  int group_of_heads;  ///< query heads to a key head
  int window_left, reach;  ///< query i sees keys [i + off - window_left, i + off + reach); -1: open
  int q_steps[2], k_steps[2], v_steps[2];  ///< 0 where the tensor is one for all heads, batches
  int rounds;    ///< pairs of tiles that every block takes first; -1: tiles are of one length
  float scale;   ///< of scores
  bool vectors;  ///< rows of out can be written 16 bytes at a time
};

/// One tile of queries, worked out by the producer and handed on through shared memory. Positions
/// count within the sequence.
struct alignas(16) Sm90AttentionTile {
  int batch;  ///< -1: positions that belong to no sequence
  int head;
  int row0;  ///< first query; -1: there are no more tiles
  int rows;  ///< positions of the sequence that have an output
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

/// A kernel's shape: `Consumers` warpgroups of 64 queries each, blocks of `TileN` keys, head
/// dimensions up to `D`, `Registers` for a thread of a consumer. `Turns`: the warpgroups multiply
/// in turns, so that one's softmax runs beside another's products. `Terms`: scores are more than
/// scale·q·k with a positive scale; twice the instantiations.
template <class T, int D, int Consumers, int TileN, bool Turns, bool Terms = false>
struct Sm90AttentionConfig {
  using Element = T;
  static constexpr int d = D, consumers = Consumers, tile_n = TileN, stages = 2;
  static constexpr bool turns = Turns, terms = Terms;
  /// Registers for a second set of weights: the next ones are made while the product reads these.
  static constexpr bool spare_weights = Consumers == 2;
  static constexpr int tile_m = 64 * Consumers;
  static constexpr int threads = 128 * (1 + Consumers);
  static constexpr int producer_registers = Consumers == 2 ? 24 : 32;
  static constexpr int consumer_registers = Consumers == 2 ? 240 : 160;
  static constexpr int signal_bytes = 640;
  /// Queries of one warpgroup's tile, and a block of keys or values.
  static constexpr int panels = (D + 63) / 64;  ///< of 64 features, 128 bytes a row
  static constexpr int q_bytes = 64 * panels * 128, kv_bytes = TileN * panels * 128;
  /// Places for the queries of a warpgroup: for two tiles where there is room, else for one more
  /// warpgroup than there are.
  static constexpr int q_slots =
      2 * Consumers * q_bytes + 2 * stages * kv_bytes + signal_bytes <= 232448 ? 2 * Consumers
                                                                               : Consumers + 1;
  static constexpr int shared_bytes = q_slots * q_bytes + 2 * stages * kv_bytes + signal_bytes;
  static_assert(D % 16 == 0 && TileN % 16 == 0 && TileN * 128 % 1024 == 0);
  static_assert(shared_bytes <= 232448);
};

/// Barriers of a block and the tiles on their way from the producer to the consumers.
template <class Config>
struct Sm90AttentionSignals {
  std::uint64_t full_k[Config::stages], empty_k[Config::stages];
  std::uint64_t full_v[Config::stages], empty_v[Config::stages];
  std::uint64_t full_q[Config::q_slots], empty_q[Config::q_slots];
  std::uint64_t full_tile[4], empty_tile[4];
  Sm90AttentionTile tile[4];
};

namespace {

/// Which tile a block takes at a step: pair of batch and head `z`, tile `slot`. False: none at this
/// step; `step` becomes -1 where there are no more.
///
/// Tiles of one length go to the blocks in turn, heads in groups whose keys stay in L2. Under a
/// causal mask tile m is m + 1 blocks long, or so: blocks first take pairs of a long and a short
/// tile of a head, which are of one length. The rest is dealt forth and back from the longest on,
/// so that the last tiles are short.
__device__ __forceinline__ bool next_tile(Sm90AttentionParams const& p, int& step, int& z,
                                          int& slot) {
  int const blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  int const now = step++;
  if (p.rounds < 0) {
    int const index = now * blocks + block;
    if (now * blocks >= p.tiles_m * p.heads) step = -1;
    if (index >= p.tiles_m * p.heads) return false;
    int const width = p.group * p.tiles_m;
    int const first = index / width * p.group, in = index % width;
    int const heads = min(p.heads - first, p.group);
    z = first + in % heads;
    slot = p.tiles_m - 1 - in / heads;
    return true;
  }
  int const pairs = (p.tiles_m + 1) / 2;  // of a head; the last is one tile if they are odd
  bool is_long = now % 2 == 0;
  int pair;
  if (now < 2 * p.rounds) {
    // Turned by one place each time: in an odd number of tiles not all pairs are of one length.
    int const round = now / 2, place = block + round % blocks;
    int const unit = round * blocks + (place < blocks ? place : place - blocks);
    z = unit / pairs, pair = unit % pairs;
  } else {
    // The pairs that are left, from pair `begun` of head `head` on, by length: long tiles first.
    int const turn = now - 2 * p.rounds;
    int const taken = p.rounds * blocks, left = p.heads * pairs - taken;
    int const rank = turn * blocks + (turn % 2 == 0 ? block : blocks - 1 - block);
    if (turn * blocks >= 2 * left) step = -1;
    if (rank >= 2 * left) return false;
    is_long = rank < left;
    int const at = is_long ? rank : 2 * left - 1 - rank;
    int const head = taken / pairs, begun = taken % pairs;
    int const partial = begun != 0, whole = p.heads - head - partial;
    if (at < begun * whole) {
      pair = at / whole, z = head + partial + at % whole;
    } else {
      int const heads = whole + partial;
      pair = begun + (at - begun * whole) / heads, z = head + (at - begun * whole) % heads;
    }
  }
  slot = is_long ? p.tiles_m - 1 - pair : pair;
  return is_long || pair != p.tiles_m - 1 - pair;
}

/// Works out a tile; false if there is nothing to do in it.
template <class Config>
__device__ __forceinline__ bool locate_tile(Sm90AttentionParams const& p, int z, int slot,
                                            Sm90AttentionTile& t) {
  abi::AttentionArgs const& g = p.args;
  if (g.cu_seqlens_q.data == nullptr) {
    t.batch = z / static_cast<int>(g.heads_q);
    t.head = z % static_cast<int>(g.heads_q);
    t.row0 = slot * Config::tile_m;
    t.rows = t.len_q = static_cast<int>(g.seqlen_q);
    t.begin_q = 0;
  } else {
    t.head = z;
    // The last segment whose first slot is not past this one; see query_tiles() of the callers.
    int low = 0, high = static_cast<int>(g.batch) + 2;
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      if (packed_boundary(p.args, middle) / Config::tile_m + middle <= slot)
        low = middle;
      else
        high = middle;
    }
    t.begin_q = packed_boundary(p.args, low);
    t.rows = max(0, packed_boundary(p.args, low + 1) - t.begin_q);
    t.row0 = (slot - (t.begin_q / Config::tile_m + low)) * Config::tile_m;
    t.batch = low >= 1 && low <= g.batch ? low - 1 : -1;
    t.len_q = t.batch < 0 ? 0 : t.rows;
  }
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
  int const last_row = min(t.row0 + Config::tile_m, t.len_q) - 1;
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

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
