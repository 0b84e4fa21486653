# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cross entropy of logits and labels."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from . import _autograd, _border
from ._arguments import choice, integer, real
from ._arrays import Call, Operand, operand_of
from ._dtypes import FLOATING, DType
from ._host import integers
from .errors import ArgumentError, IntegerError, ShapeMismatchError, UnsupportedDtypeError, UnsupportedError
from .rows import merge_leading

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _smoothing(operation: str, value: Any) -> float:
    number = real(operation, "label_smoothing", value)
    if not 0 <= number <= 1:
        raise ArgumentError(f"attikos.{operation}: label_smoothing is {number}; expected a number in [0, 1]")
    return number


def _labeled(operation: str, logits: Any, labels: Any) -> tuple[Operand, Any]:
    """Both as libattikos takes them but for their dimensions."""
    x = operand_of(operation, "logits", logits)
    if x.ndim < 2 or x.shape[-1] == 0:
        raise ShapeMismatchError(
            f"attikos.{operation}: logits is {x.describe()}; expected [..., rows, classes] with at least one class"
        )
    if x.dtype not in FLOATING:
        raise UnsupportedDtypeError(
            f"attikos.{operation}: logits is {x.describe()}; expected float64, float32, float16 or bfloat16"
        )
    labels = _whole(operation, labels)
    given = operand_of(operation, "labels", labels)
    if given.dtype not in (DType.int32, DType.int64):
        raise IntegerError(f"attikos.{operation}: labels is {given.describe()}; expected int32 or int64")
    if given.shape != x.shape[:-1]:
        raise ShapeMismatchError(
            f"attikos.{operation}: labels is {given.describe()}, logits is {x.describe()}; expected the dimensions of "
            "logits but the last"
        )
    return x, given


def _whole(operation: str, labels: Any) -> Any:
    """Integers of other kinds, and lists of them, as those that libattikos takes."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(labels, torch.Tensor):
        return labels.long() if labels.dtype in (torch.int8, torch.int16, torch.uint8) else labels
    if isinstance(labels, np.ndarray) and (labels.dtype.kind not in "iu" or labels.dtype.name in ("int32", "int64")):
        return labels
    return integers(operation, "labels", labels) if isinstance(labels, (list, tuple, np.ndarray)) else labels


def _wide(x: Operand) -> DType:
    return DType.float64 if x.dtype is DType.float64 else DType.float32


def _rows(operation: str, x: Operand, name: str) -> Operand:
    """Numbers of rows as at most two dimensions, joined as merge_leading() joins those of the logits."""
    more = x.view((*x.shape, 1), (*x.strides, 1))
    joined = merge_leading(operation, more, name)
    return joined.view(joined.shape[:-1], joined.strides[:-1])


def losses(logits: Any, labels: Any, label_smoothing: float, ignore_index: int) -> tuple[Any, Any]:
    """Loss and log-sum-exp of every row."""
    operation = "cross_entropy"
    x, given = _labeled(operation, logits, labels)
    call = Call(operation, logits=x, labels=given)
    loss, lse = (call.result(given.shape, _wide(x)) for _ in range(2))
    call.run(
        "attikos_cross_entropy", merge_leading(operation, x, "logits"),
        *(_rows(operation, y, name) for y, name in ((given, "labels"), (loss, "loss"), (lse, "lse"))),
        label_smoothing, ignore_index,
    )  # fmt: skip
    return call.finish()  # type: ignore[no-any-return]


def cross_entropy(
    logits: Any, labels: Any, *, label_smoothing: float = 0.0, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    """-sum(t * log(softmax(logits))) over the classes, t = label_smoothing / classes everywhere and 1 - label_smoothing
    more at the row's label.

    logits [..., rows, classes] of float64, float32, float16 or bfloat16, labels [..., rows] of integers; classes are
    the last dimension (those of torch.nn.functional.cross_entropy are the second). The loss is float64 for float64
    and else float32, also of 16-bit logits. reduction: "mean" over the rows that count (NaN if none does), "sum", or
    "none", which gives [..., rows]; the first two take arrays of NumPy and PyTorch.

    Rows whose label is ignore_index have loss and gradient 0. Labels are read where they lie: one that is no class
    raises nothing, its row has loss and gradient NaN. Logits have a gradient where PyTorch records, of their own type;
    the backward pass reads them again and keeps the log-sum-exp of each row besides.
    """
    operation = "cross_entropy"
    if isinstance(reduction, str) and reduction in _REDUCTIONS:
        done = _border.cross_entropy(logits, labels, label_smoothing, ignore_index, reduction)
        if done is not None:
            loss, is_reduced = done
            finished = is_reduced or reduction == "none"
            return loss if finished else _reduced(operation, loss, labels, ignore_index, reduction)
    smoothing, ignored = _smoothing(operation, label_smoothing), integer(operation, "ignore_index", ignore_index)
    choice(operation, "reduction", reduction, _REDUCTIONS)
    if _border.dispatches(logits, labels):
        loss = _border.operators().cross_entropy(logits, labels, smoothing, ignored)[0]
    elif _autograd.wanted(logits):

        def run(logits: Any, labels: Any) -> Any:
            return losses(logits, labels, smoothing, ignored)

        def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
            found = cross_entropy_backward(
                *inputs, outputs[1], gradients[0], label_smoothing=smoothing, ignore_index=ignored
            )
            return found, None

        loss = _autograd.apply(run, back, (logits, labels))[0]
    else:
        loss = losses(logits, labels, smoothing, ignored)[0]
    return loss if reduction == "none" else _reduced(operation, loss, labels, ignored, reduction)


def _reduced(operation: str, loss: Any, labels: Any, ignored: int, reduction: str) -> Any:
    torch = sys.modules.get("torch")
    if _autograd.explained.get() is not None:
        return loss
    if torch is not None and isinstance(loss, torch.Tensor):
        total = loss.sum()
        counted = torch.as_tensor(labels, device=loss.device) != ignored
        return total if reduction == "sum" else total / counted.sum()
    if isinstance(loss, np.ndarray):
        total = loss.sum()
        if reduction == "sum":
            return total
        count = int((np.asarray(labels) != ignored).sum())
        return total / loss.dtype.type(count) if count else loss.dtype.type(math.nan)
    raise UnsupportedError(
        f'attikos.{operation}: reduction is {reduction!r} of a {type(loss).__name__}; expected "none", or arrays of '
        "NumPy or PyTorch"
    )


def cross_entropy_backward(
    logits: Any, labels: Any, lse: Any, dloss: Any, *, label_smoothing: float = 0.0, ignore_index: int = -100,
    dlogits: Any = None,
) -> Any:  # fmt: skip
    """dlogits of cross_entropy() with reduction "none": dloss * (exp(logits - lse) - t).

    lse [..., rows] is log(sum(exp(logits))) of each row, dloss [..., rows] the gradient of its loss; both float64 for
    float64 and else float32. dlogits may be logits itself, as an array to write into, which saves the memory of one.
    """
    operation = "cross_entropy_backward"
    smoothing, ignored = _smoothing(operation, label_smoothing), integer(operation, "ignore_index", ignore_index)
    x, given = _labeled(operation, logits, labels)
    numbers = {"lse": operand_of(operation, "lse", lse), "dloss": operand_of(operation, "dloss", dloss)}
    for name, y in numbers.items():
        if y.shape != given.shape or y.dtype is not _wide(x):
            kind = ShapeMismatchError if y.shape != given.shape else UnsupportedDtypeError
            raise kind(
                f"attikos.{operation}: {name} is {y.describe()}; expected {_wide(x).name} with the dimensions of "
                f"labels, which is {given.describe()}"
            )
    call = Call(operation, logits=x, labels=given, **numbers)
    target = call.result(x.shape, x.dtype, into=dlogits, name="dlogits")
    call.run(
        "attikos_cross_entropy_backward", merge_leading(operation, x, "logits"),
        *(_rows(operation, y, name) for name, y in (("labels", given), *numbers.items())),
        merge_leading(operation, target, "dlogits"), smoothing, ignored,
    )  # fmt: skip
    return call.finish()
