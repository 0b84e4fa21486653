# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results written into arrays of the caller's: out, residual_sum, dx, dlogits, dhidden, dtable, dweight and
dbias."""

import importlib.util
import unittest

import attikos
import numpy as np
from calls import Example, examples, outputs

torch = None
if importlib.util.find_spec("torch"):
    import torch

PLACES = ("out", "residual_sum", "dx", "dlogits", "dhidden", "dtable", "dweight", "dbias")


def places(example):
    return [name for name in PLACES if name in example.written]


def without(example):
    """The same call, whose results are new."""
    return {name: array for name, array in example.copies().items() if name not in example.written}


class Into(unittest.TestCase):
    def calls(self) -> list[Example]:
        found = [example for example in examples(np.float32) if places(example)]
        self.assertGreater(len(found), 15)
        return found

    def test_bits_of_new_results(self):
        """Into arrays with gaps, too; what is returned is what was given, and nothing else is written."""
        for example in self.calls():
            want = outputs(example.function(**without(example), **example.settings))
            for step in (1, 2):
                given, whole = without(example), {}
                for name in places(example):
                    like = example.arrays[name]
                    whole[name] = np.full((*like.shape[:-1], like.shape[-1] * step), 3, like.dtype)
                    given[name] = whole[name][..., ::step]
                found = outputs(example.function(**given, **example.settings))
                for name, x, y in zip(places(example), found, want):
                    self.assertIs(x, given[name], f"{example.name}({name})")
                    self.assertEqual(x.tobytes(), y.tobytes(), f"{example.name}({name})")
                    if step > 1:
                        gaps = whole[name][..., 1::step]
                        self.assertEqual(gaps.tobytes(), np.full_like(gaps, 3).tobytes(), f"{example.name}({name})")

    def test_refused_places_are_not_written(self):
        """Typed, in one line, by the name of the place."""
        for example in self.calls():
            for name in places(example):
                like = example.arrays[name]
                frozen = like.copy()
                frozen.flags.writeable = False
                other = np.float64 if like.dtype == np.float32 else np.float32
                for error, place in {
                    attikos.ShapeMismatchError: np.zeros((*like.shape[:-1], like.shape[-1] + 1), like.dtype),
                    attikos.UnsupportedDtypeError: np.zeros(like.shape, other),
                    attikos.ArgumentError: frozen,
                    attikos.StrideError: np.lib.stride_tricks.as_strided(like.copy(), like.shape, (0,) * like.ndim),
                }.items():
                    before = place.tobytes()
                    with self.assertRaises(error, msg=f"{example.name}({name})") as caught:
                        example.function(**{**example.copies(), name: place}, **example.settings)
                    message = str(caught.exception)
                    self.assertIn(f"attikos.{example.name}: ", message)
                    self.assertRegex(message, rf"\b{name}\b")
                    self.assertNotIn("\n", message)
                    self.assertEqual(place.tobytes(), before)

    def test_overlaps(self):
        """A place is no other argument, but for x, dout and residual where they are what it replaces."""
        allowed = {("out", "x"), ("residual_sum", "x"), ("residual_sum", "residual"), ("dx", "x"), ("dx", "dout"),
                   ("dx", "out"), ("dx", "residual"), ("dlogits", "logits")}  # fmt: skip
        refused = 0
        for example in self.calls():
            for name in places(example):
                like = example.arrays[name]
                for other, array in example.arrays.items():
                    if other == name or (array.shape, array.dtype) != (like.shape, like.dtype):
                        continue
                    given = example.copies()
                    given[name] = given[other]
                    of_sum = name == "out" and "residual" in example.arrays
                    if (name, other) in allowed and other not in PLACES[1:] and not of_sum:
                        want = outputs(example.function(**without(example), **example.settings))
                        found = outputs(example.function(**given, **example.settings))
                        for x, y in zip(found, want):
                            self.assertEqual(x.tobytes(), y.tobytes(), f"{example.name}({name} = {other})")
                        continue
                    with self.assertRaises(attikos.Error, msg=f"{example.name}({name} = {other})") as caught:
                        example.function(**given, **example.settings)
                    self.assertNotIn("\n", str(caught.exception))
                    refused += 1
        self.assertGreater(refused, 4)

    def test_many_dimensions(self):
        rng = np.random.default_rng(1)
        x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
        out = np.zeros_like(x)
        np.testing.assert_array_equal(attikos.softmax(x, out=out), attikos.softmax(x))
        with self.assertRaisesRegex(attikos.StrideError, "softmax: out is .*can be joined"):
            attikos.softmax(x, out=np.zeros((3, 2, 4, 5), np.float32).transpose(1, 0, 2, 3))


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OfTorch(unittest.TestCase):
    def setUp(self):
        self.x, self.weight = torch.randn(3, 8), torch.randn(8)
        self.want = attikos.rms_norm(self.x, self.weight)

    def test_version(self):
        """A tensor that was saved for a gradient and then written is noticed, whichever way the call goes."""
        for name, call in {
            "short": lambda out: attikos.rms_norm(self.x, self.weight, out=out),
            "long": lambda out: attikos.rms_norm_backward(self.x, self.weight, self.x, dx=out),
        }.items():
            leaf = torch.randn(3, 8, requires_grad=True)
            saved = torch.zeros(3, 8)
            result = (leaf * saved).sum()
            call(saved)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation", msg=name):
                result.backward()

    def test_gradients(self):
        """None are recorded, and none is left out unseen."""
        for given in ({"x": self.x.clone().requires_grad_()}, {"weight": self.weight.clone().requires_grad_()},
                      {"out": torch.zeros(3, 8, requires_grad=True)}):  # fmt: skip
            arguments = {"x": self.x, "weight": self.weight, "out": torch.zeros(3, 8), **given}
            with self.assertRaisesRegex(attikos.UnsupportedError, f"rms_norm: {next(iter(given))} requires a gradient"):
                attikos.rms_norm(**arguments)
            self.assertEqual(float(arguments["out"].detach().abs().sum()), 0.0)
            with torch.no_grad():
                self.assertTrue(torch.equal(attikos.rms_norm(**arguments), self.want))

    def test_arrays_of_both_libraries(self):
        place = np.zeros((3, 8), np.float32)
        self.assertIs(attikos.rms_norm(self.x, self.weight, out=place), place)
        np.testing.assert_array_equal(place, self.want.numpy())
        tensor = torch.zeros(3, 8)
        self.assertIs(attikos.rms_norm(self.x.numpy(), self.weight, out=tensor), tensor)
        self.assertTrue(torch.equal(tensor, self.want))

    def test_no_operator_has_places(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode() as mode:
            x = mode.from_tensor(self.x)
            with self.assertRaisesRegex(attikos.UnsupportedError, "softmax: out has no operator of PyTorch"):
                attikos.softmax(x, out=x)


if __name__ == "__main__":
    unittest.main()
