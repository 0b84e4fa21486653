// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// append_kv/sm80_simt: which calls it takes, and how their rows are shared among threads.
#pragma once

#include <algorithm>
#include <attikos/abi/append_kv_cuda.hpp>
#include <limits>

#include "common/check.cuh"
#include "common/limits.cuh"
#include "params.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// One tensor of a call in bytes, with the extents along which its strides count.
struct AppendKvTensor {
  void const* data;
  std::int64_t extent[4];
  std::int64_t stride[4];
  std::int64_t element_bytes;

  AppendKvTensor(void const* data_, DType type, std::int64_t const (&extents)[4],
                 std::int64_t const (&strides)[4])
      : data(data_), element_bytes(dtype_size(type)) {
    for (int r = 0; r < 4; ++r) extent[r] = extents[r], stride[r] = strides[r] * element_bytes;
  }

  /// Whether `bytes` neighbors in memory can be moved at once, from any row's beginning on.
  bool allows(std::int64_t bytes) const {
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) != 0 ||
        (extent[3] > 1 && stride[3] != element_bytes && bytes > element_bytes) ||
        (bytes > element_bytes && extent[3] * element_bytes % bytes != 0))
      return false;
    for (int r = 0; r < 3; ++r)
      if (extent[r] > 1 && stride[r] % bytes != 0) return false;
    return true;
  }
};

/// A call as three copies of rows.
struct AppendKvCall {
  AppendKvTensor from[3], to[3];
  bool any[3];  ///< whether the part has elements to move

  explicit AppendKvCall(abi::AppendKvArgs const& g)
      : from{{g.k_new, g.type_new, {outer(g), g.heads, g.seqlen_new, g.head_dim}, g.k_new_stride},
             {g.v_new, g.type_new, {outer(g), g.heads, g.seqlen_new, g.head_dim_v}, g.v_new_stride},
             {g.q, g.type_q, {outer_q(g), g.heads_q, g.seqlen_q, g.head_dim}, g.q_stride}},
        to{{g.k_cache, g.type_cache, {slots(g), g.heads, rows(g), g.head_dim}, g.k_cache_stride},
           {g.v_cache, g.type_cache, {slots(g), g.heads, rows(g), g.head_dim_v}, g.v_cache_stride},
           {g.q_out,
            g.type_q_out,
            {outer_q(g), g.heads_q, g.seqlen_q, g.head_dim},
            g.q_out_stride}} {
    for (int part = 0; part < 3; ++part) {
      any[part] = part == 2 || (g.capacity != 0 && slots(g) != 0);
      for (std::int64_t const extent : from[part].extent) any[part] = any[part] && extent != 0;
    }
  }
  bool empty() const { return !any[0] && !any[1] && !any[2]; }

  static std::int64_t outer(abi::AppendKvArgs const& g) {
    return g.cu_seqlens_new.data == nullptr ? g.batch : 1;
  }
  static std::int64_t outer_q(abi::AppendKvArgs const& g) {
    return g.cu_seqlens_q.data == nullptr ? g.batch : 1;
  }
  static std::int64_t slots(abi::AppendKvArgs const& g) {
    return g.page_table == nullptr ? g.batch : g.num_pages;
  }
  static std::int64_t rows(abi::AppendKvArgs const& g) {
    return g.page_table == nullptr ? g.capacity : g.page_size;
  }

  /// Whether every part lets so many elements be moved at once.
  bool allows(int elements) const {
    for (int part = 0; part < 3; ++part)
      if (any[part] && !(from[part].allows(elements * from[part].element_bytes) &&
                         to[part].allows(elements * to[part].element_bytes)))
        return false;
    return true;
  }
};

/// How a call is cut up.
struct AppendKvPlan {
  bool copies;  ///< nothing is rotated or converted
  int group;    ///< elements moved at once
  std::int64_t blocks = 0;
  bool fits = true;  ///< into the numbers of a launch
  AppendKvPart parts[3] = {};
  unsigned first_block[3] = {};

  AppendKvPlan(abi::AppendKvArgs const& g, AppendKvCall const& call, abi::Device const& device) {
    std::int64_t const rotary = g.cos == nullptr ? 0 : g.rotary_dim;
    copies = rotary == 0 && g.type_new == g.type_cache;
    int const bytes = dtype_size(g.type_new);
    if (copies) {
      group = 16 / bytes;
      while (group > 1 && !call.allows(group)) group /= 2;
    } else {
      group = bytes == 8 ? append_kv_shapes::Pairs::group : append_kv_shapes::Fours::group;
      if (rotary % (2 * group) != 0 || !call.allows(group)) group = 1;
    }
    // As many heads to an item as leave enough threads to fill the device.
    std::int64_t const wanted = std::int64_t{device.sm_count} * 2048;
    for (std::int64_t heads = copies ? append_kv_shapes::Copied::item_heads
                                     : append_kv_shapes::Fours::item_heads;
         ; heads /= 2) {
      std::int64_t threads = 0;
      fits = true, blocks = 0;
      for (int part = 0; part < 3; ++part) {
        bool const rotates = part != 1;
        threads += share(parts[part], call.from[part], call.any[part],
                         rotates ? rotary / (2 * group) : 0, heads);
        first_block[part] = static_cast<unsigned>(blocks);
      }
      if (heads == 1 || threads >= wanted) break;
    }
  }

 private:
  /// Fills in how a part's rows are shared; returns the number of its threads.
  std::int64_t share(AppendKvPart& part, AppendKvTensor const& rows, bool any,
                     std::int64_t rotated_slots, std::int64_t heads_wanted) {
    part = {};
    if (!any) return 0;
    std::int64_t const groups = rows.extent[3] / group;
    std::int64_t const slots = rotated_slots + (groups - 2 * rotated_slots + 1) / 2;
    // Threads of an item, as evenly laden as can be.
    std::int64_t const rounds = (slots + 63) / 64, lanes = (slots + rounds - 1) / rounds;
    std::int64_t const chunks = (rows.extent[1] + heads_wanted - 1) / heads_wanted;
    std::int64_t const items_per_block = append_kv_threads / lanes;
    part.tokens = static_cast<unsigned>(rows.extent[2]);
    part.heads = static_cast<unsigned>(rows.extent[1]);
    part.chunks = static_cast<unsigned>(chunks);
    part.heads_per_item = static_cast<unsigned>((rows.extent[1] + chunks - 1) / chunks);
    part.items_per_block = static_cast<unsigned>(items_per_block);
    part.groups = static_cast<int>(groups);
    part.slots = static_cast<int>(slots);
    part.rotated_slots = static_cast<int>(rotated_slots);
    part.lanes = static_cast<unsigned>(lanes);
    // Each factor is below 2^28.
    std::int64_t const tokens = rows.extent[0] * rows.extent[2];
    std::int64_t const items = tokens >= std::int64_t{1} << 32
                                   ? std::numeric_limits<std::int64_t>::max()
                                   : tokens * chunks;
    if (items >= std::int64_t{1} << 31) {
      fits = false;
      return std::int64_t{1} << 31;
    }
    part.items = static_cast<unsigned>(items);
    blocks += (items + items_per_block - 1) / items_per_block;
    return items * lanes;
  }
};

/// Whether the kernel converts new elements to what the cache holds.
constexpr bool append_kv_pair(DType from, DType to) {
  bool const f8 = to == DType::float8_e4m3 || to == DType::float8_e5m2;
  switch (from) {
    case DType::float32:
      return to == from || to == DType::float16 || to == DType::bfloat16 || f8;
    case DType::float16:
    case DType::bfloat16:
      return to == from || f8;
    default:
      return to == from && (from == DType::float64 || f8);
  }
}

/// First reason not to take a call; null if there is none.
inline char const* refuse_append_kv(abi::AppendKvArgs const& g, abi::Device const& device) {
  if (!append_kv_pair(g.type_new, g.type_cache)) return "it takes other element types";
  if (char const* reason = refuse_before_sm80(device)) return reason;
  if (char const* reason = abi::beyond(g, abi::AppendKvSm80Simt::takes)) return reason;
  for (std::int64_t const extent :
       {g.batch, g.heads, g.seqlen_new, g.head_dim, g.head_dim_v, g.capacity, g.num_pages,
        g.page_size, g.heads_q, g.seqlen_q, g.rotary_dim, g.table_rows})
    if (extent < 0) return "an extent is negative";
  AppendKvCall const call(g);
  if (call.empty()) return nullptr;
  for (std::int64_t const extent : {g.batch, g.heads, g.seqlen_new, g.head_dim, g.head_dim_v,
                                    g.page_size, g.heads_q, g.seqlen_q})
    if (extent >= std::int64_t{1} << 28) return "an extent is too large";
  if (g.page_table != nullptr && g.page_size == 0) return "page_size is 0";
  if (call.any[2] && (g.type_q != g.type_new || g.type_q_out != g.type_new))
    return "q or its result has another element type than k_new";
  if (g.cos != nullptr && g.rotary_dim != 0 && (call.any[0] || call.any[2])) {
    if (g.sin == nullptr) return "cos or sin is a null pointer";
    if (g.type_table != DType::float32 && g.type_table != DType::float16 &&
        g.type_table != DType::bfloat16 && g.type_table != DType::float64)
      return "it does not read the tables' element type";
    if (g.rotary_dim % 2 != 0 || g.rotary_dim > g.head_dim)
      return "rotary_dim is odd or above head_dim";
    if (g.table_rows == 0) return "the tables have no rows";
  }
  for (int part = 0; part < 3; ++part) {
    if (!call.any[part]) continue;
    if (call.from[part].data == nullptr || call.to[part].data == nullptr)
      return part == 2 ? "q or its result is a null pointer"
                       : "k_new, v_new or a cache is a null pointer";
  }
  AppendKvPlan const plan(g, call, device);
  if (!plan.fits || plan.blocks > most_blocks_x) return "there are too many rows for one launch";
  return nullptr;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
