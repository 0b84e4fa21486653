# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context-parallel attention: the products of a rank, and for each strategy what travels between them.

Between two transfers a rank computes with attikos.attention() and attikos.attention_backward(); results over disjoint
keys join by merge_states(), in the order of the schedule and never of arrival."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Iterator, Sequence

from ..attention import attention, attention_backward
from ..cache import merge_states
from ._groups import MpiGroup, TorchGroup
from ._shards import HeadRun, Heads, Piece, Product, Shards, heads_of, product_of
from ._storage import Pairs


@dataclasses.dataclass
class Call:
    """What all ranks ask for alike."""

    operation: str
    group: TorchGroup | MpiGroup
    storage: Any
    q_shards: Shards
    kv_shards: Shards
    strategy: str
    window: tuple[int, int]
    top_left: bool
    scale: float
    softcap: float
    compute: str
    kernel: str
    heads_q: int
    heads_kv: int

    def pairs_of(self, queries: Sequence[Piece], keys: Sequence[Piece]) -> Iterator[Product]:
        """The products of a rank's pieces of queries with pieces of keys."""
        for q in queries:
            offset = 0 if self.top_left else self.kv_shards.length(q.sequence) - self.q_shards.length(q.sequence)
            for kv in keys:
                product = product_of(q, kv, self.window, offset)
                if product is not None:
                    yield product

    def options(self, product: Product, backward: bool = False) -> dict[str, Any]:
        causal = product.right == 0  # what kernels know best
        return {
            "scale": self.scale, "softcap": self.softcap, "compute": self.compute, "top_left": True, "causal": causal,
            "window": (product.left, -1 if causal else product.right), **({} if backward else {"kernel": self.kernel}),
        }  # fmt: skip


class Failure:
    """The first failure of a rank, which goes on sending what others wait for and throws at the end."""

    def __init__(self) -> None:
        self._first: Exception | None = None

    def unless_failed(self, work: Callable[[], Any]) -> None:
        if self._first is None:
            try:
                work()
            except Exception as problem:
                self._first = problem

    def throw(self) -> None:
        if self._first is not None:
            raise self._first


class Forward:
    """Attention of some queries, over blocks of keys as they come."""

    def __init__(self, call: Call, q: Any, dv: int, queries: Sequence[Piece], runs: Sequence[HeadRun]) -> None:
        self.call, self.q, self.queries, self.runs = call, q, queries, runs
        wide = call.storage.wide(q)
        self.out = call.storage.full((*q.shape[:-1], dv), 0.0, q, wide)
        self.lse = call.storage.full(q.shape[:-1], -math.inf, q, wide)
        self._seen: set[tuple[int, int]] = set()  # rows, by where they begin, and the heads of queries with a state

    def add(self, k: Any, v: Any, keys: Sequence[Piece]) -> None:
        starts = {piece.local: piece.rows for piece in self.queries}
        for product in self.call.pairs_of(self.queries, keys):
            for run in self.runs:
                at = (slice(None), run.q, product.q)
                of = (slice(None), run.kv, product.kv)
                part, lse = attention(self.q[at], k[of], v[of], return_lse=True, **self.call.options(product))
                part = self.call.storage.to(part, self.out.dtype)
                piece = max(start for start in starts if start <= product.q_row)
                key = piece, run.q.start
                if key in self._seen:
                    part, lse = merge_states(self.out[at], self.lse[at], part, lse)
                self._seen.add(key)
                self.out[at], self.lse[at] = part, lse

    def finish(self) -> tuple[Any, Any]:
        return self.call.storage.to(self.out, self.q.dtype), self.lse


class Backward:
    """Gradients of some queries, and of blocks of keys as they come."""

    def __init__(
        self, call: Call, q: Any, out: Any, lse: Any, dout: Any, queries: Sequence[Piece], runs: Sequence[HeadRun]
    ) -> None:
        self.call, self.queries, self.runs = call, queries, runs
        self.wide = call.storage.wide(q)
        # On hosts products are computed from float32 copies, so that gradients of 16-bit arrays are rounded once.
        self._widen = call.storage.narrow_results and call.storage.size_of(q) < 4
        self.type = q.dtype
        self.q, self.out, self.dout, self.lse = self.like(q), self.like(out), self.like(dout), lse
        self.dq = call.storage.full(q.shape, 0.0, q, self.wide)

    def like(self, x: Any) -> Any:
        return self.call.storage.to(x, self.wide) if self._widen else x

    def add(self, k: Any, v: Any, keys: Sequence[Piece], sums: Pairs) -> None:
        """The gradients of this block join `sums`."""
        k, v = self.like(k), self.like(v)
        for product in self.call.pairs_of(self.queries, keys):
            for run in self.runs:
                at = (slice(None), run.q, product.q)
                of = (slice(None), run.kv, product.kv)
                dq, dk, dv = attention_backward(
                    self.q[at], k[of], v[of], self.out[at], self.lse[at], self.dout[at],
                    **self.call.options(product, backward=True),
                )  # fmt: skip
                self.dq[at] += dq
                sums.first[of] += dk
                sums.second[of] += dv

    def finish(self) -> Any:
        return self.call.storage.to(self.dq, self.type)


def _all_heads(call: Call) -> tuple[HeadRun, ...]:
    return (HeadRun(slice(0, call.heads_q), slice(0, call.heads_kv)),)


class _Blocks:
    """Memory for the keys and values, or the sums of their gradients, of any one rank; the shapes of a block follow
    from who holds it."""

    def __init__(self, call: Call, k: Any, v: Any, dtype: Any = None) -> None:
        self.call, self.like, self.dtype = call, k, dtype
        self.outer = (k.shape[0], k.shape[1])
        self.features = (k.shape[-1], v.shape[-1])

    def shapes(self, rows: int) -> list[tuple[int, ...]]:
        return [(*self.outer, rows, features) for features in self.features]

    def memory(self, rows: int) -> Any:
        return self.call.storage.empty((math.prod(self.outer) * rows * sum(self.features),), self.like, self.dtype)

    def at(self, memory: Any, owner: int) -> Pairs:
        return Pairs(self.call.storage, memory, self.shapes(self.call.kv_shards.rows(owner)))

    def new(self, owner: int) -> Pairs:
        return self.at(self.memory(self.call.kv_shards.rows(owner)), owner)

    def zeros(self, owner: int) -> Pairs:
        pairs = self.new(owner)
        pairs.message[...] = 0
        return pairs


# --- ring: a block of keys and values goes round, the next one behind this one's products ---------------------------


def _round(
    call: Call, k: Any, v: Any, work: Callable[[Pairs, int, Any], None], sums: _Blocks | None, failure: Failure
) -> Any:
    """work(block, owner, gradients) for the blocks of all ranks, one's own first. With `sums`, what ranks add to the
    gradients of a block travels one step behind it and comes home with a last message: those of one's own block."""
    group, most = call.group, call.kv_shards.max_rows
    to, source = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    blocks = _Blocks(call, k, v)
    memory = [blocks.memory(most) for _ in range(min(2, group.size))]
    here = blocks.at(memory[0], group.rank).fill(k, v)
    gradients: Any = None
    before: Any = None
    for step in range(group.size):
        owner = (group.rank - step) % group.size
        sends, receives, ahead = [], [], here
        if sums is not None and step > 0:
            before = sums.new(owner)
            sends.append((to, gradients.message))
            receives.append((source, before.message))
        if step + 1 < group.size:
            ahead = blocks.at(memory[(step + 1) % 2], (owner - 1) % group.size)
            sends.append((to, here.message))
            receives.append((source, ahead.message))
        begun = group.begin(call.operation, sends, receives)
        mine: Any = None if sums is None else sums.zeros(owner)
        failure.unless_failed(lambda: work(here, owner, mine))
        group.finish(call.operation, begun)
        if before is not None:
            before.message[...] += mine.message
            mine = before
        gradients, here = mine, ahead
    if sums is not None and group.size > 1:
        home = sums.new(group.rank)
        sent = [(to, gradients.message)]
        group.finish(call.operation, group.begin(call.operation, sent, [(source, home.message)]))
        gradients = home
    return gradients


def _ring_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    failure = Failure()
    state = Forward(call, q, v.shape[-1], call.q_shards.pieces(call.group.rank), _all_heads(call))

    def work(block: Pairs, owner: int, _: None) -> None:
        state.add(block.first, block.second, call.kv_shards.pieces(owner))

    _round(call, k, v, work, None, failure)
    failure.throw()
    return state.finish()


def _ring_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    failure = Failure()
    state = Backward(call, q, out, lse, dout, call.q_shards.pieces(call.group.rank), _all_heads(call))

    def work(block: Pairs, owner: int, gradients: Pairs) -> None:
        state.add(block.first, block.second, call.kv_shards.pieces(owner), gradients)

    home: Any = _round(call, k, v, work, _Blocks(call, k, v, state.wide), failure)
    failure.throw()
    return state.finish(), call.storage.to(home.first, k.dtype), call.storage.to(home.second, v.dtype)


# --- all_gather: every rank gets all keys and values ----------------------------------------------------------------


def _gather(call: Call, k: Any, v: Any) -> list[Pairs]:
    group, blocks = call.group, _Blocks(call, k, v)
    found = [blocks.new(owner) for owner in range(group.size)]
    mine = found[group.rank].fill(k, v)
    others = [(group.rank + i) % group.size for i in range(1, group.size)]
    sends, receives = [(r, mine.message) for r in others], [(r, found[r].message) for r in reversed(others)]
    group.finish(call.operation, group.begin(call.operation, sends, receives))
    return found


def _gather_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    state = Forward(call, q, v.shape[-1], call.q_shards.pieces(call.group.rank), _all_heads(call))
    for owner, block in enumerate(_gather(call, k, v)):
        state.add(block.first, block.second, call.kv_shards.pieces(owner))
    return state.finish()


def _gather_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    """What ranks find for the keys of one go to that one, which sums them in the order of ranks."""
    group, failure = call.group, Failure()
    state = Backward(call, q, out, lse, dout, call.q_shards.pieces(group.rank), _all_heads(call))
    sums = _Blocks(call, k, v, state.wide)
    found = [sums.zeros(owner) for owner in range(group.size)]
    for owner, block in enumerate(_gather(call, k, v)):
        failure.unless_failed(
            lambda: state.add(block.first, block.second, call.kv_shards.pieces(owner), found[owner])
        )
    parts = [found[group.rank] if r == group.rank else sums.new(group.rank) for r in range(group.size)]
    others = [(group.rank + i) % group.size for i in range(1, group.size)]
    sends, receives = [(r, found[r].message) for r in others], [(r, parts[r].message) for r in reversed(others)]
    group.finish(call.operation, group.begin(call.operation, sends, receives))
    failure.throw()
    total = sums.zeros(group.rank)
    for part in parts:
        total.message[...] += part.message
    return state.finish(), call.storage.to(total.first, k.dtype), call.storage.to(total.second, v.dtype)


# --- all_to_all: every rank gets all positions of some heads --------------------------------------------------------


class _HeadExchange:
    """Between rows of all heads and all rows of one's own heads."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.heads = [heads_of(r, call.group.size, call.heads_q, call.heads_kv) for r in range(call.group.size)]
        self.own: Heads = self.heads[call.group.rank]

    def _others(self) -> list[int]:
        group = self.call.group
        return [(group.rank + i) % group.size for i in range(1, group.size)]

    def to_heads(self, x: Any, of: Callable[[Heads], slice], shards: Shards) -> Any:
        """x [batch, heads, rows, features] -> [batch, own heads, total, features], in the order of the sequences."""
        call, group, storage = self.call, self.call.group, self.call.storage
        own = of(self.own)
        count = own.stop - own.start
        parts = [storage.empty((x.shape[0], count, shards.rows(r), x.shape[-1]), x) for r in range(group.size)]
        parts[group.rank][...] = x[:, own]
        sends = [(r, storage.dense(x[:, of(self.heads[r])])) for r in self._others()]
        receives = [(r, parts[r]) for r in reversed(self._others())]
        group.finish(call.operation, group.begin(call.operation, sends, receives))
        whole = storage.empty((x.shape[0], count, shards.total, x.shape[-1]), x)
        for r, part in enumerate(parts):
            for piece in shards.pieces(r):
                at = shards.offset(piece.sequence) + piece.begin
                whole[:, :, at : at + piece.rows] = part[:, :, piece.local : piece.local + piece.rows]
        return whole

    def to_rows(self, x: Any, of: Callable[[Heads], slice], shards: Shards, heads: int, wide: Any) -> Any:
        """The reverse; heads that several ranks have worked on are summed in the order of ranks, in the type `wide`."""
        call, group, storage = self.call, self.call.group, self.call.storage
        parts = []
        for r in range(group.size):
            share = storage.empty((x.shape[0], x.shape[1], shards.rows(r), x.shape[-1]), x)
            for piece in shards.pieces(r):
                at = shards.offset(piece.sequence) + piece.begin
                share[:, :, piece.local : piece.local + piece.rows] = x[:, :, at : at + piece.rows]
            parts.append(share)
        rows = shards.rows(group.rank)
        counts = [of(h).stop - of(h).start for h in self.heads]
        found = [storage.empty((x.shape[0], count, rows, x.shape[-1]), x) for count in counts]
        found[group.rank] = parts[group.rank]
        sends = [(r, parts[r]) for r in self._others()]
        receives = [(r, found[r]) for r in reversed(self._others())]
        group.finish(call.operation, group.begin(call.operation, sends, receives))
        result = storage.full((x.shape[0], heads, rows, x.shape[-1]), 0.0, x, wide)
        for r, part in enumerate(found):
            result[:, of(self.heads[r])] += part
        return result


def _of_q(heads: Heads) -> slice:
    return heads.q


def _of_kv(heads: Heads) -> slice:
    return heads.kv


def _heads_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    exchange, failure = _HeadExchange(call), Failure()
    whole_q = exchange.to_heads(q, _of_q, call.q_shards)
    whole_k, whole_v = (exchange.to_heads(x, _of_kv, call.kv_shards) for x in (k, v))
    state = Forward(call, whole_q, v.shape[-1], call.q_shards.whole().pieces(0), exchange.own.runs)
    failure.unless_failed(lambda: state.add(whole_k, whole_v, call.kv_shards.whole().pieces(0)))
    out, lse = state.finish()
    wide = state.lse.dtype
    out = exchange.to_rows(out, _of_q, call.q_shards, call.heads_q, wide)
    lse = exchange.to_rows(lse[..., None], _of_q, call.q_shards, call.heads_q, wide)[..., 0]
    failure.throw()
    return call.storage.to(out, q.dtype), lse


def _heads_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    exchange, failure = _HeadExchange(call), Failure()
    of_q = [exchange.to_heads(x, _of_q, call.q_shards) for x in (q, out, dout)]
    whole_k, whole_v = (exchange.to_heads(x, _of_kv, call.kv_shards) for x in (k, v))
    whole_lse = exchange.to_heads(lse[..., None], _of_q, call.q_shards)[..., 0]
    pieces = call.q_shards.whole().pieces(0)
    state = Backward(call, of_q[0], of_q[1], whole_lse, of_q[2], pieces, exchange.own.runs)
    one = dataclasses.replace(call, kv_shards=call.kv_shards.whole())
    sums = _Blocks(one, whole_k, whole_v, state.wide).zeros(0)
    failure.unless_failed(lambda: state.add(whole_k, whole_v, one.kv_shards.pieces(0), sums))
    dq = exchange.to_rows(state.dq, _of_q, call.q_shards, call.heads_q, state.wide)
    dk, dv = (
        exchange.to_rows(x, _of_kv, call.kv_shards, call.heads_kv, state.wide) for x in (sums.first, sums.second)
    )
    failure.throw()
    return call.storage.to(dq, q.dtype), call.storage.to(dk, k.dtype), call.storage.to(dv, v.dtype)


_FORWARD = {"ring": _ring_forward, "all_gather": _gather_forward, "all_to_all": _heads_forward}
_BACKWARD = {"ring": _ring_backward, "all_gather": _gather_backward, "all_to_all": _heads_backward}
STRATEGIES = tuple(_FORWARD)


def forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """The rank's rows of the output and of the log-sum-exp."""
    return _FORWARD[call.strategy](call, q, k, v)


def backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    """The rank's rows of dq, dk and dv."""
    return _BACKWARD[call.strategy](call, q, k, v, out, lse, dout)
