# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The structs of DLPack 1.1 and capsules around them."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Sequence

VERSION = (1, 1)
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
READ_ONLY = 1


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of elements that lie side by side, the last dimension's closest."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


class Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


Deleter = CFUNCTYPE(None, c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", c_void_p), ("deleter", Deleter)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", Deleter),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    ]


# Functions by index are objects of our own. Those by attribute belong to the process: others set argument types of theirs
# there, as jax.ffi.pycapsule() does of PyCapsule_New.
_api = ctypes.pythonapi
_is_valid = _api["PyCapsule_IsValid"]
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, c_char_p], ctypes.c_int
_get_pointer = _api["PyCapsule_GetPointer"]
_get_pointer.argtypes, _get_pointer.restype = [ctypes.py_object, c_char_p], c_void_p
# The same for a capsule that is being destroyed, of which Python must not take a reference again.
_is_valid_bare = _api["PyCapsule_IsValid"]
_is_valid_bare.argtypes, _is_valid_bare.restype = [c_void_p, c_char_p], ctypes.c_int
_get_pointer_bare = _api["PyCapsule_GetPointer"]
_get_pointer_bare.argtypes, _get_pointer_bare.restype = [c_void_p, c_char_p], c_void_p
_new = _api["PyCapsule_New"]
_new.argtypes, _new.restype = [c_void_p, c_char_p, c_void_p], ctypes.py_object

# Kept for the life of the process, since capsules hold the bare pointer.
_NAME, _NAME_VERSIONED = b"dltensor", b"dltensor_versioned"


def tensor_of(capsule: Any) -> DLTensor | None:
    """The tensor in a capsule that nobody has consumed; it lives as long as the capsule. None: no such
    capsule, or one of a version whose layout is unknown."""
    if _is_valid(capsule, _NAME_VERSIONED):
        managed = ManagedVersioned.from_address(_get_pointer(capsule, _NAME_VERSIONED))
        return managed.tensor if managed.major == VERSION[0] else None
    if _is_valid(capsule, _NAME):
        return Managed.from_address(_get_pointer(capsule, _NAME)).tensor
    return None


def is_read_only(capsule: Any) -> bool:
    """Whether the exporter says so; versions before 1 cannot."""
    if not _is_valid(capsule, _NAME_VERSIONED):
        return False
    return bool(ManagedVersioned.from_address(_get_pointer(capsule, _NAME_VERSIONED)).flags & READ_ONLY)


# What an exported tensor needs until its consumer calls the deleter, by the struct's address.
_exported: dict[int, Any] = {}


@Deleter
def _delete(address: int) -> None:
    _exported.pop(address, None)


@ctypes.PYFUNCTYPE(None, c_void_p)
def _destroy_capsule(capsule: int) -> None:
    # A consumer renames the capsule; one that still has its first name owns its tensor.
    for name in (_NAME, _NAME_VERSIONED):
        if _is_valid_bare(capsule, name):
            _exported.pop(_get_pointer_bare(capsule, name), None)


def capsule_of(
    owner: Any, data: int, device: tuple[int, int], dtype: tuple[int, int], shape: tuple[int, ...],
    strides: tuple[int, ...], versioned: bool,
) -> Any:  # fmt: skip
    """A new capsule for memory that `owner` keeps alive."""
    count = len(shape)
    extents = (c_int64 * max(count, 1))(*shape)
    steps = (c_int64 * max(count, 1))(*strides)
    managed = ManagedVersioned() if versioned else Managed()
    if versioned:
        managed.major, managed.minor = VERSION
    managed.deleter = _delete
    tensor = managed.tensor
    tensor.data = data
    tensor.device = Device(*device)
    tensor.ndim = count
    tensor.dtype = DataType(dtype[0], dtype[1], 1)
    tensor.shape = ctypes.cast(extents, POINTER(c_int64))
    tensor.strides = ctypes.cast(steps, POINTER(c_int64))
    address = ctypes.addressof(managed)
    managed.context = address
    _exported[address] = (managed, extents, steps, owner)
    return _new(address, _NAME_VERSIONED if versioned else _NAME, ctypes.cast(_destroy_capsule, c_void_p))
