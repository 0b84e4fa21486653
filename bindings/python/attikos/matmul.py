# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _autograd, _border, _library, _options
from ._arguments import ACTIVATIONS, Caller, choice, flag, integer, real
from ._arrays import NUMPY, TORCH, Call, Operand, operand_of, pointer_or_none
from ._dtypes import FLOAT8, FLOATING, DType, dtype_of
from ._host import float32_numbers, int32_numbers
from .errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError, UnsupportedError
from .packed import PackedB


def activation_number(operation: str, name: str | None) -> int:
    return choice(operation, "activation", "none" if name is None else name, ACTIVATIONS)


# What goes into an option struct as a float32 tensor where it is given as numbers; the others are int32.
_FACTORS = ("scale_a", "scale_b", "scale_out")
_VECTORS = ("scale_out", "zero_point_a", "zero_point_b")  # of rank 1 in C, where one may be a scalar here


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


# The options that are no arrays, by their names here and in the library, with their kinds.
_SCALARS = {name: kind for kind, name in _library.GemmOptions.SCALARS}


def _numbers(operation: str, **given: Any) -> Any:
    """The options that are no arrays; activation may be None."""
    if "activation" in given and given["activation"] is None:
        given["activation"] = "none"
    return _library.GemmOptions(
        **{name: _options.read(operation, _SCALARS[name], name, value) for name, value in given.items()}
    )


def _converted(operation: str, name: str, value: Any, like: Operand) -> Any:
    """One of the arrays that may be given as numbers."""
    if name == "packed_b":
        return value
    if name in _VECTORS and getattr(value, "ndim", 1) == 0 and not isinstance(value, np.generic):
        value = value.reshape(1)
    if value is None or name in _FACTORS:
        return float32_numbers(operation, name, value, like)
    if name == "group_offsets" and str(getattr(value, "dtype", "")).rpartition(".")[2] == "int64":
        operand = operand_of(operation, name, value)  # 64 bits are taken as they are
        if operand.place == like.place:
            return operand
    return int32_numbers(operation, name, value, like)


def _product(
    operation: str, a: Any, b: Any, out_dtype: Any = None, *, alpha: Any = 1.0, beta: Any = 0.0, trans_a: Any = False,
    trans_b: Any = False, c: Any = None, bias: Any = None, residual: Any = None, activation: Any = None,
    scale: Any = 1.0, kernel: Any = "", compute: Any = "ieee", accumulate: Any = "promoted",
    return_pre_activation: bool = False, **others: Any,
) -> Any:  # fmt: skip
    """others: further options of the library, arrays or numbers."""
    more = {name: value for name, value in others.items() if name in _SCALARS}
    tensors = {name: value for name, value in others.items() if name not in more}
    plain = not more and all(x is None for x in tensors.values())
    if plain and c is None and out_dtype is None and not return_pre_activation:
        done = _border.gemm(
            a, b, bias, residual, alpha, beta, scale, trans_a, trans_b, activation, compute, accumulate, kernel
        )
        if done is not None:
            return done
    options = _numbers(
        operation, alpha=alpha, beta=beta, scale=scale, trans_a=trans_a, trans_b=trans_b, activation=activation,
        kernel=kernel, compute=compute, accumulate=accumulate, **more,
    )  # fmt: skip
    if options.beta != 0 and c is None:
        raise ArgumentError(f"attikos.{operation}: beta is {beta} but there is no c")
    first = operand_of(operation, "a", a)
    tensors = {name: _converted(operation, name, value, first) for name, value in tensors.items()}
    arrays = {"c": c if options.beta != 0 else None, "bias": bias, "residual": residual, **tensors}
    call = Call(operation, a=first, b=b, **arrays)
    oa, ob = call["a"], call["b"]
    grouped = call.get("group_offsets") is not None
    shape = _result_shape(operation, oa, ob, bool(options.trans_a), bool(options.trans_b), grouped)
    dtype = _output_dtype(operation, oa, ob, out_dtype, f" a is {oa.describe()}, b is {ob.describe()}.")
    partial = grouped or call.get("row_counts") is not None  # some rows may be left as they are
    out = call.result(shape, dtype, zeros=partial and options.beta == 0)
    if options.beta != 0:
        _copy_into(operation, call, out, call["c"])
    for name in ("bias", "residual", *tensors):
        if call.get(name) is not None:
            setattr(options, name, pointer_or_none(call.get(name)))
    if return_pre_activation:
        kind = dtype if dtype in FLOATING else DType.float32
        options.pre_activation = call.result(shape, kind, zeros=partial).pointer()
    call.run("attikos_gemm", oa, ob, out, options)
    return call.finish()


def _differentiable_product(
    operation: str, a: Any, b: Any, out_dtype: Any = None, *, c: Any = None, bias: Any = None, residual: Any = None,
    beta: Any = 0.0, kernel: Any = "", accumulate: Any = "promoted", return_pre_activation: bool = False,
    group_offsets: Any = None, row_counts: Any = None, quantized: dict[str, Any] | None = None, **settings: Any,
) -> Any:  # fmt: skip
    """_product(), recorded where PyTorch wants it. settings are those that the gradients depend on; what is quantized
    has none."""
    rows = {"group_offsets": group_offsets, "row_counts": row_counts}
    quantized = {name: value for name, value in (quantized or {}).items() if value is not None}

    def run(a: Any, b: Any, bias: Any, residual: Any, c: Any, pre_activation: bool = return_pre_activation) -> Any:
        return _product(
            operation, a, b, out_dtype, beta=beta, c=c, bias=bias, residual=residual, kernel=kernel,
            accumulate=accumulate, return_pre_activation=pre_activation, **settings, **rows, **quantized,
        )  # fmt: skip

    inputs = (a, b, bias, residual, c)
    if quantized or not _autograd.wanted(*inputs):
        return run(*inputs)
    if not {operand_of(operation, "a", a).dtype, operand_of(operation, "b", b).dtype} <= FLOATING:
        return run(*inputs)
    if row_counts is not None and a.requires_grad and (a.ndim < 3 or a.shape[0] != b.shape[0]):
        raise UnsupportedError(
            f"attikos.{operation}: a requires a gradient but is shared by matrices of counted rows; expected one a for "
            "each of them, or a.detach()"
        )
    if c is not None and beta == 0:
        inputs = (a, b, bias, residual, None)
    bends = settings.get("activation") not in (None, "none")

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        wanted = {"da": needed[0], "db": needed[1], "d_bias": needed[2], "d_c": needed[4]}
        saved = outputs[1] if bends else None
        found: dict[str, Any] = {}
        for dout, pre in ((gradients[0], saved), *((g, None) for g in gradients[1:])):
            if dout is None or not any(wanted.values()):
                continue
            own = settings if dout is gradients[0] else {**settings, "activation": None}
            more = _gradients("gemm_backward", *inputs[:2], dout, wanted, pre, beta=beta, **rows, **own)
            found = {name: found[name] + x if name in found else x for name, x in more.items()}
        return (found.get("da"), found.get("db"), found.get("d_bias"), gradients[0], found.get("d_c"))

    both = bends or return_pre_activation
    unread = (5, 6) if both and not bends else (5,)  # the result, and what goes into no activation
    result = _autograd.apply(lambda *given: run(*given, both), back, inputs, 2, unread)
    return result[0] if both and not return_pre_activation else result


def _copy_into(operation: str, call: Call, out: Operand, c: Operand) -> None:
    """C is read and written: the result starts as a copy, so that the caller's c stays as it is."""
    if c.shape != out.shape or c.dtype is not out.dtype:
        error = ShapeMismatchError if c.shape != out.shape else UnsupportedDtypeError
        raise error(
            f"attikos.{operation}: c is {c.describe()}; expected {out.describe()}, where a is {call['a'].describe()} "
            f"and b is {call['b'].describe()}"
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


@_library.documented("gemm")
def gemm(
    a: Any, b: Any, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False, trans_b: bool = False,
    c: Any = None, *, bias: Any = None, residual: Any = None, activation: str | None = None,
    scale: float = 1.0, kernel: str = "", out_dtype: Any = None, scale_a: Any = None, scale_b: Any = None,
    zero_point_a: Any = None, zero_point_b: Any = None, scale_out: Any = None, compute: str = "ieee",
    accumulate: str = "promoted", return_pre_activation: bool = False,
) -> Any:  # fmt: skip
    """act(scale * (alpha * op(a) * op(b) + beta * c) + bias) + residual as a new array [m, n].

    a [m, k] ([k, m] with trans_a), b [k, n] ([n, k] with trans_b), or with a batch in front; any strides. On hosts b
    may be what pack_b() made of one of two dimensions, with the same bits.
    float64, float32, float16 and bfloat16 give their own type (float16 and bfloat16 float32, too, as
    out_dtype), int8 gives int32 (exact, modulo 2^32). bias [n], residual of the result's shape; activation none,
    relu, gelu, gelu_tanh or silu. beta other than 0 needs c, which is not changed.

    float8 (e4m3, e5m2, also beside float16 and bfloat16) and int8 may have scales, a number or float32 per row
    of op(a), per column of op(b) or in blocks of 128 along k, as quantize() writes them; int8 zero points, a
    number or int32 per row or column. out_dtype: float16 (default), bfloat16, float32 or float8_e4m3 for float8;
    int32, int8, float32, float16 or bfloat16 for int8. scale_out divides a result of 8 bits before it is
    rounded as quantize() rounds: finite results saturate, infinities and NaN show. compute (ieee, tf32, tf32x3) and
    accumulate (promoted, fast) say how much precision may go.
    return_pre_activation adds what goes into the activation, for gemm_backward(). Where PyTorch records, a, b, c,
    bias and residual have gradients; beside scales, zero points and elements of 8 bits one that is asked for raises
    UnsupportedError.
    """
    more = _options.given(_LATER, {}) if _LATER else {}
    packed = isinstance(b, PackedB)
    if (
        c is None and scale_a is None and scale_b is None and zero_point_a is None and zero_point_b is None
        and scale_out is None and return_pre_activation is False and not more
    ):  # fmt: skip
        right, memory = (b.beside(a), b.memory) if packed else (b, None)
        done = _border.gemm(
            a, right, bias, residual, alpha, beta, scale, trans_a, trans_b, activation, compute, accumulate, kernel,
            True, memory, out_dtype,
        )  # fmt: skip
        if done is not None:
            return done
    return_pre_activation = flag("gemm", "return_pre_activation", return_pre_activation)
    quantized = dict(scale_a=scale_a, scale_b=scale_b, zero_point_a=zero_point_a, zero_point_b=zero_point_b,
                     scale_out=scale_out)  # fmt: skip
    if packed:
        a = operand_of("gemm", "a", a)
        quantized["packed_b"], b = operand_of("gemm", "packed_b", b.memory), b.stand_in(a.kind)
    elif _border.dispatches(a, b, bias, residual, c, casts=True):
        return _dispatched(
            a, b, c, bias, residual, alpha, beta, scale, trans_a, trans_b, activation, compute, out_dtype,
            return_pre_activation,
            _options.strange(_BEYOND, {**quantized, "kernel": kernel, "accumulate": accumulate, **more}),
        )  # fmt: skip
    return _differentiable_product(
        "gemm", a, b, out_dtype, c=c, bias=bias, residual=residual, beta=beta, kernel=kernel, accumulate=accumulate,
        return_pre_activation=return_pre_activation, quantized=quantized, alpha=alpha, trans_a=trans_a,
        trans_b=trans_b, activation=activation, scale=scale, compute=compute, **more,
    )  # fmt: skip


# What the short way takes at its default alone beside what gemm() itself looks at, and what the operator does.
_SELDOM = ("c", "out_dtype", "scale_a", "scale_b", "zero_point_a", "zero_point_b", "scale_out", "return_pre_activation")
_LATER = _options.later("gemm", gemm, _border.gemm, *_SELDOM)
_BEYOND = {
    **dict.fromkeys(("scale_a", "scale_b", "zero_point_a", "zero_point_b", "scale_out")), "kernel": "",
    "accumulate": "promoted", **_LATER,
}  # fmt: skip


def _dispatched(
    a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: Any, beta: Any, scale: Any, trans_a: Any, trans_b: Any,
    activation: Any, compute: Any, out_dtype: Any, return_pre_activation: Any, others: list[str],
) -> Any:  # fmt: skip
    """The call as an operator of PyTorch, which has none of the others."""
    _operators = _border.operators()
    _options.refuse("gemm", others)
    activation = activation or "none"
    out, pre = _operators.gemm(
        a, b, c, bias, residual, alpha, beta, scale, trans_a, trans_b, activation, compute, _of_torch(out_dtype),
        return_pre_activation or activation != "none",
    )  # fmt: skip
    return (out, pre) if return_pre_activation else out


def _of_torch(dtype: Any) -> Any:
    """A type, None too, as one of PyTorch."""
    torch = sys.modules["torch"]
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    return getattr(torch, dtype if isinstance(dtype, str) else dtype_of(dtype).name)


# What says which rows belong to which matrix, in the library's words and in those of the function.
_ROWS = {"grouped_gemm": ("group_offsets", "offsets"), "masked_gemm": ("row_counts", "counts")}
_BEYOND_ROWS = {"scale_a": None, "scale_b": None, "accumulate": "promoted", "kernel": ""}


def of_rows(operation: str, rows: Any, *operands: Any, **settings: Any) -> Any:
    """The product as PyTorch records it."""
    name, word = _ROWS[operation]
    return _differentiable_product(Caller(operation, **{name: word}), *operands, **{name: rows}, **settings)


def _product_of_rows(
    operation: str, rows: Any, a: Any, b: Any, bias: Any, trans_b: Any, activation: Any, out_dtype: Any, **others: Any
) -> Any:
    strange = _options.strange(_BEYOND_ROWS, others)
    if _border.dispatches(a, b, bias, casts=not strange):
        operators = _border.operators()
        _options.refuse(operation, strange)
        if not isinstance(rows, operators.torch.Tensor):
            rows = operators.torch.as_tensor(rows, device=a.device)
        activation = activation or "none"
        arguments = (bias, trans_b, activation, _of_torch(out_dtype), activation != "none")
        return getattr(operators, operation)(a, b, rows, *arguments)[0]
    scales = {name: others.pop(name) for name in ("scale_a", "scale_b")}
    return of_rows(
        operation, rows, a, b, out_dtype, bias=bias, trans_b=trans_b, activation=activation, quantized=scales, **others
    )


def grouped_gemm(
    a: Any, b: Any, offsets: Any, *, trans_b: bool = False, bias: Any = None, activation: str | None = None,
    out_dtype: Any = None, scale_a: Any = None, scale_b: Any = None, accumulate: str = "promoted", kernel: str = "",
) -> Any:  # fmt: skip
    """Rows [offsets[g], offsets[g + 1]) of a [total, k] times matrix g of b [groups, k, n]: a new array
    [total, n], with 0 in rows of no group. offsets: int32 or int64 [groups + 1], ascending, may lie on the device.
    Types, scales and gradients as for gemm(); those of b and bias are sums over the rows of a group."""
    if offsets is None:
        raise ArgumentError("attikos.grouped_gemm: offsets is None; expected the first row of every group")
    return _product_of_rows(
        "grouped_gemm", offsets, a, b, bias, trans_b, activation, out_dtype, scale_a=scale_a, scale_b=scale_b,
        accumulate=accumulate, kernel=kernel,
    )  # fmt: skip


def masked_gemm(
    a: Any, b: Any, counts: Any, *, trans_b: bool = False, bias: Any = None, activation: str | None = None,
    out_dtype: Any = None, scale_a: Any = None, scale_b: Any = None, accumulate: str = "promoted", kernel: str = "",
) -> Any:  # fmt: skip
    """The first counts[g] rows of matrix g of a [groups, m, k] times matrix g of b [groups, k, n]: a new array
    [groups, m, n], with 0 in the other rows, which are not read. counts: int32 [groups], may lie on the device.
    Types, scales and gradients as for gemm()."""
    if counts is None:
        raise ArgumentError("attikos.masked_gemm: counts is None; expected a number of rows for every matrix")
    return _product_of_rows(
        "masked_gemm", counts, a, b, bias, trans_b, activation, out_dtype, scale_a=scale_a, scale_b=scale_b,
        accumulate=accumulate, kernel=kernel,
    )  # fmt: skip


def gemm_backward(
    a: Any, b: Any, dout: Any, *, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False, trans_b: bool = False,
    bias: bool = False, activation: str | None = None, pre_activation: Any = None, scale: float = 1.0,
    compute: str = "ieee", kernel: str = "", offsets: Any = None, counts: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """(da, db) of gemm(), and with `bias` the gradient of the bias, from the gradient of its result; with beta other
    than 0 that of c comes last.

    a, b and the options are those of gemm(); with an activation, pre_activation is what gemm() returned with
    return_pre_activation. da and db have the shapes of a and b, summed over the batch where they have none. The
    gradient of the residual is dout. With offsets or counts the call is that of grouped_gemm() or masked_gemm(): rows
    that do not count have gradients of 0 and are not read.
    """
    operation = Caller("gemm_backward", group_offsets="offsets", row_counts="counts")
    wanted = {"da": True, "db": True, "d_bias": flag(operation, "bias", bias),
              "d_c": real(operation, "beta", beta) != 0}  # fmt: skip
    found = _gradients(
        operation, a, b, dout, wanted, pre_activation, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b,
        activation=activation, scale=scale, compute=compute, kernel=kernel, group_offsets=offsets, row_counts=counts,
    )  # fmt: skip
    return tuple(found.values())


def _gradients(
    operation: str, a: Any, b: Any, dout: Any, wanted: dict[str, bool], pre_activation: Any, *, alpha: Any = 1.0,
    beta: Any = 0.0, trans_a: Any = False, trans_b: Any = False, activation: Any = None, scale: Any = 1.0,
    compute: Any = "ieee", kernel: Any = "", group_offsets: Any = None, row_counts: Any = None, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """Those of da, db, d_bias and d_c that are wanted. more: further options of the library that are no arrays."""
    options = _numbers(
        operation, alpha=alpha, beta=beta, scale=scale, trans_a=trans_a, trans_b=trans_b, activation=activation,
        compute=compute, kernel=kernel, **more,
    )  # fmt: skip
    first = operand_of(operation, "a", a)
    rows = {"group_offsets": group_offsets, "row_counts": row_counts}
    rows = {name: _converted(operation, name, value, first) for name, value in rows.items()}
    call = Call(operation, a=first, b=b, dout=dout, pre_activation=pre_activation, **rows)
    for name in ("pre_activation", *rows):
        setattr(options, name, pointer_or_none(call.get(name)))
    given = call["dout"]
    shapes = {"da": (call["a"].shape, call["a"].dtype), "db": (call["b"].shape, call["b"].dtype),
              "d_bias": (given.shape[-1:], given.dtype), "d_c": (given.shape, given.dtype)}  # fmt: skip
    partial = any(call.get(name) is not None for name in rows)  # some rows may be left as they are
    names = [name for name, yes in wanted.items() if yes]
    gradients = _library.GemmGradients()
    for name in names:
        setattr(gradients, name, call.result(*shapes[name], zeros=partial).pointer())
    call.run("attikos_gemm_backward", call["a"], call["b"], given, gradients, options)
    found = call.finish()
    return dict(zip(names, found if isinstance(found, tuple) else (found,)))


def tensor_core_gemm(a: Any, b: Any, alpha: float = 1.0, beta: float = 0.0, c: Any = None) -> Any:
    """alpha * a * b + beta * c in float32 from float16 (or bfloat16, float32) matrices, summed in float32; gradients
    as for gemm()."""
    if _border.dispatches(a, b, c, casts=True):
        return gemm(a, b, alpha, beta, c=c, out_dtype="float32")
    dtype = operand_of("tensor_core_gemm", "a", a).dtype
    if dtype not in (DType.float16, DType.bfloat16, DType.float32):
        raise UnsupportedDtypeError(
            f"attikos.tensor_core_gemm: a is {dtype.name}; expected float16, bfloat16 or float32"
        )
    return _differentiable_product("tensor_core_gemm", a, b, DType.float32, alpha=alpha, beta=beta, c=c)


def tensor_core_gemm_int8(a: Any, b: Any) -> Any:
    """a * b of int8 matrices as int32, exact modulo 2^32."""
    dtype = operand_of("tensor_core_gemm_int8", "a", a).dtype
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
    are those of the kernel that takes the call. use_autotune changes nothing either. Gradients as for gemm().
    """
    if _border.dispatches(a, b, casts=True):
        return gemm(a, b)
    oa, ob = operand_of("triton_matmul", "a", a), operand_of("triton_matmul", "b", b)
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
            integer("triton_matmul", name, size, 1, limits[name])
    return _differentiable_product("triton_matmul", a, b)
