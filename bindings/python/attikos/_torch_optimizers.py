# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of PyTorch that step by this library; see optim. Imported with the first of them, since it imports
PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from .errors import UnsupportedError
from .optim import adamw_step

__all__ = ["AdamW"]

_UNTRACED = getattr(getattr(torch, "_compile", None), "_disable_dynamo", lambda function: function)
_STATE = ("exp_avg", "exp_avg_sq", "master")


def _state_dtype(parameter: Any) -> Any:
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW by adamw_step(): its constructor, param_groups and state_dict, of which either loads what the
    other saved, and one pass over parameters, gradients and moments for a step.

    Of float16 and bfloat16 parameters the moments are float32, and with master_weights so are the weights that
    steps change, of which the parameters are roundings ("master" in the state). Where somebody else has changed a
    parameter, such elements are taken anew. step(gradient_scale=…) multiplies all gradients. amsgrad, capturable
    and differentiable have no kernel, and are refused by name, as sparse gradients are."""

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, *, maximize: bool = False, master_weights: bool = True,
    ) -> None:  # fmt: skip
        self.master_weights = master_weights
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)

    @_UNTRACED  # type: ignore[untyped-decorator, unused-ignore]
    def step(self, closure: Any = None, *, gradient_scale: float = 1.0) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for settings, parameters in self._calls().items():
                self._run(settings, parameters, gradient_scale)
        return loss

    def _calls(self) -> dict[tuple[Any, ...], list[Any]]:
        """Parameters that have gradients, by the numbers of their step."""
        found: dict[tuple[Any, ...], list[Any]] = {}
        for group in self.param_groups:
            for name in ("amsgrad", "capturable", "differentiable"):
                if group.get(name):
                    raise UnsupportedError(
                        f"attikos.optim.AdamW: {name} is {group[name]}, which is not offered; expected False"
                    )
            numbers = (
                float(group["lr"]),
                *map(float, group["betas"]),
                float(group["eps"]),
                float(group["weight_decay"]),
            )
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.grad.is_sparse:
                    raise UnsupportedError(
                        "attikos.optim.AdamW: a gradient is sparse, which is not offered; expected a dense one"
                    )
                step = int(self._state_of(parameter)["step"]) + 1
                found.setdefault((parameter.device, step, bool(group["maximize"]), *numbers), []).append(parameter)
        return found

    def _state_of(self, parameter: Any) -> Any:
        state = self.state[parameter]
        if "step" not in state:
            state["step"] = torch.tensor(0.0)
        for name in _STATE[:2]:
            if name not in state:
                state[name] = torch.zeros_like(
                    parameter, dtype=_state_dtype(parameter), memory_format=torch.preserve_format
                )
        if self.master_weights and parameter.element_size() == 2:
            if "master" not in state:
                state["master"] = parameter.detach().float()
            elif self._seen().get(parameter, parameter._version) != parameter._version:
                master = state["master"]
                master.copy_(torch.where(master.to(parameter.dtype) == parameter, master, parameter.float()))
        return state

    def _seen(self) -> dict[Any, int]:
        """What PyTorch counted of changes to a parameter when a step had written it."""
        seen: dict[Any, int] = self.__dict__.setdefault("_seen_versions", {})
        return seen

    def _run(self, settings: tuple[Any, ...], parameters: list[Any], gradient_scale: float) -> None:
        _, step, uphill, lr, beta1, beta2, eps, weight_decay = settings
        states = [self.state[parameter] for parameter in parameters]
        adamw_step(
            [parameter.detach() for parameter in parameters], [parameter.grad for parameter in parameters],
            [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states], step,
            master=[state.get("master") for state in states], learning_rate=lr, beta1=beta1, beta2=beta2, eps=eps,
            weight_decay=weight_decay, gradient_scale=-gradient_scale if uphill else gradient_scale,
        )  # fmt: skip
        for parameter, state in zip(parameters, states):
            state["step"] += 1
            if "master" in state:
                self._seen()[parameter] = parameter._version

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "master_weights": self.master_weights}

    def load_state_dict(self, state_dict: Any) -> None:
        """As PyTorch's, but for moments and master weights, which stay float32 beside parameters of 16 bits."""
        super().load_state_dict(state_dict)
        self._seen().clear()
        saved = itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        mine = itertools.chain.from_iterable(group["params"] for group in self.param_groups)
        for key, parameter in zip(saved, mine):
            given = state_dict["state"].get(key)
            if given is None:
                continue
            state = self.state[parameter]
            for name in _STATE:
                if name in given:
                    state[name] = given[name].to(device=parameter.device, dtype=_state_dtype(parameter), copy=True)
            if "step" in given:
                state["step"] = torch.as_tensor(float(given["step"]))
