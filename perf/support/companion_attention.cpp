// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion's attention as a C function, for peers_torch.py: PyTorch's tensors reach the
// kernels without Kokkos, in the process and stream of their peers.
#include <attikos/abi/attention_cuda.hpp>
#include <cmath>
#include <cstdint>

namespace {

using namespace attikos;

template <class Kernel>
int run(abi::AttentionArgs const& g, abi::Device const& device, void* stream, char const** reason) {
  abi::Verdict const verdict = Kernel::accepts(g, device);
  *reason = verdict.reason;
  return verdict.ok ? Kernel::launch(g, device, static_cast<CUstream_st*>(stream)) : -1;
}

}  // namespace

/// Attention of q, k, v [batch, heads, positions, features] of float16 or bfloat16, scaled by
/// 1/sqrt(head_dim). `extents`: batch, heads of q, heads of k, positions of q, positions of k,
/// head_dim, head_dim of v. `strides`: four each of q, k, v, out. `lse` [batch, heads, positions]
/// is dense. `cu_seqlens`: batch + 1 offsets of packed sequences, or null. Returns a cudaError_t,
/// or -1 and why in `reason`.
extern "C" int attikos_perf_attention(int float16, void const* q, void const* k, void const* v,
                                      void* out, float* lse, std::int64_t const* extents,
                                      std::int64_t const* strides, int causal,
                                      std::int32_t const* cu_seqlens, void* stream,
                                      char const** reason) {
  static abi::Device const device = abi::query_device(abi::current_device());
  abi::AttentionArgs g;
  g.q = q, g.k = k, g.v = v, g.out = out, g.lse = lse;
  g.type = g.type_out = float16 != 0 ? DType::float16 : DType::bfloat16;
  g.batch = extents[0], g.heads_q = extents[1], g.heads_kv = extents[2];
  g.seqlen_q = extents[3], g.seqlen_kv = extents[4];
  g.head_dim = extents[5], g.head_dim_v = extents[6];
  bool const packed = cu_seqlens != nullptr;
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
  g.causal = causal != 0;
  g.cu_seqlens_q.data = g.cu_seqlens_kv.data = cu_seqlens;
  return float16 != 0 ? run<abi::AttentionSm90WgmmaF16>(g, device, stream, reason)
                      : run<abi::AttentionSm90WgmmaBf16>(g, device, stream, reason);
}
