// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The C++ functions of CuFlash-Attn's documentation by their own names, argument for argument, for
/// programs that were written for them: C++17 over libattikos. flash_attention.hpp says what the
/// arguments mean.
///
/// One argument differs: L is float in the half functions, too, since half precision has neither
/// the range nor the digits of a log-sum-exp; a half L does not compile. FlashAttentionError has
/// one value more, INVALID_ARGUMENT. What the document refused works: every head_dim, gradients in
/// half precision, and pointers to host memory.
#pragma once

#include <attikos/flash_attention.hpp>
#include <type_traits>

struct CUstream_st;  // what a cudaStream_t points to

namespace cuflash {

using attikos::FlashAttentionError;
using attikos::get_error_string;

inline FlashAttentionError flash_attention_forward(float const* Q, float const* K, float const* V,
                                                   float* O, float* L, int batch_size,
                                                   int num_heads, int seq_len, int head_dim,
                                                   float scale, bool causal,
                                                   CUstream_st* stream = nullptr) {
  return attikos::flash_attention_forward(Q, K, V, O, L, batch_size, num_heads, seq_len, head_dim,
                                          scale, causal, stream);
}

inline FlashAttentionError flash_attention_forward(__half const* Q, __half const* K,
                                                   __half const* V, __half* O, float* L,
                                                   int batch_size, int num_heads, int seq_len,
                                                   int head_dim, float scale, bool causal,
                                                   CUstream_st* stream = nullptr) {
  return attikos::flash_attention_forward(Q, K, V, O, L, batch_size, num_heads, seq_len, head_dim,
                                          scale, causal, stream);
}

inline FlashAttentionError flash_attention_backward(float const* Q, float const* K, float const* V,
                                                    float const* O, float const* L, float const* dO,
                                                    float* dQ, float* dK, float* dV, int batch_size,
                                                    int num_heads, int seq_len, int head_dim,
                                                    float scale, bool causal,
                                                    CUstream_st* stream = nullptr) {
  return attikos::flash_attention_backward(Q, K, V, O, L, dO, dQ, dK, dV, batch_size, num_heads,
                                           seq_len, head_dim, scale, causal, stream);
}

inline FlashAttentionError flash_attention_backward(
    __half const* Q, __half const* K, __half const* V, __half const* O, float const* L,
    __half const* dO, __half* dQ, __half* dK, __half* dV, int batch_size, int num_heads,
    int seq_len, int head_dim, float scale, bool causal, CUstream_st* stream = nullptr) {
  return attikos::flash_attention_backward(Q, K, V, O, L, dO, dQ, dK, dV, batch_size, num_heads,
                                           seq_len, head_dim, scale, causal, stream);
}

/// The document's half L, refused in words.
template <class Half, std::enable_if_t<std::is_same_v<Half, __half>, int> = 0>
FlashAttentionError flash_attention_forward(__half const*, __half const*, __half const*, __half*,
                                            Half*, int, int, int, int, float, bool,
                                            CUstream_st* = nullptr) {
  static_assert(!std::is_same_v<Half, __half>,
                "cuflash: L of the half functions is float*: half has neither the range nor the "
                "digits of a log-sum-exp; allocate batch_size * num_heads * seq_len floats");
  return FlashAttentionError::UNSUPPORTED_DTYPE;
}

template <class Half, std::enable_if_t<std::is_same_v<Half, __half>, int> = 0>
FlashAttentionError flash_attention_backward(__half const*, __half const*, __half const*,
                                             __half const*, Half const*, __half const*, __half*,
                                             __half*, __half*, int, int, int, int, float, bool,
                                             CUstream_st* = nullptr) {
  static_assert(!std::is_same_v<Half, __half>,
                "cuflash: L of the half functions is float*, as the forward pass writes it");
  return FlashAttentionError::UNSUPPORTED_DTYPE;
}

}  // namespace cuflash
