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

/// Extents [batch, heads, positions, head_dim] of q, k and v as they lie in memory: packed
/// sequences in one batch, keys and values perhaps in pages.
struct StoredExtents {
  std::int64_t q[4], k[4], v[4];

  explicit StoredExtents(abi::AttentionArgs const& g)
      : q{g.cu_seqlens_q.data != nullptr ? 1 : g.batch, g.heads_q, g.seqlen_q, g.head_dim},
        k{g.page_table != nullptr           ? g.num_pages
          : g.cu_seqlens_kv.data != nullptr ? 1
                                            : g.batch,
          g.heads_kv, g.page_table != nullptr ? g.page_size : g.seqlen_kv, g.head_dim},
        v{k[0], k[1], k[2], g.head_dim_v} {}
};

/// Whether rows of a tensor [batch, heads, positions, features] can be read `elements` at a time,
/// 16 bytes unless told otherwise, from the first on.
template <class T>
bool rows_in_groups(void const* data, std::int64_t const (&extent)[4],
                    std::int64_t const (&stride)[4],
                    int elements = 16 / static_cast<int>(sizeof(T))) {
  if (reinterpret_cast<std::uintptr_t>(data) % (elements * sizeof(T)) != 0 ||
      (extent[3] > 1 && stride[3] != 1))
    return false;
  for (int r = 0; r < 3; ++r)
    if (extent[r] > 1 && stride[r] % elements != 0) return false;
  return true;
}

inline bool has_negative_extent(abi::AttentionArgs const& g) {
  for (std::int64_t const extent : {g.batch, g.heads_q, g.heads_kv, g.seqlen_q, g.seqlen_kv,
                                    g.head_dim, g.head_dim_v, g.page_size, g.num_pages})
    if (extent < 0) return true;
  return false;
}

/// Why a kernel cannot read a bias's elements, null if it can. `float64`: whether it reads those.
inline char const* refuse_bias_type(abi::AttentionArgs const& g, bool float64) {
  if (g.bias == nullptr || g.type_bias == DType::float32 || g.type_bias == DType::float16 ||
      g.type_bias == DType::bfloat16 || (float64 && g.type_bias == DType::float64))
    return nullptr;
  return "it does not read the bias's element type";
}

/// Why no kernel takes a call with such extents that is not empty; null if one may.
inline char const* refuse_extents(abi::AttentionArgs const& g) {
  if (g.head_dim == 0 || g.head_dim_v == 0) return "head_dim is 0";
  for (std::int64_t const extent : {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv})
    if (extent >= most_positions) return "an extent is too large";
  return nullptr;
}

/// Why one launch has no place for so many tiles, null if it has. Kernels count them in an int,
/// some twice as far.
inline char const* refuse_tiles(std::int64_t tiles, std::int64_t most = (1 << 30) - 1) {
  return tiles > most ? "there are too many tiles for one launch" : nullptr;
}

/// Tiles of `rows` queries that a call has at most, counting for packed sequences those that hold
/// the end of one and the beginning of the next.
inline std::int64_t most_tiles(abi::AttentionArgs const& g, std::int64_t rows) {
  return (g.seqlen_q / rows + g.batch + 2) * g.heads_q *
         (g.cu_seqlens_q.data != nullptr ? 1 : std::max<std::int64_t>(g.batch, 1));
}

/// Why what `refuse` stands for cannot go through q, or through k and v, null if it can. It is told
/// a tensor's data, extents and strides, and what to say of an address, of a stride, and of a
/// missing unit stride.
template <class Refuse>
char const* refuse_queries(abi::AttentionArgs const& g, StoredExtents const& extents,
                           Refuse const& refuse) {
  return refuse(g.q, extents.q, g.q_stride, "q's address is not a multiple of 16 bytes",
                "a stride of q is not a multiple of 16 bytes",
                "q has no unit stride along head_dim");
}
template <class Refuse>
char const* refuse_keys_and_values(abi::AttentionArgs const& g, StoredExtents const& extents,
                                   Refuse const& refuse) {
  if (char const* reason = refuse(
          g.k, extents.k, g.k_stride, "k's address is not a multiple of 16 bytes",
          "a stride of k is not a multiple of 16 bytes", "k has no unit stride along head_dim"))
    return reason;
  return refuse(g.v, extents.v, g.v_stride, "v's address is not a multiple of 16 bytes",
                "a stride of v is not a multiple of 16 bytes",
                "v has no unit stride along head_dim");
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
