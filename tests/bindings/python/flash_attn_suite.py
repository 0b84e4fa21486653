# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs flash-attn's own tests/test_flash_attn.py against attikos.flash_attn, drawn at random:

  flash_attn_suite.py CHECKOUT [--count 400] [--seed N] [--device cuda|cpu] [argument of pytest]...

CHECKOUT is a clone of https://github.com/Dao-AILab/flash-attention that the caller has; nothing of it is built. Its
package's names are those of attikos, its helpers (padding, rotation) its own. Wants PyTorch, pytest and einops. On a CPU
the device's name in the tests is another; there a hundred cases take minutes.

Calls of caches are checked (check=True), as that package checks them. Left out, and counted: dropout, which is not
offered, and the entry points of its extension. Prints how many tests there are, how many of which function were drawn, and
what became of them."""

import argparse
import collections
import functools
import importlib.util
import pathlib
import random
import sys
import tempfile
import types

import pytest
import torch

from attikos import flash_attn as ours

LEFT_OUT = {"test_flash_attn_generator_arg_must_be_none": "entry points of the extension"}


def rotated_by_torch(
    x, cos, sin, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None, interleaved=False, inplace=False, conjugate=False
):
    """Where there is no Triton: x [batch, seqlen, heads, d], rotated by its position behind seqlen_offsets."""
    assert cu_seqlens is None
    at = torch.arange(x.shape[1], device=x.device)
    at = at + (seqlen_offsets[:, None] if torch.is_tensor(seqlen_offsets) else torch.full((x.shape[0], 1), seqlen_offsets))
    c, s = (table[at][:, :, None].float() for table in (cos, sin))
    half = cos.shape[-1]
    part = x[..., : 2 * half].float()
    first, second = (part[..., ::2], part[..., 1::2]) if interleaved else (part[..., :half], part[..., half:])
    turned = (first * c - second * s, first * s + second * c)
    joined = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return torch.cat((joined.to(x.dtype), x[..., 2 * half :]), -1)


def stand_in(checkout):
    """Modules of flash_attn's names in the place of its extension."""

    def module(name, **names):
        made = types.ModuleType(name)
        made.__dict__.update(names)
        sys.modules[name] = made
        return made

    functions = {name: getattr(ours, name) for name in ours.__all__}
    functions["flash_attn_with_kvcache"] = functools.partial(ours.flash_attn_with_kvcache, check=True)
    package = module("flash_attn", **functions)
    package.__path__ = [str(checkout / "flash_attn")]
    module("flash_attn.flash_attn_interface", **functions, USE_TRITON_ROCM=False, _get_block_size_n=lambda *_: 64)
    if importlib.util.find_spec("triton") is None:
        module("flash_attn.ops.triton.rotary", apply_rotary=rotated_by_torch)


class Draw:
    """Leaves tests out, draws among the others, as many of each function, and counts what became of them."""

    def __init__(self, count, seed):
        self.count, self.seed = count, seed
        self.all, self.left_out = 0, collections.Counter()
        self.drawn, self.became = collections.Counter(), collections.Counter()

    def pytest_collection_modifyitems(self, items):
        self.all = len(items)
        candidates = []
        for item in items:
            parameters = getattr(getattr(item, "callspec", None), "params", {})
            why = LEFT_OUT.get(item.originalname) or ("dropout" if parameters.get("dropout_p", 0) else None)
            if why is None:
                candidates.append(item)
            else:
                self.left_out[why] += 1
        draw, functions = random.Random(self.seed), collections.defaultdict(list)
        for item in candidates:
            functions[item.originalname].append(item)
        share = -(-self.count // len(functions))  # one has most of them: each function gets the same number
        items[:] = [item for of in functions.values() for item in draw.sample(of, min(share, len(of)))]
        self.drawn.update(item.originalname for item in items)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.became[report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter):
        line = terminalreporter.write_line
        line(f"{self.all} tests, of them left out: {dict(self.left_out)}")
        line(f"{sum(self.drawn.values())} drawn by seed {self.seed}: {dict(sorted(self.drawn.items()))}")
        line(f"counts: flash-attn's own tests: {dict(self.became)} (those that skip want more memory, or combine what they do not)")


def on_cpu(tests, folder):
    """The tests with another device's name."""
    text = tests.read_text(encoding="utf-8")
    text = text.replace('torch.cuda.get_device_capability("cuda")', "(9, 0)")
    text = text.replace('torch.cuda.get_device_properties("cuda").total_memory', "2**34").replace('"cuda"', '"cpu"')
    made = pathlib.Path(folder) / tests.name
    made.write_text(text, encoding="utf-8")
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments, others = parser.parse_known_args()
    tests = arguments.checkout / "tests" / "test_flash_attn.py"
    if not tests.exists():
        parser.error(f"{tests} does not exist; expected a clone of flash-attention")
    stand_in(arguments.checkout.resolve())
    with tempfile.TemporaryDirectory() as folder:
        path = on_cpu(tests, folder) if arguments.device == "cpu" else tests
        draw = Draw(arguments.count, arguments.seed)
        return pytest.main([str(path), "-q", "-p", "no:cacheprovider", f"--rootdir={path.parent}", *others], plugins=[draw])


if __name__ == "__main__":
    sys.exit(main())
