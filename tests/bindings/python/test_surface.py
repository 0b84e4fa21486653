# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tests/seed_surface.json: every name that users of the source documents call, with its signature there and here."""

import inspect
import json
import pathlib
import re
import unittest

import attikos

SURFACE = json.loads((pathlib.Path(__file__).parents[2] / "seed_surface.json").read_text())

# Where a default says more here than in a source, and why.
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
        text = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        if p.default is not p.empty:
            text += "=" + (p.default.name if isinstance(p.default, attikos.DType) else repr(p.default))
        parts.append(text)
    return ", ".join(parts)


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

    def test_names_kinds_and_signatures(self):
        for entry in SURFACE:
            with self.subTest(entry["name"], document=entry["document"]):
                self.assertEqual(entry["module"], "attikos")
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

    def test_unknown_names(self):
        with self.assertRaises(AttributeError):
            attikos.no_such_name


if __name__ == "__main__":
    unittest.main()
