# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The module `utils.benchmark`."""

from __future__ import annotations

import attikos

from ...benchmark import BenchmarkResult, benchmark_fn

__all__ = ["BenchmarkResult", "BenchmarkRunner", "benchmark_fn"]


class BenchmarkRunner(attikos.BenchmarkRunner):
    """attikos.BenchmarkRunner on the GPU."""

    def __init__(self, device: str = "cuda", warmup: int = 25, rep: int = 100) -> None:
        super().__init__(device, warmup, rep)
