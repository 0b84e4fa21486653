# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Notebooks as pages: their cells and the output that is stored with them. Nothing is run, since the site wants no
libattikos; tests/docs/python_examples.py runs them and compares the output."""

from __future__ import annotations

import json
from typing import Any

from myst_parser.parsers.sphinx_ import MystParser


def markdown(text: str) -> str:
    """A notebook's cells as a page of MyST."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            for output in cell["outputs"]:
                parts.append("```output\n" + "".join(output["text"]).rstrip("\n") + "\n```")
    return "\n\n".join(parts) + "\n"


class NotebookParser(MystParser):
    supported = ("notebook",)

    def parse(self, inputstring: str, document: Any) -> None:
        super().parse(markdown(inputstring), document)


def setup(app: Any) -> dict[str, Any]:
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
