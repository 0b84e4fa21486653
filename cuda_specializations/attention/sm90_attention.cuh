// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention by wgmma and TMA for sm_90a: persistent blocks, one producer warp, consumer
/// warpgroups of 64 queries each.
///
/// The producer brings the queries of a tile, and blocks of keys and values from the last that a
/// query of the tile sees to the first, into a ring of shared memory; it also works out which tile
/// comes next. A consumer multiplies queries by the next block of keys while it turns the scores of
/// this one into weights, which stay in registers as the left operand of the product with the
/// values. The warpgroups multiply in turns, so that one's softmax runs beside another's products.
///
/// Source of the schedule: J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA for every
/// layout.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/tma_4d.cuh"
#include "../ptx/wgmma_rs.cuh"
#include "sm90_attention_store.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Position in a ring of stages.
template <int Stages>
struct RingPosition {
  int stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// Loads `rows` positions from `row` on, 64 features at a time.
template <class Config>
__device__ __forceinline__ void load_rows(unsigned char* to, CUtensorMap const* map,
                                          std::uint64_t* full, Keep keep, int rows, int row, int h,
                                          int b) {
#pragma unroll
  for (int panel = 0; panel < Config::d / 64; ++panel)
    tma_load(to + panel * rows * 128, map, full, keep, panel * 64, row, h, b);
}

/// What one thread of the producer does all the time.
template <class Config>
__device__ __forceinline__ void produce(Sm90AttentionParams const& p, unsigned char* q_ring,
                                        unsigned char* k_ring, unsigned char* v_ring,
                                        Sm90AttentionSignals<Config>& signals) {
  RingPosition<Config::stages> k_at, v_at;
  RingPosition<Config::q_stages> q_at;
  RingPosition<4> tile_at;
  for (int step = 0; step >= 0;) {
    int z, slot;
    Sm90AttentionTile t;
    if (!next_tile(p, step, z, slot) || !locate_tile<Config>(p, z, slot, t)) continue;
    mbarrier_wait(&signals.empty_tile[tile_at.stage], tile_at.phase ^ 1);
    signals.tile[tile_at.stage] = t;
    mbarrier_arrive(&signals.full_tile[tile_at.stage]);
    tile_at.next();
    if (t.end <= t.first) continue;
    int const h_kv = t.head / p.group_of_heads;
    auto const load_k = [&](int n) {
      mbarrier_wait(&signals.empty_k[k_at.stage], k_at.phase ^ 1);
      mbarrier_arrive_expect(&signals.full_k[k_at.stage], Config::kv_bytes);
      load_rows<Config>(k_ring + k_at.stage * Config::kv_bytes, &p.k, &signals.full_k[k_at.stage],
                        Keep::long_term, Config::tile_n, t.begin_kv + n * Config::tile_n,
                        h_kv * p.k_steps[0], t.batch * p.k_steps[1]);
      k_at.next();
    };
    load_k(t.end - 1);
    mbarrier_wait(&signals.empty_q[q_at.stage], q_at.phase ^ 1);
    mbarrier_arrive_expect(&signals.full_q[q_at.stage], Config::q_bytes);
    load_rows<Config>(q_ring + q_at.stage * Config::q_bytes, &p.q, &signals.full_q[q_at.stage],
                      Keep::briefly, Config::tile_m, t.begin_q + t.row0, t.head * p.q_steps[0],
                      t.batch * p.q_steps[1]);
    q_at.next();
    for (int n = t.end - 1; n >= t.first; --n) {
      if (n > t.first) load_k(n - 1);
      mbarrier_wait(&signals.empty_v[v_at.stage], v_at.phase ^ 1);
      mbarrier_arrive_expect(&signals.full_v[v_at.stage], Config::kv_bytes);
      load_rows<Config>(v_ring + v_at.stage * Config::kv_bytes, &p.v, &signals.full_v[v_at.stage],
                        Keep::long_term, Config::tile_n, t.begin_kv + n * Config::tile_n,
                        h_kv * p.v_steps[0], t.batch * p.v_steps[1]);
      v_at.next();
    }
  }
  mbarrier_wait(&signals.empty_tile[tile_at.stage], tile_at.phase ^ 1);
  signals.tile[tile_at.stage].row0 = -1;
  mbarrier_arrive(&signals.full_tile[tile_at.stage]);
}

/// threadIdx.x, read anew each time, so that what follows from it is not kept in registers.
__device__ __forceinline__ int fresh_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// The same value, known to the compiler as equal in all lanes.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }

/// The low word of an operand's descriptor; the high word is the same for all of them. Equal in all
/// lanes and known to the compiler as such, which then keeps it in uniform registers.
__device__ __forceinline__ std::uint32_t operand_word(void const* base, std::uint32_t leading) {
  return __shfl_sync(0xffffffff, static_cast<std::uint32_t>(operand_descriptor(base, leading)), 0);
}
__device__ __forceinline__ std::uint32_t at_stage(std::uint32_t word, std::uint32_t stage,
                                                  int bytes) {
  return __shfl_sync(0xffffffff, word + stage * static_cast<std::uint32_t>(bytes >> 4), 0);
}
/// The descriptor `bytes` further on.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t word, int bytes) {
  constexpr std::uint64_t high = std::uint64_t{1024 >> 4 | 1 << 30}
                                 << 32;  // as operand_descriptor()
  return high | (word + static_cast<std::uint32_t>(bytes >> 4));
}

/// Starts s = q·kᵀ of 64 queries and a block of keys.
template <class Config>
__device__ __forceinline__ void multiply_keys(float (&s)[Config::tile_n / 2], std::uint32_t q,
                                              std::uint32_t k) {
  using T = typename Config::Element;
#pragma unroll
  for (int step = 0; step < Config::d / 16; ++step)
    Wgmma<T, T, Config::tile_n, 0, 0>::multiply(
        s, descriptor(q, step / 4 * Config::tile_m * 128 + step % 4 * 32),
        descriptor(k, step / 4 * Config::tile_n * 128 + step % 4 * 32), step != 0);
  wgmma_commit();
}

/// Starts o (+)= weights·v.
template <class Config>
__device__ __forceinline__ void multiply_values(float (&o)[Config::d / 2],
                                                std::uint32_t (&weights)[Config::tile_n / 4],
                                                std::uint32_t v, int accumulate) {
#pragma unroll
  for (int step = 0; step < Config::tile_n / 16; ++step)
    WgmmaRs<typename Config::Element, Config::d>::multiply(
        o, weights + 4 * step, descriptor(v, step * 2048), step == 0 ? accumulate : 1);
  wgmma_commit();
}

constexpr int turn_barrier = 1;  // to 3: whose turn it is to multiply
constexpr int own_barrier = 4;   // to 6: the threads of one warpgroup

/// Values of keys from `length` on become 0: a weight of 0 would make a NaN of a NaN.
template <class Config>
__device__ __forceinline__ void clear_values(unsigned char* v, int length, int consumer) {
  int const thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll 1
  for (int at = length * 8 + thread; at < Config::tile_n * 8; at += 128) {
#pragma unroll
    for (int panel = 0; panel < Config::d / 64; ++panel)
      *reinterpret_cast<uint4*>(v + panel * Config::tile_n * 128 + at * 16) =
          make_uint4(0, 0, 0, 0);
  }
  fence_proxy_async();
  named_barrier_sync(own_barrier + consumer, 128);
}

/// What one warpgroup of consumers does all the time. The last product of a tile and the first of
/// the next one are started together, so that rows are stored beside products.
template <class Config>
__device__ __forceinline__ void consume(Sm90AttentionParams const& p, unsigned char* q_ring,
                                        unsigned char* k_ring, unsigned char* v_ring,
                                        Sm90AttentionSignals<Config>& signals, int consumer) {
  using T = typename Config::Element;
  constexpr int n_size = Config::tile_n;
  static_assert(Config::stages == 2);
  std::uint32_t const q0 = operand_word(q_ring + consumer * 64 * 128, 16);
  std::uint32_t const k0 = operand_word(k_ring, 16);
  std::uint32_t const v0 = operand_word(v_ring, n_size * 128);
  // A thread's first query in a tile, worked out where it is needed: registers are scarce.
  auto const own_row = [] {
    int const thread = fresh_thread() - 128;
    return thread / 32 * 16 + thread % 32 / 4;
  };
  int const next = consumer + 1 == Config::consumers ? 0 : consumer + 1;
  float const c = Config::terms ? 1.0f : p.scale * log2_e;
  bool const first_lane = threadIdx.x % 32 == 0;
  auto const release = [&](std::uint64_t* barrier) {
    if (first_lane) mbarrier_arrive(barrier);
  };
  auto const begin_turn = [&] {
    if constexpr (Config::turns) named_barrier_sync(turn_barrier + consumer, 256);
  };
  auto const end_turn = [&] {
    if constexpr (Config::turns) named_barrier_arrive(turn_barrier + next, 256);
  };
  if constexpr (Config::turns)
    if (consumer + 1 == Config::consumers) named_barrier_arrive(turn_barrier, 256);

  // Blocks of keys, tiles of queries and tiles at all so far: number n of a ring of two is in place
  // n % 2, in phase n / 2 % 2.
  std::uint32_t blocks = 0, queries = 0, tiles = 0;
  auto const q_place = [&](std::uint32_t n) { return n % Config::q_stages; };
  auto const q_phase = [&](std::uint32_t n) { return n / Config::q_stages % 2; };
  auto const phase = [](std::uint32_t n) { return n / 2 % 2; };
  auto const leave_tile = [&](std::uint32_t n) {
    __syncwarp();
    release(&signals.empty_tile[n % 4]);
  };

  float s[n_size / 2], o[Config::d / 2];
  std::uint32_t weights[n_size / 4];
  SoftmaxRows rows{};
  // Whether the next tile has a query that sees a key. Waits until the tile is known.
  auto const tile_has_keys = [&] {
    mbarrier_wait(&signals.full_tile[tiles % 4], tiles / 4 % 2);
    Sm90AttentionTile const& t = signals.tile[tiles % 4];
    return uniform(t.row0 >= 0 && t.end > t.first) != 0;
  };
  auto const start_keys = [&] {
    mbarrier_wait(&signals.full_q[q_place(queries)], q_phase(queries));
    mbarrier_wait(&signals.full_k[blocks % 2], phase(blocks));
    wgmma_fence();
    multiply_keys<Config>(s, at_stage(q0, q_place(queries), Config::q_bytes),
                          at_stage(k0, blocks % 2, Config::kv_bytes));
  };
  auto const start_values = [&](bool accumulate) {
    mbarrier_wait(&signals.full_v[blocks % 2], phase(blocks));
    wgmma_fence();
    multiply_values<Config>(o, weights, at_stage(v0, blocks % 2, Config::kv_bytes), accumulate);
  };
  auto const store = [&](std::uint32_t n) {
    Sm90AttentionTile const& t = signals.tile[n % 4];
    return store_rows<Config>(p, t, o, rows, c, t.row0 + own_row());
  };
  auto const repair = [&](std::uint32_t n, BrokenRows const& broken) {
    Sm90AttentionTile const& t = signals.tile[n % 4];
    repair_rows<Config>(p, t, broken, t.row0 + own_row());
    leave_tile(n);
  };

  while (true) {
    while (!tile_has_keys()) {
      Sm90AttentionTile const& t = signals.tile[tiles % 4];
      if (uniform(t.row0) < 0) return;
      store_nothing<Config>(p, t);
      leave_tile(tiles);
      ++tiles;
    }
    begin_turn();
    pin(s);
    start_keys();
    end_turn();
    wgmma_wait<0>();
    while (true) {
      pin(s);
      release(&signals.empty_k[blocks % 2]);
      Sm90AttentionTile const& t = signals.tile[tiles % 4];
      int const first = uniform(t.first), end = uniform(t.end);
      std::uint32_t const q = at_stage(q0, q_place(queries), Config::q_bytes);
      [[maybe_unused]] ScoreTerms terms{};
      if constexpr (Config::terms) terms = score_terms(p, t);
      // From products to scores of block n.
      auto const score = [&](int n) {
        bool const right = uniform(n >= t.whole_end) != 0, left = uniform(n < t.whole_from) != 0;
        if (Config::terms || right || left) {
          int const i = t.row0 + own_row(), j = n * n_size + fresh_thread() % 4 * 2;
          if constexpr (Config::terms) apply_terms(p, t, terms, s, i, j);
          if (right) mask_right(s, t.seen_end(i) - j, t.seen_end(i + 8) - j);
          if (left) mask_left(s, t.seen_from(i) - j, t.seen_from(i + 8) - j);
        }
      };
      [[maybe_unused]] auto const pack_weights = [&] {
#pragma unroll
        for (int r = 0; r < n_size / 4; ++r) weights[r] = pack_pair<T>(s[2 * r], s[2 * r + 1]);
      };
      float factor[2];
      rows = {{minus_infinity(), minus_infinity()}, {0, 0}};
      score(end - 1);
      if constexpr (Config::spare_weights) {
        online_softmax<T, true>(s, rows, c, weights, factor);
      } else {
        online_softmax_in_place(s, rows, c, factor);
        pack_weights();
      }
      if (t.poisoned_tail) {
        mbarrier_wait(&signals.full_v[blocks % 2], phase(blocks));
        clear_values<Config>(v_ring + blocks % 2 * Config::kv_bytes,
                             max(0, t.len_kv - (end - 1) * n_size), consumer);
      }
      if constexpr (Config::spare_weights) {
        std::uint32_t k = at_stage(k0, (blocks + 1) % 2, Config::kv_bytes);
        std::uint32_t v = at_stage(v0, blocks % 2, Config::kv_bytes);
        for (int n = end - 2; n >= first; --n) {
          mbarrier_wait(&signals.full_k[(blocks + 1) % 2], phase(blocks + 1));
          mbarrier_wait(&signals.full_v[blocks % 2], phase(blocks));
          begin_turn();
          pin(s);
          pin(o);
          wgmma_fence();
          multiply_keys<Config>(s, q, k);
          wgmma_fence();
          multiply_values<Config>(o, weights, v, n + 2 != end);
          end_turn();
          k = at_stage(k0, blocks % 2, Config::kv_bytes);  // of the next turn
          v = at_stage(v0, (blocks + 1) % 2, Config::kv_bytes);
          wgmma_wait<1>();
          pin(s);
          release(&signals.empty_k[(blocks + 1) % 2]);
          std::uint32_t fresh[n_size / 4];  // the product with the values still reads `weights`
          score(n);
          bool const rescale = online_softmax<T, false>(s, rows, c, fresh, factor);
          wgmma_wait<0>();
          pin(o);
          release(&signals.empty_v[blocks % 2]);
          ++blocks;
#pragma unroll
          for (int r = 0; r < n_size / 4; ++r)
            asm volatile("mov.b32 %0, %1;" : "=r"(weights[r]) : "r"(fresh[r]) : "memory");
          if (rescale) {
#pragma unroll
            for (int r = 0; r < Config::d / 2; ++r) o[r] *= factor[r / 2 % 2];
          }
        }
      } else {
        for (int n = end - 2; n >= first; --n) {
          mbarrier_wait(&signals.full_k[(blocks + 1) % 2], phase(blocks + 1));
          begin_turn();
          pin(s);
          pin(o);
          wgmma_fence();
          multiply_keys<Config>(s, q, at_stage(k0, (blocks + 1) % 2, Config::kv_bytes));
          start_values(n + 2 != t.end);
          end_turn();
          wgmma_wait<1>();
          pin(s);
          release(&signals.empty_k[(blocks + 1) % 2]);
          score(n);
          bool const rescale = online_softmax_in_place(s, rows, c, factor);
          wgmma_wait<0>();
          pin(o);
          pin(s);
          release(&signals.empty_v[blocks % 2]);
          ++blocks;
          pack_weights();
          if (rescale) {
#pragma unroll
            for (int r = 0; r < Config::d / 2; ++r) o[r] *= factor[r / 2 % 2];
          }
        }
      }
      release(&signals.empty_q[q_place(queries)]);
      ++queries;
      std::uint32_t const last = tiles++;
      if (!tile_has_keys()) {
        begin_turn();
        pin(o);
        start_values(signals.tile[last % 4].end - 1 != signals.tile[last % 4].first);
        end_turn();
        wgmma_wait<0>();
        pin(o);
        release(&signals.empty_v[blocks % 2]);
        ++blocks;
        repair(last, store(last));
        break;
      }
      begin_turn();
      pin(o);
      pin(s);
      start_values(signals.tile[last % 4].end - 1 != signals.tile[last % 4].first);
      ++blocks;
      start_keys();
      end_turn();
      wgmma_wait<1>();
      pin(o);
      release(&signals.empty_v[(blocks - 1) % 2]);
      BrokenRows const broken = store(last);
      wgmma_wait<0>();
      pin(s);
      repair(last, broken);
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_attention_kernel(__grid_constant__ Sm90AttentionParams const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw[];
  auto* const q_ring = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(raw) + 1023) & ~std::uintptr_t{1023});
  unsigned char* const k_ring = q_ring + Config::q_stages * Config::q_bytes;
  unsigned char* const v_ring = k_ring + Config::stages * Config::kv_bytes;
  auto& signals =
      *reinterpret_cast<Sm90AttentionSignals<Config>*>(v_ring + Config::stages * Config::kv_bytes);
  static_assert(sizeof(signals) <= Config::signal_bytes);
  int const group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    constexpr int warps = 4 * Config::consumers;
    for (int s = 0; s < Config::stages; ++s) {
      mbarrier_init(&signals.full_k[s], 1);
      mbarrier_init(&signals.full_v[s], 1);
      mbarrier_init(&signals.empty_k[s], warps);
      mbarrier_init(&signals.empty_v[s], warps);
    }
    for (int s = 0; s < 4; ++s) {
      mbarrier_init(&signals.full_tile[s], 1);
      mbarrier_init(&signals.empty_tile[s], warps);
    }
    for (int s = 0; s < Config::q_stages; ++s) {
      mbarrier_init(&signals.full_q[s], 1);
      mbarrier_init(&signals.empty_q[s], warps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  allow_next_launch();
  wait_for_previous_launch();
  if (group == 0) {
    decrease_registers<Config::producer_registers>();
    if (threadIdx.x / 32 == 0 && elect_one()) produce<Config>(p, q_ring, k_ring, v_ring, signals);
  } else {
    increase_registers<Config::consumer_registers>();
    consume<Config>(p, q_ring, k_ring, v_ring, signals, group - 1);
  }
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
