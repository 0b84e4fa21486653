# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattikos by ctypes: its structs, its functions, its statuses as exceptions."""

from __future__ import annotations

import ctypes
import pathlib
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

from . import errors

MAJOR_VERSION = 0
HOST, SERIAL, CUDA = 0, 1, 2


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
    ]


TensorPointer = POINTER(Tensor)


class SizedStruct(ctypes.Structure):
    """Options: the size goes into the first member, keyword arguments over the defaults."""

    DEFAULTS: dict[str, Any] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__(**{**self.DEFAULTS, **values})
        self.struct_size = ctypes.sizeof(self)


class DeviceInfo(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 128),
        ("simd", c_char * 16),
        ("kind", c_int32),
        ("architecture", c_int32),
        ("compute_major", c_int32),
        ("compute_minor", c_int32),
        ("has_tma", c_int32),
        ("has_fp8", c_int32),
        ("has_warpgroup_mma", c_int32),
        ("multiprocessors", c_int32),
        ("shared_memory_per_multiprocessor", c_int64),
        ("total_memory", c_int64),
    ]


class GemmOptions(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("alpha", c_double),
        ("beta", c_double),
        ("scale", c_double),
        ("trans_a", c_int32),
        ("trans_b", c_int32),
        ("activation", c_int32),
        ("bias_along_rows", c_int32),
        ("bias", TensorPointer),
        ("residual", TensorPointer),
        ("scale_a", TensorPointer),
        ("scale_b", TensorPointer),
        ("kernel", c_char_p),
        ("compute", c_int32),
        ("accumulate", c_int32),
        ("zero_point_a", TensorPointer),
        ("zero_point_b", TensorPointer),
        ("device_scale", TensorPointer),
        ("scale_out", TensorPointer),
        ("pre_activation", TensorPointer),
        ("group_offsets", TensorPointer),
        ("row_counts", TensorPointer),
        ("tile_m", c_int32),
        ("tile_n", c_int32),
        ("tile_k", c_int32),
    ]
    DEFAULTS = {"alpha": 1.0, "scale": 1.0}


class GemmGradients(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("da", TensorPointer),
        ("db", TensorPointer),
        ("d_bias", TensorPointer),
        ("d_c", TensorPointer),
    ]


class AttentionOptions(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("softmax_scale", c_double),
        ("softcap", c_double),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("causal", c_int32),
        ("causal_top_left", c_int32),
        ("algorithm", c_int32),
        ("check", c_int32),
        ("lengths_q", TensorPointer),
        ("lengths_kv", TensorPointer),
        ("cu_seqlens_q", TensorPointer),
        ("cu_seqlens_kv", TensorPointer),
        ("page_table", TensorPointer),
        ("bias", TensorPointer),
        ("mask", TensorPointer),
        ("alibi_slopes", TensorPointer),
        ("sinks", TensorPointer),
        ("kernel", c_char_p),
        ("descale_q", TensorPointer),
        ("descale_k", TensorPointer),
        ("descale_v", TensorPointer),
        ("compute", c_int32),
    ]
    DEFAULTS = {"window_left": -1, "window_right": -1}


class DecodeOptions(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("softmax_scale", c_double),
        ("softcap", c_double),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("splits", c_int64),
        ("causal", c_int32),
        ("causal_top_left", c_int32),
        ("check", c_int32),
        ("lengths_q", TensorPointer),
        ("lengths_kv", TensorPointer),
        ("page_table", TensorPointer),
        ("bias", TensorPointer),
        ("mask", TensorPointer),
        ("alibi_slopes", TensorPointer),
        ("sinks", TensorPointer),
        ("descale_q", TensorPointer),
        ("descale_k", TensorPointer),
        ("descale_v", TensorPointer),
        ("kernel", c_char_p),
        ("determinism", c_int32),
        ("cu_seqlens_q", TensorPointer),
        ("cu_seqlens_kv", TensorPointer),
    ]
    DEFAULTS = {"window_left": -1, "window_right": -1}


class AppendKvOptions(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("interleaved", c_int32),
        ("queries_share_position", c_int32),
        ("check", c_int32),
        ("cache_lengths", TensorPointer),
        ("page_table", TensorPointer),
        ("rotary_cos", TensorPointer),
        ("rotary_sin", TensorPointer),
        ("q", TensorPointer),
        ("q_out", TensorPointer),
        ("rotary_dim", c_int64),
        ("new_lengths", TensorPointer),
        ("cu_seqlens_q", TensorPointer),
        ("cu_seqlens_kv", TensorPointer),
        ("kernel", c_char_p),
    ]


class AttentionGradients(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dq", TensorPointer),
        ("dk", TensorPointer),
        ("dv", TensorPointer),
        ("d_bias", TensorPointer),
        ("d_sinks", TensorPointer),
    ]


class RopeOptions(SizedStruct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("eps", c_double),
        ("num_heads", c_int64),
        ("position_offset", c_int64),
        ("norm_each_head", c_int32),
        ("interleaved", c_int32),
        ("positions", TensorPointer),
        ("rotary_dim", c_int64),
    ]
    DEFAULTS = {"eps": 1e-6}


# name: (result, arguments). Functions that return a status have None for their result here.
_T = TensorPointer
_TEXT = [c_void_p, c_size_t, POINTER(c_size_t)]
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {  # fmt: skip
    "attikos_version": (c_int, []),
    "attikos_version_string": (c_char_p, []),
    "attikos_missing_instructions": (c_char_p, []),
    "attikos_status_string": (c_char_p, [c_int]),
    "attikos_last_error": (c_char_p, []),
    "attikos_context_create": (None, [c_int32, c_int32, c_void_p, POINTER(c_void_p)]),
    "attikos_context_destroy": (c_void_p, [c_void_p]),
    "attikos_synchronize": (None, [c_void_p]),
    "attikos_has_device": (c_bool, [c_int32, c_int32]),
    "attikos_cuda_device_count": (c_int32, []),
    "attikos_is_capturing": (c_bool, [c_void_p]),
    "attikos_allocate": (None, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "attikos_free": (None, [c_void_p, c_void_p]),
    "attikos_copy": (None, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "attikos_get_device_info": (None, [c_int32, c_int32, POINTER(DeviceInfo)]),
    "attikos_gemm": (None, [c_void_p, _T, _T, _T, POINTER(GemmOptions)]),
    "attikos_explain_gemm": (None, [c_void_p, _T, _T, _T, POINTER(GemmOptions), *_TEXT]),
    "attikos_gemm_backward": (
        None, [c_void_p, _T, _T, _T, POINTER(GemmGradients), POINTER(GemmOptions)],
    ),
    "attikos_list_kernels": (None, [c_char_p, *_TEXT]),
    "attikos_attention": (None, [c_void_p, _T, _T, _T, _T, _T, POINTER(AttentionOptions)]),
    "attikos_explain_attention": (None, [c_void_p, *[_T] * 5, POINTER(AttentionOptions), *_TEXT]),
    "attikos_decode": (None, [c_void_p, *[_T] * 5, POINTER(DecodeOptions)]),
    "attikos_explain_decode": (None, [c_void_p, *[_T] * 5, POINTER(DecodeOptions), *_TEXT]),
    "attikos_append_kv": (None, [c_void_p, *[_T] * 4, POINTER(AppendKvOptions)]),
    "attikos_explain_append_kv": (None, [c_void_p, *[_T] * 4, POINTER(AppendKvOptions), *_TEXT]),
    "attikos_merge_states": (None, [c_void_p, *[_T] * 6]),
    "attikos_merge_split_states": (None, [c_void_p, *[_T] * 4]),
    "attikos_attention_backward": (
        None, [c_void_p, *[_T] * 6, POINTER(AttentionGradients), POINTER(AttentionOptions)],
    ),
    "attikos_rope": (None, [c_void_p, *[_T] * 4, POINTER(RopeOptions)]),
    "attikos_rope_backward": (None, [c_void_p, *[_T] * 4, POINTER(RopeOptions)]),
    "attikos_rms_norm_rope": (None, [c_void_p, *[_T] * 5, POINTER(RopeOptions)]),
    "attikos_rms_norm_rope_backward": (None, [c_void_p, *[_T] * 7, POINTER(RopeOptions)]),
    "attikos_gated_mlp": (None, [c_void_p, *[_T] * 4, c_int32]),
    "attikos_explain_gated_mlp": (None, [c_void_p, *[_T] * 4, c_int32, *_TEXT]),
    "attikos_gated_mlp_backward": (None, [c_void_p, *[_T] * 7, c_int32]),
    "attikos_quantize": (None, [c_void_p, _T, _T, _T]),
    "attikos_quantize_with_scale": (None, [c_void_p, _T, _T, _T]),
    "attikos_dequantize": (None, [c_void_p, _T, _T, _T]),
    "attikos_rms_norm_backward": (None, [c_void_p, *[_T] * 5, c_double]),
    "attikos_layer_norm_backward": (None, [c_void_p, *[_T] * 6, c_double]),
    "attikos_l2_normalize_backward": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_softmax_backward": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_log_softmax_backward": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_log_softmax": (None, [c_void_p, _T, _T, c_double]),
    "attikos_rms_norm": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_layer_norm": (None, [c_void_p, _T, _T, _T, _T, c_double]),
    "attikos_l2_normalize": (None, [c_void_p, _T, _T, c_double]),
    "attikos_softmax": (None, [c_void_p, _T, _T, c_double]),
    "attikos_mean_pool": (None, [c_void_p, _T, _T, _T]),
    "attikos_mean_pool_backward": (None, [c_void_p, _T, _T, _T]),
}

_STATUS_ERRORS: dict[int, type[errors.Error]] = {
    1: errors.ArgumentError,
    2: errors.ShapeMismatchError,
    3: errors.ShapeMismatchError,
    4: errors.StrideError,
    5: errors.ShapeMismatchError,
    6: errors.UnsupportedDtypeError,
    7: errors.StrideError,
    8: errors.ArgumentError,
    9: errors.Error,
    10: errors.DeviceError,
    11: errors.UnsupportedError,
    12: errors.ResourceError,
    13: errors.Error,
}


def _load() -> ctypes.CDLL:
    """The library that lies in the package; without one there, an installed one of this version."""
    name = f"libattikos.so.{MAJOR_VERSION}"
    beside = pathlib.Path(__file__).parent / "lib" / name
    try:
        library = ctypes.CDLL(str(beside) if beside.exists() else name)
    except OSError as problem:
        raise ImportError(
            f"attikos: {name} is neither in {beside.parent} nor where the system looks ({problem}); "
            "`pip install .` in the repository of Attikos builds it"
        ) from problem
    for function, (result, arguments) in FUNCTIONS.items():
        entry = getattr(library, function)
        entry.argtypes = arguments
        if result is None:
            entry.restype = c_int
            entry.errcheck = _check_status
        else:
            entry.restype = result
    library.attikos_context_destroy.restype = None
    if missing := library.attikos_missing_instructions().decode():
        raise ImportError(
            f"attikos: this processor, or its operating system, lacks instructions that {name} was compiled for "
            f"({missing}); `pip install . -C cmake.define.ATTIKOS_ARCHITECTURE=x86-64` in the repository of Attikos "
            "builds one for any"
        )
    return library


def _check_status(status: int, function: Any, arguments: Any) -> int:
    if status != 0:
        message = library.attikos_last_error().decode(errors="replace")
        raise _STATUS_ERRORS.get(status, errors.Error)(message)
    return status


library = _load()
