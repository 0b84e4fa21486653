# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks compare before anything is sent: whether all ask for the same."""

from __future__ import annotations

import struct
from typing import Any, Callable

from ..errors import Error, ShapeMismatchError
from ._groups import MpiGroup, TorchGroup


def bits_of(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def number_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def agree(
    group: TorchGroup | MpiGroup, operation: str, problem: Error | None, mine: dict[str, int] | None, fields: int,
    spelled: Callable[[str, int], Any],
) -> None:  # fmt: skip
    """One exchange of some numbers: `mine`, by name, `fields` of them. `problem`: why this rank cannot go on. Raises the
    same on all ranks unless all can and have the same numbers; spelled(name, number) is how an error shows one."""
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
    names = list(mine or {})
    for rank, theirs in enumerate(found):
        for i, name in enumerate(names):
            if theirs[i + 1] != found[0][i + 1]:
                raise ShapeMismatchError(
                    f"attikos.{operation}: rank {rank} has {name} {spelled(name, theirs[i + 1])} where rank 0 has "
                    f"{spelled(name, found[0][i + 1])}; expected the same on all ranks"
                )
