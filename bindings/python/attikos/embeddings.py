# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of a table that ids name, and the gradient of the table. Gradients flow where PyTorch records them. out and dtable
are arrays of the caller's that results are written into, as in attikos.rows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _autograd, _border, _options
from ._arguments import integer, real
from ._arrays import Call, Operand, operand_of
from ._dtypes import DType, expect_floating
from ._host import whole_numbers, whole_operand
from .errors import ArgumentError, ShapeMismatchError
from .rows import arrived, merge_leading


def _ids(operation: str, ids: Any) -> Any:
    """Ids that libattikos takes; of many dimensions those that lie as one row would."""
    ids = whole_numbers(operation, "ids", ids)
    if getattr(ids, "ndim", 0) <= 2:
        return ids
    return np.ascontiguousarray(ids) if isinstance(ids, np.ndarray) else getattr(ids, "contiguous", lambda: ids)()


def _flat(operation: str, name: str, x: Operand, ids: bool = False) -> Operand:
    """Ids as one or two dimensions, their rows as one more, each joined as the other is."""
    if x.ndim == (0 if ids else 1):
        return x.view((1, *x.shape), (0, *x.strides))
    return merge_leading(operation, x, name, 2 if ids else 3)


def padding_index(operation: str, padding_idx: Any, rows: int) -> int:
    """As libattikos has it; PyTorch's counts from the end where it is negative."""
    if padding_idx is None:
        return -1
    index = integer(operation, "padding_idx", padding_idx)
    if not -rows <= index < rows:
        raise ArgumentError(
            f"attikos.{operation}: padding_idx is {index}; expected None, or one of {rows} rows, from the end where it is "
            "negative"
        )
    return index % rows


def _table(operation: str, table: Any) -> Operand:
    x = operand_of(operation, "table", table)
    expect_floating(operation, "table", x)
    if x.ndim != 2:
        raise ShapeMismatchError(f"attikos.{operation}: table is {x.describe()}; expected [rows, width]")
    return x


def gathered(table: Any, ids: Any, out: Any = None) -> Any:
    """embedding() itself, without what happens around it."""
    operation = "embedding"
    x = _table(operation, table)
    given = whole_operand(operation, "ids", _ids(operation, ids))
    call = Call(operation, table=x, ids=given)
    target = call.result((*given.shape, x.shape[1]), x.dtype, into=out)
    call.run("attikos_embedding", x, _flat(operation, "ids", given, True), _flat(operation, "out", target))
    return call.finish()


def embedding(table: Any, ids: Any, *, padding_idx: int | None = None, out: Any = None) -> Any:
    """table[ids]: the rows of table [rows, width] that ids, integers of any shape, name: [*ids.shape, width].

    table is float64, float32, float16 or bfloat16. Ids are read where they lie: one that is not in [0, rows) raises
    nothing, its row of the result is NaN, and it has no part in the gradient. The gradient of table is
    embedding_backward()'s; that of row padding_idx is zero, as torch.nn.functional.embedding means it.
    """
    operation = "embedding"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(table, torch.Tensor):
        ids = _ids(operation, ids)
        if not isinstance(ids, torch.Tensor):
            ids = torch.as_tensor(ids, device=table.device)
    shape: Any = getattr(table, "shape", ())
    rows = shape[0] if len(shape) == 2 else _table(operation, table).shape[0]
    padding = padding_index(operation, padding_idx, rows)
    if _border.dispatches(table, ids):
        _options.refuse(operation, [] if out is None else ["out"])
        return _border.operators().embedding(table, ids, padding)
    if out is not None:
        return gathered(table, ids, out)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return embedding_backward(given[1], arrived(dout), rows, padding_idx=None if padding < 0 else padding), None

    return _autograd.call(gathered, back, table, ids, unread=(2,))


def embedding_backward(
    ids: Any, dout: Any, rows: int, *, padding_idx: int | None = None, beta: float = 0.0, dtable: Any = None
) -> Any:
    """dtable [rows, width] of embedding(): row r is the sum of the rows of dout [*ids.shape, width] where ids are r,
    + beta * dtable[r].

    Sums are float32 at least and added in an order that the ids alone give: the same bits on every run. dtable is an
    array to write into, which beta other than 0 wants: of the type of dout, or float32 beside 16 bits, in which
    gradients of several steps add up (beta 1, which leaves rows without ids untouched).
    """
    operation = "embedding_backward"
    count, factor = integer(operation, "rows", rows, 0), real(operation, "beta", beta)
    padding = padding_index(operation, padding_idx, count)
    given, d = whole_operand(operation, "ids", _ids(operation, ids)), operand_of(operation, "dout", dout)
    expect_floating(operation, "dout", d)
    if d.shape[:-1] != given.shape or d.ndim != given.ndim + 1:
        raise ShapeMismatchError(
            f"attikos.{operation}: dout is {d.describe()}, ids is {given.describe()}; expected the dimensions of ids and "
            "one more"
        )
    if dtable is None and factor != 0:
        raise ArgumentError(f"attikos.{operation}: beta is {factor} without dtable; expected 0, or a dtable to add to")
    call = Call(operation, dout=d, ids=given)
    wide = (
        dtable is not None and d.dtype.itemsize == 2 and operand_of(operation, "dtable", dtable).dtype is DType.float32
    )
    target = call.result((count, d.shape[-1]), DType.float32 if wide else d.dtype, into=dtable, name="dtable")
    call.run(
        "attikos_embedding_backward", _flat(operation, "ids", given, True), _flat(operation, "dout", d), target, padding,
        factor,
    )  # fmt: skip
    return call.finish()
