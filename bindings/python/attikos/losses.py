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
from ._dtypes import DType, expect_floating
from ._host import whole_numbers, whole_operand
from .errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError, UnsupportedError
from .rows import arrived, merge_leading

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
    expect_floating(operation, "logits", x)
    return x, _labels_of(operation, "logits", x, whole_numbers(operation, "labels", labels))


def _labels_of(operation: str, name: str, x: Operand, labels: Any) -> Operand:
    """One integer for each row of x, which is the argument `name`."""
    given = whole_operand(operation, "labels", labels)
    if given.shape != x.shape[:-1]:
        raise ShapeMismatchError(
            f"attikos.{operation}: labels is {given.describe()}, {name} is {x.describe()}; expected the dimensions of "
            f"{name} but the last"
        )
    return given


def _number_of_rows(operation: str, name: str, number: Any, x: Operand, labels: Operand) -> Operand:
    """One number for each label, of the type that losses of x have."""
    y = operand_of(operation, name, number)
    if y.shape != labels.shape or y.dtype is not _wide(x):
        kind = ShapeMismatchError if y.shape != labels.shape else UnsupportedDtypeError
        raise kind(
            f"attikos.{operation}: {name} is {y.describe()}; expected {_wide(x).name} with the dimensions of "
            f"labels, which is {labels.describe()}"
        )
    return y


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
                *inputs, outputs[1], arrived(gradients[0], 2), label_smoothing=smoothing, ignore_index=ignored
            )
            return found, None

        loss = _autograd.apply(run, back, (logits, labels), unread=(2,))[0]
    else:
        loss = losses(logits, labels, smoothing, ignored)[0]
    if reduction == "none" or (not _border.is_traced() and _autograd.explained.get() is not None):
        return loss
    return _reduced(operation, loss, labels, ignored, reduction)


def _reduced(operation: str, loss: Any, labels: Any, ignored: int, reduction: str) -> Any:
    torch = sys.modules.get("torch")
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
    numbers = {
        name: _number_of_rows(operation, name, y, x, given) for name, y in (("lse", lse), ("dloss", dloss))
    }  # fmt: skip
    call = Call(operation, logits=x, labels=given, **numbers)
    target = call.result(x.shape, x.dtype, into=dlogits, name="dlogits")
    call.run(
        "attikos_cross_entropy_backward", merge_leading(operation, x, "logits"),
        *(_rows(operation, y, name) for name, y in (("labels", given), *numbers.items())),
        merge_leading(operation, target, "dlogits"), smoothing, ignored,
    )  # fmt: skip
    return call.finish()


def _sizes(operation: str, hidden: Any, weight: Any, labels: Any) -> tuple[Operand, Operand, Operand]:
    """All as they are given, once their shapes and types go together."""
    x, w = operand_of(operation, "hidden", hidden), operand_of(operation, "weight", weight)
    expect_floating(operation, "hidden", x)
    expect_floating(operation, "weight", w)
    if x.ndim < 2:
        raise ShapeMismatchError(f"attikos.{operation}: hidden is {x.describe()}; expected [..., rows, width]")
    if w.ndim != 2 or w.shape[0] == 0 or w.shape[1] != x.shape[-1]:
        raise ShapeMismatchError(
            f"attikos.{operation}: weight is {w.describe()}, hidden is {x.describe()}; expected [classes, "
            f"{x.shape[-1]}] with at least one class"
        )
    if w.dtype is not x.dtype:
        raise UnsupportedDtypeError(
            f"attikos.{operation}: weight is {w.describe()}, hidden is {x.describe()}; expected one type"
        )
    labels = whole_numbers(operation, "labels", labels)
    labels = labels.contiguous() if hasattr(labels, "contiguous") else labels
    return x, w, _labels_of(operation, "hidden", x, labels)


class LinearLoss:
    """What calls of linear_cross_entropy() have beside their arrays."""

    def __init__(self, operation: str, label_smoothing: Any, ignore_index: Any, rows_at_once: Any) -> None:
        self.operation = operation
        self.smoothing = _smoothing(operation, label_smoothing)
        self.ignored = integer(operation, "ignore_index", ignore_index)
        self.rows_at_once = integer(operation, "rows_at_once", rows_at_once)
        if self.rows_at_once < 0:
            raise ArgumentError(f"attikos.{operation}: rows_at_once is {rows_at_once}; expected 0 or more")

    @property
    def numbers(self) -> tuple[float, int, int]:
        return self.smoothing, self.ignored, self.rows_at_once

    def run(
        self, hidden: Any, weight: Any, labels: Any, dloss: Any = None, wanted: tuple[bool, bool] = (False, False),
        into: tuple[Any, Any] = (None, None),
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """Losses of the rows, and the gradients of hidden and weight that are wanted, else None."""
        x, w, given = _sizes(self.operation, hidden, weight, labels)
        arrays = {"hidden": x, "weight": w, "labels": given}
        if dloss is not None:
            arrays["dloss"] = _number_of_rows(self.operation, "dloss", dloss, x, given)
        call = Call(self.operation, **arrays)
        loss = call.result(given.shape, _wide(x))
        of_x = call.result(x.shape, x.dtype, into=into[0], name="dhidden") if wanted[0] else None
        of_w = call.result(w.shape, w.dtype, into=into[1], name="dweight") if wanted[1] else None

        def flat(y: Operand | None, name: str, dimensions: int) -> Operand | None:
            return y if y is None else merge_leading(self.operation, y, name, dimensions)

        call.run(
            "attikos_linear_cross_entropy", flat(x, "hidden", 2), w, flat(given, "labels", 1),
            flat(arrays.get("dloss"), "dloss", 1), flat(loss, "loss", 1), flat(of_x, "dhidden", 2), of_w, *self.numbers,
        )  # fmt: skip
        done = call.finish()
        found = iter(done if any(wanted) else (done,))
        return next(found), next(found) if wanted[0] else None, next(found) if wanted[1] else None

    def summed(self, hidden: Any, weight: Any, labels: Any, mean: bool, wanted: tuple[bool, bool]) -> tuple[Any, Any, Any]:
        """Of tensors of PyTorch: the sum or the mean of the losses, and those of its gradients that are wanted, which
        later() is to finish."""
        torch = sys.modules["torch"]
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        share = self._share(labels, mean, wide)
        factor = share.new_ones(()) if hidden.dtype == torch.float16 else share
        losses, *gradients = self.run(hidden, weight, labels, factor.expand(labels.shape) if any(wanted) else None, wanted)
        return (losses.sum() * share, *gradients)

    def later(self, gradient: Any, of_loss: Any, labels: Any, mean: bool, once: bool = False) -> Any:
        """A gradient that summed() found, for what comes after the loss; in its own memory where it is wanted `once`.
        Gradients of float16 had a factor of 1 until now: those of a mean over many rows would have been lost."""
        torch = sys.modules["torch"]
        if gradient.dtype == torch.float16:
            of_loss = of_loss * self._share(labels, mean, of_loss.dtype)
        factor = of_loss.to(gradient.dtype)
        return gradient.mul_(factor) if once else gradient * factor

    def _share(self, labels: Any, mean: bool, dtype: Any) -> Any:
        if not mean:
            return labels.new_ones((), dtype=dtype)
        return (labels != self.ignored).sum().to(dtype).reciprocal()

    def record(self, hidden: Any, weight: Any, labels: Any, reduction: str) -> Any:
        """The loss, with its gradients where PyTorch records."""
        if not _autograd.wanted(hidden, weight):
            loss = self.run(hidden, weight, labels)[0]
            if reduction == "none" or _autograd.explained.get() is not None:
                return loss
            return _reduced(self.operation, loss, labels, self.ignored, reduction)
        mean, wanted = reduction == "mean", (hidden.requires_grad, getattr(weight, "requires_grad", False))

        def run(hidden: Any, weight: Any, labels: Any) -> Any:
            if reduction == "none":
                return self.run(hidden, weight, labels)[0]
            return tuple(x for x in self.summed(hidden, weight, labels, mean, wanted) if x is not None)

        def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
            if reduction == "none":
                again = LinearLoss("linear_cross_entropy_backward", *self.numbers)
                return (*again.run(*inputs, arrived(gradients[0], 1), tuple(needed[:2]))[1:], None)
            found, once = iter(outputs[1:]), _autograd.is_last()
            return *(self.later(next(found), gradients[0], inputs[2], mean, once) if x else None for x in wanted), None

        recorded = _autograd.apply(run, back, (hidden, weight, labels), unread=(3,))
        return recorded if reduction == "none" else recorded[0]


def linear_cross_entropy(
    hidden: Any, weight: Any, labels: Any, *, label_smoothing: float = 0.0, ignore_index: int = -100,
    reduction: str = "mean", rows_at_once: int = 0,
) -> Any:  # fmt: skip
    """cross_entropy() of the logits hidden @ weight.T, of which there are never more than some rows in memory.

    hidden [..., rows, width] and weight [classes, width] of one type, float64, float32, float16 or bfloat16, labels
    [..., rows] of integers; what is not said here is as for cross_entropy(). rows_at_once: rows whose logits are in
    memory, 0 for a tenth of all, but at least 256. Logits are rounded to the type of hidden.

    Where PyTorch records, a call with reduction "mean" or "sum" finds the gradients of hidden and weight with the loss,
    and keeps them instead of the logits; one with "none" computes the logits again in the backward pass. A gradient of
    16 bits is rounded with each of the parts that rows_at_once makes.
    """
    operation = "linear_cross_entropy"
    how = LinearLoss(operation, label_smoothing, ignore_index, rows_at_once)
    choice(operation, "reduction", reduction, _REDUCTIONS)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(hidden, torch.Tensor):
        labels = torch.as_tensor(whole_numbers(operation, "labels", labels), device=hidden.device)
        if _border.dispatches(hidden, weight, labels, casts=True):
            operators = _border.operators()
            if reduction == "none":
                return operators.linear_cross_entropy(hidden, weight, labels, *how.numbers)
            return operators.linear_cross_entropy_total(
                hidden, weight, labels, *how.numbers, reduction == "mean", *_border.asks(hidden, weight)
            )[0]
    return how.record(hidden, weight, labels, reduction)


def linear_cross_entropy_backward(
    hidden: Any, weight: Any, labels: Any, dloss: Any, *, label_smoothing: float = 0.0, ignore_index: int = -100,
    rows_at_once: int = 0, dhidden: Any = None, dweight: Any = None,
) -> Any:  # fmt: skip
    """(dhidden, dweight) of linear_cross_entropy() with reduction "none": with
    d = dloss[..., None] * (softmax(hidden @ weight.T) - t), d @ weight and the sum over the rows of d.T @ hidden.

    dloss [..., rows] is the gradient of each row's loss, float64 for float64 and else float32. dhidden and dweight are
    arrays to write into. Computes the logits.
    """
    how = LinearLoss("linear_cross_entropy_backward", label_smoothing, ignore_index, rows_at_once)
    return how.run(hidden, weight, labels, dloss, (True, True), (dhidden, dweight))[1:]
