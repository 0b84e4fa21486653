# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Queues of a GPU whose copies and waits no multiprocessor takes part in, by the driver's own functions: PyTorch has
no call that waits in a queue for a number in memory."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ._mailboxes import RECEIVING, SENDING


class _Operation(ctypes.Structure):
    """CUstreamBatchMemOpParams, of which waiting and writing use the same members."""

    _fields_ = [
        ("operation", ctypes.c_uint32), ("address", ctypes.c_uint64), ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint32), ("alias", ctypes.c_uint64), ("unused", ctypes.c_uint64),
    ]  # fmt: skip


_WAIT_VALUE_32, _WRITE_VALUE_32 = 1, 2
_WAIT_EQUAL = 1


class Flag:
    """A flag's two uses as the driver takes them."""

    def __init__(self, address: int) -> None:
        wait = _Operation(_WAIT_VALUE_32, address, 1, _WAIT_EQUAL)
        self.take = (_Operation * 2)(wait, _Operation(_WRITE_VALUE_32, address, 0))
        self.give = (_Operation * 1)(_Operation(_WRITE_VALUE_32, address, 1))


@functools.lru_cache(maxsize=None)
def _driver() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    handle, address = ctypes.c_void_p, ctypes.c_uint64
    library.cuMemcpyDtoDAsync_v2.argtypes = [address, address, ctypes.c_size_t, handle]
    library.cuStreamBatchMemOp_v2.argtypes = [handle, ctypes.c_uint, ctypes.POINTER(_Operation), ctypes.c_uint]
    library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    return library


def _said_of(status: int) -> str:
    text = ctypes.c_char_p()
    _driver().cuGetErrorString(status, ctypes.byref(text))
    return f"the CUDA driver: {(text.value or b'unknown error').decode()}"


class CudaQueues:
    """Two streams of a device, beside the current one. Their copies and waits take no part of a multiprocessor: copy
    engines carry them, and the front end of each queue looks at the flags."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        driver = _driver()
        self._copy, self._operate = driver.cuMemcpyDtoDAsync_v2, driver.cuStreamBatchMemOp_v2
        self._streams = [torch.cuda.Stream(device, priority=-1) for _ in (SENDING, RECEIVING)]
        self._handles = [stream.cuda_stream for stream in self._streams]

    def fork(self) -> None:
        here = self._torch.cuda.Event()
        here.record(self._torch.cuda.current_stream(self._device))
        for stream in self._streams:
            stream.wait_event(here)

    def flag(self, address: int) -> Flag:
        return Flag(address)

    def move(self, queue: int, taken: Flag, to: int, source: int, size: int, given: Flag) -> None:
        handle = self._handles[queue]
        status = (
            self._operate(handle, 2, taken.take, 0) or self._copy(to, source, size, handle)
            or self._operate(handle, 1, given.give, 0)
        )  # fmt: skip
        if status:
            raise OSError(_said_of(status))

    def join(self) -> Any:
        found = []
        for stream in self._streams:
            done = self._torch.cuda.Event()
            done.record(stream)
            found.append(done)
        return found

    def wait(self, joined: Any) -> None:
        current = self._torch.cuda.current_stream(self._device)
        for done in joined:
            current.wait_event(done)
