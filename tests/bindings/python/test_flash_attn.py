# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flash-attn package's signatures, and the options of attention behind them."""

import inspect
import unittest

import attikos
import numpy as np
import oracles
from attikos import flash_attn as fa


def normal(*shape, seed=17, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def first(x):
    return x.swapaxes(-3, -2)


class Functions(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = normal(2, 9, 4, 16), normal(2, 13, 2, 16, seed=1), normal(2, 13, 2, 16, seed=2)

    def test_plain(self):
        for causal in (False, True):
            exact, bound, lse, lse_bound = oracles.attention(*map(first, (self.q, self.k, self.v)), causal, 0.3)
            out, got, none = fa.flash_attn_func(
                self.q, self.k, self.v, 0.0, 0.3, causal, return_attn_probs=True, deterministic=True
            )
            oracles.check(self, first(out), exact, bound)
            oracles.check(self, got, lse, lse_bound)
            self.assertIsNone(none)
            self.assertTrue(out.flags.c_contiguous)
            np.testing.assert_array_equal(fa.flash_attn_func(self.q, self.k, self.v, 0.0, 0.3, causal), out)

    def test_packed_forms(self):
        kv = np.stack([self.k, self.v], 2)
        np.testing.assert_array_equal(
            fa.flash_attn_kvpacked_func(self.q, kv, causal=True), fa.flash_attn_func(self.q, self.k, self.v, causal=True)
        )
        qkv = normal(2, 7, 3, 4, 16)
        np.testing.assert_array_equal(
            fa.flash_attn_qkvpacked_func(qkv, softmax_scale=0.2),
            fa.flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], softmax_scale=0.2),
        )

    def test_window(self):
        rows, columns = 9, 13
        offset = columns - rows
        i, j = np.arange(rows)[:, None], np.arange(columns)[None]
        for left, right in ((2, 1), (0, 0), (-1, 2), (3, -1)):
            keep = np.ones((rows, columns), bool)
            if left >= 0:
                keep &= j >= i + offset - left
            if right >= 0:
                keep &= j <= i + offset + right
            exact, bound, *_ = oracles.attention(*map(first, (self.q, self.k, self.v)), keep=keep)
            out = fa.flash_attn_func(self.q, self.k, self.v, window_size=(left, right))
            oracles.check(self, first(out), exact, bound, f"{left} {right}")

    def test_mask_bias_softcap_alibi_sinks(self):
        """Each against the same done by hand in float64: to rounding, 2^-40 of the values' size."""
        q, k, v = (first(x).astype(np.float64) for x in (self.q, self.k, self.v))
        kk, vv = np.repeat(k, 2, 1), np.repeat(v, 2, 1)
        score = q @ kk.swapaxes(-1, -2) / 4
        bias, slopes, sinks = normal(4, 9, 13, dtype=np.float64), np.array([0.5, 0.25, 1, 2], np.float32), normal(4, dtype=np.float64)
        keep = np.random.default_rng(0).random((2, 1, 9, 13)) > 0.4
        distance = np.abs(np.arange(9)[:, None] + 4 - np.arange(13)[None])
        cases = {
            "bias": (dict(bias=bias), score + bias, None),
            "mask": (dict(mask=keep), np.where(keep, score, -np.inf), None),
            "uint8 mask": (dict(mask=keep.astype(np.uint8) * 3), np.where(keep, score, -np.inf), None),
            "softcap": (dict(softcap=0.7), 0.7 * np.tanh(score / 0.7), None),
            "alibi": (dict(alibi_slopes=slopes), score - slopes[:, None, None] * distance, None),
            "alibi per batch": (dict(alibi_slopes=np.stack([slopes, 2 * slopes])),
                                score - np.stack([slopes, 2 * slopes])[:, :, None, None] * distance, None),
            "sinks": (dict(sinks=sinks), score, sinks),
        }  # fmt: skip
        for name, (options, s, sink) in cases.items():
            weight = np.exp(s)
            total = weight.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink)[:, None, None])
            expected = weight / total @ vv
            np.testing.assert_allclose(attikos.attention(q, k, v, **options), expected, atol=2.0**-40, err_msg=name)

    def test_variable_lengths(self):
        lengths_q, lengths_k = [3, 0, 5], [4, 2, 9]
        cu_q, cu_k = (np.cumsum([0, *n]).astype(np.int32) for n in (lengths_q, lengths_k))
        q, k, v = normal(8, 4, 16), normal(15, 2, 16, seed=1), normal(15, 2, 16, seed=2)
        out, lse, _ = fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 5, 9, causal=True, return_attn_probs=True)
        self.assertEqual((out.shape, lse.shape), ((8, 4, 16), (4, 8)))
        for b in range(3):
            a, z = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
            one = fa.flash_attn_func(q[None, a], k[None, z], v[None, z], causal=True)
            np.testing.assert_allclose(out[a], one[0], atol=1e-6)
        kv = np.stack([k, v], 1)
        np.testing.assert_array_equal(fa.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 5, 9, causal=True), out)
        qkv = normal(8, 3, 4, 16)
        packed = fa.flash_attn_varlen_qkvpacked_func(qkv, cu_q, 5)
        np.testing.assert_array_equal(packed, fa.flash_attn_varlen_func(qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_q, cu_q, 5, 5))
        with self.assertRaises(attikos.ShapeMismatchError):
            fa.flash_attn_varlen_func(q, k, v, np.array([0, 5, 3, 8], np.int32), cu_k, 5, 9)

    def test_cache(self):
        cache_k, cache_v = normal(2, 12, 2, 16), normal(2, 12, 2, 16, seed=4)
        q, lengths = normal(2, 2, 4, 16, seed=5), np.array([5, 12], np.int32)
        out, lse = fa.flash_attn_with_kvcache(q, cache_k, cache_v, cache_seqlens=lengths, causal=True, return_softmax_lse=True)
        for b, n in enumerate(lengths):
            one = fa.flash_attn_func(q[b : b + 1], cache_k[b : b + 1, :n], cache_v[b : b + 1, :n], causal=True)
            np.testing.assert_allclose(out[b], one[0], atol=1e-6)
        self.assertEqual(lse.shape, (2, 4, 2))
        np.testing.assert_allclose(
            fa.flash_attn_with_kvcache(q, cache_k, cache_v, cache_seqlens=5),
            fa.flash_attn_func(q, cache_k[:, :5], cache_v[:, :5]), atol=1e-6,
        )  # fmt: skip
        # the same cache in pages of 4, stored in another order, unused pages poisoned
        order = np.array([[5, 0, 3], [1, 4, 2]], np.int32)
        pages_k, pages_v = (np.full((7, 4, 2, 16), np.nan, np.float32) for _ in range(2))
        for b in range(2):
            for n in range(3):
                if 4 * n < lengths[b]:
                    pages_k[order[b, n]] = cache_k[b, 4 * n : 4 * n + 4]
                    pages_v[order[b, n]] = cache_v[b, 4 * n : 4 * n + 4]
        paged = fa.flash_attn_with_kvcache(q, pages_k, pages_v, cache_seqlens=lengths, block_table=order, causal=True)
        np.testing.assert_allclose(paged, out, atol=1e-6)
        varlen = fa.flash_attn_varlen_func(
            q.reshape(4, 4, 16), pages_k, pages_v, np.array([0, 2, 4], np.int32), np.array([0, 5, 17], np.int32), 2, 12,
            causal=True, block_table=order,
        )  # fmt: skip
        np.testing.assert_allclose(varlen.reshape(out.shape), out, atol=1e-6)

    def test_refusals(self):
        for call in (
            lambda: fa.flash_attn_func(self.q, self.k, self.v, 0.1),
            lambda: fa.flash_attn_varlen_func(self.q[0], self.k[0], self.v[0], [0, 9], [0, 13], 9, 13, 0.5),
        ):
            with self.assertRaises(NotImplementedError):
                call()

    def test_the_order_of_arguments_of_version_3(self):
        """There softmax_scale and causal stand where dropout_p and softmax_scale stand here."""
        kv, qkv = np.stack([self.k, self.v], 2), normal(2, 7, 3, 4, 16)
        flat = [x.reshape(-1, *x.shape[2:]) for x in (self.q, self.k, self.v)]
        offsets = ([0, 9, 18], [0, 13, 26], 9, 13)
        calls = {
            "flash_attn_func": (self.q, self.k, self.v),
            "flash_attn_kvpacked_func": (self.q, kv),
            "flash_attn_qkvpacked_func": (qkv,),
            "flash_attn_varlen_func": (*flat, *offsets),
            "flash_attn_varlen_kvpacked_func": (flat[0], kv.reshape(-1, 2, 2, 16), *offsets),
            "flash_attn_varlen_qkvpacked_func": (qkv.reshape(-1, 3, 4, 16), [0, 7, 14], 7),
        }
        for name, arguments in calls.items():
            for more in ((None, True), (None, False), (0.0, np.True_), (None, None, 0.5), (True,), (False, 0.5)):
                with self.assertRaises(attikos.ArgumentError, msg=f"{name}{more}"):
                    getattr(fa, name)(*arguments, *more)
            with self.assertRaises(attikos.UnsupportedError):
                getattr(fa, name)(*arguments, 0.25, True)
            np.testing.assert_array_equal(
                getattr(fa, name)(*arguments, None, causal=True), getattr(fa, name)(*arguments, 0.0, None, True)
            )

    def test_signatures(self):
        tail = ["dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic",
                "return_attn_probs"]  # fmt: skip
        offsets = ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
        for function, names in {
            fa.flash_attn_func: ["q", "k", "v", *tail],
            fa.flash_attn_kvpacked_func: ["q", "kv", *tail],
            fa.flash_attn_qkvpacked_func: ["qkv", *tail],
            fa.flash_attn_varlen_func: ["q", "k", "v", *offsets, *tail, "block_table"],
            fa.flash_attn_varlen_kvpacked_func: ["q", "kv", *offsets, *tail],
            fa.flash_attn_varlen_qkvpacked_func: ["qkv", "cu_seqlens", "max_seqlen", *tail],
            fa.flash_attn_with_kvcache: [
                "q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin", "cache_seqlens", "cache_batch_idx",
                "cache_leftpad", "block_table", "softmax_scale", "causal", "window_size", "softcap",
                "rotary_interleaved", "alibi_slopes", "num_splits", "return_softmax_lse",
            ],
        }.items():  # fmt: skip
            found = inspect.signature(function).parameters.values()
            by_name = [x.name for x in found if x.kind is x.KEYWORD_ONLY]
            self.assertEqual([x.name for x in found if x.name not in by_name], names, function.__name__)
            self.assertEqual(by_name, ["check"] if "cu_seqlens" in str(names) or "cache_seqlens" in names else [])
        self.assertEqual(len(fa.__all__), 7)


class Backward(unittest.TestCase):
    """Against float64 central differences; a wrong tensor or option shows at once."""

    def check(self, shapes, names=("q", "k", "v"), **options):
        rng = np.random.default_rng(23)
        arrays = {n: rng.standard_normal(s) for n, s in zip(("q", "k", "v"), shapes)}
        arrays.update({n: options.pop(n) for n in ("bias", "sinks") if n in options})

        def forward():
            return attikos.attention(**arrays, **options)

        out, lse = attikos.attention(**arrays, **options, return_lse=True)
        dout = rng.standard_normal(out.shape)
        found = attikos.attention_backward(
            arrays["q"], arrays["k"], arrays["v"], out, lse, dout,
            **{n: a for n, a in arrays.items() if n not in ("q", "k", "v")}, **options,
        )  # fmt: skip
        self.assertEqual(len(found), len(arrays))
        step = 1e-5
        for (name, array), gradient in zip(arrays.items(), found):
            self.assertEqual(gradient.shape, array.shape)
            for index in map(tuple, rng.integers(0, array.shape, (12, array.ndim))):
                kept = array[index]
                array[index] = kept + step
                plus = (forward() * dout).sum()
                array[index] = kept - step
                minus = (forward() * dout).sum()
                array[index] = kept
                # truncation step^2, rounding 2^-52 / step, both times sums of a few hundred terms of size 1
                self.assertAlmostEqual(gradient[index], (plus - minus) / (2 * step), delta=1e-7, msg=f"{name}{index}")

    def test_grouped_heads_and_options(self):
        shapes = ((2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 3))
        self.check(shapes)
        self.check(shapes, causal=True, scale=0.3, softcap=1.5)
        self.check(shapes, window=(2, 1), alibi_slopes=np.array([0.1, 0.2, 0.3, 0.4], np.float32))
        rng = np.random.default_rng(1)
        self.check(shapes, bias=rng.standard_normal((4, 5, 7)), sinks=rng.standard_normal(4))
        self.check(shapes, bias=rng.standard_normal((5, 1)), mask=rng.random((2, 1, 5, 7)) > 0.3)
        self.check(shapes, lengths_q=[5, 3], lengths_kv=[4, 7])

    def test_packed(self):
        cu_q, cu_k = np.array([0, 2, 5], np.int32), np.array([0, 4, 7], np.int32)
        self.check(((4, 5, 6), (2, 7, 6), (2, 7, 3)), cu_seqlens_q=cu_q, cu_seqlens_kv=cu_k, causal=True)


if __name__ == "__main__":
    unittest.main()
