# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of test_jax.py, for a process of their own. Results within the oracles' bounds; gradients and vmap beside JAX's
own of the same formula in float64, where both round to 2^-53."""

import concurrent.futures
import ctypes
import functools
import os
import pathlib
import re
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


ON_CUDA = jax.default_backend() == "gpu"


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


def of_sum(norm):
    """A norm of a residual stream, and that, as it is written down."""
    return lambda x, residual, *vectors: (norm(x + residual, *vectors), x + residual)


def weighed(results):
    """A number to which each element of each result adds something else."""
    return sum((x * normal(*x.shape, seed=5 + i)).sum() for i, x in enumerate(jax.tree.leaves(results)))


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
    "rms_norm of a residual stream": (
        lambda x, r, w: ours.rms_norm(x, w, residual=r), of_sum(rms),
        (normal(2, 3, 6), normal(2, 3, 6, seed=4), normal(6, seed=2)),
    ),
    "layer_norm of a residual stream": (
        lambda x, r, w, b: ours.layer_norm(x, w, b, residual=r), of_sum(layer),
        (normal(2, 2, 3, 6), normal(2, 2, 3, 6, seed=4), normal(6, seed=2), normal(6, seed=3)),
    ),
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
        for a, b in zip(*(map(np.asarray, jax.tree.leaves(x)) for x in (got, exact)), strict=True):
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
                    return weighed(out), out

                return jax.jit(jax.value_and_grad(loss, tuple(range(len(arrays))), has_aux=True))(*arrays)

            self.close(both(function), both(exact), name)

    def test_either_result_of_a_residual_stream(self):
        for name, (function, exact, arrays) in FUNCTIONS.items():
            if "residual" not in name:
                continue
            for which in (0, 1):
                found, want = (
                    jax.jit(jax.grad(lambda *a, f=f: weighed(f(*a)[which]), tuple(range(len(arrays)))))(*arrays)
                    for f in (function, exact)
                )
                self.close(found, want, f"{name} {which}")
            _, back = jax.vjp(function, *arrays)
            kept = [x.size for x in jax.tree.leaves(back)]
            self.assertEqual(kept.count(arrays[0].size), 1, name)  # the sum alone

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
            residual = normal(4, 33, seed=5).astype(dtype)
            total = (x.astype(np.float32) + residual.astype(np.float32)).astype(dtype)
            for got, (exact, bound) in (
                (ours.rms_norm(x, w, residual=residual), oracles.rms_norm(total, w, 1e-6)),
                (ours.layer_norm(x, w, b, residual=residual), oracles.layer_norm(total, w, b, 1e-5)),
            ):
                np.testing.assert_array_equal(np.asarray(got[1]), total)
                oracles.check(self, np.asarray(got[0]), exact, bound, str(dtype))

    def says(self, words, function, *arrays):
        """JAX's error for what a handler refused: which type depends on whether the call ran at once or later."""
        with self.assertRaisesRegex((jax.errors.JaxRuntimeError, ValueError), words):
            jax.block_until_ready(function(*arrays))

    def test_vmap(self):
        """Beside the formula, and in one call where the new dimension has a place."""
        for name, (function, exact, arrays) in FUNCTIONS.items():
            others = [None] * (len(arrays) - 1)
            more_axes = [(2, *others)] if name in ("gemm", "rms_norm") else []
            if "residual" in name:
                more_axes = [(None, 0, *others[1:]), (2, 1, *others[1:])]
            for axes in ((0, *others), (0,) * len(arrays), *more_axes):
                pairs = list(zip(arrays, axes))
                more = [x if axis is None else np.stack([x, 2 * x, x + 1], min(axis, x.ndim)) for x, axis in pairs]
                places = tuple(None if axis is None else min(axis, x.ndim) for x, axis in pairs)

                def both(function, places=places, more=more):
                    forward = jax.jit(jax.vmap(function, places))(*more)

                    grad = jax.vmap(jax.grad(lambda *arrays: weighed(function(*arrays))), places)
                    return forward, jax.jit(grad)(*more)

                self.close(both(function), both(exact), f"{name} {axes}")

    def test_vmap_makes_one_call_where_there_is_a_place(self):
        """Shown by what the library says of arrays that do not go together, and that no check at tracing saw: it names
        those of the one call, with the new dimensions in them."""

        def raw(operation, shape, names, ranks, results=None, **numbers):
            result = jax.ShapeDtypeStruct(shape, np.float64)
            result = (result,) * results if results else result
            call = jax.ffi.ffi_call(f"attikos_{operation}", result, vmap_method="expand_dims")
            numbers = {n: (np.float64 if isinstance(x, float) else np.int64)(x) for n, x in numbers.items()}
            return functools.partial(call, arguments=names, ranks=np.array(ranks, np.int64), **numbers)

        x = normal(3, 2, 6)
        norm = raw("rms_norm", (2, 6), "x weight", (2, 1), eps=1e-6)
        self.says(r"attikos.rms_norm: weight has 5 .* x, which is \[1, 6, 6\]", jax.vmap(norm, (0, None)), x, normal(5))
        norm = raw("rms_norm_residual", (2, 6), "x residual weight", (2, 2, 1), 2, eps=1e-6)
        self.says(r"rms_norm: weight has 5 .* x, which is \[3, 2, 6\]", jax.vmap(norm, (0, None, None)), x, x[0], normal(5))
        self.says(r"rms_norm: weight has 5 .* x, which is \[1, 6, 6\]", jax.vmap(norm, (0, 0, None)), x, x, normal(5))
        product = raw("gemm", (2, 2), "a b", (2, 2), alpha=1.0, trans_a=0, trans_b=0, activation=0)
        self.says(r"A is \[3, 2, 6\] .* B is \[3, 5, 2\]", jax.vmap(product), x, normal(3, 5, 2))
        self.says(r"A is \[3, 2, 6\] .* B is \[1, 5, 2\]", jax.vmap(product, (0, None)), x, normal(5, 2))
        rows = raw("softmax", (5,), "x", (1,), scale=1.0)
        self.says(r"out is \[1, 6, 5\]", jax.vmap(jax.vmap(rows)), x)

    def test_vmap_of_attention(self):
        q, k, v = (np.stack([x, x + 1, -x]) for x in self.qkv())
        lengths = jnp.array([[9, 6], [1, 2], [3, 9]], np.int32)
        for name, given in CASES.items():
            if name not in ("causal", "bias", "mask", "sinks"):
                continue

            def both(function, given):
                call = jax.vmap(lambda q, k, v: function(q, k, v, **given), (0, None, 0))
                grad = jax.vmap(jax.grad(lambda q, k, v: (function(q, k, v, **given) ** 2).sum()), (0, 0, None))
                return call(q, k[0], v), grad(q, k, v[0])

            given = {n: jnp.asarray(x) if isinstance(x, np.ndarray) else x for n, x in given.items()}
            self.close(both(ours.attention, given), both(formula, given), name)
        attend = jax.jit(jax.vmap(lambda q, k, v, n: ours.attention(q, k, v, lengths_kv=n)))
        got = attend(q, k, v, lengths)
        beyond = lengths.at[2, 1].set(10)
        if ON_CUDA:  # clamped; nobody waits for the device to look at them
            self.close(attend(q, k, v, beyond), got, "clamped lengths")
        else:  # one call: the sixth of six sequences, not the second of the third position
            self.says(r"attention: lengths_kv: length 5 is 10; expected a number in \[0, 9\]", attend, q, k, v, beyond)
        self.close(got, jax.vmap(lambda q, k, v, n: formula(q, k, v, lengths_kv=n))(q, k, v, lengths), "lengths")

    def test_errors(self):
        q, k, v = self.qkv()
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"attikos.attention: .*head"):
            jax.jit(lambda q: ours.attention(q, k[..., :4], v))(q)
        with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "dtypes of q, k and v must match"):
            ours.attention(q.astype(np.float32), k, v)
        x, n = np.ones((4, 4), np.float32), np.array([5, 5])
        for words, error, call in (
            (r"gemm: a is int8 \[4, 4\]; .* expected float64, ", attikos.UnsupportedDtypeError,
             lambda: ours.gemm(x.astype(np.int8), x.astype(np.int8))),
            (r"softmax: x is float8_e4m3fn", attikos.UnsupportedDtypeError,
             lambda: ours.softmax(x.astype(ml_dtypes.float8_e4m3fn))),
            (r"softmax: x is \[4, 4\] int32", attikos.UnsupportedDtypeError, lambda: ours.softmax(x.astype(np.int32))),
            (r"attention: lengths_kv is float64 \[2\]; expected integers", attikos.IntegerError,
             lambda: ours.attention(q, k, v, lengths_kv=np.ones(2))),
            (r"attention: cu_seqlens_kv has 2 entries; expected 3 as for q", attikos.ShapeMismatchError,
             lambda: ours.attention(q[0], q[0], q[0], cu_seqlens_q=np.array([0, 1, 5]), cu_seqlens_kv=n)),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, "attikos." + words):
                jax.jit(call)()
        with self.assertRaisesRegex(attikos.ArgumentError, "activation is 'tan'"):
            ours.gemm(q[0, 0], q[0, 0], activation="tan", trans_b=True)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"layer_norm: weight has shape \[3\]; .*, 5, 8\]"):
            ours.layer_norm(q, np.ones(3), np.ones(8))
        for norm, vectors in ((ours.rms_norm, [np.ones(8)]), (ours.layer_norm, [np.ones(8)] * 2)):
            with self.assertRaisesRegex(attikos.ShapeMismatchError, r"_norm: residual is \[5, 8\] .*, 5, 8\]"):
                norm(q, *vectors, residual=q[0, 0])
            with self.assertRaisesRegex(attikos.UnsupportedDtypeError, r"_norm: residual is .* float32, x is .* float64"):
                norm(q, *vectors, residual=q.astype(np.float32))
        with self.assertRaises(Exception):  # no second derivative
            jax.grad(lambda x: jax.grad(lambda x: ours.softmax(x)[0, 0])(x)[0, 0])(normal(2, 3))

    def test_masks_of_bytes(self):
        q, k, v = self.qkv()
        mask = CASES["mask"]["mask"]
        got = jax.jit(lambda m: ours.attention(q, k, v, mask=m))(mask.astype(np.uint8))
        np.testing.assert_array_equal(got, ours.attention(q, k, v, mask=mask))

    @unittest.skipIf(len(jax.devices()) < 2, "needs two devices")
    def test_shards(self):
        """Each device calls a handler on its part; what all share has the sum of the parts' gradients."""
        mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        part, whole = jax.sharding.PartitionSpec("x"), jax.sharding.PartitionSpec()
        q, k, v = self.qkv()
        weight, b = normal(8, seed=5), normal(9, 3, seed=6)
        for function, arrays, split in (
            (lambda q, k, v: ours.attention(q, k, v, causal=True), (q, k, v), 3),
            (lambda q, k, v, n: ours.attention(q, k, v, sinks=n), (q, k, v, normal(4, seed=8)), 3),
            (ours.rms_norm, (q, weight), 1), (lambda q, r, w: sum(ours.rms_norm(q, w, residual=r)), (q, q + 1, weight), 2),
            (ours.gemm, (normal(4, 9), b), 1), (ours.softmax, (q,), 1),
        ):  # fmt: skip
            specs = (*(part,) * split, *(whole,) * (len(arrays) - split))
            over = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=part)

            def both(f, arrays=arrays):
                return jax.jit(jax.value_and_grad(lambda *a: (f(*a) ** 2).sum(), tuple(range(len(arrays)))))(*arrays)

            self.close(both(over), both(function), str([x.shape for x in arrays]))
        program = jax.jit(jax.shard_map(ours.softmax, mesh=mesh, in_specs=part, out_specs=part)).lower(q).compile()
        self.assertNotIn("all-gather", program.as_text())

    def test_order_of_the_stream(self):
        """Kernels between those of XLA read what those before them wrote, in arrays large enough to be found unfinished."""
        weight = normal(512, 512, seed=2) / 64

        def steps(gemm, softmax):
            def step(x, _):
                x = softmax(gemm(jnp.tanh(x), weight)) + jnp.sin(x)
                return x, x.sum()

            return jax.jit(lambda x: jax.lax.scan(step, x, length=20))

        x = normal(2048, 512)
        self.close(steps(ours.gemm, ours.softmax)(x), steps(jnp.matmul, jax.nn.softmax)(x), "steps")

    @unittest.skipIf(ON_CUDA, "where kernels clamp them")
    def test_error_names_the_lengths(self):
        q, k, v = self.qkv()
        attend = jax.jit(lambda m, n: ours.attention(q, k, v, lengths_q=m, lengths_kv=n))
        self.says(r"INVALID_ARGUMENT: attikos.attention: lengths_q: length 0 is -1; .* \[0, 5\]", attend,
                  jnp.array([-1, 5]), jnp.array([3, 9]))  # fmt: skip
        self.says(r"attikos.attention: lengths_kv: length 1 is 10; .* \[0, 9\]", attend, jnp.array([1, 5]),
                  jnp.array([3, 10]))  # fmt: skip
        attend_all = jax.jit(lambda n: ours.attention(q, k, v, lengths_kv=n))
        self.says(r"attikos.attention: lengths_kv: length 1 is 99; .* \[0, 9\]", attend_all, jnp.array([3, 99]))
        self.assertTrue(np.isfinite(attend(jnp.array([1, 5]), jnp.array([3, 9]))).all())  # and goes on


class Handlers(unittest.TestCase):
    """What XLA calls, and on what memory."""

    def compiled(self, function, *arrays, **options):
        return jax.jit(function, **options).lower(*arrays).compile()

    def test_are_what_a_program_calls(self):
        q, x, w = normal(2, 2, 5, 8, dtype=np.float32), normal(4, 6, dtype=np.float32), normal(6, dtype=np.float32)
        functions = {
            "attention": (lambda q: ours.attention(q, q, q), (q,)), "gemm": (lambda x: ours.gemm(x, x.T), (x,)),
            "rms_norm": (ours.rms_norm, (x, w)), "layer_norm": (ours.layer_norm, (x, w, w)),
            "l2_normalize": (ours.l2_normalize, (x,)), "softmax": (ours.softmax, (x,)),
            "log_softmax": (ours.log_softmax, (x,)),
            "rms_norm_residual": (lambda x, w: sum(ours.rms_norm(x, w, residual=x)), (x, w)),
            "layer_norm_residual": (lambda x, w: sum(ours.layer_norm(x, w, w, residual=x)), (x, w)),
        }  # fmt: skip
        names = set()
        for name, (function, arrays) in functions.items():
            text = self.compiled(jax.vmap(jax.grad(lambda *a, f=function: f(*a).sum())),
                                 *(np.stack([a, a]) for a in arrays)).as_text()  # fmt: skip
            self.assertIn(f'custom_call_target="attikos_{name}_backward"', text)
            self.assertNotIn("callback", text)
            self.assertIn(f'custom_call_target="attikos_{name}"', self.compiled(function, *arrays).as_text())
            names |= {f"attikos_{name}", f"attikos_{name}_backward"}
        told = ours.handlers()
        self.assertEqual(set(told["targets"]), names)
        self.assertEqual((told["ffi"][0], told["platforms"]), (0, ("cpu", "CUDA")))
        self.assertTrue(os.path.exists(told["library"]))

    def test_copy_nothing(self):
        """The compiled program is the call alone: no copy, no transpose, no memory beside arguments and results."""
        x = normal(64, 32, dtype=np.float32)
        q = normal(2, 2, 32, 16, dtype=np.float32)
        for function, given in ((ours.softmax, x), (lambda q: ours.attention(q, q, q, causal=True), q)):
            program = self.compiled(function, given)
            entry = program.as_text().split("ENTRY")[1]
            does = [re.search(r"([a-z][a-z-]*)\(", line.split(" = ")[1])[1] for line in entry.splitlines() if " = " in line]
            without_effect = ("parameter", "tuple", "get-tuple-element", "bitcast")
            self.assertEqual([name for name in does if name not in without_effect], ["custom-call"], entry)
            self.assertEqual(program.memory_analysis().temp_size_in_bytes, 0)

    def test_no_python_on_the_way(self):
        """A compiled call goes through while this package's own functions would raise."""
        x = normal(8, 16, dtype=np.float32)
        program = self.compiled(ours.softmax, x)
        exact = np.asarray(program(x))
        with mock.patch.object(attikos, "softmax", side_effect=AssertionError), mock.patch.object(
            ours, "_call", side_effect=AssertionError
        ):
            np.testing.assert_array_equal(np.asarray(program(x)), exact)

    def test_donated_buffers(self):
        x = jnp.asarray(normal(8, 16, dtype=np.float32))
        exact = np.asarray(jax.jit(ours.softmax)(x))
        step = jax.jit(lambda x: ours.softmax(x) + 0.0, donate_argnums=0)
        np.testing.assert_array_equal(np.asarray(step(jnp.array(x))), exact)
        q = jnp.asarray(normal(1, 2, 16, 8, dtype=np.float32))
        exact = np.asarray(jax.jit(lambda q: ours.attention(q, q, q))(q))
        got = jax.jit(lambda q: ours.attention(q, q, q), donate_argnums=0)(jnp.array(q))
        np.testing.assert_array_equal(np.asarray(got), exact)

    def test_layouts(self):
        """Handlers read rows: what XLA would keep transposed arrives as rows."""
        x = normal(6, 5, 4, dtype=np.float32)
        got = jax.jit(lambda x: ours.softmax(jnp.transpose(x * 2, (2, 0, 1))))(x)
        np.testing.assert_allclose(got, jax.nn.softmax(np.transpose(x * 2, (2, 0, 1))), rtol=1e-5)

    def test_threads(self):
        q = normal(2, 2, 33, 16, dtype=np.float32)
        step = jax.jit(jax.value_and_grad(lambda q: ours.attention(q, q, q, causal=True).sum()))
        exact = jax.tree.map(np.asarray, step(q))

        def run(_):
            return [jax.tree.map(np.asarray, step(q)) for _ in range(5)]

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for results in pool.map(run, range(4)):
                for got in results:
                    jax.tree.map(np.testing.assert_array_equal, got, exact)

    def test_zero_sizes(self):
        for shape in ((0, 8), (3, 0, 8), (0,)):
            self.assertEqual(jax.jit(ours.softmax)(np.zeros(shape, np.float32)).shape, shape)
        out = jax.jit(ours.gemm)(np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32))
        np.testing.assert_array_equal(np.asarray(out), np.zeros((3, 4), np.float32))
        dx, dw = jax.jit(jax.grad(lambda x, w: ours.rms_norm(x, w).sum(), (0, 1)))(
            np.zeros((0, 8), np.float32), np.ones(8, np.float32)
        )
        self.assertEqual(dx.shape, (0, 8))
        np.testing.assert_array_equal(np.asarray(dw), np.zeros(8, np.float32))
        q, k = np.ones((1, 2, 3, 8), np.float32), np.zeros((1, 2, 0, 8), np.float32)
        np.testing.assert_array_equal(np.asarray(jax.jit(ours.attention)(q, k, k)), np.zeros_like(q))

    def test_dimensions_beyond_three(self):
        x = normal(2, 3, 2, 2, 8, dtype=np.float32)
        np.testing.assert_array_equal(
            np.asarray(jax.jit(ours.softmax)(x)), np.asarray(ours.softmax(x.reshape(-1, 8))).reshape(x.shape)
        )

    def test_a_call_that_is_none_of_ours(self):
        """Attributes that are missing are an error of XLA's, not the end of the process."""
        call = jax.ffi.ffi_call("attikos_softmax", jax.ShapeDtypeStruct((6,), np.float32))
        for attributes in (
            {}, {"arguments": "x", "ranks": np.array([], np.int64)}, {"arguments": "x", "ranks": np.array([2], np.int64)}
        ):  # fmt: skip
            with self.assertRaises((jax.errors.JaxRuntimeError, ValueError)):
                call(np.ones(6, np.float32), **attributes).block_until_ready()

    def test_a_build_without_them_says_so(self):
        with mock.patch.object(ours, "_LIBRARY", pathlib.Path("there/is/none.so")):
            with self.assertRaisesRegex(ImportError, "no handlers for XLA .*; expected one that was made where jaxlib"):
                ours._register()


class Arrays(unittest.TestCase):
    def test_capsules_of_others(self):
        """JAX sets argument types of PyCapsule_New for the whole process."""
        jax.ffi.pycapsule(ctypes.pythonapi.Py_IncRef)
        self.assertIsInstance(attikos.softmax(jnp.ones(3)), jax.Array)

    def test_are_read_and_not_written(self):
        def on_cpu(x):  # where there is a GPU, JAX would put it there
            return jax.device_put(x, jax.devices("cpu")[0])

        case = test_arrays.ReadOnly()
        case.setUp()
        case.refused(on_cpu, "JAX, which does not change arrays")
        out = attikos.softmax(on_cpu(case.new[0]))
        self.assertIsInstance(out, jax.Array)
        np.testing.assert_array_equal(np.asarray(out), attikos.softmax(case.new[0]))
