// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The producer's warps: one finds tiles of keys, one brings them and the queries, one for each
/// warpgroup of consumers takes its sums of dq to memory.
#pragma once

#include "common/uniform.cuh"
#include "params.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/forget_memory.cuh"
#include "ptx/tma_4d.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Tells the next round that one tile of keys more is near its end.
__device__ __forceinline__ void pass_near_end(Sm90BackwardParams const& p) {
  if (p.near_end > 0) pass_turn(p.tickets + 2);
}
/// Waits until all tiles of keys of the rounds before that of number `work` are near their end,
/// unless it has so few queries that it is near its own.
__device__ __forceinline__ void wait_for_rounds(Sm90BackwardParams const& p, KeyTileHead const& t,
                                                int work) {
  if (p.near_end > 0 && t.end - t.first > p.near_end)
    wait_for_turn(p.tickets + 2, work - work % static_cast<int>(gridDim.x));
}

/// Takes tiles of keys that no other block has taken and says what there is to do with them.
template <class Config>
__device__ __forceinline__ void find_tiles(Sm90BackwardParams const& p,
                                           Sm90BackwardSignals<Config>& signals) {
  bool const leader = threadIdx.x % 32 == 0;
  unsigned count = 0;  // segments, in steps of 2; bit 0: parity of tiles of keys
  for (;;) {
    // A tile is taken when all copies of the one before are under way, and not a moment earlier:
    // other blocks may wait for what comes of it.
    mbarrier_wait(&signals.wanted, (count & 1) ^ 1);
    bool more;
    {
      KeyTile keys;
      int part = 0;
      do {
        unsigned ticket = 0;
        if (leader) ticket = atomicAdd(p.tickets, 1u);
        int const work = static_cast<int>(uniform(ticket));
        more = work < p.works;
        if (leader) signals.work = work;
        if (more && locate_keys<Config::tile_kv>(p, work, keys, &part)) break;
        if (more && leader) pass_near_end(p);
      } while (more);
      if (!more) keys.key0 = -1;
      if (leader) signals.found = keys;
      if (leader) signals.head = (keys.head_kv * p.parts + part) * p.group_of_heads;
    }
    count ^= 1;
    // What is known of the tile lies in shared memory from here on: registers are scarce.
    forget_memory();
    for (int n = 0; leader && n < (more ? p.group_of_heads : 1); ++n) {
      unsigned const stage = stage_of<Config::segments>(count / 2);
      mbarrier_wait(&signals.empty_segment[stage], parity_of<Config::segments>(count / 2) ^ 1);
      KeyTileHead& t = signals.segment[stage];
      static_cast<KeyTile&>(t) = signals.found;
      t.starts = n == 0;
      t.stops = n + 1 == p.group_of_heads;
      forget_memory();
      if (more) meet_head<Config::tile_q, Config::tile_kv>(p, signals.head + n, t);
      mbarrier_arrive(&signals.full_segment[stage]);
      count += 2;
    }
    count = uniform(count);
    if (!more) return;
  }
}

/// Brings the keys of a tile and the queries that see them. One thread.
template <class Config>
__device__ __forceinline__ void load_tiles(Sm90BackwardParams const& p, unsigned char* shared,
                                           Sm90BackwardSignals<Config>& signals) {
  constexpr int tile_q = Config::tile_q, tile_kv = Config::tile_kv;
  RingPosition<Config::q_stages> q;
  RingPosition<Config::dout_stages> dout;
  RingPosition<Config::segments> segment;
  std::uint32_t kv_phase = 0;
  for (;;) {
    mbarrier_wait(&signals.full_segment[segment.stage], segment.phase);
    KeyTileHead const& t = signals.segment[segment.stage];
    if (t.key0 < 0) return;
    if (t.starts) {
      int const batch = p.args.forward.cu_seqlens_kv.data != nullptr ? 0 : t.batch;
      mbarrier_wait(&signals.empty_kv, kv_phase ^ 1);
      kv_phase ^= 1;
      mbarrier_arrive_expect(&signals.full_kv, Config::k_bytes + Config::v_bytes);
#pragma unroll 1
      for (int panel = 0; panel < Config::panels; ++panel) {
        int const to = panel * tile_kv * 128;
        tma_load(shared + Config::k_at + to, &p.k, &signals.full_kv, Keep::normal, panel * 64,
                 t.begin_kv + t.key0, t.head_kv * p.k_steps[0], batch * p.k_steps[1]);
        if (panel >= Config::v_panels) continue;
        tma_load(shared + Config::v_at + to, &p.v, &signals.full_kv, Keep::normal, panel * 64,
                 t.begin_kv + t.key0, t.head_kv * p.v_steps[0], batch * p.v_steps[1]);
      }
      wait_for_rounds(p, t, signals.work);
    }
    int const batch = p.args.forward.cu_seqlens_q.data != nullptr ? 0 : t.batch;
    int m = p.from_last ? t.first : t.end - 1;
    if (t.stops && t.end - t.first < p.near_end) pass_near_end(p);
#pragma unroll 1
    for (int left = t.end - t.first; left > 0; --left, m += p.from_last ? 1 : -1) {
      if (left == p.near_end && t.stops) pass_near_end(p);
      int const row = t.begin_q + m * tile_q;
      mbarrier_wait(&signals.empty_q[q.stage], q.phase ^ 1);
      std::uint64_t* const full_q = &signals.full_q[q.stage];
      mbarrier_arrive_expect(full_q, Config::q_bytes + Config::row_bytes);
#pragma unroll
      for (int panel = 0; panel < Config::panels; ++panel)
        tma_load(shared + Config::q_at + q.stage * Config::q_bytes + panel * tile_q * 128, &p.q,
                 full_q, Keep::long_term, panel * 64, row, t.head * p.q_steps[0],
                 batch * p.q_steps[1]);
      bulk_load(shared + Config::rows_at + q.stage * Config::row_bytes,
                p.rows + static_cast<std::int64_t>(t.tile0 + m) * (2 * tile_q), Config::row_bytes,
                full_q);
      q.next();
      mbarrier_wait(&signals.empty_dout[dout.stage], dout.phase ^ 1);
      std::uint64_t* const full_dout = &signals.full_dout[dout.stage];
      mbarrier_arrive_expect(full_dout, Config::dout_bytes);
#pragma unroll
      for (int panel = 0; panel < Config::v_panels; ++panel)
        tma_load(shared + Config::dout_at + dout.stage * Config::dout_bytes + panel * tile_q * 128,
                 &p.dout, full_dout, Keep::long_term, panel * 64, row, t.head * p.dout_steps[0],
                 batch * p.dout_steps[1]);
      dout.next();
    }
    if (t.stops) mbarrier_arrive(&signals.wanted);
    mbarrier_arrive(&signals.empty_segment[segment.stage]);
    segment.next();
  }
}

/// Takes the sums of warpgroup `consumer` to memory. Tiles of keys take turns at a tile of queries,
/// so that each waits only for tiles that were taken before it. The first stores its sums, so that
/// nothing has to be zero before. One thread.
template <class Config>
__device__ __forceinline__ void add_dq(Sm90BackwardParams const& p, unsigned char* shared,
                                       Sm90BackwardSignals<Config>& signals, int consumer) {
  bool const takes_turns = p.tickets[1] == 0;
  RingPosition<Config::segments> segment;
  RingPosition<Config::dq_stages> dq;
  for (;;) {
    mbarrier_wait(&signals.full_segment[segment.stage], segment.phase);
    KeyTileHead const& t = signals.segment[segment.stage];
    if (t.key0 < 0) return;
    int const step = p.from_last ? 1 : -1;
    int m = p.from_last ? t.first : t.end - 1;
    unsigned* counter = p.turns + std::int64_t{2} * (t.tile0 + m) + consumer;
    unsigned passed = t.first < t.end ? load_turn(counter) : 0;
    for (int left = t.end - t.first; left > 0; --left, m += step, counter += 2 * step) {
      int const turn = turn_of<Config::tile_q, Config::tile_kv>(p, t, m);
      float* const to = p.dq_sums + (std::int64_t{2} * (t.tile0 + m) + consumer) *
                                        (Config::dq_parts * Config::dq_bytes / 4);
      if (turn > 0 && takes_turns) wait_for_bulk_turn(counter, p.ordered ? turn : 1, passed);
#pragma unroll 1
      for (int part = 0; part < Config::dq_parts; ++part) {
        auto const* const from = reinterpret_cast<float const*>(
            shared + Config::dq_at + (consumer * Config::dq_stages + dq.stage) * Config::dq_bytes);
        mbarrier_wait(&signals.full_dq[consumer][dq.stage], dq.phase);
        if (turn == 0)
          bulk_store(to + part * (Config::dq_bytes / 4), from, Config::dq_bytes);
        else
          bulk_add(to + part * (Config::dq_bytes / 4), from, Config::dq_bytes);
        tma_store_commit();
        // Whose turn it is at the next tile is asked while the sums are on their way.
        if (left > 1 && part == 0) passed = load_turn(counter + 2 * step);
        // A part's place is free when it has been read, which goes on beside the next part's.
        if (part > 0) {
          tma_store_wait_read<1>();
          mbarrier_arrive(
              &signals.empty_dq[consumer][previous_in_ring<Config::dq_stages>(dq.stage)]);
        }
        dq.next();
      }
      tma_store_wait_read<0>();
      mbarrier_arrive(&signals.empty_dq[consumer][previous_in_ring<Config::dq_stages>(dq.stage)]);
      tma_store_wait<0>();
      pass_bulk_turn(counter);
    }
    mbarrier_arrive(&signals.empty_segment[segment.stage]);
    segment.next();
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
