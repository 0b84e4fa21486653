// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Last launch of attention's gradients where the query heads of a key head are divided: from the
/// sums of all parts to dk and dv.
#pragma once

#include "common/elements.cuh"
#include "params.cuh"
#include "ptx/dependent_launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// From what each part has summed of some positions of a key head, rows of `D` numbers, to their
/// gradient of keys or of values. `from`: the first part's sums, `of_part` before those of the
/// next.
template <class T, int D>
__device__ __forceinline__ void add_parts(AttentionBackwardParams const& p, float const* from,
                                          std::int64_t of_part, T* to,
                                          std::int64_t const (&stride)[4], bool vectors, int rows,
                                          int width) {
  constexpr int neighbors = 4;
  for (int e = static_cast<int>(threadIdx.x) * neighbors; e < rows * D; e += 256 * neighbors) {
    int const r = e / D, c = e % D;
    if (c >= width) continue;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int part = 0; part < p.parts; ++part) {
      float4 const more = *reinterpret_cast<float4 const*>(from + part * of_part + e);
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    T* const at = to + r * stride[2];
    if (vectors) {
      *reinterpret_cast<uint2*>(at + c) =
          make_uint2(pack_pair<T>(sum.x, sum.y), pack_pair<T>(sum.z, sum.w));
    } else {
      float const values[neighbors] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int l = 0; l < neighbors; ++l)
        if (c + l < width) at[(c + l) * stride[3]] = static_cast<T>(values[l]);
    }
  }
}

/// A block of 256 threads takes 16 positions of a key head after the other, of keys or of values:
/// few of each, so that all of the device's blocks have some where there is little to add.
template <class T, int D>
__global__ void __launch_bounds__(256)
    attention_backward_parts(__grid_constant__ AttentionBackwardParams const p) {
  constexpr int rows = 16;
  wait_for_launch_before();
  abi::AttentionBackwardArgs const& a = p.args;
  abi::AttentionArgs const& g = a.forward;
  int const heads = static_cast<int>(g.heads_kv), positions = static_cast<int>(g.seqlen_kv);
  int const stretches = (positions + rows - 1) / rows, groups = static_cast<int>(g.batch) * heads;
  std::int64_t const of_part = std::int64_t{groups} * positions * D;
  std::int64_t const works = std::int64_t{2} * stretches * groups;
  for (std::int64_t work = blockIdx.x; work < works; work += gridDim.x) {
    bool const of_keys = work % 2 == 0;
    int const group = static_cast<int>(work / 2 / stretches);
    int const row0 = static_cast<int>(work / 2 % stretches) * rows;
    std::int64_t const(&stride)[4] = of_keys ? a.dk_stride : a.dv_stride;
    add_parts<T, D>(
        p, (of_keys ? p.dk_sums : p.dv_sums) + (std::int64_t{group} * positions + row0) * D,
        of_part,
        static_cast<T*>(of_keys ? a.dk : a.dv) + group / heads * stride[0] +
            group % heads * stride[1] + row0 * stride[2],
        stride, of_keys ? p.vectors_dk : p.vectors_dv, min(rows, positions - row0),
        static_cast<int>(of_keys ? g.head_dim : g.head_dim_v));
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
