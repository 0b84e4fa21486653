/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A context's allocator: calls take their memory from it, give it back before they return, and fail in words where it
 * gives none. On the host, where attention that stores its scores and decode in parts need memory. */
#include <attikos/attikos.h>

#include <stdlib.h>

#include "c_checks.h"

typedef struct {
  int allocated, released, refuses, shifts;
  size_t bytes;
  void* last;
  char memory[1 << 16];
} pool;

static void* at_64(pool* p) { return p->memory + (64 - (uintptr_t)p->memory % 64) % 64 + (p->shifts ? 8 : 0); }

static void* give(void* user, size_t bytes) {
  pool* const p = (pool*)user;
  if (p->refuses || bytes + 128 > sizeof p->memory) return NULL;
  ++p->allocated, p->bytes = bytes, p->last = at_64(p);
  return p->last;
}

static void take_back(void* user, void* memory) {
  pool* const p = (pool*)user;
  CHECK(memory == p->last);
  ++p->released;
}

static pool own, other;
static float q_data[16], k_data[64], out_data[16];
static int64_t const q_shape[4] = {1, 1, 2, 8}, k_shape[4] = {1, 1, 8, 8};

static attikos_status run(attikos_context* context) {
  attikos_tensor const q = tensor(q_data, ATTIKOS_FLOAT32, 4, q_shape), k = tensor(k_data, ATTIKOS_FLOAT32, 4, k_shape),
                       out = tensor(out_data, ATTIKOS_FLOAT32, 4, q_shape);
  attikos_attention_options options = ATTIKOS_ATTENTION_OPTIONS_INIT;
  options.algorithm = ATTIKOS_TILED;
  fill(out_data, 16, -1);
  return attikos_attention(context, &q, &k, &k, &out, NULL, &options);
}

int main(void) {
  attikos_context *first = NULL, *second = NULL;
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &first), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &second), ATTIKOS_SUCCESS);
  fill(q_data, 16, 1), fill(k_data, 64, 2);

  CHECK_STATUS(attikos_context_set_allocator(NULL, give, take_back, &own), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_context_set_allocator(first, give, NULL, &own), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_context_set_allocator(first, NULL, take_back, &own), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(run(first), ATTIKOS_SUCCESS);
  CHECK(own.allocated == 0);

  /* Of one context, not of another one of the same device. */
  CHECK_STATUS(attikos_context_set_allocator(first, give, take_back, &own), ATTIKOS_SUCCESS);
  CHECK_STATUS(run(second), ATTIKOS_SUCCESS);
  CHECK(own.allocated == 0);
  CHECK_STATUS(run(first), ATTIKOS_SUCCESS);
  CHECK(own.allocated == 1 && own.released == 1 && own.bytes >= 2 * 8 * sizeof(float));
  CHECK(all_are(out_data, 16, 2));
  CHECK_STATUS(attikos_context_set_allocator(first, give, take_back, &other), ATTIKOS_SUCCESS);
  CHECK_STATUS(run(first), ATTIKOS_SUCCESS);
  CHECK(own.allocated == 1 && other.allocated == 1 && other.released == 1);

  /* No memory, and memory at an address that is no use. */
  other.refuses = 1;
  CHECK_STATUS(run(first), ATTIKOS_OUT_OF_MEMORY);
  CHECK(strstr(attikos_last_error(), "attention: needs ") != NULL);
  CHECK(strstr(attikos_last_error(), "bytes of workspace, which the caller's allocator did not give") != NULL);
  CHECK(all_are(out_data, 16, -1) && other.released == 1);
  other.refuses = 0, other.shifts = 1;
  CHECK_STATUS(run(first), ATTIKOS_OUT_OF_MEMORY);
  CHECK(strstr(attikos_last_error(), "expected an address divisible by 64") != NULL);
  CHECK(all_are(out_data, 16, -1) && other.allocated == 2 && other.released == 2);

  CHECK_STATUS(attikos_context_set_allocator(first, NULL, NULL, NULL), ATTIKOS_SUCCESS);
  CHECK_STATUS(run(first), ATTIKOS_SUCCESS);
  CHECK(other.allocated == 2 && all_are(out_data, 16, 2));
  attikos_context_destroy(first);
  attikos_context_destroy(second);
  printf("%d failures\n", failures);
  return failures != 0;
}
