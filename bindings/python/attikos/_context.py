# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which device and stream a call runs on."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import sys
import threading
import weakref
from typing import Any, Iterator, NamedTuple

from . import _border, _library
from .errors import DeviceError

_lib = _library.library

# ("cpu", 0) or ("cuda", ordinal)
Place = tuple[str, int]
CPU: Place = ("cpu", 0)


class Chosen(NamedTuple):
    """A stream that stream() has chosen, and whether it is PyTorch's current one, too."""

    pointer: int
    in_torch: bool


_chosen: contextvars.ContextVar[Chosen | None] = contextvars.ContextVar("attikos_stream", default=None)

# So many contexts each thread keeps: streams come and go, and what belongs to them is theirs to free.
MOST_CONTEXTS = 32


class Context:
    """An attikos_context; freed with this object, or with the process: nothing is called while Python ends."""

    def __init__(self, place: Place, stream: int, of_torch: bool = False) -> None:
        handle = ctypes.c_void_p()
        kind = _library.CUDA if place[0] == "cuda" else _library.HOST
        _lib.attikos_context_create(kind, place[1], stream or None, ctypes.byref(handle))
        self.handle = handle
        if of_torch:
            self._memory = _memory_of_torch(place[1], stream)  # functions that C calls live as long as the context
            _lib.attikos_context_set_allocator(handle, *self._memory, None)
        self.place = place
        self.stream = stream
        weakref.finalize(self, _lib.attikos_context_destroy, handle).atexit = False

    def synchronize(self) -> None:
        _lib.attikos_synchronize(self.handle)

    @property
    def capturing(self) -> bool:
        return bool(_lib.attikos_is_capturing(self.handle))


def _memory_of_torch(device: int, stream: int) -> tuple[Any, Any]:
    """Workspace of calls from PyTorch's caching allocator, inside a capture from the graph's private pool."""
    cuda = sys.modules["torch"].cuda

    def allocate(_: Any, size: int) -> int | None:
        try:
            return int(cuda.caching_allocator_alloc(size, device, stream))
        except Exception:  # noqa: BLE001: libattikos says how much it was that could not be had
            return None

    return _library.ALLOCATE(allocate), _library.RELEASE(lambda _, memory: cuda.caching_allocator_delete(memory))


_contexts = threading.local()


def context_for(place: Place, of_torch: bool = False) -> Context:
    """The calling thread's context for a device and the stream that is current on it. of_torch: calls get their workspace
    from PyTorch, whose current stream it is."""
    stream, of_torch = stream_for(place), of_torch and place != CPU
    known: dict[tuple[Place, int, bool], Context] = _contexts.__dict__.setdefault("known", {})
    key = (place, stream, of_torch)
    if key not in known:
        while len(known) >= MOST_CONTEXTS:
            del known[next(iter(known))]
        known[key] = Context(place, stream, of_torch)
    return known[key]


def _pointer(stream: Any) -> int:
    """cudaStream_t of an integer or of another library's stream object."""
    found = stream if isinstance(stream, int) and not isinstance(stream, bool) else None
    for attribute in ("cuda_stream", "ptr", "handle"):  # PyTorch, CuPy, cuda.core
        found = getattr(stream, attribute, None) if found is None else found
    protocol = getattr(stream, "__cuda_stream__", None)
    if found is None and protocol is not None:
        _, found = protocol() if callable(protocol) else protocol
    if found is None or not 0 <= int(found) < 2**64:
        raise DeviceError(f"attikos: {stream!r} is no CUDA stream; expected a stream object or its address")
    return int(found)


def _in_torch(torch: Any, stream: Any, pointer: int) -> Any:
    """The stream as one of PyTorch, which keeps the memory of tensors by stream."""
    if isinstance(stream, torch.cuda.Stream):
        return stream
    if pointer == 0:
        return torch.cuda.default_stream()
    device = getattr(stream, "device_id", getattr(stream, "device", None))
    device = getattr(device, "device_id", device)
    if isinstance(device, int) and device >= 0:
        return torch.cuda.ExternalStream(pointer, device=device)
    return torch.cuda.ExternalStream(pointer)


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Calls inside run on this CUDA stream: an address or a stream of PyTorch, CuPy, cuda.core. Without
    it they run on the stream that is current in PyTorch or CuPy, else on the default stream.

    Where PyTorch is imported it becomes PyTorch's current stream, as by torch.cuda.stream(): results and
    temporary tensors are memory of this stream then. An address is one of the current device."""
    pointer = _pointer(stream)
    with contextlib.ExitStack() as scope:
        torch = sys.modules.get("torch")
        in_torch = torch is not None and torch.cuda.is_available()
        if in_torch:
            scope.enter_context(torch.cuda.stream(_in_torch(torch, stream, pointer)))
        token, short = _chosen.set(Chosen(pointer, in_torch)), _border.barred.set(not in_torch)
        try:
            yield
        finally:
            _chosen.reset(token)
            _border.barred.reset(short)


def expect_stream_of_torch(operation: str) -> None:
    """Refuses tensors inside a stream() that began before PyTorch was there to learn of it."""
    chosen = _chosen.get()
    if chosen is not None and not chosen.in_torch and has_cuda():
        raise DeviceError(
            f"attikos.{operation}: PyTorch was imported inside attikos.stream() and allocates on another "
            "stream; expected it to be imported before"
        )


def stream_for(place: Place) -> int:
    if place[0] != "cuda":
        return 0
    chosen = _chosen.get()
    if chosen is not None and not chosen.in_torch:
        return chosen.pointer
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.current_stream(place[1]).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        with cupy.cuda.Device(place[1]):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0


def has_cuda() -> bool:
    """Whether the library was built with CUDA and there is a device."""
    return int(_lib.attikos_cuda_device_count()) > 0
