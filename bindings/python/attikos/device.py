# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What runs where: facts about devices, and which functions and tiles suit them."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import sys
from typing import Any, Callable

from . import _library
from ._arguments import integer
from ._context import has_cuda
from .attention import flash_attention
from .errors import DeviceError
from .matmul import triton_matmul


class GPUArch(enum.Enum):
    """Generations of GPUs, and the host beside them."""

    VOLTA = "sm_70"
    TURING = "sm_75"
    AMPERE = "sm_80"
    ADA = "sm_89"
    HOPPER = "sm_90"
    BLACKWELL = "sm_100"
    UNKNOWN = "unknown"
    HOST = "host"


# By the numbers of attikos_architecture.
_ARCHITECTURES = [GPUArch.UNKNOWN, GPUArch.VOLTA, GPUArch.TURING, GPUArch.AMPERE, GPUArch.ADA, GPUArch.HOPPER,
                  GPUArch.BLACKWELL, GPUArch.HOST]  # fmt: skip


@dataclasses.dataclass
class GPUCapabilities:
    """Facts about one device."""

    name: str
    arch: GPUArch
    compute_capability: tuple[int, int]
    has_tma: bool
    has_fp8: bool
    has_warpgroup_mma: bool
    sram_per_sm: int
    num_sms: int
    total_memory_gb: float
    simd: str = ""  #: of a host: widest vectors that the library was compiled for
    host_isa: str = ""  #: of a host: instructions that kernels use beside those, or "compiled" (ATTIKOS_HOST_ISA)


def _architecture_of(major: int, minor: int) -> GPUArch:
    if major == 7:
        return GPUArch.VOLTA if minor < 5 else GPUArch.TURING
    if major == 8:
        return GPUArch.ADA if minor == 9 else GPUArch.AMPERE
    if major == 9:
        return GPUArch.HOPPER
    return GPUArch.BLACKWELL if 10 <= major <= 12 else GPUArch.UNKNOWN


def _from_library(kind: int, ordinal: int) -> GPUCapabilities:
    info = _library.DeviceInfo()
    _library.library.attikos_get_device_info(kind, ordinal, ctypes.byref(info))
    return GPUCapabilities(
        name=info.name.decode(errors="replace"),
        arch=_ARCHITECTURES[info.architecture],
        compute_capability=(info.compute_major, info.compute_minor),
        has_tma=bool(info.has_tma),
        has_fp8=bool(info.has_fp8),
        has_warpgroup_mma=bool(info.has_warpgroup_mma),
        sram_per_sm=info.shared_memory_per_multiprocessor,
        num_sms=info.multiprocessors,
        total_memory_gb=info.total_memory / 2**30,
        simd=info.simd.decode(),
        host_isa=info.host_isa.decode(),
    )


def _from_torch(torch: Any, ordinal: int) -> GPUCapabilities:
    facts = torch.cuda.get_device_properties(ordinal)
    major, minor = facts.major, facts.minor
    return GPUCapabilities(
        name=facts.name,
        arch=_architecture_of(major, minor),
        compute_capability=(major, minor),
        has_tma=major >= 9,
        has_fp8=major >= 9 or (major, minor) == (8, 9),
        has_warpgroup_mma=major == 9,
        sram_per_sm=int(getattr(facts, "shared_memory_per_multiprocessor", 0)),
        num_sms=facts.multi_processor_count,
        total_memory_gb=facts.total_memory / 2**30,
    )


def detect_gpu(device_id: int = 0) -> GPUCapabilities:
    """Facts about a CUDA device; DeviceError where there is none. detect_host() tells of the processor."""
    device_id = integer("detect_gpu", "device_id", device_id)
    if has_cuda() and 0 <= device_id < _library.library.attikos_cuda_device_count():
        return _from_library(_library.CUDA, device_id)
    torch = sys.modules.get("torch")  # a library without CUDA beside a PyTorch with it
    if torch is not None and torch.cuda.is_available() and 0 <= device_id < torch.cuda.device_count():
        return _from_torch(torch, device_id)
    raise DeviceError(f"attikos.detect_gpu: there is no CUDA device {device_id}")


def detect_host() -> GPUCapabilities:
    """The processor in the same form: its name, SIMD level, processors (as num_sms) and memory."""
    return _from_library(_library.HOST, 0)


def _detect() -> GPUCapabilities:
    try:
        return detect_gpu()
    except DeviceError:
        return detect_host()


def print_gpu_info(caps: GPUCapabilities | None = None) -> None:
    """Prints facts about a device: the given ones, else of GPU 0, else of the host."""
    facts = caps or _detect()
    rows = {
        "Device": facts.name,
        "Architecture": facts.arch.value,
        "Compute capability": ".".join(map(str, facts.compute_capability)),
        "SIMD": facts.simd or "-",
        "Multiprocessors": facts.num_sms,
        "Shared memory per SM": f"{facts.sram_per_sm / 1024:.0f} KiB",
        "Memory": f"{facts.total_memory_gb:.1f} GiB",
        "TMA": facts.has_tma,
        "FP8": facts.has_fp8,
        "Warpgroup MMA": facts.has_warpgroup_mma,
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")


def check_hopper_features() -> dict[str, Any]:
    """Which Hopper features GPU 0 has; without a GPU none."""
    facts = _detect()
    return {
        "tma_available": facts.has_tma,
        "fp8_available": facts.has_fp8,
        "wgmma_available": facts.has_warpgroup_mma,
        "arch": facts.arch.value,
        "compute_capability": facts.compute_capability,
    }


def supports_fp8() -> bool:
    """Whether GPU 0 multiplies float8 in hardware. Float8 operations work without it too."""
    return _detect().has_fp8


class AdaptiveKernelSelector:
    """Functions and tiles for a device. The library itself picks a kernel for each call; what stands here
    is what callers of tile-sized interfaces want to know."""

    def __init__(self, device_id: int = 0) -> None:
        try:
            self.capabilities = detect_gpu(device_id)
        except DeviceError:
            self.capabilities = detect_host()

    def get_matmul_config(self) -> dict[str, Any]:
        """Tile sizes for large matrices: triton_matmul(a, b, **get_matmul_config())."""
        arch = self.capabilities.arch
        sizes = (128, 256, 64) if arch in (GPUArch.HOPPER, GPUArch.BLACKWELL) else (128, 128, 32)
        if arch is GPUArch.HOST:
            sizes = (64, 64, 256)
        return dict(zip(("block_m", "block_n", "block_k"), sizes))

    def get_attention_config(self) -> dict[str, Any]:
        """Tile sizes along queries and keys."""
        arch = self.capabilities.arch
        sizes = (128, 128) if arch in (GPUArch.HOPPER, GPUArch.BLACKWELL) else (64, 64)
        return {"block_m": sizes[0], "block_n": sizes[1]}

    def select_matmul_kernel(self) -> Callable[..., Any]:
        return triton_matmul

    def select_attention_kernel(self) -> Callable[..., Any]:
        return flash_attention


def get_matmul_config() -> dict[str, Any]:
    return AdaptiveKernelSelector().get_matmul_config()


def get_attention_config() -> dict[str, Any]:
    return AdaptiveKernelSelector().get_attention_config()


def get_optimal_matmul() -> Callable[..., Any]:
    return AdaptiveKernelSelector().select_matmul_kernel()


def get_optimal_attention() -> Callable[..., Any]:
    return AdaptiveKernelSelector().select_attention_kernel()
