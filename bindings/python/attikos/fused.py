# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused operations of transformer blocks: RMSNorm with rotary embedding, and the gated MLP."""

from __future__ import annotations

from typing import Any

from . import _autograd, _border, _library, _options
from ._arguments import choice, flag, integer, real
from ._arrays import Call, operand_of, pointer_or_none
from ._dtypes import expect_floating
from ._host import int32_array
from .errors import ArgumentError, ShapeMismatchError

GATES = {"silu": 4, "gelu": 2, "gelu_tanh": 3}  # as activations of gemm() are numbered


def _rope_call(operation: str, positions: Any, arrays: dict[str, Any], **values: Any) -> tuple[Call, Any]:
    first = operand_of(operation, *next(iter(arrays.items())))
    expect_floating(operation, "x", first)
    if positions is not None:
        positions = int32_array(operation, "positions", positions, first)
    call = Call(operation, **arrays, positions=positions)
    options = _library.RopeOptions(**values)
    options.positions = pointer_or_none(call.get("positions"))
    return call, options


def rope(
    x: Any, cos: Any, sin: Any, *, interleaved: bool = False, position_offset: int = 0, positions: Any = None,
    rotary_dim: int = 0, out: Any = None,
) -> Any:  # fmt: skip
    """x * cos + rotate(x) * sin in the first features of every head; x [batch, heads, seqlen, head_dim].

    cos and sin [positions, rotary_dim] or [1, positions, 1, rotary_dim], of the type of x or, beside 16-bit
    elements, float32; half as wide, with one entry to a pair of features, where rotary_dim is given.
    positions: int32 [batch] (of the first token) or [batch, seqlen]. x has gradients; cos and sin have none: where
    PyTorch records, one that asks for it raises UnsupportedError. out: the array that is written and returned, of the
    shape and type of x, maybe x itself; such a call records no gradient.
    """
    if _border.dispatches(x, cos, sin):
        _options.refuse("rope", [] if out is None else ["out"])
        return _border.operators().rope(x, cos, sin, positions, interleaved, position_offset, rotary_dim)
    values = _rope_values(interleaved, position_offset, rotary_dim)

    def run(x: Any) -> Any:
        return _rope("attikos_rope", x, cos, sin, positions, values, out)

    if out is not None:
        return run(x)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return (_rope("attikos_rope_backward", dout, cos, sin, positions, values),)

    return _autograd.call(run, back, x, unread=(1,))


def _rope_values(interleaved: Any, position_offset: Any, rotary_dim: Any) -> dict[str, Any]:
    return {"interleaved": int(flag("rope", "interleaved", interleaved)),
            "position_offset": integer("rope", "position_offset", position_offset),
            "rotary_dim": integer("rope", "rotary_dim", rotary_dim)}  # fmt: skip


def _rope(
    function: str, x: Any, cos: Any, sin: Any, positions: Any, values: dict[str, Any], out: Any = None
) -> Any:
    call, options = _rope_call("rope", positions, {"x": x, "cos": cos, "sin": sin}, **values)
    target = call.result(call["x"].shape, call["x"].dtype, into=out)
    call.run(function, call["x"], call["cos"], call["sin"], target, options)
    return call.finish()


def rope_backward(
    dout: Any, cos: Any, sin: Any, positions: Any, interleaved: Any, position_offset: Any, rotary_dim: Any
) -> Any:
    """dx of rope()."""
    values = _rope_values(interleaved, position_offset, rotary_dim)
    return _rope("attikos_rope_backward", dout, cos, sin, positions, values)


def fused_rmsnorm_rope(
    x: Any, weight: Any, cos: Any, sin: Any, eps: float = 1e-6, num_heads: int | None = None, *, out: Any = None
) -> Any:
    """rope(x / sqrt(mean(x^2) + eps) * weight) in one kernel, of the shape and dtype of x.

    x [batch, seq_len, hidden_dim], weight [hidden_dim], cos and sin [seq_len, head_dim] or
    [1, seq_len, 1, head_dim], head_dim even; pairs are half-split. Weight and tables are of the dtype of x or, beside
    16 bits, float32. num_heads defaults to hidden_dim / head_dim. x and weight have gradients, cos, sin and out as for
    rope().
    """
    operation = "fused_rmsnorm_rope"
    if _border.dispatches(x, weight, cos, sin):
        _options.refuse(operation, [] if out is None else ["out"])
        return _border.operators().fused_rmsnorm_rope(x, weight, cos, sin, eps, num_heads)
    arrays = {"x": x, "weight": weight, "cos": cos, "sin": sin}
    shapes = {name: operand_of(operation, name, array) for name, array in arrays.items()}
    ox = shapes["x"]
    if ox.ndim != 3:
        raise ShapeMismatchError(
            f"attikos.{operation}: x is {ox.describe()}; expected [batch, seq_len, hidden_dim]"
        )
    heads = 0 if num_heads is None else integer(operation, "num_heads", num_heads)
    if num_heads is not None and heads <= 0:
        raise ShapeMismatchError(f"attikos.{operation}: num_heads is {num_heads}; expected a positive number")
    for name in ("cos", "sin"):
        rows = shapes[name].shape
        seqlen = rows[0] if len(rows) == 2 else rows[1] if len(rows) == 4 else -1
        if seqlen != ox.shape[1]:
            raise ShapeMismatchError(
                f"attikos.{operation}: {name} is {shapes[name].describe()}; expected [{ox.shape[1]}, head_dim] "
                f"or [1, {ox.shape[1]}, 1, head_dim]"
            )
    values = {"eps": real(operation, "eps", eps), "num_heads": heads}

    def run(x: Any, weight: Any) -> Any:
        arrays = {"x": x, "weight": weight, "cos": cos, "sin": sin}
        call, options = _rope_call(operation, None, arrays, **values)
        target = call.result(ox.shape, ox.dtype, into=out)
        call.run("attikos_rms_norm_rope", *(call[name] for name in arrays), target, options)
        return call.finish()

    if out is not None:
        return run(x, weight)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return _rmsnorm_rope_backward(*given, cos, sin, dout, values)

    return _autograd.call(run, back, x, weight, unread=(2,))


def _rmsnorm_rope_backward(x: Any, weight: Any, cos: Any, sin: Any, dout: Any, values: dict[str, Any]) -> Any:
    arrays = {"x": x, "weight": weight, "cos": cos, "sin": sin, "dout": dout}
    call, options = _rope_call("fused_rmsnorm_rope", None, arrays, **values)
    dx = call.result(call["x"].shape, call["x"].dtype)
    dweight = call.result(call["weight"].shape, call["weight"].dtype)
    call.run("attikos_rms_norm_rope_backward", *(call[name] for name in arrays), dx, dweight, options)
    return call.finish()


def fused_rmsnorm_rope_backward(
    x: Any, weight: Any, cos: Any, sin: Any, dout: Any, eps: float, num_heads: int | None
) -> Any:
    """(dx, dweight) of fused_rmsnorm_rope()."""
    return _rmsnorm_rope_backward(x, weight, cos, sin, dout, {"eps": eps, "num_heads": num_heads or 0})


def fused_gated_mlp(x: Any, gate_weight: Any, up_weight: Any, activation: str = "silu") -> Any:
    """activation(x * gate_weight^T) * (x * up_weight^T): the expansion of a gated MLP.

    x [batch, seq_len, hidden_dim] (or [tokens, hidden_dim]), weights [intermediate_dim, hidden_dim];
    activation silu, gelu (erf) or gelu_tanh. Where PyTorch records, both products are kept for the gradients, of the
    type of x, and the result is that of the products as they were rounded to it; else neither is stored.
    """
    operation = "fused_gated_mlp"
    if _border.dispatches(x, gate_weight, up_weight, casts=True):
        operators = _border.operators()
        if any(_border.asks(x, gate_weight, up_weight)) and not _border.is_exported():
            return operators.fused_gated_mlp_kept(x, gate_weight, up_weight, activation)[0]
        return operators.fused_gated_mlp(x, gate_weight, up_weight, activation)
    number = choice(operation, "activation", activation, GATES)
    done = _border.gated_mlp(x, gate_weight, up_weight, number)
    if done is not None:
        return done
    if not _autograd.wanted(x, gate_weight, up_weight):
        call, shape = _gated_call(x, gate_weight, up_weight)
        out = call.result(shape, call["x"].dtype)
        call.run("attikos_gated_mlp", *(call[name] for name in _GATED), out, number)
        return call.finish()

    def run(*given: Any) -> Any:
        return fused_gated_mlp_kept(*given, activation)

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        return fused_gated_mlp_backward(*inputs, gradients[0], activation, *outputs[1:])

    return _autograd.apply(run, back, (x, gate_weight, up_weight), unread=(3,))[0]


_GATED = ("x", "gate_weight", "up_weight")


def _gated_call(x: Any, gate_weight: Any, up_weight: Any) -> tuple[Call, tuple[int, ...]]:
    """The call, and the shape of its result."""
    operation = "fused_gated_mlp"
    ox, gate = operand_of(operation, "x", x), operand_of(operation, "gate_weight", gate_weight)
    expect_floating(operation, "x", ox)
    if ox.ndim not in (2, 3) or gate.ndim != 2:
        raise ShapeMismatchError(
            f"attikos.{operation}: x is {ox.describe()}, gate_weight is {gate.describe()}; expected "
            "[batch, seq_len, hidden_dim] and [intermediate_dim, hidden_dim]"
        )
    return Call(operation, x=x, gate_weight=gate_weight, up_weight=up_weight), (*ox.shape[:-1], gate.shape[0])


def fused_gated_mlp_kept(x: Any, gate_weight: Any, up_weight: Any, activation: str) -> Any:
    """(out, gate, up): fused_gated_mlp() as PyTorch records it, and both products for fused_gated_mlp_backward().
    Nothing is recorded."""
    number = choice("fused_gated_mlp", "activation", activation, GATES)
    done = _border.gradients("gated_mlp_keep", 3, (x, gate_weight, up_weight), (number,))
    if done is not None:
        return done
    call, shape = _gated_call(x, gate_weight, up_weight)
    results = [call.result(shape, call["x"].dtype) for _ in range(3)]
    call.run("attikos_gated_mlp_keep", *(call[name] for name in _GATED), *results, number)
    return call.finish()


def fused_gated_mlp_backward(
    x: Any, gate_weight: Any, up_weight: Any, dout: Any, activation: str, gate: Any = None, up: Any = None
) -> Any:
    """(dx, dgate_weight, dup_weight) of fused_gated_mlp(); gate and up, which fused_gated_mlp_kept() gives, or neither:
    then both are computed again."""
    operation = "fused_gated_mlp"
    number = choice(operation, "activation", activation, GATES)
    arrays = {**dict(zip(_GATED, (x, gate_weight, up_weight))), "dout": dout}
    if (gate is None) != (up is None):
        missing = "up" if up is None else "gate"
        raise ArgumentError(f"attikos.{operation}: {missing} is None; expected gate and up, or neither")
    function = "gated_mlp_backward"
    if gate is not None:
        arrays.update(gate=gate, up=up)
        function += "_kept"
    done = _border.gradients(function, 3, tuple(arrays.values()), (number,))
    if done is not None:
        return done
    call = Call(operation, **arrays)
    results = [call.result(call[name].shape, call[name].dtype) for name in _GATED]
    call.run(f"attikos_{function}", *(call[name] for name in arrays), *results, number)
    return call.finish()
