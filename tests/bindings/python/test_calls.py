# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all public functions have in common: numbers that are wrong and arrays that are wrong raise errors of this
package in the caller's words, explain() takes every function."""

import inspect
import unittest

import attikos
import numpy as np
from calls import NO_ARRAYS, TOOLS, annotated, examples, functions, outputs

# What is taken for the sake of a signature and has no meaning here.
UNUSED = {"deterministic", "max_seqlen_q", "max_seqlen_k", "max_seqlen", "use_autotune"}


class Calls(unittest.TestCase):
    def test_every_array_of_every_function_is_in_an_example(self):
        given = {}
        for example in examples():
            given.setdefault(example.name, set()).update(example.arrays)
        self.assertEqual(set(given), set(functions()))
        for name, function in functions().items():
            missing = set(annotated(function, "Any")) - NO_ARRAYS - given[name]
            self.assertEqual(missing, set(), name)

    def test_examples_work_and_leave_their_arguments(self):
        for example in examples():
            arrays = example.copies()
            example.function(**arrays, **example.settings)
            for name, array in arrays.items():
                if name not in example.written:
                    self.assertEqual(array.tobytes(), example.arrays[name].tobytes(), f"{example.name}({name})")

    def refused(self, example, name, value, words):
        """An error of this package that names the function and the argument."""
        given = {**example.copies(), **example.settings, name: value}
        what = f"{example.name}({name}={value if np.ndim(value) == 0 else np.shape(value)!r})"
        try:
            example.function(**given)
        except attikos.Error as error:
            for word in (f"attikos.{example.name}: ", *words):
                self.assertTrue(any(w in str(error) for w in word.split(" | ")), f"{what}: {word} is not in {error}")
            return True
        except Exception as error:  # noqa: BLE001: whatever it is, it is none of ours
            self.fail(f"{what} raised {type(error).__name__}: {error}")
        return False

    def test_numbers_and_names(self):
        bad = {
            "int": (2**64, -(2**64), 1.5, "4", [1, 2], True),
            "float": ("1", [1.0, 2.0], np.ones(2), 1j, True),
            "bool": (2, 0.5, "yes", None, [True]),
            "str": (None, 5, ["flash"]),
            "tuple": (128, None, (1,), (1, 2, 3), (2**64, 2**64), (1.5, 2), "ab", (True, False)),
        }
        seen = set()
        for example in examples():
            parameters = inspect.signature(example.function).parameters
            for kind, values in bad.items():
                for name in annotated(example.function, kind):
                    if name in UNUSED or example.name == "reference_attention":
                        continue
                    seen.add(kind)
                    optional = "None" in str(parameters[name].annotation)
                    for value in values:
                        if (value is None and optional) or (example.name, name) == ("flash_attention", "scale"):
                            continue
                        word = "scale" if example.name == "flash_attention" and "scale" in name else name
                        if example.name == "flash_attention" and name == "causal":
                            word = "causal"
                        self.assertTrue(self.refused(example, name, value, [word]), f"{example.name}({name}={value!r})")
        self.assertEqual(seen, set(bad))

    def test_shapes(self):
        """Some wrong shape of every array is found, and said with the name and the extents that the caller knows."""
        any_shape = {"quantize_fp8", "dequantize_fp8", "reference_attention"}
        for example in examples():
            for name, array in example.arrays.items():
                if example.name in any_shape or (example.name, name) == ("embedding", "ids"):
                    continue
                wider = np.concatenate([array, array[..., -1:]], -1) if array.ndim else array[None]
                wrong = (array[None, None, None], wider, np.array(array.reshape(-1)[0]))
                found = []
                for x in wrong:  # of packed arrays, the parts have the extents
                    part = [e for i, e in enumerate(x.shape) if "kv" not in name or i != x.ndim - 3]
                    found.append(self.refused(example, name, x, [name, f"{list(x.shape)} | {part}"]))
                self.assertTrue(any(found), f"{example.name}({name})")

    def test_types(self):
        """Elements of a type that nothing takes."""
        for example in examples():
            for name, array in example.arrays.items():
                if example.name == "reference_attention":
                    continue
                wrong = array.astype(np.float64).astype(np.complex64 if array.dtype.kind != "i" else np.float64)
                self.assertTrue(self.refused(example, name, wrong, [name]), f"{example.name}({name})")

    def test_fractions_are_no_lengths(self):
        """As arrays and as lists, whole or not; a handler of either kind catches them."""
        for example in examples():
            for name, array in example.arrays.items():
                if array.dtype != np.int32:
                    continue
                for value in (array.astype(np.float32), array.astype(np.float64) + 0.7, (array + 0.5).tolist()):
                    with self.assertRaises(ValueError, msg=f"{example.name}({name})"):
                        example.function(**{**example.copies(), name: value}, **example.settings)
                huge = array.astype(np.int64)
                huge.flat[-1] = 2**32 + huge.flat[-1]
                for value in (huge, huge.tolist()) if name != "offsets" else ():
                    with self.assertRaises(attikos.Error, msg=f"{example.name}({name})"):
                        example.function(**{**example.copies(), name: value}, **example.settings)

    def test_every_function_is_explained(self):
        for example in examples():
            if example.name == "reference_attention":
                continue
            arrays = example.copies()
            for function in (example.name, example.function):
                told = attikos.explain(function, **arrays, **example.settings)
                self.assertRegex(told, "(?m)^runs ", example.name)
            for name, array in arrays.items():
                self.assertEqual(array.tobytes(), example.arrays[name].tobytes(), f"{example.name}({name})")
        for name in (*TOOLS, "no_such_function", None, len):
            with self.assertRaises(attikos.ArgumentError):
                attikos.explain(name)

    def test_other_integers(self):
        """Integers of every kind are taken for what they are."""
        for kind in (np.int8, np.int16, np.int64, np.uint8, np.uint64, list):
            for example in examples():
                for name, array in example.arrays.items():
                    if array.dtype != np.int32 or (array < 0).any():
                        continue
                    given = array.tolist() if kind is list else array.astype(kind)
                    want = example.function(**example.copies(), **example.settings)
                    got = example.function(**{**example.copies(), name: given}, **example.settings)
                    for one, other in zip(outputs(want), outputs(got)):
                        self.assertEqual(one.tobytes(), other.tobytes(), f"{example.name}({name})")


if __name__ == "__main__":
    unittest.main()
