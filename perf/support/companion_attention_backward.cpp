// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The companion's gradients of attention as a C function; see companion_call.hpp.
#include <algorithm>
#include <attikos/abi/attention_backward_cuda.hpp>
#include <cmath>

#include "companion_call.hpp"

/// Gradients of attention of q, k, v [batch, heads, positions, features] of the named type, scaled
/// by 1/sqrt(head_dim). `tensors`: q, k, v, out, dout, dq, dk, dv; `strides`: four each of these;
/// `extents`: batch, heads of q, heads of k, positions of q, positions of k, head_dim, head_dim of
/// v. `lse` [batch, heads, positions] is dense. With no workspace, only tells how large it has to
/// be. Returns a cudaError_t, or -1 and why in `reason`.
extern "C" int attikos_perf_attention_backward(char const* type, void* const* tensors, float* lse,
                                               std::int64_t const* extents,
                                               std::int64_t const* strides, std::int32_t causal,
                                               std::int32_t unordered, char const* wanted,
                                               void* workspace, std::int64_t* workspace_bytes,
                                               void* stream, char const** reason) {
  static abi::Device const device = abi::query_device(abi::current_device());
  abi::AttentionBackwardArgs a;
  abi::AttentionArgs& g = a.forward;
  g.q = tensors[0], g.k = tensors[1], g.v = tensors[2], g.out = tensors[3], g.lse = lse;
  a.dout = tensors[4], a.dq = tensors[5], a.dk = tensors[6], a.dv = tensors[7];
  g.type = g.type_out = type_of(type);
  g.batch = extents[0], g.heads_q = extents[1], g.heads_kv = extents[2];
  g.seqlen_q = extents[3], g.seqlen_kv = extents[4];
  g.head_dim = extents[5], g.head_dim_v = extents[6];
  std::int64_t n = 0;
  for (auto* stride : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride, &a.dout_stride,
                       &a.dq_stride, &a.dk_stride, &a.dv_stride})
    for (std::int64_t& s : *stride) s = strides[n++];
  g.lse_stride[0] = g.heads_q * g.seqlen_q, g.lse_stride[1] = g.seqlen_q, g.lse_stride[2] = 1;
  g.softmax_scale = 1 / std::sqrt(static_cast<double>(g.head_dim));
  g.causal = causal != 0, a.ordered = unordered == 0;
  auto const run_kernels = [&]<class... Kernels>(List<Kernels...> kernels) {
    if (workspace == nullptr) {  // as much as any of them may ask for
      *workspace_bytes = static_cast<std::int64_t>(
          std::max({std::size_t{0}, Kernels::workspace_bytes(a, device)...}));
      return 0;
    }
    a.workspace = workspace;
    return run(kernels, a, device, wanted, stream, reason);
  };
  if (g.type == DType::float16)
    return run_kernels(List<abi::AttentionBackwardSm80ShortF16, abi::AttentionBackwardSm90WgmmaF16,
                            abi::AttentionBackwardSm80MmaF16>{});
  if (g.type == DType::float64) return run_kernels(List<abi::AttentionBackwardSm80MmaF64>{});
  if (g.type == DType::float32) {
    // As if the caller allowed it; a name decides.
    g.compute = abi::Compute::tf32x3;
    return run_kernels(
        List<abi::AttentionBackwardSm80MmaTf32x3, abi::AttentionBackwardSm80SimtF32>{});
  }
  return run_kernels(List<abi::AttentionBackwardSm80ShortBf16, abi::AttentionBackwardSm90WgmmaBf16,
                          abi::AttentionBackwardSm80MmaBf16>{});
}
