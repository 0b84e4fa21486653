# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import unittest

import attikos
import numpy as np
import oracles


def arrays(dtype, *shapes, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes]


class Attention(unittest.TestCase):
    def test_types_algorithms_and_masks(self):
        for dtype in oracles.FLOATING:
            q, k, v = arrays(dtype, (2, 4, 19, 24), (2, 2, 37, 24), (2, 2, 37, 20))
            for causal in (False, True):
                exact, bound, lse, lse_bound = oracles.attention(q, k, v, causal)
                for algorithm in ("flash", "tiled", "naive"):
                    what = f"{np.dtype(dtype)} {algorithm} causal={causal}"
                    out, got = attikos.attention(q, k, v, causal=causal, algorithm=algorithm, return_lse=True)
                    self.assertEqual(out.dtype, q.dtype)
                    self.assertEqual(got.dtype, np.float64 if dtype is np.float64 else np.float32)
                    oracles.check(self, out, exact, bound, what)
                    oracles.check(self, got, lse, lse_bound, what)

    def test_few_queries_over_many_keys(self):
        """Keys are split without being asked to, with the bits of decode()."""
        for dtype in oracles.FLOATING:
            for heads, queries in ((2, 1), (2, 2), (8, 8)):
                shapes = ((2, heads, queries, 24), (2, 2, 900, 24), (2, 2, 900, 20))
                q, k, v = arrays(dtype, *shapes)
                self.assertEqual(attikos.explain("attention", q, k, v), "runs portable/split")
                exact, bound, lse, lse_bound = oracles.attention(q, k, v, True)
                out, got = attikos.attention(q, k, v, causal=True, return_lse=True)
                what = f"{np.dtype(dtype)} {heads} heads, {queries} queries"
                oracles.check(self, out, exact, bound, what)
                oracles.check(self, got, lse, lse_bound, what)
                for one, other in zip((out, got), attikos.decode(q, k, v, causal=True, return_lse=True)):
                    np.testing.assert_array_equal(one, other)
                again = attikos.attention(q, k, v, causal=True, kernel="portable")
                oracles.check(self, again, exact, bound, what)
                explained = attikos.explain("attention", q, k, v, kernel="portable")
                self.assertRegex(explained, r"^runs portable/flash( \((avx512_bf16|amx)\))?$")
        q, k, v = arrays(np.float32, (1, 2, 3, 8), (1, 2, 900, 8), (1, 2, 900, 8))
        self.assertIn("runs portable/flash", attikos.explain("attention", q, k, v))

    def test_compute_modes(self):
        q, k, v = arrays(np.float32, (1, 2, 19, 24), (1, 2, 37, 24), (1, 2, 37, 20))
        exact, bound, *_ = oracles.attention(q, k, v)
        for mode in ("ieee", "tf32", "tf32x3"):  # a host computes in IEEE float32 whatever is allowed
            oracles.check(self, attikos.attention(q, k, v, compute=mode), exact, bound, mode)
        with self.assertRaisesRegex(attikos.ArgumentError, "compute is 'half'; expected one of"):
            attikos.attention(q, k, v, compute="half")

    def test_chunks(self):
        q, k, v = arrays(np.float32, (2, 4, 19, 24), (2, 2, 37, 24), (2, 2, 37, 20))
        positions = np.arange(19)[:, None] + 37 - 19
        for chunk in (1, 8, 100):
            keep = positions // chunk == np.arange(37)[None] // chunk
            for causal in (False, True):
                exact, bound, *_ = oracles.attention(q, k, v, causal, keep=keep)
                oracles.check(self, attikos.attention(q, k, v, causal=causal, attention_chunk=chunk), exact, bound)
                out = attikos.decode(q, k, v, causal=causal, attention_chunk=chunk)
                exact, bound, *_ = oracles.attention(q, k, v, causal, keep=keep, parts=37)
                oracles.check(self, out, exact, bound)
            out, lse = attikos.attention(q, k, v, attention_chunk=chunk, return_lse=True)
            masked = attikos.attention_backward(q, k, v, out, lse, np.ones_like(out), mask=keep)
            gradients = attikos.attention_backward(q, k, v, out, lse, np.ones_like(out), attention_chunk=chunk)
            for got, wanted in zip(gradients, masked):
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(attikos.attention(q, k, v, attention_chunk=0), attikos.attention(q, k, v))
        for function in (attikos.attention, attikos.decode):
            with self.assertRaisesRegex(attikos.ArgumentError, "attention_chunk is -1; expected a number of positions"):
                function(q, k, v, attention_chunk=-1)
            with self.assertRaisesRegex(attikos.ArgumentError, "attention_chunk is 1.5; expected an integer"):
                function(q, k, v, attention_chunk=1.5)
            self.assertIn("attention_chunk: c > 0", function.__doc__)

    def test_margin(self):
        q, k, v = arrays(np.float32, (2, 4, 9, 24), (2, 2, 17, 24), (2, 2, 17, 24))
        for options in ({}, dict(causal=True), dict(window=(3, 1), bias=np.ones((9, 17), np.float32))):
            expected = attikos.attention(q, k, v, return_lse=True, **options)
            found = attikos.attention(q, k, v, return_lse=True, sm_margin=4, **options)
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(x, y)
            with self.assertRaisesRegex(attikos.ArgumentError, "sm_margin is -1; expected a number of multiprocessors"):
                attikos.attention(q, k, v, sm_margin=-1, **options)
            with self.assertRaisesRegex(attikos.ArgumentError, "sm_margin is 1.5; expected an integer"):
                attikos.attention(q, k, v, sm_margin=1.5, **options)
            with self.assertRaisesRegex(attikos.ArgumentError, "sm_margin is 4294967296; expected"):
                attikos.attention(q, k, v, sm_margin=2**32, **options)
        self.assertIn("sm_margin: multiprocessors of a device", attikos.attention.__doc__)

    def test_order_and_precision_of_gradients(self):
        q, k, v = arrays(np.float32, (2, 4, 9, 24), (2, 2, 17, 24), (2, 2, 17, 24))
        out, lse = attikos.attention(q, k, v, return_lse=True)
        operands = q, k, v, out, lse, np.ones_like(out)
        exact = attikos.attention_backward(*operands)
        for options in (dict(determinism="unordered"), dict(compute="tf32x3"), dict(compute="tf32")):
            for got, wanted in zip(attikos.attention_backward(*operands, **options), exact):
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)  # a host ignores both
        np.testing.assert_array_equal(attikos.attention(q, k, v, determinism="unordered"), out)
        with self.assertRaisesRegex(attikos.UnsupportedError, "determinism is batch_invariant; expected run_to_run or"):
            attikos.attention_backward(*operands, determinism="batch_invariant")
        with self.assertRaisesRegex(attikos.ArgumentError, "determinism is 'sometimes'; expected one of"):
            attikos.attention_backward(*operands, determinism="sometimes")

    def test_strides_and_scale(self):
        q, k, v = arrays(np.float32, (2, 11, 3, 16), (2, 13, 3, 16), (2, 13, 3, 16))
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        exact, bound, *_ = oracles.attention(q, k, v, scale=0.3)
        oracles.check(self, attikos.flash_attention(q, k, v, scale=0.3), exact, bound)
        backwards = k[:, :, ::-1], v[:, :, ::-1]
        exact, bound, *_ = oracles.attention(q, *backwards, causal=True)
        oracles.check(self, attikos.flash_attention(q, *backwards, is_causal=True), exact, bound)
        every_other = q[..., ::2], k[..., ::2], v
        exact, bound, *_ = oracles.attention(*every_other)
        oracles.check(self, attikos.flash_attention(*every_other), exact, bound)

    def test_three_dimensions(self):
        q, k, v = arrays(np.float16, (6, 9, 8), (6, 9, 8), (6, 9, 8))
        exact, bound, *_ = oracles.attention(q, k, v)
        oracles.check(self, attikos.flash_attention(q, k, v), exact, bound)

    def test_lengths_keep_padding_out(self):
        lengths = [5, 0, 16]
        q, k, v = arrays(np.float32, (3, 2, 16, 8), (3, 2, 16, 8), (3, 2, 16, 8))
        expected = np.zeros_like(q)
        for b, n in enumerate(lengths):
            if n:
                expected[b, :, :n] = attikos.flash_attention(q[b : b + 1, :, :n], k[b : b + 1, :, :n], v[b : b + 1, :, :n])[0]
            for x in (q, k, v):
                x[b, :, n:] = np.nan
        for given in (lengths, np.array(lengths), np.array(lengths, np.int32)):
            np.testing.assert_array_equal(attikos.flash_attention(q, k, v, seq_lens=given), expected)
        for bad in ([5, 0, 17], [-1, 0, 1]):
            with self.assertRaisesRegex(attikos.ShapeMismatchError, r"length . is .*\[0, 16\]"):
                attikos.flash_attention(q, k, v, seq_lens=bad)
        clamped = attikos.flash_attention(q, k, v, seq_lens=[5, -7, 17], check=False)
        np.testing.assert_array_equal(clamped, expected)
        with self.assertRaises(ValueError):
            attikos.flash_attention(q, k, v, seq_lens=[1, 2])

    def test_zero_extents(self):
        for shape in ((0, 2, 4, 8), (1, 2, 0, 8), (1, 0, 4, 8)):
            x = np.zeros(shape, np.float32)
            self.assertEqual(attikos.flash_attention(x, x, x).shape, shape)
        q, none = np.ones((1, 1, 3, 4), np.float32), np.ones((1, 1, 0, 4), np.float32)
        out, lse = attikos.attention(q, none, none, return_lse=True)
        self.assertTrue((out == 0).all() and np.isneginf(lse).all())

    def test_one_function_serves_two_signatures(self):
        q, k, v = arrays(np.float32, (1, 2, 7, 16), (1, 2, 7, 16), (1, 2, 7, 16))
        f = attikos.flash_attention
        plain, masked = f(q, k, v), f(q, k, v, causal=True)
        self.assertFalse(np.array_equal(plain, masked))
        scaled, both = f(q, k, v, scale=0.5), f(q, k, v, 0.5, True)
        for same in (f(q, k, v, 0.0), f(q, k, v, None), f(q, k, v, 0.25), f(q, k, v, False), f(q, k, v, False, None),
                     f(q, k, v, scale=0.0, is_causal=False), f(q, k, v, sm_scale=None)):  # fmt: skip
            np.testing.assert_array_equal(same, plain)
        for same in (f(q, k, v, True), f(q, k, v, 0.0, True), f(q, k, v, is_causal=True), f(q, k, v, np.True_),
                     f(q, k, v, is_causal=True, causal=True), f(q, k, v, True, None), f(q, k, v, None, True)):  # fmt: skip
            np.testing.assert_array_equal(same, masked)
        for same in (f(q, k, v, 0.5), f(q, k, v, sm_scale=0.5), f(q, k, v, False, 0.5), f(q, k, v, 0.5, sm_scale=0.5)):
            np.testing.assert_array_equal(same, scaled)
        for same in (f(q, k, v, True, 0.5), f(q, k, v, True, sm_scale=0.5), f(q, k, v, 0.5, causal=True)):
            np.testing.assert_array_equal(same, both)
        for wrong in (lambda: f(q, k, v, 0.5, sm_scale=0.25), lambda: f(q, k, v, True, causal=False),
                      lambda: f(q, k, v, is_causal=True, causal=False), lambda: f(q, k, v, True, 0.5, sm_scale=0.1),
                      lambda: f(q, k, v, 0.5, 0.5), lambda: f(q, k, v, True, False),
                      lambda: f(q, k, v, True, True), lambda: f(q, k, v, None, 0.5), lambda: f(q, k, v, 0.0, 0.5),
                      lambda: f(q, k, v, float("nan")), lambda: f(q, k, v, True, float("inf"))):  # fmt: skip
            with self.assertRaises(attikos.ArgumentError):
                wrong()
        lengths = [5]
        padded = f(q, k, v, seq_lens=lengths)
        self.assertFalse(np.array_equal(padded, plain))
        for same in (f(q, k, v, False, None, lengths), f(q, k, v, None, False, lengths), f(q, k, v, 0.25, None, lengths),
                     f(q, k, v, False, 0.0, lengths)):  # fmt: skip
            np.testing.assert_array_equal(same, padded)
        np.testing.assert_array_equal(f(q, k, v, True, 0.5, lengths), f(q, k, v, 0.5, True, lengths))

    def test_variants_by_name(self):
        q, k, v = arrays(np.float32, (1, 2, 33, 16), (1, 2, 33, 16), (1, 2, 33, 16))
        for fn in (attikos.tiled_attention, attikos.naive_attention):
            exact, bound, *_ = oracles.attention(q, k, v, True, 0.4)
            oracles.check(self, fn(q, k, v, scale=0.4, is_causal=True), exact, bound)
            oracles.check(self, fn(q, k, v, 0.4, True), exact, bound)

    def test_errors(self):
        q, k, v = arrays(np.float32, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))
        f = attikos.flash_attention
        for base in (RuntimeError, ValueError, attikos.Error, attikos.ShapeMismatchError):
            with self.assertRaisesRegex(base, "3D or 4D"):
                f(q[0, 0], k[0, 0], v[0, 0])
            with self.assertRaises(base):
                f(q, k, v[:, :, :3])
            with self.assertRaises(base):
                f(q, k[..., :4], v)
        for base in (RuntimeError, TypeError, attikos.UnsupportedDtypeError):
            with self.assertRaisesRegex(base, "unsupported dtype"):
                f(q.astype(np.int32), k.astype(np.int32), v.astype(np.int32))
            with self.assertRaisesRegex(base, "must match"):
                f(q, k.astype(np.float16), v)
            with self.assertRaises(base):
                f([1.0], k, v)
        with self.assertRaisesRegex(ValueError, "algorithm"):
            attikos.attention(q, k, v, algorithm="none")
        with self.assertRaisesRegex(NotImplementedError, "of_nobody"):
            attikos.attention(q, k, v, kernel="of_nobody")


if __name__ == "__main__":
    unittest.main()
