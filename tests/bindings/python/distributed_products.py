# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products over the ranks of a group, for distributed_ranks.py: results against float64 within the bound of their sums,
gradients in float64 against PyTorch's own."""

import itertools

import attikos
import numpy as np
import oracles
from attikos import distributed
from attikos.distributed import Shards
from distributed_cases import case, numpy_itself, random


def row_descriptions(n):
    return [
        Shards.contiguous(37, n), Shards.zigzag(41, n), Shards.uneven([19] + [0] * (n - 1)),
        Shards.of_pieces([12], [[(0, 3 * r, 3 * r + 3)] for r in range(3, -1, -1)]) if n == 4 else Shards.zigzag(5, n),
    ]  # fmt: skip


def share(columns, ranks, rank):
    """Columns of a rank: the first has none where there are others."""
    parts = max(1, ranks - 1)
    at = 0 if ranks == 1 else max(0, rank - 1)
    return slice(0, 0) if ranks > 1 and rank == 0 else slice(columns * at // parts, columns * (at + 1) // parts)


def close(found, exact, size, dtype, terms, what):
    """size: that of the sums of magnitudes."""
    unit = oracles.unit(dtype)
    single = oracles.unit(np.float64 if np.dtype(dtype) == np.float64 else np.float32)
    error = np.abs(oracles.wide(found) - exact)
    assert found.shape == exact.shape, what
    assert (error <= unit * np.abs(exact) + terms * 1.5 * single * size + 1e-300).all(), (what, error.max())


@case
def products(ranks):
    for dtype, shards, trans_b in itertools.product(oracles.FLOATING, row_descriptions(ranks.size), (False, True)):
        k, n, what = 23, 14, f"{np.dtype(dtype).name} {shards} {trans_b}"
        a, b = random((shards.total, k), dtype, 1), random((n, k) if trans_b else (k, n), dtype, 2)
        right = oracles.wide(b).T if trans_b else oracles.wide(b)
        exact, size = oracles.wide(a) @ right, np.abs(oracles.wide(a)) @ np.abs(right)
        rows, own = shards.positions(ranks.rank), share(n, ranks.size, ranks.rank)
        mine = b[own] if trans_b else b[:, own]
        out = distributed.column_parallel_gemm(
            ranks.make(a[rows]), ranks.make(mine), shards, ranks.group, trans_b=trans_b
        )
        close(ranks.back(out), exact[:, own], size[:, own], dtype, k, "columns " + what)
        own = share(k, ranks.size, ranks.rank)
        mine = b[:, own] if trans_b else b[own]
        out, again = (
            ranks.back(
                distributed.row_parallel_gemm(
                    ranks.make(a[:, own]), ranks.make(mine), shards, ranks.group, trans_b=trans_b
                )
            )
            for _ in range(2)
        )
        close(out, exact[rows], size[rows], dtype, k + ranks.size, "rows " + what)
        assert out.tobytes() == again.tobytes(), what


@case
def feed_forward(ranks):
    for dtype, shards in itertools.product((np.float64, np.float32), row_descriptions(ranks.size)):
        hidden, features, n = 11, 26, 9
        x, down = random((shards.total, hidden), dtype, 1), random((n, features), dtype, 2)
        gate, up = (random((features, hidden), dtype, s) for s in (3, 4))
        g, u = (oracles.wide(x) @ oracles.wide(w).T for w in (gate, up))
        h = g / (1 + np.exp(-g)) * u
        exact, size = h @ oracles.wide(down).T, (np.abs(h) + 10) @ np.abs(oracles.wide(down)).T
        rows, own = shards.positions(ranks.rank), share(features, ranks.size, ranks.rank)
        out = distributed.gated_mlp(
            *(ranks.make(y) for y in (x[rows], gate[own], up[own], down[:, own])), shards, ranks.group
        )
        close(ranks.back(out), exact[rows], size[rows], dtype, 4 * (hidden + features), f"{dtype} {shards}")


@case
def gradients_of_products(ranks):
    if ranks.make is numpy_itself:
        return
    import torch

    def leaf(*shape, seed):
        return torch.from_numpy(random(shape, np.float64, seed))

    def check(call, whole, parts, reference, rows, shards):
        """parts: of each leaf, how this rank's part is taken. Gradients of rows are summed over ranks where all have
        parts of them."""
        exact = [x.clone().requires_grad_() for x in whole]
        y = reference(*exact)
        dout = leaf(*y.shape, seed=9)
        y.backward(dout)
        mine = [part(x).to(ranks.device).clone().requires_grad_() for x, part in zip(whole, parts)]
        out = call(*mine)
        out.backward(rows(dout).to(ranks.device))
        for i, (x, y, part) in enumerate(zip(mine, exact, parts)):
            assert x.grad.shape == x.shape
            difference = (x.grad.cpu() - part(y.grad)).norm()
            assert difference <= 1e-12 * (1 + y.grad.norm()), (i, difference, str(shards))

    for shards, trans_b in itertools.product(row_descriptions(ranks.size), (False, True)):
        m, k, n, hidden = shards.total, 17, 12, 10
        at, of_n, of_k = shards.positions(ranks.rank), share(n, ranks.size, ranks.rank), share(k, ranks.size, ranks.rank)
        a, b = leaf(m, k, seed=1), leaf(*((n, k) if trans_b else (k, n)), seed=2)
        product = lambda a, b: a @ (b.T if trans_b else b)  # noqa: E731
        check(
            lambda a, b: distributed.column_parallel_gemm(a, b, shards, ranks.group, trans_b=trans_b), (a, b),
            (lambda x: x[at], lambda x: x[of_n] if trans_b else x[:, of_n]), product, lambda y: y[:, of_n], shards,
        )  # fmt: skip
        check(
            lambda a, b: distributed.row_parallel_gemm(a, b, shards, ranks.group, trans_b=trans_b), (a, b),
            (lambda x: x[:, of_k], lambda x: x[:, of_k] if trans_b else x[of_k]), product, lambda y: y[at], shards,
        )  # fmt: skip
        weights = leaf(k, hidden, seed=3), leaf(k, hidden, seed=4), leaf(n, k, seed=5)
        check(
            lambda *x: distributed.gated_mlp(*x, shards, ranks.group), (leaf(m, hidden, seed=6), *weights),
            (lambda x: x[at], lambda x: x[of_k], lambda x: x[of_k], lambda x: x[:, of_k]),
            lambda x, g, u, d: (torch.nn.functional.silu(x @ g.T) * (x @ u.T)) @ d.T, lambda y: y[at], shards,
        )  # fmt: skip


@case
def gradients_of_16_bits(ranks):
    """Partial results are float32 then, and a kernel by name goes another way: both have the gradients of others."""
    if ranks.make is numpy_itself:
        return
    import torch

    shards, k, n = Shards.zigzag(21, ranks.size), 12, 8
    rows, of_n, of_k = shards.positions(ranks.rank), share(n, ranks.size, ranks.rank), share(k, ranks.size, ranks.rank)
    a, b, dout = (torch.from_numpy(random(s, np.float64, i)) for i, s in enumerate(((21, k), (k, n), (21, n))))
    da, db = dout @ b.T, a.T @ dout
    for dtype, kernel in itertools.product((torch.float32, torch.bfloat16, torch.float16), ("", "portable")):
        make = lambda x: x.to(dtype).to(ranks.device).clone().requires_grad_()  # noqa: B023, E731
        unit = torch.finfo(dtype).eps
        for name, call, parts, direction, expected in (
            ("column", distributed.column_parallel_gemm, (a[rows], b[:, of_n]), dout[:, of_n], (da[rows], db[:, of_n])),
            ("row", distributed.row_parallel_gemm, (a[:, of_k], b[of_k]), dout[rows], (da[:, of_k], db[of_k])),
        ):
            mine = [make(x) for x in parts]
            call(*mine, shards, ranks.group, kernel=kernel).backward(direction.to(dtype).to(ranks.device))
            for x, y in zip(mine, expected):
                error, size = (x.grad.cpu().double() - y).norm(), y.norm()
                assert error <= 4 * unit * size, (name, dtype, kernel, error, size)


@case
def products_that_differ(ranks):
    """All ranks raise, whoever is wrong."""
    n, last, mismatch = ranks.size, ranks.rank == ranks.size - 1, attikos.ShapeMismatchError
    shards = Shards.contiguous(12, n)
    rows = shards.rows(ranks.rank)
    a, b = ranks.make(random((rows, 6), np.float32, 1)), ranks.make(random((6, 4), np.float32, 2))
    wide, down = ranks.make(random((12, 6), np.float32, 1)), ranks.make(random((3, 5), np.float32, 3))
    weights = [ranks.make(random((5, 6), np.float32, s)) for s in (1, 2)]
    columns, of_rows, mlp = distributed.column_parallel_gemm, distributed.row_parallel_gemm, distributed.gated_mlp
    few = wide if n > 1 else a[:3]
    for words, kind, call in (
        ("rows that shards give this rank", mismatch, lambda: columns(few, b, shards, ranks.group)),
        ("as a has columns", mismatch, lambda: columns(a, b[:5], shards, ranks.group)),
        ("all rows of the shards", mismatch, lambda: of_rows(wide[:7], b, shards, ranks.group)),
        ("over", mismatch, lambda: columns(a, b, Shards.contiguous(12, n + 1), ranks.group)),
        ("expected a matrix", mismatch, lambda: columns(a[None], b, shards, ranks.group)),
        ("as gate_weight has rows", mismatch, lambda: mlp(a, *weights, down[:, :4], shards, ranks.group)),
        ("activation is", attikos.ArgumentError, lambda: mlp(a, *weights, down, shards, ranks.group, activation="no")),
        ("compute is", attikos.ArgumentError, lambda: columns(a, b, shards, ranks.group, compute="half")),
        ("as a has it", attikos.UnsupportedDtypeError, lambda: columns(a, ranks.double(b), shards, ranks.group)),
    ):
        try:
            call()
        except kind as problem:
            assert words in str(problem), problem
        else:
            raise AssertionError(words)
    if n == 1:
        return
    for words, call in (
        ("columns of the result 3", lambda: of_rows(wide, b[:, :3] if last else b, shards, ranks.group)),
        ("compute tf32", lambda: columns(a, b, shards, ranks.group, compute="tf32" if last else "ieee")),
        ("cannot go on", lambda: columns(a[:, :5] if last else a, b, shards, ranks.group)),
    ):
        try:
            call()
        except mismatch as problem:
            assert words in str(problem) or last, problem
        else:
            raise AssertionError(words)
