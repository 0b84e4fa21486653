/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The structs of options as C has them and as the library, which is C++, describes them: every member of the tables
 * lies where the other side looks for it. test_c_abi_v1.c is about those of version 1. */
#include <attikos/attikos.h>

#include "c_checks.h"

/* Checks the beginning of a line of a description and goes to the next one. */
static char const* expect_line(char const* line, char const* kind, char const* name, size_t offset, size_t size,
                               double initial, char const* meaning) {
  char wanted[1024];
  snprintf(wanted, sizeof wanted, "%s\t%s\t%zu\t%zu\t%.17g\t%s\n", kind, name, offset, size, initial, meaning);
  size_t const length = strlen(wanted);
  if (strncmp(line, wanted, length) != 0) {
    char const* const end = strchr(line, '\n');
    printf("the library says \"%.*s\", C has \"%.*s\"\n", end == NULL ? 0 : (int)(end - line), line,
           (int)length - 1, wanted);
    ++failures;
  }
  char const* const next = strchr(line, '\n');
  return next == NULL ? "" : next + 1;
}

#define VALUE_real(x) (x)
#define VALUE_integer(x) ((double)(x))
#define VALUE_number(x) ((double)(x))
#define VALUE_flag(x) ((double)(x))
#define VALUE_choice(x) ((double)(x))
#define VALUE_tensor(x) ((x) == NULL ? 0.0 : -1.0)
#define VALUE_text(x) ((x) == NULL ? 0.0 : -1.0)

#define EXPECT_MEMBER(kind, name, initial, meaning)                                                                 \
  line = expect_line(line, #kind, #name, (size_t)((char*)&defaults.name - (char*)&defaults), sizeof defaults.name,  \
                     VALUE_##kind(defaults.name), meaning);                                                         \
  ++members;

#define EXPECT_STRUCT(operation, type, table, init)                                                                 \
  do {                                                                                                              \
    type defaults = init;                                                                                           \
    char text[16384];                                                                                               \
    size_t length = 0, members = 0;                                                                                 \
    CHECK_STATUS(attikos_describe_options(operation, text, sizeof text, &length), ATTIKOS_SUCCESS);                 \
    CHECK(length < sizeof text && length == strlen(text));                                                          \
    char size[32];                                                                                                  \
    snprintf(size, sizeof size, "%zu\n", sizeof(type));                                                             \
    CHECK(strncmp(text, size, strlen(size)) == 0);                                                                  \
    char const* line = expect_line(text + strlen(size), "size", "struct_size", 0, sizeof(size_t),                   \
                                   (double)sizeof(type), "bytes of this");                                          \
    table(EXPECT_MEMBER)                                                                                            \
    CHECK(*line == '\0');                                                                                           \
    CHECK(members > 0);                                                                                             \
  } while (0)

#define EXPECT_OPTION_STRUCT(name, type, table, bytes) EXPECT_STRUCT(#name, type, table, table##_INIT);

static void test_descriptions(void) { ATTIKOS_OPTION_STRUCTS(EXPECT_OPTION_STRUCT) }

static void test_wrong_arguments(void) {
  char text[8];
  size_t length = 0;
  CHECK_STATUS(attikos_describe_options(NULL, text, sizeof text, &length), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_describe_options("attention", NULL, 1, &length), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_describe_options("no such operation", text, sizeof text, &length), ATTIKOS_INVALID_ARGUMENT);
  CHECK(strstr(attikos_last_error(), "no such operation") != NULL);
  CHECK_STATUS(attikos_describe_options("attention", text, sizeof text, &length), ATTIKOS_SUCCESS);
  CHECK(text[sizeof text - 1] == '\0' && length > sizeof text);
}

int main(void) {
  test_descriptions();
  test_wrong_arguments();
  if (failures != 0) printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
