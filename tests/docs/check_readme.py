# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the README's C++ is the compiled example, letter for letter, that its links lead somewhere, and that
each figure it cites from perf/results/ names a file that exists."""

import pathlib
import re
import sys


def main(root: pathlib.Path) -> int:
    problems = []
    readme = (root / "README.md").read_text(encoding="utf-8")
    example = (root / "examples/first_steps/main.cpp").read_text(encoding="utf-8").strip()
    blocks = re.findall(r"```cpp\n(.*?)```", readme, re.S)
    if [block.strip() for block in blocks] != [example]:
        problems.append("README.md: its C++ block differs from examples/first_steps/main.cpp")
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (root / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            if not (root / target).exists():
                problems.append(f"{document}: link to {target}, which does not exist")
        for cited in re.findall(r"`(perf/results/[^`*]+)`", text):
            if not (root / cited).exists():
                problems.append(f"{document}: cites {cited}, which does not exist")
    for command in ("cmake --workflow --preset demo", "cmake --workflow --preset test"):
        if command not in readme:
            problems.append(f"README.md: does not show `{command}`")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
