# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The few things done to arrays between products, for NumPy and PyTorch alike."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any, Sequence

import numpy as np

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
    def place_of(like: Any) -> Any:
        return "host"

    @staticmethod
    def numbers(values: np.ndarray, like: Any) -> Any:
        """Whole numbers where an array lies."""
        return values

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
        return self._torch.empty(tuple(shape), dtype=like.dtype if dtype is None else dtype, device=like.device)

    def full(self, shape: Sequence[int], value: float, like: Any, dtype: Any) -> Any:
        return self._torch.full(tuple(shape), value, dtype=dtype, device=like.device)

    @staticmethod
    def to(x: Any, dtype: Any) -> Any:
        return x.to(dtype)

    @staticmethod
    def dense(x: Any) -> Any:
        return x.contiguous()

    @staticmethod
    def place_of(like: Any) -> Any:
        return like.device

    def numbers(self, values: np.ndarray, like: Any) -> Any:
        return self._torch.from_numpy(values).to(like.device)

    @staticmethod
    def take(x: Any, dim: int, index: Any) -> Any:
        return x.index_select(dim, index)

    @staticmethod
    def put(x: Any, dim: int, index: Any, rows: Any) -> None:
        x.index_copy_(dim, index, rows)


def storage_of(operation: str, name: str, x: Any) -> NumpyStorage | TorchStorage:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return TorchStorage(x.device.type == "cpu")
    if isinstance(x, np.ndarray):
        return NumpyStorage()
    raise UnsupportedError(
        f"attikos.{operation}: {name} is a {type(x).__module__}.{type(x).__qualname__}; expected a tensor of PyTorch "
        "or an array of NumPy"
    )


@dataclasses.dataclass
class Pairs:
    """Two arrays whose first three extents are the same: keys and values, or the sums of their gradients. Both are
    dense, so that they are messages."""

    first: Any
    second: Any

    @classmethod
    def within(cls, memory: Any, shapes: Sequence[Sequence[int]]) -> Pairs:
        """One behind the other in an array of one dimension."""
        size, more = (math.prod(shape) for shape in shapes)
        first, second = memory[:size], memory[size : size + more]
        return cls(first.reshape(tuple(shapes[0])), second.reshape(tuple(shapes[1])))

    def fill(self, first: Any, second: Any) -> None:
        self.first[...] = first
        self.second[...] = second
