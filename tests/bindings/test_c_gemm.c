/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Narrow and grouped products, gradients, answers in text: each computes, and each kind of wrong argument has its
 * status and leaves outputs alone. Exact numbers: sums of small integers and powers of two. */
#include <attikos/attikos.h>

#include <math.h>
#include <stddef.h>

#include "c_checks.h"

/* --- products ------------------------------------------------------------------------------------ */

static void test_narrow_gemm(attikos_context* context) {
  int8_t const a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}; /* product 19 22 43 50 */
  int32_t sums[4];
  float c[4], pre[4];
  int8_t c8[4] = {-1, -1, -1, -1};
  int32_t const zero_a[2] = {1, 2};
  float const two[1] = {2}, rows[2] = {1, 0.5f}, tenth[1] = {0.25f}, bias_data[2] = {1, -1};
  int64_t const shape[2] = {2, 2}, single[1] = {1}, pair[1] = {2}, column[2] = {2, 1};
  attikos_tensor const ta = tensor(a, ATTIKOS_INT8, 2, shape), tb = tensor(b, ATTIKOS_INT8, 2, shape),
                       ts = tensor(sums, ATTIKOS_INT32, 2, shape), tc = tensor(c, ATTIKOS_FLOAT32, 2, shape),
                       t8 = tensor(c8, ATTIKOS_INT8, 2, shape), tz = tensor(zero_a, ATTIKOS_INT32, 1, pair),
                       tr = tensor(rows, ATTIKOS_FLOAT32, 2, column), t2 = tensor(two, ATTIKOS_FLOAT32, 1, single),
                       tt = tensor(tenth, ATTIKOS_FLOAT32, 1, single), bias = tensor(bias_data, ATTIKOS_FLOAT32, 1, pair),
                       tp = tensor(pre, ATTIKOS_FLOAT32, 2, shape);
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.zero_point_a = &tz; /* rows 0 1 and 1 2: 7 8 and 19 22 */
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &ts, &o), ATTIKOS_SUCCESS);
  CHECK(sums[0] == 7 && sums[1] == 8 && sums[2] == 19 && sums[3] == 22);
  o.scale_a = &tr, o.scale_b = &t2, o.bias = &bias, o.pre_activation = &tp, o.residual = NULL;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_SUCCESS);
  CHECK(c[0] == 15 && c[1] == 15 && c[2] == 20 && c[3] == 21 && memcmp(c, pre, sizeof c) == 0);
  o.device_scale = &t2;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_SUCCESS);
  CHECK(c[0] == 29 && c[1] == 31 && c[2] == 39 && c[3] == 43);
  o.device_scale = NULL, o.scale_out = &tt; /* times 4: 60 60 80 84 */
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &t8, &o), ATTIKOS_SUCCESS);
  CHECK(c8[0] == 60 && c8[1] == 60 && c8[2] == 80 && c8[3] == 84);

  c8[0] = 99, c[0] = -1, sums[0] = -1;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_UNSUPPORTED); /* scale_out, c of 32 bits */
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &ts, &o), ATTIKOS_UNSUPPORTED);
  o.beta = 1;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &t8, &o), ATTIKOS_UNSUPPORTED);
  o.beta = 0, o.compute = 3;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &t8, &o), ATTIKOS_INVALID_ARGUMENT);
  o.compute = 0, o.accumulate = -1;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &t8, &o), ATTIKOS_INVALID_ARGUMENT);
  o.accumulate = 0, o.zero_point_b = &tt;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &t8, &o), ATTIKOS_DTYPE_MISMATCH);
  o.zero_point_b = NULL, o.scale_out = &bias;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &t8, &o), ATTIKOS_SHAPE_MISMATCH);
  o.scale_out = &tt, o.pre_activation = &t8;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &t8, &o), ATTIKOS_DTYPE_MISMATCH);
  CHECK(c8[0] == 99 && c[0] == -1 && sums[0] == -1);

  /* E5M2 beside E4M3: 1.0 is 0x3c there and 0x38 here; callers of the first version */
  uint8_t const x[4] = {0x3c, 0, 0, 0x3c}, y[4] = {0x38, 0x40, 0x48, 0x38};
  attikos_tensor const tx = tensor(x, ATTIKOS_FLOAT8_E5M2, 2, shape), ty = tensor(y, ATTIKOS_FLOAT8_E4M3, 2, shape);
  attikos_gemm_options first = ATTIKOS_GEMM_OPTIONS_INIT;
  first.struct_size = offsetof(attikos_gemm_options, compute);
  first.compute = 77; /* behind what counts */
  CHECK_STATUS(attikos_gemm(context, &tx, &ty, &tc, &first), ATTIKOS_SUCCESS);
  CHECK(c[0] == 1 && c[1] == 2 && c[2] == 4 && c[3] == 1);
  first.struct_size -= 1;
  CHECK_STATUS(attikos_gemm(context, &tx, &ty, &tc, &first), ATTIKOS_INVALID_STRUCT);
}

static void test_groups(attikos_context* context) {
  float const a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, b[2] = {10, 100}; /* [8, 1], [2, 1, 1] */
  float c[8];
  int32_t offsets[3] = {1, 3, 6}, counts[2] = {1, 3};
  int64_t const rows[2] = {8, 1}, weights[3] = {2, 1, 1}, three[1] = {3}, two[1] = {2}, cube[3] = {2, 4, 1};
  attikos_tensor const ta = tensor(a, ATTIKOS_FLOAT32, 2, rows), tb = tensor(b, ATTIKOS_FLOAT32, 3, weights),
                       tc = tensor(c, ATTIKOS_FLOAT32, 2, rows), to = tensor(offsets, ATTIKOS_INT32, 1, three),
                       tn = tensor(counts, ATTIKOS_INT32, 1, two), ta3 = tensor(a, ATTIKOS_FLOAT32, 3, cube),
                       tc3 = tensor(c, ATTIKOS_FLOAT32, 3, cube);
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.group_offsets = &to;
  fill(c, 8, -1);
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_SUCCESS);
  float const grouped[8] = {-1, 20, 30, 400, 500, 600, -1, -1};
  CHECK(memcmp(c, grouped, sizeof c) == 0);
  attikos_gemm_options m = ATTIKOS_GEMM_OPTIONS_INIT;
  m.row_counts = &tn;
  fill(c, 8, -1);
  CHECK_STATUS(attikos_gemm(context, &ta3, &tb, &tc3, &m), ATTIKOS_SUCCESS);
  float const masked[8] = {10, -1, -1, -1, 500, 600, 700, -1};
  CHECK(memcmp(c, masked, sizeof c) == 0);
  fill(c, 8, -1);
  CHECK_STATUS(attikos_gemm(context, &ta3, &tb, &tc3, &o), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_gemm(context, &ta, &ta, &tc, &m), ATTIKOS_SHAPE_MISMATCH);
  o.row_counts = &tn;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_UNSUPPORTED);
  o.row_counts = NULL, o.group_offsets = &tn;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_SHAPE_MISMATCH);
  attikos_tensor t = to;
  t.dtype = ATTIKOS_FLOAT32;
  o.group_offsets = &t;
  CHECK_STATUS(attikos_gemm(context, &ta, &tb, &tc, &o), ATTIKOS_DTYPE_MISMATCH);
  t = tn, t.dtype = ATTIKOS_UINT8, m.row_counts = &t;
  CHECK_STATUS(attikos_gemm(context, &ta3, &tb, &tc3, &m), ATTIKOS_DTYPE_MISMATCH);
  CHECK(all_are(c, 8, -1));
}

static void test_gemm_backward(attikos_context* context) {
  float const a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1}, dout[4] = {1, 2, 3, 4}, pre[4] = {1, -1, 0, 2};
  float da[6], db[6], dbias[2];
  int64_t const as[2] = {2, 3}, bs[2] = {3, 2}, cs[2] = {2, 2}, two[1] = {2};
  attikos_tensor const ta = tensor(a, ATTIKOS_FLOAT32, 2, as), tb = tensor(b, ATTIKOS_FLOAT32, 2, bs),
                       tg = tensor(dout, ATTIKOS_FLOAT32, 2, cs), tp = tensor(pre, ATTIKOS_FLOAT32, 2, cs),
                       tda = tensor(da, ATTIKOS_FLOAT32, 2, as), tdb = tensor(db, ATTIKOS_FLOAT32, 2, bs),
                       tdc = tensor(dbias, ATTIKOS_FLOAT32, 1, two);
  attikos_gemm_gradients g = ATTIKOS_GEMM_GRADIENTS_INIT;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, NULL), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, NULL, NULL), ATTIKOS_NULL_ARGUMENT);
  g.da = &tda, g.db = &tdb, g.d_bias = &tdc;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, NULL), ATTIKOS_SUCCESS);
  float const want_da[6] = {1, 2, 3, 3, 4, 7}, want_db[6] = {13, 18, 17, 24, 21, 30};
  CHECK(memcmp(da, want_da, sizeof da) == 0 && memcmp(db, want_db, sizeof db) == 0 && dbias[0] == 4 && dbias[1] == 6);
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  o.activation = ATTIKOS_ACTIVATION_RELU; /* dx = 1 0 0 4 */
  fill(da, 6, -1), fill(db, 6, -1), fill(dbias, 2, -1);
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_UNSUPPORTED);
  o.pre_activation = &tda;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SHAPE_MISMATCH);
  o.pre_activation = &tp;
  g.da = &tdb;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SHAPE_MISMATCH);
  g.da = &tda, o.scale_a = &tdc;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_UNSUPPORTED);
  o.scale_a = NULL;
  attikos_tensor t = tdb;
  t.dtype = ATTIKOS_FLOAT64, g.db = &t;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_DTYPE_MISMATCH);
  g.db = &tdb;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, NULL, &tg, &g, &o), ATTIKOS_NULL_ARGUMENT);
  CHECK(all_are(da, 6, -1) && all_are(db, 6, -1) && all_are(dbias, 2, -1));
  g.db = NULL;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SUCCESS);
  float const relu_da[6] = {1, 0, 1, 0, 4, 4};
  CHECK(memcmp(da, relu_da, sizeof da) == 0 && all_are(db, 6, -1) && dbias[0] == 1 && dbias[1] == 4);
  g.da = NULL, g.db = &tdb, g.d_bias = NULL;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SUCCESS);
  float const relu_db[6] = {1, 16, 2, 20, 3, 24};
  CHECK(memcmp(db, relu_db, sizeof db) == 0);
  g.db = NULL, g.d_bias = &tdc;
  fill(dbias, 2, -1);
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, NULL), ATTIKOS_SUCCESS);
  CHECK(dbias[0] == 4 && dbias[1] == 6);
}

static void test_gemm_backward_rows(attikos_context* context) {
  float const a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 7, 7, 0, 1}, dout[4] = {1, 2, 3, 4};
  int64_t const offsets[4] = {0, 1, 1, 3};
  int32_t const counts[2] = {1, 2};
  float da[6], db[6], dbias[1], dc[4];
  int64_t const as[2] = {3, 2}, bs[3] = {3, 2, 1}, cs[2] = {3, 1}, one[1] = {1}, four[1] = {4}, two[1] = {2};
  attikos_tensor const ta = tensor(a, ATTIKOS_FLOAT32, 2, as), tb = tensor(b, ATTIKOS_FLOAT32, 3, bs),
                       tg = tensor(dout, ATTIKOS_FLOAT32, 2, cs), tda = tensor(da, ATTIKOS_FLOAT32, 2, as),
                       tdb = tensor(db, ATTIKOS_FLOAT32, 3, bs), tbias = tensor(dbias, ATTIKOS_FLOAT32, 1, one),
                       tdc = tensor(dc, ATTIKOS_FLOAT32, 2, cs), to = tensor(offsets, ATTIKOS_INT64, 1, four),
                       tn = tensor(counts, ATTIKOS_INT32, 1, two);
  attikos_gemm_gradients g = ATTIKOS_GEMM_GRADIENTS_INIT;
  attikos_gemm_options o = ATTIKOS_GEMM_OPTIONS_INIT;
  g.da = &tda, g.db = &tdb, g.d_bias = &tbias, g.d_c = &tdc, o.beta = 2, o.group_offsets = &to;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SUCCESS);
  float const want_da[6] = {1, 0, 0, 2, 0, 3}, want_db[6] = {1, 2, 0, 0, 21, 26}, want_dc[3] = {2, 4, 6};
  CHECK(memcmp(da, want_da, sizeof da) == 0 && memcmp(db, want_db, sizeof db) == 0 && dbias[0] == 6);
  CHECK(memcmp(dc, want_dc, sizeof want_dc) == 0);

  fill(da, 6, -1), fill(dc, 4, -1);
  o.row_counts = &tn;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_UNSUPPORTED);
  o.row_counts = NULL, o.group_offsets = &tn;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SHAPE_MISMATCH);
  o.group_offsets = &tg;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SHAPE_MISMATCH);
  o.group_offsets = NULL, o.row_counts = &tn;
  CHECK_STATUS(attikos_gemm_backward(context, &ta, &tb, &tg, &g, &o), ATTIKOS_SHAPE_MISMATCH);
  CHECK(all_are(da, 6, -1) && all_are(dc, 4, -1));

  /* the second row of the first matrix does not count: it is not read, and its gradients stay as they are */
  int64_t const cube[3] = {2, 2, 1}, unit[3] = {2, 1, 1}, shared[2] = {2, 1};
  attikos_tensor const xa = tensor(a, ATTIKOS_FLOAT32, 3, cube), xb = tensor(a + 4, ATTIKOS_FLOAT32, 3, unit),
                       xg = tensor(dout, ATTIKOS_FLOAT32, 3, cube), xda = tensor(da, ATTIKOS_FLOAT32, 3, cube),
                       xdb = tensor(db, ATTIKOS_FLOAT32, 3, unit), xdc = tensor(dc, ATTIKOS_FLOAT32, 3, cube),
                       one_a = tensor(a, ATTIKOS_FLOAT32, 2, shared), one_da = tensor(da, ATTIKOS_FLOAT32, 2, shared);
  g.da = &xda, g.db = &xdb, g.d_c = &xdc;
  CHECK_STATUS(attikos_gemm_backward(context, &xa, &xb, &xg, &g, &o), ATTIKOS_SUCCESS);
  float const counted_da[4] = {5, -1, 18, 24}, counted_dc[4] = {2, -1, 6, 8};
  CHECK(memcmp(da, counted_da, sizeof counted_da) == 0 && memcmp(dc, counted_dc, sizeof dc) == 0);
  CHECK(db[0] == 1 && db[1] == 25 && dbias[0] == 8);
  g.da = &one_da; /* shared by both matrices */
  CHECK_STATUS(attikos_gemm_backward(context, &one_a, &xb, &xg, &g, &o), ATTIKOS_UNSUPPORTED);
  g.da = NULL;
  CHECK_STATUS(attikos_gemm_backward(context, &one_a, &xb, &xg, &g, &o), ATTIKOS_SUCCESS);
  CHECK(db[0] == 1 && db[1] == 11);
  o.row_counts = NULL, g.da = &one_da; /* without counts its gradient is a sum: 5 1 + 6 3, 5 2 + 6 4 */
  CHECK_STATUS(attikos_gemm_backward(context, &one_a, &xb, &xg, &g, &o), ATTIKOS_SUCCESS);
  CHECK(da[0] == 23 && da[1] == 34);

  /* callers of the first version know no d_c; alone it is wanted as well */
  fill(dc, 4, -1);
  g.struct_size = offsetof(attikos_gemm_gradients, d_c);
  CHECK_STATUS(attikos_gemm_backward(context, &one_a, &xb, &xg, &g, &o), ATTIKOS_SUCCESS);
  CHECK(all_are(dc, 4, -1));
  g.struct_size = sizeof g, g.da = NULL, g.db = NULL, g.d_bias = NULL;
  CHECK_STATUS(attikos_gemm_backward(context, &one_a, &xb, &xg, &g, &o), ATTIKOS_SUCCESS);
  CHECK(dc[0] == 2 && dc[1] == 4 && dc[2] == 6 && dc[3] == 8);
}

/* --- rows, quantization, text ---------------------------------------------------------------------- */

static void test_row_gradients(attikos_context* context) {
  double const p[2] = {0.5, 0.5}, y[2] = {0, -INFINITY}, g[2] = {1, 3}, x[2] = {3, 4};
  double dx[4] = {-1, -1, -1, -1};
  int64_t const row[2] = {1, 2}, cube[3] = {1, 2, 2};
  attikos_tensor const tp = tensor(p, ATTIKOS_FLOAT64, 2, row), ty = tensor(y, ATTIKOS_FLOAT64, 2, row),
                       tg = tensor(g, ATTIKOS_FLOAT64, 2, row), tx = tensor(x, ATTIKOS_FLOAT64, 2, row),
                       td = tensor(dx, ATTIKOS_FLOAT64, 2, row), td3 = tensor(dx, ATTIKOS_FLOAT64, 3, cube);
  attikos_tensor t = tg;
  t.dtype = ATTIKOS_FLOAT32;
  CHECK_STATUS(attikos_softmax_backward(context, &tp, &t, &td, 1), ATTIKOS_DTYPE_MISMATCH);
  CHECK_STATUS(attikos_log_softmax_backward(context, &tp, NULL, &td, 1), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_l2_normalize_backward(context, &tx, &tg, &td3, 0), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_softmax_backward(context, &tp, &tg, &td, INFINITY), ATTIKOS_INVALID_ARGUMENT);
  CHECK_STATUS(attikos_mean_pool_backward(context, &td3, NULL, &td3), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_mean_pool_backward(context, &tg, &tg, &td3), ATTIKOS_SHAPE_MISMATCH);
  CHECK(dx[0] == -1 && dx[3] == -1);
  CHECK_STATUS(attikos_softmax_backward(context, &tp, &tg, &td, 2), ATTIKOS_SUCCESS);
  CHECK(dx[0] == -1 && dx[1] == 1); /* 2 p (g - 2) */
  CHECK_STATUS(attikos_log_softmax_backward(context, &ty, &tg, &td, 1), ATTIKOS_SUCCESS);
  CHECK(dx[0] == -3 && dx[1] == 3); /* g - e^y 4 */
  CHECK_STATUS(attikos_l2_normalize_backward(context, &tx, &tg, &td, 0), ATTIKOS_SUCCESS);
  CHECK(fabs(dx[0] - (1 - 3 * 15.0 / 25) / 5) < 1e-15 && fabs(dx[1] - (3 - 4 * 15.0 / 25) / 5) < 1e-15);
  CHECK_STATUS(attikos_mean_pool_backward(context, &tg, NULL, &td3), ATTIKOS_SUCCESS);
  CHECK(dx[0] == 0.5 && dx[1] == 1.5 && dx[2] == 0.5 && dx[3] == 1.5);

  float const values[2] = {3, -300}, half[1] = {0.5f};
  int8_t codes[2] = {99, 99};
  int64_t const single[1] = {1};
  attikos_tensor const tv = tensor(values, ATTIKOS_FLOAT32, 2, row), tc = tensor(codes, ATTIKOS_INT8, 2, row),
                       ts = tensor(half, ATTIKOS_FLOAT32, 1, single);
  CHECK_STATUS(attikos_quantize_with_scale(context, &tv, NULL, &tc), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_quantize_with_scale(context, &tv, &td, &tc), ATTIKOS_DTYPE_MISMATCH);
  CHECK_STATUS(attikos_quantize_with_scale(context, &tv, &ts, &tv), ATTIKOS_DTYPE_MISMATCH);
  CHECK(codes[0] == 99);
  CHECK_STATUS(attikos_quantize_with_scale(context, &tv, &ts, &tc), ATTIKOS_SUCCESS);
  CHECK(codes[0] == 6 && codes[1] == -128);
}

/* Rows whose mean square is 1 after the sum, and whose mean is 0. */
static void test_residual_stream(attikos_context* context) {
  double const x[2] = {4, -3}, r[2] = {-3, 2}, w[2] = {2, 3}, b[2] = {1, 0}, g[2] = {1, 2}, past[2] = {10, 20};
  double sum[2] = {-1, -1}, out[2] = {-1, -1}, dx[2] = {-1, -1}, dw[2] = {-1, -1}, db[2] = {-1, -1}, stream[2] = {-3, 2};
  int64_t const row[2] = {1, 2}, two[1] = {2};
  attikos_tensor const tx = tensor(x, ATTIKOS_FLOAT64, 2, row), tr = tensor(r, ATTIKOS_FLOAT64, 2, row),
                       tw = tensor(w, ATTIKOS_FLOAT64, 1, two), tb = tensor(b, ATTIKOS_FLOAT64, 1, two),
                       ts = tensor(sum, ATTIKOS_FLOAT64, 2, row), to = tensor(out, ATTIKOS_FLOAT64, 2, row),
                       tg = tensor(g, ATTIKOS_FLOAT64, 2, row), tp = tensor(past, ATTIKOS_FLOAT64, 2, row),
                       td = tensor(dx, ATTIKOS_FLOAT64, 2, row), tdw = tensor(dw, ATTIKOS_FLOAT64, 1, two),
                       tdb = tensor(db, ATTIKOS_FLOAT64, 1, two), flat = tensor(r, ATTIKOS_FLOAT64, 1, two),
                       narrow = tensor(r, ATTIKOS_FLOAT32, 2, row), in_place = tensor(stream, ATTIKOS_FLOAT64, 2, row);
  struct {
    attikos_tensor const* residual;
    attikos_status status;
  } const wrong[] = {{&flat, ATTIKOS_SHAPE_MISMATCH}, {&narrow, ATTIKOS_DTYPE_MISMATCH}, {NULL, ATTIKOS_NULL_ARGUMENT}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    attikos_tensor const* const odd = wrong[i].residual;
    attikos_status const got[] = {
        attikos_rms_norm_residual(context, &tx, odd, &tw, &ts, &to, 0),
        attikos_rms_norm_residual(context, &tx, &tr, &tw, odd, &to, 0),
        attikos_layer_norm_residual(context, &tx, odd, &tw, &tb, &ts, &to, 0),
        attikos_layer_norm_residual(context, &tx, &tr, &tw, &tb, odd, &to, 0),
        attikos_rms_norm_backward_residual(context, &tx, &tw, &tg, odd, &td, &tdw, 0),
        attikos_layer_norm_backward_residual(context, &tx, &tw, &tg, odd, &td, &tdw, &tdb, 0),
    };
    for (size_t j = 0; j < sizeof got / sizeof got[0]; ++j) CHECK(got[j] == wrong[i].status);
    CHECK(strstr(attikos_last_error(), "residual") != NULL);
  }
  CHECK_STATUS(attikos_rms_norm_residual(context, &tx, &tr, &tw, &ts, &to, INFINITY), ATTIKOS_INVALID_ARGUMENT);
  CHECK(sum[0] == -1 && out[0] == -1 && dx[0] == -1 && dw[0] == -1 && db[0] == -1);

  CHECK_STATUS(attikos_rms_norm_residual(context, &tx, &tr, &tw, &ts, &to, 0), ATTIKOS_SUCCESS);
  CHECK(sum[0] == 1 && sum[1] == -1 && out[0] == 2 && out[1] == -3);
  CHECK_STATUS(attikos_layer_norm_residual(context, &tx, &in_place, &tw, &tb, &in_place, &to, 0), ATTIKOS_SUCCESS);
  CHECK(stream[0] == 1 && stream[1] == -1 && out[0] == 3 && out[1] == -3);

  /* dout * weight = (2, 6): of it mean(. s) = -2 goes, and its own mean 4 from layer_norm's */
  CHECK_STATUS(attikos_rms_norm_backward_residual(context, &ts, &tw, &tg, &tp, &td, &tdw, 0), ATTIKOS_SUCCESS);
  CHECK(dx[0] == 14 && dx[1] == 24 && dw[0] == 1 && dw[1] == -2);
  CHECK_STATUS(attikos_layer_norm_backward_residual(context, &ts, &tw, &tg, &tp, &td, &tdw, &tdb, 0), ATTIKOS_SUCCESS);
  CHECK(dx[0] == 10 && dx[1] == 20 && dw[0] == 1 && dw[1] == -2 && db[0] == 1 && db[1] == 2);
}

/* One token whose gate is 0, where silu is 0 and its slope 1/2. */
static void test_kept_projections(attikos_context* context) {
  double const x[2] = {2, 3}, gate_weight[2] = {3, -2}, up_weight[2] = {1, 1}, dout[1] = {2}, other_up[1] = {10};
  double out[1] = {-1}, gate[2] = {-1, -1}, up[1] = {-1}, dx[2] = {-1, -1}, dgate[2] = {-1, -1}, dup[2] = {-1, -1};
  int64_t const row[2] = {1, 2}, one[2] = {1, 1}, cube[3] = {1, 1, 1};
  attikos_tensor const tx = tensor(x, ATTIKOS_FLOAT64, 2, row), tg = tensor(gate_weight, ATTIKOS_FLOAT64, 2, row),
                       tu = tensor(up_weight, ATTIKOS_FLOAT64, 2, row), td = tensor(dout, ATTIKOS_FLOAT64, 2, one),
                       to = tensor(out, ATTIKOS_FLOAT64, 2, one), gates = tensor(gate, ATTIKOS_FLOAT64, 2, one),
                       ups = tensor(up, ATTIKOS_FLOAT64, 2, one), others = tensor(other_up, ATTIKOS_FLOAT64, 2, one),
                       tdx = tensor(dx, ATTIKOS_FLOAT64, 2, row), tdg = tensor(dgate, ATTIKOS_FLOAT64, 2, row),
                       tdu = tensor(dup, ATTIKOS_FLOAT64, 2, row), wide = tensor(gate, ATTIKOS_FLOAT64, 2, row),
                       narrow = tensor(gate, ATTIKOS_FLOAT32, 2, one), deep = tensor(gate, ATTIKOS_FLOAT64, 3, cube);
  struct {
    attikos_tensor const *gate, *up;
    attikos_status status;
    char const* says;
  } const wrong[] = {
      {&wide, &ups, ATTIKOS_SHAPE_MISMATCH, "gate of projections(gate, up) is [1, 1, 2] float64; expected the extents of "},
      {&gates, &wide, ATTIKOS_SHAPE_MISMATCH, "up of projections(gate, up) is [1, 1, 2] float64; expected the extents of "},
      {&deep, &ups, ATTIKOS_SHAPE_MISMATCH, "gate"},
      {&gates, &deep, ATTIKOS_SHAPE_MISMATCH, "up"},
      {&narrow, &ups, ATTIKOS_DTYPE_MISMATCH, "gate"},
      {&gates, &narrow, ATTIKOS_DTYPE_MISMATCH, "up"},
      {NULL, &ups, ATTIKOS_NULL_ARGUMENT, "gate"},
      {&gates, NULL, ATTIKOS_NULL_ARGUMENT, "up"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    attikos_tensor const *const g = wrong[i].gate, *const u = wrong[i].up;
    CHECK_STATUS(attikos_gated_mlp_keep(context, &tx, &tg, &tu, &to, g, u, ATTIKOS_ACTIVATION_SILU), wrong[i].status);
    CHECK(strstr(attikos_last_error(), wrong[i].says) != NULL);
    CHECK_STATUS(attikos_gated_mlp_backward_kept(context, &tx, &tg, &tu, &td, g, u, &tdx, &tdg, &tdu, ATTIKOS_ACTIVATION_SILU),
                 wrong[i].status);
    CHECK(strstr(attikos_last_error(), wrong[i].says) != NULL);
  }
  CHECK_STATUS(attikos_gated_mlp_keep(context, &tx, &tg, &tu, &to, &gates, &ups, ATTIKOS_ACTIVATION_RELU),
               ATTIKOS_INVALID_ARGUMENT);
  CHECK(out[0] == -1 && gate[0] == -1 && gate[1] == -1 && up[0] == -1 && dx[0] == -1 && dgate[0] == -1 && dup[0] == -1);

  CHECK_STATUS(attikos_gated_mlp_keep(context, &tx, &tg, &tu, &to, &gates, &ups, ATTIKOS_ACTIVATION_SILU), ATTIKOS_SUCCESS);
  CHECK(out[0] == 0 && gate[0] == 0 && up[0] == 5);
  CHECK_STATUS(attikos_gated_mlp_backward_kept(context, &tx, &tg, &tu, &td, &gates, &ups, &tdx, &tdg, &tdu,
                                               ATTIKOS_ACTIVATION_SILU),
               ATTIKOS_SUCCESS);
  CHECK(dx[0] == 15 && dx[1] == -10 && dgate[0] == 10 && dgate[1] == 15 && dup[0] == 0 && dup[1] == 0);
  /* what is kept is read, not computed again */
  CHECK_STATUS(attikos_gated_mlp_backward_kept(context, &tx, &tg, &tu, &td, &gates, &others, &tdx, &tdg, &tdu,
                                               ATTIKOS_ACTIVATION_SILU),
               ATTIKOS_SUCCESS);
  CHECK(dx[0] == 30 && dx[1] == -20 && dgate[0] == 20 && dgate[1] == 30);
}

static void test_text(attikos_context* context) {
  char text[512] = "before", little[6];
  size_t length = 0;
  CHECK_STATUS(attikos_list_kernels(NULL, text, sizeof text, &length), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_list_kernels("gemm", NULL, 5, &length), ATTIKOS_NULL_ARGUMENT);
  CHECK_STATUS(attikos_list_kernels("no such operation", text, sizeof text, &length), ATTIKOS_INVALID_ARGUMENT);
  CHECK(strcmp(text, "before") == 0 && length == 0);
  CHECK_STATUS(attikos_list_kernels("attention", NULL, 0, &length), ATTIKOS_SUCCESS);
  CHECK(length > 20);
  CHECK_STATUS(attikos_list_kernels("gemm", little, sizeof little, NULL), ATTIKOS_SUCCESS);
  CHECK(strcmp(little, "porta") == 0);

  double x[4] = {1, 2, 3, 4}, y[4] = {-1, -1, -1, -1};
  int64_t const square[2] = {2, 2}, four[4] = {1, 1, 2, 2};
  attikos_tensor const tx = tensor(x, ATTIKOS_FLOAT64, 2, square), ty = tensor(y, ATTIKOS_FLOAT64, 2, square),
                       q = tensor(x, ATTIKOS_FLOAT64, 4, four), out = tensor(y, ATTIKOS_FLOAT64, 4, four);
  CHECK_STATUS(attikos_explain_gemm(context, &tx, &tx, &ty, NULL, text, sizeof text, &length), ATTIKOS_SUCCESS);
  CHECK(strncmp(text, "runs ", 5) == 0 && strlen(text) == length);
  CHECK_STATUS(attikos_explain_attention(context, &q, &q, &q, &out, NULL, NULL, text, sizeof text, NULL), ATTIKOS_SUCCESS);
  CHECK(strstr(text, "portable/") != NULL);
  CHECK_STATUS(attikos_explain_decode(context, &q, &q, &q, &out, NULL, NULL, text, sizeof text, NULL), ATTIKOS_SUCCESS);
  CHECK(strstr(text, "portable") != NULL);
  CHECK_STATUS(attikos_explain_gated_mlp(context, &tx, &tx, &tx, &ty, ATTIKOS_ACTIVATION_SILU, text, sizeof text, NULL),
               ATTIKOS_SUCCESS);
  CHECK(strstr(text, "portable") != NULL);
  CHECK_STATUS(attikos_explain_gemm(context, &tx, &q, &ty, NULL, text, sizeof text, NULL), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_explain_decode(context, &q, &q, &q, &out, NULL, NULL, NULL, 3, NULL), ATTIKOS_NULL_ARGUMENT);
  for (int i = 0; i < 4; ++i) CHECK(y[i] == -1);
}

int main(void) {
  int32_t const kinds[2] = {ATTIKOS_HOST, ATTIKOS_SERIAL};
  for (int i = 0; i < 2; ++i) {
    if (!attikos_has_device(kinds[i], 0)) continue;
    attikos_context* context = NULL;
    CHECK_STATUS(attikos_context_create(kinds[i], 0, NULL, &context), ATTIKOS_SUCCESS);
    if (context == NULL) return 1;
    test_narrow_gemm(context);
    test_groups(context);
    test_gemm_backward(context);
    test_gemm_backward_rows(context);
    test_row_gradients(context);
    test_residual_stream(context);
    test_kept_projections(context);
    test_text(context);
    attikos_context_destroy(context);
  }
  if (failures != 0) printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
