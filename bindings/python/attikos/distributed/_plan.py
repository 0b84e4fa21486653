# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which calls a rank makes between two transfers: products of its queries with blocks of keys, and which of them are
one call. It follows from shards and masks alone and is worked out once for the calls that have them in common."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Iterator, Sequence

import numpy as np

from ._shards import Piece, Product, Shards, joined, product_of

_FEW_RUNS = 4  # which slices move in less time than an index


class Rows:
    """Some rows of an array, run by run, in the order in which a call takes them."""

    def __init__(self, runs: Sequence[tuple[int, int]], of: int) -> None:
        """runs: (begin, end) of each; of: how many rows the array has."""
        self.runs = tuple(runs)
        begin, end = (self.runs[0][0], self.runs[-1][1]) if self.runs else (0, 0)
        neighbors = all(a[1] == b[0] for a, b in zip(self.runs, self.runs[1:]))
        self.slice = slice(begin, end) if neighbors else None
        self.all = self.slice == slice(0, of)
        self._begin, self._end = begin, end
        self._made: dict[Any, Any] = {}  # by device

    def of(self, storage: Any, x: Any, dim: int = 2) -> Any:
        """These rows of an array; a view where they lie one after the other, itself where they are all."""
        if self.all:
            return x
        if self.slice is not None:
            return storage.part(x, dim, self._begin, self._end)
        return storage.take(x, dim, self._index(storage, x))

    def put(self, storage: Any, x: Any, rows: Any, dim: int = 2) -> None:
        """Writes them."""
        if self.all:
            return storage.write(x, rows)
        if self.slice is not None:
            return storage.write(storage.part(x, dim, self._begin, self._end), rows)
        if len(self.runs) > _FEW_RUNS:
            return storage.put(x, dim, self._index(storage, x), rows)
        at = 0
        for begin, end in self.runs:
            more = storage.part(rows, dim, at, at + end - begin)
            storage.write(storage.part(x, dim, begin, end), more)
            at += end - begin

    def _index(self, storage: Any, like: Any) -> Any:
        return self._on("rows", storage, like, lambda: np.concatenate([np.arange(*run) for run in self.runs]))

    def offsets(self, storage: Any, like: Any) -> Any:
        """Where the runs begin among these rows, and the end: cu_seqlens."""
        lengths = [end - begin for begin, end in self.runs]
        return self._on("offsets", storage, like, lambda: np.cumsum([0, *lengths]).astype(np.int32))

    def _on(self, what: str, storage: Any, like: Any, make: Any) -> Any:
        key = what, storage.place_of(like)
        if key not in self._made:
            self._made[key] = storage.numbers(make(), like)
        return self._made[key]


@functools.lru_cache(maxsize=1024)
def rows_among(kv_shards: Shards, shared: Shards, rank: int) -> Rows:
    """Where the rows that a rank shares lie among its own."""
    kept = {(x.sequence, x.begin) for x in shared.pieces(rank)}
    runs = [(x.local, x.local + x.rows) for x in kv_shards.pieces(rank) if (x.sequence, x.begin) in kept]
    return Rows(runs, kv_shards.rows(rank))


def places_of(shards: Shards, rank: int) -> Rows:
    """Where the rows of a rank lie when all sequences lie one after the other."""
    found: Rows | None = shards._places.get(rank)
    if found is None:
        starts = [(shards.offset(x.sequence) + x.begin, x.rows) for x in shards.pieces(rank)]
        found = shards._places[rank] = Rows([(begin, begin + rows) for begin, rows in starts], shards.total)
    return found


@dataclasses.dataclass(frozen=True)
class Step:
    """One call: products that share a mask, each of several a sequence of a packed call. merges: some of the queries
    have a state already."""

    q: Rows
    kv: Rows
    left: int
    right: int
    merges: bool

    @property
    def packed(self) -> bool:
        return len(self.q.runs) > 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """The calls for each block of keys, in the order in which blocks come. merges: how often the state of a query is
    merged with another one, at most."""

    steps: tuple[tuple[Step, ...], ...]
    merges: int


def _products(
    queries: Sequence[Piece], keys: Sequence[Piece], window: tuple[int, int], offsets: Sequence[int]
) -> Iterator[Product]:
    of_sequence: dict[int, list[Piece]] = {}
    for kv in keys:
        of_sequence.setdefault(kv.sequence, []).append(kv)
    for q in queries:
        for kv in of_sequence.get(q.sequence, ()):
            product = product_of(q, kv, window, offsets[q.sequence])
            if product is not None:
                yield product


@dataclasses.dataclass
class _Group:
    """Products that become a call, and where the pieces of queries begin that they are of."""

    products: list[Product]
    pieces: set[int]
    merges: bool


def _group_for(product: Product, pieces: set[int], merges: bool, groups: Sequence[_Group]) -> _Group | None:
    """The call that a product can join: of its mask, with rows in front of it, and not before one of its queries."""
    for group in reversed(groups):
        last = group.products[-1]
        alike = (last.left, last.right, group.merges) == (product.left, product.right, merges)
        behind = product.q_row >= last.q_row + last.q_rows and product.kv_row >= last.kv_row + last.kv_rows
        if alike and behind and pieces.isdisjoint(group.pieces):
            return group
        if not pieces.isdisjoint(group.pieces):
            return None
    return None


@functools.lru_cache(maxsize=256)
def plan_of(
    q_shards: Shards, kv_shards: Shards, shared: Shards, rank: int, owners: tuple[int, ...], window: tuple[int, int],
    top_left: bool, packs: bool,
) -> Plan:  # fmt: skip
    """The plan of a rank's queries and the blocks of these owners: of its own all keys, of others those that `shared`
    has. packs: products of one mask may be one call."""
    offsets = [
        0 if top_left else kv_shards.length(s) - q_shards.length(s) for s in range(q_shards.sequences)
    ]  # fmt: skip
    queries, times = q_shards.pieces(rank), {}  # type: Sequence[Piece], dict[int, int]
    blocks = []
    for owner in owners:
        calls: list[_Group] = []
        block = kv_shards if owner == rank else shared
        for product in joined(_products(queries, block.pieces(owner), window, offsets)):
            end = product.q_row + product.q_rows
            touched = {x.local for x in queries if x.local < end and product.q_row < x.local + x.rows}
            merges = any(x in times for x in touched)
            for x in touched:
                times[x] = times.get(x, -1) + 1
            group = _group_for(product, touched, merges, calls) if packs else None
            if group is None:
                calls.append(_Group([product], touched, merges))
            else:
                group.products.append(product)
                group.pieces |= touched
        blocks.append(
            tuple(
                Step(
                    Rows([(p.q_row, p.q_row + p.q_rows) for p in group.products], q_shards.rows(rank)),
                    Rows([(p.kv_row, p.kv_row + p.kv_rows) for p in group.products], block.rows(owner)),
                    group.products[0].left, group.products[0].right, group.merges,
                )  # fmt: skip
                for group in calls
            )
        )
    return Plan(tuple(blocks), max(times.values(), default=0))
