// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the mma.sync kernels are told, and the shapes that they come in.
#pragma once

#include <type_traits>

#include "common/limits.cuh"
#include "elements.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// An operand in global memory. Strides count bytes.
struct Sm80Operand {
  void const* data;
  std::int64_t batch_stride;
  std::int64_t stride;  ///< from one row to the next: of K-major ones along M or N, else along K
  int unit;             ///< bytes that may be copied at a time: 16, 8, 4 or an element
  bool e5m2;            ///< of float8
};

/// What the device alone knows of a call. Batch strides of matrices behind pointers count pointers.
struct Sm80Lists {
  void const* const* a;  ///< pointers to the matrices of A; null: they lie in strides
  void const* const* b;
  void* const* c;
  void const* offsets;         ///< first rows of groups, and the end of the last; null: no groups
  std::int32_t const* counts;  ///< rows of each matrix; null: all
  std::int64_t offsets_stride, counts_stride;
  int groups;
  bool wide;   ///< offsets have 64 bits
  bool exist;  ///< any of the above
};

/// How the tiles of C are numbered: in bands of `band` tiles along M, so that what runs at one time
/// shares rows of A and columns of B in L2. At most 2^30 of them. Each block divides once, so the
/// divisors need not come prepared as Sm90Tiles' do, whose blocks go through many tiles.
struct Sm80Tiles {
  unsigned m, n, band;
  __device__ __forceinline__ void locate(unsigned tile, int& z, int& at_m, int& at_n) const {
    unsigned const matrix = tile / (m * n), in_matrix = tile - matrix * (m * n);
    unsigned const first = in_matrix / (band * n) * band, in_band = in_matrix - first * n;
    unsigned const height = min(m - first, band), column = in_band / height;
    z = static_cast<int>(matrix);
    at_m = static_cast<int>(first + in_band - column * height);
    at_n = static_cast<int>(column);
  }
};

struct Sm80Params {
  Sm80Operand a, b;
  Sm80Lists lists;
  Sm80Tiles tiles;  ///< of groups as many along M as any partition of the rows may need
  int m, n, k;
  int splits;     ///< blocks that share out K of each tile: a cluster
  bool whole;     ///< rows of C are stored 16 bytes at a time, with nothing but alpha to apply
  bool one_part;  ///< what is promoted otherwise is not
  Epilogue epilogue;
  double alpha, beta, scale;  ///< as float64 products take them
  /// Of int8 products; null: 0.
  std::int32_t const *zero_a, *zero_b;
  std::int64_t zero_a_stride, zero_b_stride;
};

/// A kernel for elements of a type, a layout, and one of the shapes of shapes.cuh.
template <class Type_, class Layout, class Shape>
struct Sm80Config {
  using Type = Type_;
  using Element = typename Type::Element;
  using Acc = typename Type::Acc;
  static constexpr bool mn_a = Layout::mn_a, mn_b = Layout::mn_b;
  static constexpr bool zero_points = Shape::zero_points;
  static constexpr int most_splits = Shape::most_splits;
  static constexpr int size = static_cast<int>(sizeof(Element));
  static constexpr int tile_m = Shape::tile_m, tile_n = Shape::tile_n;
  static constexpr int warp_m = Shape::warp_m, warp_n = Shape::warp_n;
  static constexpr int tile_k = 128 / size;
  static constexpr int warps_m = tile_m / warp_m, warps_n = tile_n / warp_n;
  static constexpr int warps = warps_m * warps_n, threads = 32 * warps;
  static constexpr int stages = Shape::stages, blocks = Shape::blocks;
  static constexpr int a_bytes = tile_m * 128, b_bytes = tile_n * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes, shared_bytes = stages * stage_bytes;
  static constexpr int steps = Type::steps;  ///< times 32 bytes of K at a time
  static constexpr int k_steps = 4 / steps;  ///< of a stage
  static constexpr int fragments_m = warp_m / 16, fragments_n = warp_n / 16;
  static constexpr double slack = Shape::slack;
  // Every card from sm_80 on gives a block 99 KiB.
  static_assert(shared_bytes <= sm80_shared_bytes && stages >= 3 && k_steps >= 2);
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
