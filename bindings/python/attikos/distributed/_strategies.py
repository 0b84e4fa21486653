# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context-parallel attention: the products of a rank, and for each strategy what travels between them.

Between two transfers a rank computes with attikos.attention() and attikos.attention_backward(); results over disjoint
keys join by merge_states(), in the order of the schedule and never of arrival."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Callable, Sequence

from ..attention import attention, attention_backward
from ..cache import merge_into
from ._groups import Failure, MpiGroup, TorchGroup, exchange
from ._plan import Plan, Rows, Step, places_of, plan_of
from ._shards import HeadRun, Heads, Shards, heads_of
from ._storage import Pairs

# Multiprocessors that transfers beside a call use, about: kernels deal out work as they find some free.
BESIDE_TRANSFERS = 16

# Rows of keys, the key heads they are of, and gradients of both.
Found = tuple[Rows, slice, Any, Any]


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

    def plan(self, q: Any, owners: Sequence[int]) -> Plan:
        """Of this rank's queries and the keys of these ranks. Packed calls are of one batch entry."""
        return plan_of(
            self.q_shards, self.kv_shards, self.group.rank, tuple(owners), self.window, self.top_left, q.shape[0] == 1
        )

    def plan_of_whole(self, q: Any) -> Plan:
        """Of all queries and all keys."""
        whole = _whole(self.q_shards), _whole(self.kv_shards)
        return plan_of(*whole, 0, (0,), self.window, self.top_left, q.shape[0] == 1)

    def options(self, step: Step, backward: bool = False) -> dict[str, Any]:
        causal = step.right == 0  # what kernels know best
        return {
            "scale": self.scale, "softcap": self.softcap, "compute": self.compute, "top_left": True, "causal": causal,
            "window": (step.left, -1 if causal else step.right), **({} if backward else {"kernel": self.kernel}),
        }  # fmt: skip

    def offsets(self, step: Step, like: Any) -> dict[str, Any]:
        q, kv = (rows.offsets(self.storage, like) for rows in (step.q, step.kv))
        return {"cu_seqlens_q": q, "cu_seqlens_kv": kv, "check": False}


@functools.lru_cache(maxsize=256)
def _whole(shards: Shards) -> Shards:
    return shards.whole()


class Forward:
    """Attention of some queries, over blocks of keys as they come."""

    def __init__(self, call: Call, q: Any, dv: int, plan: Plan, runs: Sequence[HeadRun]) -> None:
        self.call, self.q, self.dv, self.plan, self.runs = call, q, dv, plan, runs
        self._wide = call.storage.wide(q)
        # What is merged once is rounded once as well; what is merged more often stays wide until then.
        self._type = self._wide if plan.merges > 1 else q.dtype
        self._out: Any = None
        self._lse: Any = None

    def add(self, block: int, k: Any, v: Any, beside_transfers: bool = False) -> None:
        margin = BESIDE_TRANSFERS if beside_transfers else 0
        for step in self.plan.steps[block]:
            for run in self.runs:
                part, lse = self._attend(step, run, k, v, margin)
                if self._out is None and step.q.all and len(self.runs) == 1:
                    self._out, self._lse = part, lse
                else:
                    self._join(step, run, part, lse)

    def _attend(self, step: Step, run: HeadRun, k: Any, v: Any, margin: int) -> tuple[Any, Any]:
        call, storage = self.call, self.call.storage
        q = step.q.of(storage, self.q[:, run.q])
        k, v = (step.kv.of(storage, x[:, run.kv]) for x in (k, v))
        if not step.packed:
            return attention(q, k, v, return_lse=True, sm_margin=margin, **call.options(step))
        offsets = call.offsets(step, q)
        out, lse = attention(q[0], k[0], v[0], return_lse=True, sm_margin=margin, **call.options(step), **offsets)
        return out[None], lse[None]

    def _join(self, step: Step, run: HeadRun, part: Any, lse: Any) -> None:
        storage = self.call.storage
        if self._out is None:
            self._begin()
        elif self._out.dtype != self._type:
            self._out = storage.to(self._out, self._type)
        out, sums = self._out[:, run.q], self._lse[:, run.q]
        part = storage.to(part, self._type)
        if step.merges:
            before, of_before = step.q.of(storage, out), step.q.of(storage, sums)
            merge_into(before, of_before, part, lse)
            if step.q.slice is not None:
                return
            part, lse = before, of_before
        step.q.put(storage, out, part)
        step.q.put(storage, sums, lse)

    def _begin(self) -> None:
        """The state of queries that have seen no key."""
        storage = self.call.storage
        self._out = storage.full((*self.q.shape[:-1], self.dv), 0.0, self.q, self._type)
        self._lse = storage.full(self.q.shape[:-1], -math.inf, self.q, self._wide)

    def finish(self) -> tuple[Any, Any]:
        if self._out is None:
            self._begin()
        return self.call.storage.to(self._out, self.q.dtype), self._lse


class Backward:
    """Gradients of some queries, and of blocks of keys as they come."""

    def __init__(
        self, call: Call, q: Any, out: Any, lse: Any, dout: Any, plan: Plan, runs: Sequence[HeadRun]
    ) -> None:
        self.call, self.plan, self.runs = call, plan, runs
        self.wide = call.storage.wide(q)
        # On hosts products are computed from float32 copies, so that gradients of 16-bit arrays are rounded once.
        self._widen = call.storage.narrow_results and call.storage.size_of(q) < 4
        self.type = q.dtype
        self.q, self.out, self.dout, self.lse = self.like(q), self.like(out), self.like(dout), lse
        self._dq: Any = None

    def like(self, x: Any) -> Any:
        return self.call.storage.to(x, self.wide) if self._widen else x

    def add(self, block: int, k: Any, v: Any) -> list[Found]:
        """The gradients of this block's keys and values."""
        k, v = self.like(k), self.like(v)
        found = []
        for step in self.plan.steps[block]:
            for run in self.runs:
                dq, dk, dv = self._gradients(step, run, k, v)
                found.append((step.kv, run.kv, dk, dv))
                if self._dq is None and step.q.all and len(self.runs) == 1:
                    self._dq = self.call.storage.to(dq, self.wide) if self.plan.merges else dq
                else:
                    _add(self.call.storage, step.q, self.dq[:, run.q], dq)
        return found

    def _gradients(self, step: Step, run: HeadRun, k: Any, v: Any) -> Sequence[Any]:
        call, storage = self.call, self.call.storage
        options = call.options(step, backward=True)
        q, out, lse, dout = (step.q.of(storage, x[:, run.q]) for x in (self.q, self.out, self.lse, self.dout))
        k, v = (step.kv.of(storage, x[:, run.kv]) for x in (k, v))
        if not step.packed:
            return attention_backward(q, k, v, out, lse, dout, **options)
        arrays = (x[0] for x in (q, k, v, out, lse, dout))
        gradients = attention_backward(*arrays, **options, **call.offsets(step, q))
        return [x[None] for x in gradients]

    @property
    def dq(self) -> Any:
        """The sum so far."""
        if self._dq is None:
            self._dq = self.call.storage.full(self.q.shape, 0.0, self.q, self.wide)
        return self._dq

    def put(self, found: Sequence[Found], sums: Pairs, fresh: bool) -> None:
        """Adds gradients of a block to `sums`, or, if those are fresh, writes them there."""
        if fresh and len(found) == 1 and found[0][0].all and len(self.runs) == 1:
            sums.fill(*found[0][2:])
            return
        if fresh:
            sums.fill(0, 0)
        for rows, heads, dk, dv in found:
            _add(self.call.storage, rows, sums.first[:, heads], dk)
            _add(self.call.storage, rows, sums.second[:, heads], dv)

    def finish(self) -> Any:
        return self.call.storage.to(self.dq, self.type)


def _add(storage: Any, rows: Rows, to: Any, more: Any) -> None:
    """Adds to these rows of an array."""
    before = rows.of(storage, to)
    before += more
    if rows.slice is None:
        rows.put(storage, to, before)


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
        return Pairs.within(memory, self.shapes(self.call.kv_shards.rows(owner)))

    def new(self, owner: int) -> Pairs:
        return self.at(self.memory(self.call.kv_shards.rows(owner)), owner)


def _messages(rank: int, pairs: Pairs) -> list[tuple[int, Any]]:
    return [(rank, pairs.first), (rank, pairs.second)]


# --- ring: a block of keys and values goes round, the next one behind this one's products ---------------------------


def _owners(call: Call) -> list[int]:
    """Whose block is here at each step."""
    return [(call.group.rank - step) % call.group.size for step in range(call.group.size)]


def _round(call: Call, k: Any, v: Any, work: Callable[[int, Pairs], Any], failure: Failure, put: Any = None) -> Any:
    """work(step, block) for the blocks of all ranks, one's own first. With put(found, sums, fresh), what ranks find for
    the gradients of a block travels one step behind it and comes home with a last message: those of one's own block."""
    group = call.group
    to, source = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    blocks, sums = _Blocks(call, k, v), _Blocks(call, k, v, call.storage.wide(k))
    memory = [blocks.memory(call.kv_shards.max_rows) for _ in range(min(2, group.size - 1))]
    here = Pairs(call.storage.dense(k), call.storage.dense(v))
    gradients: Any = None
    for step, owner in enumerate(_owners(call)):
        sends, receives, ahead, before = [], [], here, None
        if put is not None and step > 0:
            before = sums.new(owner)
            sends += _messages(to, gradients)
            receives += _messages(source, before)
        if step + 1 < group.size:
            ahead = blocks.at(memory[step % 2], (owner - 1) % group.size)
            sends += _messages(to, here)
            receives += _messages(source, ahead)
        begun = group.begin(call.operation, sends, receives)
        found = failure.unless_failed(lambda: work(step, here))
        group.finish(call.operation, begun)
        if put is not None:
            gradients = sums.new(owner) if before is None else before
            put(found or [], gradients, before is None)
        here = ahead
    if put is not None and group.size > 1:
        home = sums.new(group.rank)
        begun = group.begin(call.operation, _messages(to, gradients), _messages(source, home))
        group.finish(call.operation, begun)
        gradients = home
    return gradients


def _ring_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    failure = Failure()
    state = Forward(call, q, v.shape[-1], call.plan(q, _owners(call)), _all_heads(call))

    def work(step: int, block: Pairs) -> None:
        state.add(step, block.first, block.second, beside_transfers=step + 1 < call.group.size)

    _round(call, k, v, work, failure)
    failure.throw()
    return state.finish()


def _ring_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    failure = Failure()
    state = Backward(call, q, out, lse, dout, call.plan(q, _owners(call)), _all_heads(call))
    home = _round(call, k, v, lambda step, block: state.add(step, block.first, block.second), failure, state.put)
    failure.throw()
    return state.finish(), call.storage.to(home.first, k.dtype), call.storage.to(home.second, v.dtype)


# --- all_gather: every rank gets all keys and values ----------------------------------------------------------------


def _to_all(call: Call, sent: Sequence[Pairs], found: Sequence[Pairs]) -> None:
    """sent[r] goes to rank r, what comes from it to found[r]."""
    exchange(call.group, call.operation, *([(x.first, x.second) for x in pairs] for pairs in (sent, found)))


def _gather(call: Call, k: Any, v: Any) -> list[Pairs]:
    blocks, mine = _Blocks(call, k, v), Pairs(call.storage.dense(k), call.storage.dense(v))
    found = [mine if r == call.group.rank else blocks.new(r) for r in range(call.group.size)]
    _to_all(call, [mine] * call.group.size, found)
    return found


def _gather_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    plan = call.plan(q, range(call.group.size))
    state = Forward(call, q, v.shape[-1], plan, _all_heads(call))
    for owner, block in enumerate(_gather(call, k, v)):
        state.add(owner, block.first, block.second)
    return state.finish()


def _gather_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    """What ranks find for the keys of one go to that one, which sums them in the order of ranks."""
    group, failure = call.group, Failure()
    state = Backward(call, q, out, lse, dout, call.plan(q, range(group.size)), _all_heads(call))
    sums = _Blocks(call, k, v, state.wide)
    found = []
    for owner, block in enumerate(_gather(call, k, v)):
        of_block = failure.unless_failed(lambda: state.add(owner, block.first, block.second))
        found.append(sums.new(owner))
        state.put(of_block or [], found[-1], True)
    parts = [found[r] if r == group.rank else sums.new(group.rank) for r in range(group.size)]
    _to_all(call, found, parts)
    failure.throw()
    total = parts[0]
    for part in parts[1:]:
        total.first[...] += part.first
        total.second[...] += part.second
    return state.finish(), call.storage.to(total.first, k.dtype), call.storage.to(total.second, v.dtype)


# --- all_to_all: every rank gets all positions of some heads --------------------------------------------------------


class _HeadExchange:
    """Between rows of all heads and all rows of one's own heads."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.heads = [heads_of(r, call.group.size, call.heads_q, call.heads_kv) for r in range(call.group.size)]
        self.own: Heads = self.heads[call.group.rank]

    def to_heads(self, x: Any, of: Callable[[Heads], slice], shards: Shards) -> Any:
        """x [batch, heads, rows, features] -> [batch, own heads, total, features], in the order of the sequences."""
        call, group, storage = self.call, self.call.group, self.call.storage
        count = of(self.own).stop - of(self.own).start
        parts = [storage.empty((x.shape[0], count, shards.rows(r), x.shape[-1]), x) for r in range(group.size)]
        sent = [storage.dense(x[:, of(heads)]) for heads in self.heads]
        parts[group.rank] = sent[group.rank]
        exchange(group, call.operation, [[part] for part in sent], [[part] for part in parts])
        whole = storage.empty((x.shape[0], count, shards.total, x.shape[-1]), x)
        for r, part in enumerate(parts):
            places_of(shards, r).put(storage, whole, part)
        return whole

    def to_rows(self, x: Any, of: Callable[[Heads], slice], shards: Shards, heads: int, wide: Any) -> Any:
        """The reverse; heads that several ranks have worked on are summed in the order of ranks, in the type `wide`."""
        call, group, storage = self.call, self.call.group, self.call.storage
        parts = [storage.dense(places_of(shards, r).of(storage, x)) for r in range(group.size)]
        rows = shards.rows(group.rank)
        counts = [of(h).stop - of(h).start for h in self.heads]
        shared = sum(counts) != heads
        found = [storage.empty((x.shape[0], count, rows, x.shape[-1]), x) for count in counts]
        found[group.rank] = parts[group.rank]
        exchange(group, call.operation, [[part] for part in parts], [[part] for part in found])
        shape = (x.shape[0], heads, rows, x.shape[-1])
        result = storage.full(shape, 0.0, x, wide) if shared else storage.empty(shape, x)
        for r, part in enumerate(found):
            if shared:
                result[:, of(self.heads[r])] += part
            else:
                result[:, of(self.heads[r])] = part
        return result


def _of_q(heads: Heads) -> slice:
    return heads.q


def _of_kv(heads: Heads) -> slice:
    return heads.kv


def _heads_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    exchange, failure = _HeadExchange(call), Failure()
    whole_q = exchange.to_heads(q, _of_q, call.q_shards)
    whole_k, whole_v = (exchange.to_heads(x, _of_kv, call.kv_shards) for x in (k, v))
    state = Forward(call, whole_q, v.shape[-1], call.plan_of_whole(q), exchange.own.runs)
    failure.unless_failed(lambda: state.add(0, whole_k, whole_v))
    out, lse = state.finish()
    wide = lse.dtype
    out = exchange.to_rows(out, _of_q, call.q_shards, call.heads_q, wide)
    lse = exchange.to_rows(lse[..., None], _of_q, call.q_shards, call.heads_q, wide)[..., 0]
    failure.throw()
    return call.storage.to(out, q.dtype), lse


def _heads_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    exchange, failure = _HeadExchange(call), Failure()
    of_q = [exchange.to_heads(x, _of_q, call.q_shards) for x in (q, out, dout)]
    whole_k, whole_v = (exchange.to_heads(x, _of_kv, call.kv_shards) for x in (k, v))
    whole_lse = exchange.to_heads(lse[..., None], _of_q, call.q_shards)[..., 0]
    state = Backward(
        call, of_q[0], of_q[1], whole_lse, of_q[2], call.plan_of_whole(q), exchange.own.runs
    )  # fmt: skip
    one = dataclasses.replace(call, kv_shards=_whole(call.kv_shards))
    sums = _Blocks(one, whole_k, whole_v, state.wide).new(0)
    state.put(failure.unless_failed(lambda: state.add(0, whole_k, whole_v)) or [], sums, True)
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
