# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of other libraries as tensors of libattikos, and results as the caller's kind of array."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, Sequence

import numpy as np

from . import _autograd, _border, _dlpack, _library
from ._array import Array
from ._arguments import in_callers_words, spell
from ._context import CPU, Context, Place, context_for, expect_stream_of_torch, stream_for
from ._dlpack import dense_strides
from ._dtypes import DLPACK_CODES, DType, dtype_of, from_dlpack_code, to_numpy
from ._lifetimes import hold
from .errors import ArgumentError, DeviceError, Error, ShapeMismatchError, StrideError, UnsupportedDtypeError

_lib = _library.library
Shape = tuple[int, ...]


class Operand:
    """One array of a call: address, shape, strides in elements, and how to make another of its kind."""

    def __init__(
        self, data: int, shape: Shape, strides: Shape, dtype: DType, place: Place, kind: "Kind", owner: Any
    ) -> None:
        self.data, self.shape, self.strides, self.dtype = data, tuple(shape), tuple(strides), dtype
        self.place, self.kind, self.owner = place, kind, owner
        self.shown = self.shape  # what errors say: the caller's extents, in whatever order a call sees them
        self.read_only: Callable[[], str] = lambda: ""  # why the memory must not be written; "" where it may
        self._tensor: _library.Tensor | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def tensor(self) -> _library.Tensor:
        if self._tensor is None:
            count = self.ndim
            self._extents = (ctypes.c_int64 * max(count, 1))(*self.shape)
            self._steps = (ctypes.c_int64 * max(count, 1))(*self.strides)
            pointer = ctypes.POINTER(ctypes.c_int64)
            self._tensor = _library.Tensor(
                self.data or None, int(self.dtype), count,
                ctypes.cast(self._extents, pointer), ctypes.cast(self._steps, pointer),
            )  # fmt: skip
        return self._tensor

    def pointer(self) -> Any:
        return ctypes.pointer(self.tensor())

    def view(self, shape: Shape, strides: Shape, offset: int = 0) -> "Operand":
        """The same memory seen with other extents and strides, `offset` elements in."""
        data = self.data + offset * self.dtype.itemsize if self.data else self.data
        other = Operand(data, shape, strides, self.dtype, self.place, self.kind, self.owner)
        other.shown, other.read_only = self.shown, self.read_only
        return other

    def swap(self, first: int, second: int) -> "Operand":
        """The same memory with two dimensions exchanged."""
        shape, strides = list(self.shape), list(self.strides)
        shape[first], shape[second] = shape[second], shape[first]
        strides[first], strides[second] = strides[second], strides[first]
        return self.view(tuple(shape), tuple(strides))

    def describe(self) -> str:
        return f"{list(self.shown)} {self.dtype.name}"


class Kind:
    """A library whose arrays came in and whose arrays go out."""

    def __init__(self, make: Callable[[Shape, DType, Place], tuple[Any, Operand]]) -> None:
        self.make = make


def _place(device: tuple[int, int], name: str) -> Place:
    kind, ordinal = int(device[0]), int(device[1])
    if kind in (_dlpack.CPU, _dlpack.CUDA_HOST):
        return CPU
    if kind in (_dlpack.CUDA, _dlpack.CUDA_MANAGED):
        return ("cuda", ordinal)
    raise DeviceError(f"attikos: {name} lies on a device of DLPack type {kind}; expected CPU or CUDA")


# --- one function per kind of array -----------------------------------------------------------------


def _numpy_operand(array: Any, name: str) -> Operand:
    if not array.dtype.isnative:
        raise UnsupportedDtypeError(f"attikos: {name} is {array.dtype}; expected native byte order")
    dtype = dtype_of(array.dtype, name)
    if any(step % array.itemsize for step in array.strides):
        raise StrideError(f"attikos: {name} has strides {array.strides} in bytes; expected multiples of "
                          f"its element's {array.itemsize}")  # fmt: skip
    strides = tuple(step // array.itemsize for step in array.strides)
    operand = Operand(array.ctypes.data, array.shape, strides, dtype, CPU, NUMPY, array)
    operand.read_only = lambda: "" if array.flags.writeable else "is read-only"
    return operand


def _make_numpy(shape: Shape, dtype: DType, place: Place) -> tuple[Any, Operand]:
    array = np.empty(shape, to_numpy(dtype))
    return array, _numpy_operand(array, "out")


def _torch_operand(array: Any, name: str) -> Operand:
    torch = sys.modules["torch"]
    if array.layout != torch.strided:
        raise StrideError(f"attikos: {name} has layout {array.layout}; expected a strided tensor")
    if array.device.type not in ("cpu", "cuda"):
        raise DeviceError(f"attikos: {name} lies on {array.device}; expected cpu or cuda")
    place = CPU if array.device.type == "cpu" else ("cuda", array.device.index or 0)
    dtype = dtype_of(array.dtype, name)
    lazy = array.is_neg() or array.is_conj()
    if lazy:  # the memory holds other numbers than the tensor: PyTorch negates or conjugates when it reads
        array = array.resolve_conj().resolve_neg()
    operand = Operand(array.data_ptr(), tuple(array.shape), tuple(array.stride()), dtype, place, TORCH, array)
    if lazy:
        operand.read_only = lambda: "is a view whose numbers PyTorch negates or conjugates when it reads them"
    return operand


def torch_dtype(dtype: DType) -> Any:
    torch = sys.modules["torch"]
    return getattr(torch, "float8_e4m3fn" if dtype is DType.float8_e4m3 else dtype.name)


def _make_torch(shape: Shape, dtype: DType, place: Place) -> tuple[Any, Operand]:
    torch = sys.modules["torch"]
    device = "cpu" if place == CPU else f"cuda:{place[1]}"
    array = torch.empty(shape, dtype=torch_dtype(dtype), device=device)
    return array, _torch_operand(array, "out")


def tensor_of(operand: Operand) -> Any:
    """The same memory as a tensor of PyTorch."""
    if operand.kind is TORCH:
        return operand.owner
    device = (_dlpack.CPU if operand.place == CPU else _dlpack.CUDA, operand.place[1])
    code = DLPACK_CODES[operand.dtype]
    capsule = _dlpack.capsule_of(operand, operand.data, device, code, operand.shape, operand.strides, False)
    return sys.modules["torch"].from_dlpack(capsule)


def _make_own(shape: Shape, dtype: DType, place: Place) -> tuple[Any, Operand]:
    array = Array(shape, dtype, place)
    return array, _own_operand(array)


def _own_operand(array: Array) -> Operand:
    return Operand(array.data, array.shape, array.strides, array.dtype, array.place, OWN, array)


def _kind_of_dlpack(array: Any) -> Kind:
    """Results for an array of a library with a from_dlpack of its own (CuPy, JAX, …) become its arrays."""
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    convert = getattr(module, "from_dlpack", None)
    if convert is None and module is not None and module.__name__.startswith("jax"):
        convert = getattr(sys.modules.get("jax.dlpack"), "from_dlpack", None)
    if convert is None:
        return OWN

    def make(shape: Shape, dtype: DType, place: Place) -> tuple[Any, Operand]:
        result = Array(shape, dtype, place)
        return _Convertible(result, convert), _own_operand(result)

    return Kind(make)


class _Convertible:
    """A result that becomes an array of the caller's library when it is finished: some libraries take
    their arrays for constant from the start."""

    def __init__(self, array: Array, convert: Callable[[Any], Any]) -> None:
        self.finish = lambda: convert(array)


# Libraries whose arrays never change: values may be shared, folded into programs or cached.
_IMMUTABLE = {"jax": "JAX", "jaxlib": "JAX", "tensorflow": "TensorFlow", "mlx": "MLX", "pyarrow": "Arrow"}


def _why_read_only(array: Any) -> str:
    """What an array of another library says against being written, in any of the ways there are to say it."""
    for kind in type(array).__mro__:
        library = _IMMUTABLE.get(str(kind.__module__).partition(".")[0])
        if library is not None:
            return f"is an array of {library}, which does not change arrays"
    if getattr(getattr(array, "flags", None), "writeable", True) is False:
        return "is read-only"
    for protocol in ("__array_interface__", "__cuda_array_interface__"):
        try:
            data = getattr(array, protocol)["data"]
        except Exception:  # noqa: BLE001: whatever it is, the array does not speak this protocol here
            continue
        if isinstance(data, tuple) and data[1]:
            return "is read-only"
    return ""


def _dlpack_operand(array: Any, name: str) -> Operand:
    place = _place(array.__dlpack_device__(), name)
    arguments: dict[str, Any] = {}
    if place != CPU:
        arguments["stream"] = stream_for(place) or 1
    try:
        capsule = array.__dlpack__(max_version=_dlpack.VERSION, **arguments)
    except TypeError:  # older than version 1 of the protocol
        capsule = array.__dlpack__(**arguments)
    tensor = _dlpack.tensor_of(capsule)
    if tensor is None:
        raise UnsupportedDtypeError(f"attikos: {name} exports a DLPack version that is not understood")
    dtype = from_dlpack_code(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes, name)
    shape = tuple(tensor.shape[r] for r in range(tensor.ndim))
    strides = tuple(tensor.strides[r] for r in range(tensor.ndim)) if tensor.strides else dense_strides(shape)
    data = (tensor.data or 0) + tensor.byte_offset
    operand = Operand(data, shape, strides, dtype, place, _kind_of_dlpack(array), (array, capsule))
    operand.read_only = lambda: "is read-only" if _dlpack.is_read_only(capsule) else _why_read_only(array)
    return operand


def _cuda_interface_operand(array: Any, name: str) -> Operand:
    interface = array.__cuda_array_interface__
    dtype = dtype_of(np.dtype(interface["typestr"]), name)
    data = int(interface["data"][0] or 0)
    shape = tuple(interface["shape"])
    steps = interface.get("strides")
    strides = tuple(step // dtype.itemsize for step in steps) if steps else dense_strides(shape)
    ordinal = 0
    device = getattr(array, "device", None)
    if device is not None:
        ordinal = int(getattr(device, "id", getattr(device, "index", 0)) or 0)
    place: Place = ("cuda", ordinal)
    producer = interface.get("stream")
    if producer is not None and (0 if producer == 1 else producer) != stream_for(place):
        Context(place, 0 if producer == 1 else int(producer)).synchronize()
    operand = Operand(data, shape, strides, dtype, place, OWN, array)
    operand.read_only = lambda: _why_read_only(array)
    return operand


NUMPY, TORCH, OWN = Kind(_make_numpy), Kind(_make_torch), Kind(_make_own)


def operand_of(operation: str, name: str, array: Any) -> Operand:
    """What a call sees of an argument; the array must live until the call is done."""
    if isinstance(array, Operand):
        return array
    try:
        return _operand(array, spell(operation, name))
    except Error as problem:
        raise type(problem)(str(problem).replace("attikos:", f"attikos.{operation}:", 1)) from None


def _operand(array: Any, name: str) -> Operand:
    if isinstance(array, np.ndarray):
        return _numpy_operand(array, name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch_operand(array, name)
    if isinstance(array, Array):
        return _own_operand(array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _dlpack_operand(array, name)
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_interface_operand(array, name)
    if hasattr(array, "__array_interface__") or hasattr(array, "__array__"):
        view = np.asarray(array)
        operand = _numpy_operand(view, name)
        copied = not hasattr(array, "__array_interface__")
        operand.read_only = lambda: (
            "is read-only" if not view.flags.writeable
            else "lets its numbers be copied only" if copied
            else _why_read_only(array)
        )  # fmt: skip
        return operand
    raise UnsupportedDtypeError(
        f"attikos: {name} is a {type(array).__name__}; expected an array with DLPack, "
        "__cuda_array_interface__ or __array_interface__"
    )


# What functions of libattikos run that have no explanation of their own, unless it is one portable kernel.
_RUNS = dict.fromkeys(
    ("attikos_gemm_backward", "attikos_linear_cross_entropy", "attikos_gated_mlp_keep", "attikos_gated_mlp_backward",
     "attikos_gated_mlp_backward_kept"), "runs the kernels of gemm, one for each product",
)  # fmt: skip


class Call:
    """The arrays of one call: all on one device, whose current stream it runs on."""

    def __init__(self, operation: str, **arrays: Any) -> None:
        self.operation = operation
        self.operands = {n: operand_of(operation, n, a) for n, a in arrays.items() if a is not None}
        first_name, first = next(iter(self.operands.items()))
        for name, operand in self.operands.items():
            if operand.place != first.place:
                raise DeviceError(
                    f"attikos.{operation}: {spell(operation, name)} lies on {_spell(operand.place)} but "
                    f"{spell(operation, first_name)} on {_spell(first.place)}; expected one device"
                )
        if _autograd.watching():
            _autograd.refuse(operation, {name: operand.owner for name, operand in self.operands.items()})
        self.place, self.kind = first.place, first.kind
        if self.kind is TORCH and self.place != CPU:
            expect_stream_of_torch(operation)
        try:
            self.context = context_for(self.place, of_torch=self.kind is TORCH)
        except DeviceError as problem:
            why = str(problem).replace("attikos::context: ", "", 1)
            raise DeviceError(
                f"attikos.{operation}: {spell(operation, first_name)} lies on {_spell(self.place)}, but {why}"
            ) from None
        for operand in self.operands.values():
            _hold(operand)
        _border.meet(type(first.owner))
        self._results: list[Any] = []
        self._taken: list[Any] = []  # those of the results that are the caller's own arrays

    def __getitem__(self, name: str) -> Operand:
        return self.operands[name]

    def get(self, name: str) -> Operand | None:
        return self.operands.get(name)

    def result(
        self, shape: Sequence[int], dtype: DType, zeros: bool = False, into: Any = None, name: str = "out"
    ) -> Operand:
        """A new array of the caller's kind, to be returned by finish(), or `into` where the caller gave that."""
        if into is not None:
            return self._take(name, into, tuple(shape), dtype)
        array, operand = self.kind.make(tuple(shape), dtype, self.place)
        self._results.append(array)
        if zeros and self.kind is TORCH:
            array.zero_()
        elif zeros and operand.data:
            empty = np.zeros(int(np.prod(operand.shape, dtype=np.int64)) * dtype.itemsize, np.uint8)
            _lib.attikos_copy(self.context.handle, operand.data, empty.ctypes.data, empty.nbytes)
        return operand

    def _take(self, name: str, array: Any, shape: Shape, dtype: DType) -> Operand:
        """The caller's own array, which has to be what result() would have made but for its strides."""
        operand, spelled = operand_of(self.operation, name, array), spell(self.operation, name)
        if operand.place != self.place:
            where = f"{spelled} lies on {_spell(operand.place)}; expected {_spell(self.place)}, as the other arrays"
            raise DeviceError(f"attikos.{self.operation}: {where}")
        if operand.shape != shape or operand.dtype is not dtype:
            kind = ShapeMismatchError if operand.shape != shape else UnsupportedDtypeError
            what = f"{spelled} is {operand.describe()}; expected {list(shape)} {dtype.name}"
            raise kind(f"attikos.{self.operation}: {what}. Given: {self._given()}")
        _autograd.refuse(self.operation, {name: array})
        _hold(operand)
        self.operands[name] = operand
        self._results.append(array)
        self._taken.append(array)
        return self.written(name)

    def scratch(self, shape: Sequence[int], dtype: DType) -> Operand:
        """A new array for the length of the call."""
        array, operand = self.kind.make(tuple(shape), dtype, self.place)
        operand.owner = (operand.owner, array)
        return operand

    def written(self, name: str) -> Operand:
        """An array of the caller's that the call writes."""
        operand, why = self.operands[name], self.operands[name].read_only()
        if why:
            raise ArgumentError(
                f"attikos.{self.operation}: {spell(self.operation, name)} {why}; expected an array to write to"
            )
        return operand

    def run(self, function: str, *arguments: Any) -> None:
        """Calls libattikos; operands become pointers to tensors, options pointers to structs."""
        told = _autograd.explained.get()
        if told is not None:
            name = function.replace("attikos_", "attikos_explain_")
            if name in _library.FUNCTIONS:
                told.append(self.text(name, *arguments))
            else:
                told.append(_RUNS.get(function, "runs portable"))
            return
        try:
            getattr(_lib, function)(self.context.handle, *(_argument(a) for a in arguments))
        except Error as problem:
            raise self._in_callers_words(function, arguments, problem) from None

    def text(self, function: str, *arguments: Any) -> str:
        """The answer of a function of libattikos whose last three arguments take text."""
        try:
            return text_of(getattr(_lib, function), self.context.handle, *(_argument(a) for a in arguments))
        except Error as problem:
            raise self._in_callers_words(function, arguments, problem) from None

    def _in_callers_words(self, function: str, arguments: tuple[Any, ...], problem: Error) -> Error:
        """An error of libattikos with the caller's names and extents, and all arrays as the caller gave them."""
        shapes = {str(list(x.shape)): str(list(x.shown)) for x in arguments if isinstance(x, Operand)}
        message = in_callers_words(self.operation, function, str(problem), shapes).rstrip(".")
        return type(problem)(f"{message}. Given: {self._given()}")

    def _given(self) -> str:
        return ", ".join(f"{spell(self.operation, name)} {x.describe()}" for name, x in self.operands.items())

    def finish(self) -> Any:
        _autograd.mark_written(*(self._taken if _autograd.explained.get() is None else ()))
        done = [a.finish() if isinstance(a, _Convertible) else a for a in self._results]
        return done[0] if len(done) == 1 else tuple(done)


def _hold(operand: Operand) -> None:
    """Keeps the memory of a caller's tensor from being given out before the call's work is done."""
    if operand.kind is TORCH and operand.place != CPU and not isinstance(operand.owner, tuple):  # but for scratch()
        hold(operand.owner)


def text_of(function: Any, *arguments: Any) -> str:
    length = ctypes.c_size_t()
    function(*arguments, None, 0, ctypes.byref(length))
    memory = ctypes.create_string_buffer(length.value + 1)
    function(*arguments, memory, len(memory), None)
    return memory.value.decode()


def _argument(value: Any) -> Any:
    if isinstance(value, Operand):
        return value.pointer()
    if isinstance(value, _library.SizedStruct):
        return ctypes.byref(value)
    return value


def pointer_or_none(operand: Operand | None) -> Any:
    return None if operand is None else operand.pointer()


def _spell(place: Place) -> str:
    return "the CPU" if place == CPU else f"cuda:{place[1]}"
