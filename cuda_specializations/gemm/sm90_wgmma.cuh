// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Matrix products by wgmma and TMA for sm_90a: persistent blocks, one producer warp, cooperating
/// consumer warpgroups.
///
/// A ring of stages in shared memory, each 128 bytes of K of A's and B's tile, is filled by the
/// copy engine and emptied by the tensor cores. The producer runs ahead over the ends of tiles, so
/// that the loads of the next tile hide behind the epilogue of this one. Two blocks of a cluster
/// lie one above the other and share B's tile: each loads half of it into both. The epilogue hands
/// C to the copy engine through swizzled panels.
///
/// Source of the schedule: CUTLASS's and fast.cu's published descriptions of warp-specialized,
/// persistent Hopper GEMMs; PTX ISA for every layout.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_epilogue.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// How the tiles of C are numbered: clusters of `cluster` tiles along M, in groups of `group`
/// clusters along M, so that what runs at one time shares rows of A and columns of B in L2.
struct Sm90Tiles {
  int clusters_m, tiles_n, batch, group;
  __device__ __forceinline__ long long count() const {
    return static_cast<long long>(clusters_m) * tiles_n * batch;
  }
  __device__ __forceinline__ void locate(long long tile, int& z, int& m, int& n) const {
    int const per_batch = clusters_m * tiles_n;
    z = static_cast<int>(tile / per_batch);
    int const in_batch = static_cast<int>(tile - static_cast<long long>(z) * per_batch);
    int const width = group * tiles_n;
    int const first = in_batch / width * group;
    int const rows = min(clusters_m - first, group);
    int const in_group = in_batch - in_batch / width * width;
    m = first + in_group % rows;
    n = in_group / rows;
  }
};

/// How C is stored: 16-bit or 32-bit elements by the copy engine where alpha is all there is to do,
/// element by element otherwise.
enum class Sm90Store : std::uint8_t { halves, words, elements };

struct Sm90Params {
  CUtensorMap a, b, c;
  Sm90Tiles tiles;
  int k_blocks;      ///< 128-byte steps of K
  int a_batch_step;  ///< 0 where A is the same in every batch
  int b_batch_step;
  int splits;     ///< blocks that share out K
  int wave_rows;  ///< rows that a product of 64 rows really has; the rest of its tile is not loaded
  int m, n;
  Sm90Store store;
  Sm90Epilogue epilogue;
};

enum class Schedule { cooperative, ping_pong };

/// A kernel's shape. `A`, `B`: element types; `MnMajorA`: A's unit stride is along M. Two consumer
/// warpgroups share the rows of a tile (cooperative), or take tiles in turns, so that one
/// multiplies while the other stores (ping-pong). `Promoted`: the tensor cores sum 128 products,
/// ordinary float32 additions the rest.
template <class A_, class B_, bool MnMajorA, bool MnMajorB, int TileM, int TileN, int Cluster,
          int Stages, Schedule Order = Schedule::cooperative, bool Promoted = false>
struct Sm90Config {
  using A = A_;
  using B = B_;
  static constexpr bool integer = std::is_same_v<A, std::int8_t>;
  using Acc = std::conditional_t<integer, int, float>;
  static constexpr bool mn_a = MnMajorA, mn_b = MnMajorB;
  static constexpr bool promoted = Promoted;
  static constexpr int tile_m = TileM, tile_n = TileN, cluster = Cluster, stages = Stages;
  static constexpr int tile_k = 128 / static_cast<int>(sizeof(A));
  static constexpr int consumers = 2;
  static constexpr bool ping_pong = Order == Schedule::ping_pong;
  static constexpr int sharers = ping_pong ? 1 : consumers;  ///< warpgroups at work on one tile
  static constexpr int waves = TileM / (64 * sharers);       ///< 64-row products of a warpgroup
  static constexpr int threads = 128 * (1 + consumers);
  static constexpr int a_bytes = TileM * 128, b_bytes = TileN * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static constexpr int panel_bytes = 64 * 128;  ///< 64 rows × 128 bytes of C
  static constexpr int panels = 2 * consumers;
  static constexpr int shared_bytes =
      1024 + Stages * stage_bytes + panels * panel_bytes + 2 * 8 * Stages;
  static_assert(shared_bytes <= 232448);
  static_assert(TileM % 128 == 0 && TileN % 64 == 0 && (Cluster == 1 || TileN % 128 == 0));
};

namespace {

/// Loads the tiles of one stage. K-major operands come as one box of all rows, MN-major ones as
/// boxes of 64 along M or N.
template <class Config>
struct Sm90Loader {
  Sm90Params const& p;
  std::uint32_t rank;

  __device__ __forceinline__ void load(unsigned char* stage, std::uint64_t* full, int z, int m,
                                       int n, int k) const {
    int const za = z * p.a_batch_step, zb = z * p.b_batch_step;
    unsigned char* const a = stage;
    if constexpr (Config::mn_a) {
#pragma unroll
      for (int c = 0; c < Config::tile_m / 64; ++c)
        tma_load(a + c * 8192, &p.a, full, Keep::normal, m + 64 * c, k, za);
    } else {
      tma_load(a, &p.a, full, Keep::normal, k, m, za);
    }
    unsigned char* const b = stage + Config::a_bytes;
    constexpr int share = Config::tile_n / Config::cluster;  // rows that this block brings
    int const first = Config::cluster == 1 ? 0 : static_cast<int>(rank) * share;
    constexpr auto all = static_cast<std::uint16_t>((1 << Config::cluster) - 1);
    if constexpr (Config::mn_b) {
#pragma unroll
      for (int c = 0; c < share / 64; ++c) {
        unsigned char* const to = b + first * 128 + c * 8192;
        int const x = n + first + 64 * c;
        if constexpr (Config::cluster == 1)
          tma_load(to, &p.b, full, Keep::normal, x, k, zb);
        else
          tma_load_multicast(to, &p.b, full, all, Keep::normal, x, k, zb);
      }
    } else {
      unsigned char* const to = b + first * 128;
      if constexpr (Config::cluster == 1)
        tma_load(to, &p.b, full, Keep::normal, k, n, zb);
      else
        tma_load_multicast(to, &p.b, full, all, Keep::normal, k, n + first, zb);
    }
  }
};

/// The products of one stage for one warpgroup.
template <class Config>
__device__ __forceinline__ void multiply_stage(
    typename Config::Acc (&acc)[Config::waves][Config::tile_n / 2], std::uint64_t a,
    std::uint64_t b, int accumulate) {
  using Product =
      Wgmma<typename Config::A, typename Config::B, Config::tile_n, Config::mn_a, Config::mn_b>;
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    std::uint32_t const step_a = step * (Config::mn_a ? 2048 : 32);
    std::uint32_t const step_b = step * (Config::mn_b ? 2048 : 32);
#pragma unroll
    for (int wave = 0; wave < Config::waves; ++wave)
      Product::multiply(acc[wave], advance(a, step_a + wave * 8192), advance(b, step_b),
                        step == 0 ? accumulate : 1);
  }
  wgmma_commit();
}

/// Starts the products of one stage of float8 operands into `part`.
template <class Config, int Size>
__device__ __forceinline__ void start_part(float (&part)[Size], std::uint64_t a, std::uint64_t b) {
  using Product = Wgmma<typename Config::A, typename Config::B, Config::tile_n, 0, 0>;
  pin(part);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    Product::multiply(part, advance(a, step * 32), advance(b, step * 32), step != 0);
  wgmma_commit();
}

template <int Size>
__device__ __forceinline__ void add_part(float (&acc)[Size], float (&part)[Size]) {
  pin(part);
#pragma unroll
  for (int r = 0; r < Size; ++r) acc[r] += part[r];
}

/// Products of float8 operands of which the tensor cores sum those of one stage alone: they keep as
/// few as 14 bits of a long sum. While one stage's sums are added in float32, the next stage is
/// multiplied.
///
/// `take(stage)` waits for a stage and gives the descriptors of its operands; `release(stage)`
/// gives it back.
template <class Config, int Size, class Take, class Release>
__device__ __forceinline__ void multiply_promoted(float (&acc)[Size], int k_blocks, Take take,
                                                  Release release) {
  static_assert(Config::waves == 1);
  float even[Size], odd[Size];
#pragma unroll
  for (int r = 0; r < Size; ++r) acc[r] = 0;
  std::uint64_t a, b;
  int held = take(a, b);
  start_part<Config>(even, a, b);
  int k = 1;
  for (; k + 1 < k_blocks; k += 2) {
    int const second = take(a, b);
    start_part<Config>(odd, a, b);
    wgmma_wait<1>();
    release(held);
    add_part(acc, even);
    held = take(a, b);
    start_part<Config>(even, a, b);
    wgmma_wait<1>();
    release(second);
    add_part(acc, odd);
  }
  if (k < k_blocks) {
    int const second = take(a, b);
    start_part<Config>(odd, a, b);
    wgmma_wait<1>();
    release(held);
    add_part(acc, even);
    wgmma_wait<0>();
    release(second);
    add_part(acc, odd);
  } else {
    wgmma_wait<0>();
    release(held);
    add_part(acc, even);
  }
}

__device__ __forceinline__ std::uint32_t pack(DType type, float x, float y) {
  if (type == DType::float16) {
    __half2 const h = __floats2half2_rn(x, y);
    return *reinterpret_cast<std::uint32_t const*>(&h);
  }
  __nv_bfloat162 const h = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<std::uint32_t const*>(&h);
}

/// Puts columns 32 s ... 32 s + 31 of the accumulators into a panel of 64 rows of 128 bytes,
/// swizzled as the copy engine does. Words are floats times `alpha`, or integers as they are.
template <class Config>
__device__ __forceinline__ void stage_words(typename Config::Acc const* acc, unsigned char* panel,
                                            float alpha) {
  int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  int const row = 16 * (thread / 32) + lane / 4;
#pragma unroll
  for (int block = 0; block < 4; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int const r = 4 * block + 2 * i;
      int const line = row + 8 * i, chunk = 2 * block + (lane % 4) / 2;
      unsigned char* const at = panel + line * 128 + ((chunk ^ (line % 8)) * 16) + (lane % 2) * 8;
      if constexpr (Config::integer)
        *reinterpret_cast<int2*>(at) = make_int2(acc[r], acc[r + 1]);
      else
        *reinterpret_cast<float2*>(at) = make_float2(alpha * acc[r], alpha * acc[r + 1]);
    }
  }
}

/// The same for 64 columns of 16-bit elements.
template <class Config>
__device__ __forceinline__ void stage_halves(float const* acc, unsigned char* panel, float alpha,
                                             DType type) {
  int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  int const line = 16 * (thread / 32) + (lane / 8 & 1) * 8 + lane % 8;
  std::uint32_t const base = shared_address(panel) + line * 128;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    float const* const v = acc + 8 * pair;
    int const chunk = 2 * pair + lane / 16;
    store_matrices(base + ((chunk ^ (line % 8)) * 16), pack(type, alpha * v[0], alpha * v[1]),
                   pack(type, alpha * v[2], alpha * v[3]), pack(type, alpha * v[4], alpha * v[5]),
                   pack(type, alpha * v[6], alpha * v[7]));
  }
}

/// Finishes a staged panel of 64 × 32 sums and stores it element by element, 128 threads along C's
/// unit stride.
template <class Config>
__device__ __noinline__ void finish_panel(Sm90Params const& p, unsigned char const* panel, int z,
                                          int row0, int column0) {
  Sm90Epilogue const& e = p.epilogue;
  bool const along_m = e.along_m;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * 32; i += 128) {
    int const line = along_m ? i % 64 : i / 32, column = along_m ? i / 64 : i % 32;
    int const m = row0 + line, n = column0 + column;
    if (m >= p.m || n >= p.n) continue;
    unsigned char const* const at =
        panel + line * 128 + ((column / 4 ^ (line % 8)) * 16) + column % 4 * 4;
    std::int64_t const to = z * e.c_batch + m * e.c_m + n * e.c_n;
    if constexpr (Config::integer)
      store_integer(e, *reinterpret_cast<int const*>(at), z, m, n, to);
    else
      store_from_float(e.c, e.type_c, to, finish(e, *reinterpret_cast<float const*>(at), z, m, n));
  }
}

/// Stores the sums of 64 rows. What only scales goes to C through the copy engine, panel by panel;
/// the rest, and a C that the copy engine cannot reach, is finished from shared memory.
template <class Config>
__device__ __forceinline__ void store_wave(Sm90Params const& p,
                                           typename Config::Acc (&acc)[Config::tile_n / 2],
                                           unsigned char* panels, int& buffer, int group, int z,
                                           int row0, int column0) {
  Sm90Epilogue const& e = p.epilogue;
  bool const first_thread = threadIdx.x % 128 == 0;
  int const barrier = 1 + group;
  auto const begin_panel = [&] {
    unsigned char* const panel = panels + buffer * Config::panel_bytes;
    buffer ^= 1;
    if (first_thread) tma_store_wait_read<1>();  // the panel stored before the last one
    named_barrier_sync(barrier, 128);
    return panel;
  };
  auto const end_panel = [&](unsigned char* panel, int column) {
    fence_proxy_async();
    named_barrier_sync(barrier, 128);
    if (first_thread) {
      tma_store(&p.c, panel, column, row0, z);
      tma_store_commit();
    }
  };
  if (p.store == Sm90Store::halves) {
    if constexpr (!Config::integer) {
#pragma unroll
      for (int s = 0; s < Config::tile_n / 64; ++s) {
        if (column0 + 64 * s < p.n) {
          unsigned char* const panel = begin_panel();
          stage_halves<Config>(acc + 32 * s, panel, e.alpha, e.type_c);
          end_panel(panel, column0 + 64 * s);
        }
      }
    }
  } else {
#pragma unroll
    for (int s = 0; s < Config::tile_n / 32; ++s) {
      if (column0 + 32 * s < p.n) {
        unsigned char* const panel = begin_panel();
        bool const whole = p.store == Sm90Store::words;
        stage_words<Config>(acc + 16 * s, panel, whole ? e.alpha : 1.0f);
        if (whole) {
          end_panel(panel, column0 + 32 * s);
        } else {
          named_barrier_sync(barrier, 128);
          finish_panel<Config>(p, panel, z, row0, column0 + 32 * s);
        }
      }
    }
  }
}

constexpr int turn_barrier = 4;  // and 5: whose turn it is to multiply

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_gemm_kernel(__grid_constant__ Sm90Params const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw[];
  auto* const shared = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(raw) + 1023) & ~std::uintptr_t{1023});
  unsigned char* const panels = shared + Config::stages * Config::stage_bytes;
  auto* const full =
      reinterpret_cast<std::uint64_t*>(panels + Config::panels * Config::panel_bytes);
  std::uint64_t* const empty = full + Config::stages;

  int const group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  std::uint32_t const rank = Config::cluster == 1 ? 0 : cluster_rank();
  if (threadIdx.x == 0) {
    for (int s = 0; s < Config::stages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], 4 * Config::sharers * Config::cluster);  // a lane of each warp
    }
    fence_mbarrier_init();
  }
  if constexpr (Config::cluster == 1)
    __syncthreads();
  else
    cluster_sync();
  allow_next_launch();
  wait_for_previous_launch();

  long long const first = blockIdx.x / Config::cluster, step = gridDim.x / Config::cluster;
  long long const count = p.tiles.count();
  int stage = 0;
  std::uint32_t phase = 0;
  auto const next_stage = [&] {
    if (++stage == Config::stages) {
      stage = 0;
      phase ^= 1;
    }
  };

  if (group == 0) {
    decrease_registers<40>();
    if (threadIdx.x / 32 == 0 && elect_one()) {
      prefetch_tensor_map(&p.a);
      prefetch_tensor_map(&p.b);
      Sm90Loader<Config> const loader{p, rank};
      for (long long tile = first; tile < count; tile += step) {
        int z, m, n;
        p.tiles.locate(tile, z, m, n);
        m = (m * Config::cluster + static_cast<int>(rank)) * Config::tile_m;
        n *= Config::tile_n;
        for (int k = 0; k < p.k_blocks; ++k) {
          mbarrier_wait(&empty[stage], phase ^ 1);
          mbarrier_arrive_expect(&full[stage], Config::stage_bytes);
          loader.load(shared + stage * Config::stage_bytes, &full[stage], z, m, n,
                      k * Config::tile_k);
          next_stage();
        }
      }
    }
  } else {
    increase_registers<232>();
    int const consumer = group - 1;
    int const lane = static_cast<int>(threadIdx.x) % 32;
    auto const release = [&](int s) {
      if constexpr (Config::cluster == 1) {
        if (lane == 0) mbarrier_arrive(&empty[s]);
      } else {
        if (lane < Config::cluster) mbarrier_arrive_cluster(&empty[s], lane);
      }
    };
    int const share = Config::ping_pong ? 0 : consumer;  // of the rows of a tile
    std::uint64_t const a0 =
        operand_descriptor(shared + share * Config::waves * 8192, Config::tile_k * 128);
    std::uint64_t const b0 = operand_descriptor(shared + Config::a_bytes, Config::tile_k * 128);
    unsigned char* const own_panels = panels + consumer * 2 * Config::panel_bytes;
    int buffer = 0;
    typename Config::Acc acc[Config::waves][Config::tile_n / 2];
    // Ping-pong: a warpgroup passes over the stages of the other's tiles.
    auto const pass_tile = [&] {
      int const at = stage + p.k_blocks;
      phase ^= at / Config::stages & 1;
      stage = at % Config::stages;
    };
    long long tile = first, stride = step;
    if constexpr (Config::ping_pong) {
      stride = 2 * step;
      if (consumer == 1) {
        tile += step;
        pass_tile();
        if (first < count) named_barrier_arrive(turn_barrier, 256);
      }
    }
    for (; tile < count; tile += stride) {
      int z, m, n;
      p.tiles.locate(tile, z, m, n);
      m = (m * Config::cluster + static_cast<int>(rank)) * Config::tile_m +
          share * Config::waves * 64;
      if constexpr (Config::ping_pong) named_barrier_sync(turn_barrier + consumer, 256);
      n *= Config::tile_n;
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) pin(acc[wave]);
      if constexpr (Config::promoted) {
        multiply_promoted<Config>(
            acc[0], p.k_blocks,
            [&](std::uint64_t& a, std::uint64_t& b) {
              int const taken = stage;
              mbarrier_wait(&full[taken], phase);
              a = advance(a0, taken * Config::stage_bytes);
              b = advance(b0, taken * Config::stage_bytes);
              next_stage();
              return taken;
            },
            release);
      } else {
        int previous = -1;
        for (int k = 0; k < p.k_blocks; ++k) {
          mbarrier_wait(&full[stage], phase);
          multiply_stage<Config>(acc, advance(a0, stage * Config::stage_bytes),
                                 advance(b0, stage * Config::stage_bytes), k != 0);
          wgmma_wait<1>();  // the stage before this one has been read
          if (previous >= 0) release(previous);
          previous = stage;
          next_stage();
        }
        if constexpr (Config::ping_pong) {
          if (tile + step < count) named_barrier_arrive(turn_barrier + (1 - consumer), 256);
          pass_tile();
        }
        wgmma_wait<0>();
        release(previous);
      }
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) {
        pin(acc[wave]);
        store_wave<Config>(p, acc[wave], own_panels, buffer, consumer, z, m + 64 * wave, n);
      }
    }
    if (threadIdx.x % 128 == 0) tma_store_wait_read<0>();
  }
  if constexpr (Config::cluster > 1)
    cluster_sync();  // no block leaves while another may arrive at it
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
