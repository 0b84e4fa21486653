# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of PyTorch that compute by this library: subclasses of PyTorch's own, of which they have constructor,
parameters and state_dict, so that either loads what the other saved. Imported with the first of them, since it imports
PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from ._arguments import Caller
from .attention import attention_settings, differentiable_attention
from .embeddings import embedding
from .errors import ArgumentError, ShapeMismatchError, UnsupportedError
from .fused import fused_gated_mlp
from .losses import cross_entropy
from .rows import layer_norm, rms_norm

__all__ = ["Attention", "CrossEntropyLoss", "Embedding", "LayerNorm", "RMSNorm", "SwiGLU"]


def _rows(module: Any, x: Any) -> Any:
    """x as [rows, elements of a row]."""
    shape = tuple(module.normalized_shape)
    if tuple(x.shape[-len(shape) :]) != shape:
        raise ShapeMismatchError(
            f"attikos.nn.{type(module).__name__}: x has shape {list(x.shape)}; expected its last extents to be "
            f"{list(shape)}"
        )
    return x.reshape(-1, math.prod(shape))


def _beside(x: Any, parameter: Any, otherwise: float) -> Any:
    """A parameter as a row of the type of x, or in float32 beside 16 bits; a constant where the module has none."""
    if parameter is None:
        return x.new_full((x.shape[-1],), otherwise)
    flat = parameter.flatten()
    if flat.dtype == x.dtype or (flat.dtype == torch.float32 and x.element_size() == 2):
        return flat
    return flat.to(x.dtype)


def _shaped(module: Any, x: Any, residual: Any, norm: Any) -> Any:
    """norm(rows of x, rows of residual or None) in the shape of x: the result, or with a residual that and the sum."""
    rows = _rows(module, x)
    if residual is None:
        return norm(rows, None).reshape(x.shape)
    if residual.shape != x.shape:
        raise ShapeMismatchError(
            f"attikos.nn.{type(module).__name__}: residual has shape {list(residual.shape)}; expected that of x, "
            f"{list(x.shape)}"
        )
    out, total = norm(rows, residual.reshape(rows.shape))
    return out.reshape(x.shape), total.reshape(x.shape)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm by rms_norm(): x / sqrt(mean(x^2) + eps) * weight over the last dimensions, with both gradients.

    eps None is the epsilon of the type of x. float64, float32, float16 and bfloat16; sums are float32 at least. Called
    with a residual of the shape and type of x: (out, sum), of which sum is x + residual and out the norm of it, with
    gradients of both."""

    def forward(self, x: Any, residual: Any = None) -> Any:
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps

        def norm(rows: Any, added: Any) -> Any:
            return rms_norm(rows, _beside(rows, self.weight, 1.0), eps, residual=added)

        return _shaped(self, x, residual, norm)


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm by layer_norm(): (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimensions,
    with gradients of all three. Types and a residual as RMSNorm."""

    def forward(self, x: Any, residual: Any = None) -> Any:
        def norm(rows: Any, added: Any) -> Any:
            vectors = _beside(rows, self.weight, 1.0), _beside(rows, self.bias, 0.0)
            return layer_norm(rows, *vectors, self.eps, residual=added)

        return _shaped(self, x, residual, norm)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss by cross_entropy(): ignore_index, label_smoothing and every reduction, classes in the
    second dimension (the first of one row), with the gradient of the input.

    Sums are float32 at least, also of 16-bit inputs, and the loss is rounded to their type, as PyTorch's is. Weights of
    classes and targets that are probabilities have no kernel: such a call is PyTorch's. A target that is no class gives
    NaN, where PyTorch's raises on the CPU and stops the device on CUDA."""

    def forward(self, input: Any, target: Any) -> Any:
        if self.weight is not None or target.is_floating_point():
            return super().forward(input, target)
        if input.dim() == 0 or tuple(target.shape) != (*input.shape[:1], *input.shape[2:])[input.dim() == 1 :]:
            raise ShapeMismatchError(
                f"attikos.nn.CrossEntropyLoss: target has shape {list(target.shape)}, input {list(input.shape)}; "
                "expected that of input without its classes, which are its second dimension"
            )
        row = input.dim() == 1
        if row:
            logits, labels = input[None], target[None]
        elif input.dim() == 2:
            logits, labels = input, target
        else:
            logits, labels = input.flatten(2).transpose(1, 2), target.flatten(1)
        if labels.dtype not in (torch.int32, torch.int64):
            labels = labels.long()
        loss = cross_entropy(
            logits, labels, label_smoothing=self.label_smoothing, ignore_index=self.ignore_index,
            reduction=self.reduction,
        )  # fmt: skip
        return (loss.reshape(target.shape) if self.reduction == "none" else loss).to(input.dtype)


class Embedding(torch.nn.Embedding):
    """torch.nn.Embedding by embedding(), whose gradient has the same bits on every run.

    max_norm, scale_grad_by_freq and sparse have no kernel: such a module computes by PyTorch's, as one does whose weight
    is of a type that embedding() does not take. An id that is no row gives
    NaN, where PyTorch's raises on the CPU and stops the device on CUDA."""

    def forward(self, input: Any) -> Any:
        if embedding_refusal(self):
            return super().forward(input)
        return embedding(self.weight, input, padding_idx=self.padding_idx)


def embedding_refusal(module: Any) -> str:
    """Why a torch.nn.Embedding is not embedding() of its weight; nothing where it is."""
    if module.max_norm is not None:
        return "it has max_norm, by which a call changes the weight"
    if module.scale_grad_by_freq:
        return "it has scale_grad_by_freq, which embedding() has not"
    if module.weight.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        return f"its weight is {module.weight.dtype}, which embedding() does not take"
    return "its gradient is sparse, which embedding()'s is not" if module.sparse else ""


class SwiGLU(torch.nn.Module):
    """down_proj(activation(gate_proj(x)) * up_proj(x)), the MLP of Llama and its relatives: three torch.nn.Linear
    without bias under the names that those give them, so that their state_dict loads. What comes before down_proj is
    fused_gated_mlp(), which stores neither product without gradients; activation silu, gelu or gelu_tanh."""

    def __init__(
        self, hidden_dim: int, intermediate_dim: int, activation: str = "silu", *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"bias": False, "device": device, "dtype": dtype}
        self.gate_proj = torch.nn.Linear(hidden_dim, intermediate_dim, **made)
        self.up_proj = torch.nn.Linear(hidden_dim, intermediate_dim, **made)
        self.down_proj = torch.nn.Linear(intermediate_dim, hidden_dim, **made)
        self.activation = activation

    def forward(self, x: Any) -> Any:
        return self.down_proj(gated(x, self.gate_proj.weight, self.up_proj.weight, self.activation))

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"


def gated(x: Any, gate_weight: Any, up_weight: Any, activation: str) -> Any:
    """fused_gated_mlp() of x with any number of dimensions."""
    rows = x if x.dim() in (2, 3) else x.reshape(-1, x.shape[-1])
    return fused_gated_mlp(rows, gate_weight, up_weight, activation).reshape(*x.shape[:-1], -1)


_ATTENTION = Caller("nn.Attention", q="query", k="key", v="value", mask="attn_mask", bias="attn_mask")


class Attention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention by attention(); the products before and behind it are PyTorch's.

    Takes what that takes: any batch_first, kdim, vdim, inputs without a batch; key_padding_mask of bools (True is left
    out) or floats; attn_mask likewise, with is_causal, which then says what it holds. What has no kernel is refused by
    name (UnsupportedError): dropout while training, add_bias_kv, add_zero_attn. need_weights, whose default is True as
    in PyTorch, wants probabilities that the library never stores: such a call is PyTorch's. A query that sees no key
    gives the bias of out_proj, where PyTorch gives NaN."""

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True,
        attn_mask: Any = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        if need_weights:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        reason = refusal(self)
        if reason or (self.dropout and self.training):
            raise UnsupportedError(
                f"attikos.nn.Attention: {reason or f'dropout is {self.dropout} while training, which is not offered'}; "
                "expected torch.nn.MultiheadAttention for it"
            )
        if is_causal and attn_mask is None:
            raise ArgumentError("attikos.nn.Attention: is_causal tells what attn_mask holds, but it is None")
        batched = query.dim() == 3
        if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
            raise ShapeMismatchError(
                f"attikos.nn.Attention: query is {list(query.shape)}, key is {list(key.shape)}, value is "
                f"{list(value.shape)}; expected 2 dimensions each, or 3 with a batch"
            )
        if not batched:
            query, key, value = (x[None] for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)) for x in self._projected(query, key, value))
        settings: dict[str, Any] = {"causal": bool(is_causal and key_padding_mask is None)}
        if settings["causal"]:  # as PyTorch has it, whose mask of queries and keys begins with the first of both
            settings["top_left"] = True
        else:
            settings.update(_masks(key_padding_mask, attn_mask, self.num_heads, q.dtype))
        out = differentiable_attention(_ATTENTION, q, k, v, attention_settings(heads_last=True, **settings), False)
        out = self.out_proj(out.flatten(-2))
        if batched:
            return (out if self.batch_first else out.transpose(0, 1)), None
        return out[0], None

    def _projected(self, query: Any, key: Any, value: Any) -> Any:
        if self._qkv_same_embed_dim:
            if query is key and key is value:
                return functional.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(functional.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))


def refusal(module: Any) -> str:
    """Why a torch.nn.MultiheadAttention can never go to attention(); nothing where it can."""
    if module.bias_k is not None:
        return "it has add_bias_kv, keys and values of its own behind those of the input"
    return "it has add_zero_attn, a key of zeros behind those of the input" if module.add_zero_attn else ""


def _masks(padding: Any, mask: Any, heads: int, dtype: Any) -> dict[str, Any]:
    """The two masks of PyTorch, in which True is left out, as mask and bias of attention()."""
    if padding is not None:
        padding = padding[:, None, None]
    if mask is not None and mask.dim() == 3:
        mask = mask.unflatten(0, (-1, heads))
    given = [x for x in (padding, mask) if x is not None]
    shown = [~x for x in given if x.dtype == torch.bool]
    added = [x.to(dtype) for x in given if x.dtype != torch.bool]
    found = {}
    if shown:
        found["mask"] = shown[0] if len(shown) == 1 else shown[0] & shown[1]
    if added:
        found["bias"] = added[0] if len(added) == 1 else added[0] + added[1]
    return found
