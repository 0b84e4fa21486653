// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Terms of scores that are products of few numbers of a query and of a key: ALiBi on one side of
/// the diagonal, and a bias that all queries share. Tensor cores add them as 16 more columns of
/// queries and keys, so that what follows need not know of them.
///
/// In columns 0 to 2, queries have their number in the tile, and keys minus the slope; in columns 4
/// to 6, queries have 1, and keys the bias and the slope times how far they stand behind the tile's
/// first query. Three bfloat16 hold a float: one has 8 of its 24 bits. Keys' columns lie in shared
/// memory as values do, queries' as queries, 16 for each warpgroup.
#pragma once

#include "ptx/thread_index.cuh"
#include "ptx/wgmma.cuh"
#include "ring.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr int column_pitch = 128;             ///< bytes of a column of 64 keys
constexpr int query_column_bytes = 64 * 128;  ///< of all queries of a tile

/// x, and what its first two bfloat16 parts leave of it, each in the upper half of a word.
struct FloatParts {
  std::uint32_t high, middle, low;
};
__device__ __forceinline__ FloatParts parts_of(float x) {
  std::uint32_t const high = __float_as_uint(x) & 0xffff0000u;
  float const rest = x - __uint_as_float(high);
  std::uint32_t const middle = __float_as_uint(rest) & 0xffff0000u;
  return {high, middle, __float_as_uint(rest - __uint_as_float(middle))};
}

/// The upper halves of two words.
__device__ __forceinline__ std::uint32_t upper_halves(std::uint32_t first, std::uint32_t second) {
  return __byte_perm(first, second, 0x7632);
}

/// Whether all keys of a block stand where the last query of a tile does, or behind it.
template <class Config>
__device__ __forceinline__ bool lies_after(int origin, int block) {
  return block * Config::tile_n >= origin + Config::tile_m - 1;
}

/// What one warp does all the time: works out the columns of keys, beside their copies, with which
/// it shares the barriers.
template <class Config>
__device__ __forceinline__ void produce_columns(Sm90AttentionParams const& p, unsigned char* ring,
                                                Sm90AttentionSignals<Config>& signals) {
  constexpr int panels = Config::tile_n / 64, panel = 16 * column_pitch;
  abi::AttentionArgs const& g = p.args;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t const queries = shared_address(ring), keys = queries + query_column_bytes;
  for (int word = lane; word < 64 * 32; word += 32) {
    int const row = word / 32, column = word % 8 * 2, number = row + word % 32 / 8 * 64;
    auto const x = static_cast<float>(column < 4 ? number : 1);
    store_shared_4(queries + row * 128 + ((word % 32 * 4) ^ (row % 8 * 16)),
                   column >= 8 ? 0 : pack_pair<__nv_bfloat16>(x, column % 4 == 0 ? x : 0));
  }
  for (int word = lane; word < Config::stages * Config::key_column_bytes / 4; word += 32)
    store_shared_4(keys + word * 4, 0);
  RingPosition<Config::stages> at;
  for (std::uint32_t tiles = 0;; ++tiles) {
    mbarrier_wait(&signals.full_tile[tiles % 4], tiles / 4 % 2);
    auto const& t = signals.tile[tiles % 4];
    std::int64_t const bias = max(t.batch, 0) * g.bias_stride[0] + t.head * g.bias_stride[1];
    int const origin = t.row0 + t.offset;
    float const slope = t.slope;
    bool const more = t.row0 >= 0;
    int const first = t.first, count = t.end - first, last = t.end - 1, deferred = t.deferred;
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&signals.empty_tile[tiles % 4]);
    if (!more) return;
    for (int n = 0; n < count; ++n) {
      int block = last - deferred - n;  // as block_at() has it
      if (block < first) block += count;
      int const first_key = block * Config::tile_n + lane * 2;
      float x[panels][2] = {};
      if (g.bias != nullptr) {
#pragma unroll
        for (int i = 0; i < panels * 2; ++i) {
          int const j = first_key + i / 2 * 64 + i % 2;
          if (j < g.seqlen_kv)
            x[i / 2][i % 2] =
                p.bias_factor * load_float(g.bias, g.type_bias, bias + j * g.bias_stride[3]);
        }
      }
      float const rise = lies_after<Config>(origin, block) ? -slope : slope;
      FloatParts const number = parts_of(-rise);
      std::uint32_t words[panels][3];
#pragma unroll
      for (int i = 0; i < panels; ++i) {
        FloatParts part[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float const y = fmaf(rise, static_cast<float>(first_key + i * 64 + k - origin), x[i][k]);
          part[k] = parts_of(y);
          if (y == minus_infinity()) part[k].middle = part[k].low = 0;
        }
        words[i][0] = upper_halves(part[0].high, part[1].high);
        words[i][1] = upper_halves(part[0].middle, part[1].middle);
        words[i][2] = upper_halves(part[0].low, part[1].low);
      }
      mbarrier_wait(&signals.empty_k[at.stage], at.phase ^ 1);
#pragma unroll
      for (int i = 0; i < panels; ++i) {
        std::uint32_t const to = keys + at.stage * Config::key_column_bytes + i * panel;
        auto const store = [&](int column, std::uint32_t word) {
          store_shared_4(to + column * column_pitch + ((lane * 4) ^ (column % 8 * 16)), word);
        };
        store(0, upper_halves(number.high, number.high));
        store(1, upper_halves(number.middle, number.middle));
        store(2, upper_halves(number.low, number.low));
#pragma unroll
        for (int k = 0; k < 3; ++k) store(4 + k, words[i][k]);
      }
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&signals.full_k[at.stage]);
      at.next();
    }
  }
}

/// Turns what tensor cores added into distances where a block has keys on both sides of the
/// diagonal, unless those behind it do not count anyway.
template <class Config>
__device__ __forceinline__ void finish_distances(Sm90AttentionParams const& p,
                                                 typename Config::Tile const& t, int n,
                                                 float (&s)[Config::tile_n / 2]) {
  int const thread = fresh_thread(), lane = thread % 32;
  int const origin = t.row0 + t.offset;
  int const warp = origin + uniform(thread / 32 - 4) * 16 - n * Config::tile_n;
  if (p.args.alibi == nullptr || t.reach <= 1 || warp >= Config::tile_n - 1 ||
      lies_after<Config>(origin, n))
    return;
  auto const ahead = static_cast<float>(warp + lane / 4 - lane % 4 * 2);
#pragma unroll
  for (int r = 0; r < Config::tile_n / 2; ++r) {
    auto const key = static_cast<float>(r / 4 * 8 + r % 2 - r / 2 % 2 * 8);
    s[r] = fmaf(-2 * t.slope, fmaxf(key - ahead, 0.0f), s[r]);
  }
}

/// Starts s = the columns' share of products.
template <class Config>
__device__ __forceinline__ void multiply_columns(float (&s)[Config::tile_n / 2],
                                                 std::uint32_t queries, std::uint32_t keys) {
  Wgmma<__nv_bfloat16, __nv_bfloat16, Config::tile_n, 0, 1>::multiply(s, descriptor(queries, 0),
                                                                      descriptor(keys, 0), 0);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
