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

/// Whether a kernel of `Config` that is `plain` may take a call: scores are scale·q·k, and keys and
/// values dense.
template <class Config>
bool is_plain(abi::AttentionArgs const& g) {
  using T = typename Config::Source;
  constexpr std::int64_t most = std::numeric_limits<int>::max() / static_cast<int>(sizeof(T));
  StoredExtents const extents(g);
  return !has_score_terms(g) && g.page_table == nullptr && g.head_dim == Config::d &&
         g.head_dim_v == Config::d && rows_in_groups<T>(g.k, extents.k, g.k_stride) &&
         rows_in_groups<T>(g.v, extents.v, g.v_stride) &&
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
  StoredExtents const extents(g);
  p.wide_q = rows_in_groups<T>(g.q, extents.q, g.q_stride);
  p.wide_k = rows_in_groups<T>(g.k, extents.k, g.k_stride);
  p.wide_v = rows_in_groups<T>(g.v, extents.v, g.v_stride);
  p.apart_k = static_cast<int>(g.k_stride[2] * static_cast<std::int64_t>(sizeof(T)));
  p.apart_v = static_cast<int>(g.v_stride[2] * static_cast<std::int64_t>(sizeof(T)));
  return launch_kernel(kernel, dim3(static_cast<unsigned>(p.tiles_m * p.heads)), Config::threads,
                       stream, p, Config::shared_bytes);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
