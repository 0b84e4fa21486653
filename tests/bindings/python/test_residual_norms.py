# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""rms_norm() and layer_norm() of a residual stream, and their gradients with what went past the norm."""

import contextlib
import importlib
import importlib.util
import unittest
from unittest import mock

import attikos
import ml_dtypes
import numpy as np
import oracles
from attikos import _border
from test_border import long_only, short_only

torch = None
if importlib.util.find_spec("torch"):
    import torch

SHAPES = (70,), (5, 33), (2, 3, 64), (2, 2, 3, 17)
EPS = {"rms_norm": 1e-3, "layer_norm": 1e-2}


def normal(dtype, *shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operands(name, dtype, *shape):
    """x, residual, the vectors, and gradients of the result and of the sum."""
    vectors = [normal(dtype, shape[-1], seed=s) for s in ((3,) if name == "rms_norm" else (3, 4))]
    return normal(dtype, *shape), normal(dtype, *shape, seed=2), vectors, normal(dtype, *shape, seed=5), normal(dtype, *shape, seed=6)


def norm_of(name, x, vectors, **more):
    return getattr(attikos, name)(x, *vectors, EPS[name], **more)


def sum_of(x, residual):
    """As it is stored: 16 bits are added in float32."""
    at_least = np.promote_types(x.dtype, np.float32) if x.dtype.itemsize > 2 else np.float32
    return (x.astype(at_least) + residual.astype(at_least)).astype(x.dtype)


def gradients_of(name, total, weight, dout, past):
    """{name: (exact, bound)} of the gradients at the sum `total`. With h the normalized row, f its factor and c = mean(h w
    g): dx = f (w g - h c) + past, less f mean(w g) of layer_norm; see tolerance_norms.hpp."""
    dtype = total.dtype
    u, n = oracles.unit(oracles.accumulator(dtype)), total.shape[-1]
    s, w, g, p = (oracles.wide(t) for t in (total, weight, dout, past))
    centered = s - s.mean(-1, keepdims=True) if name == "layer_norm" else s
    f = 1 / np.sqrt((centered * centered).mean(-1, keepdims=True) + EPS[name])
    h, wg = centered * f, w * g
    of_mean = (oracles.growth(n) + 3) * u * np.abs(s).max(-1, keepdims=True) if name == "layer_norm" else 0
    e = (oracles.growth(n) + 8) * u + f * of_mean  # of f, relative
    of_h = np.abs(h) * (e + 3 * u) + f * of_mean
    c = (h * wg).mean(-1, keepdims=True)
    of_c = (oracles.growth(n) + 8) * u * np.abs(h * wg).mean(-1, keepdims=True) + (of_h * np.abs(wg)).mean(-1, keepdims=True)
    mean = wg.mean(-1, keepdims=True) if name == "layer_norm" else 0
    of_wg = 4 * u * np.abs(wg) + (oracles.growth(n) + 4) * u * np.abs(wg).mean(-1, keepdims=True)
    inner = wg - mean - h * c
    size = np.abs(wg) + np.abs(mean) + np.abs(h * c)
    exact = f * inner + p
    error = f * (of_wg + of_h * np.abs(c) + np.abs(h) * of_c + (e + 6 * u) * size) + 2 * u * (np.abs(p) + np.abs(exact))
    rows, columns = tuple(range(s.ndim - 1)), s.size // n
    dweight = (g * h).sum(rows)
    of_dweight = (np.abs(g) * (of_h + (oracles.growth(columns) + 4) * u * np.abs(h))).sum(rows)
    found = {"dx": (exact, oracles.stored(exact, error, dtype)),
             "dweight": (dweight, oracles.stored(dweight, of_dweight, weight.dtype))}  # fmt: skip
    if name == "layer_norm":
        dbias = g.sum(rows)
        of_dbias = (oracles.growth(columns) + 4) * u * np.abs(g).sum(rows)
        found["dbias"] = dbias, oracles.stored(dbias, of_dbias, weight.dtype)
    return found


def strided(x):
    """x with a gap behind every element."""
    return np.stack([x, x], -1)[..., 0]


class Arrays(unittest.TestCase):
    def test_values(self):
        for name, oracle in (("rms_norm", oracles.rms_norm), ("layer_norm", oracles.layer_norm)):
            for dtype in oracles.FLOATING:
                for shape in SHAPES:
                    x, residual, vectors, _, _ = operands(name, dtype, *shape)
                    for lay in (np.asarray, strided):
                        what = f"{name} {dtype} {shape} {lay.__name__}"
                        out, total = norm_of(name, lay(x), vectors, residual=lay(residual))
                        np.testing.assert_array_equal(total, sum_of(x, residual), what)
                        self.assertEqual((out.dtype, out.shape), (x.dtype, x.shape))
                        oracles.check(self, out, *oracle(total, *vectors, EPS[name]), what)
                        into = np.zeros_like(x)
                        again, same = norm_of(name, x, vectors, residual=residual, out=into)
                        self.assertIs(again, into)
                        np.testing.assert_array_equal(into, out)
                        np.testing.assert_array_equal(same, total)

    def test_gradients(self):
        names = "dx", "dweight", "dbias"
        for name in EPS:
            back = getattr(attikos, name + "_backward")
            for dtype in oracles.FLOATING:
                for shape in SHAPES:
                    x, residual, (weight, *_), dout, past = operands(name, dtype, *shape)
                    for lay in (np.asarray, strided):
                        found = back(lay(x), weight, lay(dout), EPS[name], residual=lay(past))
                        for what, (exact, bound) in gradients_of(name, x, weight, dout, past).items():
                            got = found[names.index(what)]
                            self.assertEqual(got.dtype, x.dtype)
                            oracles.check(self, got, exact, bound, f"{name} {dtype} {shape} {what}")
                    in_place = past.copy()
                    dx, *_ = back(x, weight, dout, EPS[name], residual=in_place, dx=in_place)
                    self.assertIs(dx, in_place)
                    np.testing.assert_array_equal(dx, found[0])

    def test_float_weights_beside_half(self):
        for name in EPS:
            for dtype in oracles.FLOATING[2:]:
                x, residual, vectors, dout, past = operands(name, dtype, 3, 40)
                wide = [v.astype(np.float32) for v in vectors]
                for one, other in zip(
                    norm_of(name, x, wide, residual=residual), norm_of(name, x, vectors, residual=residual), strict=True
                ):
                    np.testing.assert_array_equal(one, other)
                dx, dweight = getattr(attikos, name + "_backward")(x, wide[0], dout, EPS[name], residual=past)[:2]
                self.assertEqual((dx.dtype, dweight.dtype), (x.dtype, np.float32))

    def test_places(self):
        """Each result where the caller wants it, the sum in place of the stream or of x, too, by either way."""
        for name in EPS:
            for dtype in oracles.FLOATING:
                for shape in SHAPES:
                    x, residual, vectors, _, _ = operands(name, dtype, *shape)
                    want = norm_of(name, x, vectors, residual=residual)
                    # NumPy exports no bfloat16.
                    for way in (short_only, long_only)[dtype == ml_dtypes.bfloat16 :]:
                        for places in (("residual_sum",), ("out", "residual_sum"), ("out",)):
                            places = {place: np.full_like(x, 3) for place in places}
                            with way():
                                found = norm_of(name, x, vectors, residual=residual, **places)
                            for got, wanted, place in zip(found, want, ("out", "residual_sum")):
                                self.assertIs(got, places.get(place, got))
                                np.testing.assert_array_equal(got, wanted, f"{name} {dtype} {shape} {place}")
                        for which in ("x", "residual"):
                            given = {"x": x.copy(), "residual": residual.copy()}
                            with way():
                                out, total = norm_of(
                                    name, given["x"], vectors, residual=given["residual"], residual_sum=given[which]
                                )
                            self.assertIs(total, given[which])
                            np.testing.assert_array_equal(total, want[1])
                            np.testing.assert_array_equal(out, want[0])
                            other = "residual" if which == "x" else "x"
                            np.testing.assert_array_equal(given[other], {"x": x, "residual": residual}[other])

    def test_refused_places(self):
        """By name, and nothing is written."""
        for name in EPS:
            x, residual, vectors, _, _ = operands(name, np.float32, 3, 8)
            place = np.full_like(x, 3)
            frozen = place.copy()
            frozen.flags.writeable = False
            for error, words, more in (
                (attikos.ArgumentError, "residual_sum is given, but residual is None", {"residual_sum": place}),
                (attikos.Error, "out .*residual_sum|residual_sum .*out", {"residual": residual, "out": place, "residual_sum": place}),
                (attikos.ArgumentError, "output out .*residual", {"residual": residual, "out": residual, "residual_sum": x}),
                (attikos.ShapeMismatchError, "residual_sum is", {"residual": residual, "residual_sum": place[:2]}),
                (attikos.UnsupportedDtypeError, "residual_sum is", {"residual": residual, "residual_sum": place.astype(float)}),
                (attikos.ArgumentError, "residual_sum is read-only", {"residual": residual, "residual_sum": frozen}),
            ):  # fmt: skip
                before = x.copy(), residual.copy()
                with self.assertRaisesRegex(error, f"attikos.{name}: .*({words})"):
                    norm_of(name, x, vectors, **more)
                np.testing.assert_array_equal(place, 3)
                np.testing.assert_array_equal(x, before[0])
                np.testing.assert_array_equal(residual, before[1])

    def test_no_rows(self):
        for name in EPS:
            x, residual, vectors, dout, past = operands(name, np.float32, 0, 8)
            self.assertEqual([t.shape for t in norm_of(name, x, vectors, residual=residual)], [(0, 8)] * 2)
            dx, dweight, *_ = getattr(attikos, name + "_backward")(x, vectors[0], dout, residual=past)
            self.assertEqual(dx.shape, (0, 8))
            np.testing.assert_array_equal(dweight, 0)

    def test_errors(self):
        for name in EPS:
            x, residual, vectors, dout, past = operands(name, np.float32, 3, 8)
            back = getattr(attikos, name + "_backward")
            for odd in (residual[0], residual[:2], residual[:, :4], residual[None]):
                with self.assertRaisesRegex(attikos.ShapeMismatchError, rf"attikos.{name}: residual is \[.*x is \[3, 8\]"):
                    norm_of(name, x, vectors, residual=odd)
                with self.assertRaisesRegex(attikos.ShapeMismatchError, rf"{name}_backward: residual is \[.*x is \[3, 8\]"):
                    back(x, vectors[0], dout, residual=odd)
            with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "residual"):
                norm_of(name, x, vectors, residual=residual.astype(np.float64))
            with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "residual"):
                back(x, vectors[0], dout, residual=past.astype(np.float64))
            for place in ("x", "residual"):
                given = {"x": x, "residual": residual}
                before = given[place].copy()
                with self.assertRaisesRegex(attikos.ArgumentError, f"output out .*{place}"):
                    norm_of(name, x, vectors, residual=residual, out=given[place])
                np.testing.assert_array_equal(given[place], before)
            with self.assertRaisesRegex(attikos.ArgumentError, "eps"):
                getattr(attikos, name)(x, *vectors, np.inf, residual=residual)

    def test_explain(self):
        x, residual, vectors, _, _ = operands("rms_norm", np.float32, 3, 8)
        self.assertEqual(attikos.explain("rms_norm", x, *vectors, residual=residual), "runs portable")


def tensor(array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def host(x):
    x = x.detach().contiguous()
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


USED = {"both": (True, True), "out": (True, False), "sum": (False, True)}


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Recorded(unittest.TestCase):
    def given(self, name, dtype, *shape):
        x, residual, vectors, dout, dsum = operands(name, dtype, *shape)
        return [tensor(t) for t in (x, residual, *vectors)], tensor(dout), tensor(dsum)

    def way(self, name):
        return lambda x, residual, *vectors: norm_of(name, x, vectors, residual=residual)

    def gradients(self, function, tensors, dout, dsum, used="both"):
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        results = function(*leaves)
        torch.autograd.backward(*zip(*(
            (r, g) for r, g, yes in zip(results, (dout, dsum), USED[used], strict=True) if yes
        )))  # fmt: skip
        return [*(r.detach() for r in results), *(t.grad for t in leaves)]

    def test_gradients_are_those_of_pytorch(self):
        """Near those of its own operations in float64, from the sum as it is stored on, which both round alike."""
        for name in EPS:
            for dtype in (np.float64, np.float32, ml_dtypes.bfloat16):
                for shape in SHAPES[1:]:
                    tensors, dout, dsum = self.given(name, dtype, *shape)
                    stored = tensor(sum_of(host(tensors[0]), host(tensors[1])))

                    def plain(x, residual, *vectors, stored=stored, name=name):
                        total = x + residual
                        total = total + (stored.double() - total).detach()
                        of = torch.nn.functional.layer_norm if name == "layer_norm" else torch.nn.functional.rms_norm
                        return of(total, total.shape[-1:], *vectors, eps=EPS[name]), total

                    wide = [t.double() for t in (*tensors, dout, dsum)]
                    for used, (has_out, has_sum) in USED.items():
                        found = self.gradients(self.way(name), tensors, dout, dsum, used)
                        exact = self.gradients(plain, wide[:-2], *wide[-2:], used)
                        self.assertTrue(torch.equal(found[1], stored))
                        self.assertTrue(torch.equal(found[2], found[3]))
                        past = host(dsum if has_sum else torch.zeros_like(dsum))
                        ours = dict(zip(("dx", "dweight", "dbias"), (found[2], *found[4:])))
                        theirs = dict(zip(ours, (exact[2], *exact[4:])))
                        if not has_out:
                            self.assertTrue(torch.equal(ours.pop("dx"), dsum))
                            self.assertEqual(set(ours.values()), {None})
                            continue
                        bounds = gradients_of(name, host(stored), host(tensors[2]), host(dout), past)
                        for what, got in ours.items():
                            bound = torch.from_numpy(np.asarray(bounds[what][1]))
                            bound = 2 * bound if dtype == np.float64 else bound  # both have errors of that size
                            worst = float(((got.double() - theirs[what]).abs() / bound).max())
                            self.assertLessEqual(worst, 1, f"{name} {dtype} {shape} {used} {what}")

    def test_every_way_has_the_same_bits(self):
        torch._dynamo.reset()
        importlib.import_module("attikos._operators")
        for name in EPS:
            operator = getattr(torch.ops.attikos, name + "_residual")
            compiled = torch.compile(self.way(name), fullgraph=True, backend="aot_eager")
            ways = {"eager": self.way(name), "compiled": compiled, "operator": lambda *t, o=operator, e=EPS[name]: o(*t, e)}
            for dtype in (np.float32, ml_dtypes.bfloat16):
                tensors, dout, dsum = self.given(name, dtype, 2, 3, 64)
                for used in USED:
                    with long_only():
                        wanted = self.gradients(self.way(name), tensors, dout, dsum, used)
                    for what, way in ways.items():
                        for one, other in zip(self.gradients(way, tensors, dout, dsum, used), wanted, strict=True):
                            if one is None or other is None:  # a graph has zeros where nothing arrives
                                self.assertFalse(any(t is not None and t.any() for t in (one, other)))
                            else:
                                self.assertTrue(torch.equal(one, other), f"{name} {what} {used}")

    def test_one_call_there_and_back(self):
        for name in EPS:
            tensors, dout, dsum = self.given(name, np.float32, 3, 64)
            back = {"both": [name + "_backward_residual"], "out": [name + "_backward"], "sum": []}
            self.way(name)(*tensors)  # opens the short way
            for used, wanted in back.items():
                with short_only(), mock.patch.object(_border, "gradients", wraps=_border.gradients) as called:
                    self.gradients(self.way(name), tensors, dout, dsum, used)
                self.assertEqual([call.args[0] for call in called.call_args_list], wanted)
            with short_only():
                self.way(name)(*tensors)

    def test_what_operators_see(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                if function.namespace == "attikos":
                    added = function._opname.endswith("backward") and len(arguments) > 4 and arguments[4] is not None
                    names.append(function._opname + (" with a residual" if added else ""))
                return function(*arguments, **(named or {}))

        for name in EPS:
            tensors, dout, dsum = self.given(name, np.float32, 3, 64)
            back = {"both": [name + "_backward with a residual"], "out": [name + "_backward"], "sum": []}
            for used, wanted in back.items():
                names = []
                with Seen():
                    self.gradients(self.way(name), tensors, dout, dsum, used)
                self.assertEqual(names, [name + "_residual", *wanted])

    def test_what_is_kept(self):
        """The sum and the weight, of no more than these."""
        for name in EPS:
            for way in (contextlib.nullcontext, long_only):
                leaves = [t.requires_grad_() for t in self.given(name, np.float32, 3, 64)[0]]
                kept = []
                hooks = torch.autograd.graph.saved_tensors_hooks(lambda t, to=kept: to.append(t.clone()) or t, lambda t: t)
                with way(), hooks:
                    _, total = self.way(name)(*leaves)
                self.assertEqual(len(kept), 2)
                self.assertTrue(torch.equal(kept[0], leaves[2]) and torch.equal(kept[1], total))

    def test_only_what_asks_has_a_gradient(self):
        for name in EPS:
            tensors, dout, dsum = self.given(name, np.float32, 3, 64)
            wanted = self.gradients(self.way(name), tensors, dout, dsum)[2:]
            for only in range(len(tensors)):
                leaves = [t.clone().requires_grad_(i == only) for i, t in enumerate(tensors)]
                torch.autograd.backward(self.way(name)(*leaves), (dout, dsum))
                for i, leaf in enumerate(leaves):
                    self.assertTrue(leaf.grad is None if i != only else torch.equal(leaf.grad, wanted[i]))
            with torch.no_grad():
                self.assertFalse(any(t.requires_grad for t in self.way(name)(*leaves)))

    def test_refusals(self):
        for name in EPS:
            tensors, dout, dsum = self.given(name, np.float32, 3, 64)
            leaves = [t.clone().requires_grad_() for t in tensors]
            with self.assertRaisesRegex(attikos.UnsupportedError, "x requires a gradient"):
                norm_of(name, leaves[0], tensors[2:], residual=tensors[1], out=torch.empty_like(dout))
            with self.assertRaisesRegex(attikos.UnsupportedError, "residual requires a gradient"):
                norm_of(name, tensors[0].numpy(), tensors[2:], residual=leaves[1])
            with self.assertRaisesRegex(attikos.UnsupportedError, "residual requires a gradient"):
                getattr(attikos, name + "_backward")(tensors[0], tensors[2], dout, residual=leaves[1])
            for way in (contextlib.nullcontext, long_only):
                with way():
                    found = torch.autograd.grad(self.way(name)(*leaves), leaves, (dout, dsum), create_graph=True)
                for one, other in zip(found, self.gradients(self.way(name), tensors, dout, dsum)[2:], strict=True):
                    self.assertTrue(torch.equal(one, other))
                with self.assertRaisesRegex(attikos.UnsupportedError, "no second derivatives"):
                    sum(t.sum() for t in found).backward()
            with self.assertRaises(attikos.ShapeMismatchError):
                self.way(name)(leaves[0], leaves[1][0], *leaves[2:])

    def test_places(self):
        """A stream in place, of which PyTorch learns; none where it records, nor as an operator."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        for name in EPS:
            x, residual, *vectors = self.given(name, np.float32, 3, 64)[0]
            want = norm_of(name, x, vectors, residual=residual)
            for way in (short_only, long_only):
                stream = residual.clone()
                leaf = torch.ones(3, 64, requires_grad=True)
                saved = (leaf * stream).sum()
                with way(), torch.no_grad():
                    out, total = norm_of(name, x, vectors, residual=stream, residual_sum=stream)
                self.assertIs(total, stream)
                self.assertTrue(torch.equal(out, want[0]) and torch.equal(total, want[1]))
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    saved.backward()
                with way():
                    into = torch.zeros_like(x)
                    out, total = norm_of(name, x, vectors, residual=residual, out=into)
                    self.assertIs(out, into)
                    self.assertTrue(torch.equal(out, want[0]) and torch.equal(total, want[1]))
            place = torch.zeros_like(x)
            for which in (("x",), ("residual",), ("residual_sum",), ("x", "residual_sum")):
                given = {"x": x, "residual": residual, "residual_sum": place}
                given.update((array, given[array].clone().requires_grad_()) for array in which)
                with self.assertRaisesRegex(attikos.UnsupportedError, f"{name}: {which[0]} requires a gradient"):
                    norm_of(name, given.pop("x"), vectors, **given)
            self.assertFalse(place.any())
            with FakeTensorMode() as mode:
                x, residual, *vectors = (mode.from_tensor(t) for t in (x, residual, *vectors))
                with self.assertRaisesRegex(attikos.UnsupportedError, f"{name}: residual_sum has no operator of PyTorch"):
                    norm_of(name, x, vectors, residual=residual, residual_sum=residual)

    def test_explain(self):
        x, residual, weight = self.given("rms_norm", np.float32, 3, 8)[0]
        told = attikos.explain("rms_norm", x.requires_grad_(), weight, residual=residual)
        self.assertEqual(told, "runs portable\ngradients: runs portable")


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Modules(unittest.TestCase):
    def each(self):
        """(module, function of rows and vectors, elements of a row)"""
        for shape in ((64,), (3, 64)):
            for name, kind, more in (("rms_norm", attikos.nn.RMSNorm, {}), ("layer_norm", attikos.nn.LayerNorm, {}),
                                     ("layer_norm", attikos.nn.LayerNorm, {"bias": False})):  # fmt: skip
                module = kind(shape, eps=EPS[name], **more)
                torch.manual_seed(1)
                for parameter in module.parameters():
                    torch.nn.init.normal_(parameter)
                yield name, module, shape

    def test_residual(self):
        """(out, sum) of the rows, and the gradients of all; without it what they were."""
        torch._dynamo.reset()
        for name, module, shape in self.each():
            x, residual, dout, dsum = (tensor(normal(np.float32, 2, 3, 64, seed=s)) for s in range(4))
            size = int(np.prod(shape))
            vectors = [p.detach().flatten() for p in module.parameters()]
            if name == "layer_norm" and len(vectors) == 1:
                vectors.append(torch.zeros(size))
            leaves = [t.reshape(-1, size).clone().requires_grad_() for t in (x, residual)]
            of_vectors = [v.clone().requires_grad_() for v in vectors]
            want = norm_of(name, leaves[0], of_vectors, residual=leaves[1])
            torch.autograd.backward(want, (dout.reshape(-1, size), dsum.reshape(-1, size)))
            for way in (module, torch.compile(module, fullgraph=True, backend="aot_eager")):
                module.zero_grad()
                given = [t.clone().requires_grad_() for t in (x, residual)]
                found = way(given[0], residual=given[1])
                self.assertEqual([t.shape for t in found], [x.shape] * 2)
                torch.autograd.backward(found, (dout, dsum))
                for one, other in zip(found, want, strict=True):
                    self.assertTrue(torch.equal(one.flatten(), other.flatten()))
                for one, other in zip((*given, *module.parameters()), (*leaves, *of_vectors), strict=False):
                    self.assertTrue(torch.equal(one.grad.flatten(), other.grad.flatten()))
            alone = norm_of(name, x.reshape(-1, size), vectors).reshape(x.shape)
            self.assertTrue(torch.equal(module(x), alone) and torch.equal(module(x, None), alone))

    def test_are_pytorchs_own_otherwise(self):
        for name, module, shape in self.each():
            more = {"bias": module.bias is not None} if name == "layer_norm" else {}
            theirs = type(module).__mro__[1](shape, eps=module.eps, **more)
            self.assertEqual(list(module.state_dict()), list(theirs.state_dict()))
            theirs.load_state_dict(module.state_dict())
            model = torch.nn.Sequential(theirs)
            self.assertIn("attikos.nn", attikos.patch(model)[0].became)
            x = tensor(normal(np.float32, 2, 3, 64))
            self.assertTrue(torch.equal(model(x), module(x)))
            self.assertEqual(len(model[0](x, x)), 2)

    def test_errors(self):
        x = tensor(normal(np.float32, 3, 8))
        for kind in (attikos.nn.RMSNorm, attikos.nn.LayerNorm):
            words = rf"attikos.nn.{kind.__name__}: residual has shape \[3\]; expected that of x, \[3, 8\]"
            with self.assertRaisesRegex(attikos.ShapeMismatchError, words):
                kind(8)(x, x[:, 0])
            with self.assertRaisesRegex(attikos.UnsupportedDtypeError, "residual"):
                kind(8)(x, x.double())


if __name__ == "__main__":
    unittest.main()
