# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels there are and which one a call takes."""

from __future__ import annotations

from typing import Any, Callable

from . import _library, flash_attn
from ._arrays import explained, text_of
from .attention import attention
from .cache import append_kv, decode
from .errors import ArgumentError
from .fused import fused_gated_mlp
from .matmul import gemm

_EXPLAINED: dict[str, Callable[..., Any]] = {
    "gemm": gemm,
    "attention": attention,
    "decode": decode,
    "append_kv": append_kv,
    "fused_gated_mlp": fused_gated_mlp,
    **{name: getattr(flash_attn, name) for name in flash_attn.__all__},
}


def explain(function: str, *arguments: Any, **named: Any) -> str:
    """What a call of this function with these arguments would run: "runs <kernel>", and a line with the reason
    for every kernel before it that would not. Nothing runs or is written; raises what the call would raise.
    function is "gemm", "attention", "decode", "append_kv", "fused_gated_mlp" or a function of attikos.flash_attn;
    flash_attn_with_kvcache with new keys tells of the step that appends them first."""
    if function not in _EXPLAINED:
        raise ArgumentError(f"attikos.explain: function is {function!r}; expected one of {list(_EXPLAINED)}")
    answers: list[str] = []
    token = explained.set(answers)
    try:
        _EXPLAINED[function](*arguments, **named)
    finally:
        explained.reset(token)
    return "\n".join(answers)


def list_kernels(operation: str) -> dict[str, str]:
    """Names and descriptions of the kernels that an operation ("gemm", "attention", "attention_backward", "decode",
    "append_kv" or "gated_mlp") may run or, but for "gated_mlp", be asked for with `kernel`, the portable ones first."""
    text = text_of(_library.library.attikos_list_kernels, operation.encode())
    pairs = (line.partition(": ") for line in text.splitlines())
    return {name: description for name, _, description in pairs}
