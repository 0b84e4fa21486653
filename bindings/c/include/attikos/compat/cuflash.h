/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * The C functions of CuFlash-Attn's documentation by their own names, argument for argument, for programs and ctypes
 * modules that were written for them. They are the attikos_attention_* functions of attikos.h, which says more.
 *
 * Q, K, V, O and their gradients [batch_size, num_heads, seq_len, head_dim], L [batch_size, num_heads, seq_len], dense
 * and row-major. `stream` is a cudaStream_t. Returned is an attikos_flash_attention_error, whose first eight values are
 * the document's. One argument differs: L is float in the 16-bit functions, too, since half precision has neither the
 * range nor the digits of a log-sum-exp. What the document refused works: every head_dim, gradients in half precision,
 * and pointers to host memory.
 */
#ifndef ATTIKOS_COMPAT_CUFLASH_H
#define ATTIKOS_COMPAT_CUFLASH_H

#include <attikos/attikos.h>

#ifdef __cplusplus
extern "C" {
#endif

ATTIKOS_API int cuflash_attention_forward_f32(float const* Q, float const* K, float const* V, float* O, float* L,
                                              int batch_size, int num_heads, int seq_len, int head_dim, float scale,
                                              bool causal, void* stream);
/** Elements are IEEE binary16. */
ATTIKOS_API int cuflash_attention_forward_f16(void const* Q, void const* K, void const* V, void* O, float* L,
                                              int batch_size, int num_heads, int seq_len, int head_dim, float scale,
                                              bool causal, void* stream);
ATTIKOS_API int cuflash_attention_backward_f32(float const* Q, float const* K, float const* V, float const* O,
                                               float const* L, float const* dO, float* dQ, float* dK, float* dV,
                                               int batch_size, int num_heads, int seq_len, int head_dim,
                                               float scale, bool causal, void* stream);
/** Elements are IEEE binary16. */
ATTIKOS_API int cuflash_attention_backward_f16(void const* Q, void const* K, void const* V, void const* O,
                                               float const* L, void const* dO, void* dQ, void* dK, void* dV,
                                               int batch_size, int num_heads, int seq_len, int head_dim,
                                               float scale, bool causal, void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTIKOS_COMPAT_CUFLASH_H */
