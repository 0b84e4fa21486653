# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattikos by ctypes: its structs, its functions, its statuses as exceptions."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Callable, NamedTuple, TypeVar

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
    """The size goes into the first member, keyword arguments over the defaults."""

    DEFAULTS: dict[str, Any] = {}
    SCALARS: list[tuple[str, str]] = []  # kinds and names of options that are no arrays

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - {name for name, *_ in self._fields_}
        if unknown:  # ctypes would keep them beside the struct
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
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
        ("host_isa", c_char * 16),
    ]


# Memory of the caller's for calls of a context.
ALLOCATE = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
RELEASE = CFUNCTYPE(None, c_void_p, c_void_p)

# name: (result, arguments). Functions that return a status have None for their result here; options go by reference.
_T = TensorPointer
_LIST = POINTER(TensorPointer)
_TEXT = [c_void_p, c_size_t, POINTER(c_size_t)]
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {  # fmt: skip
    "attikos_version": (c_int, []),
    "attikos_version_string": (c_char_p, []),
    "attikos_missing_instructions": (c_char_p, []),
    "attikos_status_string": (c_char_p, [c_int]),
    "attikos_last_error": (c_char_p, []),
    "attikos_context_create": (None, [c_int32, c_int32, c_void_p, POINTER(c_void_p)]),
    "attikos_context_destroy": (c_void_p, [c_void_p]),
    "attikos_context_set_allocator": (None, [c_void_p, ALLOCATE, RELEASE, c_void_p]),
    "attikos_synchronize": (None, [c_void_p]),
    "attikos_has_device": (c_bool, [c_int32, c_int32]),
    "attikos_cuda_device_count": (c_int32, []),
    "attikos_is_capturing": (c_bool, [c_void_p]),
    "attikos_allocate": (None, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "attikos_free": (None, [c_void_p, c_void_p]),
    "attikos_copy": (None, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "attikos_get_device_info": (None, [c_int32, c_int32, POINTER(DeviceInfo)]),
    "attikos_gemm": (None, [c_void_p, _T, _T, _T, c_void_p]),
    "attikos_explain_gemm": (None, [c_void_p, _T, _T, _T, c_void_p, *_TEXT]),
    "attikos_gemm_backward": (
        None, [c_void_p, _T, _T, _T, c_void_p, c_void_p],
    ),
    "attikos_pack_b_size": (None, [c_void_p, _T, c_int32, POINTER(c_size_t)]),
    "attikos_pack_b": (None, [c_void_p, _T, c_int32, _T]),
    "attikos_describe_options": (None, [c_char_p, *_TEXT]),
    "attikos_list_kernels": (None, [c_char_p, *_TEXT]),
    "attikos_attention": (None, [c_void_p, _T, _T, _T, _T, _T, c_void_p]),
    "attikos_explain_attention": (None, [c_void_p, *[_T] * 5, c_void_p, *_TEXT]),
    "attikos_decode": (None, [c_void_p, *[_T] * 5, c_void_p]),
    "attikos_explain_decode": (None, [c_void_p, *[_T] * 5, c_void_p, *_TEXT]),
    "attikos_append_kv": (None, [c_void_p, *[_T] * 4, c_void_p]),
    "attikos_explain_append_kv": (None, [c_void_p, *[_T] * 4, c_void_p, *_TEXT]),
    "attikos_merge_states": (None, [c_void_p, *[_T] * 6]),
    "attikos_merge_split_states": (None, [c_void_p, *[_T] * 4]),
    "attikos_attention_backward": (
        None, [c_void_p, *[_T] * 6, c_void_p, c_void_p],
    ),
    "attikos_explain_attention_backward": (
        None, [c_void_p, *[_T] * 6, c_void_p, c_void_p, *_TEXT],
    ),
    "attikos_rope": (None, [c_void_p, *[_T] * 4, c_void_p]),
    "attikos_rope_backward": (None, [c_void_p, *[_T] * 4, c_void_p]),
    "attikos_rms_norm_rope": (None, [c_void_p, *[_T] * 5, c_void_p]),
    "attikos_rms_norm_rope_backward": (None, [c_void_p, *[_T] * 7, c_void_p]),
    "attikos_gated_mlp": (None, [c_void_p, *[_T] * 4, c_int32]),
    "attikos_explain_gated_mlp": (None, [c_void_p, *[_T] * 4, c_int32, *_TEXT]),
    "attikos_gated_mlp_backward": (None, [c_void_p, *[_T] * 7, c_int32]),
    "attikos_gated_mlp_keep": (None, [c_void_p, *[_T] * 6, c_int32]),
    "attikos_gated_mlp_backward_kept": (None, [c_void_p, *[_T] * 9, c_int32]),
    "attikos_quantize": (None, [c_void_p, _T, _T, _T]),
    "attikos_quantize_with_scale": (None, [c_void_p, _T, _T, _T]),
    "attikos_dequantize": (None, [c_void_p, _T, _T, _T]),
    "attikos_rms_norm_backward": (None, [c_void_p, *[_T] * 5, c_double]),
    "attikos_layer_norm_backward": (None, [c_void_p, *[_T] * 6, c_double]),
    "attikos_rms_norm_backward_residual": (None, [c_void_p, *[_T] * 6, c_double]),
    "attikos_layer_norm_backward_residual": (None, [c_void_p, *[_T] * 7, c_double]),
    "attikos_l2_normalize_backward": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_softmax_backward": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_log_softmax_backward": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_log_softmax": (None, [c_void_p, _T, _T, c_double]),
    "attikos_cross_entropy": (None, [c_void_p, _T, _T, _T, _T, c_double, c_int64]),
    "attikos_cross_entropy_backward": (None, [c_void_p, _T, _T, _T, _T, _T, c_double, c_int64]),
    "attikos_linear_cross_entropy": (None, [c_void_p, *[_T] * 7, c_double, c_int64, c_int64]),
    "attikos_adamw_step": (None, [c_void_p, c_int32, *[_LIST] * 5, *[c_double] * 6, c_int64]),
    "attikos_embedding": (None, [c_void_p, _T, _T, _T]),
    "attikos_embedding_backward": (None, [c_void_p, _T, _T, _T, c_int64, c_double]),
    "attikos_rms_norm": (None, [c_void_p, _T, _T, _T, c_double]),
    "attikos_layer_norm": (None, [c_void_p, _T, _T, _T, _T, c_double]),
    "attikos_rms_norm_residual": (None, [c_void_p, *[_T] * 5, c_double]),
    "attikos_layer_norm_residual": (None, [c_void_p, *[_T] * 6, c_double]),
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
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Option(NamedTuple):
    """A member of a struct of options, as the library describes it."""

    kind: str
    name: str
    offset: int
    size: int
    default: float
    meaning: str


@functools.lru_cache(maxsize=None)
def describe_options(operation: str) -> tuple[int, list[Option]]:
    """The bytes of the options of an operation, and its options with `struct_size` before them."""
    length = c_size_t()
    library.attikos_describe_options(operation.encode(), None, 0, ctypes.byref(length))
    text = ctypes.create_string_buffer(length.value + 1)
    library.attikos_describe_options(operation.encode(), text, length.value + 1, None)
    size, *lines = text.value.decode().splitlines()
    options = []
    for line in lines:
        kind, name, offset, bytes_, default, meaning = line.split("\t")
        options.append(Option(kind, name, int(offset), int(bytes_), float(default), meaning))
    return int(size), options


def documented(operation: str) -> Callable[[_Function], _Function]:
    """Adds to the documentation of a function what the library says of the options that it has by the same name."""

    def add(function: _Function) -> _Function:
        code: Any = function
        names = code.__code__.co_varnames[: code.__code__.co_argcount + code.__code__.co_kwonlyargcount]
        spoken = (x for x in describe_options(operation)[1] if x.kind not in ("choice", "text"))  # names here
        told = {option.name: option.meaning.replace("null", "None") for option in spoken}
        lines = [f"{name}: {told[name]}" for name in names if name in told]
        text = "\n\n    Options, as the library describes them:\n"
        if function.__doc__:
            function.__doc__ = function.__doc__.rstrip() + text + "".join(f"    {line}\n" for line in lines) + "    "
        return function

    return add


_KINDS: dict[str, Any] = {
    "size": c_size_t, "real": c_double, "integer": c_int64, "number": c_int32, "flag": c_int32, "choice": c_int32,
    "tensor": TensorPointer, "text": c_char_p,
}  # fmt: skip


def _options(name: str, operation: str) -> type[SizedStruct]:
    """The struct that the library describes."""
    size, described = describe_options(operation)
    fields = [(option.name, _KINDS[option.kind]) for option in described]
    numbers = [option for option in described if option.kind not in ("size", "tensor", "text")]
    defaults = {x.name: x.default if x.kind == "real" else int(x.default) for x in numbers if x.default != 0}
    scalars = [(option.kind, option.name) for option in described if option.kind not in ("size", "tensor")]
    members = {"_fields_": fields, "DEFAULTS": defaults, "SCALARS": scalars, "__module__": __name__}
    made = type(name, (SizedStruct,), members)
    if ctypes.sizeof(made) != size:
        raise ImportError(f"attikos: {name} has {ctypes.sizeof(made)} bytes here, {size} in the library")
    return made


GemmOptions: Any = _options("GemmOptions", "gemm")
GemmGradients: Any = _options("GemmGradients", "gemm_gradients")
AttentionOptions: Any = _options("AttentionOptions", "attention")
AttentionGradients: Any = _options("AttentionGradients", "attention_gradients")
DecodeOptions: Any = _options("DecodeOptions", "decode")
AppendKvOptions: Any = _options("AppendKvOptions", "append_kv")
RopeOptions: Any = _options("RopeOptions", "rope")
