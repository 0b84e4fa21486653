# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Backward functions against float64, each element with its bound; ends with the worst error over bound."""

import unittest

import attikos
import numpy as np
import oracles
import scipy_free


def tearDownModule():
    for name, ratio in sorted(oracles.WORST.items()):
        print(f"worst error / bound of {name}: {ratio:.3f}")


def spread(x):
    """The same numbers at strides of two elements, the last two dimensions backwards, between NaN."""
    wide = np.full([2 * n for n in x.shape], np.nan, x.dtype)
    view = wide[tuple(slice(None, None, -2 if i >= x.ndim - 2 else 2) for i in range(x.ndim))]
    view[...] = x
    return view


class Rows(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(7)

    def normal(self, dtype, *shape):
        return self.rng.standard_normal(shape).astype(np.float32).astype(dtype)

    def each(self):
        for dtype in oracles.FLOATING:
            for shape in ((37,), (5, 64), (2, 3, 33), (2, 3, 2, 17)):
                x, dout = self.normal(dtype, *shape), self.normal(dtype, *shape)
                for lay in (np.asarray, spread) if len(shape) < 4 else (np.asarray,):
                    yield dtype, x, dout, lay, f"{np.dtype(dtype)} {shape} {lay.__name__}"

    def test_softmax(self):
        """From p as the library has it: dx = s p (g - sum p g), a sum of n products and four roundings."""
        for dtype, x, dout, lay, what in self.each():
            p = attikos.softmax(x, 0.7)
            u, n, wp, wg = oracles.unit(oracles.accumulator(dtype)), x.shape[-1], oracles.wide(p), oracles.wide(dout)
            total, size = (wp * wg).sum(-1, keepdims=True), (wp * np.abs(wg)).sum(-1, keepdims=True)
            exact = 0.7 * wp * (wg - total)
            error = 0.7 * wp * ((oracles.growth(n) + 1) * u * size + 4 * u * (np.abs(wg) + np.abs(total)))
            bound = oracles.stored(exact, error, dtype)
            dx = attikos.softmax_backward(lay(p), lay(dout), 0.7)
            oracles.check(self, dx, exact, bound, what, "softmax_backward")

    def test_log_softmax(self):
        """From y as the library has it: dx = s (g - e^y sum g); an exponential of a number of its own size."""
        for dtype, x, dout, lay, what in self.each():
            y = attikos.log_softmax(x, 0.7)
            u, n, wy, wg = oracles.unit(oracles.accumulator(dtype)), x.shape[-1], oracles.wide(y), oracles.wide(dout)
            total, size = wg.sum(-1, keepdims=True), np.abs(wg).sum(-1, keepdims=True)
            exact = 0.7 * (wg - np.exp(wy) * total)
            error = 0.7 * (
                np.exp(wy) * (oracles.growth(n) * u * size + (oracles.MATH + 3) * u * np.abs(total)) + 3 * u * np.abs(wg)
            )
            bound = oracles.stored(exact, error, dtype)
            dx = attikos.log_softmax_backward(lay(y), lay(dout), 0.7)
            oracles.check(self, dx, exact, bound, what, "log_softmax_backward")
        x = np.full((1, 4), -np.inf, np.float32)
        np.testing.assert_array_equal(attikos.log_softmax_backward(x, np.ones_like(x)), np.zeros((1, 4)))

    def test_l2_normalize(self):
        """dx = f (g - h c), f = 1/|x|, h = f x, c = sum(h g); tolerance_norms.hpp, ScaledGradientBound."""
        for dtype, x, dout, lay, what in self.each():
            u, n, wx, wg = oracles.unit(oracles.accumulator(dtype)), x.shape[-1], oracles.wide(x), oracles.wide(dout)
            f = 1 / np.sqrt((wx * wx).sum(-1, keepdims=True))
            h = wx * f
            c, size = (h * wg).sum(-1, keepdims=True), np.abs(h * wg).sum(-1, keepdims=True)
            e = (oracles.growth(n) / 2 + 6) * u
            of_c = ((oracles.growth(n) + 8) * u + e) * size
            exact = f * (wg - h * c)
            error = f * (np.abs(wg) * (e + 7 * u) + np.abs(h) * (np.abs(c) * (2 * e + 5 * u) + of_c))
            bound = oracles.stored(exact, error, dtype)
            dx = attikos.l2_normalize_backward(lay(x), lay(dout))
            oracles.check(self, dx, exact, bound, what, "l2_normalize_backward")
        zeros, g = np.zeros((2, 5)), np.ones((2, 5))
        np.testing.assert_array_equal(attikos.l2_normalize_backward(zeros, g, 0.5), 2 * g)

    def test_float_weights_beside_half(self):
        """What forward passes take, backward passes take too: the gradient of a weight has its type."""
        angle = self.rng.standard_normal((3, 8))
        tables = [np.concatenate([f(angle)] * 2, 1).astype(np.float32) for f in (np.cos, np.sin)]
        for dtype in oracles.FLOATING[2:]:
            x, dout = self.normal(dtype, 2, 3, 32), self.normal(dtype, 2, 3, 32)
            weight = self.normal(np.float32, 32)
            rounded = weight.astype(dtype)
            wide = rounded.astype(np.float32)
            for back in (attikos.rms_norm_backward, attikos.layer_norm_backward):
                narrow, both = back(x, rounded, dout), back(x, wide, dout)
                np.testing.assert_array_equal(both[0], narrow[0])  # the same numbers
                for one, other in zip(both[1:], narrow[1:]):
                    self.assertEqual(one.dtype, np.float32)
                    np.testing.assert_array_equal(one.astype(dtype), other)
                self.assertFalse(np.array_equal(back(x, weight, dout)[0], narrow[0]))
            one, other = (attikos.fused_rmsnorm_rope(x, w, *tables) for w in (wide, rounded))
            np.testing.assert_array_equal(one, other)
            self.assertFalse(np.array_equal(attikos.fused_rmsnorm_rope(x, weight, *tables), other))

    def test_mean_pool(self):
        """dx = dout / length: one quotient, or a reciprocal and a product."""
        for dtype in oracles.FLOATING:
            dout = self.normal(dtype, 3, 10)
            for lengths in (None, [7, 2, 0]):
                counts = np.array([7, 7, 7] if lengths is None else lengths)
                inside = (np.arange(7)[None] < counts[:, None])[..., None]
                exact = np.where(inside, oracles.wide(dout)[:, None] / np.maximum(counts, 1)[:, None, None], 0)
                bound = oracles.stored(exact, 3 * oracles.unit(oracles.accumulator(dtype)) * np.abs(exact), dtype)
                dx = attikos.mean_pool_backward(dout, 7, lengths)
                oracles.check(self, dx, exact, bound, f"{dtype}", "mean_pool_backward")
                self.assertTrue((oracles.wide(dx)[np.broadcast_to(~inside, dx.shape)] == 0).all())

    def test_errors(self):
        x, g = self.normal(np.float32, 8, 6, 40), self.normal(np.float32, 8, 6, 40)
        for f in (attikos.softmax_backward, attikos.log_softmax_backward, attikos.l2_normalize_backward):
            for error, call in (
                (attikos.ShapeMismatchError, lambda: f(x, g[:4])),
                (attikos.UnsupportedDtypeError, lambda: f(x, g.astype(np.float64))),
                (attikos.UnsupportedDtypeError, lambda: f(x.astype(np.int32), g.astype(np.int32))),
                (attikos.ArgumentError, lambda: f(x, g, float("nan"))),
            ):
                with self.assertRaises(error):
                    call()
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.mean_pool_backward(x, 4)
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.mean_pool_backward(x[0], 4, [1, 2])


def slope(activation, t):
    """act'(t) in float64."""
    if activation == "relu":
        return (t > 0).astype(np.float64)
    if activation == "silu":
        s = 1 / (1 + np.exp(-t))
        return s * (1 + t * (1 - s))
    if activation == "gelu":
        return 0.5 * (1 + scipy_free.erf(t / np.sqrt(2))) + t * np.exp(-t * t / 2) / np.sqrt(2 * np.pi)
    c, k = np.sqrt(2 / np.pi), 0.044715
    y = np.tanh(c * (t + k * t**3))
    return 0.5 * (1 + y) + 0.5 * t * (1 - y * y) * c * (1 + 3 * k * t * t)


class Gemm(unittest.TestCase):
    def test_products(self):
        """tolerance_gemm_backward.hpp."""
        rng = np.random.default_rng(3)

        def normal(dtype, *shape):
            return rng.standard_normal(shape).astype(np.float32).astype(dtype)

        for dtype in oracles.FLOATING:
            u, acc = oracles.unit(oracles.accumulator(dtype)), 2.0 if dtype is np.float64 else 1.0
            for activation in (None, "relu", "gelu", "gelu_tanh", "silu"):
                for trans_a, trans_b, batch, shared in ((0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 3, 0), (1, 1, 3, 1)):
                    lead = (batch,) if batch else ()
                    a = normal(dtype, *lead, *((21, 13) if trans_a else (13, 21)))
                    b = normal(dtype, *(() if shared else lead), *((9, 21) if trans_b else (21, 9)))
                    dout, bias = normal(dtype, *lead, 13, 9), normal(dtype, 9)
                    options = dict(trans_a=bool(trans_a), trans_b=bool(trans_b), alpha=0.25, scale=2.0)
                    options["activation"] = activation
                    _, pre = attikos.gemm(a, b, bias=bias, return_pre_activation=True, **options)
                    da, db, dbias = attikos.gemm_backward(a, b, dout, bias=True, pre_activation=pre, **options)
                    g, wa, wb = oracles.wide(dout), oracles.wide(a), oracles.wide(b)
                    wa, wb = wa.swapaxes(-1, -2) if trans_a else wa, wb.swapaxes(-1, -2) if trans_b else wb
                    dx, error = g, np.zeros_like(g)
                    if activation:
                        dx = g * slope(activation, oracles.wide(pre))
                        error = oracles.stored(dx, (2 * oracles.MATH + 17) * u * np.abs(g), dtype)

                    def check(got, exact, size, inherited, terms, name):
                        e = acc * (oracles.growth(terms) + 4) * u * (size + inherited) + inherited
                        bound = e + oracles.unit(dtype) * (np.abs(exact) + e) + 1e-300
                        oracles.check(self, got, exact, bound, f"{name} {dtype} {options}", f"gemm_backward {name}")

                    # d op(A) = scale alpha dx op(B)^T: the factor 1/2 is exact
                    bt, at = 0.5 * wb.swapaxes(-1, -2), 0.5 * wa.swapaxes(-1, -2)
                    left, left_size, left_error = dx @ bt, np.abs(dx) @ np.abs(bt), error @ np.abs(bt)
                    right, right_size, right_error = at @ dx, np.abs(at) @ np.abs(dx), np.abs(at) @ error
                    if shared:
                        right, right_size, right_error = (x.sum(0) for x in (right, right_size, right_error))
                    turn = lambda x, yes: x.swapaxes(-1, -2) if yes else x  # noqa: E731
                    check(da, *(turn(x, trans_a) for x in (left, left_size, left_error)), 9, "da")
                    terms = 13 * (batch if shared else 1)
                    check(db, *(turn(x, trans_b) for x in (right, right_size, right_error)), terms, "db")
                    axes = tuple(range(g.ndim - 1))
                    sums = (x.sum(axes) for x in (dx, np.abs(dx), error))
                    check(dbias, *sums, 13 * (batch or 1), "dbias")

    def test_groups_and_counts(self):
        """Those of a call for each matrix; rows that do not count are not read and have 0."""
        rng = np.random.default_rng(4)
        for dtype in oracles.FLOATING:
            def normal(*shape, dtype=dtype):
                return rng.standard_normal(shape).astype(np.float32).astype(dtype)

            for activation in (None, "gelu"):
                options = dict(activation=activation, alpha=0.5, scale=2.0, bias=True, beta=3.0)
                for trans_b in (False, True):
                    what = f"{np.dtype(dtype)} {activation} {trans_b}"
                    b = normal(3, 7, 6) if trans_b else normal(3, 6, 7)
                    a, dout, pre = normal(11, 6), normal(11, 7), normal(11, 7)
                    begin, end = [1, 5, 5], [5, 5, 10]
                    for x in (a, dout, pre):
                        x[0] = x[10] = np.nan
                    da, db, dbias, dc = attikos.gemm_backward(
                        a, b, dout, pre_activation=pre, trans_b=trans_b, offsets=[1, 5, 5, 10], **options
                    )
                    parts = [slice(*rows) for rows in zip(begin, end)]
                    self.check_parts((a, b, dout, pre), (da, db, dbias, dc), parts, trans_b, options, what)
                    for x in (da, dc):
                        self.assertTrue((oracles.wide(x)[[0, 10]] == 0).all(), what)
                    a, dout, pre = normal(3, 5, 6), normal(3, 5, 7), normal(3, 5, 7)
                    counts = [4, 0, 5]
                    for g, n in enumerate(counts):
                        a[g, n:] = dout[g, n:] = pre[g, n:] = np.nan
                    da, db, dbias, dc = attikos.gemm_backward(
                        a, b, dout, pre_activation=pre, trans_b=trans_b, counts=counts, **options
                    )
                    parts = [(g, slice(0, n)) for g, n in enumerate(counts)]
                    self.check_parts((a, b, dout, pre), (da, db, dbias, dc), parts, trans_b, options, what)
                    for x in (da, dc):
                        self.assertTrue((oracles.wide(x)[0, 4:] == 0).all() and (oracles.wide(x)[1] == 0).all(), what)

    def check_parts(self, given, found, parts, trans_b, options, what):
        a, b, dout, pre = given
        sums = np.zeros(dout.shape[-1])
        for g, rows in enumerate(parts):
            da, db, dbias, dc = attikos.gemm_backward(
                a[rows], b[g], dout[rows], pre_activation=pre[rows], trans_b=trans_b, **options
            )
            np.testing.assert_array_equal(found[3][rows], dc, what)
            # fused multiply-adds or not, as the kernels for groups and for few rows have it
            dx, matrix = np.abs(oracles.wide(dc)) / options["beta"], np.abs(oracles.wide(b[g]))
            bound = 16 * oracles.unit(oracles.accumulator(a.dtype)) * (dx @ (matrix if trans_b else matrix.T))
            bound = bound + 2 * oracles.unit(a.dtype) * np.abs(oracles.wide(da))
            oracles.check(self, found[0][rows], oracles.wide(da), bound + 1e-300, what)
            # the same sums in another order: of at most 5 terms of the sizes that the parts have
            size = np.abs(oracles.wide(a[rows])).T @ np.abs(oracles.wide(dout[rows])) if len(a[rows]) else 0
            bound = 16 * oracles.unit(oracles.accumulator(a.dtype)) * (size.T if trans_b and np.ndim(size) else size)
            bound = bound + 4 * oracles.unit(a.dtype) * (np.abs(oracles.wide(db)) + (np.max(size) if np.ndim(size) else 0))
            oracles.check(self, found[1][g], oracles.wide(db), bound + 1e-300, what)
            sums += oracles.wide(dbias)
        bound = 8 * oracles.unit(a.dtype) * (1 + np.abs(sums) + 2 * np.nansum(np.abs(oracles.wide(dout)), tuple(range(dout.ndim - 1))))
        oracles.check(self, found[2], sums, bound, what)

    def test_finite_differences(self):
        rng = np.random.default_rng(1)
        a, b, dout, bias = (rng.standard_normal(s) for s in ((4, 6), (6, 3), (4, 3), (3,)))
        for activation in (None, "gelu", "gelu_tanh", "silu"):
            _, pre = attikos.gemm(a, b, bias=bias, activation=activation, return_pre_activation=True)
            found = attikos.gemm_backward(a, b, dout, bias=True, activation=activation, pre_activation=pre)
            step = 1e-5
            for array, gradient in zip((a, b, bias), found):
                for index in np.ndindex(array.shape):
                    kept = array[index]
                    array[index] = kept + step
                    plus = (attikos.gemm(a, b, bias=bias, activation=activation) * dout).sum()
                    array[index] = kept - step
                    minus = (attikos.gemm(a, b, bias=bias, activation=activation) * dout).sum()
                    array[index] = kept
                    # truncation step^2, rounding 2^-52 / step, both times sums of a dozen terms of size 1
                    self.assertAlmostEqual(gradient[index], (plus - minus) / (2 * step), delta=1e-8)

    def test_errors(self):
        a, b, g = (np.ones(s, np.float32) for s in ((4, 6), (6, 3), (4, 3)))
        for error, call in (
            (attikos.UnsupportedError, lambda: attikos.gemm_backward(a, b, g, activation="relu")),
            (attikos.ShapeMismatchError, lambda: attikos.gemm_backward(a, b, g[:3])),
            (attikos.ShapeMismatchError, lambda: attikos.gemm_backward(a[None], b, g)),
            (attikos.UnsupportedDtypeError, lambda: attikos.gemm_backward(a, b.astype(np.float64), g)),
            (attikos.UnsupportedDtypeError, lambda: attikos.gemm_backward(a, b, g.astype(np.float64))),
            (attikos.ShapeMismatchError, lambda: attikos.gemm_backward(a, b, g, activation="relu", pre_activation=g[:2])),
        ):
            with self.assertRaises(error):
                call()


if __name__ == "__main__":
    unittest.main()
