# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks compare before anything is sent: whether all ask for the same."""

from __future__ import annotations

import struct
import sys
from typing import Any, Callable, Sequence, TypeVar

import numpy as np

from .._arguments import COMPUTE, flag
from ..errors import Error, ShapeMismatchError
from ._groups import MpiGroup, Numbers, TorchGroup
from ._shards import Shards

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


class _Read:
    """A call that was read: what all of the same signature have in common."""

    def __init__(self, call: Any, described: dict[str, int]) -> None:
        self.call, self.described = call, described
        self.numbers = Numbers([1, *described.values()])


# Calls by signature; those that are wrong are none of them.
_known: dict[Any, _Read] = {}
_MOST = 256

_OPTIONS = (bool, int, float, str, type(None))  # values that never change and say all by themselves


def signature_of(*values: Any) -> Any:
    """What read_alike() knows a call again by, or None for one that has to be read: of arrays all that reading looks
    at, of anything else the value and its type."""
    found: list[Any] = []
    torch = sys.modules.get("torch")
    tensors = () if torch is None else (torch.Tensor, torch.nn.Parameter)
    for x in values:
        kind = type(x)
        if kind in tensors:
            found += (kind, x.shape, x.dtype, x.device, x.layout)
        elif kind is np.ndarray:
            found += (kind, x.shape, x.dtype, x.strides)
        elif kind in _OPTIONS or kind is Shards:
            found += (kind, x)
        elif kind is tuple:
            for y in x:
                if type(y) not in _OPTIONS and type(y) is not Shards:
                    return None
            found += (*map(type, x), x)
        else:
            return None
    return tuple(found)


def read_alike(
    group: TorchGroup | MpiGroup, operation: str, check: bool, read: Callable[[], Call],
    described: Callable[[Call], dict[str, int]], fields: int, signature: Any,
    words: dict[str, Sequence[str]] | None = None,
) -> Call:  # fmt: skip
    """What `read` makes of this rank's arguments. With `check` all ranks raise alike unless every one can read its own
    and described(), `fields` numbers by name, is the same on all; words: what numbers stand for. Calls of one signature
    on a rank of one number are read once: `read` and `described` depend on these and the size of the group alone."""
    problem: Error | None = None
    key = None if signature is None else (operation, group.rank, group.size, signature)
    found = None if key is None else _known.get(key)
    if found is None:
        try:
            call = read()
            found = _Read(call, described(call))
        except Error as wrong:
            problem = wrong
        if found is not None and key is not None:
            if len(_known) >= _MOST:
                _known.clear()
            _known[key] = found
    if flag(operation, "check", check):
        _agree(group, operation, problem, found, fields, {**_WORDS, **(words or {})})
    elif problem is not None:
        raise problem
    assert found is not None
    return found.call


def _agree(
    group: TorchGroup | MpiGroup, operation: str, problem: Error | None, mine: _Read | None, fields: int,
    words: dict[str, Sequence[str]],
) -> None:  # fmt: skip
    """One exchange of some numbers. `problem`: why this rank cannot go on."""
    numbers = mine.numbers if mine is not None else Numbers([0] * (fields + 1))
    found = group.gather_numbers(operation, numbers)
    if mine is not None and all(theirs == numbers.values for theirs in found):
        return
    if any(theirs[0] == 0 for theirs in found):
        texts = group.gather_objects(operation, None if problem is None else str(problem))
        first = next(rank for rank, said in enumerate(texts) if said is not None)
        if problem is not None:
            raise problem
        raise ShapeMismatchError(
            f"attikos.{operation}: rank {first} of {group.size} cannot go on: {texts[first]}"
        )
    for rank, theirs in enumerate(found):
        for name, number, first_number in zip(mine.described if mine else (), theirs[1:], found[0][1:]):
            if number != first_number:
                raise ShapeMismatchError(
                    f"attikos.{operation}: rank {rank} has {name} {_spelled(name, number, words)} where rank 0 has "
                    f"{_spelled(name, first_number, words)}; expected the same on all ranks"
                )
