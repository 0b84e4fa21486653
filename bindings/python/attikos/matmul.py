# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _autograd, _library
from ._arrays import (
    COMPUTE, NUMPY, TORCH, Call, Operand, choice, float32_numbers, int32_numbers, operand_of, pointer_or_none,
)  # fmt: skip
from ._dtypes import FLOAT8, FLOATING, DType, dtype_of
from .errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError

_ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}


def activation_number(operation: str, name: str | None) -> int:
    key = "none" if name is None else name
    if key not in _ACTIVATIONS:
        raise ArgumentError(f"attikos.{operation}: activation is {name!r}; expected one of {list(_ACTIVATIONS)}")
    return _ACTIVATIONS[key]


_ACCUMULATE = {"promoted": 0, "fast": 1}
# What goes into an option struct as a tensor, float32 or int32 where it is given as numbers.
_FACTORS = ("scale_a", "scale_b", "scale_out")
_INTEGERS = ("zero_point_a", "zero_point_b", "group_offsets", "row_counts")


def _output_dtype(operation: str, a: Operand, b: Operand, wanted: Any, shapes: str) -> DType:
    """The result's type for operands that go together, with the library's own choice if none is given."""
    narrow = {x.dtype for x in (a, b)} & FLOAT8
    if a.dtype is not b.dtype and not narrow:
        raise UnsupportedDtypeError(f"attikos.{operation}: the dtypes of a and b must match.{shapes}")
    if a.dtype not in FLOATING | FLOAT8 | {DType.int8}:
        raise UnsupportedDtypeError(
            f"attikos.{operation}: unsupported dtype; expected float64, float32, float16, bfloat16, float8 or "
            f"int8.{shapes}"
        )
    if wanted is not None:
        return dtype_of(wanted, "out_dtype")
    if a.dtype is DType.int8:
        return DType.int32
    return DType.float16 if a.dtype in FLOAT8 else a.dtype


def _result_shape(operation: str, a: Operand, b: Operand, trans_a: bool, trans_b: bool, grouped: bool) -> Any:
    shapes = f" a is {a.describe()}, b is {b.describe()}."
    for name, x in (("a", a), ("b", b)):
        if x.ndim not in (2, 3):
            raise ShapeMismatchError(
                f"attikos.{operation}: {name} has {x.ndim} dimensions; expected 2D tensors, or 3D with a "
                f"batch.{shapes}"
            )
    m, k = a.shape[-2:] if not trans_a else a.shape[:-3:-1]
    kb, n = b.shape[-2:] if not trans_b else b.shape[:-3:-1]
    if k != kb:
        raise ShapeMismatchError(
            f"attikos.{operation}: incompatible dimensions: op(a) has {k} columns but op(b) has {kb} rows.{shapes}"
        )
    batches = [x.shape[0] for x in (a, b) if x.ndim == 3]
    if not batches or grouped:
        return (m, n)
    if len(set(batches) - {1}) > 1:
        raise ShapeMismatchError(f"attikos.{operation}: the batches of a and b differ.{shapes}")
    return (next((x for x in batches if x != 1), 1), m, n)


def _product(
    operation: str, a: Any, b: Any, out_dtype: Any, *, alpha: float = 1.0, beta: float = 0.0,
    trans_a: bool = False, trans_b: bool = False, c: Any = None, bias: Any = None, residual: Any = None,
    activation: str | None = None, scale: float = 1.0, kernel: str = "", compute: str = "ieee",
    accumulate: str = "promoted", return_pre_activation: bool = False, **tensors: Any,
) -> Any:  # fmt: skip
    if beta != 0 and c is None:
        raise ArgumentError(f"attikos.{operation}: beta is {beta} but there is no c")
    first = operand_of(a, "a")
    for name, value in tensors.items():
        if value is not None:
            convert = int32_numbers(value, first, name) if name in _INTEGERS else float32_numbers(value, first)
            tensors[name] = convert
    arrays = {"c": c if beta != 0 else None, "bias": bias, "residual": residual, **tensors}
    call = Call(operation, a=first, b=b, **arrays)
    oa, ob = call["a"], call["b"]
    grouped = call.get("group_offsets") is not None
    shape = _result_shape(operation, oa, ob, trans_a, trans_b, grouped)
    dtype = _output_dtype(operation, oa, ob, out_dtype, f" a is {oa.describe()}, b is {ob.describe()}.")
    partial = grouped or call.get("row_counts") is not None  # some rows may be left as they are
    out = call.result(shape, dtype, zeros=partial and beta == 0)
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
        compute=choice(operation, "compute", compute, COMPUTE),
        accumulate=choice(operation, "accumulate", accumulate, _ACCUMULATE),
    )
    for name in ("bias", "residual", *tensors):
        if call.get(name) is not None:
            setattr(options, name, pointer_or_none(call.get(name)))
    if return_pre_activation:
        kind = dtype if dtype in FLOATING else DType.float32
        options.pre_activation = call.result(shape, kind, zeros=partial).pointer()
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
    scale: float = 1.0, kernel: str = "", out_dtype: Any = None, scale_a: Any = None, scale_b: Any = None,
    zero_point_a: Any = None, zero_point_b: Any = None, scale_out: Any = None, compute: str = "ieee",
    accumulate: str = "promoted", return_pre_activation: bool = False,
) -> Any:  # fmt: skip
    """act(scale * (alpha * op(a) * op(b) + beta * c) + bias) + residual as a new array [m, n].

    a [m, k] ([k, m] with trans_a), b [k, n] ([n, k] with trans_b), or with a batch in front; any strides.
    float64, float32, float16 and bfloat16 give their own type (float16 and bfloat16 float32, too, as
    out_dtype), int8 gives int32 (exact, modulo 2^32). bias [n], residual of the result's shape; activation none,
    relu, gelu, gelu_tanh or silu. beta other than 0 needs c, which is not changed.

    float8 (e4m3, e5m2, also beside float16 and bfloat16) and int8 may have scales, a number or float32 per row
    of op(a), per column of op(b) or in blocks of 128 along k, as quantize() writes them; int8 zero points, a
    number or int32 per row or column. out_dtype: float16 (default), bfloat16, float32 or float8_e4m3 for float8;
    int32, int8, float32, float16 or bfloat16 for int8. scale_out divides a result of 8 bits before it is
    rounded as quantize() rounds: finite results saturate, infinities and NaN show. compute (ieee, tf32, tf32x3) and
    accumulate (promoted, fast) say how much precision may go.
    return_pre_activation adds what goes into the activation, for gemm_backward(). Where PyTorch records, a, b,
    bias and residual have gradients, unless there are scales or zero points.
    """
    quantized = dict(scale_a=scale_a, scale_b=scale_b, zero_point_a=zero_point_a, zero_point_b=zero_point_b,
                     scale_out=scale_out)  # fmt: skip
    settings = dict(alpha=alpha, trans_a=trans_a, trans_b=trans_b, activation=activation, scale=scale,
                    compute=compute)  # fmt: skip

    def run(a: Any, b: Any, bias: Any, residual: Any, pre_activation: bool = return_pre_activation) -> Any:
        return _product(
            "gemm", a, b, out_dtype, beta=beta, c=c, bias=bias, residual=residual, kernel=kernel,
            accumulate=accumulate, return_pre_activation=pre_activation, **settings, **quantized,
        )  # fmt: skip

    inputs = (a, b, bias, residual)
    if not _autograd.wanted(*inputs) or any(x is not None for x in quantized.values()):
        return run(*inputs)

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        pre_activation = outputs[1] if len(outputs) > 1 else None
        found = gemm_backward(*inputs[:2], gradients[0], bias=needed[2], pre_activation=pre_activation, **settings)
        return (found[0], found[1], found[2] if needed[2] else None, gradients[0] if needed[3] else None)

    bends = activation not in (None, "none")
    result = _autograd.apply(lambda *given: run(*given, bends or return_pre_activation), back, inputs)
    return result[0] if bends and not return_pre_activation else result


def grouped_gemm(
    a: Any, b: Any, offsets: Any, *, trans_b: bool = False, bias: Any = None, activation: str | None = None,
    out_dtype: Any = None, scale_a: Any = None, scale_b: Any = None, accumulate: str = "promoted", kernel: str = "",
) -> Any:  # fmt: skip
    """Rows [offsets[g], offsets[g + 1]) of a [total, k] times matrix g of b [groups, k, n]: a new array
    [total, n], with 0 in rows of no group. offsets: int32 or int64 [groups + 1], ascending, may lie on the device.
    Types and scales as for gemm()."""
    return _product(
        "grouped_gemm", a, b, out_dtype, trans_b=trans_b, bias=bias, activation=activation, scale_a=scale_a,
        scale_b=scale_b, accumulate=accumulate, kernel=kernel, group_offsets=offsets,
    )  # fmt: skip


def masked_gemm(
    a: Any, b: Any, counts: Any, *, trans_b: bool = False, bias: Any = None, activation: str | None = None,
    out_dtype: Any = None, scale_a: Any = None, scale_b: Any = None, accumulate: str = "promoted", kernel: str = "",
) -> Any:  # fmt: skip
    """The first counts[g] rows of matrix g of a [groups, m, k] times matrix g of b [groups, k, n]: a new array
    [groups, m, n], with 0 in the other rows, which are not read. counts: int32 [groups], may lie on the device.
    Types and scales as for gemm()."""
    return _product(
        "masked_gemm", a, b, out_dtype, trans_b=trans_b, bias=bias, activation=activation, scale_a=scale_a,
        scale_b=scale_b, accumulate=accumulate, kernel=kernel, row_counts=counts,
    )  # fmt: skip


def gemm_backward(
    a: Any, b: Any, dout: Any, *, alpha: float = 1.0, trans_a: bool = False, trans_b: bool = False,
    bias: bool = False, activation: str | None = None, pre_activation: Any = None, scale: float = 1.0,
    compute: str = "ieee", kernel: str = "",
) -> tuple[Any, ...]:  # fmt: skip
    """(da, db) of gemm(), and with `bias` the gradient of the bias, from the gradient of its result.

    a, b and the options are those of gemm(); with an activation, pre_activation is what gemm() returned with
    return_pre_activation. da and db have the shapes of a and b, summed over the batch where they have none. The
    gradient of the residual is dout.
    """
    call = Call("gemm_backward", a=a, b=b, dout=dout, pre_activation=pre_activation)
    options = _library.GemmOptions(
        alpha=alpha,
        scale=scale,
        trans_a=int(trans_a),
        trans_b=int(trans_b),
        activation=activation_number("gemm_backward", activation),
        compute=choice("gemm_backward", "compute", compute, COMPUTE),
        kernel=kernel.encode(),
    )
    options.pre_activation = pointer_or_none(call.get("pre_activation"))
    given = call["dout"]
    gradients = _library.GemmGradients()
    for name in ("a", "b"):
        setattr(gradients, "d" + name, call.result(call[name].shape, call[name].dtype).pointer())
    if bias:
        gradients.d_bias = call.result(given.shape[-1:], given.dtype).pointer()
    call.run("attikos_gemm_backward", call["a"], call["b"], given, gradients, options)
    found: tuple[Any, ...] = call.finish()
    return found


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
