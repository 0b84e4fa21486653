# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timing of callables, and tables that compare them."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from typing import Any, Callable

import numpy as np

from ._dtypes import DType
from .validation import causal_keyword, random_arrays, reference_attention


def _wait() -> None:
    """Until the devices that may have been used are done; host calls are done when they return."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        cupy.cuda.runtime.deviceSynchronize()


def benchmark_fn(
    fn: Callable[..., Any],
    *args: Any,
    warmup: int = 25,
    rep: int = 100,
    quantiles: list[float] | None = None,
    **kwargs: Any,
) -> tuple[float, ...]:
    """Milliseconds of fn(*args, **kwargs): median, 20th and 80th percentile, or the given quantiles."""
    for _ in range(warmup):
        fn(*args, **kwargs)
    _wait()
    times = []
    for _ in range(max(rep, 1)):
        begin = time.perf_counter()
        fn(*args, **kwargs)
        _wait()
        times.append((time.perf_counter() - begin) * 1e3)
    return tuple(float(q) for q in np.quantile(times, quantiles or [0.5, 0.2, 0.8]))


@dataclasses.dataclass
class BenchmarkResult:
    """One measurement."""

    name: str
    size: tuple[int, ...]
    time_ms: float
    tflops: float
    memory_mb: float = 0.0
    block_config: dict[str, int] | None = None


class BenchmarkRunner:
    """Times matrix products and attention functions against NumPy or PyTorch."""

    def __init__(self, device: str | None = None, warmup: int = 25, rep: int = 100) -> None:
        self.device, self.warmup, self.rep = device, warmup, rep
        self.results: list[BenchmarkResult] = []

    def benchmark_matmul(
        self,
        triton_fn: Callable[..., Any],
        sizes: list[tuple[int, int, int]],
        block_configs: list[dict[str, int]] | None = None,
        dtype: Any = DType.float16,
    ) -> list[BenchmarkResult]:
        """Times triton_fn(a, b), and with each of the block configurations, for sizes (m, n, k)."""
        results = []
        for m, n, k in sizes:
            a, b = random_arrays([(m, k), (k, n)], dtype, self.device)
            flops = 2.0 * m * n * k
            results.append(self._measure(_library_of(a), (m, n, k), flops, _product, a, b))
            results.append(self._measure("Attikos", (m, n, k), flops, triton_fn, a, b))
            for blocks in block_configs or []:
                result = self._measure("Attikos", (m, n, k), flops, triton_fn, a, b, **blocks)
                result.block_config = dict(blocks)
                results.append(result)
        self.results += results
        return results

    def benchmark_attention(
        self,
        flash_fn: Callable[..., Any],
        seq_lengths: list[int],
        batch_size: int = 4,
        num_heads: int = 8,
        head_dim: int = 64,
        causal: bool = False,
        dtype: Any = DType.float16,
    ) -> list[BenchmarkResult]:
        """Times flash_fn(q, k, v, causal=...), or is_causal=... where it says so, against attention with stored
        scores."""
        results, mask = [], {causal_keyword(flash_fn): causal}
        for length in seq_lengths:
            size = (batch_size, num_heads, length, head_dim)
            q, k, v = random_arrays([size] * 3, dtype, self.device)
            flops = 4.0 * batch_size * num_heads * length * length * head_dim * (0.5 if causal else 1.0)
            name = _library_of(q)
            results.append(self._measure(name, size, flops, reference_attention, q, k, v, causal=causal))
            results.append(self._measure("FlashAttention", size, flops, flash_fn, q, k, v, **mask))
        self.results += results
        return results

    def _measure(
        self, name: str, size: tuple[int, ...], flops: float, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> BenchmarkResult:
        _reset_peak(self.device)
        median = benchmark_fn(fn, *args, warmup=self.warmup, rep=self.rep, **kwargs)[0]
        return BenchmarkResult(name, size, median, flops / (median * 1e9) if median > 0 else 0.0, _peak_mb(self.device))

    def print_comparison_table(
        self, results: list[BenchmarkResult] | None = None, title: str = "Benchmark Results"
    ) -> None:
        """Prints the given or all stored results, one line each."""
        rows = [
            (r.name, "x".join(map(str, r.size)), f"{r.time_ms:.4f}", f"{r.tflops:.3f}", f"{r.memory_mb:.1f}",
             "" if r.block_config is None else str(r.block_config))
            for r in (self.results if results is None else results)
        ]  # fmt: skip
        header = ("Name", "Size", "Time (ms)", "TFLOP/s", "Memory (MB)", "Blocks")
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        print(title)
        for row in (header, tuple("-" * w for w in widths), *rows):
            print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())

    def clear_results(self) -> None:
        self.results.clear()


def _product(a: Any, b: Any) -> Any:
    """As one would multiply with that library: on a host 16-bit numbers by way of float32, since their own products
    are loops over elements."""
    if isinstance(a, np.ndarray):
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype) if a.dtype.itemsize == 2 else a @ b
    if a.device.type == "cpu" and a.element_size() == 2:
        return (a.float() @ b.float()).to(a.dtype)
    return a @ b


def _library_of(array: Any) -> str:
    return "NumPy" if isinstance(array, np.ndarray) else "PyTorch"


def _reset_peak(device: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak_mb(device: Any) -> float:
    """Peak of the memory that PyTorch took on a GPU; of the process, for arrays of the host."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.device(device).type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
