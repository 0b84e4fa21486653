# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch.autocast and torch.func.vmap do to the operators of _operators, which imports this.

Autocast: products, attention and the gated MLP compute in the type that it names, as PyTorch's own do; float16,
bfloat16 and float32 arguments that decide a result's type are converted to it, float64 is not. Norms, softmaxes and
rotations sum in float32 whatever they are given, and caches are what they are: those take their arguments as given.

vmap: the new dimension becomes rows, or joins the batch, where the operation has a place for it; otherwise one call is
made for each of its positions, in order. torch.func.grad and its kin take no gradients of operators, but those of
functions that say apart what they keep: FUNCTIONS has each operator as one."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from . import _border, _operators, losses
from .attention import differentiable_attention

_LIBRARY = torch.library.Library("attikos", "FRAGMENT")

# --- autocast ---------------------------------------------------------------------------------------

_CASTS = (torch.float32, torch.float16, torch.bfloat16)
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def _attention(q: Any, k: Any, v: Any, bias: Any, sinks: Any, *others: Any) -> Any:
    """By the short way, where that takes it."""
    settings = _operators.settings_of_operator({**dict(zip(_operators.SETTINGS, others)), "bias": bias, "sinks": sinks})
    seldom = any(settings[name] is not None for name in ("bias", "sinks", "mask", "alibi_slopes"))
    done = None
    if not seldom and settings["determinism"] == "run_to_run":
        often = ("scale", "softcap", "window", "causal", "top_left", "compute", "attention_chunk")
        indices = ("lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv", "page_table")
        done = _border.attention(
            q, k, v, settings["heads_last"], True, *(settings[name] for name in often), check=settings["check_device"],
            **{name: settings[name] for name in indices}, algorithm=settings["algorithm"], kernel=settings["kernel"],
            sm_margin=settings["sm_margin"], recorded=True,
        )  # fmt: skip
    return differentiable_attention("attention", q, k, v, settings, True) if done is None else done


def _total(hidden: Any, weight: Any, labels: Any, *others: Any) -> Any:
    *numbers, mean, _, _ = others
    how = losses.LinearLoss("linear_cross_entropy", *numbers)
    return how.record(hidden, weight, labels, "mean" if mean else "sum"), None, None


def _autocasts(name: str, count: int, eager: Callable[..., Any]) -> None:
    """Casts the first `count` arguments. eager: the same outside of modes, transforms and graphs."""
    operator = getattr(torch.ops.attikos, name).default

    def kernel(*arguments: Any) -> Any:
        dtype = torch.get_autocast_dtype(arguments[0].device.type)
        cast = [x.to(dtype) if isinstance(x, Tensor) and x.dtype in _CASTS else x for x in arguments[:count]]
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            function = operator if _border.dispatches(*cast) else eager
            return function(*cast, *arguments[count:])

    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(name, kernel, f"Autocast{device}")


_autocasts("gemm", 5, _operators.KERNELS["gemm"])
_autocasts("grouped_gemm", 4, _operators.KERNELS["grouped_gemm"])
_autocasts("masked_gemm", 4, _operators.KERNELS["masked_gemm"])
_autocasts("attention", 4, _attention)
_autocasts("fused_gated_mlp", 3, _operators.KERNELS["fused_gated_mlp"])
_autocasts("fused_gated_mlp_kept", 3, lambda *given: (_operators.KERNELS["fused_gated_mlp"](*given), None, None))
_autocasts("linear_cross_entropy", 2, _operators.KERNELS["linear_cross_entropy"])
_autocasts("linear_cross_entropy_total", 2, _total)


# --- vmap -------------------------------------------------------------------------------------------

Dims = tuple[Any, ...]


def _looped(operator: Any, size: int, dims: Dims, arguments: tuple[Any, ...]) -> Any:
    """One call for each position of the new dimension."""
    found = []
    for i in range(size):
        given = [x.select(d, i) if isinstance(x, Tensor) and d is not None else x for x, d in zip(arguments, dims)]
        out = operator(*given)
        found.append(out if isinstance(out, tuple) else (out,))
    stacked = tuple(torch.stack(parts) for parts in zip(*found))
    return (stacked, (0,) * len(stacked)) if len(stacked) > 1 else (stacked[0], 0)


def _in_front(x: Any, dim: int | None, size: int) -> Any:
    """x with the new dimension first."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _rows(operator: Any, arrays: int) -> Callable[..., Any]:
    """The first `arrays` arguments are rows, of which any number may lie in front; the others are no rows, such as a
    weight, and have one each if they have the new dimension."""

    def rule(info: Any, dims: Dims, *arguments: Any) -> Any:
        if info.batch_size == 0 or any(isinstance(d, int) for d in dims[arrays:]):
            return _looped(operator, info.batch_size, dims, arguments)
        rows = (_in_front(x, d, info.batch_size) for x, d in zip(arguments[:arrays], dims))
        found = operator(*(x.contiguous() for x in rows), *arguments[arrays:])
        return found, (0,) * len(found) if isinstance(found, tuple) else 0

    return rule


def _loop(operator: Any) -> Callable[..., Any]:
    return lambda info, dims, *arguments: _looped(operator, info.batch_size, dims, arguments)


def _of_product(info: Any, dims: Dims, *arguments: Any) -> Any:
    """The new dimension is the batch of matrices that have none."""
    a, b, c, bias, residual = arguments[:5]
    per_matrix = [x is None or d is not None and x.dim() == 3 for x, d in ((c, dims[2]), (residual, dims[4]))]
    plain = all(per_matrix) and dims[3] is None and all(x.dim() - (d is not None) == 2 for x, d in zip((a, b), dims))
    if not plain or (dims[0] is None and dims[1] is None):
        return _looped(_operators.gemm, info.batch_size, dims, arguments)
    given = [x if d is None else x.movedim(d, 0) for x, d in zip(arguments[:5], dims)]
    out, kept = _operators.gemm(*given, *arguments[5:])
    return (out, kept), (0, 0 if arguments[13] else None)


def _of_product_backward(info: Any, dims: Dims, *arguments: Any) -> Any:
    """Each matrix has gradients of its own, and so gets a batch of its own."""
    wanted = arguments[-1]
    ranks = [None if x is None else x.dim() - (d is not None) for x, d in zip(arguments[:4], dims)]
    if any(rank not in (2, None) for rank in ranks) or "d" in wanted:
        return _looped(_operators.gemm_backward, info.batch_size, dims, arguments)
    given = [None if x is None else _in_front(x, d, info.batch_size) for x, d in zip(arguments[:4], dims)]
    found = _operators.gemm_backward(*given, *arguments[4:])
    return found, tuple(0 if name in wanted else None for name in "abdc")


def _of_attention(operator: Any, tensors: int, places: tuple[int, ...]) -> Callable[..., Any]:
    """The new dimension joins the first one, of a call of no other tensors than those that stand in these places among
    the first so many arguments."""

    def rule(info: Any, dims: Dims, *arguments: Any) -> Any:
        size, given = info.batch_size, list(arguments)
        if size == 0 or any(x is not None for i, x in enumerate(given[:tensors]) if i not in places):
            return _looped(operator, size, dims, arguments)
        for i in places:
            if given[i] is not None:
                given[i] = _in_front(given[i], dims[i], size).flatten(0, 1)
        found = operator(*given)
        absent = [x.dim() == 1 for x in found]  # gradients of what was not given
        return tuple(x if no else x.unflatten(0, (size, -1)) for x, no in zip(found, absent)), tuple(
            None if no else 0 for no in absent
        )

    return rule


def _of_embedding(info: Any, dims: Dims, *arguments: Any) -> Any:
    """Ids of any shape, of one table."""
    table, ids, padding = arguments
    if dims[0] is not None:
        return _looped(_operators.embedding, info.batch_size, dims, arguments)
    return _operators.embedding(table, ids.movedim(dims[1], 0).contiguous(), padding), 0


def _rules() -> dict[str, Any]:
    """{name: rule}"""
    of = _operators
    rules: dict[str, Any] = {}
    for operator, arrays in (
        (of.rms_norm, 1), (of.layer_norm, 1), (of.l2_normalize, 1), (of.softmax, 1), (of.log_softmax, 1),
        (of.rms_norm_residual, 2), (of.layer_norm_residual, 2), (of.l2_normalize_backward, 2), (of.softmax_backward, 2), (of.log_softmax_backward, 2),
    ):  # fmt: skip
        rules[_name(operator)] = _rows(operator, arrays)
    rules["gemm"], rules["gemm_backward"] = _of_product, _of_product_backward
    rules["attention"] = _of_attention(of.attention, 12, (0, 1, 2))
    rules["attention_backward"] = _of_attention(of.attention_backward, 16, (0, 1, 2, 5, 6, 7, 8))
    rules["embedding"] = _of_embedding
    rules["decode"] = _of_attention(of.decode, 12, (0, 1, 2))
    for operator in (
        of.rms_norm_backward, of.layer_norm_backward, of.mean_pool, of.mean_pool_backward, of.rope, of.rope_backward,
        of.fused_rmsnorm_rope, of.fused_rmsnorm_rope_backward, of.fused_gated_mlp, of.fused_gated_mlp_kept,
        of.fused_gated_mlp_backward, of.cache_attention, of.cross_entropy, of.cross_entropy_backward,
        of.linear_cross_entropy, of.linear_cross_entropy_backward, of.linear_cross_entropy_total,
        of.linear_cross_entropy_total_backward, of.embedding_backward, of.grouped_gemm, of.masked_gemm,
        of.rows_gemm_backward,
    ):  # fmt: skip
        rules[_name(operator)] = _loop(operator)
    return rules


def _name(operator: Any) -> str:
    return str(operator._opoverload._opname)


def _function(operator: Any, keep: Any, back: Any, rule: Any) -> Any:
    class Function(torch.autograd.Function):  # type: ignore[misc]
        forward = staticmethod(lambda *arguments: operator(*arguments))
        setup_context = staticmethod(keep)
        backward = staticmethod(back)
        vmap = staticmethod(rule)

    return Function.apply


class Functions:
    """Operators by name; those that have gradients as functions that transforms take."""

    def __init__(self) -> None:
        rules = _rules()
        for name, rule in rules.items():
            getattr(_operators, name).register_vmap(rule)
        self._made = {name: _function(*parts, rules[name]) for name, parts in _operators.GRADIENTS.items()}

    def __getattr__(self, name: str) -> Any:
        return self._made[name] if name in self._made else getattr(_operators, name)


FUNCTIONS = Functions()
