# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a rank computes between two transfers: calls of attikos.attention() and attikos.attention_backward() on its
queries and blocks of keys as they come. Results over disjoint keys join by merge_states(), in the order of the schedule
and never of arrival."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Callable, NamedTuple, Sequence

from ..attention import attention, attention_backward
from ..cache import merge_into
from ._groups import MpiGroup, Part, TorchGroup
from ._plan import Plan, Rows, Step, plan_of, rows_among
from ._shards import HeadRun, Shards, shared_keys
from ._storage import Pairs

# Rows of keys, the key heads they are of, and gradients of both.
Found = tuple[Rows, slice, Any, Any]


class Task:
    """A call of a plan, and its options there and back."""

    def __init__(self, step: Step, options: dict[str, Any], backward: dict[str, Any]) -> None:
        self.step, self.options, self.backward = step, options, backward
        self.packed = step.packed
        self._is_placed = not step.packed

    def place(self, storage: Any, like: Any) -> None:
        """Puts the offsets of a packed call among the options, once; calls of one signature are of one device."""
        if not self._is_placed:
            q, kv = (rows.offsets(storage, like) for rows in (self.step.q, self.step.kv))
            for options in (self.options, self.backward):
                options.update(cu_seqlens_q=q, cu_seqlens_kv=kv, check=False)
            self._is_placed = True


class Tasks(NamedTuple):
    """A plan's, for each block in the order in which these come."""

    blocks: tuple[tuple[Task, ...], ...]
    merges: int


@dataclasses.dataclass
class Call:
    """What all ranks ask for alike. Calls of one signature share all but the group, and what follows from that."""

    operation: str
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
    packs: bool  # packed calls are of one batch entry
    ranks_per_node: int = 1
    group: Any = None
    _made: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def on(self, group: TorchGroup | MpiGroup | Part) -> Call:
        call: Call = object.__new__(Call)
        call.__dict__.update(self.__dict__)
        call.group = group
        return call

    def once(self, name: Any, make: Callable[..., Any], *arguments: Any) -> Any:
        """What make() gives, which follows from what calls of the signature share."""
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = make(*arguments)
        return found

    def plan_of_rank(self, rank: int, owners: Sequence[int]) -> Plan:
        """That of a rank's queries and the keys of these ranks."""
        return plan_of(
            self.q_shards, self.kv_shards, self.shared, rank, tuple(owners), self.window, self.top_left, self.packs
        )

    @property
    def shared(self) -> Shards:
        """The keys that are sent: those that queries of other ranks may see."""
        found: Shards = self.once("shared", shared_keys, self.q_shards, self.kv_shards)
        return found

    @property
    def shared_rows(self) -> Rows:
        """Where they lie among this rank's own."""
        found: Rows = self.once("shared rows", rows_among, self.kv_shards, self.shared, self.group.rank)
        return found

    def tasks(self, owners: Sequence[int]) -> Tasks:
        """Of this rank's queries and the keys of these ranks."""
        return self._tasks(self.plan_of_rank(self.group.rank, owners))

    def tasks_of_whole(self) -> Tasks:
        """Of all queries and all keys."""
        q, kv = _whole(self.q_shards), _whole(self.kv_shards)
        return self._tasks(plan_of(q, kv, kv, 0, (0,), self.window, self.top_left, self.packs))

    def _tasks(self, plan: Plan) -> Tasks:
        return Tasks(tuple(tuple(self._task(step) for step in block) for block in plan.steps), plan.merges)

    def _task(self, step: Step) -> Task:
        causal = step.right == 0  # what kernels know best
        options = {
            "scale": self.scale, "softcap": self.softcap, "compute": self.compute, "top_left": True, "causal": causal,
            "window": (step.left, -1 if causal else step.right),
        }  # fmt: skip
        return Task(step, {**options, "kernel": self.kernel, "return_lse": True}, options)


@functools.lru_cache(maxsize=256)
def _whole(shards: Shards) -> Shards:
    return shards.whole()


def _of_run(x: Any, heads: slice, runs: Sequence[HeadRun]) -> Any:
    """The heads of a run; where that is the only one, they are all."""
    return x if len(runs) == 1 else x[:, heads]


def _part(storage: Any, rows: Rows, x: Any, heads: slice, runs: Sequence[HeadRun]) -> Any:
    """These rows of them."""
    if len(runs) > 1:
        x = x[:, heads]
    return x if rows.all else rows.of(storage, x)


class Forward:
    """Attention of some queries, over blocks of keys as they come."""

    def __init__(self, call: Call, q: Any, dv: int, tasks: Tasks, runs: Sequence[HeadRun]) -> None:
        self.call, self.q, self.dv, self.tasks, self.runs = call, q, dv, tasks, runs
        self._wide = call.storage.wide(q)
        # What is merged once is rounded once as well; what is merged more often stays wide until then.
        self._type = self._wide if tasks.merges > 1 else q.dtype
        self._out: Any = None
        self._lse: Any = None

    def add(self, block: int, k: Any, v: Any, beside_transfers: bool = False) -> None:
        margin = self.call.group.multiprocessors if beside_transfers else 0
        for task in self.tasks.blocks[block]:
            for run in self.runs:
                part, lse = self._attend(task, run, k, v, margin)
                if self._out is None and task.step.q.all and len(self.runs) == 1:
                    self._out, self._lse = part, lse
                else:
                    self._join(task.step, run, part, lse)

    def _attend(self, task: Task, run: HeadRun, k: Any, v: Any, margin: int) -> tuple[Any, Any]:
        step, storage, runs = task.step, self.call.storage, self.runs
        q = _part(storage, step.q, self.q, run.q, runs)
        k, v = _part(storage, step.kv, k, run.kv, runs), _part(storage, step.kv, v, run.kv, runs)
        if not task.packed:
            out, lse = attention(q, k, v, sm_margin=margin, **task.options)
            return out, lse
        task.place(storage, q)
        out, lse = attention(storage.only(q), storage.only(k), storage.only(v), sm_margin=margin, **task.options)
        return storage.alone(out), storage.alone(lse)

    def _join(self, step: Step, run: HeadRun, part: Any, lse: Any) -> None:
        storage = self.call.storage
        if self._out is None:
            self._begin()
        elif self._out.dtype != self._type:
            self._out = storage.to(self._out, self._type)
        out, sums = _of_run(self._out, run.q, self.runs), _of_run(self._lse, run.q, self.runs)
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
        self, call: Call, q: Any, out: Any, lse: Any, dout: Any, tasks: Tasks, runs: Sequence[HeadRun]
    ) -> None:
        self.call, self.tasks, self.runs = call, tasks, runs
        self.wide = call.storage.wide(q)
        # On hosts products are computed from float32 copies, so that gradients of 16-bit arrays are rounded once.
        self._widen = call.storage.narrow_results and call.storage.size_of(q) < 4
        self.type = q.dtype
        self.type_of_products = self.wide if self._widen else q.dtype
        self.q, self.out, self.dout, self.lse = self.like(q), self.like(out), self.like(dout), lse
        self._dq: Any = None

    def like(self, x: Any) -> Any:
        return self.call.storage.to(x, self.wide) if self._widen else x

    def add(self, block: int, k: Any, v: Any) -> list[Found]:
        """The gradients of this block's keys and values."""
        k, v = self.like(k), self.like(v)
        found = []
        for task in self.tasks.blocks[block]:
            for run in self.runs:
                dq, dk, dv = self._gradients(task, run, k, v)
                found.append((task.step.kv, run.kv, dk, dv))
                if self._dq is None and task.step.q.all and len(self.runs) == 1:
                    # A sum of two is rounded once.
                    self._dq = self.call.storage.to(dq, self.wide) if self.tasks.merges > 1 else dq
                else:
                    _add(self.call.storage, task.step.q, _of_run(self.dq, run.q, self.runs), dq)
        return found

    def _gradients(self, task: Task, run: HeadRun, k: Any, v: Any) -> Sequence[Any]:
        step, storage, runs = task.step, self.call.storage, self.runs
        of_queries = (self.q, self.out, self.lse, self.dout)
        q, out, lse, dout = [_part(storage, step.q, x, run.q, runs) for x in of_queries]
        k, v = _part(storage, step.kv, k, run.kv, runs), _part(storage, step.kv, v, run.kv, runs)
        if not task.packed:
            return attention_backward(q, k, v, out, lse, dout, **task.backward)
        task.place(storage, q)
        arrays = map(storage.only, (q, k, v, out, lse, dout))
        return list(map(storage.alone, attention_backward(*arrays, **task.backward)))

    @property
    def dq(self) -> Any:
        """The sum so far."""
        if self._dq is None:
            self._dq = self.call.storage.full(self.q.shape, 0.0, self.q, self.wide)
        return self._dq

    def type_of_sums(self, block: int) -> Any:
        """Of the gradients of a block that only this rank works on."""
        once = len(self.tasks.blocks[block]) == 1 and len(self.runs) == 1
        return self.type_of_products if once else self.wide

    def put(self, found: Sequence[Found], sums: Pairs) -> None:
        """Adds gradients of a block to `sums`."""
        for rows, heads, dk, dv in found:
            _add(self.call.storage, rows, _of_run(sums.first, heads, self.runs), dk)
            _add(self.call.storage, rows, _of_run(sums.second, heads, self.runs), dv)

    def _is_whole(self, found: Sequence[Found]) -> bool:
        """Whether gradients are those of one product, of all rows and heads."""
        return len(found) == 1 and found[0][0].all and len(self.runs) == 1

    def gathered(self, found: Sequence[Found], new: Callable[[Any], Pairs], dtype: Any) -> Pairs:
        """The gradients of a block as two dense arrays of a type, which new(dtype) has memory for."""
        storage = self.call.storage
        if self._is_whole(found):
            return Pairs(storage, *(storage.dense(storage.to(x, dtype)) for x in found[0][2:]))
        sums = new(dtype)
        sums.clear()
        self.put(found, sums)
        return sums.apart()

    def total(
        self, own: Sequence[Found], others: Pairs | None, new: Callable[[Any], Pairs], k: Any, v: Any
    ) -> tuple[Any, Any]:
        """The gradients of k and v: the sum of what this rank found for its block and what others did for the rows that
        are shared. new(dtype): memory for the whole block."""
        storage, rows = self.call.storage, self.call.shared_rows
        whole = self._is_whole(own)
        if others is not None and whole and rows.all:
            return Pairs.total(storage, [others, Pairs(storage, *own[0][2:])], k, v)
        sums = self.gathered(own, new, self.type_of_products if whole else self.wide)
        if others is not None:
            _add(storage, rows, sums.first, others.first)
            _add(storage, rows, sums.second, others.second)
        return storage.to(sums.first, k.dtype), storage.to(sums.second, v.dtype)

    def finish(self) -> Any:
        return self.call.storage.to(self.dq, self.type)


def _add(storage: Any, rows: Rows, to: Any, more: Any) -> None:
    """Adds to these rows of an array."""
    before = rows.of(storage, to)
    before += more
    if rows.slice is None:
        rows.put(storage, to, before)


def all_heads(call: Call) -> tuple[HeadRun, ...]:
    return (HeadRun(slice(0, call.heads_q), slice(0, call.heads_kv)),)
