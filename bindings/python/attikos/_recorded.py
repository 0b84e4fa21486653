# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plain calls whose gradients PyTorch records, by the short way there and back. Imported by _border with the first tensor
that may go it, since it imports PyTorch.

Each function of PyTorch's here runs one compiled function and keeps what its gradients need; these come from compiled
functions, too, and what those do not take, a backward pass that is recorded itself included, from the long way. Of
exceptions only those of the compiled function mean that a call goes the long way: PyTorch sends its own through.

What is kept is what the long way keeps, in the same order: a checkpoint compares the two, where a call went that way the
first time, as the first of a process does, and goes this one when it is done again."""

from __future__ import annotations

from typing import Any, Callable

import torch

from . import _autograd, _border
from . import losses as _losses
from . import matmul as _matmul
from . import rows as _rows
from .attention import attention_settings, gradients_of

_functions = _border._functions
_product, _attention, _more = (_functions[name] for name in ("gemm", "attention", "more"))
_WORDS = {number: word for word, number in _border.COMPUTE.items()}
_records = torch.is_grad_enabled


def _gradients(
    name: str, count: int, arrays: tuple[Any, ...], numbers: tuple[Any, ...] | None, long_way: Callable[[], tuple[Any, ...]],
    others: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    """What the compiled function of that name gives; of the long way where it does not take them, which numbers of None
    say, too. others: inputs that the gradients do not depend on."""
    if _records():
        with torch.no_grad():
            found = long_way()
        return _autograd.without_second(found, (*arrays, *others))
    found = None if numbers is None else _border.gradients(name, count, arrays, numbers)
    return long_way() if found is None else found


class Product(torch.autograd.Function):  # type: ignore[misc]
    """numbers: alpha, scale, trans_a, trans_b, and compute."""

    @staticmethod
    def forward(context: Any, a: Any, b: Any, numbers: tuple[Any, ...]) -> Any:
        alpha, scale, trans_a, trans_b, compute = numbers
        try:
            out = _product(a, b, None, None, None, alpha, scale, trans_a, trans_b, 0, compute, None, False)
        except Exception:  # noqa: BLE001
            out = None
        if out is None:
            raise _border.Declined
        context.save_for_backward(a, b)
        context.numbers = numbers
        return out

    @staticmethod
    def backward(context: Any, dout: Any) -> Any:
        a, b = context.saved_tensors
        alpha, scale, trans_a, trans_b, compute = context.numbers
        of_a, of_b, _ = context.needs_input_grad

        def long_way() -> tuple[Any, ...]:
            wanted = {"da": of_a, "db": of_b}
            found = _matmul._gradients(
                "gemm_backward", a, b, dout, wanted, None, alpha=alpha, scale=scale, trans_a=trans_a,
                trans_b=trans_b, compute=_WORDS[compute],
            )  # fmt: skip
            return tuple(found.values())

        numbers = (alpha, scale, trans_a, trans_b, compute, of_a, of_b)
        found = _gradients("gemm_backward", of_a + of_b, (a, b, dout), numbers, long_way)
        return found[0] if of_a else None, found[-1] if of_b else None, None


class Attention(torch.autograd.Function):  # type: ignore[misc]
    """numbers: heads_last, scale, softcap, left, right, causal, top_left, compute, attention_chunk."""

    @staticmethod
    def forward(context: Any, q: Any, k: Any, v: Any, with_lse: bool, numbers: tuple[Any, ...]) -> Any:
        heads_last, scale, softcap, left, right, causal, top_left, compute, chunk = numbers
        try:
            out = _attention(
                q, k, v, None, None, heads_last, True, scale, softcap, left, right, causal, top_left, compute, chunk,
                False, None, None, None, None, None, 0,
            )  # fmt: skip
            lse = _more(out)
        except Exception:  # noqa: BLE001
            lse = None
        if lse is None:
            raise _border.Declined
        context.save_for_backward(q, k, v, out, lse)
        context.numbers = numbers
        if not with_lse:
            return out
        context.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(context: Any, dout: Any, dlse: Any = None) -> Any:
        if dout is None and dlse is None:
            return (None,) * 5
        saved = context.saved_tensors
        heads_last, scale, softcap, left, right, causal, top_left, compute, chunk = context.numbers

        def long_way() -> tuple[Any, ...]:
            settings = attention_settings(
                scale=scale, softcap=softcap, window=(left, right), causal=causal, top_left=top_left,
                compute=_WORDS[compute], attention_chunk=chunk, heads_last=heads_last, check=False,
            )  # fmt: skip
            return gradients_of("attention", *saved, dout, dlse, settings, False, False)[:3]

        numbers = (
            heads_last, scale, softcap, left, right, causal, top_left, compute, chunk, False, None, None, None, None,
        )  # fmt: skip
        if dlse is None:
            found = _gradients("attention_backward", 3, (*saved, dout), numbers, long_way)
        else:
            found = _gradients("attention_backward", 3, (*saved, dout, dlse), None, long_way)
        return (*found, None, None)


class Rows(torch.autograd.Function):  # type: ignore[misc]
    """rms_norm, layer_norm and l2_normalize keep x and the weight, softmax and log_softmax what they give."""

    @staticmethod
    def forward(context: Any, name: str, number: Any, x: Any, *vectors: Any) -> Any:
        try:
            out = _functions[name](x, None, *vectors, number)
        except Exception:  # noqa: BLE001
            out = None
        if out is None:
            raise _border.Declined
        context.call = name, number
        if name in _OF_RESULTS:
            context.save_for_backward(out)
        else:
            context.save_for_backward(x, *vectors)
        return out

    @staticmethod
    def backward(context: Any, dout: Any) -> Any:
        name, number = context.call
        name += "_backward"
        saved = context.saved_tensors
        arrays = (*saved[:2], _rows.arrived(dout))  # a bias has no part in gradients

        def long_way() -> tuple[Any, ...]:
            found = getattr(_rows, name)(*arrays, number)
            return found if isinstance(found, tuple) else (found,)

        return (None, None, *_gradients(name, max(len(saved), 1), arrays, (number,), long_way, saved[2:]))


class NormOfSum(torch.autograd.Function):  # type: ignore[misc]
    """rms_norm and layer_norm of a sum, which is a result, too: it and the weight are kept."""

    @staticmethod
    def forward(context: Any, name: str, number: float, *arrays: Any) -> Any:
        try:
            out = _functions[name + "_residual"](*arrays, None, None, number)
            total = None if out is None else _more(out)
        except Exception:  # noqa: BLE001
            total = None
        if total is None:
            raise _border.Declined
        context.call = name + "_backward", number, len(arrays) - 2
        context.save_for_backward(arrays[2], total)
        context.set_materialize_grads(False)
        return out, total

    @staticmethod
    def backward(context: Any, dout: Any, dsum: Any) -> Any:
        name, number, vectors = context.call
        if dout is None:
            return (None, None, dsum, dsum, *([None] * vectors))
        weight, total = context.saved_tensors
        dout, dsum = _rows.arrived(dout), _rows.arrived(dsum)
        arrays = (total, weight, dout) if dsum is None else (total, weight, dout, dsum)

        def long_way() -> tuple[Any, ...]:
            found: tuple[Any, ...] = getattr(_rows, name)(total, weight, dout, number, residual=dsum)
            return found

        function = name if dsum is None else name + "_residual"
        dx, *others = _gradients(function, 1 + vectors, arrays, (number,), long_way)
        return (None, None, dx, dx, *others)


class Loss(torch.autograd.Function):  # type: ignore[misc]
    """cross_entropy keeps the log-sum-exps besides what it is given, and of a mean how many rows count."""

    @staticmethod
    def forward(context: Any, logits: Any, labels: Any, smoothing: Any, ignored: Any, reduction: str) -> Any:
        try:
            loss = _functions["cross_entropy"](logits, labels, None, None, smoothing, ignored)
            lse = None if loss is None else _more(loss)
        except Exception:  # noqa: BLE001
            lse = None
        if lse is None:
            raise _border.Declined
        context.numbers = smoothing, ignored
        context.reduction = reduction
        count = (labels != ignored).sum() if reduction == "mean" else None
        context.save_for_backward(logits, labels, lse, count)
        if reduction == "none":
            return loss
        return loss.sum() if count is None else loss.sum() / count

    @staticmethod
    def backward(context: Any, dloss: Any) -> Any:
        logits, labels, lse, count = context.saved_tensors
        if count is not None:
            dloss = dloss / count
        if context.reduction != "none":
            dloss = dloss.expand(labels.shape)
        arrays, numbers = (logits, labels, lse, dloss), context.numbers

        def long_way() -> tuple[Any, ...]:
            names = ("label_smoothing", "ignore_index")
            return (_losses.cross_entropy_backward(*arrays, **dict(zip(names, numbers))),)

        return (*_gradients("cross_entropy_backward", 1, arrays, numbers, long_way), None, None, None, None)


_OF_RESULTS = frozenset(("softmax", "log_softmax"))
