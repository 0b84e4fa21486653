# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights, activations and a cache of keys and values in eight bits: how far the results are from float32, and what is
saved.

  python 4_float8_inference.py        needs NumPy and ml_dtypes
"""

import numpy as np

import attikos

DRAW = np.random.default_rng(2)
WIDTH, HEADS, LENGTH = 256, 4, 128


def normal(*shape):
    return DRAW.standard_normal(shape, np.float32)


def error(found, exact):
    return np.linalg.norm(found.astype(np.float32) - exact) / np.linalg.norm(exact)


def products():
    """One factor to a tensor, one to a row of x and a column of the weight, and one to blocks of 128."""
    x, weight = normal(LENGTH, WIDTH), normal(WIDTH, WIDTH)
    x[:, 3] *= 30  # a feature that is larger than all others, as models have them
    exact = x @ weight
    for of_x, of_weight in (("tensor", "tensor"), ("row", "column"), ("1x128", "128x128")):
        a, a_scale = attikos.quantize(x, granularity=of_x)
        b, b_scale = attikos.quantize(weight, granularity=of_weight)
        out = attikos.fp8_gemm(a, b, a_scale, b_scale, output_dtype=np.float32)
        print(f"product, {of_x}, {of_weight}: {weight.nbytes} -> {b.nbytes} bytes, error {error(out, exact):.1%}")
        assert error(out, exact) < 0.06


def attention():
    """Queries, keys and values in float8 with a factor each; sums are float32."""
    q, k, v = (normal(1, HEADS, LENGTH, WIDTH // HEADS) for _ in range(3))
    exact = attikos.attention(q, k, v, causal=True)
    (q8, of_q), (k8, of_k), (v8, of_v) = (attikos.quantize_fp8(x) for x in (q, k, v))
    factors = {f"descale_{n}": f.reshape(1) for n, f in (("q", of_q), ("k", of_k), ("v", of_v))}
    out = attikos.attention(q8, k8, v8, causal=True, out_dtype=np.float32, **factors)
    print(f"attention: cache of {k.nbytes + v.nbytes} -> {k8.nbytes + v8.nbytes} bytes, error {error(out, exact):.1%}")
    assert error(out, exact) < 0.06


if __name__ == "__main__":
    products()
    attention()
