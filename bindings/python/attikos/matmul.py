# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _library
from ._arrays import NUMPY, TORCH, Call, Operand, operand_of, pointer_or_none
from ._dtypes import FLOATING, DType
from .errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError

_ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}


def activation_number(operation: str, name: str | None) -> int:
    key = "none" if name is None else name
    if key not in _ACTIVATIONS:
        raise ArgumentError(f"attikos.{operation}: activation is {name!r}; expected one of {list(_ACTIVATIONS)}")
    return _ACTIVATIONS[key]


def _product(
    operation: str, a: Any, b: Any, out_dtype: DType | None, *, alpha: float = 1.0, beta: float = 0.0,
    trans_a: bool = False, trans_b: bool = False, c: Any = None, bias: Any = None, residual: Any = None,
    activation: str | None = None, scale: float = 1.0, kernel: str = "",
) -> Any:  # fmt: skip
    if beta != 0 and c is None:
        raise ArgumentError(f"attikos.{operation}: beta is {beta} but there is no c")
    call = Call(operation, a=a, b=b, c=c if beta != 0 else None, bias=bias, residual=residual)
    oa, ob = call["a"], call["b"]
    shapes = f" a is {oa.describe()}, b is {ob.describe()}."
    for name, x in (("a", oa), ("b", ob)):
        if x.ndim not in (2, 3):
            raise ShapeMismatchError(
                f"attikos.{operation}: {name} has {x.ndim} dimensions; expected 2D tensors, or 3D with a "
                f"batch.{shapes}"
            )
    if oa.dtype is not ob.dtype:
        raise UnsupportedDtypeError(f"attikos.{operation}: the dtypes of a and b must match.{shapes}")
    if oa.dtype not in FLOATING and oa.dtype is not DType.int8:
        raise UnsupportedDtypeError(
            f"attikos.{operation}: unsupported dtype; expected float64, float32, float16, bfloat16 or int8."
            f"{shapes}"
        )
    m, k = oa.shape[-2:] if not trans_a else oa.shape[:-3:-1]
    kb, n = ob.shape[-2:] if not trans_b else ob.shape[:-3:-1]
    if k != kb:
        raise ShapeMismatchError(
            f"attikos.{operation}: incompatible dimensions: op(a) has {k} columns but op(b) has {kb} rows.{shapes}"
        )
    batches = [x.shape[0] for x in (oa, ob) if x.ndim == 3]
    shape: tuple[int, ...] = (m, n)
    if batches:
        if len(set(batches) - {1}) > 1:
            raise ShapeMismatchError(f"attikos.{operation}: the batches of a and b differ.{shapes}")
        shape = (next((x for x in batches if x != 1), 1), m, n)
    dtype = out_dtype or (DType.int32 if oa.dtype is DType.int8 else oa.dtype)
    out = call.result(shape, dtype)
    if beta != 0:
        _copy_into(operation, call, out, call["c"])
    options = _library.GemmOptions(
        alpha=alpha,
        beta=beta,
        scale=scale,
        trans_a=int(trans_a),
        trans_b=int(trans_b),
        activation=activation_number(operation, activation),
        kernel=kernel.encode(),
    )
    options.bias = pointer_or_none(call.get("bias"))
    options.residual = pointer_or_none(call.get("residual"))
    call.run("attikos_gemm", oa, ob, out, options)
    return call.finish()


def _copy_into(operation: str, call: Call, out: Operand, c: Operand) -> None:
    """C is read and written: the result starts as a copy, so that the caller's c stays as it is."""
    if c.shape != out.shape or c.dtype is not out.dtype:
        raise ShapeMismatchError(
            f"attikos.{operation}: c is {c.describe()}; expected {out.describe()}"
        ) if c.shape != out.shape else UnsupportedDtypeError(
            f"attikos.{operation}: c is {c.describe()}; expected {out.describe()}"
        )
    if call.kind is NUMPY:
        np.copyto(out.owner, np.asarray(c.owner))
    elif call.kind is TORCH and c.kind is TORCH:
        out.owner.copy_(c.owner.detach())
    elif c.strides == out.strides:
        size = out.dtype.itemsize * int(np.prod(out.shape, dtype=np.int64))
        _library.library.attikos_copy(call.context.handle, out.data, c.data, size)
    else:
        raise ArgumentError(f"attikos.{operation}: c has strides {c.strides}; expected a dense row-major array")


def gemm(
    a: Any, b: Any, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False, trans_b: bool = False,
    c: Any = None, *, bias: Any = None, residual: Any = None, activation: str | None = None,
    scale: float = 1.0, kernel: str = "",
) -> Any:  # fmt: skip
    """act(scale * (alpha * op(a) * op(b) + beta * c) + bias) + residual as a new array [m, n].

    a [m, k] ([k, m] with trans_a), b [k, n] ([n, k] with trans_b), or with a batch in front; any strides.
    float64, float32, float16 and bfloat16 give their own type, int8 gives int32 (exact, modulo 2^32). bias
    [n], residual of the result's shape; activation none, relu, gelu, gelu_tanh or silu. beta other than 0
    needs c, which is not changed.
    """
    return _product(
        "gemm", a, b, None, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, c=c, bias=bias,
        residual=residual, activation=activation, scale=scale, kernel=kernel,
    )  # fmt: skip


def tensor_core_gemm(a: Any, b: Any, alpha: float = 1.0, beta: float = 0.0, c: Any = None) -> Any:
    """alpha * a * b + beta * c in float32 from float16 (or bfloat16, float32) matrices, summed in float32."""
    dtype = operand_of(a, "a").dtype
    if dtype not in (DType.float16, DType.bfloat16, DType.float32):
        raise UnsupportedDtypeError(
            f"attikos.tensor_core_gemm: a is {dtype.name}; expected float16, bfloat16 or float32"
        )
    return _product("tensor_core_gemm", a, b, DType.float32, alpha=alpha, beta=beta, c=c)


def tensor_core_gemm_int8(a: Any, b: Any) -> Any:
    """a * b of int8 matrices as int32, exact modulo 2^32."""
    dtype = operand_of(a, "a").dtype
    if dtype is not DType.int8:
        raise UnsupportedDtypeError(f"attikos.tensor_core_gemm_int8: a is {dtype.name}; expected int8")
    return _product("tensor_core_gemm_int8", a, b, DType.int32)


def triton_matmul(
    a: Any,
    b: Any,
    block_m: int | None = None,
    block_n: int | None = None,
    block_k: int | None = None,
    use_autotune: bool = True,
) -> Any:
    """a * b of two matrices of one floating type, which the result has too.

    The block sizes are given all or none, positive and within the problem; they are checked, and the tiles
    are those of the kernel that takes the call. use_autotune changes nothing either.
    """
    oa, ob = operand_of(a, "a"), operand_of(b, "b")
    if oa.ndim != 2 or ob.ndim != 2:
        raise ShapeMismatchError(
            f"attikos.triton_matmul: expected 2D tensors; a is {oa.describe()}, b is {ob.describe()}"
        )
    if oa.dtype not in FLOATING:
        raise UnsupportedDtypeError(f"attikos.triton_matmul: unsupported dtype; a is {oa.describe()}")
    blocks = {"block_m": block_m, "block_n": block_n, "block_k": block_k}
    given = {name: size for name, size in blocks.items() if size is not None}
    if given and len(given) < 3:
        raise ArgumentError(f"attikos.triton_matmul: got {', '.join(given)}; expected all three blocks or none")
    if oa.shape[1] == ob.shape[0]:  # else the product itself says what is wrong
        limits = {"block_m": oa.shape[0], "block_n": ob.shape[1], "block_k": oa.shape[1]}
        for name, size in given.items():
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 0 < size <= limits[name]:
                raise ArgumentError(
                    f"attikos.triton_matmul: {name} is {size}; expected an integer in [1, {limits[name]}]"
                )
    return _product("triton_matmul", oa, ob, None)
