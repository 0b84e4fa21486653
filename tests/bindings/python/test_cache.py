# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""decode(), append_kv() and the merging of partial states; float8 attention."""

import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def normal(*shape, seed=17, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def pages_of(cache, table, page_size, lengths):
    """The positions in use of [batch, heads, seqlen, d] in pages, poison everywhere else."""
    heads, d = cache.shape[1], cache.shape[3]
    pages = np.full((table.max() + 2, heads, page_size, d), np.nan, np.float32).astype(cache.dtype)
    for b, n in enumerate(lengths):
        for j in range(n):
            pages[table[b, j // page_size], :, j % page_size] = cache[b, :, j]
    return pages


class Decode(unittest.TestCase):
    def setUp(self):
        self.lengths = np.array([29, 0, 40], np.int32)
        self.keep = (np.arange(40)[None] < self.lengths[:, None])[:, None, None]

    def tensors(self, dtype, seqlen_q=2):
        return (normal(3, 4, seqlen_q, 16, dtype=dtype), normal(3, 2, 40, 16, seed=1, dtype=dtype),
                normal(3, 2, 40, 8, seed=2, dtype=dtype))  # fmt: skip

    def test_types_splits_and_lengths(self):
        for dtype in oracles.FLOATING:
            q, k, v = self.tensors(dtype)
            exact, bound, lse, lse_bound = oracles.attention(q, k, v, keep=self.keep, parts=40)
            for b, n in enumerate(self.lengths):
                k[b, :, n:] = v[b, :, n:] = np.nan  # padding is poison
            for splits in (0, 1, 3, 100):
                out, got = attikos.decode(q, k, v, lengths_kv=self.lengths, splits=splits, return_lse=True)
                self.assertEqual(out.dtype, np.dtype(dtype))
                self.assertEqual(got.dtype, oracles.accumulator(dtype))
                oracles.check(self, out, exact, bound, f"{np.dtype(dtype)} {splits}")
                oracles.check(self, got, lse, lse_bound, f"lse {np.dtype(dtype)} {splits}")

    def test_determinism(self):
        for dtype in oracles.FLOATING:
            q, k, v = self.tensors(dtype)
            exact, bound, *_ = oracles.attention(q, k, v, keep=self.keep, parts=40)
            for name in ("unordered", "run_to_run", "batch_invariant"):
                for splits in (0, 3):
                    out = attikos.decode(q, k, v, lengths_kv=self.lengths, splits=splits, determinism=name)
                    oracles.check(self, out, exact, bound, f"{np.dtype(dtype)} {name} {splits}")
            for b in range(3):
                alone = (x[b : b + 1] for x in (q, k, v))
                one = attikos.decode(*alone, lengths_kv=self.lengths[b : b + 1], determinism="batch_invariant", splits=3)
                np.testing.assert_array_equal(one[0], out[b])
        with self.assertRaisesRegex(attikos.ArgumentError, "determinism is 'sometimes'; expected one of"):
            attikos.decode(q, k, v, determinism="sometimes")

    def test_terms(self):
        q, k, v = self.tensors(np.float32, 3)
        i, j = np.arange(3)[:, None], np.arange(40)[None]
        off = (self.lengths - 3)[:, None, None, None]
        slopes = np.array([0.5, 0.25, 1, 2], np.float32)
        bias = normal(4, 3, 40, seed=5)
        mask = np.random.default_rng(0).random((3, 1, 3, 40)) > 0.3
        cases = {
            "causal": (dict(causal=True), j <= i + off, None, 0.0),
            "top left": (dict(causal=True, top_left=True), j <= i, None, 0.0),
            "window": (dict(window=(5, 2)), (j >= i + off - 5) & (j <= i + off + 2), None, 0.0),
            "mask": (dict(mask=mask), mask, None, 0.0),
            "bias": (dict(bias=bias), True, bias, 0.0),
            "alibi": (dict(alibi_slopes=slopes), True, -slopes[:, None, None] * np.abs(i + off - j), 0.0),
            "softcap": (dict(softcap=0.8), True, None, 0.8),
        }
        for name, (options, keep, added, softcap) in cases.items():
            exact, bound, *_ = oracles.attention(
                q, k, v, keep=self.keep & keep, added=added, softcap=softcap, scale=0.3, parts=40
            )
            out = attikos.decode(q, k, v, scale=0.3, lengths_kv=self.lengths, **options)
            oracles.check(self, out, exact, bound, name)
        # a sink is one key more, whose score it is and whose value is 0
        sinks = normal(4, seed=9)
        more = np.zeros((4, 1, 41), np.float32)
        more[:, 0, 40] = sinks
        wider = [np.concatenate([x, np.zeros_like(x[:, :, :1])], 2) for x in (k, v)]
        keep = np.concatenate([self.keep, np.ones((3, 1, 1, 1), bool)], 3)
        exact, bound, *_ = oracles.attention(q, *wider, keep=keep, added=more, parts=41)
        out = attikos.decode(q, k, v, lengths_kv=self.lengths, sinks=sinks)
        oracles.check(self, out, exact, bound, "sinks")

    def test_pages(self):
        q, k, v = self.tensors(np.float16)
        table = np.random.default_rng(3).permutation(18)[:15].reshape(3, 5).astype(np.int32)
        pk, pv = (pages_of(x, table, 8, self.lengths) for x in (k, v))
        exact, bound, *_ = oracles.attention(q, k, v, keep=self.keep, parts=40)
        out = attikos.decode(q, pk, pv, lengths_kv=self.lengths, page_table=table)
        oracles.check(self, out, exact, bound)
        np.testing.assert_array_equal(out, attikos.decode(q, k, v, lengths_kv=self.lengths))

    def test_packed(self):
        """Sequences of 3, 1 and 2 queries between such of no sequence, over padded, paged and packed keys."""
        counts, offsets, starts = [3, 1, 2], np.array([1, 4, 5, 7], np.int32), np.array([2, 31, 31, 71], np.int32)
        table = np.random.default_rng(3).permutation(18)[:15].reshape(3, 5).astype(np.int32)
        for dtype in oracles.FLOATING:
            q, k, v = self.tensors(dtype, 3)
            packed = np.full((4, 9, 16), np.nan, dtype)
            wanted = []
            for b, (n, m) in enumerate(zip(counts, self.lengths)):
                packed[:, offsets[b] : offsets[b + 1]] = q[b, :, :n]
                wanted.append(oracles.attention(q[b, :, :n], k[b, :, :m], v[b, :, :m], causal=True, parts=40))
                k[b, :, m:] = v[b, :, m:] = np.nan  # padding is poison
            flat = []
            for x in (k, v):
                flat.append(np.full((2, 75, x.shape[3]), np.nan, dtype))
                for b, m in enumerate(self.lengths):
                    flat[-1][:, starts[b] : starts[b + 1]] = x[b, :, :m]
            pages = [pages_of(x, table, 8, self.lengths) for x in (k, v)]
            forms = {
                "padded": ((k, v), dict(lengths_kv=self.lengths)),
                "paged": (pages, dict(lengths_kv=self.lengths, page_table=table)),
                "packed": (flat, dict(cu_seqlens_kv=starts)),
            }
            for name, (cache, options) in forms.items():
                for splits in (0, 3):
                    out, lse = attikos.decode(
                        packed, *cache, cu_seqlens_q=offsets, causal=True, splits=splits, return_lse=True, **options
                    )
                    for b, (exact, bound, sums, of_sums) in enumerate(wanted):
                        rows, what = slice(offsets[b], offsets[b + 1]), f"{np.dtype(dtype)} {name} {splits} {b}"
                        oracles.check(self, out[:, rows], exact, bound, what)
                        oracles.check(self, lse[:, rows], sums, of_sums, "lse " + what)
                    of_none = [0, 7, 8]
                    self.assertTrue((out[:, of_none] == 0).all() and (lse[:, of_none] == -np.inf).all(), name)

    def test_packed_errors(self):
        q, k, v = (x[0] for x in self.tensors(np.float32, 6))
        cache = [np.stack([x] * 3) for x in (k, v)]
        cu_q, cu_kv, table = np.array([0, 2, 3, 6]), np.array([0, 20, 20, 40]), np.zeros((3, 1), np.int32)
        for error, message, call in (
            (attikos.ArgumentError, "cu_seqlens_q are null; expected both, or those of q alone",
             lambda: attikos.decode(q, k, v, cu_seqlens_kv=cu_kv)),
            (attikos.UnsupportedError, "keys are packed or paged, not both",
             lambda: attikos.decode(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv, page_table=table)),
            (attikos.UnsupportedError, "packed tensors have their lengths in cu_seqlens",
             lambda: attikos.decode(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv, lengths_kv=[1, 2, 3])),
            (attikos.UnsupportedError, "packed tensors have their lengths in cu_seqlens",
             lambda: attikos.decode(q, *cache, cu_seqlens_q=cu_q, lengths_q=[2, 1, 3])),
            (attikos.ShapeMismatchError, "offset 3 is 7; expected ascending",
             lambda: attikos.decode(q, *cache, cu_seqlens_q=[0, 2, 3, 7])),
            (attikos.ShapeMismatchError, "offset 3 is 41; expected ascending",
             lambda: attikos.decode(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=[0, 20, 20, 41])),
            (attikos.ShapeMismatchError, "q has 4 dimensions; expected 3",
             lambda: attikos.decode(cache[0], *cache, cu_seqlens_q=cu_q)),
            (attikos.ShapeMismatchError, "k has 3 dimensions; expected 4",
             lambda: attikos.decode(q, k, v, cu_seqlens_q=cu_q)),
            (attikos.ShapeMismatchError, "q, k and v have one number of dimensions",
             lambda: attikos.decode(q, *cache)),
            (attikos.ShapeMismatchError, "q, k and v have one number of dimensions",
             lambda: attikos.decode(q, *cache, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)),
        ):  # fmt: skip
            with self.assertRaisesRegex(error, message):
                call()

    def test_errors(self):
        q, k, v = self.tensors(np.float32)
        for error, call in (
            (attikos.ShapeMismatchError, lambda: attikos.decode(q, k, v, lengths_kv=[29, 0, 41])),
            (attikos.ShapeMismatchError, lambda: attikos.decode(q, k, v, lengths_kv=[29, 0])),
            (attikos.ShapeMismatchError, lambda: attikos.decode(q[0], k[0], v[0])),
            (attikos.UnsupportedDtypeError, lambda: attikos.decode(q, k.astype(np.float16), v)),
            (attikos.ArgumentError, lambda: attikos.decode(q, k, v, splits=-1)),
            (attikos.UnsupportedError, lambda: attikos.decode(q, k, v, kernel="decode/of_nobody")),
            (attikos.UnsupportedError, lambda: attikos.decode(q, k, v, descale_q=1.0)),
        ):
            with self.assertRaises(error):
                call()


class Float8(unittest.TestCase):
    """Elements and factors that are exact in float32: the bound of a float32 call behind another rounding."""

    def test_attention_and_decode(self):
        q, k, v = normal(2, 4, 5, 32), normal(2, 2, 21, 32, seed=1), normal(2, 2, 21, 16, seed=2)
        q, k, v = (x.astype(E4M3) for x in (q, k, v))
        factors = np.array([[0.5, 2], [1, 0.25]], np.float32)

        def scaled(x, f):
            f = np.repeat(f, x.shape[1] // 2, axis=1) if np.ndim(f) else np.full((2, x.shape[1]), f)
            return x.astype(np.float32) * f[:, :, None, None].astype(np.float32)

        for out_dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            for fq, fk, fv in ((1.0, 1.0, 1.0), (0.5, 4.0, 0.25), (factors, factors[::-1], factors * 2)):
                dq, dk, dv = scaled(q, fq), scaled(k, fk), scaled(v, fv)
                options = dict(descale_q=fq, descale_k=fk, descale_v=fv, out_dtype=out_dtype, causal=True, return_lse=True)
                exact, bound, lse, lse_bound = oracles.attention(dq, dk, dv, True, out_dtype=out_dtype)
                out, got = attikos.attention(q, k, v, **options)
                self.assertEqual((out.dtype, got.dtype), (np.dtype(out_dtype), np.float32))
                oracles.check(self, out, exact, bound, "attention")
                oracles.check(self, got, lse, lse_bound, "lse")
                exact, bound, *_ = oracles.attention(dq, dk, dv, True, out_dtype=out_dtype, parts=21)
                oracles.check(self, attikos.decode(q, k, v, **options)[0], exact, bound, "decode")
        self.assertEqual(attikos.attention(q, k, v).dtype, ml_dtypes.bfloat16)

    def test_errors(self):
        x = normal(1, 1, 4, 8)
        x8 = x.astype(E4M3)
        for error, call in (
            (attikos.UnsupportedDtypeError, lambda: attikos.attention(x8, x8, x8, out_dtype=np.float64)),
            (attikos.UnsupportedDtypeError, lambda: attikos.attention(x8, x, x8)),
            (attikos.UnsupportedDtypeError, lambda: attikos.attention(x, x, x, out_dtype=np.float16)),
            (attikos.UnsupportedError, lambda: attikos.attention(x, x, x, descale_k=2.0)),
            (attikos.ShapeMismatchError, lambda: attikos.attention(x8, x8, x8, descale_k=np.ones(3, np.float32))),
            (attikos.UnsupportedDtypeError, lambda: attikos.attention(x8, x8, x8, descale_k=np.ones(1))),
        ):
            with self.assertRaises(error):
                call()


class Append(unittest.TestCase):
    def setUp(self):
        self.lengths = np.array([5, 0, 7], np.int32)
        self.cos, self.sin = normal(12, 3, seed=8), normal(12, 3, seed=9)

    def full(self, table, interleaved):
        return np.repeat(table, 2, 1) if interleaved else np.concatenate([table, table], 1)

    def test_plain_and_paged(self):
        for dtype in oracles.FLOATING:
            k, v = normal(3, 2, 4, 10, dtype=dtype), normal(3, 2, 4, 6, dtype=dtype, seed=1)
            q = normal(3, 4, 4, 10, dtype=dtype)
            tables = [t.astype(dtype) for t in (self.cos, self.sin)]
            positions = self.lengths[:, None] + np.arange(4)
            for style, half in ((None, False), (False, False), (True, False), (False, True), (True, True)):
                full = tables if half else [self.full(t, style) for t in tables]
                options = {} if style is None else dict(cos=full[0], sin=full[1], interleaved=style, q=q)
                if half:  # tables with one entry to a pair
                    options["rotary_dim"] = 6
                exact, bound = (oracles.wide(k), 0 * oracles.wide(k)) if style is None else oracles.rope(
                    k, *tables, style, positions
                )
                ck, cv = np.full((3, 2, 11, 10), 7, dtype), np.full((3, 2, 11, 6), 7, dtype)
                rotated = attikos.append_kv(k, v, ck, cv, cache_lengths=self.lengths, **options)
                table = np.array([[4, 0, 6], [1, 5, 2], [8, 3, 7]], np.int32)
                pk, pv = np.full((9, 2, 4, 10), 7, dtype), np.full((9, 2, 4, 6), 7, dtype)
                attikos.append_kv(k, v, pk, pv, cache_lengths=self.lengths, page_table=table, **options)
                touched = np.zeros((9, 4), bool)
                for b, n in enumerate(self.lengths):
                    what = f"{np.dtype(dtype)} {style} {b}"
                    oracles.check(self, ck[b, :, n : n + 4], exact[b], bound[b], what)
                    np.testing.assert_array_equal(cv[b, :, n : n + 4], v[b], what)
                    for cache in (ck, cv):
                        self.assertTrue((cache[b, :, :n] == 7).all() and (cache[b, :, n + 4 :] == 7).all(), what)
                    for i in range(n, n + 4):
                        page, row = table[b, i // 4], i % 4
                        touched[page, row] = True
                        np.testing.assert_array_equal(pk[page, :, row], ck[b, :, i], what)
                        np.testing.assert_array_equal(pv[page, :, row], cv[b, :, i], what)
                for cache in (pk, pv):
                    self.assertTrue((cache.swapaxes(1, 2)[~touched] == 7).all())
                if style is None:
                    self.assertIsNone(rotated)
                else:
                    oracles.check(self, rotated, *oracles.rope(q, *tables, style, positions), "queries")

    def test_queries_share_a_position(self):
        k, q = normal(3, 1, 2, 6), normal(3, 2, 4, 6)
        ck, cv = np.zeros((3, 1, 12, 6), np.float32), np.zeros((3, 1, 12, 6), np.float32)
        rotated = attikos.append_kv(
            k, k, ck, cv, cache_lengths=self.lengths, cos=self.full(self.cos, False), sin=self.full(self.sin, False), q=q,
            queries_share_position=True,
        )  # fmt: skip
        at = np.broadcast_to(self.lengths[:, None], (3, 4))
        oracles.check(self, rotated, *oracles.rope(q, self.cos, self.sin, False, at))

    def test_ragged_and_packed(self):
        """Sequences of 3, 0 and 4 new tokens, padded or packed between tokens that belong to none."""
        counts, starts = np.array([3, 0, 4], np.int32), np.array([0, 3, 3, 7], np.int32)
        offsets = starts + 2
        cos, sin = self.cos, self.sin
        for dtype in oracles.FLOATING:
            k, v, q = (normal(3, h, 4, 6, seed=h, dtype=dtype) for h in (2, 2, 4))
            tables = [self.full(t, False).astype(dtype) for t in (cos, sin)]
            own = [t[:, :3] for t in tables]
            positions = self.lengths[:, None] + np.arange(4)
            (exact, bound), queries = oracles.rope(k, *own, False, positions), oracles.rope(q, *own, False, positions)

            def packed(x):
                flat = np.full((x.shape[1], 10, 6), np.nan, dtype)
                for b, n in enumerate(counts):
                    flat[:, offsets[b] : offsets[b] + n] = x[b, :, :n]
                return flat

            padded = [x.copy() for x in (k, v)]
            for x in padded:
                for b, n in enumerate(counts):
                    x[b, :, n:] = np.nan  # is not read
            forms = {
                "padded": (padded, dict(new_lengths=counts), q),
                "packed": ([packed(k), packed(v)], dict(cu_seqlens_kv=offsets, cu_seqlens_q=offsets), packed(q)),
                "packed keys": ([packed(k), packed(v)], dict(cu_seqlens_kv=offsets), q),
                "packed queries": (padded, dict(new_lengths=counts, cu_seqlens_q=offsets), packed(q)),
            }
            table = np.array([[4, 0, 6], [1, 5, 2], [8, 3, 7]], np.int32)
            for name, (new, options, given) in forms.items():
                options = dict(options, cache_lengths=self.lengths)
                ck, cv = (np.full((3, 2, 11, 6), 7, dtype) for _ in range(2))
                pk, pv = (np.full((9, 2, 4, 6), 7, dtype) for _ in range(2))
                rotated = attikos.append_kv(*new, ck, cv, cos=tables[0], sin=tables[1], q=given, **options)
                options.pop("cu_seqlens_q", None)
                attikos.append_kv(*new, pk, pv, cos=tables[0], sin=tables[1], page_table=table, **options)
                bare = [np.full((3, 2, 11, 6), 7, dtype) for _ in range(2)]
                attikos.append_kv(*new, *bare, **options)
                for b, n in enumerate(self.lengths):
                    what, end = f"{np.dtype(dtype)} {name} {b}", n + counts[b]
                    oracles.check(self, ck[b, :, n:end], exact[b, :, : end - n], bound[b, :, : end - n], what)
                    np.testing.assert_array_equal(cv[b, :, n:end], v[b, :, : end - n], what)
                    np.testing.assert_array_equal(bare[0][b, :, n:end], k[b, :, : end - n], what)
                    np.testing.assert_array_equal(bare[1], cv)
                    for cache in (ck, cv):
                        self.assertTrue((cache[b, :, :n] == 7).all() and (cache[b, :, end:] == 7).all(), what)
                    for i in range(n, end):
                        np.testing.assert_array_equal(pk[table[b, i // 4], :, i % 4], ck[b, :, i], what)
                        np.testing.assert_array_equal(pv[table[b, i // 4], :, i % 4], cv[b, :, i], what)
                    rows = rotated[b] if given is q else rotated[:, offsets[b] : offsets[b + 1]]
                    oracles.check(self, rows, *(x[b, :, : rows.shape[1]] for x in queries), what)
                for cache in (pk, pv):
                    self.assertEqual((cache != 7).any((1, 3)).sum(), counts.sum(), name)
                if given is not q:  # queries of no sequence
                    self.assertTrue((rotated[:, :2] == 0).all() and (rotated[:, 9:] == 0).all(), name)

    def test_caches_of_narrower_types(self):
        pairs = ((np.float32, np.float16), (np.float32, ml_dtypes.bfloat16), (np.float16, E4M3), (ml_dtypes.bfloat16, E4M3))
        for dtype, narrow in pairs:
            k, v, q = (normal(3, h, 4, 6, seed=h, dtype=dtype) for h in (2, 2, 4))
            cos, sin = (self.full(t, False) if dtype is np.float32 else t.astype(np.float32) for t in (self.cos, self.sin))
            width = {} if dtype is np.float32 else {"rotary_dim": 6}
            what = f"{np.dtype(dtype)} {np.dtype(narrow)}"
            ck, cv = np.full((3, 2, 11, 6), 7, narrow), np.full((3, 2, 11, 6), 7, narrow)
            rotated = attikos.append_kv(k, v, ck, cv, cache_lengths=self.lengths, cos=cos, sin=sin, q=q, **width)
            self.assertEqual(rotated.dtype, np.dtype(narrow))
            positions = self.lengths[:, None] + np.arange(4)
            exact, bound = oracles.rope(k, cos[:, :3], sin[:, :3], False, positions)
            queries, query_bound = oracles.rope(q, cos[:, :3], sin[:, :3], False, positions)
            for got, wide, slack in ((rotated, queries, query_bound), *(
                (ck[b, :, n : n + 4], exact[b], bound[b]) for b, n in enumerate(self.lengths)
            )):  # fmt: skip
                # A result in exact arithmetic rounded once: between the roundings of both ends of the interval.
                low, high = ((wide + s * slack).astype(np.float32).astype(narrow) for s in (-1, 1))
                self.assertTrue(((got.astype(float) >= low.astype(float)) & (got.astype(float) <= high.astype(float))).all(), what)
            for b, n in enumerate(self.lengths):
                np.testing.assert_array_equal(cv[b, :, n : n + 4], v[b].astype(np.float32).astype(narrow), what)
                self.assertTrue((ck[b, :, :n] == 7).all() and (ck[b, :, n + 4 :] == 7).all(), what)

    def test_explain_and_kernel(self):
        k = normal(1, 1, 2, 8)
        caches = np.full((2, 1, 1, 4, 8), 7, np.float32)
        self.assertEqual(attikos.explain("append_kv", k, k, *caches), "runs portable")
        attikos.append_kv(k, k, *caches.copy(), kernel="portable")
        with self.assertRaisesRegex(attikos.UnsupportedError, "append_kv/of_nobody"):
            attikos.append_kv(k, k, *caches, kernel="append_kv/of_nobody")
        self.assertTrue((caches == 7).all())

    def test_caches_overlap_nothing(self):
        k = normal(2, 2, 3, 8)
        both = np.full((2, 2, 2, 9, 8), 7, np.float32)  # [batch, keys or values, ...]
        ck, cv = both[:, 0], both[:, 1]
        folded = np.lib.stride_tricks.as_strided(ck, ck.shape, (4, 4, 4, 4))
        one_by_one = np.lib.stride_tricks.as_strided(ck, ck.shape, (72, 36, 4, 4))
        angles = normal(9, 8)
        own = "expected memory of its own[.]"
        for error, text, call in (
            (attikos.ArgumentError, f"k_cache shares memory with output v_cache; {own}", lambda: attikos.append_kv(k, k, ck, ck)),
            (attikos.ArgumentError, "k_cache shares memory with output v_cache", lambda: attikos.append_kv(k, k, ck, ck[::-1])),
            (attikos.ArgumentError, "v_cache shares memory with k_new", lambda: attikos.append_kv(cv[:, :, 4:7], k, ck, cv)),
            (attikos.ArgumentError, "k_cache shares memory with cos", lambda: attikos.append_kv(k, k, ck, cv, cos=ck[0, 0], sin=angles)),
            (attikos.StrideError, r"k_cache has extents \[2, 2, 9, 8\] and strides \[1, 1, 1, 1\]", lambda: attikos.append_kv(k, k, folded, cv)),
            (attikos.StrideError, r"v_cache has extents .* and strides \[18, 9, 1, 1\]", lambda: attikos.append_kv(k, k, ck, one_by_one)),
        ):  # fmt: skip
            with self.assertRaisesRegex(error, "^attikos.append_kv: output " + text):
                call()
        self.assertTrue((both == 7).all())
        with self.assertRaisesRegex(attikos.ArgumentError, "output k_cache shares memory with output v_cache"):
            attikos.explain("append_kv", k, k, ck, ck)
        attikos.append_kv(k, k, ck, cv)  # interleaved, but apart
        np.testing.assert_array_equal(both[:, :, :, :3], np.stack([k, k], 1))
        self.assertTrue((both[:, :, :, 3:] == 7).all())

    def test_errors_write_nothing(self):
        k = normal(3, 2, 4, 10)
        ck, cv = np.full((3, 2, 10, 10), 7, np.float32), np.full((3, 2, 10, 10), 7, np.float32)
        frozen = ck.copy()
        frozen.flags.writeable = False
        tables = dict(cos=self.full(self.cos, False), sin=self.full(self.sin, False))
        for error, call in (
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, cache_lengths=self.lengths)),  # 7 + 4 > 10
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, cache_lengths=[0, 0])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck[:, :1], cv)),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck[:, :, :3], cv[:, :, :3])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, cos=tables["cos"][:, :5], sin=tables["sin"])),
            (attikos.UnsupportedDtypeError, lambda: attikos.append_kv(k, k, ck.astype(np.float16), cv)),
            (attikos.UnsupportedDtypeError, lambda: attikos.append_kv(k, k, ck.astype(E4M3), cv.astype(E4M3))),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, new_lengths=[4, 5, 0])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, new_lengths=[4, -1, 0])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, cache_lengths=self.lengths, new_lengths=[4, 4, 4])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, cache_lengths=[0, -1, 0])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, new_lengths=[4, 4])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, cu_seqlens_kv=[0, 1, 2, 3])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k[0], k[0], ck, cv, cu_seqlens_kv=[0, 2, 1, 4])),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k[0], k[0], ck, cv, cu_seqlens_kv=[0, 1, 4])),
            (attikos.UnsupportedError, lambda: attikos.append_kv(k[0], k[0], ck, cv, cu_seqlens_kv=[0, 1, 2, 4], new_lengths=[1, 1, 2])),
            (attikos.ArgumentError, lambda: attikos.append_kv(k, k, ck, cv, cu_seqlens_q=[0, 1, 2, 4])),
            (attikos.ArgumentError, lambda: attikos.append_kv(k, k, ck, cv, cos=tables["cos"])),
            (attikos.ArgumentError, lambda: attikos.append_kv(k, k, ck, cv, q=k)),
            (attikos.ShapeMismatchError, lambda: attikos.append_kv(k, k, ck, cv, rotary_dim=8, **tables)),
            (attikos.ArgumentError, lambda: attikos.append_kv(k, k, frozen, cv)),
            (attikos.StrideError, lambda: attikos.append_kv(k, k, np.lib.stride_tricks.as_strided(ck, ck.shape, (0, 4, 4, 4)), cv)),
        ):  # fmt: skip
            with self.assertRaises(error):
                call()
        self.assertTrue((ck == 7).all() and (cv == 7).all() and (frozen == 7).all())
        attikos.append_kv(k, k, ck, cv, cache_lengths=self.lengths, check=False)  # what does not fit is left out
        np.testing.assert_array_equal(ck[2, :, 7:], k[2, :, :3])


class Merge(unittest.TestCase):
    def test_parts_make_the_whole(self):
        for dtype in oracles.FLOATING:
            q = normal(2, 4, 3, 16, dtype=dtype)
            k, v = normal(2, 4, 30, 16, seed=1, dtype=dtype), normal(2, 4, 30, 8, seed=2, dtype=dtype)
            pieces = [slice(0, 7), slice(7, 20), slice(20, 30)]
            parts = [attikos.attention(q, k[:, :, p], v[:, :, p], return_lse=True) for p in pieces]
            outs, lses = (np.stack(x) for x in zip(*parts))
            exact, bound, lse, lse_bound = oracles.merge(outs, lses, dtype, oracles.accumulator(dtype))
            out, got = attikos.merge_split_states(outs, lses)
            self.assertEqual(out.dtype, np.dtype(dtype))
            oracles.check(self, out, exact, bound, "three")
            oracles.check(self, got, lse, lse_bound, "lse of three")
            exact, bound, lse, lse_bound = oracles.merge(outs[:2], lses[:2], dtype, oracles.accumulator(dtype))
            for shape in ((2, 4, 3), (8, 3)):
                arrays = [x.reshape(*shape, *x.shape[3:]) for pair in parts[:2] for x in pair]
                out, got = attikos.merge_states(*arrays)
                oracles.check(self, out.reshape(exact.shape), exact, bound, "two")
                oracles.check(self, got.reshape(lse.shape), lse, lse_bound, "lse of two")
        split = attikos.merge_split_states(outs.reshape(3, 8, 3, 8), lses.reshape(3, 8, 3))
        np.testing.assert_array_equal(split[0].reshape(2, 4, 3, 8), attikos.merge_split_states(outs, lses)[0])

    def test_empty_states_and_types(self):
        out = normal(2, 3, 4)
        lse, low = normal(2, 3), np.full((2, 3), -np.inf, np.float32)
        nan = np.full_like(out, np.nan)
        for pair in ((out, lse, nan, low), (nan, low, out, lse)):
            merged, got = attikos.merge_states(*pair)
            np.testing.assert_array_equal(merged, out)
            np.testing.assert_array_equal(got, lse)
        merged, got = attikos.merge_states(nan, low, nan, low)
        self.assertTrue((merged == 0).all() and (got == -np.inf).all())
        exact, bound, *_ = oracles.merge(np.stack([out, 2 * out]), np.stack([lse, lse + 1]), np.float16, np.float32)
        merged, _ = attikos.merge_states(out, lse, 2 * out, lse + 1, out_dtype=np.float16)
        self.assertEqual(merged.dtype, np.float16)
        oracles.check(self, merged, exact, bound)
        for error, call in (
            (attikos.ShapeMismatchError, lambda: attikos.merge_states(out, lse, out[:1], lse[:1])),
            (attikos.ShapeMismatchError, lambda: attikos.merge_states(out, lse[0], out, lse)),
            (attikos.UnsupportedDtypeError, lambda: attikos.merge_states(out, lse, out.astype(np.float16), lse)),
            (attikos.UnsupportedDtypeError, lambda: attikos.merge_states(out, lse.astype(np.float64), out, lse)),
        ):
            with self.assertRaises(error):
                call()


if __name__ == "__main__":
    unittest.main()
