/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every function that writes tensors, every output, every other tensor: memory that they share is refused, and
 * nothing is written, but where the function says that the tensor may be the output itself. */
#include <attikos/attikos.h>

#include "c_calls.h"
#include "c_checks.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
enum { slot = 1024, filling = 0x11 };

static double memory[c_call_most * slot / sizeof(double)];

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
static attikos_status call(attikos_context* context, c_call const* what, int moved, size_t offset, int folded) {
  static int64_t const ones[5] = {1, 1, 1, 1, 1}, zeros[5] = {0, 0, 0, 0, 0};
  attikos_tensor t[c_call_most];
  attikos_tensor const* all[c_call_most];
  argument const* const list = what->arguments;
  reset();
  for (int i = 0; i < c_call_count(what); ++i) {
    int wide = 0; /* dimensions that lead anywhere */
    for (int r = 0; r < list[i].ndim; ++r) wide += list[i].shape[r] > 1;
    size_t const at = i == moved ? offset : (size_t)i * slot;
    attikos_tensor const x = {(char*)memory + at, list[i].dtype, list[i].ndim, list[i].shape,
                              i != folded ? NULL : wide > 1 ? ones : zeros};
    t[i] = x;
    all[i] = &t[i];
  }
  return what->call(context, all);
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

static void check(attikos_context* context, c_call const* what) {
  argument const* const list = what->arguments;
  char const* const operation = what->operation;
  int const count = c_call_count(what);
  CHECK_STATUS(call(context, what, -1, 0, -1), ATTIKOS_SUCCESS);
  for (int i = 0; i < count; ++i) {
    if (!list[i].is_output) continue;
    expect(call(context, what, -1, 0, i), ATTIKOS_INVALID_STRIDES, operation, list[i].name, "elements", 0);
    size_t const at = (size_t)i * slot, shifts[3] = {bytes_of(&list[i]) - 4, 4, 0};
    for (int j = 0; j < count; ++j) {
      if (j == i) continue;
      for (size_t s = 0; s < COUNT(shifts); ++s) {
        if (shifts[s] >= bytes_of(&list[i])) continue;
        attikos_status const got = call(context, what, j, at + shifts[s], -1);
        if (shifts[s] == 0 && list[j].may_be == i) {
          CHECK_STATUS(got, ATTIKOS_SUCCESS);
        } else {
          expect(got, ATTIKOS_INVALID_ARGUMENT, operation, list[i].name, list[j].name, shifts[s]);
        }
      }
    }
  }
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
  for (size_t i = 0; i < COUNT(c_calls); ++i) check(context, &c_calls[i]);
  test_raw_attention();
  attikos_context_destroy(context);
  if (failures != 0) printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
