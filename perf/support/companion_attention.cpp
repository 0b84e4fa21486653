// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion's attention as a C function; see companion_call.hpp.
#include <attikos/abi/attention_cuda.hpp>
#include <cmath>

#include "companion_call.hpp"

namespace {

using Float16 = List<abi::AttentionSm90ShortF16, abi::AttentionSm80ShortF16,
                     abi::AttentionSm90WgmmaF16, abi::AttentionSm80MmaF16>;
using Bfloat16 = List<abi::AttentionSm90ShortBf16, abi::AttentionSm80ShortBf16,
                      abi::AttentionSm90WgmmaBf16, abi::AttentionSm80MmaBf16>;
using Float32 = List<abi::AttentionSm80MmaTf32x3, abi::AttentionSm80SimtF32>;

}  // namespace

/// What a call may ask for; 0 or null: not. Windows count keys to the left.
struct Options {
  std::int32_t causal, tf32x3;
  std::int64_t window;
  double softcap;
  float const* alibi;              ///< [heads of q]
  void const* bias;                ///< of q's type, [positions of q, positions of k]
  std::int32_t const* cu_seqlens;  ///< batch + 1 offsets of packed sequences
  char const* kernel;              ///< by name, or ""
  /// [batch, pages of each] of k and v [pages, heads, page_size, features].
  std::int32_t const* page_table;
  std::int64_t page_size, num_pages;
};

/// Attention of q, k, v [batch, heads, positions, features] of the named type, scaled by
/// 1/sqrt(head_dim); out is of that type, of bfloat16 for float8. `extents`: batch, heads of q,
/// heads of k, positions of q, positions of k, head_dim, head_dim of v. `strides`: four each of q,
/// k, v, out. `lse` [batch, heads, positions] is dense, or null. Returns a cudaError_t, or -1 and
/// why in `reason`.
extern "C" int attikos_perf_attention(char const* type, void const* q, void const* k, void const* v,
                                      void* out, float* lse, std::int64_t const* extents,
                                      std::int64_t const* strides, Options const* options,
                                      void* stream, char const** reason) {
  static abi::Device const device = abi::query_device(abi::current_device());
  abi::AttentionArgs g;
  g.q = q, g.k = k, g.v = v, g.out = out, g.lse = lse;
  g.type = g.type_out = type_of(type);
  if (g.type == DType::float8_e4m3) g.type_out = DType::bfloat16;
  g.batch = extents[0], g.heads_q = extents[1], g.heads_kv = extents[2];
  g.seqlen_q = extents[3], g.seqlen_kv = extents[4];
  g.head_dim = extents[5], g.head_dim_v = extents[6];
  bool const packed = options->cu_seqlens != nullptr;
  for (int r = 0; r < 4; ++r) {
    bool const no_batches = packed && r == 0;
    g.q_stride[r] = no_batches ? 0 : strides[r];
    g.k_stride[r] = no_batches ? 0 : strides[4 + r];
    g.v_stride[r] = no_batches ? 0 : strides[8 + r];
    g.out_stride[r] = no_batches ? 0 : strides[12 + r];
  }
  g.lse_stride[0] = packed ? 0 : g.heads_q * g.seqlen_q;
  g.lse_stride[1] = g.seqlen_q, g.lse_stride[2] = 1;
  g.softmax_scale = 1 / std::sqrt(static_cast<double>(g.head_dim));
  g.causal = options->causal != 0;
  if (options->tf32x3 != 0) g.compute = Compute::tf32x3;
  if (options->window != 0) g.window_left = options->window;
  g.softcap = options->softcap;
  g.alibi = options->alibi, g.alibi_stride[1] = 1;
  g.bias = options->bias, g.type_bias = g.type;
  g.bias_stride[2] = g.seqlen_kv, g.bias_stride[3] = 1;
  g.cu_seqlens_q.data = g.cu_seqlens_kv.data = options->cu_seqlens;
  if (options->page_table != nullptr) {
    g.page_table = options->page_table;
    g.page_size = options->page_size, g.num_pages = options->num_pages;
    g.page_table_stride[0] = g.seqlen_kv / g.page_size, g.page_table_stride[1] = 1;
  }
  char const* const wanted = options->kernel;
  switch (g.type) {
    case DType::float16:
      return run(Float16{}, g, device, wanted, stream, reason);
    case DType::float32:
      return run(Float32{}, g, device, wanted, stream, reason);
    case DType::float64:
      return run(List<abi::AttentionSm80MmaF64>{}, g, device, wanted, stream, reason);
    case DType::float8_e4m3:
      return run(List<abi::AttentionSm90WgmmaE4m3, abi::AttentionSm80MmaE4m3>{}, g, device, wanted,
                 stream, reason);
    default:
      return run(Bfloat16{}, g, device, wanted, stream, reason);
  }
}
