# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients as PyTorch brings them to recorded calls: with strides that nobody chose. Whatever those are, the gradients
of the inputs are those of a dense gradient of the same numbers, bit for bit, by every way that a call goes."""

import contextlib
import importlib
import importlib.util
import unittest

import attikos
from test_border import long_only

torch = None
if importlib.util.find_spec("torch"):
    import torch

    from attikos.rows import arrived


def n(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def calls():
    """{name: (function, tensors that have gradients)}, of rows in as many dimensions as they may have."""
    x, weight, bias = n(2, 3, 4, 16), n(16, seed=2), n(16, seed=3)
    more = n(2, 3, 2, 4, 8, seed=4)
    labels = torch.arange(24).reshape(2, 3, 4) % 16
    cos, sin = n(4, 16, seed=5), n(4, 16, seed=6)
    attended = n(2, 4, 5, 8), n(2, 2, 7, 8, seed=2), n(2, 2, 7, 6, seed=3)
    return {
        "rms_norm": (attikos.rms_norm, (x, weight)),
        "layer_norm": (attikos.layer_norm, (x, weight, bias)),
        "rms_norm of a residual stream": (lambda x, r, w: attikos.rms_norm(x, w, residual=r), (x, x * 2, weight)),
        "layer_norm of a residual stream": (
            lambda x, r, w, b: attikos.layer_norm(x, w, b, residual=r), (x, x * 2, weight, bias),
        ),
        "l2_normalize": (attikos.l2_normalize, (x,)),
        "softmax": (lambda x: attikos.softmax(x, 0.5), (x,)),
        "softmax of five dimensions": (attikos.softmax, (more,)),
        "log_softmax": (attikos.log_softmax, (x,)),
        "nn.RMSNorm": (attikos.nn.RMSNorm((4, 16)), (x,)),
        "nn.LayerNorm": (attikos.nn.LayerNorm(16), (x,)),
        "cross_entropy": (lambda x: attikos.cross_entropy(x, labels, reduction="none"), (x,)),
        "linear_cross_entropy": (
            lambda x, w: attikos.linear_cross_entropy(x, w, labels, reduction="none"), (x, n(16, 16, seed=7)),
        ),
        "embedding": (lambda table: attikos.embedding(table, labels), (n(16, 8),)),
        "mean_pool": (lambda x: attikos.mean_pool(x, torch.tensor([4, 1, 2], dtype=torch.int32)), (n(3, 4, 16),)),
        "rope": (lambda x: attikos.rope(x, cos, sin), (x,)),
        "fused_rmsnorm_rope": (lambda x, w: attikos.fused_rmsnorm_rope(x, w, cos, sin), (n(3, 4, 16), weight)),
        "fused_gated_mlp": (attikos.fused_gated_mlp, (n(3, 4, 16), n(5, 16), n(5, 16, seed=9))),
        "gemm": (lambda a, b, c: attikos.gemm(a, b, bias=c, activation="silu"), (n(2, 5, 6), n(2, 6, 4), n(4))),
        "attention": (lambda q, k, v: attikos.attention(q, k, v, causal=True, return_lse=True), attended),
    }  # fmt: skip


def layouts(x):
    """{name: numbers in some order of memory}; those that are expanded have fewer of them."""
    last = list(range(x.dim()))
    found = {
        "reversed": x.permute(last[::-1]).contiguous().permute(last[::-1]),
        "sliced": x.repeat_interleave(2, -1)[..., ::2],
        "of one number": x.flatten()[0].expand(x.shape),
    }
    if x.dim() > 1:
        found["transposed"] = x.transpose(0, 1).contiguous().transpose(0, 1)
        found["transposed at the end"] = x.transpose(-1, -2).contiguous().transpose(-1, -2)
        found["sliced in the middle"] = x.repeat_interleave(2, 1)[:, ::2]
        found["sliced everywhere"] = torch.stack([x] * 2**x.dim(), -1)[..., 0]
        found["of one row"] = x[:1].expand(x.shape)
        found["of one column"] = x[..., :1].expand(x.shape)
        found["of one in the middle"] = x[:, :1].expand(x.shape)
        whole = x.new_full([3 * extent for extent in x.shape], float("nan"))
        inner = whole[tuple(slice(extent, 2 * extent) for extent in x.shape)]
        inner.copy_(x)
        found["amid others"] = inner
    return found


@contextlib.contextmanager
def as_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            return function(*arguments, **(named or {}))

    with Seen():
        yield


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Strides(unittest.TestCase):
    def setUp(self):
        importlib.import_module("attikos._operators")

    def test_every_layout_by_every_way(self):
        for name, (function, tensors) in calls().items():
            for way in (contextlib.nullcontext, long_only, as_operators):
                leaves = [t.clone().requires_grad_() for t in tensors]
                with way():
                    results = function(*leaves)
                    results = results if isinstance(results, tuple) else (results,)
                    dense = [n(*r.shape, seed=11 + i) for i, r in enumerate(results)]
                    for i, result in enumerate(results):
                        for what, gradient in layouts(dense[i]).items():
                            self.assertFalse(gradient.is_contiguous(), what)
                            found, expected = (
                                torch.autograd.grad(results, leaves, [*dense[:i], g, *dense[i + 1 :]], retain_graph=True)
                                for g in (gradient, gradient.contiguous())
                            )
                            for one, other in zip(found, expected, strict=True):
                                self.assertTrue(torch.equal(one, other), f"{name}, result {i}, {what}, {way.__name__}")

    def test_of_what_comes_behind(self):
        """Strides that come of PyTorch's own backward passes, near its own functions in float64."""
        for what, behind in {
            "transpose": lambda y: y.transpose(0, 1).reshape(3, -1) ** 2,
            "permute": lambda y: y.permute(2, 0, 1, 3).contiguous() ** 2,
            "sum": lambda y: y.sum((0, 2)), "slice": lambda y: y[:, 1:, ::2, 3:] ** 2, "select": lambda y: y[:, 1, :, 5],
        }.items():  # fmt: skip
            weight = n(2, 3, 4, 16, seed=8)
            for name, plain in {
                "softmax": lambda x: torch.softmax(x, -1), "log_softmax": lambda x: torch.log_softmax(x, -1),
                "l2_normalize": lambda x: torch.nn.functional.normalize(x, dim=-1),
            }.items():  # fmt: skip
                x = n(2, 3, 4, 16).double()
                found, exact = (
                    torch.autograd.grad(behind(f(leaf) * weight.double()).sum(), leaf)[0]
                    for f in (getattr(attikos, name), plain)
                    for leaf in (x.clone().requires_grad_(),)
                )
                # Rows of 16 in float64, of numbers below 10 and three products each: 1e-12 is a thousand roundings.
                self.assertLess(float((found - exact).abs().max()), 1e-12, f"{name} {what}")

    def test_only_what_has_to_be_is_copied(self):
        x = n(2, 3, 4, 16)
        for name, gradient in {"dense": x, **layouts(x)}.items():
            first, second = gradient.stride()[:2]
            got = arrived(gradient)
            if first == 3 * second:
                self.assertIs(got, gradient, name)
            else:
                self.assertTrue(got.is_contiguous() and torch.equal(got, gradient), name)
            self.assertEqual(arrived(gradient[0]).data_ptr(), gradient[0].data_ptr())
            self.assertIs(arrived(gradient, 4), gradient)
        self.assertIsNone(arrived(None))
        self.assertTrue(any(arrived(g) is g for g in layouts(x).values()))
        self.assertFalse(all(arrived(g) is g for g in layouts(x).values()))

    def test_explicit_calls_copy_nothing(self):
        """A call whose strides are the caller's own is refused, as one of the forward pass is, and writes nothing."""
        x, weight = n(2, 3, 4, 16), n(16, seed=2)
        dout = layouts(n(2, 3, 4, 16, seed=3))["transposed"]
        for name in ("softmax", "log_softmax", "l2_normalize"):
            with self.assertRaisesRegex(attikos.StrideError, rf"{name}_backward: dout is .*can be joined"):
                getattr(attikos, name + "_backward")(x, dout)
            with self.assertRaisesRegex(attikos.StrideError, f"{name}: x is .*can be joined"):
                getattr(attikos, name)(dout)
        for name in ("rms_norm", "layer_norm"):
            back = getattr(attikos, name + "_backward")
            with self.assertRaisesRegex(attikos.StrideError, rf"{name}_backward: dout is .*can be joined"):
                back(x, weight, dout)
            with self.assertRaisesRegex(attikos.StrideError, rf"{name}_backward: residual is .*can be joined"):
                back(x, weight, x, residual=dout)
        lse = dout[..., 0].contiguous()
        with self.assertRaisesRegex(attikos.StrideError, "cross_entropy_backward: dloss is .*can be joined"):
            attikos.cross_entropy_backward(x, torch.zeros(2, 3, 4, dtype=torch.int64), lse, dout[..., 0])


if __name__ == "__main__":
    unittest.main()
