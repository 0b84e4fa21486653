# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""clang-tidy over sources of a configured build, by .clang-tidy.

  tidy.py BUILD_DIRECTORY...               every C++ source that the builds compile, and all public headers
  tidy.py BUILD_DIRECTORY... --since BASE  what differs from BASE: changed sources, public headers that changed, and for
                                           each other header one source that includes it

The public headers are one translation unit, with the flags of the first build, which has Kokkos. Sources in CUDA are
nvcc's, which clang-tidy cannot follow; of changed files that no build compiles the names are printed. Once --seconds
are over no further one is begun, and the names of those that are left are printed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "cmake"))
sys.dont_write_bytecode = True
from changed_sources import changed_files  # noqa: E402  where the path is set

CHECKED = re.compile(r"(include/attikos|bindings/c|examples|perf|tests)/.*\.(hpp|h|cpp)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<](?:\.\./)*([^">]+)[">]', re.M)


def git(*words, text=""):
    done = subprocess.run(["git", "-C", ROOT, *words], input=text, check=True, capture_output=True, text=True)
    return done.stdout


def tracked():
    """Paths of the files that are looked at; new ones are among them."""
    paths = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return [path for path in paths if CHECKED.fullmatch(path) and (ROOT / path).is_file()]


def changed_since(base, paths):
    """Those that are other than at `base`, and not only moved."""
    known = {line.split()[2] for line in git("ls-tree", "-r", base).splitlines()}
    changed = sorted(changed_files(ROOT, base) & set(paths))
    hashes = git("hash-object", "--stdin-paths", text="\n".join(changed)).split()
    return [path for path, content in zip(changed, hashes, strict=True) if content not in known]


def is_public(path):
    """Of distributed/ the headers want an MPI, which the builds do not have; they are looked at through a build's sources."""
    return path.startswith("include/") and not path.startswith("include/attikos/distributed/")


def compile_commands(build):
    """Arguments of a build's C++ sources by path, without what belongs to precompiled headers."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        if path.suffix != ".cpp" or not path.is_relative_to(ROOT) or path.is_relative_to(build):
            continue
        words, arguments = iter(shlex.split(entry["command"])), []
        for word in words:
            if word == "-Xclang":
                word = next(words)
                if word in ("-include-pch", "-include"):
                    next(words), next(words)
            elif word == "-o":
                next(words)
            elif word not in ("-Winvalid-pch", "-c", entry["file"]):
                arguments.append(word)
        commands.setdefault(path.relative_to(ROOT).as_posix(), (entry["directory"], arguments))
    return commands


def includers(paths):
    """For each file those that include one whose path ends as the name in the directive does."""
    by_name, found = {}, {path: set() for path in paths}
    for path in paths:
        by_name.setdefault(path.rsplit("/", 1)[-1], []).append(path)
    for path in paths:
        for name in INCLUDE.findall((ROOT / path).read_text(encoding="utf-8")):
            for other in by_name.get(name.rsplit("/", 1)[-1], []):
                if ("/" + other).endswith("/" + name):
                    found[other].add(path)
    return found


def chosen(paths, changed, commands):
    """The public headers and the sources to look at so that every changed file is, and what no source reaches."""
    headers = [path for path in changed if is_public(path)]
    sources = {path for path in changed if path in commands}
    missed, users = [], includers(paths)
    for path in sorted(set(changed) - sources - set(headers)):
        reached, waiting = set(), [path]
        while waiting:
            here = waiting.pop()
            if here not in reached:
                reached.add(here)
                waiting += users[here]
        reached &= commands.keys()
        if not reached:
            missed.append(path)
        elif not reached & sources:
            sources.add(min(reached, key=lambda source: ((ROOT / source).stat().st_size, source)))
    return headers, sorted(sources), missed


def work_of(build, headers, sources, commands):
    """Writes clang-tidy's own compile commands; names and paths of what is in them."""
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    work = [(source, ROOT / source) for source in sources]
    entries = [(path, *commands[name]) for name, path in work]
    if headers:
        path = folder / "public_headers.cpp"
        path.write_text("".join(f"#include <{h.removeprefix('include/')}>\n" for h in headers), encoding="utf-8")
        work.insert(0, (f"{len(headers)} public headers", path))
        # Any source that has Kokkos and no definitions of its own.
        entries.append((path, *commands["tests/unit/core/test_to_abi.cpp"]))
    (folder / "compile_commands.json").write_text(json.dumps(
        [{"file": str(path), "directory": directory, "arguments": [*arguments, "-c", str(path)]}
         for path, directory, arguments in entries]), encoding="utf-8")  # fmt: skip
    return folder, work


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", metavar="BUILD_DIRECTORY", type=pathlib.Path, nargs="+")
    parser.add_argument("--since", metavar="BASE")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    builds, paths, commands = [build.resolve() for build in options.builds], tracked(), {}
    for build in reversed(builds):
        commands |= compile_commands(build)
    if options.since:
        headers, sources, missed = chosen(paths, changed_since(options.since, paths), commands)
        if missed:
            print("not compiled here, so not looked at:", *missed)
    else:
        headers, sources = [path for path in paths if is_public(path)], sorted(commands)
    folder, work = work_of(builds[0], headers, sources, commands)
    begin, times, late, bad = time.monotonic(), [], [], []

    def look(name, path):
        started = time.monotonic()
        if started - begin > options.seconds:
            late.append(name)
            return
        done = subprocess.run(["clang-tidy-14", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", "-p", folder, path],
                              capture_output=True, text=True, check=False)  # fmt: skip
        times.append((time.monotonic() - started, name))
        if done.returncode != 0:
            bad.append(name)
            print(done.stdout or done.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda item: look(*item), work))
    for seconds, name in sorted(times, reverse=True)[:5]:
        print(f"{seconds:8.1f} s  {name}")
    if late:
        print("left for the night:", *late)
    print(f"counts: clang-tidy finds nothing in {len(times)} translation units" if not bad
          else f"clang-tidy finds something in {', '.join(bad)}")  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
