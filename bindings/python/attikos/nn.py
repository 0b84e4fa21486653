# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules with weights: torch.nn.Modules where PyTorch is installed, else small holders of NumPy arrays."""

from __future__ import annotations

import math
from typing import Any, Iterator

import numpy as np

from ._arrays import operand_of
from ._dtypes import DType
from .errors import ArgumentError, ShapeMismatchError
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

    def __getattr__(self, name: str) -> Any:
        parameters = self.__dict__.get("_parameters", {})
        if name in parameters:
            return parameters[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_parameters", {}):
            self._parameters[name] = value
        else:
            object.__setattr__(self, name, value)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        yield from self._parameters.items()

    def parameters(self) -> Iterator[Any]:
        yield from self._parameters.values()

    def state_dict(self) -> dict[str, Any]:
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


Module: Any = _NumpyModule if torch is None else torch.nn.Module


def _add_parameter(module: Any, name: str, values: Any) -> None:
    if torch is None:
        module._parameters[name] = values
    else:
        setattr(module, name, torch.nn.Parameter(torch.from_numpy(values)))


def _uniform(rows: int, columns: int) -> Any:
    limit = 1 / math.sqrt(max(columns, 1))
    return np.random.default_rng().uniform(-limit, limit, (rows, columns)).astype(np.float32)


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size <= 0:
            raise ShapeMismatchError(f"attikos: {name} is {size}; expected a positive number")


class FusedRMSNormRoPE(Module):
    """fused_rmsnorm_rope() with a weight of its own; cos and sin come with every call."""

    def __init__(self, hidden_dim: int, head_dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        _positive(hidden_dim=hidden_dim, head_dim=head_dim)
        if hidden_dim % head_dim or head_dim % 2:
            raise ShapeMismatchError(
                f"attikos.FusedRMSNormRoPE: hidden_dim {hidden_dim} is to be a multiple of an even head_dim, "
                f"which is {head_dim}"
            )
        self.hidden_dim, self.head_dim, self.eps = hidden_dim, head_dim, eps
        self.num_heads = hidden_dim // head_dim
        _add_parameter(self, "weight", np.ones(hidden_dim, np.float32))

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        return fused_rmsnorm_rope(x, _of_type(self.weight, x), cos, sin, self.eps, self.num_heads)


class FusedGatedMLP(Module):
    """fused_gated_mlp() with weights of its own, [intermediate_dim, hidden_dim]."""

    def __init__(self, hidden_dim: int, intermediate_dim: int, activation: str = "silu") -> None:
        super().__init__()
        _positive(hidden_dim=hidden_dim, intermediate_dim=intermediate_dim)
        if activation not in GATES:
            raise ArgumentError(f"attikos.FusedGatedMLP: activation is {activation!r}; expected one of {list(GATES)}")
        self.hidden_dim, self.intermediate_dim, self.activation = hidden_dim, intermediate_dim, activation
        _add_parameter(self, "gate_weight", _uniform(intermediate_dim, hidden_dim))
        _add_parameter(self, "up_weight", _uniform(intermediate_dim, hidden_dim))

    def forward(self, x: Any) -> Any:
        gate, up = _of_type(self.gate_weight, x), _of_type(self.up_weight, x)
        return fused_gated_mlp(x, gate, up, self.activation)


def _of_type(weight: Any, x: Any) -> Any:
    """The weight in the element type of x; gradients flow through."""
    dtype = operand_of("Module", "x", x).dtype
    if torch is not None and not isinstance(x, torch.Tensor):
        weight = weight.detach()
    if operand_of("Module", "weight", weight).dtype is dtype:
        return weight
    if torch is not None and isinstance(weight, torch.Tensor):
        return weight.to(getattr(torch, dtype.name))
    from ._dtypes import to_numpy

    return weight.astype(to_numpy(dtype))


class FP8Linear(Module):
    """x * weight^T + bias with both operands of the product in float8 and a trainable float weight.

    The quantized weight is kept and is never older than the weight: a host weight is compared with what was
    quantized, a CUDA weight by its identity and PyTorch's version counter, which every in-place operation and
    optimizer step raises. Only edits that PyTorch itself cannot see (`weight.data[...] = `, raw pointers) of a
    CUDA weight need to be told, by refresh(). Gradients are those of the unquantized product.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = False, output_dtype: Any = DType.float16
    ) -> None:
        super().__init__()
        _positive(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features, self.output_dtype = in_features, out_features, output_dtype
        _add_parameter(self, "weight", _uniform(out_features, in_features))
        if bias:
            _add_parameter(self, "bias", np.zeros(out_features, np.float32))
        else:
            self.bias = None
        self._kept: tuple[Any, Any, Any] | None = None  # what was quantized, its float8, its scale

    def refresh(self) -> None:
        """Forgets the quantized weight."""
        self._kept = None

    def quantized_weight(self) -> tuple[Any, Any]:
        """(weight_fp8 [out_features, in_features], weight_scale) of the weight as it is now."""
        weight = self.weight
        if self._kept is None or not _same(self._kept[0], weight):
            source = weight if torch is None or not isinstance(weight, torch.Tensor) else weight.detach()
            self._kept = (_mark(weight), *quantize_fp8(source))
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
        if self.bias is not None:
            bias = self.bias
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


def _mark(weight: Any) -> Any:
    """What tells later whether the weight is still the one that was quantized."""
    if isinstance(weight, np.ndarray):
        return weight.copy()
    if weight.device.type == "cpu":
        return weight.detach().clone()
    return (id(weight), weight.data_ptr(), weight._version, weight.dtype)


def _same(mark: Any, weight: Any) -> bool:
    if isinstance(weight, np.ndarray):
        return (
            isinstance(mark, np.ndarray)
            and mark.dtype == weight.dtype
            and mark.shape == weight.shape
            and mark.tobytes() == weight.tobytes()
        )
    if weight.device.type == "cpu":
        return (
            torch is not None
            and isinstance(mark, torch.Tensor)
            and mark.dtype == weight.dtype
            and torch.equal(mark.view(torch.uint8), weight.detach().contiguous().view(torch.uint8))
        )
    return bool(mark == (id(weight), weight.data_ptr(), weight._version, weight.dtype))


def _torch_linear(module: FP8Linear, rows: Any) -> Any:
    from . import _autograd

    if not _autograd.wanted(rows, module.weight):
        return module._product(rows.detach())

    def back(inputs: Any, outputs: Any, gradients: Any, needed: Any) -> Any:
        x, weight = inputs
        given = gradients[0]
        dx = given.to(weight.dtype) @ weight if needed[0] else None
        dweight = given.to(weight.dtype).T @ x.to(weight.dtype) if needed[1] else None
        return (None if dx is None else dx.to(x.dtype), dweight)

    return _autograd.apply(lambda x, weight: module._product(x), back, (rows, module.weight))
