// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the attention kernels through wmma and mma.sync are told.
#pragma once

#include "sequences/score_math.cuh"
#include "tile.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

struct MmaAttentionParams : AttentionParams {
  bool terms;                   ///< scores are more than scale·q·k with a positive scale
  bool excludes;                ///< a mask or bias may exclude any pair
  bool wide_q, wide_k, wide_v;  ///< can be copied 16 bytes at a time
  int apart_k, apart_v;         ///< bytes between rows, of a plain call
};

/// A tile of queries and where its head's keys and values begin: with key 0, or with page 0.
struct alignas(16) MmaAttentionTile : AttentionResultTile {
  void const *k, *v;

  template <class T>
  __device__ __forceinline__ void find_keys(AttentionParams const& p) {
    abi::AttentionArgs const& g = p.args;
    int const h = head / p.group_of_heads;
    T const* const keys = static_cast<T const*>(g.k) + h * g.k_stride[1];
    T const* const values = static_cast<T const*>(g.v) + h * g.v_stride[1];
    std::int64_t const b = g.page_table != nullptr || g.cu_seqlens_kv.data != nullptr ? 0 : batch;
    k = keys + b * g.k_stride[0] + begin_kv * g.k_stride[2];
    v = values + b * g.v_stride[0] + begin_kv * g.v_stride[2];
  }
};

/// The same of float8 tensors.
struct alignas(16) MmaAttentionScaledTile : MmaAttentionTile, TileFactors {
  float exponent;  ///< exponents of weights are scores times this
  bool terms;      ///< scores are more than products times a positive scale

  __device__ __forceinline__ void find_scale(AttentionParams const& p, bool with_terms) {
    static_cast<TileFactors&>(*this) = find_factors(p, *this);
    terms = with_terms || !(scale > 0);
    exponent = terms ? 1.0f : scale * log2_e;
  }
};

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
