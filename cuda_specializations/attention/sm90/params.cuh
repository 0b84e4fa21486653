// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the sm_90a attention kernels are told, the shapes that they come in, and which tile a block
/// takes.
#pragma once

#include <cuda.h>

#include <attikos/abi/attention.hpp>
#include <cstdint>
#include <type_traits>

#include "attention/shared/tile.cuh"
#include "common/limits.cuh"
#include "common/quotient.cuh"
#include "ptx/registers.cuh"
#include "ptx/thread_index.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// The forms of scores that have a shortcut from products to weights.
enum class ScoreForm : int {
  general,
  capped  ///< cap·tanh(scale / cap·s)
};

/// cap·tanh(scale / cap·s) in units of the base-2 exponent as s·P(s² + shift), P of degree 2, to
/// 2^-19.6 of itself as long as the float s² + shift has the given exponent bits.
struct CapSeries {
  float factor[3], shift;
  std::uint32_t exponent;
};

struct Sm90AttentionParams : AttentionParams {
  CUtensorMap q, k, v, bias;
  /// 0 where the tensor is one for all heads, batches.
  int q_steps[2], k_steps[2], v_steps[2], bias_steps[2];
  ScoreForm form;
  CapSeries cap;
  float bias_factor;        ///< from biases to products of queries and keys
  std::uint32_t bias_none;  ///< 0, which the compiler does not know
  int page_rows;            ///< positions of a page's box, rows if no multiple of 8; 0: no pages
  /// Strides of pages, heads and positions of keys and of values, in units of 16 bytes.
  std::uint32_t row_units[2][3];
  Quotient by_page;  ///< of positions
  int rounds;        ///< pairs of tiles that every block takes first; -1: tiles are of one length
  int short_tiles;   ///< of each head, which a window leaves shorter than others: they come last
  int ordered;  ///< tiles of one unit of sequences in order of length; 0: they are not in order
};

using Sm90AttentionTile = AttentionResultTile;

/// A tile of float8 tensors, whose elements stand for themselves times a factor.
struct alignas(16) Sm90AttentionScaledTile : Sm90AttentionTile, TileFactors {};

/// A tile of scores that may have ALiBi. Its blocks are taken from the diagonal down, then from the
/// last down to the diagonal: scores rise towards it, and every block would have a new largest.
struct alignas(16) Sm90AttentionSlopedTile : Sm90AttentionTile {
  float slope;   ///< in units of the base-2 exponent; of columns in those of products
  int deferred;  ///< blocks after the diagonal, which are left until last
};

/// The block of keys that is taken in n's place, where blocks count from the last down.
__device__ __forceinline__ int block_at(Sm90AttentionTile const&, int n) { return n; }
__device__ __forceinline__ int block_at(Sm90AttentionSlopedTile const& t, int n) {
  int const block = n - t.deferred;
  return block < t.first ? block + t.end - t.first : block;
}

/// A kernel for elements of type T in one of the shapes of shapes.cuh.
///
/// Products of 8-bit types take values with the keys of one feature side by side: warps of the
/// producer bring them into that order, from the ring of raw values to that of values.
template <class T, class Shape>
struct Sm90AttentionConfig {
  using Element = T;
  using Scores = sm90_attention_shapes::Scores;
  static constexpr int d = Shape::d, dv = Shape::dv, tile_n = Shape::keys, stages = 2;
  static constexpr int tile_m = Shape::queries, consumers = tile_m / 64;
  static constexpr bool turns = Shape::schedule == Schedule::ping_pong;
  /// Scores with a softcap alone make weights straight from products where they can.
  static constexpr bool fuses_softcap = Shape::scores == Scores::softcap;
  static constexpr bool terms = Shape::scores == Scores::terms || fuses_softcap;
  static constexpr bool copies_bias = Shape::scores == Scores::bias;
  static constexpr bool columns = Shape::scores == Scores::columns;
  static constexpr bool transposes = sizeof(T) == 1, scaled = sizeof(T) == 1;
  /// Tiles may have rows of several heads; not where scores depend on the head, nor where tiles
  /// are for many queries and registers scarce.
  static constexpr bool packs_heads = !copies_bias && !columns && consumers == 2;
  using Tile = std::conditional_t<
      scaled, Sm90AttentionScaledTile,
      std::conditional_t<columns || fuses_softcap, Sm90AttentionSlopedTile, Sm90AttentionTile>>;
  /// There are registers for a second set of weights: the next ones are made while the product
  /// reads these.
  static constexpr bool spare_weights = consumers == 2 || sizeof(T) == 1;
  /// There are hardly any registers left beside scores, weights and sums.
  static constexpr bool full = sizeof(T) == 1 && (dv == 256 || (tile_n == 192 && dv == 128));
  /// Registers for what tells which blocks have masked keys, and which of a block's keys the rows
  /// see, worked out while its products are under way.
  static constexpr bool keeps_blocks = consumers == 2 && !full;
  static constexpr bool keeps_keys =
      keeps_blocks && !fuses_softcap && sizeof(T) == 2 && (dv < 256 || d == 256);
  /// There are registers to make the first weights of the next tile before rows are stored.
  static constexpr bool stores_late =
      consumers == 2 && sizeof(T) == 2 && !(terms || copies_bias || columns);
  /// There are registers to store rows beside the first product of the next tile.
  static constexpr bool overlaps_store = sizeof(T) == 2 || !(terms || full);
  static constexpr int weight_words = tile_n * static_cast<int>(sizeof(T)) / 8;  ///< of a thread
  static constexpr int threads = 128 * (1 + consumers);
  /// Of all threads, they are no more than a block of two or three consumers starts with.
  static constexpr bool busy_producer = (transposes && dv < 256) || (columns && d < 256);
  static constexpr int producer_registers = consumers == 3 ? 32 : busy_producer ? 40 : 24;
  static constexpr int consumer_registers = consumers == 3 ? 160 : busy_producer ? 232 : 240;
  static_assert(producer_registers + consumers * consumer_registers <=
                multiprocessor_registers / threads / 8 * 8 * (1 + consumers));
  static constexpr int transposers = transposes ? 3 : 0;              ///< warps of the producer
  static constexpr int bias_producers = copies_bias ? consumers : 0;  ///< likewise
  static constexpr int column_producers = columns ? 1 : 0;            ///< likewise
  /// A warp of the producer finds tiles and brings queries; else that which brings keys does.
  static constexpr bool finds_apart = transposers + bias_producers == 0;
  /// One more finds rows in pages whose sizes do not suit the copy engine, and tells where they lie
  /// for two blocks of keys and two of values.
  static constexpr bool copies_rows = finds_apart && !columns;
  static constexpr int signal_bytes = 640 + (copies_rows ? 16 * tile_n + 32 : 0);
  /// Queries of one warpgroup's tile, a block of keys or raw values, and one of values for
  /// products.
  static constexpr int panel = 128 / static_cast<int>(sizeof(T));  ///< features, 128 bytes a row
  static constexpr int panels = (d + panel - 1) / panel, v_panels = (dv + panel - 1) / panel;
  static constexpr int q_bytes = 64 * panels * 128, k_bytes = tile_n * panels * 128;
  static constexpr int raw_bytes = tile_n * v_panels * 128;
  static constexpr int v_bytes = transposes ? (tile_n + 127) / 128 * dv * 128 : raw_bytes;
  static constexpr int raw_stages = transposes ? 2 : 0;
  /// One warpgroup's biases of a block: in 16 bits, in 32 of half a block.
  static constexpr int bias_bytes = 64 * tile_n * 2, bias_stages = 2;
  /// Products are added to biases, which are made ready beside the wait for the turn, not biases to
  /// products; three warpgroups have no registers for that.
  static constexpr bool bias_first = copies_bias && consumers == 2;
  /// What keys of a block and queries have in 16 columns of their own.
  static constexpr int key_column_bytes = columns ? 16 * tile_n * 2 : 0;
  static constexpr int column_bytes = columns ? 64 * 128 + stages * key_column_bytes : 0;
  static constexpr int ring_bytes = stages * (k_bytes + v_bytes) + raw_stages * raw_bytes +
                                    bias_producers * bias_stages * bias_bytes + column_bytes;
  /// Places for the queries of a warpgroup: for two tiles where there is room, else for one more
  /// warpgroup than there are, if possible.
  static constexpr int room = sm90_shared_bytes - ring_bytes - signal_bytes;
  static constexpr int q_slots = room >= 2 * consumers * q_bytes     ? 2 * consumers
                                 : room >= (consumers + 1) * q_bytes ? consumers + 1
                                                                     : consumers;
  /// Segments of packed sequences that can be put in order, of 6 bytes each.
  static constexpr int most_segments = (room - q_slots * q_bytes - 8) / 6;
  static constexpr int segments = most_segments < 1026 ? most_segments : 1026;
  static constexpr int order_bytes = segments * 6 + 8;
  static constexpr int shared_bytes = q_slots * q_bytes + ring_bytes + signal_bytes + order_bytes;
  static_assert(d % 16 == 0 && dv % 16 == 0 && tile_n % 16 == 0 && tile_n * 128 % 1024 == 0);
  static_assert(!transposes || (dv % 32 == 0 && tile_n % 32 == 0));
  static_assert(!(copies_bias || columns) || (!transposes && tile_n % 64 == 0));
  static_assert(!fuses_softcap || consumers == 2);
  static_assert(shared_bytes <= sm90_shared_bytes);
};

/// Segments of packed sequences, those whose units take longest first. A unit is a tile, or under a
/// causal mask a long and a short tile, so that all units of a segment take about as long.
template <int Segments>
struct Sm90AttentionOrder {
  int before[Segments + 1];         ///< units of one head in the segments that come earlier
  std::uint16_t segment[Segments];  ///< see packed_boundary()
};

/// Barriers of blocks of raw values.
template <int Stages>
struct Sm90AttentionRawSignals {
  std::uint64_t full_raw[Stages], empty_raw[Stages];
};
template <>
struct Sm90AttentionRawSignals<0> {};

/// Barriers of blocks of biases.
template <int Consumers, int Stages>
struct Sm90AttentionBiasSignals {
  std::uint64_t full_bias[Consumers][Stages], empty_bias[Consumers][Stages];
};
template <int Stages>
struct Sm90AttentionBiasSignals<0, Stages> {};

/// Where rows of blocks of keys and of values lie, in units of 16 bytes, and barriers of these.
template <int TileN, int Stages>
struct Sm90AttentionRows {
  std::uint32_t rows[2][Stages][TileN];
  std::uint64_t full_rows[Stages], empty_rows[Stages];
};
template <int Stages>
struct Sm90AttentionRows<0, Stages> {};

/// Barriers of a block and the tiles on their way from the producer to the consumers.
template <class Config>
struct Sm90AttentionSignals
    : Sm90AttentionRawSignals<Config::raw_stages>,
      Sm90AttentionBiasSignals<Config::bias_producers, Config::bias_stages>,
      Sm90AttentionRows<Config::copies_rows ? Config::tile_n : 0, Config::stages> {
  std::uint64_t full_k[Config::stages], empty_k[Config::stages];
  std::uint64_t full_v[Config::stages], empty_v[Config::stages];
  std::uint64_t full_q[Config::q_slots], empty_q[Config::q_slots];
  static constexpr int tiles = 4;  ///< on their way from the producer to the others
  std::uint64_t full_tile[tiles], empty_tile[tiles];
  typename Config::Tile tile[tiles];
  Sm90AttentionOrder<Config::segments> order;
};

namespace {

/// Log2 of the heads that share a tile: 0, 1 or 2. The 64 rows of a warpgroup are then 64 >> shift
/// neighbouring queries of each of these heads, one head after the other, so that the 16 of a warp
/// are of one head.
///
/// Source of the idea: T. Dao et al., FlashAttention's `pack_gqa`.
template <class Config>
__device__ __forceinline__ int pack_shift(AttentionParams const& p) {
  if constexpr (Config::packs_heads)
    return p.pack_shift;
  else
    return 0;
}

/// A thread's first row in a tile, of which the other is 8 queries on: its query and head, counted
/// from the tile's. For consumers; registers are scarce, so it is worked out where it is needed.
template <class Config>
__device__ __forceinline__ int own_query(AttentionParams const& p) {
  unsigned const thread = static_cast<unsigned>(fresh_thread()) - 128;
  unsigned row = thread / 32 * 16;  // the warp's first
  if constexpr (Config::packs_heads) {
    int shift = p.pack_shift;
    make_opaque(shift);  // what follows from it is not kept either
    row = (row / 64 * 64 >> shift) + (row & ((64u >> shift) - 1));
  }
  return static_cast<int>(row + thread % 32 / 4);
}
template <class Config>
__device__ __forceinline__ int own_head(AttentionParams const& p) {
  if constexpr (!Config::packs_heads) return 0;
  int shift = p.pack_shift;
  make_opaque(shift);
  return fresh_thread() % 128 / 32 << shift >> 2;
}

/// Which tile a block takes at a step: pair of batch and head `z`, tile `slot`. False: none at this
/// step; `step` becomes -1 where there are no more.
///
/// Tiles of one length go to the blocks in turn, heads in groups whose keys stay in L2; those that
/// a window leaves shorter follow by length, dealt back and forth. Under a causal mask tile m is m
/// + 1 blocks long, or so: blocks first take pairs of a long and a short tile of a head, which are
/// of one length. The rest is dealt forth and back from the longest on, so that the last tiles are
/// short.
__device__ __forceinline__ bool next_tile(Sm90AttentionParams const& p, int& step, int& z,
                                          int& slot) {
  int const blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  int const now = step++;
  if (p.rounds < 0) {
    int const all = p.tiles_m * p.heads, whole = all - p.short_tiles * p.heads;
    int const round = now - (whole + blocks - 1) / blocks;  // that deals short tiles alone
    int const index = now * blocks + (round >= 0 && round % 2 == 0 ? blocks - 1 - block : block);
    if (now * blocks >= all) step = -1;
    if (index >= all) return false;
    if (index < whole) {
      tile_of_index(p, index, z, slot, p.short_tiles);
    } else {
      z = (index - whole) % p.heads;
      slot = p.short_tiles - 1 - (index - whole) / p.heads;
    }
    return true;
  }
  int const pairs = (p.tiles_m + 1) / 2;  // of a head; the last is one tile if they are odd
  bool is_long = now % 2 == 0;
  int pair;
  if (now < 2 * p.rounds) {
    // Rotated by one place each time: in an odd number of tiles not all pairs are of one length.
    int const round = now / 2, place = block + round % blocks;
    int const unit = round * blocks + (place < blocks ? place : place - blocks);
    z = unit / pairs, pair = unit % pairs;
  } else {
    // The pairs that are left, from pair `begun` of head `head` on, by length: long tiles first.
    int const round = now - 2 * p.rounds;
    int const taken = p.rounds * blocks, left = p.heads * pairs - taken;
    int const rank = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (round * blocks >= 2 * left) step = -1;
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

/// Adds to a tile what ALiBi takes. Values past a sequence's end are cleared in the first block
/// that is taken, which must be the last then.
template <class Config>
__device__ __forceinline__ void add_slope(Sm90AttentionParams const& p,
                                          Sm90AttentionSlopedTile& t) {
  t.slope = slope_of(p, t) * (Config::columns ? p.bias_factor * ln_2 : 1.0f);
  int const last = min(t.row0 + (Config::tile_m >> pack_shift<Config>(p)), t.len_q) - 1;
  int const nearest = max(t.first, min(t.end - 1, (last + t.offset) / Config::tile_n));
  t.deferred = p.args.alibi == nullptr || t.poisoned_tail ? 0 : t.end - 1 - nearest;
}

/// Adds to a tile what float8 elements stand for.
template <class Config>
__device__ __forceinline__ void add_factors(Sm90AttentionParams const& p,
                                            Sm90AttentionScaledTile& t) {
  static_cast<TileFactors&>(t) = find_factors(p, t);
  // The softmax wants a positive scale; scores of any other are made where a window's are masked.
  if (!Config::terms && !(t.scale > 0)) t.whole_from = t.end;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
