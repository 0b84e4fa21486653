# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over caches of keys and values: few queries over a long cache, appending, merging of parts."""

from __future__ import annotations

from typing import Any

from . import _autograd, _border, _library, _options
from ._arguments import Caller, flag, integer, spell, text
from ._arrays import Call, Operand, operand_of, pointer_or_none
from ._host import int32_array
from ._dtypes import DType, dtype_of, expect_floating
from .attention import SELDOM, attention_settings, prepare, results
from .errors import ArgumentError, ShapeMismatchError


@_library.documented("decode")
def decode(
    q: Any, k: Any, v: Any, *, scale: float | None = None, causal: bool = False, top_left: bool = False,
    window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None, mask: Any = None,
    alibi_slopes: Any = None, sinks: Any = None, lengths_q: Any = None, lengths_kv: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, page_table: Any = None, descale_q: Any = None,
    descale_k: Any = None, descale_v: Any = None, out_dtype: Any = None, splits: int = 0, kernel: str = "",
    return_lse: bool = False, check: bool = True, determinism: str = "run_to_run", attention_chunk: int = 0,
) -> Any:  # fmt: skip
    """What attention() computes, for one or a few queries per sequence over a long cache, which is worked on in
    parts.

    q [batch, heads_q, seqlen_q, d], k [batch, heads_kv, seqlen_max, d], v [batch, heads_kv, seqlen_max, dv];
    lengths_kv int32 [batch]: positions of the cache in use; paged: k [num_pages, heads_kv, page_size, d] with
    page_table [batch, max_pages]. Sequences with different numbers of queries: q [heads_q, total, d] with
    cu_seqlens_q int32 [batch + 1] over padded or paged keys, or over packed ones with cu_seqlens_kv.

    splits: at most so many parts, 0 for as many as pay off; it changes the result by rounding only, and
    given it makes bits batch-invariant as well. determinism "batch_invariant": the bits of a sequence do not depend
    on what else is in the batch, for which splits of 0 become 16 on a device; "run_to_run" and "unordered" leave the
    choice free, and bits repeat from call to call with either. Everything else means what it means for
    attention(). There are no gradients: where PyTorch records, an array that asks for one raises UnsupportedError.
    """
    if (
        bias is None and mask is None and alibi_slopes is None and sinks is None and descale_q is None
        and descale_k is None and descale_v is None and out_dtype is None
        and (not _LATER or not _options.given(_LATER, {}))
    ):  # fmt: skip
        done = _border.decode(
            q, k, v, return_lse, scale, softcap, window, causal, top_left, splits, determinism, attention_chunk, check,
            lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table, kernel,
        )  # fmt: skip
        if done is not None:
            return done
    settings = attention_settings(
        scale=scale, causal=causal, top_left=top_left, window=window, softcap=softcap, bias=bias, mask=mask,
        alibi_slopes=alibi_slopes, sinks=sinks, lengths_q=lengths_q, lengths_kv=lengths_kv, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_kv, page_table=page_table, descale_q=descale_q, descale_k=descale_k,
        descale_v=descale_v, out_dtype=out_dtype, splits=splits, kernel=kernel, check=check, determinism=determinism,
        attention_chunk=attention_chunk,
    )  # fmt: skip
    with_lse = flag("decode", "return_lse", return_lse)
    if _border.dispatches(q, k, v):
        from . import _operators

        found = _operators.call_decode(q, k, v, settings)
        return found if with_lse else found[0]
    call, options = prepare("decode", q, k, v, settings, of_decode=True)
    out, lse = results(call, settings, with_lse)
    call.run("attikos_decode", call["q"], call["k"], call["v"], out, lse, options)
    return call.finish()


_LATER = _options.later("decode", decode, _border.decode, *SELDOM)


# Arrays that the options of append_kv point at, by their names here and there.
_APPENDED = ("cache_lengths", "new_lengths", "cu_seqlens_q", "cu_seqlens_kv", "page_table", "rotary_cos", "rotary_sin")


def append_call(
    operation: str, k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, *, cos: Any, sin: Any, interleaved: Any,
    rotary_dim: Any, queries_share_position: Any, check: Any, q: Any, kernel: Any = "", **integers: Any,
) -> tuple[Call, Any]:  # fmt: skip
    """The call of append_kv() with all its arrays, and its options but for the queries. integers: lengths, offsets
    and page table by name."""
    options = _library.AppendKvOptions(
        interleaved=int(flag(operation, "interleaved", interleaved)),
        queries_share_position=int(flag(operation, "queries_share_position", queries_share_position)),
        rotary_dim=integer(operation, "rotary_dim", rotary_dim),
        kernel=text(operation, "kernel", kernel),
    )
    checked = flag(operation, "check", check)
    first = operand_of(operation, "k_new", k_new)
    if (cos is None) != (sin is None):
        names = spell(operation, "rotary_cos"), spell(operation, "rotary_sin")
        raise ArgumentError(f"attikos.{operation}: of {names[0]} and {names[1]} one is missing; expected both or none")
    arrays = {name: None if x is None else int32_array(operation, name, x, first) for name, x in integers.items()}
    call = Call(
        operation, k_new=first, v_new=v_new, k_cache=k_cache, v_cache=v_cache, rotary_cos=cos, rotary_sin=sin,
        q=q, **arrays,
    )  # fmt: skip
    call.written("k_cache"), call.written("v_cache")
    options.check = int(checked and not call.context.capturing)
    for name in _APPENDED:
        setattr(options, name, pointer_or_none(call.get(name)))
    return call, options


def run_append(call: Call, options: Any) -> None:
    call.run("attikos_append_kv", *(call[name] for name in ("k_new", "v_new", "k_cache", "v_cache")), options)
    if _autograd.explained.get() is None:
        _autograd.mark_written(call["k_cache"].owner, call["v_cache"].owner)


@_library.documented("append_kv")
def append_kv(
    k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, *, cache_lengths: Any = None, page_table: Any = None,
    cos: Any = None, sin: Any = None, interleaved: bool = False, rotary_dim: int = 0, q: Any = None,
    queries_share_position: bool = False, new_lengths: Any = None, cu_seqlens_q: Any = None,
    cu_seqlens_kv: Any = None, kernel: str = "", check: bool = True,
) -> Any:  # fmt: skip
    """Writes new keys and values into a cache in place: position cache_lengths[b] + i of sequence b becomes
    k_new[b, :, i], rotated by its position where cos and sin are given, and v_new[b, :, i].

    k_new [batch, heads_kv, seqlen_new, d], v_new likewise with dv; caches [batch, heads_kv, seqlen_max, d] or,
    with page_table int32 [batch, max_pages], [num_pages, heads_kv, page_size, d]; cache_lengths int32 [batch]
    (None: 0), which stay as they are; cos and sin [positions, rotary_dim] as for rope(), or half as wide with
    rotary_dim, one entry to a pair of features. q [batch, heads_q, seqlen_q, d] is rotated as well and returned
    as a new array: query i by position length + i, or all by the first one.

    Sequences may differ in their number of new tokens: new_lengths int32 [batch] says how many of the seqlen_new
    positions are any, or k_new and v_new are packed, [heads_kv, total, d] with cu_seqlens_kv int32 [batch + 1];
    q likewise with cu_seqlens_q. New keys, values and q are float64, float32, float16 or bfloat16; caches and the
    rotated queries have that dtype, or that of the cache where float32 goes into float16 or bfloat16, and 16 bits
    go into float8_e4m3, where numbers beyond its range become NaN. check: lengths that are wrong, new positions that do
    not fit and pages that the cache does not have raise, which waits for the device; else positions are left out and
    pages clamped. kernel: as for gemm(). Caches of
    libraries that do not change arrays (JAX, ...), read-only ones, and those that share memory with each other or
    with another argument raise ArgumentError, StrideError where elements of one share memory; there are no gradients,
    as for decode().
    """
    call, options = append_call(
        Caller("append_kv", rotary_cos="cos", rotary_sin="sin"), k_new, v_new, k_cache, v_cache,
        cache_lengths=cache_lengths, page_table=page_table, cos=cos, sin=sin, interleaved=interleaved,
        rotary_dim=rotary_dim, queries_share_position=queries_share_position, check=check, q=q, kernel=kernel,
        new_lengths=new_lengths, cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv,
    )  # fmt: skip
    if call.get("q") is None:
        run_append(call, options)
        return None
    if cos is None:
        raise ArgumentError("attikos.append_kv: q is rotated, but cos and sin are missing")
    out = call.result(call["q"].shape, call["k_cache"].dtype)
    options.q, options.q_out = call["q"].pointer(), out.pointer()
    run_append(call, options)
    return call.finish()


def _merged(call: Call, of: str, shape: tuple[int, ...], out_dtype: Any) -> tuple[Operand, Operand]:
    """New arrays for the result of merging and its log-sum-exp."""
    state = call[of]
    dtype = state.dtype if out_dtype is None else dtype_of(out_dtype, "out_dtype")
    expect_floating(call.operation, of, state)
    out = call.result(shape, dtype)
    return out, call.result(shape[:-1], DType.float64 if dtype is DType.float64 else DType.float32)


def merge_states(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any, out_dtype: Any = None) -> Any:
    """(out, lse) of attention over two disjoint sets of keys together, from attention over each.

    out_a and out_b [batch, heads, seqlen, dv] or with the first two dimensions joined, lse_a and lse_b without
    the last one: what attention() and decode() return with return_lse. out_dtype is theirs unless float32
    states are to become float16 or bfloat16. There are no gradients, as for decode().
    """
    if out_dtype is None:
        done = _border.merge_states(out_a, lse_a, out_b, lse_b)
        if done is not None:
            return done
    call = Call("merge_states", out_a=out_a, lse_a=lse_a, out_b=out_b, lse_b=lse_b)
    out, lse = _merged(call, "out_a", call["out_a"].shape, out_dtype)
    call.run("attikos_merge_states", *(call[n] for n in ("out_a", "lse_a", "out_b", "lse_b")), out, lse)
    return call.finish()


def merge_into(out: Any, lse: Any, more_out: Any, more_lse: Any) -> None:
    """merge_states() of (out, lse) and (more_out, more_lse), written over the former."""
    if _border.merge_states(out, lse, more_out, more_lse, into=True) is not None:
        return
    call = Call("merge_states", out_a=out, lse_a=lse, out_b=more_out, lse_b=more_lse)
    out_a, lse_a = call.written("out_a"), call.written("lse_a")
    call.run("attikos_merge_states", out_a, lse_a, call["out_b"], call["lse_b"], out_a, lse_a)
    call.finish()


def merge_split_states(outs: Any, lses: Any, out_dtype: Any = None) -> Any:
    """merge_states() of any number of sets along dimension 0: outs [splits, batch, heads, seqlen, dv], lses
    [splits, batch, heads, seqlen]."""
    call = Call("merge_split_states", outs=outs, lses=lses)
    if call["outs"].ndim < 1:
        raise ShapeMismatchError(f"attikos.merge_split_states: outs is {call['outs'].describe()}")
    out, lse = _merged(call, "outs", call["outs"].shape[1:], out_dtype)
    call.run("attikos_merge_split_states", call["outs"], call["lses"], out, lse)
    return call.finish()
