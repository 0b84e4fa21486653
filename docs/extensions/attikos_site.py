# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the site needs beyond Sphinx: reference pages from the sources, pictures from text, plots from records, links to
files of the repository.

Directives:
  cxx-reference    public names of headers; a word names a header below include/attikos, or several by a pattern
  c-reference      the same, of headers below bindings/c/include/attikos
  python-reference public names of a module: its name, then names in it; without those all that it exports
  fortran-reference procedures and types of the Fortran module
  repository-page  a Markdown file of the repository that lies outside docs/
  measured         a plot of a record of the repository, drawn when the site is built (plots.py has them by name)
  dot-picture      a picture in Graphviz's language, of a file beside the page
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import doxygen
import fortran_source
import plots
import python_source
from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "bindings/python/attikos"
FORTRAN = ROOT / "bindings/fortran/attikos.f90"

meanings: dict[str, list[tuple[str, str, str, str]]] = {}
headers: dict[str, list[doxygen.Entity]] = {}


def load(app: Sphinx, *_: Any) -> None:
    meanings.update(doxygen.option_meanings(ROOT, os.environ.get("CXX", "c++")))
    xml = doxygen.run(ROOT, pathlib.Path(app.doctreedir).parent / "doxygen")
    headers.update(doxygen.Headers(xml, meanings).entities)


class Reference(SphinxDirective):
    has_content = True
    optional_arguments = 100

    def words(self) -> list[str]:
        return [word for line in [*self.arguments, *self.content] for word in line.split()]

    def restructured(self, lines: list[str]) -> list[nodes.Node]:
        """Nodes of reStructuredText in a page of Markdown."""
        fence = "`" * 9
        holder = nodes.Element()
        self.state.nested_parse(StringList([fence + "{eval-rst}", *lines, fence], self.env.docname), 0, holder)
        return holder.children

    def inserted(self, html: str) -> list[nodes.Node]:
        return [nodes.raw("", html, format="html")]


class HeaderReference(Reference):
    prefix, domain = "attikos/", "cpp"

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for word in self.words():
            # A pattern gives what no header by name gives, here or on another page.
            names = [self.prefix + word]
            if names[0] not in headers:
                named = self.env.config.named_headers
                names = sorted(x for x in headers if fnmatch.fnmatch(x, self.prefix + word) and x not in named)
            if not names:
                raise self.error(f"no header with public names is called {word}")
            for name in names:
                self.env.note_dependency(str(ROOT / "include" / name))
                lines += ["", f".. rubric:: {name}", "   :class: header-name", ""]
                for entity in headers[name]:
                    lines += doxygen.directive(entity, self.domain)
        return self.restructured(lines)


class CReference(HeaderReference):
    domain = "c"


class PythonReference(Reference):
    def run(self) -> list[nodes.Node]:
        module, *names = self.words()
        file = python_source.file_of(PACKAGE, module)
        self.env.note_dependency(str(file))
        tree = python_source.parse(file)
        lines = [f".. py:module:: {module}", ""] if not names else [f".. py:currentmodule:: {module}", ""]
        if not names:
            lines += [*python_source.docstring(tree), ""]
        for name in names or python_source.exported(tree):
            source, node = python_source.definition(PACKAGE, module, name)
            self.env.note_dependency(str(python_source.file_of(PACKAGE, source)))
            if node is None:
                raise self.error(f"{module} has no {name}")
            if module != "attikos" and source != module and not source.startswith(f"{module}._"):
                lines += python_source.elsewhere(name, source, node)
            else:
                lines += python_source.describe(name, node, meanings)
        return self.restructured(lines)


class FortranReference(Reference):
    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(FORTRAN))
        found = fortran_source.public_names(FORTRAN.read_text(encoding="utf-8"))
        lines: list[str] = []
        for name in self.words():
            if name not in found:
                raise self.error(f"the module has no {name}")
            lines += fortran_source.directive(found[name])
        return self.restructured(lines)


def fortran_signature(env: Any, text: str, node: addnodes.desc_signature) -> str:
    """`kind name(arguments)`, an optional argument in brackets; the name is what the index has."""
    kind, name, arguments = re.fullmatch(r"(\w+) (\w+)(?:\((.*)\))?", text).groups()  # type: ignore[union-attr]
    node += addnodes.desc_annotation("", "", nodes.Text(kind), addnodes.desc_sig_space())
    node += addnodes.desc_name(name, name)
    if arguments is not None:
        parameters = addnodes.desc_parameterlist()
        for argument in arguments.split(", ") if arguments else []:
            holder = addnodes.desc_optional() if argument.startswith("[") else parameters
            holder += addnodes.desc_parameter("", "", addnodes.desc_sig_name("", argument.strip("[]")))
            if holder is not parameters:
                parameters += holder
        node += parameters
    return name


class RepositoryPage(Reference):
    def run(self) -> list[nodes.Node]:
        file = ROOT / self.words()[0]
        self.env.note_dependency(str(file))
        text = relinked(self.env.docname, file, file.read_text(encoding="utf-8"))
        text = re.sub(r"^# .*\n", "", text, count=1)
        before, heading, after = text.partition("\n## ")
        nodes_before, section = nodes.Element(), nodes.section()
        section.document = self.state.document
        self.state.nested_parse(StringList(before.splitlines(), str(file)), 0, nodes_before)
        if heading:
            self.state.nested_parse(StringList(f"## {after}".splitlines(), str(file)), 0, section, match_titles=True)
        return [*nodes_before.children, *section.children]


class Measured(Reference):
    def run(self) -> list[nodes.Node]:
        name = self.words()[0]
        for record in plots.RECORDS[name]:
            self.env.note_dependency(str(ROOT / record))
        svg, alternative = plots.draw(name, ROOT)
        caption, messages = self.state.inline_text(plots.caption(name, ROOT), self.lineno)
        return [
            *self.inserted(f'<div class="figure-box" role="img" aria-label="{alternative}">{svg}</div>'),
            nodes.paragraph("", "", *caption, classes=["figure-caption"]), *messages,
        ]  # fmt: skip


class DotPicture(Reference):
    def run(self) -> list[nodes.Node]:
        source, *words = self.words()
        file = DOCS / pathlib.PurePath(self.env.docname).parent / source
        self.env.note_dependency(str(file))
        done = subprocess.run(["dot", "-Tsvg", str(file)], capture_output=True, text=True, check=True)
        svg = done.stdout[done.stdout.index("<svg") :]
        style = r'<svg style="min-width: 36rem; max-width: \1pt; width: 100%"'
        svg = re.sub(r'<svg width="(\d+)pt" height="\d+pt"', style, svg, count=1)
        svg = re.sub(r'="black"', '="currentColor"', svg)
        svg = re.sub(r'<text ((?:(?!fill=).)*?)>', r'<text fill="currentColor" \1>', svg)
        svg = re.sub(r"<title>.*?</title>\n?", "", svg)
        return self.inserted(f'<div class="figure-box" role="img" aria-label="{" ".join(words)}">{svg}</div>')


class LongNames(SphinxPostTransform):
    """Lets lists of names in tables break at their commas, which no style sheet can."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        for entry in self.document.findall(nodes.entry):
            for literal in entry.findall(nodes.literal):
                text = literal.astext()
                if len(text) > 36 and "," in text:
                    literal.children = [nodes.Text(text.replace(",", ",\u200b"))]
                    literal.children[0].parent = literal


# --- links to files of the repository -----------------------------------------------------------------------------

LINK = re.compile(r"\[([^\[\]]*)\]\(([^)#:\s]+)((?:#[^)]*)?)\)")
FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.M | re.S)
copied: set[str] = set()  # files that links lead to


def relinked(docname: str, file: pathlib.Path, text: str) -> str:
    """A page whose links to files outside docs/ lead to copies of them, which the site brings along."""
    depth = docname.count("/")
    here = DOCS / pathlib.PurePath(docname).parent

    def place(match: re.Match[str]) -> str:
        words, path, section = match.groups()
        target = (file.parent / path).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return match[0]
        if target.is_dir():
            target /= "README.md"
            if not target.exists():  # a folder is nothing to show
                return words
        name = target.relative_to(ROOT).as_posix()
        target = DOCS / PAGES[name] if name in PAGES else target
        if target.is_relative_to(DOCS) and target.suffix in (".md", ".ipynb"):
            return f"[{words}]({os.path.relpath(target, here)}{section})"
        copied.add(name)
        scheme = "picture" if name.endswith(".png") else "repository"
        return f"[{words}]({scheme}{depth}:{name})"

    pieces, last = [], 0
    for fence in FENCED.finditer(text):
        pieces += [LINK.sub(place, text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*pieces, LINK.sub(place, text[last:])])


# Files of the repository that are pages here.
PAGES = {"CONTRIBUTING.md": "guide/contributing.md", "perf/shortfalls.md": "guide/shortfalls.md",
         "README.md": "index.md", "tests/docs/gradient_maxima.md": "guide/gradient_maxima.md"}  # fmt: skip


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = relinked(docname, pathlib.Path(app.env.doc2path(docname)), source[0])


def copy_linked(app: Sphinx, failure: Exception | None) -> None:
    if failure is not None or app.builder.format != "html":
        return
    # Pages may have been read in another process, or not at all because nothing in them has changed.
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        relinked("page", page, text)
        for name in re.findall(r"^```\{repository-page\} (\S+)", text, re.M):
            relinked("page", ROOT / name, (ROOT / name).read_text(encoding="utf-8"))
    for name in sorted(copied):
        target = pathlib.Path(app.outdir) / "repository" / f"{name}.txt"
        if name.endswith(".png"):
            target = target.with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)


def named_headers() -> list[str]:
    """Headers that pages name without a pattern."""
    names = []
    for page in sorted(DOCS.rglob("*.md")):
        for body in re.findall(r"^```\{cxx-reference\}(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            names += ["attikos/" + word for word in body.split() if "*" not in word]
    return names


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("named_headers", named_headers(), "env")
    app.connect("builder-inited", load)
    app.connect("source-read", read_page)
    app.connect("build-finished", copy_linked)
    app.add_post_transform(LongNames)
    app.add_directive("cxx-reference", HeaderReference)
    app.add_directive("c-reference", CReference)
    app.add_directive("python-reference", PythonReference)
    app.add_directive("fortran-reference", FortranReference)
    app.add_object_type("fortran", "fortran", objname="Fortran", parse_node=fortran_signature)
    app.add_directive("repository-page", RepositoryPage)
    app.add_directive("measured", Measured)
    app.add_directive("dot-picture", DotPicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
