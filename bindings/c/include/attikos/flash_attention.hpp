// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention on raw pointers, overloaded by element type: C++17 over the functions of attikos.h.
#pragma once

#include <attikos/attikos.h>

struct __half;  // CUDA's half, of which only pointers are needed here

namespace attikos {

/// What the functions below return.
enum class FlashAttentionError {
  SUCCESS = 0,
  INVALID_DIMENSION,   ///< a dimension ≤ 0, or a tensor beyond 63-bit offsets
  DIMENSION_MISMATCH,  ///< not returned: there is one set of dimensions
  NULL_POINTER,        ///< an input or output pointer is null
  CUDA_ERROR,          ///< the device or its run time failed, or memory is out of reach
  OUT_OF_MEMORY,
  UNSUPPORTED_HEAD_DIM,  ///< not returned: every head_dim works
  UNSUPPORTED_DTYPE,
  INVALID_ARGUMENT  ///< a misaligned pointer, a scale that is not finite, or outputs that overlap
};

/// Text for an error. Never null.
inline char const* get_error_string(FlashAttentionError error) {
  return attikos_flash_attention_error_string(static_cast<int>(error));
}

/// Q, K, V, O [batch_size, num_heads, seq_len, head_dim] and L [batch_size, num_heads, seq_len],
/// dense and row-major; L is the natural log-sum-exp. Device pointers run on `stream`, host
/// pointers on the host. scale 0 means 1/√head_dim. `Stream` is a pointer such as cudaStream_t.
template <class Stream = void*>
FlashAttentionError flash_attention_forward(float const* Q, float const* K, float const* V,
                                            float* O, float* L, int batch_size, int num_heads,
                                            int seq_len, int head_dim, float scale, bool causal,
                                            Stream stream = Stream{}) {
  return static_cast<FlashAttentionError>(
      attikos_attention_forward_f32(Q, K, V, O, L, batch_size, num_heads, seq_len, head_dim, scale,
                                    causal, static_cast<void*>(stream)));
}

/// The same for half precision. L is float: half has neither the range nor the digits of a
/// log-sum-exp.
template <class Stream = void*>
FlashAttentionError flash_attention_forward(__half const* Q, __half const* K, __half const* V,
                                            __half* O, float* L, int batch_size, int num_heads,
                                            int seq_len, int head_dim, float scale, bool causal,
                                            Stream stream = Stream{}) {
  return static_cast<FlashAttentionError>(
      attikos_attention_forward_f16(Q, K, V, O, L, batch_size, num_heads, seq_len, head_dim, scale,
                                    causal, static_cast<void*>(stream)));
}

/// Gradients: O and L are what the forward pass wrote for the same Q, K, V, scale and mask.
template <class Stream = void*>
FlashAttentionError flash_attention_backward(float const* Q, float const* K, float const* V,
                                             float const* O, float const* L, float const* dO,
                                             float* dQ, float* dK, float* dV, int batch_size,
                                             int num_heads, int seq_len, int head_dim, float scale,
                                             bool causal, Stream stream = Stream{}) {
  return static_cast<FlashAttentionError>(
      attikos_attention_backward_f32(Q, K, V, O, L, dO, dQ, dK, dV, batch_size, num_heads, seq_len,
                                     head_dim, scale, causal, static_cast<void*>(stream)));
}

/// The same for half precision, with L in float.
template <class Stream = void*>
FlashAttentionError flash_attention_backward(__half const* Q, __half const* K, __half const* V,
                                             __half const* O, float const* L, __half const* dO,
                                             __half* dQ, __half* dK, __half* dV, int batch_size,
                                             int num_heads, int seq_len, int head_dim, float scale,
                                             bool causal, Stream stream = Stream{}) {
  return static_cast<FlashAttentionError>(
      attikos_attention_backward_f16(Q, K, V, O, L, dO, dQ, dK, dV, batch_size, num_heads, seq_len,
                                     head_dim, scale, causal, static_cast<void*>(stream)));
}

}  // namespace attikos
