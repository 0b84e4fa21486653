# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import unittest

import attikos
import numpy as np
import oracles


class Rows(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(7)

    def normal(self, dtype, *shape):
        return self.rng.standard_normal(shape).astype(np.float32).astype(dtype)

    def test_norms_and_softmax(self):
        for dtype in oracles.FLOATING:
            for shape in ((37,), (5, 64), (2, 3, 33), (2, 3, 2, 17)):
                x, weight, bias = self.normal(dtype, *shape), self.normal(dtype, shape[-1]), self.normal(dtype, shape[-1])
                what = f"{np.dtype(dtype)} {shape}"
                oracles.check(self, attikos.rms_norm(x, weight, 1e-6), *oracles.rms_norm(x, weight, 1e-6), what)
                oracles.check(
                    self, attikos.layer_norm(x, weight, bias), *oracles.layer_norm(x, weight, bias, 1e-5), what
                )
                oracles.check(self, attikos.softmax(x, 0.7), *oracles.softmax(x, 0.7), what)
                self.assertEqual(attikos.softmax(x).dtype, x.dtype)

    def test_float_weights_beside_half(self):
        x, weight = self.normal(np.float16, 4, 32), self.normal(np.float32, 32)
        oracles.check(self, attikos.rms_norm(x, weight), *oracles.rms_norm(x, weight, 1e-6))

    def test_l2_normalize(self):
        x = self.normal(np.float64, 6, 19)
        x[2] = 0
        out = attikos.l2_normalize(x)
        np.testing.assert_allclose(np.linalg.norm(out, axis=1), [1, 1, 0, 1, 1, 1], rtol=1e-14)

    def test_strides(self):
        x, weight = self.normal(np.float32, 8, 6, 40), self.normal(np.float32, 40)
        view = x[::2, ::-1, ::2]
        oracles.check(self, attikos.rms_norm(view, weight[::2]), *oracles.rms_norm(view, weight[::2], 1e-6))
        four = self.normal(np.float32, 2, 3, 4, 5).transpose(2, 0, 1, 3)
        with self.assertRaisesRegex(ValueError, "joined"):
            attikos.softmax(four)

    def test_mean_pool(self):
        x = self.normal(np.float32, 3, 7, 10)
        np.testing.assert_allclose(attikos.mean_pool(x), x.mean(1), atol=1e-6)
        x[1, 2:] = np.nan
        x[2] = np.nan
        out = attikos.mean_pool(x, [7, 2, 0])
        np.testing.assert_allclose(out[1], x[1, :2].mean(0), atol=1e-6)
        np.testing.assert_array_equal(out[2], np.zeros(10))

    def test_errors(self):
        x = self.normal(np.float32, 4, 8)
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.rms_norm(x, x[0, :7])
        with self.assertRaises(attikos.UnsupportedDtypeError):
            attikos.rms_norm(x, x[0].astype(np.float64))
        with self.assertRaises(attikos.UnsupportedDtypeError):
            attikos.softmax(x.astype(np.int32))
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.softmax(np.float32(1.0).reshape(()))
        with self.assertRaises(ValueError):
            attikos.softmax(x, float("nan"))
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.mean_pool(x)


if __name__ == "__main__":
    unittest.main()
