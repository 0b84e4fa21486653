# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions as operators of PyTorch: what torch.library.opcheck demands of one, torch.compile in one graph with
dynamic shapes, export, checkpoints, modes and subclasses; numbers are those of eager calls, bit for bit."""

import importlib
import importlib.util
import unittest
import warnings
from unittest import mock

import attikos
import torch_compiler
from attikos import _border
from attikos import flash_attn as fa

torch = None
if importlib.util.find_spec("torch"):
    import torch

# What the default compiler would ask of a C++ compiler and minutes.
BACKEND = "aot_eager"


def setUpModule():
    torch_compiler.load()
    importlib.import_module("attikos._operators")  # with the first call that needs them, else


def n(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def int32(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def calls(more=0):
    """{name: (function, tensors that have gradients)}, of shapes that `more` makes larger."""
    x, weight, bias = n(3 + more, 4, 16), n(16, seed=2), n(16, seed=3)
    a, b, c, d = n(5 + more, 6), n(6, 4, seed=2), n(4, seed=3), n(5 + more, 4, seed=4)
    q, k, v = n(2, 4, 5 + more, 8), n(2, 2, 7 + more, 8, seed=2), n(2, 2, 7 + more, 6, seed=3)
    last = [t.transpose(1, 2) for t in (q, k, v)]
    table = n(9, 8, seed=5)
    offsets = int32(0, 3, 7 + more)
    packed = [n(7 + more, heads, 8, seed=heads) for heads in (4, 2)]
    return {
        "rms_norm": (lambda x, w: attikos.rms_norm(x, w, 1e-5), (x, weight)),
        "layer_norm": (attikos.layer_norm, (x, weight, bias)),
        "rms_norm of a residual stream": (lambda x, r, w: attikos.rms_norm(x, w, residual=r), (x, x * 2, weight)),
        "layer_norm of a residual stream": (
            lambda x, r, w, b: attikos.layer_norm(x, w, b, residual=r), (x, x * 2, weight, bias),
        ),
        "l2_normalize": (attikos.l2_normalize, (x,)),
        "softmax": (lambda x: attikos.softmax(x, 0.5), (x,)),
        "log_softmax": (attikos.log_softmax, (x,)),
        "cross_entropy": (lambda x: attikos.cross_entropy(x, torch.arange(4).expand(x.shape[:-1])), (x,)),
        "linear_cross_entropy": (
            lambda x, w: attikos.linear_cross_entropy(x, w, torch.arange(4).expand(x.shape[:-1])), (x, n(5, 16, seed=9)),
        ),
        "linear_cross_entropy of rows": (
            lambda x, w: attikos.linear_cross_entropy(x, w, torch.arange(4).expand(x.shape[:-1]), reduction="none"),
            (x, n(5, 16, seed=9)),
        ),
        "embedding": (
            lambda table: attikos.embedding(table, torch.tensor([[0, 2, 2], [1, 0, 2]]), padding_idx=-2), (n(3 + more, 16),),
        ),
        "mean_pool": (lambda x: attikos.mean_pool(x, int32(*[4, 1, 2, 3][: x.shape[0]])), (x,)),
        "gemm": (attikos.gemm, (a, b)),
        "gemm of everything": (
            lambda a, b, c, d, e: attikos.gemm(a, b, 0.5, 2.0, c=e, bias=c, residual=d, activation="gelu", scale=1.5),
            (a, b, c, d, d * 2),
        ),
        "gemm and what goes into the activation": (
            lambda a, b: attikos.gemm(a, b.T, trans_b=True, activation="silu", return_pre_activation=True), (a, b),
        ),
        "grouped_gemm": (
            lambda a, b, bias: attikos.grouped_gemm(a, b, int32(0, 3, 3, 8), bias=bias, activation="silu"),
            (n(9 + more, 6), n(3, 6, 4, seed=2), c),
        ),
        "grouped_gemm alone": (
            lambda a, b: attikos.grouped_gemm(a, b, torch.tensor([1, 3, 5]), trans_b=True),
            (n(9 + more, 6), n(2, 4, 6, seed=2)),
        ),
        "masked_gemm": (
            lambda a, b, bias: attikos.masked_gemm(a, b, int32(3, 0, 5), bias=bias, activation="gelu"),
            (n(3, 5 + more, 6), n(3, 6, 4, seed=2), c),
        ),
        "triton_matmul": (attikos.triton_matmul, (a, b)),
        "tensor_core_gemm": (attikos.tensor_core_gemm, (a, b)),
        "attention": (lambda q, k, v: attikos.attention(q, k, v, causal=True, return_lse=True), (q, k, v)),
        "attention of terms": (
            lambda q, k, v, bias, sinks: attikos.attention(
                q, k, v, scale=0.3, window=(4, 2), softcap=3.0, bias=bias, sinks=sinks, mask=bias > -1.0,
                sm_margin=2,
            ),
            (q, k, v, n(4, 5 + more, 7 + more), n(4)),
        ),
        "attention of lengths": (
            lambda q, k, v: attikos.attention(q, k, v, lengths_q=int32(5, 3), lengths_kv=int32(7, 6)), (q, k, v),
        ),
        "flash_attention": (lambda q, k, v: attikos.flash_attention(q, k, v, None, True), (q, k, v)),
        "tiled_attention": (attikos.tiled_attention, (q, k, v)),
        "flash_attn_func": (lambda q, k, v: fa.flash_attn_func(q, k, v, causal=True, window_size=(3, 0)), last),
        "flash_attn_func and its probabilities": (
            lambda q, k, v: fa.flash_attn_func(q, k, v, return_attn_probs=True)[:2], last,
        ),
        "flash_attn_kvpacked_func": (lambda q, kv: fa.flash_attn_kvpacked_func(q, kv), (last[0], n(2, 7, 2, 2, 8))),
        "flash_attn_qkvpacked_func": (fa.flash_attn_qkvpacked_func, (n(2, 7 + more, 3, 4, 8),)),
        "flash_attn_varlen_func": (
            lambda q, k: fa.flash_attn_varlen_func(q, k, k * 2, offsets, offsets, 9, 9, causal=True), packed,
        ),
        "flash_attn_varlen_kvpacked_func": (
            lambda q, kv: fa.flash_attn_varlen_kvpacked_func(q, kv, offsets, offsets, 9, 9),
            (packed[0], n(7 + more, 2, 2, 8)),
        ),
        "flash_attn_varlen_qkvpacked_func": (
            lambda qkv: fa.flash_attn_varlen_qkvpacked_func(qkv, offsets, 9), (n(7 + more, 3, 4, 8),),
        ),
        "rope": (lambda x: attikos.rope(x, table, table * 2, positions=int32(1, 2)), (n(2, 3, 5 + more, 8),)),
        "fused_rmsnorm_rope": (
            lambda x, w: attikos.fused_rmsnorm_rope(x, w, table[:4], table[:4] * 2), (x, weight),
        ),
        "fused_gated_mlp": (attikos.fused_gated_mlp, (x, n(5, 16), n(5, 16, seed=9))),
        "fused_gated_mlp that keeps nothing": (
            lambda *t: torch.ops.attikos.fused_gated_mlp(*t, "gelu"), (x, n(5, 16), n(5, 16, seed=9)),
        ),
    }  # fmt: skip


def modules():
    """{name: (module, tensors of a batch of so many)}"""

    class Rotated(attikos.FusedRMSNormRoPE):
        def __init__(self):
            super().__init__(16, 8)
            self.register_buffer("tables", n(2, 4, 8))

        def forward(self, x):
            return super().forward(x, *self.tables)

    return {
        "FusedGatedMLP": (attikos.FusedGatedMLP(16, 5, "gelu"), lambda batch: (n(batch, 4, 16),)),
        "FusedGatedMLP of another type": (attikos.FusedGatedMLP(16, 5), lambda batch: (n(batch, 4, 16).bfloat16(),)),
        "FusedGatedMLP of tokens": (attikos.FusedGatedMLP(16, 5), lambda batch: (n(batch, 16),)),
        "FusedRMSNormRoPE": (Rotated(), lambda batch: (n(batch, 4, 16),)),
        "FusedRMSNormRoPE beside 16 bits": (Rotated(), lambda batch: (n(batch, 4, 16).half(),)),
        "SwiGLU": (attikos.nn.SwiGLU(16, 5), lambda batch: (n(batch, 3, 2, 16),)),
        "RMSNorm": (attikos.nn.RMSNorm(16), lambda batch: (n(batch, 4, 16),)),
        "RMSNorm of a residual stream": (attikos.nn.RMSNorm(16), lambda batch: (n(batch, 4, 16), n(batch, 4, 16, seed=2))),
        "LayerNorm of a residual stream": (
            attikos.nn.LayerNorm((4, 16)), lambda batch: (n(batch, 4, 16), n(batch, 4, 16, seed=2)),
        ),
    }  # fmt: skip


def recorded(tensors):
    return [t.detach().clone().requires_grad_() for t in tensors]


def tuple_of(results):
    return results if isinstance(results, tuple) else (results,)


def gradients(function, tensors):
    """Results, and gradients of all tensors."""
    given = recorded(tensors)
    out = tuple_of(function(*given))
    sum((o * n(*o.shape, seed=i)).sum() for i, o in enumerate(out)).backward()
    return [*(o.detach() for o in out), *(t.grad for t in given)]


class Compiled(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()

    def test_one_graph(self):
        """fullgraph=True: a break would raise."""
        for name, (function, tensors) in calls().items():
            with self.subTest(name):
                compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=BACKEND)
                for found, expected in zip(gradients(compiled, tensors), gradients(function, tensors), strict=True):
                    self.assertTrue(torch.equal(found, expected))

    def test_dynamic_shapes(self):
        """Further shapes take no further compilation."""
        from torch._dynamo.testing import CompileCounterWithBackend

        for name in ("rms_norm", "layer_norm of a residual stream", "gemm", "grouped_gemm", "flash_attn_func"):
            with self.subTest(name):
                torch._dynamo.reset()
                counter = CompileCounterWithBackend(BACKEND)
                compiled = torch.compile(calls()[name][0], fullgraph=True, dynamic=True, backend=counter)
                graphs = []
                for more in (0, 3, 6):
                    function, tensors = calls(more)[name]
                    for found, expected in zip(gradients(compiled, tensors), gradients(function, tensors), strict=True):
                        self.assertTrue(torch.equal(found, expected))
                    graphs.append(counter.frame_count)
                self.assertEqual(graphs, [graphs[0]] * 3)

    def test_graphs_of_first_calls(self):
        """One that was made before any eager call, as in a process that only compiles, serves after such calls."""
        from torch._dynamo.testing import CompileCounter

        never = dict.fromkeys(("_records", "_has_modes", "_has_function_mode", "_level", "_has_autocast"), _border._never)
        for name, (function, tensors) in calls().items():
            closed = (
                mock.patch.dict(_border._tensors, clear=True), mock.patch.dict(_border._ndarrays, clear=True),
                mock.patch.multiple(_border, _met=set(), **never),
            )  # fmt: skip
            with self.subTest(name), closed[0], closed[1], closed[2]:
                torch._dynamo.reset()
                counter = CompileCounter()
                compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=counter)
                compiled(*tensors)
                function(*tensors)
                compiled(*tensors)
                self.assertEqual(counter.frame_count, 1)

    def test_caches(self):
        """New keys are written in place, in a compiled call as in others."""

        def step(q, k_cache, v_cache, k, v, lengths):
            out = fa.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
            again = fa.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=5)
            return out, again, attikos.decode(*(t.transpose(1, 2) for t in (q, k_cache, v_cache)), splits=2)

        tensors = (n(2, 1, 4, 8), n(2, 9, 2, 8), n(2, 9, 2, 8, seed=2), n(2, 1, 2, 8, seed=3), n(2, 1, 2, 8, seed=4))
        found = []
        for way in (step, torch.compile(step, fullgraph=True, backend=BACKEND)):
            given = [t.clone() for t in tensors]
            found.append((*way(*given, int32(3, 6)), *given))
        for one, other in zip(*found):
            self.assertTrue(torch.equal(one, other))
        self.assertFalse(torch.equal(found[0][4], tensors[1]))

    def test_export(self):
        class Model(torch.nn.Module):
            def forward(self, x, w):
                return attikos.rms_norm(attikos.gemm(x, w, activation="relu"), w[0])

        x, w = n(5, 8), n(8, 8)
        exported = torch.export.export(Model(), (x, w), dynamic_shapes={"x": {0: torch.export.Dim("rows")}, "w": None})
        self.assertIn("attikos.gemm", str(exported.graph))
        self.assertTrue(torch.equal(exported.module()(n(9, 8), w), Model()(n(9, 8), w)))

    def test_export_of_modules(self):
        """With any batch, with or without dynamo in front; numbers are those of calls that record nothing."""
        for name, (module, tensors) in modules().items():
            for strict in (False, True):
                with self.subTest(name, strict=strict):
                    given, more = tensors(3), tensors(7)
                    shapes = tuple({0: torch.export.Dim("batch")} for _ in given)
                    exported = torch.export.export(module, given, dynamic_shapes=shapes, strict=strict)
                    self.assertIn("attikos.", str(exported.graph))
                    with torch.no_grad():
                        found, expected = exported.module()(*more), module(*more)
                    for one, other in zip(tuple_of(found), tuple_of(expected), strict=True):
                        self.assertTrue(torch.equal(one, other))

    def test_modules_in_one_graph(self):
        for name, (module, tensors) in modules().items():
            with self.subTest(name):
                torch._dynamo.reset()
                compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=BACKEND)
                for batch in (3, 7):
                    found, expected = (
                        (gradients(way, tensors(batch)), [p.grad.clone() for p in module.parameters()])
                        for way in (compiled, module)
                        if module.zero_grad() is None
                    )
                    for one, other in zip((*found[0], *found[1]), (*expected[0], *expected[1]), strict=True):
                        self.assertTrue(torch.equal(one, other))

    def test_what_has_no_operator(self):
        a = n(4, 4).to(torch.float8_e4m3fn)
        with self.assertRaisesRegex(Exception, "scale_a has no operator of PyTorch"):
            torch.compile(lambda a: attikos.gemm(a, a, scale_a=2.0), fullgraph=True, backend=BACKEND)(a)


class Dispatched(unittest.TestCase):
    def test_opcheck(self):
        """Schemas, fakes, and gradients under AOT autograd, of every operator as the calls above use it."""
        from torch.utils._python_dispatch import TorchDispatchMode

        from attikos import _operators

        class Record(TorchDispatchMode):
            def __init__(self):
                super().__init__()
                self.seen = []

            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                if function.namespace == "attikos":
                    self.seen.append((function, arguments, named or {}))
                return function(*arguments, **(named or {}))

        checked = set()
        for name, (function, tensors) in calls().items():
            with Record() as record:
                gradients(function, tensors)
            self.assertTrue(record.seen, name)
            for operator, arguments, named in record.seen:
                backward = operator._opname.endswith("_backward")
                arguments = [t.detach().clone().requires_grad_(t.is_floating_point() and not backward)
                             if isinstance(t, torch.Tensor) else t for t in arguments]  # fmt: skip
                tests = ("test_schema", "test_faketensor") + (() if backward else ("test_aot_dispatch_dynamic",))
                if operator._opname in checked:  # in other words: that it computes alike with a fake tensor
                    tests = tests[1:2]
                with warnings.catch_warnings():  # it looks at gradients that no one asked for
                    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor", UserWarning)
                    torch.library.opcheck(operator, arguments, named, test_utils=tests)
                checked.add(operator._opname)
        q, cache, new = n(2, 1, 4, 8), n(2, 9, 2, 8), n(2, 1, 2, 8)
        options = (int32(3, 5), None, None, None, None, None, True, [-1, -1], 0.0, True, 0, True)
        torch.library.opcheck(_operators.cache_attention, (q, cache, cache + 1, *options))
        torch.library.opcheck(_operators.append_and_attend, (q, cache, cache + 1, new, new, None, None, *options))
        heads = [x.transpose(1, 2) for x in (q, cache, cache + 1)]
        numbers = (None, False, False, [-1, -1], 0.0, 0, 2, "run_to_run", "", True)
        torch.library.opcheck(_operators.decode, (*heads, *(None,) * 5, int32(3, 5), None, None, None, *numbers))
        self.assertEqual(checked | {"cache_attention", "append_and_attend", "decode"}, set(_operators.KERNELS))

    def test_modes_see_operators(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            x = torch.empty(3, 8)
            self.assertEqual(attikos.rms_norm(x, x[0]).shape, (3, 8))
            q = torch.empty(2, 4, 5, 8, dtype=torch.bfloat16)
            out, lse = attikos.attention(q, q, q, return_lse=True)
            self.assertEqual((out.dtype, lse.dtype, lse.shape), (torch.bfloat16, torch.float32, (2, 4, 5)))
            self.assertEqual(fa.flash_attn_func(q, q, q).shape, q.shape)

    def test_checkpoints(self):
        from torch.utils.checkpoint import checkpoint

        def block(x, w):
            return attikos.attention(*(attikos.gemm(x, w).reshape(1, 2, 5, 4),) * 3).reshape(5, 8)

        tensors = (n(5, 8), n(8, 8))
        for found, expected in zip(
            gradients(lambda *t: checkpoint(block, *t, use_reentrant=False), tensors), gradients(block, tensors)
        ):
            self.assertTrue(torch.equal(found, expected))

    def test_second_derivatives(self):
        x = n(3, 8).requires_grad_()
        compiled = torch.ops.attikos.softmax(x, 1.0)
        (first,) = torch.autograd.grad((compiled * n(3, 8)).sum(), x, create_graph=True)
        with self.assertRaisesRegex(attikos.UnsupportedError, "no second derivatives"):
            first.sum().backward()


if __name__ == "__main__":
    unittest.main()
