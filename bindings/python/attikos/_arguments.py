# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments that are no arrays: numbers, flags and names, checked before they cross into libattikos, where integers
wrap and fractions are cut; and the names under which errors speak of arguments."""

from __future__ import annotations

import math
import operator
import re
from typing import Any

import numpy as np

from . import _autograd
from .errors import ArgumentError

INT32, INT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)

# How much precision float32 products may lose.
COMPUTE = {"ieee": 0, "tf32": 1, "tf32x3": 2}
# What comes behind a product.
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
# How far the bits of a result repeat.
DETERMINISM = {"run_to_run": 0, "batch_invariant": 1, "unordered": 2}


class Caller(str):
    """The public function that a call belongs to, and its own names for arguments of the operation behind it."""

    names: dict[str, str]

    def __new__(cls, function: str, **names: str) -> "Caller":
        self = super().__new__(cls, function)
        self.names = names
        return self


def spell(operation: str, name: str) -> str:
    """An argument as the caller's function calls it."""
    return operation.names.get(name, name) if isinstance(operation, Caller) else name


# Arguments in the library's messages, where this package calls them something else.
_IN_LIBRARY = {
    "lengths of q": "lengths_q", "lengths of kv": "lengths_kv", "cu_seqlens of q": "cu_seqlens_q",
    "cu_seqlens of kv": "cu_seqlens_kv", "page table": "page_table", "alibi slopes": "alibi_slopes",
    "descale of q": "descale_q", "descale of k": "descale_k", "descale of v": "descale_v",
    "grouped()": "group_offsets", "masked()": "row_counts", "softmax_scale": "scale",
    "gate of projections(gate, up)": "gate", "up of projections(gate, up)": "up",
}  # fmt: skip
_IN_PRODUCTS = {"A": "a", "B": "b", "C": "the result"}


def in_callers_words(operation: str, function: str, message: str, shapes: dict[str, str]) -> str:
    """A message of libattikos with the names and the extents that the caller of `operation` knows."""
    known = {**_IN_LIBRARY, **(_IN_PRODUCTS if "gemm" in function else {})}
    own = operation.names if isinstance(operation, Caller) else {}
    words = {**own, **{word: own.get(name, name) for word, name in known.items()}, **shapes}
    text = re.sub(r"^attikos(::\w+)?: ", "", message)
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    text = re.sub(rf"(?<!\w)({pattern})(?!\w)", lambda match: words[match[1]], text)
    return f"attikos.{operation}: {text}"


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def integer(operation: str, name: str, value: Any, low: int = INT64[0], high: int = INT64[1]) -> int:
    """A whole number in [low, high]; numbers of NumPy and of other libraries are taken, bools and fractions not."""
    if type(value) is int and low <= value <= high:
        return value
    try:
        number = None if _is_bool(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise ArgumentError(f"attikos.{operation}: {spell(operation, name)} is {value!r}; expected an integer")
    if not low <= number <= high:
        raise ArgumentError(
            f"attikos.{operation}: {spell(operation, name)} is {number}; expected an integer in [{low}, {high}]"
        )
    return number


def real(operation: str, name: str, value: Any) -> float:
    """A number as a float; what is no single number, or a bool, is refused, and so is what asks for a gradient."""
    if type(value) is float:
        return value
    _autograd.refuse(operation, {name: value})
    try:
        if _is_bool(value) or isinstance(value, (str, bytes)) or getattr(value, "ndim", 0):
            raise TypeError
        return float(value.detach() if getattr(value, "requires_grad", False) else value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"attikos.{operation}: {spell(operation, name)} is {value!r}; expected a number"
        ) from None


def finite(operation: str, name: str, value: Any) -> float:
    number = real(operation, name, value)
    if not math.isfinite(number):
        raise ArgumentError(f"attikos.{operation}: {spell(operation, name)} is {value}; expected a finite number")
    return number


def flag(operation: str, name: str, value: Any) -> bool:
    """A bool; 0 and 1 stand for one, other numbers do not."""
    if value is True or value is False:
        return bool(value)
    if not _is_bool(value):
        try:
            if operator.index(value) not in (0, 1):
                raise TypeError
        except TypeError:
            raise ArgumentError(
                f"attikos.{operation}: {spell(operation, name)} is {value!r}; expected a bool"
            ) from None
    return bool(value)


def text(operation: str, name: str, value: Any) -> bytes:
    """A name for libattikos."""
    if not isinstance(value, str):
        raise ArgumentError(
            f'attikos.{operation}: {spell(operation, name)} is {value!r}; expected a string, "" for the library\'s '
            "choice"
        )
    return value.encode()


def choice(operation: str, name: str, value: Any, choices: dict[str, int]) -> int:
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(
            f"attikos.{operation}: {spell(operation, name)} is {value!r}; expected one of {list(choices)}"
        )
    return choices[value]


def window(operation: str, name: str, value: Any, low: int = -1) -> tuple[int, int]:
    """How many keys before and behind a query it sees, -1 for all."""
    if value == (-1, -1) and type(value) is tuple:
        return -1, -1
    try:
        left, right = value
    except (TypeError, ValueError):
        raise ArgumentError(
            f"attikos.{operation}: {spell(operation, name)} is {value!r}; expected a pair of integers, keys before "
            "and behind the query, -1 for all"
        ) from None
    each = ((f"{spell(operation, name)}[{i}]", keys) for i, keys in enumerate((left, right)))
    first, second = (integer(operation, part, keys, low) for part, keys in each)
    return first, second
