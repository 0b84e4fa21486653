/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every function that writes tensors, every output, every other tensor: memory that they share is refused, and
 * nothing is written, but where the function says that the tensor may be the output itself. */
#include <attikos/attikos.h>

#include "c_checks.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
enum { most = 12, slot = 1024, filling = 0x11 };

typedef struct argument {
  char const* name; /* in messages */
  int32_t dtype;
  int is_output;
  int may_be; /* of an input: the output that it may be, by its place in the list, or -1 */
  int32_t ndim;
  int64_t shape[5];
} argument;
#define F32 ATTIKOS_FLOAT32
#define IN(name, ndim, ...) {name, F32, 0, -1, ndim, {__VA_ARGS__}}
#define INT(name, ndim, ...) {name, ATTIKOS_INT32, 0, -1, ndim, {__VA_ARGS__}}
#define MAY_BE(name, output, ndim, ...) {name, F32, 0, output, ndim, {__VA_ARGS__}}
#define OUT(name, ndim, ...) {name, F32, 1, -1, ndim, {__VA_ARGS__}}

typedef attikos_status (*function)(attikos_context* context, attikos_tensor const* t);

static double memory[most * slot / sizeof(double)];

static void reset(void) { memset(memory, filling, sizeof memory); }
static int is_untouched(void) {
  unsigned char const* const bytes = (unsigned char const*)memory;
  for (size_t i = 0; i < sizeof memory; ++i)
    if (bytes[i] != filling) return 0;
  return 1;
}
static size_t bytes_of(argument const* x) {
  size_t bytes = attikos_dtype_size(x->dtype);
  for (int r = 0; r < x->ndim; ++r) bytes *= (size_t)x->shape[r];
  return bytes;
}

/* All tensors in places of their own, but `moved` at an offset and `folded` with strides by which its elements
 * overlap; -1 for none. */
static attikos_status call(attikos_context* context, function f, argument const* list, int count, int moved,
                           size_t offset, int folded) {
  static int64_t const ones[5] = {1, 1, 1, 1, 1}, zeros[5] = {0, 0, 0, 0, 0};
  attikos_tensor t[most];
  reset();
  for (int i = 0; i < count; ++i) {
    int wide = 0; /* dimensions that lead anywhere */
    for (int r = 0; r < list[i].ndim; ++r) wide += list[i].shape[r] > 1;
    size_t const at = i == moved ? offset : (size_t)i * slot;
    attikos_tensor const x = {(char*)memory + at, list[i].dtype, list[i].ndim, list[i].shape,
                              i != folded ? NULL : wide > 1 ? ones : zeros};
    t[i] = x;
  }
  return f(context, t);
}

static void expect(attikos_status got, attikos_status wanted, char const* operation, char const* output,
                   char const* other, size_t shift) {
  char text[128];
  snprintf(text, sizeof text, "attikos::%s: output ", operation);
  char const* const message = attikos_last_error();
  int const is_told = strncmp(message, text, strlen(text)) == 0 && strstr(message, output) != NULL &&
                      strstr(message, other) != NULL;
  if (got == wanted && is_told && is_untouched()) return;
  printf("%s, %s and %s, %d bytes on: \"%s\" (%s), expected \"%s\"%s\n", operation, output, other, (int)shift,
         attikos_status_string(got), message, attikos_status_string(wanted), is_untouched() ? "" : "; WRITTEN");
  ++failures;
}

static void check(attikos_context* context, char const* operation, function f, argument const* list, int count) {
  CHECK_STATUS(call(context, f, list, count, -1, 0, -1), ATTIKOS_SUCCESS);
  for (int i = 0; i < count; ++i) {
    if (!list[i].is_output) continue;
    expect(call(context, f, list, count, -1, 0, i), ATTIKOS_INVALID_STRIDES, operation, list[i].name, "elements", 0);
    size_t const at = (size_t)i * slot, shifts[3] = {bytes_of(&list[i]) - 4, 4, 0};
    for (int j = 0; j < count; ++j) {
      if (j == i) continue;
      for (size_t s = 0; s < COUNT(shifts); ++s) {
        if (shifts[s] >= bytes_of(&list[i])) continue;
        attikos_status const got = call(context, f, list, count, j, at + shifts[s], -1);
        if (shifts[s] == 0 && list[j].may_be == i) {
          CHECK_STATUS(got, ATTIKOS_SUCCESS);
        } else {
          expect(got, ATTIKOS_INVALID_ARGUMENT, operation, list[i].name, list[j].name, shifts[s]);
        }
      }
    }
  }
}
#define CHECK_CALL(operation, f, list) check(context, operation, f, list, (int)COUNT(list))

/* --- products ----------------------------------------------------------------------------------- */

static attikos_status gemm(attikos_context* context, attikos_tensor const* t) {
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.bias = &t[3], o.residual = &t[4], o.pre_activation = &t[5], o.device_scale = &t[6];
  return attikos_gemm(context, &t[0], &t[1], &t[2], &o);
}
static attikos_status scaled_gemm(attikos_context* context, attikos_tensor const* t) {
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.scale_a = &t[3], o.scale_b = &t[4], o.scale_out = &t[5], o.zero_point_a = &t[6], o.zero_point_b = &t[7];
  return attikos_gemm(context, &t[0], &t[1], &t[2], &o);
}
static attikos_status grouped_gemm(attikos_context* context, attikos_tensor const* t) {
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.group_offsets = &t[3];
  return attikos_gemm(context, &t[0], &t[1], &t[2], &o);
}
static attikos_status masked_gemm(attikos_context* context, attikos_tensor const* t) {
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.row_counts = &t[3];
  return attikos_gemm(context, &t[0], &t[1], &t[2], &o);
}
static attikos_status gemm_backward(attikos_context* context, attikos_tensor const* t) {
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.activation = ATTIKOS_ACTIVATION_RELU, o.pre_activation = &t[3];
  attikos_gemm_gradients g = ATTIKOS_GEMM_GRADIENTS_INIT;
  g.da = &t[4], g.db = &t[5], g.d_bias = &t[6], g.d_c = &t[7];
  return attikos_gemm_backward(context, &t[0], &t[1], &t[2], &g, &o);
}
static attikos_status gated_mlp(attikos_context* context, attikos_tensor const* t) {
  return attikos_gated_mlp(context, &t[0], &t[1], &t[2], &t[3], ATTIKOS_ACTIVATION_SILU);
}
static attikos_status gated_mlp_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_gated_mlp_backward(context, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6],
                                    ATTIKOS_ACTIVATION_SILU);
}

static void test_products(attikos_context* context) {
  argument const plain[] = {IN("A", 2, 3, 4),    IN("B", 2, 4, 5),
                            OUT("C", 2, 3, 5),   IN("bias", 1, 5),
                            MAY_BE("residual", 2, 2, 3, 5), OUT("pre_activation", 2, 3, 5),
                            IN("device_scale", 1, 1)};
  CHECK_CALL("gemm", gemm, plain);
  argument const scaled[] = {{"A", ATTIKOS_INT8, 0, -1, 2, {3, 16}}, {"B", ATTIKOS_INT8, 0, -1, 2, {16, 8}},
                             {"C", ATTIKOS_INT8, 1, -1, 2, {3, 8}},  IN("scale_a", 2, 3, 1),
                             IN("scale_b", 2, 1, 8),                 IN("scale_out", 1, 1),
                             INT("zero_point_a", 1, 1),              INT("zero_point_b", 1, 8)};
  CHECK_CALL("gemm", scaled_gemm, scaled);
  argument const grouped[] = {IN("A", 2, 6, 4), IN("B", 3, 2, 4, 5), OUT("C", 2, 6, 5), INT("grouped()", 1, 3)};
  CHECK_CALL("gemm", grouped_gemm, grouped);
  argument const masked[] = {IN("A", 3, 2, 3, 4), IN("B", 3, 2, 4, 5), OUT("C", 3, 2, 3, 5), INT("masked()", 1, 2)};
  CHECK_CALL("gemm", masked_gemm, masked);
  argument const backward[] = {IN("A", 2, 3, 4),   IN("B", 2, 4, 5),          IN("dout", 2, 3, 5),
                               IN("pre_activation", 2, 3, 5), OUT("da", 2, 3, 4), OUT("db", 2, 4, 5),
                               OUT("bias_gradient", 1, 5),    OUT("c_gradient", 2, 3, 5)};
  CHECK_CALL("gemm_backward", gemm_backward, backward);
  argument const mlp[] = {IN("x", 2, 3, 8), IN("gate_weight", 2, 6, 8), IN("up_weight", 2, 6, 8), OUT("out", 2, 3, 6)};
  CHECK_CALL("gated_mlp", gated_mlp, mlp);
  argument const mlp_backward[] = {IN("x", 2, 3, 8),    IN("gate_weight", 2, 6, 8),   IN("up_weight", 2, 6, 8),
                                   IN("dout", 2, 3, 6), OUT("dx", 2, 3, 8),           OUT("dgate_weight", 2, 6, 8),
                                   OUT("dup_weight", 2, 6, 8)};
  CHECK_CALL("gated_mlp_backward", gated_mlp_backward, mlp_backward);
}

/* --- attention and caches ----------------------------------------------------------------------- */

static attikos_status attention(attikos_context* context, attikos_tensor const* t) {
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  o.lengths_q = &t[5], o.lengths_kv = &t[6], o.bias = &t[7], o.mask = &t[8], o.alibi_slopes = &t[9], o.sinks = &t[10];
  return attikos_attention(context, &t[0], &t[1], &t[2], &t[3], &t[4], &o);
}
static attikos_status packed_attention(attikos_context* context, attikos_tensor const* t) {
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  o.cu_seqlens_q = &t[4], o.cu_seqlens_kv = &t[5];
  return attikos_attention(context, &t[0], &t[1], &t[2], &t[3], NULL, &o);
}
static attikos_status float8_attention(attikos_context* context, attikos_tensor const* t) {
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  o.page_table = &t[4], o.descale_q = &t[5], o.descale_k = &t[6], o.descale_v = &t[7];
  return attikos_attention(context, &t[0], &t[1], &t[2], &t[3], NULL, &o);
}
static attikos_status decode(attikos_context* context, attikos_tensor const* t) {
  attikos_decode_options o = ATTIKOS_DECODE_OPTIONS_INIT;
  o.lengths_kv = &t[5];
  return attikos_decode(context, &t[0], &t[1], &t[2], &t[3], &t[4], &o);
}
static attikos_status attention_backward(attikos_context* context, attikos_tensor const* t) {
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  o.bias = &t[9], o.sinks = &t[11];
  attikos_attention_gradients g = ATTIKOS_ATTENTION_GRADIENTS_INIT;
  g.dq = &t[6], g.dk = &t[7], g.dv = &t[8], g.d_bias = &t[10];
  return attikos_attention_backward(context, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &g, &o);
}
static attikos_status sinks_backward(attikos_context* context, attikos_tensor const* t) {
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  o.sinks = &t[9];
  attikos_attention_gradients g = ATTIKOS_ATTENTION_GRADIENTS_INIT;
  g.dq = &t[6], g.dk = &t[7], g.dv = &t[8], g.d_sinks = &t[10];
  return attikos_attention_backward(context, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &g, &o);
}
static attikos_status append_kv(attikos_context* context, attikos_tensor const* t) {
  attikos_append_kv_options o = ATTIKOS_APPEND_KV_OPTIONS_INIT;
  o.rotary_cos = &t[4], o.rotary_sin = &t[5], o.q = &t[6], o.q_out = &t[7], o.cache_lengths = &t[8];
  o.new_lengths = &t[9];
  return attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &o);
}
static attikos_status packed_append_kv(attikos_context* context, attikos_tensor const* t) {
  attikos_append_kv_options o = ATTIKOS_APPEND_KV_OPTIONS_INIT;
  o.page_table = &t[4], o.cu_seqlens_kv = &t[5];
  return attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &o);
}
static attikos_status merge_states(attikos_context* context, attikos_tensor const* t) {
  return attikos_merge_states(context, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5]);
}
static attikos_status merge_split_states(attikos_context* context, attikos_tensor const* t) {
  return attikos_merge_split_states(context, &t[0], &t[1], &t[2], &t[3]);
}

static void test_attention(attikos_context* context) {
  argument const padded[] = {IN("q", 4, 1, 4, 3, 4),      IN("k", 4, 1, 2, 5, 4), IN("v", 4, 1, 2, 5, 4),
                             OUT("out", 4, 1, 4, 3, 4),   OUT("lse", 3, 1, 4, 3), INT("lengths of q", 1, 1),
                             INT("lengths of kv", 1, 1),  IN("bias", 2, 3, 5),    {"mask", ATTIKOS_BOOL, 0, -1, 2, {3, 5}},
                             IN("alibi", 1, 4),           IN("sinks", 1, 4)};
  CHECK_CALL("attention", attention, padded);
  argument const packed[] = {IN("q", 3, 4, 6, 4),    IN("k", 3, 2, 10, 4),        IN("v", 3, 2, 10, 4),
                             OUT("out", 3, 4, 6, 4), INT("cu_seqlens of q", 1, 3), INT("cu_seqlens of kv", 1, 3)};
  CHECK_CALL("attention", packed_attention, packed);
  argument const float8[] = {{"q", ATTIKOS_FLOAT8_E4M3, 0, -1, 4, {2, 2, 3, 4}},
                             {"k", ATTIKOS_FLOAT8_E4M3, 0, -1, 4, {3, 2, 4, 4}},
                             {"v", ATTIKOS_FLOAT8_E4M3, 0, -1, 4, {3, 2, 4, 4}},
                             OUT("out", 4, 2, 2, 3, 4),
                             INT("page table", 2, 2, 3),
                             IN("descale of q", 1, 1),
                             IN("descale of k", 2, 2, 2),
                             IN("descale of v", 1, 2)};
  CHECK_CALL("attention", float8_attention, float8);
  argument const decoded[] = {IN("q", 4, 1, 4, 1, 4),    IN("k", 4, 1, 2, 20, 4), IN("v", 4, 1, 2, 20, 4),
                              OUT("out", 4, 1, 4, 1, 4), OUT("lse", 3, 1, 4, 1),  INT("lengths of kv", 1, 1)};
  CHECK_CALL("decode", decode, decoded);
  argument const backward[] = {IN("q", 4, 1, 4, 3, 4),   IN("k", 4, 1, 2, 5, 4),    IN("v", 4, 1, 2, 5, 4),
                               IN("out", 4, 1, 4, 3, 4), IN("lse", 3, 1, 4, 3),     IN("dout", 4, 1, 4, 3, 4),
                               OUT("dq", 4, 1, 4, 3, 4), OUT("dk", 4, 1, 2, 5, 4),  OUT("dv", 4, 1, 2, 5, 4),
                               IN("bias", 2, 3, 5),      OUT("d_bias", 2, 3, 5),    IN("sinks", 1, 4)};
  CHECK_CALL("attention_backward", attention_backward, backward);
  argument const of_sinks[] = {IN("q", 4, 1, 4, 3, 4),   IN("k", 4, 1, 2, 5, 4),   IN("v", 4, 1, 2, 5, 4),
                               IN("out", 4, 1, 4, 3, 4), IN("lse", 3, 1, 4, 3),    IN("dout", 4, 1, 4, 3, 4),
                               OUT("dq", 4, 1, 4, 3, 4), OUT("dk", 4, 1, 2, 5, 4), OUT("dv", 4, 1, 2, 5, 4),
                               IN("sinks", 1, 4),        OUT("d_sinks", 1, 4)};
  CHECK_CALL("attention_backward", sinks_backward, of_sinks);
}

static void test_caches(attikos_context* context) {
  argument const padded[] = {IN("k_new", 4, 2, 2, 3, 4),         IN("v_new", 4, 2, 2, 3, 4),
                             OUT("k_cache", 4, 2, 2, 9, 4),      OUT("v_cache", 4, 2, 2, 9, 4),
                             IN("cos", 2, 20, 4),                IN("sin", 2, 20, 4),
                             MAY_BE("q", 7, 4, 2, 4, 3, 4),      OUT("out of queries", 4, 2, 4, 3, 4),
                             INT("cache_lengths", 1, 2),         INT("new_lengths", 1, 2)};
  CHECK_CALL("append_kv", append_kv, padded);
  argument const packed[] = {IN("k_new", 3, 2, 6, 4),       IN("v_new", 3, 2, 6, 4),  OUT("k_cache", 4, 5, 2, 4, 4),
                             OUT("v_cache", 4, 5, 2, 4, 4), INT("page table", 2, 2, 2), INT("cu_seqlens of kv", 1, 3)};
  CHECK_CALL("append_kv", packed_append_kv, packed);
  argument const two[] = {MAY_BE("out_a", 4, 4, 2, 4, 3, 4), MAY_BE("lse_a", 5, 3, 2, 4, 3),
                          MAY_BE("out_b", 4, 4, 2, 4, 3, 4), MAY_BE("lse_b", 5, 3, 2, 4, 3),
                          OUT("out", 4, 2, 4, 3, 4),         OUT("lse", 3, 2, 4, 3)};
  CHECK_CALL("merge_states", merge_states, two);
  argument const splits[] = {MAY_BE("outs", 2, 5, 2, 1, 4, 3, 4), MAY_BE("lses", 3, 4, 2, 1, 4, 3), /* its first one */
                             OUT("out", 4, 1, 4, 3, 4), OUT("lse", 3, 1, 4, 3)};
  CHECK_CALL("merge_states", merge_split_states, splits);
}

/* --- rows, heads, 8-bit elements ---------------------------------------------------------------- */

static attikos_status softmax(attikos_context* context, attikos_tensor const* t) {
  return attikos_softmax(context, &t[0], &t[1], 1);
}
static attikos_status log_softmax(attikos_context* context, attikos_tensor const* t) {
  return attikos_log_softmax(context, &t[0], &t[1], 1);
}
static attikos_status l2_normalize(attikos_context* context, attikos_tensor const* t) {
  return attikos_l2_normalize(context, &t[0], &t[1], 1e-6);
}
static attikos_status rms_norm(attikos_context* context, attikos_tensor const* t) {
  return attikos_rms_norm(context, &t[0], &t[2], &t[1], 1e-6);
}
static attikos_status layer_norm(attikos_context* context, attikos_tensor const* t) {
  return attikos_layer_norm(context, &t[0], &t[2], &t[3], &t[1], 1e-6);
}
static attikos_status softmax_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_softmax_backward(context, &t[0], &t[1], &t[2], 1);
}
static attikos_status log_softmax_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_log_softmax_backward(context, &t[0], &t[1], &t[2], 1);
}
static attikos_status l2_normalize_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_l2_normalize_backward(context, &t[0], &t[1], &t[2], 1e-6);
}
static attikos_status rms_norm_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_rms_norm_backward(context, &t[0], &t[3], &t[1], &t[2], &t[4], 1e-6);
}
static attikos_status layer_norm_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_layer_norm_backward(context, &t[0], &t[3], &t[1], &t[2], &t[4], &t[5], 1e-6);
}
static attikos_status mean_pool(attikos_context* context, attikos_tensor const* t) {
  return attikos_mean_pool(context, &t[0], &t[2], &t[1]);
}
static attikos_status mean_pool_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_mean_pool_backward(context, &t[0], &t[2], &t[1]);
}
static attikos_status rope(attikos_context* context, attikos_tensor const* t) {
  attikos_rope_options o = ATTIKOS_ROPE_OPTIONS_INIT;
  o.positions = &t[4];
  return attikos_rope(context, &t[0], &t[2], &t[3], &t[1], &o);
}
static attikos_status rope_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_rope_backward(context, &t[0], &t[2], &t[3], &t[1], NULL);
}
static attikos_status rms_norm_rope(attikos_context* context, attikos_tensor const* t) {
  return attikos_rms_norm_rope(context, &t[0], &t[4], &t[2], &t[3], &t[1], NULL);
}
static attikos_status rms_norm_rope_backward(attikos_context* context, attikos_tensor const* t) {
  return attikos_rms_norm_rope_backward(context, &t[0], &t[3], &t[4], &t[5], &t[1], &t[2], &t[6], NULL);
}
static attikos_status quantize(attikos_context* context, attikos_tensor const* t) {
  return attikos_quantize(context, &t[0], &t[1], &t[2]);
}
static attikos_status quantize_with_scale(attikos_context* context, attikos_tensor const* t) {
  return attikos_quantize_with_scale(context, &t[0], &t[2], &t[1]);
}
static attikos_status dequantize(attikos_context* context, attikos_tensor const* t) {
  return attikos_dequantize(context, &t[0], &t[2], &t[1]);
}

static void test_rows(attikos_context* context) {
  argument const row[] = {MAY_BE("x", 1, 2, 4, 8), OUT("out", 2, 4, 8), IN("weight", 1, 8), IN("bias", 1, 8)};
  check(context, "softmax", softmax, row, 2);
  check(context, "log_softmax", log_softmax, row, 2);
  check(context, "l2_normalize", l2_normalize, row, 2);
  check(context, "rms_norm", rms_norm, row, 3);
  check(context, "layer_norm", layer_norm, row, 4);
  argument gradient[] = {MAY_BE("out", 2, 2, 4, 8), MAY_BE("dout", 2, 2, 4, 8), OUT("dx", 2, 4, 8),
                         IN("weight", 1, 8),        OUT("dweight", 1, 8),       OUT("dbias", 1, 8)};
  check(context, "softmax_backward", softmax_backward, gradient, 3);
  check(context, "log_softmax_backward", log_softmax_backward, gradient, 3);
  gradient[0].name = "x";
  check(context, "l2_normalize_backward", l2_normalize_backward, gradient, 3);
  check(context, "rms_norm_backward", rms_norm_backward, gradient, 5);
  check(context, "layer_norm_backward", layer_norm_backward, gradient, 6);
  argument const pool[] = {IN("x", 3, 2, 5, 8), OUT("out", 2, 2, 8), INT("lengths", 1, 2)};
  CHECK_CALL("mean_pool", mean_pool, pool);
  argument const pool_gradient[] = {IN("dout", 2, 2, 8), OUT("dx", 3, 2, 5, 8), INT("lengths", 1, 2)};
  CHECK_CALL("mean_pool_backward", mean_pool_backward, pool_gradient);
}

static void test_heads_and_quantization(attikos_context* context) {
  argument heads[] = {MAY_BE("x", 1, 4, 2, 3, 4, 8), OUT("out", 4, 2, 3, 4, 8), IN("cos", 2, 9, 8),
                      IN("sin", 2, 9, 8),            INT("positions", 1, 2)};
  check(context, "rope", rope, heads, 5);
  heads[0].name = "dout", heads[1].name = "dx";
  check(context, "rope_backward", rope_backward, heads, 4);
  argument const both[] = {MAY_BE("x", 1, 3, 2, 4, 16), OUT("out", 3, 2, 4, 16), IN("cos", 2, 9, 8),
                           IN("sin", 2, 9, 8),          IN("weight", 1, 16)};
  CHECK_CALL("rms_norm_rope", rms_norm_rope, both);
  argument const gradient[] = {MAY_BE("x", 2, 3, 2, 4, 16), MAY_BE("dout", 2, 3, 2, 4, 16), OUT("dx", 3, 2, 4, 16),
                               IN("weight", 1, 16),         IN("cos", 2, 9, 8),             IN("sin", 2, 9, 8),
                               OUT("dweight", 1, 16)};
  CHECK_CALL("rms_norm_rope_backward", rms_norm_rope_backward, gradient);
  argument const found[] = {IN("x", 2, 4, 16), {"out", ATTIKOS_FLOAT8_E4M3, 1, -1, 2, {4, 16}}, OUT("scale", 2, 4, 1)};
  CHECK_CALL("quantize", quantize, found);
  argument const given[] = {IN("x", 2, 4, 16), {"out", ATTIKOS_INT8, 1, -1, 2, {4, 16}}, IN("scale", 2, 4, 1)};
  CHECK_CALL("quantize_with_scale", quantize_with_scale, given);
  argument const back[] = {{"x", ATTIKOS_INT8, 0, -1, 2, {4, 16}}, OUT("out", 2, 4, 16), IN("scale", 2, 4, 1)};
  CHECK_CALL("dequantize", dequantize, back);
}

/* Functions on raw pointers have an error of their own for it. */
static void test_raw_attention(void) {
  float x[6][4], lse[4];
  memset(x, 0, sizeof x);
  fill(lse, 4, -1);
  CHECK(attikos_attention_forward_f32(x[0], x[1], x[2], x[2], lse, 1, 1, 2, 2, 1, false, NULL) ==
        ATTIKOS_FA_INVALID_ARGUMENT);
  CHECK(attikos_attention_forward_f32(x[0], x[1], x[2], x[3], x[3], 1, 1, 2, 2, 1, false, NULL) ==
        ATTIKOS_FA_INVALID_ARGUMENT);
  CHECK(attikos_attention_backward_f32(x[0], x[1], x[2], x[3], lse, x[4], x[5], x[5], lse, 1, 1, 2, 2, 1, false,
                                       NULL) == ATTIKOS_FA_INVALID_ARGUMENT);
  CHECK(all_are(lse, 4, -1) && all_are(x[0], 24, 0));
}

int main(void) {
  attikos_context* context = NULL;
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &context), ATTIKOS_SUCCESS);
  if (context == NULL) return 1;
  test_products(context);
  test_attention(context);
  test_caches(context);
  test_rows(context);
  test_heads_and_quantization(context);
  test_raw_attention();
  attikos_context_destroy(context);
  if (failures != 0) printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
