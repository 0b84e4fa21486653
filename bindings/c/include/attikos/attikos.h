/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * C interface of Attikos: attention, matrix products and normalizations on host and CUDA memory.
 *
 * Every function returns a status (or a plain value) and never lets an exception out. After a status
 * other than ATTIKOS_SUCCESS the outputs are untouched and attikos_last_error() holds a sentence
 * about it for the calling thread. Arguments are checked before anything is launched or written. An output
 * whose elements share memory is refused (ATTIKOS_INVALID_STRIDES), and so is one that shares memory with
 * another tensor of the call (ATTIKOS_INVALID_ARGUMENT), unless it is said of the function that one may be
 * the other itself.
 *
 * Work is asynchronous on the context's stream, except on host contexts, where it is done when the
 * call returns. attikos_synchronize() waits.
 *
 * Options are structs whose first member is their size; the others, with their types, defaults and meanings, are
 * the rows of the tables in abi/option_tables.h. Set them up with the initializer macro that stands behind each
 * struct, then change members. Members are only ever added at the end. A library that is newer than the caller fills
 * the members that the caller does not know with their defaults. One that is older takes the struct where the members
 * that it does not know are 0, their default, and else refuses it (ATTIKOS_INVALID_STRUCT). NULL instead of options
 * means defaults.
 */
#ifndef ATTIKOS_ATTIKOS_H
#define ATTIKOS_ATTIKOS_H

#include <attikos/abi/option_tables.h>
#include <attikos/attikos_base.h>
#include <attikos/attikos_mlp.h>
#include <attikos/attikos_norm.h>
#include <attikos/attikos_optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- options ------------------------------------------------------------------------------------ */

/* Types of the kinds of options, a member of a struct, and its default in an initializer. */
#define ATTIKOS_OPTION_TYPE_real double
#define ATTIKOS_OPTION_TYPE_integer int64_t
#define ATTIKOS_OPTION_TYPE_number int32_t
#define ATTIKOS_OPTION_TYPE_flag int32_t
#define ATTIKOS_OPTION_TYPE_choice int32_t
#define ATTIKOS_OPTION_TYPE_tensor attikos_tensor const*
#define ATTIKOS_OPTION_TYPE_text char const*
#define ATTIKOS_OPTION_MEMBER(kind, name, initial, meaning) ATTIKOS_OPTION_TYPE_##kind name;
#define ATTIKOS_OPTION_INITIAL(kind, name, initial, meaning) , initial

/** A description of a struct of options ("gemm", "gemm_gradients", "attention", "attention_gradients", "decode",
 * "append_kv", "rope"), as this library has it. The first line is its size in bytes; a line for each member follows,
 * `struct_size` included: kind (real, integer, number, flag, choice, tensor, text, size), name, offset, size, default
 * (0 for null) and meaning, with tabs between them. Text as for attikos_explain_gemm. Runs on any processor. */
ATTIKOS_API attikos_status attikos_describe_options(char const* operation, char* text, size_t size,
                                                    size_t* length);

/* --- matrix product ---------------------------------------------------------------------------- */

typedef ATTIKOS_ENUM(attikos_activation) {
  ATTIKOS_ACTIVATION_NONE = 0,
  ATTIKOS_ACTIVATION_RELU = 1,
  ATTIKOS_ACTIVATION_GELU = 2, /**< x times the normal distribution function (erf) */
  ATTIKOS_ACTIVATION_GELU_TANH = 3,
  ATTIKOS_ACTIVATION_SILU = 4
} attikos_activation;

/** Least precision of float32 products. */
typedef ATTIKOS_ENUM(attikos_compute) {
  ATTIKOS_COMPUTE_IEEE = 0,
  ATTIKOS_COMPUTE_TF32 = 1,   /**< factors may be rounded to 11 significant bits */
  ATTIKOS_COMPUTE_TF32X3 = 2  /**< each factor is split into two such numbers */
} attikos_compute;

/** How float8 products are summed. */
typedef ATTIKOS_ENUM(attikos_accumulate) {
  ATTIKOS_ACCUMULATE_PROMOTED = 0, /**< at most 128 of them before they go to float32 registers */
  ATTIKOS_ACCUMULATE_FAST = 1      /**< all in the matrix unit, which may keep as few as 14 bits */
} attikos_accumulate;

/** Options of attikos_gemm and attikos_gemm_backward; the members are the rows of the table. */
typedef struct attikos_gemm_options {
  size_t struct_size;
  ATTIKOS_GEMM_OPTIONS(ATTIKOS_OPTION_MEMBER)
} attikos_gemm_options;
#define ATTIKOS_GEMM_OPTIONS_INIT {sizeof(attikos_gemm_options) ATTIKOS_GEMM_OPTIONS(ATTIKOS_OPTION_INITIAL)}

/** c = act(scale * (alpha * op(a) * op(b) + beta * c) + bias) + residual.
 *
 * a [m, k] or [batch, m, k], b [k, n] or [batch, k, n], c [m, n] or [batch, m, n]; a or b of two
 * dimensions, or of batch 1, serves the whole batch. Element types (a, b -> c): float64, float32,
 * float16 and bfloat16 with themselves into themselves; float16 and bfloat16 into float32; float8_e4m3 and
 * float8_e5m2 in any mix into float32, float16, bfloat16 and float8_e4m3; float16 and bfloat16 with
 * float8_e4m3 into themselves; int8 with itself into int32 (exact, wraps; alpha 1, beta 0 or 1, zero points,
 * nothing else), int8, float32, float16 and bfloat16. An 8-bit c takes beta 0; finite results saturate,
 * infinities and NaN become what attikos_quantize makes of them. Bias and residual are of the type of c; beside
 * a c of 8 or 16 bits float32, too, and beside a of 16 bits its type. */
ATTIKOS_API attikos_status attikos_gemm(attikos_context* context, attikos_tensor const* a,
                                        attikos_tensor const* b, attikos_tensor const* c,
                                        attikos_gemm_options const* options);
/** Text about what attikos_gemm would do with these arguments: the kernel that would run, and a line with
 * the reason for every one before it that would not. Nothing runs. At most `size` bytes are written, with a
 * zero at the end; `length`, unless null, becomes the length of the whole text without it. Fails as
 * attikos_gemm would. */
ATTIKOS_API attikos_status attikos_explain_gemm(attikos_context* context, attikos_tensor const* a,
                                                attikos_tensor const* b, attikos_tensor const* c,
                                                attikos_gemm_options const* options, char* text, size_t size,
                                                size_t* length);

/** Bytes of memory that attikos_pack_b wants for b [k, n] ([n, k] with trans_b), whose data are not looked at. */
ATTIKOS_API attikos_status attikos_pack_b_size(attikos_context* context, attikos_tensor const* b, int32_t trans_b,
                                               size_t* bytes);
/** Packs b (float64, float32, float16, bfloat16, int8) for calls of attikos_gemm on hosts that share it, as
 * options.packed_b, of the same trans_b; b itself then says type and extents alone. `packed` is uint8 [bytes or
 * more], dense. Calls give the same bits. Memory that was packed for other instructions (ATTIKOS_HOST_ISA), by
 * another layout version or at an address of another remainder of 64 is refused, as are contexts of a device. */
ATTIKOS_API attikos_status attikos_pack_b(attikos_context* context, attikos_tensor const* b, int32_t trans_b,
                                          attikos_tensor const* packed);

/** What attikos_gemm_backward writes; the members are the rows of the table. */
typedef struct attikos_gemm_gradients {
  size_t struct_size;
  ATTIKOS_GEMM_GRADIENTS(ATTIKOS_OPTION_MEMBER)
} attikos_gemm_gradients;
#define ATTIKOS_GEMM_GRADIENTS_INIT {sizeof(attikos_gemm_gradients) ATTIKOS_GEMM_GRADIENTS(ATTIKOS_OPTION_INITIAL)}

/** Gradients of attikos_gemm: a, b and options are those of the forward call, dout is the gradient of its
 * result. With an activation, options->pre_activation is what the forward call wrote there and is read. Of the
 * other tensors in options device_scale, group_offsets and row_counts matter; bias and residual are not looked
 * at, scales and zero points are refused. Rows of no group and rows past their count are not read, and keep
 * what they hold in da and d_c; row_counts of matrices that share one a have no da. float64, float32, float16
 * or bfloat16, one type for all; dout float32 beside 16-bit a and b, too. At least one gradient is wanted. */
ATTIKOS_API attikos_status attikos_gemm_backward(attikos_context* context, attikos_tensor const* a,
                                                 attikos_tensor const* b, attikos_tensor const* dout,
                                                 attikos_gemm_gradients const* gradients,
                                                 attikos_gemm_options const* options);

/** One line for every kernel that an operation ("gemm", "attention", "attention_backward", "decode",
 * "append_kv", "gated_mlp") may run or, but for "gated_mlp", be asked for in this library: its name, a colon,
 * and where it runs and on what. Text as for attikos_explain_gemm. */
ATTIKOS_API attikos_status attikos_list_kernels(char const* operation, char* text, size_t size,
                                                size_t* length);

/* --- attention --------------------------------------------------------------------------------- */

typedef ATTIKOS_ENUM(attikos_attention_algorithm) {
  ATTIKOS_FLASH = 0, /**< no storage that grows with seqlen_q * seqlen_kv */
  ATTIKOS_TILED = 1,
  ATTIKOS_NAIVE = 2
} attikos_attention_algorithm;

/** Options of attikos_attention and attikos_attention_backward; the members are the rows of the table. */
typedef struct attikos_attention_options {
  size_t struct_size;
  ATTIKOS_ATTENTION_OPTIONS(ATTIKOS_OPTION_MEMBER)
} attikos_attention_options;
#define ATTIKOS_ATTENTION_OPTIONS_INIT {sizeof(attikos_attention_options) ATTIKOS_ATTENTION_OPTIONS(ATTIKOS_OPTION_INITIAL)}

/** out = softmax(s) * v over the keys, s = scale * q * k^T, then softcap, bias, ALiBi, masks.
 *
 * q [batch, heads_q, seqlen_q, d], k [batch, heads_kv, seqlen_kv, d], v [batch, heads_kv, seqlen_kv, dv],
 * out [batch, heads_q, seqlen_q, dv], lse null or [batch, heads_q, seqlen_q]; or all with the first two
 * dimensions joined; packed and paged storage as the options say. heads_q is a multiple of heads_kv. One
 * element type, float64, float32, float16 or bfloat16; or q, k and v float8_e4m3 with out float32, float16 or
 * bfloat16. lse, the natural logarithm of the sum of exponentials, is float64 for float64 and else
 * float32. Tiled and naive keep the scores, and calls of few queries over many keys that go to the kernels of
 * attikos_decode partial results, in memory that the library holds for the stream, or for the graph that the
 * call is captured into. */
ATTIKOS_API attikos_status attikos_attention(attikos_context* context, attikos_tensor const* q,
                                             attikos_tensor const* k, attikos_tensor const* v,
                                             attikos_tensor const* out, attikos_tensor const* lse,
                                             attikos_attention_options const* options);

/** What attikos_attention would run, as text; see attikos_explain_gemm. */
ATTIKOS_API attikos_status attikos_explain_attention(attikos_context* context, attikos_tensor const* q,
                                                     attikos_tensor const* k, attikos_tensor const* v,
                                                     attikos_tensor const* out, attikos_tensor const* lse,
                                                     attikos_attention_options const* options, char* text,
                                                     size_t size, size_t* length);

/** What attikos_attention_backward writes; the members are the rows of the table. */
typedef struct attikos_attention_gradients {
  size_t struct_size;
  ATTIKOS_ATTENTION_GRADIENTS(ATTIKOS_OPTION_MEMBER)
} attikos_attention_gradients;
#define ATTIKOS_ATTENTION_GRADIENTS_INIT {sizeof(attikos_attention_gradients) ATTIKOS_ATTENTION_GRADIENTS(ATTIKOS_OPTION_INITIAL)}

/** Gradients of attikos_attention: q, k, v, out, lse and options are those of the forward call (without a
 * page table), dout has the shape and type of out. Deterministic. */
ATTIKOS_API attikos_status attikos_attention_backward(attikos_context* context, attikos_tensor const* q,
                                                      attikos_tensor const* k, attikos_tensor const* v,
                                                      attikos_tensor const* out, attikos_tensor const* lse,
                                                      attikos_tensor const* dout,
                                                      attikos_attention_gradients const* gradients,
                                                      attikos_attention_options const* options);

/** What attikos_attention_backward would run, as text; see attikos_explain_gemm. */
ATTIKOS_API attikos_status attikos_explain_attention_backward(
    attikos_context* context, attikos_tensor const* q, attikos_tensor const* k, attikos_tensor const* v,
    attikos_tensor const* out, attikos_tensor const* lse, attikos_tensor const* dout,
    attikos_attention_gradients const* gradients, attikos_attention_options const* options, char* text, size_t size,
    size_t* length);

/* --- decoding ------------------------------------------------------------------------------------ */

/** How far the bits of a result repeat at least. The default is 0, so that libraries which do not know the
 * member take it. */
typedef ATTIKOS_ENUM(attikos_determinism) {
  ATTIKOS_RUN_TO_RUN = 0,      /**< from call to call of one problem on one machine */
  ATTIKOS_BATCH_INVARIANT = 1, /**< and whatever else the batch holds beside a sequence */
  ATTIKOS_UNORDERED = 2        /**< not at all */
} attikos_determinism;

/** Options of attikos_decode: those that attention has, too, mean the same; the members are the rows of the table. */
typedef struct attikos_decode_options {
  size_t struct_size;
  ATTIKOS_DECODE_OPTIONS(ATTIKOS_OPTION_MEMBER)
} attikos_decode_options;
#define ATTIKOS_DECODE_OPTIONS_INIT {sizeof(attikos_decode_options) ATTIKOS_DECODE_OPTIONS(ATTIKOS_OPTION_INITIAL)}

/** What attikos_attention computes, for one or a few queries per sequence over a long cache, which is split
 * among teams. q [batch, heads_q, seqlen_q, d], k [batch, heads_kv, seqlen_max, d] or, with a page table,
 * [num_pages, heads_kv, page_size, d], v likewise with dv, out [batch, heads_q, seqlen_q, dv], lse null or
 * [batch, heads_q, seqlen_q]; with offsets queries alone or all are packed, and a packed query of no sequence
 * gives 0 and an lse of -infinity; types as attikos_attention. Partial results lie in memory that the library
 * holds for the stream, or for the graph that the call is captured into. */
ATTIKOS_API attikos_status attikos_decode(attikos_context* context, attikos_tensor const* q,
                                          attikos_tensor const* k, attikos_tensor const* v,
                                          attikos_tensor const* out, attikos_tensor const* lse,
                                          attikos_decode_options const* options);
/** What attikos_decode would run, as text; see attikos_explain_gemm. */
ATTIKOS_API attikos_status attikos_explain_decode(attikos_context* context, attikos_tensor const* q,
                                                  attikos_tensor const* k, attikos_tensor const* v,
                                                  attikos_tensor const* out, attikos_tensor const* lse,
                                                  attikos_decode_options const* options, char* text,
                                                  size_t size, size_t* length);

/** Options of attikos_append_kv; the members are the rows of the table. */
typedef struct attikos_append_kv_options {
  size_t struct_size;
  ATTIKOS_APPEND_KV_OPTIONS(ATTIKOS_OPTION_MEMBER)
} attikos_append_kv_options;
#define ATTIKOS_APPEND_KV_OPTIONS_INIT {sizeof(attikos_append_kv_options) ATTIKOS_APPEND_KV_OPTIONS(ATTIKOS_OPTION_INITIAL)}

/** Writes new keys and values behind those that a cache holds: position lengths[b] + i of sequence b becomes
 * k_new[b, :, i, :], rotated by its position where there are tables, and v_new[b, :, i, :].
 *
 * k_new [batch, heads_kv, seqlen_new, d] or packed, v_new likewise with dv, k_cache
 * [batch, heads_kv, seqlen_max, d] or paged, v_cache likewise. k_new, v_new and q have one type, float64,
 * float32, float16 or bfloat16, and the caches have that type, beside float32 also float16 or bfloat16, beside
 * 16-bit elements also float8_e4m3 (numbers beyond its range become NaN); tables have the type of k_new or,
 * beside 16-bit elements, float32. Positions outside the cache and page numbers outside [0, num_pages) are not
 * written, and nothing else of the cache is touched. The lengths are the caller's to advance. */
ATTIKOS_API attikos_status attikos_append_kv(attikos_context* context, attikos_tensor const* k_new,
                                             attikos_tensor const* v_new, attikos_tensor const* k_cache,
                                             attikos_tensor const* v_cache,
                                             attikos_append_kv_options const* options);
/** What attikos_append_kv would run, as text; see attikos_explain_gemm. */
ATTIKOS_API attikos_status attikos_explain_append_kv(attikos_context* context, attikos_tensor const* k_new,
                                                     attikos_tensor const* v_new,
                                                     attikos_tensor const* k_cache,
                                                     attikos_tensor const* v_cache,
                                                     attikos_append_kv_options const* options, char* text,
                                                     size_t size, size_t* length);

/** Attention over the union of two disjoint sets of keys from attention over each:
 * lse = log(e^lse_a + e^lse_b), out = e^(lse_a - lse) out_a + e^(lse_b - lse) out_b.
 *
 * out_a, out_b and out [batch, heads, seqlen, dv] or with the first two dimensions joined, each lse without
 * the last dimension; lse may be null. out of a floating type; out_a and out_b of that type or, beside
 * 16-bit elements, float32; every lse float32, float64 beside float64. out and lse may be out_a and lse_a, or
 * out_b and lse_b, themselves. A state of lse minus infinity is not read. */
ATTIKOS_API attikos_status attikos_merge_states(attikos_context* context, attikos_tensor const* out_a,
                                                attikos_tensor const* lse_a, attikos_tensor const* out_b,
                                                attikos_tensor const* lse_b, attikos_tensor const* out,
                                                attikos_tensor const* lse);
/** The same for any number of sets along dimension 0: outs [splits, batch, heads, seqlen, dv], lses
 * [splits, batch, heads, seqlen]; out and lse may be one split of each. */
ATTIKOS_API attikos_status attikos_merge_split_states(attikos_context* context, attikos_tensor const* outs,
                                                      attikos_tensor const* lses, attikos_tensor const* out,
                                                      attikos_tensor const* lse);

/* --- operations on rows ------------------------------------------------------------------------ */
/* x and out have 1 to 3 dimensions and one shape and type: float64, float32, float16 or bfloat16; out
 * may be x itself, and dx may be dout or, of the gradients of softmax, out. Norms: attikos_norm.h. */

/** out = softmax(scale * x) over the last dimension. */
ATTIKOS_API attikos_status attikos_softmax(attikos_context* context, attikos_tensor const* x,
                                           attikos_tensor const* out, double scale);
/** out = log(softmax(scale * x)) over the last dimension. */
ATTIKOS_API attikos_status attikos_log_softmax(attikos_context* context, attikos_tensor const* x,
                                               attikos_tensor const* out, double scale);
/** Gradient of attikos_softmax, from its result `out`: dx = scale * out * (dout - sum(out * dout)). */
ATTIKOS_API attikos_status attikos_softmax_backward(attikos_context* context, attikos_tensor const* out,
                                                    attikos_tensor const* dout, attikos_tensor const* dx,
                                                    double scale);
/** Gradient of attikos_log_softmax, from its result `out`: dx = scale * (dout - exp(out) * sum(dout)). */
ATTIKOS_API attikos_status attikos_log_softmax_backward(attikos_context* context, attikos_tensor const* out,
                                                        attikos_tensor const* dout, attikos_tensor const* dx,
                                                        double scale);
/** loss = -sum over classes of t * log(softmax(logits)), t = label_smoothing / classes everywhere and
 * 1 - label_smoothing more at the row's label. logits [rows, classes] or [batch, rows, classes] of any of the four
 * types; labels int32 or int64, loss, and lse null or the log-sum-exp of the rows, have the dimensions of logits but
 * the last. loss and lse are float64 for float64 and else float32. A row whose label is ignore_index (PyTorch's is
 * -100) has loss 0; one whose label is no class has NaN. */
ATTIKOS_API attikos_status attikos_cross_entropy(attikos_context* context, attikos_tensor const* logits,
                                                 attikos_tensor const* labels, attikos_tensor const* loss,
                                                 attikos_tensor const* lse, double label_smoothing,
                                                 int64_t ignore_index);
/** Gradient of attikos_cross_entropy: dlogits = dloss * (exp(logits - lse) - t); lse is what it gave, dloss has the
 * type of lse, dlogits that of logits, which it may be. */
ATTIKOS_API attikos_status attikos_cross_entropy_backward(
    attikos_context* context, attikos_tensor const* logits, attikos_tensor const* labels,
    attikos_tensor const* lse, attikos_tensor const* dloss, attikos_tensor const* dlogits,
    double label_smoothing, int64_t ignore_index);
/** attikos_cross_entropy of logits = hidden * transpose(weight) and its gradients in one call, with the logits of
 * rows_at_once rows in memory (0: a tenth of all, at least 256): with d = dloss * (softmax(logits) - t), dhidden =
 * d * weight and dweight = transpose(d) * hidden. hidden [rows, width] and weight [classes, width] of one of the four
 * types; labels int32 or int64, loss and dloss [rows], float64 for float64 and else float32. dhidden, of the type of
 * hidden, and dweight, of that or that of loss, may be null; dloss may be where both are. Logits and d are rounded to
 * the type of hidden. */
ATTIKOS_API attikos_status attikos_linear_cross_entropy(
    attikos_context* context, attikos_tensor const* hidden, attikos_tensor const* weight,
    attikos_tensor const* labels, attikos_tensor const* dloss, attikos_tensor const* loss,
    attikos_tensor const* dhidden, attikos_tensor const* dweight, double label_smoothing, int64_t ignore_index,
    int64_t rows_at_once);
/** out[b, :] = mean of x[b, s, :] over s < lengths[b]; x [batch, seqlen, hidden], out [batch, hidden],
 * lengths int32 [batch] or null for all positions. */
ATTIKOS_API attikos_status attikos_mean_pool(attikos_context* context, attikos_tensor const* x,
                                             attikos_tensor const* lengths, attikos_tensor const* out);
/** Gradient of attikos_mean_pool: dx[b, s, :] = dout[b, :] / lengths[b] for s < lengths[b], else 0. */
ATTIKOS_API attikos_status attikos_mean_pool_backward(attikos_context* context, attikos_tensor const* dout,
                                                      attikos_tensor const* lengths, attikos_tensor const* dx);

/* --- embedding ----------------------------------------------------------------------------------- */

/** out_i = table[ids_i]: the rows of a table that ids name. table [rows, width] of any of the four types; ids int32 or
 * int64, [n] or [batch, n]; out of the type of table, with the dimensions of ids and width. Of an id outside of
 * [0, rows) the row of out is NaN: ids are read where they lie. */
ATTIKOS_API attikos_status attikos_embedding(attikos_context* context, attikos_tensor const* table,
                                             attikos_tensor const* ids, attikos_tensor const* out);
/** Gradient of attikos_embedding: dtable_r = sum over all i with ids_i = r of dout_i, + beta * dtable_r. dtable
 * [rows, width] has the type of dout, or float32 beside 16 bits; with beta = 0 it is not read. Ids outside of
 * [0, rows), and padding_index (-1: none), add nothing. Sums are added in an order that the ids alone give: the same
 * bits on every run. */
ATTIKOS_API attikos_status attikos_embedding_backward(attikos_context* context, attikos_tensor const* ids,
                                                      attikos_tensor const* dout,
                                                      attikos_tensor const* dtable, int64_t padding_index,
                                                      double beta);

/* --- rotary embedding ---------------------------------------------------------------------------- */

/** Options of attikos_rope and attikos_rms_norm_rope; the members are the rows of the table. */
typedef struct attikos_rope_options {
  size_t struct_size;
  ATTIKOS_ROPE_OPTIONS(ATTIKOS_OPTION_MEMBER)
} attikos_rope_options;
#define ATTIKOS_ROPE_OPTIONS_INIT {sizeof(attikos_rope_options) ATTIKOS_ROPE_OPTIONS(ATTIKOS_OPTION_INITIAL)}

/** out = x * cos + rotate(x) * sin in the first features of every head. x and out
 * [batch, heads, seqlen, head_dim] of one floating type; cos and sin [positions, rotary_dim] or
 * [1, positions, 1, rotary_dim], of that type or, beside 16-bit elements, float32. out may be x itself. */
ATTIKOS_API attikos_status attikos_rope(attikos_context* context, attikos_tensor const* x,
                                        attikos_tensor const* cos, attikos_tensor const* sin,
                                        attikos_tensor const* out, attikos_rope_options const* options);
/** Gradient of attikos_rope; dx may be dout itself. */
ATTIKOS_API attikos_status attikos_rope_backward(attikos_context* context, attikos_tensor const* dout,
                                                 attikos_tensor const* cos, attikos_tensor const* sin,
                                                 attikos_tensor const* dx,
                                                 attikos_rope_options const* options);
/** out = rope(x / sqrt(mean(x^2) + eps) * weight) in one kernel. x and out [batch, seqlen, hidden], weight
 * [hidden], cos and sin [positions, head_dim] or [1, positions, 1, head_dim]; weight and tables are of the type
 * of x or, beside 16-bit elements, float32. out may be x itself. */
ATTIKOS_API attikos_status attikos_rms_norm_rope(attikos_context* context, attikos_tensor const* x,
                                                 attikos_tensor const* weight, attikos_tensor const* cos,
                                                 attikos_tensor const* sin, attikos_tensor const* out,
                                                 attikos_rope_options const* options);
/** Gradient of attikos_rms_norm_rope: dx the shape and type of x, and may be x or dout itself; dweight those of
 * weight (overwritten). */
ATTIKOS_API attikos_status attikos_rms_norm_rope_backward(attikos_context* context, attikos_tensor const* x,
                                                          attikos_tensor const* weight,
                                                          attikos_tensor const* cos, attikos_tensor const* sin,
                                                          attikos_tensor const* dout, attikos_tensor const* dx,
                                                          attikos_tensor const* dweight,
                                                          attikos_rope_options const* options);

/* --- 8-bit elements ------------------------------------------------------------------------------ */

/** Rounds x to 8-bit elements and finds their scales: scale = max|x| / limit with a floor, out =
 * round(x / scale), saturating. x and out [rows, cols] or [batch, rows, cols]; x of a floating type, out
 * float8_e4m3, float8_e5m2 or int8; scale float32, one number [1], or with the dimensions of x: [1, 1],
 * [rows, 1], [1, cols], or in blocks of 128 along one or both. Scales come from finite elements alone;
 * +-infinity becomes NaN in float8_e4m3, +-infinity in float8_e5m2, +-127 in int8; NaN stays NaN, in int8 it
 * becomes 0. */
ATTIKOS_API attikos_status attikos_quantize(attikos_context* context, attikos_tensor const* x,
                                            attikos_tensor const* out, attikos_tensor const* scale);
/** Rounds x to 8-bit elements by scales that are given: out = round(x / scale), saturating. Shapes and types
 * as for attikos_quantize; scale is read and holds positive finite numbers. */
ATTIKOS_API attikos_status attikos_quantize_with_scale(attikos_context* context, attikos_tensor const* x,
                                                       attikos_tensor const* scale,
                                                       attikos_tensor const* out);
/** out = scale * x: the way back. */
ATTIKOS_API attikos_status attikos_dequantize(attikos_context* context, attikos_tensor const* x,
                                              attikos_tensor const* scale, attikos_tensor const* out);

/* --- attention on raw pointers ------------------------------------------------------------------ */

/** What the functions below return, as an int. */
ATTIKOS_ENUM(attikos_flash_attention_error) {
  ATTIKOS_FA_SUCCESS = 0,
  ATTIKOS_FA_INVALID_DIMENSION = 1,    /**< a dimension <= 0, or a tensor beyond 63-bit offsets */
  ATTIKOS_FA_DIMENSION_MISMATCH = 2,   /**< not returned: there is one set of dimensions */
  ATTIKOS_FA_NULL_POINTER = 3,
  ATTIKOS_FA_CUDA_ERROR = 4,           /**< the device or its run time failed, or memory is out of reach */
  ATTIKOS_FA_OUT_OF_MEMORY = 5,
  ATTIKOS_FA_UNSUPPORTED_HEAD_DIM = 6, /**< not returned: every head_dim works */
  ATTIKOS_FA_UNSUPPORTED_DTYPE = 7,
  ATTIKOS_FA_INVALID_ARGUMENT = 8      /**< a misaligned pointer, a scale that is not finite, or outputs that
                                            overlap */
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
