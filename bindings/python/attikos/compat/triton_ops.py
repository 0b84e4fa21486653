# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The module `triton_ops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import DeviceError, ShapeMismatchError, UnsupportedDtypeError
from ..fp8 import fp8_gemm, quantize_fp8
from ..fused import fused_gated_mlp, fused_rmsnorm_rope

if TYPE_CHECKING:  # else when first asked for, as they import PyTorch
    from ..nn import FP8Linear, FusedGatedMLP, FusedRMSNormRoPE

__all__ = [
    "DeviceError",
    "FP8Linear",
    "FusedGatedMLP",
    "FusedRMSNormRoPE",
    "ShapeMismatchError",
    "UnsupportedDtypeError",
    "fp8_gemm",
    "fused_gated_mlp",
    "fused_rmsnorm_rope",
    "quantize_fp8",
]


def __getattr__(name: str) -> Any:
    if name in ("FP8Linear", "FusedGatedMLP", "FusedRMSNormRoPE"):
        from .. import nn

        return getattr(nn, name)
    raise AttributeError(f"module 'attikos.compat.triton_ops' has no attribute {name!r}")
