# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""References in NumPy or PyTorch, and checks of a callable against them."""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any, Callable

import numpy as np

from . import _autograd
from ._arguments import flag
from ._dtypes import DType, dtype_of, to_numpy
from .errors import DeviceError


def reference_attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """softmax(q * k^T / sqrt(d)) * v with the scores stored, in float64 (PyTorch: float32 or wider)."""
    causal = flag("reference_attention", "causal", causal)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(q, torch.Tensor):
        return _torch_attention(torch, q, k, v, causal)
    _autograd.refuse("reference_attention", {"q": q, "k": k, "v": v})
    convert = np.asarray if isinstance(q, np.ndarray) else np.from_dlpack
    wide = [convert(x).astype(np.float64) for x in (q, k, v)]
    scores = wide[0] @ np.swapaxes(wide[1], -1, -2) / math.sqrt(max(wide[0].shape[-1], 1))
    if causal:
        scores = np.where(_visible(*scores.shape[-2:]), scores, -np.inf)
    largest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(axis=-1, keepdims=True)
    out = (weights / np.where(total == 0, 1, total)) @ wide[2]
    return out.astype(convert(q).dtype)


def _visible(rows: int, columns: int) -> Any:
    """Pairs that causal attention keeps: the last query sees every key."""
    return np.arange(columns)[None, :] <= np.arange(rows)[:, None] + (columns - rows)


def _torch_attention(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    k, v = torch.as_tensor(k, device=q.device), torch.as_tensor(v, device=q.device)
    scores = q.to(wide) @ k.to(wide).transpose(-1, -2) / math.sqrt(max(q.shape[-1], 1))
    if causal:
        rows, columns = scores.shape[-2:]
        seen = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril(columns - rows)
        scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return (weights @ v.to(wide)).to(q.dtype)


def random_arrays(shapes: list[tuple[int, ...]], dtype: Any, device: str | None) -> list[Any]:
    """Normal numbers of one seed: PyTorch's tensors for a CUDA device or a PyTorch dtype, else NumPy's."""
    kind = dtype_of(dtype)
    torch = sys.modules.get("torch")
    of_torch = str(dtype).startswith("torch.")
    if device is None:
        device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if device != "cpu" or of_torch:
        if torch is None:
            import torch as imported  # CUDA arrays come from PyTorch

            torch = imported
        if str(device).startswith("cuda") and not torch.cuda.is_available():
            raise DeviceError(f"attikos: device is {device!r}, but PyTorch has no CUDA device; expected \"cpu\"")
        return [torch.from_numpy(x).to(device=device, dtype=getattr(torch, kind.name)) for x in values]
    return [x.astype(to_numpy(kind)) for x in values]


def _wide(array: Any) -> Any:
    """A result as float64 on the host."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.detach().to("cpu", torch.float64).numpy()
    return np.asarray(array).astype(np.float64)


def causal_keyword(function: Callable[..., Any]) -> str:
    """How a function of attention spells the mask: `causal`, or `is_causal` where it knows that alone."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return "causal"
    return "is_causal" if "is_causal" in names and "causal" not in names else "causal"


# Half the distance of 1 from the next number.
_UNITS = {DType.float64: 2.0**-53, DType.float32: 2.0**-24, DType.float16: 2.0**-11, DType.bfloat16: 2.0**-8}


def _compare(
    title: str, got: Any, expected: Any, rtol: float, atol: float, verbose: bool, weighted: Any = 0.0
) -> tuple[bool, float]:
    dtype = dtype_of(got.dtype)
    got = _wide(got)
    if got.shape != expected.shape:
        if verbose:
            print(f"{title}: shape {got.shape}, expected {expected.shape}")
        return False, math.inf
    # A correct result may be rounded to either neighbour of the exact one.
    unit = _UNITS.get(dtype, 0.0)
    rtol += unit
    with np.errstate(invalid="ignore"):
        difference = np.abs(got - expected)
    largest = float(difference.max(initial=0.0)) if not np.isnan(difference).any() else math.inf
    good = bool(np.all(difference <= atol + rtol * np.abs(expected) + unit * weighted))
    if verbose:
        print(f"{title}: {'passed' if good else 'FAILED'}, largest difference {largest:.2e}")
    return good, largest


def validate_matmul(
    triton_fn: Callable[..., Any],
    m: int,
    n: int,
    k: int,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    dtype: Any = DType.float16,
    device: str | None = None,
    verbose: bool = False,
) -> tuple[bool, float]:
    """Whether triton_fn(a, b) is a * b within atol + (rtol + u) * |a * b| on random matrices, u being the rounding of
    the result's type, and the largest difference. The reference is computed in float64; device None is the GPU where
    PyTorch has one, else the CPU."""
    a, b = random_arrays([(m, k), (k, n)], dtype, device)
    return _compare(f"matmul {m}x{n}x{k}", triton_fn(a, b), _wide(a) @ _wide(b), rtol, atol, verbose)


def validate_attention(
    flash_fn: Callable[..., Any],
    batch: int,
    heads: int,
    seq_len: int,
    head_dim: int,
    causal: bool = False,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    dtype: Any = DType.float16,
    device: str | None = None,
    verbose: bool = False,
) -> tuple[bool, float]:
    """Whether flash_fn(q, k, v, causal=...), or is_causal=... where it says so, is attention within
    atol + (rtol + u) * |reference| + u * sum(p * |v|) on random arrays, and the largest difference; as validate_matmul().
    The last term, p being the weights, is for kernels that round weights to the type before their product with values."""
    q, k, v = random_arrays([(batch, heads, seq_len, head_dim)] * 3, dtype, device)
    got = flash_fn(q, k, v, **{causal_keyword(flash_fn): causal})
    expected = reference_attention(_wide(q), _wide(k), _wide(v), causal)
    title = f"attention b{batch} h{heads} s{seq_len} d{head_dim}{' causal' if causal else ''}"
    weighted = reference_attention(_wide(q), _wide(k), np.abs(_wide(v)), causal)
    return _compare(title, got, expected, rtol, atol, verbose, weighted)

