/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a training step has beside its layers: rows of a table and their gradient, the step of the parameters and
 * the loss of a last layer. */
#include <math.h>

#include "c_checks.h"

static void test_embedding(attikos_context* context) {
  float const table[3 * 2] = {1, 2, 3, 4, 5, 6};
  float out[4 * 2], sums[3 * 2] = {NAN, NAN, NAN, NAN, NAN, NAN};
  int64_t const ids[4] = {2, 0, 2, 7};
  int64_t const shape[2] = {3, 2}, rows[2] = {4, 2}, count[1] = {4}, few[1] = {3};
  attikos_tensor const tt = tensor(table, ATTIKOS_FLOAT32, 2, shape), to = tensor(out, ATTIKOS_FLOAT32, 2, rows),
                       ti = tensor(ids, ATTIKOS_INT64, 1, count), ts = tensor(sums, ATTIKOS_FLOAT32, 2, shape);
  CHECK_STATUS(attikos_embedding(context, &tt, &ti, &to), ATTIKOS_SUCCESS);
  for (int i = 0; i < 6; ++i) CHECK(out[i] == table[(int)ids[i / 2] * 2 + i % 2]);
  CHECK(isnan(out[6]) && isnan(out[7]));
  for (int i = 0; i < 8; ++i) out[i] = (float)(i + 1);
  CHECK_STATUS(attikos_embedding_backward(context, &ti, &to, &ts, -1, 0), ATTIKOS_SUCCESS);
  float const once[6] = {3, 4, 0, 0, 6, 8}, more[6] = {4.5f, 6, 0, 0, 3, 4};
  CHECK(memcmp(sums, once, sizeof once) == 0);
  CHECK_STATUS(attikos_embedding_backward(context, &ti, &to, &ts, 2, 0.5), ATTIKOS_SUCCESS);
  CHECK(memcmp(sums, more, sizeof more) == 0);
  attikos_tensor t = ti;
  t.shape = few;
  CHECK_STATUS(attikos_embedding(context, &tt, &t, &to), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_embedding_backward(context, &t, &to, &ts, -1, 0), ATTIKOS_SHAPE_MISMATCH);
  t = ti, t.dtype = ATTIKOS_FLOAT64;
  CHECK_STATUS(attikos_embedding(context, &tt, &t, &to), ATTIKOS_DTYPE_MISMATCH);
  t = to, t.dtype = ATTIKOS_FLOAT16;
  CHECK_STATUS(attikos_embedding(context, &tt, &ti, &t), ATTIKOS_DTYPE_MISMATCH);
  t = ts, t.dtype = ATTIKOS_BFLOAT16;
  CHECK_STATUS(attikos_embedding_backward(context, &ti, &to, &t, -1, 0), ATTIKOS_DTYPE_MISMATCH);
  CHECK_STATUS(attikos_embedding_backward(context, &ti, &to, &ts, -1, INFINITY), ATTIKOS_INVALID_ARGUMENT);
  CHECK_STATUS(attikos_embedding(context, &tt, NULL, &to), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_embedding(context, &tt, &ti, &tt), ATTIKOS_SHAPE_MISMATCH);
  CHECK(memcmp(sums, more, sizeof more) == 0 && out[0] == 1);
}

/* 16 bits add up in float32 where dtable has it: 300 times 1 is not a number that bfloat16 counts to. */
static void test_embedding_of_16_bits(attikos_context* context) {
  enum { n = 300 };
  uint16_t dout[n], narrow[2];
  int32_t ids[n];
  float wide[2];
  for (int i = 0; i < n; ++i) dout[i] = 0x3f80, ids[i] = 1;
  int64_t const rows[2] = {n, 1}, count[1] = {n}, shape[2] = {2, 1};
  attikos_tensor const td = tensor(dout, ATTIKOS_BFLOAT16, 2, rows), ti = tensor(ids, ATTIKOS_INT32, 1, count),
                       tn = tensor(narrow, ATTIKOS_BFLOAT16, 2, shape), tw = tensor(wide, ATTIKOS_FLOAT32, 2, shape);
  CHECK_STATUS(attikos_embedding_backward(context, &ti, &td, &tw, -1, 0), ATTIKOS_SUCCESS);
  CHECK(wide[0] == 0 && wide[1] == 300);
  CHECK_STATUS(attikos_embedding_backward(context, &ti, &td, &tn, -1, 0), ATTIKOS_SUCCESS);
  CHECK(narrow[0] == 0 && narrow[1] == 0x4396);
}

/* Two parameters of two types, the second with master weights and of odd strides. With betas of 0 a step is
 * w - learning_rate * g / (|g| + epsilon). */
static void test_adamw(attikos_context* context) {
  double w0[3] = {1, 2, 3}, m0[3] = {5, 5, 5}, v0[3] = {5, 5, 5};
  double const g0[3] = {4, -2, 0};
  uint16_t w1[4] = {0x7fc0, 0x1234, 0x7fc0, 0x1234}; /* NaNs, which are not read, and gaps */
  float const g1[2] = {-1, 8};
  float m1[2] = {0, 0}, v1[2] = {0, 0}, master[2] = {1, 2};
  int64_t const three[1] = {3}, two[1] = {2}, steps[1] = {2};
  attikos_tensor const tw0 = tensor(w0, ATTIKOS_FLOAT64, 1, three), tg0 = tensor(g0, ATTIKOS_FLOAT64, 1, three),
                       tm0 = tensor(m0, ATTIKOS_FLOAT64, 1, three), tv0 = tensor(v0, ATTIKOS_FLOAT64, 1, three),
                       tg1 = tensor(g1, ATTIKOS_FLOAT32, 1, two), tm1 = tensor(m1, ATTIKOS_FLOAT32, 1, two),
                       tv1 = tensor(v1, ATTIKOS_FLOAT32, 1, two), tmaster = tensor(master, ATTIKOS_FLOAT32, 1, two);
  attikos_tensor tw1 = tensor(w1, ATTIKOS_BFLOAT16, 1, two);
  tw1.strides = steps;
  attikos_tensor const *w[2] = {&tw0, &tw1}, *g[2] = {&tg0, &tg1}, *m[2] = {&tm0, &tm1}, *v[2] = {&tv0, &tv1},
                       *masters[2] = {NULL, &tmaster};
  CHECK_STATUS(attikos_adamw_step(context, 2, w, g, m, v, masters, 0.5, 0, 0, 0.5, 0, 0.5, 3), ATTIKOS_SUCCESS);
  CHECK(fabs(w0[0] - (1 - 0.5 * 2 / 2.5)) < 1e-15 && fabs(w0[1] - (2 + 0.5 / 1.5)) < 1e-15 && w0[2] == 3);
  CHECK(m0[0] == 2 && m0[1] == -1 && m0[2] == 0 && v0[0] == 4 && v0[1] == 1 && v0[2] == 0);
  CHECK(master[0] == 1.25f && fabsf(master[1] - (2 - 0.5f * 4 / 4.5f)) < 1e-6f && m1[1] == 4 && v1[1] == 16);
  CHECK(w1[0] == 0x3fa0 && w1[1] == 0x1234 && w1[2] == 0x3fc7 && w1[3] == 0x1234);
  CHECK_STATUS(attikos_adamw_step(context, 0, NULL, NULL, NULL, NULL, NULL, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 1),
               ATTIKOS_SUCCESS);
#define REFUSE(status, ...) CHECK_STATUS(attikos_adamw_step(context, __VA_ARGS__), status)
  REFUSE(ATTIKOS_INVALID_ARGUMENT, -1, w, g, m, v, masters, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 1);
  REFUSE(ATTIKOS_INVALID_ARGUMENT, 2, w, g, m, v, masters, 1e-3, 1, 0.999, 1e-8, 0, 1, 1);
  REFUSE(ATTIKOS_INVALID_ARGUMENT, 2, w, g, m, v, masters, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 0);
  REFUSE(ATTIKOS_INVALID_ARGUMENT, 2, w, g, m, v, masters, 1e-3, 0.9, 0.999, 1e-8, 0, INFINITY, 1);
  REFUSE(ATTIKOS_NULL_ARGUMENT, 2, w, NULL, m, v, masters, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 1);
  attikos_tensor const *hole[2] = {&tm0, NULL}, *same[2] = {&tm0, &tv1}, *longer[2] = {&tv0, &tv0};
  REFUSE(ATTIKOS_NULL_ARGUMENT, 2, w, g, hole, v, masters, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 1);
  CHECK(strstr(attikos_last_error(), "attikos::adamw_step: parameters[1]: exp_avg") != NULL);
  REFUSE(ATTIKOS_INVALID_ARGUMENT, 2, w, g, same, v, masters, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 1);
  REFUSE(ATTIKOS_DTYPE_MISMATCH, 2, w, g, m, longer, masters, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 1);
  attikos_tensor shorter = tm0;
  shorter.shape = two;
  attikos_tensor const* const of_two[1] = {&shorter};
  REFUSE(ATTIKOS_SHAPE_MISMATCH, 1, w, g, of_two, v, NULL, 1e-3, 0.9, 0.999, 1e-8, 0, 1, 1);
  CHECK(m0[0] == 2 && v1[1] == 16 && w1[0] == 0x3fa0);
}

/* Without gradients dloss is not read, and yet is refused where it could not be. */
static void test_loss_without_gradients(attikos_context* context) {
  float const hidden[2 * 2] = {1, 0, 0, 1}, weight[3 * 2] = {0}, factors[2] = {1, 1};
  int32_t const labels[2] = {0, 2};
  float loss[2] = {-1, -1};
  int64_t const square[2] = {2, 2}, of_weight[2] = {3, 2}, two[1] = {2}, one[1] = {1};
  attikos_tensor const th = tensor(hidden, ATTIKOS_FLOAT32, 2, square), tw = tensor(weight, ATTIKOS_FLOAT32, 2, of_weight),
                       tl = tensor(labels, ATTIKOS_INT32, 1, two), to = tensor(loss, ATTIKOS_FLOAT32, 1, two),
                       given = tensor(factors, ATTIKOS_FLOAT32, 1, two);
#define LOSS(dloss) attikos_linear_cross_entropy(context, &th, &tw, &tl, dloss, &to, NULL, NULL, 0, -100, 0)
  attikos_tensor t = given;
  t.shape = NULL;
  CHECK_STATUS(LOSS(&t), ATTIKOS_NULL_ARGUMENT);
  t = given, t.data = NULL;
  CHECK_STATUS(LOSS(&t), ATTIKOS_NULL_ARGUMENT);
  t = given, t.data = (char*)factors + 1;
  CHECK_STATUS(LOSS(&t), ATTIKOS_MISALIGNED);
  t = given, t.dtype = ATTIKOS_FLOAT64;
  CHECK_STATUS(LOSS(&t), ATTIKOS_DTYPE_MISMATCH);
  t = given, t.shape = one;
  CHECK_STATUS(LOSS(&t), ATTIKOS_SHAPE_MISMATCH);
  CHECK(strstr(attikos_last_error(), "attikos::linear_cross_entropy: dloss is") != NULL);
  CHECK_STATUS(LOSS(&to), ATTIKOS_INVALID_ARGUMENT);
  CHECK(loss[0] == -1 && loss[1] == -1);
  CHECK_STATUS(LOSS(&given), ATTIKOS_SUCCESS);
  CHECK(fabsf(loss[0] - logf(3)) < 1e-6f && fabsf(loss[1] - logf(3)) < 1e-6f);
  loss[0] = loss[1] = -1;
  CHECK_STATUS(LOSS(NULL), ATTIKOS_SUCCESS);
  CHECK(fabsf(loss[0] - logf(3)) < 1e-6f && fabsf(loss[1] - logf(3)) < 1e-6f);
}

int main(void) {
  attikos_context* context = NULL;
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &context), ATTIKOS_SUCCESS);
  test_embedding(context);
  test_embedding_of_16_bits(context);
  test_adamw(context);
  test_loss_without_gradients(context);
  attikos_context_destroy(context);
  if (failures == 0) printf("all passed\n");
  return failures == 0 ? 0 : 1;
}
