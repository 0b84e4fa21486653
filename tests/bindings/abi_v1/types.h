/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The types of version 1 as its callers were compiled. Nothing here changes. V1(name) is the name that a struct gets: its
 * own in a program of that time, another beside the header of today. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define V1_ENUMERATORS(X)                                                                                             \
  X(ATTIKOS_SUCCESS, 0) X(ATTIKOS_NULL_ARGUMENT, 1) X(ATTIKOS_NEGATIVE_EXTENT, 2) X(ATTIKOS_OVERFLOW, 3)              \
  X(ATTIKOS_MISALIGNED, 4) X(ATTIKOS_SHAPE_MISMATCH, 5) X(ATTIKOS_DTYPE_MISMATCH, 6) X(ATTIKOS_INVALID_STRIDES, 7)    \
  X(ATTIKOS_INVALID_ARGUMENT, 8) X(ATTIKOS_INVALID_STRUCT, 9) X(ATTIKOS_DEVICE_ERROR, 10)                             \
  X(ATTIKOS_UNSUPPORTED, 11) X(ATTIKOS_OUT_OF_MEMORY, 12) X(ATTIKOS_INTERNAL_ERROR, 13) X(ATTIKOS_FLOAT64, 0)         \
  X(ATTIKOS_FLOAT32, 1) X(ATTIKOS_FLOAT16, 2) X(ATTIKOS_BFLOAT16, 3) X(ATTIKOS_FLOAT8_E4M3, 4)                        \
  X(ATTIKOS_FLOAT8_E5M2, 5) X(ATTIKOS_INT8, 6) X(ATTIKOS_UINT8, 7) X(ATTIKOS_INT32, 8) X(ATTIKOS_INT64, 9)            \
  X(ATTIKOS_BOOL, 10) X(ATTIKOS_HOST, 0) X(ATTIKOS_SERIAL, 1) X(ATTIKOS_CUDA, 2) X(ATTIKOS_ARCH_UNKNOWN, 0)           \
  X(ATTIKOS_ARCH_VOLTA, 1) X(ATTIKOS_ARCH_TURING, 2) X(ATTIKOS_ARCH_AMPERE, 3) X(ATTIKOS_ARCH_ADA, 4)                 \
  X(ATTIKOS_ARCH_HOPPER, 5) X(ATTIKOS_ARCH_BLACKWELL, 6) X(ATTIKOS_ARCH_HOST, 7) X(ATTIKOS_ACTIVATION_NONE, 0)        \
  X(ATTIKOS_ACTIVATION_RELU, 1) X(ATTIKOS_ACTIVATION_GELU, 2) X(ATTIKOS_ACTIVATION_GELU_TANH, 3)                      \
  X(ATTIKOS_ACTIVATION_SILU, 4) X(ATTIKOS_COMPUTE_IEEE, 0) X(ATTIKOS_COMPUTE_TF32, 1) X(ATTIKOS_COMPUTE_TF32X3, 2)    \
  X(ATTIKOS_ACCUMULATE_PROMOTED, 0) X(ATTIKOS_ACCUMULATE_FAST, 1) X(ATTIKOS_FLASH, 0) X(ATTIKOS_TILED, 1)             \
  X(ATTIKOS_NAIVE, 2) X(ATTIKOS_RUN_TO_RUN, 0) X(ATTIKOS_BATCH_INVARIANT, 1) X(ATTIKOS_UNORDERED, 2)                  \
  X(ATTIKOS_FA_SUCCESS, 0) X(ATTIKOS_FA_INVALID_DIMENSION, 1) X(ATTIKOS_FA_DIMENSION_MISMATCH, 2)                     \
  X(ATTIKOS_FA_NULL_POINTER, 3) X(ATTIKOS_FA_CUDA_ERROR, 4) X(ATTIKOS_FA_OUT_OF_MEMORY, 5)                            \
  X(ATTIKOS_FA_UNSUPPORTED_HEAD_DIM, 6) X(ATTIKOS_FA_UNSUPPORTED_DTYPE, 7) X(ATTIKOS_FA_INVALID_ARGUMENT, 8)

typedef struct V1(attikos_context) V1(attikos_context);

#define V1_TENSOR(X) X(void*, data) X(int32_t, dtype) X(int32_t, ndim) X(int64_t const*, shape) X(int64_t const*, strides)
#define V1_DEVICE_INFO(X)                                                                                             \
  X(size_t, struct_size) X(v1_long_text, name) X(v1_short_text, simd) X(int32_t, kind) X(int32_t, architecture)       \
  X(int32_t, compute_major) X(int32_t, compute_minor) X(int32_t, has_tma) X(int32_t, has_fp8)                         \
  X(int32_t, has_warpgroup_mma) X(int32_t, multiprocessors) X(int64_t, shared_memory_per_multiprocessor)              \
  X(int64_t, total_memory)
typedef char v1_long_text[128];
typedef char v1_short_text[16];
#define V1_MEMBER(type, name) type name;
typedef struct V1(attikos_tensor) {
  V1_TENSOR(V1_MEMBER)
} V1(attikos_tensor);
typedef struct V1(attikos_device_info) {
  V1_DEVICE_INFO(V1_MEMBER)
} V1(attikos_device_info);

/* Options: kind, name, default. */
#define V1_TYPE_real double
#define V1_TYPE_integer int64_t
#define V1_TYPE_number int32_t
#define V1_TYPE_flag int32_t
#define V1_TYPE_choice int32_t
#define V1_TYPE_tensor V1(attikos_tensor) const*
#define V1_TYPE_text char const*
#define V1_OPTION(kind, name, initial) V1_TYPE_##kind name;
#define V1_INITIAL(kind, name, initial) , initial

#define V1_GEMM_OPTIONS(X)                                                                                            \
  X(real, alpha, 1) X(real, beta, 0) X(real, scale, 1) X(flag, trans_a, 0) X(flag, trans_b, 0)                        \
  X(choice, activation, 0) X(flag, bias_along_rows, 0) X(tensor, bias, 0) X(tensor, residual, 0)                      \
  X(tensor, scale_a, 0) X(tensor, scale_b, 0) X(text, kernel, 0) X(choice, compute, 0) X(choice, accumulate, 0)       \
  X(tensor, zero_point_a, 0) X(tensor, zero_point_b, 0) X(tensor, device_scale, 0) X(tensor, scale_out, 0)            \
  X(tensor, pre_activation, 0) X(tensor, group_offsets, 0) X(tensor, row_counts, 0) X(number, tile_m, 0)              \
  X(number, tile_n, 0) X(number, tile_k, 0)
#define V1_GEMM_GRADIENTS(X)                                                                                          \
  X(tensor, da, 0) X(tensor, db, 0) X(tensor, d_bias, 0) X(tensor, d_c, 0)
#define V1_ATTENTION_OPTIONS(X)                                                                                       \
  X(real, softmax_scale, 0) X(real, softcap, 0) X(integer, window_left, -1) X(integer, window_right, -1)              \
  X(flag, causal, 0) X(flag, causal_top_left, 0) X(choice, algorithm, 0) X(flag, check, 0) X(tensor, lengths_q, 0)    \
  X(tensor, lengths_kv, 0) X(tensor, cu_seqlens_q, 0) X(tensor, cu_seqlens_kv, 0) X(tensor, page_table, 0)            \
  X(tensor, bias, 0) X(tensor, mask, 0) X(tensor, alibi_slopes, 0) X(tensor, sinks, 0) X(text, kernel, 0)             \
  X(tensor, descale_q, 0) X(tensor, descale_k, 0) X(tensor, descale_v, 0) X(choice, compute, 0)                       \
  X(integer, attention_chunk, 0)
#define V1_ATTENTION_GRADIENTS(X)                                                                                     \
  X(tensor, dq, 0) X(tensor, dk, 0) X(tensor, dv, 0) X(tensor, d_bias, 0) X(tensor, d_sinks, 0)
#define V1_DECODE_OPTIONS(X)                                                                                          \
  X(real, softmax_scale, 0) X(real, softcap, 0) X(integer, window_left, -1) X(integer, window_right, -1)              \
  X(integer, splits, 0) X(flag, causal, 0) X(flag, causal_top_left, 0) X(flag, check, 0) X(tensor, lengths_q, 0)      \
  X(tensor, lengths_kv, 0) X(tensor, page_table, 0) X(tensor, bias, 0) X(tensor, mask, 0)                             \
  X(tensor, alibi_slopes, 0) X(tensor, sinks, 0) X(tensor, descale_q, 0) X(tensor, descale_k, 0)                      \
  X(tensor, descale_v, 0) X(text, kernel, 0) X(choice, determinism, 0) X(tensor, cu_seqlens_q, 0)                     \
  X(tensor, cu_seqlens_kv, 0) X(integer, attention_chunk, 0)
#define V1_APPEND_KV_OPTIONS(X)                                                                                       \
  X(flag, interleaved, 0) X(flag, queries_share_position, 0) X(flag, check, 0) X(tensor, cache_lengths, 0)            \
  X(tensor, page_table, 0) X(tensor, rotary_cos, 0) X(tensor, rotary_sin, 0) X(tensor, q, 0) X(tensor, q_out, 0)      \
  X(integer, rotary_dim, 0) X(tensor, new_lengths, 0) X(tensor, cu_seqlens_q, 0) X(tensor, cu_seqlens_kv, 0)          \
  X(text, kernel, 0)
#define V1_ROPE_OPTIONS(X)                                                                                            \
  X(real, eps, 1e-6) X(integer, num_heads, 0) X(integer, position_offset, 0) X(flag, norm_each_head, 0)               \
  X(flag, interleaved, 0) X(tensor, positions, 0) X(integer, rotary_dim, 0)

typedef struct V1(attikos_gemm_options) {
  size_t struct_size;
  V1_GEMM_OPTIONS(V1_OPTION)
} V1(attikos_gemm_options);
typedef struct V1(attikos_gemm_gradients) {
  size_t struct_size;
  V1_GEMM_GRADIENTS(V1_OPTION)
} V1(attikos_gemm_gradients);
typedef struct V1(attikos_attention_options) {
  size_t struct_size;
  V1_ATTENTION_OPTIONS(V1_OPTION)
} V1(attikos_attention_options);
typedef struct V1(attikos_attention_gradients) {
  size_t struct_size;
  V1_ATTENTION_GRADIENTS(V1_OPTION)
} V1(attikos_attention_gradients);
typedef struct V1(attikos_decode_options) {
  size_t struct_size;
  V1_DECODE_OPTIONS(V1_OPTION)
} V1(attikos_decode_options);
typedef struct V1(attikos_append_kv_options) {
  size_t struct_size;
  V1_APPEND_KV_OPTIONS(V1_OPTION)
} V1(attikos_append_kv_options);
typedef struct V1(attikos_rope_options) {
  size_t struct_size;
  V1_ROPE_OPTIONS(V1_OPTION)
} V1(attikos_rope_options);
