# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds that the host spends in a call of the Python package, beside PyTorch's own operator of the same numbers
in the same process: what a call costs whose kernel is shorter than that.

  host_time_torch.py [--device cpu|cuda] [--batches N] [--out FILE]

Arrays are small, warm and contiguous, nothing records gradients but in the last rows. Batches of 100 calls, the two
sides in turn, the device idle before each and not waited for inside: with so few calls its queue takes all of them.
Median and least of the batches. `long` is the way that calls go which the compiled border does not take.

`goal` is what a call may take at most: a number of microseconds, on a device also 0.6 of PyTorch's time, and where
gradients are recorded 5 more than PyTorch's; `over` is by how much the median misses the goal, "" where it does not.
"""

import argparse
import json
import os
import statistics
import time

import attikos
import torch
import torch.nn.functional as F
from attikos import _border, flash_attn


# Microseconds that a call may take on a device; more than PyTorch's where gradients are recorded. On a host all have the
# same, and new keys, a step more than the others, none.
GOALS = {"gemm": 7, "rms_norm": 7, "attention": 9, "flash_attn_func": 9, "flash_attn_with_kvcache": 14}
ON_A_HOST, RECORDED, OF_TORCH = 4, 5, 0.6


def goal_of(case, device, theirs):
    if case.endswith(", recorded"):
        return theirs + RECORDED
    if case not in GOALS:
        return None
    return min(GOALS[case], OF_TORCH * theirs) if device == "cuda" else ON_A_HOST


def cases(device):
    """{name: (ours, PyTorch's)}"""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def n(*shape):
        return torch.randn(shape, device=device, dtype=dtype)

    # A small problem of each kind; on a host tiny ones, whose arithmetic takes less than a microsecond.
    big = device == "cuda"
    a, b = (n(128, 128), n(128, 128)) if big else (n(8, 8), n(8, 8))
    x, weight = (n(64, 1024), n(1024)) if big else (n(8, 8), n(8))
    q = n(1, 8, 128, 64) if big else n(1, 1, 4, 8)
    last = q.transpose(1, 2).contiguous()
    batch, length, heads, features = (4, 512, 8, 64) if big else (1, 16, 1, 8)
    one, cache = n(batch, 1, heads, features), n(batch, length, heads, features)
    values, new = n(batch, length, heads, features), n(batch, 1, heads, features)
    lengths = torch.full((batch,), length - 1, dtype=torch.int32, device=device)
    visible = (torch.arange(length, device=device)[None] <= lengths[:, None])[:, None, None]
    rows = torch.arange(batch, device=device)
    wanted = [t.clone().requires_grad_() for t in (a, b)]
    wanted_q = [q.clone().requires_grad_() for _ in range(3)]
    wanted_x = [t.clone().requires_grad_() for t in (x, weight)]

    def torch_cache():
        cache[rows, lengths] = new[:, 0]
        values[rows, lengths] = new[:, 0]
        return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (one, cache, values)), attn_mask=visible)

    return {
        "gemm": (lambda: attikos.gemm(a, b), lambda: a @ b),
        "rms_norm": (lambda: attikos.rms_norm(x, weight), lambda: F.rms_norm(x, weight.shape, weight, 1e-6)),
        "attention": (lambda: attikos.attention(q, q, q), lambda: F.scaled_dot_product_attention(q, q, q)),
        "flash_attn_func": (
            lambda: flash_attn.flash_attn_func(last, last, last, causal=True),
            lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        ),
        "flash_attn_with_kvcache": (
            lambda: flash_attn.flash_attn_with_kvcache(one, cache, values, cache_seqlens=lengths),
            lambda: F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (one, cache, values)), attn_mask=visible),
        ),
        "flash_attn_with_kvcache, new keys": (
            lambda: flash_attn.flash_attn_with_kvcache(one, cache, values, new, new, cache_seqlens=lengths),
            torch_cache,
        ),
        "gemm, recorded": (lambda: attikos.gemm(*wanted), lambda: wanted[0] @ wanted[1]),
        "rms_norm, recorded": (
            lambda: attikos.rms_norm(*wanted_x), lambda: F.rms_norm(wanted_x[0], weight.shape, wanted_x[1], 1e-6)
        ),
        "attention, recorded": (
            lambda: attikos.attention(*wanted_q), lambda: F.scaled_dot_product_attention(*wanted_q)
        ),
    }  # fmt: skip


def batch(function, synchronize, calls=100):
    synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - begin) / calls * 1e6


def long_way(function):
    def call():
        token = _border.barred.set(True)
        try:
            return function()
        finally:
            _border.barred.reset(token)

    return call


def context(on_device):
    if on_device:
        import companion_torch

        return companion_torch.context()
    commit = os.environ.get("ATTIKOS_COMMIT", "unknown")
    return {"device": attikos.detect_host().name, "torch": torch.__version__, "attikos_commit": commit}


def measured(device, batches):
    """A row for each case."""
    synchronize = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for case, (ours, theirs) in cases(device).items():
        sides = {"attikos": ours, "long": long_way(ours), "torch": theirs}
        taken = {name: [] for name in sides}
        for side in sides.values():
            batch(side, synchronize)
        for _ in range(batches):
            for name, side in sides.items():
                taken[name].append(batch(side, synchronize))
        row = {"function": case}
        for name, times in taken.items():
            row[f"{name} us"], row[f"{name} least us"] = (round(f(times), 2) for f in (statistics.median, min))
        row["ratio"] = round(row["attikos us"] / row["torch us"], 3)
        goal = goal_of(case, device, row["torch us"])
        row["goal us"] = None if goal is None else round(goal, 2)
        row["over us"] = None if goal is None or row["attikos us"] <= goal else round(row["attikos us"] - goal, 2)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() and attikos.has_cuda() else "cpu")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--out", help="report as JSON")
    arguments = parser.parse_args()
    on_device = arguments.device == "cuda"
    report = {**context(on_device), "load_average": os.getloadavg()[0], "batches": arguments.batches, "cases": []}
    print(f"{report['device']}, PyTorch {report['torch']}, attikos {attikos.__version__}; µs a call, median (least)")
    print(f"{'':36}{'attikos':>16}{'long':>16}{'PyTorch':>16}{'ratio':>8}{'goal':>8}{'over':>8}")
    for row in measured(arguments.device, arguments.batches):
        report["cases"].append(row)
        cells = "".join(f"{row[f'{n} us']:>9.1f} ({row[f'{n} least us']:>4.1f})" for n in ("attikos", "long", "torch"))
        ends = "".join(f"{'' if row[n] is None else row[n]:>8}" for n in ("ratio", "goal us", "over us"))
        print(f"{row['function']:36}{cells}{ends}", flush=True)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
