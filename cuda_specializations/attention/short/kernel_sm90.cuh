// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of many short sequences by wgmma and TMA for sm_90a: small persistent blocks, each
/// with a producer warp and as many warpgroups of 64 queries as a sequence fills.
///
/// The producer brings all queries, keys and values of a sequence's tile to one of two places while
/// the warpgroups work on the other; several blocks to a multiprocessor keep the memory busy
/// meanwhile. Longer sequences, which packed tensors may have, come in parts, queries anew each
/// time.
///
/// Source: J. Shah et al., "FlashAttention-3", arXiv:2407.08608, for the layouts; PTX ISA.
#pragma once

#include "common/descriptor_words.cuh"
#include "common/ring.cuh"
#include "epilogue.cuh"
#include "ptx/cluster.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/tma_4d.cuh"
#include "ptx/wgmma_rs.cuh"
#include "scores.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct Sm90ShortParams {
  CUtensorMap q, k, v;
  ShortParams s;
  int q_steps[2], k_steps[2], v_steps[2];  ///< 0 where the tensor is one for all heads, batches
  int teams, warpgroups;                   ///< of a block; of a team
  int stage_bytes;
};

/// What follows from one of sm90_short_shapes; `s.keys` is a multiple of 64. Three instantiations
/// for an element type.
template <class T, class Shape>
struct Sm90ShortConfig : ShortRows<T, Shape::d> {
  static constexpr bool stores_matrices = true;
  static constexpr int warpgroups = Shape::warpgroups;
  static constexpr int threads = 128 * warpgroups + 128;  ///< behind them a producer warp to a team
  static constexpr int producer_registers = 32, consumer_registers = Shape::registers;
  static constexpr int panels = (Shape::d + 63) / 64;  ///< of 64 features, 128 bytes a row
  static constexpr int block_bytes = 64 * panels * 128;
  static constexpr int signal_bytes = 1024;
};

/// What the producer shows the warpgroups along with operands: a tile and `left` keys of its
/// sequence from `begin` on.
struct Sm90ShortItem {
  ShortTile tile;
  ShortOut out;
  int begin, left;  ///< -1: no more
  unsigned kind;    ///< bits of short_first to short_cut
};
constexpr unsigned short_first = 1, short_last = 2;  // of the tile's parts
constexpr unsigned short_cut = 4;  // what lies behind the keys is no longer of this sequence

struct Sm90ShortSignals {
  std::uint64_t full_k[2], full_v[2], empty[2];
  Sm90ShortItem item[2];
};

namespace {

/// Brings one part of a tile, by one thread.
template <class Config>
__device__ __forceinline__ void load_short(Sm90ShortParams const& p, unsigned char* memory,
                                           Sm90ShortSignals& signals, ShortTile const& t, int begin,
                                           int from, int end, int n) {
  int const warpgroups = p.warpgroups, h_kv = p.s.group == 1 ? t.head : t.head / p.s.group;
  int const stage = stage_of<2>(n), left = max(0, min(end - begin, p.s.keys)),
            blocks = (left + 63) / 64;
  unsigned char* const q = memory + stage * p.stage_bytes;
  unsigned char* const k = q + warpgroups * Config::block_bytes;
  unsigned char* const v = k + p.s.keys / 64 * Config::block_bytes;
  auto const load = [](unsigned char* to, CUtensorMap const* map, std::uint64_t* full, int row,
                       int h, int b) {
#pragma unroll
    for (int panel = 0; panel < Config::panels; ++panel)
      tma_load(to + panel * 64 * 128, map, full, Keep::normal, panel * 64, row, h, b);
  };
  bool const cut =
      left % 64 != 0 && begin + left == t.len_kv && t.begin_kv + t.len_kv < p.s.args.seqlen_kv;
  Sm90ShortItem const item = {t, short_out<typename Config::Element>(p.s, t), begin, left,
                              (begin == from ? short_first : 0) |
                                  (begin + p.s.keys >= end ? short_last : 0) |
                                  (cut ? short_cut : 0)};
  int const there = left == 0 ? 0 : min(warpgroups, (t.len_q - t.row0 + 63) / 64);
  mbarrier_wait(&signals.empty[stage], parity_of<2>(n) ^ 1);
  signals.item[stage] = item;
  mbarrier_arrive_expect(&signals.full_k[stage], (there + blocks) * Config::block_bytes);
  for (int w = 0; w < there; ++w)
    load(q + w * Config::block_bytes, &p.q, &signals.full_k[stage], t.begin_q + t.row0 + 64 * w,
         t.head * p.q_steps[0], t.batch * p.q_steps[1]);
  for (int j = 0; j < blocks; ++j)
    load(k + j * Config::block_bytes, &p.k, &signals.full_k[stage], t.begin_kv + begin + 64 * j,
         h_kv * p.k_steps[0], t.batch * p.k_steps[1]);
  mbarrier_arrive_expect(&signals.full_v[stage], blocks * Config::block_bytes);
  for (int j = 0; j < blocks; ++j)
    load(v + j * Config::block_bytes, &p.v, &signals.full_v[stage], t.begin_kv + begin + 64 * j,
         h_kv * p.v_steps[0], t.batch * p.v_steps[1]);
}

/// Brings a team's first tile into L2, by its warpgroups, while the launch before this one comes to
/// its end and leaves memory idle. Only where what that launch writes cannot say where the tile
/// lies; what it writes to the tile is not missed, for nothing is read here.
///
/// By the copy engine, which brings the tile to shared memory next, it takes longer. <H200 700 W,
/// CUDA 13.0, bfloat16>, microseconds without, so and by the copy engine, 32768 tokens of 8 heads:
/// length 64, head_dim 64, 37.8, 36.0 and 36.0, of two tiles 36.3 and 36.4; length 64, head_dim 32,
/// 20.8, 21.0 and, of two tiles, 22.8; length 256, head_dim 64, 51.2, 51.4 and 51.8.
template <class T>
__device__ __forceinline__ void prefetch_short(Sm90ShortParams const& p, int team) {
  abi::AttentionArgs const& g = p.s.args;
  unsigned const unit = blockIdx.x * static_cast<unsigned>(p.teams) + static_cast<unsigned>(team);
  if (unit >= p.s.units || g.cu_seqlens_q.data != nullptr || g.cu_seqlens_kv.data != nullptr ||
      g.lengths_q != nullptr || g.lengths_kv != nullptr)
    return;
  ShortTile const t = locate_short(p.s, unit);
  int const h_kv = t.head / p.s.group, rows = 64 * p.warpgroups, threads = 32 * p.s.warps;
  auto const prefetch = [&](void const* base, std::int64_t const(&stride)[4], int head, int from,
                            int end, std::int64_t features) {
    T const* const first = static_cast<T const*>(base) + t.batch * stride[0] + head * stride[1];
    for (int i = from + static_cast<int>(threadIdx.x) % threads; i < end; i += threads)
      for (int c = 0; c < features; c += 64) prefetch_l2(first + i * stride[2] + c);
  };
  int const from = t.seen_from(t.row0), end = min(t.last_end(t.row0, rows), from + p.s.keys);
  prefetch(g.q, g.q_stride, t.head, t.row0, min(t.row0 + rows, t.len_q), g.head_dim);
  prefetch(g.k, g.k_stride, h_kv, from, end, g.head_dim);
  prefetch(g.v, g.v_stride, h_kv, from, end, g.head_dim_v);
}

/// What the producer of a team does all the time.
template <class Config>
__device__ __forceinline__ void produce_short(Sm90ShortParams const& p, unsigned char* memory,
                                              Sm90ShortSignals& signals, int team) {
  bool const leads = threadIdx.x % 32 == 0;
  int n = 0;
  auto const teams = static_cast<unsigned>(p.teams);
  for (unsigned unit = blockIdx.x * teams + static_cast<unsigned>(team); unit < p.s.units;
       unit += gridDim.x * teams) {
    ShortTile const t = locate_short(p.s, unit);
    if (t.row0 >= t.rows) continue;
    int const from = t.seen_from(t.row0), end = t.last_end(t.row0, 64 * p.warpgroups);
    int begin = from;
    do {
      if (leads) load_short<Config>(p, memory, signals, t, begin, from, end, n);
      ++n;
      begin += p.s.keys;
    } while (begin < end);
    __syncwarp();
  }
  if (!leads) return;
  mbarrier_wait(&signals.empty[stage_of<2>(n)], parity_of<2>(n) ^ 1);
  signals.item[stage_of<2>(n)].left = -1;
  mbarrier_arrive(&signals.full_k[stage_of<2>(n)]);
}

constexpr int short_team_barrier = 1;  // to 4: the warpgroups of a team
constexpr int short_own_barrier = 5;   // to 8: the threads of one warpgroup

/// What one warpgroup does all the time.
template <class Config>
__device__ __forceinline__ void consume_short(Sm90ShortParams const& p, unsigned char* memory,
                                              Sm90ShortSignals& signals, int team, int warpgroup) {
  using T = typename Config::Element;
  constexpr int d = Config::d;
  int const warpgroups = p.warpgroups;
  float const c = p.s.scale * log2_e;
  float o[d / 8][4] = {};
  auto& o_flat = reinterpret_cast<float(&)[d / 2]>(o);
  ShortSums rows;
  bool fresh = true, masked = false;
#pragma unroll 1
  for (int n = 0;; ++n) {
    int const stage = stage_of<2>(n);
    unsigned const phase = parity_of<2>(n);
    mbarrier_wait(&signals.full_k[stage], phase);
    Sm90ShortItem const& item = signals.item[stage];
    ShortTile const& t = item.tile;
    int const begin = item.begin, i0 = t.row0 + 64 * warpgroup;
    // All at once: each is long under way beside other warps' exponentials.
    int const left = uniform(item.left);
    unsigned const kind = uniform(item.kind);
    int const end = uniform(min(item.left, t.last_end(i0, 64) - begin));
    if (left < 0) return;
    if ((kind & short_first) != 0) {
      rows = {};
      fresh = true, masked = false;
    }
    unsigned char* const q = memory + stage * p.stage_bytes;
    unsigned char* const k = q + warpgroups * Config::block_bytes;
    unsigned char* const v = k + p.s.keys / 64 * Config::block_bytes;
    if ((kind & short_cut) != 0) {
      mbarrier_wait(&signals.full_v[stage], phase);
      int const thread = fresh_thread() - 128 * warpgroups * team;
#pragma unroll 1
      for (int at = left % 64 * 8 + thread; at < 64 * 8; at += 32 * p.s.warps) {
#pragma unroll
        for (int panel = 0; panel < Config::panels; ++panel)
          *reinterpret_cast<uint4*>(v + left / 64 * Config::block_bytes + panel * 64 * 128 +
                                    at * 16) = make_uint4(0, 0, 0, 0);
      }
      fence_proxy_async();
      named_barrier_sync(short_team_barrier + team, 32 * p.s.warps);
    }
    // In the loop nothing but products and exponentials: what reads shared memory or other lanes
    // would wait behind other warps' exponentials. Blocks before the first bound or behind the
    // second have keys that some of these queries do not see.
    int const masked_before = t.seen_from(i0 + 63) - begin;
    int const masked_behind = t.seen_end(i0) - begin - 64;
    std::uint32_t const of_q = descriptor_word(q + warpgroup * Config::block_bytes, 16);
    std::uint32_t of_k = descriptor_word(k, 16), of_v = descriptor_word(v, 64 * 128);
#pragma unroll 1
    for (int j = 0; j < end; j += 64) {
      float s[8][4];
      auto& s_flat = reinterpret_cast<float(&)[32]>(s);
      pin(s_flat);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < d / 16; ++step) {
        std::uint32_t const at = (step / 4 * 64 * 128 + step % 4 * 32) / 16;
        Wgmma<T, T, 64, 0, 0>::multiply(s_flat, descriptor(of_q + at), descriptor(of_k + at),
                                        step != 0);
      }
      wgmma_commit();
      of_k += Config::block_bytes / 16;
      wgmma_wait<0>();
      pin(s_flat);
      if (j < masked_before || j > masked_behind) {
        int const thread = fresh_thread() % 128;
        mask_short(s, t, t.row0 + 64 * warpgroup + thread / 32 * 16 + thread % 32 / 4,
                   item.begin + j + thread % 4 * 2);
        masked = true;
      }
      float factor[2];
      std::uint32_t weights[4][4];
      bool const raised = weigh_short<T>(s, fresh, rows, c, factor, weights);
      if (raised && !fresh) {
#pragma unroll
        for (int r = 0; r < d / 2; ++r) o_flat[r] *= factor[r / 2 % 2];
      }
      if (j == 0) mbarrier_wait(&signals.full_v[stage], phase);
      pin(o_flat);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        WgmmaRs<T, d>::multiply(o_flat, weights[step], descriptor(of_v + step * 128),
                                step == 0 ? !fresh : 1);
      wgmma_commit();
      of_v += Config::block_bytes / 16;
      wgmma_wait<0>();
      pin(o_flat);
      fresh = false;
    }
    mbarrier_wait(&signals.full_v[stage], phase);  // before the place is free again
    auto const release = [&] {
      fence_proxy_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&signals.empty[stage]);
    };
    if ((uniform(item.kind) & short_last) != 0) {
      named_barrier_sync(short_own_barrier + team * warpgroups + warpgroup,
                         128);  // rows of out go where queries are
      int const warp = fresh_thread() / 32;
      store_short<Config>(
          p.s, t, item.out, 4 * warpgroup + warp % 4,
          shared_address(q) + warpgroup * Config::block_bytes + warp % 4 * 16 * Config::row_bytes,
          rows, o, masked, release);
    } else {
      release();
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_short_kernel(__grid_constant__ Sm90ShortParams const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* const signals = reinterpret_cast<Sm90ShortSignals*>(memory + 2 * p.teams * p.stage_bytes);
  static_assert(4 * sizeof(Sm90ShortSignals) <= Config::signal_bytes);
  int const warp = warp_of_block();
  if (threadIdx.x == 32) {
    prefetch_tensor_map(&p.q);
    prefetch_tensor_map(&p.k);
    prefetch_tensor_map(&p.v);
  }
  if (static_cast<int>(threadIdx.x) < p.teams) {
    Sm90ShortSignals& own = signals[threadIdx.x];
    for (int s = 0; s < 2; ++s) {
      mbarrier_init(&own.full_k[s], 1);
      mbarrier_init(&own.full_v[s], 1);
      mbarrier_init(&own.empty[s], static_cast<std::uint32_t>(p.s.warps));
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  allow_next_launch();
  if (warp < p.teams * p.s.warps) prefetch_short<typename Config::Element>(p, warp / p.s.warps);
  wait_for_previous_launch();
  if (warp >= 4 * Config::warpgroups) {
    decrease_registers<Config::producer_registers>();
    int const team = warp - 4 * Config::warpgroups;
    if (team < p.teams)
      produce_short<Config>(p, memory + 2 * team * p.stage_bytes, signals[team], team);
  } else {
    increase_registers<Config::consumer_registers>();
    int const team = warp / p.s.warps;
    if (team < p.teams)
      consume_short<Config>(p, memory + 2 * team * p.stage_bytes, signals[team], team,
                            warp % p.s.warps / 4);
  }
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
