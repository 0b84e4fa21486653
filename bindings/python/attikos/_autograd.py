# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients in PyTorch: one autograd function for every operation that brings its own backward pass."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable


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


@functools.lru_cache(maxsize=1)
def _function() -> Any:
    torch = sys.modules["torch"]

    class Recorded(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(context: Any, run: Any, back: Any, differentiable: int, *inputs: Any) -> Any:
            outputs = run(*inputs)
            many = outputs if isinstance(outputs, tuple) else (outputs,)
            context.back, context.inputs = back, len(inputs)
            context.save_for_backward(*inputs, *many)
            context.mark_non_differentiable(*many[differentiable:])
            return outputs

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[misc]
        def backward(context: Any, *gradients: Any) -> Any:
            saved = context.saved_tensors
            inputs, outputs = saved[: context.inputs], saved[context.inputs :]
            needed = context.needs_input_grad[3:]
            return (None, None, None, *context.back(inputs, outputs, gradients, needed))

    return Recorded


def apply(
    run: Callable[..., Any], back: Callable[..., Any], inputs: tuple[Any, ...], differentiable: int = 1
) -> Any:
    """run(*inputs) with a gradient: back(inputs, outputs, gradients, needed) gives one for every input, None
    where none is needed. Only the first `differentiable` outputs have gradients. Inputs may be None."""
    return _function().apply(run, back, differentiable, *inputs)


def call(run: Callable[..., Any], back: Callable[..., Any], *inputs: Any) -> Any:
    """run(*inputs) of one result, recorded where PyTorch wants it: back(inputs, outputs, gradient) gives a
    gradient for every input."""
    if not wanted(*inputs):
        return run(*inputs)
    return apply(run, lambda given, outputs, gradients, needed: back(given, outputs, gradients[0]), inputs)


def mark_written(*arrays: Any) -> None:
    """Lets PyTorch know that its tensors were changed behind its back."""
    torch = sys.modules.get("torch")
    increment = getattr(getattr(getattr(torch, "autograd", None), "graph", None), "increment_version", None)
    for array in arrays:
        if increment is not None and torch is not None and isinstance(array, torch.Tensor):
            if not array.is_inference():
                increment(array)
