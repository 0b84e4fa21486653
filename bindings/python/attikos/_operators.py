# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The differentiable functions as operators of PyTorch, torch.ops.attikos, with what torch.compile, torch.export, modes
and transforms ask of one: shapes without numbers, and gradients that are operators themselves. Plain eager calls do not
come by here. Imported with the first call that does, since it imports PyTorch.

The kernel of an operator is the public function without records of gradients, so that each says what is wrong in the
same words either way."""

from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor

from . import cache as _cache
from . import fused as _fused
from . import matmul as _matmul
from . import _options
from . import rows as _rows
from ._embedding_operators import embedding, embedding_backward  # noqa: F401
from ._grouped_operators import grouped_gemm, masked_gemm, rows_gemm_backward  # noqa: F401
from ._loss_operators import (  # noqa: F401
    cross_entropy, cross_entropy_backward, linear_cross_entropy, linear_cross_entropy_backward,
    linear_cross_entropy_total, linear_cross_entropy_total_backward,
)  # fmt: skip
from ._operator import GRADIENTS, KERNELS, _gradients, _like, _no_second, _now, _operator  # noqa: F401
from .attention import attention_forward, attention_settings, defaults_beyond, gradients_of
from .flash_attn import flash_attn_with_kvcache as _with_kvcache

Optionally = Optional[Tensor]

# --- rows -------------------------------------------------------------------------------------------


@_operator(_like)
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _rows.rms_norm(x, weight, eps)


def _like_both(x: Tensor, *_: Any) -> Any:
    return _like(x), _like(x)


@_operator(_like_both)
def rms_norm_residual(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tuple[Tensor, Tensor]:
    """The result and the sum."""
    return _rows.rms_norm(x, weight, eps, residual=residual)


@_operator(lambda x, weight, dout, eps, residual=None: (_like(x), _like(weight)))
def rms_norm_backward(
    x: Tensor, weight: Tensor, dout: Tensor, eps: float, residual: Optionally = None
) -> Tuple[Tensor, Tensor]:
    return _rows.rms_norm_backward(x, weight, _rows.arrived(dout), eps, residual=_rows.arrived(residual))


@_operator(_like)
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _rows.layer_norm(x, weight, bias, eps)


@_operator(_like_both)
def layer_norm_residual(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Tuple[Tensor, Tensor]:
    """The result and the sum."""
    return _rows.layer_norm(x, weight, bias, eps, residual=residual)


@_operator(lambda x, weight, dout, eps, residual=None: (_like(x), _like(weight), _like(weight)))
def layer_norm_backward(
    x: Tensor, weight: Tensor, dout: Tensor, eps: float, residual: Optionally = None
) -> Tuple[Tensor, Tensor, Tensor]:
    return _rows.layer_norm_backward(x, weight, _rows.arrived(dout), eps, residual=_rows.arrived(residual))


@_operator(_like)
def l2_normalize(x: Tensor, eps: float) -> Tensor:
    return _rows.l2_normalize(x, eps)


@_operator(_like)
def l2_normalize_backward(x: Tensor, dout: Tensor, eps: float) -> Tensor:
    return _rows.l2_normalize_backward(x, _rows.arrived(dout), eps)


@_operator(_like)
def softmax(x: Tensor, scale: float) -> Tensor:
    return _rows.softmax(x, scale)


@_operator(_like)
def softmax_backward(out: Tensor, dout: Tensor, scale: float) -> Tensor:
    return _rows.softmax_backward(out, _rows.arrived(dout), scale)


@_operator(_like)
def log_softmax(x: Tensor, scale: float) -> Tensor:
    return _rows.log_softmax(x, scale)


@_operator(_like)
def log_softmax_backward(out: Tensor, dout: Tensor, scale: float) -> Tensor:
    return _rows.log_softmax_backward(out, _rows.arrived(dout), scale)


@_operator(lambda x, lengths: x.new_empty((x.shape[0], x.shape[2])))
def mean_pool(x: Tensor, lengths: Optionally) -> Tensor:
    return _rows.mean_pool(x, lengths)


@_operator(lambda dout, seqlen, lengths: dout.new_empty((dout.shape[0], seqlen, dout.shape[1])))
def mean_pool_backward(dout: Tensor, seqlen: int, lengths: Optionally) -> Tensor:
    return _rows.mean_pool_backward(dout, seqlen, lengths)


def _of_norm(operator: Any) -> Callable[..., Any]:
    def backward(ctx: Any, dout: Any) -> Any:
        x, weight = ctx.saved_tensors
        return (*_now(operator)(x, weight, dout, ctx.rest), None)

    return backward


def _of_norm_of_sum(operator: Any, vectors: int) -> Callable[..., Any]:
    def backward(ctx: Any, dout: Any, dsum: Any) -> Any:
        if dout is None:
            return (dsum, dsum, *([None] * (vectors + 1)))
        dx, *others = _now(operator)(*ctx.saved_tensors, dout, ctx.rest, dsum)
        return (dx, dx, *others, None)

    return backward


def _saved_of_sum(inputs: Any, outputs: Any) -> Any:
    return (outputs[1], inputs[2]), inputs[-1]


def _of_row(operator: Any) -> Callable[..., Any]:
    def backward(ctx: Any, dout: Any) -> Any:
        return _now(operator)(*ctx.saved_tensors, dout, ctx.rest), None

    return backward


_gradients(rms_norm, _of_norm(rms_norm_backward), lambda inputs, out: (inputs[:2], inputs[2]))
_gradients(layer_norm, _of_norm(layer_norm_backward), lambda inputs, out: (inputs[:2], inputs[3]))
_gradients(rms_norm_residual, _of_norm_of_sum(rms_norm_backward, 1), _saved_of_sum)
_gradients(layer_norm_residual, _of_norm_of_sum(layer_norm_backward, 2), _saved_of_sum)
_gradients(l2_normalize, _of_row(l2_normalize_backward), lambda inputs, out: (inputs[:1], inputs[1]))
_gradients(softmax, _of_row(softmax_backward), lambda inputs, out: ((out,), inputs[1]))
_gradients(log_softmax, _of_row(log_softmax_backward), lambda inputs, out: ((out,), inputs[1]))
_gradients(
    mean_pool,
    lambda ctx, dout: (_now(mean_pool_backward)(dout, ctx.rest, *ctx.saved_tensors), None),
    lambda inputs, out: (inputs[1:], inputs[0].shape[1]),
)


# --- products ---------------------------------------------------------------------------------------


def _product_shape(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> Any:
    m, n = a.shape[-1 if trans_a else -2], b.shape[-2 if trans_b else -1]
    if a.dim() == 2 and b.dim() == 2:
        return m, n
    batches = [x.shape[0] for x in (a, b) if x.dim() == 3]
    return (batches[0] if len(batches) == 1 or batches[1] == 1 else batches[1]), m, n


def _fake_gemm(
    a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: Any, beta: Any, scale: Any, trans_a: Any, trans_b: Any,
    activation: Any, compute: Any, out_dtype: Any, keeps: Any,
) -> Any:  # fmt: skip
    shape = _product_shape(a, b, trans_a, trans_b)
    dtype = out_dtype or (torch.int32 if a.dtype == torch.int8 else torch.float16 if a.element_size() == 1 else a.dtype)
    return a.new_empty(shape, dtype=dtype), a.new_empty(shape if keeps else (0,), dtype=dtype)


@_operator(_fake_gemm)
def gemm(
    a: Tensor, b: Tensor, c: Optionally, bias: Optionally, residual: Optionally, alpha: float, beta: float,
    scale: float, trans_a: bool, trans_b: bool, activation: str, compute: str, out_dtype: Optional[torch.dtype],
    keeps: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """The result, and with `keeps` what goes into the activation."""
    found = _matmul.gemm(
        a, b, alpha, beta, trans_a, trans_b, c, bias=bias, residual=residual, activation=activation, scale=scale,
        out_dtype=out_dtype, compute=compute, return_pre_activation=keeps,
    )  # fmt: skip
    return found if keeps else (found, found.new_empty((0,)))


def _fake_gemm_backward(
    a: Any, b: Any, dout: Any, pre: Any, alpha: Any, beta: Any, scale: Any, trans_a: Any, trans_b: Any,
    activation: Any, compute: Any, wanted: Any,
) -> Any:  # fmt: skip
    shapes = ((a.shape, a.dtype), (b.shape, b.dtype), (dout.shape[-1:], dout.dtype), (dout.shape, dout.dtype))
    return tuple(
        a.new_empty(shape if name in wanted else (0,), dtype=dtype) for name, (shape, dtype) in zip("abdc", shapes)
    )


@_operator(_fake_gemm_backward)
def gemm_backward(
    a: Tensor, b: Tensor, dout: Tensor, pre: Optionally, alpha: float, beta: float, scale: float, trans_a: bool,
    trans_b: bool, activation: str, compute: str, wanted: str,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of a, b, the bias ("d") and c, of which those that are not wanted have no elements."""
    names = dict(zip("abdc", ("da", "db", "d_bias", "d_c")))
    found = _matmul._gradients(
        "gemm_backward", a, b, dout, {name: letter in wanted for letter, name in names.items()}, pre, alpha=alpha,
        beta=beta, trans_a=trans_a, trans_b=trans_b, activation=activation, scale=scale, compute=compute,
    )  # fmt: skip
    like = dict(zip(names.values(), (a, b, dout, dout)))
    return tuple(found.get(name, x.new_empty((0,))) for name, x in like.items())


def _saved_by_gemm(inputs: Any, output: Any) -> Any:
    a, b, c, bias, residual, alpha, beta, scale, trans_a, trans_b, activation, compute, out_dtype, keeps = inputs
    present = (c is not None, bias is not None, residual is not None)
    return (a, b, output[1] if keeps else None), (
        (alpha, beta, scale, trans_a, trans_b, activation, compute), present,
    )  # fmt: skip


def _backward_of_gemm(ctx: Any, dout: Any, d_pre: Any) -> Any:
    a, b, pre = ctx.saved_tensors
    numbers, (has_c, has_bias, has_residual) = ctx.rest
    needs = ctx.needs_input_grad
    needed = (needs[0], needs[1], has_bias and needs[3], has_c and needs[2] and numbers[1] != 0)
    wanted = "".join(letter for letter, yes in zip("abdc", needed) if yes)
    found = {}
    without = (*numbers[:5], "none", numbers[6])
    for gradient, saved, settings in ((dout, pre, numbers), (None if pre is None else d_pre, None, without)):
        if gradient is None or not wanted:
            continue
        more = dict(zip("abdc", _now(gemm_backward)(a, b, gradient, saved, *settings, wanted)))
        found = {k: found[k] + more[k] if k in found else more[k] for k in wanted}
    residual = dout if has_residual else None
    return (
        found.get("a"), found.get("b"), found.get("c"), found.get("d"), residual, *([None] * 9),
    )  # fmt: skip


_gradients(gemm, _backward_of_gemm, _saved_by_gemm)


# --- attention --------------------------------------------------------------------------------------

# The settings of attention() in the order of the operator's arguments behind q, k, v, bias and sinks.
SETTINGS = (
    "mask", "alibi_slopes", "lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv", "page_table", "scale", "causal",
    "top_left", "window", "softcap", "attention_chunk", "algorithm", "compute", "kernel", "heads_last", "check",
    "determinism", "sm_margin",
)  # fmt: skip


# Those that it has not, and takes at their defaults alone.
BEYOND_ATTENTION = defaults_beyond(*SETTINGS, "bias", "sinks", "check_device")


def settings_of_operator(arguments: Any) -> Any:
    """Those of an operator, from all its arguments by name."""
    given = {name: arguments[name] for name in (*SETTINGS, "bias", "sinks")}
    given.update(window=tuple(given["window"]), check_device=given["check"], check=True)
    return attention_settings(**given)


def _fake_attention(q: Any, k: Any, v: Any, bias: Any, sinks: Any, *arguments: Any) -> Any:
    shape = (*q.shape[:-1], v.shape[-1])
    of_lse = q.shape[:-1]
    if arguments[SETTINGS.index("heads_last")]:
        of_lse = (*q.shape[:-3], q.shape[-2], q.shape[-3])
    return q.new_empty(shape), q.new_empty(of_lse, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)


@_operator(_fake_attention)
def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Optionally, sinks: Optionally, mask: Optionally, alibi_slopes: Optionally,
    lengths_q: Optionally, lengths_kv: Optionally, cu_seqlens_q: Optionally, cu_seqlens_kv: Optionally,
    page_table: Optionally, scale: Optional[float], causal: bool, top_left: bool, window: List[int],
    softcap: float, attention_chunk: int, algorithm: str, compute: str, kernel: str, heads_last: bool, check: bool,
    determinism: str, sm_margin: int,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """The result and the log-sum-exp."""
    return attention_forward("attention", q, k, v, settings_of_operator(locals()), True)


def _fake_attention_backward(
    q: Any, k: Any, v: Any, bias: Any, sinks: Any, out: Any, lse: Any, dout: Any, dlse: Any, *arguments: Any
) -> Any:
    return tuple(q.new_empty((0,)) if x is None else _like(x) for x in (q, k, v, bias, sinks))


@_operator(_fake_attention_backward)
def attention_backward(
    q: Tensor, k: Tensor, v: Tensor, bias: Optionally, sinks: Optionally, out: Tensor, lse: Tensor, dout: Optionally,
    dlse: Optionally, mask: Optionally, alibi_slopes: Optionally, lengths_q: Optionally, lengths_kv: Optionally,
    cu_seqlens_q: Optionally, cu_seqlens_kv: Optionally, page_table: Optionally, scale: Optional[float], causal: bool,
    top_left: bool, window: List[int], softcap: float, attention_chunk: int, algorithm: str, compute: str,
    kernel: str, heads_last: bool, check: bool, determinism: str, sm_margin: int,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, v, bias and sinks, of which those that are absent have no elements."""
    settings = {**settings_of_operator(locals()), "kernel": "", "check": False}
    found = gradients_of(
        "attention", q, k, v, out, lse, dout, dlse, settings, bias is not None, sinks is not None
    )
    return tuple(q.new_empty((0,)) if x is None else x.contiguous() for x in found)


def _saved_by_attention(inputs: Any, output: Any) -> Any:
    tensors = (*inputs[:5], *output, *inputs[5:12])
    return tensors, inputs[12:]


def _backward_of_attention(ctx: Any, dout: Any, dlse: Any) -> Any:
    saved = ctx.saved_tensors
    if dout is None and dlse is None:
        return (None,) * 25
    found = _now(attention_backward)(*saved[:7], dout, dlse, *saved[7:], *ctx.rest)
    given = [g if x is not None and yes else None for g, x, yes in zip(found, saved[:5], ctx.needs_input_grad)]
    return (*given, *([None] * 20))


_gradients(attention, _backward_of_attention, _saved_by_attention)


# --- caches -----------------------------------------------------------------------------------------

def _fake_decode(q: Any, k: Any, v: Any, *_: Any) -> Any:
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(
        q.shape[:-1], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32
    )


@_operator(_fake_decode)
def decode(
    q: Tensor, k: Tensor, v: Tensor, bias: Optionally, sinks: Optionally, mask: Optionally, alibi_slopes: Optionally,
    lengths_q: Optionally, lengths_kv: Optionally, cu_seqlens_q: Optionally, cu_seqlens_kv: Optionally,
    page_table: Optionally, scale: Optional[float], causal: bool, top_left: bool, window: List[int],
    softcap: float, attention_chunk: int, splits: int, determinism: str, kernel: str, check: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """The result and the log-sum-exp; no gradients."""
    return _cache.decode(
        q, k, v, scale=scale, causal=causal, top_left=top_left, window=(window[0], window[1]), softcap=softcap,
        bias=bias, mask=mask, alibi_slopes=alibi_slopes, sinks=sinks, lengths_q=lengths_q, lengths_kv=lengths_kv,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv, page_table=page_table, splits=splits, kernel=kernel,
        return_lse=True, check=check, determinism=determinism, attention_chunk=attention_chunk,
    )  # fmt: skip


_OF_DECODE = (*SETTINGS[:13], "splits", "determinism", "kernel", "check")
_BEYOND_DECODE = defaults_beyond(*_OF_DECODE, "bias", "sinks", "check_device")


def call_decode(q: Any, k: Any, v: Any, settings: Any) -> Any:
    """decode() of all its settings; those of float8 are none of the operator's."""
    _options.refuse("decode", _options.strange(_BEYOND_DECODE, settings))
    given = {**settings, "window": list(settings["window"])}
    return decode(q, k, v, given["bias"], given["sinks"], *(given[name] for name in _OF_DECODE))


def _fake_cache(q: Any, k_cache: Any, v_cache: Any, *_: Any) -> Any:
    batch, seqlen, heads, _features = q.shape
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty((batch, seqlen, heads, v_cache.shape[-1])), q.new_empty((batch, heads, seqlen), dtype=dtype)


@_operator(_fake_cache)
def cache_attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, cache_seqlens: Optionally, cache_batch_idx: Optionally,
    cache_leftpad: Optionally, block_table: Optionally, alibi_slopes: Optionally, softmax_scale: Optional[float],
    causal: bool, window_size: List[int], softcap: float, rotary_interleaved: bool, num_splits: int, check: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """flash_attn_with_kvcache() of no new keys; no gradients."""
    return _with_kvcache(
        q, k_cache, v_cache, None, None, None, None, cache_seqlens, cache_batch_idx, cache_leftpad, block_table,
        softmax_scale, causal, (window_size[0], window_size[1]), softcap, rotary_interleaved, alibi_slopes, num_splits,
        True, check=check,
    )  # fmt: skip


@_operator(_fake_cache, ("k_cache", "v_cache"))
def append_and_attend(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, rotary_cos: Optionally,
    rotary_sin: Optionally, cache_seqlens: Optionally, cache_batch_idx: Optionally, cache_leftpad: Optionally, block_table: Optionally,
    alibi_slopes: Optionally, softmax_scale: Optional[float], causal: bool, window_size: List[int], softcap: float,
    rotary_interleaved: bool, num_splits: int, check: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """flash_attn_with_kvcache() of new keys and values, which are written into the caches; no gradients."""
    return _with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, block_table,
        softmax_scale, causal, (window_size[0], window_size[1]), softcap, rotary_interleaved, alibi_slopes, num_splits,
        True, check=check,
    )  # fmt: skip


# --- fused ------------------------------------------------------------------------------------------


@_operator(_like)
def rope(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Optionally, interleaved: bool, position_offset: int,
    rotary_dim: int,
) -> Tensor:  # fmt: skip
    return _fused.rope(
        x, cos, sin, interleaved=interleaved, position_offset=position_offset, positions=positions,
        rotary_dim=rotary_dim,
    )  # fmt: skip


@_operator(_like)
def rope_backward(
    dout: Tensor, cos: Tensor, sin: Tensor, positions: Optionally, interleaved: bool, position_offset: int,
    rotary_dim: int,
) -> Tensor:  # fmt: skip
    return _fused.rope_backward(dout, cos, sin, positions, interleaved, position_offset, rotary_dim)


_gradients(
    rope,
    lambda ctx, dout: (_now(rope_backward)(dout, *ctx.saved_tensors, *ctx.rest), *([None] * 6)),
    lambda inputs, out: (inputs[1:4], inputs[4:]),
)


@_operator(_like)
def fused_rmsnorm_rope(
    x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float, num_heads: Optional[int]
) -> Tensor:
    return _fused.fused_rmsnorm_rope(x, weight, cos, sin, eps, num_heads)


@_operator(lambda x, weight, cos, sin, dout, eps, num_heads: (_like(x), _like(weight)))
def fused_rmsnorm_rope_backward(
    x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, dout: Tensor, eps: float, num_heads: Optional[int]
) -> Tuple[Tensor, Tensor]:
    return _fused.fused_rmsnorm_rope_backward(x, weight, cos, sin, dout, eps, num_heads)


_gradients(
    fused_rmsnorm_rope,
    lambda ctx, dout: (*_now(fused_rmsnorm_rope_backward)(*ctx.saved_tensors, dout, *ctx.rest), *([None] * 4)),
    lambda inputs, out: (inputs[:4], inputs[4:]),
)


@_operator(lambda x, gate_weight, up_weight, activation: x.new_empty((*x.shape[:-1], gate_weight.shape[0])))
def fused_gated_mlp(x: Tensor, gate_weight: Tensor, up_weight: Tensor, activation: str) -> Tensor:
    return _fused.fused_gated_mlp(x, gate_weight, up_weight, activation)


def _fake_kept(x: Any, gate_weight: Any, up_weight: Any, activation: Any) -> Any:
    return tuple(x.new_empty((*x.shape[:-1], gate_weight.shape[0])) for _ in range(3))


@_operator(_fake_kept)
def fused_gated_mlp_kept(
    x: Tensor, gate_weight: Tensor, up_weight: Tensor, activation: str
) -> Tuple[Tensor, Tensor, Tensor]:
    """The result and both projections, which gradients read; that of fused_gated_mlp computes them again."""
    return _fused.fused_gated_mlp_kept(x, gate_weight, up_weight, activation)


@_operator(lambda x, gate_weight, up_weight, *_: (_like(x), _like(gate_weight), _like(up_weight)))
def fused_gated_mlp_backward(
    x: Tensor, gate_weight: Tensor, up_weight: Tensor, dout: Tensor, activation: str, gate: Optionally = None,
    up: Optionally = None,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _fused.fused_gated_mlp_backward(x, gate_weight, up_weight, dout, activation, gate, up)


_gradients(
    fused_gated_mlp,
    lambda ctx, dout: (*_now(fused_gated_mlp_backward)(*ctx.saved_tensors, dout, ctx.rest), None),
    lambda inputs, out: (inputs[:3], inputs[3]),
)
_gradients(
    fused_gated_mlp_kept,
    lambda ctx, dout, *_: (
        *_now(fused_gated_mlp_backward)(*ctx.saved_tensors[:3], dout, ctx.rest, *ctx.saved_tensors[3:]), None
    ),
    lambda inputs, outputs: ((*inputs[:3], *outputs[1:]), inputs[3]),
    slice(1, None),
)  # fmt: skip

for _backward in (
    rms_norm_backward, layer_norm_backward, l2_normalize_backward, softmax_backward, log_softmax_backward,
    mean_pool_backward, gemm_backward, attention_backward, rope_backward, fused_rmsnorm_rope_backward,
    fused_gated_mlp_backward,
):  # fmt: skip
    _gradients(_backward, _no_second, lambda inputs, output: ((), None))

from . import _transforms  # noqa: E402, F401: rules for all of the above
