# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package `kernels`."""

from __future__ import annotations

from ...device import (
    AdaptiveKernelSelector,
    check_hopper_features,
    get_attention_config,
    get_matmul_config,
    get_optimal_attention,
    get_optimal_matmul,
    supports_fp8,
)
from ...matmul import triton_matmul
from .flash_attn import flash_attention

__all__ = [
    "AdaptiveKernelSelector",
    "check_hopper_features",
    "flash_attention",
    "get_attention_config",
    "get_matmul_config",
    "get_optimal_attention",
    "get_optimal_matmul",
    "supports_fp8",
    "triton_matmul",
]
