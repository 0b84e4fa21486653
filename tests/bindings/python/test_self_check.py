# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m attikos`: says what is installed, checks that it computes right, and fails where it does not."""

import contextlib
import io
import subprocess
import sys
import unittest
from unittest import mock

import attikos
from attikos import __main__ as report


def run():
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        status = report.main()
    return status, told.getvalue()


class SelfCheck(unittest.TestCase):
    def test_as_a_program(self):
        done = subprocess.run([sys.executable, "-m", "attikos"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in (f"attikos {attikos.__version__}, ", "numpy ", "apache-tvm-ffi ", "compiled border: there", "SIMD",
                      "gemm: portable", "checks on cpu:", "decode, causal, float16", "all checks passed"):  # fmt: skip
            self.assertIn(words, done.stdout)
        self.assertNotIn("FAILED", done.stdout)

    def test_wrong_numbers(self):
        right = attikos.decode
        with mock.patch.object(attikos, "decode", lambda *a, **b: right(*a, **b) * 1.01):
            status, told = run()
        self.assertEqual(status, 1)
        self.assertEqual(told.count("FAILED, largest difference"), 4 * told.count("checks on "))
        self.assertIn("checks FAILED", told)

    def test_a_call_that_fails(self):
        with mock.patch.object(attikos, "gemm", mock.Mock(side_effect=attikos.ResourceError("no memory"))):
            status, told = run()
        self.assertEqual(status, 1)
        self.assertIn("gemm, float32                FAILED: no memory", told)


if __name__ == "__main__":
    unittest.main()
