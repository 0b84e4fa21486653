# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cases of test_transformers.py on a GPU, and models whose heads are those that kernels for tensor cores take."""

import unittest
from unittest import mock

import attikos
import test_transformers as cases
from test_transformers import tearDownModule  # noqa: F401

if cases.torch is not None:
    import torch
    import transformer_models as models


def setUpModule():
    if cases.torch is None or not (attikos.has_cuda() and torch.cuda.is_available()):
        raise unittest.SkipTest("needs transformers, PyTorch and a CUDA device")
    cases.setUpModule()


class OnCuda:
    def run(self, result=None):
        with mock.patch.object(models, "DEVICE", "cuda"):
            return super().run(result)


class ModelsOnCuda(OnCuda, cases.Models):
    pass


class GenerationOnCuda(OnCuda, cases.Generation):
    def test_compiled_by_generate(self):
        """What transformers does by itself with a static cache on a GPU: Inductor's code between calls of kernels, and a
        graph of CUDA's that is launched for each token."""
        model, mask = models.build("llama").float(), models.padding("left")
        found = {}
        for implementation, compiled in (("eager", False), ("attikos", False), ("attikos", True)):
            model.set_attn_implementation(implementation)
            done = model.generate(
                models.tokens(), attention_mask=mask, max_new_tokens=9, do_sample=False, output_logits=True,
                return_dict_in_generate=True, cache_implementation="static", disable_compile=not compiled,
            )  # fmt: skip
            found[implementation, compiled] = done.sequences, torch.stack(done.logits)
        exact, logits = found["eager", False]
        for key, (sequences, got) in found.items():
            self.assertTrue(torch.equal(exact, sequences), key)
            # Three layers of sums of at most 64 products, each rounded to 2^-24.
            self.assertLess((got - logits).norm().item(), 64 * 3 * 2.0**-24 * logits.norm().item(), key)


class MasksOnCuda(OnCuda, cases.Masks):
    pass


class WideHeads(OnCuda, cases.Models):
    """Of 64 elements, as tensor cores have kernels for; in bfloat16 these are other kernels than on a host."""

    def run(self, result=None):
        with mock.patch.dict(models.SIZES, head_dim=64):
            return super().run(result)

    test_encoders = None  # takes its own sizes


if __name__ == "__main__":
    unittest.main()
