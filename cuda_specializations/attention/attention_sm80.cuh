// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launches of attention/sm80_mma_*, whatever they multiply, and of attention/sm75_wmma_f16.
#pragma once

#include <attikos/abi/attention_cuda.hpp>

#include "../common/check.cuh"
#include "attention_plan.cuh"
#include "sm80_attention_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Whether rows of a tensor [batch, heads, positions, features] can be copied 16 bytes at a time.
template <class T>
bool is_wide(void const* data, std::int64_t const (&extent)[4], std::int64_t const (&stride)[4]) {
  constexpr std::int64_t elements = 16 / sizeof(T);
  bool wide =
      reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && (extent[3] <= 1 || stride[3] == 1);
  for (int r = 0; r < 3; ++r) wide = wide && (extent[r] <= 1 || stride[r] % elements == 0);
  return wide;
}

template <class Config>
cudaError_t launch_tiles(void (*kernel)(Sm80AttentionParams), abi::AttentionArgs const& g,
                         abi::Device const& device, CUstream_st* stream) {
  using T = typename Config::Element;
  Sm80AttentionParams p{};
  plan_attention(g, Config::tile_m, Config::blocks * device.sm_count, 2, p);
  p.terms = has_score_terms(g);
  p.excludes = g.mask != nullptr || g.bias != nullptr;
  bool const packed_q = g.cu_seqlens_q.data != nullptr, packed_kv = g.cu_seqlens_kv.data != nullptr;
  bool const paged = g.page_table != nullptr;
  std::int64_t const sequences = paged ? g.num_pages : packed_kv ? 1 : g.batch;
  std::int64_t const rows = paged ? g.page_size : g.seqlen_kv;
  std::int64_t const q[4] = {packed_q ? 1 : g.batch, g.heads_q, g.seqlen_q, g.head_dim};
  std::int64_t const k[4] = {sequences, g.heads_kv, rows, g.head_dim};
  std::int64_t const v[4] = {sequences, g.heads_kv, rows, g.head_dim_v};
  p.wide_q = is_wide<T>(g.q, q, g.q_stride);
  p.wide_k = is_wide<T>(g.k, k, g.k_stride);
  p.wide_v = is_wide<T>(g.v, v, g.v_stride);
  return launch_kernel(kernel, dim3(static_cast<unsigned>(p.tiles_m * p.heads)), Config::threads,
                       stream, p, Config::shared_bytes);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
