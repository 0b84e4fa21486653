/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches, decoding, merging, float8 attention: each computes, and each kind of wrong argument has its status and
 * leaves outputs alone. Small integers, whose sums and means are exact or nearly so. */
#include <attikos/attikos.h>

#include <math.h>
#include <stddef.h>

#include "c_checks.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* One input of a call at a time made wrong in every way that is wrong for all operations. `call` returns the
 * status and 1 in *written if an output has changed. */
typedef attikos_status (*call_with)(attikos_context* context, attikos_tensor const* const* tensors, int* written);

static void refuse_common(attikos_context* context, call_with call, attikos_tensor const* tensors, size_t count,
                          char const* name) {
  int64_t const huge[5] = {(int64_t)1 << 40, (int64_t)1 << 40, 1, 1, 1}, negative[5] = {1, -2, 1, 1, 1};
  for (size_t i = 0; i < count; ++i) {
    struct {
      attikos_tensor t;
      int is_null;
      attikos_status wanted;
    } cases[7];
    for (size_t c = 0; c < COUNT(cases); ++c) cases[c].t = tensors[i], cases[c].is_null = 0;
    cases[0].is_null = 1, cases[0].wanted = ATTIKOS_NULL_ARGUMENT;
    cases[1].t.data = NULL, cases[1].wanted = ATTIKOS_NULL_ARGUMENT;
    cases[2].t.shape = negative, cases[2].wanted = ATTIKOS_NEGATIVE_EXTENT;
    cases[3].t.shape = huge, cases[3].wanted = ATTIKOS_OVERFLOW;
    cases[4].t.ndim = 7, cases[4].wanted = ATTIKOS_SHAPE_MISMATCH;
    cases[5].t.dtype = ATTIKOS_BOOL, cases[5].wanted = ATTIKOS_DTYPE_MISMATCH;
    cases[6].t.data = (char*)tensors[i].data + 1, cases[6].wanted = ATTIKOS_MISALIGNED;
    for (size_t c = 0; c < COUNT(cases); ++c) {
      if (cases[c].wanted == ATTIKOS_MISALIGNED && attikos_dtype_size(tensors[i].dtype) == 1) continue;
      if (tensors[i].ndim < 2 && (c == 2 || c == 3)) continue; /* the wrong extent is the second one */
      attikos_tensor const* given[8];
      for (size_t j = 0; j < count; ++j) given[j] = &tensors[j];
      given[i] = cases[c].is_null ? NULL : &cases[c].t;
      int written = 0;
      attikos_status const got = call(context, given, &written);
      if (got != cases[c].wanted || written) {
        printf("%s, tensor %d, case %d: \"%s\" (%s), expected \"%s\"%s\n", name, (int)i, (int)c,
               attikos_status_string(got), attikos_last_error(), attikos_status_string(cases[c].wanted),
               written ? ", OUTPUT WRITTEN" : "");
        ++failures;
      }
    }
  }
}

/* --- caches ------------------------------------------------------------------------------------- */

static float const k_new_data[2 * 2] = {1, 2, 3, 4}, v_new_data[2 * 2] = {5, 6, 7, 8};
static float k_cache_data[8], v_cache_data[8];
static int64_t const new_shape[4] = {1, 1, 2, 2}, cache_shape[4] = {1, 1, 4, 2};

static attikos_status append(attikos_context* context, attikos_tensor const* const* t, int* written) {
  fill(k_cache_data, 8, -1), fill(v_cache_data, 8, -1);
  attikos_status const status = attikos_append_kv(context, t[0], t[1], t[2], t[3], NULL);
  *written = !all_are(k_cache_data, 8, -1) || !all_are(v_cache_data, 8, -1);
  return status;
}

static void test_append(attikos_context* context) {
  attikos_tensor const t[4] = {tensor(k_new_data, ATTIKOS_FLOAT32, 4, new_shape),
                               tensor(v_new_data, ATTIKOS_FLOAT32, 4, new_shape),
                               tensor(k_cache_data, ATTIKOS_FLOAT32, 4, cache_shape),
                               tensor(v_cache_data, ATTIKOS_FLOAT32, 4, cache_shape)};
  refuse_common(context, append, t, 4, "append_kv");
  CHECK_STATUS(attikos_append_kv(NULL, &t[0], &t[1], &t[2], &t[3], NULL), ATTIKOS_NULL_ARGUMENT);

  int32_t length[1] = {1};
  int64_t const one[1] = {1};
  attikos_tensor const used = tensor(length, ATTIKOS_INT32, 1, one);
  attikos_append_kv_options o = ATTIKOS_APPEND_KV_OPTIONS_INIT;
  o.cache_lengths = &used;
  fill(k_cache_data, 8, -1), fill(v_cache_data, 8, -1);
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &o), ATTIKOS_SUCCESS);
  for (int i = 0; i < 4; ++i) CHECK(k_cache_data[2 + i] == k_new_data[i] && v_cache_data[2 + i] == v_new_data[i]);
  CHECK(k_cache_data[0] == -1 && k_cache_data[6] == -1 && v_cache_data[1] == -1 && v_cache_data[7] == -1);

  /* a quarter turn (cos 0, sin 1) takes (a, b) to (-b, a), of queries, too */
  float const zeros[8] = {0}, ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float q[4] = {1, 2, 3, 4};
  int64_t const table[2] = {4, 2};
  attikos_tensor const cosines = tensor(zeros, ATTIKOS_FLOAT32, 2, table), sines = tensor(ones, ATTIKOS_FLOAT32, 2, table),
                       tq = tensor(q, ATTIKOS_FLOAT32, 4, new_shape);
  o.rotary_cos = &cosines, o.rotary_sin = &sines, o.q = &tq, o.q_out = &tq;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &o), ATTIKOS_SUCCESS);
  CHECK(k_cache_data[2] == -2 && k_cache_data[3] == 1 && k_cache_data[4] == -4 && k_cache_data[5] == 3);
  CHECK(q[0] == -2 && q[1] == 1 && q[2] == -4 && q[3] == 3 && v_cache_data[2] == 5);

  /* pages of two positions: positions 1 and 2 lie in two of them */
  int32_t pages[2] = {1, 0};
  int64_t const table_shape[2] = {1, 2}, paged[4] = {2, 1, 2, 2};
  attikos_tensor const tp = tensor(pages, ATTIKOS_INT32, 2, table_shape), pk = tensor(k_cache_data, ATTIKOS_FLOAT32, 4, paged),
                       pv = tensor(v_cache_data, ATTIKOS_FLOAT32, 4, paged);
  attikos_append_kv_options p = ATTIKOS_APPEND_KV_OPTIONS_INIT;
  p.cache_lengths = &used, p.page_table = &tp;
  fill(k_cache_data, 8, -1), fill(v_cache_data, 8, -1);
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &pk, &pv, &p), ATTIKOS_SUCCESS);
  CHECK(k_cache_data[6] == 1 && k_cache_data[7] == 2 && k_cache_data[0] == 3 && k_cache_data[1] == 4);
  CHECK(k_cache_data[2] == -1 && k_cache_data[5] == -1 && v_cache_data[6] == 5 && v_cache_data[0] == 7);

  /* one of the two positions is new; packed, the second one alone belongs to the sequence */
  int32_t count[1] = {1}, offsets[2] = {1, 2};
  int64_t const two[1] = {2}, packed[3] = {1, 2, 2};
  attikos_tensor const counts = tensor(count, ATTIKOS_INT32, 1, one), cu = tensor(offsets, ATTIKOS_INT32, 1, two),
                       rk = tensor(k_new_data, ATTIKOS_FLOAT32, 3, packed), rv = tensor(v_new_data, ATTIKOS_FLOAT32, 3, packed);
  attikos_append_kv_options r = ATTIKOS_APPEND_KV_OPTIONS_INIT;
  r.cache_lengths = &used, r.new_lengths = &counts, r.check = 1;
  fill(k_cache_data, 8, -1), fill(v_cache_data, 8, -1);
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &r), ATTIKOS_SUCCESS);
  CHECK(k_cache_data[2] == 1 && k_cache_data[3] == 2 && v_cache_data[2] == 5 && v_cache_data[3] == 6);
  CHECK(all_are(k_cache_data, 2, -1) && all_are(k_cache_data + 4, 4, -1) && all_are(v_cache_data + 4, 4, -1));
  r.new_lengths = NULL, r.cu_seqlens_kv = &cu;
  CHECK_STATUS(attikos_append_kv(context, &rk, &rv, &t[2], &t[3], &r), ATTIKOS_SUCCESS);
  CHECK(k_cache_data[2] == 3 && k_cache_data[3] == 4 && v_cache_data[2] == 7 && v_cache_data[3] == 8);
  CHECK(all_are(k_cache_data, 2, -1) && all_are(k_cache_data + 4, 4, -1) && all_are(v_cache_data + 4, 4, -1));

  /* float32 into bfloat16; a table of cosines and sines, queries into the caches' type */
  uint16_t narrow_k[8] = {0}, narrow_v[8] = {0}, narrow_q[4] = {0};
  float const queries[4] = {1, 2, 3, 4};
  attikos_tensor const nk = tensor(narrow_k, ATTIKOS_BFLOAT16, 4, cache_shape), nv = tensor(narrow_v, ATTIKOS_BFLOAT16, 4, cache_shape),
                       fq = tensor(queries, ATTIKOS_FLOAT32, 4, new_shape), nq = tensor(narrow_q, ATTIKOS_BFLOAT16, 4, new_shape);
  attikos_append_kv_options n = o;
  n.q = &fq, n.q_out = &nq, n.kernel = "portable";
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &nk, &nv, &n), ATTIKOS_SUCCESS);
  CHECK(narrow_k[2] == 0xC000 && narrow_k[3] == 0x3F80 && narrow_v[2] == 0x40A0 && narrow_k[1] == 0 && narrow_k[6] == 0);
  CHECK(narrow_q[0] == 0xC000 && narrow_q[1] == 0x3F80 && narrow_q[2] == 0xC080 && narrow_q[3] == 0x4040);
  n.q_out = &fq;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &nk, &nv, &n), ATTIKOS_DTYPE_MISMATCH);
  attikos_tensor bytes[2] = {t[2], t[3]};
  bytes[0].dtype = bytes[1].dtype = ATTIKOS_FLOAT8_E4M3; /* beside 16 bits, not beside 32 */
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &bytes[0], &bytes[1], NULL), ATTIKOS_DTYPE_MISMATCH);
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &nv, NULL), ATTIKOS_DTYPE_MISMATCH);

  /* nothing runs when a call is explained, and no other kernel when one is demanded */
  char text[200];
  size_t text_length = 0;
  fill(k_cache_data, 8, -1), fill(v_cache_data, 8, -1);
  CHECK_STATUS(attikos_explain_append_kv(context, &t[0], &t[1], &t[2], &t[3], NULL, text, sizeof text, &text_length), ATTIKOS_SUCCESS);
  CHECK(strcmp(text, "runs portable") == 0 && text_length == strlen(text));
  CHECK_STATUS(attikos_explain_append_kv(context, &t[0], &t[1], &t[2], &t[3], NULL, NULL, 3, NULL), ATTIKOS_NULL_ARGUMENT);
  r.kernel = "append_kv/of_nobody";
  CHECK_STATUS(attikos_append_kv(context, &rk, &rv, &t[2], &t[3], &r), ATTIKOS_UNSUPPORTED);
  r.kernel = NULL, r.new_lengths = &counts;
  CHECK_STATUS(attikos_append_kv(context, &rk, &rv, &t[2], &t[3], &r), ATTIKOS_UNSUPPORTED);
  r.new_lengths = NULL, r.cu_seqlens_q = &cu;
  CHECK_STATUS(attikos_append_kv(context, &rk, &rv, &t[2], &t[3], &r), ATTIKOS_NULL_ARGUMENT);
  r.cu_seqlens_q = NULL;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &r), ATTIKOS_SHAPE_MISMATCH);
  offsets[1] = 3;
  CHECK_STATUS(attikos_append_kv(context, &rk, &rv, &t[2], &t[3], &r), ATTIKOS_SHAPE_MISMATCH);
  r.cu_seqlens_kv = NULL, r.new_lengths = &counts;
  for (int32_t bad = -1; bad <= 4; bad += 4) { /* of 2 positions; 3 would fit into the cache */
    count[0] = bad;
    CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &r), ATTIKOS_SHAPE_MISMATCH);
  }
  CHECK(all_are(k_cache_data, 8, -1) && all_are(v_cache_data, 8, -1));

  /* what does not fit is left out, or refused where that is to be checked; options that do not go together */
  fill(k_cache_data, 8, -1), fill(v_cache_data, 8, -1);
  attikos_append_kv_options wrong = ATTIKOS_APPEND_KV_OPTIONS_INIT;
  length[0] = 3;
  wrong.cache_lengths = &used, wrong.check = 1;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_SHAPE_MISMATCH);
  wrong.check = 0, wrong.rotary_cos = &cosines;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_NULL_ARGUMENT);
  wrong.rotary_cos = NULL, wrong.q = &tq, wrong.q_out = &tq;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_NULL_ARGUMENT);
  wrong.rotary_cos = &cosines, wrong.rotary_sin = &sines, wrong.q_out = NULL;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_NULL_ARGUMENT);
  wrong.q = NULL, wrong.cache_lengths = &cosines;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_SHAPE_MISMATCH);
  attikos_tensor floats = used;
  floats.dtype = ATTIKOS_FLOAT32;
  wrong.cache_lengths = &floats;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_DTYPE_MISMATCH);
  wrong.struct_size = 8;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_INVALID_STRUCT);
  attikos_tensor shared = t[2];
  int64_t const no_steps[4] = {0, 0, 0, 1};
  shared.strides = no_steps;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &shared, &t[3], NULL), ATTIKOS_INVALID_STRIDES);
  CHECK(all_are(k_cache_data, 8, -1) && all_are(v_cache_data, 8, -1));
  wrong = o, wrong.rotary_cos = wrong.rotary_sin = wrong.q = wrong.q_out = NULL;
  CHECK_STATUS(attikos_append_kv(context, &t[0], &t[1], &t[2], &t[3], &wrong), ATTIKOS_SUCCESS);
  CHECK(all_are(k_cache_data, 6, -1) && k_cache_data[6] == 1 && k_cache_data[7] == 2);
}

/* --- decoding ------------------------------------------------------------------------------------ */

static float out_data[2], lse_data[1];

static attikos_status decode(attikos_context* context, attikos_tensor const* const* t, int* written) {
  fill(out_data, 2, -1), fill(lse_data, 1, -1);
  attikos_status const status = attikos_decode(context, t[0], t[1], t[2], t[3], NULL, NULL);
  *written = !all_are(out_data, 2, -1);
  return status;
}

static void test_decode(attikos_context* context) {
  /* A query of zeros: equal weights, means of the values in use, lse = log of their number. */
  float const q[2] = {0, 0}, k[8] = {1, 2, 3, 4, 5, 6, 7, 8}, v[8] = {2, 4, 6, 8, 1, 3, 100, 100};
  int64_t const one[4] = {1, 1, 1, 2}, rows[3] = {1, 1, 1}, single[1] = {1};
  attikos_tensor const t[4] = {tensor(q, ATTIKOS_FLOAT32, 4, one), tensor(k, ATTIKOS_FLOAT32, 4, cache_shape),
                               tensor(v, ATTIKOS_FLOAT32, 4, cache_shape), tensor(out_data, ATTIKOS_FLOAT32, 4, one)};
  attikos_tensor const lse = tensor(lse_data, ATTIKOS_FLOAT32, 3, rows);
  refuse_common(context, decode, t, 4, "decode");
  int32_t length[1] = {3};
  attikos_tensor const used = tensor(length, ATTIKOS_INT32, 1, single);
  attikos_decode_options o = ATTIKOS_DECODE_OPTIONS_INIT;
  o.lengths_kv = &used;
  for (int64_t splits = 0; splits < 5; ++splits) {
    o.splits = splits;
    fill(out_data, 2, -1);
    CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], &lse, &o), ATTIKOS_SUCCESS);
    CHECK(fabs((double)out_data[0] - 3) < 1e-5 && fabs((double)out_data[1] - 5) < 1e-5);
    CHECK(fabs((double)lse_data[0] - log(3.0)) < 1e-6);
  }
  o.splits = 0;
  for (int32_t how = ATTIKOS_RUN_TO_RUN; how <= ATTIKOS_UNORDERED; ++how) {
    o.determinism = how;
    fill(out_data, 2, -1);
    CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &o), ATTIKOS_SUCCESS);
    CHECK(fabs((double)out_data[0] - 3) < 1e-5 && fabs((double)out_data[1] - 5) < 1e-5);
  }
  /* callers of the first version have no determinism: what lies behind their struct is not looked at */
  o.determinism = 77, o.struct_size = offsetof(attikos_decode_options, determinism);
  fill(out_data, 2, -1);
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &o), ATTIKOS_SUCCESS);
  CHECK(fabs((double)out_data[0] - 3) < 1e-5 && fabs((double)out_data[1] - 5) < 1e-5);
  o.determinism = ATTIKOS_BATCH_INVARIANT, o.struct_size = sizeof o;
  /* the query stands at the last of 3 positions, alone in its chunk of two */
  o.attention_chunk = 2;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &o), ATTIKOS_SUCCESS);
  CHECK(out_data[0] == v[4] && out_data[1] == v[5]);
  int32_t queries[1] = {1};
  attikos_tensor const query = tensor(queries, ATTIKOS_INT32, 1, single);
  attikos_attention_options chunked = ATTIKOS_ATTENTION_OPTIONS_INIT;
  chunked.attention_chunk = 2, chunked.lengths_q = &query, chunked.lengths_kv = &used;
  fill(out_data, 2, -1);
  CHECK_STATUS(attikos_attention(context, &t[0], &t[1], &t[2], &t[3], NULL, &chunked), ATTIKOS_SUCCESS);
  CHECK(out_data[0] == v[4] && out_data[1] == v[5]);
  o.attention_chunk = -1;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &o), ATTIKOS_INVALID_ARGUMENT);
  CHECK(strstr(attikos_last_error(), "attention_chunk is -1") != NULL);
  o.attention_chunk = 0;
  /* the same positions in pages of two, and packed with attention's own lengths of keys alone */
  float pages_v[8] = {1, 3, 100, 100, 2, 4, 6, 8};
  int32_t table[2] = {1, 0};
  int64_t const table_shape[2] = {1, 2}, paged[4] = {2, 1, 2, 2};
  attikos_tensor const tp = tensor(table, ATTIKOS_INT32, 2, table_shape), pk = tensor(k, ATTIKOS_FLOAT32, 4, paged),
                       pv = tensor(pages_v, ATTIKOS_FLOAT32, 4, paged);
  o.page_table = &tp;
  CHECK_STATUS(attikos_decode(context, &t[0], &pk, &pv, &t[3], NULL, &o), ATTIKOS_SUCCESS);
  CHECK(fabs((double)out_data[0] - 3) < 1e-5);
  /* two packed queries, of which the second one belongs to the sequence, over the cache, its pages, packed keys */
  float const pair[4] = {9, 9, 0, 0};
  float packed_out[4], packed_lse[2];
  int32_t starts_q[2] = {1, 2}, starts_kv[2] = {1, 3};
  int64_t const two[1] = {2}, flat_q[3] = {1, 2, 2}, flat_kv[3] = {1, 4, 2}, flat_rows[2] = {1, 2};
  attikos_tensor const cu_q = tensor(starts_q, ATTIKOS_INT32, 1, two), cu_kv = tensor(starts_kv, ATTIKOS_INT32, 1, two),
                       fq = tensor(pair, ATTIKOS_FLOAT32, 3, flat_q), fo = tensor(packed_out, ATTIKOS_FLOAT32, 3, flat_q),
                       fl = tensor(packed_lse, ATTIKOS_FLOAT32, 2, flat_rows), fk = tensor(k, ATTIKOS_FLOAT32, 3, flat_kv),
                       fv = tensor(v, ATTIKOS_FLOAT32, 3, flat_kv);
  attikos_decode_options p = ATTIKOS_DECODE_OPTIONS_INIT;
  p.cu_seqlens_q = &cu_q, p.lengths_kv = &used, p.check = 1;
  for (int form = 0; form < 3; ++form) {
    attikos_tensor const *keys = form == 0 ? &t[1] : form == 1 ? &pk : &fk, *values = form == 0 ? &t[2] : form == 1 ? &pv : &fv;
    p.page_table = form == 1 ? &tp : NULL;
    if (form == 2) p.lengths_kv = NULL, p.cu_seqlens_kv = &cu_kv;
    fill(packed_out, 4, -1), fill(packed_lse, 2, -1);
    CHECK_STATUS(attikos_decode(context, &fq, keys, values, &fo, &fl, &p), ATTIKOS_SUCCESS);
    double const half = form == 2 ? 0.5 : 0;
    CHECK(packed_out[0] == 0 && packed_out[1] == 0 && packed_lse[0] == -INFINITY);
    CHECK(fabs((double)packed_out[2] - 3 - half) < 1e-5 && fabs((double)packed_out[3] - 5 - half) < 1e-5);
    CHECK(fabs((double)packed_lse[1] - log(form == 2 ? 2.0 : 3.0)) < 1e-6);
  }
  fill(packed_out, 4, -1);
  starts_kv[1] = 5;
  CHECK_STATUS(attikos_decode(context, &fq, &fk, &fv, &fo, NULL, &p), ATTIKOS_SHAPE_MISMATCH);
  p.page_table = &tp;
  CHECK_STATUS(attikos_decode(context, &fq, &pk, &pv, &fo, NULL, &p), ATTIKOS_UNSUPPORTED);
  p.page_table = NULL, p.cu_seqlens_q = NULL;
  CHECK_STATUS(attikos_decode(context, &t[0], &fk, &fv, &t[3], NULL, &p), ATTIKOS_NULL_ARGUMENT);
  CHECK(all_are(packed_out, 4, -1));
  attikos_attention_options a = ATTIKOS_ATTENTION_OPTIONS_INIT;
  a.lengths_kv = &used;
  fill(out_data, 2, -1);
  CHECK_STATUS(attikos_attention(context, &t[0], &t[1], &t[2], &t[3], &lse, &a), ATTIKOS_SUCCESS);
  CHECK(fabs((double)out_data[0] - 3) < 1e-5 && fabs((double)out_data[1] - 5) < 1e-5);

  fill(out_data, 2, -1);
  attikos_decode_options wrong = ATTIKOS_DECODE_OPTIONS_INIT;
  wrong.splits = -2;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_INVALID_ARGUMENT);
  wrong.splits = 0, wrong.determinism = 3;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_INVALID_ARGUMENT);
  wrong.determinism = -1;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_INVALID_ARGUMENT);
  wrong.determinism = ATTIKOS_RUN_TO_RUN, wrong.softcap = NAN;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_INVALID_ARGUMENT);
  wrong.softcap = 0, wrong.kernel = "decode/of_nobody";
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_UNSUPPORTED);
  wrong.kernel = NULL, wrong.lengths_q = &used;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_NULL_ARGUMENT);
  wrong.lengths_q = NULL, wrong.lengths_kv = &used, wrong.check = 1, length[0] = 5;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_SHAPE_MISMATCH);
  wrong.check = 0, wrong.descale_q = &lse;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_SHAPE_MISMATCH);
  wrong.descale_q = NULL, wrong.struct_size = offsetof(attikos_decode_options, determinism) - 1;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], NULL, &wrong), ATTIKOS_INVALID_STRUCT);
  attikos_tensor other = lse;
  other.dtype = ATTIKOS_FLOAT64;
  CHECK_STATUS(attikos_decode(context, &t[0], &t[1], &t[2], &t[3], &other, NULL), ATTIKOS_DTYPE_MISMATCH);
  CHECK(all_are(out_data, 2, -1));
}

static void test_float8_attention(attikos_context* context) {
  /* 1.0 is 0x38 in E4M3, 2.0 is 0x40, 4.0 is 0x48 */
  uint8_t const q[2] = {0, 0}, k[4] = {0x38, 0x40, 0x38, 0x48}, v[4] = {0x38, 0x40, 0x40, 0x48};
  float out[2], half[1] = {0.5f}, lse[1];
  int64_t const one[4] = {1, 1, 1, 2}, two[4] = {1, 1, 2, 2}, single[1] = {1}, rows[3] = {1, 1, 1};
  attikos_tensor const tq = tensor(q, ATTIKOS_FLOAT8_E4M3, 4, one), tk = tensor(k, ATTIKOS_FLOAT8_E4M3, 4, two),
                       tv = tensor(v, ATTIKOS_FLOAT8_E4M3, 4, two), to = tensor(out, ATTIKOS_FLOAT32, 4, one),
                       th = tensor(half, ATTIKOS_FLOAT32, 1, single), tl = tensor(lse, ATTIKOS_FLOAT32, 3, rows);
  attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
  CHECK(out[0] == 1.5f && out[1] == 3 && fabs((double)lse[0] - log(2.0)) < 1e-6);
  o.descale_v = &th;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
  CHECK(out[0] == 0.75f && out[1] == 1.5f);
  attikos_decode_options d = ATTIKOS_DECODE_OPTIONS_INIT;
  d.descale_v = &th;
  CHECK_STATUS(attikos_decode(context, &tq, &tk, &tv, &to, NULL, &d), ATTIKOS_SUCCESS);
  CHECK(fabs((double)out[0] - 0.75) < 1e-6 && fabs((double)out[1] - 1.5) < 1e-6);
  out[0] = -1;
  attikos_tensor t = to;
  t.dtype = ATTIKOS_FLOAT8_E4M3;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &t, NULL, NULL), ATTIKOS_DTYPE_MISMATCH);
  t = tk, t.dtype = ATTIKOS_FLOAT8_E5M2;
  CHECK_STATUS(attikos_attention(context, &tq, &t, &tv, &to, NULL, NULL), ATTIKOS_DTYPE_MISMATCH);
  t = th, t.dtype = ATTIKOS_INT32;
  o.descale_v = &t;
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, NULL, &o), ATTIKOS_DTYPE_MISMATCH);
  attikos_tensor const fq = tensor(out, ATTIKOS_FLOAT32, 4, one);
  o.descale_v = &th;
  CHECK_STATUS(attikos_attention(context, &fq, &fq, &fq, &to, NULL, &o), ATTIKOS_UNSUPPORTED);
  attikos_attention_gradients g = ATTIKOS_ATTENTION_GRADIENTS_INIT;
  g.dq = g.dk = g.dv = &to;
  CHECK_STATUS(attikos_attention_backward(context, &fq, &fq, &fq, &fq, &tl, &fq, &g, &o), ATTIKOS_UNSUPPORTED);
  CHECK(out[0] == -1);
  /* callers of the first version have no factors */
  o.struct_size = offsetof(attikos_attention_options, descale_q);
  CHECK_STATUS(attikos_attention(context, &tq, &tk, &tv, &to, &tl, &o), ATTIKOS_SUCCESS);
  CHECK(out[0] == 1.5f);
}

/* --- merging ------------------------------------------------------------------------------------- */

static float merged[2], merged_lse[1];

static attikos_status merge(attikos_context* context, attikos_tensor const* const* t, int* written) {
  fill(merged, 2, -1), fill(merged_lse, 1, -1);
  attikos_status const status = attikos_merge_states(context, t[0], t[1], t[2], t[3], t[4], NULL);
  *written = !all_are(merged, 2, -1);
  return status;
}

static void test_merge(attikos_context* context) {
  float const a[2] = {1, 2}, b[2] = {3, 6}, equal[1] = {0}, both[4] = {1, 2, 3, 6}, lses[2] = {0, 0};
  float const low[1] = {-INFINITY}, nan[2] = {NAN, NAN};
  int64_t const shape[4] = {1, 1, 1, 2}, rows[3] = {1, 1, 1}, splits[5] = {2, 1, 1, 1, 2}, split_rows[4] = {2, 1, 1, 1};
  attikos_tensor const t[5] = {tensor(a, ATTIKOS_FLOAT32, 4, shape), tensor(equal, ATTIKOS_FLOAT32, 3, rows),
                               tensor(b, ATTIKOS_FLOAT32, 4, shape), tensor(equal, ATTIKOS_FLOAT32, 3, rows),
                               tensor(merged, ATTIKOS_FLOAT32, 4, shape)};
  attikos_tensor const lse = tensor(merged_lse, ATTIKOS_FLOAT32, 3, rows);
  refuse_common(context, merge, t, 5, "merge_states");
  CHECK_STATUS(attikos_merge_states(context, &t[0], &t[1], &t[2], &t[3], &t[4], &lse), ATTIKOS_SUCCESS);
  CHECK(merged[0] == 2 && merged[1] == 4 && fabs((double)merged_lse[0] - log(2.0)) < 1e-6);
  CHECK_STATUS(attikos_merge_states(context, &t[0], &t[1], &t[2], &t[3], &t[4], NULL), ATTIKOS_SUCCESS);
  attikos_tensor const empty = tensor(nan, ATTIKOS_FLOAT32, 4, shape), none = tensor(low, ATTIKOS_FLOAT32, 3, rows);
  CHECK_STATUS(attikos_merge_states(context, &empty, &none, &t[2], &t[3], &t[4], &lse), ATTIKOS_SUCCESS);
  CHECK(merged[0] == 3 && merged[1] == 6 && merged_lse[0] == 0);
  attikos_tensor const outs = tensor(both, ATTIKOS_FLOAT32, 5, splits), of_outs = tensor(lses, ATTIKOS_FLOAT32, 4, split_rows);
  CHECK_STATUS(attikos_merge_split_states(context, &outs, &of_outs, &t[4], &lse), ATTIKOS_SUCCESS);
  CHECK(merged[0] == 2 && merged[1] == 4);
  int64_t const joined[4] = {2, 1, 1, 2}, joined_rows[3] = {2, 1, 1}, one[3] = {1, 1, 2}, row[2] = {1, 1};
  attikos_tensor const outs3 = tensor(both, ATTIKOS_FLOAT32, 4, joined), of3 = tensor(lses, ATTIKOS_FLOAT32, 3, joined_rows),
                       to3 = tensor(merged, ATTIKOS_FLOAT32, 3, one), lse3 = tensor(merged_lse, ATTIKOS_FLOAT32, 2, row);
  fill(merged, 2, -1);
  CHECK_STATUS(attikos_merge_split_states(context, &outs3, &of3, &to3, &lse3), ATTIKOS_SUCCESS);
  CHECK(merged[0] == 2 && merged[1] == 4);
  fill(merged, 2, -1);
  CHECK_STATUS(attikos_merge_split_states(context, &outs, &of3, &t[4], &lse), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_merge_split_states(context, &outs3, &of3, &t[4], &lse), ATTIKOS_SHAPE_MISMATCH);
  CHECK_STATUS(attikos_merge_split_states(context, NULL, &of3, &t[4], &lse), ATTIKOS_NULL_ARGUMENT);
  CHECK(all_are(merged, 2, -1));
}

int main(void) {
  int32_t const kinds[2] = {ATTIKOS_HOST, ATTIKOS_SERIAL};
  for (int i = 0; i < 2; ++i) {
    if (!attikos_has_device(kinds[i], 0)) continue;
    attikos_context* context = NULL;
    CHECK_STATUS(attikos_context_create(kinds[i], 0, NULL, &context), ATTIKOS_SUCCESS);
    if (context == NULL) return 1;
    test_append(context);
    test_decode(context);
    test_float8_attention(context);
    test_merge(context);
    attikos_context_destroy(context);
  }
  if (failures != 0) printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
