# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def normal(*shape, dtype=np.float32, seed=13):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


class Quantize(unittest.TestCase):
    def test_against_ml_dtypes(self):
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
            for shape in ((5,), (6, 7), (2, 3, 4), (2, 2, 3, 4)):
                x = normal(*shape, dtype=dtype)
                codes, scale = attikos.quantize_fp8(x)
                self.assertEqual((codes.dtype, codes.shape), (E4M3, x.shape))
                self.assertEqual((scale.dtype, scale.shape), (np.float32, ()))
                wide = x.astype(np.float64)
                self.assertEqual(float(scale), float(np.float32(np.abs(wide).max() / 448)))
                quotient = (wide / float(scale)).astype(np.float64 if dtype is np.float64 else np.float32)
                np.testing.assert_array_equal(codes.view(np.uint8), quotient.astype(E4M3).view(np.uint8))

    def test_edges(self):
        codes, scale = attikos.quantize_fp8(np.zeros((3, 4), np.float32))
        self.assertTrue((codes.view(np.uint8) == 0).all() and scale > 0)
        codes, scale = attikos.quantize_fp8(np.array([[1, np.nan, -2]], np.float32))
        self.assertEqual(np.isnan(codes.astype(np.float32)).tolist(), [[False, True, False]])
        codes, _ = attikos.quantize_fp8(np.zeros((0, 4), np.float32))
        self.assertEqual(codes.shape, (0, 4))
        with self.assertRaises(attikos.UnsupportedDtypeError):
            attikos.quantize_fp8(np.zeros(3, np.int32))

    def test_infinities(self):
        x = normal(3, 5)
        x[0, 1], x[1, 2], x[2, 3] = np.inf, -np.inf, np.nan
        finite = np.isfinite(x)
        codes, scale = attikos.quantize_fp8(x)
        self.assertEqual(float(scale), float(np.abs(x[finite]).max() / np.float32(448)))
        np.testing.assert_array_equal(np.isnan(codes.astype(np.float32)), ~finite)
        # a matrix of nothing but infinities does not become zeros
        codes, _ = attikos.quantize_fp8(np.full((2, 2), np.inf, np.float32))
        self.assertTrue(np.isnan(codes.astype(np.float32)).all())

    def test_back(self):
        x = normal(9, 11)
        codes, scale = attikos.quantize_fp8(x)
        for stored in (codes, codes.view(np.uint8)):
            for s in (scale, float(scale)):
                back = attikos.dequantize_fp8(stored, s, np.float32)
                np.testing.assert_array_equal(back, codes.astype(np.float32) * scale)
        self.assertEqual(attikos.dequantize_fp8(codes, scale).dtype, np.float16)


class Gemm(unittest.TestCase):
    def check(self, got, a, b, output):
        """Against the product of the very codes: float32 sums of exact products of 4-bit significands."""
        (qa, sa), (qb, sb) = attikos.quantize_fp8(a), attikos.quantize_fp8(b)
        exact, bound = oracles.gemm(qa.astype(np.float64) * float(sa), qb.astype(np.float64) * float(sb), output)
        self.assertEqual(got.dtype, np.dtype(output))
        oracles.check(self, got, exact, bound)

    def test_floats_are_quantized(self):
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            a, b = normal(17, 40, dtype=dtype), normal(40, 9, dtype=dtype, seed=3)
            self.check(attikos.fp8_gemm(a, b), a, b, np.float16)
            for output in (np.float16, ml_dtypes.bfloat16, np.float32):
                self.check(attikos.fp8_gemm(a, b, output_dtype=output), a, b, output)

    def test_quantized_operands(self):
        a, b = normal(8, 24), normal(24, 8, seed=3)
        (qa, sa), (qb, sb) = attikos.quantize_fp8(a), attikos.quantize_fp8(b)
        expected = attikos.fp8_gemm(a, b)
        for x, y in ((qa, qb), (qa.view(np.uint8), qb.view(np.uint8)), (qa, qb.view(np.uint8))):
            for s, t in ((sa, sb), (sa.reshape(1), sb.reshape(1)), (float(sa), float(sb))):
                np.testing.assert_array_equal(attikos.fp8_gemm(x, y, s, t), expected)
        np.testing.assert_array_equal(attikos.fp8_gemm(qa, b, a_scale=sa), expected)
        transposed = np.ascontiguousarray(qb.view(np.uint8).T).T
        np.testing.assert_array_equal(attikos.fp8_gemm(qa, transposed, sa, sb), expected)
        rows = np.full((8, 1), sa, np.float32)
        np.testing.assert_array_equal(attikos.fp8_gemm(qa, qb, rows, sb), expected)

    def test_errors(self):
        a, b = normal(8, 24), normal(24, 8)
        qa, sa = attikos.quantize_fp8(a)
        f = attikos.fp8_gemm
        for wrong in (lambda: f(qa, b), lambda: f(a, b, a_scale=sa), lambda: f(a, qa.T, None, None)):
            with self.assertRaisesRegex(ValueError, "scale"):
                wrong()
        for wrong in (lambda: f(a, a), lambda: f(a[0], b), lambda: f(qa, b, np.ones(3, np.float32))):
            with self.assertRaises(attikos.ShapeMismatchError):
                wrong()
        for wrong in (lambda: f(a.astype(np.int32), b), lambda: f(a, b, output_dtype=np.float64),
                      lambda: f(a, b, output_dtype="float7"), lambda: f(qa, b, sa.astype(np.float64)),
                      lambda: f(qa.astype(ml_dtypes.float8_e5m2), b, sa)):  # fmt: skip
            with self.assertRaises(attikos.UnsupportedDtypeError):
                wrong()


if __name__ == "__main__":
    unittest.main()
