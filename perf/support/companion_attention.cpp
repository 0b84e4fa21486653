// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion's attention, decode and append_kv as C functions, for peers_torch.py and its like:
// PyTorch's tensors reach the kernels without Kokkos, in the process and stream of their peers.
#include <attikos/abi/append_kv_cuda.hpp>
#include <attikos/abi/attention_cuda.hpp>
#include <attikos/abi/decode_cuda.hpp>
#include <attikos/abi/gemm.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace {

using namespace attikos;

template <class... Kernels>
struct List {};

/// Launches the first kernel that takes the call, or the one called `wanted`.
template <class Args, class... Kernels>
int run(List<Kernels...>, Args const& g, abi::Device const& device, char const* wanted,
        void* stream, char const** reason) {
  int status = -1;
  auto const attempt = [&](auto kernel) {
    using Kernel = decltype(kernel);
    if (*wanted != '\0' && std::strcmp(wanted, Kernel::name) != 0) return false;
    abi::Verdict const verdict = Kernel::accepts(g, device);
    *reason = verdict.reason;
    if (verdict.ok) status = Kernel::launch(g, device, static_cast<CUstream_st*>(stream));
    return verdict.ok;
  };
  (attempt(Kernels{}) || ...);
  return status;
}

using Float16 = List<abi::AttentionSm90ShortF16, abi::AttentionSm80ShortF16,
                     abi::AttentionSm90WgmmaF16, abi::AttentionSm80MmaF16>;
using Bfloat16 = List<abi::AttentionSm90ShortBf16, abi::AttentionSm80ShortBf16,
                      abi::AttentionSm90WgmmaBf16, abi::AttentionSm80MmaBf16>;
using Float32 = List<abi::AttentionSm80MmaTf32x3, abi::AttentionSm80SimtF32>;

DType type_of(char const* name) {
  for (DType type : {DType::float64, DType::float32, DType::float16, DType::float8_e4m3})
    if (std::strcmp(name, dtype_name(type)) == 0) return type;
  return DType::bfloat16;
}

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

/// The IEEE float32 product of two dense matrices [size, size], the second transposed.
extern "C" int attikos_perf_product(void const* a, void const* b, void* c, std::int64_t size,
                                    void* stream, char const** reason) {
  static abi::Device const device = abi::query_device(abi::current_device());
  abi::GemmArgs g;
  g.a = a, g.b = b, g.c = c;
  g.type_a = g.type_b = g.type_c = DType::float32;
  g.m = g.n = g.k = size, g.batch = 1;
  g.a_m = g.b_n = g.c_m = size, g.a_k = g.b_k = g.c_n = 1;
  return run(List<abi::GemmSm90SimtF32>{}, g, device, "", stream, reason);
}

/// Decode of q [batch, heads, queries, features] over a cache, [batch, heads, positions, features]
/// or, with a page table [batch, pages of each], [pages, heads, page_size, features], of bfloat16
/// or float8_e4m3; out is bfloat16. `extents` as above, `lengths` [batch]. With no workspace, only
/// tells how large it has to be.
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
