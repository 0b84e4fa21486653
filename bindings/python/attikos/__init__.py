# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, matrix products and fused operations of Attikos on arrays of any library.

Functions take NumPy arrays, PyTorch tensors and whatever speaks DLPack or the CUDA array interface, on the
CPU or, with a library built for it, on a CUDA device; results are arrays of the first argument's kind. CUDA
work is queued on the caller's stream.
"""

from __future__ import annotations

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING, Any

from . import _border
from ._arrays import Array
from ._context import has_cuda, stream
from ._dtypes import DType
from ._library import library as _loaded
from .attention import attention, attention_backward, flash_attention, naive_attention, tiled_attention
from .benchmark import BenchmarkResult, BenchmarkRunner, benchmark_fn
from .cache import append_kv, decode, merge_split_states, merge_states
from .device import (
    AdaptiveKernelSelector,
    GPUArch,
    GPUCapabilities,
    check_hopper_features,
    detect_gpu,
    detect_host,
    get_attention_config,
    get_matmul_config,
    get_optimal_attention,
    get_optimal_matmul,
    print_gpu_info,
    supports_fp8,
)
from .embeddings import embedding, embedding_backward
from .errors import (
    ArgumentError,
    CommunicationError,
    DeviceError,
    Error,
    IntegerError,
    ResourceError,
    ShapeMismatchError,
    StrideError,
    UnsupportedDtypeError,
    UnsupportedError,
)
from .explain import explain, list_kernels
from .fp8 import dequantize, dequantize_fp8, fp8_gemm, quantize, quantize_fp8
from .fused import fused_gated_mlp, fused_rmsnorm_rope, rope
from .losses import cross_entropy, cross_entropy_backward, linear_cross_entropy, linear_cross_entropy_backward
from .matmul import (
    gemm,
    gemm_backward,
    grouped_gemm,
    masked_gemm,
    tensor_core_gemm,
    tensor_core_gemm_int8,
    triton_matmul,
)
from .optim import adamw_step
from .packed import PackedB, pack_b
from .patching import Change, patch
from .rows import (
    l2_normalize,
    l2_normalize_backward,
    layer_norm,
    layer_norm_backward,
    log_softmax,
    log_softmax_backward,
    mean_pool,
    mean_pool_backward,
    rms_norm,
    rms_norm_backward,
    softmax,
    softmax_backward,
)
from .validation import reference_attention, validate_attention, validate_matmul

if _sys.modules.get("torch") is not None:
    _border.meet(_sys.modules["torch"].Tensor)

__version__: str = _loaded.attikos_version_string().decode()

# Modules are torch.nn.Modules where PyTorch is installed; it is imported when one of them is first asked for.
if TYPE_CHECKING:
    from . import nn as nn
    from .nn import FP8Linear, FusedGatedMLP, FusedRMSNormRoPE

__all__ = [
    "AdaptiveKernelSelector",
    "ArgumentError",
    "Array",
    "BenchmarkResult",
    "BenchmarkRunner",
    "Change",
    "CommunicationError",
    "DType",
    "DeviceError",
    "Error",
    "FP8Linear",
    "FusedGatedMLP",
    "FusedRMSNormRoPE",
    "GPUArch",
    "GPUCapabilities",
    "IntegerError",
    "PackedB",
    "ResourceError",
    "ShapeMismatchError",
    "StrideError",
    "UnsupportedDtypeError",
    "UnsupportedError",
    "__version__",
    "adamw_step",
    "append_kv",
    "attention",
    "attention_backward",
    "benchmark_fn",
    "check_hopper_features",
    "cross_entropy",
    "cross_entropy_backward",
    "decode",
    "dequantize",
    "dequantize_fp8",
    "detect_gpu",
    "detect_host",
    "embedding",
    "embedding_backward",
    "explain",
    "flash_attention",
    "fp8_gemm",
    "fused_gated_mlp",
    "fused_rmsnorm_rope",
    "gemm",
    "gemm_backward",
    "get_attention_config",
    "get_matmul_config",
    "get_optimal_attention",
    "get_optimal_matmul",
    "grouped_gemm",
    "has_cuda",
    "l2_normalize",
    "l2_normalize_backward",
    "layer_norm",
    "layer_norm_backward",
    "linear_cross_entropy",
    "linear_cross_entropy_backward",
    "list_kernels",
    "log_softmax",
    "log_softmax_backward",
    "masked_gemm",
    "mean_pool",
    "mean_pool_backward",
    "merge_split_states",
    "merge_states",
    "naive_attention",
    "pack_b",
    "patch",
    "print_gpu_info",
    "quantize",
    "quantize_fp8",
    "reference_attention",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "softmax",
    "softmax_backward",
    "stream",
    "supports_fp8",
    "tensor_core_gemm",
    "tensor_core_gemm_int8",
    "tiled_attention",
    "triton_matmul",
    "validate_attention",
    "validate_matmul",
]


def __getattr__(name: str) -> Any:
    if name == "nn":
        return _importlib.import_module(".nn", __name__)
    if name in ("FP8Linear", "FusedGatedMLP", "FusedRMSNormRoPE"):
        from . import nn

        return getattr(nn, name)
    raise AttributeError(f"module 'attikos' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
