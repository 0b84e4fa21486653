# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on rows (the last dimension): norms, softmax, pooling. Gradients flow where PyTorch records them.

out and residual_sum, or in gradients dx, dweight and dbias: arrays of the caller's that results are written into, and
which are returned: of the shape and element type that a new one would have, with any strides that do not overlap, on the
device of the others. Such a call records no gradient: where PyTorch records, an argument that asks for one raises
UnsupportedError. out may be x itself.

Of arrays with more than three dimensions the leading ones are joined, without a copy: a call on some whose strides do not
let them be raises StrideError. Gradients that PyTorch brings to a recorded call, whose strides nobody chose, are copied
where they have to be, and nowhere else."""

from __future__ import annotations

from typing import Any

from . import _autograd, _border, _options
from ._arguments import integer, real
from ._arrays import Call, Operand, operand_of
from ._dtypes import expect_floating
from ._host import int32_array
from .errors import ArgumentError, ShapeMismatchError, StrideError


# What the number of an operation is called, where it is no eps.
_NUMBERS = dict.fromkeys(("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"), "scale")


def _joined(shape: Any, strides: Any, most: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Extents and strides of at most so many dimensions, of which leading ones are joined; None where strides do not let
    them be."""
    shape, strides = list(shape), list(strides)
    while len(shape) > most:
        joined = shape[0] * shape[1]
        if shape[0] != 1 and shape[1] != 1 and joined and strides[0] != shape[1] * strides[1]:
            return None
        step = strides[1] if shape[1] != 1 else strides[0]
        shape[:2], strides[:2] = [joined], [step]
    return tuple(shape), tuple(strides)


def merge_leading(operation: str, x: Operand, name: str = "x", most: int = 3) -> Operand:
    """x as at most so many dimensions without a copy: leading dimensions are joined where their strides
    let them."""
    found = _joined(x.shape, x.strides, most)
    if found is None:
        raise StrideError(
            f"attikos.{operation}: {name} is {x.describe()} with strides {x.strides}; expected at most "
            f"{('one dimension', 'two dimensions', 'three dimensions')[most - 1]}, or leading ones that can be joined"
        )
    return x.view(*found)


def arrived(gradient: Any, most: int = 3) -> Any:
    """A gradient as PyTorch hands it to a recorded call, None where there is none. Nobody chose its strides: a dense copy
    where its leading dimensions cannot be joined to so many."""
    if gradient is None or gradient.dim() <= most or _joined(gradient.shape, gradient.stride(), most) is not None:
        return gradient
    return gradient.contiguous()


def _row_call(operation: str, function: str, number: float, x: Any, out: Any = None, **vectors: Any) -> Any:
    number = real(operation, _NUMBERS.get(operation, "eps"), number)
    done = _border.rows(operation, number, x, *vectors.values(), out=out)
    if done is not None:
        return done
    call = Call(operation, x=x, **vectors)
    ox = call["x"]
    if ox.ndim < 1:
        raise ShapeMismatchError(f"attikos.{operation}: x is {ox.describe()}; expected at least 1 dimension")
    expect_floating(operation, "x", ox)
    target = merge_leading(operation, call.result(ox.shape, ox.dtype, into=out), "out")
    rows = merge_leading(operation, ox)
    call.run(function, rows, *(call[name] for name in vectors), target, number)
    return call.finish()


def _norm_of_sum(
    operation: str, eps: Any, back: Any, x: Any, residual: Any, out: Any, residual_sum: Any, **vectors: Any
) -> Any:
    """(out, sum) of a norm; back() is its gradient."""
    if residual is None:
        raise ArgumentError(f"attikos.{operation}: residual_sum is given, but residual is None; expected both, or neither")
    number, arrays = real(operation, "eps", eps), (x, residual, *vectors.values())
    places = {name: place for name, place in (("out", out), ("residual_sum", residual_sum)) if place is not None}
    if _border.dispatches(*arrays):
        _options.refuse(operation, list(places))
        return getattr(_border.operators(), operation + "_residual")(*arrays, number)
    done = _border.norm_of_sum(operation, number, *arrays, out=out, total=residual_sum)
    if done is not None:
        return done

    def run(*given: Any) -> Any:
        call = Call(operation, **dict(zip(("x", "residual", *vectors), given)))
        ox, added = call["x"], call["residual"]
        if added.shape != ox.shape or ox.ndim < 1:
            raise ShapeMismatchError(
                f"attikos.{operation}: residual is {added.describe()}; x is {ox.describe()}; expected one shape"
            )
        expect_floating(operation, "x", ox)
        target, stored = (
            merge_leading(operation, call.result(ox.shape, ox.dtype, into=places.get(name), name=name), name)
            for name in ("out", "residual_sum")
        )
        rows = merge_leading(operation, ox), merge_leading(operation, added, "residual")
        call.run(f"attikos_{operation}_residual", *rows, *(call[name] for name in vectors), stored, target, number)
        return call.finish()

    if places or not _autograd.wanted(*arrays):
        return run(*arrays)

    def gradients_of(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        dout, dsum = gradients
        if dout is None:
            return (dsum, dsum, *(None for _ in vectors))
        dx, *others = back(outputs[1], inputs[2], arrived(dout), number, residual=arrived(dsum))
        return dx, dx, *others

    # All that they read is the weight and the sum.
    return _autograd.apply(run, gradients_of, arrays, 2, (0, 1, *range(3, len(arrays) + 1)))


def rms_norm(
    x: Any, weight: Any, eps: float = 1e-6, *, residual: Any = None, out: Any = None, residual_sum: Any = None
) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension.

    residual, of the shape and type of x: (out, sum) is returned, of which sum is x + residual, rounded to their type, and
    out the norm of sum as it was rounded. Both are made in one pass, and both have gradients; PyTorch keeps sum and weight
    for them. residual_sum: where sum is written, maybe residual itself, a stream in place, or x; out may be neither then.
    """
    if residual is not None or residual_sum is not None:
        return _norm_of_sum("rms_norm", eps, rms_norm_backward, x, residual, out, residual_sum, weight=weight)
    done = _border.rows("rms_norm", eps, x, weight, out=out)
    if done is not None:
        return done
    if _border.dispatches(x, weight):
        _options.refuse("rms_norm", [] if out is None else ["out"])
        return _border.operators().rms_norm(x, weight, real("rms_norm", "eps", eps))

    def run(x: Any, weight: Any) -> Any:
        return _row_call("rms_norm", "attikos_rms_norm", eps, x, out, weight=weight)

    if out is not None:
        return run(x, weight)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return rms_norm_backward(*given, arrived(dout), eps)

    return _autograd.call(run, back, x, weight, unread=(2,))


def layer_norm(
    x: Any, weight: Any, bias: Any, eps: float = 1e-5, *, residual: Any = None, out: Any = None, residual_sum: Any = None
) -> Any:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension; residual and residual_sum as in
    rms_norm()."""
    if residual is not None or residual_sum is not None:
        vectors = {"weight": weight, "bias": bias}
        return _norm_of_sum("layer_norm", eps, layer_norm_backward, x, residual, out, residual_sum, **vectors)
    done = _border.rows("layer_norm", eps, x, weight, bias, out=out)
    if done is not None:
        return done
    if _border.dispatches(x, weight, bias):
        _options.refuse("layer_norm", [] if out is None else ["out"])
        return _border.operators().layer_norm(x, weight, bias, real("layer_norm", "eps", eps))

    def run(x: Any, weight: Any, bias: Any) -> Any:
        return _row_call("layer_norm", "attikos_layer_norm", eps, x, out, weight=weight, bias=bias)

    if out is not None:
        return run(x, weight, bias)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return layer_norm_backward(*given[:2], arrived(dout), eps)

    return _autograd.call(run, back, x, weight, bias, unread=(3,))


def l2_normalize(x: Any, eps: float = 1e-12, *, out: Any = None) -> Any:
    """x / max(|x|, eps) over the last dimension."""
    done = _border.rows("l2_normalize", eps, x, out=out)
    if done is not None:
        return done
    if _border.dispatches(x):
        _options.refuse("l2_normalize", [] if out is None else ["out"])
        return _border.operators().l2_normalize(x, real("l2_normalize", "eps", eps))

    def run(x: Any) -> Any:
        return _row_call("l2_normalize", "attikos_l2_normalize", eps, x, out)

    if out is not None:
        return run(x)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return (l2_normalize_backward(*given, arrived(dout), eps),)

    return _autograd.call(run, back, x, unread=(1,))


def softmax(x: Any, scale: float = 1.0, *, out: Any = None) -> Any:
    """softmax(scale * x) over the last dimension; a row of minus infinities gives zeros."""
    done = _border.rows("softmax", scale, x, out=out)
    if done is not None:
        return done
    if _border.dispatches(x):
        _options.refuse("softmax", [] if out is None else ["out"])
        return _border.operators().softmax(x, real("softmax", "scale", scale))

    def run(x: Any) -> Any:
        return _row_call("softmax", "attikos_softmax", scale, x, out)

    if out is not None:
        return run(x)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return (softmax_backward(*out, arrived(dout), scale),)

    return _autograd.call(run, back, x, unread=(0,))


def log_softmax(x: Any, scale: float = 1.0, *, out: Any = None) -> Any:
    """log(softmax(scale * x)) over the last dimension."""
    done = _border.rows("log_softmax", scale, x, out=out)
    if done is not None:
        return done
    if _border.dispatches(x):
        _options.refuse("log_softmax", [] if out is None else ["out"])
        return _border.operators().log_softmax(x, real("log_softmax", "scale", scale))

    def run(x: Any) -> Any:
        return _row_call("log_softmax", "attikos_log_softmax", scale, x, out)

    if out is not None:
        return run(x)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return (log_softmax_backward(*out, arrived(dout), scale),)

    return _autograd.call(run, back, x, unread=(0,))


def _norm_backward(
    operation: str, number: float, x: Any, weight: Any, dout: Any, residual: Any, dx: Any, **vectors: Any
) -> Any:
    """dx in the shape of x, then gradients in the shape of weight; each into what the caller gave."""
    number = real(operation, "eps", number)
    function = operation if residual is None else operation + "_residual"
    if dx is None and all(into is None for into in vectors.values()):
        arrays = (x, weight, dout) if residual is None else (x, weight, dout, residual)
        done = _border.gradients(function, 1 + len(vectors), arrays, (number,))
        if done is not None:
            return done
    call = Call(operation, x=x, weight=weight, dout=dout, residual=residual)
    ox, given, added = call["x"], call["dout"], call.get("residual")
    for name, like in (("dout", given), ("residual", added)):
        if like is not None and like.shape != ox.shape:
            raise ShapeMismatchError(f"attikos.{operation}: {name} is {like.describe()}; x is {ox.describe()}")
    target = merge_leading(operation, call.result(ox.shape, ox.dtype, into=dx, name="dx"), "dx")
    weights = call["weight"]
    sums = [call.result(weights.shape, weights.dtype, into=into, name=name) for name, into in vectors.items()]
    rows, gradient = merge_leading(operation, ox), merge_leading(operation, given, "dout")
    more = () if added is None else (merge_leading(operation, added, "residual"),)
    call.run("attikos_" + function, rows, call["weight"], gradient, *more, target, *sums, number)
    return call.finish()


def rms_norm_backward(
    x: Any, weight: Any, dout: Any, eps: float = 1e-6, *, residual: Any = None, dx: Any = None, dweight: Any = None
) -> Any:
    """(dx, dweight) of rms_norm(). residual, of the shape and type of x, is added to dx before that is rounded: the
    gradient that goes past the norm. dx may be x, dout or residual."""
    return _norm_backward("rms_norm_backward", eps, x, weight, dout, residual, dx, dweight=dweight)


def layer_norm_backward(
    x: Any, weight: Any, dout: Any, eps: float = 1e-5, *, residual: Any = None, dx: Any = None, dweight: Any = None,
    dbias: Any = None,
) -> Any:  # fmt: skip
    """(dx, dweight, dbias) of layer_norm(). residual as in rms_norm_backward(); dx may be x, dout or residual."""
    return _norm_backward("layer_norm_backward", eps, x, weight, dout, residual, dx, dweight=dweight, dbias=dbias)


def _row_backward(operation: str, number: float, x: Any, dout: Any, dx: Any, x_name: str) -> Any:
    """dx in the shape of x, or of the result that stands for x."""
    number = real(operation, _NUMBERS.get(operation, "eps"), number)
    call = Call(operation, **{x_name: x, "dout": dout})
    ox, given = call[x_name], call["dout"]
    if given.shape != ox.shape or ox.ndim < 1:
        raise ShapeMismatchError(
            f"attikos.{operation}: dout is {given.describe()}; {x_name} is {ox.describe()}; expected one shape"
        )
    expect_floating(operation, x_name, ox)
    target = merge_leading(operation, call.result(ox.shape, ox.dtype, into=dx, name="dx"), "dx")
    rows, gradient = merge_leading(operation, ox, x_name), merge_leading(operation, given, "dout")
    call.run("attikos_" + operation, rows, gradient, target, number)
    return call.finish()


def softmax_backward(out: Any, dout: Any, scale: float = 1.0, *, dx: Any = None) -> Any:
    """dx of softmax() from what it gave: scale * out * (dout - sum(out * dout))."""
    return _row_backward("softmax_backward", scale, out, dout, dx, "out")


def log_softmax_backward(out: Any, dout: Any, scale: float = 1.0, *, dx: Any = None) -> Any:
    """dx of log_softmax() from what it gave: scale * (dout - exp(out) * sum(dout))."""
    return _row_backward("log_softmax_backward", scale, out, dout, dx, "out")


def l2_normalize_backward(x: Any, dout: Any, eps: float = 1e-12, *, dx: Any = None) -> Any:
    """dx of l2_normalize()."""
    return _row_backward("l2_normalize_backward", eps, x, dout, dx, "x")


def mean_pool(x: Any, lengths: Any = None, *, out: Any = None) -> Any:
    """Mean over the positions of x [batch, seqlen, hidden]; with lengths [batch] over the first ones only."""
    if _border.dispatches(x):
        _options.refuse("mean_pool", [] if out is None else ["out"])
        return _border.operators().mean_pool(x, lengths)

    def run(x: Any) -> Any:
        call = Call("mean_pool", x=x)
        ox = call["x"]
        if ox.ndim != 3:
            raise ShapeMismatchError(f"attikos.mean_pool: x is {ox.describe()}; expected [batch, seqlen, hidden]")
        if lengths is not None:
            call = Call("mean_pool", x=ox, lengths=int32_array("mean_pool", "lengths", lengths, ox))
        target = call.result((ox.shape[0], ox.shape[2]), ox.dtype, into=out)
        call.run("attikos_mean_pool", ox, call.get("lengths"), target)
        return call.finish()

    if out is not None:
        return run(x)

    def back(given: Any, out: Any, dout: Any) -> Any:
        return (mean_pool_backward(dout, given[0].shape[1], lengths),)

    return _autograd.call(run, back, x, unread=(1,))


def mean_pool_backward(dout: Any, seqlen: int, lengths: Any = None, *, dx: Any = None) -> Any:
    """dx [batch, seqlen, hidden] of mean_pool() from dout [batch, hidden]: dout / length at the positions that
    count, else 0."""
    first = operand_of("mean_pool_backward", "dout", dout)
    seqlen = integer("mean_pool_backward", "seqlen", seqlen)
    if first.ndim != 2 or seqlen < 0:
        raise ShapeMismatchError(
            f"attikos.mean_pool_backward: dout is {first.describe()}, seqlen is {seqlen}; expected [batch, hidden] "
            "and a number of positions"
        )
    given = None if lengths is None else int32_array("mean_pool_backward", "lengths", lengths, first)
    call = Call("mean_pool_backward", dout=first, lengths=given)
    target = call.result((first.shape[0], seqlen, first.shape[1]), first.dtype, into=dx, name="dx")
    call.run("attikos_mean_pool_backward", first, call.get("lengths"), target)
    return call.finish()
