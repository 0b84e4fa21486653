# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linear_cross_entropy and its gradients against float64."""

import importlib.util
import itertools
import unittest

import attikos
import numpy as np
import oracles
import torch_compiler

if importlib.util.find_spec("torch"):
    import torch
else:
    torch = None

# Of 16 bits the logits and their gradients, and dweight with each part.
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
LOSS = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}  # of logits up to 4


def drawn(shape=(3, 101), width=16, classes=37, dtype=np.float64, seed=0):
    draw = np.random.default_rng(seed)
    hidden = draw.standard_normal((*shape, width)).astype(dtype)
    weight = (0.25 * draw.standard_normal((classes, width))).astype(dtype)
    labels = draw.integers(0, classes, shape)
    labels[..., ::7] = -100
    return hidden, weight, labels


def exact(hidden, weight, labels, dloss, smoothing):
    hidden, weight = oracles.wide(hidden), oracles.wide(weight)
    x = hidden @ weight.T
    top = x.max(-1, keepdims=True)
    lse = top + np.log(np.exp(x - top).sum(-1, keepdims=True))
    target = np.full(x.shape, smoothing / x.shape[-1])
    known = labels >= 0
    target[known, labels[known]] += 1 - smoothing
    loss = np.where(known, (target * (lse - x)).sum(-1), 0)
    d = np.where(known, dloss, 0)[..., None] * (np.exp(x - lse) - target)
    return loss, d @ weight, d.reshape(-1, d.shape[-1]).T @ hidden.reshape(-1, hidden.shape[-1])


class Arrays(unittest.TestCase):
    def near(self, got, want, dtype, what):
        self.assertLess(np.linalg.norm(oracles.wide(got) - want), TOLERANCE[np.dtype(dtype).name] * np.linalg.norm(want), what)

    def test_losses_and_gradients(self):
        for dtype, smoothing, at_once in itertools.product(oracles.FLOATING, (0.0, 0.1), (0, 1, 64, 303, 1000)):
            what = f"{np.dtype(dtype)} {smoothing} {at_once}"
            hidden, weight, labels = drawn(dtype=dtype)
            wide = oracles.accumulator(dtype)
            dloss = np.random.default_rng(1).standard_normal(labels.shape).astype(wide)
            options = dict(label_smoothing=smoothing, rows_at_once=at_once)
            loss, dhidden, dweight = exact(hidden, weight, labels, dloss, smoothing)
            got = attikos.linear_cross_entropy(hidden, weight, labels, reduction="none", **options)
            self.assertEqual(got.dtype, wide)
            self.assertLess(np.abs(got - loss).max(), LOSS[np.dtype(dtype).name], what)
            total = attikos.linear_cross_entropy(hidden, weight, labels, reduction="sum", **options)
            mean = attikos.linear_cross_entropy(hidden, weight, labels, **options)
            self.assertAlmostEqual(total / got.sum(), 1, 5)
            self.assertAlmostEqual(mean / (got.sum() / (labels >= 0).sum()), 1, 5)
            for into in ({}, {"dhidden": np.full_like(hidden, np.nan), "dweight": np.full_like(weight, np.nan)}):
                found = attikos.linear_cross_entropy_backward(hidden, weight, labels, dloss, **options, **into)
                for name, g, want in zip(("dhidden", "dweight"), found, (dhidden, dweight)):
                    self.assertEqual(g.dtype, np.dtype(dtype))
                    self.assertIs(into.get(name, g), g)
                    self.near(g, want, dtype, f"{what} {name}")

    def test_dimensions(self):
        hidden, weight, labels = drawn((24,), dtype=np.float32)
        flat = attikos.linear_cross_entropy(hidden, weight, labels, reduction="none")
        for shape in ((1, 24), (4, 6), (2, 3, 4), (2, 2, 2, 3)):
            got = attikos.linear_cross_entropy(
                hidden.reshape(*shape, 16), weight, labels.reshape(shape).astype(np.int32), reduction="none"
            )
            np.testing.assert_array_equal(got, flat.reshape(shape))
        strided = np.full((24, 40), np.nan, np.float32)[:, 1::2][:, :16]
        strided[...] = hidden
        got = attikos.linear_cross_entropy(strided, np.asfortranarray(weight), labels, reduction="none")
        np.testing.assert_allclose(got, flat, rtol=1e-5)
        for rows in (0, 1):
            found = attikos.linear_cross_entropy_backward(
                hidden[:rows], weight, labels[:rows], np.ones(rows, np.float32)
            )
            self.assertEqual([x.shape for x in found], [(rows, 16), (37, 16)])
            self.assertTrue(all((x == 0).all() for x in found))  # row 0 is one that does not count
        with self.assertRaises(attikos.StrideError):
            attikos.linear_cross_entropy(hidden.reshape(4, 6, 16)[:, :5], weight, labels.reshape(4, 6)[:, :5])

    def test_labels_that_are_no_class(self):
        hidden, weight, labels = drawn((6,), dtype=np.float32)
        labels[:] = [0, 37, -1, 36, -100, 2**40]
        loss = attikos.linear_cross_entropy(hidden, weight, labels, reduction="none")
        np.testing.assert_array_equal(np.isnan(loss), [False, True, True, False, False, True])
        dhidden, dweight = attikos.linear_cross_entropy_backward(hidden, weight, labels, np.ones(6, np.float32))
        np.testing.assert_array_equal(np.isnan(dhidden).all(-1), np.isnan(loss))
        self.assertTrue((dhidden[4] == 0).all() and np.isnan(dweight).all())

    def test_wrong_arguments(self):
        hidden, weight, labels = drawn((6,), dtype=np.float32)
        one = np.ones(6, np.float32)
        call, back = attikos.linear_cross_entropy, attikos.linear_cross_entropy_backward
        for run, kind, words in (
            (lambda: call(hidden[0], weight, labels), attikos.ShapeMismatchError, "[..., rows, width]"),
            (lambda: call(hidden, weight[:, :5], labels), attikos.ShapeMismatchError, "expected [classes, 16]"),
            (lambda: call(hidden, weight[:0], labels), attikos.ShapeMismatchError, "at least one class"),
            (lambda: call(hidden, weight.astype(np.float64), labels), attikos.UnsupportedDtypeError, "one type"),
            (lambda: call(hidden.astype(np.int8), weight, labels), attikos.UnsupportedDtypeError, "hidden is"),
            (lambda: call(hidden, weight, labels[:5]), attikos.ShapeMismatchError, "labels is"),
            (lambda: call(hidden, weight, one), attikos.IntegerError, "expected int32 or int64"),
            (lambda: call(hidden, weight, labels, label_smoothing=-1), attikos.ArgumentError, "-1"),
            (lambda: call(hidden, weight, labels, reduction="max"), attikos.ArgumentError, "'max'"),
            (lambda: call(hidden, weight, labels, rows_at_once=-2), attikos.ArgumentError, "rows_at_once is -2"),
            (lambda: back(hidden, weight, labels, one[:5]), attikos.ShapeMismatchError, "dloss is"),
            (lambda: back(hidden, weight, labels, one.astype(np.float64)), attikos.UnsupportedDtypeError, "dloss is"),
            (lambda: back(hidden, weight, labels, one, dweight=weight), attikos.ArgumentError, "dweight"),
        ):  # fmt: skip
            with self.assertRaises(kind) as raised:
                run()
            self.assertIn(words, str(raised.exception))
        self.assertIn("kernels of gemm", attikos.explain("linear_cross_entropy", hidden, weight, labels))


@unittest.skipUnless(torch, "PyTorch is not installed")
class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch_compiler.load()

    def problem(self, dtype, reduction, smoothing=0.1, seed=8):
        """hidden, weight, labels, the gradient of the loss, and PyTorch's loss and gradients in float64."""
        hidden, weight, labels = (torch.from_numpy(a) for a in drawn((2, 150), seed=seed))
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        x, w = (y.double().clone().requires_grad_() for y in (hidden, weight))
        loss = torch.nn.functional.cross_entropy(
            (x @ w.T).flatten(0, 1), labels.flatten(), reduction=reduction, label_smoothing=smoothing
        ).reshape(labels.shape if reduction == "none" else ())
        dloss = torch.randn(loss.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        loss.backward(dloss)
        return hidden, weight, labels, dloss, loss.detach(), x.grad, w.grad

    def near(self, got, want, tolerance, what=""):
        self.assertLess((got.detach().double() - want).norm(), tolerance * want.norm(), what)

    def test_gradients_of_every_reduction(self):
        for dtype, reduction, smoothing in itertools.product(
            (torch.float64, torch.float32, torch.bfloat16, torch.float16), ("mean", "sum", "none"), (0.0, 0.1)
        ):
            name = str(dtype)[6:]
            hidden, weight, labels, dloss, loss, dhidden, dweight = self.problem(dtype, reduction, smoothing)

            def call(x, w, labels):
                return attikos.linear_cross_entropy(
                    x, w, labels, reduction=reduction, label_smoothing=smoothing, rows_at_once=96
                )

            torch._dynamo.reset()
            for way in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
                x, w = (y.clone().requires_grad_() for y in (hidden, weight))
                found = way(x, w, labels)
                found.backward(dloss.to(found.dtype))
                self.assertLess((found.detach().double() - loss).abs().max(), LOSS[name] * (300 if reduction == "sum" else 1))
                self.assertEqual((found.dtype, x.grad.dtype, w.grad.dtype), (
                    torch.float64 if dtype == torch.float64 else torch.float32, dtype, dtype))  # fmt: skip
                for got, want in ((x.grad, dhidden), (w.grad, dweight)):
                    self.near(got, want, TOLERANCE[name], f"{name} {reduction} {smoothing} {way}")
            found = torch.func.grad(lambda x, w: (call(x, w, labels).double() * dloss).sum(), (0, 1))(hidden, weight)
            for got, want in zip(found, (dhidden, dweight)):
                self.near(got, want, TOLERANCE[name], f"{name} {reduction} {smoothing} torch.func")

    def test_one_gradient(self):
        """What is not asked for is not found; what is has the same bits."""
        for reduction, way in itertools.product(("mean", "none"), ("eager", "compiled")):
            hidden, weight, labels, dloss, *_ = self.problem(torch.float32, reduction)

            def call(x, w, labels):
                return attikos.linear_cross_entropy(x, w, labels, reduction=reduction)

            torch._dynamo.reset()
            run = call if way == "eager" else torch.compile(call, fullgraph=True, backend="aot_eager")
            both = [y.clone().requires_grad_() for y in (hidden, weight)]
            run(*both, labels).backward(dloss.float())
            for i in range(2):
                given = [y.clone().requires_grad_(i == j) for j, y in enumerate((hidden, weight))]
                run(*given, labels).backward(dloss.float())
                self.assertTrue(torch.equal(given[i].grad, both[i].grad))
                self.assertIsNone(given[1 - i].grad)
            self.assertFalse(run(hidden, weight, labels).requires_grad)

    def test_backward_again(self):
        """A graph that is kept gives its gradients again, the last time in memory that it held."""
        hidden, weight, labels, *_ = self.problem(torch.float32, "sum")
        x, w = (y.clone().requires_grad_() for y in (hidden, weight))
        loss = attikos.linear_cross_entropy(x, w, labels, reduction="sum", label_smoothing=0.1)
        factors = (2.0, -3.0, 0.5)
        for i, factor in enumerate(factors):
            found = torch.autograd.grad(loss * factor, (x, w), retain_graph=i + 1 < len(factors))
            y, v = (t.double().clone().requires_grad_() for t in (hidden, weight))
            theirs = torch.nn.functional.cross_entropy(
                (y @ v.T).flatten(0, 1), labels.flatten(), reduction="sum", label_smoothing=0.1
            )
            for got, want in zip(found, torch.autograd.grad(theirs * factor, (y, v))):
                self.near(got, want, 1e-5, f"{factor}")
        with self.assertRaises(RuntimeError):
            torch.autograd.grad(loss, (x, w))

    def test_float16_of_a_mean_over_many(self):
        """Gradients of a mean over 10^5 rows, which float16 holds only behind a factor, as GradScaler brings one."""
        hidden, weight, labels = (torch.from_numpy(a) for a in drawn((100000,), 8, 5, np.float16, 2))
        x, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        (attikos.linear_cross_entropy(x, w, labels) * 2.0**16).backward()
        y, v = hidden.double().requires_grad_(), weight.double().requires_grad_()
        (torch.nn.functional.cross_entropy(y @ v.T, labels) * 2.0**16).backward()
        self.near(x.grad, y.grad, 2e-3)
        self.near(w.grad, v.grad, 2e-3)

    def test_autocast(self):
        for reduction in ("mean", "none"):
            hidden, weight, labels, dloss, loss, dhidden, dweight = self.problem(torch.float32, reduction)
            x, w = hidden.bfloat16().requires_grad_(), weight.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                found = attikos.linear_cross_entropy(x, w, labels, reduction=reduction, label_smoothing=0.1)
            self.assertEqual(found.dtype, torch.float32)
            found.backward(dloss.float())
            self.assertEqual((x.grad.dtype, w.grad.dtype), (torch.bfloat16, torch.float32))
            self.near(x.grad, dhidden, 3e-2)
            self.near(w.grad, dweight, 3e-2)
            self.near(found, loss, 2e-2)

    def test_transforms(self):
        hidden, weight, labels, *_ = self.problem(torch.float32, "sum")

        def of_each(x, labels):
            return attikos.linear_cross_entropy(x, weight, labels, reduction="sum")

        many = torch.func.vmap(of_each)(hidden, labels)
        one = torch.stack([of_each(x, y) for x, y in zip(hidden, labels)])
        self.assertLess((many - one).abs().max(), 1e-4)
        gradients = torch.func.vmap(torch.func.grad(of_each))(hidden, labels)
        for x, y, found in zip(hidden, labels, gradients):
            self.near(found, torch.func.grad(of_each)(x, y).double(), 1e-6)

    def test_second_derivatives(self):
        for reduction in ("mean", "none"):
            hidden, weight, labels, *_ = self.problem(torch.float32, reduction)
            x = hidden.clone().requires_grad_()
            loss = attikos.linear_cross_entropy(x, weight, labels, reduction=reduction).sum()
            (found,) = torch.autograd.grad(loss, x, create_graph=True)
            with self.assertRaisesRegex(attikos.UnsupportedError, "second derivatives"):
                found.sum().backward()

            def gradient(x, weight=weight, labels=labels, reduction=reduction):
                def loss(x):
                    return attikos.linear_cross_entropy(x, weight, labels, reduction=reduction).sum()

                return torch.func.grad(loss)(x).square().sum()

            with self.assertRaisesRegex(attikos.UnsupportedError, "second derivatives"):
                torch.func.grad(gradient)(hidden)

    def test_lists_and_kinds_of_labels(self):
        hidden, weight, labels, *_ = self.problem(torch.float32, "mean")
        want = attikos.linear_cross_entropy(hidden[0], weight, labels[0])
        for given in (labels[0].tolist(), labels[0].numpy(), labels[0].to(torch.int16), labels[0].int()):
            self.assertEqual(attikos.linear_cross_entropy(hidden[0], weight, given), want)


if __name__ == "__main__":
    unittest.main()
