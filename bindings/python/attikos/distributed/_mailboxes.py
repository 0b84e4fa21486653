# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages between ranks that can write into each other's memory: each rank has a few boxes for every other one, which
that one fills and it empties, both in the order of queues of a device, so that no host waits.

A box has two flags. `full` lies beside the box: the sender sets it once its copy is there, the receiver waits for it
and clears it. `free` lies with the sender: the receiver sets it once the box has been emptied, the sender waits for it and
clears it. Flags are only ever 0 and 1, so that a graph which was captured can be replayed.
"""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Protocol, Sequence

# Boxes for each pair of ranks: one is filled while the other is emptied.
BOXES = 2
# Flags have cache lines of their own; boxes begin at pages.
_LINE, _PAGE = 64, 4096

# (rank, address, bytes) of each message.
Messages = Iterable["tuple[int, int, int]"]

SENDING, RECEIVING = 0, 1


class Queues(Protocol):
    """What a device does in two queues of its own, one for what is sent and one for what is received."""

    def fork(self) -> None:
        """Both go on once the caller's queue has come to here."""

    def flag(self, address: int) -> Any:
        """What move() takes for a flag, on whichever rank it lies."""

    def move(self, queue: int, taken: Any, to: int, source: int, size: int, given: Any) -> None:
        """Waits until the flag `taken`, one of this rank's, is 1, and makes it 0; copies; makes the flag `given` 1."""

    def join(self) -> Any:
        """What wait() takes for everything up to here."""

    def wait(self, joined: Any) -> None:
        """The caller's queue goes on once that is done."""


class _Box(NamedTuple):
    address: int
    taken: Any  # the flag that a use of it begins with
    given: Any  # the flag that it ends with


class _Lane:
    """The boxes between this rank and another one in one direction, used in turn."""

    def __init__(self, boxes: Sequence[_Box]) -> None:
        self._boxes, self._next = boxes, 0

    def next(self) -> _Box:
        box = self._boxes[self._next]
        self._next = (self._next + 1) % len(self._boxes)
        return box


def bytes_of_box(buffer_bytes: int, ranks: int) -> int:
    """How large boxes can be in so much memory of each rank; 0: there is no room for them."""
    count = max(1, (ranks - 1) * BOXES)
    return max(0, (buffer_bytes - _bytes_of_flags(ranks)) // count // _PAGE * _PAGE)


def least_bytes(ranks: int) -> int:
    """The least memory that has room for boxes."""
    return _bytes_of_flags(ranks) + (ranks - 1) * BOXES * _PAGE


def _bytes_of_flags(ranks: int) -> int:
    return -(-2 * (ranks - 1) * BOXES * _LINE // _PAGE) * _PAGE


def initial_flags(ranks: int) -> list[tuple[int, int, int]]:
    """(offset in bytes, number of flags of 32 bits, value) of what a rank's memory holds to begin with."""
    count = (ranks - 1) * BOXES * _LINE // 4
    return [(0, count, 0), (4 * count, count, 1)]


class Mailboxes:
    """addresses: where this rank finds each rank's memory, of as many bytes as bytes_of_box() was asked with, and with
    initial_flags() in it.

    Lanes are told apart by distance: what rank r sends to rank r + d travels on lane d, whose boxes and `full` flags lie
    in the memory of r + d and whose `free` flags in that of r."""

    def __init__(self, rank: int, queues: Queues, addresses: Sequence[int], box_bytes: int) -> None:
        self._rank, self._size, self._queues, self._box_bytes = rank, len(addresses), queues, box_bytes
        n, boxes = self._size, _bytes_of_flags(self._size)

        def lane(distance: int, sender: int, receiver: int, sends: bool) -> _Lane:
            found = []
            for i in range(BOXES):
                place = (distance - 1) * BOXES + i
                full = queues.flag(addresses[receiver] + place * _LINE)
                free = queues.flag(addresses[sender] + ((n - 1) * BOXES + place) * _LINE)
                flags = (free, full) if sends else (full, free)
                found.append(_Box(addresses[receiver] + boxes + place * box_bytes, *flags))
            return _Lane(found)

        self._outgoing = [lane(d, rank, (rank + d) % n, True) for d in range(1, n)]
        self._incoming = [lane(d, (rank - d) % n, rank, False) for d in range(1, n)]

    def begin(self, sends: Messages, receives: Messages) -> Any:
        """Between any two ranks messages keep their order; what one rank's call sends, one call of the other's
        receives."""
        n, move = self._size, self._queues.move
        going = self._pieces(((to - self._rank) % n, address, size) for to, address, size in sends)
        coming = self._pieces(((self._rank - source) % n, address, size) for source, address, size in receives)
        self._queues.fork()
        # Queues of a device may share a channel to it, in which what waits holds up all that comes later. Even if all
        # of them did, nobody would wait for ever: a piece waits for the one BOXES before it to be received, which its
        # receiver does before it sends as many pieces itself.
        for outgoing, incoming, pieces, places in zip(self._outgoing, self._incoming, going, coming):
            for i in range(max(len(pieces), len(places) + BOXES)):
                if 0 <= i - BOXES < len(places):
                    box, (to, size) = incoming.next(), places[i - BOXES]
                    move(RECEIVING, box.taken, to, box.address, size, box.given)
                if i < len(pieces):
                    box, (source, size) = outgoing.next(), pieces[i]
                    move(SENDING, box.taken, box.address, source, size, box.given)
        return self._queues.join()

    def finish(self, begun: Any) -> None:
        self._queues.wait(begun)

    def _pieces(self, messages: Messages) -> list[list[tuple[int, int]]]:
        """By distance, what fits into a box each."""
        found: list[list[tuple[int, int]]] = [[] for _ in self._outgoing]
        most = self._box_bytes
        for distance, address, size in messages:
            found[distance - 1] += [(address + at, min(most, size - at)) for at in range(0, size, most)]
        return found
