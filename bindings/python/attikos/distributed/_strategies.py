# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context-parallel attention: for each strategy what travels between the calls of a rank (_calls.py)."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Sequence, Tuple

from ._calls import Backward, Call, Forward, Tasks, all_heads
from ._groups import Failure, Part, exchange
from ._plan import places_of
from ._shards import HeadRun, Heads, Shards, heads_of
from ._storage import Layout, Pairs


class _Blocks:
    """Memory for the keys and values that a rank shares, or for the sums of their gradients; the shapes of a block
    follow from who holds it."""

    def __init__(self, call: Call, k: Any, v: Any, dtype: Any = None) -> None:
        self.call, self.like, self.dtype = call, k, dtype
        self.outer = (k.shape[0], k.shape[1])
        self.features = (k.shape[-1], v.shape[-1])

    def _layout(self, rows: int) -> Layout:
        make = lambda: Layout(*((*self.outer, rows, features) for features in self.features))  # noqa: E731
        return self.call.once((self.outer, rows), make)

    def memory(self, rows: int) -> Any:
        return self.call.storage.empty((self._layout(rows).size,), self.like, self.dtype)

    def at(self, memory: Any, rows: int, of: int) -> Pairs:
        """In memory for `of` rows."""
        return Pairs.within(self.call.storage, memory, self._layout(rows), rows == of)

    def of_rows(self, rows: int) -> Pairs:
        return self.at(self.memory(rows), rows, rows)

    def new(self, owner: int) -> Pairs:
        return self.of_rows(self.call.shared.rows(owner))


def _new(call: Call, k: Any, v: Any, rows: int) -> Callable[[Any], Pairs]:
    """Memory of a type for so many rows."""
    return lambda dtype: _Blocks(call, k, v, dtype).of_rows(rows)


def _mine(call: Call, k: Any, v: Any) -> Pairs:
    return Pairs(call.storage, call.storage.dense(k), call.storage.dense(v))


def _shared(call: Call, mine: Pairs) -> Pairs:
    """What this rank sends of its block."""
    storage, rows = call.storage, call.shared_rows
    if rows.all:
        return mine
    return Pairs(storage, *(storage.dense(rows.of(storage, x)) for x in (mine.first, mine.second)))


# --- ring: a block of keys and values goes round, the next one behind this one's products ---------------------------


def _owners(call: Call) -> list[int]:
    """Whose block is here at each step."""
    return [(call.group.rank - step) % call.group.size for step in range(call.group.size)]


def _tasks_of_ring(call: Call) -> Tasks:
    return call.tasks(_owners(call))


def _round(call: Call, k: Any, v: Any, work: Callable[[int, Pairs], Any], failure: Failure, sums: Any = None) -> None:
    """work(step, block) for the blocks of all ranks, one's own first. sums: what travels beside the blocks."""
    group, shards = call.group, call.shared
    to, source = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    blocks = _Blocks(call, k, v)
    memory = [blocks.memory(shards.max_rows) for _ in range(min(2, group.size - 1))]
    seen: dict[tuple[int, int], Pairs] = {}
    here = ahead = _mine(call, k, v)
    leaving = _shared(call, here)
    for step in range(group.size):
        sends, receives = ([], []) if sums is None else sums.beside(step)  # type: list[Any], list[Any]
        if step + 1 < group.size:
            place, rows = step % 2, shards.rows((group.rank - step - 1) % group.size)
            found = seen.get((place, rows))
            ahead = found or seen.setdefault((place, rows), blocks.at(memory[place], rows, shards.max_rows))
            sends += [(to, x) for x in leaving.messages]
            # Keys and values that are the caller's come as two messages, those that were on their way as one.
            receives += [(source, x) for x in (ahead.messages if step > 0 else (ahead.first, ahead.second))]
        begun = group.begin(call.operation, sends, receives)
        done = failure.unless_failed(work, step, here)
        group.finish(call.operation, begun)
        if sums is not None:
            sums.after(step, done or [])
        here = leaving = ahead


def _added_once(call: Call) -> bool:
    """Whether other ranks have at most one product with each rank's keys in all: two ranks that need one call each."""
    n = call.group.size
    plans = [call.plan_of_rank(rank, [(rank - step) % n for step in range(n)]) for rank in range(n)]
    return n == 2 and all(len(block) <= 1 for plan in plans for block in plan.steps)


class _Sums:
    """Gradients of blocks on their way round the ring: what a rank finds for another one's block joins what came from
    the ranks before and goes on, one step behind the block itself; the last rank is the owner's neighbor, and what the
    owner found in the first step is added where all comes together."""

    def __init__(self, call: Call, state: Backward, k: Any, v: Any) -> None:
        self._call, self._state = call, state
        # Gradients that nothing is added to on their way keep the type in which they were computed.
        narrow = len(state.runs) == 1 and call.once("added once", _added_once, call)
        self._blocks = _Blocks(call, k, v, state.type_of_products if narrow else state.wide)
        self._own: Sequence[Any] = ()
        self._here: Any = None
        self._coming: Any = None

    def beside(self, step: int) -> tuple[list[Any], list[Any]]:
        return self._on(step, (self._call.group.rank - step) % self._call.group.size) if step > 1 else ([], [])

    def _on(self, step: int, owner: int) -> tuple[list[Any], list[Any]]:
        """Sends what is here to the next rank; what comes is of this owner."""
        group, coming = self._call.group, self._blocks.new(owner)
        sends = [((group.rank + 1) % group.size, x) for x in self._here.messages]
        self._coming = coming
        # What the first rank on the way found comes as two messages, what was added to as one.
        parts = coming.apart() if step == 2 else coming
        return sends, [((group.rank - 1) % group.size, x) for x in parts.messages]

    def after(self, step: int, found: Sequence[Any]) -> None:
        if step == 0:
            self._own = found
        elif step == 1:
            owner = (self._call.group.rank - 1) % self._call.group.size
            self._here = self._state.gathered(found, lambda dtype: self._blocks.new(owner), self._blocks.dtype)
        else:
            self._state.put(found, self._coming)
            self._here = self._coming

    def home(self, k: Any, v: Any) -> tuple[Any, Any]:
        """The gradients of this rank's own keys and values."""
        call, n = self._call, self._call.group.size
        if n > 1:
            begun = call.group.begin(call.operation, *self._on(n, call.group.rank))
            call.group.finish(call.operation, begun)
        return self._state.total(self._own, self._coming, _new(call, k, v, k.shape[2]), k, v)


def _attend_round(
    call: Call, q: Any, k: Any, v: Any, runs: Sequence[HeadRun], failure: Failure
) -> tuple[Any, Any]:
    state = Forward(call, q, v.shape[-1], call.once("ring", _tasks_of_ring, call), runs)
    transfers = call.group.size - 1  # steps beside which blocks travel
    if transfers and not call.shared.max_rows:
        transfers = 0

    def work(step: int, block: Pairs) -> None:
        state.add(step, block.first, block.second, beside_transfers=step < transfers)

    _round(call, k, v, work, failure)
    return state.finish()


def _ring_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    failure = Failure()
    found = _attend_round(call, q, k, v, all_heads(call), failure)
    failure.throw()
    return found


def _ring_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    failure = Failure()
    state = Backward(call, q, out, lse, dout, call.once("ring", _tasks_of_ring, call), all_heads(call))
    dk, dv = _gradients_round(call, state, k, v, failure)
    failure.throw()
    return state.finish(), dk, dv


def _gradients_round(call: Call, state: Backward, k: Any, v: Any, failure: Failure) -> tuple[Any, Any]:
    sums = _Sums(call, state, k, v)
    _round(call, k, v, lambda step, block: state.add(step, block.first, block.second), failure, sums)
    return sums.home(k, v)


# --- all_gather: every rank gets all keys and values ----------------------------------------------------------------


def _tasks_of_all(call: Call) -> Tasks:
    return call.tasks(range(call.group.size))


def _to_all(call: Call, sent: Sequence[Pairs], found: Sequence[Pairs]) -> None:
    """sent[r] goes to rank r, what comes from it to found[r]."""
    exchange(call.group, call.operation, *([x.messages for x in pairs] for pairs in (sent, found)))


def _gather(call: Call, k: Any, v: Any) -> list[Pairs]:
    blocks, mine = _Blocks(call, k, v), _mine(call, k, v)
    found = [mine if r == call.group.rank else blocks.new(r).apart() for r in range(call.group.size)]
    _to_all(call, [_shared(call, mine)] * call.group.size, found)
    return found


def _gather_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    state = Forward(call, q, v.shape[-1], call.once("all", _tasks_of_all, call), all_heads(call))
    for owner, block in enumerate(_gather(call, k, v)):
        state.add(owner, block.first, block.second)
    return state.finish()


def _gather_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    """What ranks find for the keys of one go to that one, which sums them in the order of ranks."""
    group, failure = call.group, Failure()
    state = Backward(call, q, out, lse, dout, call.once("all", _tasks_of_all, call), all_heads(call))
    narrow = call.once("added once", _added_once, call)
    sums = _Blocks(call, k, v, state.type_of_products if narrow else state.wide)
    mine, found = [], []  # type: Sequence[Any], list[Pairs]
    for owner, block in enumerate(_gather(call, k, v)):
        of_block = failure.unless_failed(state.add, owner, block.first, block.second) or []
        if owner == group.rank:
            mine = of_block
            found.append(block)  # which is not sent
        else:
            found.append(state.gathered(of_block, lambda dtype: sums.new(owner), sums.dtype))  # noqa: B023
    parts = [block if r == group.rank else sums.new(group.rank).apart() for r, block in enumerate(found)]
    _to_all(call, found, parts)
    failure.throw()
    del parts[group.rank]
    others = parts[0] if parts else None
    for part in parts[1:]:
        parts[0].add(part)
    return (state.finish(), *state.total(mine, others, _new(call, k, v, k.shape[2]), k, v))


# --- all_to_all: every rank gets all positions of some heads --------------------------------------------------------


def _of_q(heads: Heads) -> slice:
    return heads.q


def _of_kv(heads: Heads) -> slice:
    return heads.kv


# An array, whether its heads are those of queries or of keys, and who holds which of its rows.
Spread = Tuple[Any, Callable[[Heads], slice], Shards]


def _heads(call: Call) -> list[Heads]:
    return [heads_of(r, call.group.size, call.heads_q, call.heads_kv) for r in range(call.group.size)]


class _HeadExchange:
    """Between rows of all heads and all rows of one's own heads; several arrays are one exchange."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.heads: list[Heads] = call.once("heads", _heads, call)
        self.own = self.heads[call.group.rank]

    def _swap(self, sent: list[list[Any]], found: list[list[Any]]) -> None:
        """sent[r] and found[r] are arrays for rank r and from it; what is this rank's own becomes what it found."""
        group = self.call.group
        sent[group.rank], own = [], sent[group.rank]
        exchange(group, self.call.operation, sent, found)
        found[group.rank] = own

    def to_heads(self, *given: Spread) -> list[Any]:
        """Of each x [batch, heads, rows, features] [batch, own heads, total, features], in the order of the
        sequences."""
        storage, rank = self.call.storage, self.call.group.rank
        sent: list[list[Any]] = [[] for _ in self.heads]
        found: list[list[Any]] = [[] for _ in self.heads]
        for x, of, shards in given:
            count = of(self.own).stop - of(self.own).start
            for r, heads in enumerate(self.heads):
                part = storage.part(x, 1, of(heads).start, of(heads).stop)
                sent[r].append(part if r == rank else storage.dense(part))
                if r != rank:
                    found[r].append(storage.empty((x.shape[0], count, shards.rows(r), x.shape[-1]), x))
        self._swap(sent, found)
        wholes = []
        for i, (x, of, shards) in enumerate(given):
            count = of(self.own).stop - of(self.own).start
            whole = storage.empty((x.shape[0], count, shards.total, x.shape[-1]), x)
            for r, parts in enumerate(found):
                places_of(shards, r).put(storage, whole, parts[i])
            wholes.append(whole)
        return wholes

    def to_rows(self, wide: Any, *given: Spread) -> list[Any]:
        """The reverse; heads that several ranks have worked on are summed in the order of ranks, in the type `wide`."""
        call, storage, rank = self.call, self.call.storage, self.call.group.rank
        sent: list[list[Any]] = [[] for _ in self.heads]
        found: list[list[Any]] = [[] for _ in self.heads]
        for x, of, shards in given:
            for r, heads in enumerate(self.heads):
                part = places_of(shards, r).of(storage, x)
                sent[r].append(part if r == rank else storage.dense(part))
                if r != rank:
                    count = of(heads).stop - of(heads).start
                    found[r].append(storage.empty((x.shape[0], count, shards.rows(rank), x.shape[-1]), x))
        self._swap(sent, found)
        results = []
        for i, (x, of, shards) in enumerate(given):
            heads = call.heads_q if of is _of_q else call.heads_kv
            shared = sum(of(h).stop - of(h).start for h in self.heads) != heads
            shape = (x.shape[0], heads, shards.rows(rank), x.shape[-1])
            result = storage.full(shape, 0.0, x, wide) if shared else storage.empty(shape, x)
            for h, parts in zip(self.heads, found):
                to = storage.part(result, 1, of(h).start, of(h).stop)
                if shared:
                    to += parts[i]
                else:
                    storage.write(to, parts[i])
            results.append(result)
        return results


def _tasks_of_whole(call: Call) -> Tasks:
    return call.tasks_of_whole()


def _heads_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    exchange, failure = _HeadExchange(call), Failure()
    of_q, of_kv = call.q_shards, call.kv_shards
    whole_q, whole_k, whole_v = exchange.to_heads((q, _of_q, of_q), (k, _of_kv, of_kv), (v, _of_kv, of_kv))
    tasks = call.once("whole", _tasks_of_whole, call)
    state = Forward(call, whole_q, v.shape[-1], tasks, exchange.own.runs)
    failure.unless_failed(state.add, 0, whole_k, whole_v)
    out, lse = state.finish()
    out, sums = exchange.to_rows(lse.dtype, (out, _of_q, of_q), (lse[..., None], _of_q, of_q))
    failure.throw()
    return call.storage.to(out, q.dtype), sums[..., 0]


def _heads_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    exchange, failure = _HeadExchange(call), Failure()
    of_q, of_kv = call.q_shards, call.kv_shards
    of_queries = [(x, _of_q, of_q) for x in (q, out, dout, lse[..., None])]
    wholes = exchange.to_heads(*of_queries, (k, _of_kv, of_kv), (v, _of_kv, of_kv))
    whole_q, whole_out, whole_dout, whole_lse, whole_k, whole_v = wholes
    tasks = call.once("whole", _tasks_of_whole, call)
    state = Backward(call, whole_q, whole_out, whole_lse[..., 0], whole_dout, tasks, exchange.own.runs)
    found = failure.unless_failed(state.add, 0, whole_k, whole_v) or []
    sums = state.gathered(found, _new(call, whole_k, whole_v, of_kv.total), state.type_of_sums(0))
    dq, dk, dv = exchange.to_rows(
        state.wide, (state.dq, _of_q, of_q), (sums.first, _of_kv, of_kv), (sums.second, _of_kv, of_kv)
    )
    failure.throw()
    return call.storage.to(dq, q.dtype), call.storage.to(dk, k.dtype), call.storage.to(dv, v.dtype)


# --- two_level: all_to_all among the ranks of a node, a ring between nodes ------------------------------------------


def _inside(call: Call) -> Call:
    """The exchange of heads: rows as the node has them together."""
    count = call.ranks_per_node
    node = call.group.rank // count
    of_q, of_kv = (shards.within(node, count) for shards in (call.q_shards, call.kv_shards))
    return dataclasses.replace(call, q_shards=of_q, kv_shards=of_kv, group=None, _made={})


def _across(call: Call) -> Call:
    """The ring, of this rank's heads: a node is a rank of it."""
    count = call.ranks_per_node
    own = heads_of(call.group.rank % count, count, call.heads_q, call.heads_kv)
    return dataclasses.replace(
        call, q_shards=call.q_shards.joined(count), kv_shards=call.kv_shards.joined(count),
        heads_q=own.q.stop - own.q.start, heads_kv=own.kv.stop - own.kv.start, group=None, _made={},
    )  # fmt: skip


def _levels(call: Call) -> tuple[Call, Call]:
    group, count = call.group, call.ranks_per_node
    first, place = group.rank // count * count, group.rank % count
    inside: Call = call.once("inside", _inside, call)
    across: Call = call.once("across", _across, call)
    return (
        inside.on(Part(group, range(first, first + count))),
        across.on(Part(group, range(place, group.size, count))),
    )


def _nodes_forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    (inside, across), failure = _levels(call), Failure()
    exchange, of_q, of_kv = _HeadExchange(inside), inside.q_shards, inside.kv_shards
    node_q, node_k, node_v = exchange.to_heads((q, _of_q, of_q), (k, _of_kv, of_kv), (v, _of_kv, of_kv))
    out, lse = _attend_round(across, node_q, node_k, node_v, exchange.own.runs, failure)
    out, sums = exchange.to_rows(lse.dtype, (out, _of_q, of_q), (lse[..., None], _of_q, of_q))
    failure.throw()
    return call.storage.to(out, q.dtype), sums[..., 0]


def _nodes_backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    (inside, across), failure = _levels(call), Failure()
    exchange, of_q, of_kv = _HeadExchange(inside), inside.q_shards, inside.kv_shards
    of_queries = [(x, _of_q, of_q) for x in (q, out, dout, lse[..., None])]
    node_q, node_out, node_dout, node_lse, node_k, node_v = exchange.to_heads(
        *of_queries, (k, _of_kv, of_kv), (v, _of_kv, of_kv)
    )
    tasks = across.once("ring", _tasks_of_ring, across)
    state = Backward(across, node_q, node_out, node_lse[..., 0], node_dout, tasks, exchange.own.runs)
    home = _gradients_round(across, state, node_k, node_v, failure)
    dq, dk, dv = exchange.to_rows(
        state.wide, (state.dq, _of_q, of_q), (home[0], _of_kv, of_kv), (home[1], _of_kv, of_kv)
    )
    failure.throw()
    return call.storage.to(dq, q.dtype), call.storage.to(dk, k.dtype), call.storage.to(dv, v.dtype)


_FORWARD = {"ring": _ring_forward, "all_gather": _gather_forward, "all_to_all": _heads_forward,
            "two_level": _nodes_forward}  # fmt: skip
_BACKWARD = {"ring": _ring_backward, "all_gather": _gather_backward, "all_to_all": _heads_backward,
             "two_level": _nodes_backward}  # fmt: skip
STRATEGIES = tuple(_FORWARD)


def forward(call: Call, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """The rank's rows of the output and of the log-sum-exp."""
    return _FORWARD[call.strategy](call, q, k, v)


def backward(call: Call, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any) -> tuple[Any, Any, Any]:
    """The rank's rows of dq, dk and dv."""
    return _BACKWARD[call.strategy](call, q, k, v, out, lse, dout)
