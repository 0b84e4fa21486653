# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients in PyTorch: one autograd function for every operation that brings its own backward pass, and a refusal of
every call whose result would lack a gradient that an argument asks for."""

from __future__ import annotations

import contextvars
import functools
import sys
from typing import Any, Callable, Mapping

from .errors import Error, UnsupportedError

# While a recorded function runs: the arrays whose gradients it brings.
_recorded: contextvars.ContextVar[tuple[Any, ...] | None] = contextvars.ContextVar("attikos_recorded", default=None)

# Inside explain(): where the answers of calls go that are not to run.
explained: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("attikos_explained", default=None)


def wanted(*arrays: Any) -> bool:
    """Whether PyTorch is to record this call: one of its tensors asks for it, and the first array, of whose kind
    the result is, is one of them."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.is_grad_enabled()
        and isinstance(arrays[0], torch.Tensor)
        and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arrays)
    )


def watching() -> bool:
    """Whether a call has to look for arguments that ask for gradients."""
    torch = sys.modules.get("torch")
    return torch is not None and (_recorded.get() is not None or torch.is_grad_enabled())


def refuse(operation: str, arrays: Mapping[str, Any]) -> None:
    """Raises where PyTorch records and one of these arguments, by name, asks for a gradient that the result would
    not carry. Every call does this with all its arrays: those that the running function was recorded for pass."""
    if not watching():
        return
    torch, recorded = sys.modules["torch"], _recorded.get()
    for name, array in arrays.items():
        if not isinstance(array, torch.Tensor) or not array.requires_grad:
            continue
        if not any(array is one for one in recorded or ()):
            spelled = getattr(operation, "names", {}).get(name, name)
            raise UnsupportedError(
                f"attikos.{operation}: {spelled} requires a gradient, which the result would not carry; expected "
                f"{spelled}.detach(), or a call in torch.no_grad()"
            )


@functools.lru_cache(maxsize=1)
def _function() -> Any:
    torch = sys.modules["torch"]

    class Recorded(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(
            context: Any, run: Any, back: Any, differentiable: int, unread: tuple[int, ...], *inputs: Any
        ) -> Any:
            token = _recorded.set(inputs)
            try:
                outputs = run(*inputs)
            finally:
                _recorded.reset(token)
            many = outputs if isinstance(outputs, tuple) else (outputs,)
            context.back, context.inputs = back, len(inputs)
            context.others = [None if isinstance(x, torch.Tensor) else x for x in inputs]
            saved = [x if isinstance(x, torch.Tensor) else None for x in inputs] + list(many)
            for i in unread:
                saved[i] = None
            context.save_for_backward(*saved)
            if len(many) > differentiable:
                context.mark_non_differentiable(*many[differentiable:])
            context.set_materialize_grads(False)
            return outputs

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            if all(gradient is None for gradient in gradients):
                return (None,) * (4 + context.inputs)
            saved = context.saved_tensors
            inputs = tuple(x if x is not None else y for x, y in zip(saved, context.others))
            needed = context.needs_input_grad[4:]
            with torch.no_grad():
                found = context.back(inputs, saved[context.inputs :], gradients, needed)
            found = [g if yes else None for g, yes in zip(found, needed)]
            if torch.is_grad_enabled():  # the backward pass is being recorded
                found = without_second(found, (*gradients, *saved))
            return (None, None, None, None, *found)

    return Recorded


@functools.lru_cache(maxsize=1)
def _once() -> Any:
    torch = sys.modules["torch"]

    class Once(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """A gradient, which is a function of what the call was given but has no derivative itself."""

        @staticmethod
        def forward(context: Any, anchor: Any, gradient: Any) -> Any:
            return gradient.detach()

        @staticmethod
        def backward(context: Any, given: Any) -> Any:
            raise UnsupportedError("attikos: there are no second derivatives; expected gradients of the first order")

    return Once


def without_second(gradients: Any, of: Any) -> list[Any]:
    """Gradients that a recorded backward pass found from the tensors `of`: each says, when asked for a derivative
    itself, that there is none."""
    anchors = [x for x in of if x is not None and x.requires_grad]
    return [x if x is None or not anchors else _once().apply(anchors[0], x) for x in gradients]


def is_last() -> bool:
    """In a backward pass: whether its graph is not kept for another. False where PyTorch does not tell."""
    kept = getattr(sys.modules["torch"]._C._autograd, "_get_current_graph_task_keep_graph", None)
    return kept is not None and not kept()


def apply(
    run: Callable[..., Any], back: Callable[..., Any], inputs: tuple[Any, ...], differentiable: int = 1,
    unread: tuple[int, ...] = (),
) -> Any:  # fmt: skip
    """run(*inputs) with a gradient: back(inputs, outputs, gradients, needed) gives one for every input, whatever
    where none is needed. gradients holds None for outputs that nothing depends on. Only the first `differentiable`
    outputs have gradients. Inputs may be None. unread: which of the inputs and, behind them, the outputs are not kept for
    back(), which finds None there."""
    if explained.get() is not None:
        return _tell(run, back, inputs)
    return _function().apply(run, back, differentiable, unread, *inputs)


def _tell(run: Callable[..., Any], back: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Inside explain(): what would run, and what for a gradient of the first output."""
    token = _recorded.set(inputs)
    try:
        outputs = run(*inputs)
    finally:
        _recorded.reset(token)
    many = outputs if isinstance(outputs, tuple) else (outputs,)
    told = explained.get() or []
    before = len(told)
    with sys.modules["torch"].no_grad():
        needed = [getattr(x, "requires_grad", False) for x in inputs]
        try:
            back(inputs, many, (many[0],) + (None,) * (len(many) - 1), needed)
        except Error as problem:
            told[before:] = [str(problem)]
    told[before:] = [f"gradients: {answer}" for answer in told[before:]]
    return outputs


def call(run: Callable[..., Any], back: Callable[..., Any], *inputs: Any, unread: tuple[int, ...] = ()) -> Any:
    """run(*inputs) of one result, recorded where PyTorch wants it: back(inputs, outputs, gradient) gives a
    gradient for every input. unread as in apply()."""
    if not wanted(*inputs):
        return run(*inputs)
    return apply(
        run, lambda given, outputs, gradients, needed: back(given, outputs, gradients[0]), inputs, unread=unread
    )


def mark_written(*arrays: Any) -> None:
    """Lets PyTorch know that its tensors were changed behind its back."""
    torch = sys.modules.get("torch")
    increment = getattr(getattr(getattr(torch, "autograd", None), "graph", None), "increment_version", None)
    for array in arrays:
        if increment is not None and torch is not None and isinstance(array, torch.Tensor):
            if not array.is_inference():
                increment(array)
