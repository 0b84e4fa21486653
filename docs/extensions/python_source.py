# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python package's public names, read from its source: an import would want libattikos, and the site does not."""

from __future__ import annotations

import ast
import pathlib
import re

from doxygen import escape


def parse(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def exported(module: ast.Module) -> list[str]:
    """`__all__`, or without it what is defined in the module under a name without an underscore in front."""
    for node in module.body:
        if isinstance(node, ast.Assign) and any(getattr(x, "id", "") == "__all__" for x in node.targets):
            return list(ast.literal_eval(node.value))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in module.body if isinstance(node, kinds) and not node.name.startswith("_")]


def public_modules(package: pathlib.Path) -> list[str]:
    """Modules that are imported by their own names: those under no underscore."""
    names = []
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        if not any(part.startswith("_") and part != "__init__" for part in parts):
            names.append(".".join(part for part in parts if part != "__init__"))
    return names


def file_of(package: pathlib.Path, module: str) -> pathlib.Path:
    path = package.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def definition(package: pathlib.Path, module: str, name: str, depth: int = 0) -> tuple[str, ast.AST | None]:
    """The module that defines a name which another one has, and where it does so."""
    tree = parse(file_of(package, module))
    is_package = file_of(package, module).name == "__init__.py"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name and node in tree.body:
            return module, node
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(x, "id", "") == name for x in targets):
                return module, node
        if isinstance(node, ast.ImportFrom) and depth < 5:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    base = module.split(".") if is_package else module.split(".")[:-1]
                    base = base[: len(base) - max(node.level - 1, 0)] if node.level else []
                    source = ".".join([*base, *([node.module] if node.module else [])])
                    if file_of(package, source).exists():
                        return definition(package, source, alias.name, depth + 1)
    return module, None


def arguments(node: ast.FunctionDef) -> str:
    text = ast.unparse(node.args)
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"({text}){result}"


LITERAL = re.compile(r"`([^`]+)`|(\b[a-z_][\w.]*\(\))|(\"[a-z0-9_ ]+\")")


def prose(text: str) -> str:
    """A sentence of a docstring, with names of functions and what is in quotes or backticks set as code."""
    parts, last = [], 0
    for match in LITERAL.finditer(text):
        parts += [escape(text[last:match.start()]), f"``{match[0].strip('`')}``"]
        last = match.end()
        if text[last : last + 1].isalnum():
            parts.append("\\ ")
    return "".join([*parts, escape(text[last:])])


def docstring(node: ast.AST | None) -> list[str]:
    text = ast.get_docstring(node) if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) else None
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text or ""):
        rows = block.splitlines()
        if not rows:
            continue
        if all(row.startswith((" ", ">>>")) for row in rows if row):
            lines += ["", "::", ""] + ["    " + row for row in rows]
        elif all(re.match(r"[\w, ]+: \S|\s", row) for row in rows) and len(rows) > 1:
            lines.append("")
            for row in rows:
                match = re.match(r"([\w, ]+): (.*)", row)
                lines.append(f":{match[1]}: {prose(match[2])}" if match else "    " + prose(row.strip()))
        else:
            lines += ["", prose(" ".join(row.strip() for row in rows))]
    return lines


def options_told(node: ast.FunctionDef, meanings: dict[str, list[tuple[str, str, str, str]]]) -> list[str]:
    """What `_library.documented(operation)` adds when the package is imported."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("documented"):
            table = f"{ast.literal_eval(decorator.args[0])}_options"
            told = {row[1]: row[3] for row in meanings[table] if row[0] not in ("choice", "text")}
            names = [a.arg for a in [*node.args.args, *node.args.kwonlyargs]]
            rows = [f":param {name}: {escape(told[name].replace('null', 'None'))}" for name in names if name in told]
            return ["", *rows]
    return []


def describe(name: str, node: ast.AST | None, meanings: dict[str, list[tuple[str, str, str, str]]]) -> list[str]:
    """Directives of Sphinx's Python domain for what is defined there."""
    if isinstance(node, ast.FunctionDef):
        body = [*docstring(node), *options_told(node, meanings)]
        return [f".. py:function:: {name}{arguments(node)}", "", *("   " + line if line else "" for line in body), ""]
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        kind = "exception" if any("Error" in base or "Exception" in base for base in bases) else "class"
        lines = [docstring(node), [f"Bases: {', '.join(f'``{base}``' for base in bases)}"] if bases else []]
        body = [line for part in lines for line in ["", *part]]
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and (not member.name.startswith("_") or member.name == "__init__"):
                if any(ast.unparse(d) == "overload" for d in member.decorator_list):
                    continue
                decorators = [ast.unparse(decorator) for decorator in member.decorator_list]
                property_ = "property" in decorators or "functools.cached_property" in decorators
                signature = arguments(member).replace("(self, ", "(", 1).replace("(self)", "()", 1)
                if member.name == "__init__" and not ast.get_docstring(member):
                    name = name.partition("(")[0] + signature.partition(" -> ")[0]
                    continue
                head = f".. py:property:: {member.name}" if property_ else f".. py:method:: {member.name}{signature}"
                body += ["", head, "", *("   " + line if line else "" for line in docstring(member))]
            elif isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
                value = [f"   :value: {ast.unparse(member.value)}"] if member.value is not None else []
                body += ["", f".. py:attribute:: {ast.unparse(member.target)}",
                         f"   :type: {ast.unparse(member.annotation)}", *value]  # fmt: skip
            elif isinstance(member, ast.Assign) and "Enum" in " ".join(bases):
                body += ["", f".. py:attribute:: {ast.unparse(member.targets[0])}",
                         f"   :value: {ast.unparse(member.value)}"]  # fmt: skip
        return [f".. py:{kind}:: {name}", "", *("   " + line if line else "" for line in body), ""]
    told = {"__version__": "The version of the library that was loaded, such as ``0.1.0``."}.get(name, "")
    return [f".. py:data:: {name}", "", f"   {told}" if told else "", ""]


def elsewhere(name: str, source: str, node: ast.AST | None) -> list[str]:
    """A name that a module passes on from where it is defined."""
    documented = source if source.startswith(("attikos.flash_attn", "attikos.compat")) else "attikos"
    kind = "class" if isinstance(node, ast.ClassDef) else "function"
    signature = arguments(node) if isinstance(node, ast.FunctionDef) else ""
    return [f".. py:{kind}:: {name}{signature}", "", f"   As :py:obj:`{documented}.{name}`.", ""]
