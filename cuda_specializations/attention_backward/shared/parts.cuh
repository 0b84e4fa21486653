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

/// From what each part has summed, rows of `D` numbers, to the gradient of keys or of values.
template <class T, int D>
__device__ __forceinline__ void add_parts(AttentionBackwardParams const& p, float const* sums,
                                          void* to, std::int64_t const (&stride)[4], bool vectors,
                                          int width) {
  constexpr int rows = 64, neighbors = 4;
  abi::AttentionArgs const& g = p.args.forward;
  int const heads = static_cast<int>(g.heads_kv), positions = static_cast<int>(g.seqlen_kv);
  int const stretches = (positions + rows - 1) / rows, groups = static_cast<int>(g.batch) * heads;
  std::int64_t const of_part = std::int64_t{groups} * positions * D;
  for (int i = static_cast<int>(blockIdx.x); i < stretches * groups;
       i += static_cast<int>(gridDim.x)) {
    int const group = i / stretches, row0 = i % stretches * rows;
    float const* const from = sums + (std::int64_t{group} * positions + row0) * D;
    T* const out = static_cast<T*>(to) + group / heads * stride[0] + group % heads * stride[1] +
                   row0 * stride[2];
    for (int e = static_cast<int>(threadIdx.x) * neighbors; e < min(rows, positions - row0) * D;
         e += 256 * neighbors) {
      int const r = e / D, c = e % D;
      if (c >= width) continue;
      float4 sum = make_float4(0, 0, 0, 0);
      for (int part = 0; part < p.parts; ++part) {
        float4 const more = *reinterpret_cast<float4 const*>(from + part * of_part + e);
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
      }
      T* const at = out + r * stride[2];
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
}

/// A block of 256 threads takes 64 positions of a key head after the other.
template <class T, int D>
__global__ void __launch_bounds__(256)
    attention_backward_parts(__grid_constant__ AttentionBackwardParams const p) {
  wait_for_launch_before();
  abi::AttentionBackwardArgs const& a = p.args;
  add_parts<T, D>(p, p.dk_sums, a.dk, a.dk_stride, p.vectors_dk,
                  static_cast<int>(a.forward.head_dim));
  add_parts<T, D>(p, p.dv_sums, a.dv, a.dv_stride, p.vectors_dv,
                  static_cast<int>(a.forward.head_dim_v));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
