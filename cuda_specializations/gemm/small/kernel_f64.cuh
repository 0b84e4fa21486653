// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Batches of small float64 products by mma.sync: a warp multiplies up to 32 rows of one product
/// at a time, or two share out 64.
#pragma once

#include <attikos/ptx/ldmatrix.hpp>
#include <attikos/ptx/mma_sync.hpp>

#include "load.cuh"
#include "ptx/shared_memory.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Shape>
__global__ void __launch_bounds__(128, Shape::blocks)
    small_f64_kernel(__grid_constant__ SmallParams const p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int eights = Shape::rows / 8, columns8 = Shape::columns / 8;
  SmallPlace<Shape::team> const own;
  int const g = own.lane / 4, q = own.lane % 4, row0 = own.warp * Shape::rows;
  std::uint32_t const own_a = (row0 + g) * p.pitch_a + q * 16;
  std::uint32_t const own_b = p.b_offset + 2 * q * p.pitch_b + g * 8;

  // Sums of rows 8 i + g, columns 8 j + 2 q and 8 j + 2 q + 1.
  double acc[columns8][2 * eights] = {};
  // Eight k go to the unit as 0 2 4 6, 1 3 5 7, so that a lane's two lie together.
  auto const multiply_eight = [&](std::uint32_t a_at, std::uint32_t b_at) {
    double2 a[eights];
#pragma unroll
    for (int i = 0; i < eights; ++i) a[i] = load_shared_pair(a_at + 8 * i * p.pitch_a);
#pragma unroll
    for (int j = 0; j < columns8; ++j) {
      if (columns8 > 2 && 8 * j >= p.n) continue;
      double const b[2] = {load_shared_8(b_at + j * 64), load_shared_8(b_at + p.pitch_b + j * 64)};
      if constexpr (eights == 1) {
        double(&d)[2] = acc[j];
        mma_f64_8_rows(d, a[0].x, b[0]);
        mma_f64_8_rows(d, a[0].y, b[1]);
      } else {
#pragma unroll
        for (int i = 0; i < eights; i += 2) {
          double d[4] = {acc[j][2 * i], acc[j][2 * i + 1], acc[j][2 * i + 2], acc[j][2 * i + 3]};
          double const x[4] = {a[i].x, a[i + 1].x, a[i].y, a[i + 1].y};
          mma_f64<2>(d, x, b);
          acc[j][2 * i] = d[0], acc[j][2 * i + 1] = d[1];
          acc[j][2 * i + 2] = d[2], acc[j][2 * i + 3] = d[3];
        }
      }
    }
  };
  auto const multiply = [&](std::uint32_t stage, int slice) {
    int const left = p.k - slice * p.depth;
#pragma unroll
    for (int k = 0; k < Shape::depth; k += 8)
      if (k < left) multiply_eight(stage + own_a + k * 8, stage + own_b + k * p.pitch_b);
  };
  auto const store = [&](int product, int) {
    double* const to = product_of_c<double>(p, product);
    double const alpha = p.alpha, beta = p.beta;
#pragma unroll
    for (int i = 0; i < eights; ++i) {
      int const row = row0 + 8 * i + g;
      if (row < p.m) {
        double* const line = to + row * p.c_m;
        bool const pairs = p.c_n == 1 && (reinterpret_cast<std::uintptr_t>(line) & 15) == 0;
#pragma unroll
        for (int j = 0; j < columns8; ++j) {
          int const column = 8 * j + 2 * q;
          double2 v = make_double2(alpha * acc[j][2 * i], alpha * acc[j][2 * i + 1]);
          if (pairs && column + 2 <= p.n) {
            auto* const at = reinterpret_cast<double2*>(line + column);
            if (beta != 0) {
              double2 const old = *at;
              v.x = fma(beta, old.x, v.x), v.y = fma(beta, old.y, v.y);
            }
            *at = v;
          } else {
            double* const at = line + column * p.c_n;
            if (column < p.n) *at = beta != 0 ? fma(beta, *at, v.x) : v.x;
            if (column + 1 < p.n) at[p.c_n] = beta != 0 ? fma(beta, at[p.c_n], v.y) : v.y;
          }
        }
      }
    }
#pragma unroll
    for (int j = 0; j < columns8; ++j)
#pragma unroll
      for (int i = 0; i < 2 * eights; ++i) acc[j][i] = 0;
  };
  for_each_slice<Shape>(p, multiply, store);
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
