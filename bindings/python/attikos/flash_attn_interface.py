# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The call signatures of FlashAttention-3's flash_attn_interface over this library; those of version 2 are in
attikos.flash_attn, which says what tensors, lengths and `check` mean.

Of what version 3 adds, q_descale, k_descale and v_descale (float32 [batch, heads_k], beside float8_e4m3 elements, whose
result is bfloat16), attention_chunk, seqused_k, page_table and cu_seqlens_q over a cache compute. num_splits, pack_gqa and
sm_margin are hints about how the kernels of that package work: they are checked, and followed where a kernel here has a
choice: num_splits of flash_attn_with_kvcache, and sm_margin of the other functions, which attention() gets. qv,
seqused_q, cu_seqlens_k_new, rotary_seqlens and scheduler_metadata are refused, and so are new keys of
flash_attn_with_kvcache beside offsets. return_attn_probs gives (out, softmax_lse), where version 2 gives a third.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _border
from ._arguments import Caller, flag, integer
from ._arrays import TORCH, operand_of
from ._context import CPU, context_for
from ._host import int32_array
from .attention import differentiable_attention, prepare, results
from .errors import ArgumentError, ShapeMismatchError, UnsupportedError
from .flash_attn import SPELLED, attention_settings_of, flash_attn_with_kvcache as _with_kvcache

__all__ = [
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
]

_WORDS = {**SPELLED, "page_table": "page_table", "descale_q": "q_descale", "descale_k": "k_descale",
          "descale_v": "v_descale", "lengths_q": "seqused_q", "lengths_kv": "seqused_k"}  # fmt: skip
_FUNC = Caller("flash_attn_func", **_WORDS)
_VARLEN = Caller("flash_attn_varlen_func", **_WORDS)
_USED = Caller("flash_attn_varlen_func", **{**_WORDS, "page_table": "cu_seqlens_k"})
_CACHE = Caller(
    "flash_attn_with_kvcache",
    **{**_WORDS, "return_lse": "return_softmax_lse", "k": "k_cache", "v": "v_cache", "lengths_kv": "cache_seqlens",
       "splits": "num_splits"},
)  # fmt: skip


def _hints(operation: str, num_splits: Any, pack_gqa: Any, sm_margin: Any) -> None:
    """What may be said about kernels, checked."""
    integer(operation, "num_splits", num_splits, 0)
    integer(operation, "sm_margin", sm_margin, 0)
    if pack_gqa is not None:
        flag(operation, "pack_gqa", pack_gqa)


def _refuse(operation: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise UnsupportedError(f"attikos.{operation}: {name} is not offered; expected None")


def flash_attn_func(
    q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False, qv: Any = None,
    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None, window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None,
    deterministic: bool = False, sm_margin: int = 0, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """q [batch, seqlen_q, heads_q, d], k and v [batch, seqlen_k, heads_k, d] -> [batch, seqlen_q, heads_q, d]."""
    _refuse(_FUNC, qv=qv)
    _hints(_FUNC, num_splits, pack_gqa, sm_margin)
    if q_descale is None and k_descale is None and v_descale is None:
        done = _border.attention(
            q, k, v, True, return_attn_probs, softmax_scale, softcap, window_size, causal,
            attention_chunk=attention_chunk, sm_margin=sm_margin,
        )  # fmt: skip
        if done is not None:
            return done
    operand = None if getattr(q, "ndim", None) == 4 else operand_of(_FUNC, "q", q)
    if operand is not None and operand.ndim != 4:
        raise ShapeMismatchError(
            f"attikos.{_FUNC}: q is {operand.describe()}; expected 4 dimensions [batch, seqlen, heads, head_dim]"
        )
    settings = attention_settings_of(
        _FUNC, 0.0, softmax_scale, causal, window_size, softcap, None, attention_chunk=attention_chunk,
        descale_q=q_descale, descale_k=k_descale, descale_v=v_descale, sm_margin=sm_margin,
    )  # fmt: skip
    return differentiable_attention(_FUNC, q, k, v, settings, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Any, softmax_scale: float | None = None, causal: bool = False, q_descale: Any = None, k_descale: Any = None,
    v_descale: Any = None, window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    deterministic: bool = False, num_heads_q: int | None = None, sm_margin: int = 0, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same with all in one array: [batch, seqlen, 3, heads, d], or, with num_heads_q,
    [batch, seqlen, heads_q + 2 * heads_k, d]."""
    name = "flash_attn_qkvpacked_func"
    operand = operand_of(name, "qkv", qkv)
    if num_heads_q is None:
        if operand.ndim != 5 or operand.shape[2] != 3:
            raise ShapeMismatchError(
                f"attikos.{name}: qkv is {operand.describe()}; expected [batch, seqlen, 3, heads, head_dim]"
            )
        q, k, v = (qkv[:, :, i] for i in range(3))
    else:
        of_q = integer(name, "num_heads_q", num_heads_q, 1)
        rest = operand.shape[2] - of_q if operand.ndim == 4 else -1
        if rest <= 0 or rest % 2:
            raise ShapeMismatchError(
                f"attikos.{name}: qkv is {operand.describe()} and num_heads_q is {of_q}; expected "
                "[batch, seqlen, num_heads_q + 2 * heads_k, head_dim]"
            )
        of_k = of_q + rest // 2
        q, k, v = qkv[:, :, :of_q], qkv[:, :, of_q:of_k], qkv[:, :, of_k:]
    return flash_attn_func(
        q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk, softcap,
        sm_margin=sm_margin, return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    seqused_q: Any = None, seqused_k: Any = None, softmax_scale: float | None = None, causal: bool = False,
    qv: Any = None, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
    pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0, return_attn_probs: bool = False, *,
    check: bool = False,
) -> Any:  # fmt: skip
    """Packed sequences: q [total_q, heads_q, d], k and v [total_k, heads_k, d], offsets int32 [batch + 1]. seqused_k int32
    [batch]: how many of its keys each sequence uses, the first ones, of arrays of PyTorch and NumPy; such a call has no
    gradients. Offsets and seqused_k on a device are read with `check` alone, else clamped."""
    _refuse(_VARLEN, qv=qv, seqused_q=seqused_q)
    _hints(_VARLEN, num_splits, pack_gqa, sm_margin)
    for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if offsets is None:
            raise ArgumentError(f"attikos.{_VARLEN}: {name} is None; expected the offsets of the sequences")
    operation, checks = _VARLEN, flag(_VARLEN, "check", check)
    storage = {"cu_seqlens_kv": cu_seqlens_k}
    if seqused_k is not None:
        operation, storage = _USED, _keys_in_use(q, cu_seqlens_k, max_seqlen_k, seqused_k, checks)
        k, v = k[:, None], v[:, None]
    settings = attention_settings_of(
        operation, 0.0, softmax_scale, causal, window_size, softcap, None, attention_chunk=attention_chunk,
        descale_q=q_descale, descale_k=k_descale, descale_v=v_descale, cu_seqlens_q=cu_seqlens_q,
        check_device=checks, sm_margin=sm_margin, **storage,
    )  # fmt: skip
    return differentiable_attention(operation, q, k, v, settings, return_attn_probs)


def _keys_in_use(q: Any, offsets: Any, most: Any, used: Any, check: bool) -> dict[str, Any]:
    """Packed keys of which sequences use the first ones are pages of one position each: where they lie, and how many."""
    most = integer(_USED, "max_seqlen_k", most, 0)
    if not _border.is_traced():
        like = operand_of(_USED, "q", q)
        offsets = int32_array(_USED, "cu_seqlens_kv", offsets, like)
        used = int32_array(_USED, "lengths_kv", used, like)
        if like.kind is TORCH:
            offsets, used = (sys.modules["torch"].as_tensor(x, device=like.owner.device) for x in (offsets, used))
        elif not all(isinstance(x, np.ndarray) for x in (q, offsets, used)):
            raise UnsupportedError(f"attikos.{_USED}: seqused_k goes with arrays of PyTorch or NumPy; expected None")
        if used.ndim != 1 or offsets.shape != (used.shape[0] + 1,):
            raise ShapeMismatchError(
                f"attikos.{_USED}: seqused_k is {list(used.shape)}, cu_seqlens_k is {list(offsets.shape)}; expected [batch] "
                "and [batch + 1]"
            )
        keys = offsets[1:] - offsets[:-1]
        if (check or like.place == CPU) and not context_for(like.place).capturing and bool((used > keys).any()):
            raise ShapeMismatchError(f"attikos.{_USED}: seqused_k exceeds the keys of a sequence in cu_seqlens_k")
    starts, keys = offsets[:-1], offsets[1:] - offsets[:-1]
    if isinstance(offsets, np.ndarray):
        return {"page_table": starts[:, None] + np.arange(most, dtype=np.int32), "lengths_kv": np.minimum(used, keys)}
    steps = offsets.new_ones(most).cumsum(0, dtype=offsets.dtype) - 1
    return {"page_table": starts[:, None] + steps, "lengths_kv": used.minimum(keys)}


def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, qv: Any = None, rotary_cos: Any = None,
    rotary_sin: Any = None, cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None,
    page_table: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k_new: Any = None, max_seqlen_q: int | None = None,
    rotary_seqlens: Any = None, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False, *,
    check: bool = False,
) -> Any:  # fmt: skip
    """Queries against a cache, as attikos.flash_attn's function of this name; page_table is its block_table.

    With cu_seqlens_q int32 [batch + 1] the queries are packed, [total_q, heads_q, d], over a cache of cache_seqlens
    positions, with or without pages. Offsets, attention_chunk and descale factors go without new keys and without
    cache_batch_idx and cache_leftpad.
    """
    _refuse(_CACHE, qv=qv, rotary_seqlens=rotary_seqlens, scheduler_metadata=scheduler_metadata,
            cu_seqlens_k_new=cu_seqlens_k_new)  # fmt: skip
    _hints(_CACHE, num_splits, pack_gqa, sm_margin)
    chunk = integer(_CACHE, "attention_chunk", attention_chunk)
    factors = {"descale_q": q_descale, "descale_k": k_descale, "descale_v": v_descale}
    if cu_seqlens_q is None and not chunk and all(x is None for x in factors.values()):
        return _with_kvcache(
            q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, page_table,
            softmax_scale, causal, window_size, softcap, rotary_interleaved, None, num_splits, return_softmax_lse,
            check=check,
        )  # fmt: skip
    for name, value in (("k", k), ("v", v), ("rotary_cos", rotary_cos), ("rotary_sin", rotary_sin),
                        ("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):  # fmt: skip
        if value is not None:
            raise UnsupportedError(
                f"attikos.{_CACHE}: {name} is given beside cu_seqlens_q, attention_chunk or a factor of float8; expected "
                "one or the other"
            )
    if cu_seqlens_q is not None and cache_seqlens is None:
        raise ArgumentError(f"attikos.{_CACHE}: cu_seqlens_q is given but cache_seqlens is None; expected int32 [batch]")
    if isinstance(cache_seqlens, int) and not isinstance(cache_seqlens, bool):
        offsets = q if cu_seqlens_q is None else cu_seqlens_q
        cache_seqlens = [cache_seqlens] * (len(offsets) - (cu_seqlens_q is not None))
    with_lse = flag(_CACHE, "return_lse", return_softmax_lse)
    settings = attention_settings_of(
        _CACHE, 0.0, softmax_scale, causal, window_size, softcap, None, attention_chunk=chunk, splits=num_splits,
        cu_seqlens_q=cu_seqlens_q, lengths_kv=cache_seqlens, page_table=page_table,
        check_device=flag(_CACHE, "check", check), **factors,
    )  # fmt: skip
    call, options = prepare(_CACHE, q, k_cache, v_cache, settings, of_decode=True)
    out, lse = results(call, settings, with_lse)
    call.run("attikos_decode", call["q"], call["k"], call["v"], out, lse, options)
    return call.finish()
