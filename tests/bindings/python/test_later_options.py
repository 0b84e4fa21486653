# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No way of a call drops an option that it does not know: neither the short way nor PyTorch's operators. A pretend option,
added to a copy of the package as CONTRIBUTING.md says, shows what becomes of the next one."""

import importlib.util
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

import attikos
import numpy as np
from calls import examples, functions

HAS_TORCH = importlib.util.find_spec("torch") is not None

# Arguments that the functions of other packages have and that decide nothing here, by their documentation.
NOTHING = {"deterministic", "max_seqlen", "max_seqlen_q", "max_seqlen_k", "use_autotune"}
# What a product does not look at with beta = 0.
UNREAD = {"gemm": {"c"}, "tensor_core_gemm": {"c"}}


def plain_examples():
    """The first call of each function, with the arguments that it has to have, and with transposes."""
    found = {}
    for example in examples(np.float32):
        parameters = inspect.signature(example.function).parameters.values()
        needed = {p.name for p in parameters if p.default is p.empty} | {"trans_b"}
        given = {**example.copies(), **example.settings}
        found.setdefault(example.name, {name: value for name, value in given.items() if name in needed})
    return found


# Tiles that are checked in eager calls, to no effect.
HINTS = {"block_m", "block_n", "block_k"}


def arguments_that_may_be_anything(of, but=()):
    """"function(argument)" of those that take an object of no type as if it were not there. of: arrays of NumPy to
    those of the library."""
    found = []
    for name, needed in plain_examples().items():
        function = functions()[name]
        base = {n: of(x) if isinstance(x, np.ndarray) else x for n, x in needed.items()}
        function(**base)  # the short way is open now
        for parameter in inspect.signature(function).parameters.keys() - NOTHING - UNREAD.get(name, set()) - {*but}:
            try:
                function(**{**base, parameter: object()})
                found.append(f"{name}({parameter})")
            except Exception:  # noqa: BLE001, S110: refused or not, that is all
                pass
    return found


def tensor(array):
    import torch

    if array.dtype.kind == "V":  # element types of ml_dtypes
        return torch.from_numpy(array.view(np.uint8)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


class NothingIsDropped(unittest.TestCase):
    def test_by_either_way(self):
        self.assertGreater(len(plain_examples()), 35)
        self.assertEqual(arguments_that_may_be_anything(np.asarray), [])

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
    def test_of_tensors(self):
        self.assertEqual(arguments_that_may_be_anything(tensor), [])

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
    def test_by_operators(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                return function(*arguments, **(named or {}))

        with Mode():
            self.assertEqual(arguments_that_may_be_anything(tensor, HINTS), [])


# What follows CONTRIBUTING.md's recipe: the library describes one more option, and the signatures have it.
DESCRIBED = '''

_described = describe_options


def describe_options(operation):
    size, options = _described(operation)
    if operation in ("gemm", "attention", "decode"):
        options = [*options, Option("integer", "pretend", size, 8, 0.0, "of no meaning")]
        size += 8
    return size, options
'''
SIGNATURES = {
    "attention.py": ("attention_chunk: int = 0,", 2),
    "cache.py": ("attention_chunk: int = 0,", 1),
    "matmul.py": ("return_pre_activation: bool = False,\n) -> Any:  # fmt: skip\n    \"\"\"act", 1),
}
HANDED_ON = {"attention.py": ("attention_chunk=attention_chunk,", 2), "cache.py": ("attention_chunk=attention_chunk,", 1)}
BESIDE_LATER = "_options.given(_LATER, {})"

# An option that the library does not know makes it refuse the struct, so that it has to have come that far.
PROGRAM = """
    import importlib.util, sys
    if importlib.util.find_spec("torch"):
        import torch
    import attikos, numpy as np
    from attikos import _arrays, _border

    def refused(words, call, *arrays, **options):
        try:
            call(*arrays, **options, pretend=3)
        except Exception as problem:
            if words in str(problem):
                return
            raise
        raise SystemExit(f"{call.__name__} drops the option")

    def short(call, *arrays, **options):
        def long(*_, **__):
            raise SystemExit(f"{call.__name__} goes the long way though the option has its default")
        kept, _arrays.Call.__init__ = _arrays.Call.__init__, long
        call(*arrays, **options, pretend=0)
        _arrays.Call.__init__ = kept

    q, a = np.ones((1, 2, 3, 8), np.float32), np.ones((4, 4), np.float32)
    calls = [(attikos.attention, (q, q, q)), (attikos.decode, (q, q, q)), (attikos.gemm, (a, a))]
    if "torch" in sys.argv:
        calls = [(call, [torch.from_numpy(x) for x in arrays]) for call, arrays in calls]
    for call, arrays in calls:
        call(*arrays)
        short(call, *arrays)
        refused("member in use", call, *arrays)
        if "torch" in sys.argv:
            def traced(*arrays, **options):
                return call(*arrays, **options)
            compiled = torch.compile(traced, fullgraph=True, backend="aot_eager")
            compiled(*arrays, pretend=0)
            refused("pretend has no operator", compiled, *arrays)
            if call is not attikos.decode:
                refused("member in use", call, arrays[0].clone().requires_grad_(), *arrays[1:])
                call(arrays[0].clone().requires_grad_(), *arrays[1:], pretend=0)
            torch._dynamo.reset()
    output = [attikos.attention(q, q, q, return_lse=True), (np.ones_like(q),)]
    gradients = lambda **more: attikos.attention_backward(q, q, q, *output[0], *output[1], **more)
    gradients.__name__ = "attention_backward"
    gradients(pretend=0)
    refused("member in use", gradients)
"""


class Pretend(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        source = pathlib.Path(attikos.__file__).parent
        shutil.copytree(source, self.root / "attikos", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        library = self.root / "attikos" / "_library.py"
        text = library.read_text()
        before, behind = text.split("\n\ndef documented", 1)
        library.write_text(before + DESCRIBED + "\n\ndef documented" + behind)
        for name, (place, count) in SIGNATURES.items():
            module = self.root / "attikos" / name
            text = module.read_text()
            self.assertEqual(text.count(place), count, name)
            text = text.replace(place, place.replace(",", ", pretend: int = 0,", 1))
            place, count = HANDED_ON.get(name, ("", 0))
            if place:
                self.assertEqual(text.count(place), count, name)
                text = text.replace(place, f"{place} pretend=pretend,")
            self.assertEqual(text.count(BESIDE_LATER), 1, name)
            module.write_text(text.replace(BESIDE_LATER, BESIDE_LATER.replace("{}", '{"pretend": pretend}')))

    def test_one_that_is_forgotten_is_an_error(self):
        for name in SIGNATURES:
            module = self.root / "attikos" / name
            module.write_text(module.read_text().replace('{"pretend": pretend}', "{}"))
        with self.assertRaisesRegex(AssertionError, "KeyError: 'pretend'"):
            self.run_program()

    def run_program(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": f"{self.root}:{os.environ.get('PYTHONPATH', '')}"}
        ran = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), *arguments],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_of_arrays(self):
        self.run_program()

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
    def test_of_tensors_and_operators(self):
        self.run_program("torch")


if __name__ == "__main__":
    unittest.main()
