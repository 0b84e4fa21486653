# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The faults that tests/mutate.py puts into headers."""

import dataclasses
import pathlib
import re

from mutation.families import FAMILIES

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"

# (name, what is replaced, by what); a name's pattern stands between spaces as clang-format sets them.
OPERATORS = [
    ("relation", r"(?<= )<(?= )", "<="), ("relation", r"(?<= )<=(?= )", "<"),
    ("relation", r"(?<= )>(?= )", ">="), ("relation", r"(?<= )>=(?= )", ">"),
    ("relation", r"(?<= )==(?= )", "!="), ("relation", r"(?<= )!=(?= )", "=="),
    ("arithmetic", r"(?<= )\+(?= )", "-"), ("arithmetic", r"(?<= )-(?= )", "+"),
    ("arithmetic", r"(?<=[\w)\]] )\*(?= [\w(])", "/"), ("arithmetic", r"(?<= )/(?= )", "*"),
    ("logic", r"(?<= )&&(?= )", "||"), ("logic", r"(?<= )\|\|(?= )", "&&"),
    ("negation", r"(?<=[ (])!(?=[\w(])", ""),
    ("constant", r"(?<=[ (])0(?=[,;)])", "1"), ("constant", r"(?<=[ (])1(?=[,;)])", "0"),
    ("extremum", r"\bstd::min\b", "std::max"), ("extremum", r"\bstd::max\b", "std::min"),
    ("statement", r"^ +[\w.\[\]()>-]+ [+*|/-]?= [^;{}]*;$", ";"),
    ("statement", r"^ +(?:[\w:]+(?:<[\w, :]*>)?)\([^;{}]*\);$", ";"),
    ("condition", r"(?<=\bif )\((?!constexpr)[^{}]*\)(?= \{$|$| return| raise| continue| break)", "(true)"),
    ("condition", r"(?<=\bif )\((?!constexpr)[^{}]*\)(?= \{$|$| return| raise| continue| break)", "(false)"),
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mutant:
    family: str
    header: str
    line: int  # from 1
    begin: int
    end: int
    operator: str
    by: str

    def text(self) -> str:
        lines = (INCLUDE / "attikos" / self.header).read_text(encoding="utf-8").split("\n")
        old = lines[self.line - 1]
        lines[self.line - 1] = old[: self.begin] + self.by + old[self.end :]
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = (INCLUDE / "attikos" / self.header).read_text(encoding="utf-8").split("\n")
        old = lines[self.line - 1]
        new = old[: self.begin] + self.by + old[self.end :]
        return f"{self.header}:{self.line}: {self.operator}: {old.strip()}  ->  {new.strip()}"

    def is_of_compile_time(self) -> bool:
        """Whether the line says something to the compiler alone: the program is the same with or without."""
        line = (INCLUDE / "attikos" / self.header).read_text(encoding="utf-8").split("\n")[self.line - 1]
        asserts = r"\s*(?:detail::)?check_(?:tensor|output|writable)(?:<[^()]*>)?\("
        return "requires" in line or self.operator == "statement" and re.match(asserts, line) is not None

    def key(self) -> str:
        """What stays the same when lines above change."""
        return str(self).replace(f":{self.line}:", ":", 1)


def mutants_of(family: str) -> list[Mutant]:
    found = []
    for header in FAMILIES[family][0]:
        inside_comment, before = False, ";"  # the last character of the code above
        for number, line in enumerate((INCLUDE / "attikos" / header).read_text(encoding="utf-8").split("\n"), 1):
            code = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: "_" * len(m.group()), line.split("//")[0])
            inside_comment = (inside_comment or "/*" in code) and "*/" not in code
            above, before = before, code.rstrip()[-1:] or before
            if inside_comment or re.match(r"\s*(#|template|static_assert|using|namespace|friend|concept)", code):
                continue
            if "constexpr" in code or "static_cast<" in code and "==" not in code and " = " not in code:
                continue
            for operator, pattern, by in OPERATORS:
                if operator == "statement" and above not in ";{})":  # the end of one
                    continue
                for match in re.finditer(pattern, code):
                    found.append(Mutant(family, header, number, match.start(), match.end(), operator, by))
    return found
