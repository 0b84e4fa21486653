# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers on the host that become arrays of a call: lengths, offsets, indices, factors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _library
from ._arguments import INT32, integer, real, spell
from ._arrays import TORCH, Array, Operand, operand_of
from ._dlpack import dense_strides
from ._context import CPU, context_for
from ._dtypes import DType, dtype_of, to_numpy
from .errors import ArgumentError, IntegerError, StrideError

_lib = _library.library


def to_device(operation: str, name: str, values: np.ndarray[Any, Any], like: Operand) -> Any:
    """An array of the host as one on the device of `like`."""
    if like.place == CPU:
        return values
    torch = sys.modules.get("torch")
    if torch is not None and like.kind is TORCH:
        if values.size and (values == values.flat[0]).all():  # written by a kernel: a copy would wait, and end a capture
            number, dtype = values.flat[0].item(), getattr(torch, values.dtype.name)
            return torch.full(values.shape, number, dtype=dtype, device=like.owner.device)
        if torch.cuda.is_current_stream_capturing():
            raise ArgumentError(
                f"attikos.{operation}: {spell(operation, name)} lies on the host, and a copy of it to the device cannot be "
                "captured into a CUDA graph; expected an array on the device"
            )
        return torch.from_numpy(values).to(like.owner.device)
    array = Array(values.shape, dtype_of(values.dtype), like.place)
    _lib.attikos_copy(context_for(like.place).handle, array.data, values.ctypes.data, values.nbytes)
    return array


def to_host(operation: str, name: str, values: Any) -> np.ndarray[Any, Any]:
    """A dense array as NumPy's own; waits for the device."""
    x = operand_of(operation, name, values)
    if x.strides != dense_strides(x.shape) and x.shape != (1,):
        raise StrideError(
            f"attikos.{operation}: {spell(operation, name)} has strides {x.strides}; expected a dense array"
        )
    copy = np.empty(x.shape, to_numpy(x.dtype))
    _lib.attikos_copy(context_for(x.place).handle, copy.ctypes.data, x.data, copy.nbytes)
    return copy


def is_on_host(values: Any) -> bool:
    """Whether these are numbers that are there to be looked at."""
    return isinstance(values, (int, float, np.generic, list, tuple, np.ndarray))


def integers(operation: str, name: str, values: Any) -> np.ndarray[Any, Any]:
    """Whole numbers that int32 holds; nothing wraps and no fraction is cut."""
    spelled = spell(operation, name)
    try:
        numbers = np.asarray(values)
    except ValueError:  # ragged
        numbers = np.asarray(values, object)
    if numbers.size == 0:
        return np.zeros(numbers.shape, np.int32)
    if numbers.dtype.kind == "O" and all(isinstance(n, int) for n in numbers.flat):
        raise ArgumentError(f"attikos.{operation}: {spelled} is {values!r}; expected numbers that int32 holds")
    if numbers.dtype.kind not in "iu":
        raise IntegerError(f"attikos.{operation}: {spelled} is {values!r}; expected integers")
    for bad in numbers[(numbers > INT32[1]) | (numbers < INT32[0])].reshape(-1)[:1]:
        raise ArgumentError(f"attikos.{operation}: {spelled} holds {bad}; expected numbers that int32 holds")
    return np.asarray(numbers, np.int32, order="C")


def whole_numbers(operation: str, name: str, values: Any) -> Any:
    """Labels or ids: integers of other kinds, and lists of them, as those that libattikos takes."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        return values.long() if values.dtype in (torch.int8, torch.int16, torch.uint8) else values
    if isinstance(values, np.ndarray) and (values.dtype.kind not in "iu" or values.dtype.name in ("int32", "int64")):
        return values
    return integers(operation, name, values) if isinstance(values, (list, tuple, np.ndarray)) else values


def whole_operand(operation: str, name: str, values: Any) -> Operand:
    """Labels or ids as libattikos reads them."""
    given = operand_of(operation, name, values)
    if given.dtype not in (DType.int32, DType.int64):
        raise IntegerError(f"attikos.{operation}: {name} is {given.describe()}; expected int32 or int64")
    return given


def int32_array(operation: str, name: str, values: Any, like: Operand) -> Any:
    """Lengths, offsets and indices as an array that libattikos takes: numbers on the host become one of int32, and
    so do PyTorch's integers, where those beyond int32 stay at its ends, outside of every range."""
    if isinstance(values, (list, tuple, np.ndarray)):
        return to_device(operation, name, integers(operation, name, values), like)
    operand = operand_of(operation, name, values)
    if operand.dtype not in (DType.int32, DType.int64, DType.int8, DType.uint8):
        raise IntegerError(f"attikos.{operation}: {spell(operation, name)} is {operand.describe()}; expected integers")
    if operand.dtype is not DType.int32 and like.kind is TORCH and operand.kind is TORCH:
        wide = values.clamp(*INT32) if operand.dtype is DType.int64 else values
        return wide.to(sys.modules["torch"].int32)
    return values


def int32_numbers(operation: str, name: str, values: Any, like: Operand) -> Any:
    """As int32_array(); one number becomes an array of one."""
    if isinstance(values, (int, np.integer, np.bool_)):
        values = [integer(operation, name, values, *INT32)]
    return int32_array(operation, name, values, like)


def float32_numbers(operation: str, name: str, values: Any, like: Operand) -> Any:
    """A factor or factors: numbers on the host become a float32 array, others stay as they are."""
    if isinstance(values, (int, float, np.floating, np.integer, np.bool_)):
        values = [real(operation, name, values)]
    if not isinstance(values, (list, tuple)):
        return values
    numbers = np.asarray(values)
    if numbers.size and numbers.dtype.kind not in "iuf":
        raise ArgumentError(f"attikos.{operation}: {spell(operation, name)} is {values!r}; expected numbers")
    if (np.abs(numbers[np.isfinite(numbers)]) > np.finfo(np.float32).max).any():
        raise ArgumentError(
            f"attikos.{operation}: {spell(operation, name)} is {values!r}; expected numbers that float32 holds"
        )
    return to_device(operation, name, np.ascontiguousarray(numbers, np.float32), like)
