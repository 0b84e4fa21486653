# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules that hold NumPy arrays, as they are where PyTorch is not installed. This process may have it, and what is
imported once stays: the cases run in a process of their own that cannot import it. test_torch.py has modules of tensors."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = "import sys; sys.modules['torch'] = None; import unittest; unittest.main('modules_of_numpy', argv=['modules'])"


class WithoutTorch(unittest.TestCase):
    def test_modules_of_numpy(self):
        done = subprocess.run([sys.executable, "-W", "error", "-c", RUN], cwd=HERE, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"Ran 1\d tests")


if __name__ == "__main__":
    unittest.main()
