// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion's append_kv as a C function; see companion_call.hpp.
#include <attikos/abi/append_kv_cuda.hpp>

#include "companion_call.hpp"

/// Appends k_new and v_new [batch, heads, tokens, features] of the named type to caches [batch,
/// heads, positions, features] or, with a page table [batch, pages of each], [pages, heads,
/// page_size, features]. `extents`: batch, heads, tokens, positions of a sequence, features.
/// `strides`: four each of new tokens and caches. `lengths` [batch]. With dense tables [rows,
/// features] keys are rotated.
extern "C" int attikos_perf_append_kv(char const* type, void const* k_new, void const* v_new,
                                      void* k_cache, void* v_cache, std::int64_t const* extents,
                                      std::int64_t const* strides, std::int32_t const* lengths,
                                      std::int32_t const* page_table, std::int64_t page_size,
                                      std::int64_t num_pages, float const* cos, float const* sin,
                                      std::int64_t table_rows, void* stream, char const** reason) {
  static abi::Device const device = abi::query_device(abi::current_device());
  abi::AppendKvArgs g;
  g.k_new = k_new, g.v_new = v_new, g.k_cache = k_cache, g.v_cache = v_cache;
  g.type_new = g.type_cache = type_of(type);
  g.batch = extents[0], g.heads = extents[1], g.seqlen_new = extents[2], g.capacity = extents[3];
  g.head_dim = g.head_dim_v = extents[4];
  for (int r = 0; r < 4; ++r) {
    g.k_new_stride[r] = g.v_new_stride[r] = strides[r];
    g.k_cache_stride[r] = g.v_cache_stride[r] = strides[4 + r];
  }
  g.cache_lengths = lengths, g.cache_lengths_stride = 1;
  if (page_table != nullptr) {
    g.page_table = page_table, g.page_size = page_size, g.num_pages = num_pages;
    g.page_table_stride[0] = g.capacity / page_size, g.page_table_stride[1] = 1;
  }
  if (cos != nullptr) {
    g.cos = cos, g.sin = sin, g.table_rows = table_rows, g.rotary_dim = g.head_dim;
    g.cos_stride[0] = g.sin_stride[0] = g.head_dim, g.cos_stride[1] = g.sin_stride[1] = 1;
  }
  return run(List<abi::AppendKvSm80Simt>{}, g, device, "", stream, reason);
}
