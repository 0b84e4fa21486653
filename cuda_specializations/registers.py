#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers and spills of the companion's kernels, as ptxas told them when they were compiled.

  registers.py BUILD [NAME] [--against OTHER]

BUILD is a build directory, or any directory with the *.ptxas.log files of one; NAME the beginning of the names of
the sources to look at: attention_sm90_bf16_d128. With OTHER, another such directory, prints what differs from there
instead, whichever source a kernel stands in. Kernels that only one of the two has by name, since a shape or a type was
renamed, are paired with those of the same template, source and architecture in the order in which they are
instantiated, if they are as many; of such pairs both names are printed where they differ.
"""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys

Numbers = collections.namedtuple("Numbers", "registers stack stores loads")
Function = collections.namedtuple("Function", "numbers source name")


def without_source(name):
    """A mangled name without the part that stands for its translation unit."""
    while match := re.search(r"(\d+)(?:_GLOBAL__N__|_INTERNAL_)[0-9a-f]{8}_", name):
        length, digits = match[1], 0
        start = match.start() + len(length)
        # The number before is the part's length; digits ahead of it belong to something else.
        while digits < len(length) and not re.search(r"_cu_[0-9a-f]{8}", name[start : start + int(length[digits:])]):
            digits += 1
        name = name[: match.start() + digits] + name[start + int(length[digits:]) :]
    return name


def read(directory, beginning=""):
    """{(kernel or device function, architecture): Function} of all notes below a directory."""
    found = {}
    for log in sorted(pathlib.Path(directory).rglob("*.ptxas.log")):
        source = log.name.split(".")[0]
        if not source.startswith(beginning):
            continue
        architecture, name, sizes = "?", "?", (0, 0, 0)
        for line in log.read_text().splitlines():
            if match := re.search(r"Compiling entry function '([^']+)' for '([^']+)'", line):
                architecture = match[2]
            elif match := re.search(r"Function properties for (\S+)", line):
                name = match[1]
            elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
                sizes = tuple(map(int, match.groups()))
                found[without_source(name), architecture] = Function(Numbers("-", *sizes), source, name)
            elif match := re.search(r"Used (\d+) registers", line):
                found[without_source(name), architecture] = Function(Numbers(match[1], *sizes), source, name)
    return found


def template_of(name):
    """What a mangled name has before its template arguments: our functions and namespaces have no capital I."""
    return without_source(name).split("I", 1)[0]


def paired(now, before):
    """[(function now, function before)], None for one that is not there."""
    pairs = [(function, before[key]) for key, function in now.items() if key in before]
    renamed = collections.defaultdict(lambda: ([], []))
    for side, own, other in (0, now, before), (1, before, now):
        for key, function in own.items():
            if key not in other:
                renamed[template_of(function.name), function.source, key[1]][side].append(function)
    for fresh, old in renamed.values():
        if len(fresh) == len(old):
            pairs += zip(fresh, old)
        else:
            pairs += [(function, None) for function in fresh] + [(None, function) for function in old]
    return pairs


def readable(functions):
    """{mangled: demangled and shortened}"""
    names = sorted({function.name for function in functions})
    if not shutil.which("c++filt"):
        return {name: name for name in names}
    # c++filt does not know what stands for the translation unit of a function that is not a kernel.
    plain = [re.sub(r"^_ZN\d+_INTERNAL_[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}", "_ZN", name) for name in names]
    shown = subprocess.run(["c++filt"], input="\n".join(plain), capture_output=True, text=True, check=True).stdout
    result = {}
    for name, text in zip(names, shown.splitlines()):
        text = re.sub(r"^void |attikos::v\w+::|cuda::|\(anonymous namespace\)::|\(\w+\)(?=[-\d])|\([^()]*\)$", "", text)
        result[name] = text.replace("__nv_bfloat16", "bf16").replace("__half", "f16").replace("__nv_fp8_", "f8_")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("name", metavar="NAME", nargs="?", default="")
    parser.add_argument("--against", metavar="OTHER")
    options = parser.parse_args()
    now = read(options.build, options.name)
    if not now:
        sys.exit(f"registers.py: no notes of ptxas about {options.name or 'anything'} below {options.build}")
    before = read(options.against, options.name) if options.against else {}
    names = readable([*now.values(), *before.values()])
    if not options.against:
        print("registers  stack  spill stores  loads  architecture  kernel")
        for (_, architecture), function in sorted(now.items(), key=lambda item: (item[1].source, item[0])):
            numbers = function.numbers
            print(f"{numbers.registers:>9} {numbers.stack:6} {numbers.stores:13} {numbers.loads:6}  {architecture:12}  "
                  f"{names[function.name]}")  # fmt: skip
        return
    differences = 0
    architectures = {id(function): key[1] for side in (now, before) for key, function in side.items()}
    for is_now, was in sorted(paired(now, before), key=lambda pair: names[(pair[0] or pair[1]).name]):
        if not was or not is_now or was.numbers != is_now.numbers:
            differences += 1
            known = is_now or was
            other = f"(was {names[was.name]})" if was and is_now and names[was.name] != names[is_now.name] else ""
            print(architectures[id(known)], names[known.name], *filter(None, [other]), *(
                f"{when} {' '.join(f'{k} {v}' for k, v in f.numbers._asdict().items()) if f else 'absent'}"
                for when, f in (("before:", was), ("now:", is_now))))  # fmt: skip
    kernels = sum(function.numbers.registers != "-" for function in now.values())
    spilling = sum(function.numbers.stores + function.numbers.loads > 0 for function in now.values())
    print(f"{kernels} kernels, {spilling} functions that spill, {differences} differences")
    sys.exit(differences != 0)


if __name__ == "__main__":
    main()
