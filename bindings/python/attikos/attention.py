# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention: softmax(scale * q * k^T + mask) * v."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _autograd, _border, _library, _options
from ._arguments import Caller, finite, flag, real, spell, window
from ._arrays import Call, Operand, operand_of, pointer_or_none, tensor_of
from ._context import CPU
from ._dtypes import FLOATING, DType, dtype_of
from ._host import float32_numbers, int32_array
from .errors import ArgumentError, ShapeMismatchError, UnsupportedDtypeError, UnsupportedError


def _check_attention(operation: str, q: Operand, k: Operand, v: Operand, apart: bool) -> None:
    """What libattikos says as well, in one sentence each and before an output is made. apart: queries and keys may
    differ in their number of dimensions."""
    known = q.dtype in FLOATING or q.dtype is DType.float8_e4m3
    together = (k.ndim == q.ndim or apart) and v.ndim == k.ndim and k.dtype is q.dtype and v.dtype is q.dtype
    if known and together and q.ndim in (3, 4):
        return
    names = [spell(operation, name) for name in ("q", "k", "v")]
    shapes = " " + ", ".join(f"{name} is {x.describe()}" for name, x in zip(names, (q, k, v))) + "."
    if q.ndim not in (3, 4):
        raise ShapeMismatchError(
            f"attikos.{operation}: {names[0]} has {q.ndim} dimensions; expected 3D or 4D tensors "
            f"[batch, heads, seqlen, head_dim].{shapes}"
        )
    all_three = "{}, {} and {}".format(*names)
    if (k.ndim != q.ndim and not apart) or v.ndim != k.ndim:
        raise ShapeMismatchError(f"attikos.{operation}: {all_three} have one number of dimensions.{shapes}")
    if k.dtype is not q.dtype or v.dtype is not q.dtype:
        raise UnsupportedDtypeError(f"attikos.{operation}: the dtypes of {all_three} must match.{shapes}")
    raise UnsupportedDtypeError(
        f"attikos.{operation}: unsupported dtype; expected float64, float32, float16, bfloat16 or float8_e4m3.{shapes}"
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


def _lengths(operation: str, name: str, lengths: Any, like: Operand, limit: int, check: bool) -> Any:
    """Lengths as an int32 array; those that lie on the host are checked here, before anything runs."""
    array = int32_array(operation, name, lengths, like)
    if check and isinstance(array, np.ndarray) and array.size:
        bad = np.flatnonzero((array < 0) | (array > limit))
        if bad.size:
            raise ShapeMismatchError(
                f"attikos.{operation}: {spell(operation, name)}: length {bad[0]} is {array.reshape(-1)[bad[0]]}; "
                f"expected a number in [0, {limit}]"
            )
    return array


# The options of attention and decode by their names in the library, and those that go by another name here.
_OPTIONS = {x.name: x for operation in ("attention", "decode") for x in _library.describe_options(operation)[1]}
_RENAMED = {"struct_size", "softmax_scale", "window_left", "window_right", "causal_top_left", "check"}

# Arrays that an option struct points at, by their names here and there.
_TENSORS = tuple(name for name, option in _OPTIONS.items() if option.kind == "tensor")


_DEFAULTS: dict[str, Any] = {
    **{name: _options.default_of(option) for name, option in _OPTIONS.items() if name not in _RENAMED},
    "scale": None, "window": (-1, -1), "top_left": False, "check": True, "check_device": True,
    "out_dtype": None, "heads_last": False,
}  # fmt: skip


def attention_settings(**given: Any) -> dict[str, Any]:
    """All settings of a call, those that are not given at their defaults. heads_last: the arrays of queries, keys and
    values are [batch, seqlen, heads, head_dim], and so is the result."""
    unknown = [name for name in given if name not in _DEFAULTS]
    assert not unknown, f"no setting of attention: {unknown}"
    return {**_DEFAULTS, **given}


def defaults_beyond(*known: str) -> dict[str, Any]:
    """The settings but for those that are known, with their defaults."""
    return {name: default for name, default in _DEFAULTS.items() if name not in known}


def seen(operation: str, name: str, x: Any, settings: dict[str, Any]) -> Operand:
    """Queries, keys, values or an output with heads before positions, as libattikos sees them."""
    operand = operand_of(operation, name, x)
    return operand.swap(-3, -2) if settings["heads_last"] and operand.ndim >= 3 else operand


def _numbers(operation: str, settings: dict[str, Any], of_decode: bool) -> Any:
    """The options of attention or decode that are no arrays."""
    left, right = window(operation, "window", settings["window"])
    values = dict(
        softmax_scale=0.0 if settings["scale"] is None else real(operation, "scale", settings["scale"]),
        window_left=left,
        window_right=right,
        causal_top_left=int(flag(operation, "top_left", settings["top_left"])),
    )
    struct = _library.DecodeOptions if of_decode else _library.AttentionOptions
    for kind, name in struct.SCALARS:
        if name not in _RENAMED:
            values[name] = _options.read(operation, kind, name, settings[name])
    return struct(**values)


def prepare(
    operation: str, q: Any, k: Any, v: Any, settings: dict[str, Any], of_decode: bool = False, **more: Any
) -> tuple[Call, Any]:
    """The call with all its arrays, and its options: those of attention, or of decode."""
    options = _numbers(operation, settings, of_decode)
    oq, ok, ov = (seen(operation, name, x, settings) for name, x in (("q", q), ("k", k), ("v", v)))
    paged = settings["page_table"] is not None
    alone = of_decode and settings["cu_seqlens_q"] is not None and settings["cu_seqlens_kv"] is None
    _check_attention(operation, oq, ok, ov, paged or alone)
    check = flag(operation, "check", settings["check"])
    arrays = {name: settings[name] for name in _TENSORS}
    limit_kv = ok.shape[-2]
    for name in ("cu_seqlens_q", "cu_seqlens_kv", "page_table"):
        if arrays[name] is not None:
            arrays[name] = int32_array(operation, name, arrays[name], oq)
    if paged:
        table = operand_of(operation, "page_table", arrays["page_table"])
        if table.ndim != 2:
            raise ShapeMismatchError(
                f"attikos.{operation}: {spell(operation, 'page_table')} is {table.describe()}; expected "
                "[batch, max_pages]"
            )
        limit_kv *= table.shape[-1]
    for name, limit in (("lengths_q", oq.shape[-2]), ("lengths_kv", limit_kv)):
        if arrays[name] is not None:
            arrays[name] = _lengths(operation, name, arrays[name], oq, limit, check)
    for name in ("descale_q", "descale_k", "descale_v"):
        if arrays[name] is not None:
            arrays[name] = float32_numbers(operation, name, arrays[name], oq)
    call = Call(operation, q=oq, k=ok, v=ov, **arrays, **more)
    looks = check and (settings["check_device"] or call.place == CPU)
    options.check = int(looks and not call.context.capturing)
    for name in _TENSORS:
        if call.get(name) is not None:
            setattr(options, name, pointer_or_none(call.get(name)))
    return call, options


def results(call: Call, settings: dict[str, Any], with_lse: bool) -> tuple[Operand, Operand | None]:
    """New arrays for the output, as the operation sees it, and for the log-sum-exp."""
    oq, ov = call["q"], call["v"]
    dtype = _output_dtype(call.operation, oq, settings["out_dtype"])
    out = _like(call, [*oq.shape[:-1], ov.shape[-1]], dtype, settings)
    lse = None
    if with_lse:
        lse = call.result(oq.shape[:-1], DType.float64 if oq.dtype is DType.float64 else DType.float32)
    return out, lse


def _like(call: Call, shape: Any, dtype: DType, settings: dict[str, Any]) -> Operand:
    """A new array of this shape as the operation sees it, dense in the caller's order."""
    if not settings["heads_last"]:
        return call.result(shape, dtype)
    shape = [*shape[:-3], shape[-2], shape[-3], shape[-1]]
    return call.result(shape, dtype).swap(-3, -2)


# Settings of the short way in the order of its arguments, others of it, and those that it takes at their defaults alone.
_OFTEN = ("scale", "softcap", "window", "causal", "top_left", "compute", "attention_chunk")
_INDICES = ("lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv", "page_table")
SELDOM = (
    "bias", "mask", "alibi_slopes", "sinks", "descale_q", "descale_k", "descale_v", "out_dtype", "determinism",
)  # fmt: skip
_BEYOND_SHORT = defaults_beyond(*_options.parameters(_border.attention), "check_device")


def attention_forward(operation: str, q: Any, k: Any, v: Any, settings: dict[str, Any], with_lse: bool) -> Any:
    if not _options.strange(_BEYOND_SHORT, settings):
        done = _border.attention(
            q, k, v, settings["heads_last"], with_lse, *(settings[name] for name in _OFTEN),
            check=settings["check"] if settings["check_device"] or not getattr(q, "is_cuda", False) else False,
            **{name: settings[name] for name in _INDICES}, algorithm=settings["algorithm"], kernel=settings["kernel"],
            sm_margin=settings["sm_margin"],
        )  # fmt: skip
        if done is not None:
            return done
    call, options = prepare(operation, q, k, v, settings)
    out, lse = results(call, settings, with_lse)
    call.run("attikos_attention", call["q"], call["k"], call["v"], out, lse, options)
    return call.finish()


@_library.documented("attention")
def attention(
    q: Any, k: Any, v: Any, *, scale: float | None = None, causal: bool = False, top_left: bool = False,
    window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None, mask: Any = None,
    alibi_slopes: Any = None, sinks: Any = None, lengths_q: Any = None, lengths_kv: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, page_table: Any = None, descale_q: Any = None,
    descale_k: Any = None, descale_v: Any = None, out_dtype: Any = None, algorithm: str = "flash",
    compute: str = "ieee", kernel: str = "", return_lse: bool = False, check: bool = True, attention_chunk: int = 0,
    determinism: str = "run_to_run", sm_margin: int = 0,
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
    [batch, max_pages]. Lengths, offsets and the pages that hold positions of a sequence are checked, which waits for a
    device where they lie there, unless check is False or a graph is captured.

    Few queries over many keys go to the kernels of decode(), which split the keys, unless `kernel` names one; explain()
    says so. return_lse adds the natural log-sum-exp [batch, heads_q, seqlen_q]. Where PyTorch records, out and log-sum-exp
    have gradients with respect to q, k, v, bias and sinks; float8, pages, alibi_slopes and descale factors that ask
    for one raise UnsupportedError. determinism "unordered" is for them: it leaves the order of their sums to the device.
    sm_margin is a hint, with the same bits whatever it is.
    """
    if (
        bias is None and mask is None and alibi_slopes is None and sinks is None and descale_q is None
        and descale_k is None and descale_v is None and out_dtype is None and determinism == "run_to_run"
        and (not _LATER or not _options.given(_LATER, {}))
    ):  # fmt: skip
        done = _border.attention(
            q, k, v, False, return_lse, scale, softcap, window, causal, top_left, compute, attention_chunk, check,
            lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table, algorithm, kernel, sm_margin=sm_margin,
            recorded=True,
        )  # fmt: skip
        if done is not None:
            return done
    settings = attention_settings(
        scale=scale, causal=causal, top_left=top_left, window=window, softcap=softcap, bias=bias, mask=mask,
        alibi_slopes=alibi_slopes, sinks=sinks, lengths_q=lengths_q, lengths_kv=lengths_kv, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_kv, page_table=page_table, descale_q=descale_q, descale_k=descale_k,
        descale_v=descale_v, out_dtype=out_dtype, algorithm=algorithm, compute=compute, kernel=kernel, check=check,
        attention_chunk=attention_chunk, determinism=determinism, sm_margin=sm_margin,
    )  # fmt: skip
    return differentiable_attention("attention", q, k, v, settings, return_lse)


_LATER = _options.later("attention", attention, _border.attention, *SELDOM)


def differentiable_attention(
    operation: str, q: Any, k: Any, v: Any, settings: dict[str, Any], return_lse: bool
) -> Any:
    """attention() of settings that are complete, in the words of `operation`."""
    with_lse = flag(operation, "return_lse", return_lse)
    if _border.dispatches(q, k, v, settings["bias"], settings["sinks"], casts=True):
        return _dispatched(operation, q, k, v, settings, with_lse)
    inputs = (q, k, v, settings["bias"], settings["sinks"])
    if not _autograd.wanted(*inputs):
        return attention_forward(operation, q, k, v, settings, with_lse)
    if settings["page_table"] is not None:
        for name, x in zip(("q", "k", "v", "bias", "sinks"), inputs):
            if getattr(x, "requires_grad", False):
                raise UnsupportedError(
                    f"attikos.{operation}: {spell(operation, name)} requires a gradient, but a paged cache has none; "
                    f"expected {spell(operation, name)}.detach(), or a call in torch.no_grad()"
                )
    if q.element_size() == 1:  # float8 has no gradient: refused on the way
        return attention_forward(operation, q, k, v, settings, with_lse)

    def run(q: Any, k: Any, v: Any, bias: Any, sinks: Any) -> Any:
        return attention_forward(operation, q, k, v, {**settings, "bias": bias, "sinks": sinks}, True)

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        again = {**settings, "bias": inputs[3], "sinks": inputs[4], "kernel": "", "check": False}
        return gradients_of(operation, *inputs[:3], *outputs[:2], *gradients[:2], again, needed[3], needed[4])

    out, lse = _autograd.apply(run, back, inputs, differentiable=2)
    return (out, lse) if with_lse else out


def _dispatched(operation: str, q: Any, k: Any, v: Any, settings: dict[str, Any], return_lse: bool) -> Any:
    """The call as an operator of PyTorch. Factors of float8 and out_dtype are none of its arguments."""
    _operators = _border.operators()
    _options.refuse("attention", _options.strange(_operators.BEYOND_ATTENTION, settings))
    check = flag(operation, "check", settings["check"]) and settings["check_device"]
    more = {**settings, "check": check, "window": list(settings["window"])}
    out, lse = _operators.attention(
        q, k, v, settings["bias"], settings["sinks"], *(more[name] for name in _operators.SETTINGS)
    )
    return (out, lse) if return_lse else out


def gradients_of(
    operation: str, q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, dlse: Any, settings: dict[str, Any],
    d_bias: bool, d_sinks: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of q, k, v, bias and sinks from those of the output and the log-sum-exp, of which one may be None."""
    features = v.shape[-1]
    if dout is None:
        dout = out.new_zeros(out.shape)
    if dlse is not None:
        v = tensor_of(operand_of(operation, "v", v))
        v, out, dout = _with_gradient_of_lse(v, out, dout, dlse, settings["heads_last"])
    dq, dk, dv, *others = _backward(q, k, v, out, lse, dout, settings, d_bias=d_bias, d_sinks=d_sinks)
    return (dq, dk, dv if dv.shape[-1] == features else dv[..., :features], *others)


def _with_gradient_of_lse(v: Any, out: Any, dout: Any, dlse: Any, heads_last: bool) -> tuple[Any, Any, Any]:
    """v, out and dout by which the backward pass also brings the gradient dlse of the log-sum-exp.

    ds = p * (dout * v^T - sum(dout * out) + dlse): a feature more, in which v is 0, out is -1 and dout is dlse, adds
    dlse to the difference and nothing else.
    """
    dlse = (dlse.swapaxes(-1, -2) if heads_last else dlse)[..., None]
    extra = (v.new_zeros((*v.shape[:-1], 1)), out.new_full((*out.shape[:-1], 1), -1), dlse.to(dout.dtype))
    widened = [x.new_empty((*x.shape[:-1], x.shape[-1] + 1)) for x in (v, out, dout)]
    for wide, x, column in zip(widened, (v, out, dout), extra):
        wide[..., :-1], wide[..., -1:] = x, column
    return widened[0], widened[1], widened[2]


def _backward(
    q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, settings: dict[str, Any], d_bias: bool, d_sinks: bool
) -> tuple[Any, ...]:
    """dq, dk, dv, d_bias, d_sinks; the last two None unless wanted."""
    output = {name: seen("attention_backward", name, x, settings) for name, x in (("out", out), ("dout", dout))}
    call, options = prepare("attention_backward", q, k, v, settings, lse=lse, **output)
    gradients = _library.AttentionGradients()
    wanted = {"dq": "q", "dk": "k", "dv": "v"}
    if d_bias and call.get("bias") is not None:
        wanted["d_bias"] = "bias"
    if d_sinks and call.get("sinks") is not None:
        wanted["d_sinks"] = "sinks"
    for name, of in wanted.items():
        shape, dtype = call[of].shape, call[of].dtype
        made = _like(call, shape, dtype, settings) if of in ("q", "k", "v") else call.result(shape, dtype)
        setattr(gradients, name, made.pointer())
    call.run(
        "attikos_attention_backward",
        *(call[name] for name in ("q", "k", "v", "out", "lse", "dout")), gradients, options,
    )  # fmt: skip
    found = dict(zip(wanted, call.finish()))
    return tuple(found.get(name) for name in ("dq", "dk", "dv", "d_bias", "d_sinks"))


@_library.documented("attention")
def attention_backward(
    q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, *, scale: float | None = None, causal: bool = False,
    top_left: bool = False, window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None,
    mask: Any = None, alibi_slopes: Any = None, sinks: Any = None, lengths_q: Any = None,
    lengths_kv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, kernel: str = "",
    check: bool = True, attention_chunk: int = 0, compute: str = "ieee", determinism: str = "run_to_run",
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of attention(): (dq, dk, dv), then that of bias and that of sinks where they were given.

    q, k, v and the options are those of the forward call, out and lse what it returned with return_lse. determinism
    "unordered" leaves the order of sums to the device, which is faster on some; "run_to_run" repeats the bits.
    """
    if (
        bias is None and mask is None and alibi_slopes is None and sinks is None and kernel == ""
        and determinism == "run_to_run"
    ):  # fmt: skip
        done = _border.attention_backward(
            (q, k, v, out, lse, dout), scale, softcap, window, causal, top_left, compute, attention_chunk, check,
            lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv,
        )  # fmt: skip
        if done is not None:
            return done
    settings = attention_settings(
        scale=scale, causal=causal, top_left=top_left, window=window, softcap=softcap, bias=bias, mask=mask,
        alibi_slopes=alibi_slopes, sinks=sinks, lengths_q=lengths_q, lengths_kv=lengths_kv, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_kv, kernel=kernel, check=check, attention_chunk=attention_chunk, compute=compute,
        determinism=determinism,
    )  # fmt: skip
    found = _backward(q, k, v, out, lse, dout, settings, d_bias=True, d_sinks=True)
    return tuple(gradient for gradient in found if gradient is not None)


def _one_scale(*given: tuple[str, Any]) -> float:
    """The scale among its spellings; None and 0 leave it open."""
    numbers = [finite("flash_attention", name, value) for name, value in given if value is not None]
    named = {number for number in numbers if number != 0}
    if len(named) > 1:
        raise ArgumentError(f"attikos.flash_attention: scale and sm_scale disagree: {sorted(named)}")
    return named.pop() if named else 0.0


def _one_causal(*given: Any) -> bool:
    named = {flag("flash_attention", "causal", c) for c in given if c is not None}
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
    seq_lens: Any = None,
    *,
    causal: bool | None = None,
    sm_scale: float | None = None,
    check: bool = True,
) -> Any:
    """Attention without storage that grows with seqlen^2; shapes, types and gradients as for attention().

    Serves two older orders of arguments. A number or None in fourth place is `scale`, and a bool `is_causal` comes
    behind it; a bool in fourth place is `causal`, and a number or None, `sm_scale`, comes behind it; either way
    seq_lens is the sixth. Other mixtures, and spellings that contradict each other, raise ArgumentError. Scale None
    or 0.0 means 1/sqrt(head_dim). seq_lens: integers [batch]; rows past a sequence's length are 0.
    """
    if _is_bool(scale):
        if _is_bool(is_causal):
            raise ArgumentError(
                f"attikos.flash_attention: two bools, {scale} and {is_causal}, stand behind v; expected "
                "(q, k, v, scale, is_causal, seq_lens) or (q, k, v, causal, sm_scale, seq_lens)"
            )
        # Names of an older order: the mask stands in the place of scale, the scale in that of is_causal.
        factor = _one_scale(("sm_scale", is_causal), ("sm_scale", sm_scale))
        masked = _one_causal(scale, causal)
    else:
        if is_causal is not None and not _is_bool(is_causal):
            raise ArgumentError(f"attikos.flash_attention: is_causal is {is_causal!r}; expected a bool")
        factor = _one_scale(("scale", scale), ("sm_scale", sm_scale))
        masked = _one_causal(is_causal, causal)
    if seq_lens is None:
        done = _border.attention(q, k, v, False, False, factor, 0.0, (-1, -1), masked, check=check)
        if done is not None:
            return done
    settings = attention_settings(scale=factor, causal=masked, lengths_q=seq_lens, lengths_kv=seq_lens, check=check)
    return differentiable_attention(_FLASH_ATTENTION, q, k, v, settings, False)


_FLASH_ATTENTION = Caller("flash_attention", lengths_q="seq_lens", lengths_kv="seq_lens")


def tiled_attention(q: Any, k: Any, v: Any, scale: float = 0.0, is_causal: bool = False) -> Any:
    """Attention that stores the scores and multiplies in tiles; values as flash_attention()."""
    return with_algorithm("tiled", q, k, v, scale, is_causal)


def naive_attention(q: Any, k: Any, v: Any, scale: float = 0.0, is_causal: bool = False) -> Any:
    """Attention that stores the scores, one dot product per element: for checking the others."""
    return with_algorithm("naive", q, k, v, scale, is_causal)


def with_algorithm(algorithm: str, q: Any, k: Any, v: Any, scale: float, is_causal: bool) -> Any:
    """Attention by name, with arguments that mean one thing in each place."""
    settings = attention_settings(scale=scale, causal=is_causal, algorithm=algorithm)
    return differentiable_attention(_BY_ALGORITHM[algorithm], q, k, v, settings, False)


_BY_ALGORITHM = {name: Caller(f"{name}_attention", causal="is_causal") for name in _options.ALGORITHMS}
