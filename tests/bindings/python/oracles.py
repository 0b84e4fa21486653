# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Float64 oracles in NumPy with an error bound for every element, derived as tests/support/tolerance.hpp does:
u is half the spacing at 1 of the type that accumulates, a sum of n terms is off by at most
min(n, 6 sqrt(n)) u sum|terms|, an elementary function by 8 u. Nothing is tuned to a result."""

from __future__ import annotations

import functools

import attikos
import ml_dtypes
import numpy as np

FLOATING = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
MATH = 8.0

_UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_SMALLEST = {"float64": 5e-324, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


def unit(dtype) -> float:
    return _UNIT[np.dtype(dtype).name]


def accumulator(dtype):
    return np.float64 if np.dtype(dtype) == np.float64 else np.float32


def growth(n: float) -> float:
    return min(n, 6 * np.sqrt(n))


def stored(exact, error, dtype):
    """The bound behind the rounding to the output's type; the oracle's own error doubles that of float64."""
    factor = 2.0 if np.dtype(dtype) == np.float64 else 1.0
    return factor * error + unit(dtype) * (np.abs(exact) + error) + _SMALLEST[np.dtype(dtype).name]


def wide(x):
    return np.asarray(x).astype(np.float64)


def gemm(a, b, out_dtype, alpha=1.0, beta=0.0, c=None):
    a, b = wide(a), wide(b)
    u = unit(accumulator(out_dtype))
    product = np.abs(alpha) * (np.abs(a) @ np.abs(b))
    exact = alpha * (a @ b)
    terms = product.copy()
    if beta:
        exact = exact + beta * wide(c)
        terms += np.abs(beta * wide(c))
    return exact, stored(exact, growth(a.shape[-1]) * u * product + 6 * u * terms, out_dtype)


@functools.cache
def host_rounds_weights():
    """Whether this host has the dot products of bfloat16, for which flash attention rounds weights."""
    return attikos.detect_host().host_isa in ("avx512_bf16", "amx")


def attention(q, k, v, causal=False, scale=None, keep=None, added=None, softcap=0.0, parts=0, out_dtype=None,
              rounded_weights=None):  # fmt: skip
    """Output, log-sum-exp and bounds of both. keep: boolean [.., seqlen_q, seqlen_kv], True where visible; added: a
    term of the scores; parts: at most so many parts of the keys are worked on apart and merged; rounded_weights: for
    kernels on tensor cores, which round weights to an output's type of 16 bits; None: as this host does."""
    dtype = np.asarray(q).dtype
    u = unit(accumulator(dtype))
    out_dtype = dtype if out_dtype is None else out_dtype
    if rounded_weights is None:
        rounded_weights = np.dtype(out_dtype).name == "bfloat16" and host_rounds_weights()
    q, k, v = wide(q), wide(k), wide(v)
    if k.shape[-3] != q.shape[-3]:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    rows, columns, d = q.shape[-2], k.shape[-2], q.shape[-1]
    scale = scale or 1 / np.sqrt(d)
    visible = np.ones((rows, columns), bool)
    if causal:
        visible = np.arange(columns)[None] <= np.arange(rows)[:, None] + columns - rows
    if keep is not None:
        visible = visible & keep
    score = scale * (q @ np.swapaxes(k, -1, -2))
    size = np.abs(scale) * (np.abs(q) @ np.abs(np.swapaxes(k, -1, -2)))
    if softcap:  # c tanh(s / c) is no larger than s and no steeper: three roundings of its own
        score = softcap * np.tanh(score / softcap)
        size = size * (1 + (MATH + 2) / (growth(d) + 4))
    if added is not None:
        score, size = score + added, size + np.abs(added)
    visible = np.broadcast_to(visible, score.shape)
    score = np.where(visible, score, -np.inf)
    size = np.where(visible, size, 0)
    top = score.max(axis=-1, keepdims=True, initial=-np.inf)
    weight = np.exp(score - np.where(np.isfinite(top), top, 0))
    total = weight.sum(-1, keepdims=True)
    p = weight / np.where(total == 0, 1, total)
    out = p @ v
    with np.errstate(divide="ignore"):
        lse = (np.where(np.isfinite(top), top, 0) + np.log(total))[..., 0]
    # tolerance.hpp, AttentionBound
    largest = size.max(axis=-1, keepdims=True, initial=0)
    each = np.expm1(
        (growth(d) + 4) * u * size + 4 * u * largest + MATH * u + growth(columns / 8 + 1) * (MATH + 1) * u
    )
    mean = (p * each).sum(-1, keepdims=True)
    sums = (growth(columns) + 2) * u
    error = np.abs(out) * (mean + sums + 3 * u) + (p * (each + sums)) @ np.abs(v)
    error = error + columns * 2.0**-126 * np.abs(v).max(initial=0)
    if rounded_weights and np.dtype(out_dtype).itemsize == 2:
        narrow = np.dtype(out_dtype).name
        error = error + _UNIT[narrow] * (p @ np.abs(v)) + columns * _SMALLEST[narrow] / 2 * np.abs(v).max(initial=0)
    extent = largest[..., 0] + np.log(max(columns, 1)) + 1
    lse_error = mean[..., 0] + sums + (MATH + 3) * u * extent
    finite = np.where(np.isfinite(lse), lse, 0)
    if parts:  # tolerance_decode.hpp, DecodeBound
        log_n = np.log(columns + 1)
        extra = u * (MATH * (log_n + 1) + 2 * (2 * largest + log_n) + 6 + growth(parts))
        error = error + 2 * extra * (p @ np.abs(v) + np.abs(out))
        lse_error = lse_error + extra[..., 0] + u * np.abs(finite)
    return out, stored(out, error, out_dtype), lse, stored(finite, lse_error, accumulator(dtype))


def rope(x, cos, sin, interleaved, positions):
    """x [batch, heads, seqlen, d] rotated by rows `positions` [batch, seqlen] of tables with one entry to a pair;
    tolerance_norms.hpp, rope_bound."""
    dtype = np.asarray(x).dtype
    x, half = wide(x), cos.shape[1]
    c, s = (wide(t)[positions][:, None] for t in (cos, sin))
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    exact, error = x.copy(), np.zeros_like(x)
    a, b = x[..., first], x[..., second]
    exact[..., first], exact[..., second] = a * c - b * s, b * c + a * s
    u = unit(accumulator(dtype))
    error[..., first] = 3 * u * (np.abs(a * c) + np.abs(b * s))
    error[..., second] = 3 * u * (np.abs(b * c) + np.abs(a * s))
    return exact, stored(exact, error, dtype)


def merge(outs, lses, dtype, accumulate):
    """Parts along the first dimension; tolerance_decode.hpp, MergeBound."""
    u = unit(accumulate)
    outs, lses = wide(outs), wide(lses)
    n = outs.shape[0]
    seen = np.isfinite(lses)
    top = np.where(seen, lses, -np.inf).max(0, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    weight = np.exp(lses - shift)
    total = weight.sum(0)
    p = weight / np.where(total == 0, 1, total)
    outs = np.where(seen[..., None], outs, 0)
    exact = (p[..., None] * outs).sum(0)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    each = np.where(seen, np.expm1(u * np.where(seen, shift - lses, 0) + MATH * u), 0)
    sums = (p * each).sum(0) + growth(n) * u
    error = (p[..., None] * np.abs(outs) * (each + sums + (growth(n) + 3) * u)[..., None]).sum(0)
    error = error + n * 2.0**-126 * np.abs(outs).max(0, initial=0)
    finite = np.where(np.isfinite(lse), lse, 0)
    lse_error = sums + MATH * u * np.log(n + 1) + u * np.abs(finite)
    return exact, stored(exact, error, dtype), lse, stored(finite, lse_error, accumulate)


def softmax(x, scale=1.0):
    dtype = np.asarray(x).dtype
    u = unit(accumulator(dtype))
    y = scale * wide(x)
    top = y.max(-1, keepdims=True)
    weight = np.exp(y - top)
    exact = weight / weight.sum(-1, keepdims=True)
    # scaling and subtracting round numbers no larger than max|y|: an absolute error of the exponent
    exponent = 3 * u * (np.abs(y).max(-1, keepdims=True)) + MATH * u
    error = exact * (2 * np.expm1(exponent) + growth(y.shape[-1]) * u + 4 * u)
    return exact, stored(exact, error, dtype)


def rms_norm(x, weight, eps):
    dtype = np.asarray(x).dtype
    u = unit(accumulator(dtype))
    x, weight = wide(x), wide(weight)
    n = x.shape[-1]
    exact = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    # the sum is off by growth(n) + 3 roundings, its root by half of that; root, quotient, two products
    error = np.abs(exact) * (0.5 * (growth(n) + 3) + MATH + 6) * u
    return exact, stored(exact, error, dtype)


def layer_norm(x, weight, bias, eps):
    dtype = np.asarray(x).dtype
    u = unit(accumulator(dtype))
    x, weight, bias = wide(x), wide(weight), wide(bias)
    n = x.shape[-1]
    mean = x.mean(-1, keepdims=True)
    deviation = x - mean
    variance = (deviation**2).mean(-1, keepdims=True) + eps
    normal = deviation / np.sqrt(variance)
    exact = normal * weight + bias
    shift = (growth(n) + 2) * u * np.abs(x).mean(-1, keepdims=True) + u * np.abs(x)
    # an error s of the mean changes each deviation by s and the variance by no more than 2 s mean|deviation| + s^2
    worst = shift.max(-1, keepdims=True)
    of_variance = (growth(n) + 4) * u * variance + 2 * worst * np.abs(deviation).mean(-1, keepdims=True) + worst**2
    error = np.abs(weight) * (shift / np.sqrt(variance) + np.abs(normal) * (of_variance / variance + (MATH + 6) * u))
    error = error + 2 * u * (np.abs(exact) + np.abs(bias))
    return exact, stored(exact, error, dtype)


WORST = {}  # the largest error over bound by name


def check(test, got, exact, bound, what="", record=None):
    """Every element within its bound; names the worst."""
    got = wide(got)
    test.assertEqual(got.shape, np.shape(exact), what)
    same = (got == exact) | (np.isnan(got) & np.isnan(exact))  # infinities compare equal to themselves
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(got - exact))
    ratio = np.where(error == 0, 0, error / np.maximum(bound, 1e-320))
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    if record is not None:
        WORST[record] = max(WORST.get(record, 0.0), float(ratio.max(initial=0)))
    if ratio.size and ratio.max() > 1:
        at = np.unravel_index(ratio.argmax(), ratio.shape)
        test.fail(f"{what}: at {at} got {got[at]}, expected {exact[at]}, {ratio[at]:.2f} times the bound")
