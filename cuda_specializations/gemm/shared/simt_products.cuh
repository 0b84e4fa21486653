// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Fused multiply-adds of a thread's block of sums, for IEEE float32 products on CUDA cores.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// sums[i][j] += a[i] · b[j].
///
/// The register file reads one even and one odd register in a cycle, so that a multiply-add takes
/// two cycles unless it shares an operand with the one before: the order goes back and forth along
/// columns, which leaves a sum and one operand to read. a and b are to come four at a time from
/// 16-byte loads, so that these two can lie in different halves.
template <int Rows, int Columns>
__device__ __forceinline__ void add_products(float (&sums)[Rows][Columns], float const (&a)[Rows],
                                             float const (&b)[Columns]) {
#pragma unroll
  for (int j = 0; j < Columns; ++j)
#pragma unroll
    for (int step = 0; step < Rows; ++step) {
      int const i = j % 2 == 0 ? step : Rows - 1 - step;
      sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
    }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
