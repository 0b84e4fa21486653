// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Keys and values that lie in pages on their way into the rings of the sm_90a attention kernels:
/// as boxes of the copy engine where pages are multiples of 8 positions, else row by row. Copies
/// of the engine's take some time to start each, whatever they bring, and a page of one position
/// would want one for every 128 bytes.
#pragma once

#include <attikos/ptx/cp_async.hpp>

#include "ptx/cluster.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/tma_4d.cuh"
#include "ring.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Loads a block of keys or values by one thread: `n` is the block, `length` that of the sequence.
/// Boxes past it become zeros. `Together` entries of the page table are read before the first is
/// used.
template <class Config, int Panels, int Together, bool PowerOf2>
__device__ __forceinline__ void load_boxes(Sm90AttentionParams const& p, unsigned char* to,
                                           CUtensorMap const* map, std::uint64_t* full, int n,
                                           int length, int h, int sequence, int page_step) {
  abi::AttentionArgs const& g = p.args;
  int const rows = static_cast<int>(g.page_size);
  auto const page_of = [&](int position) {
    return PowerOf2 ? position >> p.by_page.shift : p.by_page.of(position);
  };
#pragma unroll 1
  for (int at = 0; at < Config::tile_n; at += Together * p.page_rows) {
    int pages[Together];
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      int const position = n * Config::tile_n + at + i * p.page_rows;
      pages[i] = position >= length
                     ? -1
                     : max(0, g.page_table[sequence * g.page_table_stride[0] +
                                           page_of(position) * g.page_table_stride[1]]);
    }
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      int const to_row = at + i * p.page_rows, position = n * Config::tile_n + to_row;
      if (to_row >= Config::tile_n) break;
      int const row = pages[i] < 0 ? rows
                      : PowerOf2   ? position & (rows - 1)
                                   : position - page_of(position) * rows;
      int const page = min(max(pages[i], 0), static_cast<int>(g.num_pages) - 1) * page_step;
#pragma unroll
      for (int panel = 0; panel < Panels; ++panel)
        tma_load(to + (panel * Config::tile_n + to_row) * 128, map, full, Keep::long_term,
                 panel * Config::panel, row, h, page);
    }
  }
}
/// The same, with as many entries at a time as registers allow.
template <class Config, int Panels>
__device__ __forceinline__ void load_pages(Sm90AttentionParams const& p, unsigned char* to,
                                           CUtensorMap const* map, std::uint64_t* full, int n,
                                           int length, int h, int sequence, int page_step) {
  if ((p.args.page_size & (p.args.page_size - 1)) == 0)
    load_boxes<Config, Panels, Panels <= 2 ? 4 : 1, true>(p, to, map, full, n, length, h, sequence,
                                                          page_step);
  else
    load_boxes<Config, Panels, 1, false>(p, to, map, full, n, length, h, sequence, page_step);
}

/// What a warp that brings keys or values does all the time where they come as boxes. A lane reads
/// the page table's entry for a box of a block, a block ahead.
template <class Config, int Panels>
__device__ __forceinline__ void produce_boxes(Sm90AttentionParams const& p, CUtensorMap const& map,
                                              int const (&steps)[2], unsigned char* ring,
                                              std::uint64_t* full, std::uint64_t* empty,
                                              Sm90AttentionSignals<Config>& signals) {
  constexpr int bytes = Panels * Config::tile_n * 128, together = 4;
  abi::AttentionArgs const& g = p.args;
  RingPosition<Config::stages> at;
  RingPosition<4> tile_at;
  while (true) {
    mbarrier_wait(&signals.full_tile[tile_at.stage], tile_at.phase);
    auto const& t = signals.tile[tile_at.stage];
    if (t.row0 < 0) return;
    int const length = t.len_kv, head = t.head / p.group_of_heads * steps[0];
    int const first = t.first;
    // Not looked at before the block before is on its way.
    auto const entry_of = [&](int n) {
      int const row = fresh_thread() % 32 * p.page_rows;
      int const position = block_at(t, n) * Config::tile_n + row;
      if (n < first || row >= Config::tile_n || position >= length) return 0;
      return static_cast<int>(g.page_table[t.batch * g.page_table_stride[0] +
                                           p.by_page.of(position) * g.page_table_stride[1]]);
    };
    int entry = entry_of(t.end - 1);
    for (int n = t.end - 1; n >= first; --n) {
      int const next = entry_of(n - 1);
      int const own = min(max(entry, 0), static_cast<int>(g.num_pages) - 1) * steps[1];
      int const page_size = static_cast<int>(g.page_size);
      int position = block_at(t, n) * Config::tile_n;
      int y = position - p.by_page.of(position) * page_size;  // in its page
      unsigned char* to = ring + at.stage * bytes;
      mbarrier_wait(&empty[at.stage], at.phase ^ 1);
      if (elect_one()) mbarrier_arrive_expect(&full[at.stage], bytes);
#pragma unroll 1
      for (int row = 0, box = 0; row < Config::tile_n; box += together) {
        int page[together];
#pragma unroll
        for (int i = 0; i < together; ++i) page[i] = __shfl_sync(0xffffffff, own, box + i);
        bool const elected = elect_one();
#pragma unroll
        for (int i = 0; i < together; ++i) {
          if (row >= Config::tile_n) break;
          // Boxes past the length become zeros.
          int const from = position >= length ? page_size : y;
          if (elected) {
#pragma unroll
            for (int panel = 0; panel < Panels; ++panel)
              tma_load(to + panel * Config::tile_n * 128, &map, &full[at.stage], Keep::long_term,
                       panel * Config::panel, from, head, page[i]);
          }
          row += p.page_rows, position += p.page_rows, to += p.page_rows * 128;
          y = y + p.page_rows == page_size ? 0 : y + p.page_rows;
        }
      }
      at.next();
      entry = next;
    }
    __syncwarp();
    if (elect_one()) mbarrier_arrive(&signals.empty_tile[tile_at.stage]);
    tile_at.next();
  }
}

constexpr std::uint32_t no_row = 0xffffffff;

/// What a warp does all the time where keys and values come row by row: tells those that copy them
/// where rows lie, in units of 16 bytes, for a block at a time.
template <class Config>
__device__ __forceinline__ void find_rows(Sm90AttentionParams const& p,
                                          Sm90AttentionSignals<Config>& signals) {
  constexpr int size = Config::tile_n, parts = size / 32;
  abi::AttentionArgs const& g = p.args;
  RingPosition<Config::stages> at;
  RingPosition<4> tile_at;
  while (true) {
    mbarrier_wait(&signals.full_tile[tile_at.stage], tile_at.phase);
    auto const& t = signals.tile[tile_at.stage];
    if (t.row0 < 0) return;
    for (int n = t.end - 1; n >= t.first; --n) {
      int const first = block_at(t, n) * size + fresh_thread() % 32;
      int pages[parts];
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        int const key = first + part * 32;
        pages[part] = key >= t.len_kv ? 0
                                      : g.page_table[t.batch * g.page_table_stride[0] +
                                                     p.by_page.of(key) * g.page_table_stride[1]];
      }
      mbarrier_wait(&signals.empty_rows[at.stage], at.phase ^ 1);
      auto const head = static_cast<std::uint32_t>(t.head / p.group_of_heads);
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        int const key = first + part * 32;
        auto const in =
            static_cast<std::uint32_t>(key - p.by_page.of(key) * static_cast<int>(g.page_size));
        auto const page =
            static_cast<std::uint32_t>(min(max(pages[part], 0), static_cast<int>(g.num_pages) - 1));
#pragma unroll
        for (int of = 0; of < 2; ++of) {
          std::uint32_t const(&unit)[3] = p.row_units[of];
          std::uint32_t const row = page * unit[0] + head * unit[1] + in * unit[2];
          signals.rows[of][at.stage][part * 32 + fresh_thread() % 32] =
              key < t.len_kv ? row : no_row;
        }
      }
      __syncwarp();
      if (elect_one()) mbarrier_arrive(&signals.full_rows[at.stage]);
      at.next();
    }
    __syncwarp();
    if (elect_one()) mbarrier_arrive(&signals.empty_tile[tile_at.stage]);
    tile_at.next();
  }
}

/// What a warp that brings keys or values row by row does all the time: eight lanes copy 128 bytes
/// of a row, which is a whole number of groups of 16, four rows at a time.
///
/// What the lanes copied is shown to the products before the block is handed on: cp.async is not
/// the copy engine.
template <class Config, int Panels>
__device__ __forceinline__ void produce_rows(
    void const* data, int features, unsigned char* ring, std::uint64_t* full, std::uint64_t* empty,
    Sm90AttentionSignals<Config>& signals, std::uint32_t (&rows)[Config::stages][Config::tile_n]) {
  constexpr int size = Config::tile_n, bytes = Panels * size * 128;
  constexpr auto element = static_cast<int>(sizeof(typename Config::Element));
  int const lane = fresh_thread() % 32, chunk = lane % 8 * 16;
  auto const base = reinterpret_cast<std::uint64_t>(data) + static_cast<std::uint64_t>(chunk);
  std::uint32_t const own_row = shared_address(&rows[0][lane / 8]);
  // Four rows on, what is swizzled differs in one bit.
  std::uint32_t const own = shared_address(ring) + lane / 8 * 128 + (lane ^ lane / 8) % 8 * 16;
  // Tiles and blocks so far.
  static_assert(Config::stages == 2 && size % 16 == 0);
  for (std::uint32_t tiles = 0, blocks = 0;; ++tiles) {
    auto const& t = wait_for_tile(signals, tiles);
    if (t.row0 < 0) return;
#pragma unroll 1
    for (int n = t.end - t.first; n > 0; --n, ++blocks) {
      mbarrier_wait(&signals.full_rows[stage_of<2>(blocks)], parity_of<2>(blocks));
      mbarrier_wait(&empty[stage_of<2>(blocks)], parity_of<2>(blocks) ^ 1);
      std::uint32_t even = own + stage_of<2>(blocks) * bytes,
                    from = own_row + stage_of<2>(blocks) * (size * 4);
#pragma unroll 1
      for (int row = 0; row < size; row += 16, even += 2048, from += 64) {
        std::uint32_t found[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) found[i] = load_shared_4(from + 16 * i);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          std::uint32_t const to = (i % 2 == 0 ? even : (even ^ 64) + 512) + i / 2 * 1024;
          auto const* const source =
              reinterpret_cast<char const*>(base + static_cast<std::uint64_t>(found[i]) * 16);
#pragma unroll
          for (int panel = 0; panel < Panels; ++panel)
            copy_async_present(to + panel * size * 128, source + panel * 128,
                               found[i] != no_row && chunk + panel * 128 < features * element);
        }
      }
      copy_async_commit();
      __syncwarp();
      if (elect_one()) mbarrier_arrive(&signals.empty_rows[stage_of<2>(blocks)]);
      copy_async_wait<0>();
      fence_proxy_async();
      __syncwarp();
      if (elect_one()) mbarrier_arrive(&full[stage_of<2>(blocks)]);
    }
    __syncwarp();
    if (elect_one()) leave_tile(signals, tiles);
  }
}

/// What three warps do all the time where keys and values lie in pages: copies of few positions
/// take so long to start that either would wait for the other.
template <class Config>
__device__ __forceinline__ void produce_pages(Sm90AttentionParams const& p, unsigned char* k_ring,
                                              unsigned char* v_ring,
                                              Sm90AttentionSignals<Config>& signals, int warp) {
  abi::AttentionArgs const& g = p.args;
  if (p.page_rows % 8 == 0) {
    if (warp == 0)
      produce_boxes<Config, Config::panels>(p, p.k, p.k_steps, k_ring, signals.full_k,
                                            signals.empty_k, signals);
    else if (warp == 3)
      produce_boxes<Config, Config::v_panels>(p, p.v, p.v_steps, v_ring, signals.full_v,
                                              signals.empty_v, signals);
  } else if constexpr (Config::copies_rows) {
    if (warp == 0)
      produce_rows<Config, Config::panels>(g.k, static_cast<int>(g.head_dim), k_ring,
                                           signals.full_k, signals.empty_k, signals,
                                           signals.rows[0]);
    else if (warp == 3)
      produce_rows<Config, Config::v_panels>(g.v, static_cast<int>(g.head_dim_v), v_ring,
                                             signals.full_v, signals.empty_v, signals,
                                             signals.rows[1]);
    else
      find_rows<Config>(p, signals);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
