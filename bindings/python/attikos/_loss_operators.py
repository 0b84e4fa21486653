# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses as operators of PyTorch; see _operators."""

from typing import Any, Tuple

import torch
from torch import Tensor

from . import losses as _losses
from ._operator import _gradients, _like, _no_second, _now, _operator
from .rows import arrived


@_operator(lambda logits, labels, label_smoothing, ignore_index: _of_labels(logits, labels))
def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float, ignore_index: int) -> Tuple[Tensor, Tensor]:
    return _losses.losses(logits, labels, label_smoothing, ignore_index)


@_operator(_like)
def cross_entropy_backward(
    logits: Tensor, labels: Tensor, lse: Tensor, dloss: Tensor, label_smoothing: float, ignore_index: int
) -> Tensor:
    return _losses.cross_entropy_backward(
        logits, labels, lse, arrived(dloss, 2), label_smoothing=label_smoothing, ignore_index=ignore_index
    )


def _of_rows(x: Tensor, shape: Any) -> Tensor:
    return torch.empty(shape, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32, device=x.device)


def _of_labels(logits: Tensor, labels: Tensor) -> Tuple[Tensor, Tensor]:
    return _of_rows(logits, labels.shape), _of_rows(logits, labels.shape)


@_operator(lambda hidden, weight, labels, *_: _of_rows(hidden, labels.shape))
def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float, ignore_index: int, rows_at_once: int
) -> Tensor:
    how = _losses.LinearLoss("linear_cross_entropy", label_smoothing, ignore_index, rows_at_once)
    return how.record(hidden, weight, labels, "none")


@_operator(lambda hidden, weight, *_: (_like(hidden), _like(weight)))
def linear_cross_entropy_backward(
    hidden: Tensor, weight: Tensor, labels: Tensor, dloss: Tensor, label_smoothing: float, ignore_index: int,
    rows_at_once: int,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    return _losses.linear_cross_entropy_backward(
        hidden, weight, labels, arrived(dloss, 1), label_smoothing=label_smoothing, ignore_index=ignore_index,
        rows_at_once=rows_at_once,
    )  # fmt: skip


def _wanted(x: Tensor, wanted: bool) -> Tensor:
    return _like(x) if wanted else x.new_empty(0)


@_operator(
    lambda hidden, weight, labels, label_smoothing, ignore_index, rows_at_once, mean, of_hidden, of_weight: (
        _of_rows(hidden, ()), _wanted(hidden, of_hidden), _wanted(weight, of_weight),
    )
)  # fmt: skip
def linear_cross_entropy_total(
    hidden: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float, ignore_index: int, rows_at_once: int,
    mean: bool, of_hidden: bool, of_weight: bool,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The sum or mean, and gradients of it, of no elements where they are not wanted."""
    how = _losses.LinearLoss("linear_cross_entropy", label_smoothing, ignore_index, rows_at_once)
    found = how.summed(hidden, weight, labels, mean, (of_hidden, of_weight))
    loss, dhidden, dweight = (hidden.new_empty(0) if x is None else x for x in found)
    return loss, dhidden, dweight


@_operator(lambda hidden, weight, labels, dhidden, dweight, *_: (_like(dhidden), _like(dweight)))
def linear_cross_entropy_total_backward(
    hidden: Tensor, weight: Tensor, labels: Tensor, dhidden: Tensor, dweight: Tensor, dloss: Tensor,
    label_smoothing: float, ignore_index: int, rows_at_once: int, mean: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """What linear_cross_entropy_total() found, for what comes after the loss. hidden and weight are there to be what a
    second derivative would be of."""
    how = _losses.LinearLoss("linear_cross_entropy", label_smoothing, ignore_index, rows_at_once)
    return how.later(dhidden, dloss, labels, mean), how.later(dweight, dloss, labels, mean)


def _of_total(ctx: Any, dloss: Any, *_: Any) -> Any:
    *numbers, of_hidden, of_weight = ctx.rest
    found = _now(linear_cross_entropy_total_backward)(*ctx.saved_tensors, dloss, *numbers)
    return *(x if wanted else None for x, wanted in zip(found, (of_hidden, of_weight))), *([None] * 7)


_gradients(
    cross_entropy,
    lambda ctx, dloss, dlse: (_now(cross_entropy_backward)(*ctx.saved_tensors, dloss, *ctx.rest), None, None, None),
    lambda inputs, outputs: ((*inputs[:2], outputs[1]), inputs[2:]),
)
_gradients(
    linear_cross_entropy,
    lambda ctx, dloss: (
        *_now(linear_cross_entropy_backward)(*ctx.saved_tensors, dloss, *ctx.rest), *([None] * (1 + len(ctx.rest)))
    ),
    lambda inputs, out: (inputs[:3], inputs[3:]),
)  # fmt: skip
_gradients(
    linear_cross_entropy_total, _of_total, lambda inputs, outputs: ((*inputs[:3], *outputs[1:]), inputs[3:]), slice(1, None)
)
for _backward in (cross_entropy_backward, linear_cross_entropy_backward, linear_cross_entropy_total_backward):
    _gradients(_backward, _no_second, lambda inputs, output: ((), None))
