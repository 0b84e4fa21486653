# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch does around calls: autocast, vmap, checkpoints, and hooks of distributed training. Numbers are those of
calls that are written out, bit for bit unless a sum has another order."""

import importlib.util
import tempfile
import unittest

import attikos
import torch_compiler
from attikos import flash_attn as fa

torch = None
if importlib.util.find_spec("torch"):
    import torch


def setUpModule():
    torch_compiler.load()


def n(*shape, seed=1, dtype=None):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype or torch.float32)


def tuple_of(result):
    return result if isinstance(result, tuple) else (result,)


def gradients(function, tensors):
    """Results, and gradients of all tensors that have one."""
    given = [t.detach().clone().requires_grad_() for t in tensors]
    out = [o for o in tuple_of(function(*given)) if o is not None]
    sum((o.float() * n(*o.shape, seed=i)).sum() for i, o in enumerate(out)).backward()
    return [*(o.detach() for o in out), *(t.grad for t in given)]


def casts():
    """{name: (function, tensors, how many of the first ones autocast converts)}"""
    a, b, c, d = n(5, 6), n(6, 4, seed=2), n(4, seed=3), n(5, 4, seed=4)
    q, k, v = n(2, 4, 5, 8), n(2, 2, 7, 8, seed=2), n(2, 2, 7, 6, seed=3)
    last = [t.transpose(1, 2) for t in (q, k, v)]
    x, weight = n(3, 4, 16), n(16, seed=2)
    table = n(4, 16, seed=5)
    return {
        "gemm": (attikos.gemm, (a, b), 2),
        "gemm, activation": (lambda a, b, c: attikos.gemm(a, b, bias=c, activation="silu"), (a, b, c), 3),
        "gemm, residual": (lambda *t: attikos.gemm(t[0], t[1], 0.5, 2.0, c=t[2], residual=t[3]), (a, b, d, d + 1), 4),
        "triton_matmul": (attikos.triton_matmul, (a, b), 2),
        "grouped_gemm": (lambda a, b: attikos.grouped_gemm(a, b, torch.tensor([1, 3, 5])), (a, n(2, 6, 4)), 2),
        "masked_gemm": (
            lambda a, b, c: attikos.masked_gemm(a, b, torch.tensor([3, 5]), bias=c, activation="silu"),
            (n(2, 5, 6), n(2, 6, 4), c), 3,
        ),
        "attention": (attikos.attention, (q, k, v), 3),
        "attention, lse": (lambda *t: attikos.attention(*t, causal=True, return_lse=True), (q, k, v), 3),
        "attention, bias": (lambda *t: attikos.attention(*t[:3], bias=t[3]), (q, k, v, n(5, 7)), 4),
        "attention, sinks": (lambda *t: attikos.attention(*t[:3], sinks=t[3]), (q, k, v, n(4)), 3),
        "flash_attention": (lambda *t: attikos.flash_attention(*t, None, True), (q, k, v), 3),
        "flash_attn_func": (fa.flash_attn_func, last, 3),
        "fused_gated_mlp": (attikos.fused_gated_mlp, (x, n(5, 16), n(5, 16, seed=9)), 3),
        "rms_norm": (attikos.rms_norm, (x, weight), 0),
        "layer_norm": (attikos.layer_norm, (x, weight, weight + 1), 0),
        "softmax": (attikos.softmax, (x,), 0),
        "log_softmax": (attikos.log_softmax, (x,), 0),
        "l2_normalize": (attikos.l2_normalize, (x,), 0),
        "mean_pool": (attikos.mean_pool, (x,), 0),
        "rope": (lambda x: attikos.rope(x, table, table), (n(1, 2, 4, 16),), 0),
        "fused_rmsnorm_rope": (lambda x, w: attikos.fused_rmsnorm_rope(x, w, table, table), (x, weight), 0),
        "decode": (lambda *t: attikos.decode(*(x.detach() for x in t)) * t[0].sum(), (q, k, k), 0),
    }  # fmt: skip


class Autocast(unittest.TestCase):
    def under(self, dtype, function):
        def call(*tensors):
            with torch.autocast("cpu", dtype):
                return function(*tensors)

        return call

    def written_out(self, dtype, function, count):
        return lambda *tensors: function(*(t.to(dtype) if i < count else t for i, t in enumerate(tensors)))

    def test_what_each_call_computes_in(self):
        for name, (function, tensors, count) in casts().items():
            for dtype in (torch.bfloat16, torch.float16):
                with self.subTest(name=name, dtype=dtype):
                    found = gradients(self.under(dtype, function), tensors)
                    expected = gradients(self.written_out(dtype, function, count), tensors)
                    self.assertEqual(found[0].dtype, dtype if count else torch.float32)
                    for one, other in zip(found, expected, strict=True):
                        self.assertEqual(one is None, other is None)
                        if one is not None:
                            self.assertEqual(one.dtype, other.dtype)
                            self.assertTrue(torch.equal(one, other))
                    with torch.no_grad():
                        plain, written = (
                            tuple_of(way(*tensors))[0]
                            for way in (self.under(dtype, function), self.written_out(dtype, function, count))
                        )
                    self.assertTrue(torch.equal(plain, written))

    def test_compiled(self):
        for name in ("gemm", "attention", "fused_gated_mlp", "rms_norm"):
            with self.subTest(name):
                torch._dynamo.reset()
                function, tensors, _ = casts()[name]
                under = self.under(torch.bfloat16, function)
                compiled = torch.compile(under, fullgraph=True, backend="aot_eager")
                for one, other in zip(gradients(compiled, tensors), gradients(under, tensors), strict=True):
                    self.assertEqual(one.dtype, other.dtype)
                    self.assertTrue(torch.equal(one, other))

    def test_what_is_not_converted(self):
        a = n(4, 4, dtype=torch.float64)
        q = n(1, 2, 4, 8, dtype=torch.float64)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(attikos.gemm(a, a).dtype, torch.float64)
            self.assertEqual(attikos.attention(q, q, q).dtype, torch.float64)
            self.assertEqual(attikos.gemm(a.float(), a.float(), out_dtype="float32").dtype, torch.float32)
            with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "must match"):
                attikos.gemm(a, a.float())
            with torch.autocast("cpu", enabled=False):
                self.assertEqual(attikos.gemm(a.float(), a.float()).dtype, torch.float32)
        self.assertEqual(attikos.gemm(a.float(), a.float()).dtype, torch.float32)


def mapped():
    """{name: (function of one sample, tensors of which the first dimension is mapped, others)}"""
    q, k, v = n(3, 2, 4, 5, 8), n(3, 2, 2, 7, 8, seed=2), n(3, 2, 2, 7, 6, seed=3)
    last = [t.transpose(2, 3) for t in (q, k, v)]
    x, weight = n(3, 4, 16), n(16, seed=2)
    table = n(4, 16, seed=5)
    a, b = n(3, 5, 6), n(3, 6, 4, seed=2)
    return {
        "rms_norm": (attikos.rms_norm, (x,), (weight,)),
        "rms_norm, weights": (attikos.rms_norm, (x, n(3, 16)), ()),
        "layer_norm": (attikos.layer_norm, (x,), (weight, weight + 1)),
        "rms_norm of a stream": (lambda x, r, w: attikos.rms_norm(x, w, residual=r), (x, x * 2), (weight,)),
        "rms_norm of one stream": (lambda x, r: attikos.rms_norm(x, r[0], residual=r), (x,), (x[0],)),
        "rms_norm of a stream, weights": (lambda x, w, r: attikos.rms_norm(x, w, residual=r), (x, n(3, 16)), (x[0],)),
        "layer_norm of a stream": (lambda x, r, w: attikos.layer_norm(x, w, w, residual=r), (x, x * 2), (weight,)),
        "l2_normalize": (attikos.l2_normalize, (x,), ()),
        "softmax": (lambda x: attikos.softmax(x, 0.5), (x,), ()),
        "log_softmax of a vector": (attikos.log_softmax, (x[:, 0],), ()),
        "mean_pool": (attikos.mean_pool, (n(3, 2, 4, 8),), ()),
        "gemm": (attikos.gemm, (a, b), ()),
        "gemm, one b": (attikos.gemm, (a,), (b[0],)),
        "gemm, one a": (lambda b, a: attikos.gemm(a, b, trans_a=True), (b,), (n(6, 5),)),
        "gemm, epilogue": (
            lambda a, r, b, c: attikos.gemm(a, b, bias=c, residual=r, activation="gelu"), (a, n(3, 5, 4)), (b[0], n(4)),
        ),
        "gemm, biases": (lambda a, c, b: attikos.gemm(a, b, bias=c), (a, n(3, 4)), (b[0],)),
        "gemm of batches": (attikos.gemm, (n(3, 2, 5, 6), n(3, 2, 6, 4)), ()),
        "attention": (lambda *t: attikos.attention(*t, causal=True, return_lse=True), (q, k, v), ()),
        "attention, one cache": (attikos.attention, (q,), (k[0], v[0])),
        "attention of rank 3": (attikos.attention, (q[:, 0], k[:, 0], v[:, 0]), ()),
        "attention, bias": (lambda q, bias, k, v: attikos.attention(q, k, v, bias=bias), (q, n(3, 5, 7)), (k[0], v[0])),
        "flash_attn_func": (fa.flash_attn_func, last, ()),
        "rope": (lambda x, t: attikos.rope(x, t, t), (n(3, 1, 2, 4, 16),), (table,)),
        "fused_gated_mlp": (attikos.fused_gated_mlp, (n(3, 4, 16),), (n(5, 16), n(5, 16, seed=9))),
    }  # fmt: skip


class Vmap(unittest.TestCase):
    def close(self, one, other, what):
        # a batch of products may be summed in another order than each
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, msg=lambda text: f"{what}: {text}")

    def each(self, function, batched, others):
        found = [tuple_of(function(*(t[i] for t in batched), *others)) for i in range(len(batched[0]))]
        return [torch.stack(parts) for parts in zip(*found)]

    def test_results(self):
        for name, (function, batched, others) in mapped().items():
            dims = (0,) * len(batched) + (None,) * len(others)
            expected = self.each(function, batched, others)
            found = tuple_of(torch.func.vmap(function, dims)(*batched, *others))
            for one, other in zip(found, expected, strict=True):
                self.close(one, other, name)
            moved = [t.movedim(0, -1) for t in batched]
            dims = (-1,) * len(batched) + (None,) * len(others)
            for one, other in zip(tuple_of(torch.func.vmap(function, dims)(*moved, *others)), expected, strict=True):
                self.close(one, other, name)

    def test_gradients_of_each_sample(self):
        for name, (function, batched, others) in mapped().items():
            count = len(batched) + (0 if name == "rope" else len(others))

            def loss(*tensors, function=function):
                return sum((o * torch.linspace(-1, 1, o.numel()).reshape(o.shape)).sum() for o in tuple_of(function(*tensors)))

            gradient = torch.func.grad(loss, tuple(range(count)))
            dims = (0,) * len(batched) + (None,) * len(others)
            found = torch.func.vmap(gradient, dims)(*batched, *others)
            expected = []
            for i in range(len(batched[0])):
                given = [t.detach().clone() for t in (*(t[i] for t in batched), *others)]
                for t in given[:count]:
                    t.requires_grad_()
                expected.append(torch.autograd.grad(loss(*given), given[:count]))
            for one, parts in zip(found, zip(*expected), strict=True):
                self.close(one, torch.stack(parts), name)

    def test_results_that_nothing_records(self):
        function, batched, others = mapped()["fused_gated_mlp"]
        with torch.no_grad():
            (expected,) = self.each(function, batched, others)
            self.close(torch.func.vmap(function, (0, None, None))(*batched, *others), expected, "fused_gated_mlp")

    def test_decode(self):
        q, k, v = n(3, 2, 4, 1, 8), n(3, 2, 2, 7, 8, seed=2), n(3, 2, 2, 7, 8, seed=3)
        (expected,) = self.each(attikos.decode, (q, k, v), ())
        self.close(torch.func.vmap(attikos.decode)(q, k, v), expected, "decode")

    def test_nested(self):
        x = n(2, 3, 4, 8)
        found = torch.func.vmap(torch.func.vmap(attikos.softmax))(x)
        self.assertTrue(torch.equal(found, attikos.softmax(x)))


class Model(torch.nn.Module if torch else object):
    """A block of attention between products, as training has them."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            [torch.nn.Parameter(n(*shape, seed=i) / 3) for i, shape in enumerate(((8, 24), (8, 8), (8,)))]
        )

    def forward(self, x):
        up, down, scale = self.weights
        y = attikos.rms_norm(x, scale)
        q, k, v = (t.reshape(2, -1, 2, 4).transpose(1, 2) for t in attikos.gemm(y, up).chunk(3, -1))
        return x + attikos.gemm(attikos.attention(q, k, v, causal=True).transpose(1, 2).reshape(x.shape), down)


class Training(unittest.TestCase):
    def test_checkpoints(self):
        from torch.utils.checkpoint import checkpoint

        for reentrant in (False, True):
            for autocast in (False, True):
                with self.subTest(reentrant=reentrant, autocast=autocast):
                    found = []
                    for kept in (True, False):
                        model, x = Model(), n(10, 8).requires_grad_()
                        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                            out = model(x) if kept else checkpoint(model, x, use_reentrant=reentrant)
                        out.float().square().sum().backward()
                        found.append([out, x.grad, *(p.grad for p in model.parameters())])
                    for one, other in zip(*found, strict=True):
                        self.assertTrue(torch.equal(one, other))

    def test_hooks(self):
        """Those of tensors, and those that run when a gradient is there, as distributed training has them."""
        model, seen = Model(), []
        for i, p in enumerate(model.parameters()):
            p.register_post_accumulate_grad_hook(lambda p, i=i: seen.append((i, p.grad.clone())))
        x = n(10, 8)
        out = model(x)
        doubled = model(x)
        doubled.register_hook(lambda g: g * 2)
        out.square().sum().backward()
        first = [p.grad.clone() for p in model.parameters()]
        self.assertEqual(sorted(i for i, _ in seen), [0, 1, 2])
        for i, gradient in seen:
            self.assertTrue(torch.equal(gradient, first[i]))
        model.zero_grad()
        doubled.square().sum().backward()
        for p, gradient in zip(model.parameters(), first):
            torch.testing.assert_close(p.grad, 2 * gradient)

    def test_distributed(self):
        """Buckets are reduced, by a hook of the caller's, while the backward pass runs."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_gloo_available()):
            self.skipTest("PyTorch is built without gloo")
        with tempfile.NamedTemporaryFile() as store:
            distributed.init_process_group("gloo", init_method=f"file://{store.name}.store", rank=0, world_size=1)
            try:
                model, buckets = Model(), []
                parallel = torch.nn.parallel.DistributedDataParallel(model)

                def hook(state, bucket):
                    buckets.append(bucket.buffer().clone())
                    future = torch.futures.Future()
                    future.set_result(bucket.buffer() * 3)
                    return future

                parallel.register_comm_hook(None, hook)
                x, alone = n(10, 8), Model()
                for _ in range(2):
                    for each, factor in ((parallel, 1), (alone, 3)):
                        each.zero_grad()
                        (factor * each(x).square().sum()).backward()
                self.assertGreaterEqual(len(buckets), 2)
                for one, other in zip(model.parameters(), alone.parameters(), strict=True):
                    torch.testing.assert_close(one.grad, other.grad)
            finally:
                distributed.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
