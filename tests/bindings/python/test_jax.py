# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of JAX and attikos.integrations.jax, in a process of their own: once JAX has run in a process, it warns of
every fork, and other suites fork."""

import importlib.util
import os
import subprocess
import sys
import unittest

import attikos

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = """import jax, unittest
assert jax.default_backend() == {!r}, jax.devices()
unittest.main("jax_cases", argv=["jax"])"""
ON_CUDA = attikos.has_cuda() and any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13))


@unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
class WithJax(unittest.TestCase):
    def run_cases(self, backend, **environment):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUN.format(backend)], cwd=HERE, env={**os.environ, **environment},
            capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"Ran \d+ tests")

    def test_on_the_cpu(self):
        self.run_cases("cpu", JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2")

    @unittest.skipUnless(ON_CUDA, "needs a CUDA device and JAX's plugin for it")
    def test_on_cuda(self):
        # By itself JAX takes three quarters of a device's memory, of which other tests need some.
        self.run_cases("gpu", JAX_PLATFORMS="cuda,cpu", XLA_PYTHON_CLIENT_PREALLOCATE="false")


if __name__ == "__main__":
    unittest.main()
