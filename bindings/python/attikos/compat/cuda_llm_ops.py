# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The module `cuda_llm_ops`."""

from __future__ import annotations

from typing import Any

import attikos

from ..attention import naive_attention, tiled_attention, with_algorithm
from ..matmul import tensor_core_gemm_int8

__version__: str = attikos.__version__

__all__ = [
    "__version__",
    "flash_attention",
    "gemm",
    "naive_attention",
    "tensor_core_gemm",
    "tensor_core_gemm_int8",
    "tiled_attention",
]


def flash_attention(q: Any, k: Any, v: Any, scale: float = 0.0, is_causal: bool = False) -> Any:
    """Attention without storage that grows with seqlen^2; scale 0.0 means 1/sqrt(head_dim)."""
    return with_algorithm("flash", q, k, v, scale, is_causal)


def gemm(
    a: Any, b: Any, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False, trans_b: bool = False
) -> Any:
    """alpha * op(a) * op(b). There is no array that beta could scale: other than 0 it raises ArgumentError."""
    return attikos.gemm(a, b, alpha, beta, trans_a, trans_b)


def tensor_core_gemm(a: Any, b: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
    """alpha * a * b in float32; beta as for gemm()."""
    return attikos.tensor_core_gemm(a, b, alpha, beta)


def __dir__() -> list[str]:
    return __all__
