# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of causal attention against length, beside PyTorch, as a plot in the terminal and as a picture.

  python 5_time_against_length.py [--png FILE] [--longest N]        needs PyTorch; for the picture matplotlib
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional

import attikos

SIDES = {
    "attikos": lambda q, k, v: attikos.attention(q, k, v, causal=True),
    "PyTorch": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
}


def measure(longest):
    """{side: {length: milliseconds}}, medians; the sides take turns."""
    found = {side: {} for side in SIDES}
    for length in (64 << i for i in range(20) if 64 << i <= longest):
        q, k, v = torch.randn(3, 1, 8, length, 64)
        times = {side: [] for side in SIDES}
        for _ in range(8):
            for side, call in SIDES.items():
                begin = time.perf_counter()
                call(q, k, v)
                times[side].append(1e3 * (time.perf_counter() - begin))
        for side in SIDES:
            found[side][length] = statistics.median(times[side][1:])
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--png"), parser.add_argument("--longest", type=int, default=1024)
    found = measure((options := parser.parse_args()).longest)
    most = max(max(times.values()) for times in found.values())
    for length in next(iter(found.values())):
        for side, times in found.items():
            bar = "#" * max(1, round(50 * times[length] / most))
            print(f"{length:>6} {side:<8} {times[length]:8.2f} ms {bar}")
    if options.png:
        from matplotlib.figure import Figure

        axes = (figure := Figure(figsize=(6, 4))).subplots()
        for side, times in found.items():
            axes.loglog(list(times), list(times.values()), "o-", label=side)
        axes.set(xlabel="length", ylabel="milliseconds", title="causal attention, 8 heads of 64, float32")
        axes.legend()
        figure.savefig(options.png, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
