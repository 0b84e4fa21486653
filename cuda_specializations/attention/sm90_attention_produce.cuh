// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The producer of the sm_90a attention kernels: what comes into shared memory, and when.
#pragma once

#include "../ptx/tma_4d.cuh"
#include "sm90_attention_order.cuh"
#include "sm90_attention_ring.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Loads `rows` positions from `row` on, 128 bytes of features at a time.
template <class Config, int Panels = Config::panels>
__device__ __forceinline__ void load_rows(unsigned char* to, CUtensorMap const* map,
                                          std::uint64_t* full, Keep keep, int rows, int row, int h,
                                          int b) {
#pragma unroll
  for (int panel = 0; panel < Panels; ++panel)
    tma_load(to + panel * rows * 128, map, full, keep, panel * Config::panel, row, h, b);
}

/// The same of a block of keys or values that lie in pages, by one thread: `n` is the block,
/// `length` that of the sequence. Boxes past it become zeros. `Together` entries of the page table
/// are read before the first is used.
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

/// Finds the next tile and shows it to all others. It stays in shared memory: registers are
/// scarce.
template <class Config>
__device__ __forceinline__ typename Config::Tile const& show_tile(
    Sm90AttentionParams const& p, Sm90AttentionSignals<Config>& signals, RingPosition<4>& at,
    int& step) {
  auto& t = signals.tile[at.stage];
  mbarrier_wait(&signals.empty_tile[at.stage], at.phase ^ 1);
  do t.row0 = -1;
  while (step >= 0 && !find_tile<Config>(p, signals.order, step, t));
  if (t.row0 >= 0) {
    add_results(p, t);
    if constexpr (Config::scaled) add_factors<Config>(p, t);
    if constexpr (Config::forms || Config::columns) add_slope<Config>(p, t);
  }
  mbarrier_arrive(&signals.full_tile[at.stage]);
  at.next();
  return t;
}

/// Brings the queries of a tile's warpgroups [from, end).
template <class Config>
__device__ __forceinline__ void load_queries(Sm90AttentionParams const& p, unsigned char* q_ring,
                                             Sm90AttentionSignals<Config>& signals,
                                             RingPosition<Config::q_slots>& at,
                                             Sm90AttentionTile const& t, int from, int end) {
  int const row = t.begin_q + t.row0, h = t.head * p.q_steps[0], b = t.batch * p.q_steps[1];
  for (int w = from; w < end; ++w) {
    mbarrier_wait(&signals.empty_q[at.stage], at.phase ^ 1);
    mbarrier_arrive_expect(&signals.full_q[at.stage], Config::q_bytes);
    load_rows<Config>(q_ring + at.stage * Config::q_bytes, &p.q, &signals.full_q[at.stage],
                      Keep::briefly, 64, row + w * 64, h, b);
    at.next();
  }
}

/// What one thread does all the time where a warp has nothing else to do: finds tiles and
/// brings their queries, ahead of the keys that the other thread brings.
template <class Config>
__device__ __forceinline__ void produce_tiles(Sm90AttentionParams const& p, unsigned char* q_ring,
                                              Sm90AttentionSignals<Config>& signals) {
  RingPosition<Config::q_slots> q_at;
  RingPosition<4> tile_at;
  int step = 0;
  while (true) {
    auto const& t = show_tile<Config>(p, signals, tile_at, step);
    if (t.row0 < 0) return;
    if (t.end > t.first) load_queries<Config>(p, q_ring, signals, q_at, t, 0, Config::consumers);
  }
}

/// What one thread of the producer does all the time.
template <class Config>
__device__ __forceinline__ void produce(Sm90AttentionParams const& p, unsigned char* q_ring,
                                        unsigned char* k_ring, unsigned char* v_ring,
                                        Sm90AttentionSignals<Config>& signals) {
  RingPosition<Config::stages> k_at;
  RingPosition<Config::transposes ? Config::raw_stages : Config::stages> v_at;
  std::uint64_t *full_v, *empty_v;
  if constexpr (Config::transposes)
    full_v = signals.full_raw, empty_v = signals.empty_raw;
  else
    full_v = signals.full_v, empty_v = signals.empty_v;
  // Where the keys and values of a tile are, known before room for a block is waited for.
  int begin = 0, head = 0, batch = 0;
  auto const place = [&](Sm90AttentionTile const& t) {
    bool const paged = !Config::finds_apart && p.page_rows != 0;
    begin = paged ? t.len_kv : t.begin_kv;  // pages begin where a sequence does
    head = t.head / p.group_of_heads, batch = t.batch;
  };
  auto const load_keys = [&](int n) {
    mbarrier_wait(&signals.empty_k[k_at.stage], k_at.phase ^ 1);
    mbarrier_arrive_expect(&signals.full_k[k_at.stage], Config::k_bytes);
    unsigned char* const to = k_ring + k_at.stage * Config::k_bytes;
    if (!Config::finds_apart && p.page_rows != 0)
      load_pages<Config, Config::panels>(p, to, &p.k, &signals.full_k[k_at.stage], n, begin,
                                         head * p.k_steps[0], batch, p.k_steps[1]);
    else
      load_rows<Config>(to, &p.k, &signals.full_k[k_at.stage], Keep::long_term, Config::tile_n,
                        begin + n * Config::tile_n, head * p.k_steps[0], batch * p.k_steps[1]);
    k_at.next();
  };
  auto const load_values = [&](int n) {
    mbarrier_wait(&empty_v[v_at.stage], v_at.phase ^ 1);
    mbarrier_arrive_expect(&full_v[v_at.stage], Config::raw_bytes);
    unsigned char* const to = v_ring + v_at.stage * Config::raw_bytes;
    if (!Config::finds_apart && p.page_rows != 0)
      load_pages<Config, Config::v_panels>(p, to, &p.v, &full_v[v_at.stage], n, begin,
                                           head * p.v_steps[0], batch, p.v_steps[1]);
    else
      load_rows<Config, Config::v_panels>(to, &p.v, &full_v[v_at.stage], Keep::long_term,
                                          Config::tile_n, begin + n * Config::tile_n,
                                          head * p.v_steps[0], batch * p.v_steps[1]);
    v_at.next();
  };
  RingPosition<4> tile_at;
  if constexpr (Config::finds_apart) {
    while (true) {
      mbarrier_wait(&signals.full_tile[tile_at.stage], tile_at.phase);
      auto const& t = signals.tile[tile_at.stage];
      if (t.row0 < 0) return;
      place(t);
      int const first = t.first, last = t.end - 1;
      if (last >= first) load_keys(block_at(t, last));
      for (int n = last; n >= first; --n) {
        if (n > first) load_keys(block_at(t, n - 1));
        load_values(block_at(t, n));
      }
      mbarrier_arrive(&signals.empty_tile[tile_at.stage]);
      tile_at.next();
    }
  } else {
    RingPosition<Config::q_slots> q_at;
    int step = 0;
    // Queries of the next tile come as early as there is room for them, not along with the keys
    // and values that everyone waits for between two tiles.
    constexpr int early = Config::q_slots - Config::consumers;
    typename Config::Tile const *t, *next;
    int loaded = 0;  // warpgroups whose queries of t are on their way
    for (t = &show_tile<Config>(p, signals, tile_at, step); t->row0 >= 0; t = next) {
      int const first = t->first, last = t->end - 1;
      if (last < first) {
        next = &show_tile<Config>(p, signals, tile_at, step);
        loaded = 0;
        continue;
      }
      place(*t);
      load_keys(block_at(*t, last));
      load_queries<Config>(p, q_ring, signals, q_at, *t, loaded, Config::consumers);
      for (int n = last; n >= first; --n) {
        if (n > first) load_keys(block_at(*t, n - 1));
        load_values(block_at(*t, n));
        if (n != last) continue;
        next = &show_tile<Config>(p, signals, tile_at, step);
        loaded = next->row0 >= 0 && next->end > next->first ? early : 0;
        load_queries<Config>(p, q_ring, signals, q_at, *next, 0, loaded);
        place(*t);  // again: registers are scarce
      }
    }
  }
}

/// The same for keys or for values in pages, by a warp of their own. A lane reads the page table's
/// entry for a box of a block, a block ahead.
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

/// What two warps do all the time where keys and values lie in pages: copies of few positions
/// take a thread so long to start that either would wait for the other.
template <class Config>
__device__ __forceinline__ void produce_pages(Sm90AttentionParams const& p, unsigned char* k_ring,
                                              unsigned char* v_ring,
                                              Sm90AttentionSignals<Config>& signals, int warp) {
  if (warp == 0)
    produce_boxes<Config, Config::panels>(p, p.k, p.k_steps, k_ring, signals.full_k,
                                          signals.empty_k, signals);
  else
    produce_boxes<Config, Config::v_panels>(p, p.v, p.v_steps, v_ring, signals.full_v,
                                            signals.empty_v, signals);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
