# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes many faults into one text, each behind a switch of switches.hpp. Lines stay where they are."""

import re

BINARY = {"<": "Less", "<=": "LessEqual", ">": "Greater", ">=": "GreaterEqual", "==": "Equal", "!=": "Unequal",
          "+": "Plus", "-": "Minus", "*": "Times", "/": "Over"}  # fmt: skip
ON = "::attikos_faults::on<{}>()"
OPENING, CLOSING = "([{", ")]}"


def blanked(text: str) -> str:
    """The text with what stands in comments and strings replaced by spaces and underscores."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"',
                  lambda m: re.sub(r"[^\n]", "_" if m.group()[0] == '"' else " ", m.group()), text, flags=re.S)  # fmt: skip


def ends_operand(code: str, at: int, operator: str, leftward: bool) -> bool:
    """Whether the character at depth 0 bounds an operand of && or ||."""
    one = code[at]
    if one in ",;?":
        return True
    if one == ":":
        return code[at - 1] != ":" and code[at + 1] != ":"
    if one == "=":
        return code[at - 1] not in "=<>!" and code[at + 1] != "="
    pair = code[at - 1 : at + 1] if leftward else code[at : at + 2]
    if pair == "||":
        return operator == "&&" or not leftward
    if pair == "&&":
        return operator == "&&" and not leftward
    return leftward and re.search(r"\b(return|case|else|requires)$", code[max(0, at - 10) : at + 1]) is not None


def operands(code: str, begin: int, end: int) -> tuple[int, int]:
    """Where the left operand of the && or || in [begin, end) begins and where the right one ends."""
    operator = code[begin:end]
    found = []
    for leftward in (True, False):
        at, depth = (begin - 1, 0) if leftward else (end, 0)
        opening, closing = (CLOSING, OPENING) if leftward else (OPENING, CLOSING)
        while 0 <= at < len(code):
            if code[at] in opening:
                depth += 1
            elif code[at] in closing:
                if depth == 0:
                    break
                depth -= 1
            elif depth == 0 and ends_operand(code, at, operator, leftward):
                break
            at += -1 if leftward else 1
        found.append(at + 1 if leftward else at)
    return found[0], found[1]


def switched(text: str, faults: list[tuple[int, int, int, str, str]]) -> str:
    """Puts in faults (number, begin, end, operator, by); [begin, end) is what `by` would replace."""
    code = blanked(text)
    # (position, order at one position, what is put in, up to where it replaces). What closes comes before what opens;
    # of two that open the longer comes first, of two that close the shorter.
    edits: list[tuple[int, int, str, int]] = []

    def around(begin: int, end: int, before: str, after: str) -> None:
        while code[begin].isspace():
            begin += 1
        while code[end - 1].isspace():
            end -= 1
        edits.append((begin, 1_000_000 - (end - begin), before, begin))
        edits.append((end, -1_000_000 + (end - begin), after, end))

    for number, begin, end, operator, by in faults:
        on, old = ON.format(number), text[begin:end]
        if operator == "condition":
            around(begin + 1, end - 1, f"{on} || (" if by == "(true)" else f"!{on} && (", ")")
        elif operator == "statement":
            around(begin, end - 1, f"{on} ? void() : static_cast<void>((", "))")
        elif operator == "logic":
            left, right = operands(code, begin, end)
            around(left, right, f"((({on} != static_cast<bool>(", f"))) != {on})")
            edits.append((begin, 2_000_000, f")) {old} ({on} != static_cast<bool>(", end))
        else:
            if operator == "negation":
                new = f"::attikos_faults::Not<{number}>() ->* "
            elif operator == "constant":
                new = f"::attikos_faults::one_for_the_other<{number}>({old})"
            elif operator == "extremum":
                new = f"::attikos_faults::{old[5:]}<{number}>"
                if text[end] == "<":  # std::min<T>: T comes behind the number
                    new, end = new[:-1] + ", ", end + 1
            else:
                new = f"{old} ::attikos_faults::{BINARY[old]}<{number}>() {old}"
            edits.append((begin, 2_000_000, new, end))
    pieces, done = [], 0
    for at, _, new, end in sorted(edits):
        pieces += [text[done:at], new]
        done = max(done, end)
    return "".join([*pieces, text[done:]])
