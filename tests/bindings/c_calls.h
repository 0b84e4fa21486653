/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One call at least of every function of the C interface that writes tensors, with tensors that it takes: tests do to all
 * of them what they do to one. C11 and C++20. */
#ifndef ATTIKOS_TESTS_C_CALLS_H
#define ATTIKOS_TESTS_C_CALLS_H

#include <attikos/attikos.h>
#include <stddef.h>

enum { c_call_most = 12 };

/* A tensor of a call, dense. */
typedef struct argument {
  char const* name; /* in messages; null behind the last one */
  int32_t dtype;
  int is_output;
  int may_be; /* of an input: the output that it may be, by its place in the list, or -1 */
  int32_t ndim;
  int64_t shape[5];
} argument;

typedef struct c_call {
  char const* operation; /* in messages */
  attikos_status (*call)(attikos_context* context, attikos_tensor const* const* t);
  argument arguments[c_call_most];
} c_call;

static inline int c_call_count(c_call const* call) {
  int count = 0;
  while (count < c_call_most && call->arguments[count].name != NULL) ++count;
  return count;
}

/* What is done to a struct of options, known by its name in attikos_describe_options, before it is passed; behind it are
 * c_options_later bytes of 0. */
enum { c_options_later = 64 };
static void (*c_call_mutate)(char const* name, void* options) = NULL;
#define C_OPTIONS(type, o, init)           \
  struct {                                 \
    type options;                          \
    unsigned char later[c_options_later];  \
  } o##_and_later = {init, {0}};           \
  type* const o = &o##_and_later.options
#define C_PASS(name, o) (c_call_mutate == NULL ? (void)0 : c_call_mutate(#name, o), o)

#define F32 ATTIKOS_FLOAT32
#define IN(name, ndim, ...) {name, F32, 0, -1, ndim, {__VA_ARGS__}}
#define INT(name, ndim, ...) {name, ATTIKOS_INT32, 0, -1, ndim, {__VA_ARGS__}}
#define MAY_BE(name, output, ndim, ...) {name, F32, 0, output, ndim, {__VA_ARGS__}}
#define OUT(name, ndim, ...) {name, F32, 1, -1, ndim, {__VA_ARGS__}}

static attikos_status gemm(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_gemm_options, o, ATTIKOS_GEMM_OPTIONS_INIT);
  o->bias = t[3], o->residual = t[4], o->pre_activation = t[5], o->device_scale = t[6];
  return attikos_gemm(context, t[0], t[1], t[2], C_PASS(gemm, o));
}
static attikos_status scaled_gemm(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_gemm_options, o, ATTIKOS_GEMM_OPTIONS_INIT);
  o->scale_a = t[3], o->scale_b = t[4], o->scale_out = t[5], o->zero_point_a = t[6], o->zero_point_b = t[7];
  return attikos_gemm(context, t[0], t[1], t[2], C_PASS(gemm, o));
}
static attikos_status grouped_gemm(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_gemm_options, o, ATTIKOS_GEMM_OPTIONS_INIT);
  o->group_offsets = t[3];
  return attikos_gemm(context, t[0], t[1], t[2], C_PASS(gemm, o));
}
static attikos_status masked_gemm(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_gemm_options, o, ATTIKOS_GEMM_OPTIONS_INIT);
  o->row_counts = t[3];
  return attikos_gemm(context, t[0], t[1], t[2], C_PASS(gemm, o));
}
static attikos_status pack_b(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_pack_b(context, t[0], 0, t[1]);
}
static attikos_status gemm_backward(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_gemm_options, o, ATTIKOS_GEMM_OPTIONS_INIT);
  o->activation = ATTIKOS_ACTIVATION_RELU, o->pre_activation = t[3];
  C_OPTIONS(attikos_gemm_gradients, g, ATTIKOS_GEMM_GRADIENTS_INIT);
  g->da = t[4], g->db = t[5], g->d_bias = t[6], g->d_c = t[7];
  return attikos_gemm_backward(context, t[0], t[1], t[2], C_PASS(gemm_gradients, g), C_PASS(gemm, o));
}
static attikos_status gated_mlp(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_gated_mlp(context, t[0], t[1], t[2], t[3], ATTIKOS_ACTIVATION_SILU);
}
static attikos_status gated_mlp_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_gated_mlp_backward(context, t[0], t[1], t[2], t[3], t[4], t[5], t[6],
                                    ATTIKOS_ACTIVATION_SILU);
}
static attikos_status gated_mlp_keep(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_gated_mlp_keep(context, t[0], t[1], t[2], t[3], t[4], t[5], ATTIKOS_ACTIVATION_GELU);
}
static attikos_status gated_mlp_backward_kept(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_gated_mlp_backward_kept(context, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8],
                                         ATTIKOS_ACTIVATION_GELU);
}
static attikos_status attention(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_attention_options, o, ATTIKOS_ATTENTION_OPTIONS_INIT);
  o->lengths_q = t[5], o->lengths_kv = t[6], o->bias = t[7], o->mask = t[8], o->alibi_slopes = t[9], o->sinks = t[10];
  return attikos_attention(context, t[0], t[1], t[2], t[3], t[4], C_PASS(attention, o));
}
static attikos_status packed_attention(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_attention_options, o, ATTIKOS_ATTENTION_OPTIONS_INIT);
  o->cu_seqlens_q = t[4], o->cu_seqlens_kv = t[5];
  return attikos_attention(context, t[0], t[1], t[2], t[3], NULL, C_PASS(attention, o));
}
static attikos_status float8_attention(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_attention_options, o, ATTIKOS_ATTENTION_OPTIONS_INIT);
  o->page_table = t[4], o->descale_q = t[5], o->descale_k = t[6], o->descale_v = t[7];
  return attikos_attention(context, t[0], t[1], t[2], t[3], NULL, C_PASS(attention, o));
}
static attikos_status decode(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_decode_options, o, ATTIKOS_DECODE_OPTIONS_INIT);
  o->lengths_kv = t[5];
  return attikos_decode(context, t[0], t[1], t[2], t[3], t[4], C_PASS(decode, o));
}
static attikos_status attention_backward(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_attention_options, o, ATTIKOS_ATTENTION_OPTIONS_INIT);
  o->bias = t[9], o->sinks = t[11];
  C_OPTIONS(attikos_attention_gradients, g, ATTIKOS_ATTENTION_GRADIENTS_INIT);
  g->dq = t[6], g->dk = t[7], g->dv = t[8], g->d_bias = t[10];
  return attikos_attention_backward(context, t[0], t[1], t[2], t[3], t[4], t[5], C_PASS(attention_gradients, g),
                                    C_PASS(attention, o));
}
static attikos_status sinks_backward(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_attention_options, o, ATTIKOS_ATTENTION_OPTIONS_INIT);
  o->sinks = t[9];
  C_OPTIONS(attikos_attention_gradients, g, ATTIKOS_ATTENTION_GRADIENTS_INIT);
  g->dq = t[6], g->dk = t[7], g->dv = t[8], g->d_sinks = t[10];
  return attikos_attention_backward(context, t[0], t[1], t[2], t[3], t[4], t[5], C_PASS(attention_gradients, g),
                                    C_PASS(attention, o));
}
static attikos_status append_kv(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_append_kv_options, o, ATTIKOS_APPEND_KV_OPTIONS_INIT);
  o->rotary_cos = t[4], o->rotary_sin = t[5], o->q = t[6], o->q_out = t[7], o->cache_lengths = t[8];
  o->new_lengths = t[9];
  return attikos_append_kv(context, t[0], t[1], t[2], t[3], C_PASS(append_kv, o));
}
static attikos_status packed_append_kv(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_append_kv_options, o, ATTIKOS_APPEND_KV_OPTIONS_INIT);
  o->page_table = t[4], o->cu_seqlens_kv = t[5];
  return attikos_append_kv(context, t[0], t[1], t[2], t[3], C_PASS(append_kv, o));
}
static attikos_status merge_states(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_merge_states(context, t[0], t[1], t[2], t[3], t[4], t[5]);
}
static attikos_status merge_split_states(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_merge_split_states(context, t[0], t[1], t[2], t[3]);
}
static attikos_status softmax(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_softmax(context, t[0], t[1], 1);
}
static attikos_status log_softmax(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_log_softmax(context, t[0], t[1], 1);
}
static attikos_status cross_entropy(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_cross_entropy(context, t[0], t[1], t[2], t[3], 0.1, -100);
}
static attikos_status cross_entropy_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_cross_entropy_backward(context, t[0], t[1], t[2], t[3], t[4], 0.1, -100);
}
static attikos_status linear_cross_entropy(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_linear_cross_entropy(context, t[0], t[1], t[2], t[3], t[4], t[5], t[6], 0.1, -100, 3);
}
static attikos_status adamw_step(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_adamw_step(context, 1, t, t + 1, t + 2, t + 3, t + 4, 1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 1);
}
static attikos_status embedding(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_embedding(context, t[0], t[1], t[2]);
}
static attikos_status embedding_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_embedding_backward(context, t[0], t[1], t[2], 2, 0.5);
}
static attikos_status l2_normalize(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_l2_normalize(context, t[0], t[1], 1e-6);
}
static attikos_status rms_norm(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_rms_norm(context, t[0], t[2], t[1], 1e-6);
}
static attikos_status layer_norm(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_layer_norm(context, t[0], t[2], t[3], t[1], 1e-6);
}
static attikos_status softmax_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_softmax_backward(context, t[0], t[1], t[2], 1);
}
static attikos_status log_softmax_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_log_softmax_backward(context, t[0], t[1], t[2], 1);
}
static attikos_status l2_normalize_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_l2_normalize_backward(context, t[0], t[1], t[2], 1e-6);
}
static attikos_status rms_norm_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_rms_norm_backward(context, t[0], t[3], t[1], t[2], t[4], 1e-6);
}
static attikos_status layer_norm_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_layer_norm_backward(context, t[0], t[3], t[1], t[2], t[4], t[5], 1e-6);
}
static attikos_status rms_norm_residual(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_rms_norm_residual(context, t[0], t[1], t[2], t[3], t[4], 1e-6);
}
static attikos_status layer_norm_residual(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_layer_norm_residual(context, t[0], t[1], t[2], t[3], t[4], t[5], 1e-6);
}
static attikos_status rms_norm_backward_residual(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_rms_norm_backward_residual(context, t[0], t[1], t[2], t[3], t[4], t[5], 1e-6);
}
static attikos_status layer_norm_backward_residual(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_layer_norm_backward_residual(context, t[0], t[1], t[2], t[3], t[4], t[5], t[6], 1e-6);
}
static attikos_status mean_pool(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_mean_pool(context, t[0], t[2], t[1]);
}
static attikos_status mean_pool_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_mean_pool_backward(context, t[0], t[2], t[1]);
}
static attikos_status rope(attikos_context* context, attikos_tensor const* const* t) {
  C_OPTIONS(attikos_rope_options, o, ATTIKOS_ROPE_OPTIONS_INIT);
  o->positions = t[4];
  return attikos_rope(context, t[0], t[2], t[3], t[1], C_PASS(rope, o));
}
static attikos_status rope_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_rope_backward(context, t[0], t[2], t[3], t[1], NULL);
}
static attikos_status rms_norm_rope(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_rms_norm_rope(context, t[0], t[4], t[2], t[3], t[1], NULL);
}
static attikos_status rms_norm_rope_backward(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_rms_norm_rope_backward(context, t[0], t[3], t[4], t[5], t[1], t[2], t[6], NULL);
}
static attikos_status quantize(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_quantize(context, t[0], t[1], t[2]);
}
static attikos_status quantize_with_scale(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_quantize_with_scale(context, t[0], t[2], t[1]);
}
static attikos_status dequantize(attikos_context* context, attikos_tensor const* const* t) {
  return attikos_dequantize(context, t[0], t[2], t[1]);
}

static c_call const c_calls[] = {
    {"gemm", gemm,
     {IN("A", 2, 3, 4), IN("B", 2, 4, 5), OUT("C", 2, 3, 5), IN("bias", 1, 5), MAY_BE("residual", 2, 2, 3, 5),
      OUT("pre_activation", 2, 3, 5), IN("device_scale", 1, 1)}},
    {"gemm", scaled_gemm,
     {{"A", ATTIKOS_INT8, 0, -1, 2, {3, 16}}, {"B", ATTIKOS_INT8, 0, -1, 2, {16, 8}},
      {"C", ATTIKOS_INT8, 1, -1, 2, {3, 8}}, IN("scale_a", 2, 3, 1), IN("scale_b", 2, 1, 8), IN("scale_out", 1, 1),
      INT("zero_point_a", 1, 1), INT("zero_point_b", 1, 8)}},
    {"gemm", grouped_gemm,
     {IN("A", 2, 6, 4), IN("B", 3, 2, 4, 5), OUT("C", 2, 6, 5), INT("grouped()", 1, 3)}},
    {"gemm", masked_gemm,
     {IN("A", 3, 2, 3, 4), IN("B", 3, 2, 4, 5), OUT("C", 3, 2, 3, 5), INT("masked()", 1, 2)}},
    {"pack_b", pack_b, {IN("B", 2, 4, 10), {"packed", ATTIKOS_UINT8, 1, -1, 1, {320}}}},
    {"gemm_backward", gemm_backward,
     {IN("A", 2, 3, 4), IN("B", 2, 4, 5), IN("dout", 2, 3, 5), IN("pre_activation", 2, 3, 5), OUT("da", 2, 3, 4),
      OUT("db", 2, 4, 5), OUT("bias_gradient", 1, 5), OUT("c_gradient", 2, 3, 5)}},
    {"gated_mlp", gated_mlp,
     {IN("x", 2, 3, 8), IN("gate_weight", 2, 6, 8), IN("up_weight", 2, 6, 8), OUT("out", 2, 3, 6)}},
    {"gated_mlp_backward", gated_mlp_backward,
     {IN("x", 2, 3, 8), IN("gate_weight", 2, 6, 8), IN("up_weight", 2, 6, 8), IN("dout", 2, 3, 6), OUT("dx", 2, 3, 8),
      OUT("dgate_weight", 2, 6, 8), OUT("dup_weight", 2, 6, 8)}},
    {"gated_mlp", gated_mlp_keep,
     {IN("x", 2, 3, 8), IN("gate_weight", 2, 6, 8), IN("up_weight", 2, 6, 8), OUT("out", 2, 3, 6),
      OUT("gate of projections(gate, up)", 2, 3, 6), OUT("up of projections(gate, up)", 2, 3, 6)}},
    {"gated_mlp_backward", gated_mlp_backward_kept,
     {IN("x", 2, 3, 8), IN("gate_weight", 2, 6, 8), IN("up_weight", 2, 6, 8), IN("dout", 2, 3, 6),
      IN("gate of projections(gate, up)", 2, 3, 6), IN("up of projections(gate, up)", 2, 3, 6), OUT("dx", 2, 3, 8),
      OUT("dgate_weight", 2, 6, 8), OUT("dup_weight", 2, 6, 8)}},
    {"attention", attention,
     {IN("q", 4, 1, 4, 3, 4), IN("k", 4, 1, 2, 5, 4), IN("v", 4, 1, 2, 5, 4), OUT("out", 4, 1, 4, 3, 4),
      OUT("lse", 3, 1, 4, 3), INT("lengths of q", 1, 1), INT("lengths of kv", 1, 1), IN("bias", 2, 3, 5),
      {"mask", ATTIKOS_BOOL, 0, -1, 2, {3, 5}}, IN("alibi", 1, 4), IN("sinks", 1, 4)}},
    {"attention", packed_attention,
     {IN("q", 3, 4, 6, 4), IN("k", 3, 2, 10, 4), IN("v", 3, 2, 10, 4), OUT("out", 3, 4, 6, 4),
      INT("cu_seqlens of q", 1, 3), INT("cu_seqlens of kv", 1, 3)}},
    {"attention", float8_attention,
     {{"q", ATTIKOS_FLOAT8_E4M3, 0, -1, 4, {2, 2, 3, 4}}, {"k", ATTIKOS_FLOAT8_E4M3, 0, -1, 4, {3, 2, 4, 4}},
      {"v", ATTIKOS_FLOAT8_E4M3, 0, -1, 4, {3, 2, 4, 4}}, OUT("out", 4, 2, 2, 3, 4), INT("page table", 2, 2, 3),
      IN("descale of q", 1, 1), IN("descale of k", 2, 2, 2), IN("descale of v", 1, 2)}},
    {"decode", decode,
     {IN("q", 4, 1, 4, 1, 4), IN("k", 4, 1, 2, 20, 4), IN("v", 4, 1, 2, 20, 4), OUT("out", 4, 1, 4, 1, 4),
      OUT("lse", 3, 1, 4, 1), INT("lengths of kv", 1, 1)}},
    {"attention_backward", attention_backward,
     {IN("q", 4, 1, 4, 3, 4), IN("k", 4, 1, 2, 5, 4), IN("v", 4, 1, 2, 5, 4), IN("out", 4, 1, 4, 3, 4),
      IN("lse", 3, 1, 4, 3), IN("dout", 4, 1, 4, 3, 4), OUT("dq", 4, 1, 4, 3, 4), OUT("dk", 4, 1, 2, 5, 4),
      OUT("dv", 4, 1, 2, 5, 4), IN("bias", 2, 3, 5), OUT("d_bias", 2, 3, 5), IN("sinks", 1, 4)}},
    {"attention_backward", sinks_backward,
     {IN("q", 4, 1, 4, 3, 4), IN("k", 4, 1, 2, 5, 4), IN("v", 4, 1, 2, 5, 4), IN("out", 4, 1, 4, 3, 4),
      IN("lse", 3, 1, 4, 3), IN("dout", 4, 1, 4, 3, 4), OUT("dq", 4, 1, 4, 3, 4), OUT("dk", 4, 1, 2, 5, 4),
      OUT("dv", 4, 1, 2, 5, 4), IN("sinks", 1, 4), OUT("d_sinks", 1, 4)}},
    {"append_kv", append_kv,
     {IN("k_new", 4, 2, 2, 3, 4), IN("v_new", 4, 2, 2, 3, 4), OUT("k_cache", 4, 2, 2, 9, 4),
      OUT("v_cache", 4, 2, 2, 9, 4), IN("cos", 2, 20, 4), IN("sin", 2, 20, 4), MAY_BE("q", 7, 4, 2, 4, 3, 4),
      OUT("out of queries", 4, 2, 4, 3, 4), INT("cache_lengths", 1, 2), INT("new_lengths", 1, 2)}},
    {"append_kv", packed_append_kv,
     {IN("k_new", 3, 2, 6, 4), IN("v_new", 3, 2, 6, 4), OUT("k_cache", 4, 5, 2, 4, 4), OUT("v_cache", 4, 5, 2, 4, 4),
      INT("page table", 2, 2, 2), INT("cu_seqlens of kv", 1, 3)}},
    {"merge_states", merge_states,
     {MAY_BE("out_a", 4, 4, 2, 4, 3, 4), MAY_BE("lse_a", 5, 3, 2, 4, 3), MAY_BE("out_b", 4, 4, 2, 4, 3, 4),
      MAY_BE("lse_b", 5, 3, 2, 4, 3), OUT("out", 4, 2, 4, 3, 4), OUT("lse", 3, 2, 4, 3)}},
    {"merge_states", merge_split_states,
     {MAY_BE("outs", 2, 5, 2, 1, 4, 3, 4), MAY_BE("lses", 3, 4, 2, 1, 4, 3), OUT("out", 4, 1, 4, 3, 4),
      OUT("lse", 3, 1, 4, 3)}},
    {"mean_pool_backward", mean_pool_backward,
     {IN("dout", 2, 2, 8), OUT("dx", 3, 2, 5, 8), INT("lengths", 1, 2)}},
    {"rms_norm_rope", rms_norm_rope,
     {MAY_BE("x", 1, 3, 2, 4, 16), OUT("out", 3, 2, 4, 16), IN("cos", 2, 9, 8), IN("sin", 2, 9, 8),
      IN("weight", 1, 16)}},
    {"rms_norm_rope_backward", rms_norm_rope_backward,
     {MAY_BE("x", 2, 3, 2, 4, 16), MAY_BE("dout", 2, 3, 2, 4, 16), OUT("dx", 3, 2, 4, 16), IN("weight", 1, 16),
      IN("cos", 2, 9, 8), IN("sin", 2, 9, 8), OUT("dweight", 1, 16)}},
    {"quantize", quantize,
     {IN("x", 2, 4, 16), {"out", ATTIKOS_FLOAT8_E4M3, 1, -1, 2, {4, 16}}, OUT("scale", 2, 4, 1)}},
    {"quantize_with_scale", quantize_with_scale,
     {IN("x", 2, 4, 16), {"out", ATTIKOS_INT8, 1, -1, 2, {4, 16}}, IN("scale", 2, 4, 1)}},
    {"dequantize", dequantize,
     {{"x", ATTIKOS_INT8, 0, -1, 2, {4, 16}}, OUT("out", 2, 4, 16), IN("scale", 2, 4, 1)}},
    {"softmax", softmax,
     {MAY_BE("x", 1, 2, 4, 8), OUT("out", 2, 4, 8)}},
    {"log_softmax", log_softmax,
     {MAY_BE("x", 1, 2, 4, 8), OUT("out", 2, 4, 8)}},
    {"cross_entropy", cross_entropy,
     {IN("logits", 2, 4, 8), INT("labels", 1, 4), OUT("loss", 1, 4), OUT("lse", 1, 4)}},
    {"cross_entropy_backward", cross_entropy_backward,
     {MAY_BE("logits", 4, 2, 4, 8), INT("labels", 1, 4), IN("lse", 1, 4), IN("dloss", 1, 4), OUT("dlogits", 2, 4, 8)}},
    {"linear_cross_entropy", linear_cross_entropy,
     {IN("hidden", 2, 4, 8), IN("weight", 2, 6, 8), INT("labels", 1, 4), IN("dloss", 1, 4), OUT("loss", 1, 4),
      OUT("dhidden", 2, 4, 8), OUT("dweight", 2, 6, 8)}},
    {"adamw_step", adamw_step,
     {OUT("parameter", 2, 4, 8), IN("gradient", 2, 4, 8), OUT("exp_avg", 2, 4, 8), OUT("exp_avg_sq", 2, 4, 8),
      OUT("master", 2, 4, 8)}},
    {"embedding", embedding,
     {IN("table", 2, 6, 8), INT("ids", 2, 2, 3), OUT("out", 3, 2, 3, 8)}},
    {"embedding_backward", embedding_backward,
     {INT("ids", 2, 2, 3), IN("dout", 3, 2, 3, 8), OUT("dtable", 2, 6, 8)}},
    {"l2_normalize", l2_normalize,
     {MAY_BE("x", 1, 2, 4, 8), OUT("out", 2, 4, 8)}},
    {"rms_norm", rms_norm,
     {MAY_BE("x", 1, 2, 4, 8), OUT("out", 2, 4, 8), IN("weight", 1, 8)}},
    {"layer_norm", layer_norm,
     {MAY_BE("x", 1, 2, 4, 8), OUT("out", 2, 4, 8), IN("weight", 1, 8), IN("bias", 1, 8)}},
    {"softmax_backward", softmax_backward,
     {MAY_BE("out", 2, 2, 4, 8), MAY_BE("dout", 2, 2, 4, 8), OUT("dx", 2, 4, 8)}},
    {"log_softmax_backward", log_softmax_backward,
     {MAY_BE("out", 2, 2, 4, 8), MAY_BE("dout", 2, 2, 4, 8), OUT("dx", 2, 4, 8)}},
    {"l2_normalize_backward", l2_normalize_backward,
     {MAY_BE("x", 2, 2, 4, 8), MAY_BE("dout", 2, 2, 4, 8), OUT("dx", 2, 4, 8)}},
    {"rms_norm_backward", rms_norm_backward,
     {MAY_BE("x", 2, 2, 4, 8), MAY_BE("dout", 2, 2, 4, 8), OUT("dx", 2, 4, 8), IN("weight", 1, 8),
      OUT("dweight", 1, 8)}},
    {"layer_norm_backward", layer_norm_backward,
     {MAY_BE("x", 2, 2, 4, 8), MAY_BE("dout", 2, 2, 4, 8), OUT("dx", 2, 4, 8), IN("weight", 1, 8),
      OUT("dweight", 1, 8), OUT("dbias", 1, 8)}},
    {"rms_norm", rms_norm_residual,
     {MAY_BE("x", 3, 2, 4, 8), MAY_BE("residual", 3, 2, 4, 8), IN("weight", 1, 8), OUT("residual_sum", 2, 4, 8),
      OUT("out", 2, 4, 8)}},
    {"layer_norm", layer_norm_residual,
     {MAY_BE("x", 4, 2, 4, 8), MAY_BE("residual", 4, 2, 4, 8), IN("weight", 1, 8), IN("bias", 1, 8),
      OUT("residual_sum", 2, 4, 8), OUT("out", 2, 4, 8)}},
    {"rms_norm_backward", rms_norm_backward_residual,
     {MAY_BE("x", 4, 2, 4, 8), IN("weight", 1, 8), MAY_BE("dout", 4, 2, 4, 8), MAY_BE("residual", 4, 2, 4, 8),
      OUT("dx", 2, 4, 8), OUT("dweight", 1, 8)}},
    {"layer_norm_backward", layer_norm_backward_residual,
     {MAY_BE("x", 4, 2, 4, 8), IN("weight", 1, 8), MAY_BE("dout", 4, 2, 4, 8), MAY_BE("residual", 4, 2, 4, 8),
      OUT("dx", 2, 4, 8), OUT("dweight", 1, 8), OUT("dbias", 1, 8)}},
    {"rope", rope,
     {MAY_BE("x", 1, 4, 2, 3, 4, 8), OUT("out", 4, 2, 3, 4, 8), IN("cos", 2, 9, 8), IN("sin", 2, 9, 8),
      INT("positions", 1, 2)}},
    {"rope_backward", rope_backward,
     {MAY_BE("dout", 1, 4, 2, 3, 4, 8), OUT("dx", 4, 2, 3, 4, 8), IN("cos", 2, 9, 8), IN("sin", 2, 9, 8)}},
    {"mean_pool", mean_pool,
     {IN("x", 3, 2, 5, 8), OUT("out", 2, 2, 8), INT("lengths", 1, 2)}},
};

#undef F32
#undef IN
#undef INT
#undef MAY_BE
#undef OUT

#endif
