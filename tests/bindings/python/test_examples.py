# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""examples/python: each program in a process of its own, on the CPU, with warnings as errors; each checks itself."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import attikos

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python"
NEEDS = {"2": ["torch"], "4": ["ml_dtypes"], "5": ["torch", "matplotlib"]}


def run(program, *arguments):
    environment = {**os.environ, "OMP_PROC_BIND": "false"}
    return subprocess.run(
        [sys.executable, "-W", "error", str(program), *arguments], capture_output=True, text=True, env=environment
    )


class Examples(unittest.TestCase):
    def test_programs(self):
        programs = sorted(FOLDER.glob("*.py"))
        self.assertEqual([program.name[:2] for program in programs], [f"{i}_" for i in range(1, 7)])
        for program in programs:
            with self.subTest(program.name), tempfile.TemporaryDirectory() as folder:
                self.assertLess(len(program.read_text().splitlines()), 60)
                if not all(importlib.util.find_spec(name) for name in NEEDS.get(program.name[0], [])):
                    continue
                picture = pathlib.Path(folder) / "times.png"
                done = run(program, *(["--png", str(picture), "--longest", "256"] if program.name[0] == "5" else []))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)
                if program.name[0] == "5":
                    self.assertTrue(picture.read_bytes().startswith(b"\x89PNG"))
                if program.name[0] == "6":
                    self.parts_of_libraries(done.stdout.splitlines())

    def parts_of_libraries(self, lines):
        """Arrays of the host have to be there; those of a GPU too, or why not, which is then why they were skipped."""
        for start in ("NumPy: ndarray gives ndarray", "array interface: Only gives ndarray", "DLPack: Only gives Array"):
            self.assertTrue(any(line.startswith(start) for line in lines), start)
        for library, arrays in (("cupy", "ndarray gives ndarray"), ("numba", "DeviceNDArray gives Array")):
            with self.subTest(library):
                told = [line for line in lines if line.startswith(library)]
                self.assertTrue(told, lines)
                if not attikos.has_cuda():
                    self.assertEqual(told, [f"{library}: skipped, no GPU"])
                    self.skipTest("no GPU")
                if importlib.util.find_spec(library) is None:
                    self.assertEqual(told, [f"{library}: skipped, not installed"])
                    self.skipTest("not installed")
                self.assertIn(arrays, told[0])


if __name__ == "__main__":
    unittest.main()
