# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tests/seed_surface.json: every name that users of the source documents call, with its module and signature there, and
its signature here."""

import ast
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import attikos
import numpy as np

SURFACE = json.loads((pathlib.Path(__file__).parents[2] / "seed_surface.json").read_text())

# Where a default of the package itself says more than in a source, and why; attikos.compat has the source's own.
WIDER_DEFAULTS = {
    ("flash_attention", "scale"): "None and 0.0 both mean 1/sqrt(head_dim)",
    ("flash_attention", "is_causal"): "None: not said, so that `causal` can say it",
    ("flash_attention", "causal"): "None: not said, so that `is_causal` can say it",
    ("BenchmarkRunner", "device"): "None: the GPU where there is one, else the CPU",
    ("validate_matmul", "device"): "as BenchmarkRunner",
    ("validate_attention", "device"): "as BenchmarkRunner",
}


def shown(function):
    """The signature as the file spells it."""
    parts, starred = [], False
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            starred = True
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(shown_parameter(p))
    return ", ".join(parts)


def shown_parameter(p):
    text = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
    if p.default is not p.empty:
        text += "=" + (p.default.name if isinstance(p.default, attikos.DType) else repr(p.default))
    return text


def parameters(text):
    """{name: default or None} of a source's signature; * and ** parameters left out."""
    found = {}
    for part in filter(None, re.split(r",\s*", text)):
        if not part.startswith("*"):
            name, _, default = part.partition("=")
            found[name] = default or None
    return found


class Surface(unittest.TestCase):
    def check_source(self, owner, name, function, text, skip_self=False):
        mine = dict(inspect.signature(function).parameters)
        if skip_self:
            mine.pop("self")
        theirs = parameters(text)
        # A call with every argument by name works ...
        inspect.signature(function).bind(*([None] if skip_self else []), **{n: None for n in theirs})
        # ... what they leave out can be left out ...
        for parameter, default in theirs.items():
            if default is None:
                continue
            own = mine[parameter].default
            self.assertIsNot(own, inspect.Parameter.empty, f"{name}({parameter})")
            text_of_own = own.name if isinstance(own, attikos.DType) else repr(own)
            if text_of_own != default:
                self.assertIn((owner, parameter), WIDER_DEFAULTS, f"{name}({parameter}={text_of_own}), not {default}")
        # ... and positions mean the same, but for the one function that serves two documents.
        positional = [n for n, p in mine.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
        order = [n for n in theirs if n in positional]
        if name != "flash_attention":
            self.assertEqual(positional[: len(order)], order, name)

    def check_compat(self, module, name, function, text, skip_self=False):
        """The source's own order, names and defaults; what is added comes behind and may be left out."""
        mine = list(inspect.signature(function).parameters.values())[int(skip_self):]
        theirs = re.split(r",\s*", text) if text else []
        parts = re.split(r",\s*", ", ".join(shown_parameter(p) for p in mine))
        self.assertEqual(parts[: len(theirs)], theirs, f"{module}.{name}")
        for parameter in mine[len(theirs) :]:
            self.assertIsNot(parameter.default, inspect.Parameter.empty, f"{module}.{name}({parameter.name})")

    def test_names_kinds_and_signatures(self):
        for entry in SURFACE:
            with self.subTest(entry["name"], document=entry["document"]):
                thing = getattr(attikos, entry["name"])
                self.assertIn(entry["name"], attikos.__all__)
                kind = entry["kind"]
                self.assertEqual(inspect.isclass(thing), kind in ("class", "exception"))
                self.assertEqual(inspect.isfunction(thing), kind == "function")
                if "signature" in entry and kind != "exception":
                    self.assertEqual(shown(thing), entry["signature"])
                if "source_signature" in entry:
                    self.check_source(entry["name"], entry["name"], thing, entry["source_signature"])
                for method, text in entry.get("methods", {}).items():
                    self.check_source(entry["name"], method, getattr(thing, method), text, skip_self=True)
                for member, value in entry.get("members", {}).items():
                    self.assertEqual(thing[member].value, value)

    def test_modules_of_the_documents(self):
        """`from attikos.compat.MODULE import NAME` for each name, and the very signature that the document has."""
        names = {}
        for entry in SURFACE:
            with self.subTest(entry["name"], document=entry["document"]):
                module = importlib.import_module("attikos.compat." + entry["source_module"])
                thing = getattr(module, entry["name"])
                names.setdefault(module, set()).add(entry["name"])
                self.assertEqual(inspect.isclass(thing), entry["kind"] in ("class", "exception"))
                if "source_signature" in entry:
                    self.check_compat(module.__name__, entry["name"], thing, entry["source_signature"])
                for method, text in entry.get("methods", {}).items():
                    self.check_compat(module.__name__, method, getattr(thing, method), text, skip_self=True)
                for member, value in entry.get("members", {}).items():
                    self.assertEqual(thing[member].value, value)
        for module, of_document in names.items():
            self.assertLessEqual(of_document, set(module.__all__), module)
            for name in module.__all__:
                getattr(module, name)
        from attikos.compat import cuda_llm_ops

        self.assertEqual(dir(cuda_llm_ops), sorted(names[cuda_llm_ops]))

    def test_calls_as_in_the_documents(self):
        from attikos.compat import cuda_llm_ops, kernels, triton_ops, utils
        from attikos.compat.kernels.flash_attn import reference_attention
        from attikos.compat.utils.benchmark import benchmark_fn

        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal((2, 3, 16, 8)) for _ in range(3))
        for causal in (False, True):
            want = reference_attention(q, k, v, causal)
            scaled = attikos.attention(q, k, v, scale=0.1, causal=causal)
            for function in (cuda_llm_ops.flash_attention, cuda_llm_ops.tiled_attention, cuda_llm_ops.naive_attention):
                np.testing.assert_allclose(function(q, k, v, 0.0, causal), want, atol=1e-12)
                np.testing.assert_allclose(function(q, k, v, 0.1, causal), scaled, atol=1e-12)
                for wrong in (lambda: function(q, k, v, True), lambda: function(q, k, v, 0.1, 0.5)):
                    with self.assertRaises(RuntimeError):
                        wrong()
            function = kernels.flash_attention
            np.testing.assert_allclose(function(q, k, v, causal), want, atol=1e-12)
            np.testing.assert_allclose(function(q, k, v, causal, 0.1), scaled, atol=1e-12)
            lengths = np.array([16, 4], np.int32)
            padded = attikos.attention(q, k, v, causal=causal, lengths_q=lengths, lengths_kv=lengths)
            np.testing.assert_allclose(function(q, k, v, causal, None, lengths), padded, atol=1e-12)
            for wrong in (lambda: function(q, k, v, 0.1), lambda: function(q, k, v, causal, True)):
                with self.assertRaises(ValueError):
                    wrong()
        a, b = rng.standard_normal((64, 48)).astype(np.float32), rng.standard_normal((48, 32)).astype(np.float32)
        np.testing.assert_array_equal(cuda_llm_ops.gemm(a, b, 2.0, 0.0, False, False), attikos.gemm(a, b, 2.0))
        np.testing.assert_array_equal(cuda_llm_ops.tensor_core_gemm(a, b, 0.5), attikos.tensor_core_gemm(a, b, 0.5))
        for function in (cuda_llm_ops.gemm, cuda_llm_ops.tensor_core_gemm):
            with self.assertRaisesRegex(RuntimeError, "no c"):
                function(a, b, 1.0, 0.5)
        np.testing.assert_array_equal(kernels.triton_matmul(a, b, 32, 32, 16), attikos.gemm(a, b))
        self.assertEqual(utils.validate_matmul(kernels.triton_matmul, m=64, n=32, k=16, device="cpu")[0], True)
        self.assertEqual(utils.validate_attention(kernels.flash_attention, 1, 2, 16, 8, True, device="cpu")[0], True)
        self.assertEqual(len(benchmark_fn(kernels.triton_matmul, a, b, warmup=1, rep=2)), 3)
        runner = utils.BenchmarkRunner("cpu", 0, 1)
        self.assertIsInstance(runner.benchmark_matmul(kernels.triton_matmul, [(8, 8, 8)])[0], utils.BenchmarkResult)
        np.testing.assert_array_equal(
            triton_ops.fused_gated_mlp(a, a, a, "gelu"), attikos.fused_gated_mlp(a, a, a, "gelu")
        )
        with self.assertRaises(triton_ops.ShapeMismatchError):
            triton_ops.fp8_gemm(a, a)

    def test_documents(self):
        counts = {d: sum(e["document"] == d for e in SURFACE) for d in ("000", "001", "004")}
        self.assertEqual(counts, {"000": 7, "001": 19, "004": 10})

    def test_version(self):
        self.assertRegex(attikos.__version__, r"^\d+\.\d+\.\d+$")

    def test_errors_are_what_old_handlers_catch(self):
        for error, bases in {
            attikos.Error: (RuntimeError,),
            attikos.ShapeMismatchError: (attikos.Error, ValueError),
            attikos.UnsupportedDtypeError: (attikos.Error, TypeError),
            attikos.DeviceError: (attikos.Error, ValueError),
            attikos.ArgumentError: (attikos.Error, ValueError),
        }.items():
            for base in bases:
                self.assertTrue(issubclass(error, base), (error, base))

    def test_everything_public_is_annotated(self):
        for name in attikos.__all__:
            thing = getattr(attikos, name)
            if inspect.isfunction(thing):
                for parameter in inspect.signature(thing).parameters.values():
                    self.assertIsNot(parameter.annotation, inspect.Parameter.empty, f"{name}({parameter.name})")
                self.assertIsNot(inspect.signature(thing).return_annotation, inspect.Signature.empty, name)
        self.assertTrue((pathlib.Path(attikos.__file__).parent / "py.typed").exists())

    def test_names_are_listed_in_the_source(self):
        """Type checkers run no code: what is public stands there as a list of strings."""
        package = pathlib.Path(attikos.__file__).parent
        modules = [package / "__init__.py", package / "flash_attn.py", *sorted((package / "compat").rglob("*.py"))]
        self.assertGreater(len(modules), 7)
        for path in modules:
            tree = ast.parse(path.read_text())
            lists = [n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"]
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
            module = importlib.import_module(name)
            if not lists:
                self.assertFalse(hasattr(module, "__all__"), name)
                continue
            names = ast.literal_eval(lists[0])
            self.assertEqual(names, module.__all__, name)
            self.assertEqual(names, sorted(set(names)) if name != "attikos.flash_attn" else names, name)
            for one in names:
                getattr(module, one)
        public = {n for n, x in vars(attikos).items() if not n.startswith("_") and not inspect.ismodule(x)}
        self.assertEqual(public - {"Any", "TYPE_CHECKING", "annotations"} - set(attikos.__all__), set())

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_a_strict_type_checker(self):
        here, package = pathlib.Path(__file__).parent, pathlib.Path(attikos.__file__).parents[1]
        installed = package.name == "site-packages"  # where it is found, and must not be pointed to
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={cache}",
                 str(here / "typed_program.py")],
                env={**os.environ, **({} if installed else {"MYPYPATH": str(package)})}, capture_output=True, text=True,
            )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_unknown_names(self):
        with self.assertRaises(AttributeError):
            attikos.no_such_name


if __name__ == "__main__":
    unittest.main()
