# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attikos.distributed on the ranks of a group, for test_distributed.py:

  distributed_ranks.py torch RANKS    processes of torch.multiprocessing and Gloo
  distributed_ranks.py nccl RANKS     the same with a GPU each, and NCCL
  distributed_ranks.py peers RANKS    the same, and a PeerGroup with little memory, so that messages are several pieces
  mpiexec … distributed_ranks.py mpi  communicators of mpi4py

Outputs are compared with the oracle of attention over whole sequences, within its bound for merged results, and
the distance of all ranks' gradients from float64 ones with that of the same call on one rank."""

import itertools
import sys
import types
import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles
import distributed_host  # noqa: F401: its cases
import distributed_messages  # noqa: F401: its cases
import distributed_products  # noqa: F401: its cases
from attikos import distributed
from attikos.distributed import Shards, _calls, _strategies
from distributed_cases import CASES, case, numpy_itself, random

NAN = float("nan")


def strategies(ranks):
    """Those that a number of ranks allows, where nodes have two."""
    has_nodes = ranks.size > 2 and ranks.size % 2 == 0
    return [x for x in _strategies.STRATEGIES if x != "two_level" or has_nodes]


def by(strategy):
    return {"strategy": strategy, **({"ranks_per_node": 2} if strategy == "two_level" else {})}


def mask_of(shards_q, shards_kv, causal=False, window=(-1, -1), top_left=False):
    """Boolean [total_q, total_kv] of packed sequences, by its definition."""
    keep = np.zeros((shards_q.total, shards_kv.total), bool)
    for s in range(shards_q.sequences):
        nq, nk = shards_q.length(s), shards_kv.length(s)
        i, j = np.arange(nq)[:, None] + (0 if top_left else nk - nq), np.arange(nk)[None]
        seen = np.ones((nq, nk), bool)
        if causal:
            seen &= j <= i
        if window[0] >= 0:
            seen &= j >= i - window[0]
        if window[1] >= 0:
            seen &= j <= i + window[1]
        keep[shards_q.offset(s) : shards_q.offset(s) + nq, shards_kv.offset(s) : shards_kv.offset(s) + nk] = seen
    return keep


def descriptions(n):
    """Shards of queries and of keys: dealt out alike, and not."""
    lengths = [0, 5, 5, 6, 37]
    return {
        "contiguous": Shards.contiguous(29, n), "zigzag": Shards.zigzag(37, n), "granules": Shards.zigzag(61, n, 8),
        "one has all": Shards.uneven([23] + [0] * (n - 1)), "packed": Shards.packed(lengths, n),
        "pieces": Shards.of_pieces([12], [[(0, 3 * r, 3 * r + 3)] for r in range(3, -1, -1)]) if n == 4
        else Shards.contiguous(12, n, 5),
        "few queries": (Shards.zigzag(13, n), Shards.contiguous(40, n)),
        "few keys": (Shards.contiguous(31, n), Shards.zigzag(9, n)),
    }  # fmt: skip


OPTIONS = [
    {}, {"causal": True}, {"window": (5, 3)}, {"window": (2, -1), "causal": True, "softcap": 4.0},
    {"causal": True, "top_left": True, "scale": 0.3}, {"window": (-1, 2), "top_left": True},
]  # fmt: skip


def rows_of(x, shards, rank):
    return x[:, :, shards.positions(rank)]


def check_forward(ranks, dtype, heads, both, options, strategy, what, batch=2):
    """One call of arrays of NumPy; `ranks` has rank, group and a function that makes its arrays of NumPy's."""
    of_q, of_kv = both if isinstance(both, tuple) else (both, both)
    q, k, v = (
        random((batch, h, s.total, d), dtype, seed)
        for seed, (h, s, d) in enumerate(((heads[0], of_q, 16), (heads[1], of_kv, 16), (heads[1], of_kv, 8)))
    )
    arguments = [rows_of(x, s, ranks.rank) for x, s in ((q, of_q), (k, of_kv), (v, of_kv))]
    out, lse = distributed.attention(
        *(ranks.make(x) for x in arguments), both, ranks.group, **by(strategy), return_lse=True, **options
    )
    keep = mask_of(of_q, of_kv, **{x: y for x, y in options.items() if x in ("causal", "window", "top_left")})
    numbers = {x: y for x, y in options.items() if x in ("scale", "softcap")}
    parts = 4 * ranks.size * ranks.size
    exact, bound, exact_lse, bound_lse = oracles.attention(q, k, v, keep=keep, parts=parts, **numbers)
    if np.dtype(dtype).itemsize == 2:  # partial results are rounded, whose magnitudes have this mean at most
        size = oracles.attention(q, k, np.abs(oracles.wide(v)), keep=keep, **numbers)[0]
        bound = bound + oracles.unit(dtype) * 1.01 * size
    test = unittest.TestCase()
    mine = [rows_of(x, of_q, ranks.rank) for x in (exact, bound, exact_lse, bound_lse)]
    oracles.check(test, ranks.back(out), mine[0], mine[1], what)
    oracles.check(test, ranks.back(lse), mine[2], mine[3], what + " lse")


@case
def forward(ranks):
    for name, both in descriptions(ranks.size).items():
        for strategy, options in itertools.product(strategies(ranks), OPTIONS):
            check_forward(ranks, np.float32, (4, 2), both, options, strategy, f"{name} {strategy} {options}")


def packed_descriptions(n):
    """Sequences of which ranks have two pieces, one, or none."""
    lengths = [0, 40, 41, 41, 60, 67, 150]
    return {
        "zigzag": Shards.packed(lengths, n), "granules": Shards.packed(lengths, n, granularity=16),
        "contiguous": Shards.packed(lengths, n, "contiguous"),
        "unlike": (Shards.packed(lengths, n), Shards.packed([0, 30, 50, 50, 60, 100, 140], n)),
        # The longest is dealt out, others are whole on some rank.
        "balanced": Shards.balanced(lengths, n, granularity=4), "balanced causal": Shards.balanced(lengths, n, True),
        "whole": Shards.of_pieces([9, 14, 6], [[(1, 0, 14)], *[[]] * (n - 2), [(2, 0, 6), (0, 0, 9)]][-n:] if n > 1
                                  else [[(1, 0, 14), (2, 0, 6), (0, 0, 9)]]),
    }  # fmt: skip


@case
def forward_of_packed_calls(ranks):
    """Of one batch entry, sequences are calls together."""
    for name, both in packed_descriptions(ranks.size).items():
        for strategy, options in itertools.product(strategies(ranks), OPTIONS):
            for heads in ((4, 2), (3, 1)):
                what = f"packed {name} {strategy} {options} {heads}"
                check_forward(ranks, np.float32, heads, both, options, strategy, what, batch=1)


@case
def forward_of_types_and_heads(ranks):
    shards = Shards.zigzag(37, ranks.size)
    for dtype, heads, strategy in itertools.product(oracles.FLOATING, ((3, 1), (6, 2), (5, 5)), strategies(ranks)):
        what = f"{np.dtype(dtype).name} {heads} {strategy}"
        check_forward(ranks, dtype, heads, shards, {"causal": True}, strategy, what)


@case
def whole_comes_together(ranks):
    for both in descriptions(ranks.size).values():
        shards = both[0] if isinstance(both, tuple) else both
        x = random((2, 3, shards.total), np.float32, 9)
        found = distributed.gather(ranks.make(x[:, :, shards.positions(ranks.rank)]), shards, ranks.group, dim=-1)
        assert (ranks.back(found) == x).all()


@case
def bits_repeat(ranks):
    shards = Shards.zigzag(64, ranks.size)
    q, k, v = (ranks.make(rows_of(random((1, 4, 64, 16), np.float32, s), shards, ranks.rank)) for s in range(3))
    for strategy in strategies(ranks):
        first, again = (
            ranks.back(distributed.attention(q, k, v, shards, ranks.group, causal=True, **by(strategy)))
            for _ in range(2)
        )
        assert (first == again).all(), strategy


def refused(ranks, expected, kind, change, everywhere=False):
    """All ranks raise `kind`, where the last one, or each, has changed its arguments; `expected` is in the text of
    those that did not, or of each."""
    shards, last = Shards.zigzag(12, ranks.size), ranks.rank == ranks.size - 1
    q, k, v = (ranks.make(rows_of(random((1, 4, 12, 16), np.float32, s), shards, ranks.rank)) for s in range(3))
    given = dict(q=q, k=k, v=v, shards=shards)
    if everywhere or last:
        given = change(given)
    try:
        distributed.attention(**given, group=ranks.group)
    except kind as problem:
        assert expected in str(problem) or (last and not everywhere), problem
        return
    raise AssertionError(f"rank {ranks.rank}: no {kind.__name__} with {expected}")


def changed(**what):
    return lambda given: {**given, **what}


@case
def ranks_that_differ(ranks):
    mismatch, last = attikos.ShapeMismatchError, ranks.size - 1
    if ranks.size == 1:
        return
    for words, change in {
        "window[1] or causal 0": changed(causal=True), "scale 0.5": changed(scale=0.5), "softcap": changed(softcap=1.0),
        "strategy all_gather": changed(strategy="all_gather"), "top_left True": changed(top_left=True),
        "window[0] 3": changed(window=(3, -1)), "kernel": changed(kernel="portable"),
        "shards of queries": changed(shards=Shards.contiguous(12, ranks.size)),
        "heads_kv 2": lambda given: {**given, "k": given["k"][:, :2], "v": given["v"][:, :2]},
        "head_dim_v 8": lambda given: {**given, "v": given["v"][..., :8]},
        "dtype float64": lambda given: {**given, **{name: ranks.double(given[name]) for name in "qkv"}},
    }.items():  # fmt: skip
        refused(ranks, f"rank {last} has {words}", mismatch, change)
    cut = lambda given: {**given, "k": given["k"][:, :, :-1]}  # noqa: E731
    refused(ranks, f"rank {last} of {ranks.size} cannot go on: attikos.distributed.attention: k is", mismatch, cut)


@case
def arguments_of_a_rank(ranks):
    wrong, mismatch, n = attikos.ArgumentError, attikos.ShapeMismatchError, ranks.size
    for words, kind, change in (
        ("strategy is 'round'", wrong, changed(strategy="round")),
        ("softcap is -1.0", wrong, changed(softcap=-1.0)),
        (f"two_level of {n} ranks with ranks_per_node 0", wrong, changed(strategy="two_level")),
        (f"with ranks_per_node {n}", wrong, changed(strategy="two_level", ranks_per_node=n)),
        ("shards is 12", wrong, changed(shards=12)),
        (f"shards of queries have {n + 1} ranks", mismatch, changed(shards=Shards.zigzag(12, n + 1))),
        ("keys of 2", mismatch, changed(shards=(Shards.zigzag(12, n), Shards.packed([0, 6, 12], n)))),
        ("not_a_kernel", attikos.Error, changed(kernel="not_a_kernel")),
        ("multiple of those of k", mismatch, lambda x: {**x, "k": x["k"][:, :3], "v": x["v"][:, :3]}),
        ("expected [batch, heads", mismatch, lambda x: {**x, "q": x["q"][0]}),
        ("as q has it", attikos.UnsupportedDtypeError, lambda x: {**x, "v": ranks.double(x["v"])}),
        ("expected a tensor of PyTorch", attikos.UnsupportedError, changed(q=[1.0])),
    ):
        refused(ranks, words, kind, change, everywhere=True)


@case
def a_rank_that_fails(ranks):
    """It goes on sending what others wait for, and throws at the end."""
    if ranks.size == 1:
        return
    shards = Shards.contiguous(24, ranks.size)
    q, k, v = (ranks.make(rows_of(random((1, 2, 24, 16), np.float32, s), shards, ranks.rank)) for s in range(3))
    whole = _calls.attention
    for strategy in strategies(ranks):
        calls = []

        def fail(*arguments, **options):
            calls.append(1)
            if ranks.rank == 1:
                raise attikos.ResourceError("planted")
            return whole(*arguments, **options)

        _calls.attention = fail
        try:
            distributed.attention(q, k, v, shards, ranks.group, **by(strategy))
            raised = False
        except attikos.ResourceError:
            raised = True
        finally:
            _calls.attention = whole
        assert raised == (ranks.rank == 1), strategy
        check_forward(ranks, np.float32, (4, 2), shards, {}, strategy, f"after a failure, {strategy}")


# --- PyTorch alone --------------------------------------------------------------------------------------------------


def plain(q, k, v, keep, scale=None, softcap=0.0):
    """Attention as it is written down, in float64 with PyTorch's own gradients."""
    import torch

    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    keep = torch.from_numpy(keep)
    weights = torch.where(keep, scores, -torch.inf).softmax(-1)
    return torch.where(keep, weights, 0.0) @ v


def check_gradients(ranks, dtype, heads, both, options, strategy, what, batch=2):
    import torch

    of_q, of_kv = both if isinstance(both, tuple) else (both, both)
    q, k, v, dout = (
        torch.from_numpy(random((batch, h, s.total, d), np.float64, seed)).to(dtype)
        for seed, (h, s, d) in enumerate(
            ((heads[0], of_q, 16), (heads[1], of_kv, 16), (heads[1], of_kv, 8), (heads[0], of_q, 8))
        )
    )
    keep = mask_of(of_q, of_kv, **{x: y for x, y in options.items() if x in ("causal", "window", "top_left")})
    numbers = {x: y for x, y in options.items() if x in ("scale", "softcap")}
    exact = [x.double().clone().requires_grad_() for x in (q, k, v)]
    plain(*exact, keep, **numbers).backward(dout.double())
    alone = [x.clone().requires_grad_() for x in (q, k, v)]
    attikos.attention(*alone, mask=torch.from_numpy(keep), **numbers).backward(dout)
    mine = [
        rows_of(x, s, ranks.rank).to(ranks.device).requires_grad_() for x, s in ((q, of_q), (k, of_kv), (v, of_kv))
    ]
    out = distributed.attention(*mine, both, ranks.group, **by(strategy), **options)
    out.backward(rows_of(dout, of_q, ranks.rank).to(ranks.device))
    for name, x, s, y, z in zip("qkv", mine, (of_q, of_kv, of_kv), exact, alone):
        found = distributed.gather(x.grad, s, ranks.group)
        error, expected = ((g.cpu().double() - y.grad).norm().item() for g in (found, z.grad))
        unit = torch.finfo(dtype).eps / 2
        assert x.grad.dtype == dtype
        assert error <= 2 * expected + unit * y.grad.norm().item(), f"{what} d{name}: {error} {expected}"


@case
def gradients(ranks):
    if ranks.make is numpy_itself:
        return
    import torch

    for name, both in descriptions(ranks.size).items():
        for strategy, options in itertools.product(strategies(ranks), OPTIONS[:4]):
            check_gradients(ranks, torch.float32, (4, 2), both, options, strategy, f"{name} {strategy} {options}")
    for name, both in packed_descriptions(ranks.size).items():
        for strategy, options in itertools.product(strategies(ranks), OPTIONS[:4]):
            what = f"packed {name} {strategy} {options}"
            check_gradients(ranks, torch.float32, (4, 2), both, options, strategy, what, batch=1)
    for dtype, heads in itertools.product((torch.float64, torch.bfloat16, torch.float16), ((3, 1), (6, 2))):
        for strategy in strategies(ranks):
            shards, what = Shards.zigzag(37, ranks.size), f"{dtype} {heads} {strategy}"
            check_gradients(ranks, dtype, heads, shards, {"causal": True}, strategy, what)
    for strategy, batch in itertools.product(strategies(ranks), (1, 2)):  # a kernel by name goes another way
        options, shards = {"causal": True, "kernel": "portable"}, Shards.packed([0, 5, 23, 40], ranks.size)
        check_gradients(ranks, torch.float32, (4, 2), shards, options, strategy, f"kernel {strategy}", batch=batch)


@case
def strides(ranks):
    """Heads behind positions in memory, as models have them."""
    if ranks.make is numpy_itself:
        return
    import torch

    shards = Shards.zigzag(20, ranks.size)
    made = [torch.from_numpy(random((2, 4, 20, 16), np.float32, s)) for s in range(3)]
    dense = [x[:, :, shards.positions(ranks.rank)].to(ranks.device) for x in made]
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in dense]
    for strategy in strategies(ranks):
        a, b = (distributed.attention(*x, shards, ranks.group, **by(strategy)) for x in (dense, swapped))
        assert torch.equal(a, b)


@case
def some_of_the_ranks(ranks):
    """A group whose ranks have other numbers than the processes."""
    if ranks.make is numpy_itself or ranks.size < 3:
        return
    import torch
    import torch.distributed as dist

    group = dist.new_group(list(range(1, ranks.size)))
    if ranks.rank == 0:
        return
    part = types.SimpleNamespace(**{**vars(ranks), "rank": ranks.rank - 1, "size": ranks.size - 1, "group": group})
    for strategy in strategies(part):
        shards, options = Shards.zigzag(37, part.size), {"causal": True}
        check_forward(part, np.float32, (4, 2), shards, options, strategy, f"some ranks, {strategy}")
        check_gradients(part, torch.float32, (4, 2), shards, options, strategy, f"some ranks, {strategy}")


@case
def model_in_a_context(ranks):
    """A model that knows nothing of ranks, under context_parallel(): outputs and gradients are those of the whole."""
    if ranks.make is numpy_itself:
        return
    import torch
    import torch.distributed
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(torch.device(ranks.device).type, (ranks.size,))
    torch.manual_seed(7)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True).double().to(ranks.device)
    x = torch.randn(2, 27, 32, dtype=torch.float64).to(ranks.device)
    direction = torch.randn(2, 27, 32, dtype=torch.float64).to(ranks.device)

    def attend(x):
        heads = torch.nn.functional.linear(x, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias)
        q, k, v = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in heads.chunk(3, -1))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return layer.linear2(layer.linear1(x + layer.self_attn.out_proj(y.transpose(1, 2).flatten(2))))

    expected = attend(x)
    expected.backward(direction)
    wanted = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
    layer.zero_grad()
    before, kept = x.clone(), torch.nn.functional.scaled_dot_product_attention
    with distributed.context_parallel(mesh, buffers=[x, direction], buffer_seq_dims=[1, 1]) as shards:
        assert x.shape[1] == shards.rows(ranks.rank)
        found = attend(x)
        found.backward(direction)
        whole = distributed.gather(found, shards, mesh, dim=1)
        for refused, words in ((dict(attn_mask=torch.ones(1)), "attn_mask"), (dict(dropout_p=0.5), "dropout_p")):
            q = torch.zeros(1, 2, shards.rows(ranks.rank), 8, device=ranks.device)
            try:
                torch.nn.functional.scaled_dot_product_attention(q, q, q, **refused)
            except attikos.UnsupportedError as problem:
                assert words in str(problem)
            else:
                raise AssertionError(words)
    assert torch.equal(x, before) and torch.nn.functional.scaled_dot_product_attention is kept
    assert (whole - expected).abs().max() < 1e-13
    for p, want in zip((p for p in layer.parameters() if p.grad is not None), wanted):
        torch.distributed.all_reduce(p.grad)
        assert (p.grad - want).norm() <= 1e-13 * want.norm()
    try:
        with distributed.context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
            raise KeyError
    except KeyError:
        assert torch.equal(x, before) and torch.nn.functional.scaled_dot_product_attention is kept
    for wrong, kind in (
        (dict(buffers=[x], buffer_seq_dims=[]), attikos.ArgumentError),
        (dict(buffers=[x, direction], buffer_seq_dims=[1, 2]), attikos.ShapeMismatchError),
        (dict(buffers=[x], buffer_seq_dims=[1], no_restore_buffers={direction}), attikos.ArgumentError),
        (dict(buffers=[layer.linear1.weight], buffer_seq_dims=[0]), attikos.ArgumentError),
    ):
        try:
            with distributed.context_parallel(mesh, **wrong):
                pass
        except kind:
            continue
        raise AssertionError(wrong)


# --- launching ------------------------------------------------------------------------------------------------------


def run_all(ranks):
    for function in CASES:
        try:
            function(ranks)
        except BaseException as problem:
            print(f"rank {ranks.rank} of {ranks.size}, {function.__name__}: {problem!r}", file=sys.stderr, flush=True)
            raise
    if ranks.rank == 0:
        print("cases", len(CASES), "ranks", ranks.size, flush=True)


def with_torch(rank, size, port, backend):
    import torch
    import torch.distributed as dist

    device = "cpu" if backend == "gloo" else f"cuda:{rank}"

    def make(x):
        if x.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(np.ascontiguousarray(x).view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(np.ascontiguousarray(x)).to(device)

    def back(x):
        x = x.cpu()
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()

    torch.set_num_threads(1)
    if backend != "gloo":
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if backend == "gloo" else "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    group = distributed.PeerGroup(buffer_bytes=64 << 10) if backend == "peers" else None
    run_all(
        types.SimpleNamespace(
            rank=rank, size=size, group=group, make=make, back=back, double=lambda x: x.double(), device=device
        )
    )
    dist.destroy_process_group()


def with_mpi():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    try:
        run_all(
            types.SimpleNamespace(
                rank=comm.Get_rank(), size=comm.Get_size(), group=comm, make=numpy_itself, back=numpy_itself,
                double=lambda x: x.astype(np.float64),
            )  # fmt: skip
        )
    except BaseException:
        MPI.COMM_WORLD.Abort(1)
        raise


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    if sys.argv[1] == "mpi":
        with_mpi()
    else:
        import torch.multiprocessing

        backend = "gloo" if sys.argv[1] == "torch" else sys.argv[1]
        torch.multiprocessing.spawn(with_torch, (int(sys.argv[2]), free_port(), backend), nprocs=int(sys.argv[2]))
