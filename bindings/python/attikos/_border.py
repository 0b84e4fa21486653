# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The short way of a call: plain calls on tensors of PyTorch and arrays of NumPy go to libattikos through compiled
functions, by apache-tvm-ffi, which costs a tenth of the way through Python.

Each function here returns what the public function of its name returns, or None for a call that it does not take: one
that records gradients, has a mode of PyTorch around it, other kinds of arrays, options that are seldom given, and every
call that libattikos refuses. Such calls go the long way, by _arrays.Call, which takes them or says what is wrong; a
call that was refused has written nothing, so that nothing is done twice."""

from __future__ import annotations

import atexit
import contextvars
import importlib.util
import pathlib
import sys
import threading
from typing import Any

import numpy as np

from ._arguments import ACTIVATIONS, COMPUTE, DETERMINISM
from ._autograd import mark_written
from ._lifetimes import hold
from ._threads import await_other_threads

# Set where every call has to go the long way.
barred: contextvars.ContextVar[bool] = contextvars.ContextVar("attikos_barred", default=False)
_is_barred = barred.get

LIBRARY = pathlib.Path(__file__).parent / "lib" / "libattikos_border.so"

_lock = threading.Lock()
_modules = sys.modules
_met: set[type] = set()
_functions: dict[str, Any] = {}  # the compiled ones, once an array came that they take
_tensors: dict[type, bool] = {}  # the types of PyTorch that they take
_ndarrays: dict[type, bool] = {}

LONG, FROM_ALLOCATOR, OF_NUMPY, RECORDS = 0, 1, 2, 3

_recorded: Any = None  # the module of that name, once a tensor came that it takes


def _never() -> Any:
    return False


# What PyTorch says of the calling thread; set when its first tensor comes.
_records = _has_modes = _has_function_mode = _has_autocast = _never
_level: Any = _never


def meet(kind: type) -> None:
    """Opens the short way for a type of arrays; every call that goes the long way comes by here."""
    global _recorded
    if kind in _met:
        return
    with _lock:
        if _is_closed:
            return
        torch = sys.modules.get("torch")
        tensors = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        if kind is np.ndarray or kind in tensors:
            # apache-tvm-ffi imports PyTorch where it is installed, which takes seconds: it has to be there already.
            if torch is None and importlib.util.find_spec("torch") is not None:
                return
            if not _functions:
                _functions.update(_load())
            if _functions:
                _ndarrays[np.ndarray] = True
                if kind is not np.ndarray and _watch(torch):
                    from . import _recorded as module

                    _recorded = module
                    _tensors.update(dict.fromkeys(tensors, True))
        _met.add(kind)


_is_closed = False


def _close() -> None:
    """Closes the short way and waits for calls on it, five seconds at most. A thread that comes back from compiled code
    to an interpreter that is gone is ended there, and with it, since that is C++, the process."""
    global _is_closed
    with _lock:
        _is_closed = True
        _ndarrays.clear()
        _tensors.clear()
    await_other_threads(5)


atexit.register(_close)

_NAMES = (
    "rms_norm", "layer_norm", "l2_normalize", "softmax", "log_softmax", "gemm", "attention", "decode", "with_kvcache",
    "rms_norm_backward", "layer_norm_backward", "l2_normalize_backward", "softmax_backward", "log_softmax_backward",
    "gemm_backward", "attention_backward", "cross_entropy", "cross_entropy_backward", "merge_states", "gated_mlp",
    "gated_mlp_keep", "gated_mlp_backward", "gated_mlp_backward_kept", "rms_norm_residual", "layer_norm_residual",
    "rms_norm_backward_residual", "layer_norm_backward_residual", "more",
)  # fmt: skip


def _load() -> dict[str, Any]:
    """The compiled functions; none in a build without them."""
    if not LIBRARY.exists():
        return {}
    import tvm_ffi

    module = tvm_ffi.load_module(str(LIBRARY))
    return {name: module.get_function(name) for name in _NAMES}


def _watch(torch: Any) -> bool:
    """Learns where this PyTorch says what _way() has to know; False of one that does not say it, or that does not
    hand its tensors over without Python."""
    global _records, _has_modes, _has_function_mode, _level, _has_autocast
    inside, transforms = torch._C, getattr(torch._C, "_functorch", None)
    found = (
        torch.is_grad_enabled,
        getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", None),
        getattr(inside, "_len_torch_dispatch_stack", None),
        getattr(inside, "_is_torch_function_mode_enabled", None),
        getattr(transforms, "maybe_current_level", None),
        getattr(inside, "_is_any_autocast_enabled", None),
    )
    if None in found or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return False
    _records, _, _has_modes, _has_function_mode, _level, _has_autocast = found
    return True


def is_traced() -> bool:
    """Whether torch.compile reads this code instead of running it."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_dynamo_compiling())


def dispatches(*arrays: Any, casts: bool = False) -> bool:
    """Whether torch.compile, a mode, a transform or a subclass of PyTorch is to see a call on these arrays, as an
    operator; of an operation that torch.autocast casts the arguments of, that, too."""
    if is_traced():
        return True
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(arrays[0], torch.Tensor):
        return False
    if _watch(torch) and (_has_modes() or _level() is not None):
        return True
    if casts and _has_autocast() and torch.is_autocast_enabled(arrays[0].device.type):
        return True
    plain = torch._C._disabled_torch_dispatch_impl
    return any(isinstance(x, torch.Tensor) and type(x).__torch_dispatch__ is not plain for x in arrays)


def operators() -> Any:
    """The operators of PyTorch, by name; inside torch.func's transforms, as those want them."""
    from . import _operators

    if is_traced() or _level() is None:
        return _operators
    return _operators._transforms.FUNCTIONS


def is_exported() -> bool:
    """Whether what torch.compile reads is for torch.export, whose graphs run without gradients as a rule."""
    return bool(getattr(sys.modules["torch"].compiler, "is_exporting", _never)())


def asks(*arrays: Any) -> list[bool]:
    """Which of these tensors ask for a gradient; inside of torch.func's transforms, which do not tell, all."""
    torch = sys.modules["torch"]
    if not torch.is_grad_enabled():
        return [False] * len(arrays)
    untold = not is_traced() and _level() is not None
    return [untold or getattr(x, "requires_grad", False) for x in arrays]


def _way(first: Any, *others: Any) -> int:
    """How a call on these arrays goes: OF_NUMPY, where Python makes the result, FROM_ALLOCATOR, LONG, or RECORDS, which
    is FROM_ALLOCATOR but for a gradient that is asked for."""
    kind = type(first)
    if kind is not np.ndarray:  # before anything that calls change: a graph holds as long as what was read for it
        torch = _modules.get("torch")
        if torch is not None and torch.compiler.is_dynamo_compiling():
            return LONG
    if kind in _tensors:
        if _has_modes() or _has_function_mode() or _level() is not None or _is_barred():
            return LONG
        if first.is_neg():
            return LONG
        records = _records()
        way, alone = RECORDS if records and first.requires_grad else FROM_ALLOCATOR, True
        for x in others:
            if type(x) in _tensors:
                if x.is_neg():
                    return LONG
                if records and x.requires_grad:
                    way = RECORDS
            elif type(x) in _ndarrays:
                alone = False
            else:
                return LONG
        if first.is_cuda:
            hold(first, *others)
        return way if alone or way != RECORDS else LONG
    if kind not in _ndarrays or _is_barred():
        return LONG
    for x in others:
        if type(x) not in _ndarrays and _way(x) != FROM_ALLOCATOR:
            return LONG
    return OF_NUMPY


def _go_along(*arrays: Any) -> bool:
    """Whether further arrays, None where there are none, let the call go the short way."""
    for x in arrays:
        if x is not None and _way(x) not in (FROM_ALLOCATOR, OF_NUMPY):
            return False
    return True


class Declined(Exception):
    """A call that was to be recorded is none of the border's after all."""


def _record(function: Any, *arguments: Any) -> Any:
    try:
        return function.apply(*arguments)
    except Declined:
        return None


def gradients(name: str, count: int, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> Any:
    """What a compiled function of so many gradients gives as a tuple, or None; nothing is recorded here."""
    if _way(*arrays) != FROM_ALLOCATOR:
        return None
    try:
        first = _functions[name](*arrays, *numbers)
    except Exception:  # noqa: BLE001
        return None
    if first is None or count == 1:
        return None if first is None else (first,)
    more = _functions["more"]
    found = (first, more(first)) if count == 2 else (first, more(first), more(first))
    return None if found[-1] is None else found


def is_zero(number: Any) -> bool:
    return type(number) is float and number == 0.0


def rows(name: str, number: Any, x: Any, *vectors: Any, out: Any = None) -> Any:
    """rms_norm, layer_norm, l2_normalize, softmax or log_softmax, into `out` where the caller gave one."""
    way = _way(x, *vectors)
    if way == LONG or out is not None and not _may_write(out, way):
        return None
    if way == RECORDS:
        return _record(_recorded.Rows, name, number, x, *vectors) if out is None else None
    try:
        place = np.empty(x.shape, x.dtype) if out is None and way == OF_NUMPY else out
        done = _functions[name](x, place, *vectors, number)
    except Exception:  # noqa: BLE001: the long way says what it is
        return None
    if out is not None and done is True and way == FROM_ALLOCATOR:
        mark_written(out)
    return place if done is True else done


def norm_of_sum(name: str, number: float, *arrays: Any, out: Any = None, total: Any = None) -> Any:
    """rms_norm or layer_norm of x + residual, and that sum, each into the array that the caller gave for it."""
    way, given = _way(*arrays), [place for place in (out, total) if place is not None]
    if way == LONG or not all(_may_write(place, way) for place in given):
        return None
    if way == RECORDS:
        return None if given else _record(_recorded.NormOfSum, name, number, *arrays)
    try:
        if way == OF_NUMPY:
            x = arrays[0]
            out, total = (np.empty(x.shape, x.dtype) if place is None else place for place in (out, total))
        first = _functions[name + "_residual"](*arrays, out, total, number)
        if first is None:
            return None
        if out is None:
            out, total = first, _functions["more"](first) if total is None else total
        elif total is None:
            total = first
    except Exception:  # noqa: BLE001: the long way says what it is
        return None
    if way == FROM_ALLOCATOR:
        mark_written(*given)
    return None if total is None else (out, total)


def _may_write(place: Any, way: int) -> bool:
    """Whether the caller's array may be a result of a call that goes this way."""
    return _way(place) == way and (way != OF_NUMPY or bool(place.flags.writeable))


def cross_entropy(logits: Any, labels: Any, smoothing: Any, ignored: Any, reduction: str) -> Any:
    """The loss of every row and False, or, where PyTorch records, what is reduced already and True."""
    way = _way(logits, labels)
    if way == LONG:
        return None
    if way == RECORDS:
        found = _record(_recorded.Loss, logits, labels, smoothing, ignored, reduction)
        return None if found is None else (found, True)
    try:
        loss = lse = None
        if way == OF_NUMPY:
            wide = np.float64 if logits.dtype == np.float64 else np.float32
            loss, lse = np.empty(labels.shape, wide), np.empty(labels.shape, wide)
        done = _functions["cross_entropy"](logits, labels, loss, lse, smoothing, ignored)
        return None if done is None else (loss if done is True else done, False)
    except Exception:  # noqa: BLE001: the long way says what it is
        return None


def gemm(
    a: Any, b: Any, bias: Any, residual: Any, alpha: Any, beta: Any, scale: Any, trans_a: Any, trans_b: Any,
    activation: Any, compute: Any, accumulate: Any, kernel: Any, recorded: bool = False, packed: Any = None,
    out_dtype: Any = None,
) -> Any:  # fmt: skip
    """recorded: PyTorch is to record a call that is plain but for gradients of a and b. packed: the memory of a packed b,
    of which b has type and extents alone. out_dtype: float32 as a type of PyTorch or NumPy, of 16 bits alone."""
    way = _way(a, b)
    if way == LONG or not (recorded and packed is None or way != RECORDS) or _has_autocast():
        return None
    if not (bias is None and residual is None or _go_along(bias, residual)):
        return None
    try:
        if accumulate != "promoted" or kernel != "" or not is_zero(beta):
            return None
        number = COMPUTE[compute]
        if way == RECORDS:
            plain = bias is None and residual is None and (activation is None or activation == "none")
            plain = plain and out_dtype is None
        else:
            out, wide = None, out_dtype is not None
            if wide and str(out_dtype) not in ("torch.float32", "float32"):
                return None
            if way == OF_NUMPY:
                if a.ndim != 2 or b.ndim != 2:
                    return None
                dtype = np.float32 if wide else np.int32 if a.dtype == np.int8 else a.dtype
                out = np.empty((a.shape[1 if trans_a else 0], b.shape[0 if trans_b else 1]), dtype)
            done = _functions["gemm"](
                a, b, out, bias, residual, alpha, scale, trans_a, trans_b,
                ACTIVATIONS["none" if activation is None else activation], number, packed, wide,
            )  # fmt: skip
            return out if done is True else done
    except Exception:  # noqa: BLE001
        return None
    return _record(_recorded.Product, a, b, (alpha, scale, trans_a, trans_b, number)) if plain else None


def _outputs(way: int, q: Any, v: Any, heads_last: bool, with_lse: Any) -> tuple[Any, Any]:
    """NumPy's places for the output and the log-sum-exp."""
    if way != OF_NUMPY:
        return None, None
    out = np.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    if not with_lse:
        return out, None
    shape = (*q.shape[:-3], q.shape[-2], q.shape[-3]) if heads_last else q.shape[:-1]
    return out, np.empty(shape, np.float64 if q.dtype == np.float64 else np.float32)


def _answer(done: Any, with_lse: Any, out: Any, lse: Any) -> Any:
    if done is None or not with_lse:
        return out if done is True else done
    if out is None:
        out, lse = done, _functions["more"](done)
    return None if lse is None else (out, lse)


def attention(
    q: Any, k: Any, v: Any, heads_last: bool, with_lse: Any, scale: Any, softcap: Any, window: Any, causal: Any,
    top_left: Any = False, compute: Any = "ieee", attention_chunk: Any = 0, check: Any = False, lengths_q: Any = None,
    lengths_kv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, page_table: Any = None,
    algorithm: Any = "flash", kernel: Any = "", dropout_p: Any = 0.0, sm_margin: Any = 0, recorded: bool = False,
) -> Any:  # fmt: skip
    """recorded: PyTorch is to record a call that is plain but for gradients of q, k and v."""
    way = _way(q, k, v)
    if way == LONG or not (recorded or way != RECORDS) or _has_autocast():
        return None
    try:
        if algorithm != "flash" or kernel != "" or not (dropout_p is None or is_zero(dropout_p)):
            return None
        number, (left, right) = COMPUTE[compute], window
        alone = lengths_q is None and lengths_kv is None and cu_seqlens_q is None and cu_seqlens_kv is None
        alone = alone and page_table is None
        if way != RECORDS:
            if not (alone or _go_along(lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table)):
                return None
            out, lse = _outputs(way, q, v, heads_last, with_lse)
            done = _functions["attention"](
                q, k, v, out, lse, heads_last, with_lse, scale, softcap, left, right, causal, top_left, number,
                attention_chunk, check, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table, sm_margin,
            )  # fmt: skip
            return _answer(done, with_lse, out, lse)
    except Exception:  # noqa: BLE001
        return None
    if not alone or type(with_lse) is not bool or type(sm_margin) is not int or sm_margin != 0:
        return None
    numbers = (heads_last, scale, softcap, left, right, causal, top_left, number, attention_chunk)
    return _record(_recorded.Attention, q, k, v, with_lse, numbers)


def attention_backward(
    arrays: tuple[Any, ...], scale: Any, softcap: Any, window: Any, causal: Any, top_left: Any, compute: Any,
    attention_chunk: Any, check: Any, lengths_q: Any, lengths_kv: Any, cu_seqlens_q: Any, cu_seqlens_kv: Any,
) -> Any:  # fmt: skip
    """arrays: tensors q, k, v, out, lse and dout."""
    if not _go_along(lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv):
        return None
    try:
        left, right = window
        numbers = (
            False, scale, softcap, left, right, causal, top_left, COMPUTE[compute], attention_chunk, check, lengths_q,
            lengths_kv, cu_seqlens_q, cu_seqlens_kv,
        )  # fmt: skip
    except Exception:  # noqa: BLE001: the long way says what it is
        return None
    return gradients("attention_backward", 3, arrays, numbers)


def merge_states(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any, into: bool = False) -> Any:
    """The merged state as a pair; with `into` True, and the first state is written over."""
    way = _way(out_a, lse_a, out_b, lse_b)
    if way == LONG or way == RECORDS or (into and type(lse_a) is not type(out_a)):
        return None
    try:
        out = lse = None
        if into:
            if way == OF_NUMPY and not (out_a.flags.writeable and lse_a.flags.writeable):
                return None
            out, lse = out_a, lse_a
        elif way == OF_NUMPY:
            out = np.empty(out_a.shape, out_a.dtype)
            lse = np.empty(out_a.shape[:-1], np.float64 if out_a.dtype == np.float64 else np.float32)
        done = _functions["merge_states"](out_a, lse_a, out_b, lse_b, out, lse)
        return done if into else _answer(done, True, out, lse)
    except Exception:  # noqa: BLE001
        return None


def gated_mlp(x: Any, gate_weight: Any, up_weight: Any, activation: int) -> Any:
    way = _way(x, gate_weight, up_weight)
    if way == LONG or way == RECORDS or _has_autocast():
        return None
    try:
        out = np.empty((*x.shape[:-1], gate_weight.shape[0]), x.dtype) if way == OF_NUMPY else None
        done = _functions["gated_mlp"](x, gate_weight, up_weight, out, activation)
        return out if done is True else done
    except Exception:  # noqa: BLE001
        return None


def decode(
    q: Any, k: Any, v: Any, with_lse: Any, scale: Any, softcap: Any, window: Any, causal: Any, top_left: Any,
    splits: Any, determinism: Any, attention_chunk: Any, check: Any, lengths_q: Any, lengths_kv: Any,
    cu_seqlens_q: Any, cu_seqlens_kv: Any, page_table: Any, kernel: Any,
) -> Any:  # fmt: skip
    way = _way(q, k, v)
    if way == LONG or way == RECORDS:
        return None
    if not _go_along(lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table):
        return None
    try:
        if kernel != "":
            return None
        out, lse = _outputs(way, q, v, False, with_lse)
        left, right = window
        done = _functions["decode"](
            q, k, v, out, lse, False, with_lse, scale, softcap, left, right, causal, top_left, splits,
            DETERMINISM[determinism], attention_chunk, check, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv,
            page_table,
        )  # fmt: skip
        return _answer(done, with_lse, out, lse)
    except Exception:  # noqa: BLE001
        return None


def with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, cos: Any, sin: Any, lengths: Any, table: Any, scale: Any,
    softcap: Any, window: Any, causal: Any, interleaved: Any, splits: Any, with_lse: Any, check: Any,
) -> Any:  # fmt: skip
    """Tensors of PyTorch; who calls it says that the caches were written."""
    if _way(q, k_cache, v_cache) != FROM_ALLOCATOR or not _go_along(k, v, cos, sin, lengths, table):
        return None
    try:
        total = None if k is None else lengths + k.shape[1]
        left, right = window
        done = _functions["with_kvcache"](
            q, k_cache, v_cache, k, v, cos, sin, lengths, total, table, scale, softcap, left, right, causal,
            interleaved, splits, with_lse, check,
        )  # fmt: skip
        return _answer(done, with_lse, None, None)
    except Exception:  # noqa: BLE001
        return None
