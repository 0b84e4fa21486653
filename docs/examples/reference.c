/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 */
/* A short example of each operation for the reference
 * page of C; a test runs it. */
#include <attikos/attikos.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* [helpers] */
static void must(attikos_status status) {
  if (status == ATTIKOS_SUCCESS) return;
  fprintf(stderr, "%s: %s\n",
          attikos_status_string(status),
          attikos_last_error());
  exit(1);
}

/* A dense array of ones with up to four extents; those
 * that are 0 are left out. */
typedef struct array {
  int64_t shape[4];
  attikos_tensor tensor;
} array;

static attikos_tensor* make(array* a, attikos_dtype dtype,
                            int64_t n0, int64_t n1,
                            int64_t n2, int64_t n3) {
  int64_t const shape[] = {n0, n1, n2, n3};
  size_t count = 1;
  int rank = 0;
  while (rank < 4 && shape[rank] > 0) {
    a->shape[rank] = shape[rank];
    count *= (size_t)shape[rank++];
  }
  void* data = calloc(count, attikos_dtype_size(dtype));
  for (size_t i = 0; i < count; ++i) {
    if (dtype == ATTIKOS_FLOAT32) ((float*)data)[i] = 1;
    if (dtype == ATTIKOS_INT32) ((int32_t*)data)[i] = 1;
  }
  a->tensor = (attikos_tensor){data, (int32_t)dtype, rank,
                               a->shape, NULL};
  return &a->tensor;
}
/* [helpers] */

#define F32(name, ...)         \
  array name##_memory;         \
  attikos_tensor* const name = \
      make(&name##_memory, ATTIKOS_FLOAT32, __VA_ARGS__)
#define I32(name, ...)         \
  array name##_memory;         \
  attikos_tensor* const name = \
      make(&name##_memory, ATTIKOS_INT32, __VA_ARGS__)

static float first(attikos_tensor const* x) {
  return ((float const*)x->data)[0];
}

static void expect(float found, double wanted,
                   char const* what) {
  if (fabs(found - wanted) < 1e-4 * (1 + fabs(wanted)))
    return;
  fprintf(stderr, "%s: %g and not %g\n", what,
          (double)found, wanted);
  exit(1);
}

static void devices(attikos_context* context) {
  /* [devices] */
  printf("version %s (%d), %d CUDA devices, %s\n",
         attikos_version_string(), attikos_version(),
         (int)attikos_cuda_device_count(),
         attikos_dtype_name(ATTIKOS_BFLOAT16));
  if (attikos_has_device(ATTIKOS_HOST, 0)) {
    attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
    must(attikos_get_device_info(ATTIKOS_HOST, 0, &info));
  }
  /* Memory of the context's device, here of the host */
  float numbers[4] = {1, 2, 3, 4};
  void* memory;
  must(
      attikos_allocate(context, sizeof numbers, &memory));
  must(attikos_copy(context, memory, numbers,
                    sizeof numbers));
  if (!attikos_is_capturing(context))
    must(attikos_synchronize(context));
  must(attikos_free(context, memory));

  char text[4096]; /* which kernels there are, what
                      options mean */
  size_t length;
  must(attikos_list_kernels("gemm", text, sizeof text,
                            &length));
  must(attikos_describe_options("decode", NULL, 0,
                                &length));
  /* [devices] */
  if (strstr(text, "portable") == NULL || length == 0)
    exit(1);
}

static void products(attikos_context* context) {
  F32(a, 64, 96, 0, 0);
  F32(b, 80, 96, 0, 0);
  F32(c, 64, 80, 0, 0);
  F32(bias, 80, 0, 0, 0);
  F32(before, 64, 80, 0, 0);
  F32(dout, 64, 80, 0, 0);
  F32(da, 64, 96, 0, 0);
  F32(db, 80, 96, 0, 0);
  /* [products] */
  /* c = relu(2 a transpose(b) + bias), and its gradients
   */
  attikos_gemm_options options =
      ATTIKOS_GEMM_OPTIONS_INIT;
  options.alpha = 2;
  options.trans_b = 1;
  options.activation = ATTIKOS_ACTIVATION_RELU;
  options.bias = bias;
  options.pre_activation = before;
  must(attikos_gemm(context, a, b, c, &options));

  attikos_gemm_gradients gradients =
      ATTIKOS_GEMM_GRADIENTS_INIT;
  gradients.da = da;
  gradients.db = db;
  must(attikos_gemm_backward(context, a, b, dout,
                             &gradients, &options));

  char text[1024];
  size_t length;
  must(attikos_explain_gemm(context, a, b, c, &options,
                            text, sizeof text, &length));
  /* [products] */
  expect(first(c), 2 * 96 + 1, "gemm");
  expect(first(da), 2 * 80, "gemm_backward: da");
  expect(first(db), 2 * 64, "gemm_backward: db");
  if (strncmp(text, "runs ", 5) != 0) exit(1);

  F32(x, 64, 128, 0, 0);
  F32(gate, 256, 128, 0, 0);
  F32(up, 256, 128, 0, 0);
  F32(out, 64, 256, 0, 0);
  F32(dy, 64, 256, 0, 0);
  F32(dx, 64, 128, 0, 0);
  F32(dgate, 256, 128, 0, 0);
  F32(dup, 256, 128, 0, 0);
  F32(gates, 64, 256, 0, 0);
  F32(ups, 64, 256, 0, 0);
  /* [gated_mlp] */
  /* out = silu(x transpose(gate)) * (x transpose(up)) */
  must(attikos_gated_mlp(context, x, gate, up, out,
                         ATTIKOS_ACTIVATION_SILU));
  must(attikos_gated_mlp_backward(
      context, x, gate, up, dy, dx, dgate, dup,
      ATTIKOS_ACTIVATION_SILU));
  must(attikos_explain_gated_mlp(
      context, x, gate, up, out, ATTIKOS_ACTIVATION_SILU,
      text, sizeof text, &length));

  /* The same in four products and not six, where both of
   * the forward call are kept */
  must(attikos_gated_mlp_keep(context, x, gate, up, out,
                              gates, ups,
                              ATTIKOS_ACTIVATION_SILU));
  must(attikos_gated_mlp_backward_kept(
      context, x, gate, up, dy, gates, ups, dx, dgate, dup,
      ATTIKOS_ACTIVATION_SILU));
  /* [gated_mlp] */
  expect(first(out), 128. * 128, "gated_mlp");
  expect(first(gates), 128, "gated_mlp_keep: gate");
  expect(first(dup), 64 * 128, "gated_mlp_backward: dup");
}

static void packed(attikos_context* context) {
  F32(b, 512, 96, 0, 0);
  F32(x, 8, 96, 0, 0);
  F32(y, 8, 512, 0, 0);
  /* [packed] */
  /* Weights of a layer, packed once for all calls on a
   * host */
  size_t bytes;
  must(attikos_pack_b_size(context, b, 1, &bytes));
  void* memory;
  must(attikos_allocate(context, bytes, &memory));
  int64_t const size[] = {(int64_t)bytes};
  attikos_tensor const layer = {memory, ATTIKOS_UINT8, 1,
                                size, NULL};
  must(attikos_pack_b(context, b, 1, &layer));

  attikos_gemm_options options =
      ATTIKOS_GEMM_OPTIONS_INIT;
  options.trans_b = 1;
  options.packed_b = &layer;
  must(attikos_gemm(context, x, b, y, &options));
  /* [packed] */
  must(attikos_free(context, memory));
  expect(first(y), 96, "gemm of a packed b");
}

static void attention(attikos_context* context) {
  F32(q, 2, 8, 100, 64);
  F32(k, 2, 2, 100, 64);
  F32(v, 2, 2, 100, 64);
  F32(out, 2, 8, 100, 64);
  F32(lse, 2, 8, 100, 0);
  F32(dq, 2, 8, 100, 64);
  F32(dk, 2, 2, 100, 64);
  F32(dv, 2, 2, 100, 64);
  I32(lengths, 2, 0, 0, 0);
  ((int32_t*)lengths->data)[1] = 100;
  /* [attention] */
  /* Padded sequences, a window, and the gradients */
  attikos_attention_options options =
      ATTIKOS_ATTENTION_OPTIONS_INIT;
  options.causal = 1;
  options.window_left = 32;
  options.lengths_q = options.lengths_kv = lengths;
  must(attikos_attention(context, q, k, v, out, lse,
                         &options));

  attikos_attention_gradients gradients =
      ATTIKOS_ATTENTION_GRADIENTS_INIT;
  gradients.dq = dq;
  gradients.dk = dk;
  gradients.dv = dv;
  must(attikos_attention_backward(context, q, k, v, out,
                                  lse, out, &gradients,
                                  &options));

  char text[1024];
  size_t length;
  must(attikos_explain_attention(context, q, k, v, out,
                                 lse, &options, text,
                                 sizeof text, &length));
  must(attikos_explain_attention_backward(
      context, q, k, v, out, lse, out, &gradients,
      &options, text, sizeof text, &length));
  /* [attention] */
  expect(first(out), 1, "attention");
  expect(first(lse), 8,
         "the log-sum-exp of one score of 64/8");
  expect(first(dv), 4,
         "attention_backward: four heads share a key");

  F32(out_b, 2, 8, 100, 64);
  F32(lse_b, 2, 8, 100, 0);
  F32(outs, 3, 2, 8, 100);
  F32(lses, 3, 2, 8, 0);
  F32(merged, 2, 8, 100, 64);
  F32(joined, 2, 8, 100, 0);
  /* [merge] */
  /* Attention over two sets of keys as one; of more,
   * stacked */
  must(attikos_merge_states(context, out, lse, out_b,
                            lse_b, merged, joined));
  /* [merge] */
  expect(first(joined), 8 + log(1 + exp(-7.)),
         "merge_states");
  F32(one, 2, 8, 100, 0);
  F32(sum, 2, 8, 0, 0);
  /* [merge_split] */
  must(attikos_merge_split_states(context, outs, lses,
                                  one, sum));
  /* [merge_split] */
  expect(first(sum), 1 + log(3.), "merge_split_states");
}

static void caches(attikos_context* context) {
  F32(k_cache, 12, 2, 16, 64);
  F32(v_cache, 12, 2, 16, 64);
  F32(k_new, 3, 2, 1, 64);
  F32(v_new, 3, 2, 1, 64);
  F32(q, 3, 8, 1, 64);
  F32(out, 3, 8, 1, 64);
  I32(table, 3, 4, 0, 0);
  I32(used, 3, 0, 0, 0);
  I32(after, 3, 0, 0, 0);
  for (int i = 0; i < 12; ++i)
    ((int32_t*)table->data)[i] = i;
  for (int i = 0; i < 3; ++i)
    ((int32_t*)after->data)[i] = 2;
  for (int i = 0; i < 3 * 2 * 64; ++i)
    ((float*)v_new->data)[i] = 3;
  /* [caches] */
  /* A paged cache of three sequences: append a token to
   * each, then attend to all */
  attikos_append_kv_options appended =
      ATTIKOS_APPEND_KV_OPTIONS_INIT;
  appended.cache_lengths = used;
  appended.page_table = table;
  must(attikos_append_kv(context, k_new, v_new, k_cache,
                         v_cache, &appended));

  attikos_decode_options options =
      ATTIKOS_DECODE_OPTIONS_INIT;
  options.page_table = table;
  options.lengths_kv = after;
  must(attikos_decode(context, q, k_cache, v_cache, out,
                      NULL, &options));

  char text[1024];
  size_t length;
  must(attikos_explain_append_kv(
      context, k_new, v_new, k_cache, v_cache, &appended,
      text, sizeof text, &length));
  must(attikos_explain_decode(
      context, q, k_cache, v_cache, out, NULL, &options,
      text, sizeof text, &length));
  /* [caches] */
  expect(first(out), 2,
         "the mean of an old 1 and a new 3");
  expect(((float*)v_cache->data)[64], 3, "append_kv");
}

static void rows(attikos_context* context) {
  F32(x, 128, 512, 0, 0);
  F32(y, 128, 512, 0, 0);
  F32(weight, 512, 0, 0, 0);
  F32(bias, 512, 0, 0, 0);
  F32(dout, 128, 512, 0, 0);
  F32(dx, 128, 512, 0, 0);
  F32(dweight, 512, 0, 0, 0);
  F32(dbias, 512, 0, 0, 0);
  F32(stream, 128, 512, 0, 0);
  F32(dstream, 128, 512, 0, 0);
  /* [rows] */
  must(attikos_rms_norm(context, x, weight, y, 1e-6));
  must(attikos_rms_norm_backward(context, x, weight, dout,
                                 dx, dweight, 1e-6));
  must(attikos_layer_norm(context, x, weight, bias, y,
                          1e-5));
  must(attikos_layer_norm_backward(context, x, weight,
                                   dout, dx, dweight,
                                   dbias, 1e-5));

  /* stream += x and y = norm(stream); on the way back dx
   * has the gradient that went past the norm, too */
  must(attikos_rms_norm_residual(context, x, stream, weight,
                                 stream, y, 1e-6));
  must(attikos_rms_norm_backward_residual(
      context, stream, weight, dout, dstream, dx, dweight,
      1e-6));
  must(attikos_layer_norm_residual(context, x, stream,
                                   weight, bias, stream, y,
                                   1e-5));
  must(attikos_layer_norm_backward_residual(
      context, stream, weight, dout, dstream, dx, dweight,
      dbias, 1e-5));

  must(attikos_l2_normalize(context, x, y, 1e-12));
  must(attikos_l2_normalize_backward(context, x, dout, dx,
                                     1e-12));
  must(attikos_log_softmax(context, x, y, 1));
  must(attikos_log_softmax_backward(context, y, dout, dx,
                                    1));
  must(attikos_softmax(context, x, y, 1));
  must(attikos_softmax_backward(context, y, dout, dx, 1));
  /* [rows] */
  expect(first(dbias), 128, "layer_norm_backward: dbias");
  expect(first(stream), 3, "layer_norm_residual: sum");
  expect(first(y), 1. / 512, "softmax");

  F32(logits, 10, 32, 0, 0);
  I32(labels, 10, 0, 0, 0);
  F32(loss, 10, 0, 0, 0);
  F32(lse, 10, 0, 0, 0);
  F32(dloss, 10, 0, 0, 0);
  F32(dlogits, 10, 32, 0, 0);
  F32(hidden, 10, 64, 0, 0);
  F32(classes, 32, 64, 0, 0);
  F32(dhidden, 10, 64, 0, 0);
  F32(dclasses, 32, 64, 0, 0);
  /* [losses] */
  must(attikos_cross_entropy(context, logits, labels,
                             loss, lse, 0, -100));
  must(attikos_cross_entropy_backward(context, logits,
                                      labels, lse, dloss,
                                      dlogits, 0, -100));
  /* The last layer, its loss and gradients, without the
   * logits */
  must(attikos_linear_cross_entropy(
      context, hidden, classes, labels, dloss, loss,
      dhidden, dclasses, 0, -100, 0));
  /* [losses] */
  expect(first(loss), log(32.), "linear_cross_entropy");
  expect(first(dlogits), 1. / 32,
         "cross_entropy_backward");

  F32(tokens, 2, 10, 64, 0);
  I32(lengths, 2, 0, 0, 0);
  F32(mean, 2, 64, 0, 0);
  F32(dtokens, 2, 10, 64, 0);
  F32(vocabulary, 1000, 64, 0, 0);
  I32(ids, 2, 10, 0, 0);
  F32(dvocabulary, 1000, 64, 0, 0);
  /* [tables] */
  must(attikos_embedding(context, vocabulary, ids,
                         tokens));
  must(attikos_embedding_backward(context, ids, dtokens,
                                  dvocabulary, -1, 0));
  must(attikos_mean_pool(context, tokens, lengths, mean));
  must(attikos_mean_pool_backward(context, mean, lengths,
                                  dtokens));
  /* [tables] */
  expect(((float*)dvocabulary->data)[64], 20,
         "embedding_backward");
  expect(first(mean), 1, "mean_pool");

  F32(q, 2, 8, 100, 64);
  F32(cos, 100, 64, 0, 0);
  F32(sin, 100, 64, 0, 0);
  F32(states, 2, 100, 512, 0);
  F32(dstates, 2, 100, 512, 0);
  /* [rope] */
  attikos_rope_options options =
      ATTIKOS_ROPE_OPTIONS_INIT;
  must(attikos_rope(context, q, cos, sin, q, &options));
  must(attikos_rope_backward(context, q, cos, sin, q,
                             &options));
  /* the norm and the rotation of heads of 64 in one pass
   */
  must(attikos_rms_norm_rope(context, states, weight, cos,
                             sin, states, &options));
  must(attikos_rms_norm_rope_backward(
      context, states, weight, cos, sin, dstates, dstates,
      dweight, &options));
  /* [rope] */
  expect(first(q), 2, "(1 - 1), (1 + 1) and back");

  array memory;
  attikos_tensor* codes =
      make(&memory, ATTIKOS_INT8, 128, 512, 0, 0);
  F32(scale, 128, 1, 0, 0);
  /* [quantize] */
  must(attikos_quantize(context, x, codes, scale));
  must(attikos_quantize_with_scale(context, x, scale,
                                   codes));
  must(attikos_dequantize(context, codes, scale, y));
  /* [quantize] */
  expect(first(y), 1, "dequantize");
  expect(first(scale), 1. / 127, "quantize");
}

static void optimizer(attikos_context* context) {
  F32(weight, 64, 32, 0, 0);
  F32(gradient, 64, 32, 0, 0);
  F32(exp_avg, 64, 32, 0, 0);
  F32(exp_avg_sq, 64, 32, 0, 0);
  memset(exp_avg->data, 0, 64 * 32 * sizeof(float));
  memset(exp_avg_sq->data, 0, 64 * 32 * sizeof(float));
  /* [optimizer] */
  /* The first step over a list of one parameter */
  attikos_tensor const* const parameters[] = {weight};
  attikos_tensor const* const gradients[] = {gradient};
  attikos_tensor const* const averages[] = {exp_avg};
  attikos_tensor const* const squares[] = {exp_avg_sq};
  must(attikos_adamw_step(context, 1, parameters,
                          gradients, averages, squares,
                          NULL, 1e-3, 0.9, 0.999, 1e-8,
                          0.01, 1.0, 1));
  /* [optimizer] */
  expect(first(weight), 1 - 1e-3 * 0.01 - 1e-3,
         "adamw_step");
}

int main(void) {
  attikos_context* context = NULL;
  must(attikos_context_create(ATTIKOS_HOST, 0, NULL,
                              &context));
  devices(context);
  products(context);
  packed(context);
  attention(context);
  caches(context);
  rows(context);
  optimizer(context);
  attikos_context_destroy(context);
  printf("all parts ran\n");
  return 0;
}
