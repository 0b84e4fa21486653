// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launches of attention/sm80_mma_*, whatever they multiply, and of attention/sm75_wmma_f16.
#pragma once

#include <attikos/abi/attention_cuda.hpp>
#include <cstdlib>
#include <limits>

#include "common/check.cuh"
#include "mma_params.cuh"
#include "plan.cuh"

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

/// Extents of keys and values: dimension 0, and positions of each.
inline std::int64_t key_sequences(abi::AttentionArgs const& g) {
  return g.page_table != nullptr ? g.num_pages : g.cu_seqlens_kv.data != nullptr ? 1 : g.batch;
}
inline std::int64_t key_rows(abi::AttentionArgs const& g) {
  return g.page_table != nullptr ? g.page_size : g.seqlen_kv;
}

template <class T>
bool has_wide_keys(abi::AttentionArgs const& g) {
  std::int64_t const k[4] = {key_sequences(g), g.heads_kv, key_rows(g), g.head_dim};
  return is_wide<T>(g.k, k, g.k_stride);
}
template <class T>
bool has_wide_values(abi::AttentionArgs const& g) {
  std::int64_t const v[4] = {key_sequences(g), g.heads_kv, key_rows(g), g.head_dim_v};
  return is_wide<T>(g.v, v, g.v_stride);
}

/// Whether a kernel whose shape is `Config` may take a call if it is `plain`; see
/// Sm80AttentionConfig.
template <class Config>
bool is_plain(abi::AttentionArgs const& g) {
  using T = typename Config::Source;
  constexpr std::int64_t most = std::numeric_limits<int>::max() / static_cast<int>(sizeof(T));
  return !has_score_terms(g) && g.page_table == nullptr && g.head_dim == Config::d &&
         g.head_dim_v == Config::d && has_wide_keys<T>(g) && has_wide_values<T>(g) &&
         std::max(std::abs(g.k_stride[2]), std::abs(g.v_stride[2])) <= most;
}

template <class Config>
cudaError_t launch_tiles(void (*kernel)(MmaAttentionParams), abi::AttentionArgs const& g,
                         abi::Device const& device, CUstream_st* stream) {
  using T = typename Config::Source;
  MmaAttentionParams p{};
  plan_attention(g, Config::tile_m, Config::blocks * device.sm_count, 2, p);
  p.terms = has_score_terms(g);
  p.excludes = g.mask != nullptr || g.bias != nullptr;
  std::int64_t const q[4] = {g.cu_seqlens_q.data != nullptr ? 1 : g.batch, g.heads_q, g.seqlen_q,
                             g.head_dim};
  p.wide_q = is_wide<T>(g.q, q, g.q_stride);
  p.wide_k = has_wide_keys<T>(g);
  p.wide_v = has_wide_values<T>(g);
  p.apart_k = static_cast<int>(g.k_stride[2] * static_cast<std::int64_t>(sizeof(T)));
  p.apart_v = static_cast<int>(g.v_stride[2] * static_cast<std::int64_t>(sizeof(T)));
  return launch_kernel(kernel, dim3(static_cast<unsigned>(p.tiles_m * p.heads)), Config::threads,
                       stream, p, Config::shared_bytes);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
