# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Right factors of products on hosts, packed once for all calls that share them."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from ._arguments import flag
from ._arrays import Call, Kind, Operand, operand_of, torch_dtype
from ._context import CPU
from ._dlpack import dense_strides
from ._dtypes import DType, to_numpy
from .errors import DeviceError, ShapeMismatchError


class PackedB:
    """What pack_b() made of an array, whose shape, dtype and trans_b it has. Calls only read it, in any number of
    threads; it belongs to the process that made it."""

    def __init__(self, operand: Operand, trans_b: bool, memory: Any) -> None:
        self.shape: tuple[int, ...] = operand.shape  #: of the array, [k, n], or [n, k] with trans_b
        self.dtype: DType = operand.dtype  #: of its elements
        self.trans_b: bool = trans_b  #: as in the calls that take it
        self.memory: Any = memory  #: packed, uint8
        self._beside: dict[bool, Any] = {}

    @property
    def ndim(self) -> int:
        return 2

    @property
    def nbytes(self) -> int:
        """Of the packed memory."""
        return int(self.memory.nbytes)

    def __repr__(self) -> str:
        what = f"shape={self.shape}, dtype={self.dtype.name}, trans_b={self.trans_b}, nbytes={self.nbytes}"
        return f"attikos.PackedB({what})"

    def stand_in(self, kind: Kind) -> Operand:
        """The array as calls see it, without data."""
        return Operand(0, self.shape, dense_strides(self.shape), self.dtype, CPU, kind, self)

    def beside(self, a: Any) -> Any:
        """An array of a's library with the type and extents, all of it one element."""
        of_torch = type(a).__module__.startswith("torch")
        found = self._beside.get(of_torch)
        if found is None:
            if of_torch:
                found = sys.modules["torch"].empty(1, dtype=torch_dtype(self.dtype)).expand(self.shape)
            else:
                dtype = to_numpy(self.dtype)
                found = np.ndarray(self.shape, dtype, bytearray(dtype.itemsize), strides=(0, 0))
            self._beside[of_torch] = found
        return found


def pack_b(b: Any, trans_b: bool = False) -> PackedB:
    """b [k, n] ([n, k] with trans_b) packed for gemm() on hosts, so that calls with the same weights do not pack them
    each time: gemm(a, pack_b(b)) gives the bits of gemm(a, b), with the same options, trans_b included.

    b is float64, float32, float16, bfloat16 or int8, on the host, any strides, and is not referred to afterwards. Its
    numbers are copied as the instructions of this process want them, see detect_host().host_isa; explain("gemm", a,
    packed) says how. There are no gradients through a packed b."""
    operation = "pack_b"
    trans_b = flag(operation, "trans_b", trans_b)
    call = Call(operation, b=b)
    operand = call["b"]
    if operand.place != CPU:
        raise DeviceError(f"attikos.{operation}: b lies on cuda:{operand.place[1]}; expected the host, whose products "
                          "alone read packed factors")  # fmt: skip
    if operand.ndim != 2:
        raise ShapeMismatchError(f"attikos.{operation}: b is {operand.describe()}; expected 2 dimensions")
    size = ctypes.c_size_t()
    call.run("attikos_pack_b_size", operand, int(trans_b), ctypes.byref(size))
    memory = np.empty(size.value, np.uint8)
    call.run("attikos_pack_b", operand, int(trans_b), operand_of(operation, "memory", memory))
    return PackedB(operand, trans_b, memory)
