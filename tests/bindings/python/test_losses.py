# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""cross_entropy, its gradient and attikos.nn.CrossEntropyLoss against float64."""

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

CLASSES = (1, 2, 37, 4100)


def drawn(rows, classes, dtype, seed=0, label_dtype=np.int64, ignored=-100):
    draw = np.random.default_rng(seed)
    x = (3 * draw.standard_normal((rows, classes))).astype(dtype)
    labels = draw.integers(0, classes, rows).astype(label_dtype)
    labels[::5] = ignored
    return x, labels


def exact_loss(x, labels, smoothing, ignored=-100):
    """Losses, log-sum-exps, and the bounds of both (tolerance_norms.hpp, CrossEntropyBound)."""
    u = oracles.unit(oracles.accumulator(x.dtype))
    x = oracles.wide(x)
    n = x.shape[-1]
    top = x.max(-1, keepdims=True)
    lse = top[..., 0] + np.log(np.exp(x - top).sum(-1))
    target = np.full(x.shape, smoothing / n)
    known = (labels >= 0) & (labels < n)
    np.put_along_axis(
        target, np.where(known, labels, 0)[..., None],
        np.take_along_axis(target, np.where(known, labels, 0)[..., None], -1) + (1 - smoothing), -1,
    )  # fmt: skip
    loss = (target * (lse[..., None] - x)).sum(-1)
    loss = np.where(labels == ignored, 0, np.where(known, loss, np.nan))
    largest, distance = np.abs(x).max(-1), top - x
    log_sum = np.expm1(2 * u * largest + oracles.MATH * u) + (oracles.growth(n) + oracles.MATH * (np.log(n) + 1)) * u
    terms = (target * distance).sum(-1)
    error = log_sum + (oracles.growth(n) + 7) * u * terms + 2 * u * (np.log(n) + terms)
    return loss, lse, target, 2 * error + u * np.abs(loss), 2 * (log_sum + 2 * u * (np.abs(lse) + np.log(n)))


class Arrays(unittest.TestCase):
    def test_losses(self):
        for dtype, classes, smoothing in itertools.product(oracles.FLOATING, CLASSES, (0.0, 0.1, 1.0)):
            for label_dtype in (np.int32, np.int64):
                x, labels = drawn(13, classes, dtype, classes, label_dtype)
                loss, _, _, bound, _ = exact_loss(x, labels, smoothing)
                got = attikos.cross_entropy(x, labels, label_smoothing=smoothing, reduction="none")
                self.assertEqual(got.dtype, oracles.accumulator(dtype))
                oracles.check(self, got, loss, bound, f"{dtype} {classes} {smoothing}")
                kept = labels != -100
                total = attikos.cross_entropy(x, labels, label_smoothing=smoothing, reduction="sum")
                mean = attikos.cross_entropy(x, labels, label_smoothing=smoothing)
                self.assertAlmostEqual(float(total), loss.sum(), delta=bound.sum() + 1e-5 * abs(loss.sum()))
                self.assertAlmostEqual(float(mean), loss[kept].mean(), delta=bound.sum() + 1e-5 * abs(loss.sum()))

    def test_gradients(self):
        for dtype, classes, smoothing in itertools.product(oracles.FLOATING, CLASSES, (0.0, 0.3)):
            x, labels = drawn(11, classes, dtype, classes + 1)
            _, lse, target, _, _ = exact_loss(x, labels, smoothing)
            wide = oracles.accumulator(dtype)
            lse = lse.astype(wide)
            dloss = np.random.default_rng(3).standard_normal(11).astype(wide)
            p = np.exp(oracles.wide(x) - oracles.wide(lse)[:, None])
            g = np.where(labels == -100, 0, oracles.wide(dloss))[:, None]
            exact = g * (p - target)
            u = oracles.unit(wide)
            distance = np.abs(oracles.wide(x) - oracles.wide(lse)[:, None])
            error = np.abs(g) * (p * np.expm1(u * distance + oracles.MATH * u) + 4 * u * (p + target) + 2.0**-126)
            bound = oracles.stored(exact, error, dtype)
            for into in (None, np.full_like(x, np.nan), x.copy()):
                given = x if into is None or np.isnan(oracles.wide(into)).all() else into  # the last in place
                got = attikos.cross_entropy_backward(
                    given, labels, lse, dloss, label_smoothing=smoothing, dlogits=into
                )
                self.assertIs(got is into, into is not None)
                oracles.check(self, got, exact, bound, f"{dtype} {classes} {smoothing}")

    def test_dimensions_and_strides(self):
        x, labels = drawn(24, 19, np.float32, 5)
        flat = attikos.cross_entropy(x, labels, reduction="none")
        for shape in ((24,), (4, 6), (2, 3, 4), (2, 2, 2, 3)):
            got = attikos.cross_entropy(x.reshape(*shape, 19), labels.reshape(shape), reduction="none")
            np.testing.assert_array_equal(got, flat.reshape(shape))
        strided = np.full((24, 40), np.nan, np.float32)[:, 1::2][:, :19]
        strided[...] = x
        oracles.check(self, attikos.cross_entropy(strided, labels, reduction="none"), *exact_loss(x, labels, 0)[::3])
        for rows in (0, 1):
            none = attikos.cross_entropy(x[:rows], labels[:rows], reduction="none")
            self.assertEqual(none.shape, (rows,))
        self.assertTrue(np.isnan(attikos.cross_entropy(x[:0], labels[:0])))
        self.assertTrue(np.isnan(attikos.cross_entropy(x[:1], labels[:1] * 0 - 100)))
        listed = attikos.cross_entropy(x[1:3], [int(n) for n in labels[1:3]], reduction="none")
        np.testing.assert_array_equal(listed, flat[1:3])
        labels[::5] = 3
        whole = attikos.cross_entropy(x, labels)
        for kind in (np.int8, np.int16, np.uint8, np.uint64):
            self.assertEqual(attikos.cross_entropy(x, labels.astype(kind)), whole)
        if torch:
            for kind in (torch.int8, torch.int16, torch.uint8, torch.int32):
                self.assertEqual(attikos.cross_entropy(torch.from_numpy(x), torch.from_numpy(labels).to(kind)), whole)

    def test_labels_that_are_no_class(self):
        x, labels = drawn(6, 9, np.float32, 6)
        labels[:] = [0, 9, -1, 8, -100, 2**40]
        loss = attikos.cross_entropy(x, labels, reduction="none")
        np.testing.assert_array_equal(np.isnan(loss), [False, True, True, False, False, True])
        self.assertEqual(loss[4], 0)
        lse, one = np.zeros(6, np.float32), np.ones(6, np.float32)
        found = attikos.cross_entropy_backward(x, labels, lse, one)
        np.testing.assert_array_equal(np.isnan(found).all(-1), np.isnan(loss))
        np.testing.assert_array_equal(np.isnan(found).any(-1), np.isnan(loss))
        self.assertTrue((found[4] == 0).all())
        self.assertEqual(attikos.cross_entropy(x[:1], labels[1:2], ignore_index=9, reduction="none"), 0)

    def test_wrong_arguments(self):
        x, labels = drawn(6, 9, np.float32)
        lse = np.zeros(6, np.float32)
        for call, kind, words in (
            (lambda: attikos.cross_entropy(x[0], labels[:0]), attikos.ShapeMismatchError, "rows, classes"),
            (lambda: attikos.cross_entropy(x[:, :0], labels), attikos.ShapeMismatchError, "at least one class"),
            (lambda: attikos.cross_entropy(x, labels[:5]), attikos.ShapeMismatchError, "labels is"),
            (lambda: attikos.cross_entropy(x, x[:, 0]), attikos.IntegerError, "expected int32 or int64"),
            (lambda: attikos.cross_entropy(x.astype(np.int8), labels), attikos.UnsupportedDtypeError, "logits is"),
            (lambda: attikos.cross_entropy(x, labels, label_smoothing=1.5), attikos.ArgumentError, "1.5"),
            (lambda: attikos.cross_entropy(x, labels, reduction="max"), attikos.ArgumentError, "'max'"),
            (lambda: attikos.cross_entropy(x, labels, ignore_index=0.5), attikos.ArgumentError, "ignore_index"),
            (lambda: attikos.cross_entropy_backward(x, labels, lse[:5], lse), attikos.ShapeMismatchError, "lse is"),
            (lambda: attikos.cross_entropy_backward(x, labels, lse, lse.astype(np.float64)),
             attikos.UnsupportedDtypeError, "dloss is"),
            (lambda: attikos.cross_entropy_backward(x, labels, lse, lse, dlogits=x[:, ::-1]),
             attikos.ArgumentError, ""),
        ):  # fmt: skip
            with self.assertRaises(kind) as raised:
                call()
            self.assertIn(words, str(raised.exception))
        self.assertEqual(attikos.explain("cross_entropy", x, labels), "runs portable")


@unittest.skipUnless(torch, "PyTorch is not installed")
class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch_compiler.load()

    def test_gradients_of_every_reduction(self):
        types = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
        for (dtype, tolerance), reduction, smoothing in itertools.product(
            types.items(), ("mean", "sum", "none"), (0.0, 0.2)
        ):
            x, labels = (torch.from_numpy(a) for a in drawn(15, 33, np.float64, 8))
            x = x.to(dtype)
            theirs = x.double().clone().requires_grad_()
            expected = torch.nn.functional.cross_entropy(
                theirs, labels, reduction=reduction, label_smoothing=smoothing
            )
            mine = x.clone().requires_grad_()
            loss = attikos.cross_entropy(mine, labels, reduction=reduction, label_smoothing=smoothing)
            direction = torch.randn(expected.shape, dtype=torch.float64)
            expected.backward(direction)
            loss.backward(direction.to(loss.dtype))
            self.assertEqual(loss.dtype, torch.float64 if dtype == torch.float64 else torch.float32)
            self.assertEqual(mine.grad.dtype, dtype)
            self.assertLess((loss.double() - expected).abs().max(), 1e-5 * max(1, expected.abs().max()))
            self.assertLess((mine.grad.double() - theirs.grad).norm(), tolerance * theirs.grad.norm())

    def test_graphs_and_transforms(self):
        x, labels = (torch.from_numpy(a) for a in drawn(12, 21, np.float32, 9))

        def loss(x, labels):
            return attikos.cross_entropy(x, labels, label_smoothing=0.1)

        eager = x.clone().requires_grad_()
        loss(eager, labels).backward()
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        traced = x.clone().requires_grad_()
        compiled(traced, labels).backward()
        self.assertTrue(torch.equal(traced.grad, eager.grad))
        self.assertTrue(torch.equal(torch.func.grad(loss)(x, labels), eager.grad))
        many = torch.func.vmap(lambda a, b: attikos.cross_entropy(a, b, reduction="sum"))(
            x.unflatten(0, (3, 4)), labels.unflatten(0, (3, 4))
        )
        self.assertLess((many.sum() - attikos.cross_entropy(x, labels, reduction="sum")).abs(), 1e-4)
        twice = torch.autograd.grad(loss(eager, labels), eager, create_graph=True)[0]
        with self.assertRaisesRegex(attikos.UnsupportedError, "second derivatives"):
            twice.sum().backward()

    def test_module(self):
        draw = torch.Generator().manual_seed(1)
        for shape in ((7,), (5, 7), (3, 7, 4), (2, 7, 3, 2)):
            x = torch.randn(shape, generator=draw)
            target = torch.randint(7, (*shape[:1], *shape[2:])[len(shape) == 1 :], generator=draw)
            for reduction, smoothing, ignored in itertools.product(("mean", "sum", "none"), (0.0, 0.1), (-100, 3)):
                given = dict(reduction=reduction, label_smoothing=smoothing, ignore_index=ignored)
                if len(shape) == 1 and int(target) == ignored:
                    continue
                theirs, mine = x.clone().requires_grad_(), x.clone().requires_grad_()
                expected = torch.nn.CrossEntropyLoss(**given)(theirs, target)
                found = attikos.nn.CrossEntropyLoss(**given)(mine, target)
                self.assertEqual(found.shape, expected.shape)
                self.assertEqual(found.dtype, expected.dtype)
                torch.testing.assert_close(found, expected)
                expected.sum().backward()
                found.sum().backward()
                torch.testing.assert_close(mine.grad, theirs.grad)
        x, weight = torch.randn(5, 7, generator=draw), torch.rand(7, generator=draw)
        target, shares = torch.randint(7, (5,), generator=draw), torch.rand(5, 7, generator=draw)
        for module, given in ((dict(weight=weight), target), ({}, shares)):  # PyTorch's own
            found = attikos.nn.CrossEntropyLoss(**module)(x, given)
            self.assertTrue(torch.equal(found, torch.nn.CrossEntropyLoss(**module)(x, given)))
        half = attikos.nn.CrossEntropyLoss()(x.bfloat16(), target)
        self.assertEqual(half.dtype, torch.bfloat16)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, "its second dimension"):
            attikos.nn.CrossEntropyLoss()(x, target[:4])

    def test_patch(self):
        model = torch.nn.ModuleDict(
            {
                "loss": torch.nn.CrossEntropyLoss(label_smoothing=0.1),
                "weighted": torch.nn.CrossEntropyLoss(torch.ones(3)),
            }
        )
        told = {change.name: change for change in attikos.patch(model)}
        self.assertEqual(told["loss"].became, "attikos.nn.CrossEntropyLoss")
        self.assertIs(type(model["loss"]), attikos.nn.CrossEntropyLoss)
        self.assertIn("weights", told["weighted"].reason)


if __name__ == "__main__":
    unittest.main()
