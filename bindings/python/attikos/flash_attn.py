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

from . import _autograd, _border
from ._arguments import INT64, Caller, flag, integer, real, spell, window
from ._arrays import TORCH, Call, Operand, operand_of
from ._context import CPU
from ._host import int32_array, integers, is_on_host, to_device, to_host
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


# What the package calls what attention() calls otherwise.
SPELLED = {
    "scale": "softmax_scale", "window": "window_size", "cu_seqlens_kv": "cu_seqlens_k", "page_table": "block_table",
    "return_lse": "return_attn_probs",
}  # fmt: skip


def attention_settings_of(
    operation: str, dropout_p: Any, softmax_scale: Any, causal: Any, window_size: Any, softcap: Any,
    alibi_slopes: Any, **given: Any,
) -> dict[str, Any]:  # fmt: skip
    if dropout_p is not None and real(operation, "dropout_p", dropout_p) != 0:
        raise UnsupportedError(
            f"attikos.{operation}: dropout_p is {dropout_p}; expected 0, dropout is not offered"
        )
    left, right = window(operation, "window", window_size, INT64[0])
    return attention_settings(
        scale=softmax_scale, causal=causal, window=(max(left, -1), max(right, -1)), softcap=softcap,
        alibi_slopes=alibi_slopes, heads_last=True, **given,
    )  # fmt: skip


def _answer(result: Any, return_attn_probs: bool) -> Any:
    return (*result, None) if return_attn_probs else result


def _parts(function: str, packed: Any, name: str, dimensions: str, count: int) -> tuple[Caller, list[Any]]:
    """The arrays that lie packed in one, along the third dimension from behind, and how errors speak of them."""
    operand = operand_of(function, name, packed)
    ndim = dimensions.count(",") + 1
    if operand.ndim != ndim or operand.shape[-3] != count:
        raise ShapeMismatchError(f"attikos.{function}: {name} is {operand.describe()}; expected [{dimensions}]")
    before = ":, " * (ndim - 3)
    names = dict(zip("qkv" if count == 3 else "kv", (f"{name}[{before}{i}]" for i in range(count))))
    return Caller(function, **SPELLED, **names), [_part(packed, operand, i) for i in range(count)]


def _part(packed: Any, operand: Operand, index: int) -> Any:
    """One of the arrays; a tensor of PyTorch, which knows how to give the gradients back, else the memory."""
    if operand.kind is TORCH:
        return packed.select(-3, index)
    shape, strides = list(operand.shape), list(operand.strides)
    del shape[-3], strides[-3]
    part = operand.view(tuple(shape), tuple(strides), index * operand.strides[-3])
    part.shown = part.shape
    return part


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """q [batch, seqlen_q, heads_q, d], k and v [batch, seqlen_k, heads_k, d] -> [batch, seqlen_q, heads_q, d]."""
    if alibi_slopes is None and return_attn_probs is False:
        done = _border.attention(
            q, k, v, True, False, softmax_scale, softcap, window_size, causal, dropout_p=dropout_p, recorded=True
        )
        if done is not None:
            return done
    settings = attention_settings_of(_FUNC, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _dense(_FUNC, q, k, v, settings, return_attn_probs)


_FUNC = Caller("flash_attn_func", **SPELLED)


def _dense(operation: Caller, q: Any, k: Any, v: Any, settings: dict[str, Any], return_attn_probs: bool) -> Any:
    if getattr(q, "ndim", None) != 4:
        operand = operand_of(operation, "q", q)
        if operand.ndim != 4:
            raise ShapeMismatchError(
                f"attikos.{operation}: {spell(operation, 'q')} is {operand.describe()}; expected 4 dimensions "
                "[batch, seqlen, heads, head_dim]"
            )
    return _answer(differentiable_attention(operation, q, k, v, settings, return_attn_probs), return_attn_probs)


def flash_attn_kvpacked_func(
    q: Any, kv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same with keys and values in one array [batch, seqlen_k, 2, heads_k, d]."""
    if _border.is_traced():
        return flash_attn_func(
            q, *kv.unbind(-3), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
            return_attn_probs,
        )  # fmt: skip
    operation, parts = _parts("flash_attn_kvpacked_func", kv, "kv", "batch, seqlen_k, 2, heads_k, head_dim", 2)
    settings = attention_settings_of(operation, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _dense(operation, q, *parts, settings, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same with queries, keys and values in one array [batch, seqlen, 3, heads, d]."""
    if _border.is_traced():
        return flash_attn_func(
            *qkv.unbind(-3), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
            return_attn_probs,
        )  # fmt: skip
    operation, parts = _parts("flash_attn_qkvpacked_func", qkv, "qkv", "batch, seqlen, 3, heads, head_dim", 3)
    settings = attention_settings_of(operation, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _dense(operation, *parts, settings, return_attn_probs)


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Any = None, *, check: bool = False,
) -> Any:  # fmt: skip
    """Packed sequences: q [total_q, heads_q, d], k and v [total_k, heads_k, d], offsets int32 [batch + 1]; with
    a block_table [batch, max_blocks], k and v are [num_blocks, block_size, heads_k, d]. Offsets and tables on a device
    are not read: kernels clamp what is out of range. With check they are read and checked, which waits for the device,
    unless a graph is captured."""
    if (
        alibi_slopes is None and block_table is None and return_attn_probs is False and cu_seqlens_q is not None
        and cu_seqlens_k is not None
    ):  # fmt: skip
        done = _border.attention(
            q, k, v, True, False, softmax_scale, softcap, window_size, causal, cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_k, dropout_p=dropout_p, check=check or not getattr(q, "is_cuda", False),
        )  # fmt: skip
        if done is not None:
            return done
    numbers = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _packed(_VARLEN, q, k, v, cu_seqlens_q, cu_seqlens_k, numbers, return_attn_probs, check, block_table)


_VARLEN = Caller("flash_attn_varlen_func", **SPELLED, lengths_kv="cu_seqlens_k")


def _packed(
    operation: Caller, q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, numbers: tuple[Any, ...],
    return_attn_probs: bool, check: bool, block_table: Any = None,
) -> Any:  # fmt: skip
    given: dict[str, Any] = {"cu_seqlens_q": cu_seqlens_q, "check_device": flag(operation, "check", check)}
    for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if offsets is None:
            raise ArgumentError(f"attikos.{operation}: {name} is None; expected the offsets of the sequences")
    if block_table is None:
        given["cu_seqlens_kv"] = cu_seqlens_k
    elif _border.is_traced():
        given.update(page_table=block_table, lengths_kv=cu_seqlens_k[1:] - cu_seqlens_k[:-1])
    else:
        like = operand_of(operation, "q", q)
        offsets = int32_array(operation, "cu_seqlens_kv", cu_seqlens_k, like)
        of_k = operand_of(operation, "cu_seqlens_kv", offsets)
        of_q = operand_of(operation, "cu_seqlens_q", int32_array(operation, "cu_seqlens_q", cu_seqlens_q, like))
        if of_k.ndim != 1 or of_k.shape != of_q.shape:
            raise ShapeMismatchError(
                f"attikos.{operation}: cu_seqlens_q is {of_q.describe()}, cu_seqlens_k is {of_k.describe()}; expected "
                "[batch + 1] both"
            )
        if not hasattr(offsets, "__sub__"):
            offsets = to_host(operation, "cu_seqlens_k", offsets)
        given.update(page_table=block_table, lengths_kv=offsets[1:] - offsets[:-1])
    settings = attention_settings_of(operation, *numbers, **given)
    return _answer(differentiable_attention(operation, q, k, v, settings, return_attn_probs), return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: Any, kv: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False, *,
    check: bool = False,
) -> Any:  # fmt: skip
    """The same with keys and values in one array [total_k, 2, heads_k, d]."""
    if _border.is_traced():
        return flash_attn_varlen_func(
            q, *kv.unbind(-3), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
            window_size, softcap, alibi_slopes, deterministic, return_attn_probs, check=check,
        )  # fmt: skip
    operation, parts = _parts("flash_attn_varlen_kvpacked_func", kv, "kv", "total_k, 2, heads_k, head_dim", 2)
    numbers = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _packed(operation, q, *parts, cu_seqlens_q, cu_seqlens_k, numbers, return_attn_probs, check)


def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False, *,
    check: bool = False,
) -> Any:  # fmt: skip
    """The same with queries, keys and values in one array [total, 3, heads, d]."""
    if _border.is_traced():
        return flash_attn_varlen_func(
            *qkv.unbind(-3), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
            window_size, softcap, alibi_slopes, deterministic, return_attn_probs, check=check,
        )  # fmt: skip
    operation, parts = _parts("flash_attn_varlen_qkvpacked_func", qkv, "qkv", "total, 3, heads, head_dim", 3)
    operation.names.update(cu_seqlens_q="cu_seqlens", cu_seqlens_kv="cu_seqlens")
    numbers = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _packed(operation, *parts, cu_seqlens, cu_seqlens, numbers, return_attn_probs, check)


def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, rotary_cos: Any = None,
    rotary_sin: Any = None, cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None,
    block_table: Any = None, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
    alibi_slopes: Any = None, num_splits: int = 0, return_softmax_lse: bool = False, *,
    check: bool = False,
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

    Lengths and tables on a device are not read: kernels clamp what is out of range. With check they are read and
    checked, which waits for the device, unless a graph is captured. There are no gradients, as in that package: where
    PyTorch records, an array that asks for one raises UnsupportedError. Caches of libraries that do not change arrays
    (JAX, ...), read-only ones and those that share memory with another argument take no new keys.
    """
    if (
        cache_batch_idx is None and cache_leftpad is None and alibi_slopes is None and (k is None) == (v is None)
        and (rotary_cos is None) == (rotary_sin is None)
    ):  # fmt: skip
        done = _border.with_kvcache(
            q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, block_table, softmax_scale, softcap,
            window_size, causal, rotary_interleaved, num_splits, return_softmax_lse, check,
        )  # fmt: skip
        if done is not None:
            if k is not None:
                _autograd.mark_written(k_cache, v_cache)
            return done
    if (k is None) != (v is None):
        raise ArgumentError(f"attikos.{_CACHE}: of k and v one is missing; expected both or none")
    if k is None and (rotary_cos is not None or rotary_sin is not None):
        raise ArgumentError(f"attikos.{_CACHE}: rotary_cos and rotary_sin go with new k and v")
    rotary_interleaved = flag(_CACHE, "interleaved", rotary_interleaved)
    with_lse = flag(_CACHE, "return_lse", return_softmax_lse)
    if _border.dispatches(q, k_cache, v_cache, k, v):
        return _dispatched(
            q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad,
            block_table, alibi_slopes, softmax_scale, causal, window_size, softcap, rotary_interleaved, num_splits,
            check, with_lse,
        )  # fmt: skip
    _autograd.refuse(_CACHE, {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v, "rotary_cos": rotary_cos,
                              "rotary_sin": rotary_sin, "alibi_slopes": alibi_slopes})  # fmt: skip
    request = _CacheCall(q, k_cache, v_cache, cache_seqlens, cache_batch_idx, cache_leftpad, block_table)
    checks = flag(_CACHE, "check", check) or request.q.place == CPU
    settings = attention_settings_of(
        _CACHE, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes,
        splits=max(integer(_CACHE, "splits", num_splits), 0), check=checks, **request.storage(k),
    )  # fmt: skip
    settings["heads_last"] = False  # the operands are turned already
    if k is None:
        return request.run(request.q, settings, with_lse)
    local = causal or settings["window"] != (-1, -1)
    append, options = request.append(k, v, rotary_cos, rotary_sin, rotary_interleaved, not local, checks)
    queries = request.q
    if rotary_cos is not None:
        queries = append.scratch(request.q.swap(-3, -2).shape, request.q.dtype).swap(-3, -2)
        options.q, options.q_out = request.q.pointer(), queries.pointer()
    # Nothing may be written when the second step is refused.
    settings["check"] = False
    call, attention_options, function = request.prepare(queries, settings)
    out, lse = results(call, {**settings, "heads_last": True}, with_lse)
    arguments = (call["q"], call["k"], call["v"], out, lse, attention_options)
    call.text(function.replace("attikos_", "attikos_explain_"), *arguments)
    run_append(append, options)
    call.run(function, *arguments)
    return call.finish()


def _dispatched(
    q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, cos: Any, sin: Any, seqlens: Any, *others: Any
) -> Any:
    """The call as an operator of PyTorch."""
    from . import _operators

    *settings, window_size, softcap, interleaved, num_splits, check, with_lse = others
    if isinstance(seqlens, int):
        seqlens = q.new_full((q.shape[0],), seqlens, dtype=_operators.torch.int32)
    operator = _operators.cache_attention if k is None else _operators.append_and_attend
    new = () if k is None else (k, v, cos, sin)
    out, lse = operator(
        q, k_cache, v_cache, *new, seqlens, *settings, list(window_size), softcap, interleaved, num_splits, check
    )
    return (out, lse) if with_lse else out


_CACHE = Caller(
    "flash_attn_with_kvcache", **{**SPELLED, "return_lse": "return_softmax_lse"}, lengths_kv="cache_seqlens",
    cache_lengths="cache_seqlens", k_new="k", v_new="v", splits="num_splits", interleaved="rotary_interleaved",
    mask="cache_leftpad",
)  # fmt: skip
_FEW = 16  # so many queries are decoded; more of them fill a processor without splitting the cache


class _CacheCall:
    """A call on a cache: arrays with heads before positions, and where the sequences lie in the cache."""

    def __init__(
        self, q: Any, k_cache: Any, v_cache: Any, seqlens: Any, batch_idx: Any, leftpad: Any, block_table: Any
    ) -> None:
        arrays = {"q": q, "k_cache": k_cache, "v_cache": v_cache}
        self.q, self.k_cache, self.v_cache = (self._four(x, name).swap(-3, -2) for name, x in arrays.items())
        self.batch, self.seqlens, self.leftpad = self.q.shape[0], seqlens, leftpad
        self.table: Any = None
        storage = "block_table" if batch_idx is None else "cache_batch_idx"
        self.words = Caller(_CACHE, **{**_CACHE.names, "page_table": storage})
        if block_table is not None:
            if batch_idx is not None:
                raise UnsupportedError(f"attikos.{_CACHE}: cache_batch_idx goes with caches without a block_table")
            if seqlens is None:
                raise ShapeMismatchError(f"attikos.{_CACHE}: a block_table needs cache_seqlens")
            self.table = operand_of(_CACHE, "page_table", int32_array(_CACHE, "page_table", block_table, self.q))
            if self.table.ndim != 2:
                raise ShapeMismatchError(
                    f"attikos.{_CACHE}: block_table is {self.table.describe()}; expected [batch, max_blocks]"
                )
        elif batch_idx is not None:
            self.table = self._indices(batch_idx)
        blocks = 1 if self.table is None else self.table.shape[-1]
        self.capacity = self.k_cache.shape[2] * blocks

    @staticmethod
    def _four(x: Any, name: str) -> Operand:
        operand = operand_of(_CACHE, name, x)
        if operand.ndim != 4:
            raise ShapeMismatchError(
                f"attikos.{_CACHE}: {name} is {operand.describe()}; expected 4 dimensions, heads before the last"
            )
        return operand

    def _indices(self, batch_idx: Any) -> Operand:
        """Sequences of the cache as pages, one to a sequence."""
        operand = operand_of(_CACHE, "cache_batch_idx", int32_array(_CACHE, "cache_batch_idx", batch_idx, self.q))
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
        numbers = integers(_CACHE, name, values)
        if numbers.ndim == 0:
            numbers = np.broadcast_to(numbers, (self.batch,))
        if numbers.shape != (self.batch,):
            raise ShapeMismatchError(
                f"attikos.{_CACHE}: {name} is {list(numbers.shape)}; expected one integer or {self.batch} of them"
            )
        for n in numbers:
            if not 0 <= n <= limit:
                raise ShapeMismatchError(f"attikos.{_CACHE}: {name} has {n}; expected numbers in [0, {limit}]")
        return np.ascontiguousarray(numbers)

    def storage(self, k_new: Any) -> dict[str, Any]:
        """Lengths of the keys that take part, the page table, and a mask for padding on the left."""
        found: dict[str, Any] = {"page_table": self.table}
        new = 0 if k_new is None else self._four(k_new, "k").shape[1]
        if k_new is not None and self.seqlens is None:
            raise ArgumentError(f"attikos.{_CACHE}: new k and v need cache_seqlens")
        if self.seqlens is not None:
            if not is_on_host(self.seqlens) and new and not hasattr(self.seqlens, "__add__"):
                self.seqlens = to_host(_CACHE, "cache_seqlens", self.seqlens)
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
            first = to_host(_CACHE, "cache_leftpad", first)
        first = self._checked("cache_leftpad", first, self.capacity)
        return to_device(_CACHE, "mask", (np.arange(self.capacity)[None] >= first[:, None])[:, None, None], self.q)

    def append(
        self, k: Any, v: Any, rotary_cos: Any, rotary_sin: Any, interleaved: bool, queries_share_position: bool,
        check: bool,
    ) -> tuple[Call, Any]:  # fmt: skip
        """The step that writes k and v into the caches, and its options but for the queries."""
        new = {name: self._four(x, name) for name, x in (("k", k), ("v", v))}
        half = 0
        if rotary_cos is not None or rotary_sin is not None:
            if rotary_cos is None or rotary_sin is None:
                raise ArgumentError(f"attikos.{_CACHE}: of rotary_cos and rotary_sin one is missing")
            half = self._half_width(operand_of(_CACHE, "rotary_cos", rotary_cos))
        return append_call(
            self.words, new["k"].swap(-3, -2), new["v"].swap(-3, -2), self.k_cache, self.v_cache,
            cache_lengths=self.seqlens, page_table=self.table, cos=rotary_cos, sin=rotary_sin, interleaved=interleaved,
            rotary_dim=2 * half, queries_share_position=queries_share_position, check=check, q=self.q,
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
        reading = Caller(_CACHE, **{**self.words.names, "k": "k_cache", "v": "v_cache"})
        call, options = prepare(reading, q, self.k_cache, self.v_cache, settings, of_decode=few)
        return call, options, "attikos_decode" if few else "attikos_attention"

    def run(self, q: Operand, settings: dict[str, Any], return_lse: bool) -> Any:
        call, options, function = self.prepare(q, settings)
        out, lse = results(call, {**settings, "heads_last": True}, return_lse)
        call.run(function, call["q"], call["k"], call["v"], out, lse, options)
        return call.finish()
