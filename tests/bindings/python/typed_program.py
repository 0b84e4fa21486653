# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A user's program for `mypy --strict`; test_surface.py runs it through where mypy is installed."""

from __future__ import annotations

from typing import Any

import attikos
import numpy as np
from attikos import FP8Linear, Error, IntegerError, flash_attention
from attikos.compat import cuda_llm_ops, triton_ops
from attikos.compat.kernels import AdaptiveKernelSelector, triton_matmul
from attikos.compat.utils import BenchmarkRunner, validate_matmul
from attikos.flash_attn import flash_attn_func


def main() -> tuple[bool, float]:
    x = np.ones((1, 2, 3, 4), np.float32)
    out: Any = flash_attention(x, x, x, causal=True)
    flash_attn_func(out, out, out)
    layer = FP8Linear(4, 4)
    layer(x)
    triton_ops.FP8Linear(4, 4)
    text: str = attikos.explain("softmax", x) + cuda_llm_ops.__version__
    config: dict[str, Any] = AdaptiveKernelSelector().get_matmul_config()
    runner = BenchmarkRunner(device="cpu")
    print(text, config, runner, triton_matmul, isinstance(IntegerError("x"), Error))
    return validate_matmul(attikos.gemm, 1, 2, 3, device="cpu")
