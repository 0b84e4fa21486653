/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 */
/* Attention on raw pointers and memory of one's own, as
 * the pages of C show them, part by part; a test runs it.
 */
#include <attikos/compat/cuflash.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void expect(int truth, char const* what) {
  if (truth) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

static void must(attikos_status status) {
  expect(status == ATTIKOS_SUCCESS, attikos_last_error());
}

enum { batch = 2, heads = 3, length = 20, features = 8 };
enum { rows = batch * heads * length };
enum { elements = rows * features };

static float* numbers(double seed) {
  float* const x = malloc(elements * sizeof(float));
  for (int i = 0; i < elements; ++i)
    x[i] = (float)sin(seed + 1.3 * i);
  return x;
}

static float* space(int count) {
  return calloc((size_t)count, sizeof(float));
}

/* The loss whose gradients are looked at: sum of O dO. */
static double loss(float const* q, float const* k,
                   float const* v, float const* d_out) {
  float *const out = space(elements), *lse = space(rows);
  expect(
      attikos_attention_forward_f32(
          q, k, v, out, lse, batch, heads, length,
          features, 0, true, NULL) == ATTIKOS_FA_SUCCESS,
      "attention");
  double sum = 0;
  for (int i = 0; i < elements; ++i)
    sum += (double)out[i] * (double)d_out[i];
  free(out);
  free(lse);
  return sum;
}

static void single(void) {
  float* const q = numbers(1);
  float* const k = numbers(2);
  float* const v = numbers(3);
  float* const d_out = numbers(4);
  float* const out = space(elements);
  float* const lse = space(rows);
  float* const dq = space(elements);
  float* const dk = space(elements);
  float* const dv = space(elements);
  /* [raw-pointers] */
  /* Dense [batch, heads, length, features], of host or
   * device: the pointers tell. Scale 0 is
   * 1 / sqrt(features); causal; no stream on a host. */
  int error = attikos_attention_forward_f32(
      q, k, v, out, lse, batch, heads, length, features,
      0, true, NULL);
  if (error == ATTIKOS_FA_SUCCESS)
    error = attikos_attention_backward_f32(
        q, k, v, out, lse, d_out, dq, dk, dv, batch,
        heads, length, features, 0, true, NULL);
  if (error != ATTIKOS_FA_SUCCESS)
    fprintf(stderr, "%s\n",
            attikos_flash_attention_error_string(error));
  /* [raw-pointers] */
  expect(error == ATTIKOS_FA_SUCCESS, "gradients");
  expect(fabs((double)(out[3] - v[3])) < 1e-6,
         "row 0 sees one key");
  float const step = 1e-2f, at = k[50];
  k[50] = at + step;
  double const above = loss(q, k, v, d_out);
  k[50] = at - step;
  double const below = loss(q, k, v, d_out);
  k[50] = at;
  double const slope =
      (above - below) / (2 * (double)step);
  expect(fabs(slope - (double)dk[50]) < 1e-3,
         "a gradient and a difference");

  float* const same = space(elements);
  float* const same_dk = space(elements);
  /* [cuflash] */
  /* A program that was written for CuFlash-Attn's library
   * is linked with this one as it is. */
  int status = cuflash_attention_forward_f32(
      q, k, v, same, lse, batch, heads, length, features,
      0, true, NULL);
  if (status == 0)
    status = cuflash_attention_backward_f32(
        q, k, v, same, lse, d_out, dq, same_dk, dv, batch,
        heads, length, features, 0, true, NULL);
  /* [cuflash] */
  expect(status == 0, "the document's names");
  for (int i = 0; i < elements; ++i)
    expect(same[i] == out[i] && same_dk[i] == dk[i],
           "the same bits by both names");
  float* const all[] = {q,  k,  v,  d_out, out,    lse,
                        dq, dk, dv, same,  same_dk};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    free(all[i]);
}

static void half(void) {
  uint16_t* const x = malloc(elements * sizeof(uint16_t));
  uint16_t* const out =
      malloc(elements * sizeof(uint16_t));
  uint16_t* const dx =
      malloc(elements * sizeof(uint16_t));
  uint16_t* const dk =
      malloc(elements * sizeof(uint16_t));
  uint16_t* const dv =
      malloc(elements * sizeof(uint16_t));
  float* const lse = space(rows);
  for (int i = 0; i < elements; ++i)
    x[i] = 0x3c00; /* 1 */
  /* [raw-pointers-half] */
  /* Elements of IEEE binary16, which C may have no name
   * for; the log-sum-exp is float. */
  int error = attikos_attention_forward_f16(
      x, x, x, out, lse, batch, heads, length, features,
      0.25f, false, NULL);
  if (error == ATTIKOS_FA_SUCCESS)
    error = attikos_attention_backward_f16(
        x, x, x, out, lse, x, dx, dk, dv, batch, heads,
        length, features, 0.25f, false, NULL);
  /* [raw-pointers-half] */
  expect(error == ATTIKOS_FA_SUCCESS, "half precision");
  expect(out[9] == 0x3c00, "the mean of ones");
  expect(fabs((double)lse[9] -
              (0.25 * features + log(length))) < 1e-5,
         "the log-sum-exp of equal scores");
  expect(dv[9] == 0x3c00,
         "each value's share of all rows");

  /* [cuflash-half] */
  error = cuflash_attention_forward_f16(
      x, x, x, out, lse, batch, heads, length, features,
      0.25f, false, NULL);
  if (error == 0)
    error = cuflash_attention_backward_f16(
        x, x, x, out, lse, x, dx, dk, dv, batch, heads,
        length, features, 0.25f, false, NULL);
  /* [cuflash-half] */
  expect(error == 0 && out[9] == 0x3c00,
         "half precision by the document's names");
  void* const all[] = {x, out, dx, dk, dv, lse};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    free(all[i]);
}

/* [allocator] */
/* Memory that calls need for their length, from a pool of
 * the program's own, such as one that a framework has. */
typedef struct pool {
  size_t most; /* that a call may have */
  size_t given;
} pool;

static void* take(void* user, size_t bytes) {
  pool* const p = user;
  size_t const whole = (bytes + 63) / 64 * 64;
  if (whole > p->most) return NULL; /* out of memory */
  p->given += whole;
  return aligned_alloc(64, whole);
}

static void give_back(void* user, void* memory) {
  (void)user;
  free(memory);
}
/* [allocator] */

/* [layer] */
/* A layer of a program's own, whose caller says how exact
 * products have to be: how float32 factors, and how sums
 * of float8 products, may be rounded on a device. */
static attikos_status layer(attikos_context* context,
                            attikos_tensor const* x,
                            attikos_tensor const* weight,
                            attikos_tensor const* y,
                            attikos_activation act,
                            attikos_compute compute,
                            attikos_accumulate sums) {
  attikos_gemm_options options =
      ATTIKOS_GEMM_OPTIONS_INIT;
  options.trans_b = 1;
  options.activation = (int32_t)act;
  options.compute = (int32_t)compute;
  options.accumulate = (int32_t)sums;
  return attikos_gemm(context, x, weight, y, &options);
}
/* [layer] */

/* [attention-checked] */
/* Attention as a program calls it, and once more by an
 * algorithm that is easier to trust. */
static attikos_status attend(
    attikos_context* context, attikos_tensor const* qkv,
    attikos_tensor const* out,
    attikos_attention_algorithm algorithm) {
  attikos_attention_options options =
      ATTIKOS_ATTENTION_OPTIONS_INIT;
  options.causal = 1;
  options.algorithm = (int32_t)algorithm;
  return attikos_attention(context, qkv, qkv, qkv, out,
                           NULL, &options);
}
/* [attention-checked] */

/* [decode-again] */
/* Tokens that can be found again: bits that do not depend
 * on the sequences that happen to be decoded with them.
 */
static attikos_status decode(attikos_context* context,
                             attikos_tensor const* q,
                             attikos_tensor const* cache,
                             attikos_tensor const* out) {
  attikos_determinism const wanted =
      ATTIKOS_BATCH_INVARIANT;
  attikos_decode_options options =
      ATTIKOS_DECODE_OPTIONS_INIT;
  options.determinism = (int32_t)wanted;
  return attikos_decode(context, q, cache, cache, out,
                        NULL, &options);
}
/* [decode-again] */

static void contexts(void) {
  /* [context] */
  /* A library for a newer processor than this says so
   * here, before anything else. Then the first GPU, or
   * the host. */
  char const* const missing =
      attikos_missing_instructions();
  if (*missing != 0) {
    fprintf(stderr, "this processor lacks %s\n", missing);
    exit(1);
  }
  attikos_device_kind const kind =
      attikos_cuda_device_count() > 0 ? ATTIKOS_CUDA
                                      : ATTIKOS_HOST;
  attikos_context* context;
  must(attikos_context_create(kind, 0, NULL, &context));

  attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
  must(attikos_get_device_info(kind, 0, &info));
  attikos_architecture const architecture =
      (attikos_architecture)info.architecture;
  if (architecture == ATTIKOS_ARCH_HOST)
    printf("%s, %d processors\n", info.name,
           (int)info.multiprocessors);
  /* [context] */
  expect(kind != ATTIKOS_HOST ||
             architecture == ATTIKOS_ARCH_HOST,
         "the architecture of a host");
  if (kind != ATTIKOS_HOST) {
    attikos_context_destroy(context);
    return; /* memory below is the host's */
  }

  float* const x = numbers(5);
  float* const y = space(elements);
  int64_t const shape[] = {batch, heads, length,
                           features};
  int64_t const flat[] = {rows, features};
  int64_t const weights[] = {features, features};
  int64_t const product[] = {rows, features};
  attikos_tensor const a = {x, ATTIKOS_FLOAT32, 2, flat,
                            NULL};
  attikos_tensor const w = {x, ATTIKOS_FLOAT32, 2,
                            weights, NULL};
  attikos_tensor const c = {y, ATTIKOS_FLOAT32, 2,
                            product, NULL};
  must(layer(context, &a, &w, &c, ATTIKOS_ACTIVATION_RELU,
             ATTIKOS_COMPUTE_TF32,
             ATTIKOS_ACCUMULATE_FAST));
  for (int i = 0; i < features; ++i)
    for (int j = 0; j < features; ++j) {
      double sum = 0;
      for (int l = 0; l < features; ++l)
        sum += (double)(x[i * features + l] *
                        x[j * features + l]);
      double const y_ij = (double)y[i * features + j];
      expect(fabs(y_ij - fmax(sum, 0)) < 1e-5, "a layer");
    }

  attikos_tensor const qkv = {x, ATTIKOS_FLOAT32, 4,
                              shape, NULL};
  attikos_tensor const out = {y, ATTIKOS_FLOAT32, 4,
                              shape, NULL};
  must(attend(context, &qkv, &out, ATTIKOS_FLASH));
  float const flash = y[100];
  /* [set-allocator] */
  pool memory = {1 << 20, 0};
  must(attikos_context_set_allocator(context, take,
                                     give_back, &memory));
  /* [set-allocator] */
  must(attend(context, &qkv, &out, ATTIKOS_NAIVE));
  expect(memory.given >= (size_t)rows * length * 4,
         "scores are stored in the pool's memory");
  expect(fabs((double)(y[100] - flash)) < 1e-5,
         "both algorithms agree");
  memory.most = 0;
  expect(attend(context, &qkv, &out, ATTIKOS_NAIVE) ==
             ATTIKOS_OUT_OF_MEMORY,
         "memory that is not given is an error");
  must(attikos_context_set_allocator(context, NULL, NULL,
                                     NULL));

  must(decode(context, &qkv, &qkv, &out));
  float const in_batch = y[100];
  int64_t const alone[] = {1, heads, length, features};
  attikos_tensor const one = {x, ATTIKOS_FLOAT32, 4,
                              alone, NULL};
  attikos_tensor const to = {y, ATTIKOS_FLOAT32, 4, alone,
                             NULL};
  must(decode(context, &one, &one, &to));
  expect(y[100] == in_batch, "the same bits alone");
  free(x);
  free(y);
  attikos_context_destroy(context);
}

int main(void) {
  single();
  half();
  contexts();
  printf("all parts ran\n");
  return 0;
}
