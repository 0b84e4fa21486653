// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Arguments of an attention kernel: pointers, extents, 64-bit strides in elements.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Which corner of the score matrix the causal diagonal runs into when query and key lengths
/// differ.
enum class CausalAlignment : std::uint8_t {
  bottom_right,  ///< j ≤ i + len_kv − len_q: the last query sees every key
  top_left       ///< j ≤ i: the first query sees one key
};

namespace abi {

/// One attention problem. Strides are ordered batch, head, position, feature.
struct AttentionArgs {
  void const* q = nullptr;
  void const* k = nullptr;
  void const* v = nullptr;
  void* out = nullptr;
  void* lse = nullptr;  ///< null: not wanted
  DType type = DType::float32;
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0, seqlen_q = 0, seqlen_kv = 0, head_dim = 0,
               head_dim_v = 0;
  std::int64_t q_stride[4] = {}, k_stride[4] = {}, v_stride[4] = {}, out_stride[4] = {};
  std::int64_t lse_stride[3] = {};
  /// Lengths per sequence, or null. Entry (b, h) lies at b·stride[0] + h·stride[1]; kernels clamp
  /// to the allocation.
  std::int32_t const* lengths_q = nullptr;
  std::int32_t const* lengths_kv = nullptr;
  std::int64_t lengths_q_stride[2] = {}, lengths_kv_stride[2] = {};
  double softmax_scale = 1;
  bool causal = false;
  CausalAlignment causal_alignment = CausalAlignment::bottom_right;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
