# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds that the host spends in a call of the Python package, beside PyTorch's own operator of the same numbers
in the same process: what a call costs whose kernel is shorter than that.

  host_time_torch.py [--device cpu|cuda] [--batches N]

Arrays are small, warm and contiguous, nothing records gradients but in the last rows. Batches of 100 calls, the two
sides in turn, the device idle before each and not waited for inside: with so few calls its queue takes all of them.
Median and least of the batches. `long` is the way that calls go which the compiled border does not take.
"""

import argparse
import statistics
import time

import attikos
import torch
import torch.nn.functional as F
from attikos import _border, flash_attn


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() and attikos.has_cuda() else "cpu")
    parser.add_argument("--batches", type=int, default=30)
    arguments = parser.parse_args()
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else (lambda: None)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"{name}, PyTorch {torch.__version__}, attikos {attikos.__version__}; µs a call, median (least)")
    print(f"{'':36}{'attikos':>16}{'long':>16}{'PyTorch':>16}{'ratio':>8}")
    for case, (ours, theirs) in cases(arguments.device).items():
        sides = [ours, long_way(ours), theirs]
        for side in sides:
            batch(side, synchronize)
        taken = [[] for _ in sides]
        for _ in range(arguments.batches):
            for side, times in zip(sides, taken):
                times.append(batch(side, synchronize))
        medians = [statistics.median(times) for times in taken]
        cells = "".join(f"{m:>9.1f} ({min(t):>4.1f})" for m, t in zip(medians, taken))
        print(f"{case:36}{cells}{medians[0] / medians[2]:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
