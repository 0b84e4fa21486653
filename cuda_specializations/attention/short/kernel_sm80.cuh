// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of many short sequences: a team of warps has all keys and values of a sequence in
/// shared memory at once, several teams to a multiprocessor hide each other's loads.
///
/// Each warp of a team has 16 queries of one head. It takes the keys 32 or 64 at a time: products,
/// weights, which stay in registers as the left operand of the product with the values. Longer
/// sequences, which packed tensors may have, go through the same memory in turns.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma", "ldmatrix", "cp.async".
#pragma once

#include <attikos/ptx/cp_async.hpp>

#include "epilogue.cuh"
#include "ptx/mbarrier.cuh"
#include "sequences/row_epilogue.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
/// `keys` is a multiple of 16, and of the kernel's step where a sequence may have more.
struct Sm80ShortParams : ShortParams {
  int teams;                      ///< of `warps` in a block
  int team_bytes;                 ///< of shared memory
  int q_pitch, k_pitch, v_pitch;  ///< bytes from position to position
};

/// What follows from one of sm80_short_shapes. Three instantiations for an element type.
template <class T, class Shape>
struct Sm80ShortConfig : ShortRows<T, Shape::d> {
  static constexpr bool stores_matrices = false;
  static constexpr int most_warps = 8, most_teams = 4;
  static constexpr int blocks = 2;  ///< of most_warps on a multiprocessor
  static constexpr int step = Shape::step;
  /// Of the tiles of a block's teams, in front of what those share; to align that, 128 more.
  static constexpr int tile_bytes = most_teams * 48;
};

namespace {

/// The warps that share a sequence's keys. Every warp of it comes by here.
struct ShortTeam {
  int number, warps;

  __device__ __forceinline__ void sync() const {
    if (warps == 1)
      __syncwarp();
    else
      named_barrier_sync(number + 1, 32 * warps);
  }
};

/// Starts a warp's copies of 16 rows, `pitch` bytes apart, of which the first `existing` are there;
/// others become zeros. `from` is row 0; `chunks_there`: 16 bytes to a row.
template <class Config>
__device__ __forceinline__ void copy_16_rows(std::uint32_t to, unsigned char const* from, int pitch,
                                             int existing, int chunks_there) {
  int const lane = fresh_thread() % 32, r0 = lane / Config::chunks, c = lane % Config::chunks;
  to += Config::place(r0, c);
  from += std::int64_t{r0} * pitch + 16 * c;
  int const bytes = c < chunks_there ? 16 : 0;
#pragma unroll
  for (int r = 0; r < 16; r += Config::rows_at_once)
    copy_async<16>((to ^ Config::swizzle(r)) + r * Config::row_bytes,
                   from + std::int64_t{r} * pitch, r + r0 < existing ? bytes : 0);
}

/// Starts a warp's share of the copies of a team's keys or values from key `begin` on, and closes
/// their group.
template <class Config>
__device__ __forceinline__ void copy_keys(Sm80ShortParams const& p, ShortTile const& t, int warp,
                                          std::uint32_t to, int begin, int left, void const* data,
                                          std::int64_t const (&stride)[4], int pitch,
                                          std::int64_t features) {
  int const h_kv = p.group == 1 ? t.head : t.head / p.group;
  auto const* from = static_cast<unsigned char const*>(data) +
                     2 * (t.batch * stride[0] + h_kv * stride[1]) +
                     (std::int64_t{t.begin_kv} + begin) * pitch;
#pragma unroll 1
  for (int r = 16 * warp; r < left; r += 16 * p.warps)
    copy_16_rows<Config>(to + r * Config::row_bytes, from + std::int64_t{r} * pitch, pitch,
                         left - r, static_cast<int>(features) / 8);
  copy_async_commit();
}

/// Products of a warp's 16 queries and `Step` keys, of which those from `end` on are left out by
/// sixteens.
template <class Config>
__device__ __forceinline__ void multiply_keys(float (&s)[Config::step / 8][4], std::uint32_t q,
                                              std::uint32_t k, int end) {
#pragma unroll
  for (int c = 0; c < Config::d / 16; ++c) {
    std::uint32_t a[4];
    load_matrices(a, chunk_at(q, c * 32));
#pragma unroll
    for (int b = 0; b < Config::step / 8; b += 2) {
      if (b > 0 && 8 * b >= end) continue;
      std::uint32_t x[4];
      load_matrices(x, chunk_at(k, c * 32) + 8 * b * Config::row_bytes);
      multiply_16<typename Config::Element>(s[b], a, x[0], x[1]);
      multiply_16<typename Config::Element>(s[b + 1], a, x[2], x[3]);
    }
  }
}

/// The same of weights and values.
template <class Config>
__device__ __forceinline__ void multiply_values(
    float (&o)[Config::d / 8][4], std::uint32_t const (&weights)[Config::step / 16][4],
    std::uint32_t v, int end) {
#pragma unroll
  for (int b = 0; b < Config::step / 16; ++b) {
    if (b > 0 && 16 * b >= end) continue;
#pragma unroll
    for (int c = 0; c < Config::d / 8; c += 2) {
      std::uint32_t x[4];
      load_matrices<true>(x, chunk_at(v, c * 16) + 16 * b * Config::row_bytes);
      multiply_16<typename Config::Element>(o[c], weights[b], x[0], x[1]);
      multiply_16<typename Config::Element>(o[c + 1], weights[b], x[2], x[3]);
    }
  }
}

/// One tile of queries. What is not needed for every key is worked out where it is: registers are
/// scarce in the loop.
template <class Config>
__device__ __forceinline__ void attend_short(Sm80ShortParams const& p, ShortTile const& t,
                                             ShortTeam const& team, int warp,
                                             std::uint32_t memory) {
  constexpr int d = Config::d, row_bytes = Config::row_bytes;
  abi::AttentionArgs const& g = p.args;
  std::uint32_t const own = memory + warp * 16 * row_bytes;  // queries, then rows of out
  std::uint32_t const k_memory = memory + 16 * p.warps * row_bytes;
  std::uint32_t const v_memory = k_memory + p.keys * row_bytes;
  {
    int const i0 = t.row0 + 16 * warp;
    copy_16_rows<Config>(own,
                         static_cast<unsigned char const*>(g.q) +
                             2 * (t.batch * g.q_stride[0] + t.head * g.q_stride[1]) +
                             (std::int64_t{t.begin_q} + i0) * p.q_pitch,
                         p.q_pitch, t.len_q - i0, static_cast<int>(g.head_dim) / 8);
  }
  // Keys that some query of the tile sees, and where those end that some of this warp do.
  int const tile_from = t.seen_from(t.row0), tile_end = t.last_end(t.row0, 16 * p.warps);
  int const warp_end = t.last_end(t.row0 + 16 * warp, 16);
  if (tile_end <= tile_from) {  // rows of out go where the queries are still on their way
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp();
  }

  // Lane 8 i + l gives row l of matrix i: of keys, blocks of 8 keys and of 8 features, features
  // first; of queries and values, positions first.
  int const lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t const k_lane = k_memory + Config::place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  std::uint32_t const v_lane = v_memory + Config::place(lane % 16, lane / 16);
  ShortSums rows;
  float o[d / 8][4] = {};
  bool masked = false;
#pragma unroll 1
  for (int begin = tile_from; begin < tile_end; begin += p.keys) {
    if (begin != tile_from) team.sync();  // all have read what was there
    int const left = min(tile_end - begin, p.keys);
    copy_keys<Config>(p, t, warp, k_memory, begin, left, g.k, g.k_stride, p.k_pitch, g.head_dim);
    copy_keys<Config>(p, t, warp, v_memory, begin, left, g.v, g.v_stride, p.v_pitch, g.head_dim_v);
    copy_async_wait<1>();
    team.sync();
    bool waiting = true;
#pragma unroll 1
    for (int j = 0; waiting || j < min(left, warp_end - begin); j += Config::step) {
      int const end = min(left, warp_end - begin) - j;
      float s[Config::step / 8][4] = {};
      int const place = fresh_thread() % 32;
      multiply_keys<Config>(s, own + Config::place(place % 16, place / 16), k_lane + j * row_bytes,
                            end);
      int const i0 = t.row0 + 16 * warp;
      if (begin + j < t.seen_from(i0 + 15) || begin + j + Config::step > t.seen_end(i0)) {
        int const in_warp = fresh_thread() % 32;
        mask_short(s, t, i0 + in_warp / 4, begin + j + in_warp % 4 * 2);
        masked = true;
      }
      float factor[2];
      std::uint32_t weights[Config::step / 16][4];
      bool const first = begin + j == tile_from;
      bool const raised =
          weigh_short<typename Config::Element>(s, first, rows, p.scale * log2_e, factor, weights);
      if (waiting) {
        copy_async_wait<0>();
        team.sync();
        waiting = false;
      }
      if (raised && !first) {
#pragma unroll
        for (int n = 0; n < d / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[n][e] *= factor[e / 2];
      }
      multiply_values<Config>(o, weights, v_lane + j * row_bytes, end);
    }
  }
  store_short<Config>(p, t, short_out<typename Config::Element>(p, t), warp, own, rows, o, masked,
                      [] {});
}

template <class Config>
__global__ void __launch_bounds__(32 * Config::most_warps, Config::blocks)
    sm80_short_kernel(__grid_constant__ Sm80ShortParams const p) {
  extern __shared__ unsigned char raw_shared[];
  std::uint32_t const shared = (shared_address(raw_shared) + Config::tile_bytes + 127u) & ~127u;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  ShortTeam team{0, p.warps};
  unsigned unit = blockIdx.x;
  if (p.teams > 1) {
    team.number = warp / p.warps, warp %= p.warps;
    unit = unit * static_cast<unsigned>(p.teams) + static_cast<unsigned>(team.number);
    if (unit >= p.units) return;
  }
  wait_for_launch_before();
  static_assert(Config::most_teams * sizeof(ShortTile) <= Config::tile_bytes);
  // Kept in shared memory: registers are scarce in the loop over keys.
  ShortTile& t = reinterpret_cast<ShortTile*>(raw_shared)[team.number];
  if (warp == 0) {
    ShortTile const found = locate_short(p, unit);
    if (lane == 0) t = found;
  }
  team.sync();
  if (t.row0 >= t.rows) return;
  attend_short<Config>(p, t, team, warp,
                       shared + static_cast<std::uint32_t>(team.number * p.team_bytes));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
