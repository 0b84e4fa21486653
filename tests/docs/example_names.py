# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Public names that no example uses, and the list of those that are still to get one, which may only become shorter.

  example_names.py ROOT            names that have lost their example, and those of the list that have one now
  example_names.py ROOT --write    rewrites the list

Examples are what a test compiles or runs: docs/examples, examples, and the ```python blocks of the README and of pages.
A name counts as used where it stands as a word outside comments, a name of Python where the names of its modules stand
in the same file or page, too. A class template of C++ that a function of its own header returns, as
`Alibi<T> alibi(T const& slopes)` does, counts where the function does: the call deduces its arguments, and who makes one
writes no more than that.
"""

import pathlib
import re
import sys

import check_site
import python_examples

LIST = pathlib.Path(__file__).with_name("names_without_example.txt")


def words(text: str, comment: str) -> set[str]:
    return set(re.findall(r"\w+", re.sub(comment, " ", text, flags=re.S | re.M)))


def sources(root: pathlib.Path, *endings: str) -> list[str]:
    folders = [root / "docs/examples", root / "examples"]
    files = sorted(file for folder in folders for ending in endings for file in folder.rglob(f"*.{ending}"))
    return [file.read_text(encoding="utf-8") for file in files]


def of_python(root: pathlib.Path) -> list[str]:
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    blocks = ["\n".join(x for kind, _, x in python_examples.blocks(page) if kind == "python") for page in pages]
    return [*blocks, *sources(root, "py")]


def factories(root: pathlib.Path) -> dict[str, set[str]]:
    """Of each public class template the public functions of its header that return it."""
    found: dict[str, set[str]] = {}
    for header, public in check_site.cxx_names(root).items():
        text = check_site.bare((root / "include" / header).read_text(encoding="utf-8"))
        templates = set(re.findall(r"template <(?:[^<>]|<[^<>]*>)*>\s*(?:struct|class) (\w+) \{", text)) & public
        for name, function in re.findall(r"\b(\w+)<(?:[^<>;{}()]|<[^<>]*>)*>\s+(\w+)\(", text):
            if name in templates and function in public:
                found.setdefault(name, set()).add(function)
    return found


def missing(root: pathlib.Path) -> list[str]:
    """`language name` of everything public that no example uses."""
    c_comment = r"//[^\n]*|/\*.*?\*/"
    used = {
        "C++": [words("\n".join(sources(root, "cpp", "hpp")), c_comment)],
        "C": [words("\n".join(sources(root, "c", "cpp")), c_comment)],
        "Fortran": [words("\n".join(sources(root, "f90")).lower(), r"![^\n]*")],
        "Python": [words(text, r"#[^\n]*") for text in of_python(root)],
    }
    made_by = factories(root)
    public = {
        "C++": {name for names in check_site.cxx_names(root).values() for name in names},
        "C": check_site.c_names(root),
        "Fortran": check_site.fortran_names(root),
        "Python": check_site.python_names(root),
    }
    return [
        f"{language} {name}"
        for language, names in public.items()
        for name in sorted(names)
        if not any(set(name.split(".")) <= found for found in used[language])
        and not (language == "C++" and made_by.get(name, set()) & used["C++"][0])
    ]


def problems(root: pathlib.Path) -> list[str]:
    found, listed = set(missing(root)), set(LIST.read_text(encoding="utf-8").splitlines())
    lost = "is public and has no example in docs/examples, examples or a page"
    gained = f"has an example, or is public no more: take it off {LIST.name}"
    return [f"{x} {lost}" for x in sorted(found - listed)] + [f"{x} {gained}" for x in sorted(listed - found)]


def main(root: pathlib.Path, *options: str) -> int:
    if options == ("--write",):
        LIST.write_text("\n".join(missing(root)) + "\n", encoding="utf-8")
        return 0
    told = problems(root)
    print("\n".join([*told, f"counts: {len(missing(root))} public names have no example yet"]))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
