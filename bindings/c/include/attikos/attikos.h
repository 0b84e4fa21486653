/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * C interface of Attikos: attention, matrix products and normalizations on host and CUDA memory.
 *
 * Every function returns a status (or a plain value) and never lets an exception out. After a status
 * other than ATTIKOS_SUCCESS the outputs are untouched and attikos_last_error() holds a sentence
 * about it for the calling thread. Arguments are checked before anything is launched or written.
 *
 * Work is asynchronous on the context's stream, except on host contexts, where it is done when the
 * call returns. attikos_synchronize() waits.
 *
 * Options are structs whose first member is their size: set them up with the initializer macro that
 * stands behind each of them, then change members. A library that is newer than the caller fills the
 * members that the caller does not know with their defaults. NULL instead of options means defaults.
 */
#ifndef ATTIKOS_ATTIKOS_H
#define ATTIKOS_ATTIKOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(ATTIKOS_BUILDING_C) || !defined(_WIN32)
#define ATTIKOS_API __attribute__((visibility("default")))
#else
#define ATTIKOS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- versions and errors ----------------------------------------------------------------------- */

/** Version of the library that was loaded: major * 10000 + minor * 100 + patch. */
ATTIKOS_API int attikos_version(void);
/** The same as text, e.g. "0.1.0". */
ATTIKOS_API char const* attikos_version_string(void);

typedef enum attikos_status {
  ATTIKOS_SUCCESS = 0,
  ATTIKOS_NULL_ARGUMENT = 1,     /**< a pointer that must not be null, or data of a tensor with elements */
  ATTIKOS_NEGATIVE_EXTENT = 2,   /**< an extent or a number of dimensions below 0 */
  ATTIKOS_OVERFLOW = 3,          /**< extents and strides reach beyond 63-bit byte offsets */
  ATTIKOS_MISALIGNED = 4,        /**< a data pointer that is no multiple of its element's size */
  ATTIKOS_SHAPE_MISMATCH = 5,    /**< extents or numbers of dimensions that do not fit together */
  ATTIKOS_DTYPE_MISMATCH = 6,    /**< an element type, or a mix of them, that the operation does not take */
  ATTIKOS_INVALID_STRIDES = 7,   /**< strides by which two elements of an output share memory */
  ATTIKOS_INVALID_ARGUMENT = 8,  /**< a number or an enumerator out of its range */
  ATTIKOS_INVALID_STRUCT = 9,    /**< a struct_size of no version of this struct, or one of a newer version in use */
  ATTIKOS_DEVICE_ERROR = 10,     /**< a device or kind of context that is not there, or memory out of its reach */
  ATTIKOS_UNSUPPORTED = 11,      /**< a combination of options that nothing computes, or a demanded kernel that cannot run */
  ATTIKOS_OUT_OF_MEMORY = 12,    /**< memory that could not be had, or a workspace that is too small */
  ATTIKOS_INTERNAL_ERROR = 13    /**< anything else, e.g. an error that the device reported */
} attikos_status;

/** Name of a status, e.g. "shape mismatch". Never null. */
ATTIKOS_API char const* attikos_status_string(attikos_status status);
/** What was wrong with the last call of this thread that did not succeed; "" before that. Valid until
 * the thread's next call. */
ATTIKOS_API char const* attikos_last_error(void);

/* --- tensors ----------------------------------------------------------------------------------- */

typedef enum attikos_dtype {
  ATTIKOS_FLOAT64 = 0,
  ATTIKOS_FLOAT32 = 1,
  ATTIKOS_FLOAT16 = 2,
  ATTIKOS_BFLOAT16 = 3,
  ATTIKOS_FLOAT8_E4M3 = 4, /**< OCP E4M3: no infinity, largest finite value 448 */
  ATTIKOS_FLOAT8_E5M2 = 5,
  ATTIKOS_INT8 = 6,
  ATTIKOS_UINT8 = 7,
  ATTIKOS_INT32 = 8,
  ATTIKOS_INT64 = 9,
  ATTIKOS_BOOL = 10 /**< one byte, 0 or not 0 */
} attikos_dtype;

/** Bytes of one element; 0 for a number that is no attikos_dtype. */
ATTIKOS_API size_t attikos_dtype_size(int32_t dtype);
/** e.g. "bfloat16". Never null. */
ATTIKOS_API char const* attikos_dtype_name(int32_t dtype);

/** A strided array that the caller owns. Inputs are never written through it. */
typedef struct attikos_tensor {
  void* data;             /**< first element; may be null where there are no elements */
  int32_t dtype;          /**< an attikos_dtype */
  int32_t ndim;           /**< number of dimensions */
  int64_t const* shape;   /**< ndim extents, each 0 or more */
  int64_t const* strides; /**< ndim strides in elements, 0 and negative ones included; null: row-major */
} attikos_tensor;

/* --- contexts ---------------------------------------------------------------------------------- */

typedef enum attikos_device_kind {
  ATTIKOS_HOST = 0,   /**< the parallel host space: OpenMP or Threads where Kokkos has one, else Serial */
  ATTIKOS_SERIAL = 1, /**< one host thread, the caller's */
  ATTIKOS_CUDA = 2
} attikos_device_kind;

/** Where operations run. Distinct contexts may be used from several host threads at once; one context
 * by one thread at a time. */
typedef struct attikos_context attikos_context;

/** Makes a context.
 *
 * CUDA: `ordinal` is the device, `stream` a cudaStream_t of it (null: the legacy default stream),
 * which outlives the contexts that name it. Host kinds: ordinal is 0; contexts of kind ATTIKOS_SERIAL
 * with distinct `stream` values run side by side, the value means nothing else.
 *
 * One Kokkos execution space instance is kept for each kind, device and stream: making and destroying
 * contexts is cheap. Kokkos is initialized if the process has not done so; in that case, and only
 * then, the library finalizes it when the process ends. */
ATTIKOS_API attikos_status attikos_context_create(int32_t kind, int32_t ordinal, void* stream,
                                                  attikos_context** context);
/** Does not wait for work under way. Null is allowed. */
ATTIKOS_API void attikos_context_destroy(attikos_context* context);
/** Waits until all work of the context's stream is done and reports errors of the device. */
ATTIKOS_API attikos_status attikos_synchronize(attikos_context* context);
/** Whether contexts of this kind can be made, i.e. the library was built for it and there is a device. */
ATTIKOS_API bool attikos_has_device(int32_t kind, int32_t ordinal);
/** Number of CUDA devices; 0 in a build without CUDA. */
ATTIKOS_API int32_t attikos_cuda_device_count(void);
/** Whether the context's stream is being captured into a CUDA graph. */
ATTIKOS_API bool attikos_is_capturing(attikos_context const* context);

/** Memory of the context's device, aligned for every element type. */
ATTIKOS_API attikos_status attikos_allocate(attikos_context* context, size_t bytes, void** memory);
/** Frees what attikos_allocate gave for a context of the same kind and device, after waiting for the
 * device's work. Null is allowed. */
ATTIKOS_API attikos_status attikos_free(attikos_context* context, void* memory);
/** Copies bytes between host memory and the context's device in the order of its stream; done when the
 * call returns. */
ATTIKOS_API attikos_status attikos_copy(attikos_context* context, void* to, void const* from, size_t bytes);

typedef enum attikos_architecture {
  ATTIKOS_ARCH_UNKNOWN = 0,
  ATTIKOS_ARCH_VOLTA = 1,
  ATTIKOS_ARCH_TURING = 2,
  ATTIKOS_ARCH_AMPERE = 3,
  ATTIKOS_ARCH_ADA = 4,
  ATTIKOS_ARCH_HOPPER = 5,
  ATTIKOS_ARCH_BLACKWELL = 6,
  ATTIKOS_ARCH_HOST = 7
} attikos_architecture;

typedef struct attikos_device_info {
  size_t struct_size;
  char name[128];               /**< of the device, or of the processor */
  char simd[16];                /**< host: widest vectors the library was compiled for, e.g. "avx512" */
  int32_t kind;                 /**< attikos_device_kind */
  int32_t architecture;         /**< attikos_architecture */
  int32_t compute_major;        /**< compute capability; 0 on a host */
  int32_t compute_minor;
  int32_t has_tma;              /**< tensor memory accelerator */
  int32_t has_fp8;              /**< float8 arithmetic in hardware */
  int32_t has_warpgroup_mma;
  int32_t multiprocessors;      /**< streaming multiprocessors, or processors of the host */
  int64_t shared_memory_per_multiprocessor; /**< bytes; 0 on a host */
  int64_t total_memory;         /**< bytes */
} attikos_device_info;
#define ATTIKOS_DEVICE_INFO_INIT {sizeof(attikos_device_info), "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** Facts about a device. Only members that the caller's struct_size covers are written. */
ATTIKOS_API attikos_status attikos_get_device_info(int32_t kind, int32_t ordinal, attikos_device_info* info);

/* --- matrix product ---------------------------------------------------------------------------- */

typedef enum attikos_activation {
  ATTIKOS_ACTIVATION_NONE = 0,
  ATTIKOS_ACTIVATION_RELU = 1,
  ATTIKOS_ACTIVATION_GELU = 2, /**< x times the normal distribution function (erf) */
  ATTIKOS_ACTIVATION_GELU_TANH = 3,
  ATTIKOS_ACTIVATION_SILU = 4
} attikos_activation;

typedef struct attikos_gemm_options {
  size_t struct_size;
  double alpha;
  double beta; /**< 0 never reads c */
  double scale;
  int32_t trans_a; /**< not 0: a is [.., k, m] */
  int32_t trans_b; /**< not 0: b is [.., n, k] */
  int32_t activation;      /**< attikos_activation */
  int32_t bias_along_rows; /**< not 0: the bias has one entry per row of c instead of per column */
  attikos_tensor const* bias;     /**< [n] (or [m]), or null */
  attikos_tensor const* residual; /**< the shape of c, or null */
  attikos_tensor const* scale_a;  /**< float8 only: float32 factors of a's elements as attikos_quantize
                                       writes them, or null for 1 */
  attikos_tensor const* scale_b;
  char const* kernel; /**< null or "": automatic; a name demands that kernel and never falls back */
} attikos_gemm_options;
#define ATTIKOS_GEMM_OPTIONS_INIT {sizeof(attikos_gemm_options), 1.0, 0.0, 1.0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL}

/** c = act(scale * (alpha * op(a) * op(b) + beta * c) + bias) + residual.
 *
 * a [m, k] or [batch, m, k], b [k, n] or [batch, k, n], c [m, n] or [batch, m, n]; a or b of two
 * dimensions, or of batch 1, serves the whole batch. Element types (a, b -> c): float64, float32,
 * float16 and bfloat16 with themselves into themselves; float16 and bfloat16 into float32; float8_e4m3 into
 * float32, float16 and bfloat16; int8 into int32 (exact, wraps; alpha 1, beta 0 or 1, nothing else). Bias and residual: any of these floating
 * types. c must not overlap a or b. */
ATTIKOS_API attikos_status attikos_gemm(attikos_context* context, attikos_tensor const* a,
                                        attikos_tensor const* b, attikos_tensor const* c,
                                        attikos_gemm_options const* options);

/* --- attention --------------------------------------------------------------------------------- */

typedef enum attikos_attention_algorithm {
  ATTIKOS_FLASH = 0, /**< no storage that grows with seqlen_q * seqlen_kv */
  ATTIKOS_TILED = 1,
  ATTIKOS_NAIVE = 2
} attikos_attention_algorithm;

typedef struct attikos_attention_options {
  size_t struct_size;
  double softmax_scale;    /**< 0: 1/sqrt(head_dim) */
  double softcap;          /**< c > 0: scores become c * tanh(score / c); 0: none */
  int64_t window_left;     /**< keys before i + offset that query i sees; -1: all */
  int64_t window_right;    /**< keys after i + offset that query i sees; -1: all */
  int32_t causal;          /**< not 0: query i sees key j only if j <= i + offset, offset = len_kv - len_q */
  int32_t causal_top_left; /**< not 0: the offset is 0 */
  int32_t algorithm;       /**< attikos_attention_algorithm */
  int32_t check;           /**< not 0: lengths and cu_seqlens are read and checked, which waits for the
                                stream; else kernels clamp them */
  attikos_tensor const* lengths_q;  /**< int32, one per sequence, or null; with lengths_kv */
  attikos_tensor const* lengths_kv; /**< alone where q is packed and the keys are paged */
  attikos_tensor const* cu_seqlens_q;  /**< int32 [batch + 1], or null: q is [heads_q, total_q, d] */
  attikos_tensor const* cu_seqlens_kv; /**< with cu_seqlens_q: k and v are [heads_kv, total_kv, d] */
  attikos_tensor const* page_table; /**< int32 [batch, max_pages], or null: k and v are
                                         [num_pages, heads_kv, page_size, d] */
  attikos_tensor const* bias; /**< 2 to 4 dimensions that broadcast to [batch, heads_q, seqlen_q, seqlen_kv]; the
                                   type of q */
  attikos_tensor const* mask; /**< bool or uint8, broadcasts like bias; 0 excludes */
  attikos_tensor const* alibi_slopes; /**< float32 [heads_q] or [batch, heads_q] */
  attikos_tensor const* sinks; /**< float32 (float64 beside float64) [heads_q]: logits in the denominator only */
  char const* kernel;          /**< as for attikos_gemm */
} attikos_attention_options;
#define ATTIKOS_ATTENTION_OPTIONS_INIT \
  {sizeof(attikos_attention_options), 0.0, 0.0, -1, -1, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
   NULL, NULL, NULL}

/** out = softmax(s) * v over the keys, s = scale * q * k^T, then softcap, bias, ALiBi, masks.
 *
 * q [batch, heads_q, seqlen_q, d], k [batch, heads_kv, seqlen_kv, d], v [batch, heads_kv, seqlen_kv, dv],
 * out [batch, heads_q, seqlen_q, dv], lse null or [batch, heads_q, seqlen_q]; or all with the first two
 * dimensions joined; packed and paged storage as the options say. heads_q is a multiple of heads_kv. One element type: float64, float32, float16 or
 * bfloat16; lse, the natural logarithm of the sum of exponentials, is float64 for float64 and else
 * float32. out must not overlap the inputs. Tiled and naive keep the scores in memory that the library holds
 * for the stream; it grows outside of graph capture only. */
ATTIKOS_API attikos_status attikos_attention(attikos_context* context, attikos_tensor const* q,
                                             attikos_tensor const* k, attikos_tensor const* v,
                                             attikos_tensor const* out, attikos_tensor const* lse,
                                             attikos_attention_options const* options);

typedef struct attikos_attention_gradients {
  size_t struct_size;
  attikos_tensor const* dq;      /**< the shape and type of q; like dk and dv not null */
  attikos_tensor const* dk;
  attikos_tensor const* dv;
  attikos_tensor const* d_bias;  /**< the shape and type of the bias, or null */
  attikos_tensor const* d_sinks; /**< the shape and type of the sinks, or null */
} attikos_attention_gradients;
#define ATTIKOS_ATTENTION_GRADIENTS_INIT {sizeof(attikos_attention_gradients), NULL, NULL, NULL, NULL, NULL}

/** Gradients of attikos_attention: q, k, v, out, lse and options are those of the forward call (without a
 * page table), dout has the shape and type of out. Deterministic, without atomics. */
ATTIKOS_API attikos_status attikos_attention_backward(attikos_context* context, attikos_tensor const* q,
                                                      attikos_tensor const* k, attikos_tensor const* v,
                                                      attikos_tensor const* out, attikos_tensor const* lse,
                                                      attikos_tensor const* dout,
                                                      attikos_attention_gradients const* gradients,
                                                      attikos_attention_options const* options);

/* --- operations on rows ------------------------------------------------------------------------ */
/* x and out have 1 to 3 dimensions and one shape and type: float64, float32, float16 or bfloat16; out
 * may be x itself. Weights have that type or, beside 16-bit elements, float32. */

/** out = x / sqrt(mean(x^2) + eps) * weight over the last dimension; weight [hidden]. */
ATTIKOS_API attikos_status attikos_rms_norm(attikos_context* context, attikos_tensor const* x,
                                            attikos_tensor const* weight, attikos_tensor const* out,
                                            double eps);
/** out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension. */
ATTIKOS_API attikos_status attikos_layer_norm(attikos_context* context, attikos_tensor const* x,
                                              attikos_tensor const* weight, attikos_tensor const* bias,
                                              attikos_tensor const* out, double eps);
/** out = x / max(|x|, eps) over the last dimension. */
ATTIKOS_API attikos_status attikos_l2_normalize(attikos_context* context, attikos_tensor const* x,
                                                attikos_tensor const* out, double eps);
/** out = softmax(scale * x) over the last dimension. */
ATTIKOS_API attikos_status attikos_softmax(attikos_context* context, attikos_tensor const* x,
                                           attikos_tensor const* out, double scale);
/** out = log(softmax(scale * x)) over the last dimension. */
ATTIKOS_API attikos_status attikos_log_softmax(attikos_context* context, attikos_tensor const* x,
                                               attikos_tensor const* out, double scale);
/** Gradient of attikos_rms_norm: dx the shape of x, dweight that of weight (overwritten). */
ATTIKOS_API attikos_status attikos_rms_norm_backward(attikos_context* context, attikos_tensor const* x,
                                                     attikos_tensor const* weight, attikos_tensor const* dout,
                                                     attikos_tensor const* dx, attikos_tensor const* dweight,
                                                     double eps);
/** Gradient of attikos_layer_norm. */
ATTIKOS_API attikos_status attikos_layer_norm_backward(attikos_context* context, attikos_tensor const* x,
                                                       attikos_tensor const* weight,
                                                       attikos_tensor const* dout, attikos_tensor const* dx,
                                                       attikos_tensor const* dweight,
                                                       attikos_tensor const* dbias, double eps);
/** out[b, :] = mean of x[b, s, :] over s < lengths[b]; x [batch, seqlen, hidden], out [batch, hidden],
 * lengths int32 [batch] or null for all positions. */
ATTIKOS_API attikos_status attikos_mean_pool(attikos_context* context, attikos_tensor const* x,
                                             attikos_tensor const* lengths, attikos_tensor const* out);

/* --- rotary embedding ---------------------------------------------------------------------------- */

typedef struct attikos_rope_options {
  size_t struct_size;
  double eps;              /**< of the norm; attikos_rope does not look at it */
  int64_t num_heads;       /**< of attikos_rms_norm_rope; 0: hidden / head_dim */
  int64_t position_offset; /**< added to every position */
  int32_t norm_each_head;  /**< not 0: one norm per head (QK-norm), the weight is [head_dim] */
  int32_t interleaved;     /**< not 0: features 2i and 2i + 1 form pairs, else i and i + half */
  attikos_tensor const* positions; /**< of attikos_rope: int32 [batch] or [batch, seqlen], or null */
} attikos_rope_options;
#define ATTIKOS_ROPE_OPTIONS_INIT {sizeof(attikos_rope_options), 1e-6, 0, 0, 0, 0, NULL}

/** out = x * cos + rotate(x) * sin in the first features of every head. x and out
 * [batch, heads, seqlen, head_dim] of one floating type; cos and sin [positions, rotary_dim] or
 * [1, positions, 1, rotary_dim], of that type or, beside 16-bit elements, float32. out may be x itself. */
ATTIKOS_API attikos_status attikos_rope(attikos_context* context, attikos_tensor const* x,
                                        attikos_tensor const* cos, attikos_tensor const* sin,
                                        attikos_tensor const* out, attikos_rope_options const* options);
/** Gradient of attikos_rope. */
ATTIKOS_API attikos_status attikos_rope_backward(attikos_context* context, attikos_tensor const* dout,
                                                 attikos_tensor const* cos, attikos_tensor const* sin,
                                                 attikos_tensor const* dx,
                                                 attikos_rope_options const* options);
/** out = rope(x / sqrt(mean(x^2) + eps) * weight) in one kernel. x and out [batch, seqlen, hidden], weight
 * [hidden] of their type; cos and sin [positions, head_dim] or [1, positions, 1, head_dim], of their type
 * or float32. */
ATTIKOS_API attikos_status attikos_rms_norm_rope(attikos_context* context, attikos_tensor const* x,
                                                 attikos_tensor const* weight, attikos_tensor const* cos,
                                                 attikos_tensor const* sin, attikos_tensor const* out,
                                                 attikos_rope_options const* options);
/** Gradient of attikos_rms_norm_rope: dx the shape of x, dweight that of weight (overwritten). */
ATTIKOS_API attikos_status attikos_rms_norm_rope_backward(attikos_context* context, attikos_tensor const* x,
                                                          attikos_tensor const* weight,
                                                          attikos_tensor const* cos, attikos_tensor const* sin,
                                                          attikos_tensor const* dout, attikos_tensor const* dx,
                                                          attikos_tensor const* dweight,
                                                          attikos_rope_options const* options);

/* --- gated MLP ----------------------------------------------------------------------------------- */

/** out = act(x * gate_weight^T) * (x * up_weight^T). x [tokens, hidden] or [batch, seqlen, hidden], weights
 * [intermediate, hidden], out [.., intermediate], all of one floating type; activation:
 * ATTIKOS_ACTIVATION_SILU, _GELU or _GELU_TANH. */
ATTIKOS_API attikos_status attikos_gated_mlp(attikos_context* context, attikos_tensor const* x,
                                             attikos_tensor const* gate_weight, attikos_tensor const* up_weight,
                                             attikos_tensor const* out, int32_t activation);
/** Gradient of attikos_gated_mlp with respect to x and both weights. */
ATTIKOS_API attikos_status attikos_gated_mlp_backward(attikos_context* context, attikos_tensor const* x,
                                                      attikos_tensor const* gate_weight,
                                                      attikos_tensor const* up_weight,
                                                      attikos_tensor const* dout, attikos_tensor const* dx,
                                                      attikos_tensor const* dgate_weight,
                                                      attikos_tensor const* dup_weight, int32_t activation);

/* --- 8-bit elements ------------------------------------------------------------------------------ */

/** Rounds x to 8-bit elements and finds their scales: scale = max|x| / limit with a floor, out =
 * round(x / scale), saturating. x and out [rows, cols] or [batch, rows, cols]; x of a floating type, out
 * float8_e4m3, float8_e5m2 or int8; scale float32, one number [1], or with the dimensions of x: [1, 1],
 * [rows, 1], [1, cols], or in blocks of 128 along one or both. */
ATTIKOS_API attikos_status attikos_quantize(attikos_context* context, attikos_tensor const* x,
                                            attikos_tensor const* out, attikos_tensor const* scale);
/** out = scale * x: the way back. */
ATTIKOS_API attikos_status attikos_dequantize(attikos_context* context, attikos_tensor const* x,
                                              attikos_tensor const* scale, attikos_tensor const* out);

/* --- attention on raw pointers ------------------------------------------------------------------ */

/** What the functions below return, as an int. */
enum attikos_flash_attention_error {
  ATTIKOS_FA_SUCCESS = 0,
  ATTIKOS_FA_INVALID_DIMENSION = 1,    /**< a dimension <= 0, or a tensor beyond 63-bit offsets */
  ATTIKOS_FA_DIMENSION_MISMATCH = 2,   /**< not returned: there is one set of dimensions */
  ATTIKOS_FA_NULL_POINTER = 3,
  ATTIKOS_FA_CUDA_ERROR = 4,           /**< the device or its run time failed, or memory is out of reach */
  ATTIKOS_FA_OUT_OF_MEMORY = 5,
  ATTIKOS_FA_UNSUPPORTED_HEAD_DIM = 6, /**< not returned: every head_dim works */
  ATTIKOS_FA_UNSUPPORTED_DTYPE = 7,
  ATTIKOS_FA_INVALID_ARGUMENT = 8      /**< a misaligned pointer or a scale that is not finite */
};

/** Forward pass on dense row-major arrays: Q, K, V, O [batch_size, num_heads, seq_len, head_dim],
 * L [batch_size, num_heads, seq_len], the natural log-sum-exp.
 *
 * Pointers to memory of a CUDA device run there on `stream` (a cudaStream_t, null for the default
 * stream), asynchronously; pointers to host memory run on the host and `stream` is not looked at. scale 0
 * means 1/sqrt(head_dim). */
ATTIKOS_API int attikos_attention_forward_f32(float const* Q, float const* K, float const* V, float* O,
                                              float* L, int batch_size, int num_heads, int seq_len,
                                              int head_dim, float scale, bool causal, void* stream);
/** The same for IEEE binary16 elements. L is float: half precision has neither its range nor its digits. */
ATTIKOS_API int attikos_attention_forward_f16(void const* Q, void const* K, void const* V, void* O,
                                              float* L, int batch_size, int num_heads, int seq_len,
                                              int head_dim, float scale, bool causal, void* stream);

/** Gradients on dense arrays: O and L are what the forward pass wrote, dO has the shape of O. */
ATTIKOS_API int attikos_attention_backward_f32(float const* Q, float const* K, float const* V, float const* O,
                                               float const* L, float const* dO, float* dQ, float* dK,
                                               float* dV, int batch_size, int num_heads, int seq_len,
                                               int head_dim, float scale, bool causal, void* stream);
/** The same for IEEE binary16 elements and float L. */
ATTIKOS_API int attikos_attention_backward_f16(void const* Q, void const* K, void const* V, void const* O,
                                               float const* L, void const* dO, void* dQ, void* dK, void* dV,
                                               int batch_size, int num_heads, int seq_len, int head_dim,
                                               float scale, bool causal, void* stream);

/** Text for a value that the functions above return. Never null. */
ATTIKOS_API char const* attikos_flash_attention_error_string(int error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTIKOS_ATTIKOS_H */
