// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// float16 × float16 → float32 matrix product through nvcuda::wmma, for sm_75 and newer.
///
/// One block computes a tile_m × tile_n tile of C in steps of tile_k. Global memory goes through
/// registers into two shared-memory buffers (sm_75 has no cp.async): while the warps multiply one,
/// the loads of the next are in flight. Everything outside the operands becomes zero on the way, so
/// the warps never see an edge.
///
/// Source: CUDA C++ Programming Guide, "Warp Matrix Functions". The layout of a fragment is opaque,
/// so the epilogue hands the accumulators through shared memory.
#pragma once

#include <cuda_fp16.h>
#include <mma.h>

#include <attikos/abi/gemm.hpp>
#include <attikos/epilogue/activation.hpp>

#include "common/limits.cuh"
#include "gemm/shared/layouts.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// What follows from one of sm75_gemm_shapes.
template <class Layout, class Shape>
struct WmmaConfig : Layout, Shape {
  static constexpr int warps_m = Shape::tile_m / Shape::warp_m;
  static constexpr int warps_n = Shape::tile_n / Shape::warp_n;
  static constexpr int warps = warps_m * warps_n;
  static constexpr int threads = 32 * warps;
  static_assert(Shape::tile_m % Shape::warp_m == 0 && Shape::tile_n % Shape::warp_n == 0 &&
                    Shape::tile_k % 16 == 0,
                "tiles are whole warps");
  static_assert(Shape::warp_m % 32 == 0 && Shape::warp_n % 32 == 0,
                "the epilogue stages 32 × 32 pieces of a warp's tile");
};

/// An operand with its unit stride known: element (outer, inner) lies at data[batch·batch_stride +
/// outer·stride + inner].
struct WmmaOperand {
  __half const* data;
  std::int64_t batch_stride;
  std::int64_t stride;
  bool vectors;  // every full group of 8 elements that starts at a multiple of 8 is 16-byte aligned
};

/// A vector or matrix that the epilogue adds; null data means none.
struct WmmaAddend {
  void const* data;
  bool half;  // float16, else float32
  std::int64_t batch_stride, stride_m, stride_n;
};

/// Everything a kernel needs, in one parameter.
struct WmmaParams {
  WmmaOperand a, b;
  float* c;
  std::int64_t c_batch, c_m, c_n;
  std::int64_t m, n, k;
  std::int64_t first_batch;  // batch entry of blockIdx.z == 0
  float alpha, beta, scale;
  bool read_c;
  bool c_along_m;  // C is closer to contiguous along m than along n
  Activation activation;
  WmmaAddend bias, residual;
};

namespace {  // kernels have internal linkage: two libraries in one program never call each other's

/// One operand's tile on its way from global memory through registers into shared memory.
///
/// Outer × Inner elements, inner contiguous on both sides. The 8 padding elements per row put 8
/// rows at the same inner position into 8 different groups of banks, which is what one ldmatrix
/// reads at a time.
template <int Outer, int Inner, int Threads>
struct WmmaTile {
  static constexpr int ld = Inner + 8;
  static constexpr int elements = Outer * ld;
  static constexpr int vectors_per_row = Inner / 8;
  static constexpr int vectors = Outer * vectors_per_row / Threads;  // of one thread
  static constexpr int row_step = Threads / vectors_per_row;
  static_assert(Outer * vectors_per_row % Threads == 0 && Threads % vectors_per_row == 0,
                "every thread carries the same number of whole vectors");

  __half const* next;  // this thread's first vector of the tile to load next
  uint4 staged[vectors];

  static __device__ __forceinline__ int inner() {
    return static_cast<int>(threadIdx.x) % vectors_per_row * 8;
  }
  static __device__ __forceinline__ int outer() {
    return static_cast<int>(threadIdx.x) / vectors_per_row;
  }

  __device__ __forceinline__ void begin(__half const* first_tile, std::int64_t stride) {
    next = first_tile + outer() * stride + inner();
  }

  /// Loads a tile of which `rows` × `columns` elements exist (more than the tile has is fine), and
  /// moves on.
  __device__ __forceinline__ void load(std::int64_t stride, bool aligned, int rows, int columns,
                                       std::int64_t step) {
    __half const* p = next;
    next += step;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      staged[v] = make_uint4(0, 0, 0, 0);
      if (outer() + v * row_step < rows) {
        if (aligned && inner() + 8 <= columns) {
          staged[v] = __ldg(reinterpret_cast<uint4 const*>(p));
        } else {
          unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            if (inner() + e < columns) {
              unsigned const bits = __ldg(reinterpret_cast<unsigned short const*>(p) + e);
              word[e / 2] |= bits << (e % 2 * 16);
            }
          }
          staged[v] = make_uint4(word[0], word[1], word[2], word[3]);
        }
      }
      p += row_step * stride;
    }
  }

  __device__ __forceinline__ void store(__half* shared) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      *reinterpret_cast<uint4*>(shared + (outer() + v * row_step) * ld + inner()) = staged[v];
    }
  }
};

__device__ __forceinline__ float wmma_addend(WmmaAddend const& x, std::int64_t offset) {
  return x.half ? __half2float(static_cast<__half const*>(x.data)[offset])
                : static_cast<float const*>(x.data)[offset];
}

/// D for one element of C from its finished sum.
__device__ __forceinline__ void wmma_finish(WmmaParams const& p, std::int64_t batch, std::int64_t i,
                                            std::int64_t j, float sum) {
  float* const c = p.c + batch * p.c_batch + i * p.c_m + j * p.c_n;
  float value = p.alpha * sum;
  if (p.read_c) value += p.beta * *c;
  value *= p.scale;
  if (p.bias.data != nullptr)
    value += wmma_addend(p.bias, i * p.bias.stride_m + j * p.bias.stride_n);
  value = apply_activation(p.activation, value);
  if (p.residual.data != nullptr) {
    value += wmma_addend(p.residual, batch * p.residual.batch_stride + i * p.residual.stride_m +
                                         j * p.residual.stride_n);
  }
  *c = value;
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    wmma_f16_kernel(__grid_constant__ WmmaParams const p) {
  namespace wmma = nvcuda::wmma;
  constexpr int tile_m = Config::tile_m, tile_n = Config::tile_n, tile_k = Config::tile_k;
  constexpr int fragments_m = Config::warp_m / 16, fragments_n = Config::warp_n / 16;
  constexpr bool a_inner_k = !Config::mn_a, b_inner_n = Config::mn_b;
  using TileA = WmmaTile<a_inner_k ? tile_m : tile_k, a_inner_k ? tile_k : tile_m, Config::threads>;
  using TileB = WmmaTile<b_inner_n ? tile_k : tile_n, b_inner_n ? tile_n : tile_k, Config::threads>;
  using LayoutA = std::conditional_t<a_inner_k, wmma::row_major, wmma::col_major>;
  using LayoutB = std::conditional_t<b_inner_n, wmma::row_major, wmma::col_major>;

  constexpr int stage_elements = TileA::elements + TileB::elements;
  constexpr int stage_ld =
      36;  // floats; a multiple of 4 as wmma wants, off the multiples of 32 banks
  constexpr int epilogue_elements = Config::warps * 32 * stage_ld;
  constexpr int mainloop_bytes = 2 * stage_elements * 2, epilogue_bytes = epilogue_elements * 4;
  constexpr int bytes = mainloop_bytes > epilogue_bytes ? mainloop_bytes : epilogue_bytes;
  static_assert(bytes <= unlimited_shared_bytes, "more would need an opt-in per device");
  static_assert(TileA::elements * 2 % 32 == 0 && stage_elements * 2 % 32 == 0,
                "wmma loads want 32 bytes");
  __shared__ __align__(128) unsigned char memory[bytes];
  __half* const buffer = reinterpret_cast<__half*>(memory);

  // Blocks that run together share rows of A and columns of B: groups of 8 tile rows, walked down
  // first. The tile is kept as two 32-bit numbers, since registers are what limits this kernel.
  std::int64_t const tiles_m = (p.m + tile_m - 1) / tile_m, tiles_n = (p.n + tile_n - 1) / tile_n;
  std::int64_t const group_size = 8 * tiles_n;
  std::int64_t const group = blockIdx.x / group_size, in_group = blockIdx.x % group_size;
  std::int64_t const group_rows = tiles_m - 8 * group < 8 ? tiles_m - 8 * group : 8;
  int const block_m = static_cast<int>(8 * group + in_group % group_rows);
  int const block_n = static_cast<int>(in_group / group_rows);

  auto const at_most = [](std::int64_t left, int tile) {
    return left < tile ? static_cast<int>(left) : tile;
  };
  int m_left, n_left;
  TileA tile_a;
  TileB tile_b;
  {
    std::int64_t const m0 = static_cast<std::int64_t>(block_m) * tile_m;
    std::int64_t const n0 = static_cast<std::int64_t>(block_n) * tile_n;
    std::int64_t const batch = p.first_batch + blockIdx.z;
    m_left = at_most(p.m - m0, tile_m);
    n_left = at_most(p.n - n0, tile_n);
    tile_a.begin(p.a.data + batch * p.a.batch_stride + (a_inner_k ? m0 * p.a.stride : m0),
                 p.a.stride);
    tile_b.begin(p.b.data + batch * p.b.batch_stride + (b_inner_n ? n0 : n0 * p.b.stride),
                 p.b.stride);
  }

  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const warp_m = warp / Config::warps_n * Config::warp_m;
  int const warp_n = warp % Config::warps_n * Config::warp_n;

  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[fragments_m][fragments_n];
#pragma unroll
  for (int i = 0; i < fragments_m; ++i) {
#pragma unroll
    for (int j = 0; j < fragments_n; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
  }

  auto const load = [&](std::int64_t k_remaining) {
    int const k_left = at_most(k_remaining, tile_k);
    tile_a.load(p.a.stride, p.a.vectors, a_inner_k ? m_left : k_left, a_inner_k ? k_left : m_left,
                a_inner_k ? tile_k : tile_k * p.a.stride);
    tile_b.load(p.b.stride, p.b.vectors, b_inner_n ? k_left : n_left, b_inner_n ? n_left : k_left,
                b_inner_n ? tile_k * p.b.stride : tile_k);
  };
  auto const store = [&](int stage) {
    tile_a.store(buffer + stage * stage_elements);
    tile_b.store(buffer + stage * stage_elements + TileA::elements);
  };

  std::int64_t k_remaining = p.k;
  if (k_remaining > 0) {
    load(k_remaining);
    store(0);
  }
  __syncthreads();
  for (int stage = 0; k_remaining > 0; k_remaining -= tile_k, stage ^= 1) {
    bool const more = k_remaining > tile_k;
    if (more) load(k_remaining - tile_k);
    __half const* const shared_a = buffer + stage * stage_elements;
    __half const* const shared_b = shared_a + TileA::elements;
#pragma unroll
    for (int k = 0; k < tile_k; k += 16) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, LayoutB> fragment_b[fragments_n];
#pragma unroll
      for (int j = 0; j < fragments_n; ++j) {
        int const n = warp_n + 16 * j;
        wmma::load_matrix_sync(fragment_b[j],
                               shared_b + (b_inner_n ? k * TileB::ld + n : n * TileB::ld + k),
                               TileB::ld);
      }
#pragma unroll
      for (int i = 0; i < fragments_m; ++i) {
        int const m = warp_m + 16 * i;
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, LayoutA> fragment_a;
        wmma::load_matrix_sync(
            fragment_a, shared_a + (a_inner_k ? m * TileA::ld + k : k * TileA::ld + m), TileA::ld);
#pragma unroll
        for (int j = 0; j < fragments_n; ++j) {
          wmma::mma_sync(sums[i][j], fragment_a, fragment_b[j], sums[i][j]);
        }
      }
    }
    // The other buffer was last read before the previous barrier, so one barrier per step is
    // enough.
    if (more) store(stage ^ 1);
    __syncthreads();
  }

  // Each warp hands its sums through its own 32 × 32 piece, laid so that lanes run along C's
  // contiguous side.
  float* const piece = reinterpret_cast<float*>(memory) + warp * 32 * stage_ld;
  auto const layout = p.c_along_m ? wmma::mem_col_major : wmma::mem_row_major;
#pragma unroll
  for (int i = 0; i < fragments_m; i += 2) {
#pragma unroll
    for (int j = 0; j < fragments_n; j += 2) {
#pragma unroll
      for (int ii = 0; ii < 2; ++ii) {
#pragma unroll
        for (int jj = 0; jj < 2; ++jj) {
          int const outer = 16 * (p.c_along_m ? jj : ii), inner = 16 * (p.c_along_m ? ii : jj);
          wmma::store_matrix_sync(piece + outer * stage_ld + inner, sums[i + ii][j + jj], stage_ld,
                                  layout);
        }
      }
      __syncwarp();
      std::int64_t const m1 = static_cast<std::int64_t>(block_m) * tile_m + warp_m + 16 * i;
      std::int64_t const n1 = static_cast<std::int64_t>(block_n) * tile_n + warp_n + 16 * j;
#pragma unroll 1
      for (int outer = 0; outer < 32; ++outer) {
        std::int64_t const row = m1 + (p.c_along_m ? lane : outer);
        std::int64_t const column = n1 + (p.c_along_m ? outer : lane);
        if (row < p.m && column < p.n) {
          wmma_finish(p, p.first_batch + blockIdx.z, row, column, piece[outer * stage_ld + lane]);
        }
      }
      __syncwarp();
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
