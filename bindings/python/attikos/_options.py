# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options as the library describes them, in Python's words, and what becomes of those that a way of calls does not know:
a new row of the library's tables and an argument of its name are enough for the long way, so that every other way has to
ask here whether it would drop something."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from . import _library
from ._arguments import ACTIVATIONS, COMPUTE, DETERMINISM, INT32, choice, flag, integer, real, text
from .errors import UnsupportedError

ALGORITHMS = {"flash": 0, "tiled": 1, "naive": 2}
ACCUMULATE = {"promoted": 0, "fast": 1}

_CHOICES = {
    "algorithm": ALGORITHMS, "compute": COMPUTE, "determinism": DETERMINISM, "activation": ACTIVATIONS,
    "accumulate": ACCUMULATE,
}  # fmt: skip


def default_of(option: _library.Option) -> Any:
    """The default of an option as an argument in Python."""
    if option.kind in ("tensor", "text"):
        return None if option.kind == "tensor" else ""
    if option.kind == "choice":
        return next(word for word, number in _CHOICES[option.name].items() if number == option.default)
    return {"real": float, "flag": bool}.get(option.kind, int)(option.default)


_READ: dict[str, Callable[[str, str, Any], Any]] = {
    "real": real,
    "integer": integer,
    "number": lambda operation, name, value: integer(operation, name, value, *INT32),
    "flag": lambda operation, name, value: int(flag(operation, name, value)),
    "choice": lambda operation, name, value: choice(operation, name, value, _CHOICES[name]),
    "text": text,
}


def read(operation: str, kind: str, name: str, value: Any) -> Any:
    """An option that is no array, checked, as the struct has it."""
    return _READ[kind](operation, name, value)


def parameters(function: Callable[..., Any]) -> frozenset[str]:
    code: Any = function
    code = code.__code__
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def later(operation: str, function: Callable[..., Any], short: Callable[..., Any], *known: str) -> dict[str, Any]:
    """The options that are arguments of a public function by their names in the library, but neither of its short way
    nor `known`, with their defaults: none, until an option is added."""
    new = parameters(function) - parameters(short) - set(known)
    return {x.name: default_of(x) for x in _library.describe_options(operation)[1] if x.name in new}


def _is_other(value: Any, default: Any) -> bool:
    return value is not default and not (type(value) is type(default) and value == default)


def strange(defaults: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """The options among these that were given something else than their default."""
    return [name for name, default in defaults.items() if _is_other(arguments.get(name, default), default)]


def given(defaults: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of them, by name. `arguments` has each of them, or KeyError names the first that it lacks: public
    functions write them out, as torch.compile does not trace locals() in PyTorch 2.11."""
    return {name: arguments[name] for name, default in defaults.items() if _is_other(arguments[name], default)}


def refuse(operation: str, names: list[str]) -> None:
    """Raises for options that an operator of PyTorch does not have, if there are any."""
    for name in names:
        raise UnsupportedError(
            f"attikos.{operation}: {name} has no operator of PyTorch; expected a call outside of torch.compile, modes "
            "and transforms"
        )
