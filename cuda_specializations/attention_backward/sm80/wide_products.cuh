// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products of a warp with factors of 4 and 8 bytes, 16 rows × 8 columns over 8 numbers: float64 as
/// it is, float32 in three products of numbers of 11 significant bits.
///
/// Lane 4 g + q holds of a left factor rows g + 8 h, of a right one column g, of each the numbers
/// (q, l), l 0 and 1; which of the 8 these are is free, as long as both agree. In d[j + 2 h] is row
/// g + 8 h, column 2 q + j.
///
/// Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
/// surpassing the FP32 theoretical peak performance", IJHPCA 36(4), 2022; PTX ISA, "mma".
#pragma once

#include <attikos/ptx/mma_sync.hpp>

#include "common/split_tf32.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// A factor of `Rows` rows a lane.
template <class T, int Rows>
struct WideFactor;
template <int Rows>
struct WideFactor<double, Rows> {
  double x[2][Rows];
  __device__ __forceinline__ void set(int h, int l, double value) { x[l][h] = value; }
};
template <int Rows>
struct WideFactor<float, Rows> {
  std::uint32_t big[2 * Rows], small[2 * Rows];
  __device__ __forceinline__ void set(int h, int l, float value) {
    split_tf32(value, big[l * Rows + h], small[l * Rows + h]);
  }
};
template <class T>
using WideLeft = WideFactor<T, 2>;
template <class T>
using WideRight = WideFactor<T, 1>;

namespace {

/// `Count` sums side by side += a·b[n]. They take turns, since each waits for its own last sum.
template <int Count>
__device__ __forceinline__ void add_products(double (&d)[Count][4], WideLeft<double> const& a,
                                             WideRight<double> const (&b)[Count]) {
#pragma unroll
  for (int l = 0; l < 2; ++l)
#pragma unroll
    for (int n = 0; n < Count; ++n) mma_f64<1>(d[n], a.x[l], b[n].x[l]);
}
/// Products of small numbers with small ones are left out.
template <int Count>
__device__ __forceinline__ void add_products(float (&d)[Count][4], WideLeft<float> const& a,
                                             WideRight<float> const (&b)[Count]) {
#pragma unroll
  for (int n = 0; n < Count; ++n) mma_tf32(d[n], a.small, b[n].big[0], b[n].big[1]);
#pragma unroll
  for (int n = 0; n < Count; ++n) mma_tf32(d[n], a.big, b[n].small[0], b[n].small[1]);
#pragma unroll
  for (int n = 0; n < Count; ++n) mma_tf32(d[n], a.big, b[n].big[0], b[n].big[1]);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
