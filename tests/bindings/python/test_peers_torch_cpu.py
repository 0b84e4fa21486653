# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""perf/peers_torch_cpu.py: shapes follow from the seed, what is wrong is not timed, what is measured is reported."""

import contextlib
import dataclasses
import importlib.util
import io
import itertools
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import attikos

if importlib.util.find_spec("torch"):
    import torch

    with mock.patch.object(sys, "path", [str(pathlib.Path(__file__).resolve().parents[3] / "perf"), *sys.path]):
        import host_calls_torch as calls
        import peers_torch_cpu as peers
        import report_cpu


def quiet(function, *arguments):
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        function(*arguments)
    return told.getvalue()


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
class PeersOnAHost(unittest.TestCase):
    def shapes(self, seed, family="products", count=40):
        """The arguments of the cases, without their operands."""
        made = []
        with mock.patch.object(calls, "product", lambda dtype, *given: made.append(given)):
            with mock.patch.object(calls, "forward", lambda dtype, *given: made.append(given)):
                for make in itertools.islice(calls.cases(family, torch.float32, seed), count):
                    make()
        return made

    def test_shapes_follow_from_the_seed(self):
        self.assertEqual(self.shapes(5), self.shapes(5))
        self.assertNotEqual(self.shapes(5), self.shapes(6))
        drawn = self.shapes(5)
        self.assertEqual({layout: [d[3] for d in drawn].count(layout) for layout in ("nn", "nt", "tn", "tt")},
                         dict.fromkeys(("nn", "nt", "tn", "tt"), 10))  # fmt: skip
        extents = [n for d in drawn for n in d[:3]]
        self.assertTrue(all(16 <= n <= 4096 for n in extents))
        self.assertTrue(40 < sum(n < 256 for n in extents) < 80)  # log-uniform: half of 120 in mean

    def test_attention_is_drawn_within_limits(self):
        drawn = self.shapes(5, "attention")
        self.assertEqual([d[4] for d in drawn], [False, True] * 20)
        self.assertTrue(all(4 * b * h * s * s * d <= calls.LARGEST for b, h, s, d, _ in drawn))

    def test_results_are_right(self):
        for dtype in (torch.float32, torch.bfloat16):
            for operation in calls.ROW_OPERATIONS:
                for back in (False, True):
                    calls.verify(calls.row(operation, dtype, 37, 128, back))
            for causal in (False, True):
                calls.verify(calls.forward(dtype, 2, 3, 17, 16, causal))
                calls.verify(calls.backward(dtype, 2, 3, 17, 16, causal))
            calls.verify(calls.decode(dtype, 1, length=300))
        for dtype in calls.FAMILIES["products"][0]:
            for layout in ("nn", "nt", "tn", "tt"):
                calls.verify(calls.product(dtype, 17, 19, 40, layout))
        for dtype in calls.FAMILIES["packed_products"][0]:
            for layout in ("nn", "nt"):
                case = calls.packed_product(dtype, 17, 40, 50, layout)
                calls.verify(case)
                self.assertTrue(torch.equal(case.ours(), case.unpacked()))
                for peer in case.peers.values():
                    calls.verify(dataclasses.replace(case, ours=peer))
        for kind in (torch.int8, torch.float8_e4m3fn):
            for granularity in ("row", "tensor"):
                calls.verify(calls.quantization(torch.float32, 37, 65, kind, granularity))
        for make in itertools.islice(calls.cases("tiny", torch.float32, 1), calls.ONCE["tiny"]):
            calls.verify(make())
        for make in itertools.islice(calls.cases("few_rows", torch.bfloat16, 1), 2):
            case = make()
            self.assertLessEqual(case.labels["m"], 8)
            self.assertEqual(case.moved, case.copied.numel() * case.copied.element_size())
            calls.verify(case)

    def test_wrong_numbers_are_not_timed(self):
        right = attikos.gemm
        for dtype, wrong in ((torch.float32, lambda a, b: right(a, b) * 1.01),
                             (torch.int8, lambda a, b: right(a, b) + 1),
                             (torch.float64, lambda a, b: right(a, b) * float("nan"))):  # fmt: skip
            with mock.patch.object(attikos, "gemm", wrong), mock.patch.object(peers, "times") as times:
                with self.assertRaisesRegex(RuntimeError, "is off by"):
                    peers.measure("products", calls.product(dtype, 17, 19, 40, "nn"))
                times.assert_not_called()

    def test_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "out.json")
            told = quiet(peers.main, ["--families", "tiny", "--types", "float32", "--seed", "7", "--out", str(path)])
            report = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(len(report["cases"]), calls.ONCE["tiny"])
        for case in report["cases"]:
            self.assertAlmostEqual(case["ratio"], case["torch:us"] / case["attikos:us"], delta=0.02 * case["ratio"])
        for key in ("simd", "instructions", "torch", "torch_libraries", "attikos_commit", "load_average"):
            self.assertTrue(report[key], key)
        self.assertIn("seed 7, ", told)
        self.assertIn("tiny float32: 6 shapes, geometric mean", told)
        self.assertEqual(quiet(report_cpu.summary, report), told[told.index("tiny float32: 6 shapes") :])

    def test_no_case_begins_after_the_time(self):
        with mock.patch.object(peers, "measure") as measure:
            quiet(peers.main, ["--families", "products", "--seconds", "-1"])
        measure.assert_not_called()

    def test_unknown_families(self):
        with contextlib.redirect_stderr(io.StringIO()) as told, self.assertRaises(SystemExit):
            peers.main(["--families", "tiny,nothing"])
        self.assertIn("no family nothing", told.getvalue())

    def test_shares_and_refusals_are_reported(self):
        report = {"cases": [
            {"family": "decode", "dtype": "float32", "batch": 1, "attikos:us": 2.0, "of copy": 0.25,
             "of copy of least": 0.5},
            {"family": "decode", "refused": "no int8"},
            {"family": "packed_products", "dtype": "int8", "of unpacked": 1.5, "of unpacked of least": 1.25},
            {"family": "cores", "call": "gemm", "gain": 1.9, "of register loop": 0.95},
        ]}  # fmt: skip
        told = quiet(report_cpu.summary, report)
        for words in ("of copy 0.25, of copy of least 0.50  dtype float32, batch 1", "decode: no int8",
                      "x unpacked: geometric mean 1.50, ", "x unpacked by least times: geometric mean 1.25, ",
                      "of register loop 0.95  call gemm, gain 1.9"):  # fmt: skip
            self.assertIn(words, told)

    def test_a_process_of_some_cores_answers(self):
        calls_of = {"loop": lambda: lambda: None}
        with mock.patch.object(sys, "stdin", io.StringIO("loop\nloop\n")), mock.patch.object(
            peers, "many_operations", lambda: calls_of
        ), mock.patch.object(peers, "timed", lambda call, count: 0.5):
            self.assertEqual(quiet(peers.main, ["--serve"]), "0.5\n0.5\n")


if __name__ == "__main__":
    unittest.main()
