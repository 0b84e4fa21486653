# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an operator of PyTorch is made by: see _operators."""

import functools
from typing import Any, Callable, Dict, Tuple

import torch
from torch import Tensor

from . import _border
from .errors import UnsupportedError

KERNELS: Dict[str, Callable[..., Any]] = {}  # what an operator runs, with the gradients of the public functions
GRADIENTS: Dict[str, Tuple[Any, Callable[..., Any], Callable[..., Any]]] = {}  # operator, what it keeps, and its backward


def _operator(fake: Callable[..., Any], mutates: Tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Makes an operator of a function of its name, whose results have the shapes that `fake` gives."""

    def make(kernel: Callable[..., Any]) -> Any:
        @functools.wraps(kernel)
        def without_records(*arguments: Any, **named: Any) -> Any:
            with torch.no_grad():
                return kernel(*arguments, **named)

        made = torch.library.custom_op(f"attikos::{kernel.__name__}", without_records, mutates_args=mutates)
        made.register_fake(fake)
        KERNELS[kernel.__name__] = kernel
        return made

    return make


def _no_second(context: Any, *gradients: Any) -> Any:
    raise UnsupportedError("attikos: there are no second derivatives; expected gradients of the first order")


def _gradients(forward: Any, backward: Any, saved: Callable[..., Any], constant: slice = slice(0, 0)) -> None:
    """Registers `backward(context, *gradients)` for `forward`; saved(inputs, output) gives (tensors, rest). constant:
    the outputs that have no gradients."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        tensors, ctx.rest = saved(inputs, output)
        ctx.save_for_backward(*tensors)
        if constant.stop != 0:
            ctx.mark_non_differentiable(*output[constant])
        ctx.set_materialize_grads(False)

    forward.register_autograd(backward, setup_context=setup)
    GRADIENTS[forward._opoverload._opname] = forward, setup, backward


def _now(operator: Any) -> Any:
    """The operator as a backward pass calls it: inside torch.func's transforms as those want it."""
    return getattr(_border.operators(), operator._opoverload._opname)


def _like(x: Tensor, *_: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
