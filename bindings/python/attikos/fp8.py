# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of 8 bits: quantization, and products in float8 (OCP E4M3)."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from . import _autograd, _library
from ._arguments import Caller, choice
from ._arrays import NUMPY, TORCH, Call, Operand, operand_of
from ._dtypes import FLOAT8, FLOATING, DType, dtype_of, expect_floating
from ._host import float32_numbers
from .errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError
from .rows import merge_leading

_OUTPUTS = (DType.float16, DType.bfloat16, DType.float32)


def _storage(kind: Any) -> DType:
    """Float8 where the caller's library has it, else the same bytes as uint8."""
    if kind is NUMPY and importlib.util.find_spec("ml_dtypes") is None:
        return DType.uint8
    if kind is TORCH and not hasattr(sys.modules["torch"], "float8_e4m3fn"):
        return DType.uint8
    return DType.float8_e4m3


def as_float8(x: Operand) -> Operand:
    """uint8 storage seen as what it holds."""
    if x.dtype is not DType.uint8:
        return x
    seen = Operand(x.data, x.shape, x.strides, DType.float8_e4m3, x.place, x.kind, x.owner)
    seen.shown = x.shown
    return seen


def _matrices(operation: str, x: Operand) -> Operand:
    if x.ndim == 0:
        return x.view((1, 1), (1, 1))
    if x.ndim == 1:
        return x.view((1, *x.shape), (1, *x.strides))
    return merge_leading(operation, x)


def quantize_fp8(x: Any) -> tuple[Any, Any]:
    """(x_fp8, scale) with x = scale * x_fp8: E4M3 elements of the shape of x, and one float32 number.

    scale is max|x| / 448 over the finite elements, with a floor, so that zeros stay zeros. E4M3 has no infinity:
    infinities and NaN become NaN. NumPy without ml_dtypes and a PyTorch without float8 get the bytes as uint8.
    """
    call = Call("quantize_fp8", x=x)
    ox = call["x"]
    expect_floating("quantize_fp8", "x", ox)
    out = call.result(ox.shape, _storage(call.kind))
    scale = call.result((), DType.float32)
    target = _matrices("quantize_fp8", as_float8(out))
    call.run("attikos_quantize", _matrices("quantize_fp8", ox), target, scale)
    found = call.finish()
    return found[0], found[1]


_GRANULARITIES = ("tensor", "row", "column", "1x128", "128x1", "128x128")


def _scale_shape(granularity: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if granularity == "tensor":
        return ()
    rows, cols = shape[-2:]
    blocks = (-(-rows // 128), -(-cols // 128))
    sizes = {"row": (rows, 1), "column": (1, cols), "1x128": (rows, blocks[1]), "128x1": (blocks[0], cols)}
    return (*shape[:-2], *sizes.get(granularity, blocks))


def quantize(
    x: Any, dtype: Any = DType.float8_e4m3, granularity: str = "tensor", scale: Any = None, *, out: Any = None
) -> tuple[Any, Any]:
    """(codes, scale) with x = scale * codes: elements of 8 bits of the shape of x, float32 factors.

    x [rows, cols] or [batch, rows, cols]; dtype float8_e4m3, float8_e5m2 or int8. granularity: which elements
    share a factor, "tensor", "row", "column", "1x128", "128x1" or "128x128" (blocks of rows x columns). A scale
    that is given (a number, or positive factors in one of those shapes) is used as it is. Values are rounded to
    nearest, ties to even; finite ones saturate, zeros stay zeros. Scales come from finite elements alone: infinities
    become NaN in float8_e4m3, stay in float8_e5m2 and become +-127 in int8, NaN stays NaN (0 in int8). out: the array
    that codes are written into, of the shape of x and elements of dtype.
    """
    choice("quantize", "granularity", granularity, dict.fromkeys(_GRANULARITIES, 0))
    kind = dtype_of(dtype, "dtype")
    first = operand_of("quantize", "x", x)
    if first.dtype not in FLOATING or kind not in FLOAT8 | {DType.int8}:
        raise UnsupportedDtypeError(
            f"attikos.quantize: x is {first.describe()}, dtype is {kind.name}; expected a floating type, and "
            "float8_e4m3, float8_e5m2 or int8"
        )
    if first.ndim not in (2, 3):
        raise ShapeMismatchError(f"attikos.quantize: x is {first.describe()}; expected 2 or 3 dimensions")
    factor = None if scale is None else float32_numbers("quantize", "scale", scale, first)
    call = Call("quantize", x=first, scale=factor)
    target = call.result(first.shape, kind, into=out)
    if scale is not None:
        call.run("attikos_quantize_with_scale", first, call["scale"], target)
        return call.finish(), scale
    factors = call.result(_scale_shape(granularity, first.shape), DType.float32)
    call.run("attikos_quantize", first, target, factors)
    codes, found = call.finish()
    return codes, found


def dequantize(x: Any, scale: Any, out_dtype: Any = DType.float32, *, out: Any = None) -> Any:
    """scale * x for elements of 8 bits; scale a number or factors in one of the shapes that quantize() writes. out: the
    array that is written and returned, of the shape of x and elements of out_dtype."""
    first = operand_of("dequantize", "x", x)
    call = Call("dequantize", x=first, scale=float32_numbers("dequantize", "scale", scale, first))
    target = call.result(first.shape, dtype_of(out_dtype, "out_dtype"), into=out)
    call.run("attikos_dequantize", first, call["scale"], target)
    return call.finish()


def dequantize_fp8(x: Any, scale: Any, output_dtype: Any = DType.float16) -> Any:
    """scale * x for E4M3 elements (or uint8 storage of them)."""
    first = operand_of("dequantize_fp8", "x", x)
    call = Call("dequantize_fp8", x=first, scale=float32_numbers("dequantize_fp8", "scale", scale, first))
    ox = as_float8(call["x"])
    out = call.result(ox.shape, dtype_of(output_dtype, "output_dtype"))
    target = _matrices("dequantize_fp8", out)
    call.run("attikos_dequantize", _matrices("dequantize_fp8", ox), call["scale"], target)
    return call.finish()


def _quantized(name: str, x: Any, scale: Any) -> tuple[Any, Any]:
    """An operand as float8 with its scale; floats are quantized here."""
    operand = operand_of("fp8_gemm", name, x)
    if operand.dtype in FLOATING:
        if scale is not None:
            raise ArgumentError(f"attikos.fp8_gemm: {name} is {operand.describe()}, not quantized, but has a scale")
        return quantize_fp8(operand.owner if operand.kind in (NUMPY, TORCH) else x)
    if operand.dtype not in (DType.float8_e4m3, DType.uint8):
        raise UnsupportedDtypeError(
            f"attikos.fp8_gemm: {name} is {operand.describe()}; expected a floating type, float8_e4m3 or uint8"
        )
    if scale is None:
        raise ArgumentError(f"attikos.fp8_gemm: {name} is quantized but {name}_scale is missing")
    return x, float32_numbers("fp8_gemm", f"{name}_scale", scale, operand)


def fp8_gemm(
    a: Any, b: Any, a_scale: Any = None, b_scale: Any = None, output_dtype: Any = DType.float16
) -> Any:
    """a * b in float8: [M, K] times [K, N] with float32 sums, as float16, bfloat16 or float32.

    Floating operands are quantized here, with one scale each; float8 (E4M3) operands and their uint8 storage
    come with their scales: one number, or factors per row, per column or block as libattikos takes them. There are
    no gradients: where PyTorch records, an array that asks for one raises UnsupportedError.
    """
    _autograd.refuse("fp8_gemm", {"a": a, "b": b, "a_scale": a_scale, "b_scale": b_scale})
    dtype = dtype_of(output_dtype, "output_dtype")
    if dtype not in _OUTPUTS:
        raise UnsupportedDtypeError(
            f"attikos.fp8_gemm: output_dtype is {dtype.name}; expected float16, bfloat16 or float32"
        )
    shapes = operand_of("fp8_gemm", "a", a), operand_of("fp8_gemm", "b", b)
    text = f"a is {shapes[0].describe()}, b is {shapes[1].describe()}"
    if shapes[0].ndim != 2 or shapes[1].ndim != 2:
        raise ShapeMismatchError(f"attikos.fp8_gemm: expected 2D tensors; {text}")
    if shapes[0].shape[1] != shapes[1].shape[0]:
        raise ShapeMismatchError(f"attikos.fp8_gemm: incompatible dimensions; {text}")
    (a, a_scale), (b, b_scale) = _quantized("a", a, a_scale), _quantized("b", b, b_scale)
    operation = Caller("fp8_gemm", scale_a="a_scale", scale_b="b_scale")
    call = Call(operation, a=a, b=b, a_scale=a_scale, b_scale=b_scale)
    for name in ("a_scale", "b_scale"):
        if call[name].dtype is not DType.float32:
            raise UnsupportedDtypeError(f"attikos.fp8_gemm: {name} is {call[name].describe()}; expected float32")
    out = call.result((shapes[0].shape[0], shapes[1].shape[1]), dtype)
    options = _library.GemmOptions()
    options.scale_a, options.scale_b = call["a_scale"].pointer(), call["b_scale"].pointer()
    call.run("attikos_gemm", as_float8(call["a"]), as_float8(call["b"]), out, options)
    return call.finish()
