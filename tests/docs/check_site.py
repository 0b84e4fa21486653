# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of the built site: no public name is missing, every link within it leads somewhere, it loads nothing else.

  check_site.py ROOT HTML             what the target docs runs
  check_site.py ROOT HTML --external  asks for every page on other hosts that the site links to

What is public is read from the headers and modules here, by rules that share nothing with those that build the pages.
"""

import ast
import collections
import html.parser
import pathlib
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
import zlib

ROOMS_INSIDE = {"core", "abi", "detail"}  # whose headers users do not include; what pages name of them is documented


def inventory(site: pathlib.Path) -> set[tuple[str, str]]:
    """(domain, name) of everything that the site documents."""
    data = (site / "objects.inv").read_bytes()
    text = zlib.decompress(data.split(b"\n", 4)[4]).decode()
    found = set()
    for line in text.splitlines():
        match = re.match(r"(.+?)\s+(\w+):[\w-]+\s+-?\d+\s", line)
        if match:
            found.add((match[2], match[1]))
    return found


def bare(text: str) -> str:
    """A header without comments, strings, lines of the preprocessor and bodies of functions and structs."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    return text


def declared(text: str) -> set[str]:
    """Names that a header declares in namespaces other than detail: by counting braces."""
    names, stack, start = set(), [], 0
    for match in re.finditer(r"[{};]", text):
        before = text[start : match.start()].strip()
        start = match.end()
        outside = all(kind.startswith("namespace") for kind in stack)
        public = outside and not any(kind.split()[-1] in ("detail", "std", "abi") for kind in stack)
        if match[0] in "{;" and public and before:
            names |= names_of(before, match[0])
        if match[0] == "{":
            space = re.search(r"namespace\s+([\w:]+)\s*$", before)
            stack.append(f"namespace {space[1]}" if space else "namespace C" if before.startswith("extern") else "body")
        elif match[0] == "}" and stack:
            stack.pop()
    return names


def names_of(before: str, end: str) -> set[str]:
    code = re.sub(r"^\s*(?:template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*)+", "", before)
    code = re.sub(r"requires\s*\((?:[^()]|\([^()]*\))*\)", "", code)
    if re.match(r"(using namespace|friend|static_assert|namespace|inline namespace|extern template)", code):
        return set()
    alias = re.match(r"using\s+(\w+)\s*=", code) or re.match(r"(?:concept)\s+(\w+)", code)
    if alias:
        return {alias[1]}
    kind = re.match(r"(?:enum\s+class|enum|struct|class)\s+(\w+)\s*(?!.*\()(<)?", code)
    if kind:
        return set() if end == ";" or kind[2] or re.match(r"(?:struct|class)\s+\w+\s*<", code) else {kind[1]}
    variable = re.match(r"inline constexpr [\w:<>, ]*?(\w+)\s*(?:=|\{|$)", code)
    if variable:
        return set() if re.search(r"\b\w+<.*>\s*=", code) else {variable[1]}
    function = re.search(r"([\w:]+)\s*\(", code)
    if function and "=" not in code[: function.start()] and "::" not in function[1] and "operator" not in code:
        return {function[1]}
    return set()


def cxx_names(root: pathlib.Path) -> dict[str, set[str]]:
    found = {}
    for header in sorted((root / "include/attikos").rglob("*.hpp")):
        rooms = header.relative_to(root / "include/attikos").parts[:-1]
        if not set(rooms) & ROOMS_INSIDE and rooms[:1] not in (("host",), ("ptx",)):
            found[str(header.relative_to(root / "include"))] = declared(bare(header.read_text(encoding="utf-8")))
    return found


def c_names(root: pathlib.Path) -> set[str]:
    names = set()
    for header in (root / "bindings/c/include").rglob("*.h"):
        text = bare(header.read_text(encoding="utf-8"))
        names |= set(re.findall(r"ATTIKOS_API[^;{]*?\b(\w+)\s*\(", text))
        names |= set(re.findall(r"typedef\s+ATTIKOS_ENUM\((\w+)\)", text))
        names |= set(re.findall(r"typedef\s+struct\s+(\w+)", text))
    return names


def python_names(root: pathlib.Path) -> set[str]:
    """What the package and every module that has an `__all__` export."""
    names = set()
    package = root / "bindings/python/attikos"
    for file in package.rglob("*.py"):
        parts = [part for part in file.relative_to(package.parent).with_suffix("").parts if part != "__init__"]
        if any(part.startswith("_") for part in parts):
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                names |= {".".join([*parts, name]) for name in ast.literal_eval(node.value)}
    return names


def fortran_names(root: pathlib.Path) -> set[str]:
    """What the module makes public, but for what is written into it from attikos.h."""
    text = (root / "bindings/fortran/attikos.f90").read_text(encoding="utf-8").lower()
    names = re.findall(r"\bpublic\s*::([^!\n]*)", text)
    return {name for part in names for name in re.findall(r"[a-z]\w*", part)}


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, "str | None"]]) -> None:
        given = dict(attributes)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        elif tag in ("script", "img", "iframe") and given.get("src"):
            self.loaded.append(given["src"] or "")
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(given["href"] or "")


def read(site: pathlib.Path) -> dict[pathlib.Path, Page]:
    pages = {}
    for file in sorted(site.rglob("*.html")):
        pages[file] = Page()
        pages[file].feed(file.read_text(encoding="utf-8"))
    return pages


def broken(site: pathlib.Path, pages: dict[pathlib.Path, Page]) -> list[str]:
    problems = []
    for file, page in pages.items():
        name = file.relative_to(site)
        problems += [f"{name}: loads {x}, which is not of the site" for x in page.loaded if "//" in x]
        for link in [*page.links, *(x for x in page.loaded if "//" not in x)]:
            target, _, anchor = link.partition("#")
            target = urllib.parse.unquote(target.partition("?")[0])
            if ":" in target.split("/")[0] or target.startswith("//"):
                continue
            to = (file.parent / target).resolve() if target else file
            if not to.is_file():
                problems.append(f"{name}: a link to {link}, which does not exist")
            elif anchor and to in pages and urllib.parse.unquote(anchor) not in pages[to].anchors:
                problems.append(f"{name}: a link to {link}, where there is no such place")
    return problems


def external(pages: dict[pathlib.Path, Page]) -> list[str]:
    """Links to other hosts that do not answer with a page."""
    problems = []
    for link in sorted({x.partition("#")[0] for page in pages.values() for x in page.links if x.startswith("http")}):
        request = urllib.request.Request(link, headers={"User-Agent": "Mozilla/5.0 (link check)"})
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                problems.append(f"{link}: {error.code}")
        except OSError as error:
            problems.append(f"{link}: {error}")
    return problems


def main(root: pathlib.Path, site: pathlib.Path, *options: str) -> int:
    pages = read(site)
    if options == ("--external",):
        problems = external(pages)
        print("\n".join([*problems, f"counts: {len(pages)} pages, {len(problems)} links to other hosts do not answer"]))
        return 1 if problems else 0
    documented = inventory(site)
    last = collections.defaultdict(set)
    for domain, name in documented:
        last[domain].add(name.rpartition("::")[2])
    counts, problems = collections.Counter(), []
    for header, names in cxx_names(root).items():
        counts["C++"] += len(names)
        problems += [f"{header}: {name} is on no page" for name in sorted(names - last["cpp"])]
    c, python = c_names(root), python_names(root)
    counts["C"], counts["Python"] = len(c), len(python)
    problems += [f"C: {name} is on no page" for name in sorted(c) if ("c", name) not in documented]
    problems += [f"Python: {name} is on no page" for name in sorted(python) if ("py", name) not in documented]
    fortran = fortran_names(root)
    counts["Fortran"] = len(fortran)
    problems += [f"Fortran: {name} is on no page" for name in sorted(fortran) if ("std", name) not in documented]
    problems += broken(site, pages)
    for problem in problems:
        print(problem)
    if not problems:
        told = ", ".join(f"{count} names of {language}" for language, count in counts.items())
        print(f"counts: {len(pages)} pages, {told}, {sum(len(page.links) for page in pages.values())} links")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), *sys.argv[3:]))
