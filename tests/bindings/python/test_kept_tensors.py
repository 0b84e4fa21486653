# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What recorded calls keep for their gradients: the same whichever way they go, as checkpoints demand, which compare what
a block keeps when it runs and when it runs again, and no result that no gradient reads."""

import contextlib
import importlib
import importlib.util
import subprocess
import sys
import unittest

import attikos
from test_border import long_only
from test_operators import calls, gradients, n

torch = None
if importlib.util.find_spec("torch"):
    import torch

# The first call of a process opens the short way for those that come after it.
FIRST_OF_A_PROCESS = """
import attikos, torch
from torch.utils.checkpoint import checkpoint
def block(x, w):
    y = attikos.rms_norm(attikos.softmax(attikos.gemm(x, w)), w[0], residual=x)
    return attikos.attention(*(y[0].reshape(1, 2, 5, 4),) * 3).reshape(5, 8) + attikos.layer_norm(y[1], w[1], w[2])
given = [torch.arange(float(r * 8)).reshape(r, 8).sin().requires_grad_() for r in (5, 8)]
out = checkpoint(block, *given, use_reentrant=False)
found = torch.autograd.grad(out, given, out.detach())
out = block(*given)
for one, other in zip(found, torch.autograd.grad(out, given, out.detach())):
    assert torch.equal(one, other)
"""


def more_calls():
    """Those of test_operators, and what else goes the short way."""
    x, labels = n(3, 4, 16), torch.arange(4).expand(3, 4)
    return {
        **calls(),
        "cross_entropy of rows": (lambda x: attikos.cross_entropy(x, labels, reduction="none"), (x,)),
        "the sum of cross_entropy": (lambda x: attikos.cross_entropy(x, labels, reduction="sum"), (x,)),
        "gemm twice": (lambda a, b: attikos.gemm(a, b, return_pre_activation=True), (n(5, 6), n(6, 4, seed=2))),
        "attention alone": (attikos.attention, (n(2, 4, 5, 8), n(2, 2, 7, 8, seed=2), n(2, 2, 7, 6, seed=3))),
    }


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Kept(unittest.TestCase):
    def setUp(self):
        importlib.import_module("attikos._operators")  # of which one call is one

    def kept_by(self, function, tensors, way):
        """The tensors that a call keeps, and its results."""
        found = []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: found.append(t.detach().clone()) or t, lambda t: t)
        with hooks, way():
            results = function(*(t.detach().clone().requires_grad_() for t in tensors))
        return found, results if isinstance(results, tuple) else (results,)

    def test_by_either_way(self):
        for name, (function, tensors) in more_calls().items():
            function(*tensors)  # opens the short way
            ways = [self.kept_by(function, tensors, way)[0] for way in (contextlib.nullcontext, long_only)]
            self.assertTrue(ways[0], name)
            for one, other in zip(*ways, strict=True):
                self.assertTrue(one.dtype == other.dtype and torch.equal(one, other), name)

    def test_no_result_that_nothing_reads(self):
        """Softmaxes and attention read their results; what others keep is none of theirs."""
        of_results = {"softmax", "log_softmax"}
        for name, (function, tensors) in more_calls().items():
            if name in of_results or "attention" in name or "attn" in name or "residual" in name or "activation" in name:
                continue
            for way in (contextlib.nullcontext, long_only):
                kept, results = self.kept_by(function, tensors, way)
                for result in results:
                    same = [t for t in kept if t.shape == result.shape and torch.equal(t, result)]
                    self.assertEqual(same, [], f"{name} {way.__name__}")
        for name in of_results:
            x = n(3, 4, 16)
            for way in (contextlib.nullcontext, long_only):
                kept, (result,) = self.kept_by(getattr(attikos, name), (x,), way)
                self.assertEqual(len(kept), 1)
                self.assertTrue(torch.equal(kept[0], result))

    def test_checkpoints_that_change_their_way(self):
        from torch.utils.checkpoint import checkpoint

        for name, (function, tensors) in more_calls().items():
            expected = gradients(function, tensors)
            for there, back in ((long_only, contextlib.nullcontext), (contextlib.nullcontext, long_only)):
                ways = iter((there, back))

                def block(*given, function=function, ways=ways):
                    with next(ways)():
                        return function(*given)

                found = gradients(lambda *t, block=block: checkpoint(block, *t, use_reentrant=False), tensors)
                self.assertEqual(list(ways), [], name)
                for one, other in zip(found, expected, strict=True):
                    self.assertTrue(torch.equal(one, other), name)

    def test_checkpoint_of_the_first_call(self):
        done = subprocess.run([sys.executable, "-W", "error", "-c", FIRST_OF_A_PROCESS], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
