// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Host side that all kernels of attention and decode share: what a call comes to.
#pragma once

#include <algorithm>
#include <attikos/abi/attention.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr std::int64_t most_positions = std::int64_t{1} << 28;

/// Nothing is read or written.
inline bool is_empty(abi::AttentionArgs const& g) {
  return g.heads_q == 0 || g.seqlen_q == 0 || (g.batch == 0 && g.cu_seqlens_q.data == nullptr);
}

/// Whether scores are more than scale·q·k with a positive scale.
inline bool has_score_terms(abi::AttentionArgs const& g) {
  return g.softcap > 0 || g.bias != nullptr || g.alibi != nullptr || g.mask != nullptr ||
         !(g.softmax_scale > 0);
}

/// Window and causal mask as kernels take them: query i sees keys [i + off - window_left, i + off +
/// reach); -1: open.
template <class Params>
void plan_window(abi::AttentionArgs const& g, Params& p) {
  auto const bounded = [](std::int64_t window) {
    return static_cast<int>(window < 0 || window >= most_positions ? -1 : window);
  };
  p.window_left = bounded(g.window_left);
  p.reach = bounded(g.window_right);
  if (p.reach >= 0) ++p.reach;
  if (g.causal) p.reach = p.reach < 0 ? 1 : std::min(p.reach, 1);
}

/// Whether rows of out can be written so many elements of 16 bits at a time, or as many of more.
inline bool stores_groups(abi::AttentionArgs const& g, int elements) {
  return (g.head_dim_v == 1 || g.out_stride[3] == 1) && g.head_dim_v % elements == 0 &&
         reinterpret_cast<std::uintptr_t>(g.out) % static_cast<std::uintptr_t>(2 * elements) == 0 &&
         g.out_stride[2] % elements == 0 && g.out_stride[1] % elements == 0 &&
         g.out_stride[0] % elements == 0;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
