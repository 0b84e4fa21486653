# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, what it equals, and how much memory it takes: the formula stores seqlen * seqlen scores, the library none.

  python 1_attention_and_its_memory.py        needs NumPy; the memory is Linux's count of this process
"""

import pathlib

import numpy as np

import attikos

BATCH, HEADS, FEATURES = 1, 2, 64


def formula(q, k, v):
    """softmax(q k^T / sqrt(d)) v, each query with the keys up to its own."""
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    scores[..., ~np.tri(q.shape[-2], dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def megabytes(function, *arrays):
    """(result, by how much the memory of the process grew at most while the function ran)"""
    status, reset = pathlib.Path("/proc/self/status"), pathlib.Path("/proc/self/clear_refs")
    if not reset.exists():
        return function(*arrays), float("nan")

    def read(name):
        line = next(line for line in status.read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) / 1024

    before = read("VmRSS:")
    reset.write_text("5")  # the peak begins anew
    return function(*arrays), read("VmHWM:") - before


def main():
    print(attikos.explain("attention", *[np.zeros((BATCH, HEADS, 1024, FEATURES), np.float32)] * 3, causal=True))
    print(f"{'length':>8} {'formula':>12} {'attikos':>12}   largest difference")
    for length in (512, 1024, 2048, 4096):
        draw = np.random.default_rng(length)
        q, k, v = (draw.standard_normal((BATCH, HEADS, length, FEATURES), np.float32) for _ in range(3))
        attikos.attention(q, k, v, causal=True)  # the first call starts threads
        out, ours = megabytes(lambda q, k, v: attikos.attention(q, k, v, causal=True), q, k, v)
        exact, theirs = megabytes(formula, q, k, v)
        print(f"{length:>8} {theirs:>9.1f} MB {ours:>9.1f} MB   {np.abs(out - exact).max():.1e}")
        assert np.abs(out - exact).max() < 1e-5


if __name__ == "__main__":
    main()
