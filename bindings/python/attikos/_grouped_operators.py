# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of groups and of counted rows as operators of PyTorch; see _operators. rows: where groups begin, or how many
rows each matrix has."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from . import matmul as _matmul
from ._operator import _gradients, _no_second, _now, _operator

Optionally = Optional[Tensor]

LETTERS = "a", "b", "d"  # of the gradients of a, b and the bias


def _fake(
    a: Any, b: Any, rows: Any, bias: Any, trans_b: Any, activation: Any, out_dtype: Any, keeps: Any, leading: Any = ()
) -> Any:
    shape = (*leading, a.shape[-2], b.shape[-2 if trans_b else -1])
    dtype = out_dtype or (torch.int32 if a.dtype == torch.int8 else torch.float16 if a.element_size() == 1 else a.dtype)
    return a.new_empty(shape, dtype=dtype), a.new_empty(shape if keeps else (0,), dtype=dtype)


def _product(
    operation: str, a: Any, b: Any, rows: Any, bias: Any, trans_b: Any, activation: Any, out_dtype: Any, keeps: Any
) -> Any:
    """The result, and with `keeps` what goes into the activation."""
    found = _matmul.of_rows(
        operation, rows, a, b, out_dtype, bias=bias, trans_b=trans_b, activation=activation, return_pre_activation=keeps
    )
    return found if keeps else (found, found.new_empty((0,)))


@_operator(_fake)
def grouped_gemm(
    a: Tensor, b: Tensor, rows: Tensor, bias: Optionally, trans_b: bool, activation: str,
    out_dtype: Optional[torch.dtype], keeps: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    return _product("grouped_gemm", a, b, rows, bias, trans_b, activation, out_dtype, keeps)


@_operator(lambda a, b, *others: _fake(a, b, *others, leading=b.shape[:1]))
def masked_gemm(
    a: Tensor, b: Tensor, rows: Tensor, bias: Optionally, trans_b: bool, activation: str,
    out_dtype: Optional[torch.dtype], keeps: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    return _product("masked_gemm", a, b, rows, bias, trans_b, activation, out_dtype, keeps)


def _fake_backward(a: Any, b: Any, dout: Any, pre: Any, rows: Any, *others: Any) -> Any:
    wanted = others[-1]
    shapes = ((a.shape, a.dtype), (b.shape, b.dtype), (dout.shape[-1:], dout.dtype))
    return tuple(
        a.new_empty(shape if name in wanted else (0,), dtype=dtype) for name, (shape, dtype) in zip(LETTERS, shapes)
    )


@_operator(_fake_backward)
def rows_gemm_backward(
    a: Tensor, b: Tensor, dout: Tensor, pre: Optionally, rows: Tensor, grouped: bool, trans_b: bool, activation: str,
    wanted: str,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of a, b and the bias ("d"), of which those that are not wanted have no elements."""
    names = dict(zip(LETTERS, ("da", "db", "d_bias")))
    found = _matmul._gradients(
        "gemm_backward", a, b, dout, {name: letter in wanted for letter, name in names.items()}, pre, trans_b=trans_b,
        activation=activation, **{"group_offsets" if grouped else "row_counts": rows},
    )  # fmt: skip
    return tuple(found.get(name, dout.new_empty((0,))) for name in names.values())


def _register(operator: Any, grouped: bool) -> None:
    def saved(inputs: Any, output: Any) -> Any:
        a, b, rows, bias, trans_b, activation, _, keeps = inputs
        return (a, b, rows, output[1] if keeps else None), (trans_b, activation, bias is not None)

    def backward(ctx: Any, dout: Any, d_pre: Any) -> Any:
        a, b, rows, pre = ctx.saved_tensors
        trans_b, activation, has_bias = ctx.rest
        needs = ctx.needs_input_grad
        wanted = "".join(letter for letter, yes in zip(LETTERS, (needs[0], needs[1], has_bias and needs[3])) if yes)
        found = {}
        if dout is not None and wanted:
            given = _now(rows_gemm_backward)(a, b, dout, pre, rows, grouped, trans_b, activation, wanted)
            found = {letter: x for letter, x in zip(LETTERS, given) if letter in wanted}
        return found.get("a"), found.get("b"), None, found.get("d"), None, None, None, None

    _gradients(operator, backward, saved, slice(1, None))


_register(grouped_gemm, True)
_register(masked_gemm, False)
_gradients(rows_gemm_backward, _no_second, lambda inputs, output: ((), None))
