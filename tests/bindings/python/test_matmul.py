# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles


def arrays(dtype, *shapes, seed=5):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes]


class Gemm(unittest.TestCase):
    def test_types_and_transposes(self):
        for dtype in oracles.FLOATING:
            a, b, c = arrays(dtype, (23, 31), (31, 17), (23, 17))
            exact, bound = oracles.gemm(a, b, dtype)
            for trans_a in (False, True):
                for trans_b in (False, True):
                    left = np.ascontiguousarray(a.T) if trans_a else a
                    right = np.ascontiguousarray(b.T) if trans_b else b
                    out = attikos.gemm(left, right, trans_a=trans_a, trans_b=trans_b)
                    self.assertEqual(out.dtype, np.dtype(dtype))
                    oracles.check(self, out, exact, bound, f"{np.dtype(dtype)} {trans_a} {trans_b}")
            exact, bound = oracles.gemm(a, b, dtype, 2.0, -0.5, c)
            kept = c.copy()
            oracles.check(self, attikos.gemm(a, b, 2.0, -0.5, c=c), exact, bound, "alpha, beta")
            np.testing.assert_array_equal(c, kept)
            oracles.check(self, attikos.gemm(a, b, 2.0, -0.5, c=np.asfortranarray(c)), exact, bound)

    def test_strides_and_batches(self):
        a, b = arrays(np.float32, (3, 20, 30), (30, 9))
        exact, bound = oracles.gemm(a[:, ::2, ::-3], b[::-3], np.float32)
        oracles.check(self, attikos.gemm(a[:, ::2, ::-3], b[::-3]), exact, bound)
        one = np.broadcast_to(b[:, :1], (30, 4))
        exact, bound = oracles.gemm(a, one, np.float32)
        oracles.check(self, attikos.gemm(a, one), exact, bound)

    def test_epilogue(self):
        a, b, bias, residual = arrays(np.float32, (5, 6), (6, 7), (7,), (5, 7))
        out = attikos.gemm(a, b, bias=bias, residual=residual, activation="relu")
        np.testing.assert_allclose(out, np.maximum(a @ b + bias, 0) + residual, rtol=1e-5, atol=1e-5)
        half = arrays(np.float16, (5, 6), (6, 7))
        self.assertEqual(attikos.gemm(*half, bias=bias).dtype, np.float16)
        with self.assertRaisesRegex(ValueError, "activation"):
            attikos.gemm(a, b, activation="sigmoid")

    def test_zero_extents(self):
        out = attikos.gemm(np.ones((3, 0), np.float32), np.ones((0, 2), np.float32))
        np.testing.assert_array_equal(out, np.zeros((3, 2)))
        self.assertEqual(attikos.gemm(np.ones((0, 4)), np.ones((4, 2))).shape, (0, 2))

    def test_beta_needs_c(self):
        a, b, c = arrays(np.float32, (3, 3), (3, 3), (3, 3))
        with self.assertRaisesRegex(ValueError, "no c"):
            attikos.gemm(a, b, 1.0, 0.5)
        nan = np.full((3, 3), np.nan, np.float32)
        np.testing.assert_array_equal(attikos.gemm(a, b, c=nan), attikos.gemm(a, b))
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.gemm(a, b, beta=1.0, c=c[:2])
        with self.assertRaises(attikos.UnsupportedDtypeError):
            attikos.gemm(a, b, beta=1.0, c=c.astype(np.float16))

    def test_tensor_core_gemm(self):
        for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
            a, b, c = arrays(dtype, (16, 24), (24, 8), (16, 8))
            c = c.astype(np.float32)
            for alpha, beta in ((1.0, 0.0), (0.5, 2.0)):
                out = attikos.tensor_core_gemm(a, b, alpha, beta, c)
                self.assertEqual(out.dtype, np.float32)
                exact, bound = oracles.gemm(a, b, np.float32, alpha, beta, c)
                oracles.check(self, out, exact, bound)
        with self.assertRaises(TypeError):
            attikos.tensor_core_gemm(a.astype(np.int8), b.astype(np.int8))
        with self.assertRaises(ValueError):
            attikos.tensor_core_gemm(a, b, 1.0, 1.0)

    def test_int8_is_exact(self):
        rng = np.random.default_rng(0)
        a = rng.integers(-128, 128, (33, 70), np.int8)
        b = rng.integers(-128, 128, (70, 21), np.int8)
        out = attikos.tensor_core_gemm_int8(a, b)
        self.assertEqual(out.dtype, np.int32)
        np.testing.assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32))
        with self.assertRaises(TypeError):
            attikos.tensor_core_gemm_int8(a.astype(np.float32), b.astype(np.float32))

    def test_triton_matmul(self):
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            a, b = arrays(dtype, (64, 48), (48, 32))
            exact, bound = oracles.gemm(a, b, dtype)
            for blocks in ({}, {"block_m": 32, "block_n": 32, "block_k": 16}, {"use_autotune": False}):
                out = attikos.triton_matmul(a, b, **blocks)
                self.assertEqual(out.dtype, np.dtype(dtype))
                oracles.check(self, out, exact, bound)
        f = attikos.triton_matmul
        for blocks in ((16, None, None), (16, 16, None), (0, 16, 16), (-1, 16, 16), (65, 32, 48), (64, 33, 48),
                       (64, 32, 49), (16.0, 16, 16), (True, 16, 16)):  # fmt: skip
            with self.assertRaisesRegex(ValueError, "block"):
                f(a, b, *blocks)
        with self.assertRaisesRegex(ValueError, "2D"):
            f(a[None], b[None])
        with self.assertRaisesRegex(ValueError, "incompatible"):
            f(a, a)
        with self.assertRaisesRegex(TypeError, "unsupported"):
            f(a.astype(np.int32), b.astype(np.int32))
        with self.assertRaisesRegex(TypeError, "match"):
            f(a.astype(np.float32), b.astype(np.float16))


if __name__ == "__main__":
    unittest.main()
