# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of the gated MLP, by both products that the forward call kept and without them; and when they are kept."""

import contextlib
import functools
import importlib.util
import unittest
from unittest import mock

import attikos
import ml_dtypes
import numpy as np
import oracles
from attikos import _border, fused
from test_border import long_only

torch = None
if importlib.util.find_spec("torch"):
    import torch

FIRST, SECOND = 1.13, 0.8  # bounds of silu' and silu'', gelu' and gelu''; see tolerance_gated_mlp.hpp


def normal(dtype, *shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operands(dtype, *batch, hidden=24, features=13):
    shapes = (*batch, hidden), (features, hidden), (features, hidden), (*batch, features)
    return [normal(dtype, *shape, seed=seed) for seed, shape in enumerate(shapes)]


def silu(t):
    s = 1 / (1 + np.exp(-t))
    return t * s, s * (1 + t * (1 - s))


def expected(x, gate_weight, up_weight, dout):
    """{name: (exact, bound)} of silu, whose products, and the gradients of these, are stored in the type of x: each
    bound is that of a sum of exact terms, and what the errors of its first factors make of it."""
    dtype = np.asarray(x).dtype
    x, wg, wu, d = (oracles.wide(t) for t in (x, gate_weight, up_weight, dout))
    x, d = x.reshape(-1, x.shape[-1]), d.reshape(-1, d.shape[-1])
    u, mine = oracles.unit(oracles.accumulator(dtype)), oracles.unit(dtype)
    k, tokens, n = x.shape[-1], x.shape[0], wg.shape[0]

    def product(w):
        exact = x @ w.T
        error = (oracles.growth(k) + 6) * u * (np.abs(x) @ np.abs(w).T)
        return exact, error + mine * (np.abs(exact) + error)

    (gate, of_gate), (up, of_up) = product(wg), product(wu)
    act, slope = silu(gate)
    of_act = FIRST * of_gate + (2 * oracles.MATH + 8) * u * np.abs(gate)
    of_slope = SECOND * of_gate + (2 * oracles.MATH + 16) * u * FIRST

    def rounded(exact, error):
        return exact, error + (mine + 2 * u) * (np.abs(exact) + error)

    out = act * up, of_act * (np.abs(up) + of_up) + np.abs(act) * of_up
    dgate = rounded(d * up * slope, np.abs(d) * (of_up * (np.abs(slope) + of_slope) + np.abs(up) * of_slope))
    dup = rounded(d * act, np.abs(d) * of_act)

    def summed(terms, parts, *pairs):
        exact = sum(a @ b for (a, _), b in pairs)
        inherited = sum(e @ np.abs(b) for (_, e), b in pairs)
        sizes = sum(np.abs(a) @ np.abs(b) for (a, _), b in pairs) + inherited
        return exact, oracles.stored(exact, inherited + (oracles.growth(terms) + 6 * parts) * u * sizes, dtype)

    def transposed(pair):
        return tuple(t.T for t in pair)

    return {
        "out": (out[0], oracles.stored(out[0], out[1] + 2 * u * np.abs(out[0]), dtype)),
        "gate": (gate, 2 * of_gate), "up": (up, 2 * of_up),
        "dx": summed(2 * n, 2, (dgate, wg), (dup, wu)),
        "dgate_weight": summed(tokens, 1, (transposed(dgate), x)),
        "dup_weight": summed(tokens, 1, (transposed(dup), x)),
    }  # fmt: skip


class Pair(unittest.TestCase):
    """fused_gated_mlp_kept() and fused_gated_mlp_backward(), which nothing records."""

    def check(self, found, wanted, what):
        for name, value in found.items():
            exact, bound = wanted[name]
            oracles.check(self, np.asarray(value).reshape(exact.shape), exact, bound, f"{what} {name}")

    def test_values(self):
        names = "dx", "dgate_weight", "dup_weight"
        for dtype in oracles.FLOATING:
            for batch in ((5,), (2, 7)):
                given = operands(dtype, *batch)
                wanted = expected(*given)
                out, gate, up = fused.fused_gated_mlp_kept(*given[:3], "silu")
                self.check({"out": out, "gate": gate, "up": up}, wanted, dtype)
                for kept in ((), (gate, up)):
                    found = fused.fused_gated_mlp_backward(*given, "silu", *kept)
                    self.check(dict(zip(names, found, strict=True)), wanted, f"{dtype}, {len(kept)} kept")

    def test_what_is_kept_is_read(self):
        given = operands(np.float64, 3)
        _, gate, up = fused.fused_gated_mlp_kept(*given[:3], "gelu")
        dx, _, dup_weight = fused.fused_gated_mlp_backward(*given, "gelu", gate, 2 * up)
        plain = fused.fused_gated_mlp_backward(*given, "gelu", gate, up)
        np.testing.assert_array_equal(dup_weight, plain[2])
        self.assertTrue((dx != plain[0]).all())

    def test_errors(self):
        given = operands(np.float32, 3)
        _, gate, up = fused.fused_gated_mlp_kept(*given[:3], "silu")
        for name, kept in (("gate", (gate[:, :5], up)), ("up", (gate, up[:2]))):
            says = rf": {name} is .* float32; expected the extents of dout"
            with self.assertRaisesRegex(attikos.ShapeMismatchError, says):
                fused.fused_gated_mlp_backward(*given, "silu", *kept)
        with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "gate is"):
            fused.fused_gated_mlp_backward(*given, "silu", gate.astype(np.float64), up)
        for kept in ((gate, None), (None, up)):
            with self.assertRaisesRegex(attikos.ArgumentError, "expected gate and up, or neither"):
                fused.fused_gated_mlp_backward(*given, "silu", *kept)
        with self.assertRaisesRegex(attikos.ArgumentError, "activation"):
            fused.fused_gated_mlp_kept(*given[:3], "relu")


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Recorded(unittest.TestCase):
    def tensors(self, dtype, *batch):
        arrays = operands(np.float64, *batch)
        return [torch.from_numpy(x).to(dtype) for x in arrays]

    def host(self, x):
        x = x.detach().contiguous()
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()

    def gradients(self, function, given, dout):
        leaves = [t.detach().clone().requires_grad_() for t in given]
        out = function(*leaves)
        out.backward(dout)
        return [out.detach(), *(t.grad for t in leaves)]

    def saved_by(self, function, *given):
        """The shapes of what is saved for a backward pass."""
        shapes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t):
            function(*given)
        return shapes

    def test_gradients_are_those_of_pytorch(self):
        """Both, of operands in one type, are near PyTorch's in float64; in 16 bits as near as PyTorch's own are."""

        def plain(x, gate_weight, up_weight):
            return torch.nn.functional.silu(x @ gate_weight.T) * (x @ up_weight.T)

        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            for batch in ((5,), (2, 7)):
                *given, dout = self.tensors(dtype, *batch)
                exact = self.gradients(plain, [t.double() for t in given], dout.double())
                bounds = expected(*(self.host(t) for t in (*given, dout)))
                for way in (attikos.fused_gated_mlp, plain):
                    found = self.gradients(way, given, dout)
                    for name, one, other in zip(("out", "dx", "dgate_weight", "dup_weight"), found, exact, strict=True):
                        self.assertEqual(one.dtype, dtype)
                        bound = torch.from_numpy(bounds[name][1]).reshape(one.shape)
                        worst = float(((one.double() - other).abs() / bound).max())
                        self.assertLessEqual(worst, 1, f"{dtype} {name} {way.__name__}")

    def test_every_way_has_the_same_bits(self):
        """An eager call, an operator, and a graph; and the pair that nothing records."""
        torch._dynamo.reset()
        compiled = torch.compile(attikos.fused_gated_mlp, fullgraph=True, backend="aot_eager")

        def operator(*given):
            return torch.ops.attikos.fused_gated_mlp_kept(*given, "silu")[0]

        for dtype in (torch.float32, torch.bfloat16):
            *given, dout = self.tensors(dtype, 2, 7)
            out, *kept = fused.fused_gated_mlp_kept(*given, "silu")
            wanted = [out, *fused.fused_gated_mlp_backward(*given, dout, "silu", *kept)]
            for way in (attikos.fused_gated_mlp, compiled, operator):
                for one, other in zip(self.gradients(way, given, dout), wanted, strict=True):
                    self.assertTrue(torch.equal(one, other), dtype)

    def test_projections_are_kept_for_gradients_alone(self):
        *given, _ = self.tensors(torch.bfloat16, 2, 7)
        features = (2, 7, 13)
        self.assertEqual(self.saved_by(attikos.fused_gated_mlp, *given), [])
        for only in range(3):
            leaves = [t.clone().requires_grad_(i == only) for i, t in enumerate(given)]
            self.assertEqual(self.saved_by(attikos.fused_gated_mlp, *leaves).count(features), 2)
            with torch.no_grad():
                self.assertEqual(self.saved_by(attikos.fused_gated_mlp, *leaves), [])
                out = attikos.fused_gated_mlp(*leaves)
            self.assertTrue(torch.equal(out, attikos.fused_gated_mlp(*given)))

    def test_what_operators_see(self):
        """fused_gated_mlp_kept where gradients are recorded, and nowhere else; not in a graph that is exported."""
        from torch.utils._python_dispatch import TorchDispatchMode

        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                if function.namespace == "attikos":
                    kept = sum(isinstance(x, torch.Tensor) for x in arguments) - 4
                    names.append(function._opname + (f" of {kept} kept" if kept > 0 else ""))
                return function(*arguments, **(named or {}))

        names = []
        *given, dout = self.tensors(torch.float32, 5)
        with Seen():
            attikos.fused_gated_mlp(*given)
        self.assertEqual(names, ["fused_gated_mlp"])
        names.clear()
        leaves = [t.clone().requires_grad_() for t in given]
        with Seen():
            attikos.fused_gated_mlp(*leaves).backward(dout)
        self.assertEqual(names, ["fused_gated_mlp_kept", "fused_gated_mlp_backward of 2 kept"])
        of_operator = torch.ops.attikos.fused_gated_mlp_kept(*leaves, "silu")
        self.assertEqual([t.requires_grad for t in of_operator], [True, False, False])
        names.clear()
        with torch.no_grad(), Seen():
            attikos.fused_gated_mlp(*leaves)
        self.assertEqual(names, ["fused_gated_mlp"])

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.up = (torch.nn.Parameter(t) for t in given[1:])

            def forward(self, x):
                return attikos.fused_gated_mlp(x, self.gate, self.up)

        for strict in (False, True):
            graph = str(torch.export.export(Block(), (given[0],), strict=strict).graph)
            self.assertIn("attikos.fused_gated_mlp.default", graph)
            self.assertNotIn("kept", graph)

    def test_a_plain_call_reads_what_it_kept(self):
        *given, dout = self.tensors(torch.float32, 5)
        for way in (contextlib.nullcontext, long_only):
            with way(), mock.patch.object(_border, "gradients", wraps=_border.gradients) as called:
                self.gradients(attikos.fused_gated_mlp, given, dout)
            names = [call.args[0] for call in called.call_args_list]
            self.assertEqual(names, ["gated_mlp_keep", "gated_mlp_backward_kept"])

    def test_checkpoints(self):
        """What they compute again keeps the products; the first pass of the older kind, which records nothing, rounds
        none of them."""
        from torch.utils.checkpoint import checkpoint

        for dtype in (torch.float32, torch.bfloat16):
            *given, dout = self.tensors(dtype, 2, 7)
            wanted = self.gradients(attikos.fused_gated_mlp, given, dout)
            for reentrant in (False, True):
                block = functools.partial(checkpoint, attikos.fused_gated_mlp, use_reentrant=reentrant)
                found = self.gradients(block, given, dout)
                with torch.set_grad_enabled(not reentrant):
                    first = attikos.fused_gated_mlp(*(t.clone().requires_grad_() for t in given))
                for one, other in zip(found, (first, *wanted[1:]), strict=True):
                    self.assertTrue(torch.equal(one, other), f"{dtype} {reentrant}")

    def test_explain(self):
        x, *weights, _ = self.tensors(torch.float32, 5)
        self.assertNotIn("gradients", attikos.explain("fused_gated_mlp", x, *weights))
        told = attikos.explain("fused_gated_mlp", x.requires_grad_(), *weights)
        line = "runs the kernels of gemm, one for each product"
        self.assertEqual(told, f"{line}\ngradients: {line}")


if __name__ == "__main__":
    unittest.main()
