# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of JAX and attikos.integrations.jax, in a process of their own: once JAX has run in a process, it warns of
every fork, and other suites fork."""

import importlib.util
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = "import unittest; unittest.main('jax_cases', argv=['jax'])"


@unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
class WithJax(unittest.TestCase):
    def test_in_a_process(self):
        environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUN], cwd=HERE, env=environment, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"Ran \d+ tests")


if __name__ == "__main__":
    unittest.main()
