# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attention() over the ranks of a group, and what all ranks agree on before anything is sent."""

from __future__ import annotations

import math
from typing import Any, Sequence

from .. import _autograd
from .._arguments import COMPUTE, choice, flag, integer, real, text
from .._arguments import window as read_window
from .._arrays import operand_of
from ..errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError
from . import _calls, _strategies
from ._agreement import TYPES, bits_of, read_alike, signature_of
from ._groups import MpiGroup, TorchGroup, group_of
from ._shards import Shards
from ._storage import storage_of

_OPERATION = "distributed.attention"


def attention(
    q: Any, k: Any, v: Any, shards: Shards | tuple[Shards, Shards], group: Any = None, *, scale: float | None = None,
    causal: bool = False, top_left: bool = False, window: tuple[int, int] = (-1, -1), softcap: float = 0.0,
    compute: str = "ieee", kernel: str = "", strategy: str = "ring", return_lse: bool = False, check: bool = True,
    ranks_per_node: int = 0,
) -> Any:  # fmt: skip
    """attention() of sequences whose positions are spread over the ranks of a group; every rank calls it with its rows.

    q [batch, heads_q, rows_q, d], k [batch, heads_kv, rows_kv, d], v [batch, heads_kv, rows_kv, dv] -> [batch, heads_q,
    rows_q, dv], with return_lse also the log-sum-exp [batch, heads_q, rows_q]; float64, float32, float16 or bfloat16.
    Rows are those that `shards` gives this rank: one description for queries and keys, or (that of queries, that of
    keys). Masks mean positions of whole sequences, as attention() has them: causal and the window with offset len_kv -
    len_q, or 0 with top_left.

    group: a process group of torch.distributed (None: the default one), a mesh of one dimension, a PeerGroup, or a
    communicator of mpi4py, which takes NumPy's arrays and PyTorch's tensors of the host. strategy:

    - "ring": blocks of keys and values go round, the next one behind this one's products; memory of two blocks
    - "all_gather": every rank gets all keys and values; one exchange, memory of all of them
    - "all_to_all": every rank gets all positions of some heads (Ulysses); key heads may be fewer than ranks
    - "two_level": all_to_all among the ranks of a node, ranks_per_node neighbors in the order of the group, and a ring
      of blocks of a node's rows between nodes; several full nodes of several ranks

    Where PyTorch records, out has a gradient, which every rank has to ask for, in the same order: ranks exchange in the
    backward pass, too. The log-sum-exp has none. Results over different keys are rounded to the type of q, joined in
    float32 (float64) in an order that follows from shards and strategy alone, and rounded once more: the same ranks
    give the same bits on every run.

    check: before anything is sent, ranks compare what they ask for. Those that differ in shapes, types, options or
    shards all raise ShapeMismatchError that names the rank and the argument, and so does a rank whose own arguments are
    wrong; without it, ranks that differ may wait for each other. Over NCCL the comparison waits for the device, which is
    otherwise never waited for. A message that fails is a CommunicationError.
    """
    ranks, recorded = group_of(group), _recorded(q, k, v)
    both = tuple(shards) if type(shards) is list else shards
    call = read_alike(
        ranks, _OPERATION, check,
        lambda: _read(ranks, q, k, v, shards, scale, causal, top_left, window, softcap, compute, kernel, strategy,
                      ranks_per_node),
        lambda call: _described(call, q, k, v), _FIELDS,
        signature_of(q, k, v, both, scale, causal, top_left, window, softcap, compute, kernel, strategy, recorded,
                     ranks_per_node),
        {"strategy": _strategies.STRATEGIES},
    ).on(ranks)  # fmt: skip
    with_lse = flag(_OPERATION, "return_lse", return_lse)

    def run(*arrays: Any) -> Any:  # parts of an array that asks for a gradient would ask for one
        return _strategies.forward(call, *map(call.storage.plain, arrays))

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        q, k, v = inputs
        return _strategies.backward(call, q, k, v, outputs[0], outputs[1], gradients[0])

    found = _autograd.apply(run, back, (q, k, v)) if recorded else _strategies.forward(call, q, k, v)
    return found if with_lse else found[0]


def _recorded(*arrays: Any) -> bool:
    """All ranks record alike, so that all take part in the backward pass; which of them asks for what is alike, too."""
    return _autograd.wanted(*arrays)


def _read(
    group: TorchGroup | MpiGroup, q: Any, k: Any, v: Any, shards: Any, scale: Any, causal: Any, top_left: Any,
    window: Any, softcap: Any, compute: Any, kernel: Any, strategy: Any, ranks_per_node: Any,
) -> _calls.Call:  # fmt: skip
    """What this rank asks for; raises for what is wrong by itself."""
    name = _OPERATION
    of_q, of_kv = _both(shards)
    for what, description in (("queries", of_q), ("keys", of_kv)):
        if description.ranks != group.size:
            raise ShapeMismatchError(
                f"attikos.{name}: shards of {what} have {description.ranks} ranks; the group has {group.size}"
            )
    if of_q.sequences != of_kv.sequences:
        raise ShapeMismatchError(
            f"attikos.{name}: queries are of {of_q.sequences} sequences, keys of {of_kv.sequences}; expected as many"
        )
    storage = storage_of(name, "q", q)
    oq, ok, ov = (operand_of(name, n, x) for n, x in (("q", q), ("k", k), ("v", v)))
    for n, x, rows in (("q", oq, of_q), ("k", ok, of_kv), ("v", ov, of_kv)):
        if x.ndim != 4:
            raise ShapeMismatchError(
                f"attikos.{name}: {n} is {x.describe()}; expected [batch, heads, rows, head_dim]"
            )
        if x.dtype.name not in TYPES or x.dtype is not oq.dtype:
            raise UnsupportedDtypeError(
                f"attikos.{name}: {n} is {x.describe()}; expected one of {', '.join(TYPES)}, as q has it"
            )
        if x.shape[2] != rows.rows(group.rank):
            raise ShapeMismatchError(
                f"attikos.{name}: {n} is {x.describe()}; expected {rows.rows(group.rank)} rows, which shards give rank "
                f"{group.rank}"
            )
    fits = ok.shape[0] == oq.shape[0] and ov.shape[:2] == ok.shape[:2] and ok.shape[3] == oq.shape[3]
    if not fits or ok.shape[1] == 0 or oq.shape[1] % ok.shape[1]:
        raise ShapeMismatchError(
            f"attikos.{name}: q is {oq.describe()}, k is {ok.describe()}, v is {ov.describe()}; expected one batch, "
            "one head_dim of q and k, and heads of q a multiple of those of k and v"
        )
    choice(name, "strategy", strategy, dict.fromkeys(_strategies.STRATEGIES, 0))
    nodes = integer(name, "ranks_per_node", ranks_per_node)
    if strategy == "two_level" and (nodes < 2 or group.size <= nodes or group.size % nodes):
        raise ArgumentError(
            f"attikos.{name}: two_level of {group.size} ranks with ranks_per_node {nodes}; expected several full nodes "
            "of several ranks"
        )
    choice(name, "compute", compute, COMPUTE)
    text(name, "kernel", kernel)
    left, right = read_window(name, "window", window)
    if flag(name, "causal", causal):
        right = 0
    number = 0.0 if scale is None else real(name, "scale", scale)
    cap = real(name, "softcap", softcap)
    if not math.isfinite(number) or not (math.isfinite(cap) and cap >= 0):
        raise ArgumentError(
            f"attikos.{name}: scale is {number}, softcap is {cap}; expected finite numbers, softcap 0 or more"
        )
    return _calls.Call(
        operation=name, storage=storage, q_shards=of_q, kv_shards=of_kv, strategy=strategy,
        window=(left, right), top_left=flag(name, "top_left", top_left), scale=number, softcap=cap, compute=compute,
        kernel=kernel, heads_q=oq.shape[1], heads_kv=ok.shape[1], packs=oq.shape[0] == 1,
        ranks_per_node=nodes if strategy == "two_level" else 1,
    )  # fmt: skip


def _both(shards: Any) -> tuple[Shards, Shards]:
    if isinstance(shards, Shards):
        return shards, shards
    if isinstance(shards, Sequence) and len(shards) == 2 and all(isinstance(x, Shards) for x in shards):
        return shards[0], shards[1]
    raise ArgumentError(
        f"attikos.{_OPERATION}: shards is {shards!r}; expected a Shards, or two: that of queries and that of keys"
    )


def _described(call: _calls.Call, q: Any, k: Any, v: Any) -> dict[str, int]:
    """What has to be the same on all ranks, as whole numbers."""
    return {
        "batch": q.shape[0], "heads_q": call.heads_q, "heads_kv": call.heads_kv, "head_dim": q.shape[3],
        "head_dim_v": v.shape[3], "dtype": TYPES.index(operand_of(_OPERATION, "q", q).dtype.name),
        "shards of queries": call.q_shards.fingerprint, "shards of keys": call.kv_shards.fingerprint,
        "strategy": _strategies.STRATEGIES.index(call.strategy), "ranks_per_node": call.ranks_per_node, "window[0]": call.window[0],
        "window[1] or causal": call.window[1], "top_left": int(call.top_left), "scale": bits_of(call.scale),
        "softcap": bits_of(call.softcap), "compute": COMPUTE[call.compute], "kernel": bits_of(call.kernel),
        "requires_grad": int(_recorded(q, k, v)),
    }  # fmt: skip


# Numbers of a rank: those of _described(), of a rank whose own arguments are wrong as well.
_FIELDS = 18
