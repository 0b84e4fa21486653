/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#include <attikos/attikos.h>
#include <stdio.h>

enum { heads = 4, length = 100, features = 64 };

static float q[heads * length * features], out[heads * length * features];

int main(void) {
  for (int i = 0; i < heads * length * features; ++i) q[i] = 0.5f;

  attikos_context* context = NULL;
  if (attikos_context_create(ATTIKOS_HOST, 0, NULL, &context) != ATTIKOS_SUCCESS) {
    fprintf(stderr, "%s\n", attikos_last_error());
    return 1;
  }
  int64_t const shape[] = {1, heads, length, features};
  attikos_tensor const tq = {q, ATTIKOS_FLOAT32, 4, shape, NULL}; /* no strides: row-major */
  attikos_tensor const to = {out, ATTIKOS_FLOAT32, 4, shape, NULL};
  attikos_attention_options options = ATTIKOS_ATTENTION_OPTIONS_INIT;
  options.causal = 1;
  attikos_status status = attikos_attention(context, &tq, &tq, &tq, &to, NULL, &options);
  if (status == ATTIKOS_SUCCESS) status = attikos_synchronize(context);
  if (status != ATTIKOS_SUCCESS) {
    fprintf(stderr, "%s\n", attikos_last_error());
    return 1;
  }
  printf("%g\n", (double)out[0]);
  attikos_context_destroy(context);
  return 0;
}
