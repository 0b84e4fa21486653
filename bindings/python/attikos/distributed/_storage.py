# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The few things done to arrays between products, for NumPy and PyTorch alike."""

from __future__ import annotations

import math
import sys
from typing import Any, Sequence

import numpy as np

from .._dlpack import dense_strides
from ..errors import UnsupportedError


class NumpyStorage:
    """Arrays of the host."""

    narrow_results = True  # gradients of 16-bit arrays are computed in float32: nothing else would round them once

    @staticmethod
    def size_of(x: Any) -> int:
        return int(x.dtype.itemsize)

    @staticmethod
    def wide(like: Any) -> Any:
        """The type of sums."""
        return np.dtype(np.float64) if like.dtype == np.float64 else np.dtype(np.float32)

    @staticmethod
    def empty(shape: Sequence[int], like: Any, dtype: Any = None) -> Any:
        return np.empty(shape, like.dtype if dtype is None else dtype)

    @staticmethod
    def full(shape: Sequence[int], value: float, like: Any, dtype: Any) -> Any:
        return np.full(shape, value, dtype)

    @staticmethod
    def to(x: Any, dtype: Any) -> Any:
        return x.astype(dtype, copy=False)

    @staticmethod
    def dense(x: Any) -> Any:
        return np.ascontiguousarray(x)

    @staticmethod
    def plain(x: Any) -> Any:
        """The same memory, of which nothing is recorded."""
        return x

    @staticmethod
    def place_of(like: Any) -> Any:
        return "host"

    @staticmethod
    def numbers(values: np.ndarray, like: Any) -> Any:
        """Whole numbers where an array lies."""
        return values

    @staticmethod
    def part(x: Any, dim: int, begin: int, end: int) -> Any:
        """The rows from begin to end along a dimension, as a view."""
        return x[(slice(None),) * dim + (slice(begin, end),)]

    @staticmethod
    def seen(memory: Any, begin: int, shape: Sequence[int], strides: Sequence[int]) -> Any:
        """Part of a new array of one dimension as a dense one."""
        return memory[begin : begin + math.prod(shape)].reshape(shape)

    @staticmethod
    def only(x: Any) -> Any:
        """The one entry of a batch."""
        return x[0]

    @staticmethod
    def alone(x: Any) -> Any:
        """A batch of one entry."""
        return x[None]

    @staticmethod
    def write(to: Any, values: Any) -> None:
        """Copies an array, or a number, into another one."""
        to[...] = values

    @staticmethod
    def add_into(out: Any, x: Any, y: Any) -> None:
        """Writes a sum of arrays of sums, rounded to the type of `out`."""
        out[...] = x + y

    @staticmethod
    def take(x: Any, dim: int, index: Any) -> Any:
        """The rows along a dimension that have these numbers."""
        return np.take(x, index, dim)

    @staticmethod
    def put(x: Any, dim: int, index: Any, rows: Any) -> None:
        x[(slice(None),) * dim + (index,)] = rows


class TorchStorage:
    """Tensors of the host or a device."""

    def __init__(self, on_host: bool) -> None:
        self._torch = sys.modules["torch"]
        self.narrow_results = on_host

    @staticmethod
    def size_of(x: Any) -> int:
        return int(x.element_size())

    def wide(self, like: Any) -> Any:
        return self._torch.float64 if like.dtype == self._torch.float64 else self._torch.float32

    def empty(self, shape: Sequence[int], like: Any, dtype: Any = None) -> Any:
        return like.new_empty(shape, dtype=dtype)

    def full(self, shape: Sequence[int], value: float, like: Any, dtype: Any) -> Any:
        return like.new_full(shape, value, dtype=dtype)

    @staticmethod
    def to(x: Any, dtype: Any) -> Any:
        return x if x.dtype == dtype else x.to(dtype)

    @staticmethod
    def dense(x: Any) -> Any:
        return x if x.is_contiguous() else x.contiguous()

    @staticmethod
    def plain(x: Any) -> Any:
        return x.detach() if x.requires_grad else x

    @staticmethod
    def place_of(like: Any) -> Any:
        return like.device

    def numbers(self, values: np.ndarray, like: Any) -> Any:
        return self._torch.from_numpy(values).to(like.device)

    @staticmethod
    def part(x: Any, dim: int, begin: int, end: int) -> Any:
        return x.narrow(dim, begin, end - begin)

    @staticmethod
    def seen(memory: Any, begin: int, shape: Sequence[int], strides: Sequence[int]) -> Any:
        return memory.as_strided(shape, strides, begin)

    @staticmethod
    def only(x: Any) -> Any:
        return x.squeeze(0)

    @staticmethod
    def alone(x: Any) -> Any:
        return x.unsqueeze(0)

    @staticmethod
    def write(to: Any, values: Any) -> None:
        if isinstance(values, (int, float)):
            to.fill_(values)
        else:
            to.copy_(values)

    def add_into(self, out: Any, x: Any, y: Any) -> None:
        self._torch.add(x, y, out=out)

    @staticmethod
    def take(x: Any, dim: int, index: Any) -> Any:
        return x.index_select(dim, index)

    @staticmethod
    def put(x: Any, dim: int, index: Any, rows: Any) -> None:
        x.index_copy_(dim, index, rows)


_OF_TORCH: dict[bool, TorchStorage] = {}  # by whether tensors are the host's


def storage_of(operation: str, name: str, x: Any) -> NumpyStorage | TorchStorage:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        on_host = x.device.type == "cpu"
        if on_host not in _OF_TORCH:
            _OF_TORCH[on_host] = TorchStorage(on_host)
        return _OF_TORCH[on_host]
    if isinstance(x, np.ndarray):
        return NumpyStorage()
    raise UnsupportedError(
        f"attikos.{operation}: {name} is a {type(x).__module__}.{type(x).__qualname__}; expected a tensor of PyTorch "
        "or an array of NumPy"
    )


class Layout:
    """How two arrays lie one behind the other in one of one dimension."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.shapes, self.strides = shapes, tuple(map(dense_strides, shapes))
        self.begins = (0, math.prod(shapes[0]))
        self.size = self.begins[1] + math.prod(shapes[1])


class Pairs:
    """Two arrays whose first three extents are the same: keys and values, or the sums of their gradients. Both are
    dense, so that they are messages: two, or, where they lie one behind the other in `memory`, one."""

    __slots__ = ("first", "second", "messages", "_storage")

    def __init__(self, storage: Any, first: Any, second: Any, memory: Any = None) -> None:
        self.first, self.second, self._storage = first, second, storage
        self.messages = (first, second) if memory is None else (memory,)

    @classmethod
    def within(cls, storage: Any, memory: Any, layout: Layout, whole: bool) -> Pairs:
        """Those of a new array of one dimension, which is longer unless they are the whole of it."""
        first, second = map(storage.seen, (memory, memory), layout.begins, layout.shapes, layout.strides)
        return cls(storage, first, second, memory if whole else storage.part(memory, 0, 0, layout.size))

    def apart(self) -> Pairs:
        """The same arrays as two messages."""
        return Pairs(self._storage, self.first, self.second)

    def clear(self) -> None:
        for x in self.messages:
            self._storage.write(x, 0)

    def add(self, more: Pairs) -> None:
        """Adds arrays of the same shapes."""
        for to, x in ((self.first, more.first), (self.second, more.second)):
            to += x

    @staticmethod
    def total(storage: Any, parts: Sequence[Pairs], first: Any, second: Any) -> tuple[Any, Any]:
        """The sums of several, in their order, rounded once to the types of two arrays of their shapes."""
        return (
            sum_of(storage, [x.first for x in parts], first), sum_of(storage, [x.second for x in parts], second)
        )  # fmt: skip


def add_up(storage: Any, parts: Sequence[Any], out: Any) -> None:
    """Writes a sum in the order of its terms, rounded once to the type of `out`; of three terms and more, the first is
    written over, which then is of the type of sums."""
    *first, last = parts
    if not first:
        storage.write(out, last)
        return
    total = first[0]
    for part in first[1:]:
        total += part
    storage.add_into(out, total, last)


def sum_of(storage: Any, parts: Sequence[Any], like: Any) -> Any:
    """The same as a new array of the type of `like`, or the only term where that has it."""
    if len(parts) == 1:
        return storage.to(parts[0], like.dtype)
    out = storage.empty(parts[0].shape, like)
    add_up(storage, parts, out)
    return out
