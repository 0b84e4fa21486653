# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""patch(): modules of a model of PyTorch that compute by this library from then on."""

from __future__ import annotations

import copy
import sys
from typing import Any, NamedTuple

from .errors import ArgumentError
from .fused import GATES
from .rows import rms_norm


class Change(NamedTuple):
    """What patch() did with one module, or with all of one class: became is what it is now, "" where it was left, for
    the reason. A name that ends in ×N stands for N modules."""

    name: str
    kind: str
    became: str
    reason: str

    def __str__(self) -> str:
        what = f"-> {self.became}" if self.became else f"left: {self.reason}"
        return f"{self.name} ({self.kind}) {what}"


def patch(model: Any) -> list[Change]:
    """Swaps what it can of a torch.nn.Module in place, and returns what it did and what it left, with the reason.

    Swapped are torch.nn.LayerNorm, RMSNorm, MultiheadAttention, Embedding and CrossEntropyLoss, the norms of
    transformers' models whose values rms_norm() gives (a weight, or 1 + weight), gated MLPs of gate_proj, up_proj and
    down_proj without bias, and the attention of transformers' models, by attikos.integrations.transformers. A module
    stays the same object with its parameters, hooks and state_dict; its class changes. Norms and MLPs of other packages
    are told by their values on random rows, not by their names; a module that was swapped has a class made for it, which
    pickle does not find, so that models are saved by their state_dict. Subclasses of PyTorch's modules, which may compute
    something else, are left. Everything else, linear layers among it, is left as it is and told by class. Twice is the
    same as once.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"attikos.patch: model is {type(model).__name__}; expected a torch.nn.Module")
    told: list[Change] = []
    others: dict[str, list[str]] = {}
    below: set[Any] = set()
    for name, module in model.named_modules():
        if module in below:
            continue
        change = _swap(torch, name or "(model)", module)
        if change is not None:
            told.append(change)
            if isinstance(module, torch.nn.MultiheadAttention):
                below.update(module.modules())
        elif not list(module.children()):
            others.setdefault(type(module).__name__, []).append(name)
    told += _attention_of_transformers(model)
    told += _encoders(torch, model)
    for kind, names in others.items():
        told.append(Change(f"{names[0]} ×{len(names)}", kind, "", "patch() has nothing to put in its place"))
    return told


def _swap(torch: Any, name: str, module: Any) -> Change | None:
    """The change of one module; None where it is none of the kinds that are swapped."""
    from . import _torch_modules as ours

    kind = type(module)
    for theirs, mine in (
        (torch.nn.LayerNorm, ours.LayerNorm), (torch.nn.RMSNorm, ours.RMSNorm),
        (torch.nn.MultiheadAttention, ours.Attention), (torch.nn.CrossEntropyLoss, ours.CrossEntropyLoss),
        (torch.nn.Embedding, ours.Embedding),
    ):  # fmt: skip
        if not isinstance(module, theirs):
            continue
        if isinstance(module, mine):
            return Change(name, kind.__name__, "", "it was swapped before")
        reason = ""
        if kind is not theirs:
            reason = f"it is a subclass of torch.nn.{theirs.__name__}, which may compute something else"
        elif mine is ours.CrossEntropyLoss and module.weight is not None:
            reason = "its classes have weights, which cross_entropy() has not"
        elif mine is ours.Embedding:
            reason = ours.embedding_refusal(module)
        elif mine is ours.Attention:
            reason = ours.refusal(module)
            if module.dropout and module.training:
                reason = reason or f"its dropout is {module.dropout}, which is not offered, and it is training"
        if reason:
            return Change(name, kind.__name__, "", reason)
        module.__class__ = mine
        return Change(name, kind.__name__, f"attikos.nn.{mine.__name__}", "")
    if hasattr(module, "_attikos"):
        return Change(name, kind.__name__, "", "it was swapped before")
    if kind.__name__.endswith("RMSNorm"):
        return _swap_norm(torch, name, module)
    if {"gate_proj", "up_proj", "down_proj"} <= dict(module.named_children()).keys():
        return _swap_mlp(torch, name, module)
    return None


def _become(module: Any, what: str, forward: Any) -> None:
    """Another class with another forward; everything else of the module stays."""
    kind = type(module)
    module.__class__ = type(f"Attikos{kind.__name__}", (kind,), {"forward": forward, "_attikos": what})


def _same(torch: Any, module: Any, features: int, function: Any) -> bool:
    """Whether function(copy, x) gives what a copy of the module with random weights gives, in float32 on the CPU."""
    made = torch.Generator().manual_seed(0)
    try:
        probe = copy.deepcopy(module).cpu().float()
        with torch.no_grad():
            for parameter in probe.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=made) / parameter.shape[-1] ** 0.5)
            x = torch.randn((3, 5, features), generator=made)
            exact, found = probe(x), function(probe, x)
    except Exception:  # noqa: BLE001: what cannot be called like this is not what is looked for
        return False
    return bool(exact.shape == found.shape and torch.allclose(exact, found, rtol=1e-4, atol=1e-5))


def _swap_norm(torch: Any, name: str, module: Any) -> Change:
    from ._torch_modules import _beside

    kind = type(module).__name__
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    parameters = dict(module.named_parameters())
    if parameters.keys() != {"weight"} or parameters["weight"].dim() != 1 or not isinstance(eps, float):
        return Change(name, kind, "", "it is no norm of one weight and one eps")

    def of(added: float) -> Any:
        def forward(self: Any, hidden_states: Any) -> Any:
            rows = hidden_states.reshape(-1, hidden_states.shape[-1])
            weight = self.weight.float() + added if added else self.weight
            return rms_norm(rows, _beside(rows, weight, 1.0), eps).reshape(hidden_states.shape)

        return forward

    features = parameters["weight"].shape[0]
    for added, formula in ((0.0, "rms_norm"), (1.0, "rms_norm of 1 + weight")):
        if _same(torch, module, features, of(added)):
            _become(module, formula, of(added))
            return Change(name, kind, formula, "")
    return Change(name, kind, "", "its values are not those of rms_norm with its weight, or with 1 + weight")


def _swap_mlp(torch: Any, name: str, module: Any) -> Change:
    from ._torch_modules import SwiGLU, gated

    kind = type(module).__name__
    if isinstance(module, SwiGLU):
        return Change(name, kind, "", "it was swapped before")
    layers = [module.gate_proj, module.up_proj, module.down_proj]
    if any(type(x) is not torch.nn.Linear or x.bias is not None for x in layers):
        return Change(name, kind, "", "its three layers are not all torch.nn.Linear without bias")

    def of(activation: str) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.down_proj(gated(x, self.gate_proj.weight, self.up_proj.weight, activation))

        return forward

    for activation in GATES:
        if _same(torch, module, layers[0].in_features, of(activation)):
            _become(module, "fused_gated_mlp", of(activation))
            return Change(name, kind, f"fused_gated_mlp, {activation}", "")
    return Change(name, kind, "", f"its values are not those of a gated MLP with one of {', '.join(GATES)}")


def _attention_of_transformers(model: Any) -> list[Change]:
    """The attention of a model of transformers, all layers by one setting."""
    package = sys.modules.get("transformers")
    if package is None or not isinstance(model, package.PreTrainedModel):
        return []
    from .integrations import transformers as integration

    kind, before = type(model).__name__, model.config._attn_implementation
    if before == integration.NAME:
        return [Change("attn_implementation", kind, "", "it was swapped before")]
    if not model._can_set_attn_implementation():
        return [Change("attn_implementation", kind, "", "its layers do not ask transformers' interface of attention")]
    dropout = getattr(model.config, "attention_dropout", getattr(model.config, "attention_probs_dropout_prob", 0.0))
    if dropout and model.training:
        reason = f"its dropout is {dropout}, which is not offered, and model.training is set"
        return [Change("attn_implementation", kind, "", reason)]
    integration.register()
    model.set_attn_implementation(integration.NAME)
    return [Change(f"attn_implementation {before!r}", kind, f'"{integration.NAME}"', "")]


def _encoders(torch: Any, model: Any) -> list[Change]:
    """In evaluation PyTorch's encoders pass their own modules by and call one operator on the weights of all: not so
    where attention was swapped."""
    from ._torch_modules import Attention

    told = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.TransformerEncoderLayer) and isinstance(module.self_attn, Attention):
            if module.activation_relu_or_gelu:
                module.activation_relu_or_gelu = 0
                told.append(Change(name or "(model)", type(module).__name__, "its modules in evaluation, too", ""))
        elif isinstance(module, torch.nn.TransformerEncoder):
            if any(isinstance(part, Attention) for part in module.modules()):
                module.use_nested_tensor = False
    return told
