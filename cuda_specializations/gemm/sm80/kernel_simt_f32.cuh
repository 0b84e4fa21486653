// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// IEEE float32 matrix products on CUDA cores, fed by cp.async, for operands with a unit stride,
/// whatever their other strides and their alignment.
///
/// A block computes one tile of C, which scheduler.cuh finds. A stage holds 16 k of both operands,
/// a row of the tile for each k, whatever the layouts and alignments: copies are of 4 bytes
/// and transpose a K-major operand on the way, which is one copy for 64 multiply-adds. The 16-byte
/// chunks of a row are permuted by an XOR with k mod 8, so that neither these copies nor the loads
/// meet in a bank. A thread multiplies blocks of 4 × 4, 32 rows and 16 columns apart, and makes its
/// share of the copies of a later stage between the multiply-adds.
///
/// Rows and columns beyond C are not copied: sums of what lies in their place go nowhere. What lies
/// beyond K is zero.
///
/// A sum runs through its k in ascending order; where a cluster shares out K, each of its parts.
#pragma once

#include "common/limits.cuh"
#include "common/ring.cuh"
#include "epilogue.cuh"
#include "gemm/shared/simt_products.cuh"
#include "ptx/mbarrier.cuh"
#include "scheduler.cuh"
#include "split_k.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// float32 as CUDA cores multiply it.
struct SimtFloat {
  using Element = float;
  using Acc = float;
  static constexpr DType dtype = DType::float32;
};

/// Parameters as in Sm80Config; a warp's tile is made of blocks of 32 × 16.
template <class Layout, class Shape>
struct SimtF32Config {
  using Type = SimtFloat;
  using Element = float;
  using Acc = float;
  static constexpr bool mn_a = Layout::mn_a, mn_b = Layout::mn_b;
  static constexpr int size = 4, most_splits = Shape::most_splits;
  static constexpr int tile_m = Shape::tile_m, tile_n = Shape::tile_n;
  static constexpr int warp_m = Shape::warp_m, warp_n = Shape::warp_n;
  static constexpr int tile_k = 16, steps = 2, step_k = tile_k / steps;
  static constexpr int warps_m = tile_m / warp_m, warps_n = tile_n / warp_n;
  static constexpr int warps = warps_m * warps_n, threads = 32 * warps;
  static constexpr int stages = Shape::stages, blocks = Shape::blocks;
  static constexpr int pitch_a = tile_m * size, pitch_b = tile_n * size;  ///< bytes of a k
  static constexpr int a_bytes = pitch_a * tile_k, b_bytes = pitch_b * tile_k;
  static constexpr int stage_bytes = a_bytes + b_bytes, shared_bytes = stages * stage_bytes;
  static constexpr int rows = warp_m / 8, columns = warp_n / 4;  ///< of a thread's sums
  static constexpr double slack = Shape::slack;
  static_assert(shared_bytes <= sm80_shared_bytes && stages >= 2);
  static_assert(warp_m % 32 == 0 && warp_n % 32 == 0 && step_k == 8);
};

namespace {

/// One thread's share of the copies of an operand. A pass copies `rows` rows as they lie in
/// memory, of each of which a thread has `elements`; half of the passes belong to a step.
template <int Extent, int Threads, bool MnMajor>
struct SimtShare {
  static constexpr int pitch = Extent * 4;               ///< bytes of a k in a stage
  static constexpr int side = MnMajor ? Extent / 4 : 8;  ///< threads side by side
  static constexpr int elements = MnMajor ? 4 : 2;       ///< `side` apart
  static constexpr int rows = Threads / side;
  static constexpr int passes = (MnMajor ? 16 : Extent) / rows;
  static constexpr int copies = passes / 2 * elements;  ///< of a step
  static constexpr int step_bytes = MnMajor ? 8 * pitch : Extent / 2 * 4;
  static_assert(passes % 2 == 0 && rows * passes == (MnMajor ? 16 : Extent));

  char const* from;     ///< what the next pass copies first
  std::int64_t stride;  ///< bytes from one pass to the next
  std::uint32_t to;     ///< where that goes in the first stage
  int left;             ///< how many rows or columns there are from the first on

  /// The tile that begins at row or column `mn0` of `extent`, in rows `row_stride` bytes apart.
  __device__ __forceinline__ SimtShare(std::uint32_t stage, char const* data,
                                       std::int64_t row_stride, int mn0, int extent) {
    int const thread = static_cast<int>(threadIdx.x), row = thread / side, column = thread % side;
    int const k = MnMajor ? row : column, mn = MnMajor ? column : row;
    from = data + (MnMajor ? row : mn0 + row) * row_stride +
           (MnMajor ? std::int64_t{mn0} + column : column) * 4;
    stride = row_stride * rows;
    to = stage + k * pitch + (mn / 4 ^ k % 8) * 16 + mn % 4 * 4;
    left = extent - mn0 - mn;
  }

  /// Where an element of a pass goes, if the first one's place is `at`. What it is away by along K
  /// and along M or N has no bits in common with where that is.
  __device__ static __forceinline__ std::uint32_t place(std::uint32_t at, int pass, int element) {
    int const k = MnMajor ? pass * rows : element * side;
    int const mn = MnMajor ? element * side : pass * rows;
    return (at ^ ((k % 8 ^ mn / 4 % 8) * 16)) + k * pitch + mn / 32 * 128;
  }

  /// Copy number `copy` of a step of a stage that is `at` bytes from the first one. `limit`:
  /// `left`, or 0 for nothing; of MN-major operands `step` times `Extent` more, since the compiler
  /// would hold eight conditions that do not change with the step, and spill for them.
  __device__ __forceinline__ void copy(std::uint32_t at, int step, int copy, int limit) {
    int const pass = copy / elements, element = copy % elements;
    int const mn = MnMajor ? step * Extent + element * side : (step * (passes / 2) + pass) * rows;
    if (mn < limit)
      copy_async_four(place(at + to + step * step_bytes, pass, element), from + element * side * 4);
    if (element == elements - 1) from += stride;
  }
  __device__ __forceinline__ static void next_step(int& limit) {
    if (MnMajor) limit += Extent;
  }

  /// What remains to be done when all copies of a stage have been made.
  __device__ __forceinline__ void next_stage() {
    if (!MnMajor) from += 64 - passes * stride;
  }

  /// All copies of a stage that K fills.
  __device__ __forceinline__ void copy_all(std::uint32_t at) {
#pragma unroll 1
    for (int step = 0, limit = left; step < 2; ++step, next_step(limit))
#pragma unroll
      for (int c = 0; c < copies; ++c) copy(at, step, c, limit);
    next_stage();
  }

  /// The same of the last stage, of which K fills `k_left` rows.
  __device__ __forceinline__ void copy_last(std::uint32_t at, int k_left) {
    int const thread = static_cast<int>(threadIdx.x), row = thread / side, column = thread % side;
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass, from += stride)
#pragma unroll 1
      for (int e = 0; e < elements; ++e) {
        int const k = MnMajor ? row + pass * rows : column + e * side;
        int const mn = MnMajor ? e * side : pass * rows;
        copy_async<4>(place(at + to, pass, e), from + e * side * 4,
                      k < k_left && mn < left ? 4 : 0);
      }
  }
};

/// Adds the products of k number `k` of a step, whose rows begin at `a` and `b`.
template <class Config>
__device__ __forceinline__ void multiply_k(float (&sums)[Config::rows][Config::columns],
                                           std::uint32_t a, std::uint32_t b, int k) {
  int const lane = static_cast<int>(threadIdx.x) % 32, lane_m = lane % 8, lane_n = lane / 8;
  float fa[Config::rows], fb[Config::columns];
#pragma unroll
  for (int g = 0; g < Config::rows / 4; ++g) {
    float4 const v = load_shared(a + k * Config::pitch_a + g * 128 + (lane_m ^ k) * 16);
    fa[4 * g] = v.x, fa[4 * g + 1] = v.y, fa[4 * g + 2] = v.z, fa[4 * g + 3] = v.w;
  }
#pragma unroll
  for (int g = 0; g < Config::columns / 4; ++g) {
    float4 const v = load_shared(b + k * Config::pitch_b + g / 2 * 128 + (lane_n ^ k % 4) * 16 +
                                 (g % 2 ^ k / 4) * 64);
    fb[4 * g] = v.x, fb[4 * g + 1] = v.y, fb[4 * g + 2] = v.z, fb[4 * g + 3] = v.w;
  }
  add_products(sums, fa, fb);
}

/// Stores a warp's tile, which begins at (z, m0, n0), 32 rows at a time. All warps are done with
/// the stages.
///
/// The sums go through shared memory first, four rows of a column at a time and odd rows before
/// even ones, which leaves the compiler the halves of the register file that add_products() needs:
/// what is stored along a row would hold four columns side by side.
template <class Config>
__device__ __forceinline__ void store_sums(Sm80Params const& p,
                                           float const (&sums)[Config::rows][Config::columns],
                                           unsigned char* shared, int z, int m0, int n0) {
  using S = Staging<Config>;
  static_assert(S::rows == 32 && 128 * Config::columns <= S::rows * S::stride);
  int const lane = static_cast<int>(threadIdx.x) % 32, row = lane % 8 * 4, column = lane / 8 * 4;
  float* const staged =
      reinterpret_cast<float*>(shared) + static_cast<int>(threadIdx.x) / 32 * (S::rows * S::stride);
  std::uint32_t const own = shared_address(staged) + lane * 16;
#pragma unroll
  for (int part = 0; part < Config::rows / 4; ++part) {
    if (part > 0) __syncwarp();
#pragma unroll
    for (int j = 0; j < Config::columns; ++j)
      store_shared(own + j * 512, make_float4(sums[4 * part + 1][j], sums[4 * part][j],
                                              sums[4 * part + 3][j], sums[4 * part + 2][j]));
    float v[4][Config::columns];
#pragma unroll
    for (int j = 0; j < Config::columns; ++j) {
      float4 const four = load_shared(own + j * 512);
      v[0][j] = four.y, v[1][j] = four.x, v[2][j] = four.w, v[3][j] = four.z;
    }
    auto const each = [&](float alpha, auto store) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < Config::columns; j += 4)
          store(row + i, 4 * j + column,
                make_float4(alpha * v[i][j], alpha * v[i][j + 1], alpha * v[i][j + 2],
                            alpha * v[i][j + 3]));
    };
    if (p.whole) {  // four columns are inside C or outside as a whole
      Epilogue const& e = p.epilogue;
      each(e.alpha, [&](int at_m, int at_n, float4 const& four) {
        int const m = m0 + 32 * part + at_m, n = n0 + at_n;
        if (m < p.m && n < p.n)
          *reinterpret_cast<float4*>(static_cast<float*>(e.c) + z * e.c_batch + m * e.c_m + n) =
              four;
      });
    } else {
      __syncwarp();  // all lanes have their sums back
      each(1, [&](int at_m, int at_n, float4 const& four) {
        *reinterpret_cast<float4*>(staged + at_m * S::stride + at_n) = four;
      });
      __syncwarp();
      store_staged<Config>(p, staged, z, m0 + 32 * part, n0);
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    sm80_simt_f32_kernel(__grid_constant__ Sm80Params const p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const warp_m = warp % Config::warps_m * Config::warp_m;
  int const warp_n = warp / Config::warps_m * Config::warp_n;
  Sm80Share const share = share_of<Config>(p, blockIdx.x);
  Sm80Place at = place_of<Config>(p, share.tile);
  if (at.m0 >= at.end) return;
  int const extent_k = cut_to_share<Config>(p, share, at);
  std::uint32_t const base = shared_address(shared);
  using ShareA = SimtShare<Config::tile_m, Config::threads, Config::mn_a>;
  using ShareB = SimtShare<Config::tile_n, Config::threads, Config::mn_b>;
  ShareA a(base, at.a, p.a.stride, at.m0, at.end);
  ShareB b(base + Config::a_bytes, at.b, p.b.stride, at.n0, p.n);
  int const whole_tiles = extent_k / Config::tile_k, k_left = extent_k % Config::tile_k;
  // One stage of zeros stands for a K of 0.
  int const k_tiles = max(1, whole_tiles + (k_left > 0));
  auto const copy_last = [&](int stage) {
    a.copy_last(stage * Config::stage_bytes, k_left);
    b.copy_last(stage * Config::stage_bytes, k_left);
  };

  // Warps meet at different places of the program, which __syncthreads() does not allow and a
  // barrier with a count does. One loop for both kinds of warps spills or takes a tenth longer.
  auto const meet = [] { named_barrier_sync(1, Config::threads); };

  // A warp with no rows or columns inside C only copies its share for the others, and leaves the
  // arithmetic units to other blocks.
  bool const multiplies = at.m0 + warp_m < at.end && at.n0 + warp_n < p.n;
  int const ahead = Config::stages - 1 + (multiplies ? 0 : k_tiles);
#pragma unroll 1
  for (int tile = 0, stage = 0; tile < ahead; ++tile) {
    if (tile < whole_tiles) {
      a.copy_all(stage * Config::stage_bytes);
      b.copy_all(stage * Config::stage_bytes);
    } else if (tile < k_tiles) {
      copy_last(stage);
    }
    copy_async_commit();
    stage = next_in_ring<Config::stages>(stage);
    // Stands for the barrier below: what is written next has been read.
    if (tile >= Config::stages - 2 && tile + 1 < ahead) {
      copy_async_wait<Config::stages - 2>();
      meet();
    }
  }
  if (!multiplies) {
    copy_async_wait<0>();
    meet();
    return;
  }

  float sums[Config::rows][Config::columns];
#pragma unroll
  for (auto& row : sums)
#pragma unroll
    for (float& sum : row) sum = 0;
  int read = 0, write = Config::stages - 1;
#pragma unroll 1
  for (int tile = 0; tile < k_tiles; ++tile) {
    copy_async_wait<Config::stages - 2>();
    meet();
    // The stage that is written was read for the last time before this barrier.
    int const next = tile + Config::stages - 1;
    if (next >= whole_tiles && next < k_tiles) copy_last(write);
    int limit_a = next < whole_tiles ? a.left : 0, limit_b = next < whole_tiles ? b.left : 0;
    std::uint32_t const own_a = base + read * Config::stage_bytes + warp_m * 4;
    std::uint32_t const own_b = base + read * Config::stage_bytes + Config::a_bytes + warp_n * 4;
#pragma unroll 1
    for (int step = 0; step < Config::steps; ++step) {
#pragma unroll
      for (int k = 0; k < Config::step_k; ++k) {
#pragma unroll
        for (int c = k * ShareA::copies / 8; c < (k + 1) * ShareA::copies / 8; ++c)
          a.copy(write * Config::stage_bytes, step, c, limit_a);
#pragma unroll
        for (int c = k * ShareB::copies / 8; c < (k + 1) * ShareB::copies / 8; ++c)
          b.copy(write * Config::stage_bytes, step, c, limit_b);
        multiply_k<Config>(sums, own_a + step * (Config::step_k * Config::pitch_a),
                           own_b + step * (Config::step_k * Config::pitch_b), k);
      }
      ShareA::next_step(limit_a);
      ShareB::next_step(limit_b);
    }
    a.next_stage();
    b.next_stage();
    copy_async_commit();
    read = next_in_ring<Config::stages>(read);
    write = next_in_ring<Config::stages>(write);
  }
  copy_async_wait<0>();
  meet();
  if (!sum_parts<Config>(sums, shared, share)) return;
  Sm80Params own;
  store_sums<Config>(placed(p, at, own), sums, shared, at.z, at.m0 + warp_m, at.n0 + warp_n);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
