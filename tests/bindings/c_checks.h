/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of C tests that go on after a failure. */
#ifndef ATTIKOS_TESTS_C_CHECKS_H
#define ATTIKOS_TESTS_C_CHECKS_H

#include <attikos/attikos.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      printf("%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #condition, attikos_last_error()); \
      ++failures;                                                                    \
    }                                                                                \
  } while (0)

#define CHECK_STATUS(call, wanted)                                                       \
  do {                                                                                   \
    attikos_status const got_ = (call);                                                  \
    if (got_ != (wanted)) {                                                              \
      printf("%s:%d: %s is \"%s\", expected \"%s\" (%s)\n", __FILE__, __LINE__, #call,   \
             attikos_status_string(got_), attikos_status_string(wanted), attikos_last_error()); \
      ++failures;                                                                        \
    }                                                                                    \
  } while (0)

/* A dense tensor. */
static inline attikos_tensor tensor(void const* data, int32_t dtype, int32_t ndim, int64_t const* shape) {
  attikos_tensor t = {(void*)(uintptr_t)data, dtype, ndim, shape, NULL};
  return t;
}

static inline void fill(float* x, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) x[i] = value;
}
static inline int all_are(float const* x, size_t count, float value) {
  for (size_t i = 0; i < count; ++i)
    if (x[i] != value) return 0;
  return 1;
}

#endif
