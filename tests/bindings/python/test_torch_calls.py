# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all public functions have in common on PyTorch's tensors: each floating argument either has a gradient, the right
one, or asking for it raises; tensors that PyTorch negates when it reads them are read so."""

import importlib.util
import unittest

import attikos
import numpy as np
from calls import NARROW, annotated, examples, outputs

torch = None
if importlib.util.find_spec("torch"):
    import torch


def setUpModule():
    if torch is None:
        raise unittest.SkipTest("PyTorch is not installed")


def tensor(array):
    """The same elements as a tensor."""
    if array.dtype not in NARROW:
        return torch.from_numpy(array.copy())
    names = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}
    bits = torch.from_numpy(array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize]).copy())
    return bits.view(getattr(torch, names[array.dtype.name]))


def tensors(example):
    return {name: tensor(array) for name, array in example.arrays.items()}


def floats(result):
    return [x for x in outputs(result) if torch.is_tensor(x) and x.is_floating_point()]


def bits(x):
    return x.resolve_neg().reshape(-1).view(torch.uint8)


class Gradients(unittest.TestCase):
    def test_every_floating_array(self):
        """One or the other, for each array of each call; and where gradients are not recorded, the call works."""
        brought, refused = 0, 0
        for example in examples():
            for name in example.floating():
                what = f"{example.name}({name})"
                given = tensors(example)
                given[name].requires_grad_()
                if name not in example.brings:
                    with self.assertRaises(attikos.UnsupportedError, msg=what) as caught:
                        example.function(**given, **example.settings)
                    for word in (f"attikos.{example.name}: ", name, "detach()"):
                        self.assertIn(word, str(caught.exception), what)
                    self.assertIsNone(given[name].grad_fn, what)
                    with torch.no_grad():
                        example.function(**given, **example.settings)
                    refused += 1
                    continue
                results = floats(example.function(**given, **example.settings))
                self.assertTrue(results, what)
                for out in results:
                    self.assertTrue(out.requires_grad, what)
                self.check(example, name, given[name], results, what)
                with torch.no_grad():
                    self.assertFalse(any(x.requires_grad for x in floats(example.function(**given, **example.settings))))
                brought += 1
        self.assertGreater(brought, 60)
        self.assertGreater(refused, 90)

    def check(self, example, name, x, results, what):
        """The slope along one direction from central differences; each result has a part in it."""
        generator = torch.Generator().manual_seed(3)
        weights = [torch.randn(out.shape, generator=generator, dtype=torch.float64) for out in results]
        direction = torch.randn(x.shape, generator=generator, dtype=torch.float64)

        def at(step):
            moved = {**tensors(example), name: (x.detach().double() + step * direction).to(x.dtype)}
            with torch.no_grad():
                found = floats(example.function(**moved, **example.settings))
            return [float((w * out.double()).sum()) for w, out in zip(weights, found)]

        # the calls in float32 are linear in each array, so that a large step costs nothing
        step, bound = (1e-5, 1e-7) if x.dtype == torch.float64 else (0.5, 1e-4)
        slopes = [(a - b) / (2 * step) for a, b in zip(at(step), at(-step))]
        for out, w, slope in zip(results, weights, slopes):
            (found,) = torch.autograd.grad((out.double() * w).sum(), x, retain_graph=True, allow_unused=True)
            got = 0.0 if found is None else float((found.double() * direction).sum())
            self.assertAlmostEqual(got, slope, delta=bound * (1 + abs(slope)), msg=what)
        total = sum((out.double() * w).sum() for out, w in zip(results, weights))
        (found,) = torch.autograd.grad(total, x)
        self.assertEqual((found.shape, found.dtype), (x.shape, x.dtype), what)
        slope = sum(slopes)
        self.assertAlmostEqual(float((found.double() * direction).sum()), slope, delta=bound * (1 + abs(slope)), msg=what)

    def test_every_number(self):
        """Numbers that are tensors have no gradient either."""
        count = 0
        for example in examples():
            for name in annotated(example.function, "float"):
                if example.name == "reference_attention":
                    continue
                value = torch.tensor(float(example.settings.get(name, 0.5)), requires_grad=True)
                settings = {**example.settings, name: value}
                with self.assertRaises(attikos.UnsupportedError, msg=f"{example.name}({name})") as caught:
                    example.function(**tensors(example), **settings)
                self.assertIn("detach()", str(caught.exception))
                self.assertIn(name, str(caught.exception))
                count += 1
        self.assertGreater(count, 60)

    def test_results_of_other_libraries(self):
        """A result of NumPy's carries no gradient, whatever the function."""
        for example in examples():
            first = next(iter(example.arrays))
            for name in example.floating():
                if name == first:
                    continue
                given = {**example.copies(), name: tensor(example.arrays[name]).requires_grad_()}
                with self.assertRaises(attikos.UnsupportedError, msg=f"{example.name}({name})"):
                    example.function(**given, **example.settings)

    def test_arrays_of_several_libraries(self):
        """What asks for a gradient has it beside arrays of NumPy."""
        for example in examples():
            first = next(iter(example.arrays))
            if first not in example.brings or example.name == "reference_attention":
                continue
            given = {**example.copies(), first: tensor(example.arrays[first]).requires_grad_()}
            sum(x.sum() for x in floats(example.function(**given, **example.settings))).backward()
            all_tensors = tensors(example)
            all_tensors[first].requires_grad_()
            sum(x.sum() for x in floats(example.function(**all_tensors, **example.settings))).backward()
            self.assertTrue(torch.equal(given[first].grad, all_tensors[first].grad), example.name)

    def test_second_derivatives(self):
        """A gradient that is recorded itself says what it lacks when it is asked, and works until then."""
        for example in examples():
            for name in example.brings:
                if example.name == "reference_attention":
                    continue
                given = tensors(example)
                given[name].requires_grad_()
                results = floats(example.function(**given, **example.settings))
                plain = torch.autograd.grad(sum(x.sum() for x in results), given[name], retain_graph=True)[0]
                self.assertFalse(plain.requires_grad, example.name)
                (found,) = torch.autograd.grad(sum(x.sum() for x in results), given[name], create_graph=True)
                self.assertTrue(torch.equal(found, plain), example.name)
                with self.assertRaisesRegex(attikos.UnsupportedError, "second derivatives", msg=f"{example.name}({name})"):
                    (found.square().sum() + results[0].sum()).backward()

    def test_inside_of_other_functions(self):
        """A call in the forward or backward pass of somebody else's function is theirs to differentiate."""

        class Decoded(torch.autograd.Function):
            @staticmethod
            def forward(context, q, k, v):
                return attikos.decode(q, k, v)

            @staticmethod
            def backward(context, dout):
                return dout, None, None

        q = torch.randn(1, 2, 3, 4, requires_grad=True)
        k = torch.randn(1, 2, 5, 4)
        Decoded.apply(q, k, k).sum().backward()
        self.assertTrue(torch.equal(q.grad, torch.ones_like(q)))


class LazyBits(unittest.TestCase):
    """A tensor with the negative bit, as the imaginary part of a conjugate has it, has memory of the other sign."""

    def test_every_floating_array(self):
        for example in examples():
            want = outputs(example.function(**tensors(example), **example.settings))
            for name in example.floating():
                array = tensor(example.arrays[name])
                if array.element_size() == 1:
                    continue  # PyTorch does not negate float8
                given = {**tensors(example), name: torch._neg_view(-array)}
                what = f"{example.name}({name})"
                self.assertTrue(given[name].is_neg(), what)
                if name in example.written:
                    with self.assertRaisesRegex(attikos.ArgumentError, f"{example.name}: {name} is a view", msg=what):
                        example.function(**given, **example.settings)
                    continue
                got = outputs(example.function(**given, **example.settings))
                for one, other in zip(got, want):
                    self.assertTrue(torch.equal(bits(one), bits(other)), what)

    def test_conjugates(self):
        z = torch.randn(6, 6, dtype=torch.complex64)
        for part in (z.conj().imag, z.conj().real, z.mH.imag):
            copy = part.clone().resolve_neg()
            self.assertTrue(torch.equal(attikos.gemm(part, part), attikos.gemm(copy, copy)))
            self.assertTrue(torch.equal(attikos.softmax(part), attikos.softmax(copy)))
            one, other = part.view(1, 1, 6, 6) if part.is_contiguous() else part[None, None], copy[None, None]
            self.assertTrue(torch.equal(attikos.attention(one, one, one), attikos.attention(other, other, other)))

    def test_gradients_that_come_negated(self):
        x = torch.randn(4, 5, requires_grad=True)
        (found,) = torch.autograd.grad(attikos.softmax(x), x, torch._neg_view(torch.ones(4, 5).cumsum(0)))
        (want,) = torch.autograd.grad(attikos.softmax(x), x, -torch.ones(4, 5).cumsum(0))
        self.assertTrue(torch.equal(found, want))


if __name__ == "__main__":
    unittest.main()
