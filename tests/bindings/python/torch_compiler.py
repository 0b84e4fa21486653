# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's compiler, loaded where warnings are errors. torch._dynamo.reset() imports it where there is a GPU, and it warns
of what PyTorch itself uses (torch.jit.script_method in 2.11): only those warnings are let pass that a module of PyTorch
gives, and only while it is imported, when nothing of Attikos runs."""

import importlib
import importlib.util
import unittest
import warnings


def load():
    """For setUpModule(): skips the module's tests where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise unittest.SkipTest("PyTorch is not installed")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch(\.|$)")
        importlib.import_module("torch._inductor.cudagraph_trees")
