# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types and their names in other libraries."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from .errors import UnsupportedDtypeError


class DType(enum.IntEnum):
    """Element types, numbered as in attikos.h."""

    float64 = 0
    float32 = 1
    float16 = 2
    bfloat16 = 3
    float8_e4m3 = 4
    float8_e5m2 = 5
    int8 = 6
    uint8 = 7
    int32 = 8
    int64 = 9
    bool = 10

    @property
    def itemsize(self) -> int:
        return _SIZES[self]


_SIZES = {
    DType.float64: 8, DType.float32: 4, DType.float16: 2, DType.bfloat16: 2, DType.float8_e4m3: 1,
    DType.float8_e5m2: 1, DType.int8: 1, DType.uint8: 1, DType.int32: 4, DType.int64: 8, DType.bool: 1,
}  # fmt: skip

FLOATING = frozenset({DType.float64, DType.float32, DType.float16, DType.bfloat16})
FLOAT8 = frozenset({DType.float8_e4m3, DType.float8_e5m2})

# Names under which NumPy (with ml_dtypes), PyTorch and JAX know them; all are unambiguous.
_NAMES = {member.name: member for member in DType}
_NAMES.update({"half": DType.float16, "float8_e4m3fn": DType.float8_e4m3, "bool_": DType.bool})

# Dtypes of NumPy and PyTorch that were asked for before: their names are made anew each time.
_FOUND: dict[Any, DType] = {}

# (code, bits) of DLPack 1.1.
DLPACK_CODES: dict[DType, tuple[int, int]] = {
    DType.float64: (2, 64), DType.float32: (2, 32), DType.float16: (2, 16), DType.bfloat16: (4, 16),
    DType.float8_e4m3: (10, 8), DType.float8_e5m2: (12, 8), DType.int8: (0, 8), DType.uint8: (1, 8),
    DType.int32: (0, 32), DType.int64: (0, 64), DType.bool: (6, 8),
}  # fmt: skip
_FROM_DLPACK = {code: dtype for dtype, code in DLPACK_CODES.items()}


def dtype_of(spec: Any, name: str = "dtype") -> DType:
    """The element type meant by a name, a NumPy, PyTorch or JAX dtype, or a DType."""
    if isinstance(spec, DType):
        return spec
    keep = isinstance(spec, np.dtype) or type(spec).__module__ == "torch"
    if keep and spec in _FOUND:
        return _FOUND[spec]
    if isinstance(spec, np.dtype):
        text = spec.name if spec.isnative else str(spec)
    elif isinstance(spec, type) and issubclass(spec, np.generic):
        text = np.dtype(spec).name
    elif spec is float:
        text = "float64"
    else:
        text = getattr(spec, "__name__", None) or str(spec)  # "torch.float16"
    text = text.rpartition(".")[2]
    if text not in _NAMES:
        raise UnsupportedDtypeError(
            f"attikos: {name} is {spec}; expected one of {', '.join(member.name for member in DType)}"
        )
    if keep:
        _FOUND[spec] = _NAMES[text]
    return _NAMES[text]


def from_dlpack_code(code: int, bits: int, lanes: int, name: str) -> DType:
    found = _FROM_DLPACK.get((code, bits)) if lanes == 1 else None
    if found is None:
        raise UnsupportedDtypeError(
            f"attikos: {name} has DLPack type code {code} with {bits} bits and {lanes} lanes, "
            "which is no element type of this library"
        )
    return found


def to_numpy(dtype: DType) -> np.dtype[Any]:
    """NumPy's dtype, through ml_dtypes for those that NumPy has not itself."""
    if dtype in (DType.bfloat16, DType.float8_e4m3, DType.float8_e5m2):
        try:
            import ml_dtypes
        except ImportError as problem:
            raise UnsupportedDtypeError(
                f"attikos: NumPy has no {dtype.name}; install ml_dtypes for it"
            ) from problem
        name = "float8_e4m3fn" if dtype is DType.float8_e4m3 else dtype.name
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(dtype.name)


def expect_floating(operation: str, name: str, x: Any) -> None:
    """Refuses an operand of no type of FLOATING."""
    if x.dtype not in FLOATING:
        raise UnsupportedDtypeError(
            f"attikos.{operation}: {name} is {x.describe()}; expected float64, float32, float16 or bfloat16"
        )
