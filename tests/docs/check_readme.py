# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the README is short and its C++ the compiled example, letter for letter, that links of all pages lead
somewhere, that each figure cited from perf/results/ names a file that exists, that docs/kernels.md has a row for each
kernel of the companion and for no other, and that the README names the cards on which an operation has such kernels."""

import pathlib
import re
import sys

MOST_LINES = 200  # of the README: a newcomer reads it in three minutes, the rest is in docs/


def sections(page: pathlib.Path) -> set[str]:
    """Names by which the headings of a page are linked to."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def compiled_kernels(root: pathlib.Path) -> set[str]:
    """Names by which the companion's kernels are declared."""
    texts = (header.read_text(encoding="utf-8") for header in root.glob("include/attikos/abi/*.hpp"))
    return {name for text in texts for name in re.findall(r'name = "([a-z_]+/[a-z0-9_]+)"', text)}


def listed_kernels(page: pathlib.Path) -> set[str]:
    """Names in the first cells of a table; `_bf16` after `gemm/sm80_mma_f16` stands for `gemm/sm80_mma_bf16`."""
    names = set()
    for cell in re.findall(r"^\| (`[a-z_]+/sm\d\d_.*?) \|", page.read_text(encoding="utf-8"), re.M):
        name = ""
        for word in re.findall(r"`([a-z0-9_]*/?_?[a-z0-9_]+)`", cell):
            if "/" in word:
                name = word
            elif word.startswith("_"):
                name = name.rsplit("_", 1)[0] + word
            else:
                continue
            names.add(name)
    return names


def cards(page: pathlib.Path) -> dict[str, set[str]]:
    """Of each operation the cards from which on, or on which alone, a kernel in the tables of docs/kernels.md runs."""
    found: dict[str, set[str]] = {}
    row = re.compile(r"^\| `([a-z_]+)/[a-z0-9_]+` \| (sm_\d+) (?:on|alone) \|", re.M)
    for operation, card in row.findall(page.read_text(encoding="utf-8")):
        found.setdefault(operation, set()).add({"sm_90": "Hopper"}.get(card, card))
    return found


def cards_in_readme(readme: str) -> dict[str, set[str]]:
    """The same by the table under "What runs where"; a clause is of the operations it names, else of its row's."""
    found = {}
    table = readme.split("## What runs where", 1)[1].split("\n## ", 1)[0]
    for operations, clauses in re.findall(r"^\| (`.*?) \|.*\| (.*?) \|$", table, re.M):
        for clause in re.split(r"[;(]", clauses):
            names = re.findall(r"`([a-z_]+)`", clause) or re.findall(r"`([a-z_]+)`", operations)
            found |= {name: set(re.findall(r"sm_\d+|Hopper", clause)) for name in names}
    return {name: on for name, on in found.items() if on}


def main(root: pathlib.Path) -> int:
    problems = []
    readme = (root / "README.md").read_text(encoding="utf-8")
    example = (root / "examples/first_steps/main.cpp").read_text(encoding="utf-8").strip()
    blocks = re.findall(r"```cpp\n(.*?)```", readme, re.S)
    if [block.strip() for block in blocks] != [example]:
        problems.append("README.md: its C++ block differs from examples/first_steps/main.cpp")
    if readme.count("\n") > MOST_LINES:
        problems.append(f"README.md: longer than {MOST_LINES} lines")
    pages = [*root.glob("*.md"), *root.glob("docs/*.md"), root / "perf/shortfalls.md"]
    for document in sorted(page.relative_to(root) for page in pages):
        text = (root / document).read_text(encoding="utf-8")
        for target, section in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
            page = root / document.parent / target if target else root / document
            if not page.exists():
                problems.append(f"{document}: link to {target}, which does not exist")
            elif section and section not in sections(page):
                problems.append(f"{document}: link to #{section} of {page.name}, which has no such heading")
        for cited in re.findall(r"`(perf/results/[^`*]+)`", text):
            if not (root / cited).exists():
                problems.append(f"{document}: cites {cited}, which does not exist")
    compiled, listed = compiled_kernels(root), listed_kernels(root / "docs/kernels.md")
    problems += [f"docs/kernels.md: no row for {name}" for name in sorted(compiled - listed)]
    problems += [f"docs/kernels.md: {name} is no kernel of the companion" for name in sorted(listed - compiled)]
    told, real = cards_in_readme(readme), cards(root / "docs/kernels.md")
    problems += [
        f"README.md: kernels of {name} run on {', '.join(sorted(told.get(name, {'no card'})))}; docs/kernels.md has "
        f"{', '.join(sorted(real.get(name, {'none'})))}"
        for name in sorted(told.keys() | real.keys()) if told.get(name) != real.get(name)
    ]
    for command in ("cmake --workflow --preset demo", "cmake --workflow --preset test"):
        if command not in readme:
            problems.append(f"README.md: does not show `{command}`")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
