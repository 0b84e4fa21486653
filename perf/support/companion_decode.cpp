// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion's decode as a C function; see companion_call.hpp.
#include <attikos/abi/decode_cuda.hpp>
#include <cmath>

#include "companion_call.hpp"

/// Decode of q [batch, heads, queries, features] over a cache, [batch, heads, positions, features]
/// or, with a page table [batch, pages of each], [pages, heads, page_size, features], of bfloat16
/// or float8_e4m3; out is bfloat16. `extents`: batch, heads of q, heads of k, positions of q,
/// positions of k, head_dim, head_dim of v. `strides`: four each of q, k, v, out. `lengths`
/// [batch]. With no workspace, only tells how large it has to be.
extern "C" int attikos_perf_decode(char const* type, void const* q, void const* k, void const* v,
                                   void* out, std::int64_t const* extents,
                                   std::int64_t const* strides, std::int32_t const* lengths,
                                   std::int32_t const* page_table, std::int64_t page_size,
                                   std::int64_t num_pages, void* workspace,
                                   std::int64_t* workspace_bytes, void* stream,
                                   char const** reason) {
  static abi::Device const device = abi::query_device(abi::current_device());
  abi::DecodeArgs g;
  g.q = q, g.k = k, g.v = v, g.out = out;
  g.type = type_of(type), g.type_out = DType::bfloat16;
  g.batch = extents[0], g.heads_q = extents[1], g.heads_kv = extents[2];
  g.seqlen_q = extents[3], g.seqlen_kv = extents[4];
  g.head_dim = extents[5], g.head_dim_v = extents[6];
  for (int r = 0; r < 4; ++r) {
    g.q_stride[r] = strides[r], g.k_stride[r] = strides[4 + r];
    g.v_stride[r] = strides[8 + r], g.out_stride[r] = strides[12 + r];
  }
  g.softmax_scale = 1 / std::sqrt(static_cast<double>(g.head_dim));
  g.causal = true;
  g.lengths_kv = lengths, g.lengths_kv_stride[0] = 1;
  if (page_table != nullptr) {
    g.page_table = page_table, g.page_size = page_size, g.num_pages = num_pages;
    g.page_table_stride[0] = g.seqlen_kv / page_size, g.page_table_stride[1] = 1;
  }
  auto const run_kernel = [&]<class Kernel>(List<Kernel> kernel) {
    if (workspace == nullptr) {
      *workspace_bytes = static_cast<std::int64_t>(Kernel::workspace_bytes(g, device));
      return 0;
    }
    g.workspace = workspace;
    return run(kernel, g, device, "", stream, reason);
  };
  if (g.type == DType::float8_e4m3) return run_kernel(List<abi::DecodeSm80MmaE4m3>{});
  return run_kernel(List<abi::DecodeSm80MmaBf16>{});
}
