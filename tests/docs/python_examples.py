# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the Python of the README, of the site's pages and of its notebooks.

  python_examples.py             pages' blocks in their order, one page after the other
  python_examples.py PAGE...     these pages

The blocks of a page (```python) share their names, as they would at a prompt. What a block prints is compared with the
```output that follows it. Where PyTorch is not installed a page ends before the block that imports it, and the end of
the run says how many are left; .ci/run wheel has PyTorch and runs all. Calls of other libraries are shown as
{code-block} and are not run. A cell of a notebook (.ipynb) is a block, and its stored output has the same words as what it
prints, and numbers within a factor of four, because errors are not the same bits on every processor.
"""

import contextlib
import importlib.util
import io
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)(```+)(python|output)\n(.*?)^\1\2 *$", re.M | re.S)


NUMBER = re.compile(r"\d+\.\d+e[-+]\d+")


def cells(page: pathlib.Path) -> "list[tuple[str, int, str]]":
    """(language, number of the cell, text) of a notebook."""
    found = []
    for i, cell in enumerate(json.loads(page.read_text(encoding="utf-8"))["cells"], 1):
        if cell["cell_type"] == "code":
            found.append(("python", i, "".join(cell["source"])))
            found += [("output", i, "".join(output["text"])) for output in cell["outputs"]]
    return found


def alike(printed: str, shown: str, page: pathlib.Path) -> bool:
    if page.suffix != ".ipynb":
        return printed.rstrip() == shown.rstrip()
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown))
    same_words = NUMBER.sub("#", printed).rstrip() == NUMBER.sub("#", shown).rstrip()
    # Errors of float64 are a few roundings of the reference's own, which depend on the processor.
    roundings = 16 * 2**-52
    return same_words and all(
        float(b) / 4 <= float(a) <= float(b) * 4 or max(float(a), float(b)) <= roundings for a, b in pairs
    )


def blocks(page: pathlib.Path) -> "list[tuple[str, int, str]]":
    """(language, line, text) of a page."""
    if page.suffix == ".ipynb":
        return cells(page)
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        indent = len(match[1])
        lines = [line[indent:] for line in match[4].splitlines()]
        found.append((match[3], text[: match.start()].count("\n") + 2, "\n".join(lines) + "\n"))
    return found


def run(page: pathlib.Path, has_torch: bool) -> "tuple[int, int, str]":
    """Blocks that ran, blocks that were left, and what was wrong."""
    names: "dict[str, object]" = {"__name__": "__main__"}
    ran, printed, name = 0, "", page.relative_to(ROOT)
    found = blocks(page)
    for i, (language, line, text) in enumerate(found):
        if language == "output":
            if not alike(printed, text, page):
                return ran, 0, f"{name}:{line}: printed\n{printed}where the page shows\n{text}"
            continue
        if re.search(r"^\s*(import|from) (torch|attikos\.integrations)\b", text, re.M) and not has_torch:
            return ran, sum(kind == "python" for kind, *_ in found[i:]), ""
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * (line - 1) + text, str(page), "exec"), names)  # errors tell the page's lines
        except Exception as error:
            import traceback

            traceback.print_exc()
            return ran, 0, f"{name}:{line}: {type(error).__name__}: {error}"
        printed = out.getvalue()
        ran += 1
    return ran, 0, ""


def main(arguments: "list[str]") -> int:
    pages = [pathlib.Path(argument).resolve() for argument in arguments]
    docs = [page for kind in ("md", "ipynb") for page in sorted((ROOT / "docs").rglob(f"*.{kind}"))]
    pages = pages or [ROOT / "README.md", *docs]
    has_torch = importlib.util.find_spec("torch") is not None
    total, left, problems = 0, 0, []
    for page in pages:
        ran, unseen, problem = run(page, has_torch)
        total, left = total + ran, left + unseen
        problems += [problem] if problem else []
    for problem in problems:
        print(problem)
    print(f"{total} blocks ran" + (f", {left} want PyTorch" if left else ""))
    return 1 if problems or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
