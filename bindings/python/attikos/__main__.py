# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m attikos`: what is installed, where it runs, and whether it computes right there. What a report of a
problem needs; ends with status 1 where a check fails."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
import time
from typing import Any, Callable

import attikos

from . import _border, _library
from .device import print_gpu_info
from .explain import list_kernels
from .validation import validate_attention, validate_matmul

_OPERATIONS = ("gemm", "attention", "attention_backward", "decode", "append_kv", "gated_mlp")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _print_installation() -> None:
    print(f"attikos {attikos.__version__}, {_library.library._name}")
    print(f"Python {platform.python_version()}, {platform.platform()}, {platform.machine()}")
    print(", ".join(f"{name} {_version(name)}" for name in ("numpy", "ml_dtypes", "apache-tvm-ffi", "torch", "jax")))
    built = _library.library.attikos_cuda_device_count()
    print(f"compiled border: {'there' if _border.LIBRARY.exists() else 'missing: calls take the long way'}")
    print(f"CUDA devices of this build: {built}")


def _print_devices(devices: list[str]) -> None:
    for device in devices:
        print()
        print_gpu_info(attikos.detect_host() if device == "cpu" else attikos.detect_gpu(int(device.partition(":")[2])))


def _print_kernels() -> None:
    print()
    for operation in _OPERATIONS:
        print(f"{operation}: {', '.join(list_kernels(operation))}")


def _attention(by: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, k, v, causal=False: by(q, k, v, causal=causal)


def _checks(device: str) -> list[tuple[str, Callable[[], tuple[bool, float]]]]:
    """Small problems, no extent of which is a round number, against float64.

    Sums of 70 products in float32 are off by 71 * 2^-24 times the sum of their absolutes, less than 60 here; weights
    of float16 by 2^-11 of values less than 5. validate_matmul() and validate_attention() add the result's rounding."""
    found: list[tuple[str, Callable[[], tuple[bool, float]]]] = []
    for dtype, absolute in (("float32", 71 * 60 * 2.0**-24), ("float16", 5 * 2.0**-11 + 71 * 60 * 2.0**-24)):
        where: dict[str, Any] = {"dtype": dtype, "device": device, "rtol": 0.0, "atol": absolute}
        found.append((f"gemm, {dtype}", lambda w=where: validate_matmul(attikos.gemm, 130, 70, 97, **w)))
        for causal in (False, True):
            mask = ", causal" if causal else ""
            for function in (attikos.attention, attikos.decode):
                found.append((
                    f"{function.__name__}{mask}, {dtype}",
                    lambda w=where, c=causal, f=function: validate_attention(_attention(f), 2, 3, 77, 64, c, **w),
                ))  # fmt: skip
    return found


def _check(device: str) -> bool:
    print(f"\nchecks on {device}:")
    good = True
    for name, check in _checks(device):
        begin = time.perf_counter()
        try:
            passed, difference = check()
            told = f"{'passed' if passed else 'FAILED'}, largest difference {difference:.1e}"
        except Exception as problem:  # noqa: BLE001: whatever it is, the report says so
            passed, told = False, f"FAILED: {problem}"
        good &= passed
        print(f"  {name:<28} {told}, {time.perf_counter() - begin:.2f} s")
    return good


def main() -> int:
    devices = ["cpu"]
    _print_installation()
    if attikos.has_cuda():
        devices += [f"cuda:{i}" for i in range(_library.library.attikos_cuda_device_count())]
    _print_devices(devices)
    _print_kernels()
    if len(devices) > 1 and importlib.util.find_spec("torch") is None:
        print("\nchecks on CUDA devices need PyTorch, which is not installed")
        devices = devices[:1]
    good = all([_check(device) for device in devices])
    print("\nall checks passed" if good else "\nchecks FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
