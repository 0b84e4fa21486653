// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Sums of outer products on the CUDA cores.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// sums[i][column + e] += x[i]·y[e]. Neighbouring products share a factor.
template <int Rows, int Columns>
__device__ __forceinline__ void add_outer(float (&sums)[Rows][Columns], float const (&x)[Rows],
                                          float4 y, int column) {
  float const z[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
  for (int e = 0; e < 4; ++e)
#pragma unroll
    for (int ii = 0; ii < Rows; ++ii) {
      int const i = e % 2 == 0 ? ii : Rows - 1 - ii;
      sums[i][column + e] = fmaf(x[i], z[e], sums[i][column + e]);
    }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
