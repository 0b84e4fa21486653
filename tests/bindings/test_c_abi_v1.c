/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program of version 1 with the library of today, and callers of other versions: of each struct an earlier one, which
 * is shorter and lies before memory that is none of it, and a later one, whose members the library does not know. */
#define V1(name) name
typedef int attikos_status;
#include "abi_v1/types.h"
#include "abi_v1/functions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V1_ENUMERATOR(name, value) name = value,
enum { V1_ENUMERATORS(V1_ENUMERATOR) };

static int failures = 0;
#define CHECK(condition)                                                                                    \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      printf("%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #condition, attikos_last_error()); \
      ++failures;                                                                                           \
    }                                                                                                       \
  } while (0)

/* --- what the library says of its structs -------------------------------------------------------- */

/* Whether a line of a description is that of a member, of any meaning. */
static int is_member(char const* line, char const* kind, char const* name, size_t offset, size_t size, double initial) {
  char wanted[256];
  snprintf(wanted, sizeof wanted, "%s\t%s\t%zu\t%zu\t%.17g\t", kind, name, offset, size, initial);
  if (strncmp(line, wanted, strlen(wanted)) == 0) return 1;
  printf("version 1 has \"%s\", the library \"%.*s\"\n", wanted, (int)strcspn(line, "\n"), line);
  return 0;
}
static char const* after_line(char const* line) {
  line += strcspn(line, "\n");
  return *line == '\n' ? line + 1 : line;
}

#define V1_EXPECT_MEMBER(kind, name, initial)                                                                   \
  CHECK(is_member(line, #kind, #name, offsetof(Struct, name), sizeof(((Struct*)text)->name), (double)initial)); \
  line = after_line(line);

/* What came later lies behind all of a struct of version 1, whose last bytes may be padding, and its default is 0. */
static void expect_later_members(char const* line, size_t end) {
  for (; *line != '\0'; line = after_line(line)) {
    char kind[32], name[64];
    size_t offset = 0, size = 0;
    double initial = -1;
    CHECK(sscanf(line, "%31s %63s %zu %zu %lg", kind, name, &offset, &size, &initial) == 5);
    CHECK(offset >= end && initial == 0);
  }
}

#define EXPECT_STRUCT(operation, type, table)                                                               \
  do {                                                                                                      \
    typedef type Struct;                                                                                    \
    static char text[16384];                                                                                \
    size_t length = 0;                                                                                      \
    CHECK(attikos_describe_options(operation, text, sizeof text, &length) == ATTIKOS_SUCCESS);              \
    CHECK(length < sizeof text && strtoul(text, NULL, 10) >= sizeof(Struct));                               \
    char const* line = after_line(after_line(text)); /* the size, and the member that holds it */           \
    table(V1_EXPECT_MEMBER) expect_later_members(line, sizeof(Struct));                                     \
  } while (0)

static void test_structs(void) {
  EXPECT_STRUCT("gemm", attikos_gemm_options, V1_GEMM_OPTIONS);
  EXPECT_STRUCT("gemm_gradients", attikos_gemm_gradients, V1_GEMM_GRADIENTS);
  EXPECT_STRUCT("attention", attikos_attention_options, V1_ATTENTION_OPTIONS);
  EXPECT_STRUCT("attention_gradients", attikos_attention_gradients, V1_ATTENTION_GRADIENTS);
  EXPECT_STRUCT("decode", attikos_decode_options, V1_DECODE_OPTIONS);
  EXPECT_STRUCT("append_kv", attikos_append_kv_options, V1_APPEND_KV_OPTIONS);
  EXPECT_STRUCT("rope", attikos_rope_options, V1_ROPE_OPTIONS);
}

/* --- callers of all versions --------------------------------------------------------------------- */

static attikos_context* context = NULL;
/* Inputs that are 1, and outputs. */
static float one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, result[4];
static int64_t const shape[4] = {1, 1, 1, 2}, rows[3] = {1, 1, 1}, table_shape[2] = {1, 2};
static attikos_tensor const matrix = {one, ATTIKOS_FLOAT32, 2, shape, NULL}, /* [1, 1] */
    heads = {one, ATTIKOS_FLOAT32, 4, shape, NULL}, lse = {one, ATTIKOS_FLOAT32, 3, rows, NULL},
    table = {one, ATTIKOS_FLOAT32, 2, table_shape, NULL}, out_matrix = {result, ATTIKOS_FLOAT32, 2, shape, NULL},
    out_heads = {result, ATTIKOS_FLOAT32, 4, shape, NULL};
static float other_results[2][2];
static attikos_tensor const out_dk = {other_results[0], ATTIKOS_FLOAT32, 4, shape, NULL},
                            out_dv = {other_results[1], ATTIKOS_FLOAT32, 4, shape, NULL};

static attikos_status gemm(void const* options) {
  return attikos_gemm(context, &matrix, &matrix, &out_matrix, options);
}
static attikos_status gemm_gradients(void const* gradients) {
  return attikos_gemm_backward(context, &matrix, &matrix, &matrix, gradients, NULL);
}
static attikos_status attention(void const* options) {
  return attikos_attention(context, &heads, &heads, &heads, &out_heads, NULL, options);
}
static attikos_status attention_gradients(void const* gradients) {
  return attikos_attention_backward(context, &heads, &heads, &heads, &heads, &lse, &heads, gradients, NULL);
}
static attikos_status decode(void const* options) {
  return attikos_decode(context, &heads, &heads, &heads, &out_heads, NULL, options);
}
static attikos_status append_kv(void const* options) {
  return attikos_append_kv(context, &heads, &heads, &out_heads, &out_dv, options);
}
static attikos_status rope(void const* options) { /* cos and sin are 1, the halves x0 - x1 and x1 + x0 */
  return attikos_rope(context, &heads, &table, &table, &out_heads, options);
}

typedef struct operation {
  char const* name; /* of attikos_describe_options */
  char const* type;
  attikos_status (*call)(void const* options);
  void const* options; /* of version 1 */
  size_t size, first_size;
  float expected; /* result[0] by them */
} operation;

static void reset(void) {
  for (int i = 0; i < 4; ++i) result[i] = -1;
}
/* Calls with `size` bytes that begin with the options of version 1, go on with zeros and end before memory that any
 * member would be wrong in. `at`: a byte that is not 0. */
static attikos_status call(operation const* o, size_t size, size_t at) {
  unsigned char* const bytes = malloc(size + 256);
  if (bytes == NULL) exit(1);
  size_t const known = size < o->size ? size : o->size;
  memset(bytes, 0xff, size + 256);
  memset(bytes, 0, size);
  memcpy(bytes, o->options, known);
  if (at != 0) bytes[at] = 1;
  memcpy(bytes, &size, known < sizeof size ? known : sizeof size);
  reset();
  attikos_status const status = o->call(bytes);
  free(bytes);
  return status;
}
static void expect_result(operation const* o, size_t size, attikos_status got) {
  if (got == ATTIKOS_SUCCESS && fabsf(result[0] - o->expected) < 1e-5f) return;
  printf("%s of %zu bytes: status %d (%s), result %g; expected %g\n", o->type, size, got, attikos_last_error(),
         (double)result[0], (double)o->expected);
  ++failures;
}
static void expect_refusal(operation const* o, size_t size, attikos_status got, char const* word) {
  int const named = strstr(attikos_last_error(), o->type) != NULL && strstr(attikos_last_error(), word) != NULL;
  if (got == ATTIKOS_INVALID_STRUCT && named && result[0] == -1) return;
  printf("%s of %zu bytes: status %d (%s), result %g; expected a refusal that says \"%s\"\n", o->type, size, got,
         attikos_last_error(), (double)result[0], word);
  ++failures;
}

static void test_sizes(operation const* o) {
  char text[96];
  attikos_describe_options(o->name, text, sizeof text, NULL);
  size_t const known = strtoul(text, NULL, 10);
  for (size_t size = sizeof(size_t); size < o->first_size; ++size)
    expect_refusal(o, size, call(o, size, 0), "struct_size");
  for (size_t size = o->first_size; size <= known + 64; ++size) {
    if (size % sizeof(size_t) == 0)
      expect_result(o, size, call(o, size, 0));
    else
      expect_refusal(o, size, call(o, size, 0), "struct_size");
  }
  for (size_t at = known; at < known + 64; ++at) {
    snprintf(text, sizeof text, "in use at byte %zu that this library does not know", at);
    expect_refusal(o, known + 64, call(o, known + 64, at), text);
  }
  size_t const none = SIZE_MAX;
  reset();
  expect_refusal(o, none, o->call(&none), "struct_size");
}

#define OPTIONS(type, table) \
  type const type##_v1 = { sizeof(type) table(V1_INITIAL) }

static void test_callers(void) {
  OPTIONS(attikos_gemm_options, V1_GEMM_OPTIONS);
  OPTIONS(attikos_attention_options, V1_ATTENTION_OPTIONS);
  OPTIONS(attikos_decode_options, V1_DECODE_OPTIONS);
  OPTIONS(attikos_append_kv_options, V1_APPEND_KV_OPTIONS);
  OPTIONS(attikos_rope_options, V1_ROPE_OPTIONS);
  attikos_gemm_gradients const da = {.struct_size = sizeof da, .da = &out_matrix};
  attikos_attention_gradients const all = {.struct_size = sizeof all, .dq = &out_dk, .dk = &out_heads, .dv = &out_dv};
  operation list[] = {
      {"gemm", "attikos_gemm_options", gemm, &attikos_gemm_options_v1, sizeof attikos_gemm_options_v1, 88, 1},
      {"gemm_gradients", "attikos_gemm_gradients", gemm_gradients, &da, sizeof da, 32, 1},
      {"attention", "attikos_attention_options", attention, &attikos_attention_options_v1,
       sizeof attikos_attention_options_v1, 136, 1},
      {"attention_gradients", "attikos_attention_gradients", attention_gradients, &all, sizeof all, 48, 0},
      {"decode", "attikos_decode_options", decode, &attikos_decode_options_v1, sizeof attikos_decode_options_v1, 152, 1},
      {"append_kv", "attikos_append_kv_options", append_kv, &attikos_append_kv_options_v1,
       sizeof attikos_append_kv_options_v1, 80, 1},
      {"rope", "attikos_rope_options", rope, &attikos_rope_options_v1, sizeof attikos_rope_options_v1, 48, 0}};
  for (size_t i = 0; i < sizeof list / sizeof list[0]; ++i) test_sizes(&list[i]);
}

/* An output: what the caller's version does not have is not written, what the library does not know neither. */
static void test_device_info(void) {
  enum { v1 = sizeof(attikos_device_info), longer = v1 + 64 };
  size_t memory[longer / sizeof(size_t)];
  unsigned char* const bytes = (unsigned char*)memory;
  for (size_t size = 0; size <= longer; ++size) {
    memset(bytes, 0x5a, sizeof memory);
    memory[0] = size;
    attikos_status const status = attikos_get_device_info(ATTIKOS_HOST, 0, (attikos_device_info*)memory);
    CHECK(status == (size < v1 || size % sizeof(size_t) != 0 ? ATTIKOS_INVALID_STRUCT : ATTIKOS_SUCCESS));
    CHECK(memory[0] == size);
    if (status == ATTIKOS_SUCCESS) {
      attikos_device_info const* const info = (attikos_device_info const*)memory;
      CHECK(info->kind == ATTIKOS_HOST && info->architecture == ATTIKOS_ARCH_HOST && info->total_memory > 0);
      for (size_t i = size; i < sizeof memory; ++i) CHECK(bytes[i] == 0x5a);
    } else {
      for (size_t i = sizeof size; i < sizeof memory; ++i) CHECK(bytes[i] == 0x5a);
    }
  }
}

int main(void) {
  test_structs();
  CHECK(attikos_context_create(ATTIKOS_HOST, 0, NULL, &context) == ATTIKOS_SUCCESS);
  if (context == NULL) return 1;
  test_callers();
  test_device_info();
  attikos_context_destroy(context);
  if (failures != 0) printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
