// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file Flash attention by wgmma and TMA for sm_90a: persistent blocks of a producer warpgroup,
/// which loads what the others need, and consumer warpgroups of 64 rows each: queries of one head,
/// or few queries of two or four heads that share keys.
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

#include "bias.cuh"
#include "epilogue.cuh"
#include "producer.cuh"
#include "ptx/cluster.cuh"
#include "ptx/registers.cuh"
#include "ptx/thread_index.cuh"
#include "ptx/wgmma_a_registers.cuh"
#include "ptx/wgmma_rs.cuh"
#include "ring.cuh"
#include "score_columns.cuh"
#include "softcap.cuh"
#include "transpose_v.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Starts s = q·kᵀ of 64 queries and a block of keys, or s += what comes first.
template <class Config>
__device__ __forceinline__ void multiply_keys(float (&s)[Config::tile_n / 2], std::uint32_t q,
                                              std::uint32_t k) {
  using T = typename Config::Element;
#pragma unroll
  for (int step = 0; step < Config::d * static_cast<int>(sizeof(T)) / 32; ++step)
    Wgmma<T, T, Config::tile_n, 0, 0>::multiply(
        s, descriptor(q, step / 4 * 64 * 128 + step % 4 * 32),
        descriptor(k, step / 4 * Config::tile_n * 128 + step % 4 * 32),
        step != 0 || Config::columns || Config::bias_first);
  wgmma_commit();
}

/// Starts o (+)= weights·v.
template <class Config>
__device__ __forceinline__ void multiply_values(float (&o)[Config::dv / 2],
                                                std::uint32_t (&weights)[Config::weight_words],
                                                std::uint32_t v, int accumulate) {
  using T = typename Config::Element;
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < Config::weight_words / 4; ++step) {
    if constexpr (Config::transposes)
      WgmmaRegisters<T, T, Config::dv>::multiply(
          o, reinterpret_cast<std::uint32_t(&)[4]>(weights[4 * step]),
          descriptor(v, step / 4 * Config::dv * 128 + step % 4 * 32), step == 0 ? accumulate : 1);
    else
      WgmmaRs<T, Config::dv>::multiply(o, weights + 4 * step, descriptor(v, step * 2048),
                                       step == 0 ? accumulate : 1);
  }
  wgmma_commit();
}

/// Replaces weights that a product has read by the next ones.
template <int Count>
__device__ __forceinline__ void replace(std::uint32_t (&weights)[Count],
                                        std::uint32_t const (&fresh)[Count]) {
#pragma unroll
  for (int r = 0; r < Count; ++r) weights[r] = copy_register(fresh[r]);
}

constexpr int turn_barrier = 1;  // to 3: whose turn it is to multiply
constexpr int own_barrier = 4;   // to 6: the threads of one warpgroup

/// Values of keys from `length` on become 0, for one warpgroup of consumers.
template <class Config>
__device__ __forceinline__ void clear_values(unsigned char* v, int length, int consumer) {
  clear_rows<Config, 128>(v, length, fresh_thread() % 128);
  fence_proxy_async();
  named_barrier_sync(own_barrier + consumer, 128);
}

/// What one warpgroup of consumers does all the time. The first product of a tile and the last of
/// the one before are started together, as those of two blocks are. Rows are stored once the first
/// weights of the next tile are made; where there are no registers for that, beside its first
/// product. One function, since in parts it was 1 to 2 % slower in 4 of 18 cells at equal
/// registers.
template <class Config>
__device__ __forceinline__ void consume(Sm90AttentionParams const& p, unsigned char* q_ring,
                                        unsigned char* k_ring, unsigned char* v_ring,
                                        unsigned char* bias_ring, unsigned char* column_ring,
                                        Sm90AttentionSignals<Config>& signals, int consumer) {
  using T = typename Config::Element;
  constexpr int n_size = Config::tile_n;
  static_assert(Config::stages == 2);
  std::uint32_t const q0 = operand_word(q_ring, 16);
  std::uint32_t const k0 = operand_word(k_ring, 16);
  std::uint32_t const v0 = operand_word(v_ring, n_size * 128);
  [[maybe_unused]] std::uint32_t own_columns = 0, columns_0 = 0;
  if constexpr (Config::columns) {
    own_columns = operand_word(column_ring + consumer * 32, 16);
    columns_0 = operand_word(column_ring + query_column_bytes, 16 * column_pitch);
  }
  int const next = consumer + 1 == Config::consumers ? 0 : consumer + 1;
  float c = Config::terms ? 1.0f : p.scale * log2_e;  // of this tile
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

  // Blocks of keys and tiles so far: number n of a ring of two is in place n % 2, in phase
  // n / 2 % 2. stage_of() and parity_of() would say so, too, and change the order of instructions.
  std::uint32_t blocks = 0, tiles = 0;
  int q_slot = consumer;  // of this tile's queries
  std::uint32_t q_phase = 0;
  auto const phase = [](std::uint32_t n) { return n / 2 % 2; };
  auto const leave = [&](std::uint32_t n) {
    __syncwarp();
    if (first_lane) leave_tile(signals, n);
  };

  float s[n_size / 2], o[Config::dv / 2];
  std::uint32_t weights[Config::weight_words];
  SoftmaxRows rows{};
  // Whether tile n has a query that sees a key. Waits until the tile is known.
  auto const tile_has_keys = [&](std::uint32_t n) {
    auto const& t = wait_for_tile(signals, n);
    return uniform(t.row0 >= 0 && t.end > t.first) != 0;
  };
  std::uint32_t q = 0;  // descriptor of this tile's queries
  // What products of block number n are added to, made ready beside the wait for the turn.
  auto const read_bias = [&](std::uint32_t n) {
    if constexpr (Config::bias_first)
      add_copied_bias<Config>(p, s, bias_ring, signals, consumer, n);
  };
  // The same as a product.
  auto const start_columns = [&](std::uint32_t n) {
    if constexpr (Config::columns)
      multiply_columns<Config>(s, own_columns,
                               at_stage(columns_0, n % 2, Config::key_column_bytes));
  };
  auto const start_keys = [&](std::uint32_t block) {
    mbarrier_wait(&signals.full_q[q_slot], q_phase);
    mbarrier_wait(&signals.full_k[block % 2], phase(block));
    q = at_stage(q0, q_slot, Config::q_bytes);
    wgmma_fence();
    start_columns(block);
    multiply_keys<Config>(s, q, at_stage(k0, block % 2, Config::k_bytes));
  };
  auto const start_values = [&](bool accumulate) {
    mbarrier_wait(&signals.full_v[blocks % 2], phase(blocks));
    multiply_values<Config>(o, weights, at_stage(v0, blocks % 2, Config::v_bytes), accumulate);
  };
  // Stores the rows of tile n, whose weights were made with `by`.
  auto const store = [&](std::uint32_t n, SoftmaxRows const& by) {
    auto const& t = signals.tile[n % 4];
    bool const masked = uniform(t.end > t.whole_end || t.first < t.whole_from) != 0;
    return store_rows<Config>(p, t, o, by, c, own_query<Config>(p), masked, own_head<Config>(p));
  };
  auto const repair = [&](std::uint32_t n, BrokenRows const& broken) {
    if ((broken.lanes[0] | broken.lanes[1]) != 0) {
      auto const& t = signals.tile[n % 4];
      if constexpr (Config::stores_late) {
        call_repair_rows<Config>(p, t, broken);
      } else {
        repair_rows<Config>(p, t, broken);
      }
      // Of no use any more, which the products that begin the next sums do not tell the compiler:
      // it would keep them meanwhile.
#pragma unroll
      for (int r = 0; r < Config::dv / 2; ++r) o[r] = 0;
    }
    leave(n);
  };

  // Of this tile, read while its first product is under way. Three warpgroups have no registers for
  // what masks need, and read it anew each time.
  constexpr bool kept = Config::keeps_keys;
  int first = 0, end = 0;
  [[maybe_unused]] bool goes_on = false;  // the next tile has keys, too
  [[maybe_unused]] int poisoned = 0;
  [[maybe_unused]] int whole_from = 0, whole_end = 0;
  // Which scores of the block under way its two queries see, if not all.
  [[maybe_unused]] bool masked = false;
  [[maybe_unused]] std::uint32_t seen[2] = {};
  auto const look = [&](auto const& t, int n) {
    if constexpr (kept) {
      masked = n >= whole_end || n < whole_from;
      if (!masked) return;
      int const i = t.row0 + own_query<Config>(p), j = n * n_size + fresh_thread() % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        seen[half] = bits_before<n_size / 4>(t.seen_end(i + 8 * half) - j) &
                     ~bits_before<n_size / 4>(t.seen_from(i + 8 * half) - j);
    }
  };
  auto const read_tile = [&] {
    auto const& t = signals.tile[tiles % 4];
    first = uniform(t.first), end = uniform(t.end);
    if constexpr (Config::keeps_blocks)
      whole_from = uniform(t.whole_from), whole_end = uniform(t.whole_end),
      poisoned = uniform(t.poisoned_tail);
    look(t, block_at(t, end - 1));
    if constexpr (Config::scaled && !Config::terms) c = t.scale > 0 ? t.scale * log2_e : 1.0f;
    if constexpr (Config::overlaps_store && Config::keeps_blocks)
      goes_on = tile_has_keys(tiles + 1);
  };

  while (true) {
    while (!tile_has_keys(tiles)) {
      auto const& t = signals.tile[tiles % 4];
      if (uniform(t.row0) < 0) return;
      store_nothing<Config>(p, t);
      leave(tiles);
      ++tiles;
    }
    read_bias(blocks);
    begin_turn();
    pin(s);
    start_keys(blocks);
    end_turn();
    read_tile();
    wgmma_wait<0>();
    // Whether the rows of the tile before have yet to be stored, and their largest scores and sums,
    // which that takes.
    [[maybe_unused]] bool open = false;
    [[maybe_unused]] SoftmaxRows before{};
    while (true) {
      pin(s);
      release(&signals.empty_k[blocks % 2]);
      auto const& t = signals.tile[tiles % 4];
      [[maybe_unused]] ScoreTerms terms{};
      if constexpr (Config::terms && !Config::fuses_softcap)
        terms = score_terms(p, t, scale_of(p, t));
      // From products to scores of block n.
      auto const score = [&](int n) {
        if constexpr (Config::copies_bias && !Config::bias_first)
          add_copied_bias<Config>(p, s, bias_ring, signals, consumer, blocks + (n + 1 != end));
        if constexpr (Config::columns) finish_distances<Config>(p, t, n, s);
        bool const right = Config::keeps_blocks ? n >= whole_end : uniform(n >= t.whole_end) != 0;
        bool const left = Config::keeps_blocks ? n < whole_from : uniform(n < t.whole_from) != 0;
        if (Config::terms || ((left || right) && !kept)) {
          int const i = t.row0 + own_query<Config>(p), j = n * n_size + fresh_thread() % 4 * 2;
          if constexpr (Config::fuses_softcap)
            make_scores<Config>(p, t, s, i, j);
          else if constexpr (Config::terms)
            apply_terms(p, t, terms, s, i, j);
          if constexpr (Config::scaled && !Config::terms)
            if (!(t.scale > 0)) {
#pragma unroll
              for (int r = 0; r < n_size / 2; ++r) s[r] *= t.scale * log2_e;
            }
          if (right && !kept) mask_right(s, t.seen_end(i) - j, t.seen_end(i + 8) - j);
          if (left && !kept) mask_left(s, t.seen_from(i) - j, t.seen_from(i + 8) - j);
        }
        if constexpr (kept) {
          if (masked) keep_seen(s, seen);
        }
      };
      [[maybe_unused]] auto const pack_weights = [&] {
        if constexpr (!Config::spare_weights) {
#pragma unroll
          for (int r = 0; r < n_size / 4; ++r) weights[r] = pack_pair<T>(s[2 * r], s[2 * r + 1]);
        }
      };
      if (end - 1 == first) release(&signals.empty_q[q_slot]);
      [[maybe_unused]] std::uint32_t k = at_stage(k0, (blocks + 1) % 2, Config::k_bytes);
      [[maybe_unused]] std::uint32_t v = at_stage(v0, blocks % 2, Config::v_bytes);
      float factor[2];
      score(block_at(t, end - 1));
      [[maybe_unused]] std::uint32_t first_weights[Config::weight_words];
      if constexpr (Config::stores_late) {
        first_softmax<T>(s, rows, c, first_weights);
      } else if constexpr (Config::spare_weights) {
        first_softmax<T>(s, rows, c, weights);
      } else {
        rows = {{minus_infinity(), minus_infinity()}, {0, 0}};
        online_softmax_in_place(s, rows, c, factor);
        pack_weights();
      }
      if constexpr (Config::stores_late) {
        wgmma_wait<0>();
        if (open) {
          pin(o);
          release(&signals.empty_v[(blocks - 1) % 2]);
          repair(tiles - 1, store(tiles - 1, before));
        }
        replace(weights, first_weights);
      }
      if (!Config::transposes && (Config::keeps_blocks ? poisoned : t.poisoned_tail) != 0) {
        mbarrier_wait(&signals.full_v[blocks % 2], phase(blocks));
        clear_values<Config>(v_ring + blocks % 2 * Config::raw_bytes,
                             max(0, t.len_kv - (end - 1) * n_size), consumer);
      }
      if constexpr (Config::spare_weights) {
        for (int n = end - 2; n >= first; --n) {
          [[maybe_unused]] bool block_fuses = false;  // known before the wait for the turn
          if constexpr (Config::fuses_softcap)
            block_fuses = fuses_softcap_of<Config>(p, t, block_at(t, n));
          read_bias(blocks + 1);
          mbarrier_wait(&signals.full_k[(blocks + 1) % 2], phase(blocks + 1));
          begin_turn();
          pin(s);
          pin(o);
          wgmma_fence();
          start_columns(blocks + 1);
          multiply_keys<Config>(s, q, k);
          mbarrier_wait(&signals.full_v[blocks % 2], phase(blocks));
          multiply_values<Config>(o, weights, v, n + 2 != end);
          end_turn();
          look(t, block_at(t, n));
          k = at_stage(k0, blocks % 2, Config::k_bytes);  // of the next turn
          v = at_stage(v0, (blocks + 1) % 2, Config::v_bytes);
          wgmma_wait<1>();
          pin(s);
          release(&signals.empty_k[(blocks + 1) % 2]);
          if (n == first) release(&signals.empty_q[q_slot]);
          // The product with the values still reads `weights`.
          std::uint32_t fresh[Config::weight_words];
          bool rescale = false, weighed = false;
          if constexpr (Config::fuses_softcap)
            weighed = block_fuses && weigh_products<Config>(p, s, rows, fresh);
          if (!weighed) {
            score(block_at(t, n));
            if constexpr (Config::transposes)
              rescale = online_softmax_by_largest<T>(s, rows, c, fresh, factor);
            else
              rescale = online_softmax<T>(s, rows, c, fresh, factor);
          }
          wgmma_wait<0>();
          pin(o);
          release(&signals.empty_v[blocks % 2]);
          ++blocks;
          replace(weights, fresh);
          if (rescale) {
#pragma unroll
            for (int r = 0; r < Config::dv / 2; ++r) o[r] *= factor[r / 2 % 2];
          }
        }
      } else {
        for (int n = end - 2; n >= first; --n) {
          read_bias(blocks + 1);
          mbarrier_wait(&signals.full_k[(blocks + 1) % 2], phase(blocks + 1));
          begin_turn();
          pin(s);
          pin(o);
          wgmma_fence();
          start_columns(blocks + 1);
          multiply_keys<Config>(s, q, at_stage(k0, (blocks + 1) % 2, Config::k_bytes));
          start_values(n + 2 != end);
          end_turn();
          wgmma_wait<1>();
          pin(s);
          release(&signals.empty_k[(blocks + 1) % 2]);
          if (n == first) release(&signals.empty_q[q_slot]);
          score(block_at(t, n));
          bool const rescale = online_softmax_in_place(s, rows, c, factor);
          wgmma_wait<0>();
          pin(o);
          pin(s);
          release(&signals.empty_v[blocks % 2]);
          ++blocks;
          pack_weights();
          if (rescale) {
#pragma unroll
            for (int r = 0; r < Config::dv / 2; ++r) o[r] *= factor[r / 2 % 2];
          }
        }
      }
      advance_in_ring<Config::q_slots, Config::consumers>(q_slot, q_phase);
      std::uint32_t const last = tiles++;
      bool const alone =
          !Config::overlaps_store || !(Config::keeps_blocks ? goes_on : tile_has_keys(tiles));
      [[maybe_unused]] BrokenRows broken;
      if (alone) {
        begin_turn();
        pin(o);
        start_values(end - 1 != first);
        end_turn();
        wgmma_wait<0>();
        pin(o);
        release(&signals.empty_v[blocks % 2]);
        ++blocks;
        broken = store(last, rows);
        if constexpr (Config::stores_late) {
          repair(last, broken);
          break;
        }
      } else {
        read_bias(blocks + 1);
        begin_turn();
        pin(s);
        pin(o);
        if constexpr (Config::stores_late) {
          start_keys(blocks + 1);
          start_values(end - 1 != first);
          end_turn();
          ++blocks;
          open = true;
          before = rows;
          read_tile();
          wgmma_wait<1>();
        } else {
          start_values(end - 1 != first);
          ++blocks;
          start_keys(blocks);
          end_turn();
          wgmma_wait<1>();
          pin(o);
          release(&signals.empty_v[(blocks - 1) % 2]);
          broken = store(last, rows);
          read_tile();
          wgmma_wait<0>();
        }
      }
      if constexpr (!Config::stores_late) {
        repair(last, broken);
        if (alone) break;
      }
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_attention_kernel(__grid_constant__ Sm90AttentionParams const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char q_ring[];
  unsigned char* const k_ring = q_ring + Config::q_slots * Config::q_bytes;
  unsigned char* const v_ring = k_ring + Config::stages * Config::k_bytes;
  unsigned char* const raw_ring = v_ring + Config::stages * Config::v_bytes;
  unsigned char* const bias_ring = raw_ring + Config::raw_stages * Config::raw_bytes;
  unsigned char* const column_ring =
      bias_ring + Config::bias_producers * Config::bias_stages * Config::bias_bytes;
  auto& signals =
      *reinterpret_cast<Sm90AttentionSignals<Config>*>(column_ring + Config::column_bytes);
  static_assert(sizeof(signals) <= Config::signal_bytes + Config::order_bytes);
  int const group = warpgroup_of_block();
  if (threadIdx.x == 0) init_signals<Config>(p, signals);
  if (threadIdx.x == 32) {
    prefetch_tensor_map(&p.q);
    prefetch_tensor_map(&p.k);
    prefetch_tensor_map(&p.v);
  }
  __syncthreads();
  allow_next_launch();
  wait_for_previous_launch();
  if (group == 0) {
    if (p.ordered != 0) order_segments<Config>(p, k_ring, signals.order);
    decrease_registers<Config::producer_registers>();
    int const warp = warp_of_block();
    if constexpr (Config::transposes) {
      if (warp > 0) transpose_values<Config>(raw_ring, v_ring, signals, warp - 1);
      if (warp == 0 && elect_one()) produce<Config>(p, q_ring, k_ring, raw_ring, signals);
    } else if (Config::finds_apart && p.page_rows != 0 &&
               (warp % 3 == 0 || (Config::copies_rows && warp == 2))) {
      if constexpr (Config::finds_apart) produce_pages<Config>(p, k_ring, v_ring, signals, warp);
    } else if (warp == 0) {
      if (elect_one()) produce<Config>(p, q_ring, k_ring, v_ring, signals);
    } else if constexpr (Config::copies_bias) {
      if (warp <= Config::consumers && elect_one())
        produce_bias<Config>(p, bias_ring, signals, warp - 1);
    } else if (warp == 1) {
      if (elect_one()) produce_tiles<Config>(p, q_ring, signals);
    } else if constexpr (Config::columns) {
      if (warp == 2) produce_columns<Config>(p, column_ring, signals);
    }
  } else {
    increase_registers<Config::consumer_registers>();
    consume<Config>(p, q_ring, k_ring, v_ring, bias_ring, column_ring, signals, group - 1);
  }
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
