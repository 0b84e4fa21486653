/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a training step has beside its layers: rows of a table and their gradient. */
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

int main(void) {
  attikos_context* context = NULL;
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &context), ATTIKOS_SUCCESS);
  test_embedding(context);
  test_embedding_of_16_bits(context);
  attikos_context_destroy(context);
  if (failures == 0) printf("all passed\n");
  return failures == 0 ? 0 : 1;
}
