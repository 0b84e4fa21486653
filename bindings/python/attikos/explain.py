# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels there are and which one a call takes."""

from __future__ import annotations

from typing import Any, Callable

from . import _border, _library, flash_attn
from ._arrays import text_of
from ._autograd import explained
from .attention import attention, attention_backward, flash_attention, naive_attention, tiled_attention
from .cache import append_kv, decode, merge_split_states, merge_states
from .embeddings import embedding, embedding_backward
from .errors import ArgumentError
from .fp8 import dequantize, dequantize_fp8, fp8_gemm, quantize, quantize_fp8
from .fused import fused_gated_mlp, fused_rmsnorm_rope, rope
from .losses import cross_entropy, cross_entropy_backward, linear_cross_entropy, linear_cross_entropy_backward
from .matmul import (
    gemm, gemm_backward, grouped_gemm, masked_gemm, tensor_core_gemm, tensor_core_gemm_int8, triton_matmul,
)  # fmt: skip
from .optim import adamw_step
from .rows import (
    l2_normalize, l2_normalize_backward, layer_norm, layer_norm_backward, log_softmax, log_softmax_backward, mean_pool,
    mean_pool_backward, rms_norm, rms_norm_backward, softmax, softmax_backward,
)  # fmt: skip

_EXPLAINED: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        gemm, gemm_backward, grouped_gemm, masked_gemm, tensor_core_gemm, tensor_core_gemm_int8, triton_matmul,
        attention, attention_backward, flash_attention, tiled_attention, naive_attention, decode, append_kv,
        merge_states, merge_split_states, fused_gated_mlp, fused_rmsnorm_rope, rope, rms_norm, rms_norm_backward,
        layer_norm, layer_norm_backward, l2_normalize, l2_normalize_backward, softmax, softmax_backward, log_softmax,
        log_softmax_backward, mean_pool, mean_pool_backward, quantize, quantize_fp8, dequantize, dequantize_fp8,
        fp8_gemm, cross_entropy, cross_entropy_backward, linear_cross_entropy, linear_cross_entropy_backward, embedding,
        embedding_backward, adamw_step,
        *(getattr(flash_attn, name) for name in flash_attn.__all__),
    )
}  # fmt: skip


def explain(function: str | Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """What a call of this function with these arguments would run: "runs <kernel>", and a line with the reason
    for every kernel before it that would not. Nothing runs or is written; raises what the call would raise, for
    functions of one kernel what is wrong before it is reached. function is one of this package that computes, or one
    of attikos.flash_attn, itself or by name. A function of several steps tells of each: flash_attn_with_kvcache with
    new keys of the step that appends them first, gemm_backward and linear_cross_entropy that they multiply by the kernels
    of gemm. Where PyTorch would record the call, a line "gradients: runs <kernel>" tells where its gradients go."""
    name = function if isinstance(function, str) else getattr(function, "__name__", None)
    known = _EXPLAINED.get(name) if isinstance(name, str) else None
    if known is None or (not isinstance(function, str) and function is not known):
        raise ArgumentError(f"attikos.explain: function is {function!r}; expected one of {sorted(_EXPLAINED)}")
    answers: list[str] = []
    token, short = explained.set(answers), _border.barred.set(True)
    try:
        known(*arguments, **named)
    finally:
        explained.reset(token)
        _border.barred.reset(short)
    return "\n".join(answers)


def list_kernels(operation: str) -> dict[str, str]:
    """Names and descriptions of the kernels that an operation ("gemm", "attention", "attention_backward", "decode",
    "append_kv" or "gated_mlp") may run or, but for "gated_mlp", be asked for with `kernel`, the portable ones first."""
    if not isinstance(operation, str):
        raise ArgumentError(f"attikos.list_kernels: operation is {operation!r}; expected its name")
    text = text_of(_library.library.attikos_list_kernels, operation.encode())
    pairs = (line.partition(": ") for line in text.splitlines())
    return {name: description for name, _, description in pairs}
