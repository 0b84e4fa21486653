#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The companion's sources that a change touches, for ATTIKOS_CUDA_WHOLE.

  changed_sources.py BASE [--at-most COUNT] [--root DIRECTORY]

Prints, as one CMake list, the names of the translation units of cuda_specializations/ that are other than at the git
revision BASE, or include a file that is, at whatever depth: committed, uncommitted or new. What says how all of them
are compiled and checked touches all of them.

With --at-most, a change that reaches more than COUNT of them does not name all it reaches: changed files count from the
one that touches fewest on, as long as together they touch no more than COUNT. A header that every kernel includes is
compiled by a quick build in one type of each family anyway.
"""

import argparse
import pathlib
import re
import subprocess

SOURCES = "cuda_specializations"
OF_ALL = (
    f"{SOURCES}/CMakeLists.txt",
    f"{SOURCES}/ptxas_allowances.txt",
    "cmake/AttikosCudaFamilies.cmake",
    "cmake/check_ptxas_log.cmake",
)
GENERATED = {"attikos/config.hpp": "cmake/config.hpp.in"}
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)


def changed_files(root, base):
    """Paths of the working tree that are other than at `base`."""

    def git(*command):
        done = subprocess.run(["git", "-C", root, *command], check=True, capture_output=True)
        return [name for name in done.stdout.decode().split("\0") if name]

    return set(git("diff", "--name-only", "-z", "--no-renames", base, "--")) | set(
        git("ls-files", "--others", "--exclude-standard", "-z")
    )


def included(root, path):
    """Our own files that a file includes."""
    for quoted, angled in INCLUDE.findall((root / path).read_bytes()):
        name = (quoted or angled).decode()
        if name in GENERATED:
            yield GENERATED[name]
            continue
        places = [path.parent / name] if quoted else []
        for place in [*places, pathlib.PurePosixPath("include") / name, pathlib.PurePosixPath(SOURCES) / name]:
            if (root / place).is_file():
                yield (root / place).resolve().relative_to(root).as_posix()
                break


def all_included(root, path, known):
    """The same at whatever depth, itself among them."""
    seen, waiting = set(), [path]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        if here not in known:
            known[here] = list(included(root, pathlib.PurePosixPath(here))) if (root / here).is_file() else []
        waiting += known[here]
    return seen


def touched_by(root, changed):
    """Names of the sources that each changed file touches."""
    known = {}
    # What common/ compiles is no kernel's: it is always compiled, and for all of its architectures.
    sources = [path.relative_to(root).as_posix() for path in (root / SOURCES).rglob("*.cu")]
    read = {source: all_included(root, source, known) for source in sources}
    return {
        file: {
            pathlib.PurePosixPath(source).stem
            for source in sources
            if (file in OF_ALL or file in read[source]) and not source.startswith(f"{SOURCES}/common/")
        }
        for file in changed
    }


def changed_sources(root, base, at_most=None):
    touched = touched_by(root, changed_files(root, base))
    chosen = set()
    for file in sorted(touched, key=lambda file: (len(touched[file]), file)):
        together = chosen | touched[file]
        if at_most is None or len(together) <= at_most:
            chosen = together
    return sorted(chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("--at-most", type=int, metavar="COUNT")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    options = parser.parse_args()
    print(";".join(changed_sources(options.root.resolve(), options.base, options.at_most)))


if __name__ == "__main__":
    main()
