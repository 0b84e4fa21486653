# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of 8-bit and mixed elements, scales, zero points, groups, precision by name; explain()."""

import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles

E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(*shape, seed=13, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def integers(*shape, seed=13):
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


class Float8(unittest.TestCase):
    def test_mixes(self):
        a, b = normal(17, 40), normal(40, 9, seed=3)
        for left, right in ((E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2), (np.float16, E4M3), (BF16, E4M3)):
            x, y = a.astype(left), b.astype(right)
            outputs = (np.float16, BF16, np.float32) if np.dtype(left).itemsize == 1 else (left,)
            for output in outputs:
                for accumulate in ("promoted", "fast"):
                    # powers of two keep scaled elements exact
                    exact, bound = oracles.gemm(0.5 * oracles.wide(x), 4.0 * oracles.wide(y), output)
                    out = attikos.gemm(x, y, scale_a=0.5, scale_b=4.0, out_dtype=output, accumulate=accumulate)
                    self.assertEqual(out.dtype, np.dtype(output))
                    oracles.check(self, out, exact, bound, f"{left} {right} {output}")
            self.assertEqual(attikos.gemm(x, y).dtype, np.float16 if left in (E4M3, E5M2) else np.dtype(left))

    def test_scales_of_every_shape(self):
        a, b = normal(200, 300), normal(300, 140, seed=3)
        shapes = {"tensor": "tensor", "row": "column", "1x128": "128x1", "128x128": "128x128"}
        for of_a, of_b in shapes.items():
            (qa, sa), (qb, sb) = attikos.quantize(a, E4M3, of_a), attikos.quantize(b, E4M3, of_b)
            wide_a, wide_b = (oracles.wide(attikos.dequantize(q, s, np.float64)) for q, s in ((qa, sa), (qb, sb)))
            # as documented: behind scales, k + 8 roundings become k + k/128 + 12; the product of the sum says it
            exact, bound = oracles.gemm(wide_a, wide_b, np.float32)
            extra = (300 / 128 + 4) * 2.0**-24 * (np.abs(wide_a) @ np.abs(wide_b))
            out = attikos.gemm(qa, qb, scale_a=sa, scale_b=sb, out_dtype=np.float32)
            oracles.check(self, out, exact, bound + extra, f"{of_a} {of_b}")

    def test_quantized_output(self):
        a, b = normal(16, 24).astype(E4M3), normal(24, 8, seed=3).astype(E4M3)
        wide = attikos.gemm(a, b, out_dtype=np.float32)
        for factor in (1.0, 0.25, np.float64(0.25), np.array(0.25, np.float32), np.array([0.25], np.float32)):
            out = attikos.gemm(a, b, out_dtype=E4M3, scale_out=factor)
            self.assertEqual(out.dtype, E4M3)
            np.testing.assert_array_equal(out.view(np.uint8), (wide / np.float32(factor)).astype(E4M3).view(np.uint8))
        out = attikos.gemm(np.full((1, 1), 448, E4M3), np.full((1, 1), 448, E4M3), out_dtype=E4M3)
        self.assertEqual(float(out[0, 0]), 448.0)  # saturates
        out = attikos.gemm(np.full((1, 1), np.nan, E4M3), np.full((1, 1), 1, E4M3), out_dtype=E4M3)
        self.assertTrue(np.isnan(float(out[0, 0])))

    def test_errors(self):
        x = normal(8, 8)
        x8 = x.astype(E4M3)
        for error, call in (
            (attikos.UnsupportedDtypeError, lambda: attikos.gemm(x8, x)),
            (attikos.UnsupportedDtypeError, lambda: attikos.gemm(x8, x8, out_dtype=np.float64)),
            (attikos.UnsupportedDtypeError, lambda: attikos.gemm(x8, x8, scale_a=np.ones(1))),
            (attikos.ShapeMismatchError, lambda: attikos.gemm(x8, x8, scale_a=np.ones((3, 1), np.float32))),
            (attikos.UnsupportedError, lambda: attikos.gemm(x, x, scale_a=2.0)),
            (attikos.UnsupportedError, lambda: attikos.gemm(x, x, scale_out=2.0)),
            (attikos.UnsupportedError, lambda: attikos.gemm(x8, x8, zero_point_a=2)),
            (attikos.UnsupportedError, lambda: attikos.gemm(x8, x8, beta=1.0, c=x8, out_dtype=E4M3)),
            (attikos.ArgumentError, lambda: attikos.gemm(x, x, compute="fp4")),
            (attikos.ArgumentError, lambda: attikos.gemm(x, x, accumulate="half")),
        ):
            with self.assertRaises(error):
                call()


class Infinities(unittest.TestCase):
    """What is not finite shows in elements of 8 bits, whatever shares its scale."""

    CODES = {E4M3: (np.nan, np.nan), E5M2: (np.inf, -np.inf), np.dtype(np.int8): (127, -127)}

    def test_quantize(self):
        x = normal(140, 140)
        x[0, 1], x[139, 2], x[3, 139] = np.inf, -np.inf, np.nan
        finite = np.isfinite(x)
        for dtype, (above, below) in self.CODES.items():
            for granularity in ("tensor", "row", "column", "1x128", "128x1", "128x128"):
                codes, scale = attikos.quantize(x, dtype, granularity)
                again, _ = attikos.quantize(x, dtype, granularity, scale)
                wide, text = oracles.wide(codes), f"{dtype} {granularity}"
                np.testing.assert_array_equal(codes.view(np.uint8), again.view(np.uint8), text)
                np.testing.assert_equal((wide[0, 1], wide[139, 2]), (above, below), text)
                np.testing.assert_equal(wide[3, 139], 0 if dtype == np.int8 else np.nan, text)
                self.assertTrue(np.isfinite(wide[finite]).all() and np.isfinite(scale).all(), text)
                largest = {E4M3: 448, E5M2: 57344}.get(dtype, 127)
                # the scale of the finite elements is the one that they have without the others
                alone, plain = attikos.quantize(np.where(finite, x, 0), dtype, granularity)
                np.testing.assert_array_equal(np.asarray(scale), np.asarray(plain), text)
                np.testing.assert_array_equal(codes.view(np.uint8)[finite], alone.view(np.uint8)[finite], text)
                self.assertEqual(np.abs(wide[finite]).max(), largest, text)

    def test_nothing_but_infinities_is_not_zero(self):
        for dtype, (above, below) in self.CODES.items():
            codes, _ = attikos.quantize(np.array([[np.inf, -np.inf]]), dtype)
            np.testing.assert_equal(oracles.wide(codes).tolist(), [[above, below]])

    def test_quotients_that_overflow_are_finite(self):
        x = np.array([[3e38, -3e38, np.inf]], np.float32)
        for dtype, largest in ((E4M3, 448), (E5M2, 57344), (np.int8, 127)):
            codes, _ = attikos.quantize(x, dtype, scale=1e-30)
            self.assertEqual(oracles.wide(codes)[0, :2].tolist(), [largest, -128 if dtype is np.int8 else -largest])

    def test_products(self):
        a, b = np.zeros((3, 4), np.int8), np.zeros((4, 3), np.int8)
        residual = np.array([[np.inf, -np.inf, np.nan], [3e38, -3e38, 0], [1, 2, 3]], np.float32)
        out = attikos.gemm(a, b, residual=residual, scale_a=1.0, out_dtype=np.int8, scale_out=1e-30)
        self.assertEqual(out.tolist(), [[127, -127, 0], [127, -128, 0], [127, 127, 127]])
        a, b = a.astype(E4M3), b.astype(E4M3)
        out = oracles.wide(attikos.gemm(a, b, residual=residual, out_dtype=E4M3, scale_out=1e-30))
        np.testing.assert_equal(out.tolist(), [[np.nan] * 3, [448, -448, 0], [448, 448, 448]])


class Int8(unittest.TestCase):
    def test_zero_points_are_exact(self):
        a, b = integers(9, 30), integers(30, 7, seed=2)
        rows, columns = np.arange(9, dtype=np.int32) - 4, np.arange(7, dtype=np.int32) * 3
        for za, zb in ((5, -3), (rows, columns), (rows, None), (None, [2])):
            exact = (a.astype(np.int64) - (0 if za is None else np.reshape(za, (-1, 1)))) @ (
                b.astype(np.int64) - (0 if zb is None else np.asarray(zb))
            )
            out = attikos.gemm(a, b, zero_point_a=za, zero_point_b=zb)
            self.assertEqual(out.dtype, np.int32)
            np.testing.assert_array_equal(out, exact)

    def test_scaled_outputs(self):
        a, b = integers(33, 70), integers(70, 21, seed=2)
        rng = np.random.default_rng(0)
        sa, sb = (np.float32(0.001) + rng.random(shape, np.float32) / 10 for shape in ((33, 1), (1, 21)))
        bias = normal(21)
        exact = (a.astype(np.int64) + 3) @ b.astype(np.int64) * (sa.astype(np.float64) * sb) + bias
        # the sum is exact below 2^24, else rounded; two factors, the bias: four roundings of terms of this size
        terms = np.abs((a.astype(np.int64) + 3) @ b.astype(np.int64)) * (sa.astype(np.float64) * sb) + np.abs(bias)
        for output in (np.float32, np.float16, ml_dtypes.bfloat16):
            out = attikos.gemm(a, b, scale_a=sa, scale_b=sb, zero_point_a=-3, bias=bias, out_dtype=output)
            self.assertEqual(out.dtype, np.dtype(output))
            oracles.check(self, out, exact, oracles.stored(exact, 5 * 2.0**-24 * terms, output), str(output))
        narrow = attikos.gemm(
            a, b, scale_a=sa, scale_b=sb, zero_point_a=-3, bias=bias, out_dtype=np.int8, scale_out=2.0
        )
        self.assertEqual(narrow.dtype, np.int8)
        wanted = np.clip(exact / 2, -128, 127)
        self.assertTrue((np.abs(narrow - wanted) <= 0.5 + 6 * 2.0**-24 * terms / 2).all())
        self.assertTrue((wanted == 127).any() and (np.abs(wanted) < 127).any())
        with self.assertRaises(attikos.UnsupportedError):
            attikos.gemm(a, b, scale_a=sa)  # int32 stays exact
        with self.assertRaises(attikos.UnsupportedDtypeError):
            attikos.gemm(a, b, out_dtype=np.float64)
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.gemm(a, b, zero_point_a=[1, 2])


class Groups(unittest.TestCase):
    def test_grouped(self):
        offsets = np.array([2, 2, 9, 15, 20], np.int32)
        b = normal(4, 11, 6, seed=3)
        for dtype in (np.float32, np.float16, E4M3):
            a, w = normal(22, 11, dtype=dtype), b.astype(dtype)
            a[:2] = a[20:] = np.nan
            output = np.float32 if dtype is E4M3 else dtype
            for type_of_offsets in (np.int32, np.int64):
                out = attikos.grouped_gemm(a, w, offsets.astype(type_of_offsets), out_dtype=output)
                transposed = np.ascontiguousarray(w.swapaxes(1, 2))
                np.testing.assert_array_equal(out, attikos.grouped_gemm(a, transposed, offsets, trans_b=True, out_dtype=output))
                self.assertTrue((out[:2] == 0).all() and (out[20:] == 0).all())
                for g in range(4):
                    rows = slice(offsets[g], offsets[g + 1])
                    exact, bound = oracles.gemm(a[rows], w[g], output)
                    oracles.check(self, out[rows], exact, bound, f"{dtype} {g}")
        bias = normal(6)
        with_bias = attikos.grouped_gemm(a, w, offsets, out_dtype=np.float32, bias=bias, activation="relu")
        np.testing.assert_allclose(with_bias[2:20], np.maximum(out[2:20] + bias, 0), rtol=1e-6, atol=1e-6)
        for error, call in (
            (attikos.ShapeMismatchError, lambda: attikos.grouped_gemm(a, w, offsets[:-1], out_dtype=np.float32)),
            (attikos.ShapeMismatchError, lambda: attikos.grouped_gemm(a, w[0], offsets, out_dtype=np.float32)),
            (attikos.UnsupportedDtypeError, lambda: attikos.grouped_gemm(a, w, offsets.astype(np.float32))),
        ):
            with self.assertRaises(error):
                call()

    def test_masked(self):
        counts = np.array([3, 0, 5, 9], np.int32)  # more than there are rows means all
        a, b = normal(4, 5, 11), normal(4, 11, 6, seed=3)
        for g, n in enumerate(counts):
            a[g, n:] = np.nan
        out = attikos.masked_gemm(a, b, counts)
        for g, n in enumerate(counts):
            exact, bound = oracles.gemm(a[g, :n], b[g], np.float32)
            oracles.check(self, out[g, :n], exact, bound)
            self.assertTrue((out[g, n:] == 0).all())
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.masked_gemm(a, b, counts[:3])
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.masked_gemm(a[0], b[0], counts)


class Other(unittest.TestCase):
    def test_compute_modes(self):
        a, b = normal(20, 33), normal(33, 12, seed=4)
        for mode in ("ieee", "tf32", "tf32x3"):  # a host computes in IEEE float32 whatever is allowed
            oracles.check(self, attikos.gemm(a, b, compute=mode), *oracles.gemm(a, b, np.float32), mode)

    def test_wide_output_and_pre_activation(self):
        a, b = normal(7, 33, dtype=np.float16), normal(33, 12, seed=4, dtype=np.float16)
        bias, ones = normal(12, dtype=np.float16), np.ones((7, 12), np.float32)
        out, pre = attikos.gemm(
            a, b, bias=bias, activation="relu", out_dtype=np.float32, return_pre_activation=True, residual=ones
        )
        exact, bound = oracles.gemm(a, b, np.float32)
        exact, bound = exact + bias.astype(np.float64), bound + 2.0**-23 * (np.abs(exact) + np.abs(oracles.wide(bias)))
        self.assertEqual((out.dtype, pre.dtype), (np.float32, np.float32))
        oracles.check(self, pre, exact, bound)
        np.testing.assert_array_equal(out, np.maximum(pre, 0) + 1)

    def test_explain(self):
        a = normal(4, 8)
        self.assertEqual(attikos.explain("gemm", a, a.T), "runs portable")
        cube = normal(1, 2, 40, 8)
        self.assertRegex(attikos.explain("attention", cube, cube, cube), "^runs portable/flash")
        self.assertIn("tiled", attikos.explain("attention", cube, cube, cube, algorithm="tiled"))
        self.assertIn("portable", attikos.explain("decode", cube, cube, cube))
        gradients = [cube, cube, cube, cube, cube[..., 0], cube]
        self.assertEqual(attikos.explain("attention_backward", *gradients), "runs portable")
        with self.assertRaisesRegex(attikos.UnsupportedError, "of_nobody"):
            attikos.explain("attention_backward", *gradients, kernel="attention_backward/of_nobody")
        self.assertIn("portable", attikos.explain("fused_gated_mlp", a, normal(6, 8), normal(6, 8)))
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.explain("gemm", a, a)
        with self.assertRaises(attikos.UnsupportedError):
            attikos.explain("gemm", a, a.T, kernel="gemm/of_nobody")
        with self.assertRaises(attikos.ArgumentError):
            attikos.explain("detect_gpu")
        np.testing.assert_allclose(attikos.gemm(a, a.T), a @ a.T, atol=1e-5)  # runs again

    def test_list_kernels(self):
        self.assertEqual(list(attikos.list_kernels("gemm"))[0], "portable")
        self.assertLessEqual({"portable/flash", "portable/tiled", "portable/naive"}, set(attikos.list_kernels("attention")))
        for operation in ("gated_mlp", "decode", "append_kv", "attention_backward"):
            kernels = attikos.list_kernels(operation)
            self.assertIn("portable", kernels)
            self.assertTrue(all(kernels.values()))
        with self.assertRaises(attikos.ArgumentError):
            attikos.list_kernels("softmax")

    def test_quantize(self):
        x = normal(3, 150, 130)
        for dtype, limit in ((E4M3, 448), (E5M2, 57344), (np.int8, 127)):
            for name, shape in {
                "tensor": (), "row": (3, 150, 1), "column": (3, 1, 130), "1x128": (3, 150, 2), "128x1": (3, 2, 130),
                "128x128": (3, 2, 2),
            }.items():  # fmt: skip
                codes, scale = attikos.quantize(x, dtype, name)
                self.assertEqual((codes.dtype, scale.shape, scale.dtype), (np.dtype(dtype), shape, np.float32), name)
                again, same = attikos.quantize(x, dtype, scale=scale)
                self.assertIs(same, scale)
                np.testing.assert_array_equal(again.view(np.uint8), codes.view(np.uint8), name)
                back = attikos.dequantize(codes, scale, np.float64)
                spacing = {E4M3: 2.0**-3, E5M2: 2.0**-2}.get(dtype)
                each = np.abs(back) * spacing / 2 if spacing else 0
                # half a step of the format, or of the smallest numbers, where they are coarser
                coarse = (2.0**-10 if dtype is E4M3 else 2.0**-17 if dtype is E5M2 else 0.5) * float(scale.max())
                self.assertTrue((np.abs(back - x) <= np.maximum(each, coarse) + 2.0**-23 * np.abs(x)).all(), name)
        codes, _ = attikos.quantize(x[0], np.int8, scale=0.5)
        np.testing.assert_array_equal(codes, np.rint(x[0] / np.float32(0.5)))
        for error, call in (
            (attikos.ArgumentError, lambda: attikos.quantize(x, E4M3, "2x2")),
            (attikos.UnsupportedDtypeError, lambda: attikos.quantize(x, np.float16)),
            (attikos.ShapeMismatchError, lambda: attikos.quantize(x[0, 0], E4M3)),
            (attikos.ShapeMismatchError, lambda: attikos.quantize(x, E4M3, scale=np.ones((3, 7, 1), np.float32))),
        ):
            with self.assertRaises(error):
                call()


if __name__ == "__main__":
    unittest.main()
