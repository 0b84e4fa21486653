# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention: softmax(scale * q * k^T + mask) * v."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import _autograd, _library
from ._arrays import COMPUTE, Call, Operand, choice, float32_numbers, int32_array, operand_of, pointer_or_none
from ._dtypes import FLOATING, DType, dtype_of
from .errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError

_ALGORITHMS = {"flash": 0, "tiled": 1, "naive": 2}
_DETERMINISM = {"run_to_run": 0, "batch_invariant": 1, "unordered": 2}


def _check_attention(operation: str, q: Operand, k: Operand, v: Operand, apart: bool) -> None:
    """What libattikos says as well, in one sentence each and before an output is made. apart: queries and keys may
    differ in their number of dimensions."""
    shapes = f" q is {q.describe()}, k is {k.describe()}, v is {v.describe()}."
    if q.ndim not in (3, 4):
        raise ShapeMismatchError(
            f"attikos.{operation}: q has {q.ndim} dimensions; expected 3D or 4D tensors "
            f"[batch, heads, seqlen, head_dim].{shapes}"
        )
    if (k.ndim != q.ndim and not apart) or v.ndim != k.ndim:
        raise ShapeMismatchError(f"attikos.{operation}: q, k and v have one number of dimensions.{shapes}")
    if k.dtype is not q.dtype or v.dtype is not q.dtype:
        raise UnsupportedDtypeError(f"attikos.{operation}: the dtypes of q, k and v must match.{shapes}")
    if q.dtype not in FLOATING and q.dtype is not DType.float8_e4m3:
        raise UnsupportedDtypeError(
            f"attikos.{operation}: unsupported dtype; expected float64, float32, float16, bfloat16 or "
            f"float8_e4m3.{shapes}"
        )


def _output_dtype(operation: str, q: Operand, wanted: Any) -> DType:
    """float8 gives what is asked for, bfloat16 without; all others themselves."""
    given = None if wanted is None else dtype_of(wanted, "out_dtype")
    if q.dtype in FLOATING:
        if given not in (None, q.dtype):
            raise UnsupportedDtypeError(f"attikos.{operation}: out_dtype goes with float8; q is {q.describe()}")
        return q.dtype
    if given not in (None, DType.float32, DType.float16, DType.bfloat16):
        raise UnsupportedDtypeError(
            f"attikos.{operation}: out_dtype is {wanted}; expected float32, float16 or bfloat16"
        )
    return given or DType.bfloat16


def _lengths(lengths: Any, like: Operand, limit: int, check: bool) -> Any:
    """Lengths as an int32 array; those that lie on the host are checked here, before anything runs."""
    array = int32_array(lengths, like, "lengths")
    if check and isinstance(array, np.ndarray) and array.size:
        bad = np.flatnonzero((array < 0) | (array > limit))
        if bad.size:
            raise ShapeMismatchError(
                f"attikos.attention: length {bad[0]} is {array.reshape(-1)[bad[0]]}; "
                f"expected a number in [0, {limit}]"
            )
    return array


# Arrays that an option struct points at, by their names here and there.
_TENSORS = ("lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv", "page_table", "bias", "mask",
            "alibi_slopes", "sinks", "descale_q", "descale_k", "descale_v")  # fmt: skip


def attention_settings(**given: Any) -> dict[str, Any]:
    """All settings of a call, those that are not given at their defaults."""
    defaults: dict[str, Any] = {
        "scale": None, "causal": False, "top_left": False, "window": (-1, -1), "softcap": 0.0,
        "algorithm": "flash", "compute": "ieee", "kernel": "", "check": True, "out_dtype": None, "splits": 0,
        "determinism": "run_to_run", **dict.fromkeys(_TENSORS),
    }  # fmt: skip
    return {**defaults, **given}


def prepare(operation: str, q: Any, k: Any, v: Any, settings: dict[str, Any], **more: Any) -> tuple[Call, Any]:
    """The call with all its arrays, and its options: those of decode, or of attention."""
    oq, ok, ov = operand_of(q, "q"), operand_of(k, "k"), operand_of(v, "v")
    paged = settings["page_table"] is not None
    alone = operation == "decode" and settings["cu_seqlens_q"] is not None and settings["cu_seqlens_kv"] is None
    _check_attention(operation, oq, ok, ov, paged or alone)
    if settings["algorithm"] not in _ALGORITHMS:
        raise ArgumentError(
            f"attikos.{operation}: algorithm is {settings['algorithm']!r}; expected one of {list(_ALGORITHMS)}"
        )
    check = settings["check"]
    arrays = {name: settings[name] for name in _TENSORS}
    limit_kv = ok.shape[-2]
    if paged:
        arrays["page_table"] = int32_array(arrays["page_table"], oq, "page_table")
        limit_kv *= operand_of(arrays["page_table"], "page_table").shape[-1]
    for name, limit in (("lengths_q", oq.shape[-2]), ("lengths_kv", limit_kv)):
        if arrays[name] is not None:
            arrays[name] = _lengths(arrays[name], oq, limit, check)
    for name in ("cu_seqlens_q", "cu_seqlens_kv"):
        if arrays[name] is not None:
            arrays[name] = int32_array(arrays[name], oq, name)
    for name in ("descale_q", "descale_k", "descale_v"):
        if arrays[name] is not None:
            arrays[name] = float32_numbers(arrays[name], oq)
    call = Call(operation, q=oq, k=ok, v=ov, **arrays, **more)
    options: Any = _library.DecodeOptions() if operation == "decode" else _library.AttentionOptions()
    values = dict(
        softmax_scale=settings["scale"] or 0.0,
        softcap=settings["softcap"],
        window_left=settings["window"][0],
        window_right=settings["window"][1],
        causal=int(settings["causal"]),
        causal_top_left=int(settings["top_left"]),
        algorithm=_ALGORITHMS[settings["algorithm"]],
        check=int(check and not call.context.capturing),
        kernel=settings["kernel"].encode(),
        compute=choice(operation, "compute", settings["compute"], COMPUTE),
    )
    if operation == "decode":
        del values["algorithm"], values["compute"]
        values["splits"] = settings["splits"]
        values["determinism"] = choice(operation, "determinism", settings["determinism"], _DETERMINISM)
    for name, value in values.items():
        setattr(options, name, value)
    for name in _TENSORS:
        if call.get(name) is not None:
            setattr(options, name, pointer_or_none(call.get(name)))
    return call, options


def results(
    call: Call, settings: dict[str, Any], with_lse: bool, heads_last: bool
) -> tuple[Operand, Operand | None]:
    """New arrays for the output, as the operation sees it, and for the log-sum-exp."""
    oq, ov = call["q"], call["v"]
    dtype = _output_dtype(call.operation, oq, settings["out_dtype"])
    shape = [*oq.shape[:-1], ov.shape[-1]]
    if heads_last:  # dense as [batch, seqlen, heads, head_dim], seen by the operation the other way round
        shape[-3], shape[-2] = shape[-2], shape[-3]
        out = call.result(shape, dtype).swap(-3, -2)
    else:
        out = call.result(shape, dtype)
    lse = None
    if with_lse:
        lse = call.result(oq.shape[:-1], DType.float64 if oq.dtype is DType.float64 else DType.float32)
    return out, lse


def _forward(
    q: Any, k: Any, v: Any, settings: dict[str, Any], with_lse: bool, heads_last: bool
) -> Any:
    call, options = prepare("attention", q, k, v, settings)
    out, lse = results(call, settings, with_lse, heads_last)
    call.run("attikos_attention", call["q"], call["k"], call["v"], out, lse, options)
    return call.finish()


def attention(
    q: Any, k: Any, v: Any, *, scale: float | None = None, causal: bool = False, top_left: bool = False,
    window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None, mask: Any = None,
    alibi_slopes: Any = None, sinks: Any = None, lengths_q: Any = None, lengths_kv: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, page_table: Any = None, descale_q: Any = None,
    descale_k: Any = None, descale_v: Any = None, out_dtype: Any = None, algorithm: str = "flash",
    compute: str = "ieee", kernel: str = "", return_lse: bool = False, check: bool = True,
) -> Any:  # fmt: skip
    """softmax(s) * v over the keys, s = scale * q * k^T, then softcap, bias, ALiBi and masks; dtype of q.

    q [batch, heads_q, seqlen_q, d], k [batch, heads_kv, seqlen_kv, d], v [batch, heads_kv, seqlen_kv, dv],
    or all with the first two dimensions joined; heads_q is a multiple of heads_kv; any strides; float64,
    float32, float16 or bfloat16, or float8_e4m3 with factors descale_q, descale_k, descale_v (numbers, or
    float32 [heads_kv] or [batch, heads_kv]) and out_dtype (bfloat16) float32, float16 or bfloat16. scale None
    or 0 means 1/sqrt(d). With off = len_kv - len_q (0 with top_left), query i sees key j if i + off - window[0]
    <= j <= i + off + window[1] (-1: open), where causal j <= i + off, and the mask (bool or uint8) is not 0. bias
    and mask broadcast to [batch, heads_q, seqlen_q, seqlen_kv]; alibi_slopes [heads_q] or [batch, heads_q];
    sinks: one logit per query head. compute (ieee, tf32, tf32x3) says how much precision float32 products may
    lose.

    lengths: int32, one per sequence (of q only beside those of kv); padded positions give 0. Packed: q
    [heads_q, total, d] with cu_seqlens. Paged: k [num_pages, heads_kv, page_size, d] with page_table
    [batch, max_pages]. Lengths and offsets on a device are checked, which waits for it, unless check is False or
    a graph is captured.

    return_lse adds the natural log-sum-exp [batch, heads_q, seqlen_q]. PyTorch tensors have gradients with
    respect to q, k, v, bias and sinks.
    """
    settings = attention_settings(
        scale=scale, causal=causal, top_left=top_left, window=window, softcap=softcap, bias=bias, mask=mask,
        alibi_slopes=alibi_slopes, sinks=sinks, lengths_q=lengths_q, lengths_kv=lengths_kv,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv, page_table=page_table, descale_q=descale_q,
        descale_k=descale_k, descale_v=descale_v, out_dtype=out_dtype, algorithm=algorithm, compute=compute,
        kernel=kernel, check=check,
    )  # fmt: skip
    return differentiable_attention(q, k, v, settings, return_lse, heads_last=False)


def differentiable_attention(
    q: Any, k: Any, v: Any, settings: dict[str, Any], return_lse: bool, heads_last: bool
) -> Any:
    """attention() of settings that are complete; heads_last: the result is [batch, seqlen, heads, head_dim]."""
    bias, sinks = settings["bias"], settings["sinks"]
    if not _autograd.wanted(q, k, v, bias, sinks):
        return _forward(q, k, v, settings, return_lse, heads_last)

    def run(q: Any, k: Any, v: Any, bias: Any, sinks: Any) -> Any:
        return _forward(q, k, v, {**settings, "bias": bias, "sinks": sinks}, True, heads_last)

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        again = {**settings, "bias": inputs[3], "sinks": inputs[4], "kernel": "", "check": False}
        out, dout = operand_of(outputs[0], "out"), operand_of(gradients[0], "dout")
        if heads_last:
            out, dout = out.swap(-3, -2), dout.swap(-3, -2)
        q, k, v = inputs[:3]
        found = _backward(q, k, v, out, outputs[1], dout, again, d_bias=needed[3], d_sinks=needed[4])
        return tuple(g if n else None for g, n in zip(found, needed))

    out, lse = _autograd.apply(run, back, (q, k, v, bias, sinks), differentiable=1)
    return (out, lse) if return_lse else out


def _backward(
    q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, settings: dict[str, Any], d_bias: bool, d_sinks: bool
) -> tuple[Any, ...]:
    """dq, dk, dv, d_bias, d_sinks; the last two None unless wanted."""
    call, options = prepare("attention_backward", q, k, v, settings, out=out, lse=lse, dout=dout)
    gradients = _library.AttentionGradients()
    wanted = {"dq": "q", "dk": "k", "dv": "v"}
    if d_bias and call.get("bias") is not None:
        wanted["d_bias"] = "bias"
    if d_sinks and call.get("sinks") is not None:
        wanted["d_sinks"] = "sinks"
    for name, of in wanted.items():
        setattr(gradients, name, call.result(call[of].shape, call[of].dtype).pointer())
    call.run(
        "attikos_attention_backward",
        *(call[name] for name in ("q", "k", "v", "out", "lse", "dout")), gradients, options,
    )  # fmt: skip
    found = dict(zip(wanted, call.finish()))
    return tuple(found.get(name) for name in ("dq", "dk", "dv", "d_bias", "d_sinks"))


def attention_backward(
    q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, *, scale: float | None = None, causal: bool = False,
    top_left: bool = False, window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None,
    mask: Any = None, alibi_slopes: Any = None, sinks: Any = None, lengths_q: Any = None,
    lengths_kv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, kernel: str = "",
    check: bool = True,
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of attention(): (dq, dk, dv), then that of bias and that of sinks where they were given.

    q, k, v and the options are those of the forward call, out and lse what it returned with return_lse.
    """
    settings = attention_settings(
        scale=scale, causal=causal, top_left=top_left, window=window, softcap=softcap, bias=bias, mask=mask,
        alibi_slopes=alibi_slopes, sinks=sinks, lengths_q=lengths_q, lengths_kv=lengths_kv,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv, kernel=kernel, check=check,
    )  # fmt: skip
    found = _backward(q, k, v, out, lse, dout, settings, d_bias=True, d_sinks=True)
    return tuple(gradient for gradient in found if gradient is not None)


def _one_scale(*given: float | None) -> float:
    """The scale among its spellings; None and 0 leave it open."""
    named = [float(s) for s in given if s is not None and s != 0]
    if any(not math.isfinite(s) for s in named):
        raise ArgumentError(f"attikos.flash_attention: the scale is {named}; expected a finite number")
    if len(set(named)) > 1:
        raise ArgumentError(f"attikos.flash_attention: scale and sm_scale disagree: {named}")
    return named[0] if named else 0.0


def _one_causal(*given: bool | None) -> bool:
    named = {bool(c) for c in given if c is not None}
    if len(named) > 1:
        raise ArgumentError("attikos.flash_attention: is_causal and causal disagree")
    return named.pop() if named else False


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    scale: float | None = None,
    is_causal: bool | None = None,
    *,
    causal: bool | None = None,
    sm_scale: float | None = None,
    seq_lens: Any = None,
    check: bool = True,
) -> Any:
    """Attention without storage that grows with seqlen^2; shapes and types as for attention().

    Serves two older signatures: (q, k, v, scale, is_causal) and (q, k, v, causal, sm_scale, seq_lens=...). A
    bool in fourth place is `causal`, and the fifth is then `sm_scale`. Scale None or 0.0 means
    1/sqrt(head_dim). Spellings that contradict each other raise. seq_lens: int32 [batch]; rows past a
    sequence's length are 0.
    """
    if _is_bool(scale):
        spelled = is_causal if is_causal is None or _is_bool(is_causal) else None
        if is_causal is not None and spelled is None:
            factor = _one_scale(is_causal, sm_scale)
        else:
            factor = _one_scale(sm_scale)
        masked = _one_causal(bool(scale), None if spelled is None else bool(spelled), causal)
    else:
        if is_causal is not None and not _is_bool(is_causal):
            raise ArgumentError(f"attikos.flash_attention: is_causal is {is_causal!r}; expected a bool")
        factor, masked = _one_scale(scale, sm_scale), _one_causal(is_causal, causal)
    return attention(
        q, k, v, scale=factor, causal=masked, lengths_q=seq_lens, lengths_kv=seq_lens, check=check
    )


def tiled_attention(q: Any, k: Any, v: Any, scale: float = 0.0, is_causal: bool = False) -> Any:
    """Attention that stores the scores and multiplies in tiles; values as flash_attention()."""
    return attention(q, k, v, scale=scale, causal=is_causal, algorithm="tiled")


def naive_attention(q: Any, k: Any, v: Any, scale: float = 0.0, is_causal: bool = False) -> Any:
    """Attention that stores the scores, one dot product per element: for checking the others."""
    return attention(q, k, v, scale=scale, causal=is_causal, algorithm="naive")
