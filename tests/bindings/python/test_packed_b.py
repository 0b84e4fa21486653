# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pack_b(), and gemm() with what it gives: the bits of the call with the array itself, and what is refused."""

import threading
import unittest
from unittest import mock

import attikos
import ml_dtypes
import numpy as np
import oracles
from attikos import _arrays

try:
    import torch
except ImportError:
    torch = None

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATING = (np.float64, np.float32, np.float16, BF16)
SHAPES = ((1, 1, 40), (5, 40, 1), (8, 97, 131), (9, 33, 65), (21, 70, 300), (32, 32, 32), (0, 40, 40), (3, 0, 40),
          (3, 40, 0))  # fmt: skip


def normal(*shape, seed=13, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(*shape, seed=13):
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


class Packed(unittest.TestCase):
    def same(self, got, want):
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
        self.assertEqual(got.tobytes(), want.tobytes())

    def test_every_type_and_shape(self):
        for dtype in FLOATING:
            for m, n, k in SHAPES:
                for trans_b in (False, True):
                    a = normal(m, k, dtype=dtype)
                    b = normal(*((n, 2 * k) if trans_b else (k, 2 * n)), seed=3, dtype=dtype)[:, ::2]  # no unit stride
                    packed = attikos.pack_b(b, trans_b)
                    self.assertEqual((packed.shape, packed.ndim, packed.trans_b), (b.shape, 2, trans_b))
                    self.assertIn(str(packed.dtype.name), repr(packed))
                    out = attikos.gemm(a, packed, trans_b=trans_b)
                    self.same(out, attikos.gemm(a, b, trans_b=trans_b))
                    exact, bound = oracles.gemm(oracles.wide(a), oracles.wide(b.T if trans_b else b), dtype)
                    oracles.check(self, out, exact, bound, f"{dtype} {m} {n} {k} {trans_b}")

    def test_options(self):
        a, b, c, bias = normal(3, 9, 70), normal(70, 40, seed=3), normal(3, 9, 40, seed=4), normal(40, seed=5)
        packed = attikos.pack_b(b)
        for more in (
            {"alpha": 0.5, "beta": -2.0, "c": c},
            {"bias": bias, "activation": "gelu", "residual": c, "scale": 3.0},
            {"activation": "silu", "return_pre_activation": True},
        ):
            want, got = attikos.gemm(a, b, **more), attikos.gemm(a, packed, **more)
            for x, y in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want))):
                self.same(x, y)
        wide = attikos.gemm(a.astype(BF16), attikos.pack_b(b.astype(BF16)), out_dtype=np.float32)
        self.same(wide, attikos.gemm(a.astype(BF16), b.astype(BF16), out_dtype=np.float32))

    def test_int8(self):
        a, b = integers(21, 300), integers(300, 70, seed=3)
        packed = attikos.pack_b(b)
        out = attikos.gemm(a, packed, zero_point_a=3, zero_point_b=np.arange(70, dtype=np.int32))
        exact = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - np.arange(70))
        np.testing.assert_array_equal(out, exact.astype(np.int32))
        more = {"out_dtype": np.float32, "scale_a": 0.5, "scale_b": normal(1, 70, seed=6)}
        self.same(attikos.gemm(a, packed, **more), attikos.gemm(a, b, **more))

    def test_array_may_go(self):
        a, b = normal(5, 64), normal(64, 48, seed=3)
        want, packed = attikos.gemm(a, b), attikos.pack_b(b)
        b[:] = np.nan
        del b
        self.same(attikos.gemm(a, packed), want)

    def test_short_way(self):
        """Plain calls take it, with int8, too, and give what the long one gives."""
        cases = [(normal(9, 70, dtype=t), normal(70, 40, seed=3, dtype=t)) for t in (np.float32, np.float16)]
        cases.append((integers(9, 70), integers(70, 40, seed=3)))
        if torch is not None:
            cases += [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in cases]
            cases.append((torch.randn(9, 70).bfloat16(), torch.randn(70, 40).bfloat16()))
        for a, b in cases:
            packed, gone = attikos.pack_b(b), mock.Mock(side_effect=AssertionError("went the long way"))
            for right in (b, packed):
                want = attikos.gemm(a, b, out_dtype=np.int32 if str(a.dtype).endswith("int8") else a.dtype)  # long
                with mock.patch.object(_arrays.Call, "__init__", gone):
                    got = attikos.gemm(a, right)
                self.assertEqual((type(got), got.dtype, tuple(got.shape)), (type(want), want.dtype, (9, 40)))
                self.assertTrue(bool((got == want).all()))

    def test_threads_share_one(self):
        a, b = normal(17, 200), normal(200, 90, seed=3)
        want, packed, results = attikos.gemm(a, b), attikos.pack_b(b), []

        def call():
            results.extend(attikos.gemm(a, packed) for _ in range(20))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 80)
        for got in results:
            self.same(got, want)

    def test_is_explained(self):
        a, b = normal(40, 50), normal(50, 60, seed=3)
        told = attikos.explain("gemm", a, attikos.pack_b(b))
        self.assertTrue(told.startswith("runs portable"), told)
        self.assertIn("packed B: [50, 60] float32 in panels of ", told)

    def test_refusals(self):
        a, b = normal(5, 64), normal(64, 48, seed=3)
        packed = attikos.pack_b(b)
        for error, call, words in (
            (attikos.ShapeMismatchError, lambda: attikos.gemm(a[:, :9], packed), "incompatible dimensions"),
            (attikos.UnsupportedDtypeError, lambda: attikos.gemm(a.astype(np.float64), packed), "must match"),
            (attikos.ShapeMismatchError, lambda: attikos.pack_b(a[0]), "attikos.pack_b: b is [64] float32; expected 2"),
            (attikos.UnsupportedDtypeError, lambda: attikos.pack_b(a.astype(np.int32)), "attikos.pack_b"),
            (attikos.ArgumentError, lambda: attikos.pack_b(a, trans_b=3), "trans_b is 3; expected a bool"),
        ):
            with self.assertRaises(error) as caught:
                call()
            self.assertIn(words, str(caught.exception))
        square = normal(40, 40)
        with self.assertRaises(attikos.UnsupportedError) as caught:
            attikos.gemm(square, attikos.pack_b(square, trans_b=True))
        self.assertIn("expected true", str(caught.exception))

    @unittest.skipIf(torch is None, "no PyTorch")
    def test_torch(self):
        x, weight = torch.randn(4, 7, 64), torch.nn.Linear(64, 48).weight.to(torch.bfloat16)
        with torch.no_grad():
            packed = attikos.pack_b(weight, trans_b=True)
            out = attikos.gemm(x.to(torch.bfloat16), packed, trans_b=True)
            self.assertTrue(torch.equal(out, attikos.gemm(x.to(torch.bfloat16), weight, trans_b=True)))
        with self.assertRaises(attikos.UnsupportedError) as caught:  # there is no gradient of a
            attikos.gemm(x.to(torch.bfloat16).requires_grad_(), packed, trans_b=True)
        self.assertIn("requires a gradient", str(caught.exception))
        with self.assertRaises(attikos.UnsupportedError):
            attikos.pack_b(torch.nn.Linear(64, 48).weight)


if __name__ == "__main__":
    unittest.main()
