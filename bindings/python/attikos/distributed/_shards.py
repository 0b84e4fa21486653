# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who holds which positions, as a value that all ranks have, and what follows from it: which products a rank computes.

The twin of attikos/distributed/shards.hpp and schedule.hpp. Nothing here knows the arrays that are spread."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import heapq
import itertools
from typing import Any, Iterable, Sequence

import numpy as np

from ..errors import ShapeMismatchError


@dataclasses.dataclass(frozen=True)
class Piece:
    """Positions [begin, end) of a sequence, which are the rows of a rank from `local` on."""

    sequence: int
    begin: int
    end: int
    local: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.begin


class Shards:
    """Which rank holds which positions of one sequence or of several: immutable, the same value on every rank.

    Rows of a rank are its pieces, one after the other. Made by contiguous(), zigzag(), uneven(), packed(),
    balanced() or of_pieces(); a description in which a position has no rank, or two, raises ShapeMismatchError.
    """

    def __init__(self, lengths: Sequence[int], pieces: Sequence[Sequence[Piece]]) -> None:
        self._lengths = tuple(int(n) for n in lengths)
        self._offsets = (0, *itertools.accumulate(self._lengths))
        placed = []
        for of_rank in pieces:
            local, rows = 0, []
            for piece in of_rank:
                rows.append(dataclasses.replace(piece, local=local))
                local += piece.rows
            placed.append(tuple(rows))
        self._pieces = tuple(placed)
        self._rows = tuple(sum(x.rows for x in rank) for rank in placed)
        self._places: dict[int, Any] = {}  # what places_of() made of it
        self._expect_each_position_once()
        numbers = [*self._lengths, *((x.sequence, x.begin, x.end) for rank in placed for x in (*rank, Piece(-1, 0, 0)))]
        digest = hashlib.sha256(repr(numbers).encode()).digest()
        self._fingerprint = int.from_bytes(digest[:8], "little") >> 1

    def _expect_each_position_once(self) -> None:
        if not self._pieces:
            raise ShapeMismatchError("attikos.distributed.Shards: 0 ranks; expected at least one")
        everything = sorted((x for rank in self._pieces for x in rank), key=lambda x: (x.sequence, x.begin))
        for x in everything:
            if not (0 <= x.sequence < self.sequences and 0 <= x.begin < x.end <= self._lengths[x.sequence]):
                raise ShapeMismatchError(
                    f"attikos.distributed.Shards: positions [{x.begin}, {x.end}) of sequence {x.sequence}; expected "
                    f"some within one of the {self.sequences} sequences"
                )
        for a, b in zip(everything, everything[1:]):
            if a.sequence == b.sequence and b.begin < a.end:
                raise ShapeMismatchError(
                    f"attikos.distributed.Shards: position {b.begin} of sequence {b.sequence} is held twice; expected "
                    "once"
                )
        held = sum(x.rows for x in everything)
        if held != self.total:
            raise ShapeMismatchError(
                f"attikos.distributed.Shards: {held} of {self.total} positions are held; expected all"
            )

    @classmethod
    def contiguous(cls, length: int, ranks: int, granularity: int = 1) -> Shards:
        """One sequence in runs of nearly equal length, the first of them on rank 0. Boundaries are multiples of
        granularity."""
        return cls.packed((0, length), ranks, "contiguous", granularity)

    @classmethod
    def zigzag(cls, length: int, ranks: int, granularity: int = 1) -> Shards:
        """One sequence in 2·ranks runs, of which rank r holds r and 2·ranks - 1 - r: a causal mask leaves all ranks the
        same work."""
        return cls.packed((0, length), ranks, "zigzag", granularity)

    @classmethod
    def uneven(cls, rows: Sequence[int]) -> Shards:
        """One sequence, of which rank r holds the next rows[r] positions; 0 is allowed."""
        begin, pieces = 0, []
        for count in rows:
            if count < 0:
                raise ShapeMismatchError(
                    f"attikos.distributed.Shards: a rank has {count} rows; expected 0 or more"
                )
            pieces.append([Piece(0, begin, begin + count)] if count else [])
            begin += count
        return cls((begin,), pieces)

    @classmethod
    def packed(
        cls, cu_seqlens: Sequence[int], ranks: int, placement: str = "zigzag", granularity: int = 1
    ) -> Shards:
        """Several sequences, each dealt out to all ranks: sequence s has positions [cu_seqlens[s], cu_seqlens[s + 1])
        of the whole. placement is "zigzag" or "contiguous"."""
        offsets = [int(x) for x in cu_seqlens]
        if ranks < 1 or granularity < 1 or not offsets or placement not in ("zigzag", "contiguous"):
            raise ShapeMismatchError(
                f"attikos.distributed.Shards: {ranks} ranks, granularity {granularity}, {len(offsets)} offsets, "
                f"placement {placement!r}; expected at least one of each, and zigzag or contiguous"
            )
        lengths = _lengths_of(offsets)
        pieces: list[list[Piece]] = [[] for _ in range(ranks)]
        for s, length in enumerate(lengths):
            _deal_out(s, length, placement, granularity, pieces)
        return cls(lengths, pieces)

    @classmethod
    def balanced(
        cls, cu_seqlens: Sequence[int], ranks: int, causal: bool = False, granularity: int = 1, tolerance: float = 0.02
    ) -> Shards:
        """Several sequences, as many as possible of which a rank holds whole, so that nothing of them is sent: with
        causal or full masks no rank has more than 1 + tolerance of its share of the pairs of queries and keys. Those
        that are too long for that, the longest first, are dealt out to all ranks, as packed() does. Ranks may hold
        different numbers of positions. Attention among positions of a sequence is all that this goes by."""
        offsets = [int(x) for x in cu_seqlens]
        if ranks < 1 or granularity < 1 or not offsets or not tolerance >= 0:
            raise ShapeMismatchError(
                f"attikos.distributed.Shards: {ranks} ranks, granularity {granularity}, {len(offsets)} offsets, "
                f"tolerance {tolerance}; expected at least one of each, and a tolerance of 0 or more"
            )
        lengths = _lengths_of(offsets)
        pairs = [n * (n + 1) // 2 if causal else n * n for n in lengths]
        longest_first = sorted(range(len(lengths)), key=lambda s: (-pairs[s], s))
        for split in range(len(lengths) + 1):
            holders, most = _holders(longest_first[split:], pairs, ranks)
            if (most + sum(pairs[s] for s in longest_first[:split]) / ranks) * ranks <= (1 + tolerance) * sum(pairs):
                break
        pieces: list[list[Piece]] = [[] for _ in range(ranks)]
        for s, length in enumerate(lengths):
            if s in holders:
                _add(pieces[holders[s]], Piece(s, 0, length))
            else:
                _deal_out(s, length, "zigzag" if causal else "contiguous", granularity, pieces)
        return cls(lengths, pieces)

    @classmethod
    def of_pieces(cls, lengths: Sequence[int], pieces: Sequence[Iterable[tuple[int, int, int]]]) -> Shards:
        """Anything else: the lengths of the sequences and, for each rank, (sequence, begin, end) in the order of its
        rows."""
        return cls(lengths, [[Piece(*piece) for piece in rank] for rank in pieces])

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self._pieces)

    @property
    def sequences(self) -> int:
        """How many sequences there are."""
        return len(self._lengths)

    @property
    def total(self) -> int:
        """Positions of all sequences."""
        return self._offsets[-1]

    @property
    def fingerprint(self) -> int:
        """63 bits that two descriptions have in common if they are the same, and else hardly ever."""
        return self._fingerprint

    def length(self, sequence: int) -> int:
        """Positions of a sequence."""
        return self._lengths[sequence]

    def offset(self, sequence: int) -> int:
        """Where a sequence begins when all of them lie one after the other."""
        return self._offsets[sequence]

    def pieces(self, rank: int) -> tuple[Piece, ...]:
        """What a rank holds, in the order of its rows."""
        return self._pieces[rank]

    def rows(self, rank: int) -> int:
        """How many positions a rank holds."""
        return self._rows[rank]

    @property
    def max_rows(self) -> int:
        """The most positions that a rank holds."""
        return max(self._rows)

    def positions(self, rank: int) -> np.ndarray:
        """The position of each row of a rank, where all sequences lie one after the other: x[:, :, positions] is what
        the rank gets of x [batch, heads, total, features]. int64 [rows]."""
        runs = [np.arange(x.begin, x.end) + self.offset(x.sequence) for x in self._pieces[rank]]
        return np.concatenate([np.empty(0, np.int64), *runs])

    def whole(self) -> Shards:
        """The same sequences on one rank."""
        return Shards.packed(self._offsets, 1, "contiguous")

    def joined(self, count: int) -> Shards:
        """What runs of `count` neighboring ranks hold together, each run as one rank, whose rows are in the order of
        positions."""
        if count < 1 or self.ranks % count:
            raise ShapeMismatchError(
                f"attikos.distributed.Shards: {self.ranks} ranks in runs of {count}; expected a divisor of their number"
            )
        runs = []
        for first in range(0, self.ranks, count):
            held: list[Piece] = []
            everything = (x for rank in self._pieces[first : first + count] for x in rank)
            for piece in sorted(everything, key=lambda x: (x.sequence, x.begin)):
                _add(held, piece)
            runs.append(held)
        return Shards(self._lengths, runs)

    def within(self, run: int, count: int) -> Shards:
        """Where the rows of the ranks of one run lie among those that they hold together, as positions of one
        sequence."""
        together = self.joined(count).pieces(run)
        ranks = []
        for rank in self._pieces[run * count : (run + 1) * count]:
            rows = []
            for x in rank:
                whole = next(w for w in together if w.sequence == x.sequence and w.begin <= x.begin and x.end <= w.end)
                begin = whole.local + x.begin - whole.begin
                rows.append(Piece(0, begin, begin + x.rows))
            ranks.append(rows)
        return Shards((sum(x.rows for x in together),), ranks)

    def __reduce__(self) -> Any:
        return Shards, (self._lengths, self._pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shards) and (self._lengths, self._pieces) == (other._lengths, other._pieces)

    def __hash__(self) -> int:
        return self._fingerprint

    def __repr__(self) -> str:
        held = "; ".join(", ".join(f"{x.sequence}:[{x.begin}, {x.end})" for x in rank) for rank in self._pieces)
        return f"Shards(lengths {list(self._lengths)}, ranks {held})"


class SomeRows(Shards):
    """A description in which some positions have no rank."""

    def _expect_each_position_once(self) -> None:
        pass


@functools.lru_cache(maxsize=256)
def shared_keys(q_shards: Shards, kv_shards: Shards) -> Shards:
    """Those pieces of keys whose sequences have queries on other ranks, too."""
    holders: list[set[int]] = [set() for _ in range(q_shards.sequences)]
    for rank in range(q_shards.ranks):
        for piece in q_shards.pieces(rank):
            holders[piece.sequence].add(rank)
    shared = [[x for x in kv_shards.pieces(r) if holders[x.sequence] - {r}] for r in range(kv_shards.ranks)]
    if all(len(some) == len(kv_shards.pieces(r)) for r, some in enumerate(shared)):
        return kv_shards
    return SomeRows([kv_shards.length(s) for s in range(kv_shards.sequences)], shared)


def _lengths_of(offsets: Sequence[int]) -> list[int]:
    for first, last in zip(offsets, offsets[1:]):
        if last < first:
            raise ShapeMismatchError(
                f"attikos.distributed.Shards: cu_seqlens goes from {first} to {last}; expected ascending offsets"
            )
    return [last - first for first, last in zip(offsets, offsets[1:])]


def _deal_out(sequence: int, length: int, placement: str, granularity: int, pieces: list[list[Piece]]) -> None:
    """Adds a part of a sequence to the pieces of every rank."""
    ranks = len(pieces)
    runs = 2 * ranks if placement == "zigzag" else ranks
    granules = -(-length // granularity)
    at = [min(granules * run // runs * granularity, length) for run in range(runs + 1)]
    for r in range(ranks):
        _add(pieces[r], Piece(sequence, at[r], at[r + 1]))
        if placement == "zigzag":
            _add(pieces[r], Piece(sequence, at[runs - 1 - r], at[runs - r]))


def _holders(sequences: Sequence[int], costs: Sequence[int], ranks: int) -> tuple[dict[int, int], int]:
    """A rank for each sequence, in this order the one that has least so far, and what the fullest one has."""
    loads = [(0, rank) for rank in range(ranks)]
    holders = {}
    for s in sequences:
        load, holders[s] = loads[0]
        heapq.heapreplace(loads, (load + costs[s], holders[s]))
    return holders, max(load for load, _ in loads)


def _add(pieces: list[Piece], piece: Piece) -> None:
    """Joined with the piece before it where they meet."""
    if piece.rows == 0:
        return
    if pieces and pieces[-1].sequence == piece.sequence and pieces[-1].end == piece.begin:
        pieces[-1] = Piece(piece.sequence, pieces[-1].begin, piece.end)
    else:
        pieces.append(piece)


@dataclasses.dataclass(frozen=True)
class Product:
    """Attention of rows [q_row, q_row + q_rows) of a rank over rows of a block of keys, as attention() takes it: with a
    mask that begins in the top left corner. left, right: the window, -1: open."""

    q_row: int
    q_rows: int
    kv_row: int
    kv_rows: int
    left: int = -1
    right: int = -1

    @property
    def q(self) -> slice:
        return slice(self.q_row, self.q_row + self.q_rows)

    @property
    def kv(self) -> slice:
        return slice(self.kv_row, self.kv_row + self.kv_rows)


def product_of(q: Piece, kv: Piece, window: tuple[int, int], offset: int) -> Product | None:
    """The product of two pieces, cut down to the queries that see something and the keys that are seen, or None.
    Query i of the sequence sees keys i + offset - window[0] to i + offset + window[1]; -1: open."""
    if q.sequence != kv.sequence:
        return None
    # Row i of the piece sees keys [i + low, i + high] of the piece.
    shift = q.begin + offset - kv.begin
    low = -q.rows if window[0] < 0 else shift - window[0]
    high = kv.rows if window[1] < 0 else shift + window[1]
    first_q = max(0, -high)
    first_k = max(0, first_q + low)
    last_q = min(q.rows, kv.rows - low)
    last_k = min(kv.rows, last_q + high)
    if first_q >= last_q or first_k >= last_k:
        return None
    q_rows, kv_rows, moved = last_q - first_q, last_k - first_k, first_q - first_k
    return Product(
        q.local + first_q, q_rows, kv.local + first_k, kv_rows,
        -(low + moved) if low + moved > 1 - q_rows else -1, high + moved if high + moved < kv_rows - 1 else -1,
    )  # fmt: skip


def _beside(first: Product, second: Product) -> Product | None:
    """One product of the same queries over the keys of both, of which the second's lie behind the first's, or None."""
    if (first.q_row, first.q_rows, first.kv_row + first.kv_rows) != (second.q_row, second.q_rows, second.kv_row):
        return None
    if first.right >= 0 or second.left >= 0:
        return None
    right = -1 if second.right < 0 else second.right + first.kv_rows
    return dataclasses.replace(first, kv_rows=first.kv_rows + second.kv_rows, right=right)


def _below(first: Product, second: Product) -> Product | None:
    """One product of the queries of both, of which the second's lie behind the first's, over keys that begin alike, or
    None: where the same mask, in the second moved down by the first's queries, shows each of them what it saw."""
    if (first.q_row + first.q_rows, first.kv_row) != (second.q_row, second.kv_row):
        return None
    if first.left >= 0 or second.left >= 0:
        return None
    joined = dataclasses.replace(first, q_rows=first.q_rows + second.q_rows, kv_rows=second.kv_rows)
    if first.right < 0 and second.right < 0:
        return joined if first.kv_rows == second.kv_rows else None
    hidden = first.q_rows - 1 + first.right < first.kv_rows  # what is behind the first's keys, of the first's queries
    if first.right < 0 or second.right != first.right + first.q_rows or not hidden or second.kv_rows < first.kv_rows:
        return None
    return joined


def joined(products: Iterable[Product]) -> list[Product]:
    """The same pairs of queries and keys in fewer products. `products`: those of pieces, queries by queries, keys in
    the order of their rows. Rows that a causal mask shows a prefix of one another's keys become one product, so that a
    block of zigzag shards is one: the whole causal one of its own keys, and a rectangle of any other's."""
    rows: list[Product] = []
    for product in products:
        wider = _beside(rows[-1], product) if rows else None
        rows[len(rows) - (wider is not None) :] = [product if wider is None else wider]
    found: list[Product] = []
    for product in rows:
        taller = _below(found[-1], product) if found else None
        found[len(found) - (taller is not None) :] = [product if taller is None else taller]
    return found


@dataclasses.dataclass(frozen=True)
class HeadRun:
    """Neighboring query heads and the key heads that serve them, both counted from what a rank has."""

    q: slice
    kv: slice


@dataclasses.dataclass(frozen=True)
class Heads:
    """The query heads that a rank works on when heads are dealt out, the key heads that those need, and runs of them
    whose groups have one size."""

    q: slice
    kv: slice
    runs: tuple[HeadRun, ...]


def heads_of(rank: int, ranks: int, heads_q: int, heads_kv: int) -> Heads:
    """Heads in runs of nearly equal length; a key head may serve several ranks."""
    first, last = heads_q * rank // ranks, heads_q * (rank + 1) // ranks
    if first == last:
        return Heads(slice(first, last), slice(0, 0), ())
    group = heads_q // heads_kv
    kv_first, kv_last = first // group, -(-last // group)
    cuts = sorted({first, last, min(-(-first // group) * group, last), max(last // group * group, first)})
    runs = []
    for a, b in zip(cuts, cuts[1:]):
        kv = slice(a // group - kv_first, -(-b // group) - kv_first)
        runs.append(HeadRun(slice(a - first, b - first), kv))
    return Heads(slice(first, last), slice(kv_first, kv_last), tuple(runs))
