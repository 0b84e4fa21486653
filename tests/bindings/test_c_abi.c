/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The C interface as a C program sees it: every kind of wrong argument has its status and leaves outputs
 * alone; right ones compute. Exact numbers: sums of small integers and powers of two. */
#include <attikos/attikos.h>
#include <attikos/compat/cuflash.h>

#include <math.h>
#include <stdlib.h>

#include "c_checks.h"

/* 2 x 3 times 3 x 2 */
static float a_data[6] = {1, 2, 3, 4, 5, 6};
static float b_data[6] = {7, 8, 9, 10, 11, 12};
static float c_data[4];
static float const product[4] = {58, 64, 139, 154};
static int64_t a_shape[2] = {2, 3};
static int64_t b_shape[2] = {3, 2};
static int64_t c_shape[2] = {2, 2};

static attikos_tensor a_tensor(void) { attikos_tensor t = {a_data, ATTIKOS_FLOAT32, 2, a_shape, NULL}; return t; }
static attikos_tensor b_tensor(void) { attikos_tensor t = {b_data, ATTIKOS_FLOAT32, 2, b_shape, NULL}; return t; }
static attikos_tensor c_tensor(void) { attikos_tensor t = {c_data, ATTIKOS_FLOAT32, 2, c_shape, NULL}; return t; }

static void poison(void) {
  for (int i = 0; i < 4; ++i) c_data[i] = -1.0f;
}
static int untouched(void) {
  for (int i = 0; i < 4; ++i)
    if (c_data[i] != -1.0f) return 0;
  return 1;
}

/* One gemm with wrong arguments: the status, a message, and C as it was. */
static void refuse(attikos_context* context, attikos_tensor const* a, attikos_tensor const* b,
                   attikos_tensor const* c, attikos_gemm_options const* options, attikos_status wanted,
                   char const* word, int line) {
  poison();
  attikos_status const got = attikos_gemm(context, a, b, c, options);
  if (got != wanted || strstr(attikos_last_error(), word) == NULL || !untouched()) {
    printf("line %d: got \"%s\" (%s), C %s; expected \"%s\" with \"%s\"\n", line, attikos_status_string(got),
           attikos_last_error(), untouched() ? "untouched" : "WRITTEN", attikos_status_string(wanted), word);
    ++failures;
  }
}
#define REFUSE(a, b, c, options, wanted, word) refuse(context, a, b, c, options, wanted, word, __LINE__)

static void test_versions(void) {
  CHECK(strcmp(attikos_missing_instructions(), "") == 0); /* or nothing of this would run */
  char text[32];
  int const v = attikos_version();
  snprintf(text, sizeof text, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  CHECK(strcmp(text, attikos_version_string()) == 0);
  CHECK(strcmp(attikos_status_string(ATTIKOS_SUCCESS), "success") == 0);
  CHECK(strcmp(attikos_status_string((attikos_status)999), "unknown status") == 0);
  CHECK(attikos_dtype_size(ATTIKOS_BFLOAT16) == 2 && attikos_dtype_size(ATTIKOS_BOOL) == 1);
  CHECK(attikos_dtype_size(-1) == 0 && attikos_dtype_size(ATTIKOS_BOOL + 1) == 0);
  CHECK(strcmp(attikos_dtype_name(ATTIKOS_FLOAT8_E4M3), "float8_e4m3") == 0);
  CHECK(strcmp(attikos_dtype_name(77), "unknown") == 0);
}

static void test_contexts(void) {
  attikos_context* context = NULL;
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, NULL), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_context_create(17, 0, NULL, &context), ATTIKOS_INVALID_ARGUMENT);
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 1, NULL, &context), ATTIKOS_DEVICE_ERROR);
  CHECK_STATUS(attikos_context_create(ATTIKOS_CUDA, 4711, NULL, &context), ATTIKOS_DEVICE_ERROR);
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, -1, NULL, &context), ATTIKOS_DEVICE_ERROR);
  CHECK(context == NULL);
  CHECK_STATUS(attikos_synchronize(NULL), ATTIKOS_NULL_ARGUMENT);
  CHECK(!attikos_is_capturing(NULL));
  attikos_context_destroy(NULL);
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &context), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_synchronize(context), ATTIKOS_SUCCESS);
  CHECK(!attikos_is_capturing(context));
  void* memory = NULL;
  CHECK_STATUS(attikos_allocate(context, 100, &memory), ATTIKOS_SUCCESS);
  CHECK(memory != NULL && (uintptr_t)memory % 64 == 0);
  CHECK_STATUS(attikos_copy(context, memory, "attikos", 8), ATTIKOS_SUCCESS);
  CHECK(strcmp(memory, "attikos") == 0);
  CHECK_STATUS(attikos_copy(context, NULL, "attikos", 8), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_free(context, memory), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_free(context, NULL), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_allocate(context, SIZE_MAX, &memory), ATTIKOS_OUT_OF_MEMORY);
  CHECK_STATUS(attikos_allocate(context, 8, NULL), ATTIKOS_NULL_ARGUMENT);
  attikos_context_destroy(context);

  attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
  CHECK_STATUS(attikos_get_device_info(ATTIKOS_HOST, 0, &info), ATTIKOS_SUCCESS);
  CHECK(info.architecture == ATTIKOS_ARCH_HOST && info.multiprocessors > 0 && info.total_memory > 0);
  CHECK(strlen(info.name) > 0 && strlen(info.simd) > 0 && strlen(info.host_isa) > 0);
  CHECK_STATUS(attikos_get_device_info(ATTIKOS_HOST, 0, NULL), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_get_device_info(ATTIKOS_HOST, 3, &info), ATTIKOS_DEVICE_ERROR);
  info.struct_size = 8;
  CHECK_STATUS(attikos_get_device_info(ATTIKOS_HOST, 0, &info), ATTIKOS_INVALID_STRUCT);
}

static void test_gemm(attikos_context* context) {
  attikos_tensor const a = a_tensor(), b = b_tensor(), c = c_tensor();
  poison();
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, NULL), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_synchronize(context), ATTIKOS_SUCCESS);
  CHECK(memcmp(c_data, product, sizeof product) == 0);

  float bias_data[2] = {1, -1};
  int64_t const bias_shape[1] = {2};
  attikos_tensor const bias = {bias_data, ATTIKOS_FLOAT32, 1, bias_shape, NULL};
  attikos_tensor const residual = c;
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.alpha = 2;
  o.scale = 0.5;
  o.bias = &bias;
  o.residual = &residual;
  o.activation = ATTIKOS_ACTIVATION_RELU;
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &o), ATTIKOS_SUCCESS); /* C holds the product */
  for (int i = 0; i < 4; ++i) CHECK(c_data[i] == 2 * product[i] + bias_data[i % 2]);

  /* the same A, read backwards and column by column */
  float reversed[6] = {6, 3, 5, 2, 4, 1};
  int64_t const strides[2] = {-1, -2};
  attikos_tensor const strided = {&reversed[5], ATTIKOS_FLOAT32, 2, a_shape, strides};
  poison();
  CHECK_STATUS(attikos_gemm(context, &strided, &b, &c, NULL), ATTIKOS_SUCCESS);
  CHECK(memcmp(c_data, product, sizeof product) == 0);

  int8_t const a8[6] = {1, 2, 3, 4, 5, 6}, b8[6] = {7, 8, 9, 10, 11, 12};
  int32_t c32[4] = {0, 0, 0, 0};
  attikos_tensor const ta = {(void*)(uintptr_t)a8, ATTIKOS_INT8, 2, a_shape, NULL};
  attikos_tensor const tb = {(void*)(uintptr_t)b8, ATTIKOS_INT8, 2, b_shape, NULL};
  attikos_tensor const tc = {c32, ATTIKOS_INT32, 2, c_shape, NULL};
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, NULL), ATTIKOS_SUCCESS);
  for (int i = 0; i < 4; ++i) CHECK(c32[i] == (int32_t)product[i]);
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_UNSUPPORTED);

  /* nothing to do, with null data */
  int64_t const none[2] = {0, 3}, no_rows[2] = {0, 2};
  attikos_tensor const empty = {NULL, ATTIKOS_FLOAT32, 2, none, NULL};
  attikos_tensor const nothing = {NULL, ATTIKOS_FLOAT32, 2, no_rows, NULL};
  CHECK_STATUS(attikos_gemm(context, &empty, &b, &nothing, NULL), ATTIKOS_SUCCESS);
}

static void test_wrong_arguments(attikos_context* context) {
  attikos_tensor const a = a_tensor(), b = b_tensor(), c = c_tensor();
  attikos_tensor t;
  refuse(NULL, &a, &b, &c, NULL, ATTIKOS_NULL_ARGUMENT, "context", __LINE__);
  REFUSE(NULL, &b, &c, NULL, ATTIKOS_NULL_ARGUMENT, "A is null");
  REFUSE(&a, NULL, &c, NULL, ATTIKOS_NULL_ARGUMENT, "B is null");
  REFUSE(&a, &b, NULL, NULL, ATTIKOS_NULL_ARGUMENT, "C is null");
  t = a, t.data = NULL;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_NULL_ARGUMENT, "data of A");
  t = a, t.shape = NULL;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_NULL_ARGUMENT, "shape");

  int64_t const negative[2] = {-2, 3};
  t = a, t.shape = negative;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_NEGATIVE_EXTENT, "extent -2");
  t = a, t.ndim = -1;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_NEGATIVE_EXTENT, "dimensions");
  t = a, t.ndim = 1;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_SHAPE_MISMATCH, "expected 2 or 3");

  int64_t const huge[2] = {(int64_t)1 << 40, (int64_t)1 << 40};
  t = a, t.shape = huge;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_OVERFLOW, "63");
  int64_t const far_strides[2] = {INT64_MAX / 4, 1};
  t = a, t.strides = far_strides; /* one step of 2^61 elements of 4 bytes */
  REFUSE(&t, &b, &c, NULL, ATTIKOS_OVERFLOW, "63");
  int64_t const backwards[2] = {INT64_MIN, 1};
  t = a, t.strides = backwards;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_OVERFLOW, "63");
  int64_t const both_ways[2] = {(int64_t)1 << 60, -((int64_t)1 << 60)}; /* either reach fits, not both */
  t = c, t.strides = both_ways;
  REFUSE(&a, &b, &t, NULL, ATTIKOS_OVERFLOW, "63");
  int64_t const broadcast[2] = {INT64_MAX, INT64_MAX}, no_steps[2] = {0, 0};
  t = a, t.shape = broadcast, t.strides = no_steps;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_OVERFLOW, "63");

  t = a, t.data = (char*)a_data + 1;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_MISALIGNED, "divisible by");
  t = c, t.data = (char*)c_data + 2;
  REFUSE(&a, &b, &t, NULL, ATTIKOS_MISALIGNED, "C begins");

  REFUSE(&a, &a, &c, NULL, ATTIKOS_SHAPE_MISMATCH, "k must match");
  t = b, t.dtype = ATTIKOS_FLOAT64;
  poison();
  REFUSE(&a, &t, &c, NULL, ATTIKOS_DTYPE_MISMATCH, "as in A");
  t = c, t.dtype = ATTIKOS_INT32;
  REFUSE(&a, &b, &t, NULL, ATTIKOS_DTYPE_MISMATCH, "C is");
  t = a, t.dtype = 1000;
  REFUSE(&t, &b, &c, NULL, ATTIKOS_INVALID_ARGUMENT, "attikos_dtype");
  int64_t const same_place[2] = {0, 1};
  t = c, t.strides = same_place;
  REFUSE(&a, &b, &t, NULL, ATTIKOS_INVALID_STRIDES, "stride 0");
  int64_t const folded[2] = {1, 1};
  t = c, t.strides = folded;
  REFUSE(&a, &b, &t, NULL, ATTIKOS_INVALID_STRIDES, "output C has extents [2, 2] and strides [1, 1]");
  t = c, t.data = a_data;
  REFUSE(&a, &b, &t, NULL, ATTIKOS_INVALID_ARGUMENT, "output C shares memory with A; expected memory of its own");

  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.alpha = NAN;
  REFUSE(&a, &b, &c, &o, ATTIKOS_INVALID_ARGUMENT, "alpha");
  o.alpha = 1;
  o.activation = 55;
  REFUSE(&a, &b, &c, &o, ATTIKOS_INVALID_ARGUMENT, "activation");
  o.activation = 0;
  o.kernel = "gemm/of_nobody";
  REFUSE(&a, &b, &c, &o, ATTIKOS_UNSUPPORTED, "of_nobody");
  o.kernel = NULL;
  t = b, t.dtype = ATTIKOS_INT8;
  o.bias = &t;
  REFUSE(&a, &b, &c, &o, ATTIKOS_SHAPE_MISMATCH, "bias has 2 dimensions");
  o.bias = NULL;
  o.struct_size = 4;
  REFUSE(&a, &b, &c, &o, ATTIKOS_INVALID_STRUCT, "struct_size");
}

static void test_sized_structs(attikos_context* context) {
  attikos_tensor const a = a_tensor(), b = b_tensor(), c = c_tensor();
  /* A caller of a later version: what this one does not know is zero, or else refused. */
  struct {
    attikos_gemm_options known;
    double later;
  } longer = {ATTIKOS_GEMM_OPTIONS_INIT, 0.0};
  longer.known.struct_size = sizeof longer;
  poison();
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &longer.known), ATTIKOS_SUCCESS);
  CHECK(memcmp(c_data, product, sizeof product) == 0);
  longer.later = 1.0;
  REFUSE(&a, &b, &c, &longer.known, ATTIKOS_INVALID_STRUCT, "does not know");
}

static void test_attention(attikos_context* context) {
  /* Equal keys: weights 1/n, so that outputs are means and lse = s + log n. */
  float q[2 * 2] = {0, 0, 0, 0}, k[2 * 2] = {1, 2, 3, 4}, v[2 * 2] = {2, 4, 6, 8}, out[4], lse[2];
  int64_t const shape[4] = {1, 1, 2, 2}, rows[3] = {1, 1, 2};
  attikos_tensor const tq = {q, ATTIKOS_FLOAT32, 4, shape, NULL}, tk = {k, ATTIKOS_FLOAT32, 4, shape, NULL},
                       tv = {v, ATTIKOS_FLOAT32, 4, shape, NULL}, to = {out, ATTIKOS_FLOAT32, 4, shape, NULL},
                       tl = {lse, ATTIKOS_FLOAT32, 3, rows, NULL};
  for (int algorithm = ATTIKOS_FLASH; algorithm <= ATTIKOS_NAIVE; ++algorithm) {
    attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
    o.causal = 1;
    o.algorithm = algorithm;
    CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
    CHECK(out[0] == 2 && out[1] == 4 && out[2] == 4 && out[3] == 6);
    CHECK(lse[0] == 0 && fabs((double)lse[1] - log(2.0)) < 1e-6);
  }
  int32_t one[1] = {1}, three[1] = {3};
  int64_t const single[1] = {1};
  attikos_tensor const length = {one, ATTIKOS_INT32, 1, single, NULL}, beyond = {three, ATTIKOS_INT32, 1, single, NULL};
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  o.lengths_q = o.lengths_kv = &length;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
  CHECK(out[0] == 2 && out[1] == 4 && out[2] == 0 && out[3] == 0 && isinf(lse[1]) && lse[1] < 0);
  o.lengths_kv = NULL;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_NULL_ARGUMENT);
  o.lengths_kv = &beyond; /* clamped, unless it is to be checked */
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
  out[0] = -1;
  o.check = 1;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SHAPE_MISMATCH);
  attikos_attention_options wrong = ATTIKOS_ATTENTION_OPTIONS_INIT;
  wrong.algorithm = 9;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &wrong), ATTIKOS_INVALID_ARGUMENT);
  wrong.algorithm = 0, wrong.compute = 3;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &wrong), ATTIKOS_INVALID_ARGUMENT);
  attikos_tensor t = tk;
  t.ndim = 3;
  CHECK_STATUS(attikos_attention(context, &tq, &t, &tv, &to, &tl, NULL), ATTIKOS_SHAPE_MISMATCH);
  t = tl, t.dtype = ATTIKOS_FLOAT16;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &t, NULL), ATTIKOS_DTYPE_MISMATCH);
  CHECK(out[0] == -1);
}

static void test_rows(attikos_context* context) {
  double x[4] = {3, 4, 0, 0}, out[4], weight[2] = {1, 2}, bias[2] = {0, 1};
  int64_t const shape[2] = {2, 2}, vector[1] = {2};
  attikos_tensor const tx = {x, ATTIKOS_FLOAT64, 2, shape, NULL}, to = {out, ATTIKOS_FLOAT64, 2, shape, NULL},
                       tw = {weight, ATTIKOS_FLOAT64, 1, vector, NULL}, tb = {bias, ATTIKOS_FLOAT64, 1, vector, NULL};
  CHECK_STATUS(attikos_l2_normalize(context, &tx, &to, 1e-12), ATTIKOS_SUCCESS);
  CHECK(fabs(out[0] - 0.6) < 1e-15 && fabs(out[1] - 0.8) < 1e-15 && out[2] == 0 && out[3] == 0);
  CHECK_STATUS(attikos_rms_norm(context, &tx, &tw, &to, 0.0), ATTIKOS_SUCCESS);
  CHECK(fabs(out[0] - 3 / sqrt(12.5)) < 1e-15 && fabs(out[1] - 8 / sqrt(12.5)) < 1e-14);
  CHECK_STATUS(attikos_layer_norm(context, &tx, &tw, &tb, &to, 0.75), ATTIKOS_SUCCESS);
  CHECK(out[0] == -0.5 && out[1] == 2 && out[2] == 0 && out[3] == 1);
  CHECK_STATUS(attikos_softmax(context, &tx, &to, 0.0), ATTIKOS_SUCCESS);
  for (int i = 0; i < 4; ++i) CHECK(out[i] == 0.5);
  int64_t const cube[3] = {1, 2, 2}, row[2] = {1, 2};
  attikos_tensor const pooled = {x, ATTIKOS_FLOAT64, 3, cube, NULL}, mean = {out, ATTIKOS_FLOAT64, 2, row, NULL};
  CHECK_STATUS(attikos_mean_pool(context, &pooled, NULL, &mean), ATTIKOS_SUCCESS);
  CHECK(out[0] == 1.5 && out[1] == 2);
  out[0] = -1;
  CHECK_STATUS(attikos_rms_norm(context, &tx, &tw, &to, INFINITY), ATTIKOS_INVALID_ARGUMENT);
  CHECK_STATUS(attikos_rms_norm(context, &tx, &tx, &to, 0.0), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_softmax(context, &tx, &tw, 1.0), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_mean_pool(context, &tx, NULL, &mean), ATTIKOS_SHAPE_MISMATCH);
  CHECK(out[0] == -1);
}

/* One query, two equal keys: P = 1/2 each, dV = dO / 2, dS_j = P (dO v_j - D), D = dO out. */
static void test_attention_backward(attikos_context* context) {
  double q[2] = {1, 0}, k[4] = {1, 1, 1, 1}, v[4] = {1, 0, 3, 0}, out[2], lse[1], dout[2] = {2, 0};
  double dq[2] = {-1, -1}, dk[4] = {-1, -1, -1, -1}, dv[4] = {-1, -1, -1, -1};
  int64_t const one[4] = {1, 1, 1, 2}, two[4] = {1, 1, 2, 2}, rows[3] = {1, 1, 1};
#define TENSOR(x, shape) {x, ATTIKOS_FLOAT64, 4, shape, NULL}
  attikos_tensor const tq = TENSOR(q, one), tk = TENSOR(k, two), tv = TENSOR(v, two), to = TENSOR(out, one),
                       tdo = TENSOR(dout, one), tdq = TENSOR(dq, one), tdk = TENSOR(dk, two), tdv = TENSOR(dv, two),
                       tl = {lse, ATTIKOS_FLOAT64, 3, rows, NULL};
#undef TENSOR
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  o.softmax_scale = 1;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
  attikos_attention_gradients g = ATTIKOS_ATTENTION_GRADIENTS_INIT;
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, NULL, &o), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_NULL_ARGUMENT);
  g.dq = &tdq;
  g.dk = &tdk;
  g.dv = &tdv;
  g.d_bias = &tdq;
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_NULL_ARGUMENT);
  g.d_bias = NULL;
  char text[256];
  size_t length = 0;
  CHECK_STATUS(attikos_explain_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o, text, sizeof text,
                                                  &length),
               ATTIKOS_SUCCESS);
  CHECK(strncmp(text, "runs portable", 13) == 0 && strlen(text) == length);
  CHECK_STATUS(attikos_explain_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, NULL, &o, text, sizeof text,
                                                  NULL),
               ATTIKOS_NULL_ARGUMENT);
  CHECK(dq[0] == -1 && dk[0] == -1 && dv[0] == -1);
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_SUCCESS);
  CHECK(fabs(dv[0] - 1) < 1e-12 && dv[1] == 0 && fabs(dv[2] - 1) < 1e-12 && dv[3] == 0);
  CHECK(fabs(dk[0] + 1) < 1e-12 && dk[1] == 0 && fabs(dk[2] - 1) < 1e-12 && dk[3] == 0);
  CHECK(fabs(dq[0]) < 1e-12 && fabs(dq[1]) < 1e-12);
  o.determinism = ATTIKOS_UNORDERED, dk[0] = -7;
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_SUCCESS);
  CHECK(fabs(dk[0] + 1) < 1e-12);
  dk[0] = -7;
  o.determinism = ATTIKOS_BATCH_INVARIANT;
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_UNSUPPORTED);
  o.determinism = 3;
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_INVALID_ARGUMENT);
  CHECK(strstr(attikos_last_error(), "determinism is 3; expected an attikos_determinism") != NULL);
  o.determinism = ATTIKOS_RUN_TO_RUN, o.sm_margin = -1;
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_INVALID_ARGUMENT);
  CHECK(strstr(attikos_last_error(), "sm_margin is -1; expected a number of multiprocessors, 0 for none") != NULL);
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_INVALID_ARGUMENT);
  o.sm_margin = 4;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
  o.sm_margin = -1;
  o.struct_size = offsetof(attikos_attention_options, determinism); /* callers who do not know either */
  o.determinism = 77;
  CHECK(dk[0] == -7);
  CHECK_STATUS(attikos_attention_backward(context, &tq, &tk, &tv, &to, &tl, &tdo, &g, &o), ATTIKOS_SUCCESS);
  CHECK(fabs(dk[0] + 1) < 1e-12);
}

static void test_quantize_and_float8_gemm(attikos_context* context) {
  float x[4] = {448, -224, 0, 112}, scale[1], back[4], c[4];
  uint8_t x8[4];
  int64_t const shape[2] = {2, 2}, single[1] = {1};
  attikos_tensor const tx = {x, ATTIKOS_FLOAT32, 2, shape, NULL}, t8 = {x8, ATTIKOS_FLOAT8_E4M3, 2, shape, NULL},
                       ts = {scale, ATTIKOS_FLOAT32, 1, single, NULL}, tb = {back, ATTIKOS_FLOAT32, 2, shape, NULL},
                       tc = {c, ATTIKOS_FLOAT32, 2, shape, NULL};
  CHECK_STATUS(attikos_quantize(context, &tx, &t8, &ts), ATTIKOS_SUCCESS);
  CHECK(scale[0] == 1 && x8[0] == 0x7e && x8[2] == 0);
  CHECK_STATUS(attikos_dequantize(context, &t8, &ts, &tb), ATTIKOS_SUCCESS);
  CHECK(memcmp(x, back, sizeof x) == 0);
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  float const quarter[1] = {0.25f};
  attikos_tensor const tq = {(void*)(uintptr_t)quarter, ATTIKOS_FLOAT32, 1, single, NULL};
  o.scale_a = &tq;
  CHECK_STATUS(attikos_gemm(context, &t8, &t8, &tc, &o), ATTIKOS_SUCCESS);
  CHECK(c[0] == 0.25f * (448 * 448) && c[1] == 0.25f * (448 * -224 + -224 * 112) && c[2] == 0 && c[3] == 0.25f * 112 * 112);
  c[0] = -1;
  CHECK_STATUS(attikos_gemm(context, &tx, &tx, &tc, &o), ATTIKOS_UNSUPPORTED);
  attikos_tensor t = t8;
  t.dtype = ATTIKOS_UINT8;
  CHECK_STATUS(attikos_quantize(context, &tx, &t, &ts), ATTIKOS_DTYPE_MISMATCH);
  CHECK_STATUS(attikos_gemm(context, &t, &t, &tc, NULL), ATTIKOS_DTYPE_MISMATCH);
  CHECK(c[0] == -1);
}

static void test_blocks(attikos_context* context) {
  /* No rotation (cos 1, sin 0): the norm alone; a quarter turn exchanges the halves. */
  double x[4] = {3, 4, 0, 0}, w[4] = {1, 1, 1, 1}, one[4] = {1, 1, 1, 1}, none[4] = {0, 0, 0, 0}, out[4];
  int64_t const cube[3] = {1, 1, 4}, vector[1] = {4}, table[2] = {1, 4}, long_table[4] = {1, 1, 1, 4};
  attikos_tensor const tx = {x, ATTIKOS_FLOAT64, 3, cube, NULL}, tw = {w, ATTIKOS_FLOAT64, 1, vector, NULL},
                       to = {out, ATTIKOS_FLOAT64, 3, cube, NULL}, t1 = {one, ATTIKOS_FLOAT64, 2, table, NULL},
                       t0 = {none, ATTIKOS_FLOAT64, 4, long_table, NULL}, tc = {one, ATTIKOS_FLOAT64, 4, long_table, NULL},
                       ts = {none, ATTIKOS_FLOAT64, 2, table, NULL};
  attikos_rope_options o = ATTIKOS_ROPE_OPTIONS_INIT;
  o.eps = 0;
  CHECK_STATUS(attikos_rms_norm_rope(context, &tx, &tw, &tc, &t0, &to, &o), ATTIKOS_SUCCESS);
  CHECK(fabs(out[0] - 1.2) < 1e-14 && fabs(out[1] - 1.6) < 1e-14 && out[2] == 0 && out[3] == 0);
  CHECK_STATUS(attikos_rms_norm_rope(context, &tx, &tw, &ts, &t1, &to, &o), ATTIKOS_SUCCESS);
  CHECK(out[0] == 0 && out[1] == 0 && fabs(out[2] - 1.2) < 1e-14 && fabs(out[3] - 1.6) < 1e-14);
  out[0] = -1;
  CHECK_STATUS(attikos_rms_norm_rope(context, &tx, &tw, &tx, &t1, &to, &o), ATTIKOS_SHAPE_MISMATCH);
  o.struct_size = 1;
  CHECK_STATUS(attikos_rms_norm_rope(context, &tx, &tw, &ts, &t1, &to, &o), ATTIKOS_INVALID_STRUCT);
  CHECK(out[0] == -1);

  double rows[2] = {0, 1}, gate[2] = {0, 0}, up[2] = {5, 5}, result[1] = {-1};
  int64_t const tokens[2] = {1, 2}, weights[2] = {1, 2}, narrow[2] = {1, 1};
  attikos_tensor const tr = {rows, ATTIKOS_FLOAT64, 2, tokens, NULL}, tg = {gate, ATTIKOS_FLOAT64, 2, weights, NULL},
                       tu = {up, ATTIKOS_FLOAT64, 2, weights, NULL}, tm = {result, ATTIKOS_FLOAT64, 2, narrow, NULL};
  CHECK_STATUS(attikos_gated_mlp(context, &tr, &tg, &tu, &tm, ATTIKOS_ACTIVATION_RELU), ATTIKOS_INVALID_ARGUMENT);
  CHECK(result[0] == -1);
  CHECK_STATUS(attikos_gated_mlp(context, &tr, &tg, &tu, &tm, ATTIKOS_ACTIVATION_SILU), ATTIKOS_SUCCESS);
  CHECK(result[0] == 0);
}

static void test_raw_attention(void) {
  float q[4] = {0, 0, 0, 0}, k[4] = {1, 2, 3, 4}, v[4] = {2, 4, 6, 8}, out[4], lse[2];
  CHECK(attikos_attention_forward_f32(q, k, v, out, lse, 1, 1, 2, 2, 0.5f, true, NULL) == ATTIKOS_FA_SUCCESS);
  CHECK(out[0] == 2 && out[1] == 4 && out[2] == 4 && out[3] == 6);
  CHECK(lse[0] == 0 && fabs((double)lse[1] - log(2.0)) < 1e-6);
  uint16_t const half[4] = {0x3c00, 0x4000, 0x4200, 0x4400}; /* 1 2 3 4 */
  uint16_t const zeros[4] = {0, 0, 0, 0};
  uint16_t half_out[4];
  lse[0] = -1;
  CHECK(attikos_attention_forward_f16(zeros, half, half, half_out, lse, 1, 1, 2, 2, 0.5f, false, NULL) ==
        ATTIKOS_FA_SUCCESS);
  CHECK(half_out[0] == 0x4000 && half_out[1] == 0x4200); /* means 2 and 3 */
  CHECK(fabs((double)lse[0] - log(2.0)) < 1e-6);

  out[0] = -1;
  for (int position = 0; position < 4; ++position) {
    int d[4] = {1, 1, 2, 2};
    for (int bad = -1; bad <= 0; ++bad) {
      d[position] = bad;
      CHECK(attikos_attention_forward_f32(q, k, v, out, lse, d[0], d[1], d[2], d[3], 1, false, NULL) ==
            ATTIKOS_FA_INVALID_DIMENSION);
    }
  }
  int const most = 2147483647;
  CHECK(attikos_attention_forward_f32(q, k, v, out, lse, most, most, most, most, 1, false, NULL) ==
        ATTIKOS_FA_INVALID_DIMENSION);
  CHECK(attikos_attention_forward_f32(NULL, k, v, out, lse, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_NULL_POINTER);
  CHECK(attikos_attention_forward_f32(q, NULL, v, out, lse, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_NULL_POINTER);
  CHECK(attikos_attention_forward_f32(q, k, NULL, out, lse, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_NULL_POINTER);
  CHECK(attikos_attention_forward_f32(q, k, v, NULL, lse, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_NULL_POINTER);
  CHECK(attikos_attention_forward_f32(q, k, v, out, NULL, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_NULL_POINTER);
  CHECK(attikos_attention_forward_f32(q, k, v, out, lse, 1, 1, 2, 2, NAN, false, NULL) ==
        ATTIKOS_FA_INVALID_ARGUMENT);
  CHECK(attikos_attention_forward_f16((char const*)half + 1, half, half, half_out, lse, 1, 1, 1, 1, 1, false, NULL) ==
        ATTIKOS_FA_INVALID_ARGUMENT);
  CHECK(out[0] == -1);
  float dq[4], dk[4], dv[4], dout[4] = {1, 1, 1, 1};
  CHECK(attikos_attention_forward_f32(q, k, v, out, lse, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_SUCCESS);
  CHECK(attikos_attention_backward_f32(q, k, v, out, lse, dout, dq, dk, dv, 1, 1, 2, 2, 1, false, NULL) ==
        ATTIKOS_FA_SUCCESS);
  for (int i = 0; i < 4; ++i) CHECK(fabs((double)dv[i] - 1) < 1e-6 && dk[i] == 0); /* queries are 0 */
  dq[0] = -1;
  CHECK(attikos_attention_backward_f32(q, k, v, out, lse, dout, dq, dk, NULL, 1, 1, 2, 2, 1, false, NULL) ==
        ATTIKOS_FA_NULL_POINTER);
  CHECK(attikos_attention_backward_f32(q, k, v, out, lse, dout, dq, dk, dv, 1, 1, 0, 2, 1, false, NULL) ==
        ATTIKOS_FA_INVALID_DIMENSION);
  CHECK(dq[0] == -1);
  uint16_t dq16[4], dk16[4], dv16[4];
  CHECK(attikos_attention_forward_f16(zeros, half, half, half_out, lse, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_SUCCESS);
  CHECK(attikos_attention_backward_f16(zeros, half, half, half_out, lse, half, dq16, dk16, dv16, 1, 1, 2, 2, 1, false,
                                       NULL) == ATTIKOS_FA_SUCCESS);
  CHECK(dv16[0] == 0x4000 && dv16[1] == 0x4200); /* means of the rows of dO: 2 and 3 */

  /* The same functions by the names of compat/cuflash.h. */
  float again[4], lse_again[2], other[4];
  CHECK(cuflash_attention_forward_f32(q, k, v, again, lse_again, 1, 1, 2, 2, 1, false, NULL) == ATTIKOS_FA_SUCCESS);
  CHECK(memcmp(again, out, sizeof out) == 0 && fabs((double)lse_again[1] - log(2.0)) < 1e-6);
  CHECK(cuflash_attention_backward_f32(q, k, v, again, lse_again, dout, dq, dk, other, 1, 1, 2, 2, 1, false, NULL) ==
        ATTIKOS_FA_SUCCESS);
  CHECK(memcmp(other, dv, sizeof dv) == 0);
  uint16_t half_again[4], dv16_again[4];
  CHECK(cuflash_attention_forward_f16(zeros, half, half, half_again, lse, 1, 1, 2, 2, 1, false, NULL) == 0);
  CHECK(memcmp(half_again, half_out, sizeof half_out) == 0);
  CHECK(cuflash_attention_backward_f16(zeros, half, half, half_again, lse, half, dq16, dk16, dv16_again, 1, 1, 2, 2, 1,
                                       false, NULL) == 0);
  CHECK(memcmp(dv16_again, dv16, sizeof dv16) == 0);
  CHECK(cuflash_attention_forward_f32(q, k, v, out, lse, 1, 0, 2, 2, 1, false, NULL) == ATTIKOS_FA_INVALID_DIMENSION);
  CHECK(cuflash_attention_forward_f16(zeros, half, NULL, half_out, lse, 1, 1, 2, 2, 1, false, NULL) ==
        ATTIKOS_FA_NULL_POINTER);
  for (int error = -1; error < 12; ++error) CHECK(strlen(attikos_flash_attention_error_string(error)) > 0);
}

int main(void) {
  CHECK(strcmp(attikos_last_error(), "") == 0);
  test_versions();
  test_contexts();
  int32_t const kinds[2] = {ATTIKOS_HOST, ATTIKOS_SERIAL};
  for (int i = 0; i < 2; ++i) {
    if (!attikos_has_device(kinds[i], 0)) continue;
    attikos_context* context = NULL;
    CHECK_STATUS(attikos_context_create(kinds[i], 0, NULL, &context), ATTIKOS_SUCCESS);
    if (context == NULL) return 1;
    test_gemm(context);
    test_wrong_arguments(context);
    test_sized_structs(context);
    test_attention(context);
    test_rows(context);
    test_attention_backward(context);
    test_quantize_and_float8_gemm(context);
    test_blocks(context);
    attikos_context_destroy(context);
  }
  test_raw_attention();
  if (failures != 0) printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
