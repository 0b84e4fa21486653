# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of test_jax.py, for a process of their own. Results within the oracles' bounds; gradients and vmap beside JAX's
own of the same formula in float64, where both round to 2^-53."""

import unittest
from unittest import mock

import attikos
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracles
import test_arrays
from attikos.integrations import jax as ours


def normal(*shape, seed=1, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def formula(q, k, v, scale=None, causal=False, window=(-1, -1), softcap=0.0, bias=None, mask=None, sinks=None,
            lengths_kv=None):  # fmt: skip
    """Attention as it is written down."""
    groups = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, groups, 1), jnp.repeat(v, groups, 1)
    score = q @ jnp.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    score = softcap * jnp.tanh(score / softcap) if softcap else score
    score = score if bias is None else score + bias
    at = jnp.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - jnp.arange(k.shape[2])[None]
    shown = (at >= 0) | (not causal)
    shown = shown & ((at <= window[0]) | (window[0] < 0)) & ((-at <= window[1]) | (window[1] < 0))
    shown = shown if mask is None else shown & mask
    if lengths_kv is not None:
        shown = shown & (jnp.arange(k.shape[2]) < lengths_kv[:, None, None, None])
    score = jnp.where(shown, score, -1e30)
    if sinks is not None:
        column = jnp.broadcast_to(sinks[None, :, None, None], (*score.shape[:3], 1))
        score = jnp.concatenate([score, column], -1)
    return jax.nn.softmax(score)[..., : k.shape[2]] @ v


CASES = {
    "plain": {}, "causal": {"causal": True}, "window": {"causal": True, "window": (3, -1)},
    "softcap": {"softcap": 0.7, "scale": 0.4}, "bias": {"bias": normal(1, 4, 5, 9, seed=7)},
    "mask": {"mask": np.random.default_rng(3).random((2, 1, 5, 9)) < 0.7}, "sinks": {"sinks": normal(4, seed=8)},
    "lengths": {"lengths_kv": np.array([9, 6], np.int32)},
}  # fmt: skip


def products(a, b, bias=None, activation=None, trans_b=False):
    out = a @ (jnp.swapaxes(b, -1, -2) if trans_b else b)
    out = out if bias is None else out + bias
    return {None: lambda x: x, "silu": jax.nn.silu}[activation](out)


def rms(x, weight, eps=1e-6):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer(x, weight, bias, eps=1e-5):
    centered = x - x.mean(-1, keepdims=True)
    return centered / jnp.sqrt((centered * centered).mean(-1, keepdims=True) + eps) * weight + bias


# {name: (ours, the formula, arrays)}, all of whose arrays have gradients
FUNCTIONS = {
    "gemm": (ours.gemm, products, (normal(5, 7), normal(7, 3, seed=2))),
    "gemm of batches": (ours.gemm, products, (normal(4, 5, 7), normal(7, 3, seed=2))),
    "gemm, transposed": (
        lambda a, b: ours.gemm(a, b, trans_b=True), lambda a, b: products(a, b, trans_b=True),
        (normal(5, 7), normal(3, 7)),
    ),
    "gemm, silu": (
        lambda a, b, c: ours.gemm(a, b, bias=c, activation="silu"), lambda a, b, c: products(a, b, c, "silu"),
        (normal(5, 7), normal(7, 3, seed=2), normal(3, seed=4)),
    ),
    "rms_norm": (ours.rms_norm, rms, (normal(2, 3, 6), normal(6, seed=2))),
    "layer_norm": (ours.layer_norm, layer, (normal(2, 3, 6), normal(6, seed=2), normal(6, seed=3))),
    "l2_normalize": (
        ours.l2_normalize, lambda x: x / jnp.sqrt((x * x).sum(-1, keepdims=True)), (normal(2, 2, 3, 6),)
    ),
    "softmax": (lambda x: ours.softmax(x, 0.5), lambda x: jax.nn.softmax(0.5 * x), (normal(3, 6),)),
    "log_softmax": (ours.log_softmax, jax.nn.log_softmax, (normal(3, 6),)),
}  # fmt: skip


class Jax(unittest.TestCase):
    def run(self, result=None):
        with jax.enable_x64(True):
            return super().run(result)

    def close(self, got, exact, what):
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(exact), strict=True):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype), what)
            self.assertLessEqual(np.linalg.norm(a - b), 1e-12 * max(np.linalg.norm(b), 1e-3), what)

    def qkv(self):
        return normal(2, 4, 5, 8), normal(2, 2, 9, 8, seed=2), normal(2, 2, 9, 6, seed=3)

    def test_attention_within_bounds(self):
        for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
            q, k, v = (x.astype(dtype) for x in self.qkv())
            for causal in (False, True):
                out = jax.jit(lambda q, k, v, causal=causal: ours.attention(q, k, v, causal=causal))(q, k, v)
                self.assertIsInstance(out, jax.Array)
                exact, bound, *_ = oracles.attention(q, k, v, causal)
                oracles.check(self, np.asarray(out), exact, bound, f"{dtype} {causal}")

    def test_attention_and_gradients(self):
        q, k, v = self.qkv()
        for name, given in CASES.items():
            arrays = {n: jnp.asarray(x) for n, x in given.items() if isinstance(x, np.ndarray)}
            static = {n: x for n, x in given.items() if n not in arrays}
            wanted = {"q": q, "k": k, "v": v, **{n: x for n, x in arrays.items() if n in ("bias", "sinks")}}
            others = {n: x for n, x in arrays.items() if n not in wanted}

            def both(function, static=static, others=others):
                def loss(wanted):
                    out = function(**wanted, **others, **static)
                    return (out * normal(*out.shape, seed=5)).sum(), out

                return jax.jit(jax.value_and_grad(loss, has_aux=True))

            self.close(both(ours.attention)(wanted), both(formula)(wanted), name)

    def test_packed_sequences(self):
        q, offsets = normal(2, 9, 8), jnp.array([0, 4, 9])

        @jax.jit
        def attend(q, offsets):
            return ours.attention(q, q, q, causal=True, cu_seqlens_q=offsets, cu_seqlens_kv=offsets)

        parts = [formula(*[jnp.asarray(q[None, :, a:b])] * 3, causal=True)[0] for a, b in ((0, 4), (4, 9))]
        self.close(attend(q, offsets), jnp.concatenate(parts, 1), "packed")

    def test_products_and_rows(self):
        for name, (function, exact, arrays) in FUNCTIONS.items():

            def both(function, arrays=arrays):
                def loss(*arrays):
                    out = function(*arrays)
                    return (out * normal(*out.shape, seed=5)).sum(), out

                return jax.jit(jax.value_and_grad(loss, tuple(range(len(arrays))), has_aux=True))(*arrays)

            self.close(both(function), both(exact), name)

    def test_products_and_rows_within_bounds(self):
        for dtype in (np.float32, ml_dtypes.bfloat16):
            x, w, b = (normal(*s, seed=i).astype(dtype) for i, s in enumerate(((4, 33), (33,), (33,))))
            other = normal(33, 5, seed=4).astype(dtype)
            for got, (exact, bound) in (
                (ours.rms_norm(x, w), oracles.rms_norm(x, w, 1e-6)),
                (ours.layer_norm(x, w, b), oracles.layer_norm(x, w, b, 1e-5)),
                (ours.softmax(x), oracles.softmax(x)), (ours.gemm(x, other), oracles.gemm(x, other, dtype)),
            ):  # fmt: skip
                oracles.check(self, np.asarray(got), exact, bound, str(dtype))

    def counted(self):
        """How often kernels are called, by operation."""
        counts = {}

        def counting(name, kernel):
            def call(*given):
                counts[name] = counts.get(name, 0) + 1
                return kernel(*given)

            return call

        changed = {name: counting(name, kernel) for name, kernel in ours._KERNELS.items()}
        return counts, mock.patch.dict(ours._KERNELS, changed)

    def test_vmap(self):
        """Beside the formula, and in one call where the new dimension has a place."""
        for name, (function, exact, arrays) in FUNCTIONS.items():
            others = [None] * (len(arrays) - 1)
            for axes in ((0, *others), (0,) * len(arrays), *([(2, *others)] if name in ("gemm", "rms_norm") else [])):
                pairs = list(zip(arrays, axes))
                more = [x if axis is None else np.stack([x, 2 * x, x + 1], min(axis, x.ndim)) for x, axis in pairs]
                places = tuple(None if axis is None else min(axis, x.ndim) for x, axis in pairs)

                def both(function, places=places, more=more):
                    forward = jax.jit(jax.vmap(function, places))(*more)

                    def loss(*arrays):
                        out = function(*arrays)
                        return (out * normal(*out.shape, seed=5)).sum()

                    grad = jax.vmap(jax.grad(loss), places)
                    return forward, jax.jit(grad)(*more)

                self.close(both(function), both(exact), f"{name} {axes}")
        counts, watching = self.counted()
        x, w = normal(3, 2, 6), normal(6)
        with watching:
            jax.vmap(ours.rms_norm, (0, None))(x, w).block_until_ready()
            jax.vmap(ours.gemm)(x, np.swapaxes(x, 1, 2)).block_until_ready()
            jax.vmap(jax.vmap(ours.softmax))(x).block_until_ready()
        self.assertEqual(counts, {"rms_norm": 1, "gemm": 1, "softmax": 1})

    def test_vmap_of_attention(self):
        q, k, v = (np.stack([x, x + 1, -x]) for x in self.qkv())
        lengths = np.array([[9, 6], [1, 2], [3, 9]], np.int32)
        for name, given in CASES.items():
            if name not in ("causal", "bias", "mask", "sinks"):
                continue

            def both(function, given):
                call = jax.vmap(lambda q, k, v: function(q, k, v, **given), (0, None, 0))
                grad = jax.vmap(jax.grad(lambda q, k, v: (function(q, k, v, **given) ** 2).sum()), (0, 0, None))
                return call(q, k[0], v), grad(q, k, v[0])

            given = {n: jnp.asarray(x) if isinstance(x, np.ndarray) else x for n, x in given.items()}
            self.close(both(ours.attention, given), both(formula, given), name)
        counts, watching = self.counted()
        with watching:
            got = jax.jit(jax.vmap(lambda q, k, v, n: ours.attention(q, k, v, lengths_kv=n)))(q, k, v, lengths)
            got.block_until_ready()
        self.assertEqual(counts, {"attention": 1})
        self.close(got, jax.vmap(lambda q, k, v, n: formula(q, k, v, lengths_kv=n))(q, k, v, lengths), "lengths")

    def test_errors(self):
        q, k, v = self.qkv()
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"attikos.attention: .*head"):
            jax.jit(lambda q: ours.attention(q, k[..., :4], v))(q)
        with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "dtypes of q, k and v must match"):
            ours.attention(q.astype(np.float32), k, v)
        with self.assertRaisesRegex(attikos.ArgumentError, "activation is 'tan'"):
            ours.gemm(q[0, 0], q[0, 0], activation="tan", trans_b=True)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"layer_norm: weight has shape \[3\]; .*, 5, 8\]"):
            ours.layer_norm(q, np.ones(3), np.ones(8))
        with self.assertRaisesRegex(Exception, r"attikos.attention: lengths_kv: length 1 is 99; expected .* \[0, 9\]"):
            jax.jit(lambda n: ours.attention(q, k, v, lengths_kv=n))(jnp.array([3, 99])).block_until_ready()
        with self.assertRaises(Exception):  # no second derivative
            jax.grad(lambda x: jax.grad(lambda x: ours.softmax(x)[0, 0])(x)[0, 0])(normal(2, 3))


class Arrays(unittest.TestCase):
    def test_are_read_and_not_written(self):
        def on_cpu(x):  # where there is a GPU, JAX would put it there
            return jax.device_put(x, jax.devices("cpu")[0])

        case = test_arrays.ReadOnly()
        case.setUp()
        case.refused(on_cpu, "JAX, which does not change arrays")
        out = attikos.softmax(on_cpu(case.new[0]))
        self.assertIsInstance(out, jax.Array)
        np.testing.assert_array_equal(np.asarray(out), attikos.softmax(case.new[0]))
