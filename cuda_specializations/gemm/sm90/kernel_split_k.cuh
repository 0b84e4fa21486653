// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products with few tiles for sm_90a: one tile for a cluster of blocks, which share out K.
///
/// Small tiles and many stages keep enough bytes under way to read a long, thin operand at the
/// speed of memory; the blocks of a cluster sum their parts through distributed shared memory in a
/// fixed order, so that there is neither a workspace nor an order that changes.
#pragma once

#include "common/limits.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// One consumer warpgroup and one producer warp; one of the shapes for few tiles of shapes.cuh.
template <class A_, class B_, class Layout, class Shape>
struct Sm90SplitConfig {
  using A = A_;
  using B = B_;
  static constexpr bool integer = std::is_same_v<A, std::int8_t>;
  using Acc = std::conditional_t<integer, int, float>;
  static constexpr bool mn_a = Layout::mn_a, mn_b = Layout::mn_b;
  static constexpr bool promoted = Shape::promoted, gated = Shape::gated;
  static constexpr bool registers_a = false;
  static constexpr int waves = Shape::waves, tile_m = 64 * waves, tile_n = Shape::columns;
  static constexpr int blocks_per_sm = Shape::blocks;
  static constexpr int tile_k = 128 / static_cast<int>(sizeof(A));
  /// Whether blocks fetch ahead while they wait for the launch before theirs. Where two share a
  /// multiprocessor, one that waits would take from one that works.
  static constexpr bool leads = blocks_per_sm == 1 && !mn_a && !gated;
  static constexpr int factor_warps = promoted ? 1 : 0, first_factor_thread = 160;
  static constexpr int threads = 160 + 32 * factor_warps;
  static constexpr int a_bytes = tile_m * 128;
  /// MN-major operands come in boxes of 64 columns, swizzled ones in 8 rows.
  static constexpr int b_bytes = (mn_b && tile_n < 64 ? 64 : tile_n) * 128;
  static constexpr int steps = Shape::steps, step_bytes = a_bytes + b_bytes;
  static constexpr int stage_bytes = steps * step_bytes;
  /// A stage's factors, where sums are promoted, which may change from column to column.
  static constexpr bool column_factors = true;
  static constexpr int factor_slot = promoted ? factor_slot_bytes(tile_m, tile_n) : 0;
  /// All that fit beside the blocks' alignment.
  static constexpr int ring_bytes =
      (blocks_per_sm == 1 ? 2 * sm90_share_of_shared(2) : sm90_share_of_shared(2)) - 2048;
  static constexpr int stages = ring_bytes / (stage_bytes + factor_slot + 2 * 8);
  /// Words from one row of staged sums to the next: the padding keeps a warp's stores in different
  /// banks.
  static constexpr int pitch_m = tile_m + 4, pitch_n = tile_n + 8;
  static constexpr int staged_words =
      pitch_m * tile_n > pitch_n* tile_m ? pitch_m* tile_n : pitch_n* tile_m;
  static constexpr int factor_bytes = stages * factor_slot;
  static constexpr int shared_bytes = 1024 + stages * stage_bytes + factor_bytes + 2 * 8 * stages;
  static_assert(shared_bytes <= sm90_share_of_shared(blocks_per_sm));
  static_assert(staged_words * 4 <= stages * stage_bytes);
};

namespace {

constexpr int most_splits = 8;  ///< blocks that share out K of a tile

/// Loads the tiles of one stage: a wave's rows apart, since there may be fewer than its 64 places.
template <class Config>
__device__ __forceinline__ void load_split_stage(Sm90Params const& p, unsigned char* stage,
                                                 std::uint64_t* full, int z, int m, int n, int k) {
  int const za = z * p.a_batch_step, zb = z * p.b_batch_step;
#pragma unroll
  for (int wave = 0; wave < Config::waves; ++wave) {
    int const row = m + (Config::gated ? 0 : wave * p.wave_rows);
    tma_load(stage + wave * 8192, Config::gated && wave == 1 ? &p.up : &p.a, full, Keep::briefly,
             Config::mn_a ? row : k, Config::mn_a ? k : row, za);
  }
  unsigned char* const b = stage + Config::a_bytes;
  if constexpr (Config::mn_b) {
#pragma unroll
    for (int c = 0; c < (Config::tile_n + 63) / 64; ++c)
      tma_load(b + c * 8192, &p.b, full, Keep::long_term, n + 64 * c, k, zb);
  } else {
    tma_load(b, &p.b, full, Keep::long_term, k, n, zb);
  }
}

/// Brings the first lines of a block's rows into L2, from where the copy engine gets them sooner:
/// at once, although the launch before this one may still be writing them (see prefetch_l2). The
/// consumers' threads do it, whose requests pass the copy engine by; it would be busy with its own
/// until after the wait. `line`: the first of the block's share of K.
template <class Config>
__device__ __forceinline__ void prefetch_rows(Sm90Params const& p, int z, int m, int rows, int line,
                                              int lines) {
  unsigned char const* const first =
      p.lead.rows + z * p.lead.batch_bytes + m * p.lead.row_bytes + line * 128;
  int const count = min(rows, p.m - m) * lines;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 128) {
    int const row = i / lines;
    prefetch_l2(first + row * p.lead.row_bytes + (i - row * lines) * 128);
  }
}

/// Brings a block's share of K to the ring, by one thread.
template <class Config>
__device__ __forceinline__ void load_split_share(Sm90Params const& p,
                                                 Ring<Config::stages> const& ring,
                                                 unsigned char* shared, int z, int m, int n,
                                                 int begin, int end) {
  int const rows = p.wave_rows * Config::waves;
  RingPosition<Config::stages> at;
  for (int k = begin; k < end; k += Config::steps) {
    ring.acquire(at);
    std::uint64_t* const full = &ring.full[at.stage];
    mbarrier_arrive_expect(full, Config::steps * (rows * 128 + Config::b_bytes));
    unsigned char* const to = shared + at.stage * Config::stage_bytes;
#pragma unroll
    for (int step = 0; step < Config::steps; ++step)
      load_split_stage<Config>(p, to + step * Config::step_bytes, full, z, m, n,
                               (k + step) * Config::tile_k);
    at.next();
  }
}

/// Brings the block scales of a block's share of K, by one warp. (load_factors() with bounds of K
/// makes promoted tiles of 128 columns spill.)
template <class Config>
__device__ __forceinline__ void load_split_factors(Sm90Params const& p,
                                                   Ring<Config::stages> const& ring,
                                                   std::uint32_t factors, int z, int m, int n,
                                                   int begin, int end) {
  Sm90FactorLoader<Config> const loader(p, z, m, n);
  RingPosition<Config::stages> at;
  for (int k = begin; k < end; ++k) {
    ring.acquire(at);
    loader.load(factors + at.stage * Sm90FactorSlot<Config>::bytes, &ring.full[at.stage], k);
    at.next();
  }
}

/// Puts a warpgroup's sums in place of the stages, along C's unit stride.
template <class Config>
__device__ __forceinline__ void put_split_sums(
    typename Config::Acc const (&acc)[Config::waves][Config::tile_n / 2],
    typename Config::Acc* sums, bool along_m, int warp, int lane) {
#pragma unroll
  for (int wave = 0; wave < Config::waves; ++wave) {
#pragma unroll
    for (int r = 0; r < Config::tile_n / 2; ++r) {
      int const row = 64 * wave + 16 * warp + lane / 4 + 8 * (r >> 1 & 1);
      int const column = 8 * (r >> 2) + 2 * (lane % 4) + (r & 1);
      sums[along_m ? column * Config::pitch_m + row : row * Config::pitch_n + column] =
          acc[wave][r];
    }
  }
}

/// Finishes elements of C along its unit stride, from position `at` of row or column `outer` of the
/// tile on. `sum_at`: the sum of all shares at an address of this block's sums. References, since
/// copies take registers.
template <class Config, class SumAt>
struct SplitFinisher {
  using Acc = typename Config::Acc;
  Sm90Params const& p;
  Epilogue const& e;
  EpilogueFactors const& factors;
  Acc const* const& sums;
  SumAt const& sum_at;
  bool const& along_m;
  int const &pitch, &up, &z, &m, &n;

  /// Eight, which are one store.
  __device__ __forceinline__ void eight(int outer, int at) const {
    int const row = along_m ? at : outer, column = along_m ? outer : at;
    int const wave_row = Config::waves == 1 ? row : row % 64;
    int const to_m = m + row / 64 * p.wave_rows + wave_row, to_n = n + column;
    if (wave_row >= p.wave_rows || to_m >= p.m || to_n >= p.n) return;
    Acc const* const from = sums + outer * pitch + at;
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if constexpr (Config::gated)
        v[j] = activate_called(p.gate, sum_at(from + j)) * sum_at(from + up + j);
      else
        v[j] = factors.apply(sum_at(from + j));
    }
    uint4 const packed =
        make_uint4(pack_pair(e.type_c, v[0], v[1]), pack_pair(e.type_c, v[2], v[3]),
                   pack_pair(e.type_c, v[4], v[5]), pack_pair(e.type_c, v[6], v[7]));
    std::int64_t const to = z * e.c_batch + to_m * e.c_m + to_n * e.c_n;
    *reinterpret_cast<uint4*>(static_cast<__half*>(e.c) + to) = packed;
  }

  /// `count`, which are one store with `vectors` if all are inside C.
  __device__ __forceinline__ void some(int outer, int at, bool vectors, int count) const {
    int const row = along_m ? at : outer, column = along_m ? outer : at;
    int const wave_row = Config::waves == 1 ? row : row % 64;
    int const to_m = m + row / 64 * p.wave_rows + wave_row, to_n = n + column;
    if (wave_row >= p.wave_rows || to_m >= p.m || to_n >= p.n) return;
    Acc const* const from = sums + outer * pitch + at;
    auto const finished_sum = [&](int j) {
      Acc sum = sum_at(from + j);
      if constexpr (Config::gated) sum = activate_called(p.gate, sum) * sum_at(from + up + j);
      return sum;
    };
    int const exist = along_m ? p.m - to_m : p.n - to_n;
    if (vectors && exist >= 4) {
      FourOf<Acc> const four[1] = {
          {finished_sum(0), finished_sum(1), finished_sum(2), finished_sum(3)}};
      finish_and_store<Acc, 1>(e, {along_m, z, along_m ? to_m : to_n, {along_m ? to_n : to_m}},
                               four, 1);
    } else if (e.only_alpha) {
      std::int64_t const to = z * e.c_batch + to_m * e.c_m + to_n * e.c_n;
      store_times_alpha<4>(e, to, along_m ? e.c_m : e.c_n, min(exist, count), finished_sum);
    } else {
#pragma unroll 1
      for (int j = 0; j < min(exist, count); ++j) {
        Acc const sum = finished_sum(j);
        int const at_m = along_m ? to_m + j : to_m, at_n = along_m ? to_n : to_n + j;
        if (e.pre_activation.data != nullptr)
          keep_argument(e, static_cast<float>(sum), z, at_m, at_n);
        finish_element(e, sum, z, at_m, at_n);
      }
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_sm)
    sm90_split_kernel(__grid_constant__ Sm90Params const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Acc = typename Config::Acc;
  extern __shared__ unsigned char raw[];
  auto* const shared = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(raw) + 1023) & ~std::uintptr_t{1023});
  auto* const full =
      reinterpret_cast<std::uint64_t*>(shared + Config::stages * Config::stage_bytes);
  Ring<Config::stages> const ring{full, full + Config::stages};
  std::uint32_t const factors_at =
      shared_address(ring.empty + Config::stages);  // of promoted products
  int const warp = warp_of_block();
  int const rank = static_cast<int>(cluster_rank());
  int const splits = p.splits;
  bool const fetches = p.block_factors == BlockFactors::fetched;
  if (threadIdx.x == 0) {
    ring.init(1 + (fetches ? 32 * Config::factor_warps : 0), 4);
    fence_mbarrier_init();
  }
  if (threadIdx.x == 128) {
    prefetch_tensor_map(&p.a);
    prefetch_tensor_map(&p.b);
  }
  if constexpr (Config::promoted) Sm90FactorSlot<Config>::clear(factors_at);
  __syncthreads();
  allow_next_launch();

  int z, m, n;
  p.tiles.locate(blockIdx.x / splits, z, m, n);
  int const rows = p.wave_rows * Config::waves;
  m *= Config::gated ? p.wave_rows : rows;
  n *= Config::tile_n;
  // Shares of K are whole stages, so that no block reads into the next one's.
  auto const share = [&](int r) {
    long long const stages = (p.k_blocks + Config::steps - 1) / Config::steps;
    return static_cast<int>(stages * r / splits) * Config::steps;
  };
  int const begin = share(rank), end = share(rank + 1);
  Epilogue const& e = p.epilogue;
  bool const along_m = e.along_m;
  auto* const sums =
      reinterpret_cast<Acc*>(shared);  // in place of the stages, along C's unit stride

  if constexpr (Config::leads) {
    if (warp < 4 && p.lead.lines != 0)
      prefetch_rows<Config>(p, z, m, rows, begin, min(p.lead.lines, min(end, p.k_blocks) - begin));
  }
  wait_for_previous_launch();
  EpilogueFactors const factors(e, z);  // long before their use

  if (warp == 4) {
    if (elect_one()) load_split_share<Config>(p, ring, shared, z, m, n, begin, end);
  } else if (warp == 5) {
    if constexpr (Config::promoted)
      if (fetches) load_split_factors<Config>(p, ring, factors_at, z, m, n, begin, end);
  } else {
    int const lane = static_cast<int>(threadIdx.x) % 32;
    std::uint64_t const a0 = operand_descriptor(shared, Config::tile_k * 128);
    std::uint64_t const b0 = operand_descriptor(shared + Config::a_bytes, Config::tile_k * 128);
    Acc acc[Config::waves][Config::tile_n / 2];
#pragma unroll
    for (int wave = 0; wave < Config::waves; ++wave) {
#pragma unroll
      for (int r = 0; r < Config::tile_n / 2; ++r) acc[wave][r] = 0;
      pin(acc[wave]);
    }
    RingPosition<Config::stages> at;
    auto const release = [&](int s) {
      if (lane == 0) ring.release(s);
    };
    if constexpr (Config::promoted) {
      static_assert(Config::steps == 1);
      auto const take = [&](std::uint64_t& a, std::uint64_t& b) {
        return take_operands<Config>(ring, at, a0, b0, a, b);
      };
      if (begin < end)
        with_block_scales<Config>(p, factors_at, 0, [&](auto scales) {
          multiply_promoted<Config>(acc[0], scales, end - begin, take, release);
        });
    } else {
      int previous = -1;
      for (int k = begin; k < end; k += Config::steps) {
        ring.wait(at);
#pragma unroll
        for (int step = 0; step < Config::steps; ++step) {
          std::uint32_t const to = at.stage * Config::stage_bytes + step * Config::step_bytes;
          multiply_stage<Config>(acc, advance(a0, to), advance(b0, to), 1);
        }
        wgmma_wait<Config::steps>();
        if (previous >= 0) release(previous);
        previous = at.stage;
        at.next();
      }
      wgmma_wait<0>();
    }
#pragma unroll
    for (int wave = 0; wave < Config::waves; ++wave) pin(acc[wave]);
    named_barrier_sync(1, 128);  // no warp's products read the stages any more
    put_split_sums<Config>(acc, sums, along_m, warp, lane);
  }
  if (splits > 1)
    cluster_sync();
  else
    __syncthreads();
  // Each block finishes its share of the elements, eight along C's unit stride at a time where that
  // is one store. (As functions that are given numbers, and not references, this takes two to four
  // registers more; so do the products above as a function.)
  int const first = rank * Config::threads + static_cast<int>(threadIdx.x);
  int const stride = splits * Config::threads;
  constexpr int out_m = Config::gated ? 64 : Config::tile_m;  // rows of C
  int const inner = along_m ? out_m : Config::tile_n;
  int const pitch = along_m ? Config::pitch_m : Config::pitch_n;
  auto const sum_at = [&](Acc const* at) {
    Acc sum = *at;
    if (splits > 1) {
      Acc parts[most_splits];  // all are on their way before the first is added
#pragma unroll
      for (int from = 0; from < most_splits; ++from)
        parts[from] = from < splits ? load_cluster(at, from) : Acc{0};
      sum = 0;
#pragma unroll
      for (int from = 0; from < most_splits; ++from) sum += parts[from];
    }
    return sum;
  };
  constexpr int elements = out_m * Config::tile_n;
  // Of a gated product, the sum of the up projection lies as far behind that of the gate.
  int const up = along_m ? 64 : 64 * pitch;
  SplitFinisher<Config, decltype(sum_at)> const finish{p,     e,  factors, sums, sum_at, along_m,
                                                       pitch, up, z,       m,    n};
  if (p.store == Sm90Store::halves) {
    for (int i = first; i < elements / 8; i += stride)
      finish.eight(i / (inner / 8), i % (inner / 8) * 8);
  } else {
    // Four at a time where they are one store, and inside C.
    bool const vectors = p.store == Sm90Store::vectors;
    int const count = vectors || e.only_alpha ? 4 : 1;
#pragma unroll 1
    for (int i = first; i < elements / count; i += stride)
      finish.some(i / (inner / count), i % (inner / count) * count, vectors, count);
  }
  if (splits > 1) cluster_sync();  // the others may still read this block's sums
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
