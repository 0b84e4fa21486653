// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of groups of rows, each with a matrix of its own, by wgmma and TMA for sm_90a.
///
/// As sm90_wgmma.cuh, with two differences. The blocks find their tiles in the offsets (or counts)
/// that lie on the device: tiles are numbered group by group, and each role walks along. And the
/// product is turned, Cᵀ = Bᵀ·Aᵀ, so that the groups' rows are the columns of wgmma, which come in
/// steps finer than 64: a group of any size is cut into tiles that waste little. Tiles of 256
/// columns of C ask little of L2 however few rows they have; two warpgroups share them out. Those
/// of float8 have 128, since promoted sums take the registers of three. Two blocks of a cluster
/// take tiles one below the other, and each brings half of the weights into both: ragged groups
/// soon carry blocks out of step, and what shares weights would read them again and again.
#pragma once

#include <cuda.h>

#include "../ptx/cluster.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_grouped_factors.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Factors that are constant along K; strides from matrix to matrix, and along rows or columns.
struct GroupedFactors {
  float const* data;
  std::int64_t batch, stride;
};

struct GroupedParams {
  CUtensorMap weights, rows;
  void const* offsets;  ///< of groups + 1 first rows; null: counts
  bool wide;            ///< offsets have 64 bits
  std::int64_t offsets_stride;
  std::int32_t const* counts;
  std::int64_t counts_stride;
  int groups, m, n;
  int tiles_n, k_blocks;
  int weights_step;  ///< 0 where all groups have the same weights
  int rows_step;     ///< 1 where each group has a matrix of rows
  /// Factors of the rows and, group by group, of the columns of C; no data: 1.
  GroupedFactors row_factors, column_factors;
  /// Those that change along K: of rows, and of 128 columns at a time; no data: 1.
  abi::ScaleGrid block_rows, block_columns;
  bool blocks;  ///< one of the two has data
  bool whole;   ///< rows of C are stored 16 bytes at a time, alpha is all there is to do
  Sm90Epilogue epilogue;
};

/// `Weights_`, `Rows_`: element types of B and A. `MnWeights`: the unit stride of B is along N.
template <class Weights_, class Rows_, bool MnWeights>
struct GroupedConfig {
  using Weights = Weights_;
  using Rows = Rows_;
  static constexpr bool mn = MnWeights;
  /// The tensor cores sum the products of one stage, float32 additions the stages: see
  /// sm90_promoted.cuh.
  static constexpr bool promoted = sizeof(Weights) == 1;
  static constexpr int waves = promoted ? 1 : 2;  ///< 64-row products of a warpgroup
  static constexpr int tile_n = 128 * waves;      ///< columns of C
  static constexpr int most_rows = 128;           ///< of a tile
  static constexpr int cluster = 2;
  static constexpr int box_rows = 32;
  static constexpr int stages = promoted ? 5 : 4, threads = 384;
  static constexpr int tile_k = 128 / static_cast<int>(sizeof(Weights));
  static constexpr int weights_bytes = tile_n * 128, rows_bytes = most_rows * 128;
  static constexpr int stage_bytes = weights_bytes + rows_bytes;
  static constexpr int panel_bytes = most_rows * 128;  ///< rows of 64 16-bit elements of C
  /// A stage's factors: of rows, and of all columns.
  static constexpr int factor_bytes = promoted ? 4 * most_rows + 16 : 0;
  static constexpr int shared_bytes =
      stages * (stage_bytes + factor_bytes) + 2 * panel_bytes + 16 * stages;
  static_assert(shared_bytes <= 232448);
};

namespace {

/// Rows of a tile rounded up to a width that there is an instruction for.
__device__ __forceinline__ int grouped_width(int rows) {
  return rows <= 32 ? 32 : rows <= 64 ? 64 : rows <= 96 ? 96 : rows <= 112 ? 112 : 128;
}

/// A walk along the tiles, `tile_n` columns wide, in ascending order.
template <int tile_n>
struct GroupWalk {
  GroupedParams const& p;
  int group = -1, begin = 0, end = 0;  ///< the current group and its rows
  int first = 0, tiles_rows = 0;       ///< its first pair of tiles, its pairs along rows

  __device__ __forceinline__ int offset(int g) const {
    std::int64_t const at = g * p.offsets_stride;
    std::int64_t const value = p.wide
                                   ? static_cast<std::int64_t const*>(p.offsets)[at]
                                   : std::int64_t{static_cast<std::int32_t const*>(p.offsets)[at]};
    return static_cast<int>(value < 0 ? 0 : value > p.m ? p.m : value);
  }
  __device__ __forceinline__ void bounds(int g, int& from, int& to) const {
    if (p.offsets != nullptr) {
      from = offset(g), to = offset(g + 1);
    } else {
      from = 0, to = p.counts == nullptr ? p.m : min(p.m, p.counts[g * p.counts_stride]);
    }
  }
  /// Pairs of tiles, of 128 rows each but for the last pair.
  __device__ __forceinline__ static int tiles_of(int rows) {
    return rows > 0 ? (rows + 255) / 256 : 0;
  }
  /// All pairs of tiles of C; every lane of a warp gets it.
  __device__ __forceinline__ int count() const {
    int tiles = 0;
    for (int g = static_cast<int>(threadIdx.x) % 32; g < p.groups; g += 32) {
      int from, to;
      bounds(g, from, to);
      tiles += tiles_of(to - from);
    }
    return __reduce_add_sync(0xffffffff, static_cast<unsigned>(tiles)) * p.tiles_n;
  }
  /// Goes to a pair not before the current one, which must exist. The tile `rank` of it has rows
  /// [row, row + rows) of its group's, maybe none, and columns from n on.
  __device__ __forceinline__ void go(int tile, int rank, int& row, int& rows, int& n) {
    while (group < 0 || tile >= first + tiles_rows * p.tiles_n) {
      first += tiles_rows * p.tiles_n;
      ++group;
      bounds(group, begin, end);
      tiles_rows = tiles_of(end - begin);
    }
    // Tiles that share weights, or rows, follow one another.
    constexpr int together = 8;
    int const local = tile - first, band = local / (together * p.tiles_n);
    int const across = min(tiles_rows - band * together, together);
    int const in_band = local - band * together * p.tiles_n;
    int const column = in_band / across;
    // Turned from column to column: a last pair of fewer rows shall not always fall to one cluster.
    int const pair = band * together + (in_band + column) % across;
    int const left = end - begin - pair * 256, height = left >= 256 ? 128 : (left + 1) / 2;
    row = begin + pair * 256 + rank * height;
    rows = min(height, end - row);
    n = column * tile_n;
  }
};

/// Finishes 64 columns of C of up to 32 rows, which lie as floats in lines of 65.
__device__ __noinline__ void finish_grouped(GroupedParams const& p, float const* sums, int z,
                                            int row, int rows, int n) {
  Sm90Epilogue const& e = p.epilogue;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * rows; i += 128) {
    int const line = e.along_m ? i % rows : i / 64, column = e.along_m ? i / rows : i % 64;
    if (n + column < p.n)
      store_one(e, z * e.c_batch + (row + line) * e.c_m + (n + column) * e.c_n,
                finish(e, sums[line * 65 + column], z, row + line, n + column));
  }
}

/// The sums of a product of this width among those of the widest.
template <int Width, int Size>
__device__ __forceinline__ float (&first_of(float (&acc)[Size]))[Width / 2] {
  return reinterpret_cast<float(&)[Width / 2]>(acc);
}

template <class Config>
struct GroupedConsumer {
  GroupedParams const& p;
  unsigned char* panel;
  int barrier;

  /// Stores sums of the waves' columns of C from `n` on and `Width` rows, of which `rows` exist.
  template <int Width>
  __device__ __forceinline__ void store(float (&acc)[Config::waves][Config::most_rows / 2],
                                        int group, int row, int rows, int n) const {
    int const z = group * p.rows_step;
#pragma unroll
    for (int wave = 0; wave < Config::waves; ++wave) {
      int const n0 = n + 64 * wave;
      if (n0 < p.n) {
        if constexpr (Config::promoted)
          scale<Width>(first_of<Width>(acc[wave]), group, row, rows, n0);
        if (p.whole)
          store_whole<Width>(first_of<Width>(acc[wave]), z, row, rows, n0);
        else
          finish<Width>(first_of<Width>(acc[wave]), z, row, rows, n0);
      }
    }
  }

 private:
  /// Multiplies sums by the factors of their rows and columns.
  template <int Width>
  __device__ __forceinline__ void scale(float (&v)[Width / 2], int group, int row, int rows,
                                        int n) const {
    GroupedFactors const &of_rows = p.row_factors, &of_columns = p.column_factors;
    int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    if (of_columns.data != nullptr) {
      float const* const from = of_columns.data + group * of_columns.batch;
      float factor[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        factor[i] =
            from[min(n + 16 * (thread / 32) + lane / 4 + 8 * i, p.n - 1) * of_columns.stride];
#pragma unroll
      for (int r = 0; r < Width / 2; ++r) v[r] *= factor[r / 2 % 2];
    }
    if (of_rows.data != nullptr && rows > 0) {
      float const* const from =
          of_rows.data + group * p.rows_step * of_rows.batch + row * of_rows.stride;
#pragma unroll
      for (int b = 0; b < Width / 8; ++b)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float const factor = from[min(8 * b + lane % 4 * 2 + j, rows - 1) * of_rows.stride];
          v[4 * b + j] *= factor, v[4 * b + 2 + j] *= factor;
        }
    }
  }

  /// Through a panel of rows of 64 16-bit elements, swizzled like those of operands.
  template <int Width>
  __device__ __forceinline__ void store_whole(float const (&v)[Width / 2], int z, int row, int rows,
                                              int n) const {
    Sm90Epilogue const& e = p.epilogue;
    int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    named_barrier_sync(barrier, 128);  // nobody reads what the panel held
    std::uint32_t const base = shared_address(panel);
    int const chunk = 2 * (thread / 32) + lane / 8 % 2;
#pragma unroll
    for (int b = 0; b < Width / 8; b += 2) {
      int const line = 8 * (b + lane / 16) + lane % 8, r = 4 * b;
      store_matrices_transposed(base + line * 128 + ((chunk ^ (line % 8)) * 16),
                                pack(e.type_c, e.alpha * v[r], e.alpha * v[r + 1]),
                                pack(e.type_c, e.alpha * v[r + 2], e.alpha * v[r + 3]),
                                pack(e.type_c, e.alpha * v[r + 4], e.alpha * v[r + 5]),
                                pack(e.type_c, e.alpha * v[r + 6], e.alpha * v[r + 7]));
    }
    named_barrier_sync(barrier, 128);
    int const column = thread % 8;
    if (n + 8 * column < p.n) {
      auto* to =
          static_cast<__half*>(e.c) + z * e.c_batch + (row + thread / 8) * e.c_m + n + 8 * column;
#pragma unroll 4
      for (int line = thread / 8; line < rows; line += 16, to += 16 * e.c_m)
        *reinterpret_cast<uint4*>(to) =
            *reinterpret_cast<uint4 const*>(panel + line * 128 + ((column ^ (line % 8)) * 16));
    }
  }

  /// Element by element, from 32 rows of sums at a time.
  template <int Width>
  __device__ __forceinline__ void finish(float const (&v)[Width / 2], int z, int row, int rows,
                                         int n) const {
    int const thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    auto* const sums = reinterpret_cast<float*>(panel);
#pragma unroll
    for (int part = 0; part < Width; part += 32) {
      if (part < rows) {
        named_barrier_sync(barrier, 128);
#pragma unroll
        for (int b = 0; b < (Width - part < 32 ? Width - part : 32) / 8; ++b)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            sums[(8 * b + lane % 4 * 2 + i % 2) * 65 + 16 * (thread / 32) + lane / 4 + i / 2 * 8] =
                v[part / 2 + 4 * b + i];
        named_barrier_sync(barrier, 128);
        finish_grouped(p, sums, z, row + part, min(rows - part, 32), n);
      }
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    sm90_grouped_kernel(__grid_constant__ GroupedParams const p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* const panels = shared + Config::stages * Config::stage_bytes;
  auto* const full = reinterpret_cast<std::uint64_t*>(panels + 2 * Config::panel_bytes);
  std::uint64_t* const empty = full + Config::stages;
  std::uint32_t const factors = shared_address(empty + Config::stages);

  int const role = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Config::stages; ++s) {
      mbarrier_init(&full[s], 1 + (Config::promoted && p.blocks ? factor_threads : 0));
      mbarrier_init(&empty[s], 8 * Config::cluster);  // a lane of each warp of both blocks
    }
    fence_mbarrier_init();
  }
  for (int i = static_cast<int>(threadIdx.x); i < Config::stages * Config::factor_bytes / 4;
       i += Config::threads)
    store_shared(factors + 4 * i, 1.0f);  // those that there are none of
  cluster_sync();
  allow_next_launch();
  wait_for_previous_launch();

  GroupWalk<Config::tile_n> walk{p};
  int const count = walk.count();
  int const rank = static_cast<int>(cluster_rank());
  int const first = static_cast<int>(blockIdx.x) / 2, step = static_cast<int>(gridDim.x) / 2;
  int stage = 0;
  std::uint32_t phase = 0;
  auto const next_stage = [&] {
    if (++stage == Config::stages) {
      stage = 0;
      phase ^= 1;
    }
  };

  if (role == 0) {
    decrease_registers<40>();
    if (threadIdx.x / 32 == 0 && elect_one()) {
      prefetch_tensor_map(&p.weights);
      prefetch_tensor_map(&p.rows);
#pragma unroll 1
      for (int tile = first; tile < count; tile += step) {
        int row, rows, n;
        walk.go(tile, rank, row, rows, n);
        int const z = walk.group * p.weights_step, z_rows = walk.group * p.rows_step;
        int const boxes = (max(rows, 0) + Config::box_rows - 1) / Config::box_rows;
#pragma unroll 1
        for (int k = 0; k < p.k_blocks; ++k) {
          mbarrier_wait(&empty[stage], phase ^ 1);
          mbarrier_arrive_expect(&full[stage],
                                 Config::weights_bytes + boxes * Config::box_rows * 128);
          unsigned char* const to = shared + stage * Config::stage_bytes;
          unsigned char* const half = to + rank * (Config::weights_bytes / 2);
          int const k0 = k * Config::tile_k, n0 = n + rank * (Config::tile_n / 2);
          if constexpr (Config::mn) {
#pragma unroll
            for (int c = 0; c < Config::tile_n / 128; ++c)
              tma_load_multicast(half + 8192 * c, &p.weights, &full[stage], 3, Keep::normal,
                                 n0 + 64 * c, k0, z);
          } else {
            tma_load_multicast(half, &p.weights, &full[stage], 3, Keep::normal, k0, n0, z);
          }
          for (int b = 0; b < boxes; ++b)
            tma_load(to + Config::weights_bytes + b * Config::box_rows * 128, &p.rows, &full[stage],
                     Keep::normal, k0, row + b * Config::box_rows, z_rows);
          next_stage();
        }
      }
    } else if (Config::promoted && p.blocks && threadIdx.x / 32 != 0 &&
               threadIdx.x / 32 <= factor_threads / 32) {
#pragma unroll 1
      for (int tile = first; tile < count; tile += step) {
        int row, rows, n;
        walk.go(tile, rank, row, rows, n);
        GroupedFactorLoader const from(p.block_rows, p.block_columns, walk.group * p.rows_step,
                                       walk.group, row, p.m - 1, n);
#pragma unroll 1
        for (int k = 0; k < p.k_blocks; ++k) {
          mbarrier_wait(&empty[stage], phase ^ 1);
          from.load(factors + stage * Config::factor_bytes, &full[stage], k);
          next_stage();
        }
      }
    }
  } else {
    increase_registers<232>();
    int const consumer = role - 1, lane = static_cast<int>(threadIdx.x) % 32;
    GroupedConsumer<Config> const out{p, panels + consumer * Config::panel_bytes, 1 + consumer};
    std::uint64_t const a0 =
        operand_descriptor(shared + consumer * Config::waves * 8192, Config::tile_k * 128);
    std::uint64_t const b0 =
        operand_descriptor(shared + Config::weights_bytes, Config::tile_k * 128);
    auto const release = [&](int s) {
      if (lane < Config::cluster) mbarrier_arrive_cluster(&empty[s], lane);
    };
    // One set of registers for all widths: of what is not written before it is read, the compiler
    // would keep a set for each.
    float acc[Config::waves][Config::most_rows / 2];
    auto const pin_all = [&] {
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) pin(acc[wave]);
    };
    auto const run = [&]<int Width>(std::integral_constant<int, Width>, int row, int rows, int n) {
      pin_all();
      if constexpr (Config::promoted) {
        GroupedScales const scales(p.blocks, factors, Config::factor_bytes);
        auto const take = [&](std::uint64_t& a, std::uint64_t& b) {
          int const taken = stage;
          mbarrier_wait(&full[taken], phase);
          a = advance(a0, taken * Config::stage_bytes),
          b = advance(b0, taken * Config::stage_bytes);
          next_stage();
          return taken;
        };
        multiply_promoted<GroupedPart<Config, Width>>(first_of<Width>(acc[0]), scales, p.k_blocks,
                                                      take, release);
      } else {
        using Product =
            Wgmma<typename Config::Weights, typename Config::Rows, Width, Config::mn, false>;
        int previous = -1;
#pragma unroll 1
        for (int k = 0; k < p.k_blocks; ++k) {
          mbarrier_wait(&full[stage], phase);
          std::uint64_t const a = advance(a0, stage * Config::stage_bytes),
                              b = advance(b0, stage * Config::stage_bytes);
          wgmma_fence();
#pragma unroll
          for (int s = 0; s < 4; ++s)
#pragma unroll
            for (int wave = 0; wave < Config::waves; ++wave)
              Product::multiply(first_of<Width>(acc[wave]),
                                advance(a, s * (Config::mn ? 2048 : 32) + wave * 8192),
                                advance(b, s * 32), s == 0 ? k != 0 : 1);
          wgmma_commit();
          wgmma_wait<1>();  // the stage before this one has been read
          if (previous >= 0) release(previous);
          previous = stage;
          next_stage();
        }
        wgmma_wait<0>();
        release(previous);
      }
      pin_all();
      out.template store<Width>(acc, walk.group, row, rows, n);
    };
#pragma unroll 1
    for (int tile = first; tile < count; tile += step) {
      int row, rows, n;
      walk.go(tile, rank, row, rows, n);
      n += 64 * Config::waves * consumer;
      int const width = grouped_width(rows);
      if (width == 128)
        run(std::integral_constant<int, 128>{}, row, rows, n);
      else if (width == 112)
        run(std::integral_constant<int, 112>{}, row, rows, n);
      else if (width == 96)
        run(std::integral_constant<int, 96>{}, row, rows, n);
      else if (width == 64)
        run(std::integral_constant<int, 64>{}, row, rows, n);
      else
        run(std::integral_constant<int, 32>{}, row, rows, n);
    }
  }
  cluster_sync();  // no block leaves while the other may arrive at it
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
