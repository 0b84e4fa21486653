# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The call signatures of the flash-attn package (version 2) over this library.

Tensors are [batch, seqlen, heads, head_dim], packed ones [total, heads, head_dim]. Everything works on the CPU
and on CUDA, in float64 to bfloat16, for any head_dim; gradients flow where PyTorch records them. Dropout is
refused. `deterministic` is always so. return_attn_probs gives (out, softmax_lse, None): probabilities are never
stored.
"""

from __future__ import annotations

from typing import Any

from .attention import attention_settings, differentiable_attention
from .errors import ShapeMismatchError, UnsupportedError

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]


def _refuse_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise UnsupportedError(f"attikos.flash_attn: dropout_p is {dropout_p}; expected 0, dropout is not offered")


def _window(window_size: tuple[int, int]) -> tuple[int, int]:
    left, right = window_size
    return (-1 if left < 0 else int(left), -1 if right < 0 else int(right))


def _swap(x: Any, first: int, second: int) -> Any:
    """Two dimensions exchanged without a copy, in NumPy's or PyTorch's way."""
    return x.swapaxes(first, second) if hasattr(x, "swapaxes") else x.transpose(first, second)


def _heads_first(x: Any) -> Any:
    return _swap(x, -3, -2)


def _attention(q: Any, k: Any, v: Any, return_lse: bool, **given: Any) -> Any:
    """Attention of heads-last arrays; the result is dense in that order too."""
    settings = attention_settings(**given)
    return differentiable_attention(
        _heads_first(q), _heads_first(k), _heads_first(v), settings, return_lse, heads_last=True
    )


def _answer(result: Any, return_attn_probs: bool) -> Any:
    return (*result, None) if return_attn_probs else result


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """q [batch, seqlen_q, heads_q, d], k and v [batch, seqlen_k, heads_k, d] -> [batch, seqlen_q, heads_q, d]."""
    _refuse_dropout(dropout_p)
    result = _attention(
        q, k, v, return_attn_probs, scale=softmax_scale, causal=causal, window=_window(window_size),
        softcap=softcap, alibi_slopes=alibi_slopes,
    )  # fmt: skip
    return _answer(result, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Any, kv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same with keys and values in one array [batch, seqlen_k, 2, heads_k, d]."""
    return flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], dropout_p, softmax_scale, causal, window_size, softcap,
                           alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same with queries, keys and values in one array [batch, seqlen, 3, heads, d]."""
    return flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], dropout_p, softmax_scale, causal, window_size,
                           softcap, alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Any = None,
) -> Any:  # fmt: skip
    """Packed sequences: q [total_q, heads_q, d], k and v [total_k, heads_k, d], offsets int32 [batch + 1]; with
    a block_table [batch, max_blocks], k and v are [num_blocks, block_size, heads_k, d]."""
    _refuse_dropout(dropout_p)
    arguments: dict[str, Any] = {"cu_seqlens_q": cu_seqlens_q}
    if block_table is None:
        arguments["cu_seqlens_kv"] = cu_seqlens_k
    else:
        arguments["page_table"] = block_table
        arguments["lengths_kv"] = cu_seqlens_k[1:] - cu_seqlens_k[:-1]
    result = _attention(
        q, k, v, return_attn_probs, scale=softmax_scale, causal=causal, window=_window(window_size),
        softcap=softcap, alibi_slopes=alibi_slopes,
        **arguments,
    )  # fmt: skip
    return _answer(result, return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: Any, kv: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same with keys and values in one array [total_k, 2, heads_k, d]."""
    return flash_attn_varlen_func(
        q, kv[:, 0], kv[:, 1], cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
        causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same with queries, keys and values in one array [total, 3, heads, d]."""
    return flash_attn_varlen_func(
        qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale,
        causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, rotary_cos: Any = None,
    rotary_sin: Any = None, cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None,
    block_table: Any = None, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
    alibi_slopes: Any = None, num_splits: int = 0, return_softmax_lse: bool = False,
) -> Any:  # fmt: skip
    """Queries [batch, seqlen_q, heads_q, d] against a cache [batch, seqlen_cache, heads_k, d], or, with a
    block_table, [num_blocks, block_size, heads_k, d]; cache_seqlens: one number, or int32 [batch].

    Appending k and v to the cache, cache_batch_idx and cache_leftpad are refused; num_splits is a hint that
    changes nothing.
    """
    for name, value in (("k", k), ("v", v), ("rotary_cos", rotary_cos), ("rotary_sin", rotary_sin),
                        ("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):  # fmt: skip
        if value is not None:
            raise UnsupportedError(f"attikos.flash_attn_with_kvcache: {name} is not offered")
    batch, seqlen_q = q.shape[0], q.shape[1]
    arguments: dict[str, Any] = {}
    if cache_seqlens is not None:
        lengths = [int(cache_seqlens)] * batch if isinstance(cache_seqlens, int) else cache_seqlens
        arguments = {"lengths_q": [seqlen_q] * batch, "lengths_kv": lengths}
    if block_table is not None:
        if cache_seqlens is None:
            raise ShapeMismatchError("attikos.flash_attn_with_kvcache: a block_table needs cache_seqlens")
        arguments["page_table"] = block_table
    return _attention(
        q, k_cache, v_cache, return_softmax_lse, scale=softmax_scale, causal=causal,
        window=_window(window_size), softcap=softcap, alibi_slopes=alibi_slopes, **arguments,
    )  # fmt: skip
