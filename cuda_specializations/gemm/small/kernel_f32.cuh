// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Batches of small IEEE float32 products on CUDA cores: as many of them in a warp as their tiles
/// of sums, one for each lane, leave room for, or one in two warps.
#pragma once

#include "load.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

template <class Shape>
__global__ void __launch_bounds__(128, Shape::blocks)
    small_f32_kernel(__grid_constant__ SmallParams const p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int TM = Shape::tile_m, TN = Shape::tile_n;
  SmallPlace<Shape::team> const own;
  int const per_product = p.lanes_m * p.lanes_n;
  int const product = own.lane / per_product, place = own.lane % per_product;
  bool const works = product < p.per_group;
  int const r = own.warp * TM * p.lanes_m + place / p.lanes_n, c = place % p.lanes_n;
  std::uint32_t const own_a = (works ? product : 0) * p.product_bytes + r * p.pitch_a;
  std::uint32_t const own_b = (works ? product : 0) * p.product_bytes + p.b_offset + c * 16;
  int const step_a = p.lanes_m * p.pitch_a, step_b = p.lanes_n * 16, pitch_b = p.pitch_b;

  float acc[TM][TN] = {};
  auto const multiply = [&](std::uint32_t stage, int slice) {
    int const fours = min(p.depth, p.k - slice * p.depth + 3) / 4;
    std::uint32_t a = stage + own_a, b = stage + own_b;
#pragma unroll 1
    for (int f = 0; f < fours; ++f, a += 16) {
      float4 rows[TM];
#pragma unroll
      for (int i = 0; i < TM; ++i) rows[i] = load_shared_four(a + i * step_a);
#pragma unroll
      for (int k = 0; k < 4; ++k, b += pitch_b) {
        float columns[TN];
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
          float4 const v = load_shared_four(b + j / 4 * step_b);
          columns[j] = v.x, columns[j + 1] = v.y, columns[j + 2] = v.z, columns[j + 3] = v.w;
        }
        // The register file reads one even and one odd register in a cycle. To and fro along
        // columns, a row's element serves again and again, which leaves a sum and a column's
        // element; these can lie in different halves, since successive columns alternate. (All
        // elements of rows for one k lie in the same half.)
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int jj = 0; jj < TN; ++jj) {
            int const j = i % 2 == 0 ? jj : TN - 1 - jj;
            float const x = k == 0   ? rows[i].x
                            : k == 1 ? rows[i].y
                            : k == 2 ? rows[i].z
                                     : rows[i].w;
            acc[i][j] = fmaf(x, columns[j], acc[i][j]);
          }
      }
    }
  };
  auto const store = [&](int first, int count) {
    if (works && product < count) {
      float* const to = product_of_c<float>(p, first + product);
      float const alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        int const row = r + i * p.lanes_m;
        if (row < p.m) {
          float* const line = to + row * p.c_m;
          bool const fours = p.c_n == 1 && (reinterpret_cast<std::uintptr_t>(line) & 15) == 0;
#pragma unroll
          for (int j = 0; j < TN; j += 4) {
            int const column = 4 * c + j * p.lanes_n;
            if (fours && column + 4 <= p.n) {
              float4 v = make_float4(alpha * acc[i][j], alpha * acc[i][j + 1],
                                     alpha * acc[i][j + 2], alpha * acc[i][j + 3]);
              auto* const at = reinterpret_cast<float4*>(line + column);
              if (beta != 0) {
                float4 const old = *at;
                v.x = fmaf(beta, old.x, v.x), v.y = fmaf(beta, old.y, v.y);
                v.z = fmaf(beta, old.z, v.z), v.w = fmaf(beta, old.w, v.w);
              }
              *at = v;
            } else {
#pragma unroll
              for (int e = 0; e < 4; ++e)
                if (column + e < p.n) {
                  float* const at = line + (column + e) * p.c_n;
                  float const v = alpha * acc[i][j + e];
                  *at = beta != 0 ? fmaf(beta, *at, v) : v;
                }
            }
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = 0;
  };
  for_each_slice<Shape>(p, multiply, store);
#endif
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
