# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of this package's own."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

from . import _dlpack, _library
from ._arguments import integer
from ._context import CPU, Context, Place, context_for
from ._dlpack import dense_strides
from ._dtypes import DLPACK_CODES, DType, to_numpy

_lib = _library.library
Shape = tuple[int, ...]


class Array:
    """Memory of this package, for callers whose own library cannot make arrays: exports DLPack and, by
    where it lies, NumPy's or the CUDA array interface."""

    def __init__(self, shape: Shape, dtype: DType, place: Place) -> None:
        self.shape = tuple(integer("Array", "shape", extent, 0) for extent in shape)
        self.dtype, self.place = dtype, place
        self.strides = dense_strides(self.shape)
        count = integer("Array", "number of bytes", math.prod(self.shape) * dtype.itemsize) // dtype.itemsize
        self._context: Context = context_for(place)
        memory = ctypes.c_void_p()
        _lib.attikos_allocate(self._context.handle, count * dtype.itemsize, ctypes.byref(memory))
        self.data = int(memory.value or 0)
        self._release = weakref.finalize(self, _release, self._context, self.data)
        self._release.atexit = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def device(self) -> str:
        return "cpu" if self.place == CPU else f"cuda:{self.place[1]}"

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CPU if self.place == CPU else _dlpack.CUDA, self.place[1])

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        if copy:
            raise BufferError("attikos: an Array does not copy itself on export")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"attikos: this Array lies on {self.device} and does not move")
        if self.place != CPU and stream != -1:
            consumer = 0 if stream in (None, 1) else int(stream)
            if consumer != self._context.stream:
                self._context.synchronize()
        versioned = max_version is not None and max_version[0] >= _dlpack.VERSION[0]
        return _dlpack.capsule_of(
            self, self.data, self.__dlpack_device__(), DLPACK_CODES[self.dtype], self.shape, self.strides,
            versioned,
        )  # fmt: skip

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.place != CPU:
            raise AttributeError("attikos: this Array lies on a CUDA device")
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.place == CPU:
            raise AttributeError("attikos: this Array lies on the host")
        return {**self._interface(), "stream": self._context.stream or 1}

    def _interface(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": to_numpy(self.dtype).str, "data": (self.data, False),
            "strides": None, "version": 3,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"attikos.Array(shape={self.shape}, dtype={self.dtype.name}, device={self.device})"


def _release(context: Context, data: int) -> None:
    _lib.attikos_free(context.handle, data)
