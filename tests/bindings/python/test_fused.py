# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""RMSNorm with rotary embedding, and the gated MLP."""

import unittest

import attikos
import numpy as np
import oracles
from scipy_free import erf


def normal(dtype, *shape, seed=11):
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(np.float32).astype(dtype)


def tables(seqlen, head_dim, dtype):
    angle = np.arange(seqlen)[:, None] / 100.0 ** (np.arange(head_dim // 2) / (head_dim // 2))
    angle = np.concatenate([angle, angle], 1)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def rms_norm_rope(x, weight, cos, sin, heads, eps):
    """Exact values and bound: the norm's (oracles.rms_norm, unrounded), two products and a sum."""
    dtype = np.asarray(x).dtype
    u = oracles.unit(oracles.accumulator(dtype))
    wide, w = oracles.wide(x), oracles.wide(weight)
    y = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * w
    d = wide.shape[-1] // heads
    y = y.reshape(*y.shape[:-1], heads, d)
    c, s = (oracles.wide(t).reshape(-1, d)[None, :, None] for t in (cos, sin))
    turned = np.concatenate([-y[..., d // 2 :], y[..., : d // 2]], -1)
    exact = y * c + turned * s
    size = np.abs(y * c) + np.abs(turned * s)
    error = size * (0.5 * (oracles.growth(wide.shape[-1]) + 3) + oracles.MATH + 8) * u
    return exact.reshape(wide.shape), oracles.stored(exact, error, dtype).reshape(wide.shape)


def gated_mlp(x, gate, up, activation):
    """Exact values and the bound of gated_mlp.hpp: (1.13 k G + 25 |gate|) eps |up| + |act| (k U + |up|) eps."""
    dtype = np.asarray(x).dtype
    eps = 2 * oracles.unit(oracles.accumulator(dtype))
    x, gate, up = map(oracles.wide, (x, gate, up))
    g, u = x @ gate.T, x @ up.T
    sizes = np.abs(x) @ np.abs(gate).T, np.abs(x) @ np.abs(up).T
    k = x.shape[-1]
    act = {
        "silu": lambda t: t / (1 + np.exp(-t)),
        "gelu": lambda t: t / 2 * (1 + erf(t / np.sqrt(2))),
        "gelu_tanh": lambda t: t / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (t + 0.044715 * t**3))),
    }[activation](g)
    error = (1.13 * k * sizes[0] + 25 * np.abs(g)) * eps * np.abs(u) + np.abs(act) * (k * sizes[1] + np.abs(u)) * eps
    return act * u, oracles.stored(act * u, error, dtype)


class RmsNormRope(unittest.TestCase):
    def test_values(self):
        for dtype in oracles.FLOATING:
            x, weight = normal(dtype, 2, 7, 48), normal(dtype, 48)
            for table_type in {np.dtype(dtype), np.dtype(np.float32) if np.dtype(dtype).itemsize == 2 else np.dtype(dtype)}:
                cos, sin = tables(7, 16, table_type)
                exact, bound = rms_norm_rope(x, weight, cos, sin, 3, 1e-6)
                for c, s in ((cos, sin), (cos[None, :, None], sin[None, :, None])):
                    for heads in (None, 3):
                        out = attikos.fused_rmsnorm_rope(x, weight, c, s, num_heads=heads)
                        self.assertEqual((out.shape, out.dtype), (x.shape, x.dtype))
                        oracles.check(self, out, exact, bound, f"{dtype} {table_type} {c.shape}")

    def test_strides(self):
        x, weight = normal(np.float32, 7, 2, 96).swapaxes(0, 1)[..., ::2], normal(np.float32, 48)
        cos, sin = tables(7, 16, np.float32)
        oracles.check(self, attikos.fused_rmsnorm_rope(x, weight, cos, sin), *rms_norm_rope(x, weight, cos, sin, 3, 1e-6))

    def test_errors(self):
        x, weight, (cos, sin) = normal(np.float32, 2, 7, 48), normal(np.float32, 48), tables(7, 16, np.float32)
        f = attikos.fused_rmsnorm_rope
        wrong = [(x[0], weight, cos, sin), (x, weight[:40], cos, sin), (x, weight, cos[:6], sin[:6]),
                 (x, weight, cos, sin[:, :8]), (x, weight, cos[:, :15], sin[:, :15])]  # fmt: skip
        for arguments in wrong:
            with self.assertRaises(attikos.ShapeMismatchError):
                f(*arguments)
        for heads in (0, -1, 5, 2):
            with self.assertRaises(attikos.ShapeMismatchError):
                f(x, weight, cos, sin, num_heads=heads)
        with self.assertRaises(attikos.UnsupportedDtypeError):
            f(x.astype(np.int32), weight, cos, sin)
        with self.assertRaises(attikos.UnsupportedDtypeError):
            f(x, weight.astype(np.float64), cos, sin)

    def test_rope(self):
        x = normal(np.float64, 2, 3, 7, 16)
        cos, sin = tables(9, 16, np.float64)
        out = attikos.rope(x, cos, sin, position_offset=2)
        turned = np.concatenate([-x[..., 8:], x[..., :8]], -1)
        np.testing.assert_allclose(out, x * cos[2:9] + turned * sin[2:9], atol=1e-14)
        half = cos.shape[1] // 2
        full = [np.concatenate([t[:, :half]] * 2, 1) for t in (cos, sin)]
        np.testing.assert_array_equal(
            attikos.rope(x, cos[:, :half], sin[:, :half], rotary_dim=2 * half), attikos.rope(x, *full)
        )
        with self.assertRaises(attikos.ShapeMismatchError):
            attikos.rope(x, cos, sin, rotary_dim=3 * cos.shape[1])
        shifted = attikos.rope(x, cos, sin, positions=np.array([2, 2], np.int32))
        np.testing.assert_array_equal(shifted, out)


class GatedMlp(unittest.TestCase):
    def test_values(self):
        for dtype in oracles.FLOATING:
            x, gate, up = normal(dtype, 2, 5, 24), normal(dtype, 13, 24), normal(dtype, 13, 24, seed=2)
            for activation in ("silu", "gelu", "gelu_tanh"):
                exact, bound = gated_mlp(x, gate, up, activation)
                out = attikos.fused_gated_mlp(x, gate, up, activation)
                self.assertEqual(out.dtype, x.dtype)
                oracles.check(self, out, exact, bound, f"{dtype} {activation}")
            oracles.check(self, attikos.fused_gated_mlp(x[0], gate, up), *gated_mlp(x[0], gate, up, "silu"))

    def test_errors(self):
        x, gate = normal(np.float32, 2, 5, 24), normal(np.float32, 13, 24)
        with self.assertRaises(ValueError):
            attikos.fused_gated_mlp(x, gate, gate, "relu")
        for wrong in (gate[:, :20], gate[0], normal(np.float32, 12, 24)):
            with self.assertRaises(attikos.ShapeMismatchError):
                attikos.fused_gated_mlp(x, gate, wrong)
        with self.assertRaises(attikos.UnsupportedDtypeError):
            attikos.fused_gated_mlp(x, gate.astype(np.float16), gate)


if __name__ == "__main__":
    unittest.main()
