# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, products, norms and softmaxes for JAX, under jit, grad and vmap, on the CPU.

    from attikos.integrations import jax as attikos_jax
    loss = lambda q, k, v: attikos_jax.attention(q, k, v, causal=True).sum()
    jax.jit(jax.grad(loss))(q, k, v)

Calls come back from XLA by jax.pure_callback; kernels read XLA's buffers, and results are copied once. Arrays are
checked when a function is traced, by the errors of this package; what only numbers can say (lengths, offsets) when it
runs, where JAX raises its own error with the same words. Under vmap the new dimension joins the batch of attention and
products and the rows of norms; what has no such place runs once for each position, in order. Gradients are of the first
order. Bits repeat from call to call. Arrays of a GPU would cross to the host and back.

jax-tvm-ffi 0.1.3 would save the copies, but functions of Python behind it spoil the heap beside JAX 0.10."""

from __future__ import annotations

import functools
import json
import math
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np

import attikos

from ..errors import ShapeMismatchError, UnsupportedDtypeError

__all__ = ["attention", "gemm", "l2_normalize", "layer_norm", "log_softmax", "rms_norm", "softmax"]


# --- when it runs -----------------------------------------------------------------------------------


def _attention(arrays: dict[str, Any], settings: Any, results: Any) -> Any:
    return attikos.attention(**arrays, **settings, return_lse=len(results) > 1)


def _attention_backward(arrays: dict[str, Any], settings: Any, results: Any) -> Any:
    return attikos.attention_backward(**arrays, **settings)


def _gemm(arrays: dict[str, Any], settings: Any, results: Any) -> Any:
    return attikos.gemm(**arrays, **settings, return_pre_activation=len(results) > 1)


def _gemm_backward(arrays: dict[str, Any], settings: Any, results: Any) -> Any:
    return attikos.gemm_backward(**arrays, **settings)


def _rows(name: str, arrays: dict[str, Any], settings: Any, results: Any) -> Any:
    function: Callable[..., Any] = getattr(attikos, name)
    targets = ("dx", "dweight", "dbias") if name.endswith("_backward") else ("out",)
    return function(**arrays, **settings, **dict(zip(targets, results)))


_ROWS = ("rms_norm", "layer_norm", "l2_normalize", "softmax", "log_softmax")
_KERNELS: dict[str, Callable[..., Any]] = {
    "attention": _attention, "attention_backward": _attention_backward, "gemm": _gemm, "gemm_backward": _gemm_backward,
    **{name: functools.partial(_rows, name) for row in _ROWS for name in (row, f"{row}_backward")},
}  # fmt: skip
# Arrays whose first dimension, or the one that vmap adds, is a batch, by operation; any others have to be one for all.
_BATCHED = {
    "attention": {"q", "k", "v", "lengths_q", "lengths_kv"},
    "attention_backward": {"q", "k", "v", "out", "lse", "dout", "lengths_q", "lengths_kv"},
    "gemm": {"a", "b"}, "gemm_backward": {"a", "b", "dout", "pre_activation"},
    **{row: {"x"} for row in _ROWS},
    **{f"{row}_backward": {"x", "out", "dout"} for row in ("l2_normalize", "softmax", "log_softmax")},
}  # fmt: skip


def _compute(call: Any, arrays: dict[str, Any], results: Any) -> None:
    found = _KERNELS[call["operation"]](arrays, call["settings"], results)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(results), "results that nobody writes"
    for result, value in zip(results, found):
        if result is not value:
            result[...] = value


def _run(call: Any, *given: Any) -> Any:
    """What XLA calls with the inputs: gives the results. Leading dimensions beyond those of the call are vmap's."""
    arrays = {name: np.asarray(x) for name, x in zip(call["ranks"], given)}
    added = max(x.ndim - call["ranks"][name] for name, x in arrays.items())
    sizes = tuple(max(x.shape[i] for x in arrays.values()) for i in range(added))
    results = [np.empty(sizes + shape, dtype) for shape, dtype in call["results"]]
    if added == 0:
        _compute(call, arrays, results)
    elif 0 in sizes:
        pass
    elif _joins(call, arrays, added):
        _compute(call, *_joined(call, arrays, results, sizes))
    else:
        for at in np.ndindex(sizes):
            part = {name: x[tuple(min(i, n - 1) for i, n in zip(at, x.shape))] for name, x in arrays.items()}
            _compute(call, part, [result[at] for result in results])
    return tuple(results)


def _joins(call: Any, arrays: dict[str, Any], added: int) -> bool:
    """Whether one call can do what vmap asks for."""
    batched = _BATCHED.get(call["operation"], set())
    if call["operation"] == "gemm_backward" and len({x.shape[:added] for x in arrays.values()}) > 1:
        return False  # the gradient of a matrix that all share is wanted for each
    if call["operation"].startswith(("attention", "gemm")) and not batched >= arrays.keys():
        return False
    if "q" in arrays and arrays["q"].ndim != added + 4:
        return False
    if call["operation"].startswith("gemm") and any(x.ndim != added + 2 for x in arrays.values()):
        return False
    return all(name in batched or math.prod(x.shape[:added]) == 1 for name, x in arrays.items())


def _joined(call: Any, arrays: dict[str, Any], results: Any, sizes: Any) -> Any:
    added, rows = len(sizes), call["operation"].startswith(_ROWS)
    product, found = call["operation"].startswith("gemm"), {}
    for name, x in arrays.items():
        if name not in _BATCHED[call["operation"]]:
            found[name] = x.reshape(x.shape[added:])
            continue
        if x.shape[:added] != sizes and not (product and math.prod(x.shape[:added]) == 1):
            x = np.broadcast_to(x, sizes + x.shape[added:])
        found[name] = x.reshape(-1, x.shape[-1]) if rows else _front(x, added, product)
    return found, [r.reshape(-1, r.shape[-1]) if rows else _front(r, added, product) for r in results]


def _front(x: Any, added: int, product: bool) -> Any:
    """The dimensions of vmap as one, joined with the batch that attention has."""
    return x.reshape(-1, *x.shape[added + (not product) :])


# --- when it is traced ------------------------------------------------------------------------------


def _call(operation: str, settings: dict[str, Any], arrays: dict[str, Any], *shapes: Any) -> Any:
    """A call of these arrays with so many results, of (shape, type)."""
    call = {
        "operation": operation, "settings": settings, "ranks": {name: x.ndim for name, x in arrays.items()},
        "results": [(tuple(shape), np.dtype(dtype)) for shape, dtype in shapes],
    }  # fmt: skip
    results = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in call["results"])
    return jax.pure_callback(functools.partial(_run, call), results, *arrays.values(), vmap_method="expand_dims")


def _check(operation: str, arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    """Asks the library whether it takes such arrays and settings: raises what it would raise."""
    stand_ins = {}
    for name, x in arrays.items():
        try:
            stand_ins[name] = np.broadcast_to(np.zeros((), x.dtype), x.shape)
        except TypeError:
            raise UnsupportedDtypeError(f"attikos.{operation}: {name} is {x.dtype}, no type of NumPy's") from None
    attikos.explain(operation, **stand_ins, **settings)


def _as_arrays(given: dict[str, Any]) -> dict[str, Any]:
    """Those that there are; integers, which are lengths and offsets, in the library's type."""
    found = {name: jnp.asarray(x) for name, x in given.items() if x is not None}
    return {n: x.astype(jnp.int32) if jnp.issubdtype(x.dtype, jnp.integer) else x for n, x in found.items()}


def _like(x: Any) -> Any:
    return x.shape, x.dtype


def _differentiable(forward: Any, backward: Any) -> Any:
    """forward(settings, arrays, keeps) gives the result and, where keeps is set, what backward(settings, arrays, kept,
    gradient) needs for the gradients by name; settings are text, since what is static is hashed."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def function(text: str, arrays: dict[str, Any]) -> Any:
        return forward(json.loads(text), arrays, False)[0]

    def there(text: str, arrays: dict[str, Any]) -> Any:
        found = forward(json.loads(text), arrays, True)
        return found[0], (arrays, found)

    def back(text: str, saved: Any, gradient: Any) -> Any:
        arrays, found = saved
        gradients = backward(json.loads(text), arrays, found, gradient)
        return ({name: gradients.get(name) for name in arrays},)

    function.defvjp(there, back)
    return function


def _attention_there(settings: Any, arrays: dict[str, Any], keeps: bool) -> Any:
    q, v = arrays["q"], arrays["v"]
    lse = (q.shape[:-1], jnp.float64 if q.dtype == jnp.float64 else jnp.float32)
    shapes = (((*q.shape[:-1], v.shape[-1]), q.dtype), *([lse] if keeps else []))
    return _call("attention", settings, arrays, *shapes)


def _attention_back(settings: Any, arrays: dict[str, Any], found: Any, dout: Any) -> dict[str, Any]:
    names = [name for name in ("q", "k", "v", "bias", "sinks") if name in arrays]
    given = {**arrays, "out": found[0], "lse": found[1], "dout": dout}
    return dict(zip(names, _call("attention_backward", settings, given, *(_like(arrays[n]) for n in names))))


def _gemm_there(settings: Any, arrays: dict[str, Any], keeps: bool) -> Any:
    a, b = arrays["a"], arrays["b"]
    m, n = a.shape[-1 if settings["trans_a"] else -2], b.shape[-2 if settings["trans_b"] else -1]
    batch = () if a.ndim == b.ndim == 2 else (max((x.shape[0] for x in (a, b) if x.ndim == 3), key=lambda n: n != 1),)
    shape = ((*batch, m, n), a.dtype)
    return _call("gemm", settings, arrays, shape, *([shape] if keeps and settings["activation"] else []))


def _gemm_back(settings: Any, arrays: dict[str, Any], found: Any, dout: Any) -> dict[str, Any]:
    names = [name for name in ("a", "b", "bias") if name in arrays]
    given = {"a": arrays["a"], "b": arrays["b"], "dout": dout}
    if settings["activation"]:
        given["pre_activation"] = found[1]
    more = {**settings, "bias": "bias" in arrays}
    return dict(zip(names, _call("gemm_backward", more, given, *(_like(arrays[n]) for n in names))))


def _rows_of(name: str) -> Any:
    of_result = name in ("softmax", "log_softmax")

    def there(settings: Any, arrays: dict[str, Any], keeps: bool) -> Any:
        return _call(name, settings, arrays, _like(arrays["x"]))

    def back(settings: Any, arrays: dict[str, Any], found: Any, dout: Any) -> dict[str, Any]:
        kept = {"out": found[0]} if of_result else {k: x for k, x in arrays.items() if k != "bias"}
        names = [n for n in ("x", "weight", "bias") if n in arrays]  # JAX sorts the names of a dict
        shapes = (_like(arrays[n]) for n in names)
        return dict(zip(names, _call(f"{name}_backward", settings, {**kept, "dout": dout}, *shapes)))

    return _differentiable(there, back)


_attend = _differentiable(_attention_there, _attention_back)
_multiply = _differentiable(_gemm_there, _gemm_back)
_of_rows = {name: _rows_of(name) for name in _ROWS}


def _row_call(operation: str, number: dict[str, Any], **given: Any) -> Any:
    arrays = _as_arrays(given)
    x = arrays["x"]
    for name, vector in arrays.items():
        if name != "x" and (x.ndim == 0 or vector.shape != x.shape[-1:]):
            raise ShapeMismatchError(
                f"attikos.{operation}: {name} has shape {list(vector.shape)}; expected the last extent of x, which has "
                f"shape {list(x.shape)}"
            )
    _check(operation, arrays, number)
    return _of_rows[operation](json.dumps(number), arrays)


def attention(
    q: Any, k: Any, v: Any, *, scale: float | None = None, causal: bool = False, top_left: bool = False,
    window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None, mask: Any = None, sinks: Any = None,
    lengths_q: Any = None, lengths_kv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None,
    attention_chunk: int = 0,
) -> Any:  # fmt: skip
    """attikos.attention() of arrays of JAX: softmax(scale * q * k^T + bias) * v over the keys that masks show.

    q [batch, heads_q, seqlen_q, d], k and v [batch, heads_kv, seqlen_kv, d], packed ones without a batch; the options
    are static and mean what they mean there. Gradients of q, k, v, bias and sinks. Deterministic."""
    settings = {
        "scale": scale, "causal": causal, "top_left": top_left, "window": tuple(window), "softcap": softcap,
        "attention_chunk": attention_chunk,
    }  # fmt: skip
    arrays = {
        "q": q, "k": k, "v": v, "bias": bias, "mask": mask, "sinks": sinks, "lengths_q": lengths_q,
        "lengths_kv": lengths_kv, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv,
    }  # fmt: skip
    given = _as_arrays(arrays)
    _check("attention", {n: x for n, x in given.items() if not n.startswith("cu_")}, settings)
    return _attend(json.dumps(settings), given)


def gemm(
    a: Any, b: Any, *, bias: Any = None, alpha: float = 1.0, trans_a: bool = False, trans_b: bool = False,
    activation: str | None = None,
) -> Any:  # fmt: skip
    """activation(alpha * op(a) * op(b) + bias), by attikos.gemm(): a [m, k] and b [k, n] or with a batch in front,
    bias [n]. Gradients of a, b and bias. Deterministic."""
    settings = {"alpha": alpha, "trans_a": trans_a, "trans_b": trans_b, "activation": activation}
    given = _as_arrays({"a": a, "b": b, "bias": bias})
    _check("gemm", given, settings)
    return _multiply(json.dumps(settings), given)


def rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension; gradients of both."""
    return _row_call("rms_norm", {"eps": eps}, x=x, weight=weight)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension; gradients of all three."""
    return _row_call("layer_norm", {"eps": eps}, x=x, weight=weight, bias=bias)


def l2_normalize(x: Any, eps: float = 1e-12) -> Any:
    """x / max(|x|, eps) over the last dimension, with its gradient."""
    return _row_call("l2_normalize", {"eps": eps}, x=x)


def softmax(x: Any, scale: float = 1.0) -> Any:
    """softmax(scale * x) over the last dimension, with its gradient."""
    return _row_call("softmax", {"scale": scale}, x=x)


def log_softmax(x: Any, scale: float = 1.0) -> Any:
    """log(softmax(scale * x)) over the last dimension, with its gradient."""
    return _row_call("log_softmax", {"scale": scale}, x=x)
