# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What stands in for PyTorch's context_parallel(): models that call scaled_dot_product_attention(), unchanged."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Sequence

from ..errors import ArgumentError, ShapeMismatchError, UnsupportedError
from ._attention import attention
from ._groups import exchange, group_of
from ._plan import places_of
from ._shards import Shards
from ._storage import storage_of

_SDPA = "scaled_dot_product_attention"


def gather(x: Any, shards: Shards, group: Any = None, dim: int = 2) -> Any:
    """The whole of a tensor whose positions, along `dim`, are spread over the ranks of a group, on every rank: the
    reverse of x.index_select(dim, shards.positions(rank)). Gradients do not flow through it."""
    operation, ranks, storage = "distributed.gather", group_of(group), storage_of("distributed.gather", "x", x)
    dim = dim % max(x.ndim, 1)
    if shards.ranks != ranks.size or x.ndim == 0 or x.shape[dim] != shards.rows(ranks.rank):
        raise ShapeMismatchError(
            f"attikos.{operation}: x is {tuple(x.shape)} and shards have {shards.ranks} ranks, of which rank "
            f"{ranks.rank} has {shards.rows(min(ranks.rank, shards.ranks - 1))} rows; expected those along dimension "
            f"{dim}, and {ranks.size} ranks"
        )
    x = x.detach() if hasattr(x, "detach") else x
    shape = list(x.shape)
    found = [storage.empty((*shape[:dim], shards.rows(r), *shape[dim + 1 :]), x) for r in range(ranks.size)]
    found[ranks.rank][...] = x
    exchange(ranks, operation, [[found[ranks.rank]]] * ranks.size, [[part] for part in found])
    whole = storage.empty((*shape[:dim], shards.total, *shape[dim + 1 :]), x)
    for r, part in enumerate(found):
        places_of(shards, r).put(storage, whole, part, dim)
    return whole


@contextlib.contextmanager
def context_parallel(
    mesh: Any, *, buffers: Sequence[Any] | None = None, buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: Any = None, strategy: str = "ring", ranks_per_node: int = 0,
) -> Iterator[Shards]:  # fmt: skip
    """PyTorch's torch.distributed.tensor.experimental.context_parallel() with this package's attention.

    Inside, each of `buffers` is this rank's part of itself along its dimension of buffer_seq_dims, and
    torch.nn.functional.scaled_dot_product_attention() is distributed.attention() over `mesh`, a mesh of one dimension
    or a process group, gradients included. Afterwards buffers are what they were, but for those of no_restore_buffers.
    strategy and ranks_per_node are those of attention().
    The context gives the Shards: zigzag, so that a causal mask leaves all ranks the same work; gather() brings results
    together. Sequences may have any length, also one that the ranks do not divide.

    Masks as tensors and dropout raise UnsupportedError. A module that holds the function itself, by `from
    torch.nn.functional import`, is not reached, as by PyTorch's. One such context at a time in a process.
    """
    import torch

    group = group_of(mesh)
    whole = list(buffers or [])
    dims = list(buffer_seq_dims or [])
    dropped = list(no_restore_buffers or ())
    name = "attikos.distributed.context_parallel"
    if len(whole) != len(dims) or not whole:
        raise ArgumentError(
            f"{name}: {len(whole)} buffers and {len(dims)} buffer_seq_dims; expected as many, at least one"
        )
    if not all(any(x is b for b in whole) for x in dropped):
        raise ArgumentError(f"{name}: no_restore_buffers has a tensor that is none of buffers")
    lengths = [b.shape[d] for b, d in zip(whole, dims)]
    if len(set(lengths)) != 1:
        raise ShapeMismatchError(f"{name}: buffers have {lengths} positions; expected one number")
    for b in whole:
        if isinstance(b, torch.nn.Parameter) or b.requires_grad:
            raise ArgumentError(f"{name}: a buffer requires a gradient; expected tensors that are no parameters")
    shards = Shards.zigzag(lengths[0], group.size)
    rows = torch.from_numpy(shards.positions(group.rank))
    kept = [None if any(b is x for x in dropped) else b.clone() for b in whole]
    for b, d in zip(whole, dims):
        part = b.index_select(d, rows.to(b.device))
        b.resize_(part.shape).copy_(part)

    def replaced(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: Any = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if attn_mask is not None or dropout_p:
            what = "attn_mask" if attn_mask is not None else "dropout_p"
            raise UnsupportedError(f"{name}: {_SDPA} with {what}; expected is_causal alone")
        if query.shape[1] != key.shape[1] and not enable_gqa:
            raise ShapeMismatchError(
                f"{name}: {_SDPA} of {query.shape[1]} heads over {key.shape[1]}; expected enable_gqa=True for that"
            )
        return attention(
            query, key, value, shards, mesh, scale=scale, causal=is_causal, top_left=True, strategy=strategy,
            ranks_per_node=ranks_per_node,
        )  # fmt: skip

    functional = torch.nn.functional
    before = getattr(functional, _SDPA)
    setattr(functional, _SDPA, replaced)
    try:
        yield shards
    finally:
        setattr(functional, _SDPA, before)
        for b, was in zip(whole, kept):
            if was is not None:
                b.resize_(was.shape).copy_(was)
