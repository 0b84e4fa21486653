# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The short way of calls, through compiled functions: what goes it gives the bits of the long way, and what has to go
the long way, because only that knows gradients, modes and words, does."""

import contextlib
import importlib.util
import threading
import unittest
from unittest import mock

import attikos
import numpy as np
from attikos import _arrays, _autograd, _border, cache
from attikos import flash_attn as fa
from calls import examples, outputs

torch = None
if importlib.util.find_spec("torch"):
    import torch


class WentLong(Exception):
    pass


def no_long_way(*_, **__):
    raise WentLong


@contextlib.contextmanager
def short_only():
    with mock.patch.object(_arrays.Call, "__init__", no_long_way), mock.patch.object(_autograd, "refuse", no_long_way):
        yield


@contextlib.contextmanager
def long_only():
    token = _border.barred.set(True)
    try:
        yield
    finally:
        _border.barred.reset(token)


def normal(*shape, seed=3, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def plain_calls(dtype, of):
    """{name: call} of calls that go the short way. of: arrays of NumPy to those of the library."""
    x, weight, bias = of(normal(3, 5, 16, dtype=dtype)), of(normal(16, dtype=dtype)), of(normal(16, seed=4, dtype=dtype))
    deep = of(normal(2, 2, 3, 16, dtype=dtype))
    a, b, c = of(normal(7, 6, dtype=dtype)), of(normal(6, 9, dtype=dtype)), of(normal(7, 9, dtype=dtype))
    q, k, v = (of(normal(2, h, s, d, seed=h, dtype=dtype)) for h, s, d in ((4, 5, 8), (2, 7, 8), (2, 7, 6)))
    one = of(normal(2, 4, 1, 8, dtype=dtype))
    last = [x.swapaxes(1, 2) for x in (q, k, v)]
    lengths, offsets_q, offsets_kv = (of(np.array(n, np.int32)) for n in ([5, 3], [0, 3, 7], [0, 4, 9]))
    packed = [of(normal(h, t, 8, seed=h, dtype=dtype)) for h, t in ((4, 7), (2, 9), (2, 9))]
    table = of(np.array([[0, 1], [3, 2]], np.int32))
    pages = [of(normal(6, 2, 4, d, seed=d, dtype=dtype)) for d in (8, 6)]
    wide = np.float64 if dtype == np.float64 else np.float32
    wider = of(np.zeros(1, np.float32)).dtype if dtype == np.float16 else None
    of_state = ((2, 3, 5, 6), dtype), ((2, 3, 5), wide)
    states = [of(normal(*shape, seed=s, dtype=t)) for s in (1, 2) for shape, t in of_state]
    mlp = [of(normal(7, 16, seed=s, dtype=dtype)) for s in (5, 6)]
    return {
        "rms_norm": lambda: attikos.rms_norm(x, weight),
        "rms_norm of many dimensions": lambda: attikos.rms_norm(deep, weight, 1e-3),
        "layer_norm": lambda: attikos.layer_norm(x, weight, bias),
        "l2_normalize": lambda: attikos.l2_normalize(x),
        "softmax": lambda: attikos.softmax(x, 0.5),
        "rms_norm into an array": lambda: attikos.rms_norm(x, weight, out=of(np.zeros_like(normal(3, 5, 16, dtype=dtype)))),
        "layer_norm into an array": lambda: attikos.layer_norm(
            deep, weight, bias, out=of(np.zeros((2, 2, 3, 16), dtype))
        ),
        "l2_normalize in place": lambda: in_place(attikos.l2_normalize, of(normal(3, 5, 16, dtype=dtype))),
        "softmax in place": lambda: in_place(attikos.softmax, of(normal(3, 5, 16, dtype=dtype))),
        "log_softmax": lambda: attikos.log_softmax(x),
        "gemm": lambda: attikos.gemm(a, b),
        "gemm with an epilogue": lambda: attikos.gemm(
            b, a, 0.5, trans_a=True, trans_b=True, activation="silu", scale=2.0, compute="tf32", bias=a[:, 0], residual=c.T
        ),
        "gemm into a wider type": lambda: attikos.gemm(a, b, out_dtype=wider),
        "fused_gated_mlp": lambda: attikos.fused_gated_mlp(x, *mlp),
        "fused_gated_mlp of tokens": lambda: attikos.fused_gated_mlp(x[0], *mlp, "gelu_tanh"),
        "merge_states": lambda: attikos.merge_states(*states),
        "merge_states, joined": lambda: attikos.merge_states(*(y.reshape(6, *y.shape[2:]) for y in states)),
        "merge_into": lambda: merged_into(*states),
        "attention": lambda: attikos.attention(q, k, v),
        "attention with options": lambda: attikos.attention(
            q, k, v, scale=0.3, causal=True, top_left=True, window=(3, 1), softcap=2.0, lengths_q=lengths,
            lengths_kv=lengths, return_lse=True, attention_chunk=4, sm_margin=3,
        ),
        "attention, packed": lambda: attikos.attention(
            *packed, cu_seqlens_q=offsets_q, cu_seqlens_kv=offsets_kv, check=False, return_lse=True
        ),
        "attention, paged": lambda: attikos.attention(q, *pages, page_table=table, lengths_kv=lengths),
        "flash_attention": lambda: attikos.flash_attention(q, k, v, is_causal=True),
        "decode": lambda: attikos.decode(one, k, v, lengths_kv=lengths, splits=2, determinism="batch_invariant"),
        "decode, paged": lambda: attikos.decode(q, *pages, page_table=table, lengths_kv=lengths, return_lse=True),
        "flash_attn_func": lambda: fa.flash_attn_func(*last, 0.0, None, True, (4, -1)),
        "flash_attn_varlen_func": lambda: fa.flash_attn_varlen_func(
            *(x.swapaxes(0, 1) for x in packed), offsets_q, offsets_kv, 4, 5, causal=True
        ),
    }  # fmt: skip


def in_place(function, x):
    """function(x, out=x), which is x."""
    out = function(x, out=x)
    assert out is x
    return out


def merged_into(out, lse, more_out, more_lse):
    """What cache.merge_into() writes over copies of the first state."""
    state = [x.clone() if torch and isinstance(x, torch.Tensor) else x.copy() for x in (out, lse)]
    cache.merge_into(*state, more_out, more_lse)
    return tuple(state)


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def over_itself(kind, x):
    """An array of the extents of x, all rows of which are one."""
    if kind == "NumPy":
        return np.lib.stride_tricks.as_strided(x, x.shape, (0, x.itemsize))
    return x[:1].expand(x.shape)


KINDS = [("NumPy", np.asarray)] + ([("PyTorch", tensor)] if torch is not None else [])


def numbers(result):
    return [np.asarray(x) for x in outputs(result)]


class Short(unittest.TestCase):
    def test_is_there(self):
        attikos.softmax(normal(2, 3))
        self.assertTrue(_border._functions, "the build has no compiled border")

    def test_bits_of_the_long_way(self):
        for kind, of in KINDS:
            for dtype in (np.float32, np.float64, np.float16):
                for name, call in plain_calls(dtype, of).items():
                    with self.subTest(kind=kind, name=name, dtype=dtype.__name__):
                        with long_only():
                            expected = call()
                        with short_only():
                            found = call()
                        for x, y in zip(outputs(found), outputs(expected), strict=True):
                            self.assertIs(type(x), type(y))
                            self.assertEqual((x.dtype, tuple(x.shape)), (y.dtype, tuple(y.shape)))
                            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))

    def test_results_are_the_callers(self):
        """New, dense and writable each time."""
        for kind, of in KINDS:
            for name, call in plain_calls(np.float32, of).items():
                with self.subTest(kind=kind, name=name):
                    first, second = outputs(call()), outputs(call())
                    for x, y in zip(first, second):
                        before = np.asarray(y).copy()
                        x[...] = 0
                        np.testing.assert_array_equal(np.asarray(y), before)
                        self.assertTrue(x.flags.c_contiguous and x.flags.writeable if kind == "NumPy" else x.is_contiguous())

    def test_refusals(self):
        """In the words of the long way, and of the same type."""
        for kind, of in KINDS:
            x, i32 = of(normal(3, 4)), of(np.array([9, 9, 9], np.int32))
            q = of(normal(3, 2, 5, 8))
            state = [of(normal(*shape)) for shape in ((2, 3, 4), (2, 3))]
            wrong = {
                "extents": lambda: attikos.gemm(x, x),
                "dimensions": lambda: attikos.attention(x, x, x),
                "heads": lambda: fa.flash_attn_func(q[0], q[0], q[0]),
                "element types": lambda: attikos.rms_norm(i32, i32),
                "a mix of types": lambda: attikos.gemm(of(normal(4, 4)), of(normal(4, 4, dtype=np.float64))),
                "eps": lambda: attikos.rms_norm(x, x[0], "small"),
                "a bool for a number": lambda: attikos.gemm(x, x, trans_b=True, beta=False),
                "a bool for dropout": lambda: fa.flash_attn_func(q, q, q, False),
                "a number for a bool": lambda: attikos.attention(q, q, q, causal=2),
                "activation": lambda: attikos.gemm(x, x, trans_b=True, activation="sine"),
                "window": lambda: attikos.attention(q, q, q, window=(1, 2, 3)),
                "far window": lambda: attikos.attention(q, q, q, window=(-7, 0)),
                "lengths": lambda: attikos.attention(q, q, q, lengths_kv=i32),
                "lengths of flash_attn": lambda: fa.flash_attn_with_kvcache(q, q, q, cache_seqlens=i32),
                "kernel": lambda: attikos.attention(q, q, q, kernel="attention/none"),
                "overlap": lambda: attikos.gemm(x, x, trans_b=True, residual=x),
                "no array": lambda: attikos.softmax([1.0, 2.0]),
                "extents of out": lambda: attikos.softmax(x, out=of(normal(3, 5))),
                "dimensions of out": lambda: attikos.softmax(x, out=of(normal(1, 3, 4))),
                "type of out": lambda: attikos.softmax(x, out=of(normal(3, 4, dtype=np.float64))),
                "out over part of x": lambda: attikos.softmax(x[1:], out=x[:2]),
                "out over a weight": lambda: attikos.rms_norm(x, x[0], out=x),
                "out over itself": lambda: attikos.softmax(x, out=over_itself(kind, x)),
                "no array as out": lambda: attikos.softmax(x, out=[[0.0] * 4] * 3),
                "extents of states": lambda: attikos.merge_states(*state, state[0][:1], state[1][:1]),
                "dimensions of sums": lambda: attikos.merge_states(state[0], state[1][0], *state),
                "types of states": lambda: attikos.merge_states(
                    *state, of(normal(2, 3, 4, dtype=np.float16)), state[1]
                ),
                "a state over itself": lambda: cache.merge_into(over_itself(kind, x), x[:, 0], x, x[:, 0]),
                "weights of an MLP": lambda: attikos.fused_gated_mlp(x, x[:, :3], x),
                "activation of an MLP": lambda: attikos.fused_gated_mlp(x, x, x, "relu"),
                "extents of gradients": lambda: attikos.attention_backward(q, q, q, q, q[..., 0], q[:2]),
                "sums of gradients": lambda: attikos.attention_backward(q, q, q, q, q, q),
                "a window of gradients": lambda: attikos.attention_backward(q, q, q, q, q[..., 0], q, window=(1, 2, 3)),
            }
            for what, call in wrong.items():
                with self.subTest(kind=kind, what=what):
                    with long_only(), self.assertRaises(attikos.Error) as expected:
                        call()
                    with self.assertRaises(type(expected.exception)) as found:
                        call()
                    self.assertEqual(str(found.exception), str(expected.exception))

    def test_arrays_of_numpy_that_are_not_plain(self):
        wide = normal(6, 8)
        for name, x in {
            "negative strides": wide[::-1, ::-2],
            "read-only": np.broadcast_to(wide[0], (6, 8)),
            "Fortran's order": np.asfortranarray(wide),
            "of a subclass": wide.view(np.recarray),
            "no elements": wide[:0],
        }.items():
            with self.subTest(name):
                expected = np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum(-1, keepdims=True)
                np.testing.assert_allclose(attikos.softmax(x), expected, rtol=1e-5)
                other = wide[:, : x.shape[-1]]
                product = attikos.gemm(x, other, trans_b=True)
                np.testing.assert_allclose(product, x @ other.T, rtol=1e-4, atol=1e-4)
        with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "native byte order"):
            attikos.softmax(wide.astype(">f4"))

    def test_explain_runs_nothing(self):
        a = normal(4, 4)
        attikos.gemm(a, a)
        self.assertIn("runs", attikos.explain("gemm", a, a))

    def test_ten_threads(self):
        for kind, of in KINDS:
            calls = plain_calls(np.float32, of)
            expected = {name: numbers(call()) for name, call in calls.items()}
            failures = []

            def work():
                try:
                    for _ in range(20):
                        for name, call in calls.items():
                            for x, y in zip(numbers(call()), expected[name]):
                                np.testing.assert_array_equal(x, y, name)
                except BaseException as problem:  # noqa: BLE001: told by the main thread
                    failures.append(problem)

            threads = [threading.Thread(target=work) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [], kind)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OfTorch(unittest.TestCase):
    def setUp(self):
        self.x, self.weight = torch.randn(3, 8), torch.randn(8)
        attikos.rms_norm(self.x, self.weight)

    def long(self, *arguments):
        with short_only(), self.assertRaises(WentLong):
            attikos.rms_norm(*arguments)

    def test_gradients(self):
        wanted = self.weight.clone().requires_grad_()
        out = attikos.rms_norm(self.x, wanted)
        self.assertTrue(out.requires_grad)
        with torch.no_grad(), short_only():
            self.assertFalse(attikos.rms_norm(self.x, wanted).requires_grad)
        with torch.inference_mode(), short_only():
            attikos.rms_norm(self.x, torch.nn.Parameter(self.weight))

    def test_explain_tells_of_gradients(self):
        q, k, v = (torch.randn(2, h, 5, 8) for h in (4, 2, 2))
        wanted, bias = q.clone().requires_grad_(), torch.zeros(5, 5, requires_grad=True)
        self.assertEqual(attikos.explain("attention", q, k, v), "runs portable/small")
        told = attikos.explain("attention", wanted, k, v, causal=True).splitlines()
        self.assertEqual(told, ["runs portable/small", "gradients: runs portable"])
        self.assertIn("gradients: runs portable", attikos.explain("attention", q, k, v, bias=bias))
        self.assertIn("gradients: runs portable", attikos.explain("flash_attn_func", wanted, q, q))
        self.assertIn("gradients: runs the kernels of gemm", attikos.explain("gemm", q[0], wanted[0], trans_b=True))
        self.assertIn("gradients: runs portable", attikos.explain("softmax", wanted))
        with torch.no_grad():
            self.assertNotIn("gradients", attikos.explain("attention", wanted, k, v))
        self.assertIsNone(wanted.grad)

    def test_recorded_calls(self):
        """Gradients are those of the long way, whatever the options are, and calls that are wrong are refused."""
        q, k, v = (torch.randn(2, h, s, 8) for h, s in ((4, 5), (2, 7), (2, 7)))
        last = [t.transpose(1, 2) for t in (q, k, v)]
        lengths = torch.tensor([5, 3], dtype=torch.int32)
        a, b = torch.randn(5, 6), torch.randn(4, 6)
        for name, function, tensors in (
            ("gemm", lambda a, b: attikos.gemm(a, b, 0.5, trans_b=True, scale=3.0), (a, b)),
            ("gemm of a batch", lambda a, b: attikos.gemm(a[None], b, trans_b=True), (a, b)),
            ("gemm, activation", lambda a, b: attikos.gemm(a, b, trans_b=True, activation="gelu"), (a, b)),
            ("attention", attikos.attention, (q, k, v)),
            ("attention, lse", lambda *t: attikos.attention(*t, causal=True, return_lse=True), (q, k, v)),
            ("attention, options", lambda *t: attikos.attention(
                *t, scale=0.3, window=(3, 1), softcap=2.0, top_left=True, attention_chunk=4), (q, k, v)),
            ("attention, margin", lambda *t: attikos.attention(*t, causal=True, sm_margin=3), (q, k, v)),
            ("attention, lengths", lambda *t: attikos.attention(*t, lengths_kv=lengths), (q, k, v)),
            ("flash_attn_func", lambda *t: fa.flash_attn_func(*t, 0.0, 0.3, True, (4, 0)), last),
        ):  # fmt: skip
            for only in (None, 0, 1):
                found = []
                for way in (long_only, contextlib.nullcontext):
                    given = [t.clone().requires_grad_(only in (None, i)) for i, t in enumerate(tensors)]
                    with way():
                        out = outputs(function(*given))
                    sum((o * o).sum() for o in out).backward()
                    found.append([*out, *(t.grad for t in given)])
                for x, y in zip(*found, strict=True):
                    self.assertEqual(x is None, y is None, name)
                    self.assertTrue(x is None or torch.equal(x, y), f"{name} {only}")
        wanted = a.clone().requires_grad_()
        with self.assertRaisesRegex(attikos.ShapeMismatchError, "op\\(a\\) has 6 columns"):
            attikos.gemm(wanted, a)
        with self.assertRaisesRegex(attikos.UnsupportedError, "dropout"):
            fa.flash_attn_func(last[0].clone().requires_grad_(), *last[1:], 0.5)

    def test_recorded_calls_go_short_both_ways(self):
        q, k, v = (torch.randn(2, h, s, 8) for h, s in ((4, 5), (2, 7), (2, 7)))
        x, weight, bias, a = torch.randn(3, 2, 3, 8), torch.randn(8), torch.randn(8), torch.randn(5, 6)
        calls = {
            "rms_norm": (lambda *t: attikos.rms_norm(*t, 1e-3), (x, weight)),
            "layer_norm": (attikos.layer_norm, (x, weight, bias)),
            "rms_norm of a stream": (lambda x, r, w: attikos.rms_norm(x, w, residual=r)[0], (x, 2 * x, weight)),
            "layer_norm of a stream": (
                lambda x, r, w, b: sum(attikos.layer_norm(x, w, b, residual=r)), (x, 2 * x, weight, bias),
            ),
            "l2_normalize": (attikos.l2_normalize, (x,)),
            "softmax": (lambda x: attikos.softmax(x, 0.5), (x,)),
            "log_softmax": (attikos.log_softmax, (x[0, 0],)),
            "gemm": (lambda *t: attikos.gemm(*t, 0.5, trans_a=True), (a, torch.randn(5, 4))),
            "fused_gated_mlp": (attikos.fused_gated_mlp, (a, torch.randn(4, 6), torch.randn(4, 6))),
            "attention": (lambda *t: attikos.attention(*t, causal=True), (q, k, v)),
            "attention, lse": (lambda *t: attikos.attention(*t, softcap=3.0, return_lse=True)[0], (q, k, v)),
            "flash_attn_func": (fa.flash_attn_func, [t.transpose(1, 2) for t in (q, k, v)]),
        }
        for name, (function, tensors) in calls.items():
            for only in (None, *range(len(tensors))):
                found = []
                for way in (long_only, short_only):
                    given = [t.clone().requires_grad_(only in (None, i)) for i, t in enumerate(tensors)]
                    with way():
                        out = function(*given)
                        out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape))
                    found.append([out, *(t.grad for t in given)])
                for one, other in zip(*found, strict=True):
                    self.assertTrue(one is None and other is None or torch.equal(one, other), f"{name} {only}")

    def test_recorded_calls_let_exceptions_through(self):
        """Those of what PyTorch calls on the way: its checkpoints end a forward pass so."""
        tried = []

        def pack(tensor):
            tried.append(tensor)
            raise KeyError("of the caller")

        for function, shapes in ((attikos.gemm, [(4, 4)] * 2), (attikos.attention, [(1, 2, 3, 8)] * 3), (attikos.softmax, [(4, 4)])):
            tried.clear()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), self.assertRaises(KeyError):
                function(*(torch.randn(shape, requires_grad=True) for shape in shapes))
            self.assertEqual(len(tried), 1)

    def test_several_results_are_of_one_call(self):
        """What a call leaves to be fetched goes to who has its first result, and once."""
        q = torch.randn(1, 1, 4, 8)
        attikos.attention(q, q, q)
        attention, more = _border._functions["attention"], _border._functions["more"]
        rest = (False, True, None, 0.0, -1, -1, False, False, 0, 0, False, None, None, None, None, None, 0)
        first, second = attention(q, q, q, None, None, *rest), attention(q, q, 2 * q, None, None, *rest)
        self.assertIsNone(more(first))
        self.assertEqual(more(second).shape, (1, 1, 4))
        self.assertIsNone(more(second))
        self.assertIsNone(more(None))

    def test_lazy_negation(self):
        lazy = torch._neg_view(self.x)
        torch.testing.assert_close(attikos.softmax(lazy), torch.softmax(-self.x, -1))
        torch.testing.assert_close(attikos.gemm(self.x, lazy, trans_b=True), -self.x @ self.x.T)
        self.long(lazy, self.weight)
        self.long(self.x, torch._neg_view(self.weight))

    def test_modes_and_subclasses(self):
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode

        class Own(torch.Tensor):
            pass

        class Heard(TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), named=None):
                return function(*arguments, **(named or {}))

        seen = []

        class Watching(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                seen.append(str(function))
                return function(*arguments, **(named or {}))

        self.long(self.x.as_subclass(Own), self.weight)
        with Heard():
            self.long(self.x, self.weight)
        with Watching():
            attikos.rms_norm(self.x, self.weight)
        self.assertIn("attikos.rms_norm.default", seen)
        with short_only():
            attikos.rms_norm(self.x, self.weight)

    def test_one_position(self):
        """PyTorch exports any stride for one element; kernels are to see whole rows."""
        q = torch.randn(2, 1, 4, 8)[:, :, :, :]
        with long_only():
            expected = fa.flash_attn_with_kvcache(q, q, q)
        with short_only():
            torch.testing.assert_close(fa.flash_attn_with_kvcache(q, q, q), expected, rtol=0, atol=0)

    def test_caches(self):
        """With and without new keys, rotation, pages, and as many queries as attention takes instead."""
        for queries in (1, 3, 17):
            for paged in (False, True):
                for rotated in (False, True):
                    for dtype in (torch.float32, torch.bfloat16):
                        with self.subTest(queries=queries, paged=paged, rotated=rotated, dtype=dtype):
                            self.cache(queries, paged, rotated, dtype)

    def cache(self, queries, paged, rotated, dtype):
        shape = (12, 4, 2, 16) if paged else (2, 24, 2, 16)
        k_cache, v_cache = (torch.randn(shape, dtype=dtype) for _ in range(2))
        q, k, v = (torch.randn(2, queries, heads, 16, dtype=dtype) for heads in (4, 2, 2))
        lengths = torch.tensor([2, 7], dtype=torch.int32)
        table = torch.randperm(12, dtype=torch.int32).reshape(2, 6) if paged else None
        angle = torch.rand(24, 4)
        tables = {"rotary_cos": angle.cos().to(dtype), "rotary_sin": angle.sin().to(dtype)} if rotated else {}
        for more in ({}, {"k": k, "v": v, **tables}):
            if rotated and not more:
                continue
            found = []
            for way in (long_only, short_only):
                caches = k_cache.clone(), v_cache.clone()
                versions = [x._version for x in caches]
                with way():
                    out, lse = fa.flash_attn_with_kvcache(
                        q, *caches, cache_seqlens=lengths, block_table=table, causal=True, return_softmax_lse=True, **more
                    )
                found.append((out, lse, *caches))
                self.assertEqual([x._version > n for x, n in zip(caches, versions)], [bool(more)] * 2)
            for one, other in zip(*found):
                self.assertTrue(torch.equal(one, other))

    def test_a_cache_that_is_full(self):
        """Nothing is written by a call that is refused."""
        cache, new = torch.zeros(1, 4, 1, 8), torch.ones(1, 2, 1, 8)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, "cache_seqlens"):
            fa.flash_attn_with_kvcache(new, cache, cache.clone(), new, new, cache_seqlens=torch.tensor([3], dtype=torch.int32))
        self.assertEqual(cache.abs().max(), 0)

    def test_every_function(self):
        """Whatever its arguments, a call has the numbers of the long way."""
        for example in examples(np.float32):
            if any(x.dtype.kind == "V" for x in example.arrays.values()):  # element types of ml_dtypes
                continue
            made = [{name: torch.from_numpy(x.copy()) for name, x in example.arrays.items()} for _ in range(2)]
            with long_only():
                expected = example.function(**made[0], **example.settings)
            found = example.function(**made[1], **example.settings)
            for x, y in zip([*outputs(found), *made[1].values()], [*outputs(expected), *made[0].values()], strict=True):
                self.assertEqual(x.dtype, y.dtype, example.name)
                self.assertTrue(torch.equal(*(t.reshape(-1).view(torch.uint8) for t in (x, y))), example.name)


if __name__ == "__main__":
    unittest.main()
