// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file The producer of the sm_90a attention kernels: what is loaded into shared memory, and when.
#pragma once

#include "paged_kv.cuh"
#include "scheduler.cuh"

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
    if constexpr (Config::fuses_softcap || Config::columns) add_slope<Config>(p, t);
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
                      Keep::briefly, 64, row + (w * 64 >> pack_shift<Config>(p)), h, b);
    at.next();
  }
}

/// The loop of a thread whose warp has nothing else to do: it finds tiles and loads their queries,
/// ahead of the keys that the other thread loads.
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

/// The loop of one thread of the producer.
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

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
