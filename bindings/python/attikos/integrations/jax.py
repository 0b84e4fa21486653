# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, products, norms and softmaxes for JAX, under jit, grad and vmap.

    from attikos.integrations import jax as attikos_jax
    loss = lambda q, k, v: attikos_jax.attention(q, k, v, causal=True).sum()
    jax.jit(jax.grad(loss))(q, k, v)

XLA calls compiled handlers of this package by its typed foreign function interface: kernels read and write XLA's buffers,
nothing is copied, and a compiled call runs no Python. There is no other way: without the handlers this module raises
ImportError, and handlers() says which they are. On CUDA the same handlers take XLA's stream, and their workspace from its
allocator. Arrays are checked when a function is traced, by the
errors of this package; what only numbers can say (lengths, offsets) when it runs: on the CPU JAX raises its own error with
the same words, on CUDA, where looking would wait for the device, kernels clamp them. Under vmap the new dimension joins the batch of attention and products and the rows of norms; what has no such
place runs once for each position, in order. Gradients are of the first order. Bits repeat from call to call."""

from __future__ import annotations

import ctypes
import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attikos

from .._arguments import ACTIVATIONS
from ..errors import IntegerError, ShapeMismatchError, UnsupportedDtypeError

__all__ = ["attention", "gemm", "handlers", "l2_normalize", "layer_norm", "log_softmax", "rms_norm", "softmax"]


# --- what XLA calls ---------------------------------------------------------------------------------

_LIBRARY = pathlib.Path(attikos.__file__).parent / "lib" / "libattikos_jax.so"
_ROWS = ("rms_norm", "layer_norm", "l2_normalize", "softmax", "log_softmax")
_NORMS_OF_SUMS = ("rms_norm_residual", "layer_norm_residual")
_OPERATIONS = tuple(
    f"{name}{end}" for name in ("attention", "gemm", *_ROWS, *_NORMS_OF_SUMS) for end in ("", "_backward")
)
_INTEGERS = ("lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv")
_PLATFORMS = {"cpu": "cpu", "CUDA": "cuda"}  # XLA's name, and that in the library


def _register() -> ctypes.CDLL:
    if not _LIBRARY.exists():
        raise ImportError(
            "attikos.integrations.jax: this build of attikos has no handlers for XLA (libattikos_jax.so); expected one "
            "that was made where jaxlib 0.10 or newer was installed, as `pip install attikos` has it on Python 3.11 and "
            "newer"
        )
    library = ctypes.CDLL(str(_LIBRARY))
    for operation in _OPERATIONS:
        for platform, word in _PLATFORMS.items():
            handler = jax.ffi.pycapsule(getattr(library, f"attikos_jax_{operation}_{word}"))
            jax.ffi.register_ffi_target(f"attikos_{operation}", handler, platform=platform)
    return library


_handlers = _register()


def handlers() -> dict[str, Any]:
    """What XLA calls: {"library": the path of the compiled handlers, "ffi": the version of XLA's interface that they
    were compiled for as (major, minor), "targets": the names that stand in a compiled program, "platforms": those that
    they are registered for}. On CUDA a call also needs a build of attikos with CUDA, and says so otherwise."""
    return {
        "library": str(_LIBRARY), "ffi": divmod(_handlers.attikos_jax_ffi_version(), 1000),
        "targets": tuple(f"attikos_{operation}" for operation in _OPERATIONS), "platforms": tuple(_PLATFORMS),
    }  # fmt: skip


# --- when it is traced ------------------------------------------------------------------------------


def _call(operation: str, settings: dict[str, Any], arrays: dict[str, Any], *shapes: Any) -> Any:
    """A call of these arrays with so many results, of (shape, type). The handler knows arrays by the names that go
    along, and the dimensions that vmap puts in front by the number that there were without."""
    numbers = {name: (np.float64 if isinstance(x, float) else np.int64)(x) for name, x in settings.items()}
    results = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes)
    call = jax.ffi.ffi_call(f"attikos_{operation}", results, vmap_method="expand_dims")
    ranks = np.array([x.ndim for x in arrays.values()], np.int64)
    found = call(*arrays.values(), arguments=" ".join(arrays), ranks=ranks, **numbers)
    axes = frozenset().union(*map(_axes, arrays.values()))
    return tuple(_varying(x, axes) for x in found)


def _axes(x: Any) -> frozenset[str]:
    """The axes of shard_map's mesh along which an array differs; none outside of it."""
    kind = getattr(jax.typeof(x), "manual_axis_type", None)
    return frozenset(kind.varying if kind else ())


def _varying(x: Any, axes: frozenset[str]) -> Any:
    """The same array, as one that may differ along these axes: the gradient of one that does not is summed over them."""
    missing = tuple(sorted(axes - _axes(x)))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def _check(operation: str, arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raises for what the handlers do not take, then asks the library whether it takes such arrays and settings, which
    raises what it would raise."""
    stand_ins = {}
    for name, x in arrays.items():
        if name in _INTEGERS:
            if not jnp.issubdtype(x.dtype, jnp.integer):
                raise IntegerError(f"attikos.{operation}: {name} is {x.dtype} {list(x.shape)}; expected integers")
        elif name != "mask" and x.dtype.itemsize == 1 and x.dtype != bool:
            raise UnsupportedDtypeError(
                f"attikos.{operation}: {name} is {x.dtype} {list(x.shape)}; for arrays of JAX expected float64, float32, "
                "float16 or bfloat16"
            )
        try:
            stand_ins[name] = np.broadcast_to(np.zeros((), x.dtype), x.shape)
        except TypeError:
            raise UnsupportedDtypeError(f"attikos.{operation}: {name} is {x.dtype}, no type of NumPy's") from None
    attikos.explain(operation, **stand_ins, **settings)


def _as_arrays(given: dict[str, Any]) -> dict[str, Any]:
    """Those that there are."""
    return {name: jnp.asarray(x) for name, x in given.items() if x is not None}


def _prepared(arrays: dict[str, Any]) -> dict[str, Any]:
    """Lengths and offsets in the library's type, and within shard_map all arrays along the same axes, as XLA's calls want
    them."""
    axes = frozenset().union(*map(_axes, arrays.values()))
    return {n: _varying(x.astype(jnp.int32) if n in _INTEGERS else x, axes) for n, x in arrays.items()}


def _like(x: Any) -> Any:
    return x.shape, x.dtype


def _differentiable(forward: Any, backward: Any, pair: bool = False, unread: tuple[str, ...] = ()) -> Any:
    """forward(settings, arrays, keeps) gives the result and, where keeps is set, what backward(settings, arrays, kept,
    gradient) needs for the gradients by name; settings are text, since what is static is hashed. pair: there are two
    results, of which backward needs the second. unread: arrays that it does not need; it finds None for them."""

    def results(found: Any) -> Any:
        return found if pair else found[0]

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def function(text: str, arrays: dict[str, Any]) -> Any:
        return results(forward(json.loads(text), arrays, False))

    def there(text: str, arrays: dict[str, Any]) -> Any:
        found = forward(json.loads(text), arrays, True)
        kept = {name: None if name in unread else x for name, x in arrays.items()}
        return results(found), (kept, (None, found[1]) if pair else found)

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
    return _call("attention", _attention_numbers(settings), arrays, *shapes)


def _attention_numbers(settings: Any) -> dict[str, Any]:
    """Settings as the handler reads them; a scale of 0 is 1 / sqrt(d)."""
    left, right = settings["window"]
    return {
        "scale": float(settings["scale"] or 0.0), "softcap": float(settings["softcap"]), "window_left": left,
        "window_right": right, "causal": settings["causal"], "top_left": settings["top_left"],
        "attention_chunk": settings["attention_chunk"],
    }  # fmt: skip


def _attention_back(settings: Any, arrays: dict[str, Any], found: Any, dout: Any) -> dict[str, Any]:
    names = [name for name in ("q", "k", "v", "bias", "sinks") if name in arrays]
    given = {**arrays, "out": found[0], "lse": found[1], "dout": dout}
    shapes = (_like(arrays[n]) for n in names)
    return dict(zip(names, _call("attention_backward", _attention_numbers(settings), given, *shapes)))


def _gemm_there(settings: Any, arrays: dict[str, Any], keeps: bool) -> Any:
    a, b = arrays["a"], arrays["b"]
    m, n = a.shape[-1 if settings["trans_a"] else -2], b.shape[-2 if settings["trans_b"] else -1]
    batch = () if a.ndim == b.ndim == 2 else (max((x.shape[0] for x in (a, b) if x.ndim == 3), key=lambda n: n != 1),)
    shape = ((*batch, m, n), a.dtype)
    return _call("gemm", _gemm_numbers(settings), arrays, shape, *([shape] if keeps and _bends(settings) else []))


def _bends(settings: Any) -> bool:
    return settings["activation"] not in (None, "none")


def _gemm_numbers(settings: Any) -> dict[str, Any]:
    activation = ACTIVATIONS[settings["activation"] or "none"]
    return {**settings, "alpha": float(settings["alpha"]), "activation": activation}


def _gemm_back(settings: Any, arrays: dict[str, Any], found: Any, dout: Any) -> dict[str, Any]:
    names = [name for name in ("a", "b", "bias") if name in arrays]
    given = {"a": arrays["a"], "b": arrays["b"], "dout": dout}
    if _bends(settings):
        given["pre_activation"] = found[1]
    shapes = [_like(arrays[n]) for n in ("a", "b")] + [(arrays[n].shape, dout.dtype) for n in names[2:]]
    gradients = _call("gemm_backward", _gemm_numbers(settings), given, *shapes)
    return {name: x.astype(arrays[name].dtype) for name, x in zip(names, gradients)}


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


def _norm_of_sum(name: str) -> Any:
    """The norm and the sum, of which alone gradients are made: neither x nor residual is kept."""

    def there(settings: Any, arrays: dict[str, Any], keeps: bool) -> Any:
        return _call(name, settings, arrays, _like(arrays["x"]), _like(arrays["x"]))

    def back(settings: Any, arrays: dict[str, Any], found: Any, gradients: Any) -> dict[str, Any]:
        dout, dsum = gradients
        given = {"x": found[1], "weight": arrays["weight"], "dout": dout, "residual": dsum}
        names = [n for n in ("x", "weight", "bias") if n in arrays]
        shapes = (_like(found[1]), *(_like(arrays[n]) for n in names[1:]))
        got = dict(zip(names, _call(f"{name}_backward", settings, given, *shapes)))
        return {**got, "residual": got["x"]}

    return _differentiable(there, back, pair=True, unread=("x", "residual"))


_attend = _differentiable(_attention_there, _attention_back)
_multiply = _differentiable(_gemm_there, _gemm_back)
_of_rows = {name: _rows_of(name) for name in _ROWS}
_of_sums = {name: _norm_of_sum(name) for name in _NORMS_OF_SUMS}


def _row_call(operation: str, number: dict[str, Any], **given: Any) -> Any:
    arrays = _as_arrays(given)
    x, residual = arrays["x"], arrays.get("residual")
    if residual is not None and (residual.shape, residual.dtype) != (x.shape, x.dtype):
        error = ShapeMismatchError if residual.shape != x.shape else UnsupportedDtypeError
        ours, others = (f"{list(y.shape)} {y.dtype}" for y in (residual, x))
        raise error(f"attikos.{operation}: residual is {ours}, x is {others}; expected one shape and type")
    for name, vector in arrays.items():
        if name not in ("x", "residual") and (x.ndim == 0 or vector.shape != x.shape[-1:]):
            raise ShapeMismatchError(
                f"attikos.{operation}: {name} has shape {list(vector.shape)}; expected the last extent of x, which has "
                f"shape {list(x.shape)}"
            )
    _check(operation, arrays, number)
    call = _of_rows[operation] if residual is None else _of_sums[operation + "_residual"]
    return call(json.dumps({name: float(n) for name, n in number.items()}), _prepared(arrays))


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
    _check("attention", given, settings)
    return _attend(json.dumps(settings), _prepared(given))


def gemm(
    a: Any, b: Any, *, bias: Any = None, alpha: float = 1.0, trans_a: bool = False, trans_b: bool = False,
    activation: str | None = None,
) -> Any:  # fmt: skip
    """activation(alpha * op(a) * op(b) + bias), by attikos.gemm(): a [m, k] and b [k, n] or with a batch in front,
    bias [n]. Gradients of a, b and bias. Deterministic."""
    settings = {"alpha": alpha, "trans_a": trans_a, "trans_b": trans_b, "activation": activation}
    given = _as_arrays({"a": a, "b": b, "bias": bias})
    _check("gemm", given, settings)
    return _multiply(json.dumps(settings), _prepared(given))


def rms_norm(x: Any, weight: Any, eps: float = 1e-6, *, residual: Any = None) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension; gradients of both.

    residual, of the shape and type of x: (out, sum) is returned, of which sum is x + residual, rounded to their type, and
    out the norm of sum as it was rounded. Both are made in one pass, and x and residual have gradients of both; sum and
    weight are kept for them."""
    return _row_call("rms_norm", {"eps": eps}, x=x, weight=weight, residual=residual)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float = 1e-5, *, residual: Any = None) -> Any:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension; gradients of all three. residual as in
    rms_norm()."""
    return _row_call("layer_norm", {"eps": eps}, x=x, weight=weight, bias=bias, residual=residual)


def l2_normalize(x: Any, eps: float = 1e-12) -> Any:
    """x / max(|x|, eps) over the last dimension, with its gradient."""
    return _row_call("l2_normalize", {"eps": eps}, x=x)


def softmax(x: Any, scale: float = 1.0) -> Any:
    """softmax(scale * x) over the last dimension, with its gradient."""
    return _row_call("softmax", {"scale": scale}, x=x)


def log_softmax(x: Any, scale: float = 1.0) -> Any:
    """log(softmax(scale * x)) over the last dimension, with its gradient."""
    return _row_call("log_softmax", {"scale": scale}, x=x)
