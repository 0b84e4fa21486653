/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attikos_pack_b, and attikos_gemm with what it packed: the bits of the plain call, and what is refused. */
#include <attikos/attikos.h>
#include <stdlib.h>

#include "c_checks.h"

enum { M = 21, N = 70, K = 300, guard = 64 };
static _Alignas(64) unsigned char memory[1 << 18];
static int32_t a_data[M * K], b_data[N * K], plain_data[M * N], packed_data[M * N]; /* room for 4 bytes an element */

static int64_t const a_shape[2] = {M, K}, b_shape[2] = {K, N}, turned_shape[2] = {N, K}, c_shape[2] = {M, N};

/* Small numbers of a type, exact in all. */
static void numbers(int32_t dtype, void* to, int count, int seed) {
  for (int i = 0; i < count; ++i) {
    int const value = (i * 7 + i / 13 + seed) % 5 - 2;
    float const real = (float)value;
    uint32_t bits;
    memcpy(&bits, &real, sizeof bits);
    if (dtype == ATTIKOS_FLOAT32) ((float*)to)[i] = real;
    if (dtype == ATTIKOS_BFLOAT16) ((uint16_t*)to)[i] = (uint16_t)(bits >> 16);
    if (dtype == ATTIKOS_INT8) ((int8_t*)to)[i] = (int8_t)value;
  }
}

static attikos_tensor bytes_of(void* data, int64_t const* count) {
  return tensor(data, ATTIKOS_UINT8, 1, count);
}

static void test_product(attikos_context* context, int32_t dtype, int32_t result, int trans_b) {
  numbers(dtype, a_data, M * K, 1);
  numbers(dtype, b_data, N * K, 2);
  attikos_tensor const a = tensor(a_data, dtype, 2, a_shape);
  attikos_tensor const b = tensor(b_data, dtype, 2, trans_b ? turned_shape : b_shape);
  attikos_tensor const want = tensor(plain_data, result, 2, c_shape), got = tensor(packed_data, result, 2, c_shape);
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.trans_b = trans_b;
  CHECK_STATUS(attikos_gemm(context, &a, &b, &want, &o), ATTIKOS_SUCCESS);

  size_t size = 0;
  CHECK_STATUS(attikos_pack_b_size(context, &b, trans_b, &size), ATTIKOS_SUCCESS);
  CHECK(size > N * K * attikos_dtype_size(dtype) && size + guard <= sizeof memory);
  memset(memory, 0xff, sizeof memory);
  int64_t const count = (int64_t)size;
  unsigned char* const begin = memory + 3 * (size_t)trans_b; /* anywhere */
  attikos_tensor const packed = bytes_of(begin, &count);
  CHECK_STATUS(attikos_pack_b(context, &b, trans_b, &packed), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_synchronize(context), ATTIKOS_SUCCESS);
  for (int i = 0; i < guard; ++i) CHECK(begin[size + (size_t)i] == 0xff);

  /* B has no data any more */
  attikos_tensor const gone = tensor(NULL, dtype, 2, trans_b ? turned_shape : b_shape);
  o.packed_b = &packed;
  memset(packed_data, 0xff, sizeof packed_data);
  CHECK_STATUS(attikos_gemm(context, &a, &gone, &got, &o), ATTIKOS_SUCCESS);
  CHECK_STATUS(attikos_synchronize(context), ATTIKOS_SUCCESS);
  CHECK(memcmp(plain_data, packed_data, M * N * attikos_dtype_size(result)) == 0);
  char text[512];
  CHECK_STATUS(attikos_explain_gemm(context, &a, &gone, &got, &o, text, sizeof text, NULL), ATTIKOS_SUCCESS);
  CHECK(strstr(text, "packed B: [300, 70] ") != NULL);
}

/* The sums themselves, which are exact. */
static void test_numbers(void) {
  numbers(ATTIKOS_INT8, a_data, M * K, 1);
  numbers(ATTIKOS_INT8, b_data, N * K, 2);
  int8_t const *a = (int8_t const*)a_data, *b = (int8_t const*)b_data;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      int32_t sum = 0;
      for (int l = 0; l < K; ++l) sum += a[i * K + l] * b[j * K + l];
      CHECK(packed_data[i * N + j] == sum);
    }
}

static void test_refusals(attikos_context* context) {
  numbers(ATTIKOS_FLOAT32, b_data, N * K, 2);
  attikos_tensor const a = tensor(a_data, ATTIKOS_FLOAT32, 2, a_shape);
  attikos_tensor const b = tensor(b_data, ATTIKOS_FLOAT32, 2, b_shape);
  attikos_tensor const c = tensor(packed_data, ATTIKOS_FLOAT32, 2, c_shape);
  size_t size = 0;
  CHECK_STATUS(attikos_pack_b_size(context, &b, 0, NULL), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_pack_b_size(NULL, &b, 0, &size), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_pack_b_size(context, &b, 0, &size), ATTIKOS_SUCCESS);
  int64_t const whole = (int64_t)size, less = whole - 1, steps = 2;
  attikos_tensor packed = bytes_of(memory, &less);
  CHECK_STATUS(attikos_pack_b(context, &b, 0, &packed), ATTIKOS_SHAPE_MISMATCH);
  CHECK(strstr(attikos_last_error(), "attikos::pack_b: packed has ") != NULL);
  packed = bytes_of(memory, &whole);
  packed.strides = &steps;
  CHECK_STATUS(attikos_pack_b(context, &b, 0, &packed), ATTIKOS_INVALID_STRIDES);
  packed = tensor(memory, ATTIKOS_INT8, 1, &whole);
  CHECK_STATUS(attikos_pack_b(context, &b, 0, &packed), ATTIKOS_DTYPE_MISMATCH);
  attikos_tensor const integers = tensor(b_data, ATTIKOS_INT32, 2, b_shape);
  packed = bytes_of(memory, &whole);
  CHECK_STATUS(attikos_pack_b(context, &integers, 0, &packed), ATTIKOS_DTYPE_MISMATCH);

  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.packed_b = &packed;
  memset(memory, 0, sizeof memory);
  fill((float*)packed_data, M * N, -1);
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &o), ATTIKOS_INVALID_ARGUMENT);
  CHECK(strstr(attikos_last_error(), "holds nothing that attikos_pack_b wrote") != NULL);
  CHECK_STATUS(attikos_pack_b(context, &b, 0, &packed), ATTIKOS_SUCCESS);
  o.trans_b = 1; /* of another shape, then of the right one */
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &o), ATTIKOS_UNSUPPORTED);
  CHECK(strstr(attikos_last_error(), "trans_b is true; expected false, as in the call of pack_b()") != NULL);
  o.trans_b = 0;
  attikos_tensor const other = tensor(b_data, ATTIKOS_FLOAT32, 2, turned_shape);
  CHECK_STATUS(attikos_gemm(context, &a, &other, &c, &o), ATTIKOS_SHAPE_MISMATCH);
  CHECK(strstr(attikos_last_error(), "but packed_b holds [300, 70] float32") != NULL);
  int64_t const panels = (int64_t)(size - 64);
  packed = bytes_of(memory, &panels);
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &o), ATTIKOS_OUT_OF_MEMORY);
  packed = bytes_of(memory, &whole);
  memory[50] ^= 1; /* the instruction set that it was packed for */
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &o), ATTIKOS_UNSUPPORTED);
  CHECK(strstr(attikos_last_error(), "attikos::gemm: B was packed for ") != NULL);
  memory[50] ^= 1;
  memmove(memory + 8, memory, (size_t)whole);
  packed = bytes_of(memory + 8, &whole);
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &o), ATTIKOS_MISALIGNED);
  memmove(memory + 64, memory + 8, (size_t)whole);
  packed = bytes_of(memory + 64, &whole);
  attikos_gemm_gradients g = ATTIKOS_GEMM_GRADIENTS_INIT;
  attikos_tensor const da = tensor(plain_data, ATTIKOS_FLOAT32, 2, a_shape);
  g.da = &da;
  CHECK_STATUS(attikos_gemm_backward(context, &a, &b, &c, &g, &o), ATTIKOS_UNSUPPORTED);
  CHECK(all_are((float const*)packed_data, M * N, -1));
  CHECK_STATUS(attikos_gemm(context, &a, &b, &c, &o), ATTIKOS_SUCCESS);
}

int main(void) {
  attikos_context* context = NULL;
  CHECK_STATUS(attikos_context_create(ATTIKOS_HOST, 0, NULL, &context), ATTIKOS_SUCCESS);
  for (int trans_b = 0; trans_b < 2; ++trans_b) {
    test_product(context, ATTIKOS_FLOAT32, ATTIKOS_FLOAT32, trans_b);
    test_product(context, ATTIKOS_BFLOAT16, ATTIKOS_FLOAT32, trans_b);
    test_product(context, ATTIKOS_BFLOAT16, ATTIKOS_BFLOAT16, trans_b);
    test_product(context, ATTIKOS_INT8, ATTIKOS_FLOAT32, trans_b);
    test_product(context, ATTIKOS_INT8, ATTIKOS_INT32, trans_b);
  }
  test_numbers();
  test_refusals(context);
  attikos_context_destroy(context);
  if (failures == 0) printf("all passed\n");
  return failures == 0 ? 0 : 1;
}
