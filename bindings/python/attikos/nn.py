# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules with weights: torch.nn.Modules where PyTorch is installed, else small holders of NumPy arrays. With PyTorch
alone there are RMSNorm, LayerNorm, Attention, Embedding, CrossEntropyLoss and SwiGLU, too, with the state_dict of
PyTorch's; attikos.patch() puts them into a model.

device and dtype are those of the weights: PyTorch's defaults, or the CPU and float32. Weights follow
torch.manual_seed(), or np.random.seed(). An x that is no tensor of PyTorch gives a result that is none, without
gradients for the weights.
"""

from __future__ import annotations

import math
import sys
import weakref
from typing import Any, Callable, Iterator

import numpy as np

from . import _autograd
from ._arguments import choice, integer, real
from ._arrays import operand_of, torch_dtype
from ._dtypes import FLOATING, DType, dtype_of, to_numpy
from .errors import ArgumentError, DeviceError, ShapeMismatchError, UnsupportedDtypeError, UnsupportedError
from .fp8 import fp8_gemm, quantize_fp8
from .fused import GATES, fused_gated_mlp, fused_rmsnorm_rope

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


class _NumpyModule:
    """The part of torch.nn.Module that makes sense for NumPy arrays."""

    training = True

    def __init__(self) -> None:
        self._parameters: dict[str, np.ndarray[Any, Any]] = {}
        self._handed_out = 0  # how often somebody has got hold of a parameter

    def __getattr__(self, name: str) -> Any:
        parameters = self.__dict__.get("_parameters", {})
        if name in parameters:
            self._handed_out += 1
            return parameters[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_parameters", {}):
            self._parameters[name] = value
        else:
            object.__setattr__(self, name, value)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        self._handed_out += 1
        yield from self._parameters.items()

    def parameters(self) -> Iterator[Any]:
        self._handed_out += 1
        yield from self._parameters.values()

    def state_dict(self) -> dict[str, Any]:
        self._handed_out += 1
        return dict(self._parameters)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if set(state) != set(self._parameters):
            raise ArgumentError(f"attikos: state has {sorted(state)}; expected {sorted(self._parameters)}")
        for name, value in state.items():
            mine = self._parameters[name]
            if np.shape(value) != mine.shape:
                raise ShapeMismatchError(f"attikos: {name} has shape {np.shape(value)}; expected {mine.shape}")
            self._parameters[name] = np.array(value, mine.dtype)

    def train(self, mode: bool = True) -> Any:
        self.training = mode
        return self

    def eval(self) -> Any:
        return self.train(False)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.forward(*arguments, **named)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"  # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    if name in ("Attention", "CrossEntropyLoss", "Embedding", "LayerNorm", "RMSNorm", "SwiGLU"):
        if torch is None:
            raise UnsupportedError(f"attikos.nn.{name}: it is a module of PyTorch, which is not installed")
        from . import _torch_modules

        return getattr(_torch_modules, name)
    raise AttributeError(f"module 'attikos.nn' has no attribute {name!r}")


Module: Any = _NumpyModule if torch is None else torch.nn.Module


def _add_parameter(module: Any, name: str, shape: tuple[int, ...], device: Any, dtype: Any) -> None:
    operation = type(module).__name__
    kind = None if dtype is None else dtype_of(dtype)
    if kind is not None and kind not in FLOATING:
        raise UnsupportedDtypeError(
            f"attikos.{operation}: dtype is {kind.name}; expected float64, float32, float16 or bfloat16"
        )
    if torch is not None:
        values = torch.empty(shape, device=device, dtype=None if kind is None else torch_dtype(kind))
        setattr(module, name, torch.nn.Parameter(values))
    elif device not in (None, "cpu"):
        raise DeviceError(f"attikos.{operation}: device is {device!r}; expected \"cpu\" without PyTorch")
    else:
        module._parameters[name] = np.empty(shape, to_numpy(DType.float32 if kind is None else kind))


def _fill(module: Any, name: str, limit: float | None = None, value: float = 0.0) -> None:
    """A parameter of numbers spread evenly between -limit and limit, or all of one value."""
    weight = module._parameters[name]
    if torch is None:
        weight[...] = value if limit is None else np.random.uniform(-limit, limit, weight.shape)
    elif limit is None:
        torch.nn.init.constant_(weight, value)
    else:
        torch.nn.init.uniform_(weight, -limit, limit)


def _positive(module: str, **sizes: Any) -> list[int]:
    found = [integer(module, name, size) for name, size in sizes.items()]
    for name, size in zip(sizes, found):
        if size <= 0:
            raise ShapeMismatchError(f"attikos.{module}: {name} is {size}; expected a positive number")
    return found


class FusedRMSNormRoPE(Module):
    """fused_rmsnorm_rope() with a weight of its own, of ones at first; cos and sin come with every call."""

    def __init__(
        self, hidden_dim: int, head_dim: int, eps: float = 1e-6, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        hidden_dim, head_dim = _positive("FusedRMSNormRoPE", hidden_dim=hidden_dim, head_dim=head_dim)
        if hidden_dim % head_dim or head_dim % 2:
            raise ShapeMismatchError(
                f"attikos.FusedRMSNormRoPE: hidden_dim {hidden_dim} is to be a multiple of an even head_dim, "
                f"which is {head_dim}"
            )
        self.hidden_dim, self.head_dim, self.eps = hidden_dim, head_dim, real("FusedRMSNormRoPE", "eps", eps)
        self.num_heads = hidden_dim // head_dim
        _add_parameter(self, "weight", (hidden_dim,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _fill(self, "weight", value=1.0)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        return fused_rmsnorm_rope(x, _beside(self, "weight", x, True), cos, sin, self.eps, self.num_heads)

    def extra_repr(self) -> str:
        return f"hidden_dim={self.hidden_dim}, head_dim={self.head_dim}, eps={self.eps}"


class FusedGatedMLP(Module):
    """fused_gated_mlp() with weights of its own, [intermediate_dim, hidden_dim], between -1 and 1 over
    sqrt(hidden_dim) at first."""

    def __init__(
        self, hidden_dim: int, intermediate_dim: int, activation: str = "silu", *, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        hidden_dim, intermediate_dim = _positive(
            "FusedGatedMLP", hidden_dim=hidden_dim, intermediate_dim=intermediate_dim
        )
        choice("FusedGatedMLP", "activation", activation, GATES)
        self.hidden_dim, self.intermediate_dim, self.activation = hidden_dim, intermediate_dim, activation
        for name in ("gate_weight", "up_weight"):
            _add_parameter(self, name, (intermediate_dim, hidden_dim), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for name in ("gate_weight", "up_weight"):
            _fill(self, name, 1 / math.sqrt(self.hidden_dim))

    def forward(self, x: Any) -> Any:
        gate, up = (_beside(self, name, x) for name in ("gate_weight", "up_weight"))
        return fused_gated_mlp(x, gate, up, self.activation)

    def extra_repr(self) -> str:
        return (
            f"hidden_dim={self.hidden_dim}, intermediate_dim={self.intermediate_dim}, activation={self.activation!r}"
        )


def _beside(module: Any, name: str, x: Any, wider: bool = False) -> Any:
    """A weight in the element type of x, or (wider) in float32 beside 16 bits; gradients flow through where x is a
    tensor of PyTorch. That is asked for its type alone: in a graph that is traced it has no memory."""
    weight = module._parameters[name]
    if torch is not None and isinstance(x, torch.Tensor):
        fits = weight.dtype == x.dtype or (wider and weight.dtype == torch.float32 and x.element_size() == 2)
        return weight if fits else weight.to(x.dtype)
    dtype = operand_of(type(module).__name__, "x", x).dtype
    if torch is not None:
        weight = weight.detach()
    own = dtype_of(weight.dtype)
    if own is dtype or (wider and own is DType.float32 and dtype.itemsize == 2):
        return weight
    return weight.astype(to_numpy(dtype)) if torch is None else weight.to(torch_dtype(dtype))


class FP8Linear(Module):
    """x * weight^T + bias with both operands of the product in float8 and a trainable float weight.

    The quantized weight is kept, and made anew where the weight may be another one, at no cost that grows with it. Of
    a tensor of PyTorch its identity, storage and version counter tell, which every in-place operation and optimizer
    step raises; edits that PyTorch itself cannot see (`weight.data[...] = `, an alias in NumPy, raw pointers) need to
    be told, by refresh(). An array of NumPy is taken for changed whenever somebody may have got hold of it: keep no
    reference to it while the module runs. Gradients are those of the unquantized product.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = False, output_dtype: Any = DType.float16, *,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        in_features, out_features = _positive("FP8Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features, self.output_dtype = in_features, out_features, output_dtype
        # Whether it still holds, the weight in float8, its scale.
        self._kept: tuple[Callable[[Any], bool], Any, Any] | None = None
        _add_parameter(self, "weight", (out_features, in_features), device, dtype)
        if bias:
            _add_parameter(self, "bias", (out_features,), device, dtype)
        elif torch is None:
            self.bias = None
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights between -1 and 1 over sqrt(in_features), a bias of zeros."""
        _fill(self, "weight", 1 / math.sqrt(self.in_features))
        if self._parameters.get("bias") is not None:
            _fill(self, "bias")

    def extra_repr(self) -> str:
        bias = self._parameters.get("bias") is not None
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}"

    def __getstate__(self) -> dict[str, Any]:
        """Without the quantized weight, which is found again."""
        return {**self.__dict__, "_kept": None}

    def refresh(self) -> None:
        """Forgets the quantized weight."""
        self._kept = None

    def quantized_weight(self) -> tuple[Any, Any]:
        """(weight_fp8 [out_features, in_features], weight_scale) of the weight as it is now."""
        if self._kept is None or not self._kept[0](self):
            unchanged = _watch_array(self) if torch is None else _watch_tensor(self._parameters["weight"])
            weight = self._parameters["weight"]
            self._kept = (unchanged, *quantize_fp8(weight if torch is None else weight.detach()))
        return self._kept[1], self._kept[2]

    @property
    def weight_fp8(self) -> Any:
        return self.quantized_weight()[0]

    @property
    def weight_scale(self) -> Any:
        return self.quantized_weight()[1]

    @property
    def weight_fp8_t(self) -> Any:
        """The transposed view that the product reads; strides make a copy unnecessary."""
        return self.quantized_weight()[0].T

    def forward(self, x: Any) -> Any:
        shape = tuple(x.shape)
        if not shape or shape[-1] != self.in_features:
            raise ShapeMismatchError(
                f"attikos.FP8Linear: x has shape {shape}; expected its last extent to be {self.in_features}"
            )
        rows = x.reshape(-1, self.in_features)
        if torch is not None and isinstance(rows, torch.Tensor):
            out = _torch_linear(self, rows)
        else:
            out = self._product(rows)
        bias = self._parameters.get("bias")
        if bias is not None:
            if isinstance(out, np.ndarray):
                bias = (bias if torch is None else bias.detach().numpy()).astype(out.dtype)
            else:
                bias = bias.to(out.dtype)
            out = out + bias
        return out.reshape(*shape[:-1], self.out_features)

    def _product(self, rows: Any) -> Any:
        weight, scale = self.quantized_weight()
        quantized, row_scale = quantize_fp8(rows)
        return fp8_gemm(quantized, weight.T, row_scale, scale, self.output_dtype)


def _watch_tensor(weight: Any) -> Callable[[Any], bool]:
    """Tells of a module whether its weight is still this tensor with these numbers. Nothing is kept alive: neither an
    id nor an address, which another tensor may get, stands for the tensor or its memory."""
    from torch.multiprocessing.reductions import StorageWeakRef

    if weight.is_inference():  # has no version counter
        return lambda module: False
    tensor, storage = weakref.ref(weight), StorageWeakRef(weight.untyped_storage())
    facts = (weight._version, weight.dtype, weight.shape, weight.stride(), weight.storage_offset())

    def unchanged(module: Any) -> bool:
        now = module._parameters["weight"]
        return (
            tensor() is now
            and facts == (now._version, now.dtype, now.shape, now.stride(), now.storage_offset())
            and storage == StorageWeakRef(now.untyped_storage())
        )

    return unchanged


def _watch_array(module: Any) -> Callable[[Any], bool]:
    """Tells of a module whether its weight is still this array with these numbers: nobody else holds it now, and
    nobody has been given it since."""
    weight, handed_out = weakref.ref(module._parameters["weight"]), module._handed_out
    if module._parameters["weight"].base is not None or _holders(module) > 1:
        return lambda module: False
    return lambda module: weight() is module._parameters["weight"] and handed_out == module._handed_out


def _holders(module: Any) -> int:
    """How many references there are to the weight, but for the one that this call itself takes."""
    return sys.getrefcount(module._parameters["weight"]) - 1


def _torch_linear(module: FP8Linear, rows: Any) -> Any:
    if not _autograd.wanted(rows, module.weight):
        return module._product(rows.detach())

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        x, weight = inputs
        given = gradients[0]
        dx = given.to(weight.dtype) @ weight if needed[0] else None
        dweight = given.to(weight.dtype).T @ x.to(weight.dtype) if needed[1] else None
        return (None if dx is None else dx.to(x.dtype), dweight)

    return _autograd.apply(lambda x, weight: module._product(x.detach()), back, (rows, module.weight), unread=(2,))
