# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package `utils`. Arrays lie on the GPU unless a device is named."""

from __future__ import annotations

from typing import Any, Callable

import attikos

from ..._dtypes import DType
from ...device import GPUArch, GPUCapabilities, detect_gpu, print_gpu_info
from .benchmark import BenchmarkResult, BenchmarkRunner

__all__ = [
    "BenchmarkResult",
    "BenchmarkRunner",
    "GPUArch",
    "GPUCapabilities",
    "detect_gpu",
    "print_gpu_info",
    "validate_attention",
    "validate_matmul",
]


def validate_matmul(
    triton_fn: Callable[..., Any], m: int, n: int, k: int, rtol: float = 1e-3, atol: float = 1e-3,
    dtype: Any = DType.float16, device: str = "cuda", verbose: bool = False,
) -> tuple[bool, float]:  # fmt: skip
    """attikos.validate_matmul() on the GPU."""
    return attikos.validate_matmul(triton_fn, m, n, k, rtol, atol, dtype, device, verbose)


def validate_attention(
    flash_fn: Callable[..., Any], batch: int, heads: int, seq_len: int, head_dim: int, causal: bool = False,
    rtol: float = 1e-3, atol: float = 1e-3, dtype: Any = DType.float16, device: str = "cuda", verbose: bool = False,
) -> tuple[bool, float]:  # fmt: skip
    """attikos.validate_attention() on the GPU."""
    return attikos.validate_attention(
        flash_fn, batch, heads, seq_len, head_dim, causal, rtol, atol, dtype, device, verbose
    )
