/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A process that is forked after the library was used lacks its threads: calls must work there all the same. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c_checks.h"

enum { n = 192 };
static float a[n * n], c[n * n];

/* A product of ones, large enough for several threads. */
static void multiply(attikos_context* context) {
  int64_t const shape[2] = {n, n};
  attikos_tensor const in = tensor(a, ATTIKOS_FLOAT32, 2, shape), out = tensor(c, ATTIKOS_FLOAT32, 2, shape);
  fill(c, n * n, -1);
  CHECK_STATUS(attikos_gemm(context, &in, &in, &out, NULL), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_synchronize(context), ATTIKOS_SUCCESS);
  CHECK(all_are(c, n * n, n));
}

/* What a child finds: the parent's context, and one of its own. */
static void use(attikos_context* inherited, int32_t kind) {
  attikos_context* context = NULL;
  void* memory = NULL;
  multiply(inherited);
  CHECK_STATUS(attikos_context_create(kind, 0, NULL, &context), ATTIKOS_SUCCESS);
  multiply(context);
  CHECK_STATUS(attikos_allocate(context, 64, &memory), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_free(context, memory), ATTIKOS_SUCCESS);
  attikos_context_destroy(context);
}

/* Runs `generations` children of children; each ends as programs end, so that what runs at exit runs, too. */
static void fork_and_use(attikos_context* context, int32_t kind, int generations) {
  int status = -1;
  pid_t const child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60); /* instead of hanging */
    failures = 0;
    use(context, kind);
    if (generations > 1) fork_and_use(context, kind, generations - 1);
    exit(failures == 0 ? 0 : 1);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_kind(int32_t kind) {
  attikos_context* context = NULL;
  if (!attikos_has_device(kind, 0)) return;
  CHECK_STATUS(attikos_context_create(kind, 0, NULL, &context), ATTIKOS_SUCCESS);
  multiply(context);
  fork_and_use(context, kind, 2);
  multiply(context);
  attikos_context_destroy(context);
}

/* Instances that nothing uses any more are given up, the oldest first; one in use stays. */
static void test_contexts_come_and_go(void) {
  attikos_context *kept = NULL, *context = NULL;
  int key[100];
  if (!attikos_has_device(ATTIKOS_SERIAL, 0)) return;
  CHECK_STATUS(attikos_context_create(ATTIKOS_SERIAL, 0, &key, &kept), ATTIKOS_SUCCESS);
  for (int i = 0; i < 100; ++i) {
    CHECK_STATUS(attikos_context_create(ATTIKOS_SERIAL, 0, key + i, &context), ATTIKOS_SUCCESS);
    if (i % 10 == 0) multiply(context);
    attikos_context_destroy(context);
  }
  multiply(kept);
  attikos_context_destroy(kept);
}

int main(void) {
  fill(a, n * n, 1);
  /* Before anything was used a fork is none that the library could notice. */
  pid_t const early = fork();
  if (early == 0) {
    attikos_context* context = NULL;
    alarm(60);
    CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &context), ATTIKOS_SUCCESS);
    multiply(context);
    attikos_context_destroy(context);
    exit(failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(early, &status, 0) == early);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  test_kind(ATTIKOS_HOST);
  test_kind(ATTIKOS_SERIAL);
  test_contexts_come_and_go();
  return failures == 0 ? 0 : 1;
}
