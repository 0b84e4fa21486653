# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs flash-attn's own tests/test_flash_attn.py against attikos.flash_attn, drawn at random:

  flash_attn_suite.py CHECKOUT [--count 400] [--seconds S] [--seed N] [--processes P] [--device cuda|cpu]
                      [argument of pytest]...

CHECKOUT is a clone of https://github.com/Dao-AILab/flash-attention that the caller has, or what is used of it; nothing of
it is built. Its package's names are those of attikos, its helpers (padding, rotation) its own. Wants PyTorch, pytest and
einops. On a CPU the device's name in the tests is another; there a hundred cases take minutes.

A machine without a network needs one folder, of 3 MB (`git archive` takes no other file of the clone):

  U="tests/test_flash_attn.py flash_attn/bert_padding.py flash_attn/layers/__init__.py flash_attn/layers/rotary.py"
  U="$U flash_attn/ops/__init__.py flash_attn/ops/triton/__init__.py flash_attn/ops/triton/rotary.py"
  mkdir -p F && git -C CLONE archive HEAD $U | tar -x -C F
  pip install --no-deps --no-compile --target F/packages 'pytest<8.4' einops pluggy iniconfig packaging

and there, with attikos and PyTorch installed:

  PYTHONPATH=F/packages python3 flash_attn_suite.py F --seconds 100 --processes 8

--seconds ends the run between two tests once so much time is gone, and counts what was not reached: the order is drawn, too.
--processes are so many at once, each with its share of what was drawn. Calls of caches and of packed sequences are checked
(check=True), as that package checks them, and those with pages are not recorded. Left out, and counted: dropout, which is not
offered, and the entry points of its extension. Prints the seed, how many tests there are, how many of which function were
drawn, and what became of them."""

import argparse
import ast
import collections
import functools
import importlib.util
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import types

import pytest
import torch

from attikos import flash_attn as ours

LEFT_OUT = dict.fromkeys(
    # The second calls _flash_attn_varlen_forward, which takes what the extension takes.
    ("test_flash_attn_generator_arg_must_be_none", "test_flash_attn_varlen_paged_kv_num_splits"),
    "entry points of the extension",
)


def rotated_by_torch(
    x, cos, sin, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None, interleaved=False, inplace=False, conjugate=False
):
    """Where Triton does not go: x [batch, seqlen, heads, d], rotated by its position behind seqlen_offsets."""
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


def packed(*arrays, **options):
    """Keys in pages have no gradients. Tests ask for them nevertheless and do not take them; here that is refused."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and options.get("block_table") is None):
        return ours.flash_attn_varlen_func(*arrays, **options, check=True)


def stand_in(checkout, device):
    """Modules of flash_attn's names in the place of its extension."""

    def module(name, **names):
        made = types.ModuleType(name)
        made.__dict__.update(names)
        sys.modules[name] = made
        return made

    functions = {name: getattr(ours, name) for name in ours.__all__}
    functions["flash_attn_with_kvcache"] = functools.partial(ours.flash_attn_with_kvcache, check=True)
    functions["flash_attn_varlen_func"] = packed
    package = module("flash_attn", **functions)
    package.__path__ = [str(checkout / "flash_attn")]
    module("flash_attn.flash_attn_interface", **functions, USE_TRITON_ROCM=False, _get_block_size_n=lambda *_: 64)
    if device == "cpu" or importlib.util.find_spec("triton") is None:
        module("flash_attn.ops.triton.rotary", apply_rotary=rotated_by_torch)


NOT_REACHED = "no time was left"


def flat(at, names, values):
    """Combination number `at` of parameters, of which some stand in one list."""
    found = []
    for words, given in zip(names, values):
        at, i = divmod(at, len(given))
        found += given[i] if "," in words else [given[i]]
    return found


class Draw:
    """Leaves tests out, draws among the others, as many of each function, and counts what became of them."""

    def __init__(self, count, seed, share, end):
        self.count, self.seed, self.share, self.end = count, seed, share, end
        self.all, self.left_out = 0, collections.Counter()
        self.drawn, self.became = collections.Counter(), collections.Counter()

    def pytest_pycollect_makeitem(self, collector, name, obj):
        """Draws before pytest makes the tests: of half a million that takes a minute."""
        if not name.startswith("test_"):
            return None
        marks = getattr(obj, "pytestmark", [])
        choices = [mark.args for mark in marks if mark.name == "parametrize"]
        names = [words.replace(" ", "") for words, _ in choices]
        values = [list(given) for _, given in choices]
        every = math.prod(map(len, values))
        self.all += every
        if name in LEFT_OUT:
            self.left_out[LEFT_OUT[name]] += every
            return []
        if "dropout_p" in names:
            at = names.index("dropout_p")
            values[at] = [p for p in values[at] if p == 0]
        several = math.prod(map(len, values))
        self.left_out["dropout"] += every - several
        functions = [f for f in vars(collector.obj) if f.startswith("test_") and f not in LEFT_OUT]
        share = -(-self.count // len(functions))  # one has most of them: each function gets the same number
        drawn = random.Random(f"{self.seed} {name}").sample(range(several), min(share, several))
        if choices:
            others = [mark for mark in marks if mark.name != "parametrize"]
            combined = pytest.mark.parametrize(",".join(names), [flat(at, names, values) for at in drawn])
            obj.pytestmark = [*others, combined.mark]
        return None

    def pytest_collection_modifyitems(self, items):
        random.Random(self.seed).shuffle(items)
        items[:] = items[self.share[0] :: self.share[1]]
        self.drawn.update(item.originalname for item in items)

    def pytest_runtest_setup(self, item):
        if time.monotonic() > self.end:
            self.became["not reached"] += 1
            pytest.skip(NOT_REACHED)

    def pytest_runtest_logreport(self, report):
        if NOT_REACHED not in str(report.longrepr) and (report.when == "call" or report.outcome != "passed"):
            self.became[report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter):
        line = terminalreporter.write_line
        line(f"{self.all} tests, of them left out: {dict(self.left_out)}")
        line(f"{sum(self.drawn.values())} drawn by seed {self.seed}: {dict(sorted(self.drawn.items()))}")
        line(f"{COUNTS}{dict(self.became)} (those that skip want more memory, or combine what they do not)")


COUNTS = "counts: flash-attn's own tests: "


def in_processes(arguments, others):
    """The run in so many processes; their counts together."""
    given = {"count": arguments.count, "seed": arguments.seed, "device": arguments.device, "seconds": arguments.seconds}
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    command = [sys.executable, __file__, str(arguments.checkout), *words, *others]
    shares = [
        subprocess.Popen([*command, "--share", f"{i}/{arguments.processes}"], stdout=subprocess.PIPE, text=True)
        for i in range(arguments.processes)
    ]
    became, said = collections.Counter(), 0
    for share in shares:
        output, _ = share.communicate()
        print(output)
        for line in output.splitlines():
            if line.startswith(COUNTS):
                said += 1
                became.update(ast.literal_eval(line[len(COUNTS) : line.index("}") + 1]))
    print(f"{COUNTS}{dict(became)} in {said} of {arguments.processes} processes, seed {arguments.seed}")
    # 5: a share of nothing
    return int(said < arguments.processes or any(share.returncode not in (0, 5) for share in shares))


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
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--share", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments, others = parser.parse_known_args()
    tests = arguments.checkout / "tests" / "test_flash_attn.py"
    if not tests.exists():
        parser.error(f"{tests} does not exist; expected a clone of flash-attention")
    end = math.inf if arguments.seconds is None else time.monotonic() + arguments.seconds
    if arguments.processes > 1:
        return in_processes(arguments, others)
    stand_in(arguments.checkout.resolve(), arguments.device)
    with tempfile.TemporaryDirectory() as folder:
        path = on_cpu(tests, folder) if arguments.device == "cpu" else tests
        share = tuple(int(number) for number in arguments.share.split("/"))
        draw = Draw(arguments.count, arguments.seed, share, end)
        return pytest.main([str(path), "-q", "-p", "no:cacheprovider", f"--rootdir={path.parent}", *others], plugins=[draw])


if __name__ == "__main__":
    sys.exit(main())
