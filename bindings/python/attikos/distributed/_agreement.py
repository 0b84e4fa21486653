# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks compare before anything is sent: whether all ask for the same."""

from __future__ import annotations

import struct
from typing import Any, Callable, Sequence, TypeVar

from .._arguments import COMPUTE, flag
from ..errors import Error, ShapeMismatchError
from ._groups import MpiGroup, TorchGroup

Call = TypeVar("Call")

TYPES = ("float64", "float32", "float16", "bfloat16")


def bits_of(value: float | str) -> int:
    """A number, or the beginning of a text, as a whole number."""
    if isinstance(value, str):
        return int.from_bytes(value.encode()[:7].ljust(7, b"\0"), "little")
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


# What numbers stand for.
_WORDS: dict[str, Sequence[str]] = {"dtype": TYPES, "compute": tuple(COMPUTE)}


def _spelled(name: str, number: int, words: dict[str, Sequence[str]]) -> Any:
    """How an error shows what a rank has of this name."""
    if name in words:
        return words[name][number]
    if name in ("scale", "softcap"):
        return repr(float(struct.unpack("<d", struct.pack("<q", number))[0]))
    if name in ("top_left", "requires_grad"):
        return bool(number)
    if name == "kernel":
        return repr(number.to_bytes(7, "little").rstrip(b"\0").decode(errors="replace") + "…")
    return f"number {number:x}" if name.startswith("shards") else number


def read_alike(
    group: TorchGroup | MpiGroup, operation: str, check: bool, read: Callable[[], Call],
    described: Callable[[Call], dict[str, int]], fields: int, words: dict[str, Sequence[str]] | None = None,
) -> Call:  # fmt: skip
    """What `read` makes of this rank's arguments. With `check` all ranks raise alike unless every one can read its own
    and described(), `fields` numbers by name, is the same on all; words: what numbers stand for."""
    problem, call = None, None  # type: Error | None, Call | None
    try:
        call = read()
    except Error as wrong:
        problem = wrong
    if flag(operation, "check", check):
        mine = None if call is None else described(call)
        _agree(group, operation, problem, mine, fields, {**_WORDS, **(words or {})})
    elif problem is not None:
        raise problem
    assert call is not None
    return call


def _agree(
    group: TorchGroup | MpiGroup, operation: str, problem: Error | None, mine: dict[str, int] | None, fields: int,
    words: dict[str, Sequence[str]],
) -> None:  # fmt: skip
    """One exchange of some numbers. `problem`: why this rank cannot go on."""
    numbers = [1, *mine.values()] if mine is not None else [0] * (fields + 1)
    found = group.gather_numbers(operation, numbers)
    if any(theirs[0] == 0 for theirs in found):
        texts = group.gather_objects(operation, None if problem is None else str(problem))
        first = next(rank for rank, said in enumerate(texts) if said is not None)
        if problem is not None:
            raise problem
        raise ShapeMismatchError(
            f"attikos.{operation}: rank {first} of {group.size} cannot go on: {texts[first]}"
        )
    for rank, theirs in enumerate(found):
        for name, number, first_number in zip(mine or {}, theirs[1:], found[0][1:]):
            if number != first_number:
                raise ShapeMismatchError(
                    f"attikos.{operation}: rank {rank} has {name} {_spelled(name, number, words)} where rank 0 has "
                    f"{_spelled(name, first_number, words)}; expected the same on all ranks"
                )
