# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of optimizers, each in one pass over parameters, gradients and moments: adamw_step() on arrays of any library,
and with PyTorch AdamW, which is torch.optim.AdamW by it."""

from __future__ import annotations

from typing import Any, Sequence

from . import _autograd, _library
from ._arguments import Caller, integer, real
from ._arrays import Call
from .errors import ArgumentError, UnsupportedError

_ADAMW = Caller("adamw_step", epsilon="eps")
_OUTPUTS = ("parameter", "exp_avg", "exp_avg_sq", "master")


def __getattr__(name: str) -> Any:
    if name == "AdamW":
        try:
            from . import _torch_optimizers
        except ImportError:
            raise UnsupportedError(
                "attikos.optim.AdamW: it is an optimizer of PyTorch, which is not installed"
            ) from None
        return _torch_optimizers.AdamW
    raise AttributeError(f"module 'attikos.optim' has no attribute {name!r}")


def _lists(**arrays: Any) -> tuple[dict[str, Sequence[Any]], bool]:
    """One list for each argument, and whether lists were given."""
    parameters = arrays["parameter"]
    many = isinstance(parameters, (list, tuple))
    count = len(parameters) if many else 1
    found: dict[str, Sequence[Any]] = {}
    for name, given in arrays.items():
        if name == "master" and given is None:
            found[name] = [None] * count
        elif isinstance(given, (list, tuple)) != many or (many and len(given) != count):
            what = f"{len(given)} arrays" if isinstance(given, (list, tuple)) else f"a {type(given).__name__}"
            expected = f"as many as parameter has, {count}" if many else "an array, as parameter is"
            raise ArgumentError(f"attikos.{_ADAMW}: {name} is {what}; expected {expected}")
        else:
            found[name] = given if many else [given]
    return found, many


def adamw_step(
    parameter: Any, gradient: Any, exp_avg: Any, exp_avg_sq: Any, step: int, *, master: Any = None,
    learning_rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 1e-2, gradient_scale: float = 1.0,
) -> None:  # fmt: skip
    """A step of AdamW, in place. With g = gradient_scale * gradient, m = exp_avg, v = exp_avg_sq, and w the master
    weights or, without them, the parameter:

    m = beta1 * m + (1 - beta1) * g and v = beta2 * v + (1 - beta2) * g**2; then w = (1 - learning_rate *
    weight_decay) * w - learning_rate * (m / (1 - beta1**step)) / (sqrt(v / (1 - beta2**step)) + eps) (Loshchilov
    and Hutter, Decoupled Weight Decay Regularization, ICLR 2019, as torch.optim.AdamW has it).

    All are arrays of one shape, up to five dimensions, any strides, or lists of as many arrays, which go together:
    of lists 48 at once. Parameters are float64, float32, float16 or bfloat16, gradients the same, or float32 beside
    16 bits; moments and master weights are float32, of float64 parameters float64. A parameter with master weights
    becomes their rounding; in a list of those, None stands for a parameter without. step counts from 1.
    gradient_scale is the inverse of a loss scale, what clips gradients, or -1 to go uphill. Arrays that are written
    share no memory with another one. The same bits on every run. Where PyTorch records, an argument that asks for a
    gradient raises UnsupportedError: as with PyTorch's optimizers, call it in torch.no_grad().
    """
    numbers = [
        real(_ADAMW, name, value)
        for name, value in {
            "learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay,
            "gradient_scale": gradient_scale,
        }.items()
    ]  # fmt: skip
    count = integer(_ADAMW, "step", step)
    lists, many = _lists(parameter=parameter, gradient=gradient, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq, master=master)
    size = len(lists["parameter"])
    if size == 0:
        return
    names = {name: [f"{name}[{i}]" if many else name for i in range(size)] for name in lists}
    call = Call(_ADAMW, **{n: x for name, xs in lists.items() for n, x in zip(names[name], xs)})
    for name in _OUTPUTS:
        for one in names[name]:
            if call.get(one) is not None:
                call.written(one)
    pointers = _library.TensorPointer * size
    arguments = (pointers(*(_pointer(call, one) for one in names[name])) for name in lists)
    call.run("attikos_adamw_step", size, *arguments, *numbers, count)
    if _autograd.explained.get() is None:
        _autograd.mark_written(*(x for name in _OUTPUTS for x in lists[name] if x is not None))


def _pointer(call: Call, name: str) -> Any:
    operand = call.get(name)
    return None if operand is None else operand.pointer()
