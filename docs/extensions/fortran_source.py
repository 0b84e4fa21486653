# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Public names of the Fortran module, read from its source: what stands before each after `!>`, its arguments and their
types."""

from __future__ import annotations

import dataclasses
import re

from doxygen import escape


@dataclasses.dataclass
class Name:
    kind: str  # subroutine, function or type
    name: str
    arguments: list[str]
    optional: set[str]
    text: list[str]  # paragraphs before it
    declared: dict[str, str]  # what is declared of each argument


def joined(text: str) -> list[str]:
    """Lines, continuations put together."""
    return re.sub(r" *& *\n *&? *", " ", text).splitlines()


def public_names(text: str) -> dict[str, Name]:
    public = set(re.findall(r"\w+", " ".join(re.findall(r"^  public :: (.*)$", text, re.M))))
    found: dict[str, Name] = {}
    before: list[str] = []
    current = None
    for line in joined(text):
        line = line.strip()
        if line.startswith("!>"):
            before.append(line[2:].strip())
            continue
        start = re.match(r"(subroutine|function) (\w+) *\(([^)]*)\)", line)
        kind = re.match(r"type, bind\(C\), public :: (\w+)", line)
        if start and start[2] in public:
            current = Name(start[1], start[2], re.findall(r"\w+", start[3]), set(), before, {})
            found[current.name] = current
        elif kind:
            found[kind[1]] = Name("type", kind[1], [], set(), before, {})
        elif re.match(r"end (subroutine|function)", line):
            current = None
        elif current:
            declare(current, line)
        before = []
    return found


def declare(name: Name, line: str) -> None:
    declaration = re.match(r"([^!]*?) :: ([^!]*)", line)
    if declaration is None or "intent" not in declaration[1]:
        return
    for argument in re.findall(r"\w+", declaration[2]):
        what = declaration[1].replace("dimension(..), ", "").replace("type(*)", "array")
        if ", optional" in what:
            name.optional.add(argument)
        name.declared[argument] = what.replace(", optional", "")


def directive(name: Name) -> list[str]:
    shown = [f"[{x}]" if x in name.optional else x for x in name.arguments]
    lines = [f".. fortran:: {name.kind} {name.name}" + (f"({', '.join(shown)})" if name.kind != "type" else ""), ""]
    if name.text:
        pieces = re.split(r"`(\w+)`", " ".join(name.text))
        lines += ["   " + "".join(f"``{x}``" if i % 2 else escape(x) for i, x in enumerate(pieces)), ""]
    groups: dict[str, list[str]] = {}
    for argument in name.arguments:
        if argument not in ("context", "stat") and argument in name.declared:
            words = name.declared[argument] + (", optional" if argument in name.optional else "")
            groups.setdefault(words, []).append(argument)
    for words, arguments in groups.items():
        lines += ["   - " + ", ".join(f"``{argument}``" for argument in arguments) + f": ``{words}``"]
    return [*lines, ""]
