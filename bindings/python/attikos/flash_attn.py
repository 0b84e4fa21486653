# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The call signatures of the flash-attn package (version 2) over this library.

Tensors are [batch, seqlen, heads, head_dim], packed ones [total, heads, head_dim]. Everything works on the CPU
and on CUDA, in float64 to bfloat16, for any head_dim; gradients flow where PyTorch records them. Dropout is
refused. `deterministic` is always so. return_attn_probs gives (out, softmax_lse, None): probabilities are never
stored.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._arrays import TORCH, Call, Operand, int32_array, is_on_host, operand_of, to_device, to_host
from .attention import attention_settings, differentiable_attention, prepare, results
from .cache import append_call, run_append
from .errors import ArgumentError, ShapeMismatchError, UnsupportedError

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
    """Queries [batch, seqlen_q, heads_q, d] against a cache [batch_cache, seqlen_cache, heads_k, d], or, with a
    block_table int32 [batch, max_blocks], [num_blocks, block_size, heads_k, d].

    cache_seqlens: positions of the cache in use, one number or int32 [batch]; None: all. New keys and values
    [batch, seqlen_new, heads_k, d] are written into the caches behind them, in place, and take part;
    cache_seqlens stays as it is. rotary_cos and rotary_sin [positions, rotary_dim / 2] rotate new keys by their
    positions on the way, in pairs of neighbors or (rotary_interleaved False) of halves, and queries by theirs:
    cache_seqlens + i with causal or a window, else all by cache_seqlens. cache_batch_idx int32 [batch]: which
    sequence of the cache belongs to which query, for caches without blocks. cache_leftpad int32 [batch]: first
    position of the cache in use. num_splits: at most so many parts of the cache are worked on apart;
    given, up to 16 queries have the bits that they have in any other batch.

    Lengths on a device are checked, which waits for it, unless a graph is captured. No gradients, as in that
    package.
    """
    request = _CacheCall(q, k_cache, v_cache, cache_seqlens, cache_batch_idx, cache_leftpad, block_table)
    settings = attention_settings(
        scale=softmax_scale, causal=causal, window=_window(window_size), softcap=softcap,
        alibi_slopes=alibi_slopes, splits=max(int(num_splits), 0), **request.storage(k),
    )  # fmt: skip
    if k is None and v is None:
        if rotary_cos is not None or rotary_sin is not None:
            raise ArgumentError(f"attikos.{_CACHE}: rotary_cos and rotary_sin go with new k and v")
        return request.run(request.q, settings, return_softmax_lse)
    if k is None or v is None:
        raise ArgumentError(f"attikos.{_CACHE}: of k and v one is missing; expected both or none")
    local = causal or settings["window"] != (-1, -1)
    append, options = request.append(k, v, rotary_cos, rotary_sin, rotary_interleaved, not local)
    queries = request.q
    if rotary_cos is not None:
        queries = append.scratch(request.q.swap(-3, -2).shape, request.q.dtype).swap(-3, -2)
        options.q, options.q_out = request.q.pointer(), queries.pointer()
    # Nothing may be written when the second step is refused.
    settings["check"] = False
    call, attention_options, function = request.prepare(queries, settings)
    out, lse = results(call, settings, return_softmax_lse, heads_last=True)
    arguments = (call["q"], call["k"], call["v"], out, lse, attention_options)
    call.text(function.replace("attikos_", "attikos_explain_"), *arguments)
    run_append(append, options)
    call.run(function, *arguments)
    return call.finish()


_CACHE = "flash_attn_with_kvcache"
_FEW = 16  # so many queries are decoded; more of them fill a processor without splitting the cache


class _CacheCall:
    """A call on a cache: arrays with heads before positions, and where the sequences lie in the cache."""

    def __init__(
        self, q: Any, k_cache: Any, v_cache: Any, seqlens: Any, batch_idx: Any, leftpad: Any, block_table: Any
    ) -> None:
        names = {"q": q, "k_cache": k_cache, "v_cache": v_cache}
        operands = [operand_of(array, name) for name, array in names.items()]
        for name, operand in zip(names, operands):
            if operand.ndim != 4:
                raise ShapeMismatchError(
                    f"attikos.{_CACHE}: {name} is {operand.describe()}; expected 4 dimensions, heads before the last"
                )
        self.q, self.k_cache, self.v_cache = (operand.swap(-3, -2) for operand in operands)
        self.batch, self.seqlens, self.leftpad = self.q.shape[0], seqlens, leftpad
        self.table: Any = None
        if block_table is not None:
            if batch_idx is not None:
                raise UnsupportedError(f"attikos.{_CACHE}: cache_batch_idx goes with caches without a block_table")
            if seqlens is None:
                raise ShapeMismatchError(f"attikos.{_CACHE}: a block_table needs cache_seqlens")
            self.table = operand_of(int32_array(block_table, self.q, "block_table"), "block_table")
        elif batch_idx is not None:
            self.table = self._indices(batch_idx)
        blocks = 1 if self.table is None else self.table.shape[-1]
        self.capacity = self.k_cache.shape[2] * blocks

    def _indices(self, batch_idx: Any) -> Operand:
        """Sequences of the cache as pages, one to a sequence."""
        operand = operand_of(int32_array(batch_idx, self.q, "cache_batch_idx"), "cache_batch_idx")
        if operand.shape != (self.batch,):
            raise ShapeMismatchError(
                f"attikos.{_CACHE}: cache_batch_idx is {operand.describe()}; expected [{self.batch}]"
            )
        limit = self.k_cache.shape[0]
        if is_on_host(batch_idx) and not all(0 <= i < limit for i in np.asarray(batch_idx)):
            raise ArgumentError(f"attikos.{_CACHE}: cache_batch_idx is {batch_idx}; expected numbers in [0, {limit})")
        return operand.view((self.batch, 1), (operand.strides[0], 0))

    def _checked(self, name: str, values: Any, limit: int) -> Any:
        """Numbers on the host as an int32 array; each is to lie in [0, limit]."""
        numbers = np.broadcast_to(np.asarray(values), (self.batch,)) if np.ndim(values) == 0 else np.asarray(values)
        if numbers.dtype.kind not in "iu" or numbers.shape != (self.batch,):
            raise ShapeMismatchError(
                f"attikos.{_CACHE}: {name} is {values}; expected one integer or {self.batch} of them"
            )
        for n in numbers:
            if not 0 <= n <= limit:
                raise ShapeMismatchError(f"attikos.{_CACHE}: {name} has {n}; expected numbers in [0, {limit}]")
        return numbers.astype(np.int32)

    def storage(self, k_new: Any) -> dict[str, Any]:
        """Lengths of the keys that take part, the page table, and a mask for padding on the left."""
        found: dict[str, Any] = {"page_table": self.table}
        new = 0 if k_new is None else int(k_new.shape[1])
        if k_new is not None and self.seqlens is None:
            raise ArgumentError(f"attikos.{_CACHE}: new k and v need cache_seqlens")
        if self.seqlens is not None:
            if not is_on_host(self.seqlens) and new and not hasattr(self.seqlens, "__add__"):
                self.seqlens = to_host(operand_of(self.seqlens, "cache_seqlens"), "cache_seqlens")
            if is_on_host(self.seqlens):
                self.seqlens = self._checked("cache_seqlens", self.seqlens, self.capacity - new)
            found["lengths_kv"] = self.seqlens + new if new else self.seqlens
        if self.leftpad is not None:
            found["mask"] = self._mask()
        return found

    def _mask(self) -> Any:
        """0 for the positions before the first one of each sequence: [batch, 1, 1, capacity]."""
        torch = sys.modules.get("torch")
        if self.q.kind is TORCH and torch is not None and isinstance(self.leftpad, torch.Tensor):
            positions = torch.arange(self.capacity, device=self.leftpad.device)
            return (positions[None] >= self.leftpad[:, None])[:, None, None]
        first = self.leftpad
        if not is_on_host(first):
            first = to_host(operand_of(first, "cache_leftpad"), "cache_leftpad")
        first = self._checked("cache_leftpad", first, self.capacity)
        return to_device((np.arange(self.capacity)[None] >= first[:, None])[:, None, None], self.q)

    def append(
        self, k: Any, v: Any, rotary_cos: Any, rotary_sin: Any, interleaved: bool, queries_share_position: bool
    ) -> tuple[Call, Any]:
        """The step that writes k and v into the caches, and its options but for the queries."""
        new = {name: operand_of(x, name) for name, x in (("k", k), ("v", v))}
        for name, operand in new.items():
            if operand.ndim != 4:
                raise ShapeMismatchError(f"attikos.{_CACHE}: {name} is {operand.describe()}; expected 4 dimensions")
        half = 0
        if rotary_cos is not None or rotary_sin is not None:
            if rotary_cos is None or rotary_sin is None:
                raise ArgumentError(f"attikos.{_CACHE}: of rotary_cos and rotary_sin one is missing")
            half = self._half_width(operand_of(rotary_cos, "rotary_cos"))
        return append_call(
            new["k"].swap(-3, -2), new["v"].swap(-3, -2), self.k_cache, self.v_cache, cache_lengths=self.seqlens,
            page_table=self.table, cos=rotary_cos, sin=rotary_sin, interleaved=interleaved, rotary_dim=2 * half,
            queries_share_position=queries_share_position, check=True, q=self.q,
        )  # fmt: skip

    def _half_width(self, cos: Operand) -> int:
        if cos.ndim != 2:
            raise ShapeMismatchError(
                f"attikos.{_CACHE}: rotary_cos is {cos.describe()}; expected [positions, rotary_dim / 2]"
            )
        if cos.shape[0] < self.capacity:
            raise ShapeMismatchError(
                f"attikos.{_CACHE}: rotary_cos has {cos.shape[0]} rows; expected at least {self.capacity}, the "
                "positions of the cache"
            )
        return cos.shape[1]

    def prepare(self, q: Operand, settings: dict[str, Any]) -> tuple[Call, Any, str]:
        few = q.shape[-2] <= _FEW
        operation = "decode" if few else "attention"
        call, options = prepare(operation, q, self.k_cache, self.v_cache, settings)
        return call, options, "attikos_" + operation

    def run(self, q: Operand, settings: dict[str, Any], return_lse: bool) -> Any:
        call, options, function = self.prepare(q, settings)
        out, lse = results(call, settings, return_lse, heads_last=True)
        call.run(function, call["q"], call["k"], call["v"], out, lse, options)
        return call.finish()
